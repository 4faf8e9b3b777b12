"""The steps that adapters share."""

import functools
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from ..arguments import Requirement, instance, show, whole
from ..errors import list_names, require_distinct
from ..inputs.coordinates import Coordinates
from ..inputs.density import Constants, Density
from ..inputs.integrands import (
    DrawFunction,
    Tree,
    describe_draw,
    entry_name,
    leaves_by_path,
    map_draws,
    run_or_explain,
)
from ..inputs.sample import Posterior, as_float
from ..inputs.terms import Terms
from ..spaces import REALS, Space

Entry = TypeVar("Entry")
MAPS = instance(
    Mapping, "a dict of name → zv.Coordinates(…), zv.Coupling(…) or a function of one draw"
)
Labels = Callable[[str, tuple[int, ...]], str]  # what an entry of a variable is called


def _axis(value: Any) -> int:
    return whole(0, 1).read(value)


CHAIN_AXIS = Requirement(
    "None for (draw, …), 0 for (chain, draw, …) or 1 for (draw, chain, …)", _axis
)


def discrete_error(kind: str, names: list[str]) -> ValueError:
    """Return the error for a model that is not differentiable."""
    return ValueError(
        f"the model has discrete {kind}, {', '.join(names)}: its log density has no gradient "
        "there. Sum them out of the model, or give zv.from_log_density a log density of the others"
    )


def ravel(tree: Tree) -> np.ndarray:
    """Return all leaves (chain, draw, …) side by side: (chain, draw, d), dicts in the order of
    their sorted keys."""
    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(tree)]
    return np.concatenate([leaf.reshape(*leaf.shape[:2], -1) for leaf in leaves], axis=2)


def build_posterior(
    draws: Tree,
    scores: Tree,
    values: Mapping[str, np.ndarray],
    maps: Mapping[str, object] | None = None,
    from_model: bool = True,
    density: Density | None = None,
    space: Space = REALS,
) -> Posterior:
    """Return a posterior from trees of arrays (chain, draw, …) of one structure; coordinates are
    called mu, theta[0], theta[1].

    maps: to other coordinates, by name: `Coordinates` of the flat draw, or functions of one draw in
    its own structure, in JAX.
    """
    offered = {
        str(name): _flatten_map(str(name), entry, draws) for name, entry in (maps or {}).items()
    }
    names = tuple(named_entries(_by_path(draws)))
    return Posterior(
        ravel(draws),
        ravel(scores),
        values,
        names,
        coordinates=offered,
        from_model=from_model,
        density=density,
        space=space,
    )


def density_of(
    draws: Tree,
    log_density: DrawFunction,
    natural: DrawFunction | None = None,
    values: Mapping[str, Any] | None = None,
    labels: Labels = entry_name,
    constants: Callable[[], Constants] = Constants,
    terms: Callable[[np.ndarray, Callable[[jax.Array], Tree]], Terms] | None = None,
) -> Density:
    """Return a log density and its quantities as functions of one flat draw; those given are of a
    draw in the structure of a tree of arrays (chain, draw, …). `values` may have arrays among its
    functions, which are known at the draws alone. `terms` takes any flat draw and the function
    that gives it its structure."""
    unravel = unraveller(draws)
    first = jax.tree.map(lambda leaf: np.asarray(leaf)[:1, :1], draws)
    more = {name: each for name, each in (values or {}).items() if callable(each)}
    return Density(
        lambda x: log_density(unravel(x)),
        unravel if natural is None else lambda x: natural(unravel(x)),
        more,
        labels,
        constants,
        None if terms is None else functools.cache(lambda: terms(ravel(first)[0, 0], unravel)),
    )


def _flatten_map(name: str, entry: object, draws: Tree) -> Coordinates:
    if isinstance(entry, Coordinates):
        return entry
    if not callable(entry):
        raise ValueError(
            f"coordinates[{name!r}] must be zv.Coordinates(…) or a function of one draw; got "
            f"{entry!r}"
        )
    unravel = unraveller(draws)

    def forward(x: jax.Array) -> jax.Array:
        draw = unravel(x)
        mapped = entry(draw)
        if isinstance(draw, dict) and isinstance(mapped, dict) and set(draw) == set(mapped):
            mapped = [mapped[name] for name in draw]  # in the order of the draw
        return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(mapped)])

    return Coordinates(forward)


def unraveller(draws: Tree) -> Callable[[jax.Array], Tree]:
    """Return a function from one flat draw (d,) to a draw in the structure of a tree of arrays
    (chain, draw, …)."""
    leaves, structure = jax.tree.flatten(draws)
    shapes = [np.shape(leaf)[2:] for leaf in leaves]
    ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]

    def unravel(x: jax.Array) -> Tree:
        parts = zip(jnp.split(x, ends), shapes, strict=True)
        return jax.tree.unflatten(structure, [jnp.reshape(part, shape) for part, shape in parts])

    return unravel


def copy_arrays(tree: Tree) -> Tree:
    """Return a tree with NumPy arrays of its own: JAX remembers those that the user's runs gave it,
    in their precision."""
    return jax.tree.map(lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, tree)


def base_distribution(distribution: Any) -> Any:
    """Return what a distribution of NumPyro expands, masks or transforms."""
    while hasattr(distribution, "base_dist"):
        distribution = distribution.base_dist
    return distribution


def put_chains_first(name: str, array: ArrayLike, chain_axis: int | None) -> np.ndarray:
    """Return (draw, …) as one chain, or two leading axes in the order (chain, draw)."""
    array = as_float(name, array, finite=False)
    axes = 1 if chain_axis is None else 2
    if array.ndim < axes or not array.size:
        raise ValueError(
            f"{name} must have {axes} leading axes with chain_axis={chain_axis}, and entries; "
            f"got shape {array.shape}"
        )
    return array[None] if chain_axis is None else np.swapaxes(array, 0, chain_axis)


def map_chains(function: DrawFunction, tree: Tree) -> Tree:
    """Return `function` of one draw at all draws of all chains."""
    shape = np.shape(jax.tree.leaves(tree)[0])[:2]
    rows = jax.tree.map(lambda leaf: np.reshape(leaf, (-1, *np.shape(leaf)[2:])), tree)
    out = map_draws(function, rows)
    return jax.tree.map(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), out)


def named_leaves(tree: Tree) -> dict[str, np.ndarray]:
    """Return the leaves of a draw by their places: those of a dict or named tuple by name, a single
    array is x."""
    if isinstance(tree, dict) and not any(
        isinstance(leaf, (dict, tuple, list)) for leaf in tree.values()
    ):
        return tree  # in the user's order
    return _by_path(tree)


def _by_path(tree: Tree) -> dict[str, np.ndarray]:
    return {name or "x": leaf for name, leaf in leaves_by_path(tree).items()}


def merge_values(named: dict[str, Entry], added: dict[str, Entry]) -> dict[str, Entry]:
    """Return variables and what the user adds to them, none of which may hide another."""
    if twice := [name for name in added if name in named]:
        raise ValueError(
            f"values: {list_names(twice)} is the name of a variable already; give the quantity "
            "another one"
        )
    return named | added


def label_entries(
    variables: Mapping[str, ArrayLike], labels: Labels = entry_name
) -> dict[str, np.ndarray]:
    """Return arrays (chain, draw, …) as one named (chain, draw) array an entry: tau, theta[0],
    corr[0, 1]."""
    require_distinct("names", [str(name) for name in variables])
    arrays: dict[str, Any] = {str(name): np.asarray(a) for name, a in variables.items()}
    return {
        entry: arrays[name][:, :, *index]
        for entry, (name, index) in named_entries(arrays, labels).items()
    }


def named_entries(
    variables: Mapping[str, Any], labels: Labels = entry_name
) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return a name for each entry of arrays (chain, draw, …), and where it is: the variable and
    the index."""
    found: dict[str, tuple[str, tuple[int, ...]]] = {}
    for name, array in variables.items():
        for index in np.ndindex(array.shape[2:]):
            entry = labels(str(name), index) if index else str(name)
            if entry in found:
                raise ValueError(
                    f"two entries are called {entry!r}: coordinates, and names of variables, must "
                    "be distinct"
                )
            found[entry] = (str(name), index)
    return found


def extra_values(values: Mapping[str, Any] | None, natural: Tree) -> dict[str, np.ndarray]:
    """Return what the user adds: functions of one draw on the natural scale, in JAX, or arrays
    (chain, draw, …)."""
    found: dict[str, np.ndarray] = {}
    shape = np.shape(jax.tree.leaves(natural)[0])[:2]
    one_draw = jax.tree.map(lambda leaf: leaf[0, 0], natural)
    for name, entry in (values or {}).items():
        if callable(entry):
            found[name] = run_or_explain(
                f"values[{name!r}]",
                partial(map_chains, entry, natural),
                f", {describe_draw(one_draw)}",
                "an array (chain, draw)",
            )
            continue
        array = np.asarray(entry)
        # one chain needs no axis
        found[name] = array[None] if shape[0] == 1 and array.shape[:1] == shape[1:] else array
        check_chains(name, found[name].shape, shape)
    return label_entries(found)


def check_chains(name: str, found: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    """Raise a ValueError if the user's values have other chains or draws."""
    if found[:2] != wanted:
        raise ValueError(
            f"values[{name!r}] must be (chain, draw, …) = {wanted} or a function; got shape {found}"
        )


def check_score(found: object, draw: Mapping[str, object]) -> None:
    """Raise a ValueError if the user's score has not the names of its draw."""
    if not isinstance(found, Mapping) or set(found) != set(draw):
        got = sorted(found) if isinstance(found, Mapping) else show(found)
        raise ValueError(
            f"score must return a dict with the names of its draw, {sorted(draw)}; got {got}"
        )
