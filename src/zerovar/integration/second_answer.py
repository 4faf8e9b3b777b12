"""A second answer to hold the first against: weighted means of cross-fitted residuals, which are
right for any control variate.

A rich control variate nearly interpolates, and its constant is then right whatever the points. But
where a tail is exponential no family with growing scores is right far out, each leans to the bulk,
and no scatter shows it. The weighted mean of residuals needs no such luck: its error is that of a
mean.
"""

import dataclasses
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64

from ..choice.defaults import polynomials
from ..errors import list_names
from ..fitting import Method
from ..inference.answers import Answer, ErrorBound, answer_of
from ..inference.cautions import Cautions
from ..inference.splits import cross_fit
from ..inference.task import Task
from ..inputs.sample import coordinate_name
from ..statistics.series import batch_sums, relative_uncertainty
from ..statistics.tails import long_tails

_WRONG = 3.0  # joint errors between the two answers, from which the second is the one to report
# errors of the second, from which the error covers the distance where a tail is long
_SUSPECT = 2.0
# What is left of the second answer's error at least, where a tail is long. Errors of the first were
# up to three times too small on the posteriors with exponential tails (dogs_log, garch11), and a
# fifth of this in most of their answers.
_LEAST = 0.1
_FAR = 4.5  # deviations that a long tail reaches; a normal one three
_OWN = (
    "distance from the weighted mean of left-out residuals, which is right for any control variate"
)
_DISTANT = (
    "distance from the weighted mean of a cross-fitted polynomial's residuals, in a long tail"
)
_LONG_TAIL = (
    "a tenth of a cross-fitted polynomial's error: in an exponential tail no control "
    "variate is known to be right"
)
_REPORTED = "scatter of a cross-fitted polynomial's weighted residuals"


class _Second(NamedTuple):
    """The cross-fitted polynomial of least error for each integrand, with its upper standard
    error."""

    answer: Answer
    error: Float64[np.ndarray, " q"]


def held(task: Task, answer: Answer, names: tuple[str, ...], cautions: Cautions) -> Answer:
    """The answer, with an error that covers what the second one says of it; or the second one,
    where the first is wrong."""
    second = _second(task)
    away = np.abs(second.answer.value - answer.value)
    # by scatter alone: other bounds of its error may be there just because it is wrong
    wrong = away > _WRONG * np.hypot(second.error, answer.scatter(task.scale))
    sample = task.sample
    long = long_tails(sample.draws, sample.scores, sample.probabilities).max(axis=1) > _FAR
    bounds = [ErrorBound(np.abs(answer.in_a_mean.mean(axis=(0, 1))), _OWN)]
    if long.any():
        bounds.append(ErrorBound(_LEAST * second.error, _LONG_TAIL))
        bounds.append(ErrorBound(np.where(away > _SUSPECT * second.error, away, 0.0), _DISTANT))
        said = list_names([coordinate_name(sample.names, j) for j in np.flatnonzero(long)])
        cautions.of_sample(
            f"The density has an exponential tail along {said}: its scores do not grow there. "
            "Control variates do "
            "not reach so far, and errors are as small as a cross-fitted polynomial's weighted "
            "residuals allow. Coordinates "
            "in which the tail is shorter, or more gradients, give smaller ones."
        )
    covered = dataclasses.replace(answer, bounds=(*answer.bounds, *bounds))
    if not wrong.any():
        return covered
    cautions.of_sample(
        "For {names} the chosen control variate is more than three errors away from the weighted "
        "mean of a cross-fitted "
        "polynomial's residuals, which is right whatever the tails. That mean is reported, with "
        "its own error.",
        [name for name, so in zip(names, wrong, strict=True) if so],
    )
    return _replaced(covered, second, wrong)


def _second(task: Task) -> _Second:
    found = list[_Second]()
    for family in polynomials(len(task), task.sample.dim):
        one = answer_of(task, Method(family), cross_fit())
        doubt = relative_uncertainty(batch_sums(one.influences, 1.0))
        found.append(_Second(one, one.std_error(task.scale)[0] * np.sqrt(1 + doubt)))
    best = found[0]
    for other in found[1:]:
        better = other.error < best.error
        best = _Second(
            _replaced(best.answer, other, better), np.where(better, other.error, best.error)
        )
    return best


def _replaced(answer: Answer, second: _Second, columns: Bool[np.ndarray, " q"]) -> Answer:
    """The answer, with the other in some columns."""
    bounds = [ErrorBound(np.where(columns, 0.0, bound), reason) for bound, reason in answer.bounds]
    bounds.append(ErrorBound(np.where(columns, second.error, 0.0), _REPORTED))
    return dataclasses.replace(answer.with_columns(second.answer, columns), bounds=tuple(bounds))
