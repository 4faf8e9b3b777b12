"""What a family makes of the draws: a value for each integrand, and the series whose scatter is its error."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64

from .families import Family
from .fitting import fit_rows
from .objectives import LeastSquares, Objective
from .sample import Sample
from .solvers import Result, Solver, default_solver
from .splits import OutOfFold, RowNumbers, Split, blocks, cross_fit, in_sample
from .std_errors import INDEPENDENT

_BLOCK_TIMES = 4  # chains are left out in blocks of this many autocorrelation times


class Recipe(NamedTuple):
    """How to fit: everything but the draws and the integrands."""

    family: Family
    objective: Objective | None = None
    solver: Solver | None = None
    standardise: bool = True
    seed: int = 0


class Run(NamedTuple):
    """A fit's answer. `series` (chain, draw, q) has the mean `value`, or where the value is a fitted intercept it is the
    series of influences on it; `probabilities` says what its entries count."""

    intercept: Float64[np.ndarray, " q"] | None  # the value, where it is not the mean of the series
    series: Float64[np.ndarray, "chain draw q"]
    probabilities: Float64[np.ndarray, " n"]
    results: list[Result]
    stats: dict[str, Any]
    family: Family | None
    rows: RowNumbers | None = None  # the draws that the series is at, where they are not all

    @property
    def value(self) -> Float64[np.ndarray, " q"]:
        flat = self.series.reshape(-1, self.series.shape[2])
        return self.probabilities @ flat if self.intercept is None else self.intercept

    @property
    def influence(self) -> Float64[np.ndarray, "n q"]:
        """n times what each draw adds to the value, about zero, whichever way the value came about."""
        flat = self.series.reshape(-1, self.series.shape[2])
        if self.intercept is not None:
            return flat
        return len(flat) * self.probabilities[:, None] * (flat - self.value)


def default_split(
    family: Family, sample: Sample, q: int, objective: Objective | None = None, solver: Solver | None = None
) -> Split:
    """In sample where leave-out residuals come in closed form and are honest, else cross-fitting."""
    objective = LeastSquares() if objective is None else objective
    if not (isinstance(family, Family) and isinstance(objective, Objective) and isinstance(solver, Solver | None)):
        return cross_fit()  # the fit will say what is wrong
    solver = default_solver(family, len(sample), sample.dim, q, objective) if solver is None else solver
    return in_sample() if solver.leaves_out(objective) and not family.sees_values else cross_fit()


def left_out(sample: Sample, time: float) -> list[RowNumbers] | None:
    """The groups that leave-out residuals leave out: blocks of a chain that is slow, None for single draws."""
    return None if time < INDEPENDENT else blocks(sample, int(np.ceil(_BLOCK_TIMES * time)))


def in_sample_run(recipe: Recipe, sample: Sample, values: np.ndarray, groups: list[RowNumbers] | None) -> Run:
    """The intercept, and the series n w r, w its weights and r the leave-out residuals.

    Leaving draws out moves the intercept by Σ w r over them, exactly, so this is its influence series: the weights matter where
    a rich family gives draws in the tails far more or less than 1/n.
    """
    family, objective, solver, standardise, seed = recipe
    if family.sees_values:
        raise ValueError(
            f"{family.describe()} chooses directions by the integrands at all fitting draws, so that in_sample() has no honest "
            "standard error for it. Use split=cross_fit() or holdout()"
        )
    fitted = fit_rows(family, sample.rows(), values, objective, solver, standardise, seed=seed, sample=sample)
    residuals = fitted.leave_out(groups)
    influence = len(sample) * fitted.intercept_weights()[:, None] * residuals
    stats = fitted.stats | {"left_out": "single draws" if groups is None else f"{len(groups)} blocks"}
    equal = np.full(len(sample), 1 / len(sample))  # the weights hold the probabilities already
    return Run(fitted.intercept, sample.by_chain(influence), equal, [fitted.result], stats, fitted.family)


def out_of_fold_run(recipe: Recipe, sample: Sample, values: np.ndarray, split: OutOfFold) -> Run:
    """f − g, each draw by a fit that did not see it."""
    family, objective, solver, standardise, seed = recipe
    folds = split.folds(sample)
    residuals = np.empty_like(values)
    results = []
    for fitting, estimating in folds:
        fitted = fit_rows(family, sample.take(fitting), values[fitting], objective, solver, standardise, seed=seed)
        residuals[estimating] = values[estimating] - fitted.at(sample.draws[estimating], sample.scores[estimating])
        results.append(fitted.result)
    rows = np.sort(np.concatenate([estimating for _, estimating in folds]))
    series = residuals[rows].reshape(sample.num_chains, -1, values.shape[1])
    return Run(None, series, sample.take(rows).probabilities, results, fitted.stats, family, rows)


def run(recipe: Recipe, sample: Sample, values: np.ndarray, split: Split, time: float) -> Run:
    if isinstance(split, OutOfFold):
        return out_of_fold_run(recipe, sample, values, split)
    return in_sample_run(recipe, sample, values, left_out(sample, time))


def plain_run(sample: Sample, values: np.ndarray) -> Run:
    """No control variate at all."""
    distinct = len(sample.rows().merged(values)[0].draws)
    stats = {"form": "plain", "unknowns": 0, "draws": len(sample), "distinct_draws": distinct}
    return Run(None, sample.by_chain(values), sample.probabilities, [], stats, None)
