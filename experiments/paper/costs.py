"""What a fit costs as draws and dimensions grow: the right half of Figure 2, as slopes.

Five epochs of SGD in batches of 8 against the exact solve, both warm: the shorter of two runs after one that compiled.
"""

from __future__ import annotations

import functools
import warnings
from pathlib import Path

import numpy as np

import zerovar as zv
from benchmarks.harness import best

from .harness import Job, Row, Size, constants, distinct, markdown, select

NAME = "costs"
TITLE = "Time of a fit against m and d (Figure 2, right)"
VERSIONS = {"ours": 1}

DRAWS = {"polynomial": (1000, 2000, 4000, 8000, 16_000), "kernel": (500, 1000, 2000, 4000)}
DIMENSIONS = (5, 10, 20, 40)
_AT = {"polynomial": (5000, 20), "kernel": (1000, 5)}  # m while d varies, and d while m varies


def jobs(size: Size) -> list[Job]:
    if size.quick:
        return [{"part": "ours", "family": family, "over": "m", "m": m, "d": 5} for family in DRAWS for m in (200, 300)]
    found = []
    for family, (m_at, d_at) in _AT.items():
        found += [{"part": "ours", "family": family, "over": "m", "m": m, "d": d_at} for m in DRAWS[family]]
        found += [{"part": "ours", "family": family, "over": "d", "m": m_at, "d": d} for d in DIMENSIONS]
    return found


def run(job: Job, data: Path | None) -> list[Row]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(job["m"], job["d"]))
    sample, values = zv.Sample(x, -x), np.sin(x).sum(axis=1)
    family = zv.Polynomial(2) if job["family"] == "polynomial" else zv.Kernel(zv.kernels.Gaussian(2 * np.sqrt(job["d"])))
    rows: list[Row] = []
    for method, solver in (("exact", zv.Exact()), ("SGD", zv.SGD(8, 5, progress=False))):
        fit = functools.partial(zv.fit, family, sample, values, zv.LeastSquares(zv.Ridge(1e-6)), solver)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", zv.ZerovarWarning)
            fitted = fit()  # compiles
            seconds = best(fit, 2)
        rows += constants(method, ["Σ sin x_i"], fitted.intercept, [0.0], seconds)
    return rows


def curve(rows: list[Row], family: str, over: str, method: str) -> tuple[np.ndarray, np.ndarray]:
    """Places and seconds."""
    here = select(rows, family=family, over=over, method=method)
    return np.array([row[over] for row in here], dtype=float), np.array([row["seconds"] for row in here])


def slope(places: np.ndarray, seconds: np.ndarray) -> float:
    """Of the logarithms, over the larger half: where fixed costs no longer hide it."""
    last = max(2, (len(places) + 1) // 2)
    return float(np.polyfit(np.log(places[-last:]), np.log(seconds[-last:]), 1)[0])


def crossing(places: np.ndarray, exact: np.ndarray, trained: np.ndarray) -> str:
    """Where the exact solve becomes the dearer one, from the last slopes where that is beyond the measured range."""
    ratio = np.log(exact / trained)
    if ratio[-1] < 0:
        steepness = slope(places, exact) - slope(places, trained)
        return f"about {places[-1] * np.exp(-ratio[-1] / steepness):.2g} (extrapolated)" if steepness > 0.5 else "not in reach"
    if ratio[0] >= 0:
        return f"below {places[0]:.0f}"
    k = int(np.argmax(ratio >= 0))
    share = -ratio[k - 1] / (ratio[k] - ratio[k - 1])
    return f"{np.exp(np.log(places[k - 1]) + share * np.log(places[k] / places[k - 1])):.0f}"


def section(rows: list[Row]) -> str:
    table = []
    for family in distinct(rows, "family"):
        for over in distinct(select(rows, family=family), "over"):
            places, exact = curve(rows, family, over, "exact")
            _, trained = curve(rows, family, over, "SGD")
            ends = [f"{times[0]:.2g} … {times[-1]:.2g} s" for times in (exact, trained)]
            span = f"{over} = {places[0]:.0f} … {places[-1]:.0f}"
            slopes = [f"{slope(places, times):.2f}" for times in (exact, trained)]
            table.append([f"{family}, {span}", *ends, *slopes, crossing(places, exact, trained)])
    header = ["", "exact", "SGD, 5 epochs", "slope exact", "slope SGD", "SGD cheaper from"]
    text = (
        "Slopes of log time over the larger half of each range. A quadratic has d²/2 terms, so that an epoch of it costs d² "
        "and an exact solve d⁴; a kernel on fixed centres costs d. In m an epoch is linear, an exact solve of a quadratic too, "
        "with a matrix product for its unit, and one of a kernel cubic.\n\n"
    )
    return text + markdown(header, table)


def figure(rows: list[Row], path: Path) -> None:
    import matplotlib.pyplot as plt

    panels = list(dict.fromkeys((row["family"], row["over"]) for row in rows))
    figure, axes_ = plt.subplots(1, len(panels), figsize=(3 * len(panels), 3.2), sharey=True, layout="constrained")
    for axes, (family, over) in zip(np.atleast_1d(axes_), panels, strict=True):
        for method, mark in (("exact", "s-"), ("SGD", "o-")):
            places, seconds = curve(rows, family, over, method)
            axes.plot(places, seconds, mark, label=f"{method}, slope {slope(places, seconds):.2f}")
        axes.set(xscale="log", yscale="log", xlabel=over, title=family, xticks=places, xticklabels=[f"{p:.0f}" for p in places])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    np.atleast_1d(axes_)[0].set_ylabel("seconds")
    figure.savefig(path, dpi=150)
    plt.close(figure)
