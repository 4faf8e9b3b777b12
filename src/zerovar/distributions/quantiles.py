"""Quantiles: the levels whose probabilities are right."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float64

from ..choice import LOW_EFFORT, Request
from ..errors import (
    SampleWarning,
    hold_warnings,
    repeat_warnings,
    require_distinct,
    spare_names,
)
from ..inference.rules import SUSPICIOUS
from ..output import Estimate
from ..session import Session
from ..statistics.quantiles import FAR, draws_beyond, quantile_errors, weighted_quantile
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
                means = session.estimate(columns, None, asked, bounded, labels, at.off.ravel())
            correction = means.value.reshape(levels.shape) - np.tensordot(p, at.below, 1)
        before, off = levels, at.off
        levels, at = _find(marginals, at, levels, shares, correction)
    # the last correction was made at other levels, and changes with them as probabilities do
    moved = np.abs(correction * (levels - before)) * at.slope / (shares * (1 - shares))
    # and the steps may not have arrived
    left = shares - correction - np.tensordot(p, at.below, 1)
    left = np.where(np.abs(left) > at.off, left, 0.0)
    parts = np.stack([means.std_error.reshape(levels.shape), off, moved, left])
    spread = np.sqrt(np.sum(parts**2, axis=0))
    error = _divide(spread, at.slope)
    error = np.maximum(
        error, _measure_bend(marginals, levels, shares, correction, spread, error, at.slope)
    )
    slopes = np.where(at.slope > 0, at.slope, np.inf)
    beyond = np.array([draws_beyond(sample.by_chain(v), p, own) for v, own in pairs])
    few = beyond < _FEW
    lost = marginals.moves[:, None] & _elsewhere(marginals, levels, shares, beyond)
    # and levels whose probability is known no better than by counting
    counting = np.sqrt(shares * (1 - shares) * np.minimum(shares, 1 - shares) / beyond)
    error = np.where(lost | (spread >= counting), np.inf, error)
    found = marginals.report(
        means,
        levels,
        error,
        plain,
        plain_error,
        np.diag(1 / slopes.ravel()),
        np.argsort(shares, axis=1, kind="stable"),
        few & marginals.by_lines & ~lost,
    )
    as_drawn = (found.value == found.plain_value).reshape(few.shape)

    def where(columns: Bool[np.ndarray, "k p"]) -> list[str]:
        pairs = zip(found.names, columns.ravel(), strict=True)
        return [name for name, so in pairs if so]

    said = spare_names(caught, where(as_drawn))  # of the last, and of what is reported
    for text, about in (
        (_ELSEWHERE, lost & marginals.by_lines),
        (_TOO_FEW, few & as_drawn & marginals.moves[:, None]),
    ):
        said += [SampleWarning(text, names) for names in [where(about)] if names]
    return dataclasses.replace(found, warnings=tuple(repeat_warnings(said)))


_TOO_FEW = (
    f"Fewer than {_FEW} effective draws lie beyond {{names}}: the quantile of the draws is "
    "reported, which is near the last of them, and its error means little. Draw more, or ask "
    "for a quantile further in."
)
_ELSEWHERE = (
    "At the level that was found for {names}, more or fewer of the draws lie below than chance "
    "allows: the quantile of the draws is reported. Have the chains converged, and is each of the "
    "density's modes among the draws?"
)


def _elsewhere(
    marginals: Marginals,
    levels: Float64[np.ndarray, "k p"],
    shares: Float64[np.ndarray, "k p"],
    beyond: Float64[np.ndarray, "k p"],
) -> Bool[np.ndarray, "k p"]:
    """Return where the draws below a level are so many, or so few, that chance does not explain it;
    `beyond` are effective draws on the smaller side of each share."""
    p = marginals.sample.probabilities
    seen = np.einsum("n,nkp->kp", p, marginals.values[:, :, None] < levels)
    size = beyond / np.minimum(shares, 1 - shares)
    chance = np.sqrt(shares * (1 - shares) / size) + 1 / size  # and of one draw more or less
    return np.abs(seen - shares) > SUSPICIOUS * chance


def _measure_bend(
    marginals: Marginals,
    levels: Float64[np.ndarray, "k p"],
    shares: Float64[np.ndarray, "k p"],
    correction: Float64[np.ndarray, "k p"],
    spread: Float64[np.ndarray, "k p"],
    error: Float64[np.ndarray, "k p"],
    slope: Float64[np.ndarray, "k p"],
) -> Float64[np.ndarray, "k p"]:
    """Return errors of levels where the density is not about the same within them, as between two
    modes: by the levels where probabilities are some errors, `spread` each, further. Zero where it
    is no less than half as large there."""
    p, found = marginals.sample.probabilities, np.zeros(levels.shape)
    for side in (*FAR, *(-each for each in FAR)):
        ends = levels + side * np.where(np.isfinite(error), error, 0.0)
        there = marginals.at(ends, shares)
        reached = np.abs(np.tensordot(p, there.below, 1) + correction - shares)
        bent = (there.slope < slope / 2) | (reached < np.abs(side) * spread / 2)
        bent &= np.isfinite(error)
        if not bent.any():
            continue
        wanted = shares + side * spread
        known = (wanted > 0) & (wanted < 1)
        wanted = np.where(bent & known, wanted, np.tensordot(p, there.below, 1) + correction)
        away = np.abs(_find(marginals, there, ends, wanted, correction)[0] - levels)
        away = np.where(known, away / abs(side), np.inf)
        found = np.where(bent, np.maximum(found, away), found)
    return np.where(found > 2 * error, found, 0.0)


def _find(
    marginals: Marginals,
    at: AtLevels,
    levels: Float64[np.ndarray, "k p"],
    shares: Float64[np.ndarray, "k p"],
    correction: Float64[np.ndarray, "k p"],
) -> tuple[Float64[np.ndarray, "k p"], AtLevels]:
    """Return where these shares are below, by plain means and what control variates add to them,
    and what is seen there; to within what these may be off by.

    Newton's steps, between a level that is too low and one that is too high; where they leave these
    or do not halve what is left in time, on to the draw half-way between the two, as draws are
    dense wherever levels must be fine.
    """
    p, by_lines = marginals.sample.probabilities, marginals.by_lines
    ordered = np.sort(marginals.values, axis=0)
    middle = (p @ marginals.values)[:, None]
    # nothing is known by scores alone of where there are no draws
    low = np.where(by_lines, -np.inf, ordered[0][:, None]) + 0 * levels
    high = np.where(by_lines, np.inf, ordered[-1][:, None]) + 0 * levels
    slow = np.full(levels.shape, np.inf)
    for done in range(_MOST_STEPS):
        left = np.tensordot(p, at.below, 1) + correction - shares
        far = np.abs(left) > at.off
        if not far.any():
            break
        low = np.where(left < 0, np.fmax(levels, low), low)
        high = np.where(left > 0, np.fmin(levels, high), high)
        away = np.where(by_lines, np.abs(levels - middle), 0.0)
        moved = marginals.move(levels, _newton(shares, left + shares, at.slope), away)
        if done % STEPS == STEPS - 1:  # have they halved what was left?
            stuck, slow = np.abs(left) > slow / 2, np.abs(left)
        else:
            stuck = np.zeros(levels.shape, dtype=bool)
        out = far & (stuck | (moved <= low) | (moved >= high))
        for k, j in zip(*np.nonzero(out & np.isfinite(low + high)), strict=True):
            moved[k, j] = _between(ordered[:, k], low[k, j], high[k, j])
        levels = np.where(far, moved, levels)
        at = marginals.at(levels, shares)
    return levels, at


def _between(ordered: np.ndarray, low: float, high: float) -> float:
    """Return the draw half-way between two levels, or their middle where there is none."""
    first, last = np.searchsorted(ordered, [low, high], side="right")
    inside = ordered[first:last]
    inside = inside[(inside > low) & (inside < high)]
    return float(inside[len(inside) // 2]) if len(inside) else (low + high) / 2


def _newton(shares: np.ndarray, below: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """The step to where a share is below, in log-odds: in a tail these are nearly straight, and
    probabilities are not."""
    inside = (np.minimum(below, shares) > 0) & (np.maximum(below, shares) < 1)
    p, wanted = (np.where(inside, each, 0.5) for each in (below, shares))
    odds = np.log(wanted / (1 - wanted)) - np.log(p / (1 - p))
    return _divide(np.where(inside, p * (1 - p) * odds, shares - below), slope)


def _divide(number: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """Infinite where there is no slope, as of what takes few values."""
    return np.divide(number, slope, out=np.full_like(number, np.inf), where=slope > 0)
