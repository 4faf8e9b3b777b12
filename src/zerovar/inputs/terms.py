"""What a model's log density is made of, and the arguments that it depends on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from ..errors import list_names
from .integrands import DrawFunction, InSingleOnly, Returned, Tree, insist_on_double

# A function of one unconstrained draw (d,), with some arguments of the model replaced, by name
WithArguments = Callable[[Any, Mapping[str, Any]], Tree]


@dataclasses.dataclass(frozen=True, eq=False)
class Terms:
    """The sites of a model by what they are to its log density, and the model's arguments. All
    functions are of one draw (d,) on the unconstrained scale, in JAX.

    latent, observed: names of the sites that were sampled, and of those with data.
    top: the latent sites without latent parents, which are a model's prior in the narrow sense.
    factors: what is added to the log density and is no distribution of a site.
    at: a dict of all these sites, to the log densities of their entries on the natural scale,
        without the Jacobian of the transformation: an array of the site's batch shape, or a number.
        Scaled and masked as in the model.
    arguments: name → value, those that are left at their defaults too; entries of dicts and tuples
        are called data.y, data.0.
    log_density: that of the model, with the Jacobian.
    natural: all sites on their natural scale, deterministic ones too.
    moves: for an argument's name, the sites that on their natural scale depend on it at a fixed
        draw: deterministic ones, and latent ones if it is in their supports.
    """

    latent: tuple[str, ...]
    observed: tuple[str, ...]
    top: tuple[str, ...]
    factors: tuple[str, ...]
    at: DrawFunction
    arguments: Mapping[str, Any]
    log_density: WithArguments
    natural: WithArguments
    moves: Callable[[str], tuple[str, ...]]

    def with_arguments(self, x: Any, new: Mapping[str, Any]) -> jax.Array:
        """Return the log density of one unconstrained draw (d,) with some arguments replaced by
        arrays of the same shapes; JAX differentiates it in them. A ValueError says why a model has
        no such derivative."""
        if unknown := [name for name in new if name not in self.arguments]:
            raise ValueError(
                f"{list_names(unknown)} is no argument of the model; it has {list(self.arguments)}"
            )
        for name, value in new.items():
            if np.shape(value) != np.shape(self.arguments[name]):
                raise ValueError(
                    f"the argument {name} has shape {np.shape(self.arguments[name])}; got "
                    f"{np.shape(value)}"
                )
            if moved := [site for site in self.find_moved(name) if site in self.latent]:
                raise ValueError(
                    f"the support of {list_names(moved)} depends on the argument {name}: a draw on "
                    "its natural scale moves with it, and the derivative of the log density alone "
                    "does not say how a mean does"
                )
        return _run_or_name(list(new), lambda: self.log_density(x, new))

    def find_moved(self, name: str) -> tuple[str, ...]:
        """Return `moves` of an argument; a ValueError if the model cannot be traced with it."""
        return _run_or_name([name], lambda: trace_in_double(lambda: self.moves(name)))


def trace_in_double(run: Callable[[], Returned]) -> Returned:
    """Return `run()`, which traces a model for what does not depend on its precision, in double if
    it can be had: the arrays that JAX remembers are then those of later programs."""
    try:
        return insist_on_double(run)
    except InSingleOnly as single:
        return single.found


def _run_or_name(names: list[str], run: Callable[[], Returned]) -> Returned:
    """Return `run()`, which traces a model with these arguments, or say that JAX cannot."""
    try:
        return run()
    except Exception as error:
        raise ValueError(
            f"JAX cannot follow the model through its argument {list_names(names)}, which may not "
            "be used for a shape, in an `if` of Python, or by functions that are not JAX': "
            f"{error}"
        ) from error
