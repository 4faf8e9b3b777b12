"""Linear algebra of whitening: bases that make a second moment the identity, and draws chosen by
leverage."""

from typing import Any

import equinox as eqx
import numpy as np
import scipy

from ...inputs.points import DRAWS_PER_TERM
from ..algebra.dense import ROUNDING, SINGULAR, pivoted_cholesky, triangular_inverse

# Features up to which the whitening is a dense matrix, at the cost of its cube once; beyond, a
# diagonal, and directions, an eighth as many.
MOST_DENSE = 1024


class Dense(eqx.Module):
    """The map φ (n, P) ↦ φ B (n, r); the coefficients of φ are B w with w (r, q), and the quadratic
    penalty is (q,).

    Its methods, like those of `LowRank`, take NumPy arrays on the host and JAX arrays in the loop.
    """

    matrix: Any
    penalty: Any  # (r,), or (r, r) where the coordinates were not turned to make it diagonal

    @property
    def size(self) -> int:
        """The size r of w."""
        return self.matrix.shape[1]

    def __call__(self, phi: Any) -> Any:
        return phi @ self.matrix

    def coefficients(self, w: Any) -> Any:
        return self.matrix @ w

    def quadratic(self, w: Any) -> Any:
        return (
            w * (self.penalty @ w if self.penalty.ndim == 2 else self.penalty[:, None] * w)
        ).sum(axis=0)


class LowRank(eqx.Module):
    """The map φ ↦ (φ D)(1 + U diag(gain − 1) Uᵀ): each feature by itself, and the leading
    directions."""

    scale: Any  # (P,)
    directions: Any  # (P, k)
    gain: Any  # (k,)
    penalty: Any  # (P,) on the coefficients of φ

    @property
    def size(self) -> int:
        """The size P of w."""
        return len(self.scale)

    def __call__(self, phi: Any) -> Any:
        return self._turn(phi * self.scale)

    def coefficients(self, w: Any) -> Any:
        return self.scale[:, None] * self._turn(w.T).T

    def quadratic(self, w: Any) -> Any:
        return (self.penalty[:, None] * self.coefficients(w) ** 2).sum(axis=0)

    def _turn(self, rows):
        return rows + ((rows @ self.directions) * (self.gain - 1)) @ self.directions.T


class Plain(eqx.Module):
    """Features as they are: nothing is multiplied, so that m translates at m draws are not copied
    for the sake of a map that does nothing."""

    penalty: Any  # (P,)

    @property
    def size(self) -> int:
        """The size P of w."""
        return len(self.penalty)

    def __call__(self, phi: Any) -> Any:
        return phi

    def coefficients(self, w: Any) -> Any:
        return w

    def quadratic(self, w: Any) -> Any:
        return (self.penalty[:, None] * w**2).sum(axis=0)


Basis = Dense | LowRank | Plain


def whiten(
    phi: np.ndarray, weights: np.ndarray, penalty: np.ndarray, constant: bool, damping: float
) -> Basis:
    """Return a basis in which the weighted second moment of features plus the penalty is about the
    identity."""
    rows = phi if constant else phi - weights @ phi / weights.sum()
    rows = rows * np.sqrt(weights)[:, None]
    count, size = rows.shape
    moment = np.sum(rows**2, axis=0) + penalty
    scale = np.where(moment > 0, 1 / np.sqrt(np.where(moment > 0, moment, 1.0)), 0.0)
    rows = rows * scale
    if size > MOST_DENSE:
        return _low_rank(rows, scale, penalty)
    gram = rows.T @ rows
    gram[np.diag_indices(size)] += penalty * scale**2 + damping * (scale > 0)
    # with one draw a feature less than a fit needs, it is shrunk to its diagonal: shrinking before
    # left g further from the exact one
    if size * (DRAWS_PER_TERM - 1) > count:
        amount = min(0.5, size / count)
        gram *= 1 - amount
        gram[np.diag_indices(size)] += amount * (scale > 0)
    factor, info = scipy.linalg.lapack.dpotrf(gram, lower=0)
    if info == 0 and factor.diagonal().min() ** 2 > SINGULAR:
        return Dense(scale[:, None] * triangular_inverse(factor), np.zeros(size))
    # All diagonal entries are one: a slope far below what matters keeps rounding from deciding the
    # order
    gram[np.diag_indices(size)] *= 1 + 1e-6 * np.arange(size, 0, -1) / size
    triangle, pivots = pivoted_cholesky(gram, ROUNDING)
    matrix = np.zeros((size, len(pivots)))
    matrix[pivots] = triangular_inverse(triangle)
    return Dense(scale[:, None] * matrix, np.zeros(len(pivots)))


def _low_rank(rows: np.ndarray, scale: np.ndarray, penalty: np.ndarray) -> LowRank:
    """Return leading directions of rowsᵀrows, by the smaller Gram of a thousand of its rows."""
    rows = rows[:MOST_DENSE] * np.sqrt(len(rows) / min(len(rows), MOST_DENSE))
    values, left = scipy.linalg.eigh(rows @ rows.T)
    keep = slice(max(len(values) - MOST_DENSE // 8, 1), None)
    floor, values, left = max(values[keep.start - 1], 1.0), values[keep], left[:, keep]
    use = values > floor
    values, left = values[use], left[:, use]
    directions = rows.T @ (left / np.sqrt(values))
    return LowRank(scale / np.sqrt(floor), directions, np.sqrt(floor / values), penalty)


def with_penalty(basis: Dense, penalty: np.ndarray, turned: bool) -> Dense:
    """Return the basis with its penalty, `turned` to make that diagonal."""
    inner = basis.matrix.T @ (penalty[:, None] * basis.matrix)
    if not turned:
        return Dense(basis.matrix, inner)
    values, vectors = scipy.linalg.eigh(inner, check_finite=False)
    return Dense(basis.matrix @ vectors, np.maximum(values, 0.0))


def largest_eigenvalue(psi: np.ndarray, weights: np.ndarray, basis: Basis, constant: bool) -> float:
    """Return the largest eigenvalue of Σ p ψψᵀ + penalty by a few power iterations, from above."""
    psi = psi if constant else psi - weights @ psi / weights.sum()
    if not psi.shape[1]:
        return 1.0
    penalty = basis.penalty * basis.scale**2 if isinstance(basis, LowRank) else basis.penalty
    penalise = (lambda v: penalty @ v) if penalty.ndim == 2 else (lambda v: penalty * v)
    vector = psi.T @ (weights * np.sum(psi**2, axis=1)) + 1 / np.sqrt(psi.shape[1])
    for _ in range(12):
        vector = vector / np.linalg.norm(vector)
        vector = psi.T @ (weights * (psi @ vector)) + penalise(vector)
    return 1.1 * float(np.linalg.norm(vector))


def by_leverage(leverage: np.ndarray, probabilities: np.ndarray, share: float = 0.5) -> np.ndarray:
    """Return probabilities in proportion to leverage, mixed with the draws' own."""
    by_leverage = probabilities * leverage
    total = by_leverage.sum()
    return share * by_leverage / total + (1 - share) * probabilities if total > 0 else probabilities


def inclusion(preference: np.ndarray, count: int) -> np.ndarray:
    """Return probabilities of inclusion in proportion to preference, none above one, that sum to
    `count`."""
    out = np.minimum(1.0, count * preference / preference.sum())
    for _ in range(20):
        sure = out >= 1
        rest = count - sure.sum()
        if rest <= 0 or sure.all():
            break
        out = np.where(sure, 1.0, np.minimum(1.0, rest * preference / preference[~sure].sum()))
    return out


def systematic(probability: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw rows without repetition with these probabilities of inclusion."""
    order = rng.permutation(len(probability))
    ladder = np.cumsum(probability[order]) + rng.uniform()
    steps = np.floor(ladder)
    return order[steps > np.concatenate([[0.0], steps[:-1]])]
