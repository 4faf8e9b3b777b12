"""Metrics D(x) for Langevin operators that are learned from draws: how far a control variate moves
along each direction at each place.

Where scores are large a function has to be flat, and where they are small it may be steep. A metric
that is small where scores are large lets the same family be both.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64

from ..arguments import POSITIVE, instance, takes, whole
from ..io.archive import Storable
from .network import MLP, Architecture

ARCHITECTURE = instance(Architecture, "an architecture such as MLP(16, 1)")


class LogLinear(Storable, eqx.Module):
    """A diagonal metric in closed form, D_j(x) = 1/E[s_j² | x], from the regression of log s_j² on
    x by a Gamma law. It is constant beyond the draws, so that no boundary term is left.

    Without numbers they are found when a family is fitted. slopes: (d, d), row j for D_j; intercept
    and reach: (d,), reach the largest exponent at the draws.
    """

    intercept: Any = None
    slopes: Any = None
    reach: Any = None

    def resolve(self, x: Float64[np.ndarray, "n d"], s: Float64[np.ndarray, "n d"]) -> LogLinear:
        """Return it with the numbers that these draws and scores have."""
        if self.slopes is not None:
            return self
        both = np.array([_gamma_regression(x, column**2) for column in s.T])
        intercept, slopes = -both[:, 0], -both[:, 1:]
        return LogLinear(intercept, slopes, np.abs(x @ slopes.T).max(axis=0))

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        assert self.slopes is not None, "found when a family is fitted"
        reach = jnp.maximum(self.reach, jnp.finfo(x.dtype).tiny)
        return jnp.exp(self.intercept + reach * jnp.tanh(self.slopes @ x / reach))

    def describe(self) -> str:
        """Return a short name for tables."""
        return "log-linear"


def _gamma_regression(
    x: Float64[np.ndarray, "n d"], y: Float64[np.ndarray, " n"]
) -> Float64[np.ndarray, " k"]:
    """Return intercept and slopes of η = log E[y | x] by a Gamma law: where Σ η + y e^−η, which is
    convex, is least, by Newton's method."""
    rows = np.concatenate([np.ones((len(x), 1)), x], axis=1)
    found = np.zeros(rows.shape[1])
    found[0] = np.log(max(y.mean(), np.finfo(float).tiny))
    step = np.ones(rows.shape[1])
    while np.abs(rows @ step).max() > np.sqrt(np.finfo(float).eps):
        ratio = y * np.exp(-rows @ found)
        curvature = (rows * ratio[:, None]).T @ rows
        step = np.linalg.lstsq(curvature, rows.T @ (ratio - 1), rcond=None)[0]
        # no farther than a factor of e at any draw, where the quadratic model holds
        step = step / max(1.0, np.abs(rows @ step).max())
        found = found + step
    return found


class Learned(Storable, eqx.Module):
    """A metric that `SGD` trains beside the control variates: diagonal, and with `rank` a matrix of
    that rank added to it. It starts near the identity and stays within a factor of e^`reach` of it,
    so that no boundary term is left.

    module: what makes it of a point.
    """

    module: Architecture
    rank: int = eqx.field(static=True)
    reach: float = eqx.field(static=True)

    @takes(module=ARCHITECTURE, rank=whole(0), reach=POSITIVE)
    def __init__(self, module: Any = None, rank: int = 0, reach: float = 3.0):
        self.module = MLP(16, 1) if module is None else module
        self.rank, self.reach = rank, reach

    def build(self, d: int, rng: np.random.Generator) -> Learned:
        """Return it with the parameters that training starts from."""
        if self.module.layers:
            return self
        module = self.module.build(d, d * (1 + self.rank), rng)
        weight, bias = module.layers[-1]
        # of a matrix of rank zero there is no slope
        bias = np.concatenate([bias[:d], rng.normal(size=d * self.rank) / np.sqrt(d)])
        layers = (*module.layers[:-1], (weight, bias))
        built = type(module)(module.width, module.depth, module.activation, layers)
        return Learned(built, self.rank, self.reach)

    def __call__(self, x: Float[Array, " d"]) -> Any:
        found = self.module(x)
        diagonal = jnp.exp(self.reach * jnp.tanh(found[: len(x)] / self.reach))
        if not self.rank:
            return diagonal
        columns = jnp.tanh(found[len(x) :].reshape(self.rank, len(x)))
        return jnp.diag(diagonal) + columns.T @ columns

    def describe(self) -> str:
        """Return a short name for tables."""
        return f"learned, rank {self.rank}" if self.rank else "learned"
