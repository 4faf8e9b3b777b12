"""estimate(): the one call."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .answers import answer_of, default_split, plain_answer
from .choice import Automatic, choose
from .choice.defaults import polynomial
from .chunked import estimate_chunked, is_chunked
from .conclusion import Evidence, concluded, settings
from .diagnostics import Cautions, check
from .families import Family
from .fitting import Method, check_call
from .integrands import as_values
from .objectives import Objective
from .output import Estimate, Traces
from .sample import Sample
from .solvers import Solver
from .splits import Split
from .std_errors import r_hat, some_columns
from .task import Task


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
    check_call(standardise, seed)
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
        family = polynomial(len(sample), sample.dim) if spelled_out else Automatic()
    if isinstance(family, Automatic) and spelled_out:
        raise ValueError("Automatic chooses objective, solver and split itself; leave them out, or give a family")
    if not (split is None or isinstance(split, Split)):
        raise ValueError(f"split must be in_sample(), holdout(fraction) or cross_fit(k); got {split!r}")
    task = Task.of(sample, array, standardise, seed)
    cautions = Cautions()
    cautions.scores(check(sample))
    cautions.constants(found, array)
    evidence = Evidence(
        names=found,
        plain=plain_answer(task),
        scale=task.scale,
        chains=sample.num_chains,
        length=len(sample) // sample.num_chains,
        autocorrelation=task.autocorrelation,
        kish=float(1 / np.sum(sample.probabilities**2)),
        r_hat=(r_hat(sample.by_chain(array)), r_hat(sample.by_chain(some_columns(sample.draws)))),
    )
    selection = None
    if isinstance(family, Automatic):
        answer, selection = choose(task, found, family)
    else:
        method = Method(family, objective, solver)
        split = default_split(task, method) if split is None else split
        answer = answer_of(task, method, split)
    at = array if answer.rows is None else array[answer.rows]
    return concluded(
        evidence,
        answer,
        cautions,
        family=None if isinstance(family, Automatic) else family,
        split="in sample" if split is None else split.describe(),
        settings=settings(sample, array, family, objective, solver, split) | {"standardise": standardise, "seed": seed},
        selection=selection,
        traces=Traces(at.reshape(answer.influences.shape), answer.influences),
    )
