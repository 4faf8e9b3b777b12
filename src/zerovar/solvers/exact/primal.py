"""The primal: p × p normal equations for a family with p features.

Features are centred (the intercept is free) and weighted by √p_i, Φ; then (ΦᵀΦ + D)θ = Φᵀf with D
the ridge, zero on free terms. By Cholesky after scaling to unit diagonal, with one step of
refinement unless well-conditioned; where the pivots show that squaring the condition number costs
too much, by QR with column pivoting on [Φ; √D] instead, which reveals the rank.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy
from jaxtyping import Float64

from ..algebra.dense import EPS, ROUNDING, SINGULAR, Groups, solve_group
from ..algebra.tiles import feature_matrix
from ..base import Prepared, Problem, Result, Solution, Values
from ..stats import FitStats
from ..terms import arrange, linear_terms


class CentredFeatures:
    """Features Φ, weighted by √p and centred, with what it takes to map values in and coefficients
    out.

    `raw` (p, m) is not centred, and under equal weights not scaled either: features of a Stein
    family have means near zero, so that centring their products instead loses nothing, and saves
    two passes over the largest array of the fit.
    """

    def __init__(self, problem: Problem):
        self._parts, penalised = arrange(problem.family, problem.points.dim)
        blocks = [feature_matrix(term, problem.points.x, problem.points.s) for term in self._parts]
        self.raw = blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
        self.penalty, self._dim = problem.ridge * penalised, problem.points.dim
        self.free_intercept = np.isinf(problem.intercept_variance)
        if not self.free_intercept:  # the constant is one more penalised feature
            self._constant = np.sqrt(problem.intercept_variance)
            self.raw = np.concatenate([np.full((1, self.raw.shape[1]), self._constant), self.raw])
            self.penalty = np.concatenate([[problem.ridge], self.penalty])
        self.root = np.sqrt(problem.points.probabilities)
        equal = np.ptp(self.root) == 0
        self._scale = float(self.root[0]) if equal else 1.0
        if not equal:
            self.raw *= self.root
        self._means = (
            self._scale * (self.raw @ self.root) if self.free_intercept else np.zeros(len(self.raw))
        )

    def values(self, values: Values) -> tuple[Values, np.ndarray]:
        """Return √p (f − mean), and the mean (q,), which is zero where the intercept is not
        free."""
        mean = self.root**2 @ values if self.free_intercept else np.zeros(values.shape[1])
        return self.root[:, None] * (values - mean), mean

    def gram(self) -> Float64[np.ndarray, "p p"]:
        """Return ΦᵀΦ, in the lower triangle."""
        # raw.T is Fortran-ordered: no copy
        gram = scipy.linalg.blas.dsyrk(self._scale**2, self.raw.T, trans=1, lower=1)
        return scipy.linalg.blas.dsyr(-1.0, self._means, a=gram, lower=1, overwrite_a=1)

    def project(self, f: Values) -> Float64[np.ndarray, "p q"]:
        """Return Φᵀf for centred f."""
        return self._scale * (self.raw @ f)

    def evaluate(self, theta: Float64[np.ndarray, "p q"]) -> Values:
        """Return Φθ."""
        return self._scale * (self.raw.T @ theta) - self.root[:, None] * (self._means @ theta)

    def centre(self, scale: Float64[np.ndarray, " p"]) -> Float64[np.ndarray, "p m"]:
        """Return Φ itself, each feature times its scale."""
        out = (self._scale * scale)[:, None] * self.raw
        if self.free_intercept:
            out -= np.outer(scale * self._means, self.root)
        return out

    @property
    def intercept_direction(self) -> Float64[np.ndarray, " p"]:
        """What the intercept contracts θ with, apart from the mean of f."""
        return -self._means if self.free_intercept else self._constant * np.eye(len(self.raw))[0]

    def solution(self, theta: Float64[np.ndarray, "p q"], mean: np.ndarray) -> Solution:
        """Return the solution with these coefficients."""
        if self.free_intercept:
            intercept = mean - self._means @ theta
        else:
            intercept, theta = self._constant * theta[0], theta[1:]
        return Solution(intercept, linear_terms(self._parts, theta, self._dim))


class PreparedPrimal(Prepared):
    """Least squares on features, with a diagonal penalty."""

    def __init__(self, problem: Problem):
        self._data = CentredFeatures(problem)
        gram = self._data.gram()
        diagonal = gram.diagonal() + self._data.penalty
        self._scale = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
        gram *= self._scale[:, None]
        gram *= self._scale
        np.fill_diagonal(gram, np.where(diagonal > 0, 1.0, 0.0))
        self._factor, info = scipy.linalg.lapack.dpotrf(gram, lower=1, overwrite_a=1, clean=0)
        self._rcond = float(self._factor.diagonal().min() ** 2) if info == 0 else 0.0
        self.result, p = Result.OK, len(diagonal)
        self.stats = FitStats("primal", p, counts_terms=True) | {
            "rank": p,
            "ridge": problem.ridge,
            "rcond": self._rcond,
        }
        self._whitened: np.ndarray | None = None
        self._complete: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
        if self._rcond < SINGULAR:
            self._factorise_by_qr()

    def solve(self, values: Values, ridge: float | None = None) -> Solution:
        f, mean = self._data.values(values)
        if self._complete is not None:
            right, lower, order = self._complete
            theta = np.empty((len(order), f.shape[1]))
            theta[order] = right @ scipy.linalg.solve_triangular(lower, self._whiten() @ f, trans=1)
            return self._data.solution(self._scale[:, None] * theta, mean)
        theta = self._normal(self._data.project(f))
        if ROUNDING * self._rcond < EPS:
            residual = f - self._data.evaluate(theta)
            theta += self._normal(
                self._data.project(residual) - self._data.penalty[:, None] * theta
            )
        return self._data.solution(theta, mean)

    def intercept_weights(self, ridge: float | None = None) -> Float64[np.ndarray, " m"]:
        root = self._data.root
        # c = Σ p f − means·θ, or constant·θ₀; θ = (ΦᵀΦ + D)⁻¹Φᵀ√p f, so w is the fit of what θ is
        # contracted with
        if self._complete is None:
            through = self._data.evaluate(self._normal(self._data.intercept_direction[:, None]))[
                :, 0
            ]
        else:
            right, lower, order = self._complete
            target = (self._scale * self._data.intercept_direction)[order]
            through = self._whiten().T @ scipy.linalg.solve_triangular(lower, right.T @ target)
        return root * (root * self._data.free_intercept + through)

    def leave_out(
        self, values: Values, groups: Groups | None, ridge: float | None = None
    ) -> Values:
        f, _ = self._data.values(values)
        v = self._whiten()
        residuals = f - v.T @ (v @ f)
        if self._data.free_intercept:
            v = np.concatenate([v, self._data.root[None]])  # now the whole hat matrix is vᵀv
        return leave_groups_out(v, residuals, f, groups) / self._data.root[:, None]

    def _normal(self, right: np.ndarray) -> np.ndarray:
        return (
            self._scale[:, None]
            * scipy.linalg.lapack.dpotrs(self._factor, self._scale[:, None] * right, lower=1)[0]
        )

    def _whiten(self) -> np.ndarray:
        """Return L⁻¹SΦ (rank, m), S the scaling: inner products of its columns are the hat matrix,
        but for the intercept's."""
        if self._whitened is None:
            # Fortran order, solved in place from the right
            scaled = self._data.centre(self._scale).T
            self._whitened = scipy.linalg.blas.dtrsm(
                1.0, self._factor, scaled, side=1, lower=1, trans_a=1, overwrite_b=1
            ).T
        return self._whitened

    def _factorise_by_qr(self) -> None:
        """Factorise Φ S P = Q R; the rank is where R's diagonal drops to rounding, the solution the
        one of least scaled norm."""
        columns = self._data.centre(self._scale).T
        if self._data.penalty.any():
            columns = np.concatenate([columns, np.diag(np.sqrt(self._data.penalty) * self._scale)])
        orthonormal, triangle, order = scipy.linalg.qr(
            columns, mode="economic", pivoting=True, check_finite=False
        )
        size = np.abs(triangle.diagonal())
        rank = int(np.sum(size > ROUNDING * size[0]))
        if rank < len(self._scale):
            self.result = Result.RANK_DEFICIENT
        self.stats |= {
            "form": "primal by QR",
            "rank": rank,
            "rcond": float((size[rank - 1] / size[0]) ** 2),
        }
        self._whitened = np.ascontiguousarray(orthonormal[: len(self._data.root), :rank].T)
        self._complete = (
            *scipy.linalg.qr(triangle[:rank].T, mode="economic", check_finite=False),
            order,
        )


def leave_groups_out(
    v: Float64[np.ndarray, "r m"], residuals: Values, plain: Values, groups: Sequence[Any] | None
) -> Values:
    """Return (I − vᵀv)⁻¹ residuals of each group, None is one each; `plain` where the rest does not
    determine the fit."""
    if groups is None:
        return residuals / np.maximum(1.0 - np.einsum("ij,ij->j", v, v), EPS)[:, None]
    out = np.zeros_like(residuals)
    for group in groups:
        out[group] = _leave_group_out(v[:, group], residuals[group], plain[group])
    return out


def _leave_group_out(
    v: Float64[np.ndarray, "r k"], residuals: np.ndarray, plain: np.ndarray
) -> np.ndarray:
    """Return (I − vᵀv)⁻¹ residuals, through the smaller of the two sizes."""
    rank, size = v.shape
    if size <= rank:
        return solve_group(np.eye(size) - v.T @ v, residuals, plain, SINGULAR)
    inside = v @ residuals
    lifted = solve_group(np.eye(rank) - v @ v.T, inside, np.full_like(inside, np.nan), SINGULAR)
    return plain if np.isnan(lifted).any() else residuals + v.T @ lifted
