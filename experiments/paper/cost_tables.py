"""What the times of fits say: slopes, and the sizes from which steps are the cheaper way."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .harness import Row, distinct, markdown, select

FIXED = 2500  # steps: five epochs of 4000 draws
EXACT = {"lean steps": "lean exact", "as in the paper": "exact", "SGD": "exact"}


def curve(
    rows: list[Row], family: str, over: str, method: str, column: str = "seconds"
) -> tuple[np.ndarray, np.ndarray]:
    """Places and seconds, or another column."""
    here = select(rows, family=family, over=over, method=method)
    return np.array([row[over] for row in here], dtype=float), np.array(
        [row[column] for row in here]
    )


def epochs(rows: list[Row], family: str, over: str) -> tuple[np.ndarray, np.ndarray]:
    """Places, and the seconds of one lean epoch, in which features cancel."""
    places, many = curve(rows, family, over, "lean steps, 25 epochs")
    few = curve(rows, family, over, "lean steps, 5 epochs")[1]
    return places, (many - few) / 20


def slope(places: np.ndarray, seconds: np.ndarray) -> float:
    """Of the logarithms, over the larger half: where fixed costs no longer hide it; NaN of one
    place."""
    if len(places) < 2:
        return float("nan")
    last = max(2, (len(places) + 1) // 2)
    return float(np.polyfit(np.log(places[-last:]), np.log(seconds[-last:]), 1)[0])


def crossing(places: np.ndarray, ratios: np.ndarray) -> str:
    """Where the ratio of steps to the linear system falls below one, between the sizes that were
    measured; never said of others."""
    logs = np.log(ratios)
    if np.abs(logs).max() < 0.1:
        return "equal within a tenth"
    if (logs < 0).all():
        return f"below {places[0]:.0f}"
    if logs[-1] >= 0:
        return f"not up to {places[-1]:.0f}"
    k = int(np.flatnonzero(logs >= 0)[-1]) + 1
    share = logs[k - 1] / (logs[k - 1] - logs[k])
    return f"{np.exp(np.log(places[k - 1]) + share * np.log(places[k] / places[k - 1])):.0f}"


def steps_of(rows: list[Row]) -> list[str]:
    """Methods that stand against a linear system, and are none."""
    against = distinct([row for row in rows if "ratio" in row], "method")
    return [method for method in against if method not in ("lean features", "Nystrom")]


def _power(places: np.ndarray, seconds: np.ndarray) -> str:
    found = slope(places, seconds)
    return "" if np.isnan(found) else f"{found:.2f}"


def section(rows: list[Row]) -> str:
    calibration, rows = select(rows, part="calibration"), select(rows, part="ours")
    places = list(dict.fromkeys((row["family"], row["over"]) for row in rows))
    linear = [(family, over) for family, over in places if family != "network"]
    crossings, shares = [], []
    for family, over in linear:
        here = select(rows, family=family, over=over)
        span = distinct(here, over)
        name = f"{family}, {over} = {span[0]} … {span[-1]}"
        cells, slopes = [], []
        for method in steps_of(here):
            at, ratios = curve(here, family, over, method, "ratio")
            cells.append(f"{crossing(at, ratios)} ({ratios[0]:.2g} … {ratios[-1]:.2g})")
            slopes.append(_power(*curve(here, family, over, method)))
        crossings.append([name, *cells])
        exact = [_power(*curve(here, family, over, m)) for m in ("lean exact", "exact")]
        shares.append([name, *exact, *slopes])
    methods = steps_of(rows)
    parts = [
        "Steps are cheaper than the linear system from this size on, and in brackets the ratio of "
        "their time to the linear system's at the smallest and the largest size: lean steps "
        "against a lean solve, features or Gram included in both; whole calls of the library "
        "against a whole call of its exact solver. Between measured sizes only; nothing is "
        "extrapolated:\n",
        markdown(["", *methods], crossings),
        _scatter(rows),
        "A quadratic has d²/2 terms, so that an epoch of it costs m d² and a solve m d⁴ + d⁶: in m "
        "both are linear, and the solve's unit is a matrix product, many times faster an operation "
        "than rows gathered for a batch. A kernel on m translates costs m² an epoch, m a step, and "
        "m³ to solve.\n",
        "Slopes of log time over the larger half of each range:\n",
        markdown(["", "lean exact", "exact", *methods], shares),
        "What is left of the variance of f = Σ sin x_i at fresh draws, at the largest size, and "
        "the part of five lean epochs that features or the Gram take:\n",
        _left(rows, linear),
        _wide(rows),
        "*Lean steps* are those of the faster of two loops, in NumPy or compiled: with few "
        "features the interpreter is most of the time of the first, with many the second has no "
        f"BLAS. At the smallest and the largest size: {_loops(rows, linear)}.\n",
        *_centres(rows, linear),
    ]
    return "\n".join([*parts, *_networks(rows), *_calibration(calibration)])


def _scatter(rows: list[Row]) -> str:
    spreads = [row["most"] / row["least"] for row in rows if "most" in row]
    return (
        "Seconds are a processor's, which other programs on the machine lengthen, and ratios are "
        "of runs that take turns: the largest of a setting is "
        f"{np.median(spreads):.2g} times the smallest in the median, and up to {max(spreads):.2g} "
        "times. A crossing is no more certain than that.\n"
    )


def _loops(rows: list[Row], places: list[tuple[str, str]]) -> str:
    listed = []
    for family, over in places:
        here = select(rows, family=family, over=over)
        ends = [row["by"] for row in here if "by" in row]
        listed.append(f"{family} in {over}: {ends[0]}, {ends[-1]}")
    return "; ".join(listed)


def _wide(rows: list[Row]) -> str:
    """Why the solve of many terms leaves everything."""
    here = select(rows, family="polynomial + kernel", over="d")
    exact = select(here, method="exact")[-1:]
    if not exact or exact[0]["left"] < 0.5:
        return ""
    d, m = exact[0]["d"], exact[0]["m"]
    ours, plain = (select(here, method=name, d=d)[0] for name in ("SGD", "as in the paper"))
    terms = d * (d + 3) // 2
    return (
        f"Polynomial + kernel in d = {d} has {terms} quadratic terms for {m} draws, next to the "
        "number at which they interpolate. Least squares multiplies what a quadratic leaves of f "
        f"by about m / (m − p), here {m / (m - terms):.1f}, and a ridge of 1e-6 does nothing about "
        f"it: the exact solve leaves {exact[0]['left']:.3g} of the variance, as much as the plain "
        f"mean. `zv.SGD` goes towards the same answer; after five epochs it has got as far as "
        f"{ours['left']:.3g}, at {ours['ratio']:.2g} times the time of the solve, as it whitens "
        "nearly as many coordinates as there are draws. Plain steps stop long before, at "
        f"{plain['left']:.2g}, and are the better for it: where terms are nearly as many as draws "
        "early stopping is a penalty, and 1e-6 is none.\n"
    )


def _centres(rows: list[Row], places: list[tuple[str, str]]) -> list[str]:
    """Whitened steps and the solve for as many centres."""
    table = []
    for family, over in places:
        here = select(rows, family=family, over=over, method="Nystrom")
        for row in here[:: max(len(here) - 1, 1)]:
            more = {"family": family, "over": over, "m": row["m"], "d": row["d"]}
            steps, exact = (select(rows, method=m, **more)[0] for m in ("SGD", "exact"))
            name = f"{family}, {over} = {row[over]}"
            cells = [f"{r['seconds']:.3g} s, {r['left']:.1e}" for r in (steps, row, exact)]
            table.append([name, row["centres"], *cells])
    if not table:
        return []
    head = ["", "centres", "SGD, 5 epochs", "Nystrom, as many centres", "exact, all translates"]
    return [
        "Whitened steps do not move a translate at every draw but at few centres, which is where "
        "most of their time is saved. `zv.Nystrom` solves for as many, by the same rule, without "
        "steps; seconds, and what is left of the variance:\n",
        markdown(head, table),
    ]


def _calibration(rows: list[Row]) -> list[str]:
    if not rows:
        return []
    table = []
    for m in distinct(rows, "m"):
        found = {(r["family"], r["method"]): r["seconds"] for r in select(rows, m=m)}
        table.append([m, *(f"{seconds:.3g}" for seconds in found.values())])
    kinds = [f"{row['family']}, {row['method']}" for row in select(rows, m=rows[0]["m"])]
    return [
        "What the choice of hyper-parameters takes, measured once for each m, seconds, d = 5: for "
        "a quadratic the recipe's cross-validation over 15 strengths, for a kernel over 36 kernels "
        "besides, on folds of at most 250 draws, so that it does not grow with m but for the unit "
        "of λ; for a network of 6 × 20 seven fits of 25 epochs to four fifths of the draws. The "
        "fits are a lean solve, and 25 epochs:\n",
        markdown(["m", *kinds], table),
    ]


def _left(rows: list[Row], places: list[tuple[str, str]]) -> str:
    methods = ["lean exact", "exact", *steps_of(rows)]
    table = []
    for family, over in places:
        here = select(rows, family=family, over=over)
        largest = select(here, **{over: distinct(here, over)[-1]})
        found = {row["method"]: row for row in largest}
        features = found["lean features"]["seconds"]
        quick = found.get("lean steps, 25 epochs") is None
        five = 0.0 if quick else 5 * float(epochs(rows, family, over)[1][-1])
        part = features / (features + five)
        name = f"{family}, {over} = {distinct(here, over)[-1]}"
        table.append([name, *(f"{found[m]['left']:.1e}" for m in methods), f"{part:.0%}"])
    return markdown(["", *methods, "features"], table)


def _networks(rows: list[Row]) -> list[str]:
    table: list[list[str]] = []
    for over in distinct(select(rows, family="network"), "over"):
        here = select(rows, family="network", over=over)
        for method in distinct(here, "method"):
            places, seconds = curve(here, "network", over, method)
            table.append(
                [
                    f"{method}, {over} = {places[0]:.0f} … {places[-1]:.0f}",
                    f"{seconds[0]:.2g} … {seconds[-1]:.2g} s",
                    _power(places, seconds),
                    against_kernels(rows, method) if over == "m" else "",
                ]
            )
    if not table:
        return []
    return [
        "Networks (6 × 20, ReLU) have no linear system. Their time, and the m from which that of "
        "the kernel's lean solve is larger, d = 5:\n",
        markdown(["", "seconds", "slope", "cheaper than the kernel's solve from m"], table),
    ]


def against_kernels(rows: list[Row], method: str) -> str:
    """Where a network's steps fall below the kernel's linear system, at sizes that both have."""
    places, seconds = curve(rows, "network", "m", method)
    at, exact = curve(rows, "kernel", "m", "lean exact")
    both = sorted(set(places) & set(at))
    if len(both) < 2:
        return ""
    pairs = [(seconds[list(places).index(p)], exact[list(at).index(p)]) for p in both]
    return crossing(np.array(both), np.array([one / other for one, other in pairs]))


def figure(rows: list[Row], path: Path) -> None:
    """Ratios of the time of steps to that of the linear system; below one steps are cheaper."""
    import matplotlib.pyplot as plt

    rows = select(rows, part="ours")
    panels = list(
        dict.fromkeys((row["family"], row["over"]) for row in rows if row["family"] != "network")
    )
    methods = [*steps_of(rows), "Nystrom"]  # the solve for as few centres as SGD has
    marks = dict(zip(methods, ("o-", "o--", "o:", "s-", "^-", "D--"), strict=False))
    colours = dict(zip(marks, ("C0", "C0", "C0", "C2", "C1", "C3"), strict=False))
    columns = 2 if len(panels) > 3 else len(panels)
    figure, grid = plt.subplots(
        -(-len(panels) // columns),
        columns,
        figsize=(4.6 * columns, 3.0 * -(-len(panels) // columns)),
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for axes, (family, over) in zip(grid.flat, panels, strict=False):
        for method, mark in marks.items():
            places, ratios = curve(rows, family, over, method, "ratio")
            if len(places):
                axes.plot(places, ratios, mark, color=colours[method], ms=4, label=method)
        axes.axhline(1, color="k", lw=0.8)
        axes.set(xscale="log", yscale="log", xlabel=over, title=family)
        axes.set_xticks(places, [f"{p:.0f}" for p in places])
        axes.set_xticks([], minor=True)
        axes.grid(alpha=0.3)
    for row in grid:
        row[0].set_ylabel("time of steps / of the solve")
    found = {}
    for axes in grid.flat:
        found |= dict(zip(*axes.get_legend_handles_labels()[::-1], strict=True))
    labels, handles = list(found), list(found.values())
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    figure.savefig(path, dpi=130)
    plt.close(figure)
