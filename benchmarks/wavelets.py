"""Wavelets where they should win: the paper's integrands with a kink or a jump, beside smooth ones.

Genz's functions of Φ(x) under N(0, I), a = 1 and u = ½ as in the paper, whose means are known. All
families but the first two are tuned by the marginal likelihood, for each integrand by itself, and
fitted exactly to the same draws.
"""

from __future__ import annotations

import time
import warnings
from argparse import Namespace
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from experiments.paper.integrands import GENZ

from .harness import print_table


class Case(NamedTuple):
    """A dimension, the functions there, and how many levels of wavelets."""

    d: int
    names: tuple[str, ...]
    levels: int


KINK, JUMP = "Continuous", "Discontinuous"
CASES = (
    Case(1, (KINK, JUMP, "Corner Peak", "Oscillatory"), 7),
    Case(2, (KINK, JUMP), 5),
    Case(3, (KINK, JUMP), 4),
)
# draws (n, d) and integrands (n, q) → means and their errors, (q,)
Way = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def ways(case: Case, evaluations: int) -> dict[str, Way]:
    """What makes means and errors, of normal draws and integrands, by name."""
    import zerovar as zv

    cubic, matern = zv.Polynomial(3), zv.kernels.Matern

    def fitted(family: Any, objective: Any = None) -> Way:
        def estimate(x: np.ndarray, f: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            answer = zv.estimate(x, -x, f, family=family, objective=objective)
            return answer.value, answer.std_error

        return estimate

    def tuned(family: Any) -> Way:
        def estimate_one(x: np.ndarray, f: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            by, sample = zv.MarginalLikelihood(), zv.Sample(x, -x)
            found = zv.tune(family, sample, f, criterion=by, evaluations=evaluations)
            return fitted(found.family, found.objective)(x, f)

        def estimate(x: np.ndarray, f: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            each = [estimate_one(x, column) for column in f.T]
            return np.concatenate([v for v, _ in each]), np.concatenate([e for _, e in each])

        return estimate

    found: dict[str, Way] = {
        "plain": lambda x, f: (f.mean(axis=0), f.std(axis=0) / np.sqrt(len(f))),
        "Polynomial(3)": fitted(cubic),
        "IMQ": tuned(cubic + zv.Kernel(zv.kernels.InverseMultiquadric(1.0))),
        "Matérn 5/2": tuned(cubic + zv.Kernel(matern(2.5, 1.0))),
        "Matérn 3/2": tuned(cubic + zv.Kernel(matern(1.5, 1.0))),
    }
    for order in (2, 3):
        wavelets = zv.Wavelets(case.levels, order, 2.5)
        found[f"Wavelets, order {order}"] = tuned(cubic + wavelets)
    found["automatic"] = fitted(None)
    return found


def run(
    cases: tuple[Case, ...] = CASES,
    repetitions: int = 20,
    n: int = 1000,
    evaluations: int = 12,
) -> list[dict[str, Any]]:
    """Print and return a row for each function and way: the mean absolute error over repetitions,
    its own error, the share of answers within 1.96 of theirs, and seconds of a processor."""
    import zerovar as zv

    rows: list[dict[str, Any]] = []
    for case in cases:
        a, u = np.ones(case.d), np.full(case.d, 0.5)
        truth = np.array([GENZ[name].integral(a, u) for name in case.names])
        found: dict[str, list[np.ndarray]] = {}
        for r in range(repetitions):
            x = np.random.default_rng([r, case.d, 46]).normal(size=(n, case.d))
            f = np.stack([GENZ[name].under_normal(x, a, u) for name in case.names], axis=1)
            for way, estimate in ways(case, evaluations).items():
                start = time.process_time()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", zv.ZerovarWarning)
                    value, error = estimate(x, f)
                seconds = np.full(len(truth), (time.process_time() - start) / len(truth))
                found.setdefault(way, []).append(np.stack([value - truth, error, seconds]))
        for column, name in enumerate(case.names):
            some = []
            for way, each in found.items():
                off, error, seconds = np.abs(np.stack(each)[:, :, column]).T
                row = {"function": name, "d": case.d, "way": way, "error": float(off.mean())}
                row |= {"of the error": float(off.std() / np.sqrt(repetitions))}
                row |= {"coverage": float(np.mean(off <= 1.96 * error))}
                some.append(row | {"seconds": float(np.median(seconds))})
            _show(some, n, repetitions)
            rows += some
    return rows


def _show(rows: list[dict[str, Any]], n: int, repetitions: int) -> None:
    cells = [
        [
            row["way"],
            f"{row['error']:.2e} ± {row['of the error']:.0e}",
            f"{100 * row['coverage']:.0f} %",
            f"{row['seconds']:.2f}",
        ]
        for row in rows
    ]
    title = f"{rows[0]['function']}, d = {rows[0]['d']}, {n} draws, {repetitions} repetitions"
    print_table(title, ("control variate", "mean absolute error", "covered", "seconds"), cells)


def measure(options: Namespace) -> dict[str, Any]:
    """Wavelets on integrands with kinks and jumps."""
    return {"wavelets": run(CASES[:1], 1, 200, 2) if options.quick else run()}
