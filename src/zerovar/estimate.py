"""estimate(): the one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .cautions import INDEPENDENT, Cautions
from .checks import check
from .families import Family, Polynomial
from .fitting import fit, fit_rows
from .integrands import as_values
from .objectives import Objective
from .result import Estimate
from .sample import Sample
from .solvers import Solver
from .splits import InSample, Split, blocks, in_sample
from .std_errors import autocorrelation_time, covariance, mean_and_error

_BLOCK_TIMES = 4  # chains are left out in blocks of this many autocorrelation times
_WATCHED = 40


def estimate(
    draws: Any,
    scores: Any,
    values: Any = None,
    *,
    family: Family | None = None,
    objective: Objective | None = None,
    solver: Solver | None = None,
    split: Split | None = None,
    names: Sequence[str] | None = None,
    log_weights: Any = None,
    standardise: bool = True,
) -> Estimate:
    """Estimate the means of integrands with control variates, and say how precise the answer is.

    draws, scores: (n, d), one chain in order, or (chain, draw, d); scores are ∇log π at the draws, on the draws' scale.
    values: the integrands at the draws, (n,), (n, q), (chain, draw), (chain, draw, q), a dict of name → such arrays, or
        a function of one draw (d,), vmapped; by default the draws themselves.
    family: default `Polynomial(2)`, or `Polynomial(1)` where there are fewer than two draws a term.
    objective: default `LeastSquares()`. solver: default `Exact()`.
    split: default `in_sample()`, whose value is the fitted intercept and whose error comes from leave-out residuals.
    log_weights: unnormalised log importance weights, (n,) or (chain, draw).

    Problems with the draws, scores or fit are warned of (`ZerovarWarning`) and kept in `estimate.warnings`.
    """
    sample = Sample(draws, scores, log_weights)
    array, found = as_values(sample.draws if values is None else values, sample, names)
    split = in_sample() if split is None else split
    if not isinstance(split, Split):
        raise ValueError(f"split must be in_sample(), holdout(fraction) or cross_fit(k); got {split!r}")
    family = _default_family(sample) if family is None else family
    sample.rows().merged(array)  # equal draws with other scores or values are an error, before anything is judged
    cautions = Cautions()
    cautions.scores(check(sample))
    cautions.constants(found, array)

    scale = np.abs(array).max(axis=0)
    plain, plain_error, _ = mean_and_error(sample.by_chain(array), sample.probabilities, scale)
    time = _slowest_time(sample, array)
    with cautions.collecting():
        if isinstance(split, InSample):
            run = _in_sample(family, sample, array, objective, solver, standardise, time)
        else:
            run = _out_of_fold(family, sample, array, objective, solver, standardise, split)
    probabilities = sample.probabilities[run.rows]
    value, error, influence = mean_and_error(run.series, probabilities / probabilities.sum(), scale)
    if run.intercept is not None:
        # The mean of the leave-out residuals estimates how far the intercept itself is off. On nine real posteriors this bound
        # lifts the coverage of 1.96 errors by kernel families from 88 % to 96 %, and leaves polynomials as they are.
        error = np.maximum(error, np.abs(value))
        value = run.intercept
    cautions.size(len(sample), time, run.stats)
    cautions.tails(found, run.series)
    cautions.agreement(found, np.abs(value - plain) / np.hypot(plain_error, error))
    return Estimate(
        names=found,
        value=value,
        std_error=error,
        plain_value=plain,
        plain_std_error=plain_error,
        covariance=covariance(influence, error),
        num_draws=len(sample),
        family=run.family,
        split=split.describe(),
        warnings=tuple(cautions.texts),
        stats=run.stats | {"autocorrelation_time": time},
    )


class _Run(NamedTuple):
    """What a split makes of the draws: the series (chain, draw, q) whose scatter is the error, at these rows of the sample."""

    intercept: np.ndarray | None  # the value, where it is not the mean of the series
    series: np.ndarray
    rows: np.ndarray
    stats: dict[str, Any]
    family: Family


def _in_sample(family, sample, values, objective, solver, standardise, time) -> _Run:
    fitted = fit(family, sample, values, objective, solver, standardise)
    groups = None if time < INDEPENDENT else blocks(sample, int(np.ceil(_BLOCK_TIMES * time)))
    residuals = sample.by_chain(fitted.leave_out(groups))
    stats = fitted.stats | {"left_out": "single draws" if groups is None else f"{len(groups)} blocks"}
    return _Run(fitted.intercept, residuals, np.arange(len(sample)), stats, fitted.family)


def _out_of_fold(family, sample, values, objective, solver, standardise, split) -> _Run:
    residuals = np.full_like(values, np.nan)
    for fitting, estimating in split.folds(sample):
        fitted = fit_rows(family, sample.take(fitting), values[fitting], objective, solver, standardise)
        residuals[estimating] = values[estimating] - fitted.at(sample.draws[estimating], sample.scores[estimating])
    rows = np.flatnonzero(~np.isnan(residuals[:, 0]))
    series = residuals[rows].reshape(sample.num_chains, -1, values.shape[1])
    return _Run(None, series, rows, fitted.stats, family)


def _default_family(sample: Sample) -> Family:
    d = sample.dim
    return Polynomial(2) if d * (d + 3) <= len(sample) else Polynomial(1)


def _slowest_time(sample: Sample, values: np.ndarray) -> float:
    """The longest autocorrelation time among the integrands and the coordinates, or a few dozen of each."""
    watched = np.unique(np.linspace(0, sample.dim - 1, min(sample.dim, _WATCHED)).astype(int))
    both = np.concatenate([sample.draws[:, watched], values[:, :_WATCHED]], axis=1)
    return autocorrelation_time(sample.by_chain(both))
