"""The steps that adapters share."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import list_names
from ..inputs.coordinates import Coordinates
from ..inputs.integrands import entry_name, leaves_by_path, map_draws, run_or_explain
from ..inputs.sample import Posterior

Tree = Any  # of arrays (chain, draw, …)
Labels = Callable[[str, tuple[int, ...]], str]  # what an entry of a variable is called


def discrete_error(kind: str, names: list[str]) -> ValueError:
    return ValueError(
        f"the model has discrete {kind}, {', '.join(names)}: its log density has no gradient "
        "there. Sum them out of the model, "
        "or give zv.from_log_density a log density of the others"
    )


def ravel(tree: Tree) -> np.ndarray:
    """All leaves (chain, draw, …) side by side: (chain, draw, d), dicts in the order of their
    sorted keys."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
    return np.concatenate([leaf.reshape(*leaf.shape[:2], -1) for leaf in leaves], axis=2).astype(
        np.float64
    )


def build_posterior(
    draws: Tree,
    scores: Tree,
    values: Mapping[str, Any],
    coordinates: Mapping[str, Any] | None = None,
) -> Posterior:
    """From trees of arrays (chain, draw, …) of one structure; coordinates are called mu, theta[0],
    theta[1]."""
    names = tuple(named_entries(_by_path(draws)))
    return Posterior(
        ravel(draws), ravel(scores), values, names, coordinates=offer_maps(coordinates, draws)
    )


def offer_maps(coordinates: Mapping[str, Any] | None, draws: Tree) -> dict[str, Coordinates]:
    """Other coordinates by name: `Coordinates` of the flat draw, or functions of one draw in its
    own structure, in JAX."""
    if coordinates is None:
        return {}
    if not isinstance(coordinates, Mapping):
        raise ValueError(
            "coordinates must be a dict of name → zv.Coordinates(…), zv.Coupling(…) or a function "
            "of one draw; got "
            f"{coordinates!r}"
        )
    return {str(name): _of_flat(str(name), entry, draws) for name, entry in coordinates.items()}


def _of_flat(name: str, entry: Any, draws: Tree) -> Coordinates:
    if isinstance(entry, Coordinates):
        return entry
    if not callable(entry):
        raise ValueError(
            f"coordinates[{name!r}] must be zv.Coordinates(…) or a function of one draw; got "
            f"{entry!r}"
        )
    unravel = unraveller(draws)
    return Coordinates(
        lambda x: jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(entry(unravel(x)))])
    )


def unraveller(draws: Tree) -> Callable[[Any], Tree]:
    """From one flat draw (d,) to a draw in the structure of a tree of arrays (chain, draw, …)."""
    leaves, structure = jax.tree.flatten(draws)
    shapes = [np.shape(leaf)[2:] for leaf in leaves]
    ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]

    def unravelled(x: Any) -> Tree:
        parts = jnp.split(x, ends)
        return jax.tree.unflatten(
            structure, [jnp.reshape(part, shape) for part, shape in zip(parts, shapes, strict=True)]
        )

    return unravelled


def put_chains_first(array: Any, chain_axis: int | None) -> np.ndarray:
    """(draw, …) as one chain, or two leading axes in the order (chain, draw)."""
    array = np.asarray(array)
    if chain_axis is None:
        return array[None]
    if chain_axis not in (0, 1) or array.ndim < 2:
        forms = "None for (draw, …), 0 for (chain, draw, …) or 1 for (draw, chain, …)"
        raise ValueError(
            f"chain_axis must be {forms}; got {chain_axis!r} with draws of shape {array.shape}"
        )
    return np.swapaxes(array, 0, chain_axis)


def map_chains(function: Callable[[Any], Any], tree: Tree) -> Tree:
    """`function` of one draw, at all draws of all chains."""
    shape = np.shape(jax.tree.leaves(tree)[0])[:2]
    out = map_draws(
        function, jax.tree.map(lambda leaf: np.reshape(leaf, (-1, *np.shape(leaf)[2:])), tree)
    )
    return jax.tree.map(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), out)


def named_leaves(tree: Tree) -> dict[str, np.ndarray]:
    """The leaves of a draw by their places: those of a dict or named tuple by name, a single array
    is x."""
    if isinstance(tree, dict) and not any(
        isinstance(leaf, (dict, tuple, list)) for leaf in tree.values()
    ):
        return tree  # in the user's order
    return _by_path(tree)


def _by_path(tree: Tree) -> dict[str, np.ndarray]:
    return {name or "x": leaf for name, leaf in leaves_by_path(tree).items()}


def merge_values(named: dict[str, Any], added: dict[str, Any]) -> dict[str, Any]:
    """Variables and what the user adds to them, none of which may hide another."""
    twice = [name for name in added if name in named]
    if twice:
        raise ValueError(
            f"values: {list_names(twice)} is the name of a variable already; give the quantity "
            "another one"
        )
    return named | added


def label_entries(
    variables: Mapping[str, Any], labels: Labels = entry_name
) -> dict[str, np.ndarray]:
    """Arrays (chain, draw, …) as one named (chain, draw) array an entry: tau, theta[0], corr[0,
    1]."""
    arrays: dict[str, Any] = {str(name): np.asarray(array) for name, array in variables.items()}
    return {
        entry: arrays[name][:, :, *index]
        for entry, (name, index) in named_entries(arrays, labels).items()
    }


def named_entries(
    variables: Mapping[str, Any], labels: Labels = entry_name
) -> dict[str, tuple[str, tuple[int, ...]]]:
    """A name for each entry of arrays (chain, draw, …), and where it is: the variable and the
    index."""
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
    """What the user adds: functions of one draw on the natural scale, in JAX, or arrays (chain,
    draw, …)."""
    found: dict[str, Any] = {}
    shape = np.shape(jax.tree.leaves(natural)[0])[:2]
    for name, entry in (values or {}).items():
        if callable(entry):
            at = partial(map_chains, entry, natural)
            found[name] = run_or_explain(
                f"values[{name!r}]", at, f", {_describe_draw(natural)}", "an array (chain, draw)"
            )
            continue
        array = np.asarray(entry)
        # one chain needs no axis
        found[name] = array[None] if shape[0] == 1 and array.shape[:1] == shape[1:] else array
        if (got := found[name].shape)[:2] != shape:
            raise ValueError(
                f"values[{name!r}] must be (chain, draw, …) = {shape} or a function; got shape "
                f"{got}"
            )
    return label_entries(found)


def _describe_draw(natural: Tree) -> str:
    shapes = jax.tree.map(lambda leaf: tuple(leaf.shape[2:]), natural)
    if not isinstance(shapes, dict):
        return f"an array of shape {shapes}"
    return "a dict of " + ", ".join(
        f"{key} {shape}" if shape else f"{key}" for key, shape in shapes.items()
    )
