"""Centres: the few draws whose translates stand in for those of all.

Ways to choose them, by what they spread over:

    pivots     the kernel's space: each with a probability proportional to what those before leave of it (randomly pivoted
               Cholesky, in rounds). The smallest error of approximation; the default.
    uniform    the draws themselves: the cheapest.
    k-means++  the draws' coordinates: each with a probability proportional to its squared distance from those before.
    thinning   the target: greedily, so that the centres' Stein discrepancy is least (Stein thinning).
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..families import LinearFamily, Translates
from ..families.base import joined, parts_of
from .blocks import Matrix, gram_diagonal, gram_matrix
from .whitening import pivoted_cholesky, triangular_inverse

WAYS = ("pivots", "uniform", "k-means++", "thinning")
_ROUNDS = 10
_CANDIDATES = 40_000  # draws that centres are chosen from, where there are more
_REDUNDANT = 1e-10  # of the mean diagonal: what a centre must add to the others


def choose(
    way: str, count: int, kernel: LinearFamily, x: Matrix, s: Matrix, p: np.ndarray, rng: np.random.Generator
) -> Int[np.ndarray, " r"]:
    """Row numbers of at most `count` centres, increasing; fewer where more would be redundant."""
    n = len(x)
    if count >= n:
        return np.arange(n)
    if way == "uniform":
        return np.sort(rng.choice(n, count, replace=False, p=p))
    some = np.arange(n) if n <= _CANDIDATES else np.sort(rng.choice(n, max(_CANDIDATES, 4 * count), replace=False, p=p))
    x, s, p = x[some], s[some], p[some] / p[some].sum()
    with jax.enable_x64(True):
        if way == "pivots":
            found = _pivots(kernel, x, s, p, count, rng)
        else:
            start = int(rng.choice(len(x), p=p))
            key = jax.random.key(int(rng.integers(2**31)))
            rule = _spread if way == "k-means++" else _thinned
            found = np.unique(np.asarray(rule(kernel, jnp.asarray(x), jnp.asarray(s), jnp.asarray(p), start, key, count)))
    return np.sort(some[found])


def at_centres(
    family: LinearFamily, x: Matrix, s: Matrix, p: np.ndarray, count: int, way: str, rng: np.random.Generator
) -> LinearFamily:
    """The family with features: its kernels, together, as translates at centres, orthonormal in the kernels' space."""
    d = x.shape[1]
    penalised, free = family.split()
    parts = [part for part in parts_of(penalised) if isinstance(part, LinearFamily)] if penalised is not None else []
    kernel = joined(tuple(part for part in parts if part.num_features(d) is None))
    if kernel is None:
        return family
    chosen = choose(way, count, kernel, x, s, p, rng)
    gram = gram_matrix(kernel, x[chosen], s[chosen])
    triangle, pivots = pivoted_cholesky(gram, _REDUNDANT * gram.diagonal().max())
    chosen = chosen[pivots]
    translates = Translates(kernel, x[chosen], s[chosen], triangular_inverse(triangle))
    found = joined((*(part for part in parts if part.num_features(d) is not None), translates, free))
    assert found is not None
    return found


def _pivots(kernel: LinearFamily, x: Matrix, s: Matrix, p: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Rounds of a tenth of the centres each, drawn by what is left of the diagonal; those that repeat others are dropped."""
    share = -(-count // _ROUNDS)
    points, scores = jnp.asarray(x), jnp.asarray(s)
    left = np.asarray(gram_diagonal(kernel, points, scores))
    least = _REDUNDANT * left.mean()
    factor = jnp.zeros((len(x), _ROUNDS * share))
    found: list[int] = []
    for k in range(_ROUNDS):
        weights = np.where(left > least, p * left, 0.0)
        weights[found] = 0.0
        size = min(share, count - len(found), int(np.count_nonzero(weights)))
        if not size:
            break
        chosen = rng.choice(len(x), size, replace=False, p=weights / weights.sum())
        chosen = np.concatenate([chosen, np.full(share - size, chosen[0])])  # one shape, one program
        rest = _rest(kernel, points, scores, factor, jnp.asarray(chosen))
        square = np.asarray(rest)[chosen]
        triangle, kept = pivoted_cholesky(square, max(least, 1e-12 * square.max()))
        lift = np.zeros((share, share))
        lift[kept, : len(kept)] = triangular_inverse(triangle)
        factor, more = _extended(factor, rest, jnp.asarray(lift), k * share)
        left = np.maximum(left - np.asarray(more), 0.0)
        found += [int(row) for row in chosen[kept]]
    return np.array(found)


@eqx.filter_jit
def _rest(kernel: LinearFamily, x: Any, s: Any, factor: Any, chosen: Any) -> Float[Array, "n k"]:
    """Columns of what the factor leaves of the Gram."""
    return kernel.gram(x, s, x[chosen], s[chosen]) - factor @ factor[chosen].T


@eqx.filter_jit
def _extended(factor: Any, rest: Any, lift: Any, at: int) -> tuple[Any, Any]:
    new = rest @ lift
    return jax.lax.dynamic_update_slice_in_dim(factor, new, at, axis=1), jnp.sum(new**2, axis=1)


@eqx.filter_jit
def _spread(kernel: LinearFamily, x: Any, s: Any, p: Any, start: int, key: Any, count: int) -> Int[Array, " r"]:
    def step(carry, k):
        nearest, last = carry
        nearest = jnp.minimum(nearest, jnp.sum((x - x[last]) ** 2, axis=1))
        # one draw from the distribution p · distance², by its sums: a categorical one would make n random numbers a step
        ladder = jnp.cumsum(p * nearest)
        place = jax.random.uniform(k, dtype=ladder.dtype) * ladder[-1]
        chosen = jnp.minimum(jnp.searchsorted(ladder, place), len(x) - 1)
        return (nearest, chosen), chosen

    first = (jnp.full(len(x), jnp.inf), jnp.asarray(start))
    _, chosen = jax.lax.scan(step, first, jax.random.split(key, count - 1))
    return jnp.append(chosen, start)


@eqx.filter_jit
def _thinned(kernel: LinearFamily, x: Any, s: Any, p: Any, start: int, key: Any, count: int) -> Int[Array, " r"]:
    diagonal = gram_diagonal(kernel, x, s)

    def step(total, _):
        chosen = jnp.argmin(0.5 * diagonal + total)
        return total + kernel.gram(x, s, x[chosen][None], s[chosen][None])[:, 0], chosen

    return jax.lax.scan(step, jnp.zeros(len(x)), None, length=count)[1]
