"""Several quantities at several levels each, and the report of what was found from them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int

from ..events.lines import Lines
from ..events.quantities import Marginal, Quantity
from ..inputs.sample import Sample
from ..output import Estimate
from ..probabilities import describe_smoothing
from ..progress import progress_bar
from ..session import Session

# Newton's steps on plain means of what is smooth: each squares the distance, which begins at a few
# hundredths of a deviation
STEPS = 3
# Of a deviation: the longest of these steps, and half the distance of two levels whose
# probabilities give a slope where no density does
_STRIDE, APART = 0.5, 0.1


class AtLevels(NamedTuple):
    """For k quantities at p levels each: what has the probabilities to be below as its means, and
    the densities, NaN where they are not known; the slopes of the probabilities; and what
    probabilities may be off by besides chance, and densities, as a share of them."""

    below: Float64[np.ndarray, "n k p"]
    density: Float64[np.ndarray, "n k p"]
    slope: Float64[np.ndarray, "k p"]
    off: Float64[np.ndarray, "k p"]
    share_off: Float64[np.ndarray, "k p"]


class Marginals(NamedTuple):
    """Quantities, with what makes their levels smooth; None for those that do not move, or that
    jump between a few values, whose quantiles are such values."""

    sample: Sample
    quantities: list[Quantity]
    smooth: list[Marginal | None]

    @staticmethod
    def of(session: Session, names: Sequence[str]) -> Marginals:
        """Look along the lines of all named values."""
        found = [one for one in map(session.find, names) if one is not None]
        smooth = []
        with progress_bar("lines", len(found), wanted=True) as say:
            for done, one in enumerate(found):
                say(done, one.name)
                smooth.append(None if one.jumps(session.sample) else session.marginal(one))
        return Marginals(session.sample, found, smooth)

    @property
    def values(self) -> Float64[np.ndarray, "n k"]:
        """The quantities at the draws."""
        return np.stack([each.values for each in self.quantities], axis=1)

    @property
    def moves(self) -> Bool[np.ndarray, " k"]:
        """Which of them are not the same at every draw."""
        return np.ptp(self.values, axis=0) > 0

    @property
    def unit(self) -> Float64[np.ndarray, "k 1"]:
        """The deviations of the quantities; 1 of what does not move."""
        return np.where(self.moves, self.values.std(axis=0), 1.0)[:, None]

    def at(
        self, levels: Float64[np.ndarray, "k p"], shares: Float64[np.ndarray, "... p"]
    ) -> AtLevels:
        """Look at levels, about those with these shares below; what does not move has them
        exactly."""
        shares = np.broadcast_to(shares, levels.shape)
        p, shape = self.sample.probabilities, (len(self.sample), *levels.shape)
        below, density = np.empty(shape), np.full(shape, np.nan)
        slope, (off, share_off) = np.ones(levels.shape), np.zeros((2, *levels.shape))
        for k, (one, own, unit) in enumerate(zip(self.smooth, levels, self.unit, strict=True)):
            if one is None:
                below[:, k], slope[k] = shares[k], 0.0
                continue
            found = one.below(own)
            below[:, k], off[k], share_off[k] = found.below, found.error, found.share_off
            if found.density is not None:
                density[:, k], slope[k] = found.density, p @ found.density
            else:
                low, high = (p @ one.below(own + side * APART * unit).below for side in (-1, 1))
                slope[k] = (high - low) / (2 * APART * unit)
        return AtLevels(below, density, slope, off, share_off)

    def move(
        self,
        levels: Float64[np.ndarray, "k p"],
        step: np.ndarray,
        away: float | np.ndarray = 0.0,
    ) -> np.ndarray:
        """Take one of Newton's steps, where there is one, and not too far: farther where levels are
        so far `away` from the middle."""
        stride = _STRIDE * np.maximum(self.unit, away)
        return levels + np.clip(np.nan_to_num(step), -stride, stride)

    @property
    def by_lines(self) -> Bool[np.ndarray, "k 1"]:
        """Which of them have conditional probabilities along lines."""
        return np.array([[isinstance(one, Lines)] for one in self.smooth])

    def find_conditional(self, labels: Sequence[str]) -> list[str]:
        """Those of the rows, equally many a quantity, that are conditional probabilities."""
        each = len(labels) // len(self.smooth)
        by_lines = np.repeat(self.by_lines, each)
        return [label for label, so in zip(labels, by_lines, strict=True) if so]

    def report(
        self,
        means: Estimate,
        value: Float64[np.ndarray, "k p"],
        error: Float64[np.ndarray, "k p"],
        plain: Float64[np.ndarray, "k p"],
        plain_error: Float64[np.ndarray, "k p"],
        derivative: Float64[np.ndarray, "r r"],
        order: Int[np.ndarray, "... p"],
        unknown: Bool[np.ndarray, "k p"] | None = None,
    ) -> Estimate:
        """What was found from means; the plain values where these have no more error.

        `derivative` is that of what is reported in the means; in this `order` a quantity's values
        must not fall: where they do, all of them are the plain ones. Where the draws say next to
        nothing, `unknown`, their error is at least the distance to what was found.
        """
        each = value.shape[1]
        moves = np.repeat(self.moves, each)
        away = np.zeros_like(value) if unknown is None else np.where(unknown, value - plain, 0.0)
        plain_error = np.maximum(plain_error, np.abs(away))
        value, error, plain, plain_error = (x.ravel() for x in (value, error, plain, plain_error))
        error, plain_error = np.where(moves, error, 0.0), np.where(moves, plain_error, 0.0)
        worse = ~(error < plain_error) & moves
        rising = np.take_along_axis(
            np.where(worse, plain, value).reshape(-1, each),
            np.broadcast_to(order, (len(self.moves), each)),
            axis=1,
        )
        worse |= np.repeat((np.diff(rising, axis=1) < 0).any(axis=1), each) & moves
        error = np.where(worse, plain_error, error)
        joint = derivative @ means.covariance @ derivative.T
        own = np.sqrt(np.diag(joint))
        scale = np.divide(error, own, out=np.zeros_like(error), where=own > 0)
        joint = joint * np.outer(scale, scale)
        joint[worse, :] = joint[:, worse] = 0.0
        np.fill_diagonal(joint, error**2)
        selection = means.selection
        if selection is not None:
            selection = selection.without(worse, "the draws alone have less error")
        rows = [one for one in self.smooth for _ in range(each)]
        how = {row: one for row, one in enumerate(rows) if one is not None}
        return dataclasses.replace(
            means,
            value=np.where(worse | ~moves, plain, value),
            std_error=error,
            plain_value=plain,
            plain_std_error=plain_error,
            covariance=joint,
            selection=selection,
            traces=None,
            limits=describe_smoothing(means.names, how),
        )
