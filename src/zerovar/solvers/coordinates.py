"""Coordinates in which stochastic steps on a linear family converge in a few passes over the draws.

A linear family becomes features φ (the constant, polynomial features, kernel translates at centres) times a matrix: g = φ B w.
B whitens: with H the second moment of φ plus the penalty, BᵀHB ≈ 1, so every direction of w is learnt at the same rate.
Three things make that work on real draws.

*Centres.* Kernels are represented by translates at the pivots of a Cholesky factorisation of the Gram of a subset of draws,
which drops redundant centres, in the basis that is orthonormal in the kernel's space, so that its norm is ‖θ‖².

*Leverage.* Draws in the tails, missing from a uniform subset, can dominate H. So H is estimated in rounds: uniform draws first,
then draws chosen in proportion to their leverage ‖Bᵀφ‖² under the H so far. Batches are drawn in proportion to leverage too,
and weighted back.

*Honesty.* H is built from few draws, a tenth of them from 5000 on (leverages are one cheap pass over all): a preconditioner,
and never the solution in disguise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64

from ..families import Kernel, LinearFamily, Sum, Translates
from ..families.base import hyper_parameters, joined, with_hyper_parameters
from .blocks import Matrix, feature_matrix, gram_matrix
from .whitening import (
    Basis,
    Dense,
    by_leverage,
    inclusion,
    largest_eigenvalue,
    pivoted_cholesky,
    plain_basis,
    systematic,
    triangular_inverse,
    whiten,
    with_penalty,
)

_SUBSET = 500  # draws that a preconditioner may use in any case, if they are no more than half
_SHARE = 0.1  # of the draws, where that is more
_MOST_CENTRES = 1000
_DRAWS_PER_FEATURE = 3  # of H: a kernel takes no more centres than that allows
_OUTLIER = 0.3  # share of a draw in the second moment from which it is sure to be in H
_CENTRE = 1e-12  # what a centre must add to the space of the others, so that rounding does not choose centres
_SUPPLE = 1e-3  # of each feature's second moment: damping that bounds the entries of a supple basis
_SKETCH = 32
_JUDGED = 4096  # draws that the largest eigenvalue and the spread of features are taken from
_BUCKET = 32  # sizes are padded to multiples, so that folds share compiled programs


class Features(eqx.Module):
    """φ: the constant (where the intercept is trained), the features of each part, and a kernel's orthonormal ones.

    The last are κ · lift, κ the kernel's translates: those of the last part, if there is a lift.
    """

    parts: tuple[LinearFamily, ...]
    lift: Any  # (translates, centres), or None
    constant: bool = eqx.field(static=True)

    def raw(self, x: Float[Array, "n d"], s: Float[Array, "n d"]) -> Float[Array, "n k"]:
        """Before the lift."""
        ones = [jnp.ones((len(x), int(self.constant)), dtype=x.dtype)]
        return jnp.concatenate([*ones, *(part.features(x, s) for part in self.parts)], axis=1)

    def raw_on_host(self, x: Matrix, s: Matrix) -> Float64[np.ndarray, "n k"]:
        blocks = [np.ones((int(self.constant), len(x))), *(feature_matrix(part, x, s) for part in self.parts)]
        return (blocks[0] if len(blocks) == 1 else np.concatenate(blocks)).T

    def lifted(self, raw: Any) -> Any:
        if self.lift is None:
            return raw
        size = len(self.lift)
        numpy = np if isinstance(raw, np.ndarray) else jnp
        return numpy.concatenate([raw[:, :-size], raw[:, -size:] @ self.lift], axis=1)

    def on_raw(self, matrix: np.ndarray) -> np.ndarray:
        """The matrix that does to raw features what `matrix` does to φ."""
        if self.lift is None:
            return matrix
        size = self.lift.shape[1]
        return np.concatenate([matrix[:-size], self.lift @ matrix[-size:]])

    def __call__(self, x: Float[Array, "n d"], s: Float[Array, "n d"]) -> Float[Array, "n P"]:
        return self.lifted(self.raw(x, s))

    def families(self) -> tuple[LinearFamily, ...]:
        """Of the parts, a kernel in place of its translates."""
        return tuple(part.family if isinstance(part, Translates) else part for part in self.parts)

    def hyper(self) -> list[Any]:
        return hyper_parameters(self.families())

    def with_hyper(self, logarithms: list[Any]) -> Features:
        families = with_hyper_parameters(self.families(), logarithms)
        parts = (
            Translates(family, part.points, part.scores) if isinstance(part, Translates) else family
            for family, part in zip(families, self.parts, strict=True)
        )
        return Features(tuple(parts), self.lift, self.constant)


@dataclasses.dataclass(frozen=True)
class Coordinates:
    """Features and basis, the rows ψ = φ B if they are kept, and what the sampling of batches needs."""

    features: Features
    basis: Basis
    rows: Float64[np.ndarray, "m r"] | None
    leverage: Float64[np.ndarray, " m"]  # ‖ψ‖² of each draw, or about that
    largest: float  # eigenvalue of the second moment of ψ plus the penalty
    spread: Float64[np.ndarray, " P"]  # standard deviations of φ, what L1 is measured in
    stats: dict[str, Any]

    @property
    def size(self) -> int:
        """Of w."""
        return self.basis.size

    def at(self, x: Matrix, s: Matrix) -> Float64[np.ndarray, "n r"]:
        """ψ at any draws."""
        return self.basis(self.features.lifted(self.features.raw_on_host(x, s)))

    def leverages(self, x: Matrix, s: Matrix, rng: np.random.Generator) -> Float64[np.ndarray, " n"]:
        """About ‖ψ‖² at any draws, for less than ψ costs."""
        return _Draws(self.features, x, s, 0).leverages(self.basis, rng, isinstance(self.basis, Dense))

    def largest_at(self, psi: Callable[[np.ndarray], np.ndarray], leverage: Any, probabilities: Any, rng: Any) -> float:
        """`largest` of other draws, ψ given as a function of row numbers, with leverages and probabilities (n,)."""
        some, weights = _judged(leverage, probabilities, rng)
        return largest_eigenvalue(psi(some), weights, self.basis, self.features.constant)


@dataclasses.dataclass(frozen=True)
class Penalties:
    """Strengths on the coefficients of features (Ridge or L2; `on_coefficients` says which) and on the constant."""

    quadratic: float
    constant: float
    on_coefficients: bool


@dataclasses.dataclass(frozen=True)
class Plan:
    """How to make coordinates. At most `keep` numbers are kept.

    `supple` coordinates stay good while hyper-parameters change: plain translates, and a basis without large entries.
    `turned` makes the penalty diagonal, which saves time, but the axes are then as arbitrary as eigenvectors are: not for
    optimisers that treat each axis by itself, whose result should not hang on rounding.
    """

    centres: int | None
    precondition: bool
    keep: int
    supple: bool = False
    turned: bool = True


def subset_size(m: int) -> int:
    return int(max(min(m // 2, _SUBSET), _SHARE * m, min(m, 8)))


def coordinates(
    family: LinearFamily | None,
    x: Matrix,
    s: Matrix,
    probabilities: Float64[np.ndarray, " m"],
    penalties: Penalties,
    constant: bool,
    plan: Plan,
    rng: np.random.Generator,
) -> Coordinates:
    """Choose centres and whiten. `constant=False` leaves the constant out and centres H instead."""
    m = len(x)
    count = subset_size(m)
    free, penalised, kernel = _by_kind(family, x, s, penalties)
    penalty = [np.full(1, penalties.constant)] if constant else []
    penalty += [np.zeros(_width(part, x)) for part in free]
    penalty += [np.full(_width(part, x), penalties.quadratic) for part in penalised]
    parts, lift = [*free, *penalised], None
    if kernel is not None:
        known = sum(len(entry) for entry in penalty)
        most = max(8, int(count / _DRAWS_PER_FEATURE) - known) if plan.centres is None else plan.centres
        plain = penalties.on_coefficients or plan.supple
        translates, lift = _translates(kernel, x, s, probabilities, plan.centres, most, rng, plain)
        parts.append(translates)
        penalty.append(np.full(lift.shape[1], penalties.quadratic))
    features = Features(tuple(parts), lift, constant)
    total = np.concatenate(penalty) if penalty else np.zeros(0)
    draws = _Draws(features, x, s, plan.keep)

    used = 0
    basis: Basis = plain_basis(total)
    if plan.precondition and len(total):
        basis, used = _whitened(draws, probabilities, total, count, _SUPPLE if plan.supple else 0.0, rng)
        if isinstance(basis, Dense) and total.any():
            basis = with_penalty(basis, total, plan.turned)
    if isinstance(basis, Dense):
        features, basis = _folded(features, basis)
    rows = draws.rows(features, basis)
    leverage = np.sum(rows**2, axis=1) if rows is not None else draws.leverages(basis, rng, isinstance(basis, Dense))
    # What a second moment over all draws would say, from some that are chosen by leverage
    some, weights = _judged(leverage, probabilities, rng)
    phi = draws.take(some)
    psi = rows[some] if rows is not None else basis(features.lifted(draws.raw(some)))
    mean = weights @ phi / weights.sum()
    stats = {"unknowns": len(total), "preconditioner_draws": used, "features_kept": rows is not None}
    return Coordinates(
        features=features,
        basis=basis,
        rows=rows,
        leverage=leverage,
        largest=largest_eigenvalue(psi, weights, basis, constant),
        spread=np.sqrt(np.maximum(weights @ (phi - mean) ** 2 / weights.sum(), 0.0)),
        stats=stats | ({} if lift is None else {"centres": lift.shape[1]}),
    )


def _judged(leverage: np.ndarray, probabilities: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Some draws, chosen by leverage, and the weights with which a sum over them is about the mean over all."""
    chance = inclusion(by_leverage(leverage, probabilities), min(len(leverage), _JUDGED))
    some = systematic(chance, rng)
    return some, probabilities[some] / chance[some]


class _Draws:
    """Raw features of the draws, kept if there is room for them, else made when asked for."""

    def __init__(self, features: Features, x: Matrix, s: Matrix, keep: int):
        self.features, self._x, self._s = features, x, s
        width = sum(_width(part, x) for part in features.parts) + features.constant
        self._kept = features.raw_on_host(x, s) if len(x) * width <= keep else None

    def raw(self, rows: Any) -> np.ndarray:
        return self._kept[rows] if self._kept is not None else self.features.raw_on_host(self._x[rows], self._s[rows])

    def take(self, rows: np.ndarray) -> np.ndarray:
        return self.features.lifted(self.raw(rows))

    def leverages(self, basis: Basis, rng: np.random.Generator, folded: bool = False) -> np.ndarray:
        """About ‖ψ‖² of all draws, through a few random combinations of ψ. A folded basis acts on raw features."""
        few = basis.size <= _SKETCH
        sketch = np.eye(basis.size) if few else rng.normal(size=(basis.size, _SKETCH)) / np.sqrt(_SKETCH)
        matrix = basis.coefficients(sketch)
        if not folded:
            matrix = self.features.on_raw(matrix)
        steps = [slice(i, i + 8192) for i in range(0, len(self._x), 8192)]
        return np.concatenate([np.sum((self.raw(rows) @ matrix) ** 2, axis=1) for rows in steps])

    def rows(self, features: Features, basis: Basis) -> np.ndarray | None:
        return None if self._kept is None else basis(features.lifted(self._kept))


def _by_kind(family: LinearFamily | None, x: Matrix, s: Matrix, penalties: Penalties) -> tuple[list, list, LinearFamily | None]:
    """Parts with features, unpenalised and penalised, and the sum of all kernels."""
    if family is None:
        return [], [], None
    penalised, free = family.split()
    parts = penalised.parts if isinstance(penalised, Sum) else () if penalised is None else (penalised,)
    kernels = [part for part in parts if part.num_features(x.shape[1]) is None]
    others = [part for part in parts if part.num_features(x.shape[1]) is not None]
    if penalties.on_coefficients:  # a kernel's own scaling falls away with its translates' coefficients
        others = [part.on_coefficients(x, s) for part in others]
        kernels = [part.with_unit_weight() if isinstance(part, Kernel) else part for part in kernels]
    return [] if free is None else [free], others, joined(tuple(kernels))


def _width(part: LinearFamily, x: Matrix) -> int:
    p = part.num_features(x.shape[1])
    assert p is not None
    return p


def _translates(
    kernel: LinearFamily, x: Matrix, s: Matrix, probabilities, centres: int | None, most: int, rng, plain: bool
) -> tuple[Translates, np.ndarray]:
    """Translates at well-spread centres, and the matrix that makes them orthonormal in the kernel's space.

    Plain ones, whose coefficients count, stay as they are, at random centres.
    """
    m = len(x)
    tried = min(m, max(subset_size(m), 8), _MOST_CENTRES) if centres is None else min(m, centres)
    chosen = rng.choice(m, tried, replace=False, p=probabilities) if tried < m else np.arange(m)
    if plain:
        count = min(tried, most)
        chosen, inverse = chosen[:count], np.eye(count)
    else:
        gram = gram_matrix(kernel, x[chosen], s[chosen])
        triangle, pivots = pivoted_cholesky(gram, _CENTRE * len(gram) * gram.diagonal().max())
        count = min(len(pivots), most)
        chosen, inverse = chosen[pivots[:count]], triangular_inverse(triangle[:count, :count])
    extra = -count % _BUCKET  # copies of a centre, without a coefficient
    padded = np.concatenate([chosen, np.full(extra, chosen[0])])
    return Translates(kernel, x[padded], s[padded]), np.pad(inverse, ((0, extra), (0, 0)))


def _folded(features: Features, basis: Dense) -> tuple[Features, Dense]:
    """The lift inside the matrix, and the matrix padded."""
    matrix = features.on_raw(basis.matrix)
    extra = -matrix.shape[1] % _BUCKET
    padded = Dense(np.pad(matrix, ((0, 0), (0, extra))), np.pad(basis.penalty, [(0, extra)] * basis.penalty.ndim))
    return Features(features.parts, None, features.constant), padded


def _whitened(draws: _Draws, probabilities, penalty, count: int, damping: float, rng) -> tuple[Basis, int]:
    """H in rounds: uniform draws, draws by leverage, and last the few that alone would dominate a direction."""
    chosen, expected = np.zeros(0, dtype=int), np.zeros(len(probabilities))  # how often each draw is in `chosen`, on average
    preference, basis = probabilities, None
    outliers = count // 8
    for share in (count // 2, count - count // 2 - outliers):
        if basis is not None:
            preference = by_leverage(draws.leverages(basis, rng), probabilities)
        probability = inclusion(preference, share)
        chosen = np.concatenate([chosen, systematic(probability, rng)])
        expected += probability
        weights = probabilities[chosen] / expected[chosen]
        basis = whiten(draws.take(chosen), weights, penalty, draws.features.constant, damping)
    assert basis is not None
    share = probabilities * draws.leverages(basis, rng)  # of each draw in the second moment along its own direction
    sure = np.argsort(share)[len(share) - outliers :]
    sure = sure[share[sure] > _OUTLIER]
    if len(sure):
        others = chosen[~np.isin(chosen, sure)]
        weights = np.concatenate([probabilities[sure], probabilities[others] / expected[others]])
        chosen = np.concatenate([sure, others])
        basis = whiten(draws.take(chosen), weights, penalty, draws.features.constant, damping)
    return basis, len(np.unique(chosen))
