"""Spaces: where draws live, which scores they have, and the operator that has mean zero there.

On a manifold, and where a density may end with a positive value, Stein's identity holds for the
Langevin operators of a metric D(x) that fits the space: along a sphere it has no part across, at
the border of a box it vanishes, so that no boundary term is left. Families are the same as in Rᵈ.
They see points in coordinates x in which smooth functions of the space are smooth functions of x:
an angle is a point of the unit circle there.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64

from .arguments import POSITIVE, instance, read_numbers, takes, where
from .io.archive import Storable
from .operators import Diffusion, Operator

Positions = Float64[np.ndarray, "n d"]
# How far points of a sphere or a simplex may be off it: half of the digits of single precision
_OFF = float(np.sqrt(np.finfo(np.float32).eps))


class Space(Storable, eqx.Module):
    """Where draws live.

    is_flat: whether it is all of Rᵈ, where draws may be standardised and coordinates mixed.
    """

    is_flat: ClassVar[bool] = False
    scores: ClassVar[str]  # what scores are, for messages

    @abstractmethod
    def check(self, draws: Positions, scores: np.ndarray) -> None:
        """Raise a ValueError if these are no points of the space, or no scores of it."""

    @abstractmethod
    def place(self, draws: Positions, scores: np.ndarray) -> tuple[Positions, Positions]:
        """Return points and scores as families see them."""

    @abstractmethod
    def own(self, operator: Operator) -> Operator:
        """Return the operator that stands for `operator` here, or raise a ValueError if there is
        none."""

    def describe(self) -> str:
        """Return a short name for tables."""
        return type(self).__name__


class Euclidean(Space):
    """All of Rᵈ, with densities that fall to zero far out."""

    is_flat = True
    scores = "gradients of the log density"

    def check(self, draws, scores):
        pass

    def place(self, draws, scores):
        return (draws, scores)

    def own(self, operator):
        return operator


REALS = Euclidean()


class Manifold(Space):
    """A space whose Langevin operators have a metric of its own."""

    @abstractmethod
    def metric(self, x: Float[Array, " k"]) -> Any:
        """Return D at a point as families see it."""

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
    """The metric of a space."""

    space: Manifold

    def __call__(self, x: Float[Array, " k"]) -> Any:
        return self.space.metric(x)

    def describe(self) -> str:
        """Return a short name for tables."""
        return self.space.describe()


class Torus(Manifold):
    """Angles: draws (n, d), each on a circle, in radians or in other units of which `period` make
    a turn. Scores are derivatives in these units.

    Families see each angle as its cosine and sine, so that a polynomial of degree k is a
    trigonometric one, with frequencies whose sum is at most k.
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

    def metric(self, x):
        return (x @ x) * jnp.eye(len(x), dtype=x.dtype) - jnp.outer(x, x)


class Box(Manifold):
    """Coordinates that end at bounds, where the density need not vanish: draws (n, d) strictly
    between `low` and `high`, numbers or one for each coordinate, of which one may be infinite.
    Scores are ordinary gradients of the density there, without a Jacobian."""

    scores = "gradients of the log density in the bounded coordinates, without a Jacobian"
    low: np.ndarray
    high: np.ndarray

    @takes(
        low=where("numbers", lambda a: a.ndim < 2, read_numbers),
        high=where("numbers", lambda a: a.ndim < 2, read_numbers),
    )
    def __init__(self, low: Any = 0.0, high: Any = 1.0):
        if not np.all(low < high) or np.any(np.isinf(low) & np.isinf(high)):
            raise ValueError(
                "Box: low must be below high, and one of them finite in each coordinate; got "
                f"{low} and {high}"
            )
        self.low, self.high = low, high

    def check(self, draws, scores):
        d = draws.shape[1]
        sizes = {np.size(bound) for bound in (self.low, self.high)} - {1}
        if draws.shape != scores.shape or sizes - {d}:
            raise ValueError(
                f"in a Box draws and scores must both be (n, d), with as many bounds; got "
                f"{draws.shape}, {scores.shape} and bounds of {sorted(sizes) or 1}"
            )
        outside = ~((self.low < draws) & (draws < self.high))
        if outside.any():
            row, j = np.argwhere(outside)[0]
            raise ValueError(
                f"in a Box draws must lie strictly between the bounds; draw {row} has "
                f"{draws[row, j]:.6g} in coordinate {j}"
            )

    def _frame(self, d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return bounds, origins and units of the coordinates that families see: from −1 to 1, or
        from 0 on."""
        low, high = (np.broadcast_to(bound, d).astype(float) for bound in (self.low, self.high))
        both = np.isfinite(low) & np.isfinite(high)
        with np.errstate(invalid="ignore"):
            origin = np.where(both, (low + high) / 2, np.where(np.isfinite(low), low, high))
            unit = np.where(both, (high - low) / 2, np.where(np.isfinite(low), 1.0, -1.0))
        return low, high, origin, unit

    def place(self, draws, scores):
        *_, origin, unit = self._frame(draws.shape[1])
        return ((draws - origin) / unit, scores * unit)

    def metric(self, x):
        low, high, *_ = self._frame(len(x))
        both = np.isfinite(low) & np.isfinite(high)
        return jnp.where(both, 1 - x**2, x)


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
        return (draws, scores)

    def metric(self, x):
        return jnp.diag(x) - jnp.outer(x, x)


SPACE = instance(Space, "a space such as Torus(), Sphere(), Box() or Simplex()")
