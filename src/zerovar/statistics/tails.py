"""Tails: how heavy they are, and what a mean may owe to those that no draw has seen.

A control variate that is fitted to n draws is best where they are dense. Beyond the outermost of
them it extrapolates, and what it leaves there grows from one extreme draw to the next far faster
than the integrand. No scatter of residuals shows that part of the error. Two things do: the growth
of the extreme residuals, and in a long tail the residuals of a fit that did not see its outermost
draws.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int

from ..inputs.points import Points, find_distinct
from .series import LONG_ENOUGH, Series

# Draws of which the growth of a tail is read, by their scores, or by their size if no more than one
# in so many. With 10 of 400 t₅ is covered in 86 % of 100 samples, with 20 in 94.
_EXTREMES = 20
# Residuals of a rich fit scatter over orders of magnitude wherever draws are thin, tail or not: k
# near 1 is common where a posterior is nearly normal, and made errors ten times too large (arK,
# logmesquite). So where the integrand's own k is below this, its distance from here counts against
# theirs. From 0.3 to 0.5 coverage is the same; 0.2 costs arK half of its gain. Squares have twice
# the k of what is squared: 0.5 in place of 0.4 lets gains of deviations be reported a fifth larger
# on arK and logmesquite, and 0.6 covers 89 % of those of lotka_volterra in place of 92.
_LIGHT = 0.5
# Growth goes on over so many times the logarithms that it was seen over. With 1 t₅ is covered 4 %
# less; without an end nearly normal targets get twice the error, and none covers more.
_DAMPED = 2.0
_HEAVIEST = 0.9  # growth of an integrand: with 1 it has no mean
_ORDERED = 0.9  # correlation of ranks from which the extremes are those of a coordinate
# What a shape is too large by is this over the number of draws, and by scores it is too small on
# the border to an infinite variance: of 100 samples of 400 draws two call x² under a normal heavy
# and none eˣ, and 38 of 40 of 2000 draws e^{x²/4}. By 2000 values four in five with k = 2/3 are
# found, and none of x², x³ and eˣ under a normal.
_NOISE, _BORDER = 70.0, 0.10
# Pareto k of scores: at most 0.3 on eleven posteriors, 0.6 on a funnel and a logistic hierarchy,
# 0.9 to 1.7 on two hierarchies whose scores have no mean (benchmarks.hierarchies), by 1000 draws
# each
_NO_MEAN = 0.7
# A shape by a fifth of the extremes, 13 of 500, may be so much too small by chance
_FEWER, _CHANCE = 0.2, 0.35
# Values that differ: of fewer the shape of a tail is a guess, and bounded functions were called
# heavy
_FEWEST_VALUES = 1000
# A tail is long if scores do not grow from beyond one deviation to where two thousandths of the
# mass are: those of a normal double
_OUTERMOST, _GROWS = 0.002, 1.3
_REACH = 3.0  # deviations of its outermost draws, from which one is looked at
# Draws of a long tail that leave together. Log τ of Gamma(0.3), 400 draws: 72 % covered without, 87
# % with 16, 97 % with 32
_TOGETHER = 32


def pareto_k(
    deviations: Series, fewest: int = _FEWEST_VALUES, draws: int = 0, share: float = 1.0
) -> Float64[np.ndarray, " q"]:
    """The generalised Pareto shape of the longer tail of deviations from a mean, as ArviZ has it:
    the variance is infinite from 1/2 on, the mean does not exist from 1. Zero where fewer than
    `fewest` values differ: too few to tell. Next to a huge one others differ by less than their
    rounding: so many `draws` that differ count, if the whole tail does. `share` is that of the
    usual number of extremes."""

    def shape(values: np.ndarray) -> float:  # in increasing order
        longer = values if values[-1] > -values[0] else -values[::-1]
        total = max(len(values), draws)
        count = int(share * (3 * np.sqrt(total) if total > 225 else total // 5))
        known = total >= fewest and len(values) > count
        return _shape(longer[-count:] - longer[-count - 1]) if known else 0.0

    columns = deviations.reshape(-1, deviations.shape[2]).T
    return np.array([shape(np.unique(column)) for column in columns])


def _shape(excess: Float64[np.ndarray, " m"]) -> float:
    """Zhang and Stephens' estimate of k, from excesses in increasing order: the mean of θ = −k/σ
    over its profile likelihood, on a grid; and ten observations of k = 1/2 beside it (Vehtari et
    al. 2024)."""
    m = len(excess)
    count = 30 + int(np.sqrt(m))
    grid = 1 - np.sqrt(count / (np.arange(count) + 0.5))
    theta = 1 / excess[-1] + grid / (3 * excess[int(m / 4 + 0.5) - 1])
    with np.errstate(all="ignore"):
        k = np.mean(np.log1p(-theta[:, None] * excess), axis=1)
        fit = m * (np.log(-theta / k) - k - 1)
        weights = np.exp(fit - fit.max())
        best = np.sum(weights * theta) / weights.sum()
        return float((m * np.mean(np.log1p(-best * excess)) + 5) / (m + 10))


def growth_by_scores(deviations: Series, points: Points) -> Float64[np.ndarray, " q"]:
    """The same shape with far less noise, where the extremes of a series are those of one
    coordinate; NaN elsewhere.

    k is the growth of log |deviation| as log P falls by one, P the probability of being further
    out. Values alone leave P to chance, and scores know how it falls: with a = |x − median| and g =
    −(log density)' outwards, dlog P / dlog a = −(g a + β), where g grows as a^β: exact to first
    order, with β from −1 of a power law to 1 of a normal. In more than one dimension scores are
    right on average only, so that g a is smoothed, or not used if it scatters.
    """
    flat = deviations.reshape(-1, deviations.shape[2])
    centre = np.median(points.x, axis=0)
    return np.array([_growth(column, points, centre) for column in flat.T])


def growth_at_points(deviations: Series, points: Points) -> Float64[np.ndarray, " q"]:
    """The same shape where the extremes of a series are those draws that are nearest to some value
    of one coordinate, as those of 1/√|x| are to zero; NaN elsewhere. The probability of being
    nearer falls as the distance does."""
    flat = deviations.reshape(-1, deviations.shape[2])
    return np.array([_growth_at_point(column, points) for column in flat.T])


def _growth_at_point(deviations: np.ndarray, points: Points) -> float:
    """Zero is tried as that value, and those of the largest extremes."""
    half = _EXTREMES // 2
    size, rows = _largest(deviations)
    if len(rows) <= _EXTREMES or not size[-1] > 0:
        return np.nan
    x = points.x[rows]
    order = np.arange(len(rows)) - half
    for at in (np.zeros(points.dim), x[0]):
        away = np.abs(x - at)
        rank = np.argsort(np.argsort(away, axis=0), axis=0) - half
        agreement = order @ rank / (order @ order)
        j = int(agreement.argmax())
        # the largest itself is at no distance
        near = np.maximum(away[:half, j], np.sort(away[:, j])[1] / 2)
        if agreement[j] >= _ORDERED and near.min() > 0 and _is_inside(points.x[:, j], x[:, j]):
            total = np.log(away[half, j] / near).sum()
            return float(np.log(size[:half] / size[half]).sum() / total) if total > 0 else np.nan
    return np.nan


def _is_inside(column: np.ndarray, some: np.ndarray) -> bool:
    """Whether all of some values are inside of a column's other ones, and close to each other: more
    of them are within their range than they would be if they were of a tail."""
    return bool(np.mean(column < some.min()) > 0.05 and np.mean(column > some.max()) > 0.05)


def _largest(deviations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The extremes of the longer tail, falling, and their rows; of equal draws one."""
    longer = 1.0 if deviations.max() > -deviations.min() else -1.0
    size, rows = np.unique(longer * deviations, return_index=True)
    return size[::-1][: _EXTREMES + 1], rows[::-1][: _EXTREMES + 1]


def _growth(deviations: np.ndarray, points: Points, centre: np.ndarray) -> float:
    """The growth of one series; NaN where no coordinate has its extremes."""
    half = _EXTREMES // 2
    size, rows = _largest(deviations)
    if len(rows) <= _EXTREMES or not size[-1] > 0:
        return np.nan
    away = points.x[rows] - centre
    rank = np.argsort(np.argsort(-np.abs(away), axis=0), axis=0) - half
    order = np.arange(len(rows)) - half
    agreement = order @ rank / (order @ order)  # Spearman's, of size with distance, by coordinate
    j = int(agreement.argmax())
    # of few draws the median may be among the outermost
    if agreement[j] < _ORDERED or not np.abs(away[:, j]).min() > 0:
        return np.nan
    log_a = np.log(np.abs(away[:, j]))
    ga = -points.s[rows, j] * away[:, j]
    line = np.stack([np.ones_like(log_a), log_a], axis=1)
    level, slope = np.linalg.lstsq(line, ga, rcond=None)[0]
    smooth = level + slope * log_a
    # what scatters like an exponential, by its mean, has nothing to say
    if not smooth.min() > 0 or np.std(ga - smooth) > smooth.mean():
        return np.nan
    falls = smooth + np.clip(slope / smooth.mean() - 1, -1, 1)
    log_p = (falls[:half] + falls[half]) / 2 * (log_a[:half] - log_a[half])
    total = log_p.sum()
    return float(np.log(size[:half] / size[half]).sum() / total) if total > 0 else np.nan


def heaviness(
    deviations: Series, points: Points, effective: float, weighted: bool = False
) -> Float64[np.ndarray, " q"]:
    """Pareto k of deviations from a mean, less what it may be too large by on so few draws: by
    scores where they tell, else by the values and by where they are. Draws with weights are not the
    target's, and its scores say nothing of how many lie further out."""
    if weighted:
        return pareto_k(deviations, LONG_ENOUGH) - _NOISE / len(points)
    by_scores = growth_by_scores(deviations, points) + _BORDER - _NOISE / effective
    by_place = growth_at_points(deviations, points) - _NOISE / effective
    by_values = pareto_k(deviations, draws=len(find_distinct(points.x)[0])) - _NOISE / len(points)
    by_values = np.fmax(by_values, by_place)
    return np.where(np.isnan(by_scores), by_values, by_scores)


def end_at_one(
    low: Float64[np.ndarray, " q"], high: Float64[np.ndarray, " q"], draws: int
) -> Bool[np.ndarray, " q"]:
    """Whether values from `low` to `high` seem to be bounded, as probabilities, shares and
    correlations are: within −1 and 1, and one of these so near to the outermost draw that chance
    puts it there once in √n. Zero is no sign: whatever is positive ends there."""
    distance = np.minimum(1 - high, 1 + low)
    return (distance >= 0) & (distance * np.sqrt(draws) < high - low)


def heavy_scores(scores: Float64[np.ndarray, "c n d"]) -> Bool[np.ndarray, " d"]:
    """Coordinates whose scores may have no mean, so that Stein's identity may fail along them: if
    the heaviest is so, all that are without a variance. Effects of a centred hierarchy are the
    common case. The large scores of a narrow mode have a light tail among themselves."""
    k = pareto_k(scores, LONG_ENOUGH)
    heavy = k > (0.5 if k.max() > _NO_MEAN else np.inf)
    far = pareto_k(np.abs(scores[:, :, heavy]), LONG_ENOUGH, share=_FEWER) if heavy.any() else k
    return heavy & (far.sum() > heavy.sum() * (_NO_MEAN - _CHANCE))


def beyond_few(values: Float64[np.ndarray, " n"], most: float, effective: float) -> float:
    """What a mean of numbers from 0 to `most` may owe to where no draw is, one in `effective` of
    the mass: there they grow on as their largest do, by a power of the share that is larger."""
    log_size = np.log(np.maximum(np.sort(values)[-_EXTREMES // 2 - 1 :] / most, 1e-300))
    power = np.mean(log_size[1:] - log_size[0])
    share = np.linspace(0, 1, 1001)[1:]  # of what is beyond
    beyond = np.exp(np.minimum(log_size[-1] - power * np.log(share), 0.0))
    return float(most * beyond.mean() / effective)


def weights_shape(weights: Float64[np.ndarray, " n"]) -> float:
    """Pareto k of the tail of importance weights; zero where too few differ to tell."""
    return float(pareto_k(weights[None, :, None], LONG_ENOUGH)[0])


def heavy_weights(weights: Float64[np.ndarray, " n"]) -> str:
    """What is to be said of importance weights, which sum to one, if their tail is too heavy for
    means; nothing if it is not.

    The fewer draws the weights leave, the less k it takes: what leaves more than half of 400 has k
    above 1/2 once in fifty.
    """
    k, share = weights_shape(weights), 1 / (len(weights) * np.sum(weights**2))
    if share > 0.5 or k < (_NO_MEAN if share > 0.25 else 0.5 if share > 0.1 else 1 / 3):
        return ""
    return (
        f"The importance weights have a tail with Pareto k = {k:.2f}, and the draws count like "
        f"{share:.0%} of their number: a few of them rule every mean, which can be wrong by far "
        "more than its error says, and scores cannot be tested. Take a proposal with heavier "
        "tails, nearer to the target."
    )


def long_tails(
    x: Float64[np.ndarray, "n d"], s: Float64[np.ndarray, "n d"], p: Float64[np.ndarray, " n"]
) -> Float64[np.ndarray, "d 2"]:
    """How far the lower and the upper tail along each coordinate reach, in deviations, where the
    density falls no faster than an exponential there; 0 for other tails. p (n,) are the
    probabilities of the draws."""
    mean = p @ x
    deviation = np.sqrt(p @ (x - mean) ** 2)
    deviation = np.where(deviation > 0, deviation, 1.0)
    unit, slope = (
        np.ascontiguousarray(each.T) for each in ((x - mean) / deviation, -s * deviation)
    )
    columns = zip(unit, slope, np.argsort(unit, axis=1), strict=True)
    return np.array(
        [[_reach(-u, -g, p, order), _reach(u, g, p, order[::-1])] for u, g, order in columns]
    )


def _reach(u: np.ndarray, slope: np.ndarray, p: np.ndarray, order: np.ndarray) -> float:
    """Of one tail, from standardised points, how fast the log density falls there, and their order
    from the outermost on."""
    beyond = np.cumsum(p[order])
    count = max(_EXTREMES // 2, int(np.searchsorted(beyond, _OUTERMOST)))
    far, rest = order[:count], order[count:]
    near = rest[u[rest] > 1]
    if len(near) < _EXTREMES // 2:
        return 0.0
    grows = np.average(slope[far], weights=p[far]) >= _GROWS * np.average(
        slope[near], weights=p[near]
    )
    return 0.0 if grows else float(np.average(u[far], weights=p[far]))


def outermost(points: Points) -> Int[np.ndarray, "t m"]:
    """Row numbers of the outermost draws of each long tail, the longest tails first."""
    count = min(_TOGETHER, len(points) // (_EXTREMES // 2))
    reach = long_tails(points.x, points.s, points.probabilities).ravel()
    longest = [k for k in np.argsort(-reach)[: _EXTREMES // 2] if reach[k] > _REACH]
    order = [np.argsort((-1 if k % 2 else 1) * points.x[:, k // 2], kind="stable") for k in longest]
    return np.array([rows[:count] for rows in order], dtype=int).reshape(len(longest), count)


def beside_gaps(to_gaps: Float64[np.ndarray, "n e"]) -> Int[np.ndarray, "e m"]:
    """Row numbers of the draws that are nearest to each gap of a space, not more of them than lie
    on as long a way as the one that no draw has gone. What is missing of m is filled with the
    same."""
    count = min(_TOGETHER, len(to_gaps) // (_EXTREMES // 2))
    found = []
    for distance in to_gaps.T:
        rows = np.argsort(distance, kind="stable")[:count]
        found.append(np.resize(rows[distance[rows] <= 2 * distance[rows[:1]]], count))
    return np.array(found, dtype=int).reshape(len(found), count)


def grows_in_tails(
    plain: Float64[np.ndarray, "t m q"], deviation: Float64[np.ndarray, " q"]
) -> Bool[np.ndarray, " q"]:
    """Whether f − E f at the outermost draws of some long tail, `plain`, is larger than elsewhere,
    by its root mean square. An integrand that is not so owes nothing to where the tail ends."""
    if not len(plain):
        return np.zeros(len(deviation), dtype=bool)
    return np.sqrt(np.mean(plain**2, axis=1)).max(axis=0) > deviation


def in_long_tails(
    residuals: Float64[np.ndarray, "t m q"], plain: Float64[np.ndarray, "t m q"], effective: float
) -> np.ndarray:
    """About how much of E[f − g] lies beyond the outermost of the `effective` independent draws, in
    long tails.

    residuals: f − c − g at the outermost draws of each tail, from a fit without all of them; plain:
    f − E f there. An exponential looks alike from any distance, so that they are what residuals are
    beyond the last draw, where 1/n of the mass is. Their root mean square counts: no sign is known
    that far out.
    """
    if not len(residuals):
        return np.zeros(residuals.shape[2])
    size = [np.sqrt(np.mean(each**2, axis=1)) for each in (residuals, plain)]
    return np.minimum(*size).max(axis=0) / effective


def in_gaps(
    residuals: Float64[np.ndarray, "e m q"], plain: Float64[np.ndarray, "e m q"], effective: float
) -> np.ndarray:
    """About how much of E[f − g] lies in the gaps of a space, where none of the `effective`
    independent draws is.

    residuals: f − c − g at the draws next to each side of a gap, from a fit without all of them;
    plain: f − E f there. They were as far from what that fit has seen as the middle of the gap is
    from all draws, and the largest stands for what residuals are in there, where each side has 1/n
    of the mass.
    """
    size = [np.abs(each).max(axis=1, initial=0.0) for each in (residuals, plain)]
    return np.minimum(*size).sum(axis=0) / effective


class Extremes(NamedTuple):
    """Of a series (chain, draw, q), (q,) each."""

    top: np.ndarray  # the largest absolute entry
    growth: np.ndarray  # of the largest ones
    together: np.ndarray  # |their sum| / sum of |them|


def beyond_the_draws(
    residuals: Extremes, plain: Extremes, effective: float, fitted: bool = False
) -> Float64[np.ndarray, " q"]:
    """About how much of E[f − g] lies where none of the `effective` independent draws is.

    residuals: f − c − g at each draw, from fits that left it out, times its weight in a plain mean;
    plain: the same of f − E f. At a draw of probability p/n, t = log 1/p, residuals are about r (1
    + t/L)^kL: r is the largest, k their growth, and L twice the log n that it was seen over, since
    no fit goes wrong as a power for ever. They are at most f − E f itself, which may (r' e^k't).
    The mean over p < 1 of the smaller of the two is what residuals of one sign would add up to.
    Those of either sign partly cancel: as much, to the root, as the extreme ones do. If the answer
    is a `fitted` intercept, which weighs draws by what the fit knows of their residuals, k is less
    by 1 − k'/`_LIGHT` where k' is small.
    """
    light = np.maximum(1 - np.maximum(plain.growth, 0.0) / _LIGHT, 0.0) * fitted
    top, growth = residuals.top, np.maximum(residuals.growth - light, 0.0)
    most, slower = plain.top, np.minimum(plain.growth, _HEAVIEST)
    seen = _DAMPED * np.log(effective)
    # to where the heaviest integrand is below rounding; dense where most of the mass is
    farthest = -np.log(np.finfo(float).eps) / (1 - _HEAVIEST)
    t = farthest * np.linspace(0, 1, 1001)[:, None] ** 2
    with np.errstate(divide="ignore"):
        log_residual = np.log(top) + growth * seen * np.log1p(t / seen)
        log_plain = np.log(np.maximum(most, top)) + slower * t
    share = np.trapezoid(np.exp(np.minimum(log_residual, log_plain) - t), t, axis=0)
    return share * np.sqrt(residuals.together) / effective


def extremes(series: Series, points: Points | None = None) -> Extremes:
    """Growth by the scores of the points where they tell, else by Hill's estimate."""
    flat = series.reshape(-1, series.shape[2])
    fewer = max(_EXTREMES // 2, min(_EXTREMES, len(flat) // _EXTREMES))
    count = min(fewer, len(flat) - 1)
    outermost = np.take_along_axis(flat, np.argsort(-np.abs(flat), axis=0)[: count + 1], axis=0)
    size = np.abs(outermost)
    top = size[0]
    unit = np.maximum(size / np.where(top > 0, top, 1.0), np.finfo(float).tiny)
    growth = np.mean(np.log(unit[:-1]) - np.log(unit[-1]), axis=0)
    if points is not None:
        by_scores = growth_by_scores(series, points)
        growth = np.where(np.isnan(by_scores), growth, by_scores)
    growth = np.where(_two_valued(series), 0.0, growth)
    total = size[:-1].sum(axis=0)
    together = np.abs(outermost[:-1].sum(axis=0)) / np.where(total > 0, total, 1.0)
    return Extremes(top, growth, together)


def _two_valued(series: Series) -> Bool[np.ndarray, " q"]:
    """Events: an indicator's few ones are not the beginning of a tail."""
    return np.all(
        (series == series.min(axis=(0, 1))) | (series == series.max(axis=(0, 1))), axis=(0, 1)
    )
