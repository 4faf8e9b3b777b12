"""Quantiles: the levels whose probabilities are right."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64

from ..choice import LOW_EFFORT, Request
from ..errors import hold_warnings, repeat_warnings
from ..output import Estimate
from ..session import Session
from ..statistics.quantiles import quantile_errors, weighted_quantile
from .marginals import STEPS, Marginals


def estimate_quantiles(
    session: Session,
    names: Sequence[str],
    shares: Float64[np.ndarray, "... p"],
    request: Request,
    titles: Sequence[str] | None = None,
) -> Estimate:
    """Estimate quantiles of k named values, at p shares or at (k, p) of them; `titles` are what the
    p are called.

    Newton's method: on plain means of what is smooth, then on those with polynomials for control
    variates, and last with all that are chosen from. What control variates add to a plain mean
    hardly changes with the level.
    """
    sample = session.sample
    titles = [f"{100 * share:g}%" for share in shares] if titles is None else titles
    shares = np.broadcast_to(shares, (len(names), len(titles)))
    labels = [f"{name} {title}" for name in names for title in titles]
    marginals = Marginals.of(session, names)
    p, values = sample.probabilities, marginals.values
    pairs = list(zip(values.T, shares, strict=True))
    plain = np.array([weighted_quantile(column, p, own) for column, own in pairs])
    plain_error = np.array([quantile_errors(sample.by_chain(v), p, own) for v, own in pairs])
    bounded, levels, at = marginals.find_conditional(labels), plain, marginals.at(plain, shares)
    correction = np.zeros(levels.shape)  # what control variates add to plain means
    for asked in (None, dataclasses.replace(request, family=LOW_EFFORT), request):
        if asked is not None:
            columns = dict(zip(labels, at.below.reshape(len(sample), -1).T, strict=True))
            with hold_warnings() as caught:
                means = session.estimate(columns, request=asked, bounded=bounded)
            correction = means.value.reshape(levels.shape) - np.tensordot(p, at.below, 1)
        before, off = levels, at.off
        for _ in range(STEPS):
            levels = marginals.move(
                levels, _divide(shares - correction - np.tensordot(p, at.below, 1), at.slope)
            )
            at = marginals.at(levels, shares)
    repeat_warnings(caught)  # of the last
    # the last correction was made at other levels, and changes with them as probabilities do
    moved = np.abs(correction * (levels - before)) * at.slope / (shares * (1 - shares))
    error = np.hypot(np.hypot(means.std_error.reshape(levels.shape), off), moved)
    error = _divide(error, at.slope)
    slopes = np.where(at.slope > 0, at.slope, np.inf)
    return marginals.report(means, levels, error, plain, plain_error, np.diag(1 / slopes.ravel()))


def _divide(number: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """Infinite where there is no slope, as of what takes few values."""
    return np.divide(number, slope, out=np.full_like(number, np.inf), where=slope > 0)
