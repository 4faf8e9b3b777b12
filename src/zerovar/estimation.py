"""estimate(): the one call; and check(), what it begins with."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from .adapters import recognise
from .arguments import FLAG, SHARE, takes, whole
from .choice import CHOICE, SCORE_ERROR, Automatic, Forms, Known, Request, choose
from .chunked import estimate_chunked, is_chunked
from .diagnostics import Check, check_sample
from .families import Family
from .fitting import OBJECTIVE, SOLVER
from .inference import rules
from .inference.cautions import Cautions
from .inference.conclude import conclude, describe_settings
from .inference.facts import Facts, ScoreFacts
from .inference.fits import default_split, fit_answer
from .inference.splits import SPLIT, Split, in_sample
from .inference.task import Task
from .inputs.integrands import as_values
from .inputs.sample import Posterior, Sample
from .objectives import Objective
from .output import Estimate
from .solvers import Solver


@takes(
    family=CHOICE,
    objective=OBJECTIVE,
    solver=SOLVER,
    split=SPLIT,
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
        of the posterior, or the draws themselves. Booleans are events, and so are
        numbers that are all 0 or 1.
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
    score_error: a relative error of the scores that standard errors are to carry, such as 0.001 for
        gradients by finite differences; "verified" for all that `zv.check` could not see, which
        leaves little but plain means. By default scores count as exact; `estimate.scores` says
        where they come from.
    seed: for solvers that are random; the same seed gives the same numbers.

    Arrays may be chunked, larger than memory: dask arrays, or xarray opened with `chunks=`; then
    all of them must be. They are read on the cluster that Dask is set to: once for `Exact()` and a
    family with features, by default the polynomial of the highest degree up to three with at most
    600 terms and twenty draws for each; window by window for `SGD()`, the default of networks. The
    split is `cross_fit()` or `holdout()`.

    Problems with the draws, scores or fit are warned of (`ZerovarWarning`) and kept in
    `estimate.warnings`.
    """
    request = Request(family, objective, solver, split, standardise, seed, score_error)
    posterior = _posterior(draws, scores, values, log_weights)
    arrays = (posterior.draws, posterior.scores, posterior.values, posterior.log_weights)
    if any(map(is_chunked, arrays)):
        return estimate_chunked(posterior, names, request)
    return Session.of(posterior).estimate(posterior.values, names, request)


@dataclasses.dataclass(frozen=True, eq=False)
class Session:
    """A sample in memory, checked once, and what tuning for some integrands has taught for others.

    `forms` are other coordinates, by name, in which the draws may do better; `divergences` how many
    of the sampler's transitions diverged.
    """

    sample: Sample
    verdict: Check
    forms: Forms
    divergences: int = 0
    learned: dict[str, Known] = dataclasses.field(default_factory=dict)

    @staticmethod
    def of(posterior: Posterior) -> "Session":
        """Check the draws and scores of a posterior."""
        sample = posterior.sample
        return Session(sample, check_sample(sample), posterior.coordinates, posterior.divergences)

    def estimate(
        self, values: Any, names: Sequence[str] | None = None, request: Request | None = None
    ) -> Estimate:
        """Estimate means of integrands, with what was learned from others."""
        request, sample = Request() if request is None else request, self.sample
        if values is None:
            values = {f"x{j}": column for j, column in enumerate(sample.draws.T)}
        array, found, events = as_values(values, sample, names)
        split = request.split
        task = Task.of(sample, array, request.standardise, request.seed)
        cautions = Cautions()
        cautions.add_divergences(self.divergences, len(sample))
        cautions.add_check(self.verdict)
        selection = None
        if request.automatic is not None:
            choice = choose(task, found, request.automatic, self.forms, self.learned)
            answer, selection, split = choice.answer, choice.selection, in_sample()
            self.learned.update(choice.learned)
        else:
            method = request.method(len(sample), sample.dim)
            split = default_split(task, method) if split is None else split
            answer = fit_answer(task, method, split)
        scores = ScoreFacts.of(sample, self.verdict, array, request.score_error)
        return conclude(
            answer,
            Facts.in_memory(task, found, events, scores),
            rules.ONE_FAMILY if selection is None else rules.STACK,
            cautions,
            split=split.describe(),
            settings=describe_settings(sample, array, **request.describe()),
            selection=selection,
        )


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


def _posterior(draws: Any, scores: Any, values: Any, log_weights: Any) -> Posterior:
    """The posterior in place of draws and scores, with these values if there are some; or one that
    is made of the arrays."""
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
        return Posterior(draws, scores, values, log_weights=log_weights)
    if scores is not None or log_weights is not None:
        raise ValueError(
            f"a {type(draws).__name__} has scores and weights of its own: leave scores and "
            "log_weights out"
        )
    return posterior if values is None else dataclasses.replace(posterior, values=values)
