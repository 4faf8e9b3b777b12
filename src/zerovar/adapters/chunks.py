"""Posteriors that stay on disk: the steps of an adapter on chunked arrays, block by block, when
`estimate` streams them."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from ..chunked import Blocks, Columns, evaluate_in_tiles
from ..inputs.integrands import in_double
from ..inputs.sample import Posterior
from .base import Labels, named_entries, ravelled, together

# (chain, draw, …), all cut alike along chains and draws, and not along their own axes
Variables = dict[str, Blocks]


def variables(found: Any, names: list[str]) -> Variables:
    """These variables of a dataset, in the chunks of the first."""
    import dask.array

    arrays = {
        name: dask.array.asarray(found[name].transpose("chain", "draw", ...).data) for name in names
    }
    return aligned(arrays, next(iter(arrays.values())).chunks[:2])


def aligned(arrays: Mapping[str, Blocks], cuts: Any) -> Variables:
    return {
        name: array.rechunk(dict(enumerate((*cuts, *[-1] * (array.ndim - 2)))))
        for name, array in arrays.items()
    }


def side_by_side(tree: Variables) -> Blocks:
    """(chain, draw, d), in the order of sorted names, as `ravelled` has it in memory."""
    return _blockwise(
        lambda **found: ravelled(found),
        tree,
        sum(math.prod(leaf.shape[2:]) for leaf in tree.values()),
    )


def scores_of(name: str, function: Callable[[Any], Any], tree: Variables) -> Blocks:
    """A gradient at all draws, side by side like these."""
    shapes = _result(name, function, tree)
    if set(shapes) != set(tree):
        raise ValueError(
            f"score must return a dict with the names of its draw, {sorted(tree)}; got "
            f"{sorted(shapes)}"
        )
    size = sum(math.prod(leaf.shape[2:]) for leaf in tree.values())
    return _blockwise(_at_draws(name, function), tree, size)


def columns(natural: Variables, labels: Labels, values: Mapping[str, Any] | None) -> Columns:
    """All entries of all variables by name, and what the user adds: functions of one draw, or
    chunked arrays."""
    import dask.array

    cuts = next(iter(natural.values())).chunks[:2]
    shape = tuple(map(sum, cuts))
    added: Variables = {}
    for name, entry in (values or {}).items():
        if callable(entry):
            own = _result(f"values[{name!r}]", entry, natural).shape
            added[name] = _blockwise(
                _at_draws(f"values[{name!r}]", entry), natural, math.prod(own)
            ).reshape(*shape, *own)
        else:
            added |= aligned({name: dask.array.asarray(getattr(entry, "data", entry))}, cuts)
            if (got := added[name].shape)[:2] != shape:
                raise ValueError(
                    f"values[{name!r}] must be (chain, draw, …) = {shape} or a function; got shape "
                    f"{got}"
                )
    names = list(together(named_entries(natural, labels), named_entries(added)))
    every = [array.reshape(*array.shape[:2], -1) for array in (*natural.values(), *added.values())]
    return Columns(tuple(names), dask.array.concatenate(every, axis=2).rechunk({2: -1}))


def loaded(posterior: Posterior) -> Posterior:
    """In memory, for what needs all draws at once."""
    import dask

    values = posterior.values
    assert isinstance(values, Columns)
    draws, scores, table = dask.compute(posterior.draws, posterior.scores, values.array)
    values = {name: table[:, :, k] for k, name in enumerate(values)}
    return dataclasses.replace(posterior, draws=draws, scores=scores, values=values)


def _at_draws(name: str, function: Callable[[Any], Any]) -> Callable[..., np.ndarray]:
    """From a function of one draw to one of blocks."""

    def at(**found: np.ndarray) -> np.ndarray:
        shape = next(iter(found.values())).shape[:2]
        rows = {
            key: np.reshape(block, (-1, *block.shape[2:])).astype(np.float64)
            for key, block in found.items()
        }
        return in_double(name, lambda: evaluate_in_tiles(function, rows)).reshape(*shape, -1)

    return at


def _result(name: str, function: Callable[[Any], Any], tree: Variables) -> Any:
    """The shapes of what a function of one draw returns, or a sentence on why it does not."""
    one = {key: jax.ShapeDtypeStruct(leaf.shape[2:], np.float64) for key, leaf in tree.items()}
    try:
        with jax.enable_x64(True):
            return jax.eval_shape(function, one)
    except Exception as error:
        raise ValueError(
            f"{name} could not be evaluated as a JAX function of one draw: {error}"
        ) from error


def _blockwise(function: Callable[..., np.ndarray], tree: Variables, size: int) -> Blocks:
    """A function of blocks (chain, draw, …) by name to a block (chain, draw, size)."""
    import dask.array

    arguments: list[Any] = []
    for k, leaf in enumerate(tree.values()):
        arguments += [leaf, ("chain", "draw", *(f"{k}.{axis}" for axis in range(2, leaf.ndim)))]

    def of_blocks(*blocks: np.ndarray) -> np.ndarray:
        return function(**dict(zip(tree, blocks, strict=True)))

    options = {
        "new_axes": {"entry": size},
        "concatenate": True,
        "align_arrays": False,
        "meta": np.empty((0, 0, 0)),
    }
    return dask.array.blockwise(of_blocks, ("chain", "draw", "entry"), *arguments, **options)
