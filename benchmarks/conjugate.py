"""Linear regressions with conjugate priors: exact independent draws, and log Z in closed form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.special import gammaln

_TREES = Path(__file__).parent.parent / "docs" / "data" / "radiata.csv"


class Regression:
    """y ~ N(X β, 1/τ), β ~ N(m, 1/(τ p)), τ ~ Gamma(a, rate b), of n data and k coefficients: X
    (n, k), y (n,), m and p (k,). Given τ, the posterior of β is N(centre, 1/(τ after)), and that of
    τ is Gamma(now, left)."""

    def __init__(
        self,
        design: np.ndarray,
        y: np.ndarray,
        mean: np.ndarray,
        precision: np.ndarray,
        shape: float,
        rate: float,
    ):
        self.design, self.y, self.mean, self.precision = design, y, mean, precision
        self.shape, self.rate, n = shape, rate, len(y)
        self.after = design.T @ design + np.diag(precision)
        self.centre = np.linalg.solve(self.after, design.T @ y + precision * mean)
        squares = y @ y + precision @ mean**2 - self.centre @ self.after @ self.centre
        self.now, self.left = shape + n / 2, rate + squares / 2
        volume = np.log(precision).sum() - np.linalg.slogdet(self.after)[1]
        self.log_z = float(
            -n / 2 * np.log(2 * np.pi)
            + volume / 2
            + shape * np.log(rate)
            - self.now * np.log(self.left)
            + gammaln(self.now)
            - gammaln(shape)
        )

    def draws(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Exact and independent, of β and log τ: (n, k + 1)."""
        tau = rng.gamma(self.now, 1 / self.left, n)
        root = np.linalg.cholesky(np.linalg.inv(self.after))
        noise = rng.normal(size=(n, len(self.centre))) @ root.T
        return np.column_stack([self.centre + noise / np.sqrt(tau)[:, None], np.log(tau)])

    def log_density(self, x: Any) -> Any:
        """Of β and log τ, in one array (k + 1,)."""
        beta, log_tau = x[:-1], x[-1]
        tau, away = jnp.exp(log_tau), self.y - self.design @ beta
        squares = away @ away + self.precision @ (beta - self.mean) ** 2
        count = len(self.y) + len(self.mean)
        return (
            count / 2 * (log_tau - np.log(2 * np.pi))
            + np.log(self.precision).sum() / 2
            - tau * squares / 2
            + self.shape * (np.log(self.rate) + log_tau)
            - self.rate * tau
            - gammaln(self.shape)
        )


def pines(column: str) -> Regression:
    """Strength of 42 radiata pines by their `density`, or by the `adjusted_density`."""
    trees = np.genfromtxt(_TREES, delimiter=",", names=True)
    x = trees[column] - trees[column].mean()
    design = np.stack([np.ones(len(x)), x], axis=1)
    prior = np.array([3000.0, 185.0]), np.array([0.06, 6.0])
    return Regression(design, trees["strength"], *prior, 3.0, 2 * 300.0**2)


def simulated(k: int) -> Regression:
    """k coefficients, 3 k data."""
    rng = np.random.default_rng(k)
    design = rng.normal(size=(3 * k, k))
    y = design @ rng.normal(size=k) + rng.normal(size=3 * k)
    return Regression(design, y, np.zeros(k), np.ones(k), 3.0, 3.0)
