"""Indicators by scores alone: less an image of Stein's operator with the same jump.

For a normal y, φ = Φ(min(y, t)) (1 − Φ(max(y, t))) / Φ'(y) solves Stein's equation φ' − y φ =
1{y < t} − Φ(t). For a standardised coordinate y of any draws take the field φ(y) w, with w the
direction in which y rises by one and its regression on the others with it. Its image φ' + φ s, s =
w·∇log π, has mean zero and jumps by one at t, as the indicator does. What is left, Φ(t) − φ (y +
s), is continuous, and constant where the draws are normal.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Float64

from ..inputs.points import Vector
from ..inputs.sample import Sample
from .directions import Index, order_by, score_along
from .lines import Smooth

# One of so many draws is near enough to a level to say where on the index it is: with 2 or 20 gains
# on a sum of exponentials, a maximum and whole numbers are the same to a tenth
_NEAR = 5
# Neighbours on each side of a level at which two interpolations are compared: at the level alone
# 72 % of the points of log-normal curves are within 1.96 errors, with these 92 %
_BESIDE = 2
# Times the median of so many gaps between draws that one of them is long: a thirtieth of those of
# an exponential are
_FAR_APART = 5
# Deviations of a weight from zero by chance, which are no reason to use it: of a thousand, three
_BY_CHANCE = 3.0


@dataclasses.dataclass(frozen=True, eq=False)
class ByScores:
    """A quantity known at the draws alone, with a standardised index y of them, and their score
    along it.

    `same_order` says that the quantity is a monotone function of the index, as far as the draws
    show: `inverse` is then that function's inverse, by interpolation. Otherwise only part of the
    jump is removed.
    """

    sample: Sample
    values: Vector
    index: Vector
    slope: Vector
    rising: bool
    same_order: bool

    words = "Stein's solution for a normal"

    @staticmethod
    def of(sample: Sample, values: Vector, index: Index) -> ByScores:
        """Take the index of a quantity, by which it may be ordered."""
        sign = int(order_by(index.values[:, None], values)[0])
        y, slope = _as_normal(sample, index, score_along(sample, index))
        # normal draws leave nothing but rounding
        rounding = len(y) * np.finfo(float).eps * np.abs(y).max()
        slope = np.where(np.abs(y + slope) < rounding, -y, slope)
        return ByScores(sample, values, y, slope, rising=sign >= 0, same_order=sign != 0)

    def below(self, levels: Float64[np.ndarray, " l"]) -> Smooth:
        """Return indicators less their images, and what has the density as its mean."""
        y, s = self.index[:, None], self.slope[:, None]
        seen = self.values[:, None] < levels
        if not self.same_order:
            t = self._find_on_index(levels)
            image = (y < t) - _left_over(y, s, t)
            centred = image - self.sample.probabilities @ image
            weight = self.sample.probabilities @ (centred * seen)
            weight /= np.maximum(self.sample.probabilities @ centred**2, np.finfo(float).tiny)
            # by chance alone a weight explains one draw's worth of the variance
            explained = weight**2 * (self.sample.probabilities @ centred**2)
            share = self.sample.probabilities @ seen
            chance = _BY_CHANCE**2 * share * (1 - share) * (self.sample.probabilities**2).sum()
            weight = np.where(explained > chance, weight, 0.0)
            # where index and quantity do not agree: one more draw might have shown it
            unseen = np.where(weight == 0, 0.0, self.sample.probabilities.max())
            return Smooth(seen - weight * image, None, unseen, np.zeros(len(levels)))
        t, per_unit, error, share_off = self._place(levels)
        lone = self._gap(levels)
        left = _left_over(y, s, t)
        below = left if self.rising else 1 - left
        inside = (self.values.min() < levels) & (levels <= self.values.max())
        density = (
            np.exp(-(t**2) / 2) / np.sqrt(2 * np.pi) * (1 - _slope_of_solution(y, t) * (y + s))
        )
        density = np.abs(per_unit) * density
        mean = np.maximum(np.abs(self.sample.probabilities @ density), np.finfo(float).tiny)
        return Smooth(
            np.where(inside, below, seen),
            density,
            np.where(inside, error, 0.0),
            np.maximum(share_off, lone / mean),
        )

    def _find_on_index(self, levels: Vector) -> Vector:
        """Where on the index the levels are expected: by the line through the draws nearest to
        each. The share of the draws below would not do: the image would then have that for its
        mean, and nothing but the error would be less."""
        n, p = len(self.values), self.sample.probabilities
        found = []
        for level in levels:
            apart = self.values - level
            near = np.argpartition(np.abs(apart), n // _NEAR)[: n // _NEAR + 1]
            root = np.sqrt(p[near])
            line = np.stack([np.ones(len(near)), apart[near]], axis=1)
            found.append(np.linalg.lstsq(root[:, None] * line, root * self.index[near])[0][0])
        return np.array(found)

    def _gap(self, levels: Vector) -> Vector:
        """The density that one draw more would make of the gap between draws that a level is in, if
        that is far longer than those around it, as between two modes; zero elsewhere."""
        g = np.unique(self.values)
        length = np.diff(g)
        here = np.clip(np.searchsorted(g, levels) - 1, 0, len(length) - 1)
        near = here[:, None] + np.arange(-_BESIDE, _BESIDE + 1)
        usual = np.median(length[np.clip(near, 0, len(length) - 1)], axis=1)
        draw = self.sample.probabilities.max()
        return np.where(length[here] > _FAR_APART * usual, draw / length[here], 0.0)

    def _place(self, levels: Vector) -> tuple[Vector, Vector, Vector, Vector]:
        """Where on the index the levels are, its change by one unit of the quantity, and what P may
        be off by: as much as cubic and linear interpolation differ; and that change, as a share: as
        much as two cubic ones do."""
        from scipy import interpolate

        g, first = np.unique(self.values, return_index=True)
        y = self.index[first]
        smooth = interpolate.PchipInterpolator(g, y)
        inner = np.clip(levels, g[0], g[-1])
        t, change = smooth(inner), smooth(inner, 1)
        rounding = len(y) * np.finfo(float).eps
        off = np.abs(t - np.interp(inner, g, y)) + rounding
        # of two that agree at a level by chance, the neighbours tell
        middles = np.concatenate([[g[0]], (g[1:] + g[:-1]) / 2, [g[-1]]])
        near = np.searchsorted(middles, inner)[:, None] + np.arange(-_BESIDE, _BESIDE + 1)
        places = np.column_stack([inner, middles[np.clip(near, 0, len(g))]])
        ours = smooth(places, 1)
        apart = np.abs(ours - interpolate.Akima1DInterpolator(g, y)(places, 1))
        share_off = np.max(apart / np.maximum(np.abs(ours), np.finfo(float).tiny), axis=1)
        share_off = share_off + rounding
        return t, change, off * np.exp(-(t**2) / 2) / np.sqrt(2 * np.pi), share_off


def _as_normal(sample: Sample, index: Index, slope: Vector) -> tuple[Vector, Vector]:
    """The index with the mean and deviation that scores give it, −(y − m) / v by the line through
    them, and the scores along it in that unit: no noise is left in either for a normal."""
    root = np.sqrt(sample.probabilities)
    line = np.stack([np.ones_like(slope), index.values], axis=1)
    level, precision = np.linalg.lstsq(root[:, None] * line, -root * slope, rcond=None)[0]
    if not precision > 0:
        return index.values, slope
    return np.sqrt(precision) * (index.values + level / precision), slope / np.sqrt(precision)


def _left_over(y: np.ndarray, s: np.ndarray, t: np.ndarray) -> np.ndarray:
    """The indicator of y < t less its image: Φ(t) − φ (y + s)."""
    from scipy import special

    tails = special.log_ndtr(np.minimum(y, t)) + special.log_ndtr(-np.maximum(y, t))
    solution = np.exp(tails + y**2 / 2) * np.sqrt(2 * np.pi)
    return special.ndtr(t) - solution * (y + s)


def _slope_of_solution(y: np.ndarray, t: np.ndarray) -> np.ndarray:
    """The derivative of the solution in t, over the normal density at t."""
    from scipy import special

    above = y > t
    ratio = np.exp(special.log_ndtr(np.where(above, -y, y)) + y**2 / 2) * np.sqrt(2 * np.pi)
    return np.where(above, ratio, -ratio)
