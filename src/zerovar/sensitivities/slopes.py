"""Slopes of the log density in what it depends on besides the draw: h = ∂ log π / ∂α."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64

from ..inputs.points import Matrix, Vector

# Of its deviation, what a slope may differ by from its place in the space that fewer ones span. The
# rest is counted plainly: its error is this times the plain one, and gains of covariances on normal
# posteriors reach 1e11, errors of 3e-6
_SAME = 1e-7
# Products of values and slopes for which control variates are fitted, at most: their covariance
# matrix then takes 128 MB
MOST_PRODUCTS = 4000


class Slopes(NamedTuple):
    """Slopes of the log density in k numbers: their names, what they are at the draws (n, k), and
    as a function of points, (m, d) to (m, k), if that is known. `observed` are those that are
    log-likelihoods of single observations."""

    names: tuple[str, ...]
    values: Matrix
    at: Callable[[Matrix], Matrix] | None
    observed: Bool[np.ndarray, " k"]

    def join(self, other: Slopes) -> Slopes:
        """Return these and others."""
        at = None
        if self.at is not None and other.at is not None:
            first, second = self.at, other.at

            def at(points: Matrix) -> np.ndarray:
                return np.concatenate([first(points), second(points)], axis=1)

        return Slopes(
            (*self.names, *other.names),
            np.concatenate([self.values, other.values], axis=1),
            at,
            np.concatenate([self.observed, other.observed]),
        )


class SlopeBasis(NamedTuple):
    """k slopes as combinations of r, each of them with the mean zero and the deviation one over the
    draws: slopes = centre + components mixingᵀ + rest.

    Log-likelihoods of hundreds of observations are often combinations of few functions of the
    draw: those of a regression with normal errors, of as many as there are squares and products
    of its parameters. So control variates are fitted for these.
    """

    components: Float64[np.ndarray, "n r"]
    mixing: Float64[np.ndarray, "k r"]
    centre: Vector
    project: Float64[np.ndarray, "k r"]
    rest: Float64[np.ndarray, "n k"] | None

    @staticmethod
    def of(values: Matrix, probabilities: Vector, most: int) -> SlopeBasis:
        """Find at most `most` combinations."""
        k = values.shape[1]
        centre = probabilities @ values
        deviation = np.sqrt(probabilities @ (values - centre) ** 2)
        # the same at every draw up to rounding: log π does not depend on it
        moves = deviation > 64 * np.finfo(float).eps * np.abs(values).max(axis=0)
        scale = np.where(moves, deviation, 1.0)
        unit = np.where(moves, (values - centre) / scale, 0.0)
        if k > 1:
            _, size, right = np.linalg.svd(
                np.sqrt(probabilities)[:, None] * unit, full_matrices=False
            )
            # squares of what is left of each slope after so many components
            parts = (size[:, None] * right) ** 2
            left_over = np.cumsum(parts[::-1], axis=0)[::-1].max(axis=1, initial=0.0)
            r = int(np.sum(left_over > _SAME**2))
            r = min(r, most)
            if 2 * r < moves.sum():
                project = (right[:r] / size[:r, None]).T / scale[:, None]
                components = unit @ (right[:r] / size[:r, None]).T
                mixing = scale[:, None] * (right[:r] * size[:r, None]).T
                rest = np.where(moves, values - centre - components @ mixing.T, 0.0)
                return SlopeBasis(components, mixing, centre, project, rest)
        own = np.flatnonzero(moves)
        mixing = np.zeros((k, len(own)))
        mixing[own, np.arange(len(own))] = scale[own]
        project = np.where(mixing > 0, 1 / np.where(mixing > 0, mixing, 1.0), 0.0)
        return SlopeBasis(unit[:, own], mixing, centre, project, None)

    def at(self, slopes: Float64[np.ndarray, "m k"]) -> Float64[np.ndarray, "m r"]:
        """Return the components where the slopes are these, (m, k)."""
        return (slopes - self.centre) @ self.project
