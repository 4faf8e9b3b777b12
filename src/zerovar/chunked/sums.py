"""One pass over chunked draws: the sums that each chunk gives, and how they are put together.

Sums merge in a tree of fixed shape, so that which worker did what, when, and how often, changes no
digit; and what waits to be merged is small, so that memory is that of the chunks at work.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64

from ..inputs.integrands import ROWS
from ..solvers.algebra.threads import use_one_thread
from ..solvers.exact.moments import moments
from ..solvers.terms import LinearParts, Term, sum_terms
from ..statistics.series import some_columns
from .arrays import Chunks, plain_errors
from .rows import ChunkRows, OpenChunk, View

# Statistics that are merged, tiles of rows that are standardised, and chunks that are shuffled at
# once: enough to be worth the call, and few enough for all memory to be that of the chunks at work.
TOGETHER = 8


class PassPlan(NamedTuple):
    """What the sums are of: features yet to be fitted, or the g that was trained for each part, in
    place of features."""

    view: View
    batches: np.ndarray  # edges of the batches, along the draws of a chain; each lies in one part
    families: LinearParts = ()  # whose features are yet to be fitted
    trained: dict[int, tuple[Term, ...]] | None = None  # by the part that it estimates

    def columns(self, part: int, rows: ChunkRows) -> np.ndarray:
        """Return what there is besides the terms, (n, ·): g where it was trained, and the
        integrands, both in units of these."""
        f = self.view.standardise(rows.f)
        if self.trained is None:
            return f
        g = sum_terms(self.trained.get(part, ()), rows.x, rows.s, f.shape[1])
        return np.concatenate([g / self.view.unit, f], axis=1)


class Sums(NamedTuple):
    """Sums over some rows; those of more rows are sums of these. z = [1, features or g, (f −
    centre) / unit]."""

    moments: dict[int, Float64[np.ndarray, "k k"]]  # by part: Σ w z zᵀ
    numbers: np.ndarray  # (b,) of the batches that these rows touch, chain after chain
    # Σ w [z, x] over each of them, x some standardised coordinates
    batches: Float64[np.ndarray, "b m"]
    squares: Float64[np.ndarray, " c"]  # Σ w x²
    weights: Float64[np.ndarray, " parts"]  # Σ w² in each part
    low: Float64[np.ndarray, " q"]  # extremes of f
    high: Float64[np.ndarray, " q"]


def sum_chunks(chunks: Chunks, plan: PassPlan) -> Sums:
    """Sum over all chunks, on whichever scheduler Dask is set to."""
    import dask

    shared = dask.delayed(plan, traverse=False, pure=False)
    of_block, of_several = dask.delayed(sum_chunk, pure=False), dask.delayed(merge_sums, pure=False)
    level = [of_block(shared, *task) for task in chunks.tasks()]
    while len(level) > 1:
        level = [of_several(level[i : i + TOGETHER]) for i in range(0, len(level), TOGETHER)]
    # Dask's workers are the parallelism. Where they are threads of this process, a BLAS with
    # threads of its own would contend with them for the same cores: six times slower, measured on
    # two.
    with plain_errors(), use_one_thread():
        (total,) = dask.compute(level[0], traverse=False)
    return total


def sum_chunk(plan: PassPlan, *chunk: Any) -> Sums:
    """Return the sums of one chunk, as `Chunks.tasks` has it."""
    opened = OpenChunk.of(plan.view, *chunk)
    chains, draws = opened.places
    batch = (
        np.searchsorted(plan.batches, draws, side="right") - 1 + (len(plan.batches) - 1) * chains
    ).ravel()
    found: list[Sums] = []
    for part in range(len(plan.view.parts) - 1):
        rows = opened.part(part)
        for slab in np.array_split(rows, max(-(-len(rows) // (TOGETHER * ROWS)), 1)):
            if len(slab):
                found.append(_sum_rows(plan, part, opened.rows(slab), batch[slab]))
                found = [merge_sums(found)] if len(found) == TOGETHER else found
    return merge_sums(found)


def _sum_rows(plan: PassPlan, part: int, rows: ChunkRows, batch: np.ndarray) -> Sums:
    """Return the sums of rows of one part, in the order of their batches."""
    starts = np.flatnonzero(np.diff(batch, prepend=-1))
    matrix, sums = moments(
        plan.families, rows.x, rows.s, plan.columns(part, rows), rows.weights, starts
    )
    x = some_columns(rows.x)
    weighted = x if rows.weights is None else x * rows.weights[:, None]
    squared = np.zeros(len(plan.view.parts) - 1)
    squared[part] = len(x) if rows.weights is None else rows.weights @ rows.weights
    batches = np.concatenate([sums, np.add.reduceat(weighted, starts, axis=0)], axis=1)
    squares = np.einsum("ij,ij->j", weighted, x)
    return Sums(
        {part: matrix},
        batch[starts],
        batches,
        squares,
        squared,
        rows.f.min(axis=0),
        rows.f.max(axis=0),
    )


def merge_sums(parts: Sequence[Sums]) -> Sums:
    """Add the sums of several sets of rows in the order in which they come."""
    matrices: dict[int, np.ndarray] = {}
    for part in parts:
        for key, matrix in part.moments.items():
            matrices[key] = matrices[key] + matrix if key in matrices else matrix
    numbers = np.concatenate([part.numbers for part in parts])
    order = np.argsort(numbers, kind="stable")
    starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    batches = np.add.reduceat(
        np.concatenate([part.batches for part in parts])[order], starts, axis=0
    )
    squares, weights = (
        reduce(np.add, each)
        for each in zip(*((part.squares, part.weights) for part in parts), strict=True)
    )
    low, high = (
        np.min([part.low for part in parts], axis=0),
        np.max([part.high for part in parts], axis=0),
    )
    return Sums(matrices, numbers[order][starts], batches, squares, weights, low, high)
