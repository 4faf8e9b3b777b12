"""A log density that is evaluated at many points, each gradient counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float64

from ..inputs.integrands import map_draws, run_in_double, run_or_explain

# Points that are evaluated together: one program serves all. Half or twice that takes as long.
_TILE = 128


class Evaluated(NamedTuple):
    """Log densities (n,) and scores (n, d) at points; −inf and zeros where the density is zero or
    undefined."""

    log_density: Float64[np.ndarray, " n"]
    scores: Float64[np.ndarray, "n d"]
    undefined: np.ndarray  # (n,): the log density, or its gradient, is NaN


class Target:
    """A log density of d numbers, with its gradient and its curvature, compiled once for each.

    `gradients` counts what was asked for; a matrix of second derivatives counts as d. `left` is
    what the budget still allows.
    """

    def __init__(
        self, log_density: Callable[[Any], Any], start: Float64[np.ndarray, " d"], budget: int
    ):
        self.dim, self.budget, self.gradients = len(start), budget, 0
        found = run_or_explain(
            "log_density",
            lambda: map_draws(log_density, start[None]),
            f" of shape ({self.dim},)",
            "draws and scores to zv.estimate",
        )
        if not isinstance(found, np.ndarray) or found.size != 1:
            got = f"shape {found.shape[1:]}" if isinstance(found, np.ndarray) else repr(found)
            raise ValueError(f"log_density must return one number; got {got} for one draw")
        if not np.issubdtype(found.dtype, np.floating):
            raise ValueError(
                "log_density must return a real floating-point number, of which the gradient is "
                f"taken; got {found.dtype}"
            )

        def number(x: Any) -> Any:
            return jnp.reshape(log_density(x), ())

        self._one = jax.jit(jax.value_and_grad(number))
        self._many = jax.jit(jax.vmap(jax.value_and_grad(number)))
        self._curvature = jax.jit(jax.jacfwd(jax.grad(number)))
        self._double = np.asarray(found).dtype == np.float64

    @property
    def left(self) -> int:
        return max(self.budget - self.gradients, 0)

    def at(self, x: Float64[np.ndarray, "n d"]) -> Evaluated:
        """Evaluate at n points, which count as n gradients."""
        self.gradients += len(x)
        parts = []
        for first in range(0, len(x), _TILE):
            rows = np.minimum(np.arange(first, first + _TILE), len(x) - 1)
            parts.append(self._call(self._many, x[rows]))
        value, slope = (np.concatenate([part[k] for part in parts])[: len(x)] for k in (0, 1))
        return _clean(value, slope)

    def at_one(self, x: Float64[np.ndarray, " d"]) -> Evaluated:
        """Evaluate at one point, in a program of its own: optimisers ask one by one."""
        self.gradients += 1
        value, slope = self._call(self._one, x)
        return _clean(value[None], slope[None])

    def curvature(self, x: Float64[np.ndarray, " d"]) -> Float64[np.ndarray, "d d"]:
        """Return minus the second derivatives of the log density; they may hold NaN."""
        self.gradients += self.dim
        (second,) = self._call(lambda at: (self._curvature(at),), x)
        return -(second / 2 + second.T / 2)  # which does not overflow

    def _call(self, function: Callable[[Any], Any], x: np.ndarray) -> tuple[np.ndarray, ...]:
        def run() -> tuple[np.ndarray, ...]:
            return tuple(np.asarray(part, dtype=np.float64) for part in function(jnp.asarray(x)))

        return run_in_double("log_density", run) if self._double else run()


def _clean(value: np.ndarray, slope: np.ndarray) -> Evaluated:
    """Mark where the density is zero or undefined; refuse +inf."""
    if (value == np.inf).any():
        raise ValueError(
            "the log density is +inf somewhere: no density is, and no mean can be taken"
        )
    undefined = np.isnan(value) | (np.isfinite(value) & ~np.isfinite(slope).all(axis=1))
    zero = undefined | (value == -np.inf)
    return Evaluated(np.where(zero, -np.inf, value), np.where(zero[:, None], 0.0, slope), undefined)
