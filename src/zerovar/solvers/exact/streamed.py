"""The primal of more draws than features fit into memory: features are made anew, a tile of draws
at a time, in each pass.

One pass for their second moments, from which a whitening matrix T with TᵀHT = 1, H = ΦᵀΦ + D, whose
columns serve for everything else: θ = TTᵀΦᵀf, and the hat matrix is ΦT(ΦT)ᵀ.
"""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float64

from ...inputs.points import RowNumbers
from ..algebra.dense import EPS, ROUNDING, Groups, pack_groups
from ..algebra.memory import ROWS
from ..algebra.tiles import feature_matrix
from ..base import Prepared, Problem, Result, Solution, Values
from ..stats import FitStats
from ..terms import arrange, linear_terms
from .moments import moments, whitening
from .primal import leave_groups_out


class PreparedStream(Prepared):
    """Least squares on features that are never kept, with a diagonal penalty and a free
    intercept."""

    def __init__(self, problem: Problem):
        self._points, self._p = problem.points, problem.points.probabilities
        self._parts, penalised = arrange(problem.family, self._points.dim)
        self._penalty = problem.ridge * penalised
        nothing, first = np.zeros((len(self._p), 0)), np.zeros(1, dtype=int)
        matrix = moments(
            self._parts, self._points.x, self._points.s, nothing, self._p, first
        ).matrix
        self._means = matrix[0, 1:]
        gram = matrix[1:, 1:] - np.outer(self._means, self._means)
        gram[np.diag_indices(len(gram))] += self._penalty
        self._whitening, self._rcond, _ = whitening(gram)
        rank = self._whitening.shape[1]
        self.result = Result.OK if rank == len(gram) else Result.RANK_DEFICIENT
        self.stats = FitStats("primal, streamed", len(gram), counts_terms=True)
        self.stats |= {"rank": rank, "ridge": problem.ridge, "rcond": self._rcond}

    def solve(self, values: Values, ridge: float | None = None) -> Solution:
        theta, intercept = self._fit(values)
        return Solution(intercept, linear_terms(self._parts, theta, self._points.dim))

    def intercept_weights(self, ridge: float | None = None) -> Float64[np.ndarray, " m"]:
        return self._p * (1 - self._at_draws(self._normal(self._means)))

    def leave_out(
        self, values: Values, groups: Groups | None, ridge: float | None = None
    ) -> Values:
        theta, intercept = self._fit(values)
        root, plain = np.sqrt(self._p), values - self._p @ values
        out = np.zeros_like(values)
        for rows, parts in _batches(len(values), groups):
            phi = self._centre(rows)
            residuals = values[rows] - (intercept + self._means @ theta) - phi.T @ theta
            # the hat matrix is vᵀv
            v = np.concatenate([self._whitening.T @ phi * root[rows], root[None, rows]])
            weight = root[rows, None]
            left = leave_groups_out(
                v, weight * residuals, weight * plain[rows], None if groups is None else parts
            )
            out[rows] = left / weight
        return out

    def _fit(self, values: Values) -> tuple[Float64[np.ndarray, "p q"], Float64[np.ndarray, " q"]]:
        mean = self._p @ values
        theta = self._normal(self._project(values - mean))
        if ROUNDING * self._rcond < EPS:
            residuals = values - mean - self._at_draws(theta)
            theta = theta + self._normal(self._project(residuals) - self._penalty[:, None] * theta)
        return theta, mean - self._means @ theta

    def _normal(self, right: np.ndarray) -> np.ndarray:
        return self._whitening @ (self._whitening.T @ right)

    def _project(self, f: Values) -> Float64[np.ndarray, "p q"]:
        parts = (
            self._centre(rows) @ (self._p[rows, None] * f[rows])
            for rows, _ in _batches(len(f), None)
        )
        return sum(parts, np.zeros((len(self._means), f.shape[1])))

    def _at_draws(self, theta: np.ndarray) -> np.ndarray:
        return np.concatenate(
            [self._centre(rows).T @ theta for rows, _ in _batches(len(self._p), None)]
        )

    def _centre(self, rows: RowNumbers) -> Float64[np.ndarray, "p k"]:
        x, s = self._points.x[rows], self._points.s[rows]
        return (
            np.concatenate([feature_matrix(term, x, s) for term in self._parts])
            - self._means[:, None]
        )


def _batches(n: int, groups: Groups | None) -> Iterator[tuple[RowNumbers, list[slice]]]:
    """Yield row numbers in batches of about `ROWS` that hold whole groups, and where each group is
    in its batch."""
    if groups is not None:
        return pack_groups(groups, ROWS)
    return ((np.arange(start, min(start + ROWS, n)), []) for start in range(0, n, ROWS))
