"""Families that must be tuned race: all on few draws, those in front on more, the winner on all.

A step of tuning costs the cube of the draws it is on. So every rival is tuned on a few hundred, is
fitted once, and only those in front go on. Where draws are many they are compared on fewer of them,
and only the winner is fitted to all.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..errors import NumericalError
from ..inference.answer import Answer, Mask, PerIntegrand
from ..inference.task import Task
from ..output.formatting import EXACT
from ..solvers.algebra.threads import map_on_threads, use_one_thread
from ..tuning import DescentEnd
from .candidates import Attempt, mean_squares
from .policy import Policy
from .rivals import Beginning, Rival, Tuning, offer_rivals

# By rival, where a descent for other integrands ended, or None if that was not worth it
Known = dict[str, DescentEnd | None]


@dataclasses.dataclass(frozen=True, eq=False)
class Runner:
    """A rival in the race: where its tuning stands, and its answer there for some integrands.

    It is tuned for its `guides` and fitted for all of its `columns`.
    """

    rival: Rival
    columns: Mask
    guides: Mask
    tuning: Tuning
    answer: Answer

    @property
    def attempt(self) -> Attempt:
        """What came of it."""
        return Attempt(self.rival.label, self.columns, self.answer)

    @property
    def place(self) -> float:
        """The mean logarithm of its squares: the smaller, the further in front."""
        return float(np.log(mean_squares(self.answer)).mean())

    def is_ahead(self, squares: PerIntegrand, times: float = 1.0) -> bool:
        """Whether it has so many times less variance than these squares."""
        return self.place < float(np.log(squares[self.columns] / times).mean())


class RaceResult(NamedTuple):
    """The rivals that were worth a fit to all draws, why others were not, and what was learned for
    other integrands."""

    attempts: list[Attempt]
    notes: list[str]
    known: Known


def race(
    task: Task,
    plain: PerIntegrand,
    before: PerIntegrand,
    policy: Policy,
    known: Known,
    say: Callable[[str], None],
) -> RaceResult:
    """Tune families for the integrands that they may help, on as few draws as will do.

    `plain` and `before` (q,) are mean squared influences without a control variate and with the
    best so far; `known` is what other integrands on these draws have taught. `say` shows what runs.
    """
    d, space = task.seen, task.sample.space
    if refusal := _refusal(task, policy):
        return RaceResult([], [f"tuned kernels: {refusal}"], {})
    track = task if len(task) <= policy.pilot else task.thin(policy.pilot)[0]
    runners: list[Runner] = []
    notes: list[str] = []

    def least() -> PerIntegrand:
        return np.minimum.reduce([before, *(runner.attempt.squares for runner in runners)])

    def guides(columns: Mask) -> Mask:
        """The integrands to tune for. Where kinks may be, and one has run: not those that lag far
        behind it."""
        if d > policy.kinks or not runners:
            return columns
        gains = plain / least()
        alike = columns & (gains > np.max(gains[columns], initial=0.0) / policy.apart)
        return alike if alike.any() else columns

    def begin(rival: Rival, columns: Mask) -> Beginning:
        """On a few hundred draws, far enough apart to count as independent."""
        few = int(np.clip(task.effective, policy.fewest, policy.tuning_draws // rival.share))
        return rival.begin(track.thin(few)[0].only(columns), track, known.get(rival.label))

    def run(rival: Rival, columns: Mask, start: Beginning) -> Runner | str:
        """Tune and fit; or say why not."""
        steps = policy.tuning_steps if start.steps is None else policy.more_steps
        try:
            tuning = start.run(steps)
            answer = rival.answer(track.only(columns), tuning, policy)
        except NumericalError as error:
            return str(error)
        return Runner(rival, columns, guides(columns), tuning, answer)

    def heat(entries: list[tuple[Rival, Mask]]) -> None:
        """Tune and fit rivals side by side, each for its integrands."""
        entries = [(rival, columns) for rival, columns in entries if columns.any()]
        say(" and ".join(rival.label for rival, _ in entries))
        with use_one_thread():
            starts = map_on_threads(begin, [(rival, guides(columns)) for rival, columns in entries])
            starting = [(*entry, start) for entry, start in zip(entries, starts, strict=True)]
            if known:  # after others have been tuned for, the one that begins best ends best
                losses = [_losses(guides(columns), start) for _, columns, start in starting]
                best = np.min(losses, axis=0, initial=np.inf)
                lead = [np.any(np.isfinite(loss) & (loss == best)) for loss in losses]
                labels = [
                    rival.label for (rival, *_), so in zip(starting, lead, strict=True) if not so
                ]
                notes.extend(f"{label}: others begin with less error" for label in labels)
                starting = [one for one, so in zip(starting, lead, strict=True) if so]
            for outcome in map_on_threads(run, starting):
                if isinstance(outcome, str):
                    notes.append(outcome)
                else:
                    runners.append(outcome)

    def polish() -> None:
        """Some steps on more draws for those ahead. By likelihood, whatever the answer's own error
        then is: that rests on the few draws in the tails."""
        front = [runner for runner in _in_front(runners) if not runner.rival.special]
        ahead = [runner for runner in front if runner.is_ahead(before, policy.ahead)]
        close = [one for one in ahead if one.place <= front[0].place + np.log(policy.behind)]
        say(" and ".join(f"{runner.rival.label}, on more draws" for runner in close))

        def resume(one: Runner, steps: int) -> Runner:
            try:
                more = track.only(one.guides)
                tuning = one.rival.resume(more, track, steps, one.tuning)
                answer = one.rival.answer(track.only(one.columns), tuning, policy)
            except NumericalError:
                return one  # what it had is still right
            return dataclasses.replace(one, tuning=tuning, answer=answer)

        def go_on(some: list[Runner], steps: int) -> list[Runner]:
            with use_one_thread():
                further = map_on_threads(resume, [(runner, steps) for runner in some])
            for old, new in zip(some, further, strict=True):
                runners[runners.index(old)] = new
            return sorted(further, key=lambda runner: runner.place)

        close = go_on(close, policy.more_steps)
        if d <= policy.polished:
            go_on(close[:1], policy.tuning_steps)

    offered = [one for one in offer_rivals(d, policy, space) if _is_worth_it(one, d, policy, known)]
    general, special = ([one for one in offered if one.special is so] for so in (False, True))
    open_ = np.ptp(track.values, axis=0) > 0
    signed: list[Rival] = []
    for rival in special:
        sign = rival.read_sign(task, policy)
        if sign is not None:
            signed.append(rival)
            heat([(rival, open_ & (mean_squares(sign) < before))])
    open_ = open_ & (policy.apart * least() > before)
    # first what suits all integrands; then what suits those that have little gain by it
    for wave in [[rival] for rival in general] if d <= policy.kinks else [general]:
        heat([(rival, open_ & (plain / EXACT < least())) for rival in wave])
    if not task.is_slow and not known and len(track) > policy.tuning_draws:
        polish()
    enough = policy.smooth if d <= policy.kinks else policy.apart
    little = open_ & (plain < enough * least())
    heat([(rival, little) for rival in special if rival not in signed])

    learned = {
        runner.rival.label: runner.tuning.end if runner.is_ahead(before) else None
        for runner in runners
        if not runner.rival.special or runner in _in_front(runners)
    }
    ran = {runner.rival for runner in runners}
    for rival in offered:
        if rival not in ran and (why := _reason(runners, open_, little & (rival in signed))):
            notes.append(f"{rival.label}: {why}")
    attempts = [runner.attempt for runner in runners]
    if track is not task:
        attempts = []
        for runner, columns in _winners(runners):
            better = columns & (runner.attempt.squares < before)
            if not better.any():
                notes.append(
                    f"{runner.rival.label} on all {len(task)} draws: on {len(track)} of them its "
                    "error is no smaller than without it"
                )
                continue
            say(f"{runner.rival.label}, on all draws")
            try:
                answer = runner.rival.answer(task.only(better), runner.tuning, policy)
                attempts.append(Attempt(runner.rival.label, better, answer))
            except NumericalError as error:
                notes.append(str(error))
    return RaceResult(attempts, notes, learned)


def _refusal(task: Task, policy: Policy) -> str:
    """Why nothing is tuned, if nothing is."""
    if task.effective < policy.fewest:
        return (
            f"they need {policy.fewest} effective draws, and these are worth {task.effective:.0f}"
        )
    if task.draws.come_again and task.different < policy.fewest:
        return f"they need {policy.fewest} states, and these draws have {task.different:.0f}"
    if task.sample.dim > policy.kernel_dimensions:
        return f"not in more than {policy.kernel_dimensions} dimensions"
    return ""


def _is_worth_it(rival: Rival, d: int, policy: Policy, known: Known) -> bool:
    """Whether a rival is offered: for other integrands it was worth it, or none were tuned for; and
    in few dimensions what suits kinks always is."""
    return not known or bool(known.get(rival.label)) or (rival.special and d <= policy.kinks)


def _losses(guides: Mask, start: Beginning) -> PerIntegrand:
    """Where a descent begins, for all integrands; infinite for those that it is not for."""
    losses = np.full(len(guides), np.inf)
    losses[guides] = start.start.losses
    return losses


def _reason(runners: list[Runner], open_: Mask, hopeless: Mask) -> str:
    """Why a rival did not run, if it is not for want of use."""
    if not open_.any() and runners:
        return f"not needed, as {runners[0].rival.label} leaves almost no error"
    if hopeless.any():
        return "its polynomial part has more error than other polynomials"
    return ""


def _in_front(runners: list[Runner]) -> list[Runner]:
    """Those that run for all integrands that anyone runs for, the best first."""
    most = max((runner.columns.sum() for runner in runners), default=0)
    all_of_them = [runner for runner in runners if runner.columns.sum() == most]
    return sorted(all_of_them, key=lambda runner: runner.place)


def _winners(runners: list[Runner]) -> list[tuple[Runner, Mask]]:
    """The one in front; and those that run for some integrands only, for the ones on which they
    halve its variance and are best."""
    front = _in_front(runners)
    found = [(runner, runner.columns) for runner in front[:1]]
    others = [runner for runner in runners if runner not in front]
    best = np.min([one.attempt.squares for one in others], axis=0, initial=np.inf)
    for runner in others:
        squares = runner.attempt.squares
        if (ahead := (2 * squares < front[0].attempt.squares) & (squares == best)).any():
            found.append((runner, ahead))
    return found
