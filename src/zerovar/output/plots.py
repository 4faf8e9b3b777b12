"""Pictures (need the extra `zerovar[plots]`): each function returns a matplotlib figure, and saves
it where a path is given."""

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..arguments import FLAG, PATH, Requirement, check_argument, instance, takes, whole
from ..errors import list_names, missing_package
from ..fitting import Fitted
from ..io.atomic import atomic
from ..solvers.algebra.memory import SAMPLE
from ..statistics.series import effective_size
from .formatting import EXACT, format_count, plus_minus, worth
from .record import EstimateRecord, Traces

File = str | PathLike[str]
ANSWER = instance(EstimateRecord, "an Estimate, what zv.estimate returns")

# Okabe and Ito's colours, told apart by everyone, with markers of their own for black and white;
# one a role, by the paper
_LIGHT = SimpleNamespace(plain="#E69F00", controlled="#0072B2", extra="#009E73", ink="#222222")
_DARK = SimpleNamespace(plain="#F0B640", controlled="#6FB7F0", extra="#3CC99B", ink="#E6E6E6")
_STYLE: dict[Any, Any] = {"axes.grid": True, "grid.color": "#EBEBEB", "svg.hashsalt": "zerovar"}
_STYLE |= dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False)
_INKS = (
    "text.color",
    "axes.labelcolor",
    "axes.edgecolor",
    "axes.titlecolor",
    "xtick.color",
    "ytick.color",
)
_PAPERS = ("figure.facecolor", "axes.facecolor")
_ACROSS = 4  # panels of a picture side by side, on a page


@takes(estimate=ANSWER, path=PATH, most=whole(1), dark=FLAG)
def forest(
    estimate: EstimateRecord, path: File | None = None, *, most: int = 40, dark: bool = False
) -> Any:
    """Draw one row an integrand: plain and controlled 95 % intervals around the controlled value,
    in plain standard errors.

    Of more than `most` integrands, those are shown whose gains are spread over the whole range.
    """
    # all, or some from the least gain to the largest, in their own order
    count = min(len(estimate.gain), most)
    spread = np.linspace(0, len(estimate.gain) - 1, count).round().astype(int)
    chosen = np.sort(np.argsort(estimate.gain)[spread])
    value, error, unit = (
        column[chosen] for column in (estimate.value, estimate.std_error, estimate.plain_std_error)
    )
    with picture(path, dark, figsize=(9.5, 1.5 + 0.42 * count)) as (figure, axes, colours):
        rows = np.arange(count)[::-1]
        shift = (estimate.plain_value[chosen] - value) / unit
        style = {"capsize": 0, "zorder": 3, "markersize": 6, "linewidth": 2.5}
        axes.axvline(0, color=colours.ink, linewidth=0.6, zorder=1)
        for at, y, width, marker, colour, label in (
            (shift, rows + 0.16, 1.96, "s", colours.plain, "plain Monte Carlo"),
            (
                np.zeros(count),
                rows - 0.16,
                1.96 * error / unit,
                "o",
                colours.controlled,
                "with control variates",
            ),
        ):
            axes.errorbar(at, y, xerr=width, fmt=marker, color=colour, label=label, **style)
        axes.set_yticks(rows, [_plain_text(estimate.names[k]) for k in chosen])
        limit = max(3.0, 1.05 * float(abs(shift).max()) + 2.0)
        axes.set(
            xlim=(-limit, limit),
            ylim=(-0.6, count - 0.4),
            xlabel="distance from the controlled estimate, in standard errors of plain Monte Carlo",
        )
        answers = [plus_minus(*pair) for pair in zip(value, error, strict=True)]
        longest = max(map(len, answers))
        place = {"xycoords": ("axes fraction", "data"), "va": "center"}
        font = {"color": colours.ink, "fontsize": 9, "family": "monospace"}
        for row, answer, gain in zip(rows, answers, estimate.gain[chosen], strict=True):
            axes.annotate(f"{answer:>{longest}}   gain {worth(gain)}", (1.02, row), **place, **font)
        axes.grid(axis="y", visible=False)
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)
        return figure


@takes(path=PATH, dark=FLAG)
def densities(curves: Any, path: File | None = None, *, dark: bool = False) -> Any:
    """Draw marginal densities with bands of two standard errors, over histograms of the draws."""
    count = len(curves.names)
    columns = min(count, _ACROSS)
    rows = -(-count // columns)
    size = {"figsize": (3.4 * columns, 0.6 + 2.4 * rows), "nrows": rows, "ncols": columns}
    with picture(path, dark, squeeze=False, **size) as (figure, axes, colours):
        for k, panel in enumerate(axes.ravel()):
            panel.grid(visible=False)
            panel.spines["left"].set_visible(False)
            panel.set_yticks([])
            if k >= count:
                panel.set_visible(False)
                continue
            grid, value, error = curves.grid[k], curves.value[k], curves.std_error[k]
            panel.hist(
                curves.values[:, k],
                bins=40,
                range=(grid[0], grid[-1]),
                weights=curves.weights / (grid[-1] - grid[0]) * 40,
                color=colours.plain,
                alpha=0.45,
                label="draws",
            )
            low, high = np.maximum(value - 2 * error, 0.0), value + 2 * error
            panel.fill_between(grid, low, high, color=colours.controlled, alpha=0.3, linewidth=0)
            panel.plot(
                grid, value, color=colours.controlled, linewidth=2, label="density ± 2 errors"
            )
            panel.set(xlabel=_plain_text(curves.names[k]), xlim=(grid[0], grid[-1]), ylim=(0, None))
        axes[0, 0].legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)
        return figure


@takes(estimate=ANSWER, path=PATH, dark=FLAG)
def scatter(
    estimate: EstimateRecord,
    name: str | None = None,
    path: File | None = None,
    *,
    dark: bool = False,
) -> Any:
    """Draw the integrand f against its control variate c + g, and what is left, f − g − c, for one
    integrand (default: the first).

    Each draw's c + g is by a fit that left the draw, or its block of the chain, out.
    """
    k, traces = _index(estimate, name), _traces(estimate)
    f, residual = (part[..., k].ravel() for part in (traces.values, traces.residuals))
    some = np.linspace(0, len(f) - 1, min(len(f), SAMPLE)).astype(int)
    f, residual = f[some], residual[some]
    control = f - residual
    frame = {"nrows": 2, "figsize": (7, 6.4), "sharex": True, "height_ratios": (2.4, 1)}
    with picture(path, dark, **frame) as (figure, (above, below), colours):
        points = {
            "s": 9,
            "alpha": 0.45,
            "color": colours.controlled,
            "edgecolors": "none",
            "rasterized": True,
        }
        ends = [control.min(), control.max()]
        above.plot(ends, ends, color=colours.ink, linewidth=0.8, label="f = c + g")
        above.scatter(control, f, **points)
        above.set(
            ylabel="f at the draws",
            title=f"{_plain_text(estimate.names[k])}: the integrand and its control variate",
        )
        above.legend(loc="upper left")
        below.axhline(0, color=colours.ink, linewidth=0.8)
        below.scatter(control, residual, **points)
        below.set(xlabel="c + g, fitted without the draw", ylabel="f − (c + g)")
        spreads = f"sd of f: {f.std():.3g}     sd of what is left: {residual.std():.3g}"
        below.annotate(
            spreads, (0.01, 1.03), xycoords="axes fraction", fontsize=10, color=colours.ink
        )
        return figure


@takes(estimate=ANSWER, path=PATH, dark=FLAG)
def errors(
    estimate: EstimateRecord,
    name: str | None = None,
    path: File | None = None,
    *,
    dark: bool = False,
) -> Any:
    """Draw the standard error against the number of draws, plain and controlled, for one integrand
    (default: that of median gain).

    The control variate is the one fitted to all draws; dots are standard errors of the first draws
    of every chain, and the dashed line says how many draws plain Monte Carlo would need.
    """
    traces, k = _traces(estimate), _index(estimate, name, typical_index(estimate))
    chains, draws, _ = traces.values.shape
    lengths = np.unique(np.geomspace(min(50, draws), draws, 9).astype(int))
    last, error, gain = (
        float(column[k]) for column in (estimate.plain_std_error, estimate.std_error, estimate.gain)
    )
    with picture(path, dark, figsize=(8, 4.8)) as (figure, axes, colours):
        for label, series, marker, colour, ending in (
            ("plain Monte Carlo", traces.values, "s", colours.plain, last),
            ("with control variates", traces.residuals, "o", colours.controlled, error),
        ):
            parts = [series[:, :length, k : k + 1] for length in lengths]
            spreads = np.array(
                [part.std(ddof=1) / np.sqrt(effective_size(part)[0]) for part in parts]
            )
            # A reported error may be raised above its series' scatter (bias, choice): the curve
            # ends at what was reported
            scaled = (
                spreads * ending / spreads[-1] if spreads[-1] > 0 else np.full(len(spreads), ending)
            )
            axes.plot(
                chains * lengths, scaled, marker=marker, color=colour, label=label, linewidth=2
            )
        if gain < EXACT:  # else no number of draws would do
            total, needed = chains * draws, chains * draws * gain
            axes.plot(
                [total, needed],
                [last, error],
                "--",
                color=colours.plain,
                linewidth=1.5,
                label="plain, with more draws",
            )
            axes.axhline(error, color=colours.controlled, linewidth=0.8, linestyle=":")
            axes.plot([needed], [error], "*", color=colours.ink, markersize=12, zorder=4)
            below = {
                "xytext": (0, -12),
                "textcoords": "offset points",
                "va": "top",
                "ha": "right",
                "color": colours.ink,
            }
            axes.annotate(f"{format_count(needed)} draws", (needed, error), **below)
        shown = f"standard error of {_plain_text(estimate.names[k])}"
        axes.set(xscale="log", yscale="log", xlabel="number of draws", ylabel=shown)
        axes.margins(x=0.06, y=0.16)
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, fontsize=10)
        return figure


@takes(fitted=instance((Fitted, EstimateRecord), "a Fitted or an Estimate"), path=PATH, dark=FLAG)
def training(
    fitted: Fitted | EstimateRecord, path: File | None = None, *, dark: bool = False
) -> Any:
    """Draw the loss of a stochastic fit against epochs, and that on held-out draws where there were
    any."""
    stats = fitted.stats
    if "loss" not in stats:
        raise ValueError(
            f"there is no training curve: the fit was {stats.get('form', 'of another kind')}, not "
            "by SGD"
        )
    with picture(path, dark, figsize=(8, 4.8)) as (figure, axes, colours):
        positive = True
        for key, label, colour, line in (
            ("loss", "loss on fitting draws", colours.controlled, "-"),
            ("validation", "on held-out draws", colours.plain, "--"),
        ):
            if key in stats:
                curve = np.asarray(stats[key], float).reshape(len(stats[key]), -1).mean(axis=1)
                axes.plot(
                    np.arange(1, len(curve) + 1) / stats.get("windows", 1),
                    curve,
                    line,
                    color=colour,
                    label=label,
                    linewidth=2,
                )
                positive &= bool((curve > 0).all())
        if positive:
            axes.set_yscale("log")
        axes.set(
            xlabel="epoch",
            ylabel="mean square of what is left, in variances of f",
            title="training",
        )
        axes.legend()
        return figure


@takes(path=PATH, dark=FLAG)
def bridge(evidence: Any, path: File | None = None, *, dark: bool = False) -> Any:
    """Draw the log density less that of the proposal and less log Z, at draws of both: where the
    histograms overlap, the bridge stands."""
    both = evidence.traces
    inside = np.concatenate([one[np.isfinite(one)] for one in both])
    low, high = np.quantile(inside, (0.001, 0.999))
    bins = np.linspace(low, high, 60) if high > low else 60
    with picture(path, dark, figsize=(8, 4.2)) as (figure, axes, colours):
        for values, colour, label in (
            (both.at_points, colours.plain, "points of the proposal"),
            (both.at_draws, colours.controlled, "draws of the posterior"),
        ):
            shown = np.clip(values[np.isfinite(values)], low, high)
            axes.hist(shown, bins=bins, density=True, color=colour, alpha=0.55, label=label)
        axes.axvline(0, color=colours.ink, linewidth=0.8)
        axes.set(
            xlabel="log of posterior over proposal density",
            title=f"log Z = {plus_minus(evidence.log_z, evidence.std_error)},   "
            f"overlap {evidence.overlap:.0%}",
        )
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.legend()
        return figure


@takes(path=PATH, dark=FLAG)
def temperatures(evidence: Any, path: File | None = None, *, dark: bool = False) -> Any:
    """Draw the mean log-likelihood along the ladder, whose area is log Z, and each rung's share in
    the variance."""
    traces = evidence.traces
    size = {"figsize": (8, 5.6), "nrows": 2, "height_ratios": (3, 1), "sharex": True}
    with picture(path, dark, **size) as (figure, (top, low), colours):
        top.fill_between(traces.temperatures, traces.means, color=colours.controlled, alpha=0.15)
        top.errorbar(
            traces.temperatures,
            traces.means,
            yerr=1.96 * traces.errors,
            color=colours.controlled,
            marker="o",
            markersize=4,
        )
        top.set(
            ylabel="mean log-likelihood",
            title=f"log Z = {plus_minus(evidence.log_z, evidence.std_error)}",
        )
        low.vlines(traces.rungs, 0, 100 * traces.shares, color=colours.plain, linewidth=3)
        low.set(xlabel="inverse temperature", ylabel="% of variance", ylim=(0, None))
        return figure


@contextmanager
def picture(
    path: File | None, dark: bool, **frame: Any
) -> Iterator[tuple[Any, Any, SimpleNamespace]]:
    """Give a figure in our style, its axes, and the colours to draw with; save it to `path` at the
    end. `dark` is for dark pages."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise missing_package("matplotlib", "plots") from error
    inks: dict[Any, Any] = (
        dict.fromkeys(_INKS, _DARK.ink)
        | dict.fromkeys(_PAPERS, "#16191D")
        | {"grid.color": "#4A4C4F"}
        if dark
        else {}
    )
    with plt.rc_context(_STYLE | inks):
        figure, axes = plt.subplots(layout="constrained", **frame)
        yield figure, axes, _DARK if dark else _LIGHT
        if path is not None:
            with atomic(Path(path)) as temporary:
                kind = Path(path).suffix[1:] or "png"
                # the same picture, the same bytes
                dated = {"metadata": {"Date": None}} if kind == "svg" else {}
                figure.savefig(temporary, dpi=160, format=kind, **dated)
            plt.close(figure)


def typical_index(estimate: EstimateRecord) -> int:
    """Return the number of the integrand of median gain."""
    return int(np.argsort(estimate.gain)[(len(estimate.gain) - 1) // 2])


def _plain_text(name: str) -> str:
    return name.replace("$", r"\$")  # a name is not a formula


def _index(estimate: EstimateRecord, name: str | None, default: int = 0) -> int:
    if name is None:
        return default
    words = f"one of the integrands, {list_names(estimate.names)}"
    return check_argument("name", name, Requirement(words, estimate.names.index))


def _traces(estimate: EstimateRecord) -> Traces:
    if estimate.traces is None:
        raise ValueError(
            "this estimate has no traces to draw: it is one of chunked draws, which are not kept, "
            "or was stored by an earlier version. estimate.plot() needs none; for this picture "
            "estimate again, from draws in memory"
        )
    return estimate.traces
