"""Hyper-parameters trained with the coefficients: `SGD(hyper=True)` on Genz's functions, from a
length-scale that is too short."""

from __future__ import annotations

import time
import warnings

import numpy as np

import zerovar as zv

from .comparisons import apart, ratio
from .harness import Row, absolute_error, estimates, markdown, select

START = 0.3  # of a standard deviation: a kernel that is too smooth gives no slope to follow
_WAYS = {"as it starts": False, "trained with the coefficients": True}


def rows_of(
    x: np.ndarray,
    values: dict[str, np.ndarray],
    truth: dict[str, float],
    kernels: dict[tuple[str, ...], zv.Kernel],
) -> list[Row]:
    """Rows of 25 epochs for each group of integrands by its kernel, which serves them all."""
    rows: list[Row] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", zv.ZerovarWarning)
        for group, kernel in kernels.items():
            true = np.array([truth[name] for name in group])
            for label, hyper in _WAYS.items():
                started = time.process_time()
                answer = zv.estimate(
                    x,
                    -x,
                    {name: values[name] for name in group},
                    family=kernel,
                    objective=zv.LeastSquares(zv.Ridge(1e-8)),
                    solver=zv.SGD(8, 25, hyper=hyper, progress=False),
                    split=zv.holdout(0.5),
                )
                spent = time.process_time() - started
                rows += estimates(f"kernel, {label}", answer, true, spent)
    return rows


def section(rows: list[Row], ours: list[Row]) -> list[str]:
    """Beside kernels that were tuned first, by leave-one-out or the marginal likelihood."""
    if not rows:
        return []
    table = []
    for name in dict.fromkeys(row["integrand"] for row in rows):
        here = select(rows, integrand=name)
        start, trained = (select(here, method=f"kernel, {label}") for label in _WAYS)
        tuned = select(ours, integrand=name, method="kernel, SGD 25 epochs")
        cells = [absolute_error(part) for part in (start, trained, tuned)]
        table.append([name, *cells, ratio(apart(trained, start))])
    spent = [
        np.median([row["seconds"] for row in select(rows, method=f"kernel, {label}")])
        for label in _WAYS
    ]
    head = ["", *_WAYS, "tuned first", "ratio of the first two"]
    return [
        "**Hyper-parameters in the loop**: `SGD(hyper=True)` moves the kernel's scales by the "
        "same steps as the coefficients, on draws that these do not see. d = 1, 25 epochs, ridge "
        f"1e-8, from a length-scale of {START}, which is too short. Median seconds of a call, "
        f"compilation included where it happens: {spent[0]:.2g} and {spent[1]:.2g}. It mends a "
        "poor start; a search for the kernel first is more precise where functions are smooth:\n",
        markdown(head, table),
    ]
