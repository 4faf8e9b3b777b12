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


class _System(NamedTuple):
    """For each quantity two numbers of each draw, whose means must be zero at the ends a and b: the
    indicator of being between them, made smooth, less its probability; and the difference of the
    densities. And the inverse of the derivatives of these means in (a, b): NaN where the density
    does not rise at a and fall at b, as at the edge of an exponential."""

    columns: Float64[np.ndarray, "n k 2"]
    inverse: Float64[np.ndarray, "k 2 2"]

    @staticmethod
    def at(marginals: Marginals, ends: Float64[np.ndarray, "k 2"], prob: float) -> "_System":
        p, shares = marginals.sample.probabilities, np.array([(1 - prob) / 2, (1 + prob) / 2])
        apart = APART * marginals.unit
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
        unlike = np.nan_to_num(here.density[:, :, 0] - here.density[:, :, 1])
        return _System(np.stack([inside, unlike], axis=2), inverse)

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
    ends = plain
    for _ in range(STEPS):
        system = _System.at(marginals, ends, prob)
        ends = marginals.move(ends, system.solve(np.tensordot(p, system.columns, 1)))
    system = _System.at(marginals, ends, prob)
    columns = system.columns.reshape(len(sample), -1).T
    means = session.estimate(dict(zip(labels, columns, strict=True)), request=request)
    shift = system.solve(means.value.reshape(ends.shape))
    derivative = np.zeros((2 * len(names), 2 * len(names)))
    for k, inverse in enumerate(system.inverse):
        derivative[2 * k : 2 * k + 2, 2 * k : 2 * k + 2] = np.nan_to_num(inverse)
    error = np.sqrt(np.diag(derivative @ means.covariance @ derivative.T)).reshape(ends.shape)
    # the second by how slopes change over the last step
    error = np.hypot(error, shift**2 / marginals.unit)
    error = np.where(np.isnan(shift), np.inf, error)
    return marginals.report(
        means, marginals.move(ends, shift), error, plain, plain_error, derivative
    )


def shortest(values: Vector, weights: Vector, prob: float) -> Float64[np.ndarray, " 2"]:
    """The shortest interval that has this share of the draws."""
    order = np.argsort(values)
    values, until = values[order], np.cumsum(weights[order])
    last = np.searchsorted(until, until - weights[order] + prob * (1 - 1 / len(values)))
    first = np.flatnonzero(last < len(values))
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
