"""Targets with known scores and means, for tests that need draws."""

from typing import Any

import numpy as np
from scipy.signal import lfilter

import zerovar as zv


def quadratic(*arguments: Any, **options: Any) -> zv.Estimate:
    """`estimate` with one small family, for tests of everything but the choice."""
    return zv.estimate(*arguments, family=zv.Polynomial(2), **options)


def gaussian(n: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Independent draws and scores of a correlated Gaussian with mean (1, 2, …, d)."""
    rng = np.random.default_rng(seed)
    factor = np.tril(rng.normal(size=(d, d))) / d + np.eye(d)
    z = rng.normal(size=(n, d))
    return np.arange(1, d + 1) + z @ factor.T, -np.linalg.solve(factor.T, z.T).T


def ar1(rng: np.random.Generator, n: int, d: int, rho: float) -> np.ndarray:
    """A stationary chain with marginal N(0, I): each draw is rho times the last plus noise."""
    noise = rng.normal(size=(n, d)) * np.sqrt(1 - rho**2)
    noise[0] = rng.normal(size=d)
    return lfilter([1.0], [1.0, -rho], noise, axis=0)


def metropolis(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Random-walk Metropolis on N(0, I) in d = 2: about half of the states repeat the one
    before."""
    rng = np.random.default_rng(seed)
    x = np.zeros((n, 2))
    for i in range(1, n):
        proposal = x[i - 1] + 1.5 * rng.normal(size=2)
        accept = np.log(rng.uniform()) < 0.5 * (x[i - 1] @ x[i - 1] - proposal @ proposal)
        x[i] = proposal if accept else x[i - 1]
    return x, -x


# Eight schools: observed effects of coaching and their standard errors
SCHOOLS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12]), np.array([15.0, 10, 16, 11, 9, 11, 10, 18])


def eight_schools_means() -> np.ndarray:
    """Exact posterior means of μ, τ, θ₁ … θ₈ by one-dimensional quadrature over log τ (μ and θ
    integrate in closed form)."""
    y, sigma = SCHOOLS
    log_tau = np.linspace(-20, 8, 20001)[:, None]
    tau = np.exp(log_tau)
    variance = sigma**2 + tau**2
    precision = np.sum(1 / variance, axis=1) + 1 / 25
    mu = np.sum(y / variance, axis=1) / precision
    log_density = (
        -0.5 * np.sum(np.log(variance) + y**2 / variance, axis=1)
        + 0.5 * mu**2 * precision
        - 0.5 * np.log(precision)
        - np.log1p((tau[:, 0] / 5) ** 2)
        + log_tau[:, 0]
    )
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    shrink = sigma**2 / variance
    theta = (1 - shrink) * y + shrink * mu[:, None]
    return np.concatenate([[weight @ mu, weight @ tau[:, 0]], weight @ theta])


def eight_schools_log_density(x: np.ndarray) -> np.ndarray:
    """Of (μ, log τ, z₁ … z₈), θ = μ + τ z, up to a constant; x is (…, 10)."""
    y, sigma = SCHOOLS
    mu, log_tau, z = x[..., :1], x[..., 1:2], x[..., 2:]
    theta = mu + np.exp(log_tau) * z
    prior = (
        -0.5 * (mu[..., 0] / 5) ** 2
        - np.log1p((np.exp(log_tau[..., 0]) / 5) ** 2)
        + log_tau[..., 0]
    )
    return prior - 0.5 * np.sum(z**2 + ((y - theta) / sigma) ** 2, axis=-1)
