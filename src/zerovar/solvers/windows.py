"""Draws to train on that are never in memory together: window after window, several of them an
epoch."""

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from ..inputs.points import Points


class Window(NamedTuple):
    """Standardised points, whose probabilities are shares in all draws that are trained on, and
    integrands there."""

    points: Points
    values: Float64[np.ndarray, "n q"]


class Windows(ABC):
    """A source of windows. A training is prepared on a pilot, draws in memory that stand for all,
    and run on windows."""

    count: int  # windows an epoch
    most: int  # draws of a window
    draws: int  # of all windows of an epoch together, about
    rounds: int  # windows that a training takes in all, if it is not ended early

    @abstractmethod
    def __call__(self, number: int) -> Window:
        """Return the window of this number; those of one epoch together are all draws, in another
        order each epoch."""

    @abstractmethod
    def cut(self, most: int) -> None:
        """Make them small enough to have about this many draws at most."""

    @abstractmethod
    def hold_out(self, rows: np.ndarray) -> None:
        """Leave these rows of the pilot, and whatever equals them, out of all windows."""
