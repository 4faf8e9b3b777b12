"""What came out of Genz's functions: tables, verdicts and the picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from . import hyper
from .harness import Error, Row, absolute_error, markdown, select
from .integrands import GENZ, SMOOTH
from .printed import TABLE_1, TABLE_3, TABLE_4, TABLE_5, TIMES

ROUGH = tuple(name for name in GENZ if name not in SMOOTH)
SPLITS = ("50/50", "70/30", "90/10", "100/0")
_KINDS = ("polynomial", "kernel", "polynomial + kernel")
_SHOWN = (
    "MC",
    "polynomial, exact",
    "kernel, SGD 25 epochs",
    "kernel, exact",
    "polynomial + kernel, exact",
    "automatic",
)


def section(rows: list[Row]) -> str:
    ours, paper = select(rows, part="ours"), select(rows, part="paper")
    parts = [
        "Mean absolute errors over the repetitions ± their standard errors. *As in the paper* is "
        "its own recipe (see [The paper's recipe](#the-papers-recipe-and-what-it-leaves-open)); "
        "*same family, exact* the exact solve of that family and penalty. *Ours* are zerovar's "
        "solvers on other kernels: for the four smooth functions its own, tuned by leave-one-out "
        "for all four together; for the two rough ones Matérn 3/2; in d dimensions the sum of "
        "kernels of single coordinates and one of all, with a scale for each coordinate. SGD is "
        "whitened and averaged, on 83 well-spread centres.\n",
        "**Table 1** (d = 1, half of 1000 draws fit, 25 epochs)\n",
        _table_1(ours, paper),
        "**Table 3** (kernels, d = 1)\n",
        _table_3(ours, paper),
        "**Table 4** (product peak in d dimensions, kernels)\n",
        _table_4(ours, paper),
        "**Table 5** (share of the draws that fits; kernels, 5 epochs)\n",
        _table_5(ours, paper),
    ]
    if times := select(rows, part="times"):
        parts += [
            "**Times** of a fit (seconds), all on one machine, without compilation and without "
            "tuning\n",
            _times(times),
        ]
    parts += hyper.section(select(rows, part="hyper"), ours)
    parts += [
        "**Calibration**: share of our answers within two standard errors\n",
        markdown(
            ["method", "smooth", "rough"],
            [
                (
                    m,
                    *(
                        f"{absolute_error(_of(select(ours, d=1), group, m)).within:.0%}"
                        for group in (SMOOTH, ROUGH)
                    ),
                )
                for m in _SHOWN
            ],
        ),
        "Held-out errors of kernels that nearly interpolate smooth functions are too small: few "
        "held-out draws, in the tails, "
        "carry most of the error, and half of the repetitions have none of them.\n",
        verdict(rows) + "\n",
    ]
    return "\n".join(parts)


def _table_1(ours: list[Row], paper: list[Row]) -> str:
    ours, paper = select(ours, d=1), select(paper, d=1)
    table = []
    for name, printed in TABLE_1.items():
        table.append(
            [
                name,
                "plain mean",
                f"{printed[0]:.2e}",
                "",
                "",
                _cell(ours, name, "MC"),
                "",
                _cell(ours, name, "automatic"),
            ]
        )
        for kind, print_ in zip(_KINDS, printed[1:], strict=True):
            cells = [
                _cell(paper, name, f"{kind}, as in the paper", epochs=25),
                _cell(paper, name, f"{kind}, same family exact"),
            ]
            cells += [_cell(ours, name, f"{kind}, {way}") for way in ("SGD 25 epochs", "exact")]
            table.append(["", kind, f"{print_:.2e}", *cells, ""])
    header = [
        "",
        "",
        "printed",
        "as in the paper",
        "same family, exact",
        "our SGD (or plain mean)",
        "our exact",
        "automatic",
    ]
    return markdown(header, table)


def _table_3(ours: list[Row], paper: list[Row]) -> str:
    ours, paper = select(ours, d=1), select(paper, d=1)
    table = []
    for name, printed in TABLE_3.items():
        solved, two, five = printed
        cells = [
            f"{solved:.2e}",
            _cell(paper, name, "kernel, same family exact"),
            _cell(ours, name, "kernel, exact"),
        ]
        for print_, epochs in ((two, 2), (five, 5)):
            cells += [f"{print_:.2e}", _cell(paper, name, "kernel, as in the paper", epochs=epochs)]
            cells += [_cell(ours, name, f"kernel, SGD {epochs} epochs")]
        table.append([name, *cells])
    header = ["", "linear system, printed", "same family, exact", "our exact"]
    for epochs in (2, 5):
        header += [f"SGD {epochs} epochs, printed", "as in the paper", "our SGD"]
    return markdown(header, table)


def _table_4(ours: list[Row], paper: list[Row]) -> str:
    table = []
    for d, printed in TABLE_4.items():
        here, recipe, name = select(ours, d=d), select(paper, d=d), "Product Peak"
        if not here:
            continue
        cells = [f"{printed[0]:.2e}", _cell(here, name, "MC"), f"{printed[1]:.2e}"]
        cells += [
            _cell(recipe, name, "kernel, same family exact"),
            _cell(here, name, "kernel, exact"),
        ]
        for print_, epochs in zip(printed[2:], (2, 5), strict=True):
            cells += [
                f"{print_:.2e}",
                _cell(recipe, name, "kernel, as in the paper", epochs=epochs),
            ]
            cells += [_cell(here, name, f"kernel, SGD {epochs} epochs")]
        table.append([d, *cells, _cell(here, name, "automatic")])
    header = ["d", "MC, printed", "MC", "linear system, printed", "same family, exact", "our exact"]
    for epochs in (2, 5):
        header += [f"SGD {epochs}, printed", "as in the paper", "our SGD"]
    return markdown([*header, "automatic"], table)


def _table_5(ours: list[Row], paper: list[Row]) -> str:
    ours, paper = select(ours, d=1), select(paper, d=1)
    table = []
    for name, printed in TABLE_5.items():
        for split, print_ in zip(SPLITS, printed, strict=True):
            cells = [
                _cell(paper, name, "kernel, as in the paper", split, 5),
                _cell(paper, name, "kernel, same family exact", split),
            ]
            cells += [
                _cell(ours, name, f"kernel, {way}", split) for way in ("SGD 5 epochs", "exact")
            ]
            if any(cells):
                table.append([name if split == SPLITS[0] else "", split, f"{print_:.2e}", *cells])
    return markdown(
        [
            "",
            "fit / estimate",
            "printed",
            "as in the paper",
            "same family, exact",
            "our SGD",
            "our exact",
        ],
        table,
    )


def _times(rows: list[Row]) -> str:
    def cells(d: int, kind: str, epochs: int | None, split: str = "50/50") -> list[str]:
        methods = (
            [f"{kind}, as in the paper {epochs} epochs", f"{kind}, SGD {epochs} epochs"]
            if epochs
            else [f"{kind}, exact"]
        )
        found = [select(rows, d=d, method=method, split=split) for method in methods]
        warm = [
            f"{np.median([row['seconds'] for row in part]):.3f}" if part else "" for part in found
        ]
        first = [[row["compilation"] for row in part if "compilation" in row] for part in found]
        return [
            *([""] if not epochs else []),
            *warm,
            " / ".join(f"{max(part):.1f}" for part in first if part),
        ]

    plain = [row["seconds"] for row in select(rows, d=1, method="MC")]
    mean = f"{np.median(plain):.1g}" if plain else ""
    table = [["Table 1", "plain mean", f"{TIMES['Table 1'][0]:.3f}", mean, mean, ""]]
    for kind, print_ in zip(_KINDS, TIMES["Table 1"][1:], strict=True):
        table.append(["Table 1", f"{kind}, 25 epochs", f"{print_:.2f}", *cells(1, kind, 25)])
    for label, epochs, print_ in zip(
        ("linear system", "SGD 2", "SGD 5"), (None, 2, 5), TIMES["Table 3"], strict=True
    ):
        table.append(["Table 3", f"kernel, {label}", f"{print_:.2f}", *cells(1, "kernel", epochs)])
    for d in TABLE_4:
        for label, epochs, print_ in zip(
            ("linear system", "SGD 2", "SGD 5"), (None, 2, 5), TIMES["Table 4"], strict=True
        ):
            table.append(
                [
                    f"Table 4, d = {d}",
                    f"kernel, {label}",
                    f"{print_:.2f} (all d)",
                    *cells(d, "kernel", epochs),
                ]
            )
    for split, print_ in zip(SPLITS, TIMES["Table 5"], strict=True):
        table.append(
            ["Table 5", f"kernel, SGD 5, {split}", f"{print_:.2f}", *cells(1, "kernel", 5, split)]
        )
    header = [
        "",
        "",
        "printed",
        "as in the paper",
        "ours (solve: exact)",
        "compilation, once, from a warm cache",
    ]
    return markdown(header, table)


# ---- Verdicts


def sampling(count: int) -> float:
    """The standard error of a mean of `count` half-normal absolute errors, relative to it. Printed
    means have none of their own, and the scatter of ours may be huge where a mean is bad, which
    must not excuse it."""
    return float(np.sqrt((np.pi / 2 - 1) / max(count, 1)))


def beyond(found: Error, count: int, printed: float) -> bool:
    """Whether ours is above the print (20 repetitions) by more than three standard errors of the
    difference."""
    return (
        bool(
            found.mean
            > printed + 3 * np.hypot(sampling(count) * found.mean, sampling(20) * printed)
        )
        or found.diverged > 0
    )


def comparisons(rows: list[Row]) -> list[tuple[str, str, float, list[Row]]]:
    """Every printed cell: its place, who is compared with it, like with like, the printed value and
    the rows."""
    found: list[tuple[str, str, float, list[Row]]] = []
    here: dict[tuple, list[Row]] = {}
    for row in rows:
        steps = row.get("epochs") if row["part"] == "paper" else None
        here.setdefault(
            (row["part"], row["d"], row["integrand"], row["method"], row.get("split"), steps), []
        ).append(row)

    def add(
        place: str,
        printed: float,
        d: int,
        integrand: str,
        kind: str,
        epochs: int | None,
        split: str = "50/50",
    ) -> None:
        recipe = f"{kind}, as in the paper" if epochs else f"{kind}, same family exact"
        ours = f"{kind}, SGD {epochs} epochs" if epochs else f"{kind}, exact"
        parts = (("the paper's recipe", "paper", recipe, epochs), ("ours", "ours", ours, None))
        for who, part, method, steps in parts:
            found.append(
                (place, who, printed, here.get((part, d, integrand, method, split, steps), []))
            )

    for name, printed in TABLE_1.items():
        for kind, print_ in zip(_KINDS, printed[1:], strict=True):
            add(f"Table 1, {name}, {kind}", print_, 1, name, kind, 25)
    for name, printed in TABLE_3.items():
        for epochs, print_ in zip((None, 2, 5), printed, strict=True):
            add(
                f"Table 3, {name}, {f'SGD {epochs}' if epochs else 'linear system'}",
                print_,
                1,
                name,
                "kernel",
                epochs,
            )
    for d, printed in TABLE_4.items():
        for epochs, print_ in zip((None, 2, 5), printed[1:], strict=True):
            place = f"Table 4, d = {d}, {f'SGD {epochs}' if epochs else 'linear system'}"
            add(place, print_, d, "Product Peak", "kernel", epochs)
    for name, printed in TABLE_5.items():
        for split, print_ in zip(SPLITS, printed, strict=True):
            add(f"Table 5, {name}, {split}", print_, 1, name, "kernel", 5, split)
    return [entry for entry in found if entry[3]]


def missed(rows: list[Row], who: str) -> tuple[list[str], int]:
    """Cells that are above the print, three standard errors of the difference allowed, and how many
    were compared."""
    cells = [entry for entry in comparisons(rows) if entry[1] == who]
    places = []
    for place, _, printed, part in cells:
        found = absolute_error(part)
        if beyond(found, len(part), printed):
            places.append(f"{place} ({found} against {printed:.2e})")
    return places, len(cells)


def verdict(rows: list[Row]) -> str:
    """Like for like: SGD against SGD of as many epochs, exact against the linear system."""
    parts = []
    for who in ("the paper's recipe", "ours"):
        places, count = missed(rows, who)
        listed = f": {'; '.join(places)}" if places and (who == "ours" or len(places) <= 12) else ""
        parts.append(
            f"Of {count} printed cells {who} {'is' if who != 'ours' else 'are'} above "
            f"{len(places)}, SGD against SGD and exact "
            f"against linear system, three standard errors of the difference allowed{listed}."
        )
    behind = []
    line = select(rows, d=1, part="ours")
    for name, printed in TABLE_1.items():
        found, bar = absolute_error(_of(line, (name,), "automatic")), min(printed[1:])
        if found.mean > bar:
            behind.append(f"{name} ({found} against {bar:.2e})")
    best = "The automatic estimator beats the best printed cell of each row of Table 1"
    return " ".join([*parts, best + (f", but for: {'; '.join(behind)}." if behind else ".")])


def _of(
    rows: list[Row],
    integrands: Sequence[str],
    method: str,
    split: str = "50/50",
    epochs: int | None = None,
) -> list[Row]:
    more = {} if epochs is None else {"epochs": epochs}
    return [
        row
        for name in integrands
        for row in select(rows, integrand=name, method=method, split=split, **more)
    ]


def _cell(
    rows: list[Row], integrand: str, method: str, split: str = "50/50", epochs: int | None = None
) -> str:
    return str(absolute_error(_of(rows, (integrand,), method, split, epochs)))


def figure(rows: list[Row], path: Path) -> None:
    import matplotlib.pyplot as plt

    ours, paper = (select(rows, d=1, part=part) for part in ("ours", "paper"))
    shown = [(ours, method, method, None) for method in _SHOWN]
    shown += [
        (paper, f"{kind}, as in the paper", f"{kind}, as in the paper", 25) for kind in _KINDS[1:]
    ]
    figure, axes = plt.subplots(figsize=(9, 4.8), layout="constrained")
    for k, name in enumerate(GENZ):
        for j, (part, method, label, epochs) in enumerate(shown):
            found = absolute_error(_of(part, (name,), method, epochs=epochs))
            axes.errorbar(
                *(k + 0.08 * (j - 4), found.mean),
                yerr=[[min(2 * found.error, 0.7 * found.mean)], [2 * found.error]],
                fmt="osD^vPX*<"[j],
                color=f"C{j}",
                label=label if not k else None,
            )
        axes.hlines(
            min(TABLE_1[name][1:]),
            k - 0.35,
            k + 0.35,
            color="0.5",
            lw=1,
            ls="--",
            label=None if k else "best in print",
        )
    axes.set(
        yscale="log", xticks=range(len(GENZ)), xticklabels=list(GENZ), ylabel="mean absolute error"
    )
    figure.legend(ncols=4, loc="outside lower center", fontsize=8, frameon=False)
    axes.grid(axis="y", alpha=0.3)
    figure.savefig(path, dpi=150)
    plt.close(figure)
