"""Moves of many chains at one temperature, by BlackJAX's Hamiltonian Monte Carlo: one program for
all temperatures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Float64

from ..errors import NumericalError, missing_package
from ..inputs.integrands import DrawFunction, map_tiles
from ..inputs.points import Matrix, Vector, sum_to_one
from ..mixtures import Frame, cholesky
from .opening import require_double

# Moves of each chain that adapt the step, and forget where it began, before those that are kept.
# Of 20 answers each for bananas, funnels and two modes, in 4 to 10 dimensions, 80 to 85 % were
# within 1.96 errors by 10 of them, and 90 to 100 % by 20
WARM = 20
# Mean acceptance that the step is adapted to. Tails can be narrower than the middle, and steps that
# are right there do not enter them: for bananas in 4 dimensions (20 seeds, an overlap of 0.8) 55 %
# of answers were within 1.96 errors by 0.8, and 95 % by 0.9. And how much shorter steps may be, in
# case tails are narrower still; on these bananas that made no difference
_GOAL, _SHORTEST_STEP = 0.9, 0.5
# Trajectories in deviations, from and to: about a quarter of a normal's period, where it forgets
# most, and none that goes round; and most steps in one
_LENGTHS, _MOST_STEPS = (np.pi / 4, 3 * np.pi / 4), 64
_EXACT = 1e-10  # to which temperatures are found, relative to the step: they need not be exact


class Factors(NamedTuple):
    """Two functions of one draw (d,), in JAX: log π_t is first + t · rest, up to a constant."""

    first: DrawFunction
    rest: DrawFunction


class Rests(NamedTuple):
    """The second factor at n draws, and the gradients of both (n, d)."""

    first_scores: Matrix
    rest: Vector
    rest_scores: Matrix


class Moved(NamedTuple):
    """Draws of chains (chain, draw, d); the step they were made with; the share of proposals that
    were accepted; and what it cost in gradients."""

    draws: Float64[np.ndarray, "chain draw d"]
    step: float
    acceptance: float
    evaluations: int


class Tempering:
    """Two factors, compiled: their values at draws, and moves of chains at any temperature."""

    def __init__(self, factors: Factors, chains: int, kept: int):
        try:
            from blackjax.mcmc import hmc
        except ImportError as error:
            raise missing_package("blackjax", "blackjax") from error
        self._factors, self._chains, self._kept = factors, chains, kept
        self._moves = jax.jit(self._trace(hmc))
        self._values = jax.jit(jax.vmap(self._evaluate))

    def at(self, x: Matrix) -> Rests:
        """Evaluate the factors at draws (n, d); −∞ and zeros where the second is no number."""

        def run() -> Any:
            return map_tiles(self._values, np.asarray(x))

        first_scores, rest, rest_scores = (
            np.asarray(one, np.float64) for one in require_double(run)
        )
        if (rest == np.inf).any():
            raise ValueError("the log density is +inf somewhere: no density is")
        zero = ~np.isfinite(rest)
        rest_scores = np.where(zero[:, None], 0.0, rest_scores)
        return Rests(first_scores, np.where(zero, -np.inf, rest), rest_scores)

    def move(self, x: Matrix, t: float, frame: Frame, step: float, seed: int) -> Moved:
        """Move chains from points (chain, d) at inverse temperature t, in the coordinates of a
        frame."""

        def run() -> Any:
            key = jax.random.key(seed)
            return self._moves(key, x, t, frame.centre, frame.root, np.log(step))

        draws, log_step, rates, steps = map(np.asarray, require_double(run))
        cost = self._chains * (int(steps.sum()) + 1)
        return Moved(
            np.array(np.swapaxes(draws, 0, 1)),
            float(np.exp(log_step)),
            float(rates[WARM:].mean()),
            cost,
        )

    def _evaluate(self, x: Any) -> Any:
        first, rest = (_number(one) for one in self._factors)
        value, slope = jax.value_and_grad(rest)(x)
        return jax.grad(first)(x), value, slope

    def _trace(self, hmc: Any) -> Callable[..., Any]:
        kernel, chains = hmc.build_kernel(), self._chains
        gains = np.append(np.arange(1, WARM + 1) ** -0.5, np.zeros(self._kept))
        first, rest = (_number(one) for one in self._factors)

        def moves(key: Any, x: Any, t: Any, centre: Any, root: Any, log_step: Any) -> Any:
            def target(y: Any) -> Any:
                at = centre + root @ y
                # t = 0 must not make 0 · ∞, neither here nor in the gradient
                more = jax.lax.cond(t > 0, rest, lambda _: jnp.zeros(()), at)
                value = first(at) + t * more
                return jnp.where(jnp.isnan(value), -jnp.inf, value)

            def move(carried: Any, now: Any) -> Any:
                state, log_step = carried
                key, gain = now
                own, other, others = jax.random.split(key, 3)
                step = jnp.exp(log_step) * jax.random.uniform(other, minval=_SHORTEST_STEP)
                length = jax.random.uniform(own, minval=_LENGTHS[0], maxval=_LENGTHS[1])
                count = jnp.clip(jnp.ceil(length / step), 1, _MOST_STEPS).astype(int)

                def one(key: Any, state: Any) -> Any:
                    return kernel(key, state, target, step, jnp.ones(len(centre)), count)

                state, info = jax.vmap(one)(jax.random.split(others, chains), state)
                rate = jnp.mean(jnp.nan_to_num(info.acceptance_rate))
                found = centre + state.position @ root.T, rate, count
                return (state, log_step + gain * (rate - _GOAL)), found

            y = solve_triangular(root, (x - centre).T, lower=True).T
            begun = jax.vmap(lambda one: hmc.init(one, target))(y)
            keys = jax.random.split(key, len(gains))
            (_, log_step), (draws, rates, counts) = jax.lax.scan(
                move, (begun, log_step), (keys, gains)
            )
            return draws[WARM:], log_step, rates, counts

        return moves


def _number(function: DrawFunction) -> DrawFunction:
    return lambda x: jnp.reshape(function(x), ()).astype(float)


def next_temperature(t: float, rest: Vector, overlap: float) -> tuple[float, Vector]:
    """Return the largest inverse temperature up to which the effective share of draws of t, among
    those where the density is not zero, is as large as `overlap`; and the draws' probabilities
    there (n,)."""
    finite = np.isfinite(rest)
    above = np.where(finite, rest - rest.max(initial=-np.inf, where=finite), -np.inf)

    def weigh(step: float) -> Vector:
        return sum_to_one(np.exp(step * above))

    def share(step: float) -> float:
        return float(1 / np.sum(weigh(step) ** 2) / finite.sum())

    low, high = 0.0, 1 - t
    if share(high) >= overlap:
        return 1.0, weigh(high)
    while high - low > _EXACT * high and t + high > t:
        middle = (low + high) / 2
        low, high = (middle, high) if share(middle) >= overlap else (low, middle)
    if t + low == t:
        raise NumericalError(
            f"at t = {t:g} the log density varies by {np.ptp(rest[finite]):.2g} beside that of the "
            "first distribution, and no step to another temperature is small enough. Begin from a "
            "distribution that is nearer"
        )
    return t + low, weigh(low)


def pick(probabilities: Vector, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return `count` row numbers by systematic resampling. They keep their order: chains that begin
    from one chain are neighbours, and errors of means over all chains in a row know of it."""
    places = (np.arange(count) + rng.uniform()) / count
    return np.minimum(np.searchsorted(np.cumsum(probabilities), places), len(probabilities) - 1)


def fit_frame(x: Matrix, probabilities: Vector, within: Frame) -> Frame:
    """Return coordinates in which weighted draws (n, d) are about standard. Correlations, in the
    coordinates of another frame, count the less the fewer draws there are for each dimension."""
    z = within.z(x)
    mean = probabilities @ z
    away = z - mean
    covariance = away.T @ (probabilities[:, None] * away)
    d = len(mean)
    # of n draws, correlations are noise of size 1/√n, which moves eigenvalues by about √(d/n)
    noise = d / (d + 1 / np.sum(probabilities**2))
    variances = np.diag(covariance)
    floor = np.finfo(float).eps * max(variances.max(), np.finfo(float).tiny)
    covariance = (1 - noise) * covariance + noise * np.diag(np.maximum(variances, floor))
    return Frame(within.x(mean[None])[0], within.root @ cholesky(covariance))
