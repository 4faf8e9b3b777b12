"""Least squares on moving sums: the solver of `SpectralVariance`.

With Bartlett's window of b lags the spectral estimate of the asymptotic variance of a mean is a sum
of squares,

    (1/n) Σ_{|lag| < b} (1 − |lag|/b) Σ_i r_i r_{i+lag}  =  (1/nb) Σ_t (r_t + … + r_{t+b−1})²,

with zeros before and after the chain. So its minimiser over a linear family is that of plain least
squares after features and integrands have been replaced by their moving sums.
"""

import math

import numpy as np
import scipy
from jaxtyping import Float64, Int

from ...objectives import Objective
from ..algebra.dense import SINGULAR
from ..base import Prepared, Problem, Result, Solution, Values
from ..stats import FitStats
from .primal import CentredFeatures


class PreparedMovingSums(Prepared):
    """Centred features of every draw, in the order of the chain, summed; then least squares."""

    def __init__(self, problem: Problem, objective: Objective):
        chain = problem.points.chain
        assert chain is not None, "SpectralVariance is of a chain in order"
        longest = int(np.bincount(chain.segment).max())
        self.window = objective.window_of(longest)
        self._data, self._chain = CentredFeatures(problem), chain
        # Rows come weighted by √p; each draw of the chain is to count by its share of p, 1 on
        # average
        self._weights = (
            len(chain.group) * np.sqrt(problem.points.probabilities) / np.bincount(chain.group)
        )
        self._p = len(self._data.penalty)
        summed = self._sum_windows(self._data.centre(np.ones(self._p)).T)
        self._columns = np.concatenate([summed, np.diag(np.sqrt(self._data.penalty))])
        self._scale = np.linalg.norm(self._columns, axis=0)
        self._scale[self._scale == 0] = 1.0
        self.stats = FitStats("primal on moving sums", self._p, counts_terms=True) | {
            "rank": self._p,
            "window": self.window,
        }

    def solve(self, values: Values, ridge: float | None = None) -> Solution:
        f, mean = self._data.values(values)
        right = np.concatenate([self._sum_windows(f), np.zeros((self._p, f.shape[1]))])
        theta, _, rank, _ = scipy.linalg.lstsq(
            self._columns / self._scale, right, cond=SINGULAR, check_finite=False
        )
        self.stats = self.stats | {"rank": int(rank)}
        self.result = Result.RANK_DEFICIENT if rank < self._p else Result.OK
        return self._data.solution(theta / self._scale[:, None], mean)

    def _sum_windows(self, rows: Float64[np.ndarray, "m k"]) -> Float64[np.ndarray, "t k"]:
        """Return moving sums at the scale at which their sum of squares is the asymptotic
        variance."""
        series = (self._weights[:, None] * rows)[self._chain.group]
        return moving_sums(series, self._chain.segment, self.window) / math.sqrt(
            len(series) * self.window
        )


def moving_sums(
    rows: Float64[np.ndarray, "n k"], segment: Int[np.ndarray, " n"], window: int
) -> Float64[np.ndarray, "t k"]:
    """Return sums of `window` consecutive rows within each segment, those that overhang its ends
    included."""
    out = []
    for piece in np.split(rows, np.flatnonzero(np.diff(segment)) + 1):
        cumulative = np.concatenate([np.zeros((1, rows.shape[1])), np.cumsum(piece, axis=0)])
        ends = np.arange(1, len(piece) + window)
        out.append(
            cumulative[np.minimum(ends, len(piece))] - cumulative[np.maximum(ends - window, 0)]
        )
    return np.concatenate(out)
