"""The control variate chosen for each integrand, and never worse than plain Monte Carlo.

Candidates run from none at all through polynomials to tuned sums of polynomials and kernels. Each
gives an answer from fits that left the draw, or its block of the chain, out; the answers are then
stacked.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from ..errors import NumericalError, list_names
from ..families import Family
from ..inference.answers import Answer, plain_answer
from ..inference.task import Task
from ..inputs.points import FittingDraws, find_distinct
from ..inputs.sample import Sample, coordinate_name
from ..output.selection import Selection
from ..progress import spinner
from ..statistics.tails import heavy_scores
from .candidates import AsGiven, Candidate, candidates
from .policy import Policy
from .race import Known, mean_squares, raced
from .stacking import CandidateAnswer, stacked

_POLICY = Policy()
Forms = Mapping[str, Callable[[Sample], Sample]]  # by name, the same draws in other coordinates
EFFORTS = ("low", "normal", "high")


@dataclasses.dataclass(frozen=True)
class Automatic:
    """Choose the control variate for each integrand; what `estimate` does when no family is given.

    effort: "low" for what is in closed form, polynomials, in well under a second; "normal" also
        tunes kernels on part of the draws; "high" tunes more of them for longer. The same input
        gives the same answer however busy the machine.
    also: families to try besides the built-in ones, such as `Network()`; they are fitted as they
    are. progress: show the candidates on a terminal as they are tried. policy: the numbers of the
    choice.
    """

    effort: str = "normal"
    also: Sequence[Family] = ()
    progress: bool = True
    policy: Policy = _POLICY

    def __post_init__(self):
        if self.effort not in EFFORTS:
            raise ValueError(
                f"Automatic: effort must be one of {', '.join(map(repr, EFFORTS))}; got "
                f"{self.effort!r}"
            )
        also = (self.also,) if isinstance(self.also, Family) else tuple(self.also)
        if not all(isinstance(family, Family) for family in also):
            raise ValueError(
                f"Automatic: also must be families such as Network(); got {self.also!r}"
            )
        object.__setattr__(self, "also", also)


def choose(
    task: Task,
    names: tuple[str, ...],
    options: Automatic,
    others: Forms | None = None,
    learned: dict[str, Known] | None = None,
) -> tuple[Answer, Selection]:
    """The stacked answer, and how it came about; `others` are coordinates, by name, in which the
    draws may do better.

    `learned` is where tuning ended, in each of the coordinates: what is there is begun from, what
    is not is added.
    """
    started = time.perf_counter()
    contenders, skipped = tried(task, options, others, learned)
    stack = stacked(task, contenders, options.policy)
    stats = contenders[0].answer.stats | {"form": "stack", "seconds": time.perf_counter() - started}
    labels = tuple(one.label for one in contenders)
    selection = Selection(
        names, labels, stack.errors, stack.weights, tuple(stack.reasons), tuple(skipped)
    )
    return dataclasses.replace(stack.answer, stats=stats), selection


def tried(
    task: Task,
    options: Automatic,
    others: Forms | None = None,
    learned: dict[str, Known] | None = None,
) -> tuple[list[CandidateAnswer], list[str]]:
    """The answer of every candidate, the plain one first; and what was not tried, with the
    reason."""
    policy, low = (
        options.policy.harder() if options.effort == "high" else options.policy,
        options.effort == "low",
    )
    plain = plain_answer(task)
    trial = _Trial([CandidateAnswer("no control variate", True, plain)], [], plain, policy)
    if not np.ptp(task.values, axis=0).any():
        return trial.contenders, trial.skipped
    with spinner("choosing", options.progress) as trial.say:
        forms = list[tuple[float, str, Task]]()
        for name, form in _forms(task, others, trial.skipped):
            first = len(trial.contenders)
            for candidate in candidates(form, policy):
                if low and not candidate.simple:
                    trial.skipped.append(f"{candidate.label}{name}: not at low effort")
                else:
                    trial.attempt(candidate, form, name)
            forms.append((_place([trial.contenders[0], *trial.contenders[first:]]), name, form))
        for family in options.also:
            trial.attempt(AsGiven(family.describe(), family, simple=False), task)
        if forms and low:
            trial.skipped.append("tuned kernels: not at low effort")
        elif forms:  # in the coordinates in which the others did best
            _, name, form = min(forms, key=lambda entry: entry[0])
            known = {} if learned is None else learned.setdefault(name, {})
            before, best = mean_squares(plain), mean_squares(trial.best)
            for label, some, columns in raced(
                form, before, best, policy, trial.say, trial.skipped, known
            ):
                trial.add(label + name, False, some, columns)
    return trial.contenders, trial.skipped


@dataclasses.dataclass(eq=False)
class _Trial:
    """What was tried, and what was not and why, as the choice goes on."""

    contenders: list[CandidateAnswer]
    skipped: list[str]
    best: Answer  # of each integrand, by its error so far
    policy: Policy
    say: Callable[[str], None] = print

    def attempt(self, candidate: Candidate, on: Task, name: str = "") -> None:
        """A candidate in the coordinates of `on`, for the integrands that it may help."""
        label, columns = candidate.label + name, candidate.wanted(on, self.best, self.policy)
        if not columns.any():
            return
        self.say(label)
        try:
            some = candidate.answer(on.only(np.flatnonzero(columns)), self.policy)
        except NumericalError as error:
            self.skipped.append(str(error))
            return
        self.add(label, candidate.simple, some, columns)

    def add(self, label: str, simple: bool, some: Answer, columns: np.ndarray) -> None:
        """An answer for some of the integrands."""
        answer = some if columns.all() else _elsewhere(self.contenders[0].answer, some, columns)
        self.contenders.append(CandidateAnswer(label, simple, answer))
        self.best = _better(self.best, answer)


def _place(contenders: Sequence[CandidateAnswer]) -> float:
    """The mean logarithm of the smallest squares among them: less is better."""
    return float(np.log(np.min([mean_squares(one.answer) for one in contenders], axis=0)).mean())


def _forms(task: Task, others: Forms | None, skipped: list[str]) -> Iterator[tuple[str, Task]]:
    """The task in its own coordinates and in others, without those whose scores have no mean; and
    what labels say of it."""
    light = _light(task, skipped)
    if light is not None:
        yield "", light
    for name, mapped in (others or {}).items():
        try:
            sample = mapped(task.sample)
        except ValueError as error:
            skipped.append(f"{name} coordinates: {error}")
            continue
        light = _light(
            dataclasses.replace(
                task, sample=sample, draws=FittingDraws(sample.points(), task.standardise)
            ),
            skipped,
        )
        if light is not None:
            yield f", {name}", light


def _light(task: Task, skipped: list[str]) -> Task | None:
    """The task along those coordinates whose scores have means, if any: Stein's identity holds
    along each by itself."""
    sample = task.sample
    heavy = heavy_scores(sample.by_chain(sample.scores))
    # far points of a proposal have wild scores, and next to no weight
    if sample.weights is not None and heavy.any():
        heavy &= heavy_scores(
            sample.by_chain(len(sample) * sample.probabilities[:, None] * sample.scores)
        )
    if not heavy.any():
        return task
    names = list_names([coordinate_name(sample.names, j) for j in np.flatnonzero(heavy)])
    skipped.append(
        f"control variates along {names}: their scores have tails so heavy that Stein's identity "
        "may fail"
    )
    told_apart = not heavy.all() and len(find_distinct(sample.draws[:, ~heavy])[0]) == len(
        task.draws.distinct
    )
    return task.along(~heavy) if told_apart else None


def _better(one: Answer, other: Answer) -> Answer:
    """For each integrand the answer of less error."""
    return one.with_columns(other, mean_squares(other) < mean_squares(one))


def _elsewhere(plain: Answer, some: Answer, columns: np.ndarray) -> Answer:
    """An answer for some integrands, and the plain one for the others."""
    value, influences, residuals = (
        plain.value.copy(),
        plain.influences.copy(),
        plain.influences.copy(),
    )
    value[columns], influences[:, :, columns], residuals[:, :, columns] = (
        some.value,
        some.influences,
        some.in_a_mean,
    )
    outer = None
    if some.outer is not None and plain.outer is not None:
        outer = plain.outer.copy()
        outer[:, :, columns] = some.outer
    return dataclasses.replace(
        some, value=value, influences=influences, residuals=residuals, outer=outer, bounds=()
    )
