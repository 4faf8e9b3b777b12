"""log Z from a ladder: several routes through all its steps, and the best combination of them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64
from numpy.typing import ArrayLike

from ..arguments import instance, takes, whole
from ..statistics.series import (
    autocorrelation_time,
    batch_sums,
    covariance,
    relative_uncertainty,
    standard_error,
)
from .belonging import check_cumulants, check_ladder
from .ladders import Ladder, check_temperatures
from .rungs import HIGHEST, Rung, make_rungs
from .stepping import bridge_step, step_backwards, step_forwards
from .steps import Step, total_influences
from .thermodynamic import Cumulants, cumulants, integrate_step

ROUTES = (
    "thermodynamic integration, trapezium",
    "thermodynamic integration, corrected by variances",
    "thermodynamic integration, with third cumulants",
    "thermodynamic integration, with fourth cumulants",
    "stepping stones forwards",
    "stepping stones backwards",
    "bridges between neighbours",
)
# Joint errors from which two routes contradict each other; and how many times the least error
# another route's may be to be heard: one that is far worse does not know its error well
_APART = 3.0


class Route(NamedTuple):
    """One way through all steps of a ladder: log Z by it, its standard error with all that the rule
    itself may be off by, and that part alone."""

    name: str
    value: float
    std_error: float
    discretisation: float


@dataclasses.dataclass(frozen=True, eq=False)
class LadderEvidence:
    """log Z of a ladder's target.

    log_z, std_error: the best combination of all routes. The error is made of `scatter` of the
        draws, `discretisation` of the rules and `disagreement` of routes that contradict each
        other, squares added.
    target: what log_z is, in words: of temperatures from 0 to 1 it is log Z.
    routes, weights: each route by itself, and what it counts in the combination.
    temperatures, means, mean_errors, variances, variance_errors: (K,) of the log-likelihood along
        the ladder; NaN where the likelihood is zero at some draws.
    shares: (T,) of each rung in the variance by scatter.
    """

    log_z: float
    std_error: float
    scatter: float
    discretisation: float
    disagreement: float
    target: str
    routes: tuple[Route, ...]
    weights: Float64[np.ndarray, " routes"]
    temperatures: Float64[np.ndarray, " k"]
    means: Float64[np.ndarray, " k"]
    mean_errors: Float64[np.ndarray, " k"]
    variances: Float64[np.ndarray, " k"]
    variance_errors: Float64[np.ndarray, " k"]
    shares: Float64[np.ndarray, " rungs"]
    steps: Float64[np.ndarray, "routes steps"]
    evaluations: int | None
    reference: str


@takes(ladder=instance(Ladder, "a zv.Ladder"), order=whole(0, HIGHEST))
def evidence_of_ladder(
    ladder: Ladder,
    *,
    temperatures: ArrayLike | None = None,
    order: int | None = None,
    check: bool = True,
) -> LadderEvidence:
    """Return log Z of a ladder by all routes, with control variates, and their best combination.

    `order` is the degree of the polynomials, 0 for plain means; without it the degree is chosen for
    each mean by leave-out errors. `temperatures` are others than the ladder's, from its lowest to
    its highest; draws serve them by importance weights. `check=False` leaves out the test whether
    scores and log-likelihoods belong to the draws.
    """
    other = None if temperatures is None else _check_other(ladder, temperatures)
    # of far draws in many dimensions, slopes by scores are not those of strongly curved densities
    if check and not ladder.from_model:
        check_ladder(ladder)
    rungs = make_rungs(ladder, other)
    moments = [cumulants(rung, order) for rung in rungs]
    if check:
        check_cumulants(ladder, rungs, moments)
    neighbours = zip(itertools.pairwise(rungs), itertools.pairwise(moments), strict=True)
    steps = [_steps(*pair, *both, order) for pair, both in neighbours]
    paths = [list(path) for path in zip(*steps, strict=True)]
    values = np.array([sum(step.value for step in path) for path in paths])
    rules = np.array([_rule_error([step.rule for step in path]) for path in paths])
    influences = np.stack(
        [total_influences(path, *ladder.log_likelihood.shape) for path in paths], axis=2
    )
    by_rung = _covariances(ladder, influences)
    scatter = by_rung.sum(axis=0)
    scatter += np.diag(_doubt(ladder, influences) * np.diagonal(scatter))
    weights = _weigh_routes(scatter + np.outer(rules, rules))
    value, rule = float(weights @ values), float(weights @ rules)
    errors = np.sqrt(np.diagonal(scatter) + rules**2)
    # Correlations of routes come from few draws, and the weights were chosen by them: they are
    # half believed. On normal ladders errors were up to 1.4 times what was claimed with them, and
    # from 0.55 to 0.95 times without
    joint, alone = weights @ scatter @ weights, weights @ np.sqrt(np.diagonal(scatter))
    error = np.sqrt((max(joint, 0.0) + alone**2) / 2)
    apart = _disagreement(values, errors, rules, by_rung.sum(axis=0), weights)
    zero = ladder.log_z0
    own = np.einsum("i,tij,j->t", weights, by_rung, weights)
    return LadderEvidence(
        log_z=value + zero,
        std_error=float(np.sqrt(error**2 + rule**2 + apart**2)),
        scatter=float(error),
        discretisation=rule,
        disagreement=apart,
        target=ladder.target,
        routes=tuple(
            Route(name, float(v) + zero, float(e), float(r))
            for name, v, e, r in zip(ROUTES, values, errors, rules, strict=True)
        ),
        weights=weights,
        temperatures=np.array([rung.t for rung in rungs]),
        **_profile(ladder, moments),
        shares=own / own.sum() if own.sum() > 0 else np.full(len(own), 1 / len(own)),
        steps=np.array([[step.value for step in path] for path in paths]),
        evaluations=ladder.evaluations,
        reference=ladder.reference,
    )


def _check_other(ladder: Ladder, temperatures: ArrayLike) -> np.ndarray:
    found, own = check_temperatures(temperatures), ladder.inverse_temperatures
    if found[0] != own[0] or found[-1] != own[-1]:
        raise ValueError(
            f"temperatures must go from the ladder's lowest, {own[0]:g}, to its highest, "
            f"{own[-1]:g}; got {found[0]:g} to {found[-1]:g}"
        )
    return found


def _steps(
    left: Rung, right: Rung, a: Cumulants | None, b: Cumulants | None, order: int | None
) -> list[Step]:
    """Return one step by all routes. Where the likelihood is zero at some draws a bridge takes the
    place of thermodynamic integration, as the mean logarithm is not finite, and of the step
    backwards, as draws at the right are not everywhere where those at the left are."""
    forwards, bridge = step_forwards(left, right, order), bridge_step(left, right, order)
    integrals = [bridge] * 4 if a is None or b is None else integrate_step(left, right, a, b)
    backwards = bridge if left.has_zeros else step_backwards(left, right, order)
    return [*integrals, forwards, backwards, bridge]


def _series(ladder: Ladder, columns: np.ndarray) -> np.ndarray:
    """Return influences (n, q) as (chain, draw, q)."""
    return columns.reshape(ladder.num_chains, -1, columns.shape[-1])


def _rule_error(off: Sequence[float]) -> float:
    """Return what a rule may be off by in all steps together: their sum, or if that cancels by
    chance the root of their squares."""
    return float(max(abs(np.sum(off)), np.sqrt(np.sum(np.square(off)))))


def _covariances(
    ladder: Ladder, influences: Float64[np.ndarray, "rungs n routes"]
) -> Float64[np.ndarray, "rungs routes routes"]:
    """Return what the draws of each rung add to the covariance of the routes: rungs are
    independent of each other, and influences of one draw on several steps have been added."""
    found = []
    for columns in influences:
        series = _series(ladder, columns)
        error = standard_error(series, np.zeros(columns.shape[1]))
        # the mean of influences is what the fits' intercepts are off by themselves
        bias = series.mean(axis=(0, 1))
        found.append(covariance(series, error) + np.outer(bias, bias))
    return np.array(found)


def _doubt(
    ladder: Ladder, influences: Float64[np.ndarray, "rungs n routes"]
) -> Float64[np.ndarray, " routes"]:
    """Return how uncertain each variance is, relative to it: where a few draws make it, more may be
    missing. It keeps routes with long tails, and combinations that cancel by chance, from looking
    best."""
    series = [_series(ladder, columns) for columns in influences]
    sums = [batch_sums(one, autocorrelation_time(one)) for one in series]
    return relative_uncertainty(np.concatenate(sums))


def _weigh_routes(matrix: Float64[np.ndarray, "r r"]) -> Float64[np.ndarray, " r"]:
    """Return the weights, not negative and of sum one, of the least variance."""
    from scipy.optimize import nnls  # imported when used, as it takes long

    size = np.sqrt(np.diagonal(matrix))
    if not size.all():  # exact to the last digit
        return np.where(np.arange(len(size)) == np.argmin(size), 1.0, 0.0)
    # beside squares of such errors those of the best are rounding: cumulants of log-likelihoods
    # of −1e17, as far draws of a prior have them
    heard = size * np.sqrt(np.finfo(float).eps) < size.min()
    # in units of the least error; the largest row holds the sum
    values, vectors = np.linalg.eigh(matrix[np.ix_(heard, heard)] / size.min() ** 2)
    root = np.sqrt(np.maximum(values, 1e-12))[:, None] * vectors.T
    heavy, count = 1e4, int(heard.sum())
    found = nnls(np.vstack([root, np.full(count, heavy)]), np.append(np.zeros(count), heavy))[0]
    weights = np.zeros(len(size))
    weights[heard] = found / found.sum()
    return weights


def _disagreement(
    values: np.ndarray,
    errors: np.ndarray,
    rules: np.ndarray,
    scatter: np.ndarray,
    weights: np.ndarray,
) -> float:
    """Return half the distance of the combination from the route that contradicts it most, or zero.

    Routes use other integrands of the same draws. Where scores are not quite the gradients of the
    log-likelihoods, or a tail was missed, they differ by more than scatter explains.
    """
    away = np.abs(values - weights @ values)
    change = np.eye(len(values)) - weights
    joint = np.einsum("ij,jk,ik->i", change, scatter, change) + (rules + weights @ rules) ** 2
    heard = errors <= _APART * errors.min()
    against = heard & (away > _APART * np.sqrt(np.maximum(joint, 0.0)))
    return float(0.5 * np.max(away, where=against, initial=0.0))


def _profile(
    ladder: Ladder, moments: Sequence[Cumulants | None]
) -> dict[str, Float64[np.ndarray, " k"]]:
    """Return means and variances of the log-likelihood along the ladder, with their errors."""
    rows = []
    for one in moments:
        if one is None:
            rows.append(np.full(4, np.nan))
            continue
        error = standard_error(_series(ladder, one.influences[:, :2]), np.zeros(2))
        rows.append(np.array([one.value[0], error[0], one.value[1], error[1]]))
    names = ("means", "mean_errors", "variances", "variance_errors")
    return dict(zip(names, np.transpose(rows), strict=True))
