"""What a fit costs as draws and dimensions grow: the right half of Figure 2, as slopes.

Five epochs of SGD in batches of 8, plain as in the paper and whitened as zerovar's, against the
exact solve, all warm: the shorter of two runs after one that compiled, in seconds of one processor.
Choosing hyper-parameters is not timed, nor is the largest safe step of plain descent.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np

import zerovar as zv

from .harness import Job, Row, Size, constants, distinct, markdown, select
from .protocol import Problem, fit, plain, processor_time

NAME = "costs"
TITLE = "Time of a fit against m and d (Figure 2, right)"
VERSIONS = {"ours": 2}

DRAWS = {"polynomial": (1000, 2000, 4000, 8000, 16_000), "kernel": (500, 1000, 2000, 4000)}
DIMENSIONS = {"polynomial": (5, 10, 20, 30, 40, 60), "kernel": (5, 10, 20, 40, 80)}
_AT = {"polynomial": (5000, 20), "kernel": (1000, 5)}  # m while d varies, and d while m varies


def jobs(size: Size) -> list[Job]:
    if size.quick:
        few = [(family, m) for family in DRAWS for m in (200, 300)]
        return [
            {"part": "ours", "family": family, "over": "m", "m": m, "d": 5, **size.marks}
            for family, m in few
        ]
    found = []
    for family, (m_at, d_at) in _AT.items():
        found += [
            {"part": "ours", "family": family, "over": "m", "m": m, "d": d_at}
            for m in DRAWS[family]
        ]
        found += [
            {"part": "ours", "family": family, "over": "d", "m": m_at, "d": d}
            for d in DIMENSIONS[family]
        ]
    return found


def run(job: Job, data: Path | None) -> list[Row]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(job["m"], job["d"]))
    values = np.sin(x).sum(axis=1)
    problem = Problem.of(x, -x, values)
    family = (
        zv.Polynomial(2)
        if job["family"] == "polynomial"
        else zv.Kernel(zv.kernels.Gaussian(2 * np.sqrt(job["d"])))
    )
    coefficients = family.coefficient_features(problem.x, problem.s)
    ways: tuple[tuple[str, Any, Any], ...] = (
        ("exact", family, zv.Exact()),
        ("SGD", family, zv.SGD(8, 5, progress=False)),
        ("as in the paper", coefficients, plain(coefficients, problem, 5)),
    )
    rows: list[Row] = []
    for method, family_, solver in ways:
        work = functools.partial(
            fit, family_, problem.fitting, problem.values, zv.LeastSquares(zv.Ridge(1e-6)), solver
        )
        fitted = work()  # compiles
        seconds = min(processor_time(work)[1] for _ in range(2))
        rows += constants(
            method, ["Σ sin x_i"], [np.nan] if fitted is None else fitted.intercept, [0.0], seconds
        )
    return rows


def curve(rows: list[Row], family: str, over: str, method: str) -> tuple[np.ndarray, np.ndarray]:
    """Places and seconds."""
    here = select(rows, family=family, over=over, method=method)
    return np.array([row[over] for row in here], dtype=float), np.array(
        [row["seconds"] for row in here]
    )


def slope(places: np.ndarray, seconds: np.ndarray) -> float:
    """Of the logarithms, over the larger half: where fixed costs no longer hide it."""
    last = max(2, (len(places) + 1) // 2)
    return float(np.polyfit(np.log(places[-last:]), np.log(seconds[-last:]), 1)[0])


def crossing(places: np.ndarray, exact: np.ndarray, trained: np.ndarray) -> str:
    """Where the exact solve becomes the dearer one, from the last slopes where that is beyond the
    measured range."""
    ratio = np.log(exact / trained)
    if ratio[-1] < 0:
        steepness = slope(places, exact) - slope(places, trained)
        return (
            f"about {places[-1] * np.exp(-ratio[-1] / steepness):.2g} (extrapolated)"
            if steepness > 0.5
            else "not in reach"
        )
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
            trained, stepped = (
                curve(rows, family, over, method)[1] for method in ("SGD", "as in the paper")
            )
            ends = [f"{times[0]:.2g} … {times[-1]:.2g} s" for times in (exact, trained, stepped)]
            span = f"{over} = {places[0]:.0f} … {places[-1]:.0f}"
            slopes = [f"{slope(places, times):.2f}" for times in (exact, trained, stepped)]
            cheaper = [crossing(places, exact, times) for times in (trained, stepped)]
            table.append([f"{family}, {span}", *ends, *slopes, *cheaper])
    header = ["", "exact", "SGD, 5 epochs", "as in the paper, 5 epochs"]
    header += [
        "slope exact",
        "slope SGD",
        "slope as in the paper",
        "SGD cheaper from",
        "as in the paper cheaper from",
    ]
    text = (
        "Slopes of log time over the larger half of each range. A quadratic has d²/2 terms, so "
        "that an epoch of it costs d² and an exact solve d⁴; a kernel on fixed centres costs d. "
        "In m an epoch is linear, an exact solve of a quadratic too, with a matrix product for "
        "its unit, and one of a kernel cubic.\n\n"
    )
    return text + markdown(header, table)


def figure(rows: list[Row], path: Path) -> None:
    import matplotlib.pyplot as plt

    panels = list(dict.fromkeys((row["family"], row["over"]) for row in rows))
    figure, axes_ = plt.subplots(
        1, len(panels), figsize=(3 * len(panels), 3.2), sharey=True, layout="constrained"
    )
    for axes, (family, over) in zip(np.atleast_1d(axes_), panels, strict=True):
        for method, mark in (("exact", "s-"), ("SGD", "o-"), ("as in the paper", "^-")):
            places, seconds = curve(rows, family, over, method)
            axes.plot(places, seconds, mark, label=f"{method}, slope {slope(places, seconds):.2f}")
        axes.set(
            xscale="log",
            yscale="log",
            xlabel=over,
            title=family,
            xticks=places,
            xticklabels=[f"{p:.0f}" for p in places],
        )
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    np.atleast_1d(axes_)[0].set_ylabel("seconds")
    figure.savefig(path, dpi=150)
    plt.close(figure)
