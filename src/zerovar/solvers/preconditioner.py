"""What makes conjugate gradients on a kernel matrix converge: a low rank and what is left of it between neighbours.

With r centres C, G ≈ FFᵀ, F = G_C R⁻¹, RᵀR = G_CC (Nyström). What is left, E = G − FFᵀ, is large next to a small ridge, but
short-sighted: it couples a draw to its neighbours. So draws are put in order of place, in blocks of equal size, and of E
the diagonal blocks are kept:  M = FFᵀ + D,  D = blockdiag(E) + λ.  Without them, at a ridge of 10⁻⁶ of the mean diagonal,
a rank of 1000 leaves a condition number of thousands. By Woodbury's formula
M⁻¹ = D⁻¹ − HHᵀ,  H = D⁻¹F L⁻ᵀ,  LLᵀ = 1 + FᵀD⁻¹F.
In many dimensions most neighbours are in another block, so draws are put in order several times, along other axes, and the
mean of the M⁻¹ is taken: of three orders it needs half the iterations of one.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .products import Product

_JITTER = 1e-13  # of the mean diagonal, for matrices that are singular to rounding
_ROUNDING = 1e-11  # the same, for differences of such


class Part(eqx.Module):
    """v ↦ M⁻¹v for one order of the draws."""

    order: Int[Array, " n"]
    back: Int[Array, " n"]
    blocks: Float[Array, "k b b"]  # of D⁻¹
    low: Float[Array, "n r"]  # H

    def __call__(self, v: Float[Array, "n q"]) -> Float[Array, "n q"]:
        v = v[self.order]
        count, size, _ = self.blocks.shape
        local = jnp.einsum("kij,kjq->kiq", self.blocks, v.reshape(count, size, -1)).reshape(v.shape)
        return (local - self.low @ (self.low.T @ v))[self.back]

    def diagonal(self) -> Float[Array, " n"]:
        return (jnp.einsum("kii->ki", self.blocks).ravel() - jnp.sum(self.low**2, axis=1))[self.back]


class Preconditioner(eqx.Module):
    """The mean of its parts."""

    parts: tuple[Part, ...]

    def __call__(self, v: Float[Array, "n q"]) -> Float[Array, "n q"]:
        return jnp.mean(jnp.stack([part(v) for part in self.parts]), axis=0)

    def diagonal(self) -> Float[Array, " n"]:
        """Of M⁻¹."""
        return jnp.mean(jnp.stack([part.diagonal() for part in self.parts]), axis=0)


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
    orders: Int[Array, "parts n"],
    block: int,
    ridge: Float[Array, ""],
) -> tuple[Preconditioner, Float[Array, ""]]:
    """For G + ridge, and the share of the trace of G that its centres do not explain."""
    low, mean, left = _low_rank(product, centres)
    least = ridge + _ROUNDING * mean
    return Preconditioner(tuple(_part(product, low, order, block, least) for order in orders)), left


@eqx.filter_jit
def _low_rank(product: Product, centres: Int[Array, " r"]) -> tuple[Any, Any, Any]:
    columns = product.columns(centres)
    diagonal = product.diagonal()
    square = columns[centres]
    jitter = _JITTER * len(centres) * jnp.mean(jnp.diagonal(square)) * jnp.eye(len(centres))
    low = jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(square + jitter), columns.T, lower=True).T
    return low, jnp.mean(diagonal), 1 - jnp.sum(low**2) / jnp.sum(diagonal)


@eqx.filter_jit
def _part(product: Product, low: Float[Array, "n r"], order: Int[Array, " n"], block: int, least: Any) -> Part:
    rank = low.shape[1]
    rows = low[order].reshape(-1, block, rank)
    left = product.near(order.reshape(-1, block)) - jnp.einsum("kir,kjr->kij", rows, rows)
    inverse = _inverse(left + least * jnp.eye(block))
    solved = jnp.einsum("kij,kjr->kir", inverse, rows).reshape(-1, rank)
    inner = jnp.linalg.cholesky(jnp.eye(rank) + rows.reshape(-1, rank).T @ solved)
    lifted = jax.scipy.linalg.solve_triangular(inner, solved.T, lower=True).T
    return Part(order, jnp.argsort(order), inverse, lifted)


def _inverse(blocks: Float[Array, "k b b"]) -> Float[Array, "k b b"]:
    """Of symmetric blocks, one after the other; of their diagonals alone where rounding has left one that is not positive."""

    def one(block):
        half = jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(block), jnp.eye(len(block)), lower=True)
        found = half.T @ half
        size = jnp.abs(jnp.diagonal(block))
        return jnp.where(jnp.all(jnp.isfinite(found)), found, jnp.diag(1 / jnp.maximum(size, jnp.finfo(size.dtype).tiny)))

    return jax.lax.map(one, blocks)
