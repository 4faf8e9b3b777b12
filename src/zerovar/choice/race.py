"""Families that must be tuned race: all on few draws, the one in front on more, and no further than
it pays.

A step of tuning costs the cube of the draws it is on. So every rival is tuned on a few hundred, is
fitted once, and only those in front go on. Where draws are many they are compared on fewer of them,
and only the winner is fitted to all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
from jaxtyping import Bool, Float64

from ..errors import NumericalError
from ..inference.answers import Answer
from ..inference.task import Task
from ..solvers.algebra.threads import map_on_threads, use_one_thread
from ..statistics.series import INDEPENDENT
from ..tuning import DescentEnd
from .candidates import Begun, Descended, Rival, rivals
from .policy import Policy

Chosen = Bool[np.ndarray, " q"]
Squares = Float64[np.ndarray, " q"]
_Starting = tuple[Rival, Chosen, Chosen, Begun]
# by rival, where a descent for other integrands ended, or None if that was not worth it
Known = dict[str, DescentEnd | None]


@dataclasses.dataclass(eq=False)
class _Runner:
    """A rival in the race: where its tuning stands, and its answer there for the integrands that it
    runs for."""

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
    task: Task,
    plain: Squares,
    best: Squares,
    policy: Policy,
    say: Callable[[str], None],
    skipped: list[str],
    known: Known,
) -> Iterator[tuple[str, Answer, Chosen]]:
    """Name, answer and integrands of each rival that was worth a fit to the draws.

    `plain` and `best` (q,) are mean squared influences without a control variate and with the best
    so far; `say` is told what runs, and `skipped` what did not and why. `known` has what other
    integrands on these draws have taught, and is taught more.
    """
    d, slow = task.sample.dim, task.autocorrelation >= INDEPENDENT
    enough = policy.slow_fewest if slow else policy.fewest
    if task.effective < enough:
        skipped.append(
            f"tuned kernels: they need {enough} effective draws, and these are worth "
            f"{task.effective:.0f}"
        )
        return
    if d > policy.kernel_dimensions:
        skipped.append(f"tuned kernels: not in more than {policy.kernel_dimensions} dimensions")
        return
    track = task if len(task) <= policy.few_enough else task.thinned(policy.pilot)[0]
    race = _Race(track, plain, best, policy, say, skipped, known)
    offered = _offered(d, policy, known)
    general, special = ([rival for rival in offered if rival.special == so] for so in (False, True))
    race.follow(special, task)
    # first what suits all integrands; then what suits those that have little gain by it
    for stage in (general, special):
        for wave in [[rival] for rival in stage] if d <= policy.kinks else [stage]:
            race.tune(wave)
        if not slow and not known:
            race.polish()
    for runner in race.runners:
        if not runner.rival.special or runner in _in_front(race.runners):
            known.setdefault(runner.rival.label, runner.found.end if race.ahead(runner) else None)
    runners = race.runners
    if track is not task:
        won = [(runner, columns & (runner.squares < best)) for runner, columns in _winners(runners)]
        skipped += [
            f"{runner.rival.label} on all draws: no better on {len(track)}"
            for runner, some in won
            if not some.any()
        ]
        runners = [_on_all(runner, some, task, say, policy) for runner, some in won if some.any()]
    for runner in runners:
        yield runner.rival.label, runner.answer, runner.columns


def _offered(d: int, policy: Policy, known: Known) -> list[Rival]:
    """Those that ran for all other integrands, where that is known, and in few dimensions what
    suits kinks; else all."""
    offered = rivals(d, policy)
    return [
        one
        for one in offered
        if not known or known.get(one.label) or (one.special and d <= policy.kinks)
    ]


@dataclasses.dataclass(eq=False)
class _Race:
    """Rivals that have run so far, and the least squares of each integrand."""

    track: Task  # the draws on which they are compared
    plain: Squares
    best: Squares
    policy: Policy
    say: Callable[[str], None]
    skipped: list[str]
    known: Known
    runners: list[_Runner] = dataclasses.field(default_factory=list)
    polished: list[_Runner] = dataclasses.field(default_factory=list)

    def __post_init__(self):
        self.before = self.best
        self.open = np.ptp(self.track.values, axis=0) > 0  # integrands that may gain by more
        self.signed_off: dict[Rival, Chosen] = {}  # for which their signs leave no hope

    def follow(self, rivals: list[Rival], task: Task) -> None:
        """Tune rivals for the integrands to which their signs point, by all draws. One that has
        next to no error there settles them."""
        for rival in rivals:
            answer = rival.pointed(task, self.policy)
            if answer is not None:
                self.signed_off[rival] = mean_squares(answer) > self.policy.hopeless * self.before
                self.start([(rival, self.open & (2 * mean_squares(answer) < self.before))])
        self.open &= self.policy.settled * self.best > self.before

    def tune(self, wave: list[Rival]) -> None:
        """Tune rivals side by side, each for the integrands that it may help."""
        wanted = [(rival, self.wanted(rival)) for rival in wave]
        self.skipped += [
            f"{rival.label}: {why}"
            for rival, some in wanted
            if not some.any() and (why := self.reason(rival))
        ]
        self.start(wanted)

    def reason(self, rival: Rival) -> str:
        """Why a rival that runs for none of the integrands does not, if it is not for want of
        use."""
        if any(runner.rival is rival for runner in self.runners):
            return ""
        if not self.open.any() and self.runners:
            return f"{self.runners[0].rival.label} leaves next to nothing"
        hopeless = rival in self.signed_off and (self.useful(rival) & self.signed_off[rival]).any()
        return "its polynomials do worse than others" if hopeless else ""

    def useful(self, rival: Rival) -> Chosen:
        """The integrands that have not gained enough without it."""
        return self.open & (self.plain < np.minimum(rival.below, self.policy.done) * self.best)

    def wanted(self, rival: Rival) -> Chosen:
        """Those of them that a rival may help, without those that it has run for."""
        found = self.useful(rival)
        found &= ~self.signed_off.get(rival, np.zeros_like(found))
        for runner in self.runners:
            found &= ~runner.columns if runner.rival is rival else True
        return found

    def start(self, wave: list[tuple[Rival, Chosen]]) -> None:
        """Tune rivals side by side, each for its integrands, and fit them."""
        starting = [
            (rival, columns, self.guides(columns)) for rival, columns in wave if columns.any()
        ]
        self.say(" and ".join(rival.label for rival, *_ in starting))
        with use_one_thread():
            begun = map_on_threads(self.begun, [(rival, guides) for rival, _, guides in starting])
            running = self.hopeful(
                [(*one, start) for one, start in zip(starting, begun, strict=True)]
            )
            for runner in map_on_threads(self.started, running):
                if isinstance(runner, NumericalError):
                    self.skipped.append(str(runner))
                else:
                    self.runners.append(runner)
                    self.best = np.minimum(self.best, runner.squares)

    def guides(self, columns: Chosen) -> Chosen:
        """The integrands that a rival is tuned for. Where kinks may be, and one has run: not those
        that lag far behind it."""
        if self.track.sample.dim > self.policy.kinks or not self.runners:
            return columns
        gains = self.plain / self.best
        found = columns & (gains > np.max(gains, where=columns, initial=0.0) / self.policy.apart)
        return found if found.any() else columns

    def begun(self, rival: Rival, guides: Chosen) -> Begun:
        """On a few hundred draws, far enough apart to count as independent."""
        track, policy = self.track, self.policy
        few = int(
            np.clip(
                len(track) / track.autocorrelation,
                policy.tuning_fewest,
                rival.draws or policy.tuning_draws,
            )
        )
        return rival.begun(track.thinned(few)[0].only(guides), track, self.known.get(rival.label))

    def hopeful(self, starting: list[_Starting]) -> list[_Starting]:
        """Those that may win for some integrand. After others have been tuned for, these are the
        ones that begin best."""
        if not self.known or len(starting) < 2:
            return starting
        losses = np.full((len(starting), len(self.open)), np.inf)
        for own, (_, _, guides, begun) in zip(losses, starting, strict=True):
            own[guides] = begun.start.losses
        near = (losses < losses.min(axis=0) + self.policy.behind).any(axis=1)
        self.skipped += [
            f"{one[0].label}: others begin far ahead"
            for one, so in zip(starting, near, strict=True)
            if not so
        ]
        return [one for one, so in zip(starting, near, strict=True) if so]

    def started(
        self, rival: Rival, columns: Chosen, guides: Chosen, begun: Begun
    ) -> _Runner | NumericalError:
        """Tuned and fitted; or why not."""
        try:
            found = begun.run(
                self.policy.tuning_steps if begun.curved is None else self.policy.renewed_steps
            )
            return _Runner(
                rival,
                columns,
                guides,
                found,
                rival.answer(self.track.only(columns), found, self.policy),
            )
        except NumericalError as error:
            return error

    def ahead(self, runner: _Runner, times: float = 1.0) -> bool:
        """Whether a runner has so many times less variance than what was there before the race."""
        return runner.place < float(np.log(self.before[runner.columns] / times).mean())

    def polish(self) -> None:
        """Some steps on more draws for those in front. By likelihood, whatever the answer's own
        error then is: that rests on the few draws in the tails (gp_regr has a fifth of the gain
        where it decides)."""
        more = self.track.thinned(self.policy.polished)[0]
        front = [one for one in _in_front(self.runners) if not one.rival.special][
            : self.policy.in_front
        ]
        close = [
            one
            for one in front
            if one.place < front[0].place + np.log(self.policy.close) and one not in self.polished
        ]
        close = [one for one in close if self.ahead(one, self.policy.ahead)]
        if len(more) <= self.policy.tuning_draws or not close:
            return
        self.say(f"{' and '.join(runner.rival.label for runner in close)}, on more draws")

        def further(runner: _Runner) -> None:
            policy, on = self.policy, more.only(runner.guides)
            runner.found = runner.rival.further(
                on, self.track, policy.polishing_steps, runner.found
            )
            runner.answer = runner.rival.answer(
                self.track.only(runner.columns), runner.found, policy
            )

        with use_one_thread():
            map_on_threads(further, [(runner,) for runner in close])
        self.best = np.minimum.reduce([self.best, *(runner.squares for runner in close)])
        self.polished += close


def _in_front(runners: list[_Runner]) -> list[_Runner]:
    """Those that run for all integrands that anyone runs for, the best first."""
    most = max((runner.columns.sum() for runner in runners), default=0)
    return sorted(
        (runner for runner in runners if runner.columns.sum() == most),
        key=lambda runner: runner.place,
    )


def _winners(runners: list[_Runner]) -> list[tuple[_Runner, Chosen]]:
    """The one in front; and those that run for some integrands only, for the ones on which they
    halve its variance and are best."""
    front = _in_front(runners)
    others = [runner for runner in runners if runner not in front]
    found = [(runner, runner.columns) for runner in front[:1]]
    best = np.min([runner.squares for runner in others], axis=0, initial=np.inf) if others else None
    for runner in others:
        if (ahead := (2 * runner.squares < front[0].squares) & (runner.squares == best)).any():
            found.append((runner, ahead))
    return found


def _on_all(
    runner: _Runner, columns: Chosen, task: Task, say: Callable[[str], None], policy: Policy
) -> _Runner:
    say(f"{runner.rival.label}, on all draws")
    answer = runner.rival.answer(task.only(columns), runner.found, policy)
    return dataclasses.replace(runner, columns=columns, answer=answer)
