"""Intervals of the highest density: the shortest ones."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from ..choice import Request
from ..inputs.points import Vector
from ..output import Estimate
from ..session import Session
from .marginals import APART, STEPS, Marginals

_PARTS = 10  # of the draws, whose shortest intervals scatter
# Of a deviation, half the distance of two levels whose densities give a slope, where conditional
# densities are smooth: with a tenth the lower end for a log-normal was 47 errors off
_FINE = 0.003


class _System(NamedTuple):
    """For each quantity two numbers of each draw, whose means must be zero at the ends a and b: the
    indicator of being between them, made smooth, less its probability; and the difference of the
    densities. What these means may be off by besides chance; and the inverse of their derivatives
    in (a, b): NaN where the density does not rise at a and fall at b, as at the edge of an
    exponential."""

    columns: Float64[np.ndarray, "n k 2"]
    off: Float64[np.ndarray, "k 2"]
    inverse: Float64[np.ndarray, "k 2 2"]

    @staticmethod
    def at(marginals: Marginals, ends: Float64[np.ndarray, "k 2"], prob: float) -> "_System":
        p, shares = marginals.sample.probabilities, np.array([(1 - prob) / 2, (1 + prob) / 2])
        apart = np.where(marginals.by_lines, _FINE, APART) * marginals.unit
        here, left, right = (marginals.at(ends + side * apart, shares) for side in (0, -1, 1))
        height = np.tensordot(p, here.density, 1)
        rise = np.tensordot(p, right.density - left.density, 1) / (2 * apart)
        peaked = (rise[:, 0] > 0) & (rise[:, 1] < 0)
        derivative = np.empty((len(ends), 2, 2))
        derivative[:, 0] = height * [-1, 1]
        derivative[:, 1] = rise * [1, -1]
        derivative[~peaked] = np.eye(2)
        inverse = np.where(peaked[:, None, None], np.linalg.inv(derivative), np.nan)
        inside = here.below[:, :, 1] - here.below[:, :, 0] - prob
        # the same number at all draws where no density is known, and no event
        unlike = np.nan_to_num(here.density[:, :, 0] - here.density[:, :, 1], nan=prob)
        off = np.stack([here.off, here.share_off * np.nan_to_num(height)], axis=2).sum(axis=1)
        return _System(np.stack([inside, unlike], axis=2), off, inverse)

    def solve(self, means: Float64[np.ndarray, "k 2"]) -> Float64[np.ndarray, "k 2"]:
        """Newton's step."""
        return -np.einsum("kij,kj->ki", self.inverse, means)


def estimate_hdi(
    session: Session, names: Sequence[str], prob: float, titles: Sequence[str], request: Request
) -> Estimate:
    """Estimate the ends a and b of intervals with P(b) − P(a) = prob and equal densities at both,
    by Newton's method; the shortest interval of the draws where there are none."""
    sample, marginals = session.sample, Marginals.of(session, names)
    p, labels = sample.probabilities, [f"{name} {title}" for name in names for title in titles]
    plain = np.array([shortest(column, p, prob) for column in marginals.values.T])
    plain_error = np.array([_scatter(column, p, prob) for column in marginals.values.T])
    ends, correction = plain, np.zeros(plain.shape)  # what control variates add to plain means
    system = _System.at(marginals, ends, prob)
    for last in (False, True):
        if last:
            columns = dict(zip(labels, system.columns.reshape(len(sample), -1).T, strict=True))
            off = system.off.ravel()
            means = session.estimate(columns, None, request, stand_ins=labels, off=off)
            correction = means.value.reshape(ends.shape) - np.tensordot(p, system.columns, 1)
        before = ends
        for _ in range(2 * STEPS):  # slopes are by differences, so that steps are not Newton's own
            step = system.solve(np.tensordot(p, system.columns, 1) + correction)
            ends = marginals.move(ends, step)
            system = _System.at(marginals, ends, prob)
    derivative = np.zeros((2 * len(names), 2 * len(names)))
    for k, inverse in enumerate(system.inverse):
        derivative[2 * k : 2 * k + 2, 2 * k : 2 * k + 2] = np.nan_to_num(inverse)
    error = np.sqrt(np.diag(derivative @ means.covariance @ derivative.T)).reshape(ends.shape)
    # the correction was made at other ends, and changes with them
    shift = np.einsum("kij,kj->ki", np.abs(system.inverse), np.abs(correction))
    shift = shift * np.abs(ends - before) / marginals.unit
    # and steps whose slopes are by differences may not have arrived
    left = system.solve(np.tensordot(p, system.columns, 1) + correction)
    off = np.einsum("kij,kj->ki", np.abs(system.inverse), system.off)
    error = np.sqrt(error**2 + shift**2 + left**2 + off**2)
    error = np.where(np.isnan(error), np.inf, error)
    return marginals.report(means, ends, error, plain, plain_error, derivative, np.arange(2))


def shortest(values: Vector, weights: Vector, prob: float) -> Float64[np.ndarray, " 2"]:
    """The shortest interval that has this share of the draws."""
    order = np.argsort(values)
    values, start = values[order], np.cumsum(weights[order]) - weights[order]
    # from one draw to another, with no more than this share from the first to before the second:
    # as ArviZ has it
    share = prob + len(values) * np.finfo(float).eps
    last = np.searchsorted(start, start + share, side="right") - 1
    first = np.flatnonzero(start + share < 1)
    if not len(first):
        return values[[0, -1]]
    best = first[np.argmin(values[last[first]] - values[first])]
    return values[[best, last[best]]]


def _scatter(values: Vector, weights: Vector, prob: float) -> Float64[np.ndarray, " 2"]:
    """The standard errors of the ends of the shortest interval, from parts of the draws: they are
    known as the cube root of their number, not as its square root."""
    parts = np.array_split(np.arange(len(values)), _PARTS)
    found = [shortest(values[part], weights[part] / weights[part].sum(), prob) for part in parts]
    return np.std(found, axis=0, ddof=1) / _PARTS ** (1 / 3)
