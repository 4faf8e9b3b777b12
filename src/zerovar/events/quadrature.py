"""Integrals along many lines at once, each to an error that is known.

Every line is covered by panels. The log density is evaluated at a few places of each, as it is
nearly quadratic where draws are, and interpolated to many Gauss–Legendre nodes. Through its values
there the density is a polynomial: that gives its mass and the mass up to any place. The last
coefficients of both say how far off they are. Panels that are not resolved are split, lines whose
ends still matter grow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int
from numpy.polynomial import legendre

from .panels import AT, LOG_TO_SERIES, NODES, PLACES, TO_SERIES, Landmarks, Panels, X

# The first panels of a line: 3 take a fifth less on garch11, and a half more on regressions
_FIRST = 2
# Of a line's mass, the least that a panel or an end may be off by. Standard errors of probabilities
# by control variates on a thousand draws of smooth posteriors come down to 1e-8
FINEST = 1e-10
# Rounds of splitting and growing, in each of which a panel is halved or a line thrice as long: 24
# are too few for modes that are 200 times as narrow as others. And panels of one line, beyond which
# its density is noise or has no end
_ROUNDS, _PANELS = 48, 80
# Rounds in which peaks that draws lie on are looked for on the lines of others: panels of 0.8
# deviations, with 12 places
_LOOKS = 3
# A share that is small: of the density, below which the interpolated one says how much that is; and
# of lines whose panels look resolved, although the density at the draw is another one
_SHARE = 0.01

Along = Callable[[Int[np.ndarray, " m"], Float64[np.ndarray, "m k"]], Float64[np.ndarray, "m k"]]
"""From row numbers of lines and places on each to numbers there."""


_TO_NODES = legendre.legval(X, np.eye(PLACES))
_TO_INTEGRAL = legendre.legint(np.eye(NODES), lbnd=-1).T  # the series of the integral from −1


@dataclasses.dataclass(frozen=True, eq=False)
class Conditional:
    """The density along n lines, as polynomials on panels that lie line after line, from left to
    right.

    `before` is the probability of all that lies before a panel; `error` what an integral along each
    line may be off by, of its mass; `evaluations` are those of the log density; `total` is one, or
    the mean along the line of what the density was multiplied by.
    """

    panels: Panels
    series: Float64[np.ndarray, "m k"]
    before: Float64[np.ndarray, " m"]
    mass: Float64[np.ndarray, " n"]
    error: Float64[np.ndarray, " n"]
    evaluations: int
    total: Float64[np.ndarray, " n"]

    def until(self, line: np.ndarray, u: np.ndarray) -> Float64[np.ndarray, " r"]:
        """Return the probability of all that lies before places `u` of these lines."""
        panel, t, half = self._locate(line, u)
        inside = half * _evaluate(self.series[panel] @ _TO_INTEGRAL, t)
        return self.before[panel] + inside / self.mass[line]

    def times(self, values: Float64[np.ndarray, "m k"]) -> Conditional:
        """Return the density times a function that has these values at the nodes: `until` then
        gives means of the function over what lies before a place."""
        series = (legendre.legval(X, self.series.T) * values) @ TO_SERIES
        shares = self.panels.width * series[:, 0] / self.mass[self.panels.line]
        n = len(self.mass)
        before, total = (
            _before(self.panels.line, shares, n),
            np.bincount(self.panels.line, shares, n),
        )
        return dataclasses.replace(self, series=series, before=before, total=total)

    def at(self, line: np.ndarray, u: np.ndarray) -> Float64[np.ndarray, " r"]:
        """Return the probability density at places `u` of these lines."""
        panel, t, _ = self._locate(line, u)
        return np.maximum(_evaluate(self.series[panel], t), 0.0) / self.mass[line]

    def _locate(self, line: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The panel of each place, where in [−1, 1] it is there, and half the panel's length."""
        first = np.searchsorted(self.panels.line, line, side="left")
        last = np.searchsorted(self.panels.line, line, side="right") - 1
        while np.any(first < last):  # bisection for the last panel that begins before u
            middle = (first + last + 1) // 2
            begun = self.panels.left[middle] <= u
            first, last = np.where(begun, middle, first), np.where(begun, last, middle - 1)
        half = self.panels.width[first] / 2
        return first, np.clip((u - self.panels.left[first]) / half - 1, -1.0, 1.0), half


def integrate_lines(
    log_density: Along,
    centre: Float64[np.ndarray, " n"],
    start: Float64[np.ndarray, " n"],
    tolerance: float = FINEST,
    landmarks: Landmarks | None = None,
) -> Conditional:
    """Return the density along n lines, on each of which one unit is about a deviation.

    centre: about where the mass of each line is.
    start: the log density at 0, where the line's draw is. Panels must agree with it, so that no
        peak is missed there.
    tolerance: of a line's mass, what a panel or an end may be off by.
    landmarks: where the draws of all lines are, so that none steps over modes of others.
    """
    n = len(centre)
    reach = np.sqrt(2 * np.log(20 / tolerance))  # centres are only about right
    ends = centre[:, None] + np.linspace(-reach, reach, _FIRST + 1)
    # with the draw well inside
    ends[:, 0], ends[:, -1] = np.minimum(ends[:, 0], -1.0), np.maximum(ends[:, -1], 1.0)

    def evaluate(panels: Panels) -> Panels:
        found = log_density(panels.line, panels.places)
        return panels._replace(log_density=np.where(np.isnan(found), -np.inf, found))

    line = np.repeat(np.arange(n), _FIRST)
    blank = np.empty((len(line), PLACES))
    panels = evaluate(Panels(line, ends[:, :-1].ravel(), ends[:, 1:].ravel(), blank))
    evaluations = panels.log_density.size
    for last in range(_ROUNDS, -1, -1):
        panels = panels.take(np.lexsort((panels.left, panels.line)))
        fit = _Fit.of(panels, start, tolerance, last <= _ROUNDS - _LOOKS)
        replaced = fit.unresolved
        wanted = _grow(panels, fit, tolerance).join(
            _split(panels.take(replaced), fit.part[replaced])
        )
        if landmarks is not None and not len(wanted.line):
            replaced, wanted = landmarks.missing(panels)
        if not last or not len(wanted.line):
            break
        new = evaluate(wanted)
        evaluations += new.log_density.size
        panels = panels.take(~replaced).join(new)
    # of each line's own mass, lest one that has no end drown the others
    shares = panels.width * fit.series[:, 0] / fit.mass[panels.line]
    before = _before(panels.line, shares, n)
    return Conditional(panels, fit.series, before, fit.mass, fit.error, evaluations, np.ones(n))


def _before(line: np.ndarray, shares: np.ndarray, n: int) -> np.ndarray:
    """What the panels of the same line before each panel add up to."""
    before = np.cumsum(shares) - shares
    return before - before[np.searchsorted(line, np.arange(n))][line]


class _Fit(NamedTuple):
    """Panels as polynomials, relative to the highest density of their line; which of them must be
    split, and where: 0 within, 1 at their left and 2 at their right end; about the mass beyond both
    ends of each line, and how fast the log density falls there; which lines have no more panels to
    be split; and what their integrals may be off by."""

    series: Float64[np.ndarray, "m k"]
    mass: Float64[np.ndarray, " n"]
    unresolved: Bool[np.ndarray, " m"]
    part: Int[np.ndarray, " m"]
    rest: Float64[np.ndarray, "2 n"]
    fall: Float64[np.ndarray, "2 n"]
    full: Bool[np.ndarray, " n"]
    error: Float64[np.ndarray, " n"]

    @staticmethod
    def of(panels: Panels, start: Float64[np.ndarray, " n"], tolerance: float, late: bool) -> _Fit:
        n, line, width = len(start), panels.line, panels.width
        top = start.copy()
        np.maximum.at(top, line, panels.log_density.max(axis=1))
        with np.errstate(invalid="ignore"):  # of no density where it is infinite
            log_density = panels.log_density - top[line][:, None]
            density = np.nan_to_num(np.exp(log_density))
            at_draw = np.nan_to_num(np.exp(start - top))
        series, off = _interpolate(log_density, density)
        off = width * off
        mass = np.maximum(np.bincount(line, width * series[:, 0], n), np.finfo(float).tiny)
        # the panel of the draw itself, whose density is known
        here = (panels.left <= 0) & (panels.right > 0)
        seen = _evaluate(series[here], -(panels.left + panels.right)[here] / width[here])
        gap = width[here] * np.abs(seen - at_draw[line[here]])
        surprised = (gap > _SHARE * mass[line[here]]) & (off[here] < _SHARE * gap)
        off[here] = np.maximum(off[here], gap)
        # panels that meet must agree: a jump there, or a peak, is between their outermost nodes
        after = np.flatnonzero(line[1:] == line[:-1]) + 1
        end = np.ones(len(after))
        step = np.abs(_evaluate(series[after], -end) - _evaluate(series[after - 1], end))
        missed = np.zeros((3, len(line)))
        missed[0], missed[1, after], missed[2, after - 1] = off, step, step
        missed[1:] *= width * (1 - AT[-1]) / 2
        rest, fall = _rest(panels, density, n)
        off = np.bincount(line, missed.sum(axis=0), n) + rest.sum(axis=0)
        error = np.divide(off, mass, out=np.ones(n), where=(off < mass) & np.isfinite(top))
        full = np.bincount(line, minlength=n) >= _PANELS
        unresolved = missed > tolerance * mass[line]
        part = np.where(unresolved[0], 0, np.argmax(missed, axis=0))
        # beside a panel that is not resolved within, nothing is known of the other
        unresolved[1, after] &= ~unresolved[0, after - 1]
        unresolved[2, after - 1] &= ~unresolved[0, after]
        unresolved = unresolved.any(axis=0) & ~full[line]
        # where draws lie on peaks between places, lines of other draws have them too
        found = np.zeros(n, bool)
        found[line[here]] = surprised
        if not late and found.sum() > _SHARE * n:
            unresolved |= ~found[line]
        # panels that agree with their nodes say no more than that nothing was seen
        error = np.maximum(error, tolerance)
        return _Fit(series, mass, unresolved, part, rest, fall, full, error)


def _interpolate(
    log_density: Float64[np.ndarray, "m k"], density: Float64[np.ndarray, "m k"]
) -> tuple[Float64[np.ndarray, "m h"], Float64[np.ndarray, " m"]]:
    """The density on panels as series, and what its mean there may be off by."""
    smooth = np.isfinite(log_density).all(axis=1)
    logs = np.where(smooth[:, None], log_density, 0.0) @ LOG_TO_SERIES
    # little above what was seen, lest a panel that is not resolved drown its line
    fine = np.exp(np.minimum(logs @ _TO_NODES, 1.0))
    series = fine @ TO_SERIES
    # an error of the log density is a share of the density; where it is large, of the highest
    share = np.minimum(_tail(logs), 1.0)
    highest = np.maximum(density.max(axis=1), fine.max(axis=1))
    off = _tail(series) + share * np.where(share < _SHARE, series[:, 0], highest)
    # where the density ends, of which there is no logarithm
    ends = np.flatnonzero(~smooth)
    series[ends] = 0.0
    series[ends, :PLACES] = density[ends] @ LOG_TO_SERIES
    off[ends] = _tail(series[ends, :PLACES])
    return series, off


def _tail(series: Float64[np.ndarray, "m k"]) -> Float64[np.ndarray, " m"]:
    """What may be missing of series: as far below the last two coefficients as these are below the
    two before."""
    last = np.abs(series[:, -4:])
    earlier, final = np.maximum(last[:, 0], last[:, 1]), np.maximum(last[:, 2], last[:, 3])
    return final * np.minimum(final / np.maximum(earlier, np.finfo(float).tiny), 1.0)


def _rest(
    panels: Panels, density: Float64[np.ndarray, "m k"], n: int
) -> tuple[Float64[np.ndarray, "2 n"], Float64[np.ndarray, "2 n"]]:
    """About the mass beyond the left and the right end of each line, relative to its highest
    density, if the log density falls there as it does between the last two places: twice what it is
    with a straight line, as powers fall more slowly. Infinite where it does not fall. And how fast
    it falls."""
    first = np.searchsorted(panels.line, np.arange(n))
    last = np.searchsorted(panels.line, np.arange(n), side="right") - 1
    ends = ((first, 0, 1), (last, PLACES - 1, PLACES - 2))
    rest, fall = np.zeros((2, 2, n))
    for side, (panel, outer, inner) in enumerate(ends):
        outermost, next_one = panels.log_density[panel, outer], panels.log_density[panel, inner]
        step = panels.width[panel] / 2 * abs(AT[outer] - AT[inner])
        with np.errstate(invalid="ignore", divide="ignore"):
            fall[side] = slope = (next_one - outermost) / step
            beyond = np.where(slope > 0, 2 * density[panel, outer] / slope, np.inf)
        rest[side] = np.where(np.isneginf(outermost), 0.0, beyond)
    return rest, fall


def _grow(panels: Panels, fit: _Fit, tolerance: float) -> Panels:
    """Return panels beyond ends where there is mass left: thrice as long as it takes to fall below
    what matters, and at most as long as the line is now."""
    n = len(fit.mass)
    lines = np.arange(n)
    left = panels.left[np.searchsorted(panels.line, lines)]
    right = panels.right[np.searchsorted(panels.line, lines, side="right") - 1]
    more = (fit.rest > tolerance * fit.mass) & ~fit.full
    with np.errstate(all="ignore"):
        length = 3 * np.log(fit.rest / (tolerance * fit.mass)) / fit.fall
    length = np.where(length > 0, np.minimum(length, right - left), right - left)
    line = np.concatenate([lines[side] for side in more])
    lower = np.concatenate([(left - length[0])[more[0]], right[more[1]]])
    upper = np.concatenate([left[more[0]], (right + length[1])[more[1]]])
    return Panels(line, lower, upper, np.empty((len(line), PLACES)))


def _split(panels: Panels, part: Int[np.ndarray, " m"]) -> Panels:
    """Return two panels for each: its halves; what lies on both sides of an end of the support, as
    far as nodes tell where that is; or at an end where most was missed, what has no node."""
    inside = np.isfinite(panels.log_density)
    edge = inside[:, 1:] != inside[:, :-1]
    nodes, rows = panels.places, np.arange(len(panels.line))
    at = np.argmax(edge, axis=1)
    within = np.where(
        edge.any(axis=1),
        (nodes[rows, at] + nodes[rows, np.minimum(at + 1, PLACES - 1)]) / 2,
        (panels.left + panels.right) / 2,
    )
    middle = np.choose(part, [within, nodes[:, 0], nodes[:, -1]])
    return Panels(
        np.tile(panels.line, 2),
        np.concatenate([panels.left, middle]),
        np.concatenate([middle, panels.right]),
        np.empty((2 * len(at), PLACES)),
    )


def _evaluate(series: Float64[np.ndarray, "r k"], t: Float64[np.ndarray, " r"]) -> np.ndarray:
    """The values of Legendre series, each at a place of its own in [−1, 1]."""
    return legendre.legval(t, series.T, tensor=False)
