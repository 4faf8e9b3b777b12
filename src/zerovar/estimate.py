"""estimate(): the one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .automatic import Automatic, choose
from .cautions import DRAWS_PER_TERM, Cautions
from .checks import check
from .chunked import estimate_chunked, is_chunked
from .families import Family, Polynomial
from .fitting import check_seed
from .integrands import as_values
from .objectives import Objective
from .result import Estimate, Traces, settings
from .runs import Recipe, Run, default_split, run
from .sample import Sample
from .solvers import Solver
from .splits import Split
from .std_errors import (
    autocorrelation_time,
    batch_sums,
    covariance,
    mean_and_error,
    r_hat,
    relative_uncertainty,
    some_columns,
    stretches_apart,
)


def estimate(
    draws: Any,
    scores: Any,
    values: Any = None,
    *,
    family: Family | Automatic | None = None,
    objective: Objective | None = None,
    solver: Solver | None = None,
    split: Split | None = None,
    names: Sequence[str] | None = None,
    log_weights: Any = None,
    standardise: bool = True,
    seed: int = 0,
) -> Estimate:
    """Estimate the means of integrands with control variates, and say how precise the answer is.

    draws, scores: (n, d), one chain in order, or (chain, draw, d); scores are ∇log π at the draws, on the draws' scale.
    values: the integrands at the draws, (n,), (n, q), (chain, draw), (chain, draw, q), a dict of name → such arrays,
        a data frame, or a function of one draw (d,), vmapped; by default the draws themselves.
    family: what the control variates are taken from. By default, `Automatic()`, candidates from none to tuned sums of
        polynomials and kernels are compared and combined for each integrand; `estimate.selection` says what was taken and why.
    objective, solver, split: how to fit the family that is given (without one, a polynomial as large as the draws allow).
        objective: default `LeastSquares()`. solver: default `Exact()`; `CG()` or `SGD()` where that would take too long or too
            much memory, and `SGD()` for families with a network.
        split: default `in_sample()`, whose value is the fitted intercept and whose error comes from leave-out residuals, where
            the solver has those in closed form, and `cross_fit()` where it has not.
    log_weights: unnormalised log importance weights, (n,) or (chain, draw).
    seed: for solvers that are random; the same seed gives the same numbers.

    Arrays may be chunked, larger than memory: dask arrays, or xarray opened with `chunks=`; then all of them must be. They are
    read on the cluster that Dask is set to: once for `Exact()` and a family with features, by default the polynomial of the
    highest degree up to three with at most 600 terms and twenty draws for each; window by window for `SGD()`, the default of
    networks. The split is `cross_fit()` or `holdout()`.

    Problems with the draws, scores or fit are warned of (`ZerovarWarning`) and kept in `estimate.warnings`.
    """
    check_seed(seed)
    if any(map(is_chunked, (draws, scores, values, log_weights))):
        return estimate_chunked(
            draws,
            scores,
            values,
            family=family,
            objective=objective,
            solver=solver,
            split=split,
            names=names,
            log_weights=log_weights,
            standardise=standardise,
            seed=seed,
        )
    sample = Sample(draws, scores, log_weights)
    if values is None:
        values = {f"x{j}": column for j, column in enumerate(sample.draws.T)}
    array, found = as_values(values, sample, names)
    spelled_out = not (objective is None and solver is None and split is None)
    if family is None:
        family = _polynomial(sample) if spelled_out else Automatic()
    if isinstance(family, Automatic):
        if spelled_out:
            raise ValueError("Automatic chooses objective, solver and split itself; leave them out, or give a family")
    else:
        split = default_split(family, sample, array.shape[1], objective, solver) if split is None else split
        if not isinstance(split, Split):
            raise ValueError(f"split must be in_sample(), holdout(fraction) or cross_fit(k); got {split!r}")
    sample.rows().merged(array)  # equal draws with other scores or values are an error, before anything is judged
    cautions = Cautions()
    cautions.scores(check(sample))
    cautions.constants(found, array)

    size = np.abs(array).max(axis=0)
    scale = np.where(size > 0, size, 1.0)
    plain, plain_error, _ = mean_and_error(sample.by_chain(array), sample.probabilities, scale)
    time = _slowest_time(sample, array)
    cautions.convergence(
        found,
        len(sample) // sample.num_chains,
        r_hat(sample.by_chain(array)),
        r_hat(sample.by_chain(some_columns(sample.draws))),
    )
    selection = None
    if isinstance(family, Automatic):
        answer, selection = choose(found, sample, array, family, standardise, seed, time)
    else:
        assert split is not None
        answer = run(Recipe(family, objective, solver, standardise, seed), sample, array, split, time)
        cautions.numerics(family, answer.results)
    value, error, influence = mean_and_error(answer.series, answer.probabilities, scale)
    if answer.intercept is not None:
        # The mean of the influences estimates the intercept's own bias. On nine real posteriors this bound lifts the coverage
        # of 1.96 errors by an interpolating kernel from 89 % to 97 %, and leaves polynomials as they are.
        error = np.maximum(error, np.abs(value))
        value = answer.intercept
    if selection is not None:
        # The best of several is chosen on the same draws, and an error that a few of them carry is itself uncertain: its upper
        # standard error is what is reported.
        doubt = relative_uncertainty(batch_sums(answer.series, time))
        error *= np.sqrt(1 + doubt * selection.helped)
    cautions.size(len(sample), time, float(1 / np.sum(sample.probabilities**2)), answer.stats)
    cautions.tails(found, answer.series, answer.intercept is not None)
    cautions.stretches(found, stretches_apart(answer.influence.reshape(answer.series.shape)))
    cautions.usefulness(found, (plain_error / error) ** 2)
    cautions.agreement(found, np.abs(value - plain) / np.hypot(plain_error, error))
    return Estimate(
        names=found,
        value=value,
        std_error=error,
        plain_value=plain,
        plain_std_error=plain_error,
        covariance=covariance(influence, error),
        num_draws=len(sample),
        family=answer.family,
        split="in sample" if split is None else split.describe(),
        selection=selection,
        warnings=tuple(cautions.texts),
        stats=answer.stats | {"autocorrelation_time": time},
        settings=settings(sample, array, family, objective, solver, split) | {"standardise": standardise, "seed": seed},
        traces=Traces(_like(answer, array), answer.influence.reshape(answer.series.shape)),
    )


def _polynomial(sample: Sample) -> Family:
    quadratic = Polynomial(2)
    return quadratic if DRAWS_PER_TERM * quadratic.num_features(sample.dim) <= len(sample) else Polynomial(1)


def _like(answer: Run, values: np.ndarray) -> np.ndarray:
    """The values at the draws of the answer's series, in its shape."""
    return (values if answer.rows is None else values[answer.rows]).reshape(answer.series.shape)


def _slowest_time(sample: Sample, values: np.ndarray) -> float:
    """The longest autocorrelation time among the integrands and the coordinates, or a few dozen of each."""
    return autocorrelation_time(sample.by_chain(np.concatenate([some_columns(sample.draws), some_columns(values)], axis=1)))
