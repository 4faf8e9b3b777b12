"""Which draws fit the control variate and which estimate with it.

Blocks are contiguous within chains: neighbours are alike, and a draw must not be predicted by a fit
to its neighbour.
"""

import dataclasses
from abc import ABC, abstractmethod
from itertools import pairwise

import numpy as np
from jaxtyping import Int

from ..arguments import SHARE, instance, takes, whole
from ..inputs.points import RowNumbers
from ..inputs.sample import Sample


class Split(ABC):
    """A way to share the draws between fitting and estimating."""

    @abstractmethod
    def describe(self) -> str:
        """A short name for tables."""


SPLIT = instance(Split, "in_sample(), holdout(fraction) or cross_fit(k)")


class OutOfFold(Split):
    """Draws are predicted by fits that did not see them."""

    @abstractmethod
    def folds(self, sample: Sample) -> list[tuple[RowNumbers, RowNumbers]]:
        """(rows that fit, rows that estimate) of each fold; no row estimates twice."""


@dataclasses.dataclass(frozen=True)
class InSample(Split):
    """All draws do both; the value is the fitted intercept, the error comes from leave-out
    residuals."""

    def describe(self):
        return "in sample"


class Contiguous(OutOfFold):
    """Every chain is cut alike into parts, and some parts estimate by the fit to others."""

    @abstractmethod
    def parts(self, length: int) -> tuple[Int[np.ndarray, " edges"], dict[int, list[int]]]:
        """Edges of the parts of a chain of this length; and for each part that estimates, those
        that fit."""

    def folds(self, sample):
        rows = sample.by_chain(np.arange(len(sample)))
        edges, fitting = self.parts(rows.shape[1])
        cut = [rows[:, first:last].ravel() for first, last in pairwise(edges)]
        return [
            (np.sort(np.concatenate([cut[other] for other in others])), cut[part])
            for part, others in fitting.items()
        ]


@dataclasses.dataclass(frozen=True)
class Holdout(Contiguous):
    """The last part of every chain estimates, the rest fits."""

    fraction: float

    def parts(self, length):
        held = round(self.fraction * length)
        if not 4 <= held <= length - 4:
            raise ValueError(
                f"holdout({self.fraction}) leaves {length - held} draws a chain to fit and {held} "
                "to estimate; both need at least 4. Use more draws or another fraction"
            )
        return np.array([0, length - held, length]), {1: [0]}

    def describe(self):
        return f"holdout of {self.fraction:.0%}"


@dataclasses.dataclass(frozen=True)
class CrossFit(Contiguous):
    """Every chain is cut into k contiguous blocks; each block is estimated by the fit to all the
    others."""

    k: int

    def parts(self, length):
        if length < 2 * self.k:
            raise ValueError(
                f"cross_fit({self.k}) needs at least {2 * self.k} draws a chain; got {length}. Use "
                "fewer folds"
            )
        sizes = [len(part) for part in np.array_split(np.empty(length, dtype=bool), self.k)]
        every = range(self.k)
        return np.cumsum([0, *sizes]), {
            part: [other for other in every if other != part] for part in every
        }

    def describe(self):
        return f"cross-fitting in {self.k} folds"


def in_sample() -> InSample:
    """Fit and estimate on all draws. Needs a solver with closed-form leave-out residuals."""
    return InSample()


@takes(fraction=SHARE)
def holdout(fraction: float = 0.5) -> Holdout:
    """Hold the last `fraction` of every chain out of the fit, and estimate on it alone."""
    return Holdout(fraction)


@takes(k=whole(2))
def cross_fit(k: int = 5) -> CrossFit:
    """Estimate on all draws, each by a fit that did not see its block."""
    return CrossFit(k)


def blocks(sample: Sample, length: int) -> list[RowNumbers]:
    """Contiguous groups of about `length` draws within chains, a partition of the rows; at least
    ten of them in all."""
    rows = sample.by_chain(np.arange(len(sample)))
    count = min(max(rows.shape[1] // length, -(-10 // sample.num_chains)), rows.shape[1])
    return [part.ravel() for chain in rows for part in np.array_split(chain, count)]
