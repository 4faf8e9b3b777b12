"""Markov chains of targets with known means, many replicates at once: what control variates meet in
practice."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Point = Float[Array, " d"]


@dataclasses.dataclass(frozen=True)
class Chains:
    """draws, scores (replicate, draw, d) and the share of proposals that were accepted."""

    draws: np.ndarray
    scores: np.ndarray
    accepted: float


def metropolis(
    log_density: Callable[[Point], Any],
    start: np.ndarray,
    draws: int,
    step: float,
    langevin: bool,
    seed: int,
    thin: int = 1,
    warm_up: int = 1000,
) -> Chains:
    """Random-walk Metropolis, or MALA, from each row of `start` (replicate, d); rejected proposals
    repeat the state. Every `thin`th draw is kept."""
    value_and_score = jax.value_and_grad(log_density)

    def move(state, key):
        x, value, score = state
        noise_key, accept_key = jax.random.split(key)
        drift = 0.5 * step**2 * score if langevin else 0.0
        proposal = x + drift + step * jax.random.normal(noise_key, x.shape, x.dtype)
        new_value, new_score = value_and_score(proposal)
        ratio = new_value - value
        if langevin:
            forward = jnp.sum((proposal - x - 0.5 * step**2 * score) ** 2)
            backward = jnp.sum((x - proposal - 0.5 * step**2 * new_score) ** 2)
            ratio = ratio + (forward - backward) / (2 * step**2)
        accept = jnp.log(jax.random.uniform(accept_key, dtype=x.dtype)) < ratio
        state = jax.tree.map(
            lambda a, b: jnp.where(accept, a, b), (proposal, new_value, new_score), state
        )
        return state, (state[0], state[2], accept)

    @jax.jit
    def chain(x, key):
        state = (x, *value_and_score(x))
        _, (points, scores, accepted) = jax.lax.scan(
            move, state, jax.random.split(key, warm_up + thin * draws)
        )
        kept = slice(warm_up + thin - 1, None, thin)
        return points[kept], scores[kept], accepted[warm_up:].mean()

    return _replicated(chain, start, seed)


def adaptive_metropolis(
    log_density: Callable[[Point], Any],
    start: np.ndarray,
    draws: int,
    seed: int,
    thin: int = 1,
    warm_up: int = 1000,
) -> Chains:
    """Random walks from each row of `start` (replicate, d) whose proposals have the covariance of
    all states so far, scaled for d dimensions (Haario, Saksman and Tamminen, 2001). Every `thin`th
    draw is kept."""
    d = start.shape[1]

    def move(state, key):
        x, value, mean, squares, count = state
        noise_key, accept_key = jax.random.split(key)
        factor = jnp.linalg.cholesky(2.38**2 / d * (squares / count + 1e-6 * jnp.eye(d)))
        proposal = x + factor @ jax.random.normal(noise_key, x.shape, x.dtype)
        new_value = log_density(proposal)
        accept = jnp.log(jax.random.uniform(accept_key, dtype=x.dtype)) < new_value - value
        x, value = jnp.where(accept, proposal, x), jnp.where(accept, new_value, value)
        away = x - mean
        mean = mean + away / (count + 1)
        return (x, value, mean, squares + jnp.outer(away, x - mean), count + 1), (x, accept)

    @jax.jit
    def chain(x, key):
        state = (x, log_density(x), x, _BEFORE * jnp.eye(d), float(_BEFORE))
        _, (points, accepted) = jax.lax.scan(
            move, state, jax.random.split(key, warm_up + thin * draws)
        )
        kept = points[warm_up + thin - 1 :: thin]
        return kept, jax.lax.map(jax.grad(log_density), kept), accepted[warm_up:].mean()

    return _replicated(chain, start, seed)


def _replicated(chain: Callable[[Any, Any], Any], start: np.ndarray, seed: int) -> Chains:
    """A chain, its points, scores and share accepted as a function of start and key, from each row
    of `start`."""
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(seed), len(start))
        points, scores, accepted = jax.vmap(chain)(jnp.asarray(start), keys)
        return Chains(np.asarray(points), np.asarray(scores), float(accepted.mean()))


# states of unit covariance that an adaptive chain is told of before it has states of its own
_BEFORE = 10


def nuts_chain(
    log_density: Callable[[Point], Any], d: int, warm_up: int, draws: int
) -> Callable[[Any], Any]:
    """A chain of BlackJAX's NUTS as a function of a key, to be compiled: states, after `warm_up`
    draws of adapting."""
    import blackjax

    warmup = blackjax.window_adaptation(blackjax.nuts, log_density)

    def chain(key: Any) -> Any:
        first, second = jax.random.split(key)
        (state, parameters), _ = warmup.run(first, jnp.zeros(d), num_steps=warm_up)
        step = blackjax.nuts(log_density, **parameters).step
        return jax.lax.scan(
            lambda state, key: (step(key, state)[0],) * 2, state, jax.random.split(second, draws)
        )[1]

    return chain


def banana(x: Point) -> Any:
    """x₀ ~ N(0, 1), x₁ − ½(x₀² − 1) ~ N(0, ½²): means zero."""
    return -0.5 * x[0] ** 2 - 2.0 * (x[1] - 0.5 * (x[0] ** 2 - 1)) ** 2


# effects of coaching that were observed, and their standard errors
SCHOOLS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12]), np.array([15.0, 10, 16, 11, 9, 11, 10, 18])


def eight_schools(x: Point) -> Any:
    """Non-centred: effects (8), μ/5 with μ ~ N(0, 5²), log τ with τ half-Cauchy(5)."""
    effects, mu, log_tau = x[:8], 5 * x[8], x[9]
    tau = jnp.exp(log_tau)
    y, sigma = map(jnp.asarray, SCHOOLS)
    likelihood = -0.5 * jnp.sum(((y - mu - tau * effects) / sigma) ** 2)
    return (
        likelihood
        - 0.5 * jnp.sum(effects**2)
        - 0.5 * (mu / 5) ** 2
        - jnp.log1p((tau / 5) ** 2)
        + log_tau
    )


def logistic(features: np.ndarray, labels: np.ndarray, scale: float) -> Callable[[Point], Any]:
    """Bayesian logistic regression, labels ±1, coefficients N(0, scale²)."""

    def log_density(x: Point) -> Any:
        return (
            -jnp.sum(jnp.logaddexp(0.0, -labels * (features @ x))) - 0.5 * jnp.sum(x**2) / scale**2
        )

    return log_density
