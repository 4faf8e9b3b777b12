"""A task: integrands on a sample, with all that is computed once for them and handed on from floor
to floor."""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Bool, Float64, Int

from ..inputs.points import FittingDraws
from ..inputs.sample import Sample
from ..statistics.series import INDEPENDENT, autocorrelation_time, some_columns
from ..statistics.tails import beside_gaps, outermost


def _no_tails() -> Int[np.ndarray, "t m"]:
    return np.empty((0, 0), dtype=int)


@dataclasses.dataclass(frozen=True, eq=False)
class Task:
    """What is to be estimated, and from what.

    `draws` are the sample's, merged and standardised once; `autocorrelation` is the longest
    autocorrelation time, in draws, among the integrands and the coordinates; `tails` are the row
    numbers of the outermost draws of each long tail, in other spaces than Rᵈ of those next to each
    side of a gap.
    """

    sample: Sample
    values: Float64[np.ndarray, "n q"]
    draws: FittingDraws
    autocorrelation: float
    standardise: bool = True
    seed: int = 0
    tails: Int[np.ndarray, "t m"] = dataclasses.field(default_factory=_no_tails)

    @staticmethod
    def of(
        sample: Sample, values: Float64[np.ndarray, "n q"], standardise: bool = True, seed: int = 0
    ) -> Task:
        """Equal draws with other scores or values are an error."""
        draws = FittingDraws(sample.points(), standardise)
        draws.merge(values)
        columns = np.concatenate([some_columns(sample.draws), some_columns(values)], axis=1)
        slowest = autocorrelation_time(sample.by_chain(columns))
        tails = _no_tails()
        if sample.weights is None:  # those of draws of the target: weights tell of those of others
            space = sample.space
            tails = (
                outermost(sample.points())
                if space.is_flat
                else beside_gaps(space.to_gaps(sample.draws))
            )
        return Task(sample, values, draws, slowest, standardise, seed, tails)

    def __len__(self) -> int:
        return len(self.sample)

    @property
    def seen(self) -> int:
        """How many coordinates families see."""
        flat = self.sample.space.is_flat
        return self.sample.dim if flat else self.draws.standardise().dim

    @property
    def effective(self) -> float:
        """How many independent draws these are worth."""
        return len(self) / max(self.autocorrelation, 1.0)

    @property
    def different(self) -> float:
        """How many of those a fit can tell apart: in a countable space no more than its states."""
        return min(self.effective, len(self.draws.distinct))

    @property
    def is_slow(self) -> bool:
        """Whether the draws are far from independent."""
        return self.autocorrelation >= INDEPENDENT

    @property
    def scale(self) -> Float64[np.ndarray, " q"]:
        """The size of the integrands' values, whose rounding no error is below."""
        size = np.abs(self.values).max(axis=0)
        return np.where(size > 0, size, 1.0)

    def only(self, columns: np.ndarray) -> Task:
        """With some of the integrands."""
        return dataclasses.replace(self, values=self.values[:, columns])

    def along(self, coordinates: Bool[np.ndarray, " d"]) -> Task:
        """With some of the coordinates, by which draws must differ where they do by all."""
        sample = self.sample.along(coordinates)
        draws = FittingDraws(sample.points(), self.standardise)
        return dataclasses.replace(self, sample=sample, draws=draws)

    def part(self, rows: np.ndarray) -> FittingDraws:
        """Some of the draws, to fit."""
        return FittingDraws(self.sample.points(rows), self.standardise)

    def thin(self, most: int) -> tuple[Task, np.ndarray]:
        """About `most` draws, equally spaced within every chain, as a task of their own; and their
        row numbers. They are to compare and to tune on, which asks nothing of tails."""
        sample, rows = self.sample.thin(most)
        if sample is self.sample:
            return self, rows
        spacing = max(self.autocorrelation * len(sample) / len(self), 1.0)
        draws = FittingDraws(sample.points(), self.standardise)
        return Task(sample, self.values[rows], draws, spacing, self.standardise, self.seed), rows
