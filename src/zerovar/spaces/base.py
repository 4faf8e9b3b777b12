"""What a space is, and Rᵈ."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import equinox as eqx
import numpy as np
from jaxtyping import Float64

from ..arguments import instance
from ..io.archive import Storable
from ..operators import Operator

Positions = Float64[np.ndarray, "n d"]


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

    def resolve(
        self,
        draws: Positions,
        probabilities: np.ndarray,
        standardise: bool = True,
        alike: bool = False,
    ) -> Space:
        """Return this space with all that is open chosen from draws that fit, and in units of these
        unless they are not to be standardised; one unit for all coordinates that are to stay
        `alike`."""
        return self

    @abstractmethod
    def place(self, draws: Positions, scores: np.ndarray) -> tuple[Positions, np.ndarray]:
        """Return points as families see them, and what stands for scores there: D s, which stays
        exact where D vanishes and s has a pole, or weights of neighbours."""

    def values(self, draws: np.ndarray, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Return by name what has a mean worth estimating, of draws (..., d): the coordinates."""
        return {name: draws[..., j] for j, name in enumerate(names)}

    def map_to_reals(
        self, draws: Positions, scores: np.ndarray
    ) -> tuple[Positions, np.ndarray] | None:
        """Return points and scores in coordinates of Rᵈ in which the density goes on to zero
        wherever the space ends; None if it does not end, or there are no such."""
        return None

    def to_gaps(self, draws: Positions) -> Float64[np.ndarray, "n e"]:
        """Return how far draws are from the middle of what they leave empty where they could have
        been, a column for each way to go there. Only where that was seen to spoil errors: none by
        default."""
        return np.empty((len(draws), 0))

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
SPACE = instance(Space, "a space such as Torus(), Sphere(), Box(), Simplex() or Grid()")
