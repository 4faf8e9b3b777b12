"""Thermodynamic integration: log Z(t') − log Z(t) is the integral of the mean log-likelihood.

Its derivatives with respect to t are the higher cumulants of the log-likelihood. So a rung has the
mean and some derivatives, and two neighbours the integral between them by Hermite's rules: with the
mean alone that is the trapezium, with the variance Friel's correction of it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from .rungs import Rung
from .steps import Step, make_step

# ∫ f over a step h is Σ_j c_j h^(j+1) (f⁽ʲ⁾(left) + (−1)ʲ f⁽ʲ⁾(right)), exact for polynomials of
# degree 1, 3, 5 and 7, by the first one to four cumulants
HERMITE = ((1 / 2,), (1 / 2, 1 / 12), (1 / 2, 1 / 10, 1 / 120), (1 / 2, 3 / 28, 1 / 84, 1 / 1680))


class Cumulants(NamedTuple):
    """The first four cumulants of the log-likelihood at a rung, and influences (n, 4)."""

    value: Float64[np.ndarray, " 4"]
    influences: Float64[np.ndarray, "n 4"]


def cumulants(rung: Rung, order: int | None) -> Cumulants | None:
    """Return the cumulants, or None where the likelihood is zero at some draws.

    Moments are about the controlled mean, held fixed: the variance then depends on that mean in
    second order only, the others by the delta method.
    """
    if rung.has_zeros:
        return None
    first = rung.means(rung.log_likelihood[:, None], order)
    centred = (rung.log_likelihood - first.value[0])[:, None]
    higher = rung.means(centred ** np.array([2, 3, 4]), order)
    v, m3, m4 = higher.value
    one, (two, three, four) = first.influences[:, 0], higher.influences.T
    influences = [one, two, three - 3 * v * one, four - 4 * m3 * one - 6 * v * two]
    value = np.array([first.value[0], v, m3, m4 - 3 * v**2])
    return Cumulants(value, np.stack(influences, axis=1))


def integrate_step(left: Rung, right: Rung, a: Cumulants, b: Cumulants) -> list[Step]:
    """Return the integral between two rungs by each of the rules."""
    h = right.t - left.t
    signs = np.array([1.0, -1.0, 1.0, -1.0])
    factors = [np.array(rule) * h ** np.arange(1, len(rule) + 1) for rule in HERMITE]
    values = [float(c @ (a.value[: len(c)] + signs[: len(c)] * b.value[: len(c)])) for c in factors]
    # what the next rule changes; of the last one, as the changes before it fall
    changes = np.diff(values)
    fall = min(abs(changes[-1] / changes[-2]), 1.0) if changes[-2] else 1.0
    off = [*changes, changes[-1] * fall]
    return [
        make_step(
            value,
            (1.0, left.source, a.influences[:, : len(c)] @ c),
            (1.0, right.source, b.influences[:, : len(c)] @ (signs[: len(c)] * c)),
            rule=rule,
        )
        for value, c, rule in zip(values, factors, off, strict=True)
    ]
