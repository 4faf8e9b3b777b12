"""Points with scores: the record that families and solvers work on, merged and standardised once
for every fit to them."""

from __future__ import annotations

import dataclasses
import enum
import functools
from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float64, Int

from ..errors import NumericalError
from ..io.archive import storable
from ..spaces import REALS, Space

Matrix = Float64[np.ndarray, "n d"]
PointData = Float64[np.ndarray, "n j"]
Vector = Float64[np.ndarray, " n"]
RowNumbers = Int[np.ndarray, " k"]

# Below this many draws a coordinate, the sample covariance is shrunk towards its diagonal: its
# eigenvalues are then off by more than a factor of two (Marchenko and Pastur: (1 ± √(1/10))²).
DRAWS_PER_DIMENSION = 10
# Draws for each term of a fit: one with fewer is noisy, and over-confident.
DRAWS_PER_TERM = 2.5


class Keeps(enum.IntEnum):
    """What of the coordinates standardisation leaves as it is, each more than the one before."""

    NOTHING = 0
    AXES = 1  # their meanings: each is shifted and scaled by itself
    SYMMETRY = 2  # zero and their likeness, too: all are multiplied by one number


class ChainOrder(NamedTuple):
    """How points follow each other in chains."""

    group: Int[np.ndarray, " n"]  # the point that each draw of the chains is
    # draws of one number follow each other in one chain without a gap
    segment: Int[np.ndarray, " n"]


@dataclasses.dataclass(frozen=True, eq=False)
class Points:
    """Points x (n, d) with scores s (n, d), and what each counts: probabilities (n,), which sum to
    one unless it is said. In a countable space s (n, k) is what is known of k neighbours.

    `chain` is the order in which they were drawn, where that is known; `space` where they live.
    """

    x: Matrix
    s: PointData
    probabilities: Vector
    chain: ChainOrder | None = None
    space: Space = REALS

    def __len__(self) -> int:
        return len(self.x)

    @property
    def dim(self) -> int:
        return self.x.shape[1]

    def take(self, rows: np.ndarray) -> Points:
        """Return some of the points, without an order."""
        p = sum_to_one(self.probabilities[rows])
        return Points(self.x[rows], self.s[rows], p, space=self.space)


class FittingDraws:
    """Draws that are fitted, and what every fit to them needs, computed once: which of them are
    equal, and how they are standardised."""

    def __init__(self, points: Points, standardise: bool = True):
        self.points, self._wanted = points, standardise
        self._standardisations: dict[Keeps, Standardisation | Placement] = {}
        self._standardised: dict[Keeps, Points] = {}

    def __len__(self) -> int:
        return len(self.points)

    @functools.cached_property
    def distinct(self) -> Points:
        """Equal draws made one, with their probabilities added; in the order of the chain.

        Metropolis rejections repeat states. For least squares with an RKHS penalty a repeated row
        is the same as one row that counts twice, and a kernel matrix with equal rows is singular,
        so merging loses nothing and mends that.
        """
        everything, (first, group) = self.points, self._equal
        if len(first) == len(everything):
            return everything
        _check_agreement("scores", everything.s, first, group)
        counts = np.bincount(group, weights=everything.probabilities)
        chain = everything.chain
        merged = None if chain is None else ChainOrder(group[chain.group], chain.segment)
        return Points(everything.x[first], everything.s[first], counts, merged, everything.space)

    @property
    def num_distinct(self) -> int:
        """How many of them are not a repetition, as of a state that Metropolis' rule rejects a move
        from; in a countable space a state that comes again is none."""
        return len(self) if self.come_again else len(self.distinct)

    @property
    def come_again(self) -> bool:
        """Whether they live in a countable space and some of them are equal."""
        return self.points.space.is_countable and self.distinct is not self.points

    @property
    def group(self) -> RowNumbers:
        """The distinct draw that each draw is."""
        return self._equal[1]

    @functools.cached_property
    def _equal(self) -> tuple[Int[np.ndarray, " m"], Int[np.ndarray, " n"]]:
        """The rows of the distinct draws, and which of these each draw is."""
        first, inverse = find_distinct(self.points.x)
        # in the order of the chain, so that blocks of them are blocks of time
        order = np.argsort(first)
        return first[order], np.argsort(order)[inverse]

    def merge(self, values: Float64[np.ndarray, "n q"]) -> Float64[np.ndarray, "m q"]:
        """Return the values at the distinct draws; equal draws with other values are an error."""
        if self.distinct is self.points:
            return values
        _check_agreement("values", values, *self._equal)
        return values[self._equal[0]]

    def standardisation(self, keeping: Keeps = Keeps.NOTHING) -> Standardisation | Placement:
        """Return that by mean and covariance of all draws, as far as these may change what is kept.
        In other spaces than Rᵈ it is the space's own."""
        if keeping not in self._standardisations:
            self._standardisations[keeping] = self._standardisation(keeping)
        return self._standardisations[keeping]

    def _standardisation(self, keeping: Keeps) -> Standardisation | Placement:
        points = self.points
        if not points.space.is_flat:
            alike = keeping is Keeps.SYMMETRY
            seen = points.space.resolve(points.x, points.probabilities, self._wanted, alike)
            return Placement(seen, points.dim)
        if not self._wanted:
            return Standardisation.identity(points.dim)
        return Standardisation.of(points, keeping)

    def standardise(self, keeping: Keeps = Keeps.NOTHING) -> Points:
        """Return the distinct draws, standardised."""
        if keeping not in self._standardised:
            self._standardised[keeping] = self.standardisation(keeping).points(self.distinct)
        return self._standardised[keeping]


def _check_agreement(what: str, array: np.ndarray, first: np.ndarray, group: np.ndarray) -> None:
    if len(clash := np.flatnonzero((array != array[first][group]).any(axis=1))):
        i, j = int(first[group[clash[0]]]), int(clash[0])
        text = (
            f"{what} differ between equal draws (rows {i} and {j}): {what} must be functions of "
            "the draw alone. Are the rows of the arrays in the same order?"
        )
        if what == "values":
            text += (
                " Or are these posterior predictive draws? Those have noise of their own: give "
                "E[y | θ] in place of y, the mean of the likelihood at each draw θ, and P(y > c | "
                "θ) in place of y > c. Their means are the same, and known far better"
            )
        raise ValueError(text)


@storable
@dataclasses.dataclass(frozen=True, eq=False)
class Standardisation:
    """x = μ + L z: draws become z = L⁻¹(x − μ) and scores Lᵀs, which are the scores of z, so
    Stein's identity stays.

    `factor` is lower triangular; `kind` says in a word how its covariance was estimated.
    """

    mean: Float64[np.ndarray, " d"]
    factor: Float64[np.ndarray, "d d"]
    kind: str

    @property
    def dim(self) -> int:
        """The number of coordinates of a draw."""
        return len(self.mean)

    @property
    def space(self) -> Space:
        """Where the draws live."""
        return REALS

    @staticmethod
    def identity(d: int) -> Standardisation:
        """Return the one that changes nothing."""
        return Standardisation(np.zeros(d), np.eye(d), "none")

    @staticmethod
    def of(points: Points, keeping: Keeps = Keeps.NOTHING) -> Standardisation:
        """Return the one by mean and covariance of `points`, as far as these may change what is
        kept.

        The covariance is full where there are ten draws or more a dimension, else shrunk towards
        its diagonal by the Ledoit–Wolf formula. Any invertible map is right; a good one only makes
        families better conditioned.
        """
        d, p = points.dim, points.probabilities
        mean = p @ points.x
        centred = points.x - mean
        scale = np.sqrt(p @ centred**2)
        stuck = np.flatnonzero(scale <= 1e3 * np.finfo(float).eps * np.abs(mean))
        if stuck.size:
            raise ValueError(
                f"draws: coordinate {stuck[0]} does not move, to rounding, in the draws that fit. "
                "Is the chain stuck? Leave the coordinate out, or give more draws to the fit"
            )
        effective = 1 / np.sum(p**2)
        if keeping is Keeps.SYMMETRY:
            size = np.sqrt(np.mean(p @ points.x**2))
            return Standardisation(np.zeros(d), size * np.eye(d), "by one number")
        if keeping is Keeps.AXES or d == 1:
            return Standardisation(mean, np.diag(scale), "diagonal")
        unit = centred / scale
        correlation = (unit * p[:, None]).T @ unit
        kind = "full"
        if effective < DRAWS_PER_DIMENSION * d:
            amount = _shrinkage(unit, p, correlation)
            correlation = (1 - amount) * correlation + amount * np.eye(d)
            kind = f"shrunk by {amount:.2g}"
        factor, info = scipy.linalg.lapack.dpotrf(correlation, lower=1, clean=1)
        if info or np.diagonal(factor).min() ** 2 < 100 * d * np.finfo(float).eps:
            if (few := len(find_distinct(points.x)[0])) <= d:
                raise ValueError(
                    f"draws: too few for d = {d} dimensions. Parts of them are standardised by "
                    f"their own covariance, and that of {few} distinct draws is singular. Give "
                    f"more draws, at least {DRAWS_PER_DIMENSION * d}"
                )
            j = (info or int(np.argmin(np.diagonal(factor))) + 1) - 1
            raise ValueError(
                f"draws: coordinate {j} is a linear function of the coordinates before it, to "
                f"rounding, so the draws have no density in d = {d} dimensions. Leave redundant "
                "parameters out (the last entry of a simplex, a sum of others)"
            )
        return Standardisation(mean, scale[:, None] * factor, kind)

    def __call__(self, draws: Matrix, scores: Matrix) -> tuple[Matrix, Matrix]:
        inverse = scipy.linalg.lapack.dtrtri(self.factor, lower=1)[0]
        return (draws - self.mean) @ inverse.T, scores @ self.factor

    def points(self, raw: Points) -> Points:
        """Return the same points, standardised, or raise a NumericalError where they are so large
        that the squares of a Gram's entries overflow."""
        x, s = self(raw.x, raw.s)
        size = np.maximum(np.abs(x), np.abs(s))
        if not size.max() < np.finfo(np.float64).max ** 0.25 / len(x):
            both = np.concatenate([raw.x, raw.s], axis=1)
            away = np.abs(both - np.median(both, axis=0))
            away /= np.maximum(np.median(away, axis=0), np.finfo(np.float64).tiny)
            row, column = np.unravel_index(np.argmax(away), away.shape)
            j = column % raw.dim
            raise NumericalError(
                f"draws: number {row} of the {len(x)} distinct ones that fit rules all others, and "
                f"sums overflow: it has {raw.x[row, j]:.3g} and the score {raw.s[row, j]:.3g} in "
                f"coordinate {j}. Leave it out of all arrays, or mend the log density there"
            )
        return Points(x, s, raw.probabilities, raw.chain, raw.space)


@storable
@dataclasses.dataclass(frozen=True, eq=False)
class Placement:
    """Draws (n, dim) of a space other than Rᵈ, and their scores, as families see them: what a
    standardisation is there."""

    space: Space
    dim: int

    @property
    def kind(self) -> str:
        """How it came about, in a word."""
        return self.space.describe()

    def __call__(
        self, draws: Matrix, scores: PointData
    ) -> tuple[Float64[np.ndarray, "n m"], Float64[np.ndarray, "n l"]]:
        self.space.check(draws, scores)
        return self.space.place(draws, scores)

    def points(self, raw: Points) -> Points:
        """Return the same points as families see them."""
        return Points(*self(raw.x, raw.s), raw.probabilities, raw.chain, self.space)


def find_distinct(rows: np.ndarray) -> tuple[Int[np.ndarray, " m"], Int[np.ndarray, " n"]]:
    """Return the number of the first of all equal rows of (n, k), and which of these each row
    is."""
    # so most often, and sorting numbers is ten times faster than sorting rows
    if np.all(np.diff(np.sort(rows[:, 0]))):
        return np.arange(len(rows)), np.arange(len(rows))
    # + 0.0 turns -0.0 into 0.0, which compares equal but has other bytes
    bits = np.ascontiguousarray(rows + 0.0)
    keys = bits.view(np.dtype((np.void, bits.dtype.itemsize * bits.shape[1])))[:, 0]
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return first, inverse


def _shrinkage(unit: Matrix, p: Vector, correlation: Float64[np.ndarray, "d d"]) -> float:
    """Return Ledoit and Wolf's estimate of the best weight of the identity, for rows of unit
    variance."""
    d = unit.shape[1]
    distance = np.sum((correlation - np.eye(d)) ** 2)
    noise = np.sum(p**2 * np.sum(unit**2, axis=1) ** 2) - np.sum(p**2) * np.sum(correlation**2)
    return float(np.clip(noise / distance, 0.0, 1.0)) if distance > 0 else 1.0


def sum_to_one(p: Vector) -> Vector:
    """Return probabilities that sum to one."""
    return p / p.sum()
