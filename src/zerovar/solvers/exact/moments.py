"""Least squares from second moments: one pass over the rows in any pieces, merged by addition, then
one small solve.

For z = [1, φ(x, s), f − f₀] the matrix M = Σ w z zᵀ, k × k with k = 1 + p + q, holds all that a fit
of q integrands by p features needs, whatever the number of rows. Features of a Stein family have
means near zero, and f₀ is a guess of the mean of f, so that centring M afterwards cancels nothing,
and pieces may be added in any order. Rows go through in tiles: a compiled tile of z, and BLAS for
its products, so that there never is an array of all features.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Float64

from ...inputs.integrands import ROWS
from ...inputs.points import Matrix, PointData, RowNumbers, Vector
from ..algebra.dense import ROUNDING, SINGULAR
from ..algebra.factors import HostVectors
from ..base import MomentsFit, Result
from ..stats import FitStats
from ..terms import LinearParts, width


class Moments(NamedTuple):
    """Moments of some rows: Σ w z zᵀ, and Σ w z over each segment of them."""

    matrix: Float64[np.ndarray, "k k"]
    sums: Float64[np.ndarray, "b k"]


def moments(
    parts: LinearParts,
    x: Matrix,
    s: PointData,
    f: HostVectors,
    weights: Vector | None,
    starts: RowNumbers,
) -> Moments:
    """Return the moments of n rows: standardised points x, scores s, targets f less f₀, and what
    each counts (None: one each).

    `starts` are the rows at which segments begin, the first of them 0; sums over these are kept
    apart.
    """
    n, d = x.shape
    k = 1 + sum(width(part, d) for part in parts) + f.shape[1]
    matrix, product, sums = np.zeros((k, k)), np.empty((k, k)), np.zeros((len(starts), k))
    root = None if weights is None else np.sqrt(weights)
    ones = np.ones(ROWS)
    leaves, structure = jax.tree.flatten(parts)
    with jax.enable_x64(True):
        for first in range(0, n, ROWS):
            rows = min(ROWS, n - first)
            tile = np.asarray(
                _columns(structure, leaves, *(_full(a, first) for a in (x, s, f, root)))
            )
            tile = np.ascontiguousarray(tile[:, :rows])
            # NumPy sees that this is symmetric, and unlike SciPy lets other threads run meanwhile
            matrix += np.matmul(tile, tile.T, out=product)
            counts = ones if root is None else root[first:]
            low, high = np.searchsorted(starts, [first, first + rows - 1], side="right")
            edges = [0, *(starts[low:high] - first), rows]
            for segment, left, right in zip(
                range(low - 1, high), edges[:-1], edges[1:], strict=True
            ):
                sums[segment] += tile[:, left:right] @ counts[left:right]
    return Moments(matrix, sums)


def solve_moments(
    matrix: Float64[np.ndarray, "k k"], penalty: Float64[np.ndarray, " p"]
) -> MomentsFit:
    """Solve least squares with a free intercept and Σ penalty θ², per unit of weight, from Σ w z
    zᵀ."""
    p = len(penalty)
    means = matrix[0, 1:] / matrix[0, 0]
    centred = matrix[1:, 1:] / matrix[0, 0] - np.outer(means, means)
    stats = FitStats("primal from moments", p, counts_terms=True) | {"rank": p, "rcond": 0.0}
    if not np.isfinite(centred).all():
        nothing = np.full(len(means) - p, np.nan)
        return MomentsFit(nothing, np.full((p, len(nothing)), np.nan), Result.SINGULAR, stats)
    gram = centred[:p, :p].copy()
    gram[np.diag_indices(p)] += penalty
    basis, rcond, by_eigenvectors = whitening(gram)
    theta = basis @ (basis.T @ centred[:p, p:])
    stats |= {"rank": basis.shape[1], "rcond": rcond}
    if by_eigenvectors:
        stats |= {"form": f"{stats.form}, by eigenvectors"}
    result = Result.OK if basis.shape[1] == p else Result.RANK_DEFICIENT
    return MomentsFit(means[p:] - means[:p] @ theta, theta, result, stats)


class Whitening(NamedTuple):
    """A matrix T with TᵀHT = 1, (p, rank); the smallest squared pivot of H at unit diagonal; and
    whether eigenvectors were needed."""

    matrix: Float64[np.ndarray, "p r"]
    rcond: float
    by_eigenvectors: bool


def whitening(gram: Float64[np.ndarray, "p p"]) -> Whitening:
    """Return the whitening of H by Cholesky at unit diagonal, or by the eigenvectors that rounding
    has left, so that H⁻¹ = TTᵀ on what it determines."""
    diagonal = gram.diagonal()
    scale = np.where(diagonal > 0, 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0)), 0.0)
    unit = gram * np.outer(scale, scale)
    factor, info = scipy.linalg.lapack.dpotrf(unit, lower=1, clean=1)
    rcond = float(factor.diagonal().min() ** 2) if info == 0 else 0.0
    if rcond >= SINGULAR:
        return Whitening(
            scale[:, None] * scipy.linalg.lapack.dtrtri(factor, lower=1)[0].T, rcond, False
        )
    values, vectors = scipy.linalg.eigh(unit, check_finite=False)
    kept = values > ROUNDING * values[-1]
    basis = scale[:, None] * vectors[:, kept] / np.sqrt(values[kept])
    return Whitening(basis, float(values[kept][0] / values[-1]), True)


# not Equinox's, whose dispatch would cost a tenth of a tile's time
@functools.partial(jax.jit, static_argnums=0)
def _columns(structure: Any, leaves: Any, x: Any, s: Any, f: Any, root: Any) -> jax.Array:
    """Return z of the rows of a tile, times √w, (k, rows): the layout in which features are
    computed and BLAS wants them."""
    parts = jax.tree.unflatten(structure, leaves)
    z = jnp.concatenate([jnp.ones((1, len(x))), *(part.features(x, s).T for part in parts), f.T])
    return z if root is None else z * root


def _full(array: np.ndarray | None, first: int) -> np.ndarray | None:
    """Return the rows of a tile, with zeros at the end of the last."""
    rows = None if array is None else array[first : first + ROWS]
    if rows is None or len(rows) == ROWS:
        return rows
    return np.concatenate([rows, np.zeros((ROWS - len(rows), *rows.shape[1:]))])
