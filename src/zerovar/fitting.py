"""fit(): a family, a sample and integrands in, a fitted control variate out."""

from __future__ import annotations

import dataclasses
import time
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64

from .arguments import (
    FLAG,
    NOT_NEGATIVE,
    PATH,
    check_argument,
    instance,
    read_whole_numbers,
    takes,
    where,
    whole,
)
from .errors import NumericalError, NumericalWarning, refuse_fork, warn
from .families import FAMILY, Family, settle
from .families.settling import check_family
from .inputs.integrands import as_values
from .inputs.points import FittingDraws, Placement, RowNumbers, Standardisation
from .inputs.sample import SAMPLE, Sample, as_float
from .io import archive
from .io.archive import storable
from .objectives import LeastSquares, Objective, Ridge
from .solvers import FitStats, Prepared, Result, Solution, Solver, default_solver
from .solvers.algebra.dense import Groups
from .solvers.terms import Term, sum_terms
from .spaces import Space

OBJECTIVE = instance(Objective, "LeastSquares(...), Variance(...) or SpectralVariance(...)")
SOLVER = instance(Solver, "a solver such as Exact(), CG() or SGD()")


_HELD = float(np.sqrt(np.finfo(float).eps))  # half of the digits


class Method(NamedTuple):
    """How to fit: a family, and where they are given, objective and solver."""

    family: Family
    objective: Objective | None = None
    solver: Solver | None = None

    def complete(self, space: Space) -> tuple[Family, Objective, Solver | None]:
        """Return family, objective and solver, with the default objective: in other spaces than Rᵈ
        with a ridge that is next to nothing, as polynomials may be linearly dependent there (1 and
        ‖x‖² on a sphere)."""
        held = not space.is_flat and self.family.separate()[0] is not None
        default = LeastSquares(Ridge(_HELD)) if held else LeastSquares()
        return self.family, self.objective or default, self.solver


@storable
@dataclasses.dataclass(frozen=True, eq=False)
class Fitted:
    """Control variates g for q integrands, with f ≈ intercept + g.

    `fitted(sample)` gives g at any draws, (n, q). `refit` serves new integrands from the same
    factorisation. `stats` says what was solved and how; `result` how it ended.
    """

    family: Family
    objective: Objective
    standardisation: Standardisation | Placement
    terms: tuple[Term, ...]  # g is their sum
    intercept: Float64[np.ndarray, " q"]
    result: Result
    stats: FitStats
    names: tuple[str, ...] | None = None  # of the coordinates
    _work: _Work | None = dataclasses.field(default=None, repr=False, metadata={"stored": False})

    def __repr__(self) -> str:
        return (
            f"Fitted({self.family.describe()}, {len(self.intercept)} integrand(s), "
            f"{self.stats.form}, {self.result.name})"
        )

    def __call__(self, sample: Sample) -> Float64[np.ndarray, "n q"]:
        if not isinstance(sample, Sample):
            kind = type(sample).__name__
            raise ValueError(
                f"sample must be a zv.Sample(draws, scores); got {kind}. For arrays use "
                "fitted.at(draws, scores)"
            )
        return self.at(sample.draws, sample.scores)

    def at(self, draws: np.ndarray, scores: np.ndarray) -> Float64[np.ndarray, "n q"]:
        """Return g at draws and scores (n, d)."""
        refuse_fork()
        self._require_solved()
        space, d = self.standardisation.space, self.standardisation.dim
        draws = as_float("draws", draws)
        scores = as_float("scores", scores, impossible=space.is_countable)
        fits = draws.shape == scores.shape or (not space.is_flat and len(draws) == len(scores))
        if not fits or draws.shape != (len(draws) or 1, d):
            raise ValueError(
                f"draws and scores must be (n, d) with d = {d}, as fitted, and at least one row; "
                f"got {draws.shape} and "
                f"{scores.shape}. One point is draws[None], chains are draws.reshape(-1, d)"
            )
        x, s = self.standardisation(draws, scores)
        return sum_terms(self.terms, x, s, len(self.intercept))

    def chosen_terms(self) -> list[tuple[str, ...]]:
        """Return for each integrand the terms that the fit chose for it, in the names of the
        sample's coordinates, such as mu·tau: those with the largest coefficients first. They are
        terms in the standardised coordinates."""
        for term in self.terms:
            if (found := term.name_terms(self.names)) is not None:
                return found
        raise ValueError(
            f"{self.family.describe()} has all of its terms: a SparsePolynomial chooses some"
        )

    @takes(ridge=NOT_NEGATIVE)
    def refit(self, values: Any = None, ridge: float | None = None) -> Fitted:
        """Fit new integrands at the fitting draws, or (after `Spectral()`) another ridge, without a
        new factorisation."""
        work = self._require_work("refit")
        array = (
            work.values
            if values is None
            else work.draws.merge(as_values(values, work.sample).values)
        )
        if ridge is not None:
            if not work.prepared.any_ridge:
                raise ValueError(
                    "another ridge on the same factorisation needs solver=Spectral(); this fit was "
                    "factorised for one ridge"
                )
            ridge = self.objective.scale(work.draws.distinct.probabilities) * ridge
        ridge = work.ridge if ridge is None else ridge
        solution = work.prepared.solve(array, ridge)
        return dataclasses.replace(
            self,
            intercept=solution.intercept,
            terms=solution.terms,
            result=work.prepared.result,
            stats=self.stats | work.prepared.stats | ({} if ridge is None else {"ridge": ridge}),
            _work=dataclasses.replace(work, values=array, ridge=ridge),
        )

    def leave_out(self, groups: Groups | None = None) -> Float64[np.ndarray, "n q"]:
        """Return f − intercept − g at each fitting draw from the fit without that draw's group
        (None: without that draw), (n, q).

        `groups` partitions the rows of the sample; equal draws always leave together, but in
        countable spaces single ones leave alone: there a state that comes again is not one draw
        that was repeated.
        """
        work = self._require_work("leave_out")
        left_out = work.prepared.leave_out(work.values, work.merge_groups(groups), work.ridge)
        if groups is None and work.draws.come_again:
            return self._leave_out_of_equal(work, left_out[work.draws.group])
        return left_out[work.draws.group]

    def _leave_out_of_equal(
        self, work: _Work, together: Float64[np.ndarray, "n q"]
    ) -> Float64[np.ndarray, "n q"]:
        """Return residuals without single draws from those without all that are equal. A draw has a
        share of its state's leverage H, and residuals that saw it are 1 − H times those without."""
        sample = work.sample
        seen = work.values[work.draws.group] - self.intercept
        seen = seen - self.at(sample.draws, sample.scores)
        share = (
            work.draws.points.probabilities / work.draws.distinct.probabilities[work.draws.group]
        )[:, None]
        part = (1 - share) * together + share * seen
        return np.where(part == 0, 0.0, seen * together / np.where(part == 0, 1.0, part))

    def without(self, rows: RowNumbers) -> Float64[np.ndarray, "k q"]:
        """Return f − intercept − g at some fitting draws from the fit without all of them, (k,
        q)."""
        work = self._require_work("without")
        n = len(work.draws.group)
        some = where(
            f"numbers of some of the {n} fitting draws, from 0 on, and not of all",
            lambda rows: rows.ndim == 1 and len(rows) < n and 0 <= rows.min() <= rows.max() < n,
            read_whole_numbers,
        )
        states = work.draws.group[check_argument("rows", rows, some)]
        return work.prepared.leave_out(work.values, [np.unique(states)], work.ridge)[states]

    def intercept_weights(self) -> Float64[np.ndarray, " n"]:
        """Return w (n,) with intercept = Σ w f over the fitting draws; equal draws share the weight
        of their state."""
        work = self._require_work("intercept_weights")
        group = work.draws.group
        share = work.draws.points.probabilities / work.draws.distinct.probabilities[group]
        return work.prepared.intercept_weights(work.ridge)[group] * share

    @takes(path=PATH)
    def save(self, path: str | PathLike[str]) -> None:
        """Write to one file without pickle; `zv.load` reads it. A loaded fit evaluates, but has no
        factorisation to refit."""
        self._require_solved()
        archive.write(path, self)

    def _require_solved(self) -> None:
        require_solved(self.family, self.result)

    def _require_work(self, what: str) -> _Work:
        self._require_solved()
        if self._work is None:
            raise ValueError(
                f"{what} needs the factorisation, which a loaded fit does not have; call zv.fit "
                "again"
            )
        return self._work


@dataclasses.dataclass(frozen=True, eq=False)
class _Work:
    """What a fresh fit keeps to serve more integrands and leave-out residuals."""

    sample: Sample
    draws: FittingDraws
    prepared: Prepared
    values: Float64[np.ndarray, "m q"]  # at the distinct draws
    ridge: float | None = None  # other than the one that was factorised for

    def merge_groups(self, groups: Groups | None) -> Groups | None:
        if groups is None:
            return None
        group = self.draws.group
        partition = where(
            f"a partition of the {len(group)} rows of the sample, every row in exactly one group",
            lambda found: np.array_equal(np.sort(np.concatenate(found)), np.arange(len(group))),
            lambda value: [read_whole_numbers(rows) for rows in value],
        )
        groups = check_argument("groups", groups, partition)
        # A repeated draw that straddles a boundary goes whole to the group that it begins in
        label = np.full(len(self.values), len(groups))
        for k, rows in enumerate(groups):
            np.minimum.at(label, group[rows], k)
        return [
            rows for rows in (np.flatnonzero(label == k) for k in range(len(groups))) if len(rows)
        ]


@takes(
    family=FAMILY,
    sample=SAMPLE,
    objective=OBJECTIVE,
    solver=SOLVER,
    standardise=FLAG,
    throw=FLAG,
    seed=whole(0),
)
def fit(
    family: Family,
    sample: Sample,
    values: Any,
    objective: Objective | None = None,
    solver: Solver | None = None,
    standardise: bool = True,
    throw: bool = True,
    seed: int = 0,
) -> Fitted:
    """Choose g in `family` so that f − g is nearly constant on `sample`.

    `values` as in `zv.estimate`. Equal draws are merged into one with their counts.
    `standardise=False` keeps raw coordinates.
    solver: default `Exact()`; `CG()` or `SGD()` where that would take too long or too much memory,
        and `SGD()` for families with a network. `seed` is for those that are random.

    A numerical failure raises `NumericalError`, or with `throw=False` comes back as
    `fitted.result`.
    """
    refuse_fork()
    array = as_values(values, sample).values
    draws = FittingDraws(sample.points(), standardise)
    fitted = fit_draws(draws, array, Method(family, objective, solver), seed, sample, throw)
    if fitted.result is not Result.OK and not fitted.result.failed:
        warn(f"{fitted.family.describe()}: {fitted.result.value}", NumericalWarning)
    return fitted


def fit_draws(
    draws: FittingDraws,
    values: Float64[np.ndarray, "n q"],
    method: Method,
    seed: int,
    sample: Sample | None = None,
    throw: bool = True,
) -> Fitted:
    """Fit to checked draws, without warnings; `sample` is kept for refits where the draws are all
    of it."""
    family, objective, solver = method.complete(draws.points.space)
    started = time.perf_counter()
    distinct, merged = draws.distinct, draws.merge(values)
    standardisation = draws.standardisation(family.keeps)
    points = draws.standardise(family.keeps)
    check_family(family, points)
    solver = (
        default_solver(family, len(distinct), points.dim, merged.shape[1], objective)
        if solver is None
        else solver
    )
    family = settle(family, points, merged)
    solver.check(family, objective, points.dim)
    prepared = solver.prepare(family, objective, points, seed)
    solution = Solution(np.full(merged.shape[1], np.nan), ())
    if not prepared.result.failed:
        solution = prepared.solve(merged)
    stats = prepared.stats | {
        "draws": len(draws),
        "distinct_draws": draws.num_distinct,
        "standardisation": standardisation.kind,
        "seconds": time.perf_counter() - started,
    }
    work = _Work(sample, draws, prepared, merged) if sample is not None else None
    family = family if solution.family is None else solution.family
    names = None if sample is None else sample.names
    found = (solution.terms, solution.intercept, prepared.result, stats)
    fitted = Fitted(family, objective, standardisation, *found, names, work)
    if throw:
        fitted._require_solved()
    return fitted


def interruption(fold: int, folds: int) -> KeyboardInterrupt:
    """Return what Ctrl-C ends a cross-fitted training with."""
    return KeyboardInterrupt(
        f"interrupted in fold {fold} of {folds}: without all of them there is no estimate. With "
        "SGD(checkpoint=folder) the same call goes on from where it was; holdout() trains once, "
        "and keeps what it has"
    )


def require_solved(family: Family, result: Result) -> None:
    """Raise a NumericalError for a fit that failed."""
    if result.failed:
        raise NumericalError(f"{family.describe()}: {result.value}")
