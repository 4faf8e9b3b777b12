"""Driving the compiled loop from the host: progress, interruption, checkpoints."""

from __future__ import annotations

import hashlib
import re
import sys
import time
import zipfile
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from ..files import atomic
from .base import Result
from .order import Order
from .training import Job, Params, Recipe, State, advance, finished, initial

_PIECE = 0.5  # seconds of work between two looks at the world


class Ending(NamedTuple):
    """The last state, how it was reached, and the round that a checkpoint had brought it to."""

    state: State
    result: Result
    resumed: int


def run(
    jobs: Callable[[int], tuple[Job, Order]],
    params: Params,
    best_loss: float,
    checkpoint: str | PathLike[str] | None,
    progress: bool,
) -> Ending:
    """Train to the end, in pieces of about half a second, or round by round where each has draws of its own.

    `jobs` gives the job of a round, and the order of its draws; a checkpoint is known by the first one's data.
    """
    job, order = jobs(0)
    still = int(job.batches.windows) == 1  # all rounds are on the same draws
    state = initial(params, job.recipe, best_loss)
    file = None
    if checkpoint is not None:
        file = Path(checkpoint) / f"{_fingerprint(job, order, state)}.npz"
        file.parent.mkdir(parents=True, exist_ok=True)
        state = _restored(file, state)
    resumed = int(state.round)
    rounds, piece = int(job.recipe.rounds), 1
    bar = _Bar(rounds, int(job.batches.windows), progress)
    try:
        while not _ended(state, job.recipe):
            started, done = time.perf_counter(), int(state.round)
            job, order = jobs(done)
            count = min(piece, order.together, rounds - done)
            state = advance(job, state, order.table(done, count), np.int64(done), np.int64(done + count))
            state = jax.block_until_ready(state)
            if file is not None:
                _save(file, state)
            seconds = time.perf_counter() - started
            piece = max(1, min(4 * piece, int(piece * _PIECE / max(seconds, 1e-6)))) if still else 1
            bar.show(state)
    except KeyboardInterrupt:
        return Ending(state, Result.INTERRUPTED, resumed)
    finally:
        bar.close()
    return Ending(state, Result.DIVERGED if bool(state.diverged) else Result.OK, resumed)


def _ended(state: State, recipe: Recipe) -> bool:
    """On the host, where looking at three numbers needs nothing compiled."""
    seen: dict[str, Any] = {name: np.asarray(getattr(state, name)) for name in ("round", "best_round", "diverged")}
    return bool(finished(state._replace(**seen), recipe))


class _Bar:
    """A progress bar on a terminal, from the second piece of work on; nothing elsewhere."""

    def __init__(self, rounds: int, an_epoch: int, wanted: bool):
        self._rounds, self._an_epoch, self._wanted = rounds, an_epoch, wanted and sys.stderr.isatty()
        self._bar: Progress | None = None

    def show(self, state: State) -> None:
        done = int(state.round)
        if not self._wanted or (self._bar is None and done >= self._rounds):
            return
        if self._bar is None:
            columns = (TextColumn("training"), BarColumn(), TextColumn("{task.fields[text]}"), TimeRemainingColumn())
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task("training", total=self._rounds, text="")
        loss = float(state.loss[max(done - 1, 0)])
        epochs = f"epoch {done / self._an_epoch:.3g}/{self._rounds // self._an_epoch}"
        self._bar.update(self._task, completed=done, text=f"{epochs}, loss {loss:.3g}")

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()


def _fingerprint(job: Job, order: Order, state: State) -> str:
    """Of the data and of the program: a checkpoint of another fit has another name, and cannot be resumed by mistake."""
    digest = hashlib.sha256()
    dynamic, static = eqx.partition((job, state), eqx.is_array_like)
    for leaf in jax.tree.leaves(dynamic):
        plain = jax.random.key_data(leaf) if leaf is job.key else leaf
        digest.update(np.ascontiguousarray(plain).tobytes())
    table = order.table(0, 1)
    digest.update(table.tobytes())

    def whole(dynamic: Any) -> State:
        job, state = eqx.combine(dynamic, static)
        return advance(job, state, table, np.int64(0), np.int64(0))

    program = re.sub(r"0x[0-9a-f]+", "", str(jax.make_jaxpr(whole)(dynamic)))  # addresses differ between processes
    digest.update(program.encode())
    return digest.hexdigest()[:16]


def _save(file: Path, state: State) -> None:
    leaves = {f"a{k}": np.asarray(leaf) for k, leaf in enumerate(jax.tree.leaves(state))}
    with atomic(file) as temporary, open(temporary, "wb") as handle:
        np.savez(handle, **leaves)  # type: ignore[arg-type]


def _restored(file: Path, state: State) -> State:
    if not file.exists():
        return state
    leaves, rebuild = jax.tree.flatten(state)
    try:
        with np.load(file, allow_pickle=False) as stored:
            found = [stored[f"a{k}"] for k in range(len(leaves))]
    except (ValueError, KeyError, zipfile.BadZipFile) as error:
        raise ValueError(f"{file} is not a checkpoint of this fit; delete it to start anew") from error
    return jax.tree.unflatten(rebuild, [jnp.asarray(a, dtype=b.dtype) for a, b in zip(found, leaves, strict=True)])
