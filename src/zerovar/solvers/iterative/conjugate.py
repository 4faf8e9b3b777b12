"""Conjugate gradients on many right-hand sides at once, stopped when the intercept is accurate.

The intercept is a linear functional of the solution: c = base − ℓᵀu with Au = h. The adjoint system
Az = ℓ is solved as one more column. Its solution turns the residual r = h − Au into a correction: c
≈ base − ℓᵀu − zᵀr. The error that is left, ⟨e_z, e_u⟩_A, is a product of two small errors, where
that of ℓᵀu alone is one of them; that saves two thirds of the iterations or more. How large the
errors are comes from the iterations themselves. ‖e‖_A² is what later iterations will still add to
the energy (Hestenes and Stiefel): it is seen a few iterations later, and continued as a geometric
series.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...progress import progress_bar
from ..algebra.dense import EPS, ROUNDING
from ..base import Result
from ..stats import FitStats

EVERY = 5  # iterations between looks at how far it is: a look costs about as much as one of them


class System(eqx.Module):
    """A symmetric positive operator and its preconditioner, on columns (n, k)."""

    @abstractmethod
    def apply(self, v: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """Apply the operator."""

    @abstractmethod
    def precondition(self, v: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """Apply about its inverse."""


class Iterate(NamedTuple):
    """The state of conjugate gradients on k columns."""

    solution: Float[Array, "n k"]
    residual: Float[Array, "n k"]
    direction: Float[Array, "n k"]
    size: Float[Array, " k"]  # residual · preconditioned residual


class SolveEnd(NamedTuple):
    """Where the iterations ended: `distance` is at most 1 if converged, in units of what was
    tolerated."""

    state: Iterate
    distance: float
    iterations: int
    interrupted: bool


def conjugate_gradients(
    system: System,
    right: Float[Array, "n k"],
    rule: Callable[[Iterate, Float[np.ndarray, "i k"]], float],
    limit: int,
    progress: bool,
    watch: Callable[
        [Float[Array, "steps n k"], Float[Array, "steps n k"]], None
    ] = lambda directions, images: None,
) -> SolveEnd:
    """Solve for all columns, until `rule` finds the state, with the energies of all iterations so
    far, no further than 1.

    `watch` is given all directions that are taken and what the operator makes of them.
    """
    state = _start(system, right)
    energies = np.zeros((0, right.shape[1]))
    distance, interrupted = np.inf, False
    with progress_bar("conjugate gradients", limit, progress) as show:
        try:
            while len(energies) < limit and distance > 1:
                state, (gained, *taken) = _advance(system, state, min(EVERY, limit - len(energies)))
                watch(*taken)
                energies = np.concatenate([energies, np.asarray(gained)])
                distance = rule(state, energies)
                show(
                    len(energies),
                    f"{len(energies)}/{limit}, error {distance:.2g} of what is tolerated",
                )
        except KeyboardInterrupt:  # what there is serves: any g has mean zero
            interrupted = True
    return SolveEnd(state, distance, len(energies), interrupted)


def summarise_end(
    ending: SolveEnd, options: Any, result: Result, stats: FitStats
) -> tuple[Result, FitStats]:
    """Return how a fit ended of which `result` was known before it began, and what it tells of
    that."""
    if ending.interrupted:
        result = Result.INTERRUPTED
    elif ending.distance > 1 and result is Result.OK:
        result = Result.STALLED
    return result, stats | {
        "iterations": ending.iterations,
        "error_left": options.tolerance * ending.distance,
    }


def energy_to_come(energies: Float[np.ndarray, "i k"]) -> Float[np.ndarray, " k"]:
    """Return what later iterations will add to the energies, which is ‖e‖_A² now: the more of what
    now and the last look say."""
    if len(energies) < 3 * EVERY:  # two series that can be held against each other
        return np.full(energies.shape[1], np.inf)
    return np.maximum(
        _continue_series(energies),
        _continue_series(energies[:-EVERY]) - energies[-EVERY:].sum(axis=0),
    )


def _continue_series(energies: Float[np.ndarray, "i k"]) -> Float[np.ndarray, " k"]:
    """Return the rest of the geometric series that the last two stretches begin: next to no end of
    it where they do not fall."""
    before, last = energies[-2 * EVERY : -EVERY].sum(axis=0), energies[-EVERY:].sum(axis=0)
    ratio = np.clip(
        np.divide(last, before, out=np.zeros_like(last), where=before > 0), 0.0, 1 - EPS
    )
    return last * ratio / (1 - ratio)


@eqx.filter_jit
def drop_rounding(
    rest: Float[Array | np.ndarray, "n k"], whole: Float[Array | np.ndarray, "n k"]
) -> Float[Array, "n k"]:
    """Return what is left of `whole`, but zero in columns of which only rounding is left: no
    iteration can rule these."""
    return jnp.where(
        jnp.linalg.norm(rest, axis=0) > ROUNDING * jnp.linalg.norm(whole, axis=0), rest, 0.0
    )


def largest_ratio(errors: Any, tolerable: Any) -> float:
    """Return the largest ratio of errors that are not zero to what is tolerated."""
    errors, tolerable = np.asarray(errors), np.asarray(tolerable)
    return float(
        np.max(
            np.divide(errors, tolerable, out=np.zeros_like(errors), where=errors > 0), initial=0.0
        )
    )


@eqx.filter_jit
def _start(system: System, right: Float[Array, "n k"]) -> Iterate:
    direction = system.precondition(right)
    return Iterate(jnp.zeros_like(right), right, direction, jnp.sum(right * direction, axis=0))


@eqx.filter_jit
def _advance(system: System, state: Iterate, steps: int) -> tuple[Iterate, Any]:
    """Take some steps; return the state, with the energies (steps, k) that were gained, the
    directions (steps, n, k) and their images."""

    def step(state: Iterate, _: None) -> tuple[Iterate, Any]:
        image = system.apply(state.direction)
        length = _ratio(state.size, jnp.sum(state.direction * image, axis=0))
        residual = state.residual - length * image
        better = system.precondition(residual)
        size = jnp.sum(residual * better, axis=0)
        solution = state.solution + length * state.direction
        direction = better + _ratio(size, state.size) * state.direction
        return Iterate(solution, residual, direction, size), (
            length * state.size,
            state.direction,
            image,
        )

    return jax.lax.scan(step, state, None, length=steps)


def _ratio(above: Any, below: Any) -> Any:
    """Return above / below, zero where a column is solved to the last digit."""
    return jnp.where((above > 0) & (below > 0), above / jnp.where(below > 0, below, 1.0), 0.0)
