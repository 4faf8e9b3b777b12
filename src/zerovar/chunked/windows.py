"""Windows of chunked draws to train on, what comes next being read while the present ones are
trained on.

Every epoch deals the chunks out anew into shards of at least eight, if they are not large, so that
draws from several places of several chains are shuffled together; a shard is one window, or is cut
into some. Dask reads and prepares the rows, wherever it does its work; the training is where the
call was made.
"""

from __future__ import annotations

import contextvars
import dataclasses
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from ..inputs.integrands import KEPT
from ..inputs.points import Points
from ..solvers.training.batch_order import TRAINED_AT_ONCE
from ..solvers.windows import Window, Windows
from .arrays import Chunks, Pilot, plain_errors
from .rows import ChunkRows, OpenChunk, View
from .sums import TOGETHER


class ChunkWindows(Windows):
    """Windows of the draws in some parts; a context, whose end ends the reading ahead."""

    def __init__(self, chunks: Chunks, view: View, parts: Sequence[int], pilot: Pilot, seed: int):
        self._view, self._parts, self._seed = view, list(parts), seed
        part = np.searchsorted(view.parts, pilot.draw, side="right") - 1
        # of the pilot, that lie in the parts
        self.rows = np.flatnonzero(np.isin(part, self._parts))
        self._pilot = pilot.sample.draws[self.rows]
        self._held = self._pilot[:0]
        share = pilot.sample.probabilities
        self._weight = float(np.mean(share / share.max()))  # of a draw, on average
        of_chains, of_draws, _ = chunks.draws.chunks
        last = np.cumsum(of_draws)
        # of the parts, chunk by chunk
        edges = [np.clip(edge, last - of_draws, last) for edge in view.parts]
        inside = sum(edges[part + 1] - edges[part] for part in self._parts)
        sizes = np.outer(of_chains, inside).ravel()
        self._tasks = [task for task, size in zip(chunks.tasks(), sizes, strict=True) if size]
        sizes = np.sort(sizes[sizes > 0])[::-1]
        self.draws = int(sizes.sum())
        # of some chunks at least, which are not cut, if draws and scores, of this shard and the
        # next, can be kept
        wanted = max(TRAINED_AT_ONCE, TOGETHER * float(sizes.mean()))
        wanted = max(min(wanted, KEPT / (4 * chunks.shape[2])), 1.0)
        self._shards = min(max(round(self.draws / wanted), 1), len(sizes))
        self._largest = int(sizes[: -(-len(sizes) // self._shards)].sum())
        self._cuts, self.count, self.most = 1, self._shards, self._largest
        self._thread = ThreadPoolExecutor(1)
        self._read: dict[int, Future[Window]] = {}  # shards: the present one and the next

    def hold_out(self, rows: np.ndarray) -> None:
        self._held = self._pilot[rows]
        self.draws -= len(rows)

    def cut(self, most: int) -> None:
        self._cuts = -(-self._largest // max(most, 1))
        self.count, self.most = self._shards * self._cuts, -(-self._largest // self._cuts)

    def __call__(self, number: int) -> Window:
        turn, place = divmod(number, self._cuts)
        shard = turn if self._shards > 1 else 0  # which is there already
        last = shard if self._shards == 1 or (turn + 1) * self._cuts >= self.rounds else shard + 1
        wanted = range(shard, last + 1)
        # A client of Dask may be set for this context only, and threads have contexts of their own
        self._read = {
            k: self._read.get(k)
            or self._thread.submit(contextvars.copy_context().run, self._shard, k)
            for k in wanted
        }
        with plain_errors():
            rows = self._read[shard].result()
        if len(rows.points) < self._cuts:
            p = rows.points.probabilities / self._cuts
            return Window(dataclasses.replace(rows.points, probabilities=p), rows.values)
        mixed = np.random.default_rng([self._seed, 6, turn]).permutation(len(rows.points))
        some = mixed[slice(*(len(mixed) * k // self._cuts for k in (place, place + 1)))]
        x, s, p = (
            array[some] for array in (rows.points.x, rows.points.s, rows.points.probabilities)
        )
        return Window(Points(x, s, p), rows.values[some])

    def __enter__(self) -> ChunkWindows:
        return self

    def __exit__(self, *problem: Any) -> None:
        self._read = {}
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _shard(self, number: int) -> Window:
        """Read the rows of all windows that a shard is cut into."""
        import dask

        epoch, place = divmod(number, self._shards)
        dealt = np.random.default_rng([self._seed, 4, epoch]).permutation(len(self._tasks))
        shared = dask.delayed((self._view, self._parts, self._held), traverse=False, pure=False)
        read = dask.delayed(read_rows, pure=False)
        tasks = [read(shared, *self._tasks[k]) for k in np.array_split(dealt, self._shards)[place]]
        found = [rows for rows in dask.compute(*tasks, traverse=False) if rows is not None]
        if not found:
            return self._shard(number + 1)  # of a chunk with hardly any rows all were held out
        weights = np.concatenate(
            [np.ones(len(rows.x)) if rows.weights is None else rows.weights for rows in found]
        )
        x, s, f = (
            np.concatenate([getattr(rows, name) for rows in found]) for name in ("x", "s", "f")
        )
        return Window(Points(x, s, weights / (self._weight * self.draws)), f)


def read_rows(shared: tuple[View, list[int], np.ndarray], *chunk: Any) -> ChunkRows | None:
    """Return the rows of some parts that count and are not held out, of a chunk as `Chunks.tasks`
    has it."""
    view, parts, held = shared
    opened = OpenChunk.of(view, *chunk)
    rows = np.sort(np.concatenate([opened.part(part) for part in parts]))
    if opened.weights is not None:
        rows = rows[opened.weights.ravel()[rows] > 0]
    rows = rows[~_among(opened.draws.reshape(-1, held.shape[1])[rows], held)]
    return opened.rows(rows) if len(rows) else None


def _among(draws: np.ndarray, some: np.ndarray) -> np.ndarray:
    """Return which draws (n, d) are equal to some (m, d): a Metropolis chain repeats them."""
    found = np.isin(draws[:, 0], some[:, 0])  # which are few
    known = {row.tobytes() for row in some}
    found[found] = [row.tobytes() in known for row in draws[found]]
    return found
