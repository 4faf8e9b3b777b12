"""What makes conjugate gradients on a kernel matrix converge: some draws solved for exactly, the
others among neighbours.

With r centres C, H = A_C L⁻ᵀ, LLᵀ = A_CC, A = G + λ, what is left of A once its centres are solved
for is E = A − HHᵀ. It is large next to a small ridge, but short-sighted: it couples a draw to its
neighbours. So draws are put in order of place, in blocks of equal size, and B is the inverse of the
diagonal blocks of E. Both together are a balancing preconditioner, with Q = A_CC⁻¹ at the centres
and zero elsewhere:

    M⁻¹ = Q + (1 − QA) B (1 − AQ).

In many dimensions most neighbours are in another block, so draws are put in order several times,
along other axes, and the mean of the inverses is taken: of three orders it needs half the
iterations of one. An error of B meets E and not the far larger A, so single precision serves it as
long as that tells E from its ridge.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float, Int

from ..algebra.dense import ROUNDING, gram_rounding
from ..algebra.memory import on_host
from .products import GramProduct


class NeighbourOrder(eqx.Module):
    """One order of the draws, and the inverses of E's blocks in it, in units of the ridge: that
    suits single precision."""

    forth: Int[Array, " n"]
    back: Int[Array, " n"]
    blocks: Float[Array, "k b b"]

    def __call__(self, v: Float[Array, "n q"]) -> Float[Array, "n q"]:
        count, size, _ = self.blocks.shape
        parts = v[self.forth].reshape(count, size, -1)
        return jnp.einsum("kij,kjq->kiq", self.blocks, parts).reshape(v.shape)[self.back]

    def diagonal(self) -> Float[Array, " n"]:
        return jnp.diagonal(self.blocks, axis1=1, axis2=2).ravel()[self.back]


class Preconditioner(eqx.Module):
    """The map v ↦ M⁻¹v."""

    centres: Int[Array, " r"]
    triangle: Float[Array, "r r"]  # L⁻¹
    low: Float[Array, "n r"]  # H
    # its transpose: two products with contiguous rows take less time than one with each
    across: Float[Array, "r n"]
    orders: tuple[NeighbourOrder, ...]
    ridge: Float[Array, ""]

    def __call__(self, v: Float[Array, "n q"]) -> Float[Array, "n q"]:
        inside = self.triangle @ v[self.centres]
        outside = v - self.low @ inside
        size = jnp.max(jnp.abs(outside), axis=0)
        outside = (outside / jnp.where(size > 0, size, 1.0)).astype(self.orders[0].blocks.dtype)
        near = jnp.mean(jnp.stack([order(outside) for order in self.orders]), axis=0).astype(
            v.dtype
        ) * (size / self.ridge)
        return near.at[self.centres].add(self.triangle.T @ (inside - self.across @ near))

    def diagonal(self) -> Float[Array, " n"]:
        """Return the diagonal of M⁻¹, but zero at the centres, where it is not at hand."""
        found = jnp.mean(jnp.stack([order.diagonal() for order in self.orders]), axis=0)
        return (found.astype(self.low.dtype) / self.ridge).at[self.centres].set(0.0)


def neighbours(x: Float[np.ndarray, "n d"], size: int) -> Int[np.ndarray, " n"]:
    """Return the rows in an order in which runs of `size` are neighbours: halved again and again
    where they spread the most."""
    order = np.arange(len(x))

    def halve(first: int, last: int) -> None:
        blocks = -(-(last - first) // size)
        if blocks < 2:
            order[first:last].sort()  # what is gathered in order is gathered faster
            return
        rows = order[first:last]
        along = x[rows, x[rows].std(axis=0).argmax()]
        middle = blocks // 2 * size
        order[first:last] = rows[np.argpartition(along, middle)]
        halve(first, first + middle)
        halve(first + middle, last)

    halve(0, len(x))
    return order


def preconditioner(
    product: GramProduct,
    centres: Int[Array, " r"],
    orders: Int[Array, "k n"],
    block: int,
    ridge: Float[Array, ""],
) -> tuple[Preconditioner, float]:
    """Return the preconditioner for G + ridge, and the share of the trace of G that its centres do
    not explain."""
    rows, mean = _rows(product, centres, ridge)
    inside, beyond = (_inside_on_host, _on_host) if on_host() else (_inside_on_device, _on_device)
    triangle, across = (
        jax.device_put(part)
        for part in inside(rows, centres, gram_rounding(len(centres), float(mean)))
    )
    low, left = _transpose(across, mean, ridge)
    size, noise = float(mean), float(ridge)  # on the host, where little needs nothing compiled
    # a ridge must be larger than the rounding of a block in single precision
    rounding = np.sqrt(len(low)) * np.finfo(np.float32).eps * float(left) * size
    single = bool(noise > rounding)
    shift = np.full(len(low), noise + (0.0 if single else ROUNDING * size))
    shift[np.asarray(centres)] += size  # E is zero there
    diagonal = jax.device_put(shift)

    def invert(order: Int[np.ndarray, " n"]) -> NeighbourOrder:
        forth, back, blocks = (
            jax.device_put(index) for index in (order, np.argsort(order), order.reshape(-1, block))
        )
        near = _near(product, blocks, diagonal)
        return NeighbourOrder(forth, back, jax.device_put(beyond(near, low, forth, ridge, single)))

    places = np.asarray(orders)
    return Preconditioner(
        centres, triangle, low, across, tuple(invert(order) for order in places), ridge
    ), float(left)


@eqx.filter_jit
def _rows(
    product: GramProduct, centres: Int[Array, " r"], ridge: Float[Array, ""]
) -> tuple[Any, Any]:
    """Return A_Cᵀ, and the mean of the diagonal of G."""
    return product.rows(centres).at[jnp.arange(len(centres)), centres].add(ridge), jnp.mean(
        product.diagonal()
    )


@eqx.filter_jit
def _transpose(across: Float[Array, "r n"], mean: Any, ridge: Any) -> tuple[Any, Any]:
    """Return H, and the share of the trace of G that it does not explain."""
    rank, n = across.shape
    return across.T, 1 - jnp.sum(across**2) / (n * mean + rank * ridge)


@eqx.filter_jit
def _near(
    product: GramProduct, rows: Int[Array, "k b"], diagonal: Float[Array, " n"]
) -> Float[Array, "k b b"]:
    """Return the blocks of G of neighbours, with a diagonal added."""
    places = jnp.arange(rows.shape[1])
    return product.near(rows).at[:, places, places].add(diagonal[rows])


@eqx.filter_jit
def _inside_on_device(
    rows: Float[Array, "r n"], centres: Int[Array, " r"], jitter: Any
) -> tuple[Any, Any]:
    """Return L⁻¹ and Hᵀ."""
    unit = jnp.eye(len(centres))
    root = jnp.linalg.cholesky(rows[:, centres] + jitter * unit)
    return jax.scipy.linalg.solve_triangular(
        root, unit, lower=True
    ), jax.scipy.linalg.solve_triangular(root, rows, lower=True)


def _inside_on_host(
    rows: Float[Array, "r n"], centres: Int[Array, " r"], jitter: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Return L⁻¹ and Hᵀ, by LAPACK."""
    square = np.asfortranarray(np.asarray(rows)[:, np.asarray(centres)])
    square[np.diag_indices(len(square))] += float(jitter)
    root = scipy.linalg.lapack.dpotrf(square, lower=1, clean=1, overwrite_a=1)[0]
    # in Fortran's order, as the rows are
    low = scipy.linalg.blas.dtrsm(1.0, root, np.asarray(rows).T, side=1, lower=1, trans_a=1)
    return scipy.linalg.lapack.dtrtri(root, lower=1, overwrite_c=1)[0], low.T


@eqx.filter_jit
def _on_device(
    near: Float[Array, "k b b"],
    low: Float[Array, "n r"],
    order: Int[Array, " n"],
    unit: Any,
    single: bool,
) -> Any:
    """Return the inverses of the blocks of E, one after the other; of their diagonals alone where
    rounding has left one that is not positive."""

    def one(part):
        block, rows = part
        block = ((block - low[rows] @ low[rows].T) / unit).astype(
            jnp.float32 if single else jnp.float64
        )
        half = jax.scipy.linalg.solve_triangular(
            jnp.linalg.cholesky(block), jnp.eye(len(rows), dtype=block.dtype), lower=True
        )
        found, size = half.T @ half, jnp.abs(jnp.diagonal(block))
        return jnp.where(
            jnp.all(jnp.isfinite(found)),
            found,
            jnp.diag(1 / jnp.maximum(size, jnp.finfo(size.dtype).tiny)),
        )

    return jax.lax.map(one, (near, order.reshape(near.shape[:2])))


def _on_host(
    near: Float[Array, "k b b"],
    low: Float[Array, "n r"],
    order: Int[Array, " n"],
    unit: Any,
    single: bool,
) -> Any:
    """Return the inverses of the blocks of E by LAPACK, which knows of symmetric and triangular
    matrices: a third of the time."""
    whole, explained, places = (
        np.asarray(near),
        np.asarray(low),
        np.asarray(order).reshape(near.shape[:2]),
    )
    precision, scale = np.float32 if single else np.float64, 1 / float(unit)
    factor, invert = scipy.linalg.lapack.get_lapack_funcs(("potrf", "potri"), dtype=precision)
    inverse = np.empty(near.shape, precision)
    for k, rows in enumerate(places):
        left = scipy.linalg.blas.dsyrk(
            -scale, explained[rows].T, beta=scale, c=whole[k].T, trans=1, lower=1
        ).astype(precision, order="F")
        root, singular = factor(left, lower=1, clean=1)
        if singular:
            inverse[k] = np.diag(1 / np.maximum(np.abs(left.diagonal()), np.finfo(precision).tiny))
            continue
        below = invert(root, lower=1, overwrite_c=1)[0]  # zeros above
        below[np.diag_indices(len(rows))] /= 2
        inverse[k] = below + below.T
    return inverse
