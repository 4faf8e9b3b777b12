"""Every table and figure of the paper and its supplement: where it is, how often it was repeated,
and what it took."""

from __future__ import annotations

from typing import Any

from .harness import duration, markdown

PRINTED = 20  # repetitions of the paper
_ONCE = ("costs", "propositions")  # nothing is repeated there but turns

# what, study, columns, and the data of the study where it is not all
ITEMS = (
    (
        "Figure 1: polynomial integrands, m = 500",
        "polynomials",
        "as in the paper, exact, ours, automatic",
    ),
    (
        "Figure 2, left: Gaussian processes against m and d, J^LS and J^V",
        "gaussian_processes",
        "as in the paper, exact, ours, automatic",
    ),
    ("Figure 2, right: times against m and d", "costs", "as in the paper, exact, ours"),
    ("Figure 3: Lotka–Volterra", "lotka_volterra", "as in the paper, exact, ours, automatic"),
    (
        "Figure 4: Madelon",
        "logistic",
        "as in the paper (degree 1), exact, quadratic by the dual, ours, automatic",
        "madelon",
    ),
    (
        "Table 1: Genz, families, and its times",
        "genz",
        "printed, as in the paper, exact, ours, automatic",
    ),
    ("Table 2: Genz, formulas", "genz", "integrals against quadrature in `tests/test_paper.py`"),
    ("Table 3: Genz, kernels, and its times", "genz", "printed, as in the paper, exact, ours"),
    (
        "Table 4: product peak in d dimensions, and its times",
        "genz",
        "printed, as in the paper, exact, ours, automatic",
    ),
    ("Table 5: shares of the draws", "genz", "printed, as in the paper, exact, ours"),
    ("Propositions 1, 2, 3", "propositions", "no figure in the paper"),
    (
        "Supplement: polynomial integrands, quadratics and kernels at n = 10 000",
        "polynomials",
        "as in the paper, exact, ours",
    ),
    (
        "Supplement: realisations, and errors after 33, 66, 100 %",
        "gaussian_processes",
        "as in the paper",
    ),
    (
        "Supplement: LIDAR against n",
        "lidar",
        "as in the paper, exact; ours and automatic at n = 1000",
    ),
    ("Supplement: Sonar", "logistic", "as in the paper, exact, ours, automatic", "sonar"),
)


def section(abouts: dict[str, dict[str, Any]]) -> str:
    table = []
    for what, study, columns, *data in ITEMS:
        if study in abouts:
            table.append(
                [
                    what,
                    columns,
                    _repetitions(abouts[study], data),
                    f"`python -m experiments.paper {study}`",
                ]
            )
    whole = sum(map(_seconds, abouts.values()))
    times = [[study, duration(_seconds(about))] for study, about in abouts.items()]
    return "\n".join(
        [
            "*As in the paper* is its own recipe, *exact* the same family solved, *ours* "
            "zerovar's solvers with the family that the study names. Repetitions are fewer than "
            "the paper's 20 where time was short.\n",
            markdown(["", "columns", "repetitions", "command"], table),
            f"Settings with fewer than {PRINTED} repetitions: {_fewer(abouts)}.\n",
            "Time that the jobs of each study took, added up, in processes of one thread, as many "
            "as the machine has cores:\n",
            markdown(["study", "time"], [*times, ["all", duration(whole)]]),
            f"Asked for was a full run of at most three hours on 2 cores, or as much on 16. The "
            f"jobs add up to {duration(whole)} of one core: were they spread evenly, "
            f"{duration(whole / 2)} on 2 cores and {duration(whole / 16)} on 16, so that three "
            f"hours are {'kept' if whole / 2 < 3 * 3600 else 'missed'} on 2 and "
            f"{'kept' if whole / 16 < 3 * 3600 else 'missed'} on 16. They were run in pieces, on "
            "several machines; a whole run in one piece was not timed. Seconds of exact solves of "
            "kernels' translates, but those at m = 9000, are of a library that took up to four "
            "times as long for them as it does since.\n",
        ]
    )


def _fewer(abouts: dict[str, dict[str, Any]]) -> str:
    """With repetitions at all; the study, the part, what tells settings apart, and how many."""
    found = []
    for study, about in abouts.items():
        few: dict[tuple, list[str]] = {}
        for entry in about["settings"]:
            setting = {k: v for k, v in entry["setting"].items() if k not in ("version", "epochs")}
            if study in _ONCE or entry["repetitions"] >= PRINTED:
                continue
            told = [
                f"{name} = {_short(value)}" if name not in ("set", "family") else str(value)
                for name, value in setting.items()
                if name != "part"
            ]
            few.setdefault((setting["part"], entry["repetitions"]), []).append(" ".join(told))
        found += [
            f"{study}, {part}: {count} ({', '.join(told)})" for (part, count), told in few.items()
        ]
    return "; ".join(found) or "none"


def _short(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _repetitions(about: dict[str, Any], data: list[str]) -> str:
    """Of each part, on these data or on all."""
    found: dict[str, set[int]] = {}
    for setting in about["settings"]:
        if data and setting["setting"]["set"] not in data:
            continue
        found.setdefault(setting["setting"]["part"], set()).add(setting["repetitions"])
    return ", ".join(
        f"{part} {' or '.join(map(str, sorted(counts)))}" for part, counts in found.items()
    )


def _seconds(about: dict[str, Any]) -> float:
    return float(sum(setting["seconds"] * setting["repetitions"] for setting in about["settings"]))
