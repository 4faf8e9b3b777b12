"""The rules for errors: each a pure function of an answer and the facts, and each can be left out.

Scatter over the draws is where every error begins. A rule gives a lower bound of it for what
scatter does not show, and a reason. None applies where the answer is the plain mean, but for those
that the plain mean shares. A route is a list of rules. `python -m benchmarks calibration --without
RULE` measures what one of them is good for.
"""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

import numpy as np

from ..statistics.series import batch_sums, relative_uncertainty
from ..statistics.tails import beyond_few, beyond_the_draws, extremes, in_gaps, in_long_tails
from .answer import Answer, Mask, PerIntegrand
from .facts import Facts

# Joint errors from the plain mean that are too many. Of right answers one in 16 000 is so far; with
# 3 one in 370 is, and the mean square of what is then the plain mean costs real posteriors a third
# of their gain.
SUSPICIOUS = 4.0
# Joint errors from an alternative on the same draws from which the error grows: with 2, t₅ is
# covered in 95 % and not 88, and real posteriors keep their gains. As many times what the nearest
# other candidate allows may lie beyond all draws: with 1 log Gamma(0.3) is covered in 79 % and not
# 86; with 2 as without a limit, and samples of a normal have seven times the gain.
APART = 2.0
# Share of the second opinion's error that is left at least where a tail is long: errors of a rich
# control variate were up to three times too small on posteriors with exponential tails (dogs_log,
# garch11), and a fifth of this in most of their answers.
_LEAST = 0.1
# Errors of itself that a mean of conditional probabilities is at least, if draws enough carry it:
# nine that count alike. And draws that would show an event, if as many do as for `unseen_event`
KNOWN = 3.0


class Reason(Enum):
    """What an error rests on, in words for people."""

    SCATTER = "scatter over the draws"
    CONSTANT = "a constant: there is nothing to estimate"
    PLAIN = "the plain mean: no control variate has less error"
    EXACT = "exact to rounding if the scores are right"
    UNSEEN = "an event that no draw shows, or every draw"
    SINGLE_VALUES = "the values came in single precision, with seven digits"
    SHORT_VALUES = "the values came with few digits"
    SINGLE_SCORES = "the scores came in single precision, with seven digits"
    SHORT_DRAWS = "draws or scores came with few digits"
    CUT = "the plain mean's error and the distance from it, as the density ends with a jump"
    SCORES = "what an error of the scores as large as was asked for could do"
    CHOSEN = "the best of several was chosen on the same draws: the upper standard error"
    BIAS = "the fit's own estimate of its bias"
    CONTRADICTED = "the mean of leave-out residuals, which contradicts the fitted intercept"
    DISAGREEMENT = "another candidate is further away than both errors explain"
    DISTANCE = "half the distance from the plain mean, which is more than both errors explain"
    BEYOND = "the growth of extreme residuals, towards what lies beyond the draws"
    LONG_TAIL = "residuals in a long tail, of fits without its outermost draws"
    GAPS = "residuals next to where no draw is, of fits without the draws there"
    FEW = "what may lie beyond the few draws that carry the answer"
    SECOND = "a tenth of a cross-fitted polynomial's error, in an exponential tail"
    SECOND_DISTANCE = "distance from a cross-fitted polynomial's answer, in a long tail"

    @property
    def of_digits(self) -> bool:
        """Whether the digits of the input limit the error."""
        return self in (
            Reason.SINGLE_VALUES,
            Reason.SHORT_VALUES,
            Reason.SINGLE_SCORES,
            Reason.SHORT_DRAWS,
        )


class Bound(NamedTuple):
    """A standard error is at least `size` (q,), for this reason.

    A bound that is `shared` holds for the plain mean too. One that is `capped` lifts no error above
    that of the plain mean, which has seen no more of the draws.
    """

    reason: Reason
    size: PerIntegrand
    shared: bool = False
    capped: bool = False


Rule = Callable[[Answer, Facts], Bound]


def unseen_event(answer: Answer, facts: Facts) -> Bound:
    """Three over the number of draws is how rare an unseen event may be, at 95 %.

    Its own autocorrelation cannot be seen; rare events of a slow chain come in clusters that are
    shorter than its autocorrelation time.
    """
    rarest = 3 * facts.num_draws / (facts.kish * facts.effective_extremes)
    return Bound(Reason.UNSEEN, np.where(facts.one_sided, rarest, 0.0), shared=True)


def single_values(answer: Answer, facts: Facts) -> Bound:
    """Values in single precision are all wrong to one side."""
    return Bound(Reason.SINGLE_VALUES, facts.digits.single_values, shared=True)


def short_values(answer: Answer, facts: Facts) -> Bound:
    """Values of few digits are rounded."""
    return Bound(Reason.SHORT_VALUES, facts.digits.short_values, shared=True)


def single_scores(answer: Answer, facts: Facts) -> Bound:
    """Scores in single precision are all wrong to one side."""
    return Bound(Reason.SINGLE_SCORES, facts.digits.single_scores)


def short_draws(answer: Answer, facts: Facts) -> Bound:
    """Draws and scores of few digits are rounded."""
    return Bound(Reason.SHORT_DRAWS, facts.digits.short_draws)


def distance_from_plain(answer: Answer, facts: Facts) -> Bound:
    """The plain mean needs no score and no smoothness: an answer far from it is not believed."""
    half = np.abs(answer.value - facts.plain.value) / 2
    far = joint_errors(answer, facts.plain) > SUSPICIOUS
    return Bound(Reason.DISTANCE, np.where(far, half, 0.0))


def density_with_a_jump(answer: Answer, facts: Facts) -> Bound:
    """Where a density ends with a jump Stein's identity fails, and the plain mean is right."""
    size = np.hypot(facts.plain.scatter, answer.value - facts.plain.value)
    return Bound(Reason.CUT, np.where(facts.scores.cut, size, 0.0))


def wrong_scores(answer: Answer, facts: Facts) -> Bound:
    """Scores that are slightly wrong move every control variate, and no scatter shows it."""
    size = np.zeros(len(answer.value))
    if facts.scores.response is not None:
        size = np.hypot(answer.scatter, facts.scores.error * facts.scores.response)
    return Bound(Reason.SCORES, size)


def own_bias(answer: Answer, facts: Facts) -> Bound:
    """The mean of the influences estimates the bias of a fitted intercept."""
    return Bound(Reason.BIAS, _upper(answer, facts) * np.abs(answer.bias))


def contradiction(answer: Answer, facts: Facts) -> Bound:
    """The fitted intercept is off by what leave-out residuals say beyond chance.

    A user's family reports its intercept as it is; what was chosen has moved by as much.
    """
    away, part = answer.contradiction
    own = answer.alternatives is None
    return Bound(Reason.CONTRADICTED, part * np.abs(away) if own else 0 * away)


def beyond_draws(answer: Answer, facts: Facts) -> Bound:
    """Residuals grow from one extreme draw to the next, and go on beyond all of them.

    Another fit extrapolates in another way: if much lay out there, it would be further away than it
    is. So what is outside is at most twice as much as the nearest other candidate allows.
    """
    own = facts.points if answer.rows is None else facts.points and facts.points.take(answer.rows)
    outside = beyond_the_draws(
        extremes(answer.in_a_mean, own),
        extremes(facts.plain.influences, facts.points),
        facts.effective_extremes,
        answer.left_out,
    )
    outside = np.minimum(outside, APART * _nearest_other(answer))
    return Bound(Reason.BEYOND, _outside(answer, outside), capped=True)


def outermost_draws(answer: Answer, facts: Facts) -> Bound:
    """In a long tail, fits without its outermost draws say what fits know of what lies beyond."""
    outside = np.zeros(len(answer.value))
    if facts.flat and answer.outer is not None and facts.plain.outer is not None:
        outside = in_long_tails(answer.outer, facts.plain.outer, facts.effective_extremes)
    return Bound(Reason.LONG_TAIL, _outside(answer, outside), capped=True)


def unvisited_gaps(answer: Answer, facts: Facts) -> Bound:
    """Where angles leave a part of the circle empty, fits without the draws next to it say what
    fits know of it."""
    outside = np.zeros(len(answer.value))
    if not facts.flat and answer.outer is not None and facts.plain.outer is not None:
        outside = in_gaps(answer.outer, facts.plain.outer, facts.effective_extremes)
    return Bound(Reason.GAPS, _outside(answer, outside), capped=True)


def carried_by_few(answer: Answer, facts: Facts) -> Bound:
    """An event may be so rare that three effective draws would not show it: none of them need have
    come to where it happens, and no scatter over the draws tells. Unless its conditional
    probabilities are about alike, their mean has at least the error that counting has.

    Where few draws carry that mean, so that it is known to worse than a third of itself, they go on
    to grow beyond these, to 1 at most.
    """
    size = np.zeros(len(answer.value))
    if facts.known_bounded is None or facts.values is None:
        return Bound(Reason.FEW, size, shared=True)
    for k in np.flatnonzero(facts.known_bounded):
        column, mean = facts.values[:, k], facts.plain.value[k]
        if 2 * mean > facts.high[k]:  # the other event
            column, mean = facts.high[k] - column, facts.high[k] - mean
        most, draws = max(facts.high[k], 1.0), facts.effective_extremes
        if mean * draws < KNOWN * most and column.std() > mean:
            size[k] = np.sqrt(most * max(mean, 0.0) / draws)
            if KNOWN * facts.plain.scatter[k] > mean:
                size[k] = max(size[k], beyond_few(column, most, draws))
    return Bound(Reason.FEW, size, shared=True)


def chosen_on_same_draws(answer: Answer, facts: Facts) -> Bound:
    """The best of several is chosen on the same draws, and an error that a few of them carry is
    itself uncertain: its upper standard error is reported."""
    return Bound(Reason.CHOSEN, _upper(answer, facts) * answer.scatter)


def disagreement(answer: Answer, facts: Facts) -> Bound:
    """The error is as many times larger as another candidate is joint errors away, if many.

    Fits that extrapolate in different ways differ where few draws are, and no scatter shows that.
    """
    error = _upper(answer, facts) * answer.internal_error
    away = np.zeros_like(error)
    if answer.alternatives is not None:
        value, other = answer.alternatives
        with np.errstate(invalid="ignore", divide="ignore"):
            distances = np.abs(value - answer.value) / np.hypot(other, error)
        away = np.max(np.nan_to_num(distances, nan=0.0), axis=0, initial=0.0)
    return Bound(Reason.DISAGREEMENT, np.where(away > APART, away * error, 0.0), capped=True)


def second_error(answer: Answer, facts: Facts) -> Bound:
    """In an exponential tail no control variate is known to be right."""
    second = facts.second
    size = _LEAST * second.error if second and second.long_tails else 0 * answer.value
    return Bound(Reason.SECOND, size)


def second_distance(answer: Answer, facts: Facts) -> Bound:
    """In an exponential tail the error covers the distance from the second opinion."""
    second, size = facts.second, 0 * answer.value
    if second and second.long_tails:
        away = np.abs(second.answer.value - answer.value)
        size = np.where(away > APART * second.error, away, 0.0)
    return Bound(Reason.SECOND_DISTANCE, size)


def joint_errors(answer: Answer, plain: Answer) -> PerIntegrand:
    """How many joint errors an answer is away from the plain mean."""
    away, error = np.abs(answer.value - plain.value), np.hypot(answer.scatter, plain.scatter)
    return np.divide(away, error, out=np.zeros_like(away), where=error > 0)


def refused_share(answer: Answer, plain: Answer) -> PerIntegrand:
    """The share of the other candidates that are too far from the plain mean; zero of a single
    one."""
    if answer.alternatives is None or len(answer.alternatives.value) < 2:
        return np.zeros(len(answer.value))
    value, error = answer.alternatives
    far = np.abs(value - plain.value) > SUSPICIOUS * np.hypot(error, plain.scatter)
    return np.mean(far, axis=0)


def agree_elsewhere(answer: Answer, plain: Answer) -> Mask:
    """Whether all candidates that have less than half of the plain mean's error, two or more, are
    too far from it, and much nearer to each other: the most precise one is as many times further
    from it than from any of them as is `SUSPICIOUS`, or errors explain their distance."""
    if answer.alternatives is None or len(answer.alternatives.value) < 2:
        return np.zeros(len(answer.value), dtype=bool)
    value, error = answer.alternatives
    precise = error < plain.scatter / 2
    first = np.where(precise, error, np.inf).argmin(axis=0)[None]
    best, own = (np.take_along_axis(each, first, axis=0) for each in (value, error))
    far = np.abs(value - plain.value) > SUSPICIOUS * np.hypot(error, plain.scatter)
    allowed = np.maximum(APART * np.hypot(error, own), np.abs(best - plain.value) / SUSPICIOUS)
    near = np.abs(value - best) <= allowed
    return (precise.sum(axis=0) >= 2) & (far & near | ~precise).all(axis=0)


def _nearest_other(answer: Answer) -> PerIntegrand:
    """How far the nearest other candidate may be, by its distance and its own error; infinite if
    there is none. The nearest of all is what the answer is made of, and no other."""
    if answer.alternatives is None or len(answer.alternatives.value) < 2:
        return np.full(len(answer.value), np.inf)
    value, error = answer.alternatives
    away = np.abs(value - answer.value) + error
    return np.sort(np.where(np.isnan(away), np.inf, away), axis=0)[1]


def _upper(answer: Answer, facts: Facts) -> PerIntegrand:
    """How many times the upper standard error is the error, where the answer was chosen."""
    if answer.alternatives is None:
        return np.ones(len(answer.value))
    sums = batch_sums(answer.influences, facts.autocorrelation)
    return np.sqrt(1 + relative_uncertainty(sums))


def _outside(answer: Answer, outside: PerIntegrand) -> PerIntegrand:
    """The error within the draws and that outside of them together."""
    return np.where(outside > 0, np.hypot(answer.internal_error, outside), 0.0)


ON_DISK: tuple[Rule, ...] = (
    unseen_event,
    single_values,
    short_values,
    single_scores,
    short_draws,
    distance_from_plain,
    density_with_a_jump,
    wrong_scores,
)
ONE_FAMILY: tuple[Rule, ...] = (
    *ON_DISK,
    own_bias,
    contradiction,
    beyond_draws,
    outermost_draws,
    unvisited_gaps,
    carried_by_few,
)
STACK: tuple[Rule, ...] = (*ONE_FAMILY, chosen_on_same_draws, disagreement)
WEIGHTED_POINTS: tuple[Rule, ...] = (*STACK, second_error, second_distance)
