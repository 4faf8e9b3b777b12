"""States in whole numbers, whose neighbours take the place of derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float64

from ..arguments import read_numbers, takes, where
from ..operators import Barker, Diffusion, ScalarLangevin
from .base import Positions, Space

# of a coordinate, or of each
BOUND = where("numbers", lambda a: a.ndim < 2, read_numbers)


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

    def resolve(self, draws, probabilities, standardise=True, alike=False):
        if self.has_two_values:
            return self
        if not standardise:
            return Grid(self.low, self.high, np.zeros(draws.shape[1]), np.ones(draws.shape[1]))
        mean = probabilities @ draws
        if alike:
            mean = np.full_like(mean, mean.mean())
        square = probabilities @ (draws - mean) ** 2
        deviation = np.sqrt(np.full_like(square, square.mean()) if alike else square)
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
