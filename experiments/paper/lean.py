"""The paper's steps and the linear system that they replace, with nothing around them: features
once, then NumPy or one compiled loop, and LAPACK.

What a library adds (units, checks, leverages, copies to a device) is left out on both sides, so
that what is compared is the method. Features are those of the draws that fit: a polynomial's (m,
p), the symmetric Gram of a kernel's m translates, or both side by side.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import lapack

import zerovar as zv
from zerovar.families import LinearFamily
from zerovar.families.base import parts_of
from zerovar.solvers.algebra.tiles import feature_matrix, gram_matrix

from .protocol import BATCH

RIDGE = 1e-6  # of the mean square, on integrands of unit variance


def features(family: LinearFamily, x: np.ndarray, s: np.ndarray) -> list[np.ndarray]:
    """Of each part: (m, p) of what has features, (m, m) of a kernel."""
    return [
        gram_matrix(part, x, s)
        if isinstance(part, zv.Kernel)
        else np.ascontiguousarray(feature_matrix(part, x, s).T)
        for part in parts_of(family)
    ]


def side_by_side(blocks: list[np.ndarray]) -> np.ndarray:
    return blocks[0] if len(blocks) == 1 else np.hstack(blocks)


def steps(phi: np.ndarray, f: np.ndarray, rate: float, count: int) -> tuple[np.ndarray, float]:
    """θ (p,) and c after so many steps on batches of 8, at a rate that falls to half; for f (m,) of
    mean zero."""
    theta, c = np.zeros(phi.shape[1]), 0.0
    for rows, size in zip(*_plan(len(f), rate, count), strict=True):
        some = phi[rows]
        off = f[rows] - c - some @ theta
        theta *= 1 - size * RIDGE
        theta += (size / BATCH) * (off @ some)
        c += (size / BATCH) * off.sum()
    return theta, c


def compiled_steps(
    phi: np.ndarray, f: np.ndarray, rate: float, count: int
) -> tuple[np.ndarray, float]:
    """The same in one compiled loop: with few features the interpreter is most of the time of
    `steps`, with many BLAS is faster than what is compiled here."""
    with jax.enable_x64(True):
        theta, c = _loop(jnp.from_dlpack(phi), f, *_plan(len(f), rate, count))
        return np.asarray(theta), float(c)


def _plan(m: int, rate: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows (count, 8) of each batch, and the size of each step."""
    batches = np.random.default_rng(0).integers(m, size=(count, BATCH))
    return batches, 2 * rate * count / (count + np.arange(count))


@jax.jit
def _loop(phi, f, batches, sizes):
    def step(state, now):
        (theta, c), (rows, size) = state, now
        some = jnp.stack([phi[row] for row in rows])
        off = f[rows] - c - jnp.sum(some * theta, axis=1)
        theta = theta * (1 - size * RIDGE) + (size / BATCH) * jnp.sum(off[:, None] * some, axis=0)
        return (theta, c + (size / BATCH) * off.sum()), None

    start = jnp.zeros(phi.shape[1], phi.dtype), jnp.zeros((), phi.dtype)
    return jax.lax.scan(step, start, (batches, sizes))[0]


def solve(blocks: list[np.ndarray], f: np.ndarray) -> tuple[list[np.ndarray], float]:
    """θ of each block and c: by normal equations of features, where these are fewer than draws,
    else by the Gram of the draws. Grams are overwritten."""
    m = len(f)
    if len(blocks) == 1 and blocks[0].shape[1] < m:
        centre = blocks[0].mean(axis=0)
        normal = blocks[0].T @ blocks[0]
        normal -= m * np.outer(centre, centre)
        normal[np.diag_indices(len(normal))] += m * RIDGE
        theta = _posv(normal, blocks[0].T @ (f - f.mean()))[:, 0]
        return [theta], float(f.mean() - centre @ theta)
    kernels = [block for block in blocks if block.shape[1] == m]
    gram = kernels[0] if kernels else np.zeros((m, m))
    for block in blocks:
        if block.shape[1] != m:
            gram += block @ block.T
    gram[np.diag_indices(m)] += m * RIDGE
    both = _posv(gram, np.stack([f, np.ones(m)], axis=1))
    c = float(both[:, 0].sum() / both[:, 1].sum())
    weights = both[:, 0] - c * both[:, 1]
    return [weights if b.shape[1] == m else b.T @ weights for b in blocks], c


def _posv(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """By Cholesky, in place; `right` is (n,) or (n, k)."""
    factor, info = lapack.dpotrf(matrix.T, lower=1, overwrite_a=1, clean=0)
    if info:
        raise np.linalg.LinAlgError(f"not positive definite at {info}")
    return lapack.dpotrs(factor, right.reshape(len(right), -1), lower=1)[0]
