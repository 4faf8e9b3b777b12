"""One pass over chunked draws: the sums that each chunk gives, and how they are put together.

Sums merge in a tree of fixed shape, so that which worker did what, when, and how often, changes no digit; and what waits to be
merged is small, so that memory is that of the chunks at work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float64
from threadpoolctl import threadpool_limits

from .chunked import BadNumbers, Chunks, check_finite
from .integrands import in_double
from .sample import Standardisation
from .solvers.moments import Terms, moments
from .std_errors import some_columns

_TOGETHER = 8  # statistics that are merged at once
_SLAB = 16_384  # rows of a chunk that are standardised at a time
_FUNCTION_ROWS = 1024  # draws at which a user's function is evaluated together


class Plan(NamedTuple):
    """What every chunk needs to know; small, and sent to each worker once."""

    terms: Terms
    standardisation: Standardisation
    function: Callable[[Any], Any] | None  # the integrands, where they are no arrays
    value_names: list[str]  # the arrays of integrands, where they are
    centre: Float64[np.ndarray, " q"]  # integrands enter as (f − centre) / unit
    unit: Float64[np.ndarray, " q"]
    log_weight: float  # weights are relative to this
    parts: np.ndarray  # edges of the parts, along the draws of a chain, that fits are to
    batches: np.ndarray  # edges of the batches; each lies in one part


class Sums(NamedTuple):
    """Of some rows; those of more rows are sums of these. z = [1, features, (f − centre) / unit]."""

    moments: dict[int, Float64[np.ndarray, "k k"]]  # by part: Σ w z zᵀ
    numbers: np.ndarray  # (b,) of the batches that these rows touch, chain after chain
    batches: Float64[np.ndarray, "b m"]  # Σ w [z, x] over each of them, x some standardised coordinates
    squares: Float64[np.ndarray, " c"]  # Σ w x²
    weights: Float64[np.ndarray, " parts"]  # Σ w² in each part
    low: Float64[np.ndarray, " q"]  # extremes of f
    high: Float64[np.ndarray, " q"]


def sums_over(chunks: Chunks, plan: Plan) -> tuple[Sums, int]:
    """The pass, on whichever scheduler Dask is set to; and the number of chunks."""
    import dask

    shared = dask.delayed(plan, traverse=False, pure=False)
    of_block, of_several = dask.delayed(of_chunk, pure=False), dask.delayed(merged, pure=False)
    level = [of_block(shared, *task) for task in chunks.tasks()]
    count = len(level)
    while len(level) > 1:
        level = [of_several(level[i : i + _TOGETHER]) for i in range(0, len(level), _TOGETHER)]
    try:
        # Dask's workers are the parallelism. Where they are threads of this process, a BLAS with threads of its own would
        # contend with them for the same cores: six times slower, measured on two.
        with threadpool_limits(1, "blas"):
            (total,) = dask.compute(level[0], traverse=False)
    except BadNumbers as error:
        raise ValueError(str(error)) from None  # the user's numbers, not Dask's doing
    return total, count


def of_chunk(plan: Plan, chain: int, draw: int, draws: Any, scores: Any, values: Sequence[Any], log_weights: Any) -> Sums:
    """Of one chunk, whose arrays (chain, draw, …) begin at this chain and draw."""
    draws, scores = (_checked(name, block, chain, draw) for name, block in (("draws", draws), ("scores", scores)))
    values = [_checked(*pair, chain, draw) for pair in zip(plan.value_names, values, strict=True)]
    weights = None
    if log_weights is not None:
        weights = np.exp(_checked("log_weights", log_weights, chain, draw) - plan.log_weight)
    per_chain = len(plan.batches) - 1
    places = draw + np.arange(draws.shape[1])
    batch = np.searchsorted(plan.batches, places, side="right") - 1 + per_chain * (chain + np.arange(len(draws)))[:, None]
    found: list[Sums] = []
    for part, (first, last) in enumerate(np.searchsorted(places, [plan.parts[:-1], plan.parts[1:]]).T):
        rows = np.arange(len(draws))[:, None] * len(places) + np.arange(first, last)
        for slab in np.array_split(rows.ravel(), max(-(-rows.size // _SLAB), 1)):
            if len(slab):
                x, s = (_rows(array, slab) for array in (draws, scores))
                f = _integrands(plan, x, [_rows(array, slab) for array in values], chain, draw)
                w = None if weights is None else weights.ravel()[slab]
                found.append(_of_rows(plan, part, x, s, f, w, batch.ravel()[slab]))
                found = [merged(found)] if len(found) == _TOGETHER else found
    return merged(found)


def _of_rows(plan: Plan, part: int, draws: Any, scores: Any, f: Any, weights: Any, batch: np.ndarray) -> Sums:
    """Of rows (n, …) of one part, in the order of their batches."""
    x, s = plan.standardisation(draws, scores)
    starts = np.flatnonzero(np.diff(batch, prepend=-1))
    matrix, sums = moments(plan.terms, x, s, (f - plan.centre) / plan.unit, weights, starts)
    x = some_columns(x)
    weighted = x if weights is None else x * weights[:, None]
    squared = np.zeros(len(plan.parts) - 1)
    squared[part] = len(x) if weights is None else weights @ weights
    return Sums(
        {part: matrix},
        batch[starts],
        np.concatenate([sums, np.add.reduceat(weighted, starts, axis=0)], axis=1),
        np.einsum("ij,ij->j", weighted, x),
        squared,
        f.min(axis=0),
        f.max(axis=0),
    )


def merged(parts: Sequence[Sums]) -> Sums:
    """Sums of several lots of rows, added in the order in which they come."""
    matrices: dict[int, np.ndarray] = {}
    for part in parts:
        for key, matrix in part.moments.items():
            matrices[key] = matrices[key] + matrix if key in matrices else matrix
    numbers = np.concatenate([part.numbers for part in parts])
    order = np.argsort(numbers, kind="stable")
    starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    batches = np.add.reduceat(np.concatenate([part.batches for part in parts])[order], starts, axis=0)
    return Sums(
        matrices,
        numbers[order][starts],
        batches,
        sum((part.squares for part in parts[1:]), parts[0].squares),
        sum((part.weights for part in parts[1:]), parts[0].weights),
        np.min([part.low for part in parts], axis=0),
        np.max([part.high for part in parts], axis=0),
    )


def _checked(name: str, block: Any, chain: int, draw: int) -> np.ndarray:
    array = np.asarray(block, dtype=np.float64)
    check_finite(name, array, chain, draw)
    return array


def _rows(array: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Rows of (chain, draw, k) by number; without a copy where they follow each other, as they do but for several chains."""
    flat = array.reshape(-1, array.shape[2])
    together = rows[-1] - rows[0] + 1 == len(rows)
    return flat[rows[0] : rows[-1] + 1] if together else flat[rows]


def _integrands(plan: Plan, draws: np.ndarray, values: list[np.ndarray], chain: int, draw: int) -> np.ndarray:
    """(n, q), from the arrays or from the function."""
    function = plan.function
    if function is None:
        return values[0] if len(values) == 1 else np.concatenate(values, axis=1)
    f = in_double("values", lambda: evaluated(function, draws))
    if not np.isfinite(f).all():
        raise BadNumbers(
            f"values must be finite; the function gives NaN or infinity in the chunk that begins at chain {chain}, "
            f"draw {draw}, first at the draw {draws[np.argwhere(~np.isfinite(f))[0][0]]}"
        )
    return f


def evaluated(function: Callable[[Any], Any], draws: Any) -> Float64[np.ndarray, "n m"]:
    """A function of one draw at an array or tree of arrays (n, …), side by side; in tiles of one shape, so that it is compiled
    once for all chunks."""
    n = len(jax.tree.leaves(draws)[0])
    tiles = []
    for first in range(0, n, _FUNCTION_ROWS):
        rows = np.minimum(np.arange(first, first + _FUNCTION_ROWS), n - 1)  # the last one again and again to the tile's end
        out = _at_tile(function, jax.tree.map(lambda leaf, rows=rows: leaf[rows], draws))
        columns = [np.asarray(leaf, dtype=np.float64).reshape(len(rows), -1) for leaf in jax.tree.leaves(out)]
        tiles.append(np.concatenate(columns, axis=1))
    return np.concatenate(tiles)[:n]


@eqx.filter_jit
def _at_tile(function: Any, draws: Any) -> Any:
    return jax.vmap(function)(draws)
