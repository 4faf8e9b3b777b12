"""The primal of more draws than features fit into memory: features are made anew, a tile of draws at a time, in each pass.

One pass for their second moments, from which a whitening matrix T with TᵀHT = 1, H = ΦᵀΦ + D, whose columns serve for
everything else: θ = TTᵀΦᵀf, and the hat matrix is ΦT(ΦT)ᵀ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from jaxtyping import Float64, Int

from .base import Groups, Prepared, Problem, Result, Solution, Values, only_its_own_ridge, packed
from .blocks import feature_matrix
from .moments import arranged, moments, whitening
from .primal import without
from .terms import linear_terms

_EPS = np.finfo(np.float64).eps
_ROWS = 4096  # of a pass
_REFINE_BELOW = 1e-3

Rows = Int[np.ndarray, " k"]


class Streamed(Prepared):
    """Least squares on features that are never kept, with a diagonal penalty and a free intercept."""

    def __init__(self, problem: Problem):
        self._problem = problem
        self._p = problem.probabilities
        n, d = problem.x.shape
        self._terms, held = arranged(problem.family, d)
        self._penalty = problem.ridge * held
        nothing, first = np.zeros((n, 0)), np.zeros(1, dtype=int)
        matrix = moments(self._terms, problem.x, problem.s, nothing, self._p, first).matrix
        self._means = matrix[0, 1:]
        gram = matrix[1:, 1:] - np.outer(self._means, self._means)
        gram[np.diag_indices(len(gram))] += self._penalty
        self._whitening, self._rcond, _ = whitening(gram)
        rank, rcond = self._whitening.shape[1], self._rcond
        self.result = Result.OK if rank == len(gram) else Result.RANK_DEFICIENT
        self.stats = {"form": "primal, streamed", "unknowns": len(gram), "rank": rank, "ridge": problem.ridge, "rcond": rcond}

    def solve(self, values: Values, ridge: float | None = None) -> Solution:
        only_its_own_ridge(ridge)
        theta, intercept = self._fit(values)
        return Solution(intercept, linear_terms(self._terms, theta, self._problem.x.shape[1]))

    def intercept_weights(self, ridge: float | None = None) -> Float64[np.ndarray, " m"]:
        only_its_own_ridge(ridge)
        direction = self._normal(self._means[:, None])[:, 0]
        return self._p * (1 - self._at_draws(lambda phi, rows: direction @ phi))

    def leave_out(self, values: Values, groups: Groups | None, ridge: float | None = None) -> Values:
        only_its_own_ridge(ridge)
        theta, intercept = self._fit(values)
        root, plain = np.sqrt(self._p), values - self._p @ values
        out = np.empty_like(values)
        single = groups is None
        for rows, parts in _batches(len(values), groups):
            phi = self._centred(rows)
            residuals = values[rows] - (intercept + self._means @ theta) - phi.T @ theta
            v = np.concatenate([self._whitening.T @ phi * root[rows], root[None, rows]])  # the hat matrix is vᵀv
            if single:
                left = 1.0 - np.einsum("ij,ij->j", v, v)
                out[rows] = residuals / np.maximum(left, _EPS)[:, None]
                continue
            weighted, unfitted = root[rows, None] * residuals, root[rows, None] * plain[rows]
            for part in parts:
                out[rows[part]] = without(v[:, part], weighted[part], unfitted[part]) / root[rows[part], None]
        return out

    def _fit(self, values: Values) -> tuple[Float64[np.ndarray, "p q"], Float64[np.ndarray, " q"]]:
        mean = self._p @ values
        theta = self._normal(self._project(values - mean))
        if self._rcond < _REFINE_BELOW:
            fitted = self._at_draws(lambda phi, rows: phi.T @ theta)
            theta = theta + self._normal(self._project(values - mean - fitted) - self._penalty[:, None] * theta)
        return theta, mean - self._means @ theta

    def _normal(self, right: np.ndarray) -> np.ndarray:
        return self._whitening @ (self._whitening.T @ right)

    def _project(self, f: Values) -> Float64[np.ndarray, "p q"]:
        return sum(
            (self._centred(rows) @ (self._p[rows, None] * f[rows]) for rows, _ in _batches(len(f), None)),
            np.zeros((len(self._means), f.shape[1])),
        )

    def _at_draws(self, function: Callable[[np.ndarray, Rows], np.ndarray]) -> np.ndarray:
        return np.concatenate([function(self._centred(rows), rows) for rows, _ in _batches(len(self._p), None)])

    def _centred(self, rows: Rows) -> Float64[np.ndarray, "p k"]:
        x, s = self._problem.x[rows], self._problem.s[rows]
        return np.concatenate([feature_matrix(term, x, s) for term in self._terms]) - self._means[:, None]


def _batches(n: int, groups: Groups | None) -> Iterator[tuple[Rows, list[slice]]]:
    """Rows in batches of about `_ROWS` that hold whole groups, and where each group is in its batch."""
    if groups is not None:
        yield from packed(groups, _ROWS)
        return
    for start in range(0, n, _ROWS):
        yield np.arange(start, min(start + _ROWS, n)), []
