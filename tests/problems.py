"""Targets with known scores and means, for tests that need draws."""

from typing import Any

import numpy as np

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
    x = np.empty((n, d))
    x[0] = rng.normal(size=d)
    for i in range(1, n):
        x[i] = rho * x[i - 1] + noise[i]
    return x


def metropolis(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Random-walk Metropolis on N(0, I) in d = 2: about half of the states repeat the one before."""
    rng = np.random.default_rng(seed)
    x = np.zeros((n, 2))
    for i in range(1, n):
        proposal = x[i - 1] + 1.5 * rng.normal(size=2)
        accept = np.log(rng.uniform()) < 0.5 * (x[i - 1] @ x[i - 1] - proposal @ proposal)
        x[i] = proposal if accept else x[i - 1]
    return x, -x
