"""Networks as potentials: g = Δu + ∇u·s, the paper's own operator, with a smooth activation in
place of the ReLU that is no potential; beside vector fields of the same shape."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np

import zerovar as zv

from .comparisons import apart, ratio
from .harness import Row, absolute_error, constants, distinct, markdown, select

_KINDS = {"potential": zv.ScalarLangevin, "vector field": zv.Langevin}


def rows_of(x: np.ndarray, scores: np.ndarray, f: np.ndarray, truth: float, quick: bool) -> list:
    """Rows of the plain mean and of both networks, trained alike."""
    rows = constants("MC", ["f"], [f.mean()], [truth], 0.0)
    architecture = zv.ResNet(8, 1) if quick else zv.ResNet(50, 1)
    solver = zv.SGD(32, 4 if quick else 100, progress=False)
    for kind, operator in _KINDS.items():
        network: Any = zv.Network(architecture, operator())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", zv.ZerovarWarning)
            started = time.process_time()
            fitted = zv.fit(network, zv.Sample(x, scores), f, zv.LeastSquares(), solver)
            spent = time.process_time() - started
        rows += constants(f"network, {kind}", ["f"], fitted.intercept, [truth], spent)
    return rows


def section(rows: list[Row]) -> list[str]:
    if not rows:
        return []
    table = []
    for d, m in dict.fromkeys((row["d"], row["m"]) for row in rows):
        here = select(rows, d=d, m=m)
        plain, *both = (
            select(here, method=method) for method in ("MC", *(f"network, {k}" for k in _KINDS))
        )
        ratios = [ratio(apart(part, plain)) for part in both]
        cells = [absolute_error(part) for part in (plain, *both)]
        spent = " / ".join(f"{np.median([row['seconds'] for row in part]):.3g}" for part in both)
        table.append([d, m, *cells, *ratios, spent])
    count = len(distinct(rows, "repetition"))
    head = ["d", "m", "MC", *_KINDS, *(f"{kind} / MC" for kind in _KINDS), "seconds"]
    return [
        f"**Networks as potentials**, {count} repetitions: L_SL u of the paper needs second "
        "derivatives, which ReLU does not have, so that it was trained as a vector field above. "
        "Here a residual network of three layers of 50 with smooth activations is both, trained by "
        "Adam in batches of 32 for 100 epochs, the best of which a tenth of the draws chooses; "
        "absolute errors, their ratios on the same repetitions, and seconds with compilation where "
        "it happens; from d = 2 on length-scales are the median distance:\n",
        markdown(head, table),
    ]
