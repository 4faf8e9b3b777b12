"""Probabilities along lines: x + u v, with one direction v for all draws x, or for a part of them.

Given the line through a draw, the draw is anywhere on it with a density proportional to that of the
target. The conditional probability of an event therefore has the same mean as its indicator, and
it is a smooth function of the draw.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int

from ..inputs.density import Density, OfPoints
from ..inputs.integrands import ROWS
from ..inputs.points import Matrix, Vector, find_distinct
from ..inputs.sample import Sample
from ..statistics.quantiles import weighted_quantile
from ..statistics.series import effective_size
from .crossings import find_crossings
from .directions import Index, directions
from .panels import Landmarks
from .quadrature import FINEST, Conditional, integrate_lines

# Of the distance between two nodes, the step of a difference quotient: its error is the square
_STEP = 1e-5
# Draws through which lines are laid to choose their direction, the shares at whose quantiles
# probabilities are compared, and to what part of a line's mass they are integrated
_TRIED, _SHARES, _ROUGH = 64, np.array([0.05, 0.5, 0.95]), 1e-5
# Of the standard error that lines alone leave, what integrals may be off by. Control variates take
# that to a thousandth on regressions, and to a tenth or a third on other posteriors
_FINE = 1e-4
# Of a mean weight, the least of points that tell how fine panels must be: those of the tails of
# narrow proposals would take six times as many evaluations
_COUNTS = 0.1


class Smooth(NamedTuple):
    """For each draw and level, what has the mean P(quantity < level); and what has the quantity's
    density there as its mean, if that is known. `error` (l,) is what means of the first may be off
    by, besides chance, and `share_off` (l,) what those of the second may be, as a share of them."""

    below: Float64[np.ndarray, "n l"]
    density: Float64[np.ndarray, "n l"] | None
    error: Float64[np.ndarray, " l"]
    share_off: Float64[np.ndarray, " l"]


@dataclasses.dataclass(frozen=True, eq=False)
class Lines:
    """A quantity along the lines through all draws, with the density there. Equal draws share a
    line, so that they have the same numbers to the last bit: `line` says which, `share` (lines,)
    what each of them counts."""

    draws: Matrix
    vectors: Matrix
    line: Int[np.ndarray, " all"]
    share: Vector
    quantity: OfPoints
    conditional: Conditional
    values: Float64[np.ndarray, "m k"]

    words = "conditional probabilities along lines"

    @staticmethod
    def of(density: Density, sample: Sample, index: Index, quantity: OfPoints) -> Lines:
        """Lay lines in the direction on which probabilities vary least, as some draws show."""
        few, rows = sample.thin(_TRIED)
        own = index._replace(values=index.values[rows])
        levels = weighted_quantile(quantity(sample.draws), sample.probabilities, _SHARES)
        spreads = []
        found = directions(sample, index)
        for vectors in found:
            rough = Lines.along(density, few, own, vectors[rows], quantity, _ROUGH)
            spreads.append(rough.below(levels).below.var(axis=0))
        best = int(np.argmin([np.sum(one / (_SHARES * (1 - _SHARES))) for one in spreads]))
        fine = max(_FINE * np.sqrt(np.min(spreads[best]) / len(sample)), FINEST)
        return Lines.along(density, sample, index, found[best], quantity, fine)

    @staticmethod
    def along(
        density: Density,
        sample: Sample,
        index: Index,
        vectors: Float64[np.ndarray, "... d"],
        quantity: OfPoints,
        tolerance: float = FINEST,
    ) -> Lines:
        """Integrate the density along lines in these directions, one for all draws or (n, d), to
        this part of their mass, and evaluate the quantity at the nodes."""
        first, line = find_distinct(sample.draws)
        draws, centre = sample.draws[first], -index.values[first]
        vectors = np.broadcast_to(vectors, sample.draws.shape)[first]

        def points(line: np.ndarray, u: np.ndarray) -> Matrix:
            moved = draws[line][:, None, :] + u[:, :, None] * vectors[line][:, None, :]
            return moved.reshape(-1, draws.shape[1])

        def log_density(line: np.ndarray, u: np.ndarray) -> np.ndarray:
            return density.at(points(line, u)).reshape(u.shape)

        share = np.bincount(line, sample.probabilities)
        counts = share > _COUNTS / len(share)
        landmarks = Landmarks(index.values[first], vectors @ index.gradient, counts)
        found = integrate_lines(log_density, centre, density.at(draws), tolerance, landmarks)
        nodes = found.panels.nodes
        values = quantity(points(found.panels.line, nodes)).reshape(nodes.shape)
        return Lines(draws, vectors, line, share, quantity, found, values)

    def below(self, levels: Float64[np.ndarray, " l"]) -> Smooth:
        """Return the conditional probabilities and densities at these levels."""
        found = self._cross(levels)
        below = np.clip(found.sum_up(self.conditional), 0.0, 1.0)
        own, place, step = found.line, found.place, found.step
        rise = self._along(own, place + step) - self._along(own, place - step)
        with np.errstate(divide="ignore", invalid="ignore"):
            height = self.conditional.at(own, place) * np.abs(2 * step / rise)
        density = np.bincount(found.cell, height, below.size).reshape(below.shape)
        error = np.full(len(levels), self.share @ self.conditional.error)
        return Smooth(below[self.line], density[self.line], error, error)

    def misfit(self, sample: Sample) -> float:
        """Return how many errors away, at most, the draws are from where their lines say: on its
        line, a draw has a share of the mass before it that is uniform. It is not where lines miss
        modes that draws are in."""
        share = self.conditional.until(np.arange(len(self.draws)), np.zeros(len(self.draws)))
        at = np.linspace(0, 1, 52)[1:-1]
        below = (share[self.line, None] < at).astype(float)
        size = np.minimum(effective_size(sample.by_chain(below)) / len(below), 1.0)
        error = np.sqrt(at * (1 - at) * np.sum(sample.probabilities**2) / size)
        return float(np.max(np.abs(sample.probabilities @ below - at) / error))

    def below_times(
        self, levels: Float64[np.ndarray, " l"], function: Callable[[Matrix], Matrix]
    ) -> Float64[np.ndarray, "n l r"]:
        """Return conditional means of r functions of points, (m, d) to (m, r), each zero where the
        quantity is not below a level."""
        found = self._cross(levels)
        parts = [found.sum_up(each) for each in self._times(function)]
        return np.stack(parts, axis=2)[self.line]

    def mean_of(self, function: Callable[[Matrix], Matrix]) -> Float64[np.ndarray, "n r"]:
        """Return conditional means of r functions of points, (m, d) to (m, r)."""
        return np.stack([each.total for each in self._times(function)], axis=1)[self.line]

    def _times(self, function: Callable[[Matrix], Matrix]) -> Iterator[Conditional]:
        """The density along lines times each of some functions, evaluated some panels at a time."""
        panels = self.conditional.panels
        parts = [
            function(self._points(panels.line[some], panels.nodes[some]))
            for some in np.array_split(np.arange(len(panels.line)), len(panels.line) // ROWS + 1)
        ]
        columns = np.concatenate(parts).T
        for column in columns:
            yield self.conditional.times(column.reshape(panels.nodes.shape))

    def _cross(self, levels: Float64[np.ndarray, " l"]) -> _Crossings:
        """Find where the quantity crosses levels along each line."""
        panels = self.conditional.panels
        line = np.repeat(panels.line, panels.nodes.shape[1])
        u, values = panels.nodes.ravel(), self.values.ravel()
        under = values < levels[:, None]
        level, place = np.nonzero((under[:, 1:] != under[:, :-1]) & (line[1:] == line[:-1]))
        own, beside = line[place], place + 1
        crossing = find_crossings(
            lambda rows, at: self._along(own[rows], at) - levels[level[rows]],
            u[place],
            u[beside],
            values[place] - levels[level],
            values[beside] - levels[level],
            within=FINEST / 100,  # of about a deviation: less than integrals are off by
        )
        last = np.searchsorted(line, np.arange(len(self.draws)), side="right") - 1
        return _Crossings(
            own,
            level,
            crossing,
            np.where(under[level, place], 1.0, -1.0),
            _STEP * (u[beside] - u[place]),
            under[:, last].T,
        )

    def _points(self, line: np.ndarray, u: np.ndarray) -> Matrix:
        """Places (m, k) of lines (m,) as points."""
        moved = self.draws[line][:, None, :] + u[:, :, None] * self.vectors[line][:, None, :]
        return moved.reshape(-1, self.draws.shape[1])

    def _along(self, line: np.ndarray, u: np.ndarray) -> np.ndarray:
        """The quantity at one place of each of these lines."""
        if not len(line):  # where no line crosses a level
            return np.empty(0)
        return self.quantity(self.draws[line] + u[:, None] * self.vectors[line])


class _Crossings(NamedTuple):
    """Where the quantity crosses levels: on which line, which level, at which place; 1 where it is
    below before that and −1 where it is after; a small step there; and whether it is below at the
    end of each line."""

    line: Int[np.ndarray, " r"]
    level: Int[np.ndarray, " r"]
    place: Float64[np.ndarray, " r"]
    sign: Float64[np.ndarray, " r"]
    step: Float64[np.ndarray, " r"]
    at_end: Bool[np.ndarray, "n l"]

    @property
    def cell(self) -> Int[np.ndarray, " r"]:
        """Their places in an array with a row for each line and a column for each level."""
        return self.line * self.at_end.shape[1] + self.level

    def sum_up(self, conditional: Conditional) -> Float64[np.ndarray, "n l"]:
        """Return integrals along each line over all that is below each level: the mass up to a
        crossing counts where the quantity is below before it."""
        until = self.sign * conditional.until(self.line, self.place)
        parts = np.bincount(self.cell, until, self.at_end.size).reshape(self.at_end.shape)
        return parts + self.at_end * conditional.total[:, None]
