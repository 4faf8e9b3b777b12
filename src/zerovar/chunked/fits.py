"""Fits to chunked draws: from moments of features, or trained on windows, whichever a solver
declares."""

import time
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64

from ..diagnostics.identities import SHORTEST
from ..families import Family, LinearFamily
from ..fitting import interruption, require_solved
from ..inputs.points import Points
from ..objectives import Objective, Ridge
from ..solvers import MomentsFit, Result, Solver
from ..solvers.scope import check_scope, refuse
from ..solvers.terms import Term, arrange
from .arrays import Chunks, Pilot
from .rows import View
from .sums import PassPlan, Sums, sum_chunks
from .windows import ChunkWindows


class StreamedTask(NamedTuple):
    """What is to be fitted, and to what."""

    chunks: Chunks
    view: View
    edges: np.ndarray  # of the batches
    fitting: dict[int, list[int]]  # for each part that estimates, those that fit
    pilot: Pilot
    points: Points  # of the pilot, standardised
    family: Family
    objective: Objective
    seed: int


class PartFits(NamedTuple):
    """The pass over all chunks; for each part that estimates, the fit to others; the number of
    features or of trained g."""

    sums: Sums
    by_part: dict[int, MomentsFit]
    p: int


def check_streamed(solver: Any, family: Family, objective: Objective, d: int) -> None:
    """Refuse a solver that neither fits from moments nor trains on windows, and what it does not
    take where it does so."""
    name = type(solver).__name__
    if not isinstance(solver, Solver) or not (solver.moments_scope or solver.trains_on_windows):
        refuse(
            "estimate() of chunked draws",
            "solvers that declare moments or windows: solver=Exact(), in one pass of sums, or "
            "trained by SGD()",
            name,
            "Use one of these, or fewer draws, in memory",
        )
    if solver.moments_scope is None:
        solver.check(family, objective, d)
    else:
        check_scope(f"{name}() on chunked draws", solver.moments_scope, family, objective, d)


def fit_parts(task: StreamedTask, solver: Solver) -> PartFits:
    """Return the fits for all parts that estimate, and the sums over all chunks."""
    if solver.moments_scope is None:
        return _train_parts(task, solver)
    return _solve_parts(task, solver)


def _solve_parts(task: StreamedTask, solver: Solver) -> PartFits:
    """Sum moments in one pass, then solve for each part."""
    terms, penalised = arrange(choose_features(task, solver), task.points.dim)
    started = time.perf_counter()
    sums = sum_chunks(task.chunks, PassPlan(task.view, task.edges, terms))
    stats = {"passes": 1, "pass_seconds": time.perf_counter() - started}
    fits = {}
    for part, others in task.fitting.items():
        fit = _solve_part(sums, others, penalised, task.objective, solver)
        require_solved(task.family, fit.result)
        fits[part] = fit._replace(stats=fit.stats | stats)
    return PartFits(sums, fits, len(penalised))


def _solve_part(
    sums: Sums,
    parts: list[int],
    penalised: Float64[np.ndarray, " p"],
    objective: Objective,
    solver: Solver,
) -> MomentsFit:
    """Fit to the draws of these parts."""
    matrix = reduce(np.add, [sums.moments[part] for part in parts])
    # an objective asks for probabilities, but only Σp² of them matters
    root = np.sqrt(np.array([sums.weights[parts].sum()])) / matrix[0, 0]
    ridge = objective.strength(Ridge, root)
    fit = solver.solve_moments(matrix, ridge * penalised)
    return fit._replace(stats=fit.stats | {"ridge": ridge})


def choose_features(task: StreamedTask, solver: Solver) -> LinearFamily:
    """Return the family with features that the solver chooses on the pilot."""
    family, view = task.family, task.view
    assert isinstance(family, LinearFamily), "moments are of linear families"
    values = (task.pilot.values - view.centre) / view.unit
    family = solver.choose_features(family, task.objective, task.points, values, task.seed)
    if family.num_features(task.points.dim) is None:
        refuse(
            f"{type(solver).__name__}() on chunked draws",
            "families with features",
            f"{family.describe()}, which has no features, only a Gram matrix between all draws",
            "Use a Polynomial, solver=Nystrom(…) or SGD(), or fewer draws, in memory",
        )
    return family


def _train_parts(task: StreamedTask, solver: Solver) -> PartFits:
    """Train for each part on windows of the others, then sum over all chunks with what that
    gave."""
    started = time.perf_counter()
    trained, fits = {}, {}
    for fold, (part, others) in enumerate(task.fitting.items(), 1):
        trained[part], fits[part] = _train_part(task, solver, others)
        if fits[part].result is Result.INTERRUPTED and len(task.fitting) > 1:
            raise interruption(fold, len(task.fitting))
    ready = time.perf_counter()
    sums = sum_chunks(task.chunks, PassPlan(task.view, task.edges, trained=trained))
    stats = {"training_seconds": ready - started, "pass_seconds": time.perf_counter() - ready}
    fits = {part: fit._replace(stats=fit.stats | stats) for part, fit in fits.items()}
    return PartFits(sums, fits, len(task.view.centre))


def _train_part(
    task: StreamedTask, solver: Solver, parts: list[int]
) -> tuple[tuple[Term, ...], MomentsFit]:
    """Train on the draws of these parts; f − g is then f less one g for each integrand."""
    with ChunkWindows(task.chunks, task.view, parts, task.pilot, task.seed) as windows:
        rows = windows.rows
        if len(rows) < SHORTEST:
            raise ValueError(
                f"only {len(rows)} draws of the pilot lie in the part of the chains that is to be "
                f"trained on, of at least {SHORTEST} that are needed. Use another split, such "
                "as cross_fit(5), or more draws"
            )
        points = task.points.take(rows)
        prepared = solver.prepare_windows(task.family, task.objective, points, task.seed, windows)
        solution = prepared.solve(task.pilot.values[rows])
    require_solved(task.family, prepared.result)
    theta = np.eye(len(solution.intercept))
    return solution.terms, MomentsFit(solution.intercept, theta, prepared.result, prepared.stats)
