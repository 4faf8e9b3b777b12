"""Quantiles: the levels whose probabilities are right."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from ..choice import Automatic, Request
from ..inputs.points import Vector
from ..output import Estimate
from ..session import Session
from ..statistics.quantiles import quantile_errors, weighted_quantile
from .marginals import STEPS, Marginals

_CHEAP = Automatic(effort="low", progress=False)


def estimate_quantiles(
    session: Session,
    names: Sequence[str],
    shares: Vector,
    request: Request,
    titles: Sequence[str] | None = None,
) -> Estimate:
    """Estimate quantiles of named values; `titles` are what each of them is called.

    Newton's method: on plain means of what is smooth, then on those with polynomials for control
    variates, and last with all that are chosen from, by when the step is small.
    """
    sample = session.sample
    titles = [f"{100 * share:g}%" for share in shares] if titles is None else titles
    labels = [f"{name} {title}" for name in names for title in titles]
    marginals = Marginals.of(session, names)
    p, values = sample.probabilities, marginals.values
    plain = np.array([weighted_quantile(column, p, shares) for column in values.T])
    plain_error = quantile_errors(sample.by_chain(values), p, shares)
    bounded, levels = marginals.bounded(labels), plain
    for _ in range(STEPS):
        at = marginals.at(levels, shares)
        levels = marginals.move(levels, _divide(shares - np.tensordot(p, at.below, 1), at.slope))
    for asked in (dataclasses.replace(request, family=_CHEAP), request):
        at = marginals.at(levels, shares)
        columns = at.below.reshape(len(sample), -1).T
        means = session.estimate(
            dict(zip(labels, columns, strict=True)), request=asked, bounded=bounded
        )
        shift = _divide(shares - means.value.reshape(levels.shape), at.slope)
        before, levels = levels, marginals.move(levels, shift)
    error = np.hypot(means.std_error.reshape(levels.shape), at.off)
    # the second by how the slope changes over the last step
    error = np.hypot(_divide(error, at.slope), (levels - before) ** 2 / marginals.unit)
    slopes = np.where(at.slope > 0, at.slope, np.inf)
    return marginals.report(means, levels, error, plain, plain_error, np.diag(1 / slopes.ravel()))


def _divide(number: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """Infinite where there is no slope, as of what takes few values."""
    return np.divide(number, slope, out=np.full_like(number, np.inf), where=slope > 0)
