"""Tails: how heavy they are, and what a mean may owe to those that no draw has seen.

A control variate that is fitted to n draws is best where they are dense. Beyond the outermost of them it extrapolates, and
what it leaves there grows from one extreme draw to the next far faster than the integrand. No scatter of residuals shows that
part of the error; the growth of the extreme residuals does.
"""

import numpy as np
from jaxtyping import Float64

from .std_errors import Series

_EXTREMES = 10  # draws that tell how fast a tail grows. With 6, t₅ is covered less often; 20 cost nearly normal ones more
_STEEPEST = 5.0  # growth of residuals that are zero but for a few
_HEAVIEST = 0.9  # of an integrand: with 1 it has no mean
_FEWEST = 1000  # values that differ: of fewer the shape of a tail is a guess, and bounded functions were called heavy


def pareto_k(deviations: Series) -> Float64[np.ndarray, " q"]:
    """ArviZ's generalised Pareto shape of the longer tail of deviations from a mean: the variance is infinite from 1/2 on, the
    mean does not exist from 1. Zero where there are too few values to tell."""
    from arviz_stats.base import array_stats  # takes a second to import

    def shape(values: np.ndarray) -> float:  # in increasing order
        longer = "right" if values[-1] > -values[0] else "left"
        with np.errstate(all="ignore"):
            return float(array_stats.pareto_khat(values[None], chain_axis=0, draw_axis=1, r_eff=1.0, tail=longer))

    distinct = [np.unique(column) for column in deviations.reshape(-1, deviations.shape[2]).T]
    return np.array([shape(values) if len(values) >= _FEWEST else 0.0 for values in distinct])


def beyond_the_draws(residuals: Series, plain: Float64[np.ndarray, "c d q"], effective: float) -> Float64[np.ndarray, " q"]:
    """About how much of E[f − g] lies where none of the `effective` independent draws is.

    residuals: f − c − g at each draw, from fits that left it out, times its weight in a plain mean; plain: the same of f − E f.
    A draw of probability p/n has residuals of about r (1/p)^k, where r is the largest and k Hill's estimate of their growth, as
    long as that is less than f − E f itself, which grows likewise. The mean over p < 1 of the smaller of the two is what
    residuals of one sign would add up to. Those of either sign partly cancel: as much, to the root, as the extreme ones do.
    """
    top, growth, sum_of_extremes = _extremes(residuals, _STEEPEST)
    most, slower, _ = _extremes(plain, _HEAVIEST)
    most = np.maximum(most, top)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # they meet at 1/p = exp(meet)
        meet = np.where(growth > slower, np.log(most / top) / np.maximum(growth - slower, 1e-9), np.inf)
        rate = growth - 1
        before = np.where(np.abs(rate) * meet < 1e-6, meet, np.expm1(rate * meet) / np.where(rate == 0, 1.0, rate))
        after = np.where(np.isinf(meet), 0.0, most * np.exp((slower - 1) * meet) / (1 - slower))
        share = top * before + after
    return np.where(top > 0, share * np.sqrt(sum_of_extremes), 0.0) / effective


def _extremes(series: Series, steepest: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each series the largest absolute entry; Hill's estimate of how the extreme ones grow; |their sum| / sum of |them|."""
    flat = series.reshape(-1, series.shape[2])
    count = min(_EXTREMES, len(flat) - 1)
    outermost = np.take_along_axis(flat, np.argsort(-np.abs(flat), axis=0)[: count + 1], axis=0)
    size = np.abs(outermost)
    top = size[0]
    unit = np.maximum(size / np.where(top > 0, top, 1.0), np.finfo(float).tiny)
    growth = np.minimum(np.mean(np.log(unit[:-1]) - np.log(unit[-1]), axis=0), steepest)
    total = size[:-1].sum(axis=0)
    together = np.abs(outermost[:-1].sum(axis=0)) / np.where(total > 0, total, 1.0)
    return top, growth, together
