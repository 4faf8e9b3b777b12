"""The control variate chosen for each integrand, and never worse than plain Monte Carlo.

Candidates run from none at all through polynomials to tuned sums of polynomials and kernels. Each gives an answer from fits
that left the draw, or its block of the chain, out; the answers are then stacked.
"""

import dataclasses
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ..answers import Answer, plain_answer
from ..errors import NumericalError, listed
from ..families import Family
from ..points import FittingDraws, distinct
from ..sample import Sample, coordinate
from ..tails import heavy_scores
from ..task import Task
from .candidates import AsGiven, candidates
from .policy import Policy
from .race import mean_squares, raced
from .selection import Selection
from .stacking import CandidateAnswer, stacked

_POLICY = Policy()
Forms = Mapping[str, Callable[[Sample], Sample]]  # by name, the same draws in other coordinates
EFFORTS = ("low", "normal", "high")


@dataclasses.dataclass(frozen=True)
class Automatic:
    """Choose the control variate for each integrand; what `estimate` does when no family is given.

    effort: "low" for what is in closed form, polynomials, in well under a second; "normal" also tunes kernels on part of the
        draws; "high" tunes more of them for longer. The same input gives the same answer however busy the machine.
    also: families to try besides the built-in ones, such as `Network()`; they are fitted as they are.
    progress: show the candidates on a terminal as they are tried.
    policy: the numbers of the choice.
    """

    effort: str = "normal"
    also: Sequence[Family] = ()
    progress: bool = True
    policy: Policy = _POLICY

    def __post_init__(self):
        if self.effort not in EFFORTS:
            raise ValueError(f"Automatic: effort must be one of {', '.join(map(repr, EFFORTS))}; got {self.effort!r}")
        also = (self.also,) if isinstance(self.also, Family) else tuple(self.also)
        if not all(isinstance(family, Family) for family in also):
            raise ValueError(f"Automatic: also must be families such as Network(); got {self.also!r}")
        object.__setattr__(self, "also", also)


def choose(task: Task, names: tuple[str, ...], options: Automatic, others: Forms | None = None) -> tuple[Answer, Selection]:
    """The stacked answer, and how it came about; `others` are coordinates, by name, in which the draws may do better."""
    started = time.perf_counter()
    contenders, skipped = tried(task, options, others)
    stack = stacked(task, contenders, options.policy)
    stats = contenders[0].answer.stats | {"form": "stack", "seconds": time.perf_counter() - started}
    labels = tuple(one.label for one in contenders)
    selection = Selection(names, labels, stack.errors, stack.weights, tuple(stack.reasons), tuple(skipped))
    return dataclasses.replace(stack.answer, stats=stats), selection


def tried(task: Task, options: Automatic, others: Forms | None = None) -> tuple[list[CandidateAnswer], list[str]]:
    """The answer of every candidate, the plain one first; and what was not tried, with the reason."""
    policy = options.policy.harder() if options.effort == "high" else options.policy
    plain = plain_answer(task)
    contenders, skipped = [CandidateAnswer("no control variate", True, plain)], list[str]()
    if not np.ptp(task.values, axis=0).any():
        return contenders, skipped
    low = options.effort == "low"
    best = plain  # by each integrand's error so far
    front, before = None, mean_squares(plain)
    with _shown(options.progress) as say:
        for name, form in _forms(task, others, skipped):
            squares = mean_squares(plain)
            for candidate in candidates(form, policy):
                label = candidate.label + name
                if low and not candidate.simple:
                    skipped.append(f"{label}: not at low effort")
                    continue
                say(label)
                columns = candidate.wanted(form, best, policy)
                if not columns.any():
                    skipped.append(f"{label}: nothing left for it to explain")
                    continue
                try:
                    some = candidate.answer(form.only(np.flatnonzero(columns)), policy)
                except NumericalError as error:
                    skipped.append(str(error))
                    continue
                answer = _elsewhere(plain, some, columns)
                contenders.append(CandidateAnswer(label, candidate.simple, answer if not columns.all() else some))
                best = _better(best, answer)
                squares = np.minimum(squares, mean_squares(answer))
            if front is None or np.log(squares / before).mean() < 0:  # kernels are tuned where polynomials do best
                front, before = (form, name), squares
        for family in options.also:  # of all coordinates
            candidate = AsGiven(family.describe(), family, simple=False)
            say(candidate.label)
            contenders.append(CandidateAnswer(candidate.label, False, candidate.answer(task, policy)))
        if front is not None and low:
            skipped.append("tuned kernels: not at low effort")
        elif front is not None:
            form, name = front
            for label, some, columns in raced(form, mean_squares(plain), mean_squares(best), policy, say, skipped):
                contenders.append(CandidateAnswer(label + name, False, _elsewhere(plain, some, columns)))
    return contenders, skipped


def _forms(task: Task, others: Forms | None, skipped: list[str]) -> Iterator[tuple[str, Task]]:
    """The task in its own coordinates and in others, without those whose scores have no mean; and what labels say of it."""
    light = _light(task, skipped)
    if light is not None:
        yield "", light
    for name, mapped in (others or {}).items():
        try:
            sample = mapped(task.sample)
        except ValueError as error:
            skipped.append(f"{name} coordinates: {error}")
            continue
        light = _light(dataclasses.replace(task, sample=sample, draws=FittingDraws(sample.points(), task.standardise)), skipped)
        if light is not None:
            yield f", {name}", light


def _light(task: Task, skipped: list[str]) -> Task | None:
    """The task along those coordinates whose scores have means, if any: Stein's identity holds along each by itself."""
    sample = task.sample
    heavy = heavy_scores(sample.by_chain(sample.scores))
    if not heavy.any():
        return task
    names = listed([coordinate(sample.names, j) for j in np.flatnonzero(heavy)])
    skipped.append(f"control variates along {names}: their scores have tails so heavy that Stein's identity may fail")
    told_apart = not heavy.all() and len(distinct(sample.draws[:, ~heavy])[0]) == len(task.draws.distinct)
    return task.along(~heavy) if told_apart else None


def _better(one: Answer, other: Answer) -> Answer:
    """For each integrand the answer of less error."""
    ahead = mean_squares(other) < mean_squares(one)
    influences, residuals = (
        np.where(ahead, b, a) for a, b in ((one.influences, other.influences), (one.in_a_mean, other.in_a_mean))
    )
    return dataclasses.replace(one, value=np.where(ahead, other.value, one.value), influences=influences, residuals=residuals)


def _elsewhere(plain: Answer, some: Answer, columns: np.ndarray) -> Answer:
    """An answer for some integrands, and the plain one for the others."""
    value, influences, residuals = plain.value.copy(), plain.influences.copy(), plain.influences.copy()
    value[columns], influences[:, :, columns], residuals[:, :, columns] = some.value, some.influences, some.in_a_mean
    return dataclasses.replace(some, value=value, influences=influences, residuals=residuals, bounds=())


@contextmanager
def _shown(wanted: bool) -> Iterator[Callable[[str], None]]:
    """Something to tell what is tried, which shows it on a terminal for as long as that takes."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("choosing: {task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not (wanted and sys.stderr.isatty())) as bar:
        task = bar.add_task("", total=None)
        yield lambda label: bar.update(task, description=label)
