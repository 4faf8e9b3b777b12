"""Quantiles of the draws themselves, with their standard errors."""

import numpy as np
from jaxtyping import Float64

from .series import Series, effective_size


def weighted_quantile(
    values: Float64[np.ndarray, " n"],
    weights: Float64[np.ndarray, " n"],
    probs: Float64[np.ndarray, " p"],
) -> Float64[np.ndarray, " p"]:
    """The quantiles of values whose weights sum to one: NumPy's, if all weights are equal."""
    order = np.argsort(values)
    inside = weights[order]
    before = np.cumsum(inside) - inside
    return np.interp(probs, before / (1 - inside[-1]), values[order])


def quantile_errors(
    series: Series, weights: Float64[np.ndarray, " n"], probs: Float64[np.ndarray, " p"]
) -> Float64[np.ndarray, "q p"]:
    """Standard errors of quantiles of series (chain, draw, q), from the effective size of the
    indicator of being below: half the distance between the quantiles one error of its mean up and
    down."""
    n, q = series.shape[0] * series.shape[1], series.shape[2]
    errors = np.empty((q, len(probs)))
    share = 1 / (n * np.sum(weights**2))
    for j in range(q):
        column = series[:, :, j].ravel()
        at = weighted_quantile(column, weights, probs)
        size = share * effective_size((series[:, :, j, None] <= at).astype(np.float64))
        spread = np.sqrt(probs * (1 - probs) / size)
        ends = [np.clip(probs + side * spread, 0.0, 1.0) for side in (-1, 1)]
        low, high = (weighted_quantile(column, weights, end) for end in ends)
        errors[j] = (high - low) / 2
    return errors
