"""The control variate chosen for each integrand, and never worse than plain Monte Carlo.

Candidates run from none at all through polynomials to tuned sums of polynomials and kernels. Each gives an answer from fits
that left the draw, or its block of the chain, out; the answers are then stacked.
"""

import dataclasses
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ..answers import Answer, plain_answer
from ..errors import NumericalError, listed
from ..families import Family
from ..points import distinct
from ..sample import coordinate
from ..tails import heavy_scores
from ..task import Task
from .candidates import AsGiven, candidates
from .policy import Policy
from .race import mean_squares, raced
from .selection import Selection
from .stacking import CandidateAnswer, stacked

_POLICY = Policy()
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
    policy = options.policy.harder() if options.effort == "high" else options.policy
    plain = plain_answer(task)
    contenders, skipped = [CandidateAnswer("no control variate", True, plain)], list[str]()
    if not np.ptp(task.values, axis=0).any():
        return contenders, skipped
    light = _light(task, skipped)
    low = options.effort == "low"
    offered = [] if light is None else [(candidate, light) for candidate in candidates(light, policy)]
    if low:
        skipped += [f"{candidate.label}: not at low effort" for candidate, _ in offered if not candidate.simple]
        offered = [pair for pair in offered if pair[0].simple]
    # the user's families are of all coordinates
    offered += [(AsGiven(family.describe(), family, simple=False), task) for family in options.also]
    with _shown(options.progress) as say:
        for candidate, on in offered:
            say(candidate.label)
            try:
                contenders.append(CandidateAnswer(candidate.label, candidate.simple, candidate.answer(on, policy)))
            except NumericalError as error:
                skipped.append(str(error))
        if light is not None and low:
            skipped.append("tuned kernels: not at low effort")
        elif light is not None:
            squares = np.stack([mean_squares(one.answer) for one in contenders])
            for label, some, columns in raced(light, squares[0], squares.min(axis=0), policy, say, skipped):
                contenders.append(CandidateAnswer(label, False, _elsewhere(plain, some, columns)))
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
