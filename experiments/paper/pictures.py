"""What the figures share: a colour for each family, curves of errors and costs, a row of panels for
each part of a study."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .harness import Row, absolute_error, distinct, select

PARTS = {"paper": "The paper's recipe", "ours": "Ours"}
PROGRAM = "network, authors' program"  # drawn beside the recipe, on its own draws
SECONDS = {"paper": "processor's seconds, compiled", "ours": "seconds, compilation included"}
WIDTH = 11.5
TINY = 1e-17  # what an error of nothing is drawn as: it has no logarithm
_STYLES = {
    "MC": ("0.55", "s"),
    "automatic": ("k", "*"),
    "polynomial": ("C0", "o"),
    "kernel": ("C1", "^"),
    "polynomial + kernel": ("C2", "v"),
    "polynomial + two kernels": ("C4", "D"),
    "network": ("C3", "P"),
    PROGRAM: ("C5", "p"),
    "quadratic": ("C9", "X"),
}
_BESIDE = {"automatic": "MC", "quadratic": "network", PROGRAM: "network"}  # below whom in legends
_ALONE = ("MC", "automatic", "network", PROGRAM)  # names that say how they are fitted


class Panel(NamedTuple):
    """Errors, or the seconds of a fit, of the rows `where` these columns have these values."""

    title: str
    where: dict[str, Any]
    seconds: bool = False


def family(method: str) -> str:
    return PROGRAM if method.startswith(PROGRAM) else method.split(", ")[0]


def rows_of_part(rows: Sequence[Row], part: str) -> list[Row]:
    """Of a strip of panels: with the recipe stand networks as the authors' program trains them."""
    more = [row for row in select(rows, part="program") if row["method"] != "MC"]
    return select(rows, part=part) + (more if part == "paper" else [])


def colour(method: str) -> str:
    return _STYLES.get(family(method), ("C5", "."))[0]


def style(method: str) -> dict[str, Any]:
    """Of a curve: colour and marker say the family; steps are solid, steps on J^V dotted, exact
    solves dashed and hollow."""
    name, words = family(method), method.split(", ")
    exact, variance = "exact" in method, "J^V" in words
    labels = [name, *["exact" if exact else "SGD"][: name not in _ALONE]]
    labels += [word for word in words if word.startswith("J^") and not exact]
    return {
        "label": ", ".join(labels),
        "color": colour(method),
        "marker": _STYLES.get(name, ("C5", "."))[1],
        "ms": 4.5,
        "mfc": "w" if exact else colour(method),
        "ls": "--" if exact else ":" if variance else "-",
        "lw": 2 if name == "automatic" else 1.3,
        "zorder": 3 if name == "automatic" else 2,
    }


def ordered(methods: Iterable[str]) -> list[str]:
    """By family, in the order of the colours; then steps, steps on J^V, exact solves."""
    places = {name: k for k, name in enumerate(_STYLES)}
    return sorted(
        methods,
        key=lambda method: (
            places.get(family(method), len(places)),
            "exact" in method,
            "J^V" in method,
        ),
    )


def curve(axes: Any, rows: Sequence[Row], by: str, seconds: bool = False, **style: Any) -> None:
    """Mean absolute errors, or mean seconds, against the column `by`; nothing where there is
    none."""
    found = {
        place: absolute_error(select(rows, **{by: place})) for place in sorted(distinct(rows, by))
    }
    heights = {place: error.seconds if seconds else error.mean for place, error in found.items()}
    heights = {place: max(height, TINY) for place, height in heights.items() if np.isfinite(height)}
    if heights and not (seconds and max(heights.values()) <= TINY):  # a plain mean costs nothing
        axes.plot(list(heights), list(heights.values()), **style)


def curves(
    axes: Any, rows: Sequence[Row], by: str, methods: Sequence[str], seconds: bool = False
) -> None:
    for method in methods:
        curve(axes, select(rows, method=method), by, seconds, **style(method))
    logarithmic(axes, by, sorted(distinct(rows, by)))


def logarithmic(axes: Any, label: str, places: Sequence[Any]) -> None:
    """Both scales, with ticks at the places only."""
    axes.set(xscale="log", yscale="log", xlabel=label)
    axes.set_xticks(places, [str(place) for place in places])
    axes.set_xticks([], minor=True)
    axes.tick_params(which="both", labelsize=8)
    axes.grid(alpha=0.3)


def shared(panels: Sequence[Any]) -> None:
    """One vertical scale, numbered at the first of the panels."""
    for axes in panels[1:]:
        axes.sharey(panels[0])
        axes.tick_params(axis="y", which="both", labelleft=False)


def costs(axes: Any) -> None:
    """Seconds as the horizontal scale of what was drawn, in plain numbers."""
    from matplotlib.ticker import LogLocator

    axes.set(xscale="log", xlabel="seconds")
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high > 10 * low else (1, 2, 3, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xticks([], minor=True)


def rows_of_panels(rows: Sequence[Row], by: str, panels: Sequence[Panel], path: Path) -> None:
    """Curves of all methods against `by`: a row of panels for the paper's recipe, and one for
    ours."""
    import matplotlib.pyplot as plt

    parts = [part for part in PARTS if select(rows, part=part)]
    figure = plt.figure(figsize=(WIDTH, 2.9 * len(parts) + 0.6), layout="constrained")
    for strip, part in zip(strips(figure, len(parts)), parts, strict=True):
        here = rows_of_part(rows, part)
        methods = ordered(distinct(here, "method"))
        strip.suptitle(PARTS[part], fontweight="bold", fontsize=11)
        drawn = strip.subplots(1, len(panels), squeeze=False)[0]
        errors = [axes for axes, panel in zip(drawn, panels, strict=True) if not panel.seconds]
        beside = len(errors) == len(panels) - 1
        if beside:
            shared(errors)
        for axes, panel in zip(drawn, panels, strict=True):
            curves(axes, select(here, **panel.where), by, methods, panel.seconds)
            axes.set_title(panel.title, fontsize=10)
            if not (beside and axes in errors[1:]):
                axes.set_ylabel(SECONDS[part] if panel.seconds else "mean absolute error")
    finish(figure, path)


def strips(figure: Any, count: int, **more: Any) -> list[Any]:
    """Subfigures, one below the other."""
    return list(figure.subfigures(count, 1, squeeze=False, **more)[:, 0])


def finish(figure: Any, path: Path) -> None:
    """One legend for all panels, below them, with a column for each family."""
    import matplotlib.pyplot as plt

    entries: dict[str, Any] = {}
    for axes in figure.axes:
        if axes.get_legend() is None:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                entries.setdefault(label, handle)
    columns: dict[str, list[str]] = {}
    for label in ordered(entries):
        columns.setdefault(_BESIDE.get(family(label), family(label)), []).append(label)
    deep, nothing = max(map(len, columns.values()), default=0), plt.Line2D([], [], ls="none")
    labels = [
        label for column in columns.values() for label in (*column, *[""] * (deep - len(column)))
    ]
    handles = [entries.get(label, nothing) for label in labels]
    if labels:
        look = {"fontsize": 8.5, "frameon": False, "columnspacing": 1.5}
        figure.legend(handles, labels, loc="outside lower center", ncols=len(columns), **look)
    figure.savefig(path, dpi=150)
    plt.close(figure)
