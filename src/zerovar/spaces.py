"""Spaces: where draws live, which scores they have, and the operator that has mean zero there.

On a manifold, and where a density may end with a positive value, Stein's identity holds for the
Langevin operators of a metric D(x) that fits the space: along a sphere it has no part across, at
the border of a box it vanishes, so that no boundary term is left. Families are the same as in Rᵈ.
They see points in coordinates x in which smooth functions of the space are smooth functions of x:
an angle is a point of the unit circle there. Where draws are whole numbers, differences take the
place of derivatives, and ratios of probabilities that of scores.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Float64

from .arguments import POSITIVE, instance, read_numbers, takes, where
from .io.archive import Storable
from .operators import Barker, Diffusion, Operator, ScalarLangevin

Positions = Float64[np.ndarray, "n d"]
# How far points of a sphere or a simplex may be off it: half of the digits of single precision
_OFF = float(np.sqrt(np.finfo(np.float32).eps))


class Space(Storable, eqx.Module):
    """Where draws live.

    is_flat: whether it is all of Rᵈ, where draws may be standardised and coordinates mixed.
    is_countable: whether draws are whole numbers, and scores log ratios that may be −∞.
    """

    is_flat: ClassVar[bool] = False
    is_countable: ClassVar[bool] = False
    scores: ClassVar[str]  # what scores are, for messages

    @abstractmethod
    def check(self, draws: Positions, scores: np.ndarray) -> None:
        """Raise a ValueError if these are no points of the space, or no scores of it."""

    def resolve(self, draws: Positions, probabilities: np.ndarray) -> Space:
        """Return this space with all that is open chosen from draws that fit."""
        return self

    @abstractmethod
    def place(self, draws: Positions, scores: np.ndarray) -> tuple[Positions, np.ndarray]:
        """Return points and scores as families see them."""

    def reorderings(self, k: int) -> dict[str, np.ndarray]:
        """Return other orders that k scores of a draw may have by mistake, by what they are called,
        and how to mend them."""
        return {}

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


# of a coordinate, or of each
BOUND = where("numbers", lambda a: a.ndim < 2, read_numbers)


class Box(Manifold):
    """Coordinates that end at bounds, where the density need not vanish: draws (n, d) strictly
    between `low` and `high`, numbers or one for each coordinate, of which one may be infinite.
    Scores are ordinary gradients of the density there, without a Jacobian."""

    scores = "gradients of the log density in the bounded coordinates, without a Jacobian"
    low: np.ndarray
    high: np.ndarray

    @takes(low=BOUND, high=BOUND)
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


class Grid(Space):
    """States in whole numbers: draws (n, d) from `low` to `high`, numbers or one for each
    coordinate. Grid() is {0, 1}ᵈ, Grid(0, np.inf) are counts, Grid(-np.inf, np.inf) all integers.

    Scores are log p(x′) − log p(x) for the neighbours x′ of each draw x, −∞ where x′ is impossible.
    Where all coordinates have two values, the j-th neighbour has the other one in coordinate j, and
    scores are (n, d). Else they are (n, 2d): first a step up, +1, in each coordinate, then a step
    down in each. Spins of ±1 are 2γ − 1 of draws γ in Grid().

    Families see two values as −1 and 1, and other numbers in deviations from their mean; `mean` and
    `deviation` are those of the draws that fit.
    """

    is_countable = True
    scores = (
        "log p(x′) − log p(x) of the neighbours: the other value of each coordinate where all have "
        "two, else first a step up in each and then a step down in each"
    )
    low: np.ndarray
    high: np.ndarray
    mean: np.ndarray | None
    deviation: np.ndarray | None

    @takes(low=BOUND, high=BOUND)
    def __init__(self, low: Any = 0, high: Any = 1, mean: Any = None, deviation: Any = None):
        ends = np.concatenate([np.ravel(low), np.ravel(high)])
        if not np.all(low < high) or np.any(ends[np.isfinite(ends)] % 1):
            raise ValueError(
                "Grid: low must be below high, both whole numbers or infinite; got "
                f"{low} and {high}"
            )
        self.low, self.high, self.mean, self.deviation = low, high, mean, deviation

    @property
    def has_two_values(self) -> bool:
        """Whether each coordinate has two values, so that it can only change to the other one."""
        return bool(np.all(self.high - self.low == 1))

    def check_draws(self, draws: Positions) -> None:
        """Raise a ValueError if these are no states of the grid."""
        d = draws.shape[1]
        sizes = {np.size(bound) for bound in (self.low, self.high)} - {1}
        if sizes - {d}:
            raise ValueError(
                f"Grid: low and high must be numbers or one for each of {d} coordinates; got "
                f"{sorted(sizes)}"
            )
        inside = (self.low <= draws) & (draws <= self.high)
        if len(bad := np.argwhere((draws % 1 != 0) | ~inside)):
            row, j = bad[0]
            raise ValueError(
                f"in a {self.describe()} draws must be whole numbers from low to high; draw {row} "
                f"has {draws[row, j]:.6g} in coordinate {j}"
            )

    def check(self, draws, scores):
        self.check_draws(draws)
        d = draws.shape[1]
        k = d if self.has_two_values else 2 * d
        if scores.shape[1] != k:
            raise ValueError(
                f"in a {self.describe()} each draw has {k} neighbours for d = {d}, and a score for "
                f"each: {self.scores}. Got scores {scores.shape} for draws {draws.shape}"
            )
        if self.has_two_values:
            return
        ends = np.concatenate([draws == self.high, draws == self.low], axis=1)
        if len(bad := np.argwhere(ends & (scores > -np.inf))):
            row, j = bad[0]
            raise ValueError(
                f"in a {self.describe()} draw {row} has {draws[row, j % d]:.6g} in coordinate "
                f"{j % d}, where it ends, and its neighbour {j}, one {'up' if j < d else 'down'}, "
                f"is impossible: the score must be -inf; got {scores[row, j]:.6g}. Neighbours are "
                "a step up in each coordinate, then a step down in each"
            )

    def resolve(self, draws, probabilities):
        if self.has_two_values:
            return self
        mean = probabilities @ draws
        deviation = np.sqrt(probabilities @ (draws - mean) ** 2)
        return Grid(self.low, self.high, mean, np.where(deviation > 0, deviation, 1.0))

    def place(self, draws, scores):
        # the logistic function of log ratios, without overflow
        weights = 0.5 * (1 + np.tanh(0.5 * scores))
        if self.has_two_values:
            return (2 * (draws - self.low) - 1, weights)
        assert self.mean is not None, "resolved by the draws that fit"
        return ((draws - self.mean) / self.deviation, weights)

    def own(self, operator):
        if isinstance(operator, ScalarLangevin) and operator.is_plain:
            return Barker(None if self.deviation is None else 1 / self.deviation)
        if isinstance(operator, Diffusion):
            raise ValueError(
                f"{operator.describe()}: among whole numbers there are no derivatives, and "
                "differences take the place of ScalarLangevin() alone: Polynomial(2), "
                "Kernel(order=2), Network(MLP(), ScalarLangevin())"
            )
        return operator

    def reorderings(self, k):
        backwards = {"the last coordinate comes first": np.arange(k)[::-1]}
        if self.has_two_values:
            return backwards
        halves = np.arange(k).reshape(2, -1)
        return {
            "steps down come before steps up": halves[::-1].ravel(),
            "both steps of a coordinate come together": np.arange(k).reshape(-1, 2).T.ravel(),
            "the last coordinate comes first": halves[:, ::-1].ravel(),
        }

    def neighbours(
        self, draws: Positions
    ) -> tuple[Float64[np.ndarray, "n k d"], Bool[np.ndarray, "n k"]]:
        """Return the neighbours of draws, those that are impossible replaced by the draw; and which
        of them are possible (n, k)."""
        n, d = draws.shape
        if self.has_two_values:
            moves = (self.low + self.high - 2 * draws)[:, :, None] * np.eye(d)
            return draws[:, None] + moves, np.ones((n, d), dtype=bool)
        possible = np.concatenate([draws < self.high, draws > self.low], axis=1)
        steps = np.concatenate([np.eye(d), -np.eye(d)])
        return draws[:, None] + possible[:, :, None] * steps, possible


SPACE = instance(Space, "a space such as Torus(), Sphere(), Box(), Simplex() or Grid()")
