"""Problems with known answers: Genz functions, Gaussian-process integrands against Gaussian
mixtures, and a bent Gaussian."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import erf, logsumexp, ndtr

GENZ_NAMES = (
    "continuous",
    "corner peak",
    "discontinuous",
    "Gaussian peak",
    "oscillatory",
    "product peak",
)
# of the six functions in d = 1 with a = 1, u = 1/2
GENZ_MEANS = np.array(
    [
        2 - 2 * np.exp(-0.5),
        0.5,
        np.exp(0.5) - 1,
        np.sqrt(np.pi) * erf(0.5),
        np.sin(np.pi + 1) - np.sin(np.pi),
        2 * np.arctan(0.5),
    ]
)


def genz(x: np.ndarray) -> np.ndarray:
    """The six Genz functions in d = 1, a = 1, u = 1/2, composed with the normal distribution
    function: (n, 1) → (n, 6)."""
    y = ndtr(x[:, 0])
    return np.stack(
        [
            np.exp(-np.abs(y - 0.5)),
            (1 + y) ** -2,
            np.where(y > 0.5, 0.0, np.exp(y)),
            np.exp(-((y - 0.5) ** 2)),
            np.cos(np.pi + y),
            1 / (1 + (y - 0.5) ** 2),
        ],
        axis=1,
    )


def sums(x: np.ndarray) -> np.ndarray:
    """Σ x_i, which quadratic control variates fit exactly, and Σ sin x_i, which they do not; both
    have mean zero."""
    return np.stack([x.sum(axis=1), np.sin(x).sum(axis=1)], axis=1)


class Mixture:
    """Three Gaussians with random means (variance 3), covariances AᵀA with A uniform, and random
    weights, as in the paper."""

    def __init__(self, rng: np.random.Generator, d: int):
        self.means = rng.normal(size=(3, d)) * np.sqrt(3)
        roots = rng.uniform(size=(3, d, d))
        self.covariances = np.einsum("lij,lik->ljk", roots, roots)
        weights = rng.uniform(size=3)
        self.weights = weights / weights.sum()

    def draw(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Draws and their scores, (n, d)."""
        factors = np.linalg.cholesky(self.covariances)
        which = rng.choice(3, n, p=self.weights)
        x = self.means[which] + np.einsum(
            "nij,nj->ni", factors[which], rng.normal(size=(n, self.means.shape[1]))
        )
        logs, scores = [], []
        for weight, mean, factor in zip(self.weights, self.means, factors, strict=True):
            z = np.linalg.solve(factor, (x - mean).T)
            logs.append(
                np.log(weight) - 0.5 * np.sum(z**2, axis=0) - np.sum(np.log(np.diagonal(factor)))
            )
            scores.append(-np.linalg.solve(factor.T, z).T)
        share = np.exp(logs - logsumexp(logs, axis=0))
        return x, np.einsum("ln,lnd->nd", share, np.stack(scores))


def gaussian_process(
    rng: np.random.Generator, target: Mixture, x: np.ndarray, terms: int = 2000
) -> tuple[np.ndarray, float]:
    """A realisation at x of a process with squared-exponential covariance, length-scale the median
    distance, and its mean.

    By random cosines, so that any number of draws is cheap, and the mean under each Gaussian is in
    closed form.
    """
    some = x[:300]
    distances = np.sum((some[:, None] - some) ** 2, axis=2)
    scale = np.sqrt(np.median(distances[np.triu_indices(len(some), 1)]))
    frequencies = rng.normal(size=(terms, x.shape[1])) / scale
    phases, heights = rng.uniform(0, 2 * np.pi, terms), rng.normal(size=terms) * np.sqrt(2 / terms)
    mean = 0.0
    for weight, centre, covariance in zip(
        target.weights, target.means, target.covariances, strict=True
    ):
        damping = np.exp(-0.5 * np.einsum("ki,ij,kj->k", frequencies, covariance, frequencies))
        mean += weight * (np.cos(frequencies @ centre + phases) * damping) @ heights
    return np.cos(x @ frequencies.T + phases) @ heights, float(mean)


def banana(n: int, d: int = 10, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draws and scores of a bent Gaussian, and four integrands of which no polynomial is one."""
    z = np.random.default_rng(seed).normal(size=(n, d))
    x, s = z.copy(), -z
    x[:, 1] += 0.4 * (z[:, 0] ** 2 - 1)
    s[:, 0] += 0.8 * z[:, 0] * z[:, 1]
    return x, s, integrands(x)


def banana_density(x: Any) -> Any:
    """Its logarithm, at one point, without its constant."""
    return -0.5 * (x[0] ** 2 + (x[1] - 0.4 * (x[0] ** 2 - 1)) ** 2 + x[2:] @ x[2:])


def integrands(x: np.ndarray) -> np.ndarray:
    """(n, 4)."""
    values = [
        np.sin(x[:, 0]) + x[:, 1] ** 2,
        np.exp(-np.sum(x**2, axis=1) / (2 * x.shape[1])),
        np.cos(x.sum(axis=1) / 3),
        np.log1p(np.exp(x[:, 2] + x[:, 3])),
    ]
    return np.stack(values, axis=1)


def banana_means(d: int = 10) -> np.ndarray:
    """Exact means of the four, by Gauss–Hermite quadrature in the two bent coordinates and closed
    forms in the others."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    weights = weights / weights.sum()
    first, second = np.meshgrid(nodes, nodes, indexing="ij")
    bent, chance = second + 0.4 * (first**2 - 1), np.outer(weights, weights)
    peak = np.sum(chance * np.exp(-(first**2 + bent**2) / (2 * d))) * (1 + 1 / d) ** (-(d - 2) / 2)
    wave = np.sum(chance * np.cos((first + bent) / 3)) * np.exp(-(d - 2) / 18)
    soft = weights @ np.log1p(np.exp(np.sqrt(2) * nodes))
    return np.array([1.32, peak, wave, soft])
