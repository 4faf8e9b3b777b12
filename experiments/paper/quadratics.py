"""Quadratics on Madelon: 125 750 terms for 300 draws, by the recipe's steps, by its solve, and by
whitened steps."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence

import numpy as np

import zerovar as zv

from .comparisons import recipe_table
from .harness import Row, constants, distinct
from .protocol import Problem, rows_of

_EPOCHS = 25


def rows(
    x: np.ndarray, scores: np.ndarray, values: dict[str, np.ndarray], truth: np.ndarray, m: int
) -> list[Row]:
    """All draws fit; one set of hyper-parameters for all integrands."""
    names, array = tuple(values), np.stack(list(values.values()), axis=1)
    problem = Problem.of(x, scores, array)
    found = constants("MC", names, array.mean(axis=0), truth, 0.0, m=m)
    recipe = rows_of(
        problem, names, truth, ["polynomial"], lambda kind: (_EPOCHS,), shared=True, m=m
    )
    found += [row | {"method": row["method"].replace("polynomial", "quadratic")} for row in recipe]
    strength = next(row["strength"] for row in recipe if row["method"].endswith("exact"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", zv.ZerovarWarning)
        started = time.process_time()
        fitted = zv.fit(
            zv.Polynomial(2),
            zv.Sample(x, scores),
            array,
            zv.LeastSquares(zv.Ridge(strength)),
            zv.SGD(8, _EPOCHS, progress=False),
        )
        spent = time.process_time() - started
    return found + constants("quadratic, SGD", names, fitted.intercept, truth, spent, m=m)


def section(rows: list[Row], names: Sequence[str]) -> list[str]:
    if not rows:
        return []
    count, m = len(distinct(rows, "repetition")), rows[0]["m"]
    return [
        f"**Quadratics by steps**, m = {m}, {count} repetitions on chains of their own: the "
        f"recipe's {_EPOCHS} epochs of plain steps on 125 750 coefficients, and the solve of the "
        "same family and penalty, as above:\n",
        recipe_table(rows, "m", names),
    ]
