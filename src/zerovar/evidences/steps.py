"""Estimates of log Z from rung to rung, with the influences of the draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64


class Step(NamedTuple):
    """An estimate of log Z(t') − log Z(t) of two neighbouring temperatures; the influences (n,) of
    the draws of each rung it rests on; and what the rule itself may be off by, signed."""

    value: float
    influences: dict[int, np.ndarray]
    rule: float = 0.0


def make_step(value: float, *parts: tuple[float, int, np.ndarray], rule: float = 0.0) -> Step:
    """Return a step whose influences are these multiples of those (n,) of rungs by number."""
    total: dict[int, np.ndarray] = {}
    for factor, source, influences in parts:
        total[source] = total.get(source, 0.0) + factor * influences
    return Step(float(value), total, float(rule))


def total_influences(steps: Sequence[Step], rungs: int, n: int) -> Float64[np.ndarray, "rungs n"]:
    """Return the influences of all draws of the ladder on the sum of the steps."""
    total = np.zeros((rungs, n))
    for step in steps:
        for source, influences in step.influences.items():
            total[source] += influences
    return total
