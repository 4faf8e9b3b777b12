"""Least squares on moving sums: the solver of `SpectralVariance`.

With Bartlett's window of b lags the spectral estimate of the asymptotic variance of a mean is a sum of squares,

    (1/n) Σ_{|lag| < b} (1 − |lag|/b) Σ_i r_i r_{i+lag}  =  (1/nb) Σ_t (r_t + … + r_{t+b−1})²,

with zeros before and after the chain. So its minimiser over a linear family is that of plain least squares after features and
integrands have been replaced by their moving sums.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64, Int
from scipy.linalg import lstsq

from ..families import Family, LinearFamily
from ..objectives import L1, L2, Ridge, SpectralVariance
from .base import ChainOrder, Prepared, Result, Solution, Values, only_its_own_ridge
from .blocks import feature_matrix
from .terms import LinearTerm

_RANK_TOLERANCE = 1e-10


class MovingSums(Prepared):
    """Features of every draw in the order of the chain, weighted, centred and summed; then least squares."""

    def __init__(self, family: Family, objective: SpectralVariance, x, s, probabilities: np.ndarray, order: ChainOrder | None):
        if objective.total(L1) or objective.total(L2):
            raise ValueError("SpectralVariance takes a Ridge penalty; got L1 or L2")
        if not isinstance(family, LinearFamily) or family.num_features(x.shape[1]) is None:
            raise ValueError(f"SpectralVariance needs a family with features, such as a Polynomial; got {family.describe()}")
        assert order is not None, "a chain's variance needs its order"
        self._terms = tuple(term for term in family.split() if term is not None)
        blocks = [feature_matrix(term, x, s) for term in self._terms]
        self._sizes = [len(block) for block in blocks]
        self._order = order
        n, self._p = len(order.group), sum(self._sizes)
        if self._p + 1 > len(x):
            raise ValueError(
                f"{family.describe()} has {self._p} terms, but there are only {len(x)} distinct draws to fit. Use more draws "
                "or a lower degree"
            )
        counts = np.bincount(order.group)
        self._weights = n * (probabilities / counts)[order.group]  # what each draw of the chain counts, 1 on average
        longest = int(np.bincount(order.stretch).max())
        self.window = min(math.isqrt(longest), max(longest // 10, 1)) if objective.window is None else objective.window
        if self.window > longest:
            raise ValueError(f"SpectralVariance: the window of {self.window} draws is longer than the chain, {longest}")
        features = np.concatenate(blocks).T
        self._means = probabilities @ features
        strength = np.full(self._p, objective.strength(Ridge, probabilities))
        if family.split()[1] is not None:
            strength[-self._sizes[-1] :] = 0.0
        self._columns = np.concatenate([self._summed((features - self._means)[order.group]), np.diag(np.sqrt(strength))])
        self._scale = np.linalg.norm(self._columns, axis=0)
        self._scale[self._scale == 0] = 1.0
        self._probabilities = probabilities
        self.result = Result.OK
        self.stats = {"form": "primal on moving sums", "unknowns": self._p, "rank": self._p, "window": self.window}

    def solve(self, values: Values, ridge: float | None = None) -> Solution:
        only_its_own_ridge(ridge)
        mean = self._probabilities @ values
        right = self._summed((values - mean)[self._order.group])
        right = np.concatenate([right, np.zeros((self._p, right.shape[1]))])
        theta, _, rank, _ = lstsq(self._columns / self._scale, right, cond=_RANK_TOLERANCE, check_finite=False)
        theta /= self._scale[:, None]
        self.stats = self.stats | {"rank": int(rank)}
        if rank < self._p:
            self.result = Result.RANK_DEFICIENT
        blocks = np.split(theta, np.cumsum(self._sizes)[:-1])
        terms = tuple(LinearTerm(*pair) for pair in zip(self._terms, blocks, strict=True))
        return Solution(mean - self._means @ theta, terms)

    def _summed(self, rows: Float64[np.ndarray, "n k"]) -> Float64[np.ndarray, "t k"]:
        """Moving sums, at the scale at which their sum of squares is the asymptotic variance."""
        weighted = self._weights[:, None] * rows
        sums = moving_sums(weighted, self._order.stretch, self.window)
        return sums / math.sqrt(len(rows) * self.window)


def moving_sums(rows: Float64[np.ndarray, "n k"], stretch: Int[np.ndarray, " n"], window: int) -> Float64[np.ndarray, "t k"]:
    """Sums of `window` consecutive rows within each stretch, those that overhang its ends included."""
    out = []
    for piece in np.split(rows, np.flatnonzero(np.diff(stretch)) + 1):
        cumulative = np.concatenate([np.zeros((1, rows.shape[1])), np.cumsum(piece, axis=0)])
        ends = np.arange(1, len(piece) + window)
        out.append(cumulative[np.minimum(ends, len(piece))] - cumulative[np.maximum(ends - window, 0)])
    return np.concatenate(out)
