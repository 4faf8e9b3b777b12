"""Pieces of lines, and the draws that tell how fine they must be.

The log density is evaluated at a few places of each panel, and interpolated to many Gauss–Legendre
nodes. Panels see nothing of a mode that lies between their places. But every draw is a place where
the density is known to be large, and on its own line the panels about it had to be fine enough.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int
from numpy.polynomial import legendre

# Places of a panel at which the log density is evaluated: with 14, or 10, four posteriors take a
# tenth more in the mean. And nodes of the density: on a panel of 6.5 deviations a normal one is a
# polynomial of 32 terms to 1e-12 of its mass
PLACES, NODES = 12, 32
# Neighbours whose panels' median says how fine panels must be where they are; and how many times as
# long as that another line's panel may be, of whose places one is then within that length
_NEIGHBOURS, _COARSE = 5, 8
# Panels of a line that are not cut any more: of 0.7 N(0, 1) + 0.3 N(6, 0.005) lines have up to 180
_MOST = 300
# Share of the draws beyond the end of a line from which it goes on to them
_BEYOND = 0.01


def _to_series(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss–Legendre nodes, and the matrix from values there to coefficients of polynomials. These
    are orthogonal, and the square of the k-th has the integral 1 / (k + 1/2)."""
    x, w = legendre.leggauss(count)
    return x, legendre.legvander(x, count - 1) * w[:, None] * (np.arange(count) + 0.5)


X, TO_SERIES = _to_series(NODES)
AT, LOG_TO_SERIES = _to_series(PLACES)


class Panels(NamedTuple):
    """Pieces of lines: of which line, from where to where, and the log density at some places."""

    line: Int[np.ndarray, " m"]
    left: Float64[np.ndarray, " m"]
    right: Float64[np.ndarray, " m"]
    log_density: Float64[np.ndarray, "m k"]

    def take(self, which: np.ndarray) -> Panels:
        """Return some of them, by mask or by number."""
        return Panels(*(field[which] for field in self))

    def join(self, other: Panels) -> Panels:
        """Return these and others."""
        return Panels(*(np.concatenate(pair) for pair in zip(self, other, strict=True)))

    @property
    def width(self) -> Float64[np.ndarray, " m"]:
        """How long they are."""
        return self.right - self.left

    @property
    def places(self) -> Float64[np.ndarray, "m k"]:
        """Where the log density is evaluated, in increasing order."""
        return (self.left + self.right)[:, None] / 2 + self.width[:, None] / 2 * AT

    @property
    def nodes(self) -> Float64[np.ndarray, "m h"]:
        """Where the density is interpolated, in increasing order."""
        return (self.left + self.right)[:, None] / 2 + self.width[:, None] / 2 * X


class Landmarks(NamedTuple):
    """Where the draws are, in a coordinate that all lines share: `own` (n,) is that of each line's
    draw, and `rise` (n,) how fast it grows along the line. A draw is a place where the density is
    known to be large, and may be so on the lines of others, unless it hardly `counts` (n,)."""

    own: Float64[np.ndarray, " n"]
    rise: Float64[np.ndarray, " n"]
    counts: Bool[np.ndarray, " n"]

    def missing(self, panels: Panels) -> tuple[Bool[np.ndarray, " m"], Panels]:
        """Return which panels step over draws, and panels to take their place or to be added to
        them: panels are cut at the ends of those that the draws needed on lines of their own, and
        lines go on where more than a hundredth of the draws lie beyond their end."""
        order = np.argsort(self.own, kind="stable")
        own = self.own[order]
        here = (panels.left <= 0) & (panels.right > 0)
        here &= self.counts[panels.line]
        needed = np.full(len(own), np.inf)
        needed[panels.line[here]] = panels.width[here] * np.abs(self.rise[panels.line[here]])
        reach = _NEIGHBOURS // 2
        around = np.pad(needed[order], reach, mode="edge")
        fine = np.median(np.lib.stride_tricks.sliding_window_view(around, _NEIGHBOURS), axis=1)
        rise = self.rise[panels.line]
        ends = self.own[panels.line] + rise * np.stack([panels.left, panels.right])
        low, high = np.searchsorted(own, np.sort(ends, axis=0))
        finest = _least_between(fine, low, high)
        coarse = (low < high) & (np.abs(rise) * panels.width > _COARSE * fine[finest])
        coarse &= (np.bincount(panels.line) < _MOST)[panels.line]
        cut, at, half = panels.take(coarse), own[finest[coarse]], fine[finest[coarse]] / 2
        middle = (at - self.own[cut.line]) / rise[coarse]
        half = half / np.abs(rise[coarse])
        inner = np.clip(np.stack([middle - half, middle + half]), cut.left, cut.right)
        edges = np.stack([cut.left, *inner, cut.right])
        parts = [(cut.line, *pair) for pair in itertools.pairwise(edges)]
        return coarse, _join_parts([*parts, *self._beyond(panels)])

    def _beyond(self, panels: Panels) -> list[tuple[np.ndarray, ...]]:
        """Pieces beyond the ends of lines, as far as there are draws."""
        own, lines = np.sort(self.own[self.counts]), np.arange(len(self.own))
        ends = (
            panels.left[np.searchsorted(panels.line, lines)],
            panels.right[np.searchsorted(panels.line, lines, side="right") - 1],
        )
        found = []
        with np.errstate(divide="ignore", invalid="ignore"):
            for side, end in zip((-1, 1), ends, strict=True):
                up = side * self.rise > 0
                last = np.where(up, own[-1], own[0])
                to = (last - self.own) / self.rise
                at = np.searchsorted(own, self.own + self.rise * end)
                beyond = np.where(up, len(own) - at, at)
                more = (beyond > _BEYOND * len(own)) & (side * to > side * end) & np.isfinite(to)
                pair = (end[more], to[more])[::side]
                found.append((lines[more], *pair))
        return found


def _least_between(
    values: Float64[np.ndarray, " n"], low: Int[np.ndarray, " m"], high: Int[np.ndarray, " m"]
) -> Int[np.ndarray, " m"]:
    """Return the place of the least of values[low:high], of each of many ranges; `low` where a
    range is empty."""
    n = len(values)
    table = [np.arange(n)]  # of the least of 1, 2, 4, … values from each place on
    while 2 ** len(table) <= n:
        one = table[-1]
        other = one[2 ** (len(table) - 1) :]
        one = one[: len(other)]
        table.append(np.where(values[other] < values[one], other, one))
    length = np.maximum(high - low, 1)
    level = np.frexp(length)[1] - 1
    found = np.empty(len(low), dtype=int)
    for k, places in enumerate(table):
        own = level == k
        first = places[np.minimum(low[own], len(places) - 1)]
        second = places[np.clip(high[own] - 2**k, 0, len(places) - 1)]
        found[own] = np.where(values[second] < values[first], second, first)
    return found


def _join_parts(parts: list[tuple[np.ndarray, ...]]) -> Panels:
    """Panels of pieces (line, left, right), but of those that have no length."""
    line, left, right = (np.concatenate(each) for each in zip(*parts, strict=True))
    some = right > left
    return Panels(line[some], left[some], right[some], np.empty((int(some.sum()), PLACES)))
