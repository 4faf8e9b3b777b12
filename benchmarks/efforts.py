"""Gain against seconds on the real posteriors: the three efforts of the automatic choice, and
ZVCV's settings.

python -m benchmarks.efforts DATA     # measures, writes benchmarks/efforts.csv, and draws
python -m benchmarks.efforts          # draws docs/images/efforts.png from that file
"""

from __future__ import annotations

import csv
import json
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import zerovar as zv

TABLE = Path(__file__).with_name("efforts.csv")
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "efforts.png"
EFFORTS = ("low", "normal", "high")
CHAINS = 3

# Of ZVCV 2.1.3 on the same three chains, with draws standardised by hand: seconds a chain, the
# middle of the measured range on one thread of another machine, and realised gains on these
# posteriors (none where terms outnumber draws)
_POSTERIORS = (
    "arK",
    "diamonds",
    "eight_schools_noncentered",
    "garch11",
    "gp_regr",
    "kidscore_interaction",
    "logmesquite",
    "lotka_volterra",
    "low_dim_gauss_mix",
)
ZVCV = {
    "quadratic": (0.03, (5.2e3, 1.1e6, 19, 5.8, 730, 7.4e5, 190, 270, 6.2e4)),
    "cubic": (0.08, (3.8e6, np.nan, 29, 6.4, 2.3e3, 7.7e8, 4.8e4, 4.4e3, 5.8e6)),
    "SECF, median": (1.1, (8.9e4, 3.1e6, 37, 290, 2.9e4, 4.4e6, 1.7e3, 860, 1.3e6)),
    "SECF, cross-validated": (7.3, (1.5e7, 6.9e5, 66, 28, 8.6e3, 1.3e10, 3.7e5, 1.6e4, 3.1e8)),
    "CF, cross-validated": (7.3, (8.3e6, 2.5e3, 250, 37, 5.9e3, 4.7e8, 7.9e4, 1.4e4, 5.0e7)),
}


class Point(NamedTuple):
    """One effort on one posterior: median realised gain over parameters, median seconds of a warm
    call."""

    posterior: str
    effort: str
    gain: float
    seconds: float


def measured(data: Path) -> Iterator[Point]:
    """Three chains of 1000 draws, each alone; every effort is run once before it is timed."""
    truth = json.loads((data / "truth.json").read_text())
    for name in sorted(truth):
        if not (data / f"{name}.npz").exists():
            continue
        stored = np.load(data / f"{name}.npz")
        known = np.array(truth[name]["truth"])
        plain = np.mean([(stored["f"][c].mean(axis=0) - known) ** 2 for c in range(CHAINS)], axis=0)
        for effort in EFFORTS:
            _call(stored, 0, effort)
            answers, seconds = zip(*(_call(stored, c, effort) for c in range(CHAINS)), strict=True)
            squares = np.mean([(answer.value - known) ** 2 for answer in answers], axis=0)
            gain = float(np.median(plain / np.maximum(squares, np.finfo(float).tiny)))
            yield Point(name, effort, gain, float(np.median(seconds)))


def _call(stored: Any, chain: int, effort: str) -> tuple[zv.Estimate, float]:
    arrays = [stored[key][chain] for key in ("x", "score", "f")]
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        answer = zv.estimate(*arrays, family=zv.Automatic(effort, progress=False))
    return answer, time.perf_counter() - started


def read() -> list[Point]:
    with TABLE.open() as file:
        return [
            Point(row["posterior"], row["effort"], float(row["gain"]), float(row["seconds"]))
            for row in csv.DictReader(file)
        ]


def write(points: list[Point]) -> None:
    with TABLE.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(Point._fields)
        rows.writerows((p.posterior, p.effort, f"{p.gain:.3g}", f"{p.seconds:.3g}") for p in points)


def draw(points: list[Point]) -> Any:
    """A panel a posterior: efforts joined by a line, ZVCV's settings beside them."""
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(point.posterior for point in points))
    across = 3
    figure, axes = plt.subplots(
        -(-len(names) // across), across, figsize=(9.5, 8.4), sharex=True, layout="constrained"
    )
    marks = dict(zip(ZVCV, ("v", "^", "s", "D", "P"), strict=True))
    for name, panel in zip(names, axes.ravel(), strict=False):
        ours = [point for point in points if point.posterior == name]
        panel.loglog(
            [p.seconds for p in ours],
            [p.gain for p in ours],
            "o-",
            color="#0072b2",
            label="zerovar",
        )
        for point in ours:
            side, place = {
                "low": ((0, 8), "center"),
                "normal": ((-7, 0), "right"),
                "high": ((7, -3), "left"),
            }[point.effort]
            panel.annotate(
                point.effort,
                (point.seconds, point.gain),
                side,
                textcoords="offset points",
                ha=place,
                size=8,
            )
        for setting, (seconds, gains) in ZVCV.items():
            gain = dict(zip(_POSTERIORS, gains, strict=True)).get(name, np.nan)
            panel.loglog(seconds, gain, marks[setting], color="#e69f00", label=f"ZVCV: {setting}")
        panel.set_title(name, size=10)
        panel.margins(x=0.2, y=0.2)
        panel.grid(alpha=0.3)
    for panel in axes.ravel()[len(names) :]:
        panel.set_visible(False)
    figure.supxlabel("seconds a call, warm, 1000 draws")
    figure.supylabel("realised gain, median over parameters")
    handles = {
        label: handle
        for panel in axes.ravel()
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        handles.values(), handles.keys(), loc="outside upper center", ncols=3, frameon=False
    )
    return figure


def main(arguments: list[str]) -> None:
    import matplotlib

    matplotlib.use("agg")
    if arguments:
        points = []
        for point in measured(Path(arguments[0]) / "posteriors"):
            print(point, flush=True)
            points.append(point)
        write(points)
    draw(read()).savefig(PICTURE, dpi=130)


if __name__ == "__main__":
    main(sys.argv[1:])
