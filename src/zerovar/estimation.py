"""estimate(): the one call; and check(), what it begins with."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from .adapters import recognise
from .arguments import FLAG, SHARE, takes, whole
from .choice import CHOICE, SCORE_ERROR, Automatic, Request
from .chunked import estimate_chunked, is_chunked
from .diagnostics import Check, check_sample
from .families import Family
from .fitting import OBJECTIVE, SOLVER
from .inference.splits import SPLIT, Split
from .inputs.sample import Posterior, Sample
from .objectives import Objective
from .output import Estimate
from .probabilities import estimate_with_events
from .session import Session
from .solvers import Solver
from .spaces import REALS, SPACE, Space


@takes(
    family=CHOICE,
    objective=OBJECTIVE,
    solver=SOLVER,
    split=SPLIT,
    space=SPACE,
    standardise=FLAG,
    score_error=SCORE_ERROR,
    seed=whole(0),
)
def estimate(
    draws: Any,
    scores: Any = None,
    values: Any = None,
    *,
    family: Family | Automatic | None = None,
    objective: Objective | None = None,
    solver: Solver | None = None,
    split: Split | None = None,
    names: Sequence[str] | None = None,
    log_weights: Any = None,
    space: Space | None = None,
    standardise: bool = True,
    score_error: float | str = 0.0,
    seed: int = 0,
) -> Estimate:
    """Estimate the means of integrands with control variates, and say how precise the answer is.

    draws, scores: (n, d), one chain in order, or (chain, draw, d); scores are ∇log π at the draws,
        on the draws' scale. Or in place of both what has them: an adapter's `Posterior`, NumPyro's
        MCMC after its run, ArviZ's data with gradients.
    values: the integrands at the draws, (n,), (n, q), (chain, draw), (chain, draw, q), a dict of
        name → such arrays, a data frame, or a function of one draw (d,), vmapped; by default those
        of the posterior, or the draws themselves. They must not be fitted to these draws (a
        residual about their own mean): plain means are then too exact, and answers are judged by
        these. Booleans are events, and so are numbers that are
        all 0 or 1. Of a posterior a dict may also have comparisons of its named values, such as
        "tau > 5", and, where it knows its log density, functions of one draw on the natural scale.
    family: what the control variates are taken from. By default, `Automatic()`, candidates from
        none to tuned sums of polynomials and kernels are compared and combined for each integrand;
        `estimate.selection` says what was taken and why.
    objective, solver, split: how to fit the family that is given (without one, a polynomial as
        large as the draws allow).
    objective: default `LeastSquares()`.
    solver: default `Exact()`; `CG()` or `SGD()` where that would take too long or too much memory,
        and `SGD()` for families with a network.
    split: default `in_sample()`, whose value is the fitted intercept and whose error comes from
        leave-out residuals, where the solver has those in closed form, and `cross_fit()` where it
        has not.
    log_weights: unnormalised log importance weights, (n,) or (chain, draw).
    space: where the draws live, if it is not Rᵈ: `Torus()` for angles, `Sphere()` for directions,
        `Simplex()` for proportions, `Box(low, high)` for coordinates that end at bounds, `Grid(low,
        high)` for spins, indicators and counts; scores are what the space says.
    score_error: a relative error of the scores that standard errors are to carry, such as 0.001 for
        gradients by finite differences; "verified" for all that `zv.check` could not see, which
        leaves little but plain means. By default scores count as exact; `estimate.scores` says
        where they come from.
    seed: for solvers that are random; the same seed gives the same numbers.

    Arrays may be chunked, larger than memory: dask arrays, or xarray opened with `chunks=`; then
    all of them must be. They are read on the cluster that Dask is set to: once for `Exact()` and a
    family with features, by default the polynomial of the highest degree up to three with at most
    600 terms and ten draws for each; window by window for `SGD()`, the default of networks. The
    split is `cross_fit()` or `holdout()`.

    Problems with the draws, scores or fit are warned of (`ZerovarWarning`) and kept in
    `estimate.warnings`.
    """
    request = Request(family, objective, solver, split, standardise, seed, score_error)
    posterior = _posterior(draws, scores, values, log_weights, space)
    values = posterior.values if values is None else values
    if any(map(is_chunked, (posterior.draws, posterior.scores, values, posterior.log_weights))):
        return estimate_chunked(dataclasses.replace(posterior, values=values), names, request)
    return estimate_with_events(Session.of(posterior), values, names, request)[0]


@takes(level=SHARE)
def check(sample: Any, level: float = 0.001) -> Check:
    """Test whether these are the scores of these draws, and the draws laid out as chains; `level`
    is the nominal probability that right ones fail.

    sample: a `zv.Sample(draws, scores)`, what an adapter returns, NumPyro's MCMC after its run, an
        InferenceData or DataTree that has gradients, or one chain of BlackJAX's states.
    """
    found = sample if isinstance(sample, Sample) else recognise(sample)
    if found is None:
        raise ValueError(
            "sample must be a zv.Sample(draws, scores), an adapter's Posterior, NumPyro's MCMC "
            "after its run, or an InferenceData or DataTree with gradients; got "
            f"{type(sample).__name__}"
        )
    return check_sample(found, level)


def _posterior(
    draws: Any, scores: Any, values: Any, log_weights: Any, space: Space | None
) -> Posterior:
    """The posterior in place of draws and scores, or one that is made of the arrays."""
    posterior = recognise(draws)
    if posterior is None:
        if scores is None:
            kinds = (
                "an adapter's Posterior, NumPyro's MCMC after its run, or an InferenceData or "
                "DataTree with gradients"
            )
            raise ValueError(
                "scores, the gradients of the log density at the draws, are needed beside draws; "
                f"got {type(draws).__name__} alone. In place of both: {kinds}; "
                "zv.from_log_density computes them"
            )
        where = REALS if space is None else space
        return Posterior(draws, scores, values, log_weights=log_weights, space=where)
    if scores is not None or log_weights is not None or space is not None:
        raise ValueError(
            f"a {type(draws).__name__} has scores, weights and a space of its own: leave scores, "
            "log_weights and space out"
        )
    return posterior
