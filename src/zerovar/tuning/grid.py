"""Families and ridges on a grid, each compared by leave-one-out from one eigendecomposition, or by
cross-validation."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from ..families import Family, LinearFamily
from ..fitting import Method, fit_draws
from ..inference.splits import cross_fit
from ..inputs.points import FittingDraws
from ..inputs.sample import Sample
from ..objectives import LeastSquares, Ridge
from ..solvers import any_ridge_solver
from .criteria import Criterion, CrossValidation, LeaveOneOut, Values
from .descent import Descent, Tuned, mean_diagonal, penalised_part

RIDGES = tuple(10.0 ** np.arange(-14, 1))  # relative to the mean diagonal of the Gram


class GridPoint(NamedTuple):
    """A candidate of a grid: mean squared residuals (ridges, q) at each strength, over all
    draws."""

    family: LinearFamily
    strengths: Float64[np.ndarray, " r"]
    squares: Float64[np.ndarray, "r q"]
    draws: int


def grid_point(
    family: Family,
    sample: Sample,
    values: Values,
    criterion: Criterion,
    ridges: Sequence[float],
    standardise: bool,
) -> GridPoint:
    """One family of the grid at every ridge."""
    draws = FittingDraws(sample.points(), standardise)
    start = Descent.on(family, draws, values, draws)
    strengths = (
        np.asarray(ridges, dtype=float)
        * mean_diagonal(penalised_part(start.family), start.points)
        / len(sample)
    )
    method = Method(family, LeastSquares(Ridge(0.0)), any_ridge_solver())
    squares = np.empty((len(strengths), values.shape[1]))
    if isinstance(criterion, LeaveOneOut):
        fitted = fit_draws(draws, values, method, 0, sample)
        for i, strength in enumerate(strengths):
            squares[i] = sample.probabilities @ fitted.refit(ridge=strength).leave_out() ** 2
        return GridPoint(start.family, strengths, squares, len(sample))
    assert isinstance(criterion, CrossValidation)
    residuals = np.empty((len(strengths), *values.shape))
    for fitting, held in cross_fit(criterion.k).folds(sample):
        fitted = fit_draws(
            FittingDraws(sample.points(fitting), standardise), values[fitting], method, 0, sample
        )
        for i, strength in enumerate(strengths):
            again = fitted.refit(ridge=strength)
            residuals[i, held] = (
                values[held] - again.intercept - again.at(sample.draws[held], sample.scores[held])
            )
    squares[:] = np.einsum("n,rnq->rq", sample.probabilities, residuals**2)
    return GridPoint(start.family, strengths, squares, len(sample))


def best_on_grid(points: Sequence[GridPoint], columns: np.ndarray, size: int) -> Tuned:
    tiny = np.finfo(float).tiny
    losses = [
        np.log(np.maximum(candidate.squares[:, columns], tiny)).mean(axis=1) for candidate in points
    ]
    best = min(range(len(points)), key=lambda k: losses[k].min())
    chosen, ridge = points[best], int(losses[best].argmin())
    # the same noise, whatever the number of draws
    strength = chosen.strengths[ridge] * chosen.draws / size
    evaluations = sum(len(candidate.strengths) for candidate in points)
    return Tuned(
        chosen.family, LeastSquares(Ridge(strength)), float(losses[best][ridge]), evaluations
    )
