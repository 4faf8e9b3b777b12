"""estimate() of chunked draws: one pass of sums over the chunks, then everything else from these.

Each chunk gives, for every part of the split that it touches, the second moments of [1, features, integrands], and for every
batch of draws the first ones. Fits of all folds are small solves: the moments of the other folds, added. As f − g is linear in
the features, its sum over a batch comes from the batch's first moments, so that residuals need no second pass over the draws;
and about four thousand batch means carry the standard errors, as the chain of single draws does in memory.

What SGD trains, it trains before, fold by fold on windows of the chunks; in the pass g itself then takes the place of features.
"""

from __future__ import annotations

import itertools
import math
import time
import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64

from ..automatic import Automatic
from ..cautions import Cautions
from ..checks import check
from ..families import Family, LinearFamily, Polynomial
from ..fitting import must_have_solved
from ..objectives import LeastSquares, Objective, Ridge, Variance
from ..result import Estimate, settings
from ..sample import Standardisation
from ..solvers import SGD, Exact, Solver
from ..solvers.centres import at_centres
from ..solvers.moments import Solved, arranged, solve
from ..solvers.terms import Term
from ..splits import Contiguous, Split, cross_fit
from ..std_errors import covariance, mean_and_error, stretches_apart
from .arrays import Chunks, Pilot
from .rows import Function, View
from .sums import Plan, Sums, sums_over
from .windows import ChunkWindows

_BATCHES = 4000  # over all chains, about: their scatter knows a standard error to a few per cent
_FEWEST_BATCHES = 4  # of each chain in each part
_MOST_TERMS = 600
_DRAWS_PER_TERM = 20
_FEWEST_PILOT = 50  # draws of the pilot that a training is prepared on


def estimate_chunked(
    draws: Any,
    scores: Any,
    values: Any,
    *,
    family: Family | Automatic | None,
    objective: Objective | None,
    solver: Solver | None,
    split: Split | None,
    names: Sequence[str] | None,
    log_weights: Any,
    standardise: bool,
    seed: int,
) -> Estimate:
    """`estimate` for chunked arrays, with the same arguments and an answer of the same kind, without traces.

    A pilot of about 20 000 draws chooses the coordinates, and whatever else a family leaves open, and is what the scores are
    checked on. Everything that is estimated comes from all draws.
    """
    started = time.perf_counter()
    asked = (family, objective, solver, split)
    objective = LeastSquares() if objective is None else objective
    split = cross_fit() if split is None else _checked_split(split)
    if solver is None:
        solver = SGD() if isinstance(family, Family) and not isinstance(family, LinearFamily) else Exact()
    solver = _checked_solver(solver, objective)
    chunks = Chunks.of(draws, scores, values, log_weights)
    chains, length, d = chunks.shape
    if family is None or isinstance(family, Automatic):
        family = _polynomial(d, len(chunks))
    _check_family(family, d, solver)
    parts, fitting = split.parts(length)

    pilot = chunks.pilot(names)
    sample, pilot_values, found = pilot.sample, pilot.values, pilot.names
    rows = sample.rows()
    standardisation = Standardisation.of(rows, mixing=not family.keeps_axes) if standardise else Standardisation.identity(d)
    x, s = standardisation(rows.draws, rows.scores)
    centre = rows.probabilities @ pilot_values
    size = np.abs(pilot_values - centre).max(axis=0)
    unit = np.where(size > 0, size, 1.0)
    cautions = Cautions(depth=5)
    cautions.scores(check(sample))
    function = None if chunks.function is None else Function(uuid.uuid4().hex, chunks.function)
    view = View(standardisation, function, chunks.value_names, centre, unit, pilot.log_weight, parts)
    edges = _batches(parts, chains)
    task = _Task(chunks, view, edges, fitting, pilot, x, s, family.resolve(x, pilot_values), objective, seed)
    prepared = time.perf_counter()

    sums, fits, p = _trained(task, solver) if isinstance(solver, SGD) else _solved(task, solver)
    cautions.constants(found, np.stack([sums.low, sums.high]))
    cautions.numerics(family, [fit.result for fit in fits.values()])
    everything = _Series.of(sums, chains, len(edges) - 1, p, len(found))
    scale = np.maximum(np.abs(sums.low), np.abs(sums.high))
    scale = np.where(scale > 0, scale, 1.0) / unit
    plain, plain_error, _ = mean_and_error(*everything.plain, scale)
    slowest, kish = _slowest(everything, sums, p)
    cautions.convergence(found, length, *_r_hats(everything, sums, p))
    residuals, probabilities = everything.residuals(fits, parts, edges)
    value, error, influence = mean_and_error(residuals, probabilities, scale)
    fit = next(iter(fits.values()))
    stats = fit.stats | {
        "draws": length * chains,
        "distinct_draws": length * chains,  # repeated ones are not merged
        "standardisation": standardisation.kind,
        "pilot_draws": len(sample),
        "chunks": math.prod(chunks.draws.numblocks),
        "batches": chains * (len(edges) - 1),
        "autocorrelation_time": slowest,
        "pilot_seconds": prepared - started,
        "seconds": time.perf_counter() - started,
    }
    cautions.size(len(chunks), slowest, kish, stats)
    cautions.tails(found, influence, in_sample=False, of="batch")
    cautions.stretches(found, stretches_apart(influence))
    cautions.usefulness(found, (plain_error / error) ** 2)
    cautions.agreement(found, np.abs(value - plain) / np.hypot(plain_error, error))
    told = {"chains": chains, "draws": length, "dimensions": d, "standardise": standardise, "seed": seed}
    return Estimate(
        names=found,
        value=centre + unit * value,
        std_error=unit * error,
        plain_value=centre + unit * plain,
        plain_std_error=unit * plain_error,
        covariance=covariance(influence, unit * error),
        num_draws=len(chunks),
        family=family,
        split=split.describe(),
        warnings=tuple(cautions.texts),
        stats=stats,
        settings=settings(sample, pilot_values, *asked) | told,
    )


class _Task(NamedTuple):
    """What is to be fitted, and to what."""

    chunks: Chunks
    view: View
    edges: np.ndarray  # of the batches
    fitting: dict[int, list[int]]  # for each part that estimates, those that fit
    pilot: Pilot
    x: Float64[np.ndarray, "n d"]  # of the pilot, standardised
    s: Float64[np.ndarray, "n d"]
    family: Any
    objective: Objective
    seed: int


class _Fits(NamedTuple):
    """The pass over all chunks; for each part that estimates, the fit to others; the number of features or of trained g."""

    sums: Sums
    fits: dict[int, Solved]
    p: int


def _solved(task: _Task, solver: Exact) -> _Fits:
    """One pass of moments, then a small solve for each part."""
    probabilities = task.pilot.sample.probabilities
    terms, held = arranged(with_features(task.family, solver, task.x, task.s, probabilities, task.seed), task.x.shape[1])
    started = time.perf_counter()
    sums = sums_over(task.chunks, Plan(task.view, task.edges, terms))
    stats = {"passes": 1, "pass_seconds": time.perf_counter() - started}
    fits = {part: _fit(sums, others, held, task.objective) for part, others in task.fitting.items()}
    for fit in fits.values():
        must_have_solved(task.family, fit.result)
    return _Fits(sums, {part: fit._replace(stats=fit.stats | stats) for part, fit in fits.items()}, len(held))


def _fit(sums: Sums, parts: list[int], held: np.ndarray, objective: Objective) -> Solved:
    """To the draws of these parts."""
    matrix = sums.moments[parts[0]].copy()
    for part in parts[1:]:
        matrix += sums.moments[part]
    # an objective asks for probabilities, but only Σp² of them matters
    root = np.sqrt(np.array([sums.weights[parts].sum()])) / matrix[0, 0]
    ridge = objective.strength(Ridge, root)
    solved = solve(matrix, ridge * held)
    return solved._replace(stats=solved.stats | {"ridge": ridge})


def _trained(task: _Task, solver: SGD) -> _Fits:
    """A training for each part on windows of the others, then a pass with what they gave."""
    started = time.perf_counter()
    trained, fits = {}, {}
    for part, others in task.fitting.items():
        trained[part], fits[part] = _training(task, solver, others)
    ready = time.perf_counter()
    sums = sums_over(task.chunks, Plan(task.view, task.edges, trained=trained))
    stats = {"training_seconds": ready - started, "pass_seconds": time.perf_counter() - ready}
    return _Fits(sums, {part: fit._replace(stats=fit.stats | stats) for part, fit in fits.items()}, len(task.view.centre))


def _training(task: _Task, solver: SGD, parts: list[int]) -> tuple[tuple[Term, ...], Solved]:
    """On the draws of these parts; f − g is then f less one g for each integrand."""
    with ChunkWindows(task.chunks, task.view, parts, task.pilot, task.seed) as windows:
        rows = windows.rows
        if len(rows) < _FEWEST_PILOT:
            raise ValueError(
                f"only {len(rows)} draws of the pilot lie in the part of the chains that is to be trained on, of at least "
                f"{_FEWEST_PILOT} that are needed. Use another split, such as cross_fit(5), or more draws"
            )
        probabilities = task.pilot.sample.probabilities[rows] / task.pilot.sample.probabilities[rows].sum()
        points = task.x[rows], task.s[rows]
        prepared = solver.training(task.family, task.objective, *points, probabilities, task.seed, windows)
        solution = prepared.solve(task.pilot.values[rows])
    must_have_solved(task.family, prepared.result)
    return solution.terms, Solved(solution.intercept, np.eye(len(solution.intercept)), prepared.result, prepared.stats)


def with_features(
    family: LinearFamily, solver: Exact, x: np.ndarray, s: np.ndarray, probabilities: np.ndarray, seed: int
) -> LinearFamily:
    """The family, if it has features, or its kernels at centres; these come from the pilot, standardised: x, s (n, d)."""
    if solver.centres is not None:
        rng = np.random.default_rng(seed)
        family = at_centres(family, x, s, probabilities, solver.centres, solver.spread, rng)
    if family.num_features(x.shape[1]) is None:
        raise ValueError(
            f"{family.describe()} has no features, only a Gram matrix between all draws, which chunked draws cannot have. "
            "Use a Polynomial, solver=Exact(centres=…) or SGD(), or fewer draws, in memory"
        )
    return family


def _checked_split(split: Any) -> Contiguous:
    if isinstance(split, Contiguous):
        return split
    if isinstance(split, Split):
        raise ValueError(
            f"chunked draws cannot be estimated {split.describe()}: leave-out residuals need all features of all draws at "
            "once. Use split=cross_fit(k), which costs nothing more here, or holdout(fraction)"
        )
    raise ValueError(f"split must be holdout(fraction) or cross_fit(k) for chunked draws; got {split!r}")


def _checked_solver(solver: Any, objective: Objective) -> SGD | Exact:
    if isinstance(solver, SGD):
        return solver  # it checks the objective itself
    if not isinstance(solver, Exact):
        raise ValueError(
            "chunked draws are fitted by solver=Exact(), from one pass of sums, or trained by SGD(); "
            f"got {type(solver).__name__}"
        )
    if not isinstance(objective, (LeastSquares, Variance)) or not np.isinf(objective.intercept_variance):
        raise ValueError(
            f"Exact() fits chunked draws by LeastSquares (with a free intercept) or Variance; got {type(objective).__name__}"
        )
    others = sorted({type(penalty).__name__ for penalty in objective.penalties} - {Ridge.__name__})
    if others:
        raise ValueError(f"Exact() fits chunked draws with a Ridge penalty or none; got {', '.join(others)}")
    return solver


def _check_family(family: Any, d: int, solver: Solver) -> None:
    if not isinstance(family, Family):
        raise ValueError(f"family must be a family such as Polynomial(2) or Network(); got {family!r}")
    if isinstance(solver, Exact) and not isinstance(family, LinearFamily):
        raise ValueError(f"Exact() fits linear families such as Polynomial(2); got {family.describe()}. Use solver=SGD()")
    family.check(d)


def _polynomial(d: int, n: int) -> LinearFamily:
    """The polynomial of the highest degree up to three that has at most 600 terms, and twenty draws for each."""
    most = min(_MOST_TERMS, n / _DRAWS_PER_TERM)
    return next((p for p in map(Polynomial, (3, 2)) if p.num_features(d) <= most), Polynomial(1))


def _batches(parts: np.ndarray, chains: int) -> np.ndarray:
    """Edges of batches of nearly one length, each within one part: about four thousand in all, or single draws."""
    edges = [0]
    for first, last in itertools.pairwise(parts.tolist()):
        wanted = max(round(_BATCHES / chains * (last - first) / parts[-1]), _FEWEST_BATCHES)
        edges += np.linspace(first, last, min(wanted, last - first) + 1).round().astype(int)[1:].tolist()
    return np.array(edges)


class _Series(NamedTuple):
    """Batch by batch, (chain, batch, …): what each counts, and means of features, integrands and coordinates."""

    weights: Float64[np.ndarray, "chain batch"]
    features: Float64[np.ndarray, "chain batch p"]  # or g, where it was trained
    integrands: Float64[np.ndarray, "chain batch q"]
    coordinates: Float64[np.ndarray, "chain batch c"]

    @staticmethod
    def of(sums: Sums, chains: int, batches: int, p: int, q: int) -> _Series:
        table = sums.batches.reshape(chains, batches, -1)
        weights = table[:, :, 0]
        means = table[:, :, 1:] / weights[:, :, None]
        return _Series(weights, *np.split(means, [p, p + q], axis=2))

    @property
    def probabilities(self) -> Float64[np.ndarray, " n"]:
        return (self.weights / self.weights.sum()).ravel()

    @property
    def plain(self) -> tuple[np.ndarray, np.ndarray]:
        return self.integrands, self.probabilities

    def residuals(self, fits: dict[int, Solved], parts: np.ndarray, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """f − g of the batches that estimate, each by the fit that did not see it; and what these count, summing to one."""
        own = np.searchsorted(parts, edges[:-1], side="right") - 1
        out = np.empty_like(self.integrands)
        for part, fit in fits.items():
            out[:, own == part] = self.integrands[:, own == part] - self.features[:, own == part] @ fit.theta
        kept = np.isin(own, list(fits))
        weights = self.weights[:, kept]
        return out[:, kept], (weights / weights.sum()).ravel()


def _variances(series: _Series, sums: Sums, p: int) -> tuple[np.ndarray, np.ndarray]:
    """Of the integrands (q,) and coordinates (c,), over all draws."""
    total = np.sum([np.diagonal(matrix) for matrix in sums.moments.values()], axis=0)
    count = series.weights.sum()
    means = [series.probabilities @ part.reshape(-1, part.shape[2]) for part in (series.integrands, series.coordinates)]
    q = series.integrands.shape[2]
    squares = (total[1 + p : 1 + p + q], sums.squares)
    of_values, of_draws = (np.maximum(square / count - mean**2, 0.0) for square, mean in zip(squares, means, strict=True))
    return np.where(sums.high > sums.low, of_values, 0.0), of_draws


def _slowest(series: _Series, sums: Sums, p: int) -> tuple[float, float]:
    """The longest autocorrelation time of integrands and coordinates, their errors against their variances; and 1/Σp²."""
    both = np.concatenate([series.integrands, series.coordinates], axis=2)
    variances = np.concatenate(_variances(series, sums, p))
    _, errors, _ = mean_and_error(both, series.probabilities, np.zeros(both.shape[2]))
    kish = float(series.weights.sum() ** 2 / sums.weights.sum())
    moving = variances > 0
    return float(kish * np.max(errors[moving] ** 2 / variances[moving], initial=0.0)) or 1.0, kish


def _r_hats(series: _Series, sums: Sums, p: int) -> list[np.ndarray]:
    """√(1 + B/W), between and within half chains, of the integrands and of the coordinates."""
    half = series.weights.shape[1] // 2
    found = []
    for part, total in zip((series.integrands, series.coordinates), _variances(series, sums, p), strict=True):
        means = [
            np.einsum("cb,cbk->ck", series.weights[:, cut], part[:, cut]) / series.weights[:, cut].sum(axis=1)[:, None]
            for cut in (slice(half), slice(half, None))
        ]
        halves = np.concatenate(means)
        between = halves.var(axis=0, ddof=1)
        within = total - halves.var(axis=0)
        found.append(np.sqrt(1 + np.divide(between, within, out=np.zeros_like(between), where=within > 0)))
    return found
