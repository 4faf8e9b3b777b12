"""`zv.check` on right samples and on mistakes; never-seen events; its time and memory. The samples
are in `samples.py`.

A right sample that fails is a false alarm. A mistake is found if `check` is not ok, and named
rightly if its words say which.
"""

from __future__ import annotations

import time
import warnings
from argparse import Namespace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

import zerovar as zv

from .harness import peak_begun_anew, peak_gigabytes, print_table
from .samples import EVENT_CASES, RIGHT, WRONG, Maker, four_of, gaussian

_EVENTS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)


class Alarms(NamedTuple):
    """Right samples of one kind."""

    case: str
    samples: int
    alarms: int
    said: str  # the first false alarm

    @property
    def share(self) -> float:
        return self.alarms / self.samples


class Found(NamedTuple):
    """Samples with one mistake."""

    case: str
    samples: int
    found: int
    named: int


class Covered(NamedTuple):
    """Events of known probability."""

    case: str
    samples: int
    unseen: int  # replicates in which no draw shows it
    covered_unseen: int
    covered: int


def alarms(
    replicates: int, data: Path | None = None, only: str = "", seed: int = 0
) -> list[Alarms]:
    many = ("d = 100", "d = 300")  # take longer
    makers = {
        case: (maker, -(-replicates // 4) if case.endswith(many) else replicates)
        for case, maker in RIGHT.items()
    }
    for file in (
        sorted([*(data / "posteriors").glob("*.npz"), *(data / "tails").glob("*.npz")])
        if data
        else []
    ):
        makers[file.stem] = (four_of(file), min(replicates, 20))
    rows = []
    for case, (maker, count) in makers.items():
        if only in case:
            wrong = [verdict for verdict in check_samples(maker, count, seed) if not verdict.ok]
            rows.append(
                Alarms(
                    case,
                    count,
                    len(wrong),
                    f"{wrong[0].finding}. {wrong[0].diagnosis}"[:100] if wrong else "",
                )
            )
    return rows


def mistakes(replicates: int, only: str = "", seed: int = 0) -> list[Found]:
    rows = []
    for case, (maker, words) in WRONG.items():
        if only in case:
            wrong = [
                verdict for verdict in check_samples(maker, replicates, seed) if not verdict.ok
            ]
            named = sum(any(word in verdict.diagnosis for word in words) for verdict in wrong)
            rows.append(Found(case, replicates, len(wrong), named))
    return rows


def check_samples(maker: Maker, count: int, seed: int) -> list[zv.Check]:
    rng = np.random.default_rng(seed)
    return [zv.check(zv.Sample(*maker(rng))) for _ in range(count)]


def events(replicates: int, cases: dict[str, Maker], seed: int = 0) -> list[Covered]:
    """P(x₀ > c) of given probability, by value ± 1.96 errors with one small family; not below
    zero."""
    rows = []
    for case, maker in cases.items():
        rng = np.random.default_rng(seed)
        unseen, right = np.zeros((2, replicates, len(_EVENTS)), dtype=bool)
        for k in range(replicates):
            x, s, *weights = maker(rng)
            seen = x[..., :1] > -ndtri(_EVENTS)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", zv.ZerovarWarning)
                answer = zv.estimate(
                    x, s, seen, family=zv.Polynomial(1), log_weights=weights[0] if weights else None
                )
            unseen[k] = ~seen.any(axis=tuple(range(seen.ndim - 1)))
            right[k] = np.abs(answer.value - _EVENTS) <= 1.96 * answer.std_error
        for j, chance in enumerate(_EVENTS):
            hidden = unseen[:, j]
            counts = (
                replicates,
                int(hidden.sum()),
                int(right[hidden, j].sum()),
                int(right[:, j].sum()),
            )
            rows.append(Covered(f"{case}, P = {chance:g}", *counts))
    return rows


def cost(d: int, draws: int) -> dict[str, Any]:
    """Seconds, and gigabytes beyond those of the sample, of one check of 4 chains."""
    x = np.random.default_rng(0).normal(size=(4, draws, d))
    sample = zv.Sample(x, -x)
    del x
    zv.check(zv.Sample(*gaussian(1, 100, 2)(np.random.default_rng(0))))  # imports what is needed
    before, started = peak_begun_anew(), time.perf_counter()
    zv.check(sample)
    return {
        "d": d,
        "draws": 4 * draws,
        "seconds": time.perf_counter() - started,
        "gigabytes": peak_gigabytes() - before,
    }


def measure(options: Namespace) -> dict[str, Any]:
    """False alarms, mistakes found and named, events that no draw shows, and what a check costs."""
    quick = options.quick
    few = "d = 1" if quick else ""
    right = alarms(2 if quick else 200, None if quick else options.data, few, options.seed)
    print_table(
        "check on right samples",
        ("sample", "samples", "false alarms", "the first"),
        [(row.case, row.samples, f"{row.share:.1%}", row.said) for row in right],
    )
    wrong = mistakes(2 if quick else 100, "twice" if quick else "", options.seed)
    print_table(
        "check on mistakes, 4 × 1000 draws",
        ("mistake", "samples", "found", "named rightly"),
        [
            (
                row.case,
                row.samples,
                f"{row.found / row.samples:.0%}",
                f"{row.named / row.samples:.0%}",
            )
            for row in wrong
        ],
    )
    cases = dict(list(EVENT_CASES.items())[:1]) if quick else EVENT_CASES
    seen = events(2 if quick else 200, cases, options.seed)
    print_table(
        "P(x₀ > c) within 1.96 errors",
        ("draws", "samples", "never seen", "covered if never seen", "covered"),
        [
            (
                row.case,
                row.samples,
                row.unseen,
                f"{row.covered_unseen / row.unseen:.0%}" if row.unseen else "",
                f"{row.covered / row.samples:.0%}",
            )
            for row in seen
        ],
    )
    of_one = cost(*((50, 100) if quick else (1000, 1000)))
    print(
        f"One check, d = {of_one['d']}, {of_one['draws']} draws: {of_one['seconds']:.2f} s, "
        f"{of_one['gigabytes']:.2f} GB"
    )
    return {
        name: [row._asdict() for row in rows]
        for name, rows in (("right", right), ("wrong", wrong), ("events", seen))
    } | {"cost": of_one}
