"""The primal: p × p normal equations for a family with p features.

Features are centred (the intercept is free) and weighted by √p_i, Φ; then (ΦᵀΦ + D)θ = Φᵀf with D the ridge, zero on free
terms. By Cholesky after scaling to unit diagonal, with one step of refinement; where the pivots show that squaring the
condition number costs too much, by QR with column pivoting on [Φ; √D] instead, which reveals the rank.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64
from scipy.linalg import blas, lapack, qr, solve_triangular

from ..families import LinearFamily
from .base import Factorisation, Groups, Problem, Result, Solution, Values
from .blocks import feature_matrix

_EPS = np.finfo(np.float64).eps
# The Cholesky route is taken while ΦᵀΦ, at unit diagonal, keeps pivots above this: refinement then restores full accuracy.
_SMALLEST_PIVOT = 1e-10
_RANK_TOLERANCE = 1e-12


class CentredFeatures:
    """Weighted, centred features Φ, `array` (p, m), with what it takes to map values in and coefficients out."""

    def __init__(self, problem: Problem, penalised: LinearFamily | None, free: LinearFamily | None):
        self.terms = tuple(term for term in (penalised, free) if term is not None)
        blocks = [feature_matrix(term, problem.x, problem.s) for term in self.terms]
        self._sizes = [len(block) for block in blocks]
        self.penalty = np.full(sum(self._sizes), problem.ridge)
        if free is not None:
            self.penalty[-self._sizes[-1] :] = 0.0
        self.root = np.sqrt(problem.probabilities)
        self.array = blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
        self.free_intercept = np.isinf(problem.intercept_variance)
        if self.free_intercept:
            self._means = self.array @ problem.probabilities
            self.array -= self._means[:, None]
        else:  # the constant is one more penalised feature
            self._constant = np.sqrt(problem.intercept_variance)
            self.array = np.concatenate([np.full((1, len(self.root)), self._constant), self.array])
            self.penalty = np.concatenate([[problem.ridge], self.penalty])
        self.array *= self.root

    def values(self, values: Values) -> tuple[Values, np.ndarray]:
        """√p (f − mean), and the mean (q,), which is zero where the intercept is not free."""
        mean = self.root**2 @ values if self.free_intercept else np.zeros(values.shape[1])
        return self.root[:, None] * (values - mean), mean

    def solution(self, theta: Float64[np.ndarray, "p q"], mean: np.ndarray) -> Solution:
        if self.free_intercept:
            intercept = mean - self._means @ theta
        else:
            intercept, theta = self._constant * theta[0], theta[1:]
        return Solution(intercept, tuple(np.split(theta, np.cumsum(self._sizes)[:-1])))


class Primal(Factorisation):
    """Least squares on features, with a diagonal penalty."""

    def __init__(self, problem: Problem, penalised: LinearFamily | None, free: LinearFamily | None):
        self._data = CentredFeatures(problem, penalised, free)
        self.terms = self._data.terms
        phi = self._data.array
        gram = blas.dsyrk(1.0, phi.T, trans=1, lower=1)  # phi.T is Fortran-ordered: no copy
        diagonal = gram.diagonal() + self._data.penalty
        self._scale = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
        gram *= self._scale[:, None]
        gram *= self._scale
        np.fill_diagonal(gram, np.where(diagonal > 0, 1.0, 0.0))
        self._factor, info = lapack.dpotrf(gram, lower=1, overwrite_a=1, clean=0)
        rcond = float(self._factor.diagonal().min() ** 2) if info == 0 else 0.0
        self.result = Result.OK
        self.stats = {"form": "primal", "unknowns": len(phi), "rank": len(phi), "ridge": problem.ridge, "rcond": rcond}
        self._whitened: np.ndarray | None = None
        self._complete: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
        if rcond < _SMALLEST_PIVOT:
            self._factorise_by_qr()

    def solve(self, values: Values) -> Solution:
        f, mean = self._data.values(values)
        if self._complete is not None:
            right, lower, order = self._complete
            theta = np.empty((len(order), f.shape[1]))
            theta[order] = right @ solve_triangular(lower, self._whiten() @ f, trans=1)
            return self._data.solution(self._scale[:, None] * theta, mean)
        phi = self._data.array
        theta = self._normal(phi @ f)
        theta += self._normal(phi @ (f - phi.T @ theta) - self._data.penalty[:, None] * theta)
        return self._data.solution(theta, mean)

    def leave_out(self, values: Values, groups: Groups | None) -> Values:
        f, _ = self._data.values(values)
        v = self._whiten()
        residuals = f - v.T @ (v @ f)
        constant = self._data.root[:, None] if self._data.free_intercept else np.zeros((len(f), 0))
        if groups is None:
            left = 1.0 - np.einsum("ij,ij->j", v, v) - np.sum(constant**2, axis=1)
            out = residuals / np.maximum(left, _EPS)[:, None]
        else:
            out = np.empty_like(f)
            for group in groups:
                hat = v[:, group].T @ v[:, group] + constant[group] @ constant[group].T
                out[group] = np.linalg.lstsq(np.eye(len(group)) - hat, residuals[group], rcond=None)[0]
        return out / self._data.root[:, None]

    def _normal(self, right: np.ndarray) -> np.ndarray:
        return self._scale[:, None] * lapack.dpotrs(self._factor, self._scale[:, None] * right, lower=1)[0]

    def _whiten(self) -> np.ndarray:
        """L⁻¹SΦ (rank, m), S the scaling: inner products of its columns are the hat matrix, but for the intercept's."""
        if self._whitened is None:
            scaled = (self._scale[:, None] * self._data.array).T  # Fortran order, solved in place from the right
            self._whitened = blas.dtrsm(1.0, self._factor, scaled, side=1, lower=1, trans_a=1, overwrite_b=1).T
        return self._whitened

    def _factorise_by_qr(self) -> None:
        """Φ S P = Q R; the rank is where R's diagonal drops to rounding, the solution the one of least scaled norm."""
        columns = (self._data.array * self._scale[:, None]).T
        if self._data.penalty.any():
            columns = np.concatenate([columns, np.diag(np.sqrt(self._data.penalty) * self._scale)])
        orthonormal, triangle, order = qr(columns, mode="economic", pivoting=True, check_finite=False)
        size = np.abs(triangle.diagonal())
        rank = int(np.sum(size > _RANK_TOLERANCE * size[0]))
        if rank < len(self._scale):
            self.result = Result.RANK_DEFICIENT
        self.stats |= {"form": "primal by QR", "rank": rank, "rcond": float((size[rank - 1] / size[0]) ** 2)}
        self._whitened = np.ascontiguousarray(orthonormal[: len(self._data.root), :rank].T)
        right, lower = qr(triangle[:rank].T, mode="economic", check_finite=False)
        self._complete = (right, lower, order)
