"""Curves: how values move with the power of a term, by derivatives and by reweighting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64

from ..choice import Request
from ..errors import hold_warnings
from ..inputs.points import Vector
from ..output.sensitivities import PowerCurves
from ..session import Session
from ..statistics.series import influences_on_mean, standard_error
from .covariances import Subject

_POINTS = 17  # of a curve: four to each doubling's half, for the eye
# Of a posterior deviation: what the third derivative may add before a curve of the second order
# ends. It is counted in the curve's error, and a tenth is what a reader sees
_THIRD = 0.1


def power_curves(
    session: Session,
    subjects: Sequence[Subject],
    values: Float64[np.ndarray, " q"],
    value_error: Float64[np.ndarray, " q"],
    deviation: Float64[np.ndarray, " q"],
    names: Sequence[str],
    slopes: Float64[np.ndarray, "n k"],
    first: tuple[Float64[np.ndarray, "q k"], Float64[np.ndarray, "q k"]],
    ends: tuple[float, float],
    request: Request,
) -> PowerCurves:
    """Return curves of means over powers between `ends`, whose derivatives are cumulants: Cov(f, h)
    (`first`, with errors), E[(f − a)(h − b)²] and E[(f − a)(h − b)³] − 3 Cov(f, h) Var(h)."""
    sample, p = session.sample, session.sample.probabilities
    grid = np.exp2(np.linspace(np.log2(ends[0]), np.log2(ends[1]), _POINTS))
    step = grid - 1
    q, k = first[0].shape
    means = session.estimate(slopes, [f"log {name}" for name in names], request)
    h = slopes - means.value
    f = np.stack([subject.centred for subject in subjects], axis=1)
    powers = np.stack([f[:, :, None] * h[:, None, :] ** power for power in (2, 3)], axis=1)
    columns = np.concatenate([powers.reshape(len(sample), -1), h**2], axis=1)
    labels = [
        f"{subject.name} with {name}^{m}" for m in (2, 3) for subject in subjects for name in names
    ]
    with hold_warnings():  # of tails of products, as in `covariances`
        found = session.estimate(columns, [*labels, *(f"{name}²" for name in names)], request)
    size = q * k
    (second, second_error), (triple, triple_error) = (
        (found.value[part].reshape(q, k), found.std_error[part].reshape(q, k))
        for part in (slice(size), slice(size, 2 * size))
    )
    variance = found.value[2 * size :]
    # about means that are off by δa and δb it moves by −Var(h) δa − 2 Cov(f, h) δb
    second_error = np.sqrt(
        second_error**2
        + (variance * value_error[:, None]) ** 2
        + (2 * first[0] * means.std_error) ** 2
    )
    third = np.hypot(triple - 3 * first[0] * variance, triple_error)
    value = values[:, None, None] + first[0][..., None] * step + second[..., None] * step**2 / 2
    left = third[..., None] * np.abs(step) ** 3 / 6
    error = np.sqrt(
        value_error[:, None, None] ** 2
        + (first[1][..., None] * step) ** 2
        + (second_error[..., None] * step**2 / 2) ** 2
        + left**2
    )
    unit = np.where(deviation > 0, deviation, 1.0)[:, None, None]
    beyond = left > _THIRD * unit
    value, error = (np.where(beyond, np.nan, one) for one in (value, error))
    reweighted, reweighted_error = np.empty((2, q, k, len(grid)))
    shape = np.empty((k, len(grid)))
    for b in range(k):
        for m, power in enumerate(grid):
            weights, shape[b, m] = _reweight(p, (power - 1) * slopes[:, b])
            mean, influences = influences_on_mean(sample.by_chain(f), weights)
            reweighted[:, b, m] = values + mean
            reweighted_error[:, b, m] = standard_error(influences, np.zeros(q))
    return PowerCurves(
        tuple(subject.name for subject in subjects),
        tuple(names),
        grid,
        value,
        error,
        reweighted,
        reweighted_error,
        shape,
    )


def _reweight(p: Vector, log_ratio: Vector) -> tuple[Vector, float]:
    """Pareto-smoothed importance weights, and the shape of their tail; the draws' own weights at a
    power of one."""
    from arviz_stats.base import array_stats

    if np.ptp(log_ratio) < np.finfo(np.float32).eps:  # too equal to have a tail
        return p, 0.0
    smooth, shape = array_stats.psislw(-np.log(p) - log_ratio)  # which takes them with a minus
    weights = np.exp(smooth - smooth.max())
    return weights / weights.sum(), float(shape)
