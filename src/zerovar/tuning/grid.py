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
from .criteria import Criterion, CrossValidation, Values
from .descent import Descent, Tuned, mean_diagonal, penalised_part


class GridPoint(NamedTuple):
    """A family of a grid, with mean squared residuals over all draws at each strength of ridge."""

    family: LinearFamily
    strengths: Float64[np.ndarray, " r"]
    squares: Float64[np.ndarray, "r q"]
    num_draws: int


def grid_point(
    family: Family,
    sample: Sample,
    values: Values,
    criterion: Criterion,
    ridges: Sequence[float],
    standardise: bool,
) -> GridPoint:
    """Evaluate one family of the grid at every ridge."""
    draws = FittingDraws(sample.points(), standardise)
    start = Descent.on(family, draws, values, draws)
    strengths = (
        np.asarray(ridges, dtype=float)
        * mean_diagonal(penalised_part(start.family), start.points)
        / len(sample)
    )
    method = Method(family, LeastSquares(Ridge(0.0)), any_ridge_solver())
    residuals = np.empty((len(strengths), *values.shape))
    if isinstance(criterion, CrossValidation):
        for fitting, rest in cross_fit(criterion.k).folds(sample):
            part = FittingDraws(sample.points(fitting), standardise)
            fitted = fit_draws(part, values[fitting], method, 0, sample)
            for i, strength in enumerate(strengths):
                again = fitted.refit(ridge=strength)
                g = again.at(sample.draws[rest], sample.scores[rest])
                residuals[i, rest] = values[rest] - again.intercept - g
    else:
        fitted = fit_draws(draws, values, method, 0, sample)
        for i, strength in enumerate(strengths):
            residuals[i] = fitted.refit(ridge=strength).leave_out()
    squares = np.einsum("n,rnq->rq", sample.probabilities, residuals**2)
    return GridPoint(start.family, strengths, squares, len(sample))


def best_on_grid(candidates: Sequence[GridPoint], columns: np.ndarray, size: int) -> Tuned:
    """Return the family and ridge with the least mean loss over some integrands, for `size`
    draws."""
    tiny = np.finfo(float).tiny
    losses = [
        np.log(np.maximum(candidate.squares[:, columns], tiny)).mean(axis=1)
        for candidate in candidates
    ]
    best = min(range(len(candidates)), key=lambda k: losses[k].min())
    chosen, ridge = candidates[best], int(losses[best].argmin())
    # the same noise, whatever the number of draws
    strength = chosen.strengths[ridge] * chosen.num_draws / size
    evaluations = sum(len(candidate.strengths) for candidate in candidates)
    return Tuned(
        chosen.family, LeastSquares(Ridge(strength)), float(losses[best][ridge]), evaluations
    )
