"""Integrands whose means are known: Genz's six functions on the unit cube, and polynomials under a
Gaussian."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int
from scipy.integrate import quad
from scipy.special import erf, factorial2, gammaln
from scipy.stats import norm

Vector = Float64[np.ndarray, " d"]
Points = Float64[np.ndarray, "n d"]


class Genz(NamedTuple):
    """h on [0, 1]^d and its integral, with parameters a (difficulty) and u (place), both (d,)."""

    value: Callable[[Points, Vector, Vector], Float64[np.ndarray, " n"]]
    integral: Callable[[Vector, Vector], float]

    def under_normal(self, x: Points, a: Vector, u: Vector) -> Float64[np.ndarray, " n"]:
        """h(Φ(x)), whose mean under N(0, I) is the integral of h."""
        return self.value(norm.cdf(x), a, u)


def _corner_integral(a: Vector, u: Vector) -> float:
    # (1 + s)^{-d-1} = ∫ t^d e^{-t(1+s)} dt / d!, so the integral over x factorises under that over
    # t: the sum over all 2^d corners, which cancels to nothing beyond d = 10 or so, never appears
    log_scale = -gammaln(len(a) + 1) - np.log(a).sum()
    return quad(
        lambda t: np.exp(log_scale - t + np.log(-np.expm1(-a * t)).sum()),
        0,
        np.inf,
        epsabs=0,
        epsrel=1e-13,
        limit=200,
    )[0]


def _oscillatory_integral(a: Vector, u: Vector) -> float:
    return float(np.real(np.exp(2j * np.pi * u[0]) * np.prod((np.exp(1j * a) - 1) / (1j * a))))


GENZ = {
    "Continuous": Genz(
        lambda y, a, u: np.exp(-np.abs(y - u) @ a),
        lambda a, u: float(np.prod((2 - np.exp(a * (u - 1)) - np.exp(-a * u)) / a)),
    ),
    "Corner Peak": Genz(lambda y, a, u: (1 + y @ a) ** -(len(a) + 1.0), _corner_integral),
    "Discontinuous": Genz(
        lambda y, a, u: np.where((y > u).any(axis=1), 0.0, np.exp(y @ a)),
        lambda a, u: float(np.prod(np.expm1(a * np.minimum(1.0, u)) / a)),
    ),
    "Gaussian Peak": Genz(
        lambda y, a, u: np.exp(-((y - u) ** 2) @ a**2),
        lambda a, u: float(np.prod(np.sqrt(np.pi) / (2 * a) * (erf(a * (1 - u)) - erf(-a * u)))),
    ),
    "Oscillatory": Genz(lambda y, a, u: np.cos(2 * np.pi * u[0] + y @ a), _oscillatory_integral),
    "Product Peak": Genz(
        lambda y, a, u: np.prod(1 / (a**-2.0 + (y - u) ** 2), axis=1),
        lambda a, u: float(np.prod(a * (np.arctan((1 - u) * a) - np.arctan(-u * a)))),
    ),
}
SMOOTH = ("Corner Peak", "Gaussian Peak", "Oscillatory", "Product Peak")


class Polynomial(NamedTuple):
    """f(x) = Σ_j Π_i α_ji x_i^β_ji, with α and β (p, d)."""

    alpha: Float64[np.ndarray, "p d"]
    beta: Int[np.ndarray, "p d"]

    def __call__(self, x: Points) -> Float64[np.ndarray, " n"]:
        return np.prod(self.alpha * x[:, None, :] ** self.beta, axis=2).sum(axis=1)

    def mean(self, sigma: float = 1.0) -> float:
        """Under N(0, σ² I)."""
        even = self.beta % 2 == 0
        moments = np.where(even, sigma**self.beta * np.maximum(factorial2(self.beta - 1), 1.0), 0.0)
        return float(np.prod(self.alpha * moments, axis=1).sum())


def sum_of_coordinates(d: int) -> Polynomial:
    """x₁ + … + x_d."""
    return Polynomial(np.ones((d, d)), np.eye(d, dtype=int))


def sum_of_complements(d: int) -> Polynomial:
    """Σ (1 − x_j), whose mean is d."""
    alpha = np.ones((2 * d, d))
    alpha[np.arange(d, 2 * d), np.arange(d)] = -1.0
    return Polynomial(alpha, np.concatenate([np.zeros((d, d), dtype=int), np.eye(d, dtype=int)]))
