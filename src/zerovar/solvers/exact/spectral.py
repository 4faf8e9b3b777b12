"""The dual by one eigendecomposition, which serves every ridge and every integrand."""

from typing import ClassVar

import numpy as np
import scipy
from jaxtyping import Float64

from ..algebra.dense import EPS, Groups, economic_qr, gram_rounding, solve_group
from ..algebra.tiles import gram_matrix
from ..base import Prepared, Problem, Result, Solution, Values
from ..stats import FitStats
from .dual import Free, make_border, make_solution


class PreparedSpectral(Prepared):
    """One eigendecomposition that serves every ridge and every integrand.

    In probability-weighted coordinates the free columns are projected out first; on their
    complement Q = V diag(1/(e + λ)) Vᵀ for every λ.
    """

    any_ridge: ClassVar[bool] = True

    def __init__(self, problem: Problem):
        self.border, self._parts = make_border(problem)
        self.intercept_variance, self._root = (
            problem.intercept_variance,
            np.sqrt(problem.points.probabilities)[:, None],
        )
        gram = gram_matrix(problem.penalised, problem.points.x, problem.points.s)
        if np.isfinite(self.intercept_variance):
            gram += self.intercept_variance
        gram *= self._root
        gram *= self._root.T
        count = self.border.shape[1]
        self.stats = FitStats("spectral", len(gram)) | {"free_terms": count}
        if count:
            self._orthonormal, self._triangle, full = economic_qr(self._root * self.border)
            if not full:
                self.result = Result.COLLINEAR
                return
            self._border_gram = gram @ self._orthonormal
            inner = self._orthonormal.T @ self._border_gram
            shift = np.trace(gram)
            # (I − UUᵀ) G (I − UUᵀ) − shift · UUᵀ: the border's directions become the lowest
            # eigenvectors, and are dropped
            cross = self._border_gram @ self._orthonormal.T
            gram -= cross + cross.T
            gram += self._orthonormal @ (inner - shift * np.eye(count)) @ self._orthonormal.T
        eigenvalues, vectors = scipy.linalg.eigh(gram, overwrite_a=True, check_finite=False)
        self._eigenvalues, self._vectors = np.maximum(eigenvalues[count:], 0.0), vectors[:, count:]
        # in the weighted problem the rounding of the largest eigenvalue bounds what a ridge can
        # resolve
        self.floor = gram_rounding(len(gram), self._eigenvalues.mean())
        least, most = self._eigenvalues.min(), self._eigenvalues.max()
        raised = least + problem.ridge < len(gram) * EPS * most
        self.result = Result.RIDGE_RAISED if raised else Result.OK
        self.ridge = max(problem.ridge, self.floor) if raised else problem.ridge
        self.stats |= {"ridge": self.ridge, "rcond": float(least / most)}

    def solve(self, values: Values, ridge: float | None = None) -> Solution:
        weighted, free = self._coefficients(values, ridge)
        return make_solution(self._root * weighted, free, self._parts, self.intercept_variance)

    def intercept_weights(self, ridge: float | None = None) -> Float64[np.ndarray, " m"]:
        inverse = 1 / (self._eigenvalues + self._ridge(ridge))
        if np.isfinite(self.intercept_variance):
            inside = self._vectors.T @ self._root
            return (
                self.intercept_variance
                * (self._root * (self._vectors @ (inverse[:, None] * inside)))[:, 0]
            )
        first = scipy.linalg.solve_triangular(
            self._triangle, np.eye(self.border.shape[1])[0], trans=1
        )
        through = self._vectors @ (inverse * (self._vectors.T @ (self._border_gram @ first)))
        return self._root[:, 0] * (self._orthonormal @ first - through)

    def leave_out(
        self, values: Values, groups: Groups | None, ridge: float | None = None
    ) -> Values:
        weighted, _ = self._coefficients(values, ridge)
        half = self._vectors / np.sqrt(self._eigenvalues + self._ridge(ridge))
        if groups is None:
            return weighted / (self._root * np.sum(half**2, axis=1)[:, None])
        out, plain = np.zeros_like(weighted), self._root * (values - self._root[:, 0] ** 2 @ values)
        for group in groups:
            out[group] = solve_group(half[group] @ half[group].T, weighted[group], plain[group])
        return out / self._root

    def _ridge(self, ridge: float | None) -> float:
        return (
            self.ridge
            if ridge is None
            else max(ridge, self.floor if self.result is Result.RIDGE_RAISED else 0.0)
        )

    def _coefficients(self, values: Values, ridge: float | None) -> tuple[Values, Free]:
        values = self._root * values
        weighted = self._vectors @ (
            self._vectors.T @ values / (self._eigenvalues + self._ridge(ridge))[:, None]
        )
        if not self.border.shape[1]:
            return weighted, np.zeros((0, values.shape[1]))
        return weighted, scipy.linalg.solve_triangular(
            self._triangle, self._orthonormal.T @ values - self._border_gram.T @ weighted
        )
