"""Methods side by side on several integrands: the tables that the posteriors' studies share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .harness import Row, absolute_error, distinct, markdown, select


def error_table(rows: list[Row], names: Sequence[str]) -> str:
    """Mean absolute errors by integrand and method, then gains, calibration and times."""
    methods = _methods(rows)
    table: list[list[str]] = []
    for name in names:
        here = select(rows, integrand=name)
        table.append(
            [
                name,
                f"{here[0]['truth']:.6g}",
                *(str(absolute_error(select(here, method=m))) for m in methods),
            ]
        )
    found = {method: absolute_error(select(rows, method=method)) for method in methods}
    gains_ = gains(rows, names)
    table.append(["gain, median over the rows", "", *(f"{gains_[m]:.3g}" for m in methods)])
    table.append(
        [
            "within 2 standard errors",
            "",
            *("" if np.isnan(e.within) else f"{e.within:.0%}" for e in found.values()),
        ]
    )
    table.append(
        ["seconds", "", *(f"{e.seconds:.2f}" if m != "MC" else "" for m, e in found.items())]
    )
    return markdown(["", "truth", *methods], table)


def gains(rows: list[Row], names: Sequence[str]) -> dict[str, float]:
    """For each method the median over integrands of the ratio of mean squared errors, plain to
    controlled."""
    squares: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        squares.setdefault((row["method"], row["integrand"]), []).append(
            (row["value"] - row["truth"]) ** 2
        )
    mean = {
        place: float(np.nanmean(found))
        for place, found in squares.items()
        if np.isfinite(found).any()
    }
    found = {}
    for method in _methods(rows):
        ratios = [mean["MC", name] / mean[method, name] for name in names if (method, name) in mean]
        found[method] = float(np.median(ratios)) if ratios else float("nan")
    return found


def in_errors(rows: list[Row]) -> float:
    """The mean error over the repetitions, in standard errors of that mean."""
    off = np.array([row["value"] - row["truth"] for row in rows])
    return float(off.mean() / (off.std(ddof=1) / np.sqrt(len(off))))


def ranking(rows: list[Row], names: Sequence[str]) -> str:
    """Methods by their gains, the largest first."""
    found = {method: value for method, value in gains(rows, names).items() if method != "MC"}
    return ", ".join(
        f"{method} ({found[method]:.3g})"
        for method in sorted(found, key=lambda method: -found[method])
    )


def gain_table(rows: list[Row], by: str, names: Sequence[str]) -> str:
    """The gain of each method for each value of the column `by`."""
    methods = [method for method in _methods(rows) if method != "MC"]
    table = []
    for place in sorted(distinct(rows, by)):
        found = gains(select(rows, **{by: place}), names)
        table.append([str(place), *(f"{found[m]:.3g}" if m in found else "" for m in methods)])
    return markdown([by, *methods], table)


def recipe_table(rows: list[Row], by: str, names: Sequence[str]) -> str:
    """The paper's recipe: gains by plain steps, and by the exact solve of the same family, for each
    value of the column `by`; and the processor's seconds of a fit at the largest."""
    places = distinct(rows, by)
    found = {place: gains(select(rows, **{by: place}), names) for place in places}
    table = []
    for kind in dict.fromkeys(method.split(", ")[0] for method in _methods(rows) if ", " in method):
        stepped, solved = f"{kind}, as in the paper", f"{kind}, same family exact"
        if solved not in found[places[0]] and f"{kind}, exact by the dual" in found[places[0]]:
            solved = f"{kind}, exact by the dual"
        cells = []
        for place in places:
            both = [found[place].get(method) for method in (stepped, solved)]
            cells.append(
                " / ".join("–" if gain is None else f"{gain:.3g}" for gain in both).removesuffix(
                    " / –"
                )
            )
        largest = [select(rows, method=method, **{by: places[-1]}) for method in (stepped, solved)]
        ended = sum(not np.isfinite(row["value"]) for row in select(rows, method=stepped))
        cells.append(
            " / ".join(
                f"{np.median([row['seconds'] for row in part]):.2f}" for part in largest if part
            )
        )
        table.append([kind, *cells, str(ended) if ended else ""])
    return markdown(
        [
            "",
            *(f"{by} = {place}" for place in places),
            f"seconds at {by} = {places[-1]}",
            "diverged",
        ],
        table,
    )


def repeated(rows: list[Row], by: str) -> str:
    """How often, at each place."""
    counts = {
        len(distinct(select(rows, **{by: place}), "repetition")) for place in distinct(rows, by)
    }
    return f"{' or '.join(map(str, sorted(counts)))} repetition{'s' if max(counts) > 1 else ''}"


def recipe_section(rows: list[Row], by: str, names: Sequence[str]) -> list[str]:
    if not rows:
        return []
    text = (
        f"**The paper's recipe**, {repeated(rows, by)}: gains (ratios of mean squared errors, "
        "plain to controlled, median over the integrands) by plain steps / by the exact solve of "
        "the same family and penalty. Below 1 it does harm:\n"
    )
    return [text, recipe_table(rows, by, names)]


def _methods(rows: list[Row]) -> list[str]:
    found = distinct(rows, "method")
    return [
        *["MC"][: "MC" in found],
        *(m for m in found if m not in ("MC", "automatic")),
        *["automatic"][: "automatic" in found],
    ]
