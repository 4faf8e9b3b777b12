"""Methods side by side on several integrands: the table and the curves that the posteriors' studies share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .harness import Row, absolute_error, distinct, markdown, select


def error_table(rows: list[Row], names: Sequence[str]) -> str:
    """Mean absolute errors by integrand and method, then gains, calibration and times."""
    methods = _methods(rows)
    table: list[list[str]] = []
    for name in names:
        here = select(rows, integrand=name)
        table.append([name, f"{here[0]['truth']:.6g}", *(str(absolute_error(select(here, method=m))) for m in methods)])
    found = {method: absolute_error(select(rows, method=method)) for method in methods}
    table.append(["gain, median over the rows", "", *(f"{gain(rows, names, m):.3g}" for m in methods)])
    table.append(["within 2 standard errors", "", *("" if np.isnan(e.within) else f"{e.within:.0%}" for e in found.values())])
    table.append(["seconds", "", *(f"{e.seconds:.2f}" if m != "MC" else "" for m, e in found.items())])
    return markdown(["", "truth", *methods], table)


def gain(rows: list[Row], names: Sequence[str], method: str) -> float:
    """Median over integrands of the ratio of mean squared errors, plain to controlled."""
    return float(np.median([_square(rows, name, "MC") / _square(rows, name, method) for name in names]))


def ranking(rows: list[Row], names: Sequence[str]) -> str:
    """Methods by their gains, the largest first."""
    gains = {method: gain(rows, names, method) for method in _methods(rows) if method != "MC"}
    return ", ".join(f"{method} ({gains[method]:.3g})" for method in sorted(gains, key=lambda method: -gains[method]))


def gain_table(rows: list[Row], by: str, names: Sequence[str]) -> str:
    """The gain of each method for each value of the column `by`."""
    methods = [method for method in _methods(rows) if method != "MC"]
    table = [
        [str(place), *(f"{gain(select(rows, **{by: place}), names, m):.3g}" for m in methods)] for place in distinct(rows, by)
    ]
    return markdown([by, *methods], table)


def curves(rows: list[Row], by: str, names: Sequence[str], path: Path, column: str = "integrand") -> None:
    """Errors against `by`, one panel for each of `names` in `column`, and the time of a fit."""
    import matplotlib.pyplot as plt

    methods, places = _methods(rows), distinct(rows, by)
    figure, panels = plt.subplots(1, len(names) + 1, figsize=(max(2.7 * (len(names) + 1), 11), 3.9), layout="constrained")
    for axes, name in zip(panels, [*names, None], strict=True):
        for k, method in enumerate(methods):
            here = [select(rows, method=method, **{by: place} | ({column: name} if name else {})) for place in places]
            found = [absolute_error(part) for part in here]
            if name is None and method == "MC":
                continue
            axes.plot(
                places,
                [error.mean if name else error.seconds for error in found],
                marker="osD^v<>P*"[k % 9],
                ms=4,
                lw=2 if method == "automatic" else 1,
                color="k" if method == "automatic" else f"C{k}",
                label=method,
            )
        axes.set(xscale="log", yscale="log", xlabel=by, title=name or "seconds", xticks=places, xticklabels=places)
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    limits = np.array([axes.get_ylim() for axes in panels[:-1]])
    for axes in panels[:-1]:
        axes.set_ylim(limits[:, 0].min(), limits[:, 1].max())
    panels[0].set_ylabel("mean absolute error")
    figure.legend(
        *panels[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=min(5, -(-len(methods) // 2)),
        fontsize=8,
        frameon=False,
    )
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _methods(rows: list[Row]) -> list[str]:
    return ["MC", *(method for method in distinct(rows, "method") if method not in ("MC", "automatic")), "automatic"]


def _square(rows: list[Row], name: str, method: str) -> float:
    return float(np.mean([(row["value"] - row["truth"]) ** 2 for row in select(rows, integrand=name, method=method)]))
