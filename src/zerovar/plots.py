"""Pictures (needs the extra `zerovar[plots]`)."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .files import atomic

if TYPE_CHECKING:
    from .result import Estimate

# Okabe and Ito's colours, told apart by everyone
PLAIN, CONTROLLED, INK = "#999999", "#0072B2", "#222222"


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install 'zerovar[plots]'") from error
    return plt


def forest(estimate: Estimate, path: str | PathLike[str] | None = None) -> Any:
    """One row an integrand: plain and controlled 95 % intervals around the controlled value, in plain standard errors."""
    from .result import plus_minus, worth

    plt = _pyplot()
    count = len(estimate.names)
    figure, axes = plt.subplots(figsize=(8.5, 1.4 + 0.42 * count), layout="constrained")
    unit = estimate.plain_std_error
    rows = list(range(count))[::-1]
    shift = (estimate.plain_value - estimate.value) / unit
    style = {"fmt": "o", "capsize": 0, "zorder": 3, "markersize": 5, "linewidth": 2.5}
    axes.axvline(0, color=INK, linewidth=0.6, zorder=1)
    axes.errorbar(
        shift,
        [r + 0.16 for r in rows],
        xerr=1.96,
        color=PLAIN,
        label="plain Monte Carlo",
        **style,
    )
    axes.errorbar(
        [0.0] * count,
        [r - 0.16 for r in rows],
        xerr=1.96 * estimate.std_error / unit,
        color=CONTROLLED,
        label="with control variates",
        **style,
    )
    axes.set_yticks(rows, estimate.names)
    axes.set_ylim(-0.6, count - 0.4)
    limit = max(3.0, 1.05 * float(abs(shift).max()) + 2.0)
    axes.set_xlim(-limit, limit)
    axes.set_xlabel("distance from the controlled estimate, in standard errors of plain Monte Carlo")
    answers = [plus_minus(value, error) for value, error in zip(estimate.value, estimate.std_error, strict=True)]
    width = max(map(len, answers))
    for row, answer, gain in zip(rows, answers, estimate.gain, strict=True):
        text = f"{answer:>{width}}   gain {worth(gain)}"
        axes.annotate(
            text, (1.02, row), xycoords=("axes fraction", "data"), va="center", color=INK, fontsize=8, family="monospace"
        )
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, frameon=False, fontsize=9)
    if path is not None:
        with atomic(Path(path)) as temporary:
            figure.savefig(temporary, dpi=160)
        plt.close(figure)
    return figure
