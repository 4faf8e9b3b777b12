"""Driving the compiled loop from the host: progress, interruption, checkpoints."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from ...progress import PATIENCE, progress_bar
from ..base import Result
from .batch_order import BatchOrder
from .checkpoints import checkpoint_file, restore_state, save_state
from .loop import Job, Params, StepRule, TrainingState, advance, initial_state, is_finished


class TrainingEnd(NamedTuple):
    """The last state, how it was reached, and the round that a checkpoint had brought it to."""

    state: TrainingState
    result: Result
    resumed: int


def run(
    jobs: Callable[[int], tuple[Job, BatchOrder]],
    params: Params,
    best_loss: float,
    options: Any,
    identity: tuple[Any, ...],
) -> TrainingEnd:
    """Train to the end, in pieces of about half a second, or round by round where each has draws of
    its own.

    `jobs` gives the job of a round, and the order of its draws. A checkpoint is known by the
    options, by `identity` (families, objective, seed), and by the first job's draws.
    """
    job, order = jobs(0)
    an_epoch = int(job.batches.windows)  # rounds: where it is one, all are on the same draws
    state = initial_state(params, job.rule, best_loss)
    file = None
    if options.checkpoint is not None:
        own = dataclasses.replace(options, checkpoint=None, progress=False)
        file = checkpoint_file(options.checkpoint, own, identity, params, job.draws, job.held)
        state = restore_state(file, state)
    resumed = int(state.round)
    rounds, piece = int(job.rule.rounds), 1
    with progress_bar("training", rounds, options.progress) as show:
        try:
            while not _is_over(state, job.rule):
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
                    save_state(file, state)
                seconds = time.perf_counter() - started
                piece = (
                    max(1, min(4 * piece, int(piece * PATIENCE / max(seconds, 1e-6))))
                    if an_epoch == 1
                    else 1
                )
                done = int(state.round)
                loss = np.asarray(state.loss)[done - 1]
                show(done, f"epoch {done / an_epoch:.3g}/{rounds // an_epoch}, loss {loss:.3g}")
        except KeyboardInterrupt:
            return TrainingEnd(state, Result.INTERRUPTED, resumed)
    return TrainingEnd(state, Result.DIVERGED if bool(state.diverged) else Result.OK, resumed)


def _is_over(state: TrainingState, rule: StepRule) -> bool:
    """Return whether training is over, on the host, where looking at three numbers needs nothing
    compiled."""
    seen: dict[str, Any] = {
        name: np.asarray(getattr(state, name)) for name in ("round", "best_round", "diverged")
    }
    return bool(is_finished(state._replace(**seen), rule))
