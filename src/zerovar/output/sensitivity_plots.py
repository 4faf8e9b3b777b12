"""Pictures of sensitivities (need the extra `zerovar[plots]`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from .plots import File, picture

_MOST_BARS = 24  # that a page shows and a reader takes in
_TRUSTED = 0.7  # Pareto k of importance weights, as in the literature


def bars(found: Any, path: File | None = None, value: str | None = None, *, dark: bool = False):
    """Draw the largest derivatives as bars, in posterior deviations, with errors, plain beside
    controlled."""
    unit = np.where(found.deviation > 0, found.deviation, 1.0)[:, None]
    places = found.strongest(found.derivative.size)
    own = [(a, b) for a, b in places if value in (None, found.values[a])][:_MOST_BARS]
    rows, columns = np.transpose(own)
    y = np.arange(len(own))[::-1]
    size = {"figsize": (8.5, 1.4 + 0.34 * len(own))}
    with picture(path, dark, **size) as (figure, axes, colours):
        for shift, colour, label, at, error in (
            (0.18, colours.controlled, "with control variates", "derivative", "std_error"),
            (-0.18, colours.plain, "plain", "plain_derivative", "plain_std_error"),
        ):
            axes.barh(
                y + shift,
                (getattr(found, at) / unit)[rows, columns],
                0.34,
                xerr=1.96 * (getattr(found, error) / unit)[rows, columns],
                color=colour,
                error_kw={"ecolor": colours.ink, "elinewidth": 1.0, "capsize": 2},
                label=label,
            )
        axes.axvline(0, color=colours.ink, linewidth=0.8)
        names = [_text(f"{found.values[a]}  ·  {found.to[b]}") for a, b in own]
        axes.set_yticks(y, names)
        axes.grid(False, axis="y")
        axes.set_axisbelow(True)
        axes.set(xlabel="derivative, in posterior deviations (whiskers: 95 %)")
        figure.legend(loc="outside lower center", ncols=2)
        return figure


def influences(
    found: Any, path: File | None = None, value: str | None = None, *, dark: bool = False
):
    """Draw how far leaving each observation out moves a value, in posterior deviations: the value
    that moves most, unless one is named."""
    observed = np.flatnonzero(found.observed)
    sizes = np.abs(found.in_deviations[:, observed]).max(axis=1)
    row = int(np.argmax(sizes)) if value is None else found.values.index(value)
    unit = found.deviation[row] if found.deviation[row] > 0 else 1.0
    x = np.arange(len(observed))
    with picture(path, dark, figsize=(9, 4.2)) as (figure, axes, colours):
        for shift, colour, label, at, error, marker, size in (
            (0.3, colours.plain, "plain", "plain_derivative", "plain_std_error", "s", 3),
            (0.0, colours.controlled, "with control variates", "derivative", "std_error", "o", 4),
        ):
            axes.errorbar(
                x + shift,
                -getattr(found, at)[row, observed] / unit,
                yerr=1.96 * getattr(found, error)[row, observed] / unit,
                fmt=marker,
                markersize=size,
                color=colour,
                elinewidth=0.8,
                alpha=0.9 if marker == "o" else 0.55,
                label=label,
            )
        moved = -found.derivative[row, observed] / unit
        for k in np.argsort(-np.abs(moved))[:5]:
            axes.annotate(
                _text(found.to[observed[k]]),
                (x[k], moved[k]),
                textcoords="offset points",
                xytext=(-5, 4),
                ha="right",
                fontsize=8,
            )
        axes.axhline(0, color=colours.ink, linewidth=0.8)
        axes.set(
            xlabel="observation",
            ylabel="moved by leaving it out,\nin posterior deviations",
            title=_text(found.values[row]),
        )
        figure.legend(loc="outside lower center", ncols=2)
        return figure


def along_powers(
    found: Any, path: File | None = None, value: str | None = None, *, dark: bool = False
):
    """Draw how values move with powers of prior and likelihood: controlled derivatives with a band,
    and importance reweighting, filled where its Pareto k can be trusted."""
    curves = found.curves
    rows = [k for k, name in enumerate(curves.names) if value in (None, name)]
    columns = [found.to.index(term) for term in curves.to]
    moved = np.abs(found.in_deviations[:, columns]).max(axis=1)
    rows = sorted(sorted(rows, key=lambda k: -moved[k])[:4])
    low, high = np.log2(curves.grid[[0, -1]])
    ticks = np.exp2(np.arange(np.ceil(low - 1e-9), np.floor(high + 1e-9) + 1))
    across = len(curves.to)
    size = {"figsize": (max(4.4 * across, 6), 2.4 * len(rows) + 0.8), "squeeze": False}
    frame = {"nrows": len(rows), "ncols": across, "sharex": True, "sharey": "row"}
    with picture(path, dark, **size, **frame) as (figure, axes, colours):
        for line, row in zip(axes, rows, strict=True):
            for column, (panel, term) in enumerate(zip(line, curves.to, strict=True)):
                middle, error = curves.value[row, column], curves.std_error[row, column]
                panel.fill_between(
                    curves.grid,
                    middle - 1.96 * error,
                    middle + 1.96 * error,
                    color=colours.controlled,
                    alpha=0.25,
                    linewidth=0,
                )
                panel.plot(curves.grid, middle, color=colours.controlled, label="by derivatives")
                good = curves.pareto_k[column] < _TRUSTED
                for which, face, label in (
                    (good, colours.plain, "by reweighting"),
                    (~good, "none", f"the same, Pareto k ≥ {_TRUSTED:g}"),
                ):
                    if not which.any():
                        continue
                    panel.errorbar(
                        curves.grid[which],
                        curves.reweighted[row, column, which],
                        yerr=1.96 * curves.reweighted_error[row, column, which],
                        fmt="s",
                        markersize=4,
                        color=colours.plain,
                        markerfacecolor=face,
                        elinewidth=0.8,
                        label=label,
                    )
                panel.axvline(1, color=colours.ink, linewidth=0.6)
                panel.set_xscale("log", base=2)
                panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
                if row == rows[-1]:
                    panel.set_xlabel(_text(f"power of {term}"))
            line[0].set_ylabel(_text(curves.names[row]))
        told: dict[str, Any] = {}
        for panel in axes.flat:
            handles, labels = panel.get_legend_handles_labels()
            told |= dict(zip(labels, handles, strict=True))
        figure.legend(told.values(), told.keys(), loc="outside lower center", ncols=3)
        return figure


def _text(name: str) -> str:
    return name.replace("$", r"\$")  # a name is not a formula
