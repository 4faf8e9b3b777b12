"""Draws and scores, validated once, and the affine map that puts them on good coordinates."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float64, Int
from scipy.linalg import lapack

Matrix = Float64[np.ndarray, "n d"]
Vector = Float64[np.ndarray, " n"]

# Below this many draws a coordinate, the sample covariance is shrunk towards its diagonal.
_DRAWS_PER_DIMENSION = 10


def as_float(name: str, array: Any) -> np.ndarray:
    """`array` as finite float64, or a ValueError that names the argument and the first bad entry."""
    if isinstance(array, np.ma.MaskedArray) and array.mask.any():
        raise ValueError(
            f"{name} is a masked array with {array.mask.sum()} masked entries; leave those draws out of all arrays"
        )
    try:
        out = np.asarray(array)
        if out.dtype.kind == "O":
            out = out.astype(np.float64)  # a table of numbers kept as objects; anything else fails here
    except Exception as error:
        raise ValueError(
            f"{name} cannot be read as a rectangular array of numbers (ragged, or non-numeric?): {error}"
        ) from error
    if out.dtype.kind not in "fiub":
        kind = "ragged or non-numeric" if out.dtype.kind in "OSU" else f"of dtype {out.dtype}"
        raise ValueError(f"{name} must be a rectangular array of real numbers; got an array that is {kind}")
    out = np.array(out, dtype=np.float64, order="C")  # a copy: a Sample does not change under its owner's feet
    bad = ~np.isfinite(out)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(
            f"{name} must be finite; got {bad.sum()} NaN or infinite entries, the first at index {where}. "
            "Remove those draws or mend the log density there: zerovar does not drop them for you"
        )
    return out


@dataclasses.dataclass(frozen=True, eq=False)
class Sample:
    """Draws x_i of a distribution and the scores s_i = ∇log π(x_i) there.

    `draws` and `scores` are (n, d), one chain in order, or (chain, draw, d); both are kept flat, (n, d), chain after chain.
    `log_weights`, (n,) or (chain, draw), are unnormalised log importance weights; without them every draw counts alike.
    """

    draws: Matrix
    scores: Matrix
    num_chains: int
    weights: Vector | None
    names: tuple[str, ...] | None = None

    def __init__(self, draws: Any, scores: Any, log_weights: Any = None, names: Any = None):
        draws, scores = as_float("draws", draws), as_float("scores", scores)
        if draws.shape != scores.shape:
            hint = "; the axes look swapped" if draws.shape == scores.shape[::-1] else ""
            raise ValueError(
                "draws and scores must have the same shape, (n, d) or (chain, draw, d); "
                f"got {draws.shape} and {scores.shape}{hint}"
            )
        if draws.ndim not in (2, 3):
            hint = " For one parameter use draws[:, None]" if draws.ndim == 1 else ""
            raise ValueError(f"draws must be (n, d) or (chain, draw, d); got shape {draws.shape}.{hint}")
        chains = draws.shape[0] if draws.ndim == 3 else 1
        d = draws.shape[-1]
        if d == 0 or chains == 0 or draws.shape[-2] < 4:
            raise ValueError(
                f"draws must hold at least 4 draws a chain of at least one parameter; got {chains} chain(s) of "
                f"{draws.shape[-2]} draws in {d} dimensions. If the axes are (parameter, draw), transpose"
            )
        draws, scores = draws.reshape(-1, d), scores.reshape(-1, d)
        n = len(draws)
        for name, array in (("draws", draws), ("scores", scores)):
            constant = np.flatnonzero(np.ptp(array, axis=0) == 0)
            if constant.size:
                raise ValueError(
                    f"{name}: coordinate {constant[0]} is the same number, {array[0, constant[0]]:g}, at every draw "
                    f"({constant.size} such of {d}). A fixed parameter is not sampled: leave it out of draws and scores"
                )
        object.__setattr__(self, "draws", draws)
        object.__setattr__(self, "scores", scores)
        object.__setattr__(self, "num_chains", chains)
        object.__setattr__(self, "weights", _normalised(log_weights, chains, n))
        object.__setattr__(self, "names", _coordinate_names(names, d))

    def __len__(self) -> int:
        return len(self.draws)

    def __repr__(self) -> str:
        weighted = ", weighted" if self.weights is not None else ""
        return f"Sample({self.num_chains} × {len(self) // self.num_chains} draws, d = {self.dim}{weighted})"

    @property
    def dim(self) -> int:
        return self.draws.shape[1]

    @property
    def probabilities(self) -> Vector:
        """What each draw counts, (n,), summing to one."""
        return np.full(len(self), 1 / len(self)) if self.weights is None else self.weights

    def take(self, rows: Int[np.ndarray, " m"]) -> Rows:
        """The draws with these row numbers, in increasing order."""
        chain = rows // (len(self) // self.num_chains)
        breaks = (np.diff(rows, prepend=-2) != 1) | (np.diff(chain, prepend=-1) != 0)
        stretch = np.cumsum(breaks) - 1
        return Rows(self.draws[rows], self.scores[rows], _renormalise(self.probabilities[rows]), stretch)

    def rows(self) -> Rows:
        stretch = np.repeat(np.arange(self.num_chains), len(self) // self.num_chains)
        return Rows(self.draws, self.scores, self.probabilities, stretch)

    def thinned(self, most: int) -> tuple[Sample, Int[np.ndarray, " m"]]:
        """About `most` draws, equally spaced within every chain, and their row numbers; all of them if they are fewer."""
        draws = len(self) // self.num_chains
        kept = min(draws, max(round(most / self.num_chains), 4))
        every = np.linspace(0, draws - 1, kept).round().astype(int)
        rows = (draws * np.arange(self.num_chains)[:, None] + every).ravel()
        if len(rows) == len(self):
            return self, rows
        shape = (self.num_chains, kept)
        weights = None if self.weights is None else np.log(self.weights[rows].reshape(shape))
        draws, scores = (array[rows].reshape(*shape, self.dim) for array in (self.draws, self.scores))
        return Sample(draws, scores, weights, self.names), rows

    def by_chain(self, array: np.ndarray) -> np.ndarray:
        """(n, ...) as (chain, draw, ...)."""
        return array.reshape(self.num_chains, -1, *array.shape[1:])


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """Points to fit or to evaluate: draws (n, d), scores (n, d), and probabilities (n,) that sum to one.

    `stretch` (n,) numbers unbroken pieces of chains: rows with the same number follow each other in one chain.
    """

    draws: Matrix
    scores: Matrix
    probabilities: Vector
    stretch: Int[np.ndarray, " n"]

    def merged(self, values: Float64[np.ndarray, "n q"]) -> tuple[Rows, np.ndarray, np.ndarray]:
        """Equal draws made one, with their probabilities added: rows, their values, and the group number of each old row.

        Metropolis rejections repeat states. For least squares with an RKHS penalty a repeated row is the same as one row
        that counts twice, and a kernel matrix with equal rows is singular, so merging loses nothing and mends that.
        """
        first, inverse = distinct(self.draws)
        if len(first) == len(self.draws):
            return self, values, np.arange(len(first))
        order = np.argsort(first)  # unique rows in the order of the chain, so that blocks of them are blocks of time
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        first, group = first[order], rank[inverse]
        for what, array in (("scores", self.scores), ("values", values)):
            if len(clash := np.flatnonzero((array != array[first][group]).any(axis=1))):
                i, j = int(first[group[clash[0]]]), int(clash[0])
                raise ValueError(
                    f"{what} differ between equal draws (rows {i} and {j}): {what} must be functions of the draw alone. "
                    "Are the rows of the arrays in the same order?"
                )
        counts = np.bincount(group, weights=self.probabilities)
        return Rows(self.draws[first], self.scores[first], counts, self.stretch[first]), values[first], group


@dataclasses.dataclass(frozen=True, eq=False)
class Standardisation:
    """x = μ + L z: draws become z = L⁻¹(x − μ) and scores Lᵀs, which are the scores of z, so Stein's identity stays.

    `factor` is lower triangular; `kind` says in a word how its covariance was estimated.
    """

    mean: Float64[np.ndarray, " d"]
    factor: Float64[np.ndarray, "d d"]
    kind: str

    @staticmethod
    def identity(d: int) -> Standardisation:
        return Standardisation(np.zeros(d), np.eye(d), "none")

    @staticmethod
    def of(rows: Rows, mixing: bool = True) -> Standardisation:
        """Mean and covariance of `rows`. `mixing=False` scales each coordinate by itself, so that it keeps its meaning.

        The covariance is full where there are ten draws or more a dimension, else shrunk towards its diagonal by the
        Ledoit–Wolf formula. Any invertible map is right; a good one only makes families better conditioned.
        """
        d = rows.draws.shape[1]
        p = rows.probabilities
        mean = p @ rows.draws
        centred = rows.draws - mean
        scale = np.sqrt(p @ centred**2)
        stuck = np.flatnonzero(scale <= 1e3 * np.finfo(float).eps * np.abs(mean))
        if stuck.size:
            raise ValueError(
                f"draws: coordinate {stuck[0]} does not move, to rounding, in the draws that fit. Is the chain stuck? "
                "Leave the coordinate out, or give more draws to the fit"
            )
        effective = 1 / np.sum(p**2)
        if not mixing or d == 1:
            return Standardisation(mean, np.diag(scale), "diagonal")
        unit = centred / scale
        correlation = (unit * p[:, None]).T @ unit
        kind = "full"
        if effective < _DRAWS_PER_DIMENSION * d:
            amount = _shrinkage(unit, p, correlation)
            correlation = (1 - amount) * correlation + amount * np.eye(d)
            kind = f"shrunk by {amount:.2g}"
        factor, info = lapack.dpotrf(correlation, lower=1, clean=1)
        if info or np.diagonal(factor).min() ** 2 < 100 * d * np.finfo(float).eps:
            j = (info or int(np.argmin(np.diagonal(factor))) + 1) - 1
            raise ValueError(
                f"draws: coordinate {j} is a linear function of the coordinates before it, to rounding, so the draws have no "
                f"density in d = {d} dimensions. Leave redundant parameters out (the last entry of a simplex, a sum of others)"
            )
        return Standardisation(mean, scale[:, None] * factor, kind)

    def __call__(self, draws: Matrix, scores: Matrix) -> tuple[Matrix, Matrix]:
        inverse = lapack.dtrtri(self.factor, lower=1)[0]
        return (draws - self.mean) @ inverse.T, scores @ self.factor


def distinct(rows: np.ndarray) -> tuple[Int[np.ndarray, " m"], Int[np.ndarray, " n"]]:
    """The numbers of the first of all equal rows of (n, k), and where each row is among them."""
    if np.all(np.diff(np.sort(rows[:, 0]))):  # so most often, and sorting numbers is ten times faster than sorting rows
        return np.arange(len(rows)), np.arange(len(rows))
    # + 0.0 turns -0.0 into 0.0, which compares equal but has other bytes
    bits = np.ascontiguousarray(rows + 0.0)
    keys = bits.view(np.dtype((np.void, bits.dtype.itemsize * bits.shape[1])))[:, 0]
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return first, inverse


def _shrinkage(unit: Matrix, p: Vector, correlation: Float64[np.ndarray, "d d"]) -> float:
    """Ledoit and Wolf's estimate of the best weight of the identity, for rows of unit variance."""
    d = unit.shape[1]
    distance = np.sum((correlation - np.eye(d)) ** 2)
    noise = np.sum(p**2 * np.sum(unit**2, axis=1) ** 2) - np.sum(p**2) * np.sum(correlation**2)
    return float(np.clip(noise / distance, 0.0, 1.0)) if distance > 0 else 1.0


def _renormalise(p: Vector) -> Vector:
    return p / p.sum()


def _normalised(log_weights: Any, chains: int, n: int) -> Vector | None:
    if log_weights is None:
        return None
    raw = np.asarray(log_weights, dtype=np.float64)
    if raw.shape not in ((n,), (chains, n // chains)):
        raise ValueError(f"log_weights must be (n,) = ({n},) or (chain, draw) = ({chains}, {n // chains}); got {raw.shape}")
    if np.isnan(raw).any() or (raw == np.inf).any() or not np.isfinite(raw).any():
        raise ValueError(
            "log_weights must be logarithms of weights: finite, or -inf for a weight of zero; got NaN, +inf or only -inf"
        )
    if (raw == -np.inf).any():
        raise ValueError(f"log_weights: {np.sum(raw == -np.inf)} draws have weight zero; leave those draws out of all arrays")
    weights = _renormalise(np.exp(raw.ravel() - raw.max()))
    if not weights.all():
        raise ValueError(
            f"log_weights: {np.sum(weights == 0)} draws have a weight that is zero to rounding next to the largest; "
            "leave those draws out of all arrays"
        )
    return weights


def _coordinate_names(names: Any, d: int) -> tuple[str, ...] | None:
    if names is None:
        return None
    if isinstance(names, str) or len(names) != d:
        raise ValueError(f"names of a Sample must be {d} strings, one a coordinate; got {names!r}")
    return tuple(str(name) for name in names)
