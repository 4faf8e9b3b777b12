"""The control variate chosen for each integrand, and never worse than plain Monte Carlo.

Candidates run from none at all through polynomials to tuned sums of polynomials and kernels. Each gives an answer from fits
that left the draw, or its block of the chain, out; the answers are then stacked.
"""

import dataclasses
import sys
import time
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float64
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from ..answers import Answer, plain_answer
from ..errors import NumericalError, listed
from ..families import Family
from ..points import distinct
from ..sample import coordinate
from ..tails import heavy_scores
from ..task import Task
from .candidates import AsGiven, Candidate, TunedByLikelihood, candidates
from .policy import Policy
from .selection import Selection
from .stacking import CandidateAnswer, stacked

_POLICY = Policy()


@dataclasses.dataclass(frozen=True)
class Automatic:
    """Choose the control variate for each integrand; what `estimate` does when no family is given.

    budget: seconds after which no further candidate is begun (the one under way is finished; polynomials are always tried).
    also: families to try besides the built-in ones, such as `Network()`; they are fitted as they are.
    progress: show the candidates on a terminal as they are tried.
    policy: the numbers of the choice.
    """

    budget: float = 60.0
    also: Sequence[Family] = ()
    progress: bool = True
    policy: Policy = _POLICY

    def __post_init__(self):
        if isinstance(self.budget, bool) or not isinstance(self.budget, (int, float)) or not self.budget >= 0:
            raise ValueError(f"Automatic: budget must be a number of seconds ≥ 0; got {self.budget!r}")
        also = (self.also,) if isinstance(self.also, Family) else tuple(self.also)
        if not all(isinstance(family, Family) for family in also):
            raise ValueError(f"Automatic: also must be families such as Network(); got {self.also!r}")
        object.__setattr__(self, "also", also)


def choose(task: Task, names: tuple[str, ...], options: Automatic) -> tuple[Answer, Selection]:
    """The stacked answer, and how it came about."""
    started = time.perf_counter()
    contenders, skipped = tried(task, options)
    stack = stacked(task, contenders, options.policy)
    stats = contenders[0].answer.stats | {"form": "stack", "seconds": time.perf_counter() - started}
    labels = tuple(one.label for one in contenders)
    selection = Selection(names, labels, stack.errors, stack.weights, tuple(stack.reasons), tuple(skipped))
    return dataclasses.replace(stack.answer, stats=stats), selection


def tried(task: Task, options: Automatic) -> tuple[list[CandidateAnswer], list[str]]:
    """The answer of every candidate, the plain one first; and what was not tried, with the reason."""
    deadline = time.perf_counter() + options.budget
    plain = plain_answer(task)
    contenders, skipped = [CandidateAnswer("no control variate", True, plain)], list[str]()
    vary = bool(np.ptp(task.values, axis=0).any())
    light, built_in = _light(task, skipped) if vary else None, list[Candidate]()
    if light is not None:
        built_in = _built_in(light, options, deadline)
    offered = built_in + [AsGiven(family.describe(), family, simple=False) for family in options.also if vary]
    for k, candidate in _shown(offered, options.progress):
        if not candidate.simple and time.perf_counter() > deadline:
            skipped.append(f"{candidate.label}: the budget of {options.budget:g} s was spent")
            continue
        gains = _gains([one.answer for one in contenders])
        columns = candidate.wanted(gains)
        if not columns.any():
            continue
        on = light if light is not None and k < len(built_in) else task  # the user's families are of all coordinates
        guides = candidate.guides(gains, offered[:k], on.sample.dim, options.policy)
        try:
            some = candidate.answer(on.only(np.flatnonzero(columns)), options.policy, guides)
        except NumericalError as error:
            skipped.append(str(error))
            continue
        contenders.append(CandidateAnswer(candidate.label, candidate.simple, _elsewhere(plain, some, columns)))
    return contenders, skipped


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


def _built_in(task: Task, options: Automatic, deadline: float) -> list[Candidate]:
    """Where draws are many, of those that cost n³ only the one that did best on fewer."""
    built_in = candidates(task, options.policy)
    if len(task) > options.policy.few_enough:
        tuned = [one for one in built_in if isinstance(one, TunedByLikelihood) and np.isinf(one.below)]
        better = _best(tuned, task, options.policy, deadline)
        built_in = [one for one in built_in if one not in tuned or one in better]
    return built_in


def _best(offered: list[TunedByLikelihood], task: Task, policy: Policy, deadline: float) -> list[TunedByLikelihood]:
    """The candidate of least error on a thinned sample, by the mean logarithm over integrands; all, if no time is left."""
    pilot, _ = task.thinned(policy.pilot)
    scores = []
    for candidate in offered:
        if time.perf_counter() > deadline:
            break
        try:
            influences = candidate.answer(pilot, policy).influences
        except NumericalError:
            continue
        squares = np.mean(influences**2, axis=(0, 1))
        scores.append((float(np.log(squares + np.finfo(float).tiny).mean()), candidate))
    return [min(scores, key=lambda pair: pair[0])[1]] if scores else offered


def _elsewhere(plain: Answer, some: Answer, columns: np.ndarray) -> Answer:
    """An answer for some integrands, and the plain one for the others."""
    value, influences, residuals = plain.value.copy(), plain.influences.copy(), plain.influences.copy()
    value[columns], influences[:, :, columns], residuals[:, :, columns] = some.value, some.influences, some.in_a_mean
    return dataclasses.replace(some, value=value, influences=influences, residuals=residuals, bounds=())


def _gains(answers: Sequence[Answer]) -> Float64[np.ndarray, " q"]:
    """By how much the best answer so far has less variance than the first, the plain one; infinite for constants."""
    squares = np.stack([np.mean(answer.influences**2, axis=(0, 1)) for answer in answers])
    best = squares.min(axis=0)
    return np.divide(squares[0], best, out=np.full(len(best), np.inf), where=best > 0)


def _shown(offered: Sequence[Candidate], wanted: bool) -> Iterator[tuple[int, Candidate]]:
    """The candidates one by one, named on a terminal while they are tried."""
    console = Console(stderr=True)
    columns = (TextColumn("choosing"), BarColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True, disable=not (wanted and sys.stderr.isatty())) as bar:
        task = bar.add_task("", total=len(offered))
        for k, candidate in enumerate(offered):
            bar.update(task, description=candidate.label)
            yield k, candidate
            bar.advance(task)
