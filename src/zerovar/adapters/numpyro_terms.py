"""What the log density of a NumPyro model is made of."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from ..errors import list_names
from ..inputs.integrands import Tree
from ..inputs.terms import Terms, trace_in_double
from .base import base_distribution, copy_arrays

# What NumPyro appends to the name of a site for the one that stands for it after `reparam`
STANDS_FOR = ("_decentered", "_base")


def numpyro_terms(
    model: Any,
    own: tuple[tuple[Any, ...], dict[str, Any]],
    summed_out: list[str],
    draw: np.ndarray,
    unravel: Callable[[jax.Array], Tree],
) -> Terms:
    """Return the terms of a model whose random parts are seeded, with arguments of zerovar's own.
    `draw` (d,) is any draw, and `unravel` gives its latent sites on the unconstrained scale.
    `summed_out` are discrete sites."""
    from numpyro import handlers
    from numpyro.infer.util import compute_log_probs, constrain_fn, potential_energy
    from numpyro.ops.provenance import eval_provenance

    if summed_out:
        raise ValueError(
            f"the likelihood cannot be told apart from the prior: {list_names(summed_out)} is "
            "summed out of both together"
        )
    given = _Arguments(model, *own)

    def natural(x: Any, new: Mapping[str, Any]) -> dict[str, Any]:
        args, kwargs = given.replace(new)
        return constrain_fn(model, args, kwargs, unravel(x), return_deterministic=True)

    def densities(sites: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the log densities of all sites, given the latent ones, and NumPyro's trace."""
        fixed = handlers.substitute(model, data=sites)
        args, kwargs = given.replace({})
        return compute_log_probs(fixed, args, kwargs, {}, sum_log_prob=False)

    kinds: dict[str, list[str]] = {}

    def look(**origins: Any) -> dict[str, Any]:
        found, trace = densities({name.removeprefix("_"): site for name, site in origins.items()})
        kinds.update(_sort_sites(trace, [name.removeprefix("_") for name in origins]))
        return found | {name: trace[name]["value"] for name in kinds["deterministic"]}

    def find_parents() -> dict[str, frozenset[str]]:
        free, sites = jax.eval_shape(lambda x: (unravel(x), natural(x, {})), draw)
        # by names that no parameter of NumPyro's function has
        return eval_provenance(look, **{f"_{name}": sites[name] for name in free})

    parents = trace_in_double(find_parents)
    top = [name for name in kinds["latent"] if parents[name] <= {f"_{name}"}]
    # as in the model before `reparam`: a site has parents, and what stands for it has none
    stands_for = {f"{name}{end}": name for name in kinds["deterministic"] for end in STANDS_FOR}
    top = [name for name in top if len(parents[stands_for.get(name, name)]) < 2]
    asked = (*kinds["latent"], *kinds["observed"], *kinds["factors"])

    def at(x: Any) -> dict[str, Any]:
        sites = natural(x, {})
        found, _ = densities({name: sites[name] for name in unravel(x)})
        return {name: found[name] for name in asked}

    def log_density(x: Any, new: Mapping[str, Any]) -> jax.Array:
        args, kwargs = given.replace(new)
        return -potential_energy(model, args, kwargs, unravel(x))

    @functools.cache
    def moves(name: str) -> tuple[str, ...]:
        found = eval_provenance(lambda value: natural(draw, {name: value}), value=given.named[name])
        return tuple(site for site, origins in found.items() if origins)

    return Terms(
        tuple(kinds["latent"]),
        tuple(kinds["observed"]),
        tuple(top),
        tuple(kinds["factors"]),
        at,
        given.named,
        log_density,
        natural,
        moves,
    )


def describe_subsample(name: str, site: dict[str, Any]) -> str:
    """Say that a site is a plate that takes some of the data; nothing if it is not."""
    size, some = site["args"] if site["type"] == "plate" else (None, None)
    if some is None or some == size:  # None where the model says nothing of it
        return ""
    return f"the plate {name} takes {some} of {size} data at a time, by chance"


def _sort_sites(trace: dict[str, Any], sampled: list[str]) -> dict[str, list[str]]:
    """Return the names of all sites by their kinds; a ValueError if the log density is no sum of
    theirs."""
    from numpyro import distributions

    found: dict[str, list[str]] = {
        kind: [] for kind in ("latent", "observed", "factors", "deterministic")
    }
    for name, site in trace.items():
        if part := describe_subsample(name, site):
            raise ValueError(f"the likelihood cannot be told apart: {part}")
        if site["type"] == "deterministic":
            found["deterministic"].append(name)
        if site["type"] != "sample":
            continue
        if isinstance(base_distribution(site["fn"]), distributions.Unit):
            found["factors"].append(name)
        elif site["is_observed"]:
            found["observed"].append(name)
        elif name in sampled:
            found["latent"].append(name)
        else:
            raise ValueError(
                f"the likelihood cannot be told apart: the site {name} has neither data nor draws"
            )
    return found


class _Arguments:
    """The arguments of a model by name, arrays of their own, and the same with some replaced."""

    def __init__(self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]):
        bound = inspect.signature(model).bind(*args, **kwargs)
        bound.apply_defaults()
        self.signature = bound.signature
        leaves, self.structure = jax.tree_util.tree_flatten_with_path(
            copy_arrays(dict(bound.arguments))
        )
        rest = [
            one.name for one in self.signature.parameters.values() if one.kind is one.VAR_KEYWORD
        ]
        self.named: dict[str, Any] = {}
        for path, leaf in leaves:
            name = jax.tree_util.keystr(path, simple=True, separator=".")
            # what **kwargs takes is known by its own name
            self.named[name.removeprefix(f"{rest[0]}.") if rest else name] = leaf

    def replace(self, new: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return args and kwargs."""
        leaves = [new.get(name, leaf) for name, leaf in self.named.items()]
        bound = inspect.BoundArguments(self.signature, jax.tree.unflatten(self.structure, leaves))
        return bound.args, bound.kwargs
