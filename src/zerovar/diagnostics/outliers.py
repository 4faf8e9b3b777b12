"""Single draws that do not belong to the others: where a chain begins, and scores that are far
beyond all others.

Extremes of n draws have spacings that are known but for the growth of the tail, k: the i-th largest
is r times the next with probability r^(−i/k) (Rényi). Hill's estimate of k comes from the draws
that follow, so that heavy tails, which often have extremes far apart, are not accused for that.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from ..inputs.points import find_distinct
from ..inputs.sample import Sample
from ..statistics.series import autocorrelation_time, some_columns
from .identities import SHORTEST

# Draws that tell how a tail grows, and the most that may be called outlying. With 20, two centred
# hierarchies in a hundred had outlying scores.
_TAIL = 50
_APART = 3.0  # times the next: what is nearer harms no fit


def burn_in_p_value(sample: Sample, autocorrelation: float) -> tuple[float, int]:
    """The p-value that the first draws of the chains are like those after the first tenth, and the
    coordinate that tells.

    A chain may begin where it seldom is and stays for long, as in the neck of a funnel. So the
    autocorrelation time is at least that of all draws after the first tenth, and not of late ones
    alone.
    """
    from scipy.special import gammaln  # imported when used, as others are that take long

    draws = len(sample) // sample.num_chains
    if draws < SHORTEST:
        return 1.0, 0
    x = sample.by_chain(sample.draws)
    rest = x[:, draws // 10 :].reshape(-1, sample.dim)
    centre = np.median(rest, axis=0)
    away = some_columns(rest - centre)
    both = np.concatenate([away, np.abs(away)], axis=1)
    both = both.reshape(sample.num_chains, -1, both.shape[1])
    autocorrelation = max(autocorrelation, autocorrelation_time(both))
    top = _largest(np.abs(rest - centre), _TAIL)
    growth = _tail_growth(top, len(rest), autocorrelation)
    ratio = np.abs(x[:, 0] - centre) / np.where(top[0] > 0, top[0], np.inf)
    chance = max(autocorrelation, 1.0) / len(rest)
    logs = np.where(ratio > 1, np.log(chance) - np.log(np.maximum(ratio, 1)) / growth, 0.0)
    logs = np.cumsum(np.sort(logs, axis=0), axis=0)  # of the m chains that begin furthest out
    chains, m = sample.num_chains, np.arange(1, sample.num_chains + 1)
    choices = gammaln(chains + 1) - gammaln(m + 1) - gammaln(chains - m + 1)
    together = (logs + choices[:, None]).min(axis=0)
    j = int(together.argmin())
    return float(min(1.0, sample.dim * np.exp(min(together[j], 0.0)))), j


class Outlying(NamedTuple):
    """Draws whose scores are far beyond all others: rows of the sample, the coordinate that shows
    it best, how large scores are there, and among the others."""

    rows: np.ndarray
    coordinate: int
    largest: float
    others: float
    p_value: float


def find_outlying_scores(sample: Sample, autocorrelation: float, level: float) -> Outlying | None:
    """Return the draws that have them; None if there are none at this level."""
    first, _ = find_distinct(sample.draws)
    first = np.sort(first)
    size = np.abs(sample.scores[first])
    most = min(_TAIL, len(first) // 100)
    if most < 1:
        return None
    top = _largest(size, most + _TAIL)
    count = np.arange(1, most + 1)
    logs, apart = np.zeros((most, sample.dim)), np.zeros((most, sample.dim))
    for i in count:
        apart[i - 1] = np.log(top[i - 1] / np.maximum(top[i], np.finfo(float).tiny))
        logs[i - 1] = (
            -max(i / autocorrelation, 1.0)
            * apart[i - 1]
            / _tail_growth(top[i:], len(first), autocorrelation)
        )
    smallest = np.where(apart > np.log(_APART), logs, 0.0)
    p = np.exp(smallest) * smallest.size
    if p.min() >= level:
        return None
    rows: set[int] = set()
    for j in np.flatnonzero(p.min(axis=0) < level):
        m = int(smallest[:, j].argmin()) + 1
        rows |= set(first[np.argsort(-size[:, j], kind="stable")[:m]].tolist())
    i, j = np.unravel_index(int(smallest.argmin()), smallest.shape)
    return Outlying(
        np.array(sorted(rows)), int(j), float(top[0, j]), float(top[i + 1, j]), float(p.min())
    )


def _largest(size: Float64[np.ndarray, "n d"], count: int) -> Float64[np.ndarray, "m d"]:
    """Return the largest count + 1 values of each column, falling."""
    count = min(count, len(size) - 1)
    return -np.sort(np.partition(-size, count, axis=0)[: count + 1], axis=0)


def _tail_growth(
    falling: Float64[np.ndarray, "m d"], draws: int, autocorrelation: float
) -> Float64[np.ndarray, " d"]:
    """Hill's estimate from the first of the falling values, and two of its standard errors more.

    Extremes of slow chains come in clusters. No tail of so many draws counts as lighter than that
    of a normal, 1 / (2 log n).
    """
    count = min(_TAIL, len(falling) - 1)
    logs = np.log(np.maximum(falling[: count + 1], np.finfo(float).tiny))
    growth = np.mean(logs[:-1] - logs[-1], axis=0)
    return np.maximum(growth, 0.5 / np.log(draws)) * (
        1 + 2 * np.sqrt(np.sqrt(max(autocorrelation, 1.0)) / count)
    )
