"""Posteriors that stay on disk: the steps of an adapter on chunked arrays, block by block, when
`estimate` streams them."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from ..chunked import Blocks, Columns, evaluate_in_tiles
from ..inputs.integrands import DrawFunction, describe_draw, reason_of, run_in_double
from ..inputs.sample import Posterior
from .base import Labels, check_chains, check_score, merge_values, named_entries, ravel

# (chain, draw, …), all cut alike along chains and draws, and not along their own axes
Variables = dict[str, Blocks]


def variables(found: Any, names: list[str]) -> Variables:
    """Return variables of a dataset, in the chunks of the first."""
    import dask.array

    arrays = {
        name: dask.array.asarray(found[name].transpose("chain", "draw", ...).data) for name in names
    }
    cuts = arrays[names[0]].chunks[:2]
    return {name: _align(array, cuts) for name, array in arrays.items()}


def _align(array: Blocks, cuts: tuple[tuple[int, ...], ...]) -> Blocks:
    return array.rechunk(dict(enumerate((*cuts, *[-1] * (array.ndim - 2)))))


def concatenate(tree: Variables) -> Blocks:
    """Return (chain, draw, d), in the order of sorted names, as `ravel` has it in memory."""
    return _blockwise(lambda **found: ravel(found), tree, _size(tree))


def score_blocks(name: str, function: DrawFunction, tree: Variables) -> Blocks:
    """Return a gradient at all draws, concatenated like these."""
    check_score(_result(name, function, tree), tree)
    return _blockwise(_at_blocks(name, function), tree, _size(tree))


def _size(tree: Variables) -> int:
    return sum(math.prod(leaf.shape[2:]) for leaf in tree.values())


def columns(natural: Variables, labels: Labels, values: Mapping[str, Any] | None) -> Columns:
    """Return all entries of all variables by name, and what the user adds: functions of one draw,
    or chunked arrays."""
    import dask.array

    cuts = next(iter(natural.values())).chunks[:2]
    shape = tuple(map(sum, cuts))
    added: Variables = {}
    for name, entry in (values or {}).items():
        if callable(entry):
            label = f"values[{name!r}]"
            own = _result(label, entry, natural).shape
            blocks = _blockwise(_at_blocks(label, entry), natural, math.prod(own))
            added[name] = blocks.reshape(*shape, *own)
        else:
            added[name] = _align(dask.array.asarray(getattr(entry, "data", entry)), cuts)
            check_chains(name, added[name].shape, shape)
    names = list(merge_values(named_entries(natural, labels), named_entries(added)))
    every = [array.reshape(*array.shape[:2], -1) for array in (*natural.values(), *added.values())]
    return Columns(tuple(names), dask.array.concatenate(every, axis=2).rechunk({2: -1}))


def fetch_posterior(posterior: Posterior) -> Posterior:
    """Return a chunked posterior in memory, for what needs all draws at once."""
    import dask

    values = posterior.values
    assert isinstance(values, Columns)
    draws, scores, table = dask.compute(posterior.draws, posterior.scores, values.array)
    named = {name: table[:, :, k] for k, name in enumerate(values)}
    return dataclasses.replace(posterior, draws=draws, scores=scores, values=named)


def _at_blocks(name: str, function: DrawFunction) -> Callable[..., np.ndarray]:
    """Return a function of blocks, from one of one draw."""

    def at(**found: np.ndarray) -> np.ndarray:
        shape = next(iter(found.values())).shape[:2]
        rows = {
            key: np.reshape(block, (-1, *block.shape[2:])).astype(np.float64)
            for key, block in found.items()
        }
        return run_in_double(name, lambda: evaluate_in_tiles(function, rows)).reshape(*shape, -1)

    return at


def _result(name: str, function: DrawFunction, tree: Variables) -> Any:
    """Return the shapes of what a function of one draw gives, or say why it does not."""
    one = {key: jax.ShapeDtypeStruct(leaf.shape[2:], np.float64) for key, leaf in tree.items()}
    try:
        with jax.enable_x64(True):
            return jax.eval_shape(lambda x: function(x), one)  # not kept with the user's function
    except Exception as error:
        raise ValueError(
            f"{name} could not be evaluated as a JAX function of one draw, {describe_draw(one)}: "
            f"{reason_of(error)}"
        ) from error


def _blockwise(function: Callable[..., np.ndarray], tree: Variables, size: int) -> Blocks:
    """Return a function of blocks (chain, draw, …) by name, at all of them: (chain, draw, size)."""
    import dask.array

    arguments: list[object] = []
    for k, leaf in enumerate(tree.values()):
        arguments += [leaf, ("chain", "draw", *(f"{k}.{axis}" for axis in range(2, leaf.ndim)))]

    def run(*blocks: np.ndarray) -> np.ndarray:
        return function(**dict(zip(tree, blocks, strict=True)))

    options = {
        "new_axes": {"entry": size},
        "concatenate": True,
        "align_arrays": False,
        "meta": np.empty((0, 0, 0)),
    }
    return dask.array.blockwise(run, ("chain", "draw", "entry"), *arguments, **options)
