"""Random Gaussian mixtures, and Gaussian processes drawn jointly with their integrals against
them."""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Float64
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.special import logsumexp


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Σ_l ρ_l N(μ_l, Σ_l) in d dimensions."""

    weights: Float64[np.ndarray, " l"]
    means: Float64[np.ndarray, "l d"]
    covariances: Float64[np.ndarray, "l d d"]

    @staticmethod
    def random(rng: np.random.Generator, d: int, components: int) -> Mixture:
        """As in the paper: means N(0, 3 I), covariances AᵀA with A uniform, weights uniform before
        they are normalised."""
        means = rng.normal(scale=np.sqrt(3.0), size=(components, d))
        roots = rng.uniform(size=(components, d, d))
        weights = rng.uniform(size=components)
        return Mixture(weights / weights.sum(), means, np.swapaxes(roots, 1, 2) @ roots)

    def sample(self, rng: np.random.Generator, n: int) -> Float64[np.ndarray, "n d"]:
        factors = np.linalg.cholesky(self.covariances)
        label = rng.choice(len(self.weights), size=n, p=self.weights)
        return self.means[label] + np.einsum(
            "nij,nj->ni", factors[label], rng.normal(size=(n, self.means.shape[1]))
        )

    def scores(self, x: Float64[np.ndarray, "n d"]) -> Float64[np.ndarray, "n d"]:
        log_parts, pulls = [], []
        for weight, mean, covariance in zip(
            self.weights, self.means, self.covariances, strict=True
        ):
            factor = cholesky(covariance, lower=True)
            log_parts.append(np.log(weight) + _log_normal(x - mean, factor))
            pulls.append(-cho_solve((factor, True), (x - mean).T).T)
        share = np.exp(np.array(log_parts) - logsumexp(log_parts, axis=0))
        return np.einsum("ln,lnd->nd", share, np.array(pulls))


@dataclasses.dataclass(frozen=True)
class SquaredExponential:
    """c(x, y) = λ² exp(−‖x − y‖² / 2σ²), and its integrals against a mixture."""

    amplitude: float = 1.0
    scale: float = 1.0

    def matrix(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        squares = ((x[:, None] - y) ** 2).sum(axis=-1)
        return self.amplitude**2 * np.exp(-squares / (2 * self.scale**2))

    def integrated(self, x: np.ndarray, mixture: Mixture) -> np.ndarray:
        """Π[c(x, ·)] (n,)."""
        d = x.shape[1]
        spread = self.scale**2 * np.eye(d)
        parts = [
            weight * np.exp(_log_normal(x - mean, cholesky(covariance + spread, lower=True)))
            for weight, mean, covariance in zip(
                mixture.weights, mixture.means, mixture.covariances, strict=True
            )
        ]
        return self._volume(d) * np.sum(parts, axis=0)

    def twice_integrated(self, mixture: Mixture) -> float:
        """ΠΠ[c]."""
        d = mixture.means.shape[1]
        spread = self.scale**2 * np.eye(d)
        total = 0.0
        for weight, mean, covariance in zip(
            mixture.weights, mixture.means, mixture.covariances, strict=True
        ):
            for other, place, width in zip(
                mixture.weights, mixture.means, mixture.covariances, strict=True
            ):
                factor = cholesky(covariance + width + spread, lower=True)
                total += (
                    weight * other * float(np.exp(_log_normal((mean - place)[None], factor)[0]))
                )
        return self._volume(d) * total

    def draw(
        self, rng: np.random.Generator, x: np.ndarray, mixture: Mixture
    ) -> tuple[np.ndarray, float]:
        """f at x (n,) and Π[f], jointly, through the square root of their covariance."""
        n = len(x)
        joint = np.empty((n + 1, n + 1))
        joint[:n, :n] = self.matrix(x, x)
        joint[n, :n] = joint[:n, n] = self.integrated(x, mixture)
        joint[n, n] = self.twice_integrated(mixture)
        values, vectors = np.linalg.eigh(joint)
        drawn = vectors @ (np.sqrt(np.maximum(values, 0.0)) * rng.normal(size=n + 1))
        return drawn[:n], float(drawn[n])

    def _volume(self, d: int) -> float:
        return self.amplitude**2 * (2 * np.pi * self.scale**2) ** (d / 2)


def _log_normal(centred: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """log N(0, LLᵀ) at the rows of `centred`."""
    white = solve_triangular(factor, centred.T, lower=True)
    d = len(factor)
    return (
        -0.5 * np.sum(white**2, axis=0)
        - np.log(factor.diagonal()).sum()
        - 0.5 * d * np.log(2 * np.pi)
    )
