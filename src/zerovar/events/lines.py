"""Probabilities along lines: x + u v, with one direction v for all draws x.

Given the line through a draw, the draw is anywhere on it with a density proportional to that of the
target. The conditional probability of an event therefore has the same mean as its indicator, and
it is a smooth function of the draw.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from ..inputs.density import Density, OfPoints
from ..inputs.points import Matrix, Vector
from ..inputs.sample import Sample
from ..statistics.ranks import normal_scores
from .crossings import find_crossings
from .quadrature import Conditional, integrate_lines

# Of the distance between two nodes, the step of a difference quotient: its error is the square
_STEP = 1e-5


class Direction(NamedTuple):
    """A direction v (d,), scaled so that one unit is a deviation along it; and where on each line
    the mass is expected, (n,)."""

    vector: Vector
    centre: Vector


def regress_direction(sample: Sample, values: Vector) -> Direction | None:
    """Return the direction in which normal draws with these means and covariances move a quantity
    and nothing that is independent of it: Σb, with b the regression of its normal scores on the
    draws. None if the quantity does not move."""
    weight = sample.probabilities[:, None]
    offset = sample.draws - (weight * sample.draws).sum(axis=0)
    scores = normal_scores(values[:, None])[:, 0]
    root = np.sqrt(weight)
    scale = offset.std(axis=0)
    b = np.linalg.lstsq(root * offset / scale, root[:, 0] * scores, rcond=None)[0] / scale
    fitted = offset @ b
    deviation = np.sqrt((weight[:, 0] * fitted**2).sum())
    if not deviation > 0:
        return None
    vector = (weight * offset * fitted[:, None]).sum(axis=0) / deviation
    return Direction(vector, -fitted / deviation)


class Smooth(NamedTuple):
    """For each draw and level, what has the mean P(quantity < level); and what has the quantity's
    density there as its mean, if that is known. `error` (l,) is what means of the first may be off
    by, besides chance."""

    below: Float64[np.ndarray, "n l"]
    density: Float64[np.ndarray, "n l"] | None
    error: Float64[np.ndarray, " l"]


@dataclasses.dataclass(frozen=True, eq=False)
class Lines:
    """A quantity along the lines through all draws, with the density there."""

    sample: Sample
    vector: Vector
    quantity: OfPoints
    conditional: Conditional
    values: Float64[np.ndarray, "m k"]

    words = "conditional probabilities along lines"

    @staticmethod
    def of(density: Density, sample: Sample, direction: Direction, quantity: OfPoints) -> Lines:
        """Integrate the density along the lines, and evaluate the quantity at the nodes."""
        draws, (vector, centre) = sample.draws, direction

        def points(line: np.ndarray, u: np.ndarray) -> Matrix:
            moved = draws[line][:, None, :] + u[:, :, None] * vector
            return moved.reshape(-1, draws.shape[1])

        def log_density(line: np.ndarray, u: np.ndarray) -> np.ndarray:
            return density.at(points(line, u)).reshape(u.shape)

        found = integrate_lines(log_density, centre, density.at(draws))
        nodes = found.panels.nodes
        values = quantity(points(found.panels.line, nodes)).reshape(nodes.shape)
        return Lines(sample, vector, quantity, found, values)

    def below(self, levels: Float64[np.ndarray, " l"]) -> Smooth:
        """Return the conditional probabilities and densities at these levels."""
        panels = self.conditional.panels
        line = np.repeat(panels.line, panels.nodes.shape[1])
        u, values = panels.nodes.ravel(), self.values.ravel()
        n, count = len(self.sample), len(levels)
        under = values < levels[:, None]
        level, place = np.nonzero((under[:, 1:] != under[:, :-1]) & (line[1:] == line[:-1]))
        own, beside = line[place], place + 1
        crossing = find_crossings(
            lambda rows, at: self._along(own[rows], at) - levels[level[rows]],
            u[place],
            u[beside],
            values[place] - levels[level],
            values[beside] - levels[level],
        )
        # the mass up to a crossing counts where the quantity is below before it
        sign = np.where(under[level, place], 1.0, -1.0)
        until = sign * self.conditional.until(own, crossing)
        last = np.searchsorted(line, np.arange(n), side="right") - 1
        cell = own * count + level
        below = np.bincount(cell, until, n * count).reshape(n, count) + under[:, last].T
        step = _STEP * (u[beside] - u[place])
        rise = self._along(own, crossing + step) - self._along(own, crossing - step)
        with np.errstate(divide="ignore", invalid="ignore"):
            height = self.conditional.at(own, crossing) * np.abs(2 * step / rise)
        density = np.bincount(cell, height, n * count).reshape(n, count)
        error = self.sample.probabilities @ self.conditional.error
        return Smooth(np.clip(below, 0.0, 1.0), density, np.full(count, error))

    def _along(self, line: np.ndarray, u: np.ndarray) -> np.ndarray:
        """The quantity at one place of each of these lines."""
        return self.quantity(self.sample.draws[line] + u[:, None] * self.vector)
