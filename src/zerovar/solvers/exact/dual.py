"""The dual: one n × n system for any family with a Gram.

For f = c + g with penalised Gram K, free columns B (the intercept and unpenalised terms) and
probabilities p, minimising Σ p r² + λ‖g‖² means  (K + λ diag(1/p)) a + B b = f,  Bᵀa = 0.  Write A
= K + λ diag(1/p) and Q = A⁻¹ − A⁻¹B(BᵀA⁻¹B)⁻¹BᵀA⁻¹: then a = Qf, and the residuals of a group I of
draws when it is left out of the fit are Q_II⁻¹ a_I, in closed form.
"""

import numpy as np
import scipy
from jaxtyping import Float64

from ..algebra.dense import EPS, Groups, economic_qr, gram_rounding, solve_group
from ..algebra.factors import make_factor
from ..algebra.tiles import feature_matrix
from ..base import Prepared, Problem, Result, Solution, Values
from ..stats import FitStats
from ..terms import LinearParts, LinearTerm, terms_of_translates

Free = Float64[np.ndarray, "b q"]


class PreparedDual(Prepared):
    """A Cholesky factor of A, on the host or on an accelerator.

    The ridge policy: A is factorised with the ridge asked for. If that fails, or the pivots say
    that A is singular to rounding, the ridge is raised once, to ten times the rounding error of the
    Gram, n · ε · mean(diag K), which always suffices; the fit reports it. A ridge that large
    changes the fit by less than rounding already has.
    """

    def __init__(self, problem: Problem):
        self.probabilities = problem.points.probabilities
        n = len(self.probabilities)
        self.border, self._parts = make_border(problem)
        self.intercept_variance = problem.intercept_variance
        shift = self.intercept_variance if np.isfinite(self.intercept_variance) else 0.0
        self._factor = make_factor(problem.penalised, problem.points.x, problem.points.s, shift)
        ridge, ridges, count = (
            problem.ridge,
            problem.ridge / self.probabilities,
            self.border.shape[1],
        )
        if not (self._factor.factorise(ridges) and self._factor.rcond > n * EPS):
            floor = gram_rounding(n, self._factor.diagonal().mean())
            ridge = max(ridge, floor / n)
            self.result = (
                Result.RIDGE_RAISED
                if self._factor.factorise(np.maximum(ridges, floor))
                else Result.SINGULAR
            )
        self.stats = FitStats("dual", n) | {
            "free_terms": count,
            "ridge": ridge,
            "rcond": self._factor.rcond,
        }
        self._border_solved: np.ndarray | None = None
        if count and self.result is not Result.SINGULAR:
            with self._factor.small_work():
                self._orthonormal, self._triangle, full = economic_qr(self.border)
            self.result = self.result if full else Result.COLLINEAR

    def solve(self, values: Values, ridge: float | None = None) -> Solution:
        try:
            with self._factor.small_work():
                a, free = self._dual_coefficients(values)
        except np.linalg.LinAlgError:
            self.result = Result.SINGULAR
            return Solution(np.full(values.shape[1], np.nan), ())
        return make_solution(a, free, self._parts, self.intercept_variance)

    def intercept_weights(self, ridge: float | None = None) -> Float64[np.ndarray, " m"]:
        if np.isfinite(self.intercept_variance):
            return (
                self.intercept_variance
                * self._dual_coefficients(np.ones((len(self.border), 1)))[0][:, 0]
            )
        # c = e₀ᵀR⁻¹S⁻¹QᵀA⁻¹f with border = QR and S = QᵀA⁻¹Q
        assert self._border_solved is not None, "known once something was solved"
        first = scipy.linalg.solve_triangular(
            self._triangle, np.eye(self.border.shape[1])[0], trans=1
        )
        return self._border_solved @ scipy.linalg.cho_solve((self._schur, True), first)

    def leave_out(
        self, values: Values, groups: Groups | None, ridge: float | None = None
    ) -> Values:
        a, _ = self._dual_coefficients(values)
        half = np.zeros((len(a), 0))
        if self._border_solved is not None:
            half = scipy.linalg.solve_triangular(self._schur, self._border_solved.T, lower=True).T
        if groups is None:
            return a / (self._factor.inverse_diagonal() - np.sum(half**2, axis=1))[:, None]
        out, plain = np.zeros_like(a), values - self.probabilities @ values
        for group, block in self._factor.inverse_blocks(groups):
            out[group] = solve_group(block - half[group] @ half[group].T, a[group], plain[group])
        return out

    def _dual_coefficients(self, values: Values) -> tuple[Values, Free]:
        if not self.border.shape[1]:
            return self._factor.solve(values), np.zeros((0, values.shape[1]))
        # What the border explains is taken out first: exact, whatever the condition of A
        first = self._orthonormal.T @ values
        a = self._solve_with_border(values - self._orthonormal @ first)
        second = scipy.linalg.cho_solve((self._schur, True), self._orthonormal.T @ a)
        a -= self._border_solved @ second
        return a, scipy.linalg.solve_triangular(self._triangle, first + second)

    def _solve_with_border(self, right: Values) -> Values:
        """Return A⁻¹ right; the first time, make A⁻¹ of the border along with it."""
        if self._border_solved is not None:
            return self._factor.solve(right)
        both = self._factor.solve(np.concatenate([self._orthonormal, right], axis=1))
        self._border_solved, rest = np.split(both, [self.border.shape[1]], axis=1)
        schur = self._orthonormal.T @ self._border_solved
        self._schur = np.linalg.cholesky(0.5 * (schur + schur.T))
        return rest


def make_border(problem: Problem) -> tuple[np.ndarray, LinearParts]:
    """Return free columns (n, b), the intercept unless it has a finite variance, then the
    unpenalised features; and the terms of g."""
    x, s = problem.points.x, problem.points.s
    free = [term for term in problem.family.split()[1:] if term is not None]
    constant = np.ones((int(np.isinf(problem.intercept_variance)), len(x)))
    border = np.concatenate([constant, *(feature_matrix(term, x, s) for term in free)]).T
    return border, (problem.penalised.translates(x, s), *free)


def make_solution(a: Values, free: Free, parts: LinearParts, intercept_variance: float) -> Solution:
    """Return the solution with these coefficients of translates and of free columns."""
    if np.isinf(intercept_variance):
        intercept, free = free[0], free[1:]
    else:
        intercept = intercept_variance * a.sum(axis=0)
    penalised, *rest = parts
    terms = terms_of_translates(penalised, a)
    return Solution(intercept, (*terms, *(LinearTerm(part, free) for part in rest)))
