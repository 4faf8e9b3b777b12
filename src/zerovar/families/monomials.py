"""Monomials of coordinates, and what the scalar Langevin operator makes of them.

A monomial is a row of the numbers of its coordinates in increasing order, with −1 for none at the
end: (0, 3) is x₀x₃ and (3, −1) is x₃.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from ..inputs.sample import coordinate_name

SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹"


def with_constant(xt: Any, st: Any, numpy: Any = np) -> tuple[Any, Any]:
    """Return coordinates and scores (d + 1, n) with a last coordinate that is 1 and has no score:
    number −1 is no factor."""
    one = numpy.ones_like(xt[:1])
    return numpy.concatenate([xt, one]), numpy.concatenate([st, 0 * one])


def monomial_images(xt: Any, st: Any, rows: Any, numpy: Any = np) -> tuple[Any, Any, Any]:
    """Return monomials P and L P, both (p, n), and their factors 1/√(α! j!) (p,), for coordinates
    and scores (d + 1, n) of `with_constant`.

    With P = x_v Q and v its last variable, L P = x_v L Q + s_v Q + 2 ∂_v Q, where ∂_v Q is a power
    times what Q was before its own last factor.
    """
    shorter, values, images = numpy.ones_like(xt[:1]), xt[rows[:, 0]], st[rows[:, 0]]
    power, square = numpy.ones(len(rows)), numpy.ones(len(rows))
    for k in range(1, rows.shape[1]):
        last = rows[:, k]
        before = numpy.where((last >= 0) & (last == rows[:, k - 1]), power, 0.0)
        images = (
            xt[last] * images + st[last] * values + (2 * before).astype(xt.dtype)[:, None] * shorter
        )
        shorter, values = values, xt[last] * values
        power = before + 1
        square = square * numpy.where(last >= 0, (k + 1) * power, 1.0)
    return values, images, 1 / numpy.sqrt(square)


def monomial_rows(products: Sequence[Sequence[int]], degree: int) -> np.ndarray:
    """Return products of coordinates, by their numbers, as rows (p, degree)."""
    padded = [(*sorted(product), *(degree - len(product)) * (-1,)) for product in products]
    return np.array(padded, dtype=np.int32).reshape(len(padded), degree)


def monomial_name(row: Int[np.ndarray, " degree"], names: tuple[str, ...] | None) -> str:
    """Return a monomial in the names of the coordinates, such as mu²·tau."""
    factors = [(j, len(list(same))) for j, same in itertools.groupby(int(j) for j in row if j >= 0)]
    return "·".join(
        coordinate_name(names, j) + (SUPERSCRIPTS[power] if power > 1 else "")
        for j, power in factors
    )
