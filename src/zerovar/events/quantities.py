"""Quantities and events: what a user asks for, as a number of the draw and levels of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..errors import NumericalWarning, list_names, warn
from ..inputs.density import Density, OfPoints
from ..inputs.integrands import InSingleOnly
from ..inputs.points import Matrix, Vector
from ..inputs.sample import Sample
from .directions import find_index
from .lines import Lines, Smooth
from .normal import ByScores

# Of a deviation, how far a quantity's function may be from its values at the draws: these come in
# single precision, or with the few digits of a file
_SAME = 1e-2
# What integrals along lines may be off by, on average, before scores alone are trusted more
_COARSE = 1e-3
# Errors that draws may be from where lines have them, at the worst of fifty shares of a line
_UNLIKELY = 5.0

Marginal = Lines | ByScores


class Quantity(NamedTuple):
    """A number that depends on the draw: at the draws, (n,), and as a function of points if that is
    known."""

    name: str
    values: Vector
    at: OfPoints | None = None

    def minus(self, other: Quantity) -> Quantity:
        """Return the difference of two."""
        known = self.at is not None and other.at is not None
        both = _Difference(self.at, other.at) if known else None
        return Quantity(f"{self.name} - {other.name}", self.values - other.values, both)

    def jumps(self, sample: Sample) -> bool:
        """Whether it takes but a few values: fewer than half of the places that the draws do."""
        return 2 * len(np.unique(self.values)) < len(np.unique(sample.draws[:, 0]))

    def marginal(self, sample: Sample, density: Density | None) -> Marginal | None:
        """Return what makes its levels smooth: lines where the log density is known, scores
        elsewhere. None if it is the same at every draw, and in spaces other than Rᵈ, where there
        are neither lines nor an index."""
        if not sample.space.is_flat:
            return None
        index = find_index(sample, self.values, getattr(self.at, "gradient", None))
        if index is None:
            return None
        if density is not None and self.at is not None:
            try:
                off = np.abs(self.at(sample.draws) - self.values)
                finite = np.isfinite(density.at(sample.draws)).all()
                if finite and np.median(off) <= _SAME * self.values.std():
                    lines = Lines.of(density, sample, index, self.at)
                    if not lines.conditional.error.mean() < _COARSE:
                        why = "its integrals along lines do not converge"
                    elif lines.misfit(sample) > _UNLIKELY:
                        why = (
                            "it does not have the draws where they are on their lines. Have the "
                            "chains converged, and is each of its modes among the draws?"
                        )
                    else:
                        return lines
                else:
                    why = "its function gives other values than it has at the draws"
            except InSingleOnly:  # as a scan that carries 32-bit integers
                return ByScores.of(sample, self.values, index)
            except Exception as error:  # a user's model, run where it never was
                why = str(error)
            warn(
                f"{self.name}: probabilities and quantiles rest on the scores alone. The log "
                f"density is not used along lines, as {why}",
                NumericalWarning,
            )
        return ByScores.of(sample, self.values, index)


class _Difference:
    """The difference of two functions of points."""

    def __init__(self, first: Any, second: Any):
        self.first, self.second = first, second

    def __call__(self, points: Matrix, /) -> Vector:
        return self.first(points) - self.second(points)

    def gradient(self, points: Matrix) -> Matrix:
        """Return the gradients at points (m, d)."""
        return self.first.gradient(points) - self.second.gradient(points)


class Event(NamedTuple):
    """Something that is true or not of a draw: its probability is that of a quantity to be below
    levels, with these signs, plus an offset."""

    quantity: Quantity
    levels: tuple[float, ...]
    signs: tuple[float, ...]
    offset: float

    @property
    def seen(self) -> Vector:
        """1 at the draws at which it is true, and 0 at the others."""
        return self.combine(self.quantity.values[:, None] < np.array(self.levels))

    def smooth(self, marginal: Marginal) -> tuple[Vector, float]:
        """Return what has the event's probability as its mean, (n,), and what that may be off
        by."""
        found: Smooth = marginal.below(np.array(self.levels))
        return self.combine(found.below), float(found.error.sum())

    def combine(self, below: np.ndarray) -> Vector:
        return self.offset + below @ np.array(self.signs)


def truth(quantity: Quantity) -> Event:
    """Return the event that a quantity which is 0 or 1 is 1."""
    return Event(quantity, (0.5,), (-1.0,), 1.0)


_SIGNS = re.compile(r"(<=|>=|<|>)")


def read_event(text: str, find: Callable[[str], Quantity | None], names: list[str]) -> Event:
    """Return the event of a comparison such as "tau > 5", "a > b" or "0 < mu < 3"; `find` gives
    quantities by their names."""
    parts = [part.strip() for part in _SIGNS.split(text)]
    sides, signs = parts[::2], parts[1::2]

    def refuse(why: str) -> ValueError:
        return ValueError(
            f'events must read like "tau > 5", "a > b" or "0 < mu < 3"; got {text!r}, {why}. '
            "Give a function of one draw, or a boolean array, for others"
        )

    if len(signs) not in (1, 2):
        raise refuse(f"with {len(signs)} comparisons" if signs else "without a comparison")
    read = [_side(side, find) for side in sides]
    for side, found in zip(sides, read, strict=True):
        if found is None:
            raise refuse(f"where {side!r} is neither a number nor one of {list_names(names)}")
        if isinstance(found, float) and not np.isfinite(found):
            raise refuse(f"where {side!r} is no level")
    if len(signs) == 2:
        low, middle, high = read
        if not (
            isinstance(low, float) and isinstance(middle, Quantity) and isinstance(high, float)
        ):
            raise refuse("which must have a quantity between two numbers")
        if signs[0][0] != signs[1][0]:
            raise refuse("whose signs point in two directions")
        lower = _compare(middle, _FLIPPED[signs[0]], low)
        upper = _compare(middle, signs[1], high)
        if signs[0][0] == ">":
            lower, upper = upper, lower
        if not lower.levels[0] < upper.levels[0]:
            raise refuse("which no number fulfils")
        # true of both: P(below the upper) − P(below the lower)
        return Event(middle, (lower.levels[0], upper.levels[0]), (-1.0, 1.0), 0.0)
    left, right = read
    if isinstance(left, Quantity) and isinstance(right, Quantity):
        return _compare(left.minus(right), signs[0], 0.0)
    if isinstance(left, Quantity) and isinstance(right, float):
        return _compare(left, signs[0], right)
    if isinstance(right, Quantity) and isinstance(left, float):
        return _compare(right, _FLIPPED[signs[0]], left)
    raise refuse("which compares two numbers")


_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}


def _side(text: str, find: Callable[[str], Quantity | None]) -> Quantity | float | None:
    try:
        return float(text)
    except ValueError:
        return find(text)


def _compare(quantity: Quantity, sign: str, level: float) -> Event:
    """q < c, q <= c, q > c or q >= c, by what is strictly below a level."""
    if sign in ("<=", ">"):
        level = float(np.nextafter(level, np.inf))
    below = sign[0] == "<"
    return Event(quantity, (level,), (1.0 if below else -1.0,), 0.0 if below else 1.0)
