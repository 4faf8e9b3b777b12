"""PyMC: the model and its trace, through JAX."""

import dataclasses
import functools
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from ..arguments import MORE_VALUES, takes, where
from ..errors import missing_package
from ..inputs.density import Constants
from ..inputs.integrands import entry_name
from ..inputs.sample import Posterior
from .arviz import TREE, axis_labels, count_divergences, dataset, stack_variables, variable_values
from .base import (
    MAPS,
    Labels,
    build_posterior,
    density_of,
    discrete_error,
    map_chains,
    named_entries,
)
from .pymc_terms import find_minibatches, jaxify, pymc_terms


@takes(
    model=where(
        "a pymc.Model",
        lambda model: hasattr(model, "free_RVs") and hasattr(model, "value_vars"),
    ),
    idata=TREE,
    values=MORE_VALUES,
    coordinates=MAPS,
)
def from_pymc(
    model: Any,
    idata: Any,
    *,
    values: Mapping[str, object] | None = None,
    coordinates: Mapping[str, object] | None = None,
) -> Posterior:
    """Return draws and scores of a PyMC model's trace, whichever sampler made it.

    model: the `pm.Model`.
    idata: its trace, InferenceData or DataTree, with a group `posterior` that has every free
        variable.
    values: more quantities, name → function of one draw (a dict of all variables of the posterior),
        or array (chain, draw).
    coordinates: name → other coordinates to try, as in `zv.from_log_density`; a function takes a
        dict of the model's value variables, on the unconstrained scale, such as tau_log__.

    The model's log density is compiled to JAX and differentiated at every draw on the unconstrained
    scale. A trace by nutpie with `store_gradient=True, store_unconstrained=True`, or by PyMC 6 with
    `nuts={"store_gradient": True}, idata_kwargs={"include_transformed": True}`, has all this
    already: use `zv.from_arviz(idata)`.
    """
    posterior = dataset(idata, "posterior")
    with pymc_in_jax(model) as as_function:
        from pytensor.graph.replace import clone_replace

        free = model.free_RVs
        absent = [variable.name for variable in free if variable.name not in posterior]
        if absent:
            raise ValueError(
                f"the posterior lacks the model's free variables {', '.join(absent)}; it has "
                f"{list(posterior)}"
            )
        changes = [(variable, model.rvs_to_transforms[variable]) for variable in free]
        unconstrained = [
            x if change is None else change.forward(x, *x.owner.inputs) for x, change in changes
        ]
        # numbers in place of random variables
        given = [variable.type(name=variable.name) for variable in free]
        forward = as_function(
            given, clone_replace(unconstrained, dict(zip(free, given, strict=True)))
        )
        density = as_function(model.value_vars, [model.logp()])
        natural = list(stack_variables(posterior, [variable.name for variable in free]).values())
        with jax.enable_x64(True):
            draws = map_chains(lambda xs: list(forward(*xs)), natural)
            scores = map_chains(jax.grad(lambda xs: density(*xs)[0]), draws)
    names = [value.name for value in model.value_vars]
    # in the model's order, which a plain dict would lose
    named_draws, named_scores = (
        OrderedDict(zip(names, arrays, strict=True)) for arrays in (draws, scores)
    )
    wanted = variable_values(posterior, values)
    known = density_of(
        named_draws,
        lambda point: density(*(point[name] for name in names))[0],
        _natural_scale(model, names),
        values,
        axis_labels(posterior),
        functools.partial(pymc_constants, model),
        functools.partial(pymc_terms, model),
    )
    found = build_posterior(named_draws, named_scores, wanted, coordinates, density=known)
    return dataclasses.replace(
        found,
        names=tuple(named_entries(named_draws, dimension_labels(model))),
        divergences=count_divergences(idata),
    )


def dimension_labels(model: Any) -> Labels:
    """Return what PyMC calls an entry, by the coordinates of its dimensions: mu[ann]. A variable on
    the unconstrained scale has those of its own, if it has as many entries."""
    axes = {
        name: [model.coords[dim] for dim in dims]
        for name, dims in model.named_vars_to_dims.items()
        if all(model.coords.get(dim) is not None for dim in dims)
    }
    first = model.initial_point()
    for variable, value in model.rvs_to_values.items():
        own = axes.get(variable.name)
        if own and np.shape(first.get(value.name)) == tuple(map(len, own)):
            axes[value.name] = own

    def label(name: str, index: tuple[int, ...]) -> str:
        if name not in axes:
            return entry_name(name, index)
        labels = (str(axis[k]) for axis, k in zip(axes[name], index, strict=True))
        return f"{name}[{', '.join(labels)}]"

    return label


def pymc_constants(model: Any) -> Constants:
    """Return what of a model's log density is no normalised prior or likelihood."""
    relative = [f"the potential {one.name} is no normalised density" for one in model.potentials]
    kinds = {one.name: type(one.owner.op).__name__ for one in model.free_RVs}
    relative += [
        f"the prior of {name} is improper" for name, kind in kinds.items() if "Flat" in kind
    ]
    return Constants(tuple(relative), tuple(find_minibatches(model)))


def _natural_scale(model: Any, names: list[str]) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """The function from one draw of the value variables to all variables on their natural scale,
    compiled when it is first called."""

    @functools.cache
    def compile_forward() -> tuple[list[str], Callable[..., Any]]:
        shown = [*model.free_RVs, *model.deterministics]
        forward = jaxify(model.value_vars, model.replace_rvs_by_values(shown))
        return [variable.name for variable in shown], forward

    def natural(point: Mapping[str, Any]) -> dict[str, Any]:
        variables, forward = compile_forward()
        return dict(zip(variables, forward(*(point[name] for name in names)), strict=True))

    return natural


@contextmanager
def pymc_in_jax(model: Any) -> Iterator[Callable[..., Callable[..., Any]]]:
    """Give the function that compiles graphs of a model without discrete variables to JAX.

    PyTensor's JAX backend turns double precision on for the whole process when it is imported; the
    choice is the user's, and is restored. Constants of a graph are cast when it is compiled: to
    double precision, whether or not that import was an earlier one.
    """
    before = jax.config.read("jax_enable_x64")
    try:
        from pymc.sampling.jax import get_jaxified_graph

        kinds = {variable.name: variable.dtype for variable in model.free_RVs}
        discrete = [
            name for name, kind in kinds.items() if kind.startswith(("int", "uint", "bool"))
        ]
        if discrete:
            raise discrete_error("variables", discrete)
        with jax.enable_x64(True):
            yield get_jaxified_graph
    except ImportError as error:
        raise missing_package("PyMC", "pymc") from error
    finally:
        jax.config.update("jax_enable_x64", before)
