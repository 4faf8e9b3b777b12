"""The control variate chosen for each integrand, and never worse than plain Monte Carlo.

Candidates run from none at all through polynomials to tuned sums of polynomials and kernels. Each
gives an answer from fits that left the draw, or its block of the chain, out; the answers are then
stacked.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..arguments import FLAG, instance, one_of, several, takes
from ..errors import NumericalError, list_names
from ..families import FAMILY, Family
from ..inference.answer import Answer, plain_answer
from ..inference.task import Task
from ..inputs.points import FittingDraws, find_distinct
from ..inputs.sample import Sample, coordinate_name
from ..output.selection import Selection
from ..progress import stages
from ..statistics.rounding import equal_columns
from ..statistics.tails import heavy_scores
from .candidates import AsGiven, Attempt, mean_squares, offer
from .policy import Policy
from .race import Known, race
from .rivals import offer_rivals
from .stacking import Contender, stack
from .structure import Hierarchy

_POLICY = Policy()
_PLAIN = "no control variate"
_RESCALED, _BARE = "rescaled", "non-centred"  # what a hierarchy that was found is called in labels
Form = Callable[[Sample], Sample]
Forms = Mapping[str, Form]  # by name, the same draws in other coordinates
# Coordinates that were tried: how large residuals of closed forms are, what labels say, the task
Place = tuple[float, str, Task]
EFFORTS = ("low", "normal", "high")


@takes(
    effort=one_of(*EFFORTS),
    also=several(FAMILY, "families such as Network()"),
    progress=FLAG,
    policy=instance(Policy, "a zerovar.choice.Policy"),
)
@dataclasses.dataclass(frozen=True)
class Automatic:
    """Choose the control variate for each integrand; what `estimate` does when no family is given.

    effort: "low" for what is in closed form, polynomials, in well under a second; "normal" also
        tunes kernels on part of the draws; "high" tunes more of them for longer. The same input
        gives the same answer however busy the machine.
    also: families to try besides the built-in ones, such as `Network()`; they are fitted as they
        are.
    progress: show the candidates on a terminal or in a notebook as they are tried, if that takes
        more than a moment.
    policy: the numbers of the choice.
    """

    effort: str = "normal"
    also: Sequence[Family] = ()
    progress: bool = True
    policy: Policy = _POLICY


LOW_EFFORT = Automatic(effort="low", progress=False)
CHOICE = instance((Family, Automatic), FAMILY.words)


class Choice(NamedTuple):
    """The stacked answer, how it came about, and what tuning has taught, by coordinates."""

    answer: Answer
    selection: Selection
    learned: dict[str, Known]


class Trials(NamedTuple):
    """The answer of every candidate, the plain one first; what was not tried, with the reason; and
    what tuning has taught, by coordinates."""

    contenders: list[Contender]
    notes: list[str]
    learned: dict[str, Known]


def choose(
    task: Task,
    names: tuple[str, ...],
    options: Automatic,
    forms: Forms | None = None,
    learned: Mapping[str, Known] | None = None,
    hierarchy: Hierarchy | None = None,
) -> Choice:
    """Try all candidates and stack them; `forms` are coordinates in which the draws may do better,
    and so is a `hierarchy` that was found.

    `learned` is where tuning for other integrands ended, in each of the coordinates. Integrands
    that are equal up to rounding, as the two halves of a covariance matrix, are one.
    """
    started = time.perf_counter()
    equal = equal_columns(task.values)
    distinct, each = np.unique(equal, return_inverse=True)
    part = task.only(distinct)
    contenders, notes, found = try_all(part, options, forms, learned, hierarchy)
    stacked = stack(part, contenders, options.policy)
    seconds = time.perf_counter() - started
    stats = contenders[0].answer.stats | {"form": "stack", "seconds": seconds}
    labels = tuple(one.label for one in contenders)
    reasons = tuple(stacked.reasons[k] for k in each)
    errors, weights = stacked.errors[:, each], stacked.weights[:, each]
    selection = Selection(names, labels, errors, weights, reasons, tuple(notes))
    if hierarchy is not None:
        told = hierarchy.describe(task.sample.names)
        tried = " and ".join(_found_forms(hierarchy, forms))
        words = tuple(
            f"{text}, as that of effects in a hierarchy does, or of coefficients beside an unknown "
            f"scale of errors. Control variates were also tried in units of it ({tried})"
            for text in told
        )
        selection = dataclasses.replace(selection, found=words)
    answer = stacked.answer.only(each)
    idle, plain = ~answer.controlled, plain_answer(task)  # which may differ in the last digit
    answer = dataclasses.replace(
        answer.insert(plain.only(idle), idle), stats=stats, alternatives=answer.alternatives
    )
    return Choice(answer, selection, found)


def try_all(
    task: Task,
    options: Automatic,
    forms: Forms | None = None,
    learned: Mapping[str, Known] | None = None,
    hierarchy: Hierarchy | None = None,
) -> Trials:
    """Try every candidate: closed forms in all coordinates, tuned families in the best of them, and
    in those of the draws where the best were found from the draws."""
    high, low = options.effort == "high", options.effort == "low"
    policy = options.policy.intensify() if high else options.policy
    plain = plain_answer(task)
    everything, notes, known = [Contender(_PLAIN, True, plain)], list[str](), dict[str, Known]()
    if not np.ptp(task.values, axis=0).any():
        return Trials(everything, notes, known)

    best = plain  # for each integrand the answer of least error so far

    def add(attempt: Attempt, name: str = "") -> None:
        nonlocal best
        if attempt.note:
            notes.append(attempt.note)
        if attempt.answer is not None:
            answer = plain.insert(attempt.answer, attempt.columns)
            everything.append(Contender(attempt.label + name, attempt.simple, answer))
            better = mean_squares(answer) < mean_squares(best)
            best = best.insert(answer.only(better), better)

    found = _found_forms(hierarchy, forms)
    views = [
        (name, form, offer(form, policy))
        for name, form in _views(task, dict(forms or {}) | found, notes)
    ]
    tuned = 0 if low else len(offer_rivals(task.sample.dim, policy, task.sample.space))
    total = sum(len(offered) for *_, offered in views) + len(options.also) + tuned
    with stages("choosing control variates", total, options.progress) as say:
        places = list[Place]()
        for name, form, offered in views:
            first = len(everything)
            for candidate in offered:
                if low and not candidate.simple:
                    notes.append(f"{candidate.label}{name}: left out at low effort")
                else:
                    say(candidate.label + name)
                    add(candidate.attempt(form, best, policy), name)
            squares = [mean_squares(one.answer) for one in (everything[0], *everything[first:])]
            places.append((float(np.log(np.min(squares, axis=0)).mean()), name, form))
        for family in options.also:
            say(family.describe())
            add(AsGiven(family.describe(), family, simple=False).attempt(task, best, policy))
        if places and low:
            notes.append("tuned kernels: left out at low effort")
        elif places:  # in the coordinates in which the others did best
            closed = mean_squares(best)
            for _, name, form in _tracks(places, [f", {one}" for one in found], task):
                before = (learned or {}).get(name, {})
                result = race(form, mean_squares(plain), closed, policy, before, say)
                notes += result.notes
                for attempt in result.attempts:
                    add(attempt, name)
                known[name] = before or result.known
    return Trials(everything, notes, known)


def _found_forms(hierarchy: Hierarchy | None, forms: Forms | None) -> dict[str, Form]:
    """Coordinates that were found, by what they are called in labels."""
    if hierarchy is None:
        return {}
    found: dict[str, Form] = {_RESCALED: hierarchy}
    bare = hierarchy.bare
    if bare is not None and _BARE not in (forms or {}):
        found[_BARE] = bare
    return found


def _tracks(places: list[Place], found: Sequence[str], task: Task) -> list[Place]:
    """Where to tune: in the coordinates in which closed forms did best. Where these were found from
    the draws, also in those of the draws, or else in the others that were found: closed forms do
    not tell what kernels will do."""
    best = min(places, key=lambda place: place[0])
    if best[1] not in found:
        return [best]
    own = [place for place in places if place[2] is task]
    return [best, *(own or (place for place in places if place[1] in found and place is not best))]


def _views(task: Task, forms: Forms | None, notes: list[str]) -> Iterator[tuple[str, Task]]:
    """The task in its own coordinates and in others, along those whose scores have means; and what
    labels say of it."""
    mapped: list[tuple[str, Task]] = [("", task)]
    for name, form in (forms or {}).items():
        try:
            sample = form(task.sample)
        except ValueError as error:
            notes.append(f"{name} coordinates: {error}")
            continue
        draws = FittingDraws(sample.points(), task.standardise)
        mapped.append((f", {name}", dataclasses.replace(task, sample=sample, draws=draws)))
    for name, view in mapped:
        if not view.sample.space.is_flat:
            yield name, view
            continue
        heavy = _heavy(view.sample)
        if heavy.any():
            labels = [coordinate_name(view.sample.names, j) for j in np.flatnonzero(heavy)]
            notes.append(
                f"control variates along {list_names(labels)}: their scores have tails so heavy "
                "that Stein's identity may fail"
            )
            if heavy.all() or len(find_distinct(view.sample.draws[:, ~heavy])[0]) < len(
                view.draws.distinct
            ):
                continue  # draws could not be told apart along the others
            view = view.along(~heavy)
        try:
            view.draws.standardise()
        except NumericalError as error:
            notes.append(f"control variates{name}: {error}")
        else:
            yield name, view


def _heavy(sample: Sample) -> np.ndarray:
    """Coordinates whose scores have no mean: Stein's identity holds along each of the others."""
    heavy = heavy_scores(sample.by_chain(sample.scores))
    if sample.weights is not None and heavy.any():
        # far points of a proposal have wild scores, and next to no weight
        weighted = len(sample) * sample.probabilities[:, None] * sample.scores
        heavy &= heavy_scores(sample.by_chain(weighted))
    return heavy
