"""What makes conjugate gradients on a kernel matrix converge: a low rank and what is left of it between neighbours.

With r centres C, G ≈ FFᵀ, F = G_C R⁻¹, RᵀR = G_CC (Nyström). What is left, E = G − FFᵀ, is large next to a small ridge, but
short-sighted: it couples a draw to its neighbours. So draws are put in order of place, in blocks of equal size, and of E
the diagonal blocks are kept:  M = FFᵀ + D,  D = blockdiag(E) + λ.  Without them, at a ridge of 10⁻⁶ of the mean diagonal,
a rank of 1000 leaves a condition number of thousands. By Woodbury's formula
M⁻¹ = D⁻¹ − D⁻¹F (LLᵀ)⁻¹ FᵀD⁻¹,  LLᵀ = 1 + FᵀD⁻¹F.
In many dimensions most neighbours are in another block, so draws are put in order several times, along other axes, and the
mean of the M⁻¹ is taken: of three orders it needs half the iterations of one. They share F, so that an application reads it
twice, whatever their number.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.linalg import blas, lapack

from .products import Product

_JITTER = 1e-13  # of the mean diagonal, for matrices that are singular to rounding
_ROUNDING = 1e-11  # the same, for differences of such


class Order(eqx.Module):
    """One order of the draws: D⁻¹ in blocks, and the inverse of the triangle L."""

    forth: Int[Array, " n"]
    back: Int[Array, " n"]
    blocks: Float[Array, "k b b"]
    triangle: Float[Array, "r r"]

    def local(self, v: Float[Array, "n q"]) -> Float[Array, "n q"]:
        """D⁻¹v."""
        count, size, _ = self.blocks.shape
        parts = v[self.forth].reshape(count, size, -1)
        return jnp.einsum("kij,kjq->kiq", self.blocks, parts).reshape(v.shape)[self.back]


class Preconditioner(eqx.Module):
    """v ↦ M⁻¹v, the mean over the orders."""

    low: Float[Array, "n r"]  # F
    across: Float[Array, "r n"]  # its transpose: two products with contiguous rows take less time than one with each
    orders: tuple[Order, ...]

    def __call__(self, v: Float[Array, "n q"]) -> Float[Array, "n q"]:
        local = [order.local(v) for order in self.orders]
        inside = jnp.split(self.across @ jnp.concatenate(local, axis=1), len(local), axis=1)
        solved = [order.triangle.T @ (order.triangle @ part) for order, part in zip(self.orders, inside, strict=True)]
        through = jnp.split(self.low @ jnp.concatenate(solved, axis=1), len(local), axis=1)
        parts = [a - order.local(b) for order, a, b in zip(self.orders, local, through, strict=True)]
        return jnp.mean(jnp.stack(parts), axis=0)

    def diagonal(self, places: Int[Array, " m"]) -> tuple[Int[Array, " k"], Float[Array, " k"]]:
        """Of M⁻¹, of the first order alone, at some places of every block: the rows that these are, and their entries."""
        order = self.orders[0]
        forth = order.forth.reshape(len(order.blocks), -1)
        across = jax.lax.map(lambda part: part[0][places] @ self.low[part[1]], (order.blocks, forth))
        across = across.reshape(-1, len(order.triangle)) @ order.triangle.T
        return forth[:, places].ravel(), order.blocks[:, places, places].ravel() - jnp.sum(across**2, axis=1)


def neighbours(x: Float[np.ndarray, "n d"], size: int) -> Int[np.ndarray, " n"]:
    """The rows in an order in which stretches of `size` are neighbours: halved again and again where they spread the most."""
    order = np.arange(len(x))

    def halve(first: int, last: int) -> None:
        blocks = -(-(last - first) // size)
        if blocks < 2:
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
    product: Product,
    centres: Int[Array, " r"],
    orders: Int[Array, "k n"],
    block: int,
    ridge: Float[Array, ""],
) -> tuple[Preconditioner, Float[Array, ""]]:
    """For G + ridge, and the share of the trace of G that its centres do not explain."""
    low, across, mean, left = _low_rank(product, centres)
    least = ridge + _ROUNDING * mean
    return Preconditioner(low, across, tuple(_order(product, low, order, block, least) for order in orders)), left


@eqx.filter_jit
def _low_rank(product: Product, centres: Int[Array, " r"]) -> tuple[Any, Any, Any, Any]:
    columns = product.columns(centres)
    diagonal = product.diagonal()
    square = columns[centres]
    jitter = _JITTER * len(centres) * jnp.mean(jnp.diagonal(square)) * jnp.eye(len(centres))
    across = jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(square + jitter), columns.T, lower=True)
    return across.T, across, jnp.mean(diagonal), 1 - jnp.sum(across**2) / jnp.sum(diagonal)


def _order(product: Product, low: Float[Array, "n r"], order: Int[Array, " n"], block: int, least: Any) -> Order:
    near = _near(product, order.reshape(-1, block))
    if jax.default_backend() == "cpu":
        blocks, triangle = _on_host(np.asarray(near), np.asarray(low), np.asarray(order), float(least))
    else:
        blocks, triangle = _on_device(near, low, order, least)
    return Order(order, jnp.argsort(order), jnp.asarray(blocks), jnp.asarray(triangle))


@eqx.filter_jit
def _near(product: Product, rows: Int[Array, "k b"]) -> Float[Array, "k b b"]:
    return product.near(rows)


@eqx.filter_jit
def _on_device(near: Float[Array, "k b b"], low: Float[Array, "n r"], order: Int[Array, " n"], least: Any) -> tuple[Any, Any]:
    """D⁻¹ in blocks and L⁻¹."""
    rank, block = low.shape[1], near.shape[1]
    rows = low[order].reshape(-1, block, rank)
    inverse = _inverse(near - jnp.einsum("kir,kjr->kij", rows, rows) + least * jnp.eye(block))
    solved = jnp.einsum("kij,kjr->kir", inverse, rows).reshape(-1, rank)
    root = jnp.linalg.cholesky(jnp.eye(rank) + rows.reshape(-1, rank).T @ solved)
    return inverse, jax.scipy.linalg.solve_triangular(root, jnp.eye(rank), lower=True)


def _on_host(near: np.ndarray, low: np.ndarray, order: np.ndarray, least: float) -> tuple[np.ndarray, np.ndarray]:
    """The same by LAPACK, which knows of symmetric and triangular matrices: a third of the time."""
    count, block, _ = near.shape
    inverse, inner = np.empty_like(near), np.eye(low.shape[1], order="F")
    for k, some in enumerate(order.reshape(count, block)):
        rows = low[some].T  # (r, b) in Fortran's order
        left = blas.dsyrk(-1.0, rows, beta=1.0, c=near[k].T, trans=1, lower=1)
        left[np.diag_indices(block)] += least
        root, singular = lapack.dpotrf(left, lower=1, clean=1)
        if singular:  # rounding has left a block that is not positive: its diagonal alone
            root = np.diag(np.sqrt(np.maximum(np.abs(left.diagonal()), np.finfo(np.float64).tiny)))
        half = blas.dtrsm(1.0, root, rows, side=1, lower=1, trans_a=1)
        inner = blas.dsyrk(1.0, half, beta=1.0, c=inner, lower=1, overwrite_c=1)
        below = np.tril(lapack.dpotri(root, lower=1, overwrite_c=1)[0])
        inverse[k] = below + np.tril(below, -1).T
    root = lapack.dpotrf(inner, lower=1, clean=1, overwrite_a=1)[0]
    return inverse, lapack.dtrtri(root, lower=1, overwrite_c=1)[0]


def _inverse(blocks: Float[Array, "k b b"]) -> Float[Array, "k b b"]:
    """Of symmetric blocks, one after the other; of their diagonals alone where rounding has left one that is not positive."""

    def one(block):
        half = jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(block), jnp.eye(len(block)), lower=True)
        found = half.T @ half
        size = jnp.abs(jnp.diagonal(block))
        return jnp.where(jnp.all(jnp.isfinite(found)), found, jnp.diag(1 / jnp.maximum(size, jnp.finfo(size.dtype).tiny)))

    return jax.lax.map(one, blocks)
