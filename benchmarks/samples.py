"""Samples for `zv.check`: right ones, ones with a mistake, and ones for events of known
probability."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.signal import lfilter
from scipy.special import ndtr, ndtri

Made = tuple[np.ndarray, ...]  # what a Sample is made of: draws, scores, log weights
Maker = Callable[[np.random.Generator], Made]


def normal(
    rng: np.random.Generator, chains: int, draws: int, d: int, rho: float = 0.0
) -> np.ndarray:
    """Stationary AR(1) chains (chain, draw, d) of N(0, I)."""
    noise = rng.normal(size=(chains, draws, d)) * np.sqrt(1 - rho**2)
    noise[:, 0] = rng.normal(size=(chains, d))
    return lfilter([1.0], [1.0, -rho], noise, axis=1)


def gaussian(chains: int, draws: int, d: int, rho: float = 0.0, correlated: float = 0.0) -> Maker:
    def make(rng: np.random.Generator) -> Made:
        z = normal(rng, chains, draws, d, rho)
        factor = np.linalg.cholesky(np.eye(d) + correlated)
        return z @ factor.T, -z @ np.linalg.inv(factor)

    return make


def log_gamma(shape: float, chains: int = 4, draws: int = 1000, d: int = 3) -> Maker:
    """Logarithms of Gamma(shape): a left tail as heavy as e^(shape x)."""

    def make(rng: np.random.Generator) -> Made:
        g = rng.gamma(shape, size=(chains, draws, d))
        return np.log(g), shape - g

    return make


def student(rng: np.random.Generator) -> Made:
    x = rng.standard_t(5, size=(4, 1000, 5))
    return x, -6 * x / (5 + x**2)


def logit_uniform(rng: np.random.Generator) -> Made:
    u = rng.random((4, 1000, 3))
    return np.log(u / (1 - u)), 1 - 2 * u


def banana(rng: np.random.Generator) -> Made:
    """x₁ given x₀ is ten times narrower than by itself."""
    x0, noise = rng.normal(size=(2, 4, 1000))
    pull = 10 * noise
    return np.stack([x0, 0.5 * (x0**2 - 1) + 0.1 * noise], axis=2), np.stack(
        [x0 * (pull - 1), -pull], axis=2
    )


def metropolis(rng: np.random.Generator) -> Made:
    """Random-walk Metropolis: about half of the states repeat the one before."""
    x = np.empty((4, 1000, 2))
    state = rng.normal(size=(4, 2))
    steps, levels = 1.5 * rng.normal(size=(1000, 4, 2)), np.log(rng.random((1000, 4)))
    for i in range(1000):
        proposal = state + steps[i]
        accepted = levels[i] < 0.5 * np.sum(state**2 - proposal**2, axis=1)
        state = np.where(accepted[:, None], proposal, state)
        x[:, i] = state
    return x, -x


def resampled_draws(rng: np.random.Generator) -> Made:
    """1000 draws, drawn again with replacement."""
    x = rng.normal(size=(1000, 3))[rng.integers(1000, size=4000)].reshape(4, 1000, 3)
    return x, -x


def wider_normal(draws: int, d: int = 3) -> Maker:
    """N(0, 1.5²) weighted to N(0, 1): more than half of the draws count."""

    def make(rng: np.random.Generator) -> Made:
        x = rng.normal(size=(draws, d))
        x[:, 0] *= 1.5
        return x, -x, -0.5 * x[:, 0] ** 2 + 0.5 * (x[:, 0] / 1.5) ** 2

    return make


def shifted_normal(draws: int, shift: float) -> Maker:
    """N(shift, 1) weighted to N(0, 1): e^(−shift²) of the draws count, half of them at 0.83."""

    def make(rng: np.random.Generator) -> Made:
        x = rng.normal(size=(draws, 2))
        x[:, 0] += shift
        return x, -x, -shift * x[:, 0]

    return make


def hierarchy(groups: int) -> Maker:
    """θ_j ~ N(μ, τ²), τ half normal, in centred coordinates (μ, log τ, θ): scores of the effects
    have no mean."""

    def make(rng: np.random.Generator) -> Made:
        mu, tau = rng.normal(size=(4, 1000, 1)), np.abs(rng.normal(size=(4, 1000, 1)))
        noise = rng.normal(size=(4, 1000, groups))
        pull = noise / tau
        of_mu = -mu + pull.sum(axis=2, keepdims=True)
        of_tau = 1 - tau**2 + np.sum(noise**2 - 1, axis=2, keepdims=True)
        return np.concatenate([mu, np.log(tau), mu + tau * noise], axis=2), np.concatenate(
            [of_mu, of_tau, -pull], axis=2
        )

    return make


RIGHT: dict[str, Maker] = {
    **{f"independent, d = {d}": gaussian(4, 1000, d) for d in (1, 10, 100, 300)},
    "independent, d = 10, 400 draws": gaussian(1, 400, 10),
    "independent, correlated, d = 30, 4 × 250": gaussian(4, 250, 30, correlated=4.0),
    **{
        f"AR({rho:g}), d = 5": gaussian(4, 1000, 5, rho, correlated=4.0) for rho in (0.5, 0.9, -0.9)
    },
    **{f"AR({rho:g}), d = 3, 400 draws": gaussian(1, 400, 3, rho) for rho in (0.9, -0.9)},
    "AR(0.9), d = 100": gaussian(4, 1000, 100, 0.9),
    "log-gamma, shape 1": log_gamma(1.0),
    "log-gamma, shape 0.3": log_gamma(0.3),
    "Student t₅": student,
    "logit of uniforms": logit_uniform,
    "normal, 1000 draws": gaussian(1, 1000, 1),
    "banana": banana,
    "repeated states (Metropolis)": metropolis,
    "resampled": resampled_draws,
    "bounded weights, 400 draws": wider_normal(400),
    "bounded weights, 4000 draws": wider_normal(4000),
    "log-normal weights, 400 draws": shifted_normal(400, 0.83),
    "log-normal weights, 4000 draws": shifted_normal(4000, 0.83),
    "centred hierarchy, 8 groups": hierarchy(8),
    "centred hierarchy, 40 groups": hierarchy(40),
}


def swapped_axes(rng: np.random.Generator) -> Made:
    x = normal(rng, 4, 1000, 5, 0.8).swapaxes(0, 1)
    return x, -x


def interleaved_walkers(rng: np.random.Generator) -> Made:
    x = normal(rng, 20, 200, 5, 0.8).swapaxes(0, 1).reshape(-1, 5)
    return x, -x


def repeated_chain(rng: np.random.Generator) -> Made:
    x = normal(rng, 4, 1000, 5, 0.8)[[0, 1, 2, 1]]
    return x, -x


def one_bad_chain(factor: float, draws: int = 1000) -> Maker:
    def make(rng: np.random.Generator) -> Made:
        x, s = gaussian(4, draws, 5)(rng)
        s[rng.integers(4)] *= factor
        return x, s

    return make


def burn_in(start: float, rho: float) -> Maker:
    def make(rng: np.random.Generator) -> Made:
        x = normal(rng, 4, 1000, 5, rho) + start * rho ** np.arange(1000)[:, None]
        return x, -x

    return make


def outlying_scores(count: int, size: float) -> Maker:
    def make(rng: np.random.Generator) -> Made:
        x, s = gaussian(4, 1000, 5)(rng)
        s.reshape(-1, 5)[rng.choice(4000, count, replace=False), rng.integers(5)] = size
        return x, s

    return make


def cut_normal(at: float, draws: int = 1000, d: int = 1) -> Maker:
    """N(0, I) of which no draw lies above a point of the first coordinate: its scores are right."""

    def make(rng: np.random.Generator) -> Made:
        x = rng.normal(size=(draws, d))
        x[:, 0] = ndtri(ndtr(at) * rng.random(draws))
        return x, -x

    return make


def missing_jacobian(rng: np.random.Generator) -> Made:
    x, s = log_gamma(4.0, d=5)(rng)
    return x, s - 1


def constrained_derivatives(rng: np.random.Generator) -> Made:
    """Derivatives with respect to τ at draws of log τ, in one coordinate."""
    x, s = log_gamma(4.0, d=5)(rng)
    s[..., 2] = (s[..., 2] - 1) / np.exp(x[..., 2])
    return x, s


def one_scaled_coordinate(factor: float, d: int) -> Maker:
    def make(rng: np.random.Generator) -> Made:
        x, s = gaussian(4, 1000, d, correlated=4.0)(rng)
        s[..., rng.integers(d)] *= factor
        return x, s

    return make


def changed_scores(how: Callable[[np.ndarray], np.ndarray]) -> Maker:
    def make(rng: np.random.Generator) -> Made:
        x, s = gaussian(4, 1000, 5, correlated=4.0)(rng)
        return x, how(s)

    return make


# the mistake, and words of which one must be said
WRONG: dict[str, tuple[Maker, tuple[str, ...]]] = {
    "axes swapped, AR(0.8)": (swapped_axes, ("axes look swapped",)),
    "20 walkers interleaved, AR(0.8)": (interleaved_walkers, ("interleaved",)),
    "the same chain twice": (repeated_chain, ("are the same draws",)),
    "one chain in four flipped": (one_bad_chain(-1), ("Only chain",)),
    "one chain in four doubled": (one_bad_chain(2), ("Only chain",)),
    **{
        f"burn-in from {start:g} deviations, AR({rho:g})": (burn_in(start, rho), ("burn-in",))
        for start in (10, 30)
        for rho in (0.5, 0.9)
    },
    "five scores of 10⁶": (outlying_scores(5, 1e6), ("far beyond all others",)),
    "one score of 10¹²": (outlying_scores(1, 1e12), ("far beyond all others",)),
    "Jacobian missing everywhere": (missing_jacobian, ("every coordinate the scores are off",)),
    "derivatives of a constrained parameter": (constrained_derivatives, ("constrained",)),
    "1.2 times too large in one coordinate of 10": (
        one_scaled_coordinate(1.2, 10),
        ("times too large",),
    ),
    "1.2 times too large in one coordinate of 100": (
        one_scaled_coordinate(1.2, 100),
        ("times too large",),
    ),
    "all flipped": (changed_scores(np.negative), ("sign is flipped",)),
    "all 1.2 times too large": (changed_scores(lambda s: 1.2 * s), ("times too large",)),
    "rows shifted by one": (changed_scores(lambda s: np.roll(s, 1, axis=1)), ("misaligned",)),
    "cut at 2, 1000 draws": (cut_normal(2.0), ("no draw lies above",)),
    "cut at 2, d = 10": (cut_normal(2.0, d=10), ("no draw lies above",)),
    "cut at 0.5, 4000 draws": (cut_normal(0.5, 4000, 3), ("no draw lies above",)),
    "weights of N(2, 1) to N(0, 1)": (shifted_normal(4000, 2.0), ("Pareto k",)),
}


def four_of(file: Path) -> Maker:
    """Four of a posterior's chains."""
    with np.load(file) as arrays:
        x, s = arrays["x"], arrays["score"]

    def make(rng: np.random.Generator) -> Made:
        some = rng.choice(len(x), min(4, len(x)), replace=False)
        return x[some], s[some]

    return make


EVENT_CASES: dict[str, Maker] = {
    "400 independent draws": gaussian(1, 400, 2),
    "4 × 250, AR(0.8)": gaussian(4, 250, 2, 0.8),
    "2000 independent draws": gaussian(1, 2000, 2),
    "400 draws, half of them by weight": shifted_normal(400, 0.83),
}
