"""Fits of many draws: conjugate gradients and centres against the exact solution, and the default
choice."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from argparse import Namespace
from typing import Any, NamedTuple

import numpy as np

import zerovar as zv
from zerovar.families import LinearFamily
from zerovar.inputs.points import Standardisation
from zerovar.solvers import default as choice
from zerovar.solvers.algebra.tiles import gram_matrix

from . import growth
from .harness import (
    Row,
    best,
    in_fresh_process,
    peak_gigabytes,
    print_table,
    show,
    show_slopes,
)
from .targets import banana

FAMILY = zv.Polynomial(2) + zv.Kernel(zv.kernels.Gaussian(3.2))
# slower to decay: closer to its diagonal
SLOWER = zv.Polynomial(2) + zv.Kernel(zv.kernels.InverseMultiquadric(3.2))


class Agreement(NamedTuple):
    """A solver against the exact one: seconds, how far its answers are at most, in standard errors,
    and memory."""

    case: str
    seconds: float
    exact: float
    distance: float
    iterations: int | None
    gigabytes: float
    bound: float | None = None

    @property
    def ratio(self) -> float:
        return self.seconds / self.exact


def ridge_of(x: np.ndarray, s: np.ndarray, relative: float, family: LinearFamily = FAMILY) -> float:
    """The strength at which n times it is `relative` of the mean of the Gram's diagonal."""
    points = zv.Sample(x[:500], s[:500]).points()
    diagonal = gram_matrix(family, *Standardisation.of(points)(points.x, points.s)).diagonal()
    return relative * float(diagonal.mean()) / len(x)


def agreement_rows(
    n: int, centres: int, names: tuple[str, ...] = ("IMQ", "Gaussian")
) -> list[Agreement]:
    """The same fit by every solver, warm, at a ridge of 10⁻⁶ of the mean diagonal; the exact one
    with its standard errors."""
    x, s, f = banana(n)
    sample, found = zv.Sample(x, s), []
    for name in names:
        family = {"IMQ": SLOWER, "Gaussian": FAMILY}[name]
        objective = zv.LeastSquares(zv.Ridge(ridge_of(x, s, 1e-6, family)))
        warm(family, objective, n)
        start = time.perf_counter()
        reference = zv.fit(family, sample, f, objective, zv.Exact())
        exact = time.perf_counter() - start
        influence = reference.intercept_weights()[:, None] * reference.leave_out()
        errors = np.sqrt(np.sum(influence**2, axis=0))
        values = reference.intercept
        found.append(Agreement(f"{name}: Exact()", exact, exact, 0.0, None, peak_gigabytes()))
        del reference, influence
        for label, solver, bound in (
            ("CG(tolerance=0.3), compiling", zv.CG(tolerance=0.3), None),
            ("CG()", zv.CG(), 1 / 3),
            (f"Nystrom({centres})", zv.Nystrom(centres), None),
        ):
            start = time.perf_counter()
            fitted = zv.fit(family, sample, f, objective, solver)
            seconds = time.perf_counter() - start
            distance = float(np.max(np.abs(fitted.intercept - values) / errors))
            found.append(
                Agreement(
                    f"{name}: {label}",
                    seconds,
                    exact,
                    distance,
                    fitted.stats.get("iterations"),
                    peak_gigabytes(),
                    bound,
                )
            )
    return found


def warm(family: LinearFamily, objective: zv.LeastSquares, n: int) -> None:
    """Compile what the host's tiles need; conjugate gradients compile for their size, and pay for
    it."""
    x, s, f = banana(min(n, 1200))
    zv.fit(family, zv.Sample(x, s), f, objective, zv.Exact()).leave_out()


def centres_alone(n: int, centres: int) -> Agreement:
    """A fit at centres with leave-one-out residuals, in a process of its own, so that its peak of
    memory is its own."""
    script = (
        "import time, zerovar as zv\nfrom benchmarks.harness import peak_gigabytes\nfrom "
        f"benchmarks.scale import FAMILY, banana, ridge_of\nx, s, f = banana({n}); sample = "
        "zv.Sample(x, s); objective = zv.LeastSquares(zv.Ridge(ridge_of(x, s, 1e-6)))\nt = "
        "time.perf_counter(); fitted = zv.fit(FAMILY, sample, f, objective, "
        f"zv.Nystrom({centres}))\nfitted.leave_out(); print(time.perf_counter() - t, "
        "peak_gigabytes())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    seconds, gigabytes = map(float, done.stdout.split())
    return Agreement(
        f"Nystrom({centres}) with leave-one-out, n = {n}", seconds, seconds, 0.0, None, gigabytes
    )


def choice_rows(quick: bool) -> list[Row]:
    """What the cost model says against what it takes."""
    rows = []
    for n, d in ((300, 10),) if quick else ((4000, 10), (10_000, 10)):
        x, s, f = banana(n, d)
        sample, objective = zv.Sample(x, s), zv.LeastSquares(zv.Ridge(ridge_of(x, s, 1e-4)))
        for name, solver, cost in (
            ("Exact", zv.Exact(), choice.exact_cost(FAMILY, n, d, True)),
            ("CG", zv.CG(), choice.cg_cost(FAMILY, n, d, f.shape[1])),
        ):
            zv.fit(FAMILY, sample, f, objective, solver)
            taken = best(
                lambda s=sample, f=f, o=objective, solver=solver: zv.fit(FAMILY, s, f, o, solver), 1
            )
            rows.append(Row(f"{name}, kernel + quadratic, n = {n}, d = {d}", cost.seconds, taken))
    for n, d in ((1000, 5),) if quick else ((200_000, 20), (20_000, 60)):
        x, s, f = banana(n, d)
        cost = choice.exact_cost(zv.Polynomial(2), n, d, False)
        sample = zv.Sample(x, s)
        zv.fit(zv.Polynomial(2), sample, f)
        rows.append(
            Row(
                f"Exact, quadratic, n = {n}, d = {d}",
                cost.seconds,
                best(lambda s=sample, f=f: zv.fit(zv.Polynomial(2), s, f), 1),
            )
        )
    return rows


def start_rows() -> list[Row]:
    """Fresh processes: importing zerovar against importing JAX, and the first call of `estimate`,
    which compiles, against the second."""
    floor, ours = import_seconds("jax"), import_seconds("zerovar")
    setup = "x = np.random.default_rng(0).normal(size=(1000, 10)); f = np.sin(x[:, :2])"
    imported, first, second = in_fresh_process(setup, "zv.estimate(x, -x, f)")
    note = f"{'ok' if imported + first < 20 else 'MISSED'}: bound 20 s with imports"
    return [
        Row("import zerovar", floor, ours, 1.5),
        Row("first estimate, n = 1000, d = 10", second, first, note=note),
    ]


def import_seconds(module: str) -> float:
    """In fresh processes, the best of four, of which the first leaves bytecode behind: what is
    installed has been compiled."""
    script = (
        f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
    )
    surroundings = {
        name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
    }
    options: dict[str, Any] = {
        "capture_output": True,
        "text": True,
        "check": True,
        "env": surroundings,
    }
    return min(
        float(subprocess.run([sys.executable, "-c", script], **options).stdout) for _ in range(4)
    )


def measure(options: Namespace) -> dict[str, Any]:
    """Many draws on this machine: solvers against each other, growth, the default choice,
    start-up."""
    quick = options.quick
    results: dict[str, Any] = {}
    rows = agreement_rows(300, 50, ("Gaussian",)) if quick else agreement_rows(20_000, 2000)
    if not quick:
        rows.append(centres_alone(100_000, 2000))
    results["solvers"] = [row._asdict() | {"ratio": row.ratio} for row in rows]
    print_table(
        "Kernel + quadratic, d = 10, ridge 1e-6 of the mean diagonal: seconds, and distance from "
        "the exact answer",
        (
            "solver",
            "seconds",
            "of exact",
            "standard errors away",
            "iterations",
            "peak memory (GB)",
            "",
        ),
        [
            (
                row.case,
                f"{row.seconds:.1f}",
                f"{row.ratio:.2f}",
                f"{row.distance:.2g}",
                row.iterations or "",
                f"{row.gigabytes:.2f}",
                ""
                if row.bound is None
                else "ok"
                if row.ratio <= row.bound and row.distance <= 0.1
                else "MISSED",
            )
            for row in rows
        ],
    )
    results["growth"] = show_slopes("Growth of time and memory", growth.slopes(quick))
    results["choice"] = choice_rows(quick)
    show("The cost model of the default choice against what it takes", results["choice"], "model")
    if not quick:
        results["start"] = start_rows()
        show(
            "A fresh process: against importing JAX, and against the second call",
            results["start"],
            "floor",
        )
    return results
