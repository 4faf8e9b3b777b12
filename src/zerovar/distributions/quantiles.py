"""Quantiles: the levels whose probabilities are right."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float64

from ..choice import LOW_EFFORT, Request
from ..errors import SampleWarning, hold_warnings, repeat_warnings, require_distinct, warn
from ..output import Estimate
from ..session import Session
from ..statistics.quantiles import draws_beyond, quantile_errors, weighted_quantile
from .marginals import STEPS, AtLevels, Marginals

# Effective draws beyond a quantile under which the draws do not know it: three are what the bound
# for events that no draw shows rests on
_FEW = 3
# Newton's steps along lines into a tail: at most so many. From the smallest of 1000 draws the share
# 1e-9 of a normal takes 3, that of a log-normal 9, and 1e-6 of t₃ 7
_MOST_STEPS = 40


def estimate_quantiles(
    session: Session,
    names: Sequence[str],
    shares: Float64[np.ndarray, "... p"],
    request: Request,
    titles: Sequence[str] | None = None,
) -> Estimate:
    """Estimate quantiles of k named values, at p shares or at (k, p) of them; `titles` are what the
    p are called.

    Newton's method: on plain means of what is smooth, then on those with polynomials for control
    variates, and last with all that are chosen from. What control variates add to a plain mean
    hardly changes with the level.
    """
    sample = session.sample
    titles = [f"{100 * share:.12g}%" for share in shares] if titles is None else titles
    require_distinct("probs", titles)
    shares = np.broadcast_to(shares, (len(names), len(titles)))
    labels = [f"{name} {title}" for name in names for title in titles]
    marginals = Marginals.of(session, names)
    p, values = sample.probabilities, marginals.values
    pairs = list(zip(values.T, shares, strict=True))
    plain = np.array([weighted_quantile(column, p, own) for column, own in pairs])
    plain_error = np.array([quantile_errors(sample.by_chain(v), p, own) for v, own in pairs])
    bounded, levels, at = marginals.find_conditional(labels), plain, marginals.at(plain, shares)
    correction = np.zeros(levels.shape)  # what control variates add to plain means
    for asked in (None, dataclasses.replace(request, family=LOW_EFFORT), request):
        if asked is not None:
            columns = dict(zip(labels, at.below.reshape(len(sample), -1).T, strict=True))
            with hold_warnings() as caught:
                means = session.estimate(columns, None, asked, bounded, labels)
            correction = means.value.reshape(levels.shape) - np.tensordot(p, at.below, 1)
        before, off = levels, at.off
        levels, at = _find(marginals, at, levels, shares, correction)
    repeat_warnings(caught)  # of the last
    # the last correction was made at other levels, and changes with them as probabilities do
    moved = np.abs(correction * (levels - before)) * at.slope / (shares * (1 - shares))
    # and where a tail is too thin the steps have not arrived
    left = np.where(marginals.by_lines, shares - correction - np.tensordot(p, at.below, 1), 0.0)
    parts = np.stack([means.std_error.reshape(levels.shape), off, moved, left])
    error = _divide(np.sqrt(np.sum(parts**2, axis=0)), at.slope)
    slopes = np.where(at.slope > 0, at.slope, np.inf)
    few = np.array([draws_beyond(sample.by_chain(v), p, own) for v, own in pairs]) < _FEW
    found = marginals.report(
        means,
        levels,
        error,
        plain,
        plain_error,
        np.diag(1 / slopes.ravel()),
        few & marginals.by_lines,
    )
    return _warn_of_few(found, few & marginals.moves[:, None])


def _warn_of_few(found: Estimate, few: Bool[np.ndarray, "k p"]) -> Estimate:
    """Say which quantiles are those of the draws, with too few of these beyond to know them."""
    unknown = few.ravel() & (found.value == found.plain_value)
    names = [name for name, so in zip(found.names, unknown, strict=True) if so]
    if not names:
        return found
    text = (
        f"Fewer than {_FEW} effective draws lie beyond {{names}}: the quantile of the draws is "
        "reported, which is near the last of them, and its error means little. Draw more, or ask "
        "for a quantile further in."
    )
    warn(text, SampleWarning, names)
    told = str(SampleWarning(text, names))
    return dataclasses.replace(found, warnings=(*found.warnings, told))


def _find(
    marginals: Marginals,
    at: AtLevels,
    levels: Float64[np.ndarray, "k p"],
    shares: Float64[np.ndarray, "k p"],
    correction: Float64[np.ndarray, "k p"],
) -> tuple[Float64[np.ndarray, "k p"], AtLevels]:
    """Return where these shares are below, by plain means and what control variates add to them,
    and what is seen there; along lines, to within their error."""
    p, by_lines = marginals.sample.probabilities, marginals.by_lines
    middle = (p @ marginals.values)[:, None]
    low, high = np.full(levels.shape, -np.inf), np.full(levels.shape, np.inf)
    for done in range(_MOST_STEPS):
        below = np.tensordot(p, at.below, 1) + correction
        far = by_lines & (np.abs(below - shares) > at.off)
        if not far.any() and (done >= STEPS or by_lines.all()):
            break
        low = np.where(below < shares, levels, low)
        high = np.where(below > shares, levels, high)
        away = np.where(by_lines, np.abs(levels - middle), 0.0)
        moved = marginals.move(levels, _newton(shares, below, at.slope), away)
        # halfway between what is too low and too high, as where a value cannot be negative
        out = by_lines & ((moved < low) | (moved > high)) & np.isfinite(high - low)
        moved[out] = (low[out] + high[out]) / 2
        levels, at = moved, marginals.at(moved, shares)
    return levels, at


def _newton(shares: np.ndarray, below: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """The step to where a share is below, in log-odds: in a tail these are nearly straight, and
    probabilities are not."""
    inside = (below > 0) & (below < 1)
    p = np.where(inside, below, 0.5)
    odds = np.log(shares / (1 - shares)) - np.log(p / (1 - p))
    return _divide(np.where(inside, p * (1 - p) * odds, shares - below), slope)


def _divide(number: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """Infinite where there is no slope, as of what takes few values."""
    return np.divide(number, slope, out=np.full_like(number, np.inf), where=slope > 0)
