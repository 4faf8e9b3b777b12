"""When conjugate gradients for the dual are near enough: what is left of the error, in the units of
the answer."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..algebra.dense import ROUNDING
from .conjugate import EVERY, Iterate, energy_to_come, largest_ratio
from .products import Vectors
from .shortest_residual import ShortestResidual

# What is tolerated of g, in deviations: at 0.15 of one the variance of f − g grows by a tenth.
_ROUGHER = 1.5


class Start(NamedTuple):
    """What a stopping rule starts from that does not depend on the integrands."""

    contrast: Float[Array, " n"]  # u
    functional: Float[Array, "n 1"]  # ℓ
    probe: Float[Array, "n 1"]  # random signs, off the border
    # the preconditioner's; zero at its centres and in the padding
    inverse_diagonal: Float[Array, " n"]
    stratum: Int[Array, " n"]  # by its size


@eqx.filter_jit
def strata(diagonal: Float[Array, " n"]) -> Int[Array, " n"]:
    """Return numbers of draws from the smallest entry to the largest, 1 and on; 0 where it is
    zero."""
    places = jnp.argsort(jnp.argsort(diagonal))
    zeros = jnp.sum(diagonal == 0)
    return jnp.maximum(
        1 + (places - zeros) * _how_many(len(diagonal)) // jnp.maximum(len(diagonal) - zeros, 1), 0
    )


def _how_many(n: int) -> int:
    """Return how many strata there are, of draws by how well their neighbours explain them: so
    large that the mean in one says something."""
    return int(np.clip(n // 100, 1, 32))


@eqx.filter_jit
def intercepts(start: Start, right: Any, state: Iterate) -> Any:
    """Return intercepts (q,), with what residuals still say about them."""
    q = right.shape[1]
    through = (
        start.functional[:, 0] @ state.solution[:, :q]
        + state.solution[:, q] @ state.residual[:, :q]
    )
    return start.contrast @ right - through


@eqx.filter_jit
def _sizes(
    start: Start, state: Iterate, solution: Any, residual: Any, n: int
) -> tuple[Any, Any, Any]:
    """Standard errors (q,), deviations of left-out residuals (q,), and of what g still lacks at the
    draws (q,).

    The iterate fits f − r exactly, so that its left-out residuals are a / diag Q, and those of f
    have r more. Q's diagonal is not at hand, but it is at least the preconditioner's. A column of
    random signs estimates how much larger it is: once in the mean of all draws, once within strata
    of draws with similar entries. With the first alone standard errors come out too small, with the
    second too large, so the geometric mean of both is taken: 0.4 to 1.1 times the errors of the
    exact fit.
    """
    q, count = solution.shape[1], _how_many(len(solution)) + 1
    known = start.inverse_diagonal > 0
    signed = jnp.where(known, start.probe[:, 0] * state.solution[:, q + 1], 0.0)
    above, below = (
        jax.ops.segment_sum(part, start.stratum, count) for part in (signed, start.inverse_diagonal)
    )
    scale = jnp.sqrt(
        jnp.maximum(above.sum() / below.sum(), 1.0)
        * jnp.maximum(above / jnp.where(below > 0, below, 1.0), 1.0)
    )
    variance = jnp.where(
        known, 1 / jnp.where(known, scale[start.stratum] * start.inverse_diagonal, 1.0), 0.0
    )[:, None]
    left_out = variance * solution + jnp.where(known[:, None], residual, 0.0)
    influence = (start.contrast - state.solution[:, q])[:, None] * left_out
    more = jnp.sqrt(n / jnp.sum(known))
    errors, spread = (more * jnp.linalg.norm(part, axis=0) for part in (influence, left_out))
    return errors, spread, jnp.linalg.norm(residual, axis=0)


@eqx.filter_jit
def _choose_shorter(state: Iterate, solution: Any, residual: Any) -> tuple[Vectors, Vectors]:
    q = solution.shape[1]
    plain = state.residual[:, :q]
    better = jnp.linalg.norm(plain, axis=0) < jnp.linalg.norm(residual, axis=0)
    return jnp.where(better, state.solution[:, :q], solution), jnp.where(better, plain, residual)


class StoppingRule:
    """The rule of one fit: its g with the shortest residual, and how far from the exact fit answers
    and g are."""

    def __init__(self, start: Start, right: Vectors, inside: Vectors, tolerance: float, n: int):
        self._start, self._right, self._tolerance, self._n = start, right, tolerance, n
        self.shortest, self._answers = ShortestResidual(inside), list[np.ndarray]()

    def distance(self, state: Iterate, energies: Float[np.ndarray, "i k"]) -> float:
        """Return the largest of two errors against what is tolerated: of an intercept, in standard
        errors, and of g at the draws, in deviations of the residuals that are left out."""
        q = self._right.shape[1]
        self._answers.append(np.asarray(intercepts(self._start, self._right, state)))
        left = energy_to_come(energies)
        errors, spread, misfit = map(
            np.asarray, _sizes(self._start, state, *self.choose_shorter(state), self._n)
        )
        of_intercept = largest_ratio(
            self._alignment(energies) * np.sqrt(left[:q] * left[q]), self._tolerance * errors
        )
        return max(of_intercept, largest_ratio(misfit, _ROUGHER * self._tolerance * spread))

    def choose_shorter(self, state: Iterate) -> tuple[Vectors, Vectors]:
        """Return solution and residual of g, those of the iterate where rounding, in the last
        digits, has left that the shorter one."""
        return _choose_shorter(state, self.shortest.solution, self.shortest.residual)

    def _alignment(self, energies: Float[np.ndarray, "i k"]) -> float:
        """Return the cosine between the errors of a solution and of the adjoint, whose product is
        that of the intercept: for errors in thousands of dimensions far below 1. It is the largest
        that the last half of the looks saw, in what answers changed against what they could."""
        changes = np.abs(np.diff(self._answers, axis=0))
        if len(changes) < 2:
            return 1.0
        changes = changes[-(1 + len(changes) // 2) :]
        gained = np.add.reduceat(energies, np.arange(0, len(energies), EVERY))[-len(changes) :]
        could = np.sqrt(gained[:, :-2] * gained[:, -2:-1])
        real = could > ROUNDING * np.sqrt(energies[:, :-2].sum(axis=0) * energies[:, -2].sum())
        cosines = np.divide(changes, could, out=np.zeros_like(changes), where=real)
        return min(1.0, float(cosines.max()))
