"""Whether deeper networks do better, which the paper expects where the ensemble overtakes them: of
six, twelve and twenty-four layers of 20, by its recipe and as the authors' program trains them."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

import zerovar as zv

from .comparisons import between, paired, ratio
from .harness import Row, constants, distinct, markdown, select
from .networks import PROGRAM, RECIPE, network_rows
from .protocol import Problem

DEPTHS = (6, 12, 24)  # layers; the paper's networks have six
TRAININGS = (RECIPE, PROGRAM)


def method(layers: int, label: str) -> str:
    return f"{layers} layers, {label}"


def rows_of(problem: Problem, names: Sequence[str], truth: np.ndarray, m: int) -> list[Row]:
    """Rows of the plain mean and of each network, trained on the same draws."""
    rows = constants("MC", names, problem.values.mean(axis=0), truth, 0.0, m=m)
    for training in TRAININGS:
        for layers in DEPTHS:
            network = zv.MLP(20, layers, jax.nn.relu)
            found = network_rows(problem, names, truth, network, training=training, m=m)
            rows += [{**row, "method": method(layers, training.label)} for row in found]
    return rows


def section(rows: list[Row], names: Sequence[str]) -> list[str]:
    if not rows:
        return []
    table = []
    for m in distinct(rows, "m"):
        here = select(rows, m=m)
        gains = paired(here, names)
        for training in TRAININGS:
            six, *deeper = (method(layers, training.label) for layers in DEPTHS)
            ratios = [ratio(between(here, names, other, six)) for other in deeper]
            spent = [
                np.median([row["seconds"] for row in select(here, method=one)])
                for one in (six, *deeper)
            ]
            fits, diverged = (
                sum(getattr(gains[one], count) for one in (six, *deeper))
                for count in ("fits", "diverged")
            )
            table.append(
                [
                    m,
                    training.label,
                    *(gains[one] for one in (six, *deeper)),
                    *ratios,
                    " / ".join(f"{seconds:.2g}" for seconds in spent),
                    f"{diverged} of {fits} fits",
                ]
            )
    heads = [f"{layers} layers" for layers in DEPTHS]
    ratios_of = [f"{layers} / {DEPTHS[0]}" for layers in DEPTHS[1:]]
    count = len(distinct(rows, "repetition"))
    return [
        f"**Deeper networks**, {count} repetitions: gains of networks of more layers of 20, their "
        "ratios on the same draws, and seconds of a fit:\n",
        markdown(["m", "trained", *heads, *ratios_of, "seconds", "diverged"], table),
    ]
