"""Coordinates in which stochastic steps on a linear family converge in a few passes over the draws.

A linear family becomes features φ (the constant, polynomial features, kernel translates at centres)
times a matrix: g = φ B w. B whitens: with H the second moment of φ plus the penalty, BᵀHB ≈ 1, so
every direction of w is learnt at the same rate. Three things make that work on real draws.

*Centres.* Kernels are represented by translates at the pivots of a Cholesky factorisation of the
Gram of a subset of draws, which drops redundant centres, in the basis that is orthonormal in the
kernel's space, so that its norm is ‖θ‖².

*Leverage.* Draws in the tails, missing from a uniform subset, can dominate H. So H is estimated in
rounds: uniform draws first, then draws chosen in proportion to their leverage ‖Bᵀφ‖² under the H so
far. Batches are drawn in proportion to leverage too, and weighted back.

*Few draws.* H is built from a tenth of the draws, or from 500; leverages take one cheap pass over
all of them. So it is a preconditioner, and never the solution in disguise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, cast

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64
from numpy.random import Generator

from ...families import LinearFamily
from ...families.base import parts_of
from ...hyper import with_hyper_parameters
from ...inputs.integrands import ROWS
from ...inputs.points import DRAWS_PER_TERM, PointData, Points
from ..algebra.dense import ROUNDING, pivoted_cholesky, triangular_inverse
from ..algebra.memory import COLUMNS, SAMPLE
from ..algebra.tiles import Matrix, feature_matrix, gram_matrix
from ..terms import width
from .whitening import (
    MOST_DENSE,
    Basis,
    Dense,
    Plain,
    by_leverage,
    inclusion,
    largest_eigenvalue,
    systematic,
    whiten,
    with_penalty,
)

# Draws that a preconditioner may use in any case, if they are no more than half: it stays a
# preconditioner, and is not the solution in disguise.
_SUBSET = 500
# The share of all draws that it may use, where that is more
_SHARE = 0.1


class Features(eqx.Module):
    """φ: the constant (where the intercept is trained), the features of each part, and a kernel's
    orthonormal ones.

    The last are κ · lift, κ the kernel's translates: those of the last part, if there is a lift.
    """

    parts: tuple[LinearFamily, ...]
    lift: Any  # (translates, centres), or None
    constant: bool = eqx.field(static=True)

    def raw(self, x: Float[Array, "n d"], s: Float[Array, "n j"]) -> Float[Array, "n k"]:
        """Return features before the lift."""
        ones = [jnp.ones((len(x), int(self.constant)), dtype=x.dtype)]
        return jnp.concatenate([*ones, *(part.features(x, s) for part in self.parts)], axis=1)

    def raw_on_host(self, x: Matrix, s: PointData) -> Float64[np.ndarray, "n p"]:
        """Return features before the lift, made on the host."""
        blocks = [
            np.ones((int(self.constant), len(x))),
            *(_features_of(part, x, s) for part in self.parts),
        ]
        return (blocks[0] if len(blocks) == 1 else np.concatenate(blocks)).T

    def apply_lift(self, raw: Any) -> Any:
        """Return φ from features before the lift."""
        if self.lift is None:
            return raw
        size = len(self.lift)
        numpy = np if isinstance(raw, np.ndarray) else jnp
        return numpy.concatenate([raw[:, :-size], raw[:, -size:] @ self.lift], axis=1)

    def on_raw(self, matrix: np.ndarray) -> np.ndarray:
        """Return the matrix that does to raw features what `matrix` does to φ."""
        if self.lift is None:
            return matrix
        size = self.lift.shape[1]
        return np.concatenate([matrix[:-size], self.lift @ matrix[-size:]])

    def __call__(self, x: Float[Array, "n d"], s: Float[Array, "n k"]) -> Float[Array, "n P"]:
        return self.apply_lift(self.raw(x, s))

    def families(self) -> tuple[LinearFamily, ...]:
        """Return families of the parts, a kernel in place of its translates."""
        return tuple(
            part if part.translated is None else part.translated.family for part in self.parts
        )

    def with_hyper(self, logarithms: list[Any]) -> Features:
        """Return the same with other hyper-parameters."""
        families = with_hyper_parameters(self.families(), logarithms)
        pairs = (
            (family, part.translated) for family, part in zip(families, self.parts, strict=True)
        )
        parts = (
            family if old is None else family.translates(old.points, old.scores)
            for family, old in pairs
        )
        return Features(tuple(parts), self.lift, self.constant)


def _features_of(family: LinearFamily, x: Matrix, s: PointData) -> Float64[np.ndarray, "p n"]:
    """Return features of a part. Translates at the draws themselves are a symmetric Gram, half of
    whose tiles do: 0.27 s in place of 1.0 for 3000 draws."""
    # the parts of a linear family are linear
    if len(parts := cast(tuple[LinearFamily, ...], parts_of(family))) > 1:
        return np.concatenate([_features_of(part, x, s) for part in parts])
    found = family.translated
    if (
        found is not None
        and found.lift is None
        and np.array_equal(found.points, x)
        and np.array_equal(found.scores, s)
    ):
        return gram_matrix(found.family, x, s)
    return feature_matrix(family, x, s)


@dataclasses.dataclass(frozen=True)
class TrainingCoordinates:
    """Features and basis, the rows ψ = φ B if they are kept, and what the sampling of batches
    needs."""

    features: Features
    basis: Basis
    rows: Float64[np.ndarray, "m r"] | None
    leverage: Float64[np.ndarray, " m"]  # ‖ψ‖² of each draw, or about that
    # eigenvalue of the second moment of ψ plus the penalty, where steps are derived from it
    largest: float | None
    # standard deviations of φ, what L1 is measured in, where there is L1
    spread: Float64[np.ndarray, " P"] | None
    stats: dict[str, Any]

    def at(self, x: Matrix, s: PointData) -> Float64[np.ndarray, "n r"]:
        """Return ψ at any draws."""
        return self.basis(self.features.apply_lift(self.features.raw_on_host(x, s)))

    def leverages(self, points: Points, rng: Generator) -> Float64[np.ndarray, " n"]:
        """Return about ‖ψ‖² at any draws, for less than ψ costs."""
        return _Draws(self.features, points, 0).leverages(
            self.basis, rng, isinstance(self.basis, Dense)
        )

    def largest_at(
        self, psi: Callable[[np.ndarray], np.ndarray], leverage: Any, probabilities: Any, rng: Any
    ) -> float:
        """Return `largest` of other draws, ψ given as a function of row numbers, with leverages and
        probabilities (n,)."""
        some, weights = _by_leverage(leverage, probabilities, rng)
        return largest_eigenvalue(psi(some), weights, self.basis, self.features.constant)


@dataclasses.dataclass(frozen=True)
class Penalties:
    """Strengths on the coefficients of features (Ridge or L2; `on_coefficients` says which) and on
    the constant."""

    quadratic: float
    constant: float
    on_coefficients: bool


@dataclasses.dataclass(frozen=True)
class CoordinateOptions:
    """How to make coordinates. At most `keep` numbers are kept.

    `for_tuning` coordinates stay good while hyper-parameters change: plain translates, and a basis
    without large entries. `turned` makes the penalty diagonal, which saves time, but the axes are
    then as arbitrary as eigenvectors are: not for optimisers that treat each axis by itself, whose
    result should not hang on rounding. `own_steps`: the length of steps is derived from the draws;
    `sparse`: there is L1. What only these need is not computed for others.
    """

    centres: int | None
    precondition: bool
    keep: int
    for_tuning: bool = False
    turned: bool = True
    own_steps: bool = True
    sparse: bool = True


def subset_size(m: int) -> int:
    """Return how many of m draws a preconditioner may use."""
    return int(max(min(m // 2, _SUBSET), _SHARE * m, min(m, 8)))


def make_coordinates(
    family: LinearFamily | None,
    points: Points,
    penalties: Penalties,
    constant: bool,
    plan: CoordinateOptions,
    rng: Generator,
) -> TrainingCoordinates:
    """Choose centres and whiten. `constant=False` leaves the constant out and centres H instead."""
    d, probabilities = points.dim, points.probabilities
    count = subset_size(len(points))
    free, penalised, kernel = _by_kind(family, d, penalties)
    penalty = [np.full(int(constant), penalties.constant)]
    penalty += [np.zeros(width(part, d)) for part in free]
    penalty += [np.full(width(part, d), penalties.quadratic) for part in penalised]
    parts, lift = [*free, *penalised], None
    if kernel is not None:
        known = sum(len(entry) for entry in penalty)
        most = max(8, int(count / DRAWS_PER_TERM) - known) if plan.centres is None else plan.centres
        plain = penalties.on_coefficients or plan.for_tuning
        translates, lift = _translates(kernel, points, plan.centres, most, rng, plain)
        parts.append(translates)
        penalty.append(np.full(lift.shape[1], penalties.quadratic))
    features = Features(tuple(parts), lift, constant)
    total = np.concatenate(penalty)
    draws = _Draws(features, points, plan.keep)
    basis: Basis = Plain(total)
    used = 0
    if plan.precondition and len(total):
        # what bounds the entries of a basis while hyper-parameters move
        damping = 1 / MOST_DENSE if plan.for_tuning else 0.0
        basis, used = _whiten_draws(draws, probabilities, total, count, damping, rng)
        if isinstance(basis, Dense) and total.any():
            basis = with_penalty(basis, total, plan.turned)
    if isinstance(basis, Dense):
        features, basis = _fold(features, basis)
    rows = None if draws.kept is None else basis(features.apply_lift(draws.kept))
    leverage = (
        np.sum(rows**2, axis=1)
        if rows is not None
        else draws.leverages(basis, rng, isinstance(basis, Dense))
    )
    largest, spread = None, None
    if plan.own_steps or plan.sparse:
        # What a second moment over all draws would say, from some that are chosen by leverage
        some, weights = _by_leverage(leverage, probabilities, rng)
        if plan.sparse:
            phi = draws.take(some)
            mean = weights @ phi / weights.sum()
            spread = np.sqrt(np.maximum(weights @ (phi - mean) ** 2 / weights.sum(), 0.0))
        if plan.own_steps:
            psi = rows[some] if rows is not None else basis(features.apply_lift(draws.raw(some)))
            largest = largest_eigenvalue(psi, weights, basis, constant)
    stats = {
        "unknowns": len(total),
        "preconditioner_draws": used,
        "features_kept": rows is not None,
    }
    stats |= {} if lift is None else {"centres": lift.shape[1]}
    return TrainingCoordinates(features, basis, rows, leverage, largest, spread, stats)


def _by_leverage(
    leverage: np.ndarray, probabilities: np.ndarray, rng: Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Choose some draws by leverage; return them, and the weights with which a sum over them is
    about the mean over all."""
    chance = inclusion(by_leverage(leverage, probabilities), min(len(leverage), SAMPLE))
    some = systematic(chance, rng)
    return some, probabilities[some] / chance[some]


class _Draws:
    """Raw features of the draws, kept if there is room for them, else made when asked for."""

    def __init__(self, features: Features, points: Points, keep: int):
        self.features, self._points = features, points
        size = len(points) * (
            features.constant + sum(width(part, points.dim) for part in features.parts)
        )
        self.kept = features.raw_on_host(points.x, points.s) if size <= keep else None

    def raw(self, rows: Any) -> np.ndarray:
        if self.kept is not None:
            return self.kept[rows]
        return self.features.raw_on_host(self._points.x[rows], self._points.s[rows])

    def take(self, rows: np.ndarray) -> np.ndarray:
        return self.features.apply_lift(self.raw(rows))

    def leverages(self, basis: Basis, rng: Generator, folded: bool = False) -> np.ndarray:
        """Return about ‖ψ‖² of all draws, through a few random combinations of ψ. A folded basis
        acts on raw features."""
        few = basis.size <= COLUMNS
        sketch = (
            np.eye(basis.size) if few else rng.normal(size=(basis.size, COLUMNS)) / np.sqrt(COLUMNS)
        )
        matrix = (
            basis.coefficients(sketch)
            if folded
            else self.features.on_raw(basis.coefficients(sketch))
        )
        steps = [slice(i, i + ROWS) for i in range(0, len(self._points), ROWS)]
        return np.concatenate([np.sum((self.raw(rows) @ matrix) ** 2, axis=1) for rows in steps])


def _by_kind(
    family: LinearFamily | None, d: int, penalties: Penalties
) -> tuple[list, list, LinearFamily | None]:
    """Return parts with features, unpenalised and penalised, and the sum of all kernels."""
    if family is None:
        return [], [], None
    penalised, free = family.split()
    # weights fall away with coefficients of their own
    if penalised is not None and penalties.on_coefficients:
        penalised = penalised.unweighted()
    others, kernel = (None, None) if penalised is None else penalised.split_by_features(d)
    return [] if free is None else [free], [] if others is None else [others], kernel


def _translates(
    kernel: LinearFamily,
    points: Points,
    centres: int | None,
    most: int,
    rng: Generator,
    plain: bool,
) -> tuple[LinearFamily, np.ndarray]:
    """Return translates at well-spread centres, and the matrix that makes them orthonormal in the
    kernel's space.

    Plain ones, whose coefficients count, stay as they are, at random centres.
    """
    x, s, m = points.x, points.s, len(points)
    size = min(m, max(subset_size(m), 8), MOST_DENSE) if centres is None else min(m, centres)
    chosen = (
        rng.choice(m, size, replace=False, p=points.probabilities) if size < m else np.arange(m)
    )
    if plain:
        count = min(size, most)
        chosen, inverse = chosen[:count], np.eye(count)
    else:
        gram = gram_matrix(kernel, x[chosen], s[chosen])
        triangle, pivots = pivoted_cholesky(gram, ROUNDING * len(gram) * gram.diagonal().max())
        count = min(len(pivots), most)
        chosen, inverse = chosen[pivots[:count]], triangular_inverse(triangle[:count, :count])
    extra = -count % COLUMNS  # copies of a centre, without a coefficient
    padded = np.concatenate([chosen, np.full(extra, chosen[0])])
    return kernel.translates(x[padded], s[padded]), np.pad(inverse, ((0, extra), (0, 0)))


def _fold(features: Features, basis: Dense) -> tuple[Features, Dense]:
    """Return features without a lift, which goes inside the matrix, and the matrix padded."""
    matrix = features.on_raw(basis.matrix)
    extra = -matrix.shape[1] % COLUMNS
    padded = Dense(
        np.pad(matrix, ((0, 0), (0, extra))),
        np.pad(basis.penalty, [(0, extra)] * basis.penalty.ndim),
    )
    return Features(features.parts, None, features.constant), padded


def _whiten_draws(
    draws: _Draws, probabilities, penalty, count: int, damping: float, rng
) -> tuple[Basis, int]:
    """Whiten in rounds: H of uniform draws, of draws by leverage, and last with the few that alone
    would dominate a direction."""
    # how often each draw is in `chosen`, on average
    chosen, expected = np.zeros(0, dtype=int), np.zeros(len(probabilities))
    preference, outliers = probabilities, count // 8
    for share in (count // 2, count - count // 2 - outliers):
        probability = inclusion(preference, share)
        chosen = np.concatenate([chosen, systematic(probability, rng)])
        expected += probability
        weights = probabilities[chosen] / expected[chosen]
        basis = whiten(draws.take(chosen), weights, penalty, draws.features.constant, damping)
        leverage = draws.leverages(basis, rng)
        preference = by_leverage(leverage, probabilities)
    share = probabilities * leverage  # of each draw in the second moment along its own direction
    sure = np.argsort(share)[len(share) - outliers :]
    # a direction is to be known by some draws: one with as much as that leaves to each is sure
    sure = sure[share[sure] > 1 / DRAWS_PER_TERM]
    if len(sure):
        others = chosen[~np.isin(chosen, sure)]
        weights = np.concatenate([probabilities[sure], probabilities[others] / expected[others]])
        chosen = np.concatenate([sure, others])
        basis = whiten(draws.take(chosen), weights, penalty, draws.features.constant, damping)
    return basis, len(np.unique(chosen))
