"""Driving the compiled loop from the host: progress, interruption, checkpoints."""

import hashlib
import re
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from ...io.atomic import atomic
from ...progress import progress_bar
from ..base import Result
from .batch_order import BatchOrder
from .loop import Job, Params, StepRule, TrainingState, advance, finished, initial

_PIECE = 0.5  # seconds of work between two looks at the world


class TrainingEnd(NamedTuple):
    """The last state, how it was reached, and the round that a checkpoint had brought it to."""

    state: TrainingState
    result: Result
    resumed: int


def run(
    jobs: Callable[[int], tuple[Job, BatchOrder]], params: Params, best_loss: float, options: Any
) -> TrainingEnd:
    """Train to the end, in pieces of about half a second, or round by round where each has draws of
    its own.

    `jobs` gives the job of a round, and the order of its draws; a checkpoint is known by the first
    one's data.
    """
    job, order = jobs(0)
    an_epoch = int(job.batches.windows)  # rounds: where it is one, all are on the same draws
    state = initial(params, job.rule, best_loss)
    file = None
    if options.checkpoint is not None:
        file = Path(options.checkpoint) / f"{_fingerprint(job, order, state)}.npz"
        file.parent.mkdir(parents=True, exist_ok=True)
        state = _restored(file, state)
    resumed = int(state.round)
    rounds, piece = int(job.rule.rounds), 1
    with progress_bar("training", rounds, options.progress) as show:
        try:
            while not _ended(state, job.rule):
                started, done = time.perf_counter(), int(state.round)
                job, order = jobs(done)
                count = min(piece, order.together, rounds - done)
                table, first, until = (
                    order.table(done, count),
                    np.int64(done),
                    np.int64(done + count),
                )
                state = jax.block_until_ready(advance(job, state, table, first, until))
                if file is not None:
                    _save(file, state)
                seconds = time.perf_counter() - started
                piece = (
                    max(1, min(4 * piece, int(piece * _PIECE / max(seconds, 1e-6))))
                    if an_epoch == 1
                    else 1
                )
                done = int(state.round)
                loss = np.asarray(state.loss)[done - 1]
                show(done, f"epoch {done / an_epoch:.3g}/{rounds // an_epoch}, loss {loss:.3g}")
        except KeyboardInterrupt:
            return TrainingEnd(state, Result.INTERRUPTED, resumed)
    return TrainingEnd(state, Result.DIVERGED if bool(state.diverged) else Result.OK, resumed)


def _ended(state: TrainingState, rule: StepRule) -> bool:
    """On the host, where looking at three numbers needs nothing compiled."""
    seen: dict[str, Any] = {
        name: np.asarray(getattr(state, name)) for name in ("round", "best_round", "diverged")
    }
    return bool(finished(state._replace(**seen), rule))


def _fingerprint(job: Job, order: BatchOrder, state: TrainingState) -> str:
    """Of the data and of the program: a checkpoint of another fit has another name, and cannot be
    resumed by mistake."""
    digest = hashlib.sha256()
    dynamic, static = eqx.partition((job, state), eqx.is_array_like)
    for leaf in jax.tree.leaves(dynamic):
        plain = jax.random.key_data(leaf) if leaf is job.key else leaf
        digest.update(np.ascontiguousarray(plain).tobytes())
    table = order.table(0, 1)
    digest.update(table.tobytes())

    def whole(dynamic: Any) -> TrainingState:
        job, state = eqx.combine(dynamic, static)
        return advance(job, state, table, np.int64(0), np.int64(0))

    # addresses differ between processes
    program = re.sub(r"0x[0-9a-f]+", "", str(jax.make_jaxpr(whole)(dynamic)))
    digest.update(program.encode())
    return digest.hexdigest()[:16]


def _save(file: Path, state: TrainingState) -> None:
    leaves = {f"a{k}": np.asarray(leaf) for k, leaf in enumerate(jax.tree.leaves(state))}
    with atomic(file) as temporary, open(temporary, "wb") as handle:
        np.savez(handle, **leaves)  # type: ignore[arg-type]


def _restored(file: Path, state: TrainingState) -> TrainingState:
    if not file.exists():
        return state
    leaves, rebuild = jax.tree.flatten(state)
    try:
        with np.load(file, allow_pickle=False) as stored:
            found = [stored[f"a{k}"] for k in range(len(leaves))]
    except (ValueError, KeyError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{file} is not a checkpoint of this fit; delete it to start anew"
        ) from error
    return jax.tree.unflatten(
        rebuild,
        [jax.device_put(np.asarray(a, b.dtype)) for a, b in zip(found, leaves, strict=True)],
    )
