"""Spaces whose Langevin operators have a metric of their own: circles, spheres, and where a density
may end with a positive value."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..arguments import POSITIVE, takes, where
from ..io.archive import Storable
from ..operators import Diffusion
from .base import Positions, Space

# along one axis, as there is one for each coordinate
BOUNDS = where(
    "a number, or one for each coordinate, of which some may be infinite",
    lambda bound: len(bound) > 0 and not np.isnan(bound).any(),
    lambda value: tuple(np.atleast_1d(np.asarray(value, np.float64)).tolist()),
)
# How far points of a sphere or a simplex may be off it: half of the digits of single precision
_OFF = float(np.sqrt(np.finfo(np.float32).eps))


class Manifold(Space):
    """A space whose Langevin operators have a metric of its own."""

    @abstractmethod
    def metric(self, x: Float[Array, " k"]) -> Any:
        """Return D, (k,) or (k, k), at a point as `place` makes it."""

    def blocks(self, k: int) -> Int[np.ndarray, " k"]:
        """Return the number of the block that each of k such coordinates is of: D is block
        diagonal, and stays a metric of the space if a block is multiplied by a number."""
        return np.zeros(k, dtype=int)

    def find_unitless(self, k: int) -> Bool[np.ndarray, " k"]:
        """Return which of these coordinates have no unit of their own, and take that of the
        draws."""
        return np.ones(k, dtype=bool)

    def resolve(self, draws, probabilities, standardise=True, alike=False):
        x, _ = self.place(draws, np.zeros(draws.shape))
        return Framed.of(self, x, probabilities, standardise, alike)

    def own(self, operator):
        if not isinstance(operator, Diffusion) or isinstance(operator.D, Metric):
            return operator  # one of a user, or this one already
        if not operator.is_plain:
            raise ValueError(
                f"{operator.describe()}: on a {self.describe()} the metric is that of the space; "
                f"leave D out, {type(operator).__name__}()"
            )
        return type(operator)(Metric(self))


class Metric(Storable, eqx.Module):
    """The metric of a space, whose points come with D s in place of scores s."""

    gives_drift: ClassVar[bool] = True
    space: Manifold

    def resolve(self, x: Positions, s: Positions) -> Metric:
        """Return it as it is: it is positive but for rounding."""
        return self

    def __call__(self, x: Float[Array, " k"]) -> Any:
        return self.space.metric(x)

    def describe(self) -> str:
        """Return a short name for tables."""
        return self.space.describe()


class Framed(Manifold):
    """A space as families see it: x = origin + unit z are the coordinates in which it places its
    points, and z those that families see. A metric maps as a covariance does, so that the operator
    stays the same.

    weights: (k,), what the metric is multiplied with, one number for each of its blocks.
    """

    space: Manifold
    origin: np.ndarray  # (k,)
    unit: np.ndarray
    weights: np.ndarray

    @staticmethod
    def of(
        space: Manifold,
        x: Positions,
        p: np.ndarray,
        standardise: bool = True,
        alike: bool = False,
    ) -> Framed:
        """Return that of points (n, k) with probabilities (n,): in units of their deviations where
        the space has no unit of its own, and with weights that make D about as large as their
        covariance, as it is for `Langevin()` in Rᵈ. Coordinates that are to stay `alike` have the
        same unit and weight."""
        mean, k = p @ x, x.shape[1]
        if alike:
            mean = np.full(k, mean.mean())
        spread = p @ (x - mean) ** 2
        if alike:
            spread = np.full(k, spread.mean())
        scaled = space.find_unitless(k) & standardise & (spread > 0)
        with jax.enable_x64(True):
            D = np.asarray(_metrics(space, x))
        size = p @ (D if D.ndim == 2 else np.diagonal(D, axis1=1, axis2=2))
        blocks, tiny = space.blocks(k) * (not alike), np.finfo(float).tiny
        both = np.bincount(blocks, spread), np.bincount(blocks, size)
        weights = np.maximum(both[0], tiny) / np.maximum(both[1], tiny)
        origin, unit = np.where(scaled, mean, 0.0), np.where(scaled, np.sqrt(spread), 1.0)
        return Framed(space, origin, unit, weights[blocks])

    def resolve(self, draws, probabilities, standardise=True, alike=False):
        return self

    def check(self, draws, scores):
        self.space.check(draws, scores)

    def place(self, draws, scores):
        x, s = self.space.place(draws, scores)
        return ((x - self.origin) / self.unit, self.weights * s / self.unit)

    def metric(self, x):
        D = self.space.metric(self.origin + self.unit * x)
        weights = self.weights / self.unit
        # blocks have one weight each, so that this is symmetric
        return (weights * D if D.ndim == 1 else weights[:, None] * D) / self.unit

    def describe(self):
        return self.space.describe()


@eqx.filter_jit
def _metrics(space: Manifold, x: Any) -> Any:
    return jax.vmap(space.metric)(x)


class Torus(Manifold):
    """Angles: draws (n, d), each on a circle, in radians or in other units of which `period` make
    a turn. Scores are derivatives in these units.

    Families see each angle as its cosine and sine, so that a polynomial of degree k is a
    trigonometric one, with frequencies whose sum is at most k. An angle has no mean; without other
    values, those of its cosine and sine are estimated.
    """

    scores = "derivatives of the log density in each angle, in the units of the draws"
    period: float = eqx.field(static=True)

    @takes(period=POSITIVE)
    def __init__(self, period: float = 2 * np.pi):
        self.period = period

    def check(self, draws, scores):
        if draws.shape != scores.shape:
            raise ValueError(
                f"on a Torus each angle has one score; got draws {draws.shape} and scores "
                f"{scores.shape}"
            )

    def place(self, draws, scores):
        unit = 2 * np.pi / self.period
        cos, sin, slope = np.cos(unit * draws), np.sin(unit * draws), scores / unit
        x = np.stack([cos, sin], axis=2).reshape(len(draws), -1)
        return (x, np.stack([-sin * slope, cos * slope], axis=2).reshape(len(draws), -1))

    def values(self, draws, names):
        unit = 2 * np.pi / self.period
        parts = {"cos": np.cos(unit * draws), "sin": np.sin(unit * draws)}
        return {
            f"{part} {name}": array[..., j]
            for j, name in enumerate(names)
            for part, array in parts.items()
        }

    def to_gaps(self, draws):
        turns = np.sort(draws % self.period, axis=0)
        gaps = np.diff(turns, axis=0, append=turns[:1] + self.period)
        widest = gaps.argmax(axis=0)[None]
        start, gap = (np.take_along_axis(each, widest, axis=0) for each in (turns, gaps))
        ahead = (draws - start - gap / 2) % self.period
        return np.concatenate([ahead, self.period - ahead], axis=1)

    def blocks(self, k):
        return np.arange(k) // 2

    def find_unitless(self, k):
        return np.zeros(k, dtype=bool)

    def metric(self, x):
        # along the circle through the point: the turned point times itself
        turned = x.reshape(-1, 2)[:, ::-1] * jnp.array([-1.0, 1.0])
        blocks = turned[:, :, None] * turned[:, None, :]
        return jax.scipy.linalg.block_diag(*blocks)


class Sphere(Manifold):
    """Directions: draws (n, k) of length one. Scores are gradients along the sphere, of the density
    with respect to its volume; a part of them across the sphere is without effect."""

    scores = "gradients of the log density with respect to the volume of the sphere"

    def check(self, draws, scores):
        if draws.shape != scores.shape or draws.shape[1] < 2:
            raise ValueError(
                "on a Sphere draws and scores must both be (n, k) with k ≥ 2; got "
                f"{draws.shape} and {scores.shape}"
            )
        off = np.abs(np.linalg.norm(draws, axis=1) - 1)
        if (row := int(np.argmax(off))) >= 0 and off[row] > _OFF:
            raise ValueError(
                "on a Sphere draws must have length one; draw "
                f"{row} has {np.linalg.norm(draws[row]):.6g}. Angles live on a Torus()"
            )

    def place(self, draws, scores):
        x = draws / np.linalg.norm(draws, axis=1, keepdims=True)
        return (x, scores - np.sum(scores * x, axis=1, keepdims=True) * x)

    def find_unitless(self, k):
        return np.zeros(k, dtype=bool)

    def metric(self, x):
        return (x @ x) * jnp.eye(len(x), dtype=x.dtype) - jnp.outer(x, x)


class Box(Manifold):
    """Coordinates that end at bounds, where the density need not vanish: draws (n, d) strictly
    between `low` and `high`, numbers or one for each coordinate, of which one may be infinite.
    Scores are ordinary gradients of the density there, without a Jacobian."""

    scores = "gradients of the log density in the bounded coordinates, without a Jacobian"
    # one for each coordinate, or one for all
    low: tuple[float, ...] = eqx.field(static=True)
    high: tuple[float, ...] = eqx.field(static=True)

    @takes(low=BOUNDS, high=BOUNDS)
    def __init__(self, low: Any = 0.0, high: Any = 1.0):
        if len({len(low), len(high), 1}) > 2:
            raise ValueError(
                f"Box: low and high must be numbers, or one for each coordinate; got {len(low)} "
                f"and {len(high)} of them"
            )
        below, above = np.broadcast_arrays(low, high)
        bad = ~(below < above) | (np.isinf(below) & np.isinf(above))
        if bad.any():
            j = int(np.argmax(bad))
            raise ValueError(
                "Box: low must be below high, and one of them finite; got "
                f"{below[j]:g} and {above[j]:g} for coordinate {j}. What is not bounded needs no "
                "Box"
            )
        self.low, self.high = low, high

    def check(self, draws, scores):
        count = max(len(self.low), len(self.high))
        if draws.shape != scores.shape or count not in (1, draws.shape[1]):
            raise ValueError(
                "in a Box draws and scores must both be (n, d), with one bound or d of them; got "
                f"{draws.shape}, {scores.shape} and {count} bounds"
            )
        outside = ~((np.array(self.low) < draws) & (draws < np.array(self.high)))
        if outside.any():
            row, j = np.argwhere(outside)[0]
            raise ValueError(
                f"in a Box draws must lie strictly between the bounds; draw {row} has "
                f"{draws[row, j]:.6g} in coordinate {j}"
            )

    def place(self, draws, scores):
        return (draws, self._metric(draws, np) * scores)

    def blocks(self, k):
        return np.arange(k)

    def metric(self, x):
        return self._metric(x, jnp)

    def map_to_reals(self, draws, scores):
        from_low, to_high = self._distances(draws, np)
        metric = from_low * to_high
        slope = np.where(np.isfinite(self.low), to_high, 0) - np.where(
            np.isfinite(self.high), from_low, 0
        )
        length = np.where(np.isfinite(self.low) & np.isfinite(self.high), from_low + to_high, 1.0)
        return (np.log(from_low) - np.log(to_high)) / length, metric * scores + slope

    def _metric(self, x: Any, numpy: Any) -> Any:
        from_low, to_high = self._distances(x, numpy)
        return from_low * to_high

    def _distances(self, x: Any, numpy: Any) -> tuple[Any, Any]:
        """How far points are from both bounds; 1 where there is none."""
        low, high = (np.broadcast_to(bound, x.shape[-1:]) for bound in (self.low, self.high))
        has_low, has_high = np.isfinite(low), np.isfinite(high)
        from_low, to_high = x - np.where(has_low, low, 0), np.where(has_high, high, 0) - x
        return numpy.where(has_low, from_low, 1), numpy.where(has_high, to_high, 1)


class Simplex(Manifold):
    """Proportions: draws (n, k) of k positive shares of less than one in sum, of which the last,
    one minus the others, is left out. Scores are gradients in these k, of the density with respect
    to them."""

    scores = "gradients of the log density in all shares but the last, with respect to these"

    def check(self, draws, scores):
        if draws.shape != scores.shape:
            raise ValueError(
                "on a Simplex draws and scores must both be (n, k), all shares but the last; got "
                f"{draws.shape} and {scores.shape}"
            )
        rest = 1 - draws.sum(axis=1)
        bad = np.flatnonzero((draws <= 0).any(axis=1) | (rest <= 0))
        if len(bad):
            whole = bool(np.abs(rest).max() < _OFF)
            hint = ". These sum to one: leave the last share out" if whole else ""
            raise ValueError(
                "on a Simplex shares must be positive and sum to less than one, as the last is "
                f"left out; draw {bad[0]} has {draws[bad[0]]} with sum "
                f"{draws[bad[0]].sum():.6g}{hint}"
            )

    def place(self, draws, scores):
        return (draws, draws * (scores - np.sum(draws * scores, axis=1, keepdims=True)))

    def metric(self, x):
        return jnp.diag(x) - jnp.outer(x, x)
