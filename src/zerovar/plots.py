"""Pictures (need the extra `zerovar[plots]`): each function returns a matplotlib figure, and saves it where a path is given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .files import atomic

if TYPE_CHECKING:
    from .fitting import Fitted
    from .result import Estimate

File = str | PathLike[str]

# Okabe and Ito's colours, told apart by everyone, with markers of their own for black and white
PLAIN, CONTROLLED, EXTRA = "#E69F00", "#0072B2", "#009E73"
DARK = {PLAIN: "#F0B640", CONTROLLED: "#6FB7F0", EXTRA: "#3CC99B"}
_STYLE: dict[Any, Any] = {
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "svg.hashsalt": "zerovar",
}
_INK, _PAPER = "#E6E6E6", "#16191D"
_INKS = ("text.color", "axes.labelcolor", "axes.edgecolor", "axes.titlecolor", "xtick.color", "ytick.color", "grid.color")
_POINTS = 3000  # of a scatter: more only make a blot


class _Colours:
    """One colour a role, on light or dark paper."""

    def __init__(self, dark: bool):
        shown = DARK if dark else {}
        self.plain, self.controlled, self.extra = (shown.get(colour, colour) for colour in (PLAIN, CONTROLLED, EXTRA))
        self.ink = _INK if dark else "#222222"


def forest(estimate: Estimate, path: File | None = None, *, most: int = 40, dark: bool = False) -> Any:
    """One row an integrand: plain and controlled 95 % intervals around the controlled value, in plain standard errors.

    Of more than `most` integrands, those are shown whose gains are spread over the whole range.
    """
    with _canvas(dark) as (plt, colours):
        from .result import plus_minus, worth

        chosen = _spread_out(estimate.gain, most)
        names = [estimate.names[k] for k in chosen]
        value, error, unit = estimate.value[chosen], estimate.std_error[chosen], estimate.plain_std_error[chosen]
        count = len(chosen)
        figure, axes = plt.subplots(figsize=(9.5, 1.5 + 0.42 * count), layout="constrained")
        rows = np.arange(count)[::-1]
        shift = (estimate.plain_value[chosen] - value) / unit
        style = {"capsize": 0, "zorder": 3, "markersize": 6, "linewidth": 2.5}
        axes.axvline(0, color=colours.ink, linewidth=0.6, zorder=1)
        axes.errorbar(shift, rows + 0.16, xerr=1.96, fmt="s", color=colours.plain, label="plain Monte Carlo", **style)
        narrow = 1.96 * error / unit
        zeros = np.zeros(count)
        axes.errorbar(
            zeros, rows - 0.16, xerr=narrow, fmt="o", color=colours.controlled, label="with control variates", **style
        )
        axes.set_yticks(rows, [_plain_text(name) for name in names])
        axes.set_ylim(-0.6, count - 0.4)
        limit = max(3.0, 1.05 * float(abs(shift).max()) + 2.0)
        axes.set_xlim(-limit, limit)
        axes.set_xlabel("distance from the controlled estimate, in standard errors of plain Monte Carlo")
        answers = [plus_minus(*pair) for pair in zip(value, error, strict=True)]
        width = max(map(len, answers))
        place = {
            "xycoords": ("axes fraction", "data"),
            "va": "center",
            "color": colours.ink,
            "fontsize": 9,
            "family": "monospace",
        }
        for row, answer, gain in zip(rows, answers, estimate.gain[chosen], strict=True):
            axes.annotate(f"{answer:>{width}}   gain {worth(gain)}", (1.02, row), **place)
        axes.grid(axis="y", visible=False)
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)
        return _saved(plt, figure, path)


def scatter(estimate: Estimate, name: str | None = None, path: File | None = None, *, dark: bool = False) -> Any:
    """The integrand f against its control variate c + g, and what is left, f − g − c, for one integrand (default: the first).

    Each draw's c + g is by a fit that left the draw, or its block of the chain, out.
    """
    with _canvas(dark) as (plt, colours):
        k = _index(estimate, name)
        f, residual = (part[..., k].ravel() for part in _traces(estimate))
        some = np.linspace(0, len(f) - 1, min(len(f), _POINTS)).astype(int)
        f, residual = f[some], residual[some]
        control = f - residual
        figure, (above, below) = plt.subplots(2, 1, figsize=(7, 6.4), layout="constrained", sharex=True, height_ratios=(2.4, 1))
        points = {"s": 9, "alpha": 0.45, "color": colours.controlled, "edgecolors": "none", "rasterized": True}
        ends = [control.min(), control.max()]
        above.plot(ends, ends, color=colours.ink, linewidth=0.8, label="f = c + g")
        above.scatter(control, f, **points)
        above.set(ylabel="f at the draws", title=f"{_plain_text(estimate.names[k])}: the integrand and its control variate")
        above.legend(loc="upper left")
        below.axhline(0, color=colours.ink, linewidth=0.8)
        below.scatter(control, residual, **points)
        below.set(xlabel="c + g, fitted without the draw", ylabel="f − (c + g)")
        spreads = f"sd of f: {f.std():.3g}     sd of what is left: {residual.std():.3g}"
        below.annotate(spreads, (0.01, 1.03), xycoords="axes fraction", fontsize=10, color=colours.ink)
        return _saved(plt, figure, path)


def errors(estimate: Estimate, name: str | None = None, path: File | None = None, *, dark: bool = False) -> Any:
    """Standard error against the number of draws, plain and controlled, for one integrand (default: that of median gain).

    The control variate is the one fitted to all draws; dots are standard errors of the first draws of every chain, and the
    dashed line says how many draws plain Monte Carlo would need.
    """
    with _canvas(dark) as (plt, colours):
        from .result import EXACT, human
        from .std_errors import effective_size

        traces = _traces(estimate)
        gain = estimate.gain
        k = typical(estimate) if name is None else _index(estimate, name)
        chains, draws, _ = traces.values.shape
        lengths = np.unique(np.geomspace(min(50, draws), draws, 9).astype(int))
        figure, axes = plt.subplots(figsize=(8, 4.8), layout="constrained")
        total, last, error = chains * draws, float(estimate.plain_std_error[k]), float(estimate.std_error[k])
        for label, series, marker, colour, ending in (
            ("plain Monte Carlo", traces.values, "s", colours.plain, last),
            ("with control variates", traces.residuals, "o", colours.controlled, error),
        ):
            parts = [series[:, :length, k : k + 1] for length in lengths]
            spreads = np.array([part.std(ddof=1) / np.sqrt(effective_size(part)[0]) for part in parts])
            # A reported error may be raised above its series' scatter (bias, choice): the curve ends at what was reported
            scaled = spreads * ending / spreads[-1] if spreads[-1] > 0 else np.full(len(spreads), ending)
            axes.plot(chains * lengths, scaled, marker=marker, color=colour, label=label, linewidth=2)
        if gain[k] < EXACT:  # else no number of draws would do
            needed = total * float(gain[k])
            axes.plot([total, needed], [last, error], "--", color=colours.plain, linewidth=1.5, label="plain, with more draws")
            axes.axhline(error, color=colours.controlled, linewidth=0.8, linestyle=":")
            axes.plot([needed], [error], "*", color=colours.ink, markersize=12, zorder=4)
            below = {"xytext": (0, -12), "textcoords": "offset points", "va": "top", "ha": "right", "color": colours.ink}
            axes.annotate(f"{human(needed)} draws", (needed, error), **below)
        axes.set(
            xscale="log", yscale="log", xlabel="number of draws", ylabel=f"standard error of {_plain_text(estimate.names[k])}"
        )
        axes.margins(x=0.06, y=0.16)
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, fontsize=10)
        return _saved(plt, figure, path)


def training(fitted: Fitted | Estimate, path: File | None = None, *, dark: bool = False) -> Any:
    """The loss of a stochastic fit against epochs, and that on held-out draws where there were any."""
    with _canvas(dark) as (plt, colours):
        stats = fitted.stats
        if "loss" not in stats:
            raise ValueError(f"there is no training curve: the fit was {stats.get('form', 'of another kind')}, not by SGD")
        curves = [("loss", "loss on fitting draws", colours.controlled, "-")]
        curves += [
            ("validation", "on held-out draws", colours.plain, "--"),
            ("hyper_loss", "of hyper-parameters", colours.extra, ":"),
        ]
        figure, axes = plt.subplots(figsize=(8, 4.8), layout="constrained")
        positive = True
        for key, label, colour, line in curves:
            if key in stats:
                curve = np.asarray(stats[key], float).reshape(len(stats[key]), -1).mean(axis=1)
                an_epoch = stats.get("windows", 1) if key != "hyper_loss" else 1
                axes.plot(np.arange(1, len(curve) + 1) / an_epoch, curve, line, color=colour, label=label, linewidth=2)
                positive &= bool((curve > 0).all())
        if positive:
            axes.set_yscale("log")
        axes.set(xlabel="epoch", ylabel="mean square of what is left, in variances of f", title="training")
        axes.legend()
        return _saved(plt, figure, path)


@contextmanager
def _canvas(dark: bool) -> Iterator[tuple[Any, _Colours]]:
    """pyplot with our style, and the colours to draw with; `dark` is for dark pages."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install 'zerovar[plots]'") from error
    inks: dict[Any, Any] = dict.fromkeys(_INKS, _INK) | {"figure.facecolor": _PAPER, "axes.facecolor": _PAPER} if dark else {}
    with plt.rc_context(_STYLE | inks):
        yield plt, _Colours(dark)


def _saved(plt: Any, figure: Any, path: File | None) -> Any:
    if path is not None:
        with atomic(Path(path)) as temporary:
            dated = {"metadata": {"Date": None}} if Path(path).suffix == ".svg" else {}  # the same picture, the same bytes
            figure.savefig(temporary, dpi=160, **dated)
        plt.close(figure)
    return figure


def typical(estimate: Estimate) -> int:
    """The integrand of median gain."""
    return int(np.argsort(estimate.gain)[(len(estimate.gain) - 1) // 2])


def _spread_out(gain: np.ndarray, most: int) -> np.ndarray:
    """All rows, or `most` of them from the least gain to the largest, in their own order."""
    if len(gain) <= most:
        return np.arange(len(gain))
    return np.sort(np.argsort(gain)[np.linspace(0, len(gain) - 1, most).round().astype(int)])


def _plain_text(name: str) -> str:
    return name.replace("$", r"\$")  # a name is not a formula


def _index(estimate: Estimate, name: str | None) -> int:
    if name is None:
        return 0
    if name not in estimate.names:
        raise ValueError(f"{name!r} is none of the integrands {', '.join(estimate.names)}")
    return estimate.names.index(name)


def _traces(estimate: Estimate) -> Any:
    if estimate.traces is None:
        raise ValueError(
            "this estimate has no traces to draw: it is one of chunked draws, which are not kept, or was stored by an earlier "
            "version. estimate.plot() needs none; for this picture estimate again, from draws in memory"
        )
    return estimate.traces
