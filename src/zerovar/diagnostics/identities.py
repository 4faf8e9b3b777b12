"""Stein's identities for linear fields, tested on whole samples and on single chains.

For scores s of draws x with mean m, E[s] = 0 and E[(x − m)sᵀ] = −I. Each entry is tested by batch
means, so that autocorrelation counts: in raw coordinates, and in standardised ones, where tests are
sharp although parameters are correlated. Standardising is triangular, z = L⁻¹(x − m) and t = Lᵀs.
If the scores of coordinate j alone are a times too large, the j-th entry of E[z t] is −a and the
other ones stay −1: tests in standardised coordinates still name the coordinate.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64

from ..inputs.points import DRAWS_PER_DIMENSION, Points, Standardisation
from ..inputs.sample import Sample
from ..statistics.series import BLOCK_TIMES, autocorrelation_time, some_columns

# At most so many batches: with twice as many, batches of few weighted draws are not yet normal.
_MOST_BATCHES = 50
ENOUGH_BATCHES = 8  # from which their scatter says something
SHORTEST = ENOUGH_BATCHES * BLOCK_TIMES  # draws of a chain of which something can be said


@dataclasses.dataclass(frozen=True, eq=False)
class ScoredChains:
    """Draws about their mean and scores, raw (x, s) and standardised (z, t), all (chain, draw, d);
    weights n·p (chain, draw) where draws do not count alike; and the length of batches."""

    x: np.ndarray
    s: np.ndarray
    z: np.ndarray
    t: np.ndarray
    weights: np.ndarray | None
    batch: int

    @staticmethod
    def of(sample: Sample) -> ScoredChains:
        points, shape = sample.points(), sample.by_chain
        z, t = _standardise(sample, points)
        draws = len(sample) // sample.num_chains
        # measured after the first quarter of each chain: a burn-in looks like autocorrelation, and
        # would hide itself. Of products too, which are slow where the draws alternate; about each
        # chain's own mean, or one wrong chain looks slow
        some_z, some_t = (shape(some_columns(array, 20))[:, draws // 4 :] for array in (z, t))
        products = some_z * some_t
        products -= products.mean(axis=1, keepdims=True)
        slowest = max(autocorrelation_time(np.concatenate([some_z, some_t, products], axis=2)), 1.0)
        batch = batch_length(sample, slowest)
        weights = None if sample.weights is None else shape(len(sample) * points.probabilities)
        return ScoredChains(
            shape(points.x - points.probabilities @ points.x),
            shape(points.s),
            shape(z),
            shape(t),
            weights,
            batch,
        )

    @property
    def num_chains(self) -> int:
        return self.x.shape[0]

    @property
    def num_batches(self) -> int:
        return self.num_chains * (self.x.shape[1] // self.batch)

    def part(self, chains: np.ndarray | slice) -> ScoredChains:
        """Return some of the chains."""
        x, s, z, t = (array[chains] for array in (self.x, self.s, self.z, self.t))
        weights = None if self.weights is None else self.weights[chains]
        return dataclasses.replace(self, x=x, s=s, z=z, t=t, weights=weights)

    def divide_scores(self, factor: float) -> ScoredChains:
        """Return the same with the scores divided by `factor`."""
        return dataclasses.replace(self, s=self.s / factor, t=self.t / factor)


def batch_length(sample: Sample, slowest: float) -> int:
    """Return how many draws make a batch, for this longest autocorrelation time."""
    batch = max(len(sample) // _MOST_BATCHES, int(np.ceil(BLOCK_TIMES * slowest)))
    # never fewer than four, if the chains are that long
    return max(min(batch, len(sample) // sample.num_chains, max(len(sample) // 4, 1)), 1)


def _standardise(sample: Sample, points: Points) -> tuple[np.ndarray, np.ndarray]:
    """Return draws and scores in standardised coordinates, (n, d).

    Standardising draws by their own covariance moves the diagonal of mean ztᵀ by up to d / n, which
    n draws can see where d is more than a fraction of √n. There every other tenth of a chain is
    standardised by the tenths between them: long enough to be nearly independent, and short enough
    that a chain which is stuck for a while moves in both.
    """
    if len(sample) >= DRAWS_PER_DIMENSION * sample.dim:
        # refuses draws without a density, however they are standardised
        whole = Standardisation.of(points)
        if 16 * sample.dim**2 < len(sample):
            return whole(points.x, points.s)
    draws = len(sample) // sample.num_chains
    odd = np.tile(min(10, draws) * np.arange(draws) // draws % 2 == 1, sample.num_chains)
    z, t = np.empty_like(points.x), np.empty_like(points.s)
    for part in (odd, ~odd):
        others = Standardisation.of(sample.points(np.flatnonzero(~part)))
        z[part], t[part] = others(points.x[part], points.s[part])
    return z, t


class Identities(NamedTuple):
    """Estimates (d,) of E[s] and of E[(x − m)s] in raw coordinates, and of E[z t] in standardised
    ones, with p-values."""

    mean: np.ndarray
    mean_p: np.ndarray
    raw: np.ndarray
    raw_p: np.ndarray
    scale: np.ndarray  # −E[z t]: how many times too large the scores of a coordinate are
    scale_error: np.ndarray
    scale_p: np.ndarray
    trace: float  # the mean of E[z t] over coordinates: −1 if all is well
    trace_error: float
    trace_p: float
    others: float  # the smallest p-value of E[t]
    mixed: float  # the smallest of the products of different coordinates, times their number

    @property
    def tests(self) -> int:
        """The number of tests of single coordinates."""
        return 4 * len(self.mean)

    @property
    def adjusted(self) -> float:
        """The smallest p-value times the number of tests.

        Half of the level goes to the trace, the sharpest single test of a wrong sign, scale or
        order; a quarter to single coordinates, a quarter to products of different ones.
        """
        single = min(self.mean_p.min(), self.raw_p.min(), self.scale_p.min(), self.others)
        return float(min(1.0, 2 * self.trace_p, 4 * self.tests * single, 4 * self.mixed))

    def failures(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Flag the coordinates (d,) whose scores have the wrong mean, and the wrong scale."""
        limit = level / (4 * self.tests)
        return self.mean_p < limit, np.minimum(self.raw_p, self.scale_p) < limit


def identities(series: ScoredChains, mixed: bool = True) -> Identities:
    """Test all chains together; `mixed=False` leaves products of different coordinates out."""
    products = series.z * series.t + 1
    mean, raw, turned = (
        BatchMean.of(array, series.weights, series.batch)
        for array in (series.s, series.x * series.s + 1, series.t)
    )
    scale, trace = (
        BatchMean.of(products, series.weights, series.batch),
        BatchMean.of(products.mean(axis=2, keepdims=True), series.weights, series.batch),
    )
    return Identities(
        mean.value,
        mean.p_values(),
        raw.value - 1,
        raw.p_values(),
        1 - scale.value,
        scale.error,
        scale.p_values(),
        float(trace.value[0]) - 1,
        float(trace.error[0]),
        float(trace.p_values()[0]),
        float(turned.p_values().min()),
        _mixed_p_value(series) if mixed and series.x.shape[2] > 1 else 1.0,
    )


class BatchMean(NamedTuple):
    """Means over batches (b, d) of what should have mean zero, and the least and the largest that
    one draw adds (d,)."""

    batches: Float64[np.ndarray, "b d"]
    low: np.ndarray
    high: np.ndarray

    @staticmethod
    def of(
        array: Float64[np.ndarray, "chain draw d"], weights: np.ndarray | None, batch: int
    ) -> BatchMean:
        """Cut into batches, with weights n·p (chain, draw) where draws do not count alike."""
        if weights is not None:
            array = array * weights[:, :, None]
        cut = _cut(array, batch)
        draws = cut.shape[0] * cut.shape[1]
        return BatchMean(
            cut.mean(axis=1), cut.min(axis=(0, 1)) / draws, cut.max(axis=(0, 1)) / draws
        )

    def allow(self, more: np.ndarray) -> BatchMean:
        """Allow for a draw that adds as much as `more` (d,) either way, where that is further."""
        return self._replace(low=np.minimum(self.low, -more), high=np.maximum(self.high, more))

    @property
    def value(self) -> np.ndarray:
        return self.batches.mean(axis=0)

    @property
    def error(self) -> np.ndarray:
        if len(self.batches) < 2:
            return np.full(len(self.low), np.inf)
        return self.batches.std(axis=0, ddof=1) / np.sqrt(len(self.batches))

    @property
    def doubtless(self) -> np.ndarray:
        """|value|, less what one more draw as extreme as any could take from it."""
        value = self.value
        return np.maximum(
            np.abs(value) - np.where(value > 0, np.maximum(-self.low, 0), np.maximum(self.high, 0)),
            0.0,
        )

    def p_values(self) -> np.ndarray:
        """Two-sided p-values that the mean is zero.

        Products are skewed. Where the draws happen to miss a tail, their mean and their scatter are
        both too small, and Student's t alone finds what is not there. So one more extreme draw is
        allowed for, and Hall's cubic in the skewness where it makes the statistic smaller; where
        larger, it is as often the noise in the skewness.
        """
        count, error = len(self.batches), self.error
        if count < 2:
            return np.ones(len(self.low))
        spread = np.where(error > 0, error, 1.0) * np.sqrt(count)
        skew = np.mean(((self.batches - self.value) / spread) ** 3, axis=0) * np.sign(self.value)
        g = self.doubtless / spread
        straight = np.abs(g + skew * g**2 / 3 + skew**2 * g**3 / 27 + skew / (6 * count))
        size = np.where(self.doubtless > 1e-12, np.inf, 0.0)
        return _two_sided(
            np.where(error > 0, np.sqrt(count) * np.minimum(g, straight), size), count - 1
        )


def _cut(array: np.ndarray, length: int) -> np.ndarray:
    """Cut (chain, draw, …) into batches (b, length, …) within chains.

    A remainder is left out at the start, where a chain is least to be trusted.
    """
    chains, draws, *rest = array.shape
    count = draws // length
    return array[:, draws - count * length :].reshape(chains * count, length, *rest)


def _mixed_p_value(series: ScoredChains) -> float:
    """The smallest p-value of E[z_i t_j] = 0, i ≠ j, times the number of these.

    Memory is two sums of d² numbers, whatever n is.
    """
    z, t = _cut(series.z, series.batch), _cut(series.t, series.batch)
    weights = None if series.weights is None else _cut(series.weights, series.batch)
    count, d = len(z), z.shape[2]
    total, squares = np.zeros((d, d)), np.zeros((d, d))
    for b in range(count):
        product = z[b].T @ (t[b] if weights is None else t[b] * weights[b][:, None]) / series.batch
        total += product
        squares += product**2
    if count < 2:
        return 1.0
    mean = total / count
    error = np.sqrt(np.maximum(squares / count - mean**2, 0) / (count - 1))
    np.fill_diagonal(mean, 0.0)
    statistic = np.abs(mean) / np.maximum(error, np.finfo(float).tiny)
    # of the largest alone: there are d² of them, and probabilities cost more than products
    return float(min(1.0, d * (d - 1) * _two_sided(statistic.max(), count - 1)))


def _two_sided(statistic: Any, freedom: int) -> Any:
    """The probability of both tails of Student's t beyond a positive statistic."""
    from scipy.special import stdtr  # imported when used, as others are that take long

    return 2 * stdtr(freedom, -statistic)


def chain_p_values(series: ScoredChains) -> Float64[np.ndarray, " chain"]:
    """The smallest adjusted p-value of each chain by itself.

    Together, one wrong chain widens the scatter and hides in it.
    """
    if series.num_chains == 1 or series.x.shape[1] < ENOUGH_BATCHES * series.batch:
        return np.ones(series.num_chains)
    found = [
        identities(series.part(slice(c, c + 1)), mixed=False).adjusted
        for c in range(series.num_chains)
    ]
    return np.minimum(1.0, series.num_chains * np.array(found))


def quadratic_p_value(series: ScoredChains, flagged: Bool[np.ndarray, " d"]) -> float:
    """The smallest adjusted p-value that E[z² t] = −2 E[z] in the flagged coordinates, of scores
    that pass the linear identities.

    Derivatives with respect to a constrained parameter can pass those, but for a factor, and not
    this one.
    """
    z, t = series.z[:, :, flagged], series.t[:, :, flagged]
    p = BatchMean.of(z**2 * t + 2 * z, series.weights, series.batch).p_values()
    return float(min(1.0, p.size * p.min()))
