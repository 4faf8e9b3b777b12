"""Families that must be tuned race: all on few draws, the one in front on more, and no further than it pays.

A step of tuning costs the cube of the draws it is on. So every rival is tuned on a few hundred, is fitted once, and only those
in front go on. Where draws are many they are compared on fewer of them, and only the winner is fitted to all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
from jaxtyping import Bool, Float64

from ..answers import Answer
from ..errors import NumericalError
from ..solvers.algebra.threads import on_threads, one_thread
from ..std_errors import INDEPENDENT
from ..task import Task
from .candidates import Descended, Rival, rivals
from .policy import Policy

Chosen = Bool[np.ndarray, " q"]
Squares = Float64[np.ndarray, " q"]


@dataclasses.dataclass(eq=False)
class _Runner:
    """A rival in the race: where its tuning stands, and its answer there for the integrands that it runs for."""

    rival: Rival
    columns: Chosen
    guides: Chosen  # those of them that it is tuned for
    found: Descended
    answer: Answer

    @property
    def squares(self) -> Squares:
        """Mean squared influences, of all integrands; infinite where it does not run."""
        out = np.full(len(self.columns), np.inf)
        out[self.columns] = mean_squares(self.answer)
        return out

    @property
    def place(self) -> float:
        """The mean logarithm of its squares: the smaller, the further in front."""
        return float(np.log(mean_squares(self.answer)).mean())


def mean_squares(answer: Answer) -> Squares:
    """Of the influences of each integrand; never quite zero."""
    return np.mean(answer.influences**2, axis=(0, 1)) + np.finfo(float).tiny


def raced(
    task: Task, plain: Squares, best: Squares, policy: Policy, say: Callable[[str], None], skipped: list[str]
) -> Iterator[tuple[str, Answer, Chosen]]:
    """Name, answer and integrands of each rival that was worth a fit to the draws.

    `plain` and `best` (q,) are mean squared influences without a control variate and with the best so far; `say` is told what
    runs, and `skipped` what did not and why.
    """
    slow = task.autocorrelation >= INDEPENDENT
    enough = policy.slow_fewest if slow else policy.fewest
    if task.effective < enough:
        skipped.append(f"tuned kernels: they need {enough} effective draws, and these are worth {task.effective:.0f}")
        return
    if task.sample.dim > policy.kernel_dimensions:
        skipped.append(f"tuned kernels: not in more than {policy.kernel_dimensions} dimensions")
        return
    track = task if len(task) <= policy.few_enough else task.thinned(policy.pilot)[0]
    runners, closed, varying = list[_Runner](), best, np.ptp(track.values, axis=0) > 0
    for wave in _waves(rivals(task.sample.dim, policy), task.sample.dim, policy):
        wanted = [(rival, varying & (plain < np.minimum(rival.below, policy.done) * best)) for rival in wave]
        starting = [
            (rival, columns, _guides(columns, plain / best, bool(runners), task, policy))
            for rival, columns in wanted
            if columns.any()
        ]
        say(" and ".join(rival.label for rival, *_ in starting))
        with one_thread():
            tuned = on_threads(lambda rival, _, guides: _tuned(rival, track, guides, policy), starting)
        for (rival, columns, guides), found in zip(starting, tuned, strict=True):
            if isinstance(found, NumericalError):
                skipped.append(str(found))
                continue
            runners.append(_Runner(rival, columns, guides, found, rival.answer(track.only(columns), found, policy)))
            best = np.minimum(best, runners[-1].squares)
    if not slow:
        front = _in_front(runners)[: policy.in_front]
        going = [one for one in front if one.place < front[0].place + np.log(policy.close)]
        say(f"{' and '.join(runner.rival.label for runner in going)}, on more draws")
        _polish(going, track, policy)
    if track is not task:
        won = [dataclasses.replace(one, columns=one.columns & (one.squares < closed)) for one in _winners(runners)]
        skipped += [f"{one.rival.label} on all draws: no better on {len(track)}" for one in won if not one.columns.any()]
        runners = [_on_all(runner, task, say, policy) for runner in won if runner.columns.any()]
    for runner in runners:
        yield runner.rival.label, runner.answer, runner.columns


def _guides(columns: Chosen, gains: Float64[np.ndarray, " q"], later: bool, task: Task, policy: Policy) -> Chosen:
    """The integrands that a rival is tuned for. Where kinks may be, and one has run: not those that lag far behind it."""
    if task.sample.dim > policy.kinks or not later:
        return columns
    found = columns & (gains > np.max(gains, where=columns, initial=0.0) / policy.apart)
    return found if found.any() else columns


def _waves(offered: list[Rival], d: int, policy: Policy) -> list[list[Rival]]:
    """Rivals that are tuned side by side. In few dimensions one after the other, each guided by those before it."""
    if d <= policy.kinks:
        return [[rival] for rival in offered]
    general = [rival for rival in offered if np.isinf(rival.below)]
    return [general, [rival for rival in offered if rival not in general]]


def _tuned(rival: Rival, track: Task, guides: Chosen, policy: Policy) -> Descended | NumericalError:
    """On a few hundred draws far enough apart to count as independent; or why not."""
    few = int(np.clip(len(track) / track.autocorrelation, policy.tuning_fewest, policy.tuning_draws))
    try:
        return rival.descent(track.thinned(few)[0].only(guides), track, policy.tuning_steps)
    except NumericalError as error:
        return error


def _polish(runners: list[_Runner], track: Task, policy: Policy) -> None:
    """Some steps on more draws. By likelihood, whatever the answer's own error then is: that rests on the few draws in the
    tails (gp_regr has a fifth of the gain where it decides)."""
    more = track.thinned(policy.polished)[0]
    if len(more) <= policy.tuning_draws:
        return

    def further(runner: _Runner) -> Descended:
        return runner.rival.descent(more.only(runner.guides), track, policy.polishing_steps, runner.found)

    with one_thread():
        found = on_threads(further, [(runner,) for runner in runners])
    for runner, descended in zip(runners, found, strict=True):
        runner.found, runner.answer = descended, runner.rival.answer(track.only(runner.columns), descended, policy)


def _in_front(runners: list[_Runner]) -> list[_Runner]:
    """Those that run for all integrands that anyone runs for, the best first."""
    most = max((runner.columns.sum() for runner in runners), default=0)
    return sorted((runner for runner in runners if runner.columns.sum() == most), key=lambda runner: runner.place)


def _winners(runners: list[_Runner]) -> list[_Runner]:
    """The one in front; and those that run for some integrands only, for the ones on which they halve its variance."""
    front = _in_front(runners)
    found = front[:1]
    for runner in runners:
        if runner not in front and (ahead := 2 * runner.squares < front[0].squares).any():
            found.append(dataclasses.replace(runner, columns=ahead))
    return found


def _on_all(runner: _Runner, task: Task, say: Callable[[str], None], policy: Policy) -> _Runner:
    say(f"{runner.rival.label}, on all draws")
    return dataclasses.replace(runner, answer=runner.rival.answer(task.only(runner.columns), runner.found, policy))
