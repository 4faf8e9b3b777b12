"""Which way to move a draw so that a quantity changes, and what is independent of it does not.

For normal draws with covariance Σ, and a linear index a·x, that is Σa: the rest of the draw is
independent of the index on lines in this direction. Two estimates of it: the covariance of the
draws with the index, and the regression of the index on the scores, which are −Σ⁻¹(x − μ). The
second has no noise where draws are normal, and far less in many dimensions; the first is the better
one where scores have heavy tails.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from ..inputs.points import Vector
from ..inputs.sample import Sample
from ..statistics.ranks import normal_scores


class Index(NamedTuple):
    """A linear function of the draws with mean 0 and variance 1: at the draws (n,), and its
    gradient (d,)."""

    values: Vector
    gradient: Vector


def linear_index(sample: Sample, gradient: Vector) -> Index | None:
    """Return the index with this gradient, up to a positive factor; None if it does not move."""
    p = sample.probabilities
    values = (sample.draws - p @ sample.draws) @ gradient
    deviation = np.sqrt(p @ values**2)
    return Index(values / deviation, gradient / deviation) if deviation > 0 else None


def regress_index(sample: Sample, values: Vector) -> Index | None:
    """Return the index that follows a quantity best, by its normal scores; None if the quantity
    does not move."""
    scores = normal_scores(values[:, None])[:, 0]
    offset = sample.draws - sample.probabilities @ sample.draws
    return linear_index(sample, _regress(sample, offset, scores))


def directions(sample: Sample, index: Index) -> list[Vector]:
    """Return both estimates of the direction, each scaled so that a unit along it is about a
    deviation of the draw given its line: the mean of the squared score along it is 1."""
    p = sample.probabilities
    found = [(p * index.values) @ sample.draws, _regress(sample, sample.scores, -index.values)]
    lengths = (np.sqrt(p @ (sample.scores @ vector) ** 2) for vector in found)
    return [vector / length for vector, length in zip(found, lengths, strict=True) if length > 0]


def unit_direction(sample: Sample, index: Index) -> Vector:
    """Return the direction in which the index rises by 1 a unit, and along which scores are nearest
    to minus the index: by least squares under that condition."""
    root, size = np.sqrt(sample.probabilities), np.sqrt(sample.probabilities @ sample.scores**2)
    weighted = root[:, None] * sample.scores / size
    gradient = index.gradient / size
    q, r = np.linalg.qr(weighted)
    free = np.linalg.lstsq(r, -q.T @ (root * index.values), rcond=None)[0]
    toward = np.linalg.lstsq(r, np.linalg.lstsq(r.T, gradient, rcond=None)[0], rcond=None)[0]
    return (free + toward * (1 - gradient @ free) / (gradient @ toward)) / size


def _regress(
    sample: Sample, columns: Float64[np.ndarray, "n d"], values: Vector
) -> Float64[np.ndarray, " d"]:
    """Weighted least squares, with columns in units of their own size."""
    root = np.sqrt(sample.probabilities)
    size = np.sqrt(sample.probabilities @ columns**2)
    weighted = root[:, None] * columns / size
    return np.linalg.lstsq(weighted, root * values, rcond=None)[0] / size
