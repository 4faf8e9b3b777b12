"""What a fit costs as draws and dimensions grow: the right half of Figure 2, as slopes and as the
sizes from which steps are cheaper than the linear system.

Two comparisons, each of like with like. *Lean*: features once, then the paper's steps in NumPy or
in one compiled loop, whichever is faster there, or Cholesky in LAPACK, with nothing around them.
*The library*: whole calls of `zv.fit`, plain steps as in the paper and whitened ones against
`Exact`; whitened steps move a kernel's translates at few centres, so that `Nystrom` solves for the
same number of them beside it. Steps are measured at fixed epochs (5 and 25) and at a fixed number
of steps. All ways of a setting take turns in one process of one thread; a time is a
median over the turns, a ratio the median of the ratios within turns. Compilation and the choice of
hyper-parameters are not timed, nor is the largest safe step; what the choice costs a kernel and a
network is the part `calibration`, measured once for each m. What each leaves of the variance of f
at fresh draws stands beside its time: cheap steps that learn nothing are no bargain.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import zerovar as zv

from . import lean
from .cost_tables import FIXED
from .cost_tables import figure as figure
from .cost_tables import section as section
from .harness import Job, Row, Size
from .networks import Trainer
from .protocol import BATCH, Problem, falling, first_step, fit, processor_time, recipes

NAME = "costs"
TITLE = "Time of a fit against m and d (Figure 2, right)"
VERSIONS = {"ours": 4, "calibration": 2}

DRAWS = {
    "polynomial": (1000, 2000, 4000, 8000, 16_000),
    "kernel": (500, 1000, 2000, 4000, 6000),
    "polynomial + kernel": (500, 1000, 2000, 4000, 6000),
    "network": (250, 500, 1000, 2000, 4000),
}
DIMENSIONS = {
    "polynomial": (5, 10, 20, 30, 40, 60, 80),
    "kernel": (5, 10, 20, 40, 80),
    "polynomial + kernel": (5, 10, 20, 40),
    "network": (5, 10, 20, 40, 80),
}
# m while d varies, and d while m varies
_AT = {
    "polynomial": (5000, 20),
    "kernel": (1000, 5),
    "polynomial + kernel": (1000, 5),
    "network": (1000, 5),
}
_CALIBRATED = (500, 1000, 2000, 4000)
_FRESH = 1000


class Way(NamedTuple):
    """A way to fit, under its name in the tables; `against`: the linear system that it replaces."""

    method: str
    about: dict[str, Any]
    against: str | None
    work: Callable[[], Any]  # returns g at the fresh draws as a function without arguments


def jobs(size: Size) -> list[Job]:
    if size.quick:
        few = [("polynomial", 300), ("kernel", 200), ("kernel", 300), ("polynomial + kernel", 200)]
        return [
            {"part": "ours", "family": family, "over": "m", "m": m, "d": 3, **size.marks}
            for family, m in [*few, ("network", 100)]
        ] + [{"part": "calibration", "over": "m", "m": 100, "d": 3, **size.marks}]
    found = []
    for family, (m_at, d_at) in _AT.items():
        found += [
            {"part": "ours", "family": family, "over": "m", "m": m, "d": d_at}
            for m in DRAWS[family]
        ]
        found += [
            {"part": "ours", "family": family, "over": "d", "m": m_at, "d": d}
            for d in DIMENSIONS[family]
        ]
    return found + [
        {"part": "calibration", "over": "m", "m": m, "d": _AT["kernel"][1]} for m in _CALIBRATED
    ]


def run(job: Job, data: Path | None) -> list[Row]:
    m, d = job["m"], job["d"]
    x = np.random.default_rng(0).normal(size=(m + _FRESH, d))
    problem = Problem.of(x, -x, np.sin(x).sum(axis=1), m)
    quick = job.get("quick", False)
    if job["part"] == "calibration":
        return _calibration(problem, quick)
    if job["family"] == "network":
        ways = _networks(problem, quick)
    else:
        kernel = zv.Kernel(zv.kernels.Gaussian(2 * np.sqrt(d)))
        families = {"polynomial": zv.Polynomial(2), "kernel": kernel}
        families["polynomial + kernel"] = zv.Polynomial(2) + kernel
        ways = _ways(families[job["family"]], problem, quick)
    answers = [way.work() for way in ways]  # compiles
    turns, spent = [], 0.0
    while len(turns) < (2 if quick else 3) or (len(turns) < 9 and spent < 15 and not quick):
        turns.append([processor_time(way.work)[1] for way in ways])
        spent += sum(turns[-1])
    times = np.array(turns)
    place = {way.method: k for k, way in enumerate(ways)}
    values = problem.values[m:, 0]
    rows: list[Row] = []
    for k, (way, answer) in enumerate(zip(ways, answers, strict=True)):
        left = np.var(values - answer()) / np.var(values)
        row = {"method": way.method, **way.about, "turns": len(turns), "left": float(left)}
        row["seconds"] = float(np.median(times[:, k]))
        if way.against is not None:
            ratios = times[:, k] / times[:, place[way.against]]
            row |= {"ratio": float(np.median(ratios)), "least": float(ratios.min())}
            row["most"] = float(ratios.max())
        rows.append(row)
    return rows


_LOOPS = {"NumPy": lean.steps, "compiled": lean.compiled_steps}


def _faster(phi: np.ndarray, f: np.ndarray, rate: float) -> str:
    """Which loop takes less time for a fixed number of steps."""
    times = {}
    for name, loop in _LOOPS.items():
        work = functools.partial(loop, phi, f, rate, FIXED)
        work()  # compiles
        times[name] = min(processor_time(work)[1] for _ in range(2))
    return min(times, key=times.__getitem__)


def _ways(family: Any, problem: Problem, quick: bool) -> list[Way]:
    m = problem.m
    x, s, f = problem.x[:m], problem.s[:m], problem.values[:m, 0]
    centre, unit = f.mean(), f.std()
    scaled = (f - centre) / unit
    translates = family.coefficient_features(x, s)
    phi = lean.side_by_side(lean.features(family, x, s))
    rate = first_step(phi)
    epoch = -(-m // BATCH)
    by = _faster(phi, scaled, rate)
    del phi

    def at_fresh(theta: np.ndarray, c: float) -> np.ndarray:
        fresh = [
            zv.Polynomial(2) if isinstance(part, zv.Polynomial) else part.translates(x, s)
            for part in lean.parts_of(family)
        ]
        phi = [lean.feature_matrix(part, problem.x[m:], problem.s[m:]).T for part in fresh]
        return unit * (c + np.hstack(phi) @ theta)

    def features() -> Callable[[], np.ndarray]:
        lean.side_by_side(lean.features(family, x, s))
        return lambda: np.zeros(_FRESH)

    def stepped(count: int) -> Callable[[], np.ndarray]:
        phi = lean.side_by_side(lean.features(family, x, s))
        return functools.partial(at_fresh, *_LOOPS[by](phi, scaled, rate, count))

    def solved() -> Callable[[], np.ndarray]:
        thetas, c = lean.solve(lean.features(family, x, s), scaled)
        return functools.partial(at_fresh, np.concatenate(thetas), c)

    def solved_by(family_: Any, solver: Any) -> zv.Fitted:
        objective = zv.LeastSquares(zv.Ridge(lean.RIDGE))
        found = fit(family_, problem.fitting, problem.values[:m], objective, solver)
        assert found is not None, "steps of a safe length do not diverge"
        return found

    def fitted(family_: Any, solver: Any) -> Callable[[], np.ndarray]:
        found = solved_by(family_, solver)
        return lambda: found.at(problem.x[m:], problem.s[m:])[:, 0]

    lean_steps = "lean steps", "lean exact"
    ways = [
        Way("lean features", {}, "lean exact", features),
        Way("lean exact", {}, None, solved),
        *(
            Way(
                f"{lean_steps[0]}, {epochs} epochs",
                {"epochs": epochs, "steps": epochs * epoch, "by": by},
                lean_steps[1],
                functools.partial(stepped, epochs * epoch),
            )
            for epochs in ((5,) if quick else (5, 25))
        ),
        Way(
            f"{lean_steps[0]}, {FIXED} steps",
            {"steps": FIXED, "by": by},
            lean_steps[1],
            functools.partial(stepped, FIXED),
        ),
        Way("exact", {}, None, functools.partial(fitted, family, zv.Exact())),
    ]
    whitened = zv.SGD(BATCH, 5, progress=False)
    centres = solved_by(family, whitened).stats.get("centres")
    about = {} if centres is None else {"centres": centres}
    solvers: list[tuple[str, Any, Any, dict[str, Any]]] = [
        ("SGD", family, whitened, {"epochs": 5, **about}),
        ("as in the paper", translates, falling(rate, 5 * epoch, 5), {"epochs": 5}),
    ]
    if centres is not None:
        solvers.append(("Nystrom", family, zv.Nystrom(centres), about))
    return ways + [
        Way(method, told, "exact", functools.partial(fitted, family_, solver))
        for method, family_, solver, told in solvers
    ]


def _calibration(problem: Problem, quick: bool) -> list[Row]:
    """Seconds of the choice of hyper-parameters by the recipe, and of the fit that follows."""
    m = problem.m
    x, s, f = problem.x[:m], problem.s[:m], problem.values[:m, 0]
    f = (f - f.mean()) / f.std()
    network = Trainer(problem, _architecture(quick), 2 if quick else 25)
    kernel = zv.Kernel(zv.kernels.Gaussian(2 * np.sqrt(x.shape[1])))
    work: dict[tuple[str, str], Callable[[], Any]] = {
        ("polynomial", "calibration"): lambda: recipes("polynomial", problem, 25, [[0]]),
        ("polynomial", "fit"): lambda: lean.solve(lean.features(zv.Polynomial(2), x, s), f),
        ("kernel", "calibration"): lambda: recipes("kernel", problem, 25, [[0]]),
        ("kernel", "fit"): lambda: lean.solve(
            lean.features(kernel, x, s), (f - f.mean()) / f.std()
        ),
        ("network", "calibration"): network.calibrate,
        ("network", "fit"): lambda: network.fit(np.arange(m), 0.01, 1e-4),
    }
    rows: list[Row] = []
    for (family, method), act in work.items():
        act()  # compiles
        seconds = processor_time(act)[1]
        rows.append({"family": family, "method": method, "seconds": seconds, "turns": 1})
    return rows


def _architecture(quick: bool) -> zv.MLP:
    return zv.MLP(4, 2, jax.nn.relu) if quick else zv.MLP(20, 6, jax.nn.relu)


def _networks(problem: Problem, quick: bool) -> list[Way]:
    """The paper's ReLU network of 6 × 20, which no linear system replaces."""
    m = problem.m

    def fitted(epochs: int) -> Callable[[], np.ndarray]:
        found = Trainer(problem, _architecture(quick), epochs).fit(np.arange(m), 0.01, 1e-4)
        assert found is not None, "at the least of the rates"
        return lambda: found.at(problem.x[m:], problem.s[m:])[:, 0]

    return [
        Way(
            f"as in the paper, {epochs} epochs",
            {"epochs": epochs},
            None,
            functools.partial(fitted, epochs),
        )
        for epochs in ((1, 2) if quick else (5, 25))
    ]
