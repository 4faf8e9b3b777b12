"""A second opinion to hold an answer against: weighted means of cross-fitted residuals.

A rich control variate nearly interpolates, and its constant is then right whatever the points. But
where a tail is exponential no family with growing scores is right far out, each leans to the bulk,
and no scatter shows it. The weighted mean of residuals needs no such luck: it is right for any
control variate, and its error is that of a mean.
"""

import numpy as np

from ..choice.defaults import polynomials
from ..choice.policy import Policy
from ..errors import list_names
from ..fitting import Method
from ..inference.answer import Answer, at_least_rounding
from ..inference.cautions import Caution, Cautions
from ..inference.facts import SecondOpinion
from ..inference.fits import fit_answer
from ..inference.rules import SUSPICIOUS
from ..inference.splits import cross_fit
from ..inference.task import Task
from ..inputs.points import DRAWS_PER_TERM
from ..inputs.sample import coordinate_name
from ..output import Selection
from ..statistics.series import batch_sums, relative_uncertainty
from ..statistics.tails import long_tails


def second_opinion(task: Task, policy: Policy) -> SecondOpinion:
    """The cross-fitted polynomial of least upper error for each integrand."""
    slow = DRAWS_PER_TERM * policy.slow_factor
    families = polynomials(len(task), task.sample.dim, slow)
    answers = [fit_answer(task, Method(family), cross_fit()) for family in families]
    errors = [
        at_least_rounding(one.scatter, task.scale)
        * np.sqrt(1 + relative_uncertainty(batch_sums(one.influences, 1.0)))
        for one in answers
    ]
    answer, error = answers[0], errors[0]
    for other, smaller in zip(answers[1:], errors[1:], strict=True):
        better = smaller < error
        answer = answer.insert(other.only(better), better)
        error = np.minimum(error, smaller)
    return SecondOpinion(answer, error, bool(_long_coordinates(task).any()))


def hold(
    answer: Answer,
    selection: Selection | None,
    second: SecondOpinion,
    task: Task,
    names: tuple[str, ...],
    cautions: Cautions,
) -> tuple[Answer, Selection | None]:
    """The answer with its selection, or where it is too far from the second opinion, that one."""
    if second.long_tails:
        labels = [
            coordinate_name(task.sample.names, j) for j in np.flatnonzero(_long_coordinates(task))
        ]
        cautions.add(
            Caution(
                f"The density has an exponential tail along {list_names(labels)}: its scores do "
                "not grow there. Control variates do not reach so far, and errors are as small as "
                "a cross-fitted polynomial's weighted residuals allow. Coordinates in which the "
                "tail is shorter, or more gradients, give smaller ones."
            )
        )
    # by scatter alone: other bounds of its error may be there just because it is wrong
    away = np.abs(second.answer.value - answer.value)
    wrong = away > SUSPICIOUS * np.hypot(
        second.error, at_least_rounding(answer.scatter, task.scale)
    )
    if not wrong.any():
        return answer, selection
    cautions.add(
        Caution(
            "For {names} the chosen control variate is too many errors away from the weighted mean "
            "of a cross-fitted polynomial's residuals, which is right whatever the tails. That "
            "mean is reported, with its own error.",
            [name for name, so in zip(names, wrong, strict=True) if so],
        )
    )
    if selection is not None:
        selection = selection.instead(
            wrong,
            "cross-fitted polynomial",
            second.error,
            "the weighted mean of residuals: the control variate is too far from it",
        )
    return answer.insert(second.answer.only(wrong), wrong), selection


def _long_coordinates(task: Task) -> np.ndarray:
    """Coordinates along which a tail is exponential and further out than a normal one goes."""
    sample = task.sample
    reach = long_tails(sample.draws, sample.scores, sample.probabilities)
    return reach.max(axis=1) > SUSPICIOUS
