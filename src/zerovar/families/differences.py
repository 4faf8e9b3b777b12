"""Closed forms under Barker's operator, where neighbours differ in one coordinate.

Monomials need sums along each coordinate alone. Where neighbours differ in a sign, x_k·y changes by
−2 x_k y_k, which is 2 or −2, so that a function of x·y has four kinds of second differences, and a
Gram costs five evaluations of it and matrix products, whatever the number of neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..kernels import AbstractKernel
from ..operators import Barker
from .base import Md, Nd

Weights = Float[Array, "n k"]
OtherWeights = Float[Array, "m k"]


def monomial_pulls(operator: Barker, x: Nd, w: Weights, most: int) -> list[Float[Array, "n d"]]:
    """Return Σ w δ (x + δ)^m over the moves δ along each coordinate, for m = 0 … most: L(x_v P) is
    x_v L P plus that times R, where P = x_v^m R."""
    moves = operator.moves(x)
    there = operator.spread_to_neighbours(x) + moves
    return [operator.sum_by_coordinate(w * moves * there**m) for m in range(most + 1)]


def flip_gram(
    value: Callable[[Any], Any], x: Nd, v: Weights, y: Md, w: OtherWeights
) -> Float[Array, "n m"]:
    """Return the operator on both arguments of value(x·y), for coordinates of ±1 with weights v and
    w of their flips."""
    t = x @ y.T
    # sums of weights over the coordinates where x and y are the same, and where they differ
    all_v, all_w, both = v.sum(axis=1)[:, None], w.sum(axis=1)[None], v @ w.T
    skew_v, skew_w, skew = (v * x) @ y.T, x @ (w * y).T, (v * x) @ (w * y).T
    same_v, same_w, same = (all_v + skew_v) / 2, (all_w + skew_w) / 2, (both + skew) / 2
    other_v, other_w, other = (all_v - skew_v) / 2, (all_w - skew_w) / 2, (both - skew) / 2
    at, down, up = value(t), value(t - 2), value(t + 2)
    fall, rise = value(t - 4) - at, value(t + 4) - at
    # a coordinate that is flipped in both leaves x·y as it is: `same` and `other` mend that
    return (
        same_v * same_w * (fall - 2 * (down - at))
        + other_v * other_w * (rise - 2 * (up - at))
        - (same_v * other_w + other_v * same_w) * (down - 2 * at + up)
        - same * fall
        - other * rise
    )


def kernel_of_products(base: AbstractKernel, d: int) -> Callable[[Any], Any]:
    """Return a base kernel of points whose d coordinates are ±1, as a function of x·y."""
    size = jnp.asarray(float(d))
    return lambda t: base.derivative((0, 0, 0), size, size, jnp.maximum(2.0 * (d - t), 0.0))


def step_gram(
    operator: Barker, base: AbstractKernel, x: Nd, v: Weights, y: Md, w: OtherWeights
) -> Float[Array, "n m"]:
    """Return the operator on both arguments of a base kernel, for any moves: one neighbour of y at
    a time, from inner products, so that all neighbours of x are an n × m × k array."""
    ahead, behind = operator.moves(x), operator.moves(y)
    along_x, along_y = operator.spread_to_neighbours(x), operator.spread_to_neighbours(y)
    d, k = x.shape[1], ahead.shape[1]
    p, q, xy = jnp.sum(x * x, axis=1), jnp.sum(y * y, axis=1), x @ y.T

    def value(p: Any, q: Any, xy: Any) -> Any:
        return base.derivative((0, 0, 0), p, q, jnp.maximum(p + q - 2 * xy, 0.0))

    p_there = p[:, None] + 2 * along_x * ahead + ahead**2  # ‖x_k‖²
    xy_there = xy[:, :, None] + ahead[:, None] * along_y[None]  # x_k·y

    def apply_first(q: Any, xy: Any, more: Any) -> Any:
        """The operator on the first argument, with x_k·y changed by `more` (n, m, k)."""
        moved = value(p_there[:, None], q[None, :, None], xy_there + more)
        return jnp.einsum("nk,nmk->nm", v, moved - value(p[:, None], q[None], xy)[:, :, None])

    at = apply_first(q, xy, 0.0)

    def add(total: Any, l: Any) -> Any:
        j = l % d
        step = jax.lax.dynamic_index_in_dim(behind, l, 1, keepdims=False)  # (m,)
        of_x = jax.lax.dynamic_index_in_dim(x, j, 1, keepdims=False)
        of_y = jax.lax.dynamic_index_in_dim(y, j, 1, keepdims=False)
        weight = jax.lax.dynamic_index_in_dim(w, l, 1, keepdims=False)
        change = of_x[:, None] * step[None]
        both = jnp.where(jnp.arange(k) % d == j, ahead, 0.0)[:, None] * step[None, :, None]
        moved = apply_first(q + 2 * of_y * step + step**2, xy + change, change[:, :, None] + both)
        return total + weight[None] * (moved - at), None

    return jax.lax.scan(jax.checkpoint(add), jnp.zeros_like(xy), jnp.arange(k))[0]
