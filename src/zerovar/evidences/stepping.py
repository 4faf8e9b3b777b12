"""Stepping stones: ratios Z(t') / Z(t) as means of powers of the likelihood, without a rule.

Forwards it is E_t[Lʰ], h = t' − t, backwards 1 / E_t'[L⁻ʰ]; a bridge has a mean on either side, of
functions that are bounded (Meng and Wong).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from .rungs import Rung
from .steps import Step, make_step


def step_forwards(left: Rung, right: Rung, order: int | None) -> Step:
    """Return the step by the draws at its left."""
    value, influences = _log_mean(left, (right.t - left.t) * left.log_likelihood, order)
    return make_step(value, (1.0, left.source, influences))


def step_backwards(left: Rung, right: Rung, order: int | None) -> Step:
    """Return the step by the draws at its right."""
    value, influences = _log_mean(right, (left.t - right.t) * right.log_likelihood, order)
    return make_step(-value, (-1.0, right.source, influences))


def bridge_step(left: Rung, right: Rung, order: int | None) -> Step:
    """Return the step by Meng and Wong's bridge between its ends.

    The identity holds for any middle. The one taken is where the plain bridge has its solution; by
    that it hangs on the draws in second order only, as the ratio's derivative has mean zero.
    """
    h = right.t - left.t
    ups, downs = h * left.log_likelihood, h * right.log_likelihood
    middle = _balance(ups, downs, left.probabilities, right.probabilities)
    # 1 / (1 + e⁻ᵘ) and 1 / (1 + eᵘ), as logarithms
    above, up = _log_mean(left, -np.logaddexp(0.0, middle - ups), order)
    below, down = _log_mean(right, -np.logaddexp(0.0, downs - middle), order)
    return make_step(middle + above - below, (1.0, left.source, up), (-1.0, right.source, down))


def _log_mean(
    rung: Rung, logs: Float64[np.ndarray, " n"], order: int | None
) -> tuple[float, np.ndarray]:
    """Return the logarithm of a mean of positive numbers, given by their logarithms, and its
    influences (n,). Where control variates leave nothing positive, the plain mean is taken."""
    top = logs.max()
    values = np.exp(logs - top)[:, None]
    found = rung.means(values, order)
    if found.value[0] <= 0:
        found = rung.means(values, 0)
    return float(np.log(found.value[0]) + top), found.influences[:, 0] / found.value[0]


def _balance(ups: np.ndarray, downs: np.ndarray, left: np.ndarray, right: np.ndarray) -> float:
    """Return the log ratio at which the plain bridge is its own middle; draws count by their
    probabilities."""
    from scipy.special import logsumexp  # imported when used, as others are that take long

    middle = 0.5 * (left @ np.where(np.isfinite(ups), ups, 0.0) + right @ downs)
    for _ in range(100):
        above = logsumexp(-np.logaddexp(0.0, middle - ups), b=left)
        below = logsumexp(-np.logaddexp(0.0, downs - middle), b=right)
        middle, before = middle + above - below, middle
        if abs(middle - before) < 1e-10:  # far below any error
            break
    return float(middle)
