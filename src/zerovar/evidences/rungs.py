"""Means at one temperature by polynomials, all degrees from one factorisation.

A ladder asks for a few means at each of tens of temperatures, of a few hundred draws each. So the
least squares of all polynomial degrees are read off one QR factorisation, its columns ordered by
degree: the first columns of Q and R are those of a lower degree. Nothing is compiled.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float64

from ..errors import NumericalError
from ..families.monomials import monomial_images, monomial_rows, with_constant
from ..inputs.points import (
    DRAWS_PER_TERM,
    Points,
    Standardisation,
    find_distinct,
    sum_to_one,
)
from ..statistics.series import (
    BLOCK_TIMES,
    INDEPENDENT,
    autocorrelation_time,
    some_columns,
)
from .ladders import Ladder

# Of polynomials of one variable: beyond, monomials of a few hundred draws are dependent to rounding
HIGHEST = 10
# Of a column's length, what is left of it beside the others; and of a draw, what fits without it do
# not know: beneath that they are rounding
_ROUNDED = 1e-10
_NEIGHBOURS = 3  # on either side: the median of seven holds where three of them are wrong
_FEWEST_BLOCKS = 10  # as for single fits: of fewer, each is a tenth of all draws


class Means(NamedTuple):
    """Means (q,) at a temperature, and influences (n, q) of the draws that they rest on: their
    average is the error to first order."""

    value: Float64[np.ndarray, " q"]
    influences: Float64[np.ndarray, "n q"]


class Rung:
    """The target at inverse temperature t, and the draws that serve it: those of the ladder's rung
    `source`, by importance weights if that has another temperature."""

    def __init__(self, ladder: Ladder, source: int, t: float, time: float):
        self.t, self.source, self.num_chains = float(t), source, ladder.num_chains
        self._time = time  # of autocorrelation, in draws
        values, own = ladder.log_likelihood[source], ladder.inverse_temperatures[source]
        # −∞ has no weight at any other temperature, and counts as others do at its own
        logs = np.zeros(len(values)) if self.t == own else (self.t - own) * values
        self.probabilities = sum_to_one(np.exp(logs - logs.max()))
        self.has_zeros = bool(np.isneginf(values[self.probabilities > 0]).any())
        # without weight they count for nothing, and must not make 0 · ∞
        self.log_likelihood = np.where(
            self.probabilities > 0, values, values[np.isfinite(values)].min()
        )
        self.draws, self._scores = ladder.draws[source], ladder.scores_at(source, self.t)
        self._fits: tuple[np.ndarray, ...] | None = None
        self._left_out: dict[int, _LeaveOut] = {}

    def __len__(self) -> int:
        return len(self.draws)

    def means(self, values: Float64[np.ndarray, "n q"], order: int | None = None) -> Means:
        """Return the means of integrands, by polynomials of degree `order`; without it, of the
        degree with the least leave-out error for each, where 0 is the plain mean.

        That error is the sum of what leaving out each draw moves the mean by, in size. By squares,
        the least of all degrees claimed half of its error on 50 draws of two normal coordinates.
        By residuals as they are, single draws in the tails decide, and on van der Pol's ladder of
        80 draws a rung errors were forty times larger. A chosen mean is
        moved by half of the jackknife's estimate of its bias, as for single fits.
        """
        if self._fits is None:
            self._fits = self._factorise(order)
        first, group, q, y, ends, blocks = self._fits
        root, count = np.sqrt(self.merged), values.shape[1]
        f = root[:, None] * values[first]
        value, influences = np.zeros(count), np.zeros((len(first), count))
        best = np.full(count, np.inf)
        for end in ends.tolist() if order is None else [ends[min(order, len(ends) - 1)]]:
            weights = q[:, :end] @ y[:end]  # of the intercept
            leave_out = self._left_out.get(end) or _LeaveOut(q[:, :end], blocks)
            if leave_out.size < 50_000:  # all degrees of all rungs then take 200 MB at most
                self._left_out[end] = leave_out
            left = leave_out(f)
            moves = weights[:, None] * left
            error = np.sum(np.abs(moves), axis=0)
            better = error < best
            value[better] = weights @ f[:, better]
            if order is None:
                value[better] += moves[:, better].sum(axis=0) / 2
            influences[:, better] = moves[:, better]
            best[better] = error[better]
        part = np.divide(
            self.probabilities,
            self.merged[group],
            out=np.zeros(len(self)),
            where=self.merged[group] > 0,
        )
        return Means(value, len(self) * part[:, None] * influences[group])

    def _factorise(self, order: int | None) -> tuple[np.ndarray, ...]:
        """Return rows of distinct draws, which of them each draw is, Q, what makes the intercept's
        weights of it, how many columns each degree has, and the block of each distinct draw."""
        first, inverse = find_distinct(self.draws)
        places = np.argsort(first)
        first, group = first[places], np.argsort(places)[inverse]
        self.merged = np.bincount(group, weights=self.probabilities)
        blocks = np.arange(len(first))
        if self._time >= INDEPENDENT:
            blocks = self._blocks(first)
        columns, ends = self._features(first, order)
        q, r = np.linalg.qr(np.sqrt(self.merged)[:, None] * columns)
        size = np.linalg.norm(r, axis=0)
        dependent = np.flatnonzero(np.abs(np.diagonal(r)) <= _ROUNDED * size)
        if len(dependent):
            ends = ends[ends <= dependent[0]]
        unit = np.zeros(ends[-1])
        unit[0] = 1.0
        y = scipy.linalg.solve_triangular(r[: ends[-1], : ends[-1]], unit, trans=1)
        return first, group, q[:, : ends[-1]], y, ends, blocks

    def _features(self, first: np.ndarray, order: int | None) -> tuple[np.ndarray, np.ndarray]:
        """Return a constant and features at the distinct draws, the simplest first; and after how
        many columns to stop: after each degree up to `order`.

        Without `order` the radius comes before the coordinates, and their squares before products:
        near a mode the log-likelihood is nearly a quadratic form, and in standardised coordinates
        nearly a sum of squares, for which far fewer draws are enough than for all products.
        """
        d, constant = self.draws.shape[1], np.ones((len(first), 1))
        # as many as there are draws for: weights and autocorrelation make them fewer
        effective = 1 / np.sum(self.merged**2) / max(self._time, 1.0)
        limit = effective / DRAWS_PER_TERM if order is None else len(first) - 1
        sizes = {math.comb(d + k, d) for k in range(HIGHEST + 1 if order is None else order + 1)}
        sizes = sizes - {1 + d} | {2, 2 + d, 1 + 2 * d} if order is None else sizes
        ends = np.array(sorted({1, *(size for size in sizes if size - 1 <= limit)}))
        if len(ends) == 1:
            return constant, ends
        points = Points(self.draws[first], self._scores[first], sum_to_one(self.merged))
        try:
            points = Standardisation.of(points).points(points)
        except (ValueError, NumericalError):  # of too few draws, or of those without a density
            return constant, np.ones(1, int)
        lines, squares = [(i,) for i in range(d)], [(i, i) for i in range(d)]
        products: list[tuple[int, ...]] = [*squares, *lines] if order is None else [*lines]
        for degree in itertools.count(2):
            if len(products) + 1 >= ends[-1]:
                break
            more = itertools.combinations_with_replacement(range(d), degree)
            known = set(products)
            products += [one for one in more if one not in known]
        products = products[: max(ends[-1] - 1, 2 * d if order is None else 0)]
        rows = monomial_rows(products, max(map(len, products)))
        _, images, scale = monomial_images(*with_constant(points.x.T, points.s.T), rows)
        columns = (scale[:, None] * images).T
        if order is None:
            radius = columns[:, :d].sum(axis=1, keepdims=True)
            rest = columns[:, d : 2 * d], columns[:, : d - 1], columns[:, 2 * d :]
            columns = np.hstack([radius, *rest])
        return np.hstack([constant, columns])[:, : ends[-1]], ends

    def _blocks(self, first: np.ndarray) -> np.ndarray:
        """Return the block of each distinct draw: where in the chains it occurs first."""
        length = len(self) // self.num_chains
        each = max(-(-_FEWEST_BLOCKS // self.num_chains), 1)
        count = min(max(int(length // np.ceil(BLOCK_TIMES * self._time)), each), length)
        chain, place = first // length, first % length
        return np.unique(chain * count + place * count // length, return_inverse=True)[1]


def make_rungs(ladder: Ladder, temperatures: Float64[np.ndarray, " k"] | None) -> list[Rung]:
    """Return the ladder's rungs; or one for each of other temperatures, which the draws of the last
    rung at or below it serve."""
    own, times = ladder.inverse_temperatures, _autocorrelation_times(ladder)
    some = own if temperatures is None else temperatures
    sources = np.maximum(np.searchsorted(own, some, side="right") - 1, 0)
    return [Rung(ladder, int(k), t, times[k]) for k, t in zip(sources, some, strict=True)]


def _autocorrelation_times(ladder: Ladder) -> Float64[np.ndarray, " rungs"]:
    """Return the autocorrelation time of draws and log-likelihoods at each rung: the median of a
    few neighbours.

    Neighbours are alike, and of short chains each by itself is noise: of tens of rungs of 20
    independent draws some look slow, and leaving out blocks of these made errors seven times
    larger.
    """
    found = []
    for draws, values in zip(ladder.draws, ladder.log_likelihood, strict=True):
        floor = values[np.isfinite(values)].min()
        both = np.column_stack([some_columns(draws, 20), np.maximum(values, floor)])
        found.append(autocorrelation_time(both.reshape(ladder.num_chains, -1, both.shape[1])))
    each = [
        np.median(found[max(k - _NEIGHBOURS, 0) : k + _NEIGHBOURS + 1]) for k in range(len(found))
    ]
    return np.maximum(each, 1.0)


class _LeaveOut:
    """Residuals by fits without the draw's block, Q (m, p) orthonormal; huge ones where that does
    not determine a fit. What depends on Q alone is kept for other integrands."""

    def __init__(self, q: Float64[np.ndarray, "m p"], blocks: np.ndarray):
        self._q, self._blocks, self._count = q, blocks, np.bincount(blocks)
        if len(self._count) == len(q):
            self._inverse = 1 / np.maximum(1 - np.sum(q**2, axis=1, keepdims=True), _ROUNDED)
            return
        # blocks side by side, those that are shorter with rows of zeros
        self._rows = np.argsort(blocks, kind="stable")
        starts = np.cumsum(self._count) - self._count
        self._place = blocks[self._rows], np.arange(len(q)) - starts[blocks[self._rows]]
        padded = self._pad(q)
        identity = (1 + _ROUNDED) * np.eye(padded.shape[1])
        self._inverse = np.linalg.inv(identity - padded @ padded.transpose(0, 2, 1))

    def __call__(self, values: Float64[np.ndarray, "m k"]) -> Float64[np.ndarray, "m k"]:
        plain = values - self._q @ (self._q.T @ values)
        if len(self._count) == len(self._q):
            return plain * self._inverse
        found = np.empty_like(plain)
        found[self._rows] = (self._inverse @ self._pad(plain))[self._place]
        return found

    @property
    def size(self) -> int:
        return self._inverse.size

    def _pad(self, array: np.ndarray) -> np.ndarray:
        """Return (m, k) as (block, draw, k)."""
        padded = np.zeros((len(self._count), self._count.max(), array.shape[1]))
        padded[self._place] = array[self._rows]
        return padded
