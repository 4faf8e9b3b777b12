"""estimate(): the one call."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from .adapters import recognise
from .choice import Automatic, Forms, Known, choose
from .choice.defaults import polynomial
from .chunked import estimate_chunked, is_chunked
from .diagnostics import Check, check
from .families import Family
from .fitting import Method, check_call
from .inference.answers import answer_of, default_split
from .inference.cautions import Cautions
from .inference.conclude import Evidence, concluded, settings, traces_of
from .inference.splits import Split
from .inference.task import Task
from .inputs.integrands import as_values
from .inputs.sample import Sample
from .objectives import Objective
from .output import Estimate
from .solvers import Solver


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
    seed: int = 0,
) -> Estimate:
    """Estimate the means of integrands with control variates, and say how precise the answer is.

    draws, scores: (n, d), one chain in order, or (chain, draw, d); scores are ∇log π at the draws,
        on the draws' scale. Or in place of both what has them: an adapter's `Posterior`, NumPyro's
        MCMC after its run, ArviZ's data with gradients.
    values: the integrands at the draws, (n,), (n, q), (chain, draw), (chain, draw, q), a dict of
        name → such arrays, a data frame, or a function of one draw (d,), vmapped; by default those
        of the posterior, or the draws themselves. Booleans are events.
    family: what the control variates are taken from. By default, `Automatic()`, candidates from
        none to tuned sums of polynomials and kernels are compared and combined for each integrand;
        `estimate.selection` says what was taken and why.
    objective, solver, split: how to fit the family that is given (without one, a polynomial as
        large as the draws allow). objective: default `LeastSquares()`. solver: default `Exact()`;
        `CG()` or `SGD()` where that would take too long or too
            much memory, and `SGD()` for families with a network.
        split: default `in_sample()`, whose value is the fitted intercept and whose error comes from
            leave-out residuals, where the solver has those in closed form, and `cross_fit()` where
            it has not.
    log_weights: unnormalised log importance weights, (n,) or (chain, draw).
    seed: for solvers that are random; the same seed gives the same numbers.

    Arrays may be chunked, larger than memory: dask arrays, or xarray opened with `chunks=`; then
    all of them must be. They are read on the cluster that Dask is set to: once for `Exact()` and a
    family with features, by default the polynomial of the highest degree up to three with at most
    600 terms and twenty draws for each; window by window for `SGD()`, the default of networks. The
    split is `cross_fit()` or `holdout()`.

    Problems with the draws, scores or fit are warned of (`ZerovarWarning`) and kept in
    `estimate.warnings`.
    """
    draws, scores, values, log_weights, coordinates, others = _taken_apart(
        draws, scores, values, log_weights
    )
    if any(map(is_chunked, (draws, scores, values, log_weights))):
        check_call(standardise, seed)
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
            coordinates=coordinates,
        )
    session = Session.of(draws, scores, log_weights, coordinates, others)
    return session.estimate(values, names, family, objective, solver, split, standardise, seed)


@dataclasses.dataclass(frozen=True, eq=False)
class Session:
    """A sample in memory, checked once, and what tuning for some integrands has taught for
    others."""

    sample: Sample
    verdict: Check
    others: Forms | None
    learned: dict[str, Known] = dataclasses.field(default_factory=dict)

    @staticmethod
    def of(
        draws: Any, scores: Any, log_weights: Any, coordinates: Any, others: Forms | None
    ) -> "Session":
        """`coordinates` names those of the draws; `others` are those in which the draws may do
        better."""
        sample = Sample(draws, scores, log_weights, coordinates)
        return Session(sample, check(sample), others)

    def estimate(
        self,
        values: Any,
        names: Sequence[str] | None = None,
        family: Family | Automatic | None = None,
        objective: Objective | None = None,
        solver: Solver | None = None,
        split: Split | None = None,
        standardise: bool = True,
        seed: int = 0,
    ) -> Estimate:
        """As the function does, with what was learned before."""
        check_call(standardise, seed)
        sample = self.sample
        if values is None:
            values = {f"x{j}": column for j, column in enumerate(sample.draws.T)}
        array, found, events = as_values(values, sample, names)
        spelled_out = not (objective is None and solver is None and split is None)
        if family is None:
            family = polynomial(len(sample), sample.dim) if spelled_out else Automatic()
        if isinstance(family, Automatic) and spelled_out:
            raise ValueError(
                "Automatic chooses objective, solver and split itself; leave them out, or give a "
                "family"
            )
        if not (split is None or isinstance(split, Split)):
            raise ValueError(
                f"split must be in_sample(), holdout(fraction) or cross_fit(k); got {split!r}"
            )
        task = Task.of(sample, array, standardise, seed)
        cautions = Cautions()
        cautions.scores(self.verdict)
        selection = None
        if isinstance(family, Automatic):
            answer, selection = choose(task, found, family, self.others, self.learned)
        else:
            method = Method(family, objective, solver)
            split = default_split(task, method) if split is None else split
            answer = answer_of(task, method, split)
        return concluded(
            Evidence.of(task, found, events, self.verdict.verified),
            answer,
            cautions,
            family=None if isinstance(family, Automatic) else family,
            split="in sample" if split is None else split.describe(),
            settings=settings(sample, array, family, objective, solver, split)
            | {"standardise": standardise, "seed": seed},
            selection=selection,
            traces=traces_of(array, answer),
        )


def _taken_apart(draws: Any, scores: Any, values: Any, log_weights: Any) -> tuple[Any, ...]:
    """Draws, scores, values, log weights, names of coordinates and other coordinates, from these or
    from a posterior in place of the first two."""
    posterior = recognise(draws)
    if posterior is None:
        if scores is None:
            kinds = (
                "an adapter's Posterior, NumPyro's MCMC after its run, or an InferenceData or "
                "DataTree with gradients"
            )
            raise ValueError(
                "scores, the gradients of the log density at the draws, are needed beside draws; "
                f"got {type(draws).__name__} "
                f"alone. In place of both: {kinds}; zv.from_log_density computes them"
            )
        return draws, scores, values, log_weights, None, None
    if scores is not None or log_weights is not None:
        raise ValueError(
            f"a {type(draws).__name__} has scores and weights of its own: leave scores and "
            "log_weights out"
        )
    values = posterior.values if values is None else values
    return (
        posterior.draws,
        posterior.scores,
        values,
        posterior.log_weights,
        posterior.names,
        posterior.coordinates,
    )
