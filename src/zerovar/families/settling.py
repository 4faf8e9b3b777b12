"""What is left open in a family, chosen from the draws that it is fitted to."""

from typing import Any

import jax
import numpy as np

from ..inputs.points import Points
from ..operators import Operator
from .base import Family, parts_of


def check_family(family: Family, points: Points) -> None:
    """Raise a ValueError if a family makes no sense where such points live."""
    if not points.space.is_flat:
        for part in parts_of(family):
            part.check_space(points.space)
    family.check(points.dim)


def settle(family: Family, points: Points, values: np.ndarray) -> Family:
    """Return a family with all that is open chosen from standardised fitting draws: operators from
    draws and scores, and the rest from draws and integrands (n, q)."""

    def settle_operator(node: Any) -> Any:
        is_operator = isinstance(node, Operator)
        return points.space.own(node).resolve(points.x, points.s) if is_operator else node

    settled: Family = jax.tree.map(
        settle_operator, family, is_leaf=lambda node: isinstance(node, Operator)
    )
    return settled.resolve(points.x, values)
