"""Integrals along many lines at once, each to an error that is known.

Every line is covered by panels with Gauss–Legendre nodes. On a panel the density is the polynomial
through its nodes: that gives its mass and the mass up to any place, and its last coefficients say
how far off they are. Panels that are not resolved are split, lines whose ends still matter grow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int
from numpy.polynomial import legendre

# On a panel of 4.3 deviations a normal density is a polynomial of 24 terms to 1e-11 of its mass
NODES = 24
# Where the first panels end, in deviations of the line from its centre, and how many they are: the
# mass of a normal density beyond is 4e-11
_REACH, _FIRST = 6.5, 3
# Of a line's mass, what a panel or an end may be off by. Standard errors of probabilities by
# control variates on a thousand draws of smooth posteriors come down to 1e-8
TOLERANCE = 1e-10
# Rounds of splitting and growing, in each of which a panel is halved or a line thrice as long; and
# panels of one line, beyond which its density is noise or has no end
_ROUNDS, _PANELS = 24, 80

Along = Callable[[Int[np.ndarray, " m"], Float64[np.ndarray, "m k"]], Float64[np.ndarray, "m k"]]
"""From row numbers of lines and places on each to numbers there."""

_X, _W = legendre.leggauss(NODES)
# Legendre's polynomials are orthogonal, and the square of the k-th has the integral 1 / (k + 1/2)
_TO_SERIES = legendre.legvander(_X, NODES - 1) * _W[:, None] * (np.arange(NODES) + 0.5)
_TO_INTEGRAL = legendre.legint(np.eye(NODES), lbnd=-1).T  # the series of the integral from −1


class Panels(NamedTuple):
    """Pieces of lines: of which line, from where to where, and the log density at their nodes."""

    line: Int[np.ndarray, " m"]
    left: Float64[np.ndarray, " m"]
    right: Float64[np.ndarray, " m"]
    log_density: Float64[np.ndarray, "m k"]

    def take(self, which: np.ndarray) -> Panels:
        """Return some of them, by mask or by number."""
        return Panels(*(field[which] for field in self))

    def join(self, other: Panels) -> Panels:
        """Return these and others."""
        return Panels(*(np.concatenate(pair) for pair in zip(self, other, strict=True)))

    @property
    def width(self) -> Float64[np.ndarray, " m"]:
        """How long they are."""
        return self.right - self.left

    @property
    def nodes(self) -> Float64[np.ndarray, "m k"]:
        """Where their nodes are, in increasing order."""
        return (self.left + self.right)[:, None] / 2 + self.width[:, None] / 2 * _X


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
        series = (legendre.legval(_X, self.series.T) * values) @ _TO_SERIES
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
    log_density: Along, centre: Float64[np.ndarray, " n"], start: Float64[np.ndarray, " n"]
) -> Conditional:
    """Return the density along n lines, on each of which one unit is about a deviation.

    centre: about where the mass of each line is.
    start: the log density at 0, where the line's draw is. Panels must agree with it, so that no
        peak is missed there.
    """
    n = len(centre)
    ends = centre[:, None] + np.linspace(-_REACH, _REACH, _FIRST + 1)
    # with the draw well inside
    ends[:, 0], ends[:, -1] = np.minimum(ends[:, 0], -1.0), np.maximum(ends[:, -1], 1.0)

    def evaluate(panels: Panels) -> Panels:
        found = log_density(panels.line, panels.nodes)
        return panels._replace(log_density=np.where(np.isnan(found), -np.inf, found))

    line = np.repeat(np.arange(n), _FIRST)
    blank = np.empty((len(line), NODES))
    panels = evaluate(Panels(line, ends[:, :-1].ravel(), ends[:, 1:].ravel(), blank))
    evaluations = panels.log_density.size
    for last in range(_ROUNDS, -1, -1):
        panels = panels.take(np.lexsort((panels.left, panels.line)))
        fit = _Fit.of(panels, start)
        wanted = _grow(panels, fit).join(
            _split(panels.take(fit.unresolved), fit.missed[:, fit.unresolved])
        )
        if not last or not len(wanted.line):
            break
        new = evaluate(wanted)
        evaluations += new.log_density.size
        panels = panels.take(~fit.unresolved).join(new)
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
    split, and what they may have missed within, at their left and at their right end; the mass
    beyond both ends of each line; and what its integrals may be off by."""

    series: Float64[np.ndarray, "m k"]
    mass: Float64[np.ndarray, " n"]
    unresolved: Bool[np.ndarray, " m"]
    missed: Float64[np.ndarray, "3 m"]
    rest: Float64[np.ndarray, "2 n"]
    full: Bool[np.ndarray, " n"]
    error: Float64[np.ndarray, " n"]

    @staticmethod
    def of(panels: Panels, start: Float64[np.ndarray, " n"]) -> _Fit:
        n, line, width = len(start), panels.line, panels.width
        top = start.copy()
        np.maximum.at(top, line, panels.log_density.max(axis=1))
        with np.errstate(invalid="ignore"):  # of no density where it is infinite
            density = np.nan_to_num(np.exp(panels.log_density - top[line][:, None]))
            at_draw = np.nan_to_num(np.exp(start - top))
        series = density @ _TO_SERIES
        mass = np.maximum(np.bincount(line, width * series[:, 0], n), np.finfo(float).tiny)
        # as far below the last two coefficients as these are below the two before
        *_, earlier, final = np.abs(series.reshape(len(series), -1, 2)).max(axis=2).T
        off = width * final * np.minimum(final / np.maximum(earlier, np.finfo(float).tiny), 1.0)
        # the panel of the draw itself, whose density is known
        here = (panels.left <= 0) & (panels.right > 0)
        seen = _evaluate(series[here], -(panels.left + panels.right)[here] / width[here])
        off[here] = np.maximum(off[here], width[here] * np.abs(seen - at_draw[line[here]]))
        # panels that meet must agree: a jump there, or a peak, is between their outermost nodes
        after = np.flatnonzero(line[1:] == line[:-1]) + 1
        end = np.ones(len(after))
        step = np.abs(_evaluate(series[after], -end) - _evaluate(series[after - 1], end))
        missed = np.zeros((3, len(line)))
        missed[0], missed[1, after], missed[2, after - 1] = off, step, step
        missed[1:] *= width * (1 - _X[-1]) / 2
        rest = _rest(panels, density, n)
        off = np.bincount(line, missed.sum(axis=0), n) + rest.sum(axis=0)
        error = np.divide(off, mass, out=np.ones(n), where=(off < mass) & np.isfinite(top))
        full = np.bincount(line, minlength=n) >= _PANELS
        unresolved = missed > TOLERANCE * mass[line]
        # beside a panel that is not resolved within, nothing is known of the other
        unresolved[1, after] &= ~unresolved[0, after - 1]
        unresolved[2, after - 1] &= ~unresolved[0, after]
        unresolved = unresolved.any(axis=0) & ~full[line]
        # panels that agree with their nodes say no more than that nothing was seen
        error = np.maximum(error, TOLERANCE)
        return _Fit(series, mass, unresolved, missed, rest, full, error)


def _rest(
    panels: Panels, density: Float64[np.ndarray, "m k"], n: int
) -> Float64[np.ndarray, "2 n"]:
    """About the mass beyond the left and the right end of each line, relative to its highest
    density, if the log density falls there as it does between the last two nodes: twice what it is
    with a straight line, as powers fall more slowly. Infinite where it does not fall."""
    first = np.searchsorted(panels.line, np.arange(n))
    last = np.searchsorted(panels.line, np.arange(n), side="right") - 1
    ends = ((first, 0, 1), (last, NODES - 1, NODES - 2))
    rest = np.zeros((2, n))
    for side, (panel, outer, inner) in enumerate(ends):
        outermost, next_one = panels.log_density[panel, outer], panels.log_density[panel, inner]
        step = panels.width[panel] / 2 * abs(_X[outer] - _X[inner])
        with np.errstate(invalid="ignore", divide="ignore"):
            slope = (next_one - outermost) / step
            beyond = np.where(slope > 0, 2 * density[panel, outer] / slope, np.inf)
        rest[side] = np.where(np.isneginf(outermost), 0.0, beyond)
    return rest


def _grow(panels: Panels, fit: _Fit) -> Panels:
    """Return panels as long as the line is now, beyond ends where there is mass left."""
    n = len(fit.mass)
    lines = np.arange(n)
    left = panels.left[np.searchsorted(panels.line, lines)]
    right = panels.right[np.searchsorted(panels.line, lines, side="right") - 1]
    more = (fit.rest > TOLERANCE * fit.mass) & ~fit.full
    line = np.concatenate([lines[side] for side in more])
    lower = np.concatenate([(2 * left - right)[more[0]], right[more[1]]])
    upper = np.concatenate([left[more[0]], (2 * right - left)[more[1]]])
    return Panels(line, lower, upper, np.empty((len(line), NODES)))


def _split(panels: Panels, missed: Float64[np.ndarray, "3 m"]) -> Panels:
    """Return two panels for each: its halves; what lies on both sides of an end of the support, as
    far as nodes tell where that is; or at an end where most was missed, what has no node."""
    inside = np.isfinite(panels.log_density)
    edge = inside[:, 1:] != inside[:, :-1]
    nodes, rows = panels.nodes, np.arange(len(panels.line))
    at = np.argmax(edge, axis=1)
    within = np.where(
        edge.any(axis=1),
        (nodes[rows, at] + nodes[rows, np.minimum(at + 1, NODES - 1)]) / 2,
        (panels.left + panels.right) / 2,
    )
    middle = np.choose(np.argmax(missed, axis=0), [within, nodes[:, 0], nodes[:, -1]])
    return Panels(
        np.tile(panels.line, 2),
        np.concatenate([panels.left, middle]),
        np.concatenate([middle, panels.right]),
        np.empty((2 * len(at), NODES)),
    )


def _evaluate(series: Float64[np.ndarray, "r k"], t: Float64[np.ndarray, " r"]) -> np.ndarray:
    """The values of Legendre series, each at a place of its own in [−1, 1]."""
    return legendre.legval(t, series.T, tensor=False)
