"""What comes of the regressions: tables, how exact the reference is, biases, a picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from . import depths
from .comparisons import error_table, gain_table, in_errors, ranking, recipe_section
from .harness import Row, distinct, select
from .pictures import Panel, rows_of_panels
from .references import errors

POINTS = tuple(f"point {k}" for k in range(10))  # held out
SIZES = (100, 300, 1000)  # draws, with all repetitions
CHAINS, LENGTH = 16, 2000  # of the reference
_PARTS = ("ours", "paper", "program", "quadratic", "depth")


def section(rows: list[Row]) -> str:
    parts = [
        "Mean absolute errors of the probability of label 1 at ten held-out points, over the "
        f"repetitions, each a NUTS chain of its own, against {CHAINS} chains of {LENGTH} draws "
        "with control variates (`--reference`). The polynomial has degree 2 on Sonar and 1 on "
        "Madelon. Ridges are chosen by leave-one-out. Times are those of the fit, compilation "
        "included where it happens.\n"
    ]
    for name in distinct(rows, "set"):
        ours, paper, program, quadratic, depth = (
            select(rows, set=name, part=part) for part in _PARTS
        )
        largest = max(m for m in distinct(ours, "m") if m in SIZES)  # with all repetitions
        parts.append(f"**{name.capitalize()}**, m = {largest}\n")
        parts.append(error_table(select(ours, m=largest), POINTS))
        parts.append(f"By gain: {ranking(select(ours, m=largest), POINTS)}.\n")
        parts.append("Gains against the number of draws m:\n")
        parts.append(gain_table(ours, "m", POINTS))
        parts += recipe_section([*paper, *program, *quadratic], "m", POINTS)
        parts += depths.section(depth, POINTS)
        parts.append(" ".join((_reference(ours, name), _chains(paper, program))) + "\n")
        parts.append(_biases(select(ours, m=largest)) + "\n")
    return "\n".join(parts)


def _reference(rows: list[Row], name: str) -> str:
    """How far what answers are compared with is from being exact."""
    own, listed = errors(f"logistic/{name}", POINTS), []
    for m in sorted(distinct(rows, "m")):
        here = select(rows, m=m, method="MC")
        plain = [
            np.sqrt(
                np.mean([(r["value"] - r["truth"]) ** 2 for r in select(here, integrand=point)])
            )
            for point in POINTS
        ]
        ratios = own / np.array(plain)
        listed.append(f"{np.median(ratios):.2f} (up to {ratios.max():.2f}) at m = {m}")
    return (
        "The reference has errors of its own; in root mean squared errors of the plain mean, "
        f"median over the points: {', '.join(listed)}. Where that is not small gains are "
        "understated."
    )


def _chains(paper: list[Row], program: list[Row]) -> str:
    """Whether the two parts ran on the same draws."""
    means = [
        {
            (row["m"], row["repetition"], row["integrand"]): row["value"]
            for row in select(part, method="MC")
        }
        for part in (paper, program)
    ]
    both = [place for place in means[0] if place in means[1]]
    other = sum(not np.isclose(means[0][p], means[1][p], rtol=1e-9) for p in both)
    if not other:
        return ""
    return (
        f"The rows of the authors' program are on other chains than the recipe's: {other} of "
        f"{len(both)} plain means of the same repetition differ, as NUTS takes other turns on "
        "another build. Each gain is against the plain means of its own chains, and the two are "
        "not compared repetition by repetition."
    )


def _biases(rows: list[Row]) -> str:
    """How many points each method is off at on the same side, beyond what chance and the
    reference's own errors allow."""
    worst: dict[str, list[float]] = {}
    for method in distinct(rows, "method"):
        for point in POINTS:
            worst.setdefault(method, []).append(
                abs(in_errors(select(rows, method=method, integrand=point)))
            )
    counts = {method: sum(z > 4 for z in found) for method, found in worst.items()}
    biased = ", ".join(
        f"{m} at {count} (|z| up to {max(worst[m]):.1f})" for m, count in counts.items() if count
    )
    what = (
        "Points of ten at which the mean over the repetitions is off by more than four of its "
        "standard errors"
    )
    return f"{what}: {biased or 'none'}."


def figure(rows: list[Row], path: Path) -> None:
    sets = [(name.capitalize(), {"set": name}) for name in distinct(rows, "set")]
    rows_of_panels(
        rows, "m", [Panel(*one, seconds=seconds) for one in sets for seconds in (False, True)], path
    )
