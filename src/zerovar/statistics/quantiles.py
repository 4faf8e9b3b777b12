"""Quantiles of the draws themselves, with their standard errors."""

import numpy as np
from jaxtyping import Float64

from .series import effective_size

# Errors of a probability at which the distance of levels says how far a level may be off: as many
# of these are what a mean is within, nineteen times in twenty and nearly always
FAR = (1.96, 3.0)


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
    chains: Float64[np.ndarray, "chain draw"],
    weights: Float64[np.ndarray, " n"],
    probs: Float64[np.ndarray, " p"],
) -> Float64[np.ndarray, " p"]:
    """Standard errors of quantiles, from the effective size of the indicator of being below: half
    the distance between the quantiles one error of its mean up and down, or one draw at least. What
    lies two or three of these away counts where that is more than twice as far as it should be, as
    beyond a gap, and not in a tail."""
    values, size = chains.ravel(), _size_below(chains, weights, probs)
    spread = np.sqrt(probs * (1 - probs) / size + 1 / size**2)
    sides = np.array([0.0, 1.0, *FAR])[:, None] * spread
    shares = np.clip(np.stack([probs - sides, probs + sides]), 0.0, 1.0)
    low, high = weighted_quantile(values, weights, shares.ravel()).reshape(shares.shape)
    near, middle = (high[1] - low[1]) / 2, high[0]
    far = np.max(np.maximum(high - middle, middle - low)[2:] / np.array(FAR)[:, None], axis=0)
    inside = np.minimum(probs, 1 - probs) > FAR[-1] * spread + 1 / size
    return np.where(inside & (far > 2 * near), far, near)


def draws_beyond(
    chains: Float64[np.ndarray, "chain draw"],
    weights: Float64[np.ndarray, " n"],
    probs: Float64[np.ndarray, " p"],
) -> Float64[np.ndarray, " p"]:
    """How many effective draws lie beyond quantiles, on the side where there are fewer."""
    return np.minimum(probs, 1 - probs) * _size_below(chains, weights, probs)


def _size_below(
    chains: Float64[np.ndarray, "chain draw"],
    weights: Float64[np.ndarray, " n"],
    probs: Float64[np.ndarray, " p"],
) -> Float64[np.ndarray, " p"]:
    """The effective size of the indicators of being below quantiles."""
    values = chains.ravel()
    below = chains[:, :, None] <= weighted_quantile(values, weights, probs)
    return effective_size(below.astype(np.float64)) / (len(values) * np.sum(weights**2))
