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

from ..families import LinearFamily
from .base import ChainOrder, Prepared, Problem, Result, Solution, Values, only_its_own_ridge
from .primal import CentredFeatures

_RANK_TOLERANCE = 1e-10


class MovingSums(Prepared):
    """Centred features of every draw, in the order of the chain, summed; then least squares."""

    def __init__(
        self,
        problem: Problem,
        penalised: LinearFamily | None,
        free: LinearFamily | None,
        order: ChainOrder,
        window: int | None,
    ):
        longest = int(np.bincount(order.stretch).max())
        self.window = min(math.isqrt(longest), max(longest // 10, 1)) if window is None else window
        if self.window > longest:
            raise ValueError(f"SpectralVariance: the window of {self.window} draws is longer than the chain, {longest}")
        self._data = CentredFeatures(problem, penalised, free)
        self._order = order
        # Rows come weighted by √p; each draw of the chain is to count by its share of p, 1 on average
        self._weights = len(order.group) * np.sqrt(problem.probabilities) / np.bincount(order.group)
        self._p = len(self._data.penalty)
        summed = self._summed(self._data.centred(np.ones(self._p)).T)
        self._columns = np.concatenate([summed, np.diag(np.sqrt(self._data.penalty))])
        self._scale = np.linalg.norm(self._columns, axis=0)
        self._scale[self._scale == 0] = 1.0
        self.result = Result.OK
        self.stats = {"form": "primal on moving sums", "unknowns": self._p, "rank": self._p, "window": self.window}

    def solve(self, values: Values, ridge: float | None = None) -> Solution:
        only_its_own_ridge(ridge)
        f, mean = self._data.values(values)
        right = np.concatenate([self._summed(f), np.zeros((self._p, f.shape[1]))])
        theta, _, rank, _ = lstsq(self._columns / self._scale, right, cond=_RANK_TOLERANCE, check_finite=False)
        self.stats = self.stats | {"rank": int(rank)}
        self.result = Result.RANK_DEFICIENT if rank < self._p else Result.OK
        return self._data.solution(theta / self._scale[:, None], mean)

    def _summed(self, rows: Float64[np.ndarray, "m k"]) -> Float64[np.ndarray, "t k"]:
        """Moving sums, at the scale at which their sum of squares is the asymptotic variance."""
        chain = (self._weights[:, None] * rows)[self._order.group]
        return moving_sums(chain, self._order.stretch, self.window) / math.sqrt(len(chain) * self.window)


def moving_sums(rows: Float64[np.ndarray, "n k"], stretch: Int[np.ndarray, " n"], window: int) -> Float64[np.ndarray, "t k"]:
    """Sums of `window` consecutive rows within each stretch, those that overhang its ends included."""
    out = []
    for piece in np.split(rows, np.flatnonzero(np.diff(stretch)) + 1):
        cumulative = np.concatenate([np.zeros((1, rows.shape[1])), np.cumsum(piece, axis=0)])
        ends = np.arange(1, len(piece) + window)
        out.append(cumulative[np.minimum(ends, len(piece))] - cumulative[np.maximum(ends - window, 0)])
    return np.concatenate(out)
