"""Quantities and events: what a user asks for, as a number of the draw and levels of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..errors import NumericalWarning, list_names, warn
from ..inputs.density import Density, OfPoints
from ..inputs.integrands import InSingleOnly
from ..inputs.points import Vector
from ..inputs.sample import Sample
from .directions import find_index
from .expressions import DIFFERENCE, FUNCTIONS, Combination, Expression, parse_expression
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

    @staticmethod
    def of(name: str, expression: Expression, parts: list[Quantity]) -> Quantity:
        """Return what an expression in some others is, by what these are."""
        with np.errstate(all="ignore"):
            values = np.asarray(expression([one.values for one in parts]), np.float64)
        functions = tuple(one.at for one in parts if one.at is not None)
        known = len(functions) == len(parts)
        return Quantity(name, values, Combination(expression, functions) if known else None)

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
_JOINED = re.compile(r"\b(and|or|not)\b")


def read_event(text: str, find: Callable[[str], Quantity | None], names: list[str]) -> Event:
    """Return the event of a comparison such as "tau > 5", "a - b > 0" or "0 < mu < 3", or of
    several joined by and, or, not; `find` gives quantities by their names."""
    parts = [part.strip() for part in _SIGNS.split(text)]
    sides, signs = parts[::2], parts[1::2]

    def refuse(why: str) -> ValueError:
        return ValueError(
            'events must read like "tau > 5", "a > b", "0 < mu < 3" or "a > 0 and b > 0"; got '
            f"{text!r}, {why}. Give a function of one draw, or a boolean array, for others"
        )

    read = [_side(side, find) for side in sides]
    if None in read and _JOINED.search(text):
        joint = _combine(text, find, names, refuse, joins=True)
        if isinstance(joint, Quantity):
            return truth(joint)
    if len(signs) not in (1, 2):
        raise refuse(f"with {len(signs)} comparisons" if signs else "without a comparison")
    read = [
        _combine(side, find, names, refuse) if found is None else found
        for side, found in zip(sides, read, strict=True)
    ]
    for side, found in zip(sides, read, strict=True):
        if found is None:
            raise refuse(
                f"where {side!r} is neither a number nor one of {list_names(names)}, nor made of "
                f"them by + - * / ** and {', '.join(FUNCTIONS)}"
            )
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
        between = Quantity.of(f"{left.name} - {right.name}", DIFFERENCE, [left, right])
        return _compare(between, signs[0], 0.0)
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


def _combine(
    text: str,
    find: Callable[[str], Quantity | None],
    names: list[str],
    refuse: Callable[[str], ValueError],
    joins: bool = False,
) -> Quantity | float | None:
    """Return what an expression in named quantities is, a number if it has no names; None where it
    is no such expression; of comparisons that it `joins` the truth, 0 or 1."""
    read = parse_expression(text, names, refuse)
    if read is None or read.joins is not joins:
        return None
    found = [find(name) for name in read.names]
    if None in found:
        return None
    quantity = Quantity.of(text, read, [one for one in found if one is not None])
    if not found:
        return float(quantity.values)
    if not np.isfinite(quantity.values).all():
        raise refuse(f"where {text!r} is no finite number at some draws")
    return quantity


def _compare(quantity: Quantity, sign: str, level: float) -> Event:
    """q < c, q <= c, q > c or q >= c, by what is strictly below a level."""
    if sign in ("<=", ">"):
        level = float(np.nextafter(level, np.inf))
    below = sign[0] == "<"
    return Event(quantity, (level,), (1.0 if below else -1.0,), 0.0 if below else 1.0)
