"""Criteria by which hyper-parameters are chosen.

A Stein GP reads the equations of the dual: f = c + g + noise, g with covariance k₀, c and
unpenalised terms with a flat prior. With A = K + noise, border B and Q = A⁻¹ − A⁻¹B(BᵀA⁻¹B)⁻¹BᵀA⁻¹,
a = Qf, both criteria are functions of A alone,

    leave-one-out         log mean (a_i / Q_ii)²
    marginal likelihood   (m − b) log fᵀQf + log |A| + log |BᵀA⁻¹B|

(restricted, the scale of k₀ profiled out)

and dQ = −Q dA Q gives their derivatives in A in closed form, one matrix product.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float64

from ..arguments import takes, whole
from ..solvers.base import Values

Square = Float64[np.ndarray, "m m"]


class SteinGp(NamedTuple):
    """A Stein GP at m draws, factorised: Q, a = Qf, f, and what the likelihood needs."""

    q: Square
    a: Values
    values: Values
    log_determinant: float  # log |A| + log |BᵀA⁻¹B|
    num_free: int

    @staticmethod
    def of(
        gram: Square, noise: Float64[np.ndarray, " m"], border: np.ndarray, values: Values
    ) -> SteinGp | None:
        """Factorise A, in the memory of the Gram, or return None where that cannot be done."""
        gram[np.diag_indices_from(gram)] += noise
        factor, failed = scipy.linalg.lapack.dpotrf(gram.T, lower=1, clean=0)
        if failed:
            return None
        inverse, _ = scipy.linalg.lapack.dpotri(factor, lower=1)
        _mirror(inverse)
        solved = scipy.linalg.lapack.dpotrs(factor, border, lower=1)[0]
        schur, failed = scipy.linalg.lapack.dpotrf(border.T @ solved, lower=1, clean=1)
        if failed:
            return None
        half = scipy.linalg.solve_triangular(schur, solved.T, lower=True, check_finite=False)
        # not Q @ values, which loses what the condition of A takes
        a = scipy.linalg.lapack.dpotrs(factor, values, lower=1)[0]
        a -= solved @ scipy.linalg.cho_solve((schur, True), border.T @ a, check_finite=False)
        log_determinant = 2 * (np.log(factor.diagonal()).sum() + np.log(schur.diagonal()).sum())
        return SteinGp(inverse - half.T @ half, a, values, float(log_determinant), border.shape[1])


def _mirror(matrix: Square) -> None:
    """Copy the lower triangle over the upper, in blocks that stay in cache."""
    step = 256
    for i in range(0, len(matrix), step):
        corner = matrix[i : i + step, i : i + step]
        upper = np.triu_indices_from(corner, 1)
        corner[upper] = corner.T[upper]
        matrix[i : i + step, i + step :] = matrix[i + step :, i : i + step].T


class Criterion:
    """A measure of hyper-parameters that tuning minimises."""


class Differentiable(Criterion, ABC):
    """A criterion that is a closed-form function of A."""

    @abstractmethod
    def measure(
        self, gp: SteinGp, probabilities: Float64[np.ndarray, " m"]
    ) -> tuple[float, Square]:
        """Return the mean loss over the integrands, and its derivative in A, symmetric."""


@dataclasses.dataclass(frozen=True)
class LeaveOneOut(Differentiable):
    """Mean squared error at each draw of the fit without it."""

    def measure(self, gp, probabilities):
        diagonal = gp.q.diagonal()[:, None]
        residuals = gp.a / diagonal
        weighted = probabilities[:, None] * residuals
        total = np.sum(weighted * residuals, axis=0)
        slope = 2 * weighted / (total * len(total) * diagonal)
        derivative = -(gp.q @ slope) @ gp.a.T
        derivative = 0.5 * (derivative + derivative.T)
        derivative += (gp.q * np.sum(slope * residuals, axis=1)) @ gp.q
        return float(np.log(total).mean()), derivative


@dataclasses.dataclass(frozen=True)
class MarginalLikelihood(Differentiable):
    """Minus twice the restricted log likelihood of the Stein GP, per draw, its scale profiled
    out."""

    def measure(self, gp, probabilities):
        m, degrees = len(gp.a), len(gp.a) - gp.num_free
        quadratic = np.sum(gp.values * gp.a, axis=0)
        return float(self.losses(gp).mean()), (
            gp.q - degrees * (gp.a / (quadratic * len(quadratic))) @ gp.a.T
        ) / m

    def losses(self, gp: SteinGp) -> Float64[np.ndarray, " q"]:
        """Return the loss of each integrand."""
        m, degrees = len(gp.a), len(gp.a) - gp.num_free
        return (degrees * np.log(np.sum(gp.values * gp.a, axis=0)) + gp.log_determinant) / m


@takes(k=whole(2))
@dataclasses.dataclass(frozen=True)
class CrossValidation(Criterion):
    """Mean squared error on k contiguous blocks of every chain, each predicted by the fit to the
    others; for grids."""

    k: int = 5
