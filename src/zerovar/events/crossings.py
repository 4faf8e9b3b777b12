"""Where quantities cross levels along lines."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float64

# Halvings that take the distance of two nodes to rounding; smooth quantities take about six steps
_STEPS = 60

Excess = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""From numbers of brackets (m,), and a place in each, to how far a quantity is above its level."""


def find_crossings(
    excess: Excess,
    before: Float64[np.ndarray, " r"],
    after: Float64[np.ndarray, " r"],
    at_before: Float64[np.ndarray, " r"],
    at_after: Float64[np.ndarray, " r"],
    within: float = 0.0,
) -> Float64[np.ndarray, " r"]:
    """Return places between `before` and `after` at which a quantity is below its level on one side
    and not on the other; within a distance if that is enough, else to rounding.

    Chandrupatla's method: inverse quadratic interpolation where the last three places bear it out,
    halving elsewhere; a jump is found by halving.
    """
    a, b, fa, fb = (np.array(one) for one in (after, before, at_after, at_before))
    c, fc = a.copy(), fa.copy()
    share = np.full(len(a), 0.5)
    finest = np.maximum(np.spacing(np.abs(before) + np.abs(after)), within / 4)
    left = np.arange(len(a))
    for _ in range(_STEPS):
        if not len(left):
            break
        i = left
        x = a[i] + share[i] * (b[i] - a[i])
        fx = excess(i, x)
        same = (fx < 0) == (fa[i] < 0)
        c[i], fc[i] = np.where(same, a[i], b[i]), np.where(same, fa[i], fb[i])
        b[i], fb[i] = np.where(same, b[i], a[i]), np.where(same, fb[i], fa[i])
        a[i], fa[i] = x, fx
        length = np.abs(b[i] - a[i])
        least = np.minimum(2 * finest[i] / np.maximum(length, finest[i]), 0.5)
        share[i] = np.clip(
            _interpolate(*(one[i] for one in (a, b, c, fa, fb, fc))), least, 1 - least
        )
        # on to the end where it is zero too, as whole numbers are on one side of their step
        left = i[length > 4 * finest[i]]
    return np.where(np.abs(fa) <= np.abs(fb), a, b)


def _interpolate(a, b, c, fa, fb, fc) -> np.ndarray:
    """The share of the way from a to b at which a parabola through three places, lying on its
    side, has its root; a half where it does not fit them."""
    with np.errstate(all="ignore"):
        place, rise = (a - b) / (c - b), (fa - fb) / (fc - fb)
        fits = (rise**2 < place) & ((1 - rise) ** 2 < 1 - place)
        share = fa / (fb - fa) * fc / (fb - fc)
        share = share + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
    return np.where(fits & np.isfinite(share), share, 0.5)
