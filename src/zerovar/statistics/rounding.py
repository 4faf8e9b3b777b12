"""With how many digits numbers came in, and what error that leaves in a mean, whatever the control
variate.

Numbers in single precision, and text with few digits, are exact doubles, and look precise. They
give themselves away: a double is a single-precision number with probability 2⁻²⁹, and a short
decimal with one even smaller.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int

from ..inputs.points import Matrix
from .series import ROUNDING

_SINGLE = np.finfo(np.float32).epsneg  # half a unit in the last of 24 bits
_DIGITS = np.finfo(np.float64).precision  # that a double always has

PerColumn = Float64[np.ndarray, " k"]


class Rounding(NamedTuple):
    """For each column: how far its entries may be from what they stand for; zero where they seem to
    be full doubles, or integers. `single` are those in single precision, whose errors may come from
    arithmetic and then do not average out; those of text do."""

    size: PerColumn
    single: Bool[np.ndarray, " k"]

    @staticmethod
    def of(columns: Matrix) -> Rounding:
        size = np.zeros(columns.shape[1])
        largest = np.abs(columns).max(axis=0)
        # what is constant up to rounding is no text
        known = np.ptp(columns, axis=0) <= ROUNDING * largest
        top = np.floor(np.log10(np.where(largest > 0, largest, 1.0)))
        for decimals in range(_DIGITS):
            short = _where(
                columns, ~known & (top + decimals < _DIGITS), partial(np.round, decimals=decimals)
            )
            size[short] = 0.5 * 10.0**-decimals if decimals else 0.0
            known |= short
        single = _where(columns, ~known, lambda part: part.astype(np.float32))
        size[single] = _SINGLE * largest[single]
        known |= single
        for digits in range(2, _DIGITS):
            short = _where(columns, ~known, partial(_shorten, digits=digits))
            size[short] = 0.5 * 10.0 ** (top[short] - digits + 1)
            known |= short
        return Rounding(size, single)

    def in_mean(self, draws: int) -> PerColumn:
        """The standard error that it leaves in a mean over this many draws."""
        return np.where(self.single, self.size, self.size / np.sqrt(3 * draws))


def _where(
    columns: Matrix, asked: Bool[np.ndarray, " k"], rounded: Callable[[Any], Any]
) -> Bool[np.ndarray, " k"]:
    """Which of the columns that are asked for stay as they are when they are rounded so. A few rows
    rule most of them out."""
    found = asked.copy()
    with np.errstate(over="ignore", under="ignore"):
        for part in (slice(int(np.sqrt(len(columns)))), slice(None)):
            some = np.flatnonzero(found)
            block = columns[part][:, some]
            found[some] = np.all(block == rounded(block), axis=0)
    return found


def _shorten(column: np.ndarray, digits: int) -> np.ndarray:
    """Rounded to so many significant digits, as text has them; itself where that is so but for the
    last bits."""
    exponent = np.floor(np.log10(np.where(column == 0, 1.0, np.abs(column))))
    power = digits - 1 - exponent
    up, down = 10.0 ** np.clip(power, 0, 300), 10.0 ** np.clip(-power, 0, 300)
    short = np.rint(column / down * up) * down / up
    return np.where(
        np.abs(short - column) <= 4 * np.finfo(float).eps * np.abs(column), column, short
    )


def equal_columns(columns: Matrix) -> Int[np.ndarray, " k"]:
    """For each column the first that it is equal to, up to what rounding does to numbers of its
    precision; itself where there is none."""
    single = Rounding.of(columns).single
    unit = np.where(single, _SINGLE / np.finfo(np.float64).eps, 1.0)
    tolerance = ROUNDING * unit * np.abs(columns).max(axis=0)
    # of one precision, sorted by a random sum, equal ones are neighbours
    order = np.lexsort((np.random.default_rng(0).normal(size=len(columns)) @ columns, single))
    apart = np.abs(np.diff(columns[:, order], axis=1)).max(axis=0)
    equal = apart <= np.minimum(tolerance[order[1:]], tolerance[order[:-1]])
    group = np.append(0, np.cumsum(~equal))
    first = np.full(len(order), len(order))
    np.minimum.at(first, group, order)
    return first[group[np.argsort(order)]]
