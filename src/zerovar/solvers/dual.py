"""The dual: one n × n system for any family with a Gram.

For f = c + g with penalised Gram K, free columns B (the intercept and unpenalised terms) and probabilities p, minimising
Σ p r² + λ‖g‖² means  (K + λ diag(1/p)) a + B b = f,  Bᵀa = 0.  Write A = K + λ diag(1/p) and
Q = A⁻¹ − A⁻¹B(BᵀA⁻¹B)⁻¹BᵀA⁻¹: then a = Qf, and the residuals of a group I of draws when it is left out of the fit are
Q_II⁻¹ a_I, in closed form.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float64
from scipy.linalg import cho_solve, eigh, qr, solve_triangular

from ..families import LinearFamily, Translates
from .base import Groups, Prepared, Problem, Result, Solution, Values, only_its_own_ridge, solve_group
from .blocks import feature_matrix, gram_matrix
from .factors import factor_of
from .terms import LinearTerm

_EPS = np.finfo(np.float64).eps
Free = Float64[np.ndarray, "b q"]


class Dual(Prepared):
    """A Cholesky factor of A, on the host or on an accelerator.

    The ridge policy: A is factorised with the ridge asked for. If that fails, or the pivots say that A is singular to rounding,
    the ridge is raised once, to ten times the rounding error of the Gram, n · ε · mean(diag K), which always suffices; the fit
    reports it. A ridge that large changes the fit by less than rounding already has.
    """

    def __init__(self, problem: Problem, penalised: LinearFamily, free: LinearFamily | None):
        self.probabilities = problem.probabilities
        n = len(self.probabilities)
        self.border, self.terms, self.intercept_variance = _border(problem, penalised, free)
        shift = self.intercept_variance if np.isfinite(self.intercept_variance) else 0.0
        self._factor = factor_of(penalised, problem.x, problem.s, shift)
        ridge = problem.ridge
        self.result = Result.OK
        if not (self._factor.factorise(ridge / self.probabilities) and self._factor.rcond > n * _EPS):
            self.result = Result.RIDGE_RAISED
            floor = 10 * n * _EPS * self._factor.diagonal().mean()
            ridge = max(ridge, floor / n)
            if not self._factor.factorise(np.maximum(problem.ridge / self.probabilities, floor)):
                self.result = Result.SINGULAR
        self.stats = {
            "form": "dual",
            "unknowns": n,
            "free_terms": self.border.shape[1],
            "ridge": ridge,
            "rcond": self._factor.rcond,
        }
        if self.result is Result.SINGULAR:
            return
        self._border_solved: np.ndarray | None = None
        if self.border.shape[1]:
            with self._factor.small_work():
                self._orthonormal, self._triangle, full = economic_qr(self.border)
            if not full:
                self.result = Result.COLLINEAR

    def solve(self, values: Values, ridge: float | None = None) -> Solution:
        only_its_own_ridge(ridge)
        with self._factor.small_work():
            a, free = self._dual_coefficients(values)
        return _solution(a, free, self.terms, self.intercept_variance)

    def intercept_weights(self, ridge: float | None = None) -> Float64[np.ndarray, " m"]:
        only_its_own_ridge(ridge)
        if np.isfinite(self.intercept_variance):
            return self.intercept_variance * self._dual_coefficients(np.ones((len(self.border), 1)))[0][:, 0]
        # c = e₀ᵀR⁻¹S⁻¹QᵀA⁻¹f with border = QR and S = QᵀA⁻¹Q
        assert self._border_solved is not None, "known once something was solved"
        first = solve_triangular(self._triangle, np.eye(self.border.shape[1])[0], trans=1)
        return self._border_solved @ self._solve_schur(first)

    def leave_out(self, values: Values, groups: Groups | None, ridge: float | None = None) -> Values:
        only_its_own_ridge(ridge)
        a, _ = self._dual_coefficients(values)
        half = None
        if self._border_solved is not None:
            half = solve_triangular(self._schur, self._border_solved.T, lower=True).T
        if groups is None:
            diagonal = self._factor.inverse_diagonal()
            if half is not None:
                diagonal = diagonal - np.sum(half**2, axis=1)
            return a / diagonal[:, None]
        out, plain = np.empty_like(a), values - self.probabilities @ values
        for group, block in self._factor.inverse_blocks(groups):
            if half is not None:
                block = block - half[group] @ half[group].T
            out[group] = solve_group(block, a[group], plain[group])
        return out

    def _dual_coefficients(self, values: Values) -> tuple[Values, Free]:
        if not self.border.shape[1]:
            return self._factor.solve(values), np.zeros((0, values.shape[1]))
        # What the border explains is taken out first: exact, whatever the condition of A
        first = self._orthonormal.T @ values
        a = self._solved_with_border(values - self._orthonormal @ first)
        second = self._solve_schur(self._orthonormal.T @ a)
        a -= self._border_solved @ second
        return a, solve_triangular(self._triangle, first + second)

    def _solved_with_border(self, right: Values) -> Values:
        """A⁻¹ right; the first time, A⁻¹ of the border along with it."""
        if self._border_solved is not None:
            return self._factor.solve(right)
        both = self._factor.solve(np.concatenate([self._orthonormal, right], axis=1))
        self._border_solved, rest = np.split(both, [self.border.shape[1]], axis=1)
        schur = self._orthonormal.T @ self._border_solved
        self._schur = np.linalg.cholesky(0.5 * (schur + schur.T))
        return rest

    def _solve_schur(self, right: np.ndarray) -> np.ndarray:
        return cho_solve((self._schur, True), right)


class Spectral(Prepared):
    """One eigendecomposition that serves every ridge and every integrand.

    In probability-weighted coordinates the free columns are projected out first; on their complement
    Q = V diag(1/(e + λ)) Vᵀ for every λ.
    """

    def __init__(self, problem: Problem, penalised: LinearFamily, free: LinearFamily | None):
        self.border, self.terms, self.intercept_variance = _border(problem, penalised, free)
        self._root = np.sqrt(problem.probabilities)[:, None]
        gram = gram_matrix(penalised, problem.x, problem.s)
        if np.isfinite(self.intercept_variance):
            gram += self.intercept_variance
        gram *= self._root
        gram *= self._root.T
        count = self.border.shape[1]
        if count:
            self._orthonormal, self._triangle, full = economic_qr(self._root * self.border)
            if not full:
                self.result = Result.COLLINEAR
                self.stats = {"form": "spectral", "free_terms": count}
                return
            self._border_gram = gram @ self._orthonormal
            inner = self._orthonormal.T @ self._border_gram
            shift = np.trace(gram)
            # (I − UUᵀ) G (I − UUᵀ) − shift · UUᵀ: the border's directions become the lowest eigenvectors, and are dropped
            cross = self._border_gram @ self._orthonormal.T
            gram -= cross + cross.T
            gram += self._orthonormal @ (inner - shift * np.eye(count)) @ self._orthonormal.T
        eigenvalues, vectors = eigh(gram, overwrite_a=True, check_finite=False)
        self._eigenvalues, self._vectors = np.maximum(eigenvalues[count:], 0.0), vectors[:, count:]
        # in the weighted problem the rounding of the largest eigenvalue bounds what a ridge can resolve
        self.floor = 10 * len(gram) * _EPS * self._eigenvalues.mean()
        self.ridge = problem.ridge
        raised = self._eigenvalues.min() + self.ridge < len(gram) * _EPS * self._eigenvalues.max()
        self.result = Result.RIDGE_RAISED if raised else Result.OK
        if raised:
            self.ridge = max(self.ridge, self.floor)
        self.stats = {
            "form": "spectral",
            "unknowns": len(gram),
            "free_terms": count,
            "ridge": self.ridge,
            "rcond": float(self._eigenvalues.min() / self._eigenvalues.max()),
        }

    def solve(self, values: Values, ridge: float | None = None) -> Solution:
        weighted, free = self._coefficients(values, ridge)
        return _solution(self._root * weighted, free, self.terms, self.intercept_variance)

    def intercept_weights(self, ridge: float | None = None) -> Float64[np.ndarray, " m"]:
        inverse = 1 / (self._eigenvalues + self._ridge(ridge))
        if np.isfinite(self.intercept_variance):
            inside = self._vectors.T @ self._root
            return self.intercept_variance * (self._root * (self._vectors @ (inverse[:, None] * inside)))[:, 0]
        first = solve_triangular(self._triangle, np.eye(self.border.shape[1])[0], trans=1)
        through = self._vectors @ (inverse * (self._vectors.T @ (self._border_gram @ first)))
        return self._root[:, 0] * (self._orthonormal @ first - through)

    def leave_out(self, values: Values, groups: Groups | None, ridge: float | None = None) -> Values:
        weighted, _ = self._coefficients(values, ridge)
        half = self._vectors / np.sqrt(self._eigenvalues + self._ridge(ridge))
        if groups is None:
            return weighted / (self._root * np.sum(half**2, axis=1)[:, None])
        out, plain = np.empty_like(weighted), self._root * (values - self._root[:, 0] ** 2 @ values)
        for group in groups:
            out[group] = solve_group(half[group] @ half[group].T, weighted[group], plain[group])
        return out / self._root

    def _ridge(self, ridge: float | None) -> float:
        return self.ridge if ridge is None else max(ridge, self.floor if self.result is Result.RIDGE_RAISED else 0.0)

    def _coefficients(self, values: Values, ridge: float | None) -> tuple[Values, Free]:
        values = self._root * values
        inside = self._vectors.T @ values
        weighted = self._vectors @ (inside / (self._eigenvalues + self._ridge(ridge))[:, None])
        if not self.border.shape[1]:
            return weighted, np.zeros((0, values.shape[1]))
        return weighted, solve_triangular(self._triangle, self._orthonormal.T @ values - self._border_gram.T @ weighted)


def _border(problem: Problem, penalised: LinearFamily, free: LinearFamily | None) -> tuple[np.ndarray, Any, float]:
    """Free columns (n, b): the intercept unless it has a finite variance, then the unpenalised features."""
    n = len(problem.x)
    columns = [np.ones((1, n))] if np.isinf(problem.intercept_variance) else []
    if free is not None:
        columns.append(feature_matrix(free, problem.x, problem.s))
    border = np.concatenate(columns).T if columns else np.zeros((n, 0))
    terms: tuple[LinearFamily, ...] = (Translates(penalised, problem.x, problem.s),)
    return border, terms + ((free,) if free is not None else ()), problem.intercept_variance


def _solution(a: Values, free: Free, terms: Any, intercept_variance: float) -> Solution:
    if np.isinf(intercept_variance):
        intercept, free = free[0], free[1:]
    else:
        intercept = intercept_variance * a.sum(axis=0)
    return Solution(intercept, tuple(LinearTerm(*pair) for pair in zip(terms, (a, free), strict=False)))


def economic_qr(columns: np.ndarray) -> tuple[np.ndarray, np.ndarray, bool]:
    """Q, R of columns brought to unit length first, and whether they are independent to rounding."""
    lengths = np.linalg.norm(columns, axis=0)
    orthonormal, triangle = qr(columns / lengths, mode="economic", check_finite=False)
    independent = np.abs(triangle.diagonal()).min() > len(columns) * _EPS
    return orthonormal, triangle * lengths, bool(independent)
