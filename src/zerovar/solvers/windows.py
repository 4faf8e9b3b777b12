"""Draws to train on that are never in memory together: window after window, several of them an epoch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64


class Window(NamedTuple):
    """Standardised points, scores, integrands, and the share of each draw in all that are trained on."""

    x: Float64[np.ndarray, "n d"]
    s: Float64[np.ndarray, "n d"]
    values: Float64[np.ndarray, "n q"]
    probabilities: Float64[np.ndarray, " n"]


class Windows(ABC):
    """Where they come from. A training is prepared on a pilot, draws in memory that stand for all, and run on windows."""

    count: int  # windows an epoch
    most: int  # draws of a window
    draws: int  # of all windows of an epoch together, about
    rounds: int  # windows that a training takes in all, if it is not ended early

    @abstractmethod
    def __call__(self, number: int) -> Window:
        """The one of this number; those of one epoch together are all draws, in another order each epoch."""

    @abstractmethod
    def cut(self, most: int) -> None:
        """Make them small enough to have about this many draws at most."""

    @abstractmethod
    def hold_out(self, rows: np.ndarray) -> None:
        """Leave these rows of the pilot, and whatever equals them, out of all windows."""
