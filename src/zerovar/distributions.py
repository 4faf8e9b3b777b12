"""quantile(), interval() and density(): what is said of a quantity besides its mean."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64

from .adapters.recognition import posterior_in_memory
from .arguments import SHARE, one_of, several, takes, whole
from .choice import CHOICE, Automatic, Request
from .errors import list_names
from .events.lines import Lines
from .events.quantities import Marginal, Quantity
from .inputs.points import Vector
from .inputs.sample import Sample
from .output import Densities, Estimate
from .probabilities import MOST_LINES, describe_smoothing
from .progress import spinner
from .session import Session
from .statistics.quantiles import quantile_errors, weighted_quantile
from .variables import FILTER, VAR_NAMES, select_variables

# Newton's steps on plain means of what is smooth: each squares the distance, which begins at a few
# hundredths of a deviation
_STEPS = 4
# Of a deviation: the longest of these steps, and half the distance of two levels whose
# probabilities give a slope where no density does
_STRIDE, _APART = 0.5, 0.1
# Where curves begin and end: quantiles of the draws, and so many deviations beyond
_EDGE, _MARGIN = 0.001, 0.25
_PARTS = 10  # of the draws, whose shortest intervals scatter
_CHEAP = Automatic(effort="low", progress=False)


@takes(
    probs=several(SHARE, "numbers strictly between 0 and 1", empty=False),
    var_names=VAR_NAMES,
    filter_vars=FILTER,
    family=CHOICE,
    seed=whole(0),
)
def quantile(
    data: Any,
    probs: float | Sequence[float] = (0.05, 0.5, 0.95),
    *,
    var_names: str | Sequence[str] | None = None,
    filter_vars: str | None = None,
    family: Automatic | None = None,
    seed: int = 0,
) -> Estimate:
    """Estimate quantiles of the named values, with standard errors.

    data: what an adapter returns (`zv.from_numpyro(mcmc)`), NumPyro's MCMC itself, or an
        InferenceData or DataTree that has gradients.
    probs: which; 0.5 is the median.
    var_names, filter_vars: of which values, as in `zv.summary`.
    family, seed: as in `zv.estimate`.

    A quantile is the level whose probability is right. Probabilities come from control variates, as
    in `zv.probability`, and so does the density, which turns an error of the one into an error of
    the other. Where the quantile of the draws has less error it is reported; `plain_value` is that.
    """
    session = Session.of(posterior_in_memory(data)).thin(MOST_LINES)
    names = list(select_variables(session.values, var_names, filter_vars))
    return estimate_quantiles(session, names, probs, Request(family, seed=seed))


@takes(
    prob=SHARE,
    kind=one_of("eti", "hdi"),
    var_names=VAR_NAMES,
    filter_vars=FILTER,
    family=CHOICE,
    seed=whole(0),
)
def interval(
    data: Any,
    prob: float = 0.89,
    kind: str = "eti",
    *,
    var_names: str | Sequence[str] | None = None,
    filter_vars: str | None = None,
    family: Automatic | None = None,
    seed: int = 0,
) -> Estimate:
    """Estimate the ends of credible intervals, with standard errors.

    prob: the probability of the interval.
    kind: "eti" for equal tails, "hdi" for the highest density, the shortest interval.
    data, var_names, filter_vars, family, seed: as in `zv.quantile`.

    The rows are called as ArviZ has them: tau eti89_lb, tau eti89_ub.
    """
    session = Session.of(posterior_in_memory(data)).thin(MOST_LINES)
    names = list(select_variables(session.values, var_names, filter_vars))
    request = Request(family, seed=seed)
    ends = [f"{kind}{100 * prob:g}_{end}" for end in ("lb", "ub")]
    if kind == "hdi":
        return _estimate_hdi(session, names, prob, ends, request)
    return estimate_quantiles(session, names, ((1 - prob) / 2, (1 + prob) / 2), request, ends)


@takes(
    points=whole(8),
    var_names=VAR_NAMES,
    filter_vars=FILTER,
    family=CHOICE,
    seed=whole(0),
)
def density(
    data: Any,
    *,
    points: int = 64,
    var_names: str | Sequence[str] | None = None,
    filter_vars: str | None = None,
    family: Automatic | None = None,
    seed: int = 0,
) -> Densities:
    """Estimate marginal density curves, with standard errors at every point.

    points: of the grid, from where a thousandth of the draws is to where all but a thousandth are,
        and a little beyond.
    data, var_names, filter_vars, family, seed: as in `zv.quantile`.

    There is no bandwidth: the density at a level is itself a mean, of the conditional density along
    a line where the log density is known, and of an image of Stein's operator where a value is a
    function of one coordinate. For other values it is not known.
    """
    session = Session.of(posterior_in_memory(data)).thin(MOST_LINES)
    names = list(select_variables(session.values, var_names, filter_vars))
    return _estimate_densities(session, names, points, Request(family, seed=seed))


class _AtLevels(NamedTuple):
    """What has the probabilities of k quantities to be below p levels each as its means, the slopes
    of the probabilities there, and what the means may be off by besides chance."""

    below: Float64[np.ndarray, "n k p"]
    slope: Float64[np.ndarray, "k p"]
    off: Float64[np.ndarray, "k p"]


class _Marginals(NamedTuple):
    """Quantities, with what makes their levels smooth; None for those that do not move."""

    sample: Sample
    quantities: list[Quantity]
    smooth: list[Marginal | None]

    @staticmethod
    def of(session: Session, names: Sequence[str]) -> _Marginals:
        """Look along the lines of all named values."""
        found = [one for one in map(session.find, names) if one is not None]
        with spinner("lines", True) as say:
            smooth = []
            for one in found:
                say(one.name)
                smooth.append(session.marginal(one))
        return _Marginals(session.sample, found, smooth)

    @property
    def values(self) -> Float64[np.ndarray, "n k"]:
        return np.stack([each.values for each in self.quantities], axis=1)

    @property
    def deviation(self) -> Float64[np.ndarray, "k 1"]:
        return self.values.std(axis=0)[:, None]

    def at(self, levels: Float64[np.ndarray, "k p"], shares: Vector) -> _AtLevels:
        """Look at levels, about those with these shares below; what does not move has them
        exactly."""
        n, p = len(self.sample), self.sample.probabilities
        below, slope, off = np.empty((n, *levels.shape)), np.ones(levels.shape), 0 * levels
        for k, (one, own) in enumerate(zip(self.smooth, levels, strict=True)):
            if one is None:
                below[:, k] = shares
                continue
            found = one.below(own)
            below[:, k], off[k] = found.below, found.error
            if found.density is not None:
                slope[k] = p @ found.density
            else:
                apart = _APART * self.deviation[k]
                low, high = (p @ one.below(own + side * apart).below for side in (-1, 1))
                slope[k] = (high - low) / (2 * apart)
        return _AtLevels(below, slope, off)

    def describe(self, names: Sequence[str], each: int) -> tuple[str, ...]:
        """Say how levels were made smooth, for rows of which each quantity has so many."""
        how = {
            each * k + j: one.words
            for k, one in enumerate(self.smooth)
            if one is not None
            for j in range(each)
        }
        lines = {one for one in self.smooth if isinstance(one, Lines)}
        return describe_smoothing(names, how, lines)


def estimate_quantiles(
    session: Session,
    names: Sequence[str],
    probs: Sequence[float],
    request: Request,
    titles: Sequence[str] | None = None,
) -> Estimate:
    """Estimate quantiles of named values; `titles` are what each of them is called."""
    sample, shares = session.sample, np.array(probs)
    titles = [f"{100 * share:g}%" for share in shares] if titles is None else titles
    labels = [f"{name} {title}" for name in names for title in titles]
    marginals = _Marginals.of(session, names)
    values, deviation = marginals.values, marginals.deviation
    plain = np.array([weighted_quantile(v, sample.probabilities, shares) for v in values.T])
    plain_error = quantile_errors(sample.by_chain(values), sample.probabilities, shares)

    by_lines = np.repeat([isinstance(one, Lines) for one in marginals.smooth], len(shares))
    bounded = [label for label, so in zip(labels, by_lines, strict=True) if so]
    levels = plain
    cheap = dataclasses.replace(request, family=_CHEAP)
    for step in range(_STEPS + 2):  # by plain means, by polynomials, by what is chosen
        at = marginals.at(levels, shares)
        columns = at.below.reshape(len(sample), -1)
        if step < _STEPS:
            share = (sample.probabilities @ columns).reshape(levels.shape)
        else:
            named = dict(zip(labels, columns.T, strict=True))
            asked = cheap if step == _STEPS else request
            answer = session.estimate(named, request=asked, bounded=bounded)
            share = answer.value.reshape(levels.shape)
        with np.errstate(divide="ignore", invalid="ignore"):
            shift = np.nan_to_num((shares - share) / at.slope)
        if step <= _STEPS:
            levels = levels + np.clip(shift, -_STRIDE * deviation, _STRIDE * deviation)
    value = levels + shift
    error = np.hypot(answer.std_error.reshape(levels.shape), at.off)
    with np.errstate(divide="ignore", invalid="ignore"):
        # the second by how the slope changes over the last step
        error = np.hypot(error / at.slope, shift**2 / np.where(deviation > 0, deviation, 1.0))
    return _report(
        answer,
        value,
        error,
        plain,
        plain_error,
        np.diag(1 / np.where(at.slope > 0, at.slope, 1.0).ravel()),
        marginals.describe(labels, len(shares)),
    )


def _report(
    answer: Estimate,
    value: np.ndarray,
    error: np.ndarray,
    plain: np.ndarray,
    plain_error: np.ndarray,
    derivative: Float64[np.ndarray, "r q"],
    how: tuple[str, ...],
) -> Estimate:
    """What was found from means of an answer; the plain values where these have no more error.

    `derivative` is that of what is reported in the means of the answer.
    """
    value, error, plain, plain_error = (x.ravel() for x in (value, error, plain, plain_error))
    worse = ~(error < plain_error) & (plain_error > 0)
    joint = derivative @ answer.covariance @ derivative.T
    own = np.sqrt(np.diag(joint))
    error = np.where(worse, plain_error, np.maximum(error, 0.0))
    scale = np.divide(error, own, out=np.zeros_like(error), where=own > 0)
    joint = joint * np.outer(scale, scale)
    joint[worse, :] = joint[:, worse] = 0.0
    np.fill_diagonal(joint, error**2)
    selection = answer.selection
    if selection is not None and worse.any():
        selection = selection.without(worse, "the quantile of the draws has less error")
    return dataclasses.replace(
        answer,
        value=np.where(worse, plain, value),
        std_error=error,
        plain_value=plain,
        plain_std_error=plain_error,
        covariance=joint,
        selection=selection,
        traces=None,
        limits=how,
    )


def _estimate_hdi(
    session: Session, names: Sequence[str], prob: float, ends: Sequence[str], request: Request
) -> Estimate:
    """Solve P(b) − P(a) = prob and density(a) = density(b), by Newton's method.

    Where there is no density, or its slopes have the signs of no mode between the ends, as at the
    edge of an exponential, the interval of the draws is reported.
    """
    sample, marginals = session.sample, _Marginals.of(session, names)
    p, deviation = sample.probabilities, marginals.deviation
    plain = np.array([shortest(v, p, prob) for v in marginals.values.T])
    plain_error = np.array([_scatter(v, p, prob) for v in marginals.values.T])
    levels, size = plain.copy(), len(sample)
    heights, slopes = np.full((size, *levels.shape), np.nan), np.full(levels.shape, np.nan)
    shares = np.array([(1 - prob) / 2, (1 + prob) / 2])

    def look() -> _AtLevels:
        found = marginals.at(levels, shares)
        for k, one in enumerate(marginals.smooth):
            here = None if one is None else one.below(levels[k]).density
            if one is not None and here is not None:
                apart = _APART * deviation[k]
                low, high = (one.below(levels[k] + side * apart).density for side in (-1, 1))
                heights[:, k], slopes[k] = here, p @ (high - low) / (2 * apart)
        return found

    def solve(mass: Vector, height: Float64[np.ndarray, "k 2"]) -> np.ndarray:
        """Newton's step, and the derivative of the ends in (mass, difference of heights)."""
        matrix = np.empty((len(mass), 2, 2))
        matrix[:, 0] = np.stack([-height[:, 0], height[:, 1]], axis=1)
        matrix[:, 1] = np.stack([slopes[:, 0], -slopes[:, 1]], axis=1)
        good = np.isfinite(matrix).all(axis=(1, 2)) & (slopes[:, 0] > 0) & (slopes[:, 1] < 0)
        matrix[~good] = np.nan
        return np.where(
            good[:, None, None],
            np.linalg.inv(np.where(np.isfinite(matrix), matrix, np.eye(2))),
            np.nan,
        )

    for _ in range(_STEPS):
        at = look()
        share, height = np.einsum("n,nkp->kp", p, at.below), np.einsum("n,nkp->kp", p, heights)
        inverse = solve(share[:, 1] - share[:, 0], height)
        off = np.stack([prob - (share[:, 1] - share[:, 0]), height[:, 1] - height[:, 0]], axis=1)
        step = np.nan_to_num(np.einsum("kij,kj->ki", inverse, off))
        levels = levels + np.clip(step, -_STRIDE * deviation, _STRIDE * deviation)
    at = look()
    known = np.isfinite(heights).all(axis=(0, 2))
    columns = {}
    for k, name in enumerate(names):
        columns[f"{name} {ends[0]}"] = at.below[:, k, 1] - at.below[:, k, 0]
        columns[f"{name} {ends[1]}"] = (
            heights[:, k, 0] - heights[:, k, 1] if known[k] else np.zeros(size)
        )
    answer = session.estimate(columns, request=request)
    height = np.einsum("n,nkp->kp", p, heights)
    inverse = solve(np.zeros(len(names)), height)
    found = answer.value.reshape(-1, 2)
    off = np.stack([prob - found[:, 0], -found[:, 1]], axis=1)
    shift = np.einsum("kij,kj->ki", inverse, off)
    derivative = np.zeros((2 * len(names), 2 * len(names)))
    for k in range(len(names)):
        derivative[2 * k : 2 * k + 2, 2 * k : 2 * k + 2] = np.nan_to_num(inverse[k])
    spread = np.sqrt(np.diag(derivative @ answer.covariance @ derivative.T)).reshape(-1, 2)
    scale = np.where(deviation > 0, deviation, 1.0)
    error = np.where(np.isnan(shift), np.inf, np.hypot(spread, shift**2 / scale))
    error = np.where(deviation > 0, error, 0.0)
    value = levels + np.nan_to_num(shift)
    how = marginals.describe(list(answer.names), 2)
    return _report(answer, value, error, plain, plain_error, derivative, how)


def _estimate_densities(
    session: Session, names: Sequence[str], points: int, request: Request
) -> Densities:
    """Densities on a grid of levels for each quantity that moves, none below zero, of area one."""
    sample, marginals = session.sample, _Marginals.of(session, names)
    p, kept, grids, columns, masses = sample.probabilities, [], [], {}, []
    for one, smooth in zip(marginals.quantities, marginals.smooth, strict=True):
        ends = weighted_quantile(one.values, p, np.array([_EDGE, 1 - _EDGE]))
        margin = _MARGIN * one.values.std()
        grid = np.linspace(ends[0] - margin, ends[1] + margin, points)
        found = None if smooth is None else smooth.below(grid)
        if found is None or found.density is None or not np.isfinite(found.density).all():
            continue
        kept.append(one)
        grids.append(grid)
        masses.append(p @ (found.below[:, -1] - found.below[:, 0]))
        columns |= {f"{one.name} at {t:.6g} ({j})": found.density[:, j] for j, t in enumerate(grid)}
    if not kept:
        raise ValueError(
            f"density: none of {list_names(list(names))} has a density that can be known: the log "
            "density is not known, and none is a function of one coordinate"
        )
    answer = session.estimate(columns, request=request)
    shape = (len(kept), points)
    value, error = answer.value.reshape(shape), answer.std_error.reshape(shape)
    value, grid = np.maximum(value, 0.0), np.array(grids)
    area = np.trapezoid(value, grid, axis=1) / np.array(masses)
    return Densities(
        tuple(one.name for one in kept),
        grid,
        value / area[:, None],
        error / area[:, None],
        np.stack([one.values for one in kept], axis=1),
        p,
        tuple(answer.warnings),
    )


def shortest(values: Vector, weights: Vector, prob: float) -> Vector:
    """The shortest interval that has this share of the draws."""
    order = np.argsort(values)
    ahead = np.cumsum(weights[order])
    first = np.searchsorted(ahead, ahead + prob - 1e-12)
    starts = np.flatnonzero(first < len(values))
    if not len(starts):
        return values[order[[0, -1]]]
    widths = values[order[first[starts]]] - values[order[starts]]
    best = starts[np.argmin(widths)]
    return values[order[[best, first[best]]]]


def _scatter(values: Vector, weights: Vector, prob: float) -> Vector:
    """The standard error of the shortest interval, from parts of the draws: its ends are known as
    the cube root of their number, not as its square root."""
    parts = np.array_split(np.arange(len(values)), _PARTS)
    found = [shortest(values[part], weights[part] / weights[part].sum(), prob) for part in parts]
    return np.std(found, axis=0, ddof=1) / _PARTS ** (1 / 3)
