"""Do scores and log-likelihoods of a ladder belong to its draws?

Scores are tested by Stein's identities at the lowest temperature, one in the middle and the
highest. What kind of scores was given for another shows there: those of the prior are right at t =
0 and wrong at t = 1.
Log-likelihoods must vary with the draws, as their scores say where these are given, and their mean
must grow along the ladder as their variance says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..diagnostics import check_sample
from ..diagnostics.checks import WRONG
from ..errors import ScoreWarning, warn
from ..inputs.points import DRAWS_PER_DIMENSION, find_distinct
from ..statistics.ranks import normal_scores
from ..statistics.series import standard_error
from .ladders import Ladder
from .rungs import Rung
from .thermodynamic import Cumulants

# Other kinds of prior_scores p and likelihood_scores l that may have been given, and what the
# scores of a rung would then be
_KINDS: tuple[tuple[str, Callable[..., np.ndarray]], ...] = (
    ("prior_scores and likelihood_scores are exchanged", lambda p, l, t: l + t * p),
    (
        "likelihood_scores are those of each rung's own target: give them as scores=, alone",
        lambda p, l, t: l,
    ),
    (
        "prior_scores are those of each rung's own target: give them as scores=, alone",
        lambda p, l, t: p,
    ),
    (
        "likelihood_scores are those of prior and likelihood together: subtract prior_scores",
        lambda p, l, t: p + t * (l - p),
    ),
    ("likelihood_scores are t times what they should be: divide by t", lambda p, l, t: p + l),
)
# Below this product of p-values scores are refused, and not warned of: of 540 right rungs, two in
# three of slow chains, one failed `check`, with 1.5e-4
_SURE = 1e-6
_NEEDED = (
    "Each rung needs the scores of its own target, ∇log prior + t ∇log-likelihood; or give those "
    "of both factors, prior_scores= and likelihood_scores="
)
# Of the log-likelihood's variance by ranks that lines and squares explain at the least: on van der
# Pol's ladder and on normal ones of 1 to 20 dimensions it was 0.66 or more, in another order up to
# 0.02, of 20 draws a rung 0.07
_EXPLAINED = 0.1
# By what factor the slope of differences on those by scores may be off one, or the growth of the
# mean on that by variances: right ladders of 20 effective draws had 1.5, twice the likelihood has 2
_FACTOR = 1.75
_CERTAIN = 6.0  # errors that must be between: of variances of long tails these are too small
_NOT_THEIRS = "log_likelihood does not belong to the draws, or the draws not to their temperatures"
_QUESTIONS = (
    "Are the rows in the same order, is it the log-likelihood without the factor t and without the "
    "prior, and have chains forgotten where they began?"
)


def check_ladder(ladder: Ladder) -> None:
    """Raise a ValueError where scores or log-likelihoods do not belong to the draws, and warn where
    that is likely."""
    _check_scores(ladder)
    _check_log_likelihood(ladder)


def _check_scores(ladder: Ladder) -> None:
    ends = _some_rungs(ladder)
    verdicts = [check_sample(ladder.sample(k)) for k in ends]
    wrong = [verdict.finding == WRONG for verdict in verdicts]
    if not any(wrong):
        for k, verdict in zip(ends, verdicts, strict=True):
            if not verdict.ok:
                warn(f"At t = {ladder.inverse_temperatures[k]:g}: {verdict}", ScoreWarning)
        return
    which = " and ".join(
        f"t = {ladder.inverse_temperatures[k]:g}" for k, bad in zip(ends, wrong, strict=True) if bad
    )
    said = f"the scores do not belong to the draws at {which}."
    worst = min(verdicts, key=lambda verdict: verdict.p_value)
    named = _name_kind(ladder, wrong)
    said += f" It seems that {named}" if named else f" {worst.diagnosis} {_NEEDED}"
    if np.prod([verdict.p_value for verdict in verdicts if verdict.finding == WRONG]) < _SURE:
        raise ValueError(said)
    warn(f"{said[0].upper()}{said[1:]}", ScoreWarning)


def _some_rungs(ladder: Ladder) -> list[int]:
    """Return the numbers of the lowest rung, one in the middle, and the highest."""
    return sorted({0, len(ladder) // 2, len(ladder) - 1})


def _name_kind(ladder: Ladder, wrong: list[bool]) -> str:
    """Return what the scores are instead, or nothing."""
    if ladder.prior_scores is not None and ladder.likelihood_scores is not None:
        found = {words: _p_value(ladder, made) for words, made in _KINDS}
        best = max(found, key=lambda words: found[words])
        return best if found[best] > 0 else ""
    if not wrong[0] and wrong[-1]:
        return (
            f"scores are those of the {ladder.reference} alone, or of the lowest temperature, at "
            f"every rung. {_NEEDED}"
        )
    if wrong[0] and not wrong[-1]:
        return (
            "scores are those of the highest temperature, or of the likelihood alone, at every "
            f"rung. {_NEEDED}"
        )
    return ""


def _p_value(ladder: Ladder, made: Callable[..., np.ndarray]) -> float:
    """Return the least p-value of these scores, made of the given ones, over some rungs; zero where
    they fail."""
    found = []
    for k in _some_rungs(ladder):
        assert ladder.prior_scores is not None
        assert ladder.likelihood_scores is not None
        given = ladder.prior_scores[k], ladder.likelihood_scores[k]
        scores = made(*given, ladder.inverse_temperatures[k])
        if np.any(np.ptp(scores, axis=0) == 0):  # of no density
            return 0.0
        verdict = check_sample(ladder.sample(k, scores))
        found.append(verdict.p_value if verdict.ok else 0.0)
    return min(found)


def _check_log_likelihood(ladder: Ladder) -> None:
    """Test whether log-likelihoods vary with the draws, and whether they do as their scores say."""
    for said in (_indifference(ladder), _off_the_scores(ladder)):
        if said:
            raise ValueError(f"{_NOT_THEIRS}: {said}. {_QUESTIONS}")


def _indifference(ladder: Ladder) -> str:
    """Say so if lines and squares of the coordinates explain nothing of the log-likelihood at any
    rung: in another order they do not."""
    n, d = ladder.draws.shape[1:]
    if n < DRAWS_PER_DIMENSION * 2 * d:
        return ""
    left = whole = 0.0
    for draws, values in zip(ladder.draws, ladder.log_likelihood, strict=True):
        first = find_distinct(draws)[0]
        rows = first[np.isfinite(values[first])]
        if len(rows) < DRAWS_PER_DIMENSION * 2 * d:
            continue
        # ranks: near a vague prior a few draws would decide
        f = normal_scores(values[rows][:, None])[:, 0]
        x = (draws[rows] - draws[rows].mean(axis=0)) / draws[rows].std(axis=0)
        q = np.linalg.qr(np.hstack([np.ones((len(rows), 1)), x, x**2]))[0]
        freedom = (len(rows) - 1) / (len(rows) - q.shape[1])
        left += freedom * np.sum((f - q @ (q.T @ f)) ** 2)
        whole += np.sum((f - f.mean()) ** 2)
    if whole == 0 or left < (1 - _EXPLAINED) * whole:
        return ""
    return "it does not vary with the draws at any temperature"


def _off_the_scores(ladder: Ladder) -> str:
    """Compare differences between nearest draws with those by likelihood_scores, the mean of both
    ends times the distance: at rungs where both ends say about the same. In many dimensions no draw
    is near another, and where the likelihood is curved there the mean says nothing."""
    if ladder.likelihood_scores is None:
        return ""
    for k in _some_rungs(ladder)[1:]:
        rows = find_distinct(ladder.draws[k])[0][:500]  # distances of all fit into little memory
        x, s = ladder.draws[k][rows], ladder.likelihood_scores[k][rows]
        z = x / np.maximum(x.std(axis=0), np.finfo(float).tiny)
        squares = np.sum(z**2, axis=1)
        distance = squares[:, None] + squares - 2 * z @ z.T
        np.fill_diagonal(distance, np.inf)
        near = np.argmin(distance, axis=1)
        by_scores = np.sum((s + s[near]) * (x[near] - x), axis=1) / 2
        bend = np.sum((s - s[near]) * (x[near] - x), axis=1)
        if np.median(np.abs(bend)) > np.median(np.abs(by_scores)) / 2:
            continue
        change = ladder.log_likelihood[k][rows[near]] - ladder.log_likelihood[k][rows]
        slope = by_scores @ change / max(by_scores @ by_scores, np.finfo(float).tiny)
        if _is_off(slope):
            return (
                f"between near draws of t = {ladder.inverse_temperatures[k]:g} it changes by "
                f"{slope:.2g} times what likelihood_scores say"
            )
    return ""


def _is_off(slope: float) -> bool:
    return not 1 / _FACTOR < slope < _FACTOR


def check_cumulants(
    ladder: Ladder, rungs: Sequence[Rung], moments: Sequence[Cumulants | None]
) -> None:
    """Raise a ValueError where the log-likelihood's mean does not grow along the ladder as its
    variance says: of c times the log-likelihood the one is c, the other c² times what it should
    be."""
    total = precision = 0.0
    for left, right, a, b in zip(rungs, rungs[1:], moments, moments[1:], strict=False):
        if a is None or b is None:
            continue
        h, grown = right.t - left.t, b.value[0] - a.value[0]
        # the trapezium of variances, and corrected by third cumulants
        rough = h / 2 * (a.value[1] + b.value[1])
        better = rough + h**2 / 12 * (a.value[2] - b.value[2])
        square = (better - rough) ** 2
        for one, sign in ((a, 1.0), (b, -1.0)):
            columns = one.influences[:, :3] @ np.array([sign, h / 2, sign * h**2 / 12])
            series = columns.reshape(ladder.num_chains, -1, 1)
            square += standard_error(series, np.zeros(1))[0] ** 2
        if square > 0:
            total += grown * better / square
            precision += better**2 / square
    if precision == 0 or not np.isfinite(total):
        return
    factor, error = total / precision, 1 / np.sqrt(precision)
    if _is_off(factor) and abs(factor - 1) > _CERTAIN * error:
        raise ValueError(
            f"{_NOT_THEIRS}: from rung to rung its mean grows {factor:.2g} times as much as its "
            f"variance says. {_QUESTIONS}"
        )
