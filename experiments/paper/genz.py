"""Genz's functions: Tables 1, 3, 4 and 5, in their setting: n = 1000, a = 1, u = ½, half fit and
half estimate.

Part "ours" has kernels that suit each integrand and zerovar's solvers, part "paper" the paper's own
recipe, on the same draws; part "times" has the times of both, on one machine; part "hyper" kernels
that are trained with their coefficients.
"""

from __future__ import annotations

import functools
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import zerovar as zv
from zerovar.families import Sum

from . import hyper, protocol
from .genz_tables import ROUGH
from .genz_tables import figure as figure
from .genz_tables import section as section
from .harness import Job, Row, Size, automatic, compared, constants, estimates
from .integrands import GENZ, SMOOTH
from .protocol import Problem

NAME = "genz"
TITLE = "Genz's six functions and the product peak in d = 5 … 20 (Tables 1, 3, 4, 5)"
VERSIONS = {"ours": 2, "paper": 1, "times": 4, "hyper": 1}

N = 1000
# tuned and fitted together; a kink and a jump want kernels of their own
GROUPS = (SMOOTH, *((name,) for name in ROUGH))
SPLITS = {"50/50": 0.5, "70/30": 0.7, "90/10": 0.9, "100/0": 1.0}  # share of the draws that fit
DIMENSIONS = (5, 10, 15, 20)


def jobs(size: Size) -> list[Job]:
    dimensions = (1, *DIMENSIONS[:1]) if size.quick else (1, *DIMENSIONS)
    parts = {("ours", d): size.repetitions for d in dimensions}
    if size.quick:
        parts |= {("paper", 1): 1, ("times", 1): 1, ("hyper", 1): 1}
    else:
        parts |= {("paper", d): size.repetitions for d in dimensions}
        parts |= {("times", d): size.at_most(2) for d in dimensions}
        parts[("hyper", 1)] = size.repetitions
    return [
        {"part": part, "d": d, "repetition": r, **size.marks}
        for (part, d), count in parts.items()
        for r in range(count)
    ]


def run(job: Job, data: Path | None) -> list[Row]:
    d, rng = job["d"], np.random.default_rng([job["repetition"], job["d"]])
    x = rng.normal(size=(N, d))
    a, u = np.ones(d), np.full(d, 0.5)
    names = tuple(GENZ) if d == 1 else ("Product Peak",)
    values = {name: GENZ[name].under_normal(x, a, u) for name in names}
    truth = {name: GENZ[name].integral(a, u) for name in names}
    if job["part"] == "paper":
        return _paper(x, values, truth, job.get("quick", False))
    if job["part"] == "times":
        return [*_times(x, values["Product Peak"], truth["Product Peak"]), _mean(rng, a, u, truth)]
    if job["part"] == "hyper":
        kernels = {group: _kernel(group, hyper.START) for group in GROUPS}
        return hyper.rows_of(x, values, truth, kernels)
    work = _Work(x, values, truth, job.get("quick", False))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", zv.ZerovarWarning)
        return work.on_the_line() if d == 1 else work.in_dimensions()


def _paper(
    x: np.ndarray, values: dict[str, np.ndarray], truth: dict[str, float], quick: bool
) -> list[Row]:
    """The recipe of the paper; in d dimensions and for shares other than a half, of kernels."""
    array, true = np.stack(list(values.values()), axis=1), list(truth.values())
    rows: list[Row] = []
    for split, share in SPLITS.items():
        kinds = ("polynomial", "kernel", "polynomial + kernel") if split == "50/50" else ("kernel",)
        if x.shape[1] > 1 or quick:
            kinds = () if split != "50/50" else ("polynomial",) if quick else ("kernel",)
        epochs = {"kernel": (2, 5, 25) if split == "50/50" else (5,)}
        problem = Problem.of(x, -x, array, round(share * N))
        rows += protocol.rows_of(
            problem, tuple(values), true, kinds, lambda k, e=epochs: e.get(k, (25,)), split=split
        )
    return rows


def _times(x: np.ndarray, values: np.ndarray, truth: float) -> list[Row]:
    """Times of a fit, of fixed families, without compilation; those of the paper's recipe beside
    ours. On the line kernels also with other shares of the draws, as in Table 5."""
    rows: list[Row] = []
    for split, share in SPLITS.items():
        if split == "50/50" or x.shape[1] == 1:
            rows += _times_of(Problem.of(x, -x, values, round(share * N)), truth, split)
    return rows


def _mean(rng: Any, a: np.ndarray, u: np.ndarray, truth: dict[str, float]) -> Row:
    """A plain mean and its time, draws and values included; of fifty, as a clock ticks."""
    name, count = "Product Peak", 50

    def means() -> float:
        draws = (rng.normal(size=(N, len(a))) for _ in range(count))
        return [float(GENZ[name].under_normal(x, a, u).mean()) for x in draws][-1]

    value, seconds = protocol.processor_time(means)
    common = {"method": "MC", "integrand": name, "value": value, "truth": truth[name]}
    return {**common, "std_error": None, "seconds": seconds / count, "split": "50/50"}


def _times_of(problem: Problem, truth: float, split: str) -> list[Row]:
    d, half = problem.x.shape[1], split == "50/50"
    kernel = zv.Kernel(zv.kernels.Decaying(0.1, 1.0))
    families = {
        "polynomial": zv.Polynomial(2),
        "kernel": kernel,
        "polynomial + kernel": zv.Polynomial(2) + kernel,
    }
    rows: list[Row] = []
    for kind, family in families.items():
        if kind != "kernel" and not (d == 1 and half):
            continue
        ways: list[tuple[str, Any, Any]] = [(f"{kind}, exact", family, zv.Exact())]
        plain = family.coefficient_features(problem.x[: problem.m], problem.s[: problem.m])
        for epochs in (2, 5, 25) if half else (5,):
            ways.append((f"{kind}, SGD {epochs} epochs", family, zv.SGD(8, epochs, progress=False)))
            ways.append(
                (
                    f"{kind}, as in the paper {epochs} epochs",
                    plain,
                    protocol.plain(plain, problem, epochs),
                )
            )
        for method, family_, solver in ways:
            fit = functools.partial(
                protocol.fit,
                family_,
                problem.fitting,
                problem.values[: problem.m],
                _PENALTY,
                solver,
            )
            fitted, seconds, compilation = protocol.timed((method, problem.x.shape, split), fit)
            ((value, error),) = problem.estimates(fitted, [0])
            common = {
                "method": method,
                "integrand": "Product Peak",
                "value": value,
                "truth": truth,
                "std_error": error,
            }
            rows.append({**common, "seconds": seconds, "compilation": compilation, "split": split})
    return rows


_PENALTY = zv.LeastSquares(zv.L2(1e-8))


class _Work:
    """One repetition: the same draws for every method. Each group of integrands is tuned, and
    fitted, by itself."""

    def __init__(
        self, x: np.ndarray, values: dict[str, np.ndarray], truth: dict[str, float], quick: bool
    ):
        self.x, self.values, self.truth, self.quick = x, values, truth, quick
        self.rows: list[Row] = []

    def on_the_line(self) -> list[Row]:
        self.estimate(
            "polynomial, SGD 25 epochs",
            0.5,
            tuple(GENZ),
            zv.Polynomial(2),
            None,
            zv.SGD(8, 25, progress=False),
        )
        self.estimate("polynomial, exact", 0.5, tuple(GENZ), zv.Polynomial(2), None, None)
        for label, share in list(SPLITS.items())[: 1 if self.quick else None]:
            for group in GROUPS:
                family, objective = self.tuned(_kernel(group), share, group)
                for name, solver in (
                    ("exact", None),
                    ("SGD 5 epochs", zv.SGD(8, 5, progress=False)),
                ):
                    self.estimate(f"kernel, {name}", share, group, family, objective, solver, label)
                if label == "50/50":
                    for epochs in (25,) if self.quick else (2, 25):
                        solver = zv.SGD(8, epochs, progress=False)
                        self.estimate(
                            f"kernel, SGD {epochs} epochs", share, group, family, objective, solver
                        )
        for group in GROUPS:
            family, objective = self.tuned(
                zv.Polynomial(2, weight=(5.0, 1.0)) + _kernel(group), 0.5, group
            )
            for name, solver in (("exact", None), ("SGD 25 epochs", zv.SGD(8, 25, progress=False))):
                self.estimate(f"polynomial + kernel, {name}", 0.5, group, family, objective, solver)
        self.automatic()
        return self.rows

    def in_dimensions(self) -> list[Row]:
        group = ("Product Peak",)
        family, objective = self.tuned(_additive(self.x.shape[1]), 0.5, group)
        self.estimate("kernel, exact", 0.5, group, family, objective, None)
        for epochs in (5,) if self.quick else (2, 5):
            self.estimate(
                f"kernel, SGD {epochs} epochs",
                0.5,
                group,
                family,
                objective,
                zv.SGD(8, epochs, progress=False),
            )
        self.automatic()
        return self.rows

    def tuned(self, family: Any, share: float, group: tuple[str, ...]) -> tuple[Any, Any]:
        """Hyper-parameters and ridge from the draws that fit; not timed, as in the paper."""
        fitting = slice(0, round(share * N))
        sample = zv.Sample(self.x[fitting], -self.x[fitting])
        values = np.stack([self.values[name][fitting] for name in group], axis=1)
        # which is safer where fits are poor
        criterion = zv.LeaveOneOut() if group == SMOOTH else zv.MarginalLikelihood()
        found = zv.tune(
            family, sample, values, criterion=criterion, evaluations=6 if self.quick else 40
        )
        return found.family, found.objective

    def estimate(self, method, share, group, family, objective, solver, split="50/50") -> None:
        values = {name: self.values[name] for name in group}
        truth = np.array([self.truth[name] for name in group])
        started = time.perf_counter()
        if share < 1 or solver is None:
            held_out = zv.holdout(1 - share) if share < 1 else None
            options = {
                "family": family,
                "objective": objective,
                "solver": solver,
                "split": held_out,
            }
            answer = zv.estimate(self.x, -self.x, values, **options)
            self.rows += estimates(
                method, answer, truth, time.perf_counter() - started, split=split
            )
        else:  # a trained fit has no error of its own on the draws that it has seen
            array = np.stack(list(values.values()), axis=1)
            fitted = zv.fit(family, zv.Sample(self.x, -self.x), array, objective, solver)
            self.rows += constants(
                method, group, fitted.intercept, truth, time.perf_counter() - started, split=split
            )

    def automatic(self) -> None:
        truth = np.array([self.truth[name] for name in self.values])
        chosen = {"automatic": {"family": automatic(self.quick)}}
        self.rows += compared(chosen, self.x, -self.x, self.values, truth, split="50/50")


def _kernel(group: tuple[str, ...], scale: float = 1.0) -> zv.Kernel:
    """The paper's for smooth integrands; for the others one that is as rough as they are."""
    return zv.Kernel(
        zv.kernels.Decaying(0.1, scale) if group == SMOOTH else zv.kernels.Matern(1.5, scale)
    )


def _additive(d: int) -> zv.Anisotropic:
    """A kernel of each coordinate by itself, and one of them all: 500 draws in d = 10 say little
    about more."""
    each = zv.RidgeFunctions(zv.Kernel(zv.kernels.Gaussian(1.0)), np.eye(d))
    together = zv.Kernel(zv.kernels.InverseMultiquadric(np.sqrt(d)))
    return zv.Anisotropic(Sum((each, together)))
