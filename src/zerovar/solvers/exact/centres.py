"""Centres: the few draws whose translates stand in for those of all, and rules that choose them."""

import dataclasses
import math
from abc import ABC, abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ...families import LinearFamily, join
from ...inputs.integrands import KEPT
from ...inputs.points import Points
from ..algebra.dense import ROUNDING, SINGULAR, pivoted_cholesky, triangular_inverse
from ..algebra.tiles import gram_diagonal, gram_matrix


class CentreRule(ABC):
    """A way to choose centres, by what they spread over."""

    def __call__(
        self, count: int, kernel: LinearFamily, points: Points, rng: np.random.Generator
    ) -> Int[np.ndarray, " r"]:
        """Return row numbers of at most `count` centres, increasing; fewer where more would be
        redundant."""
        n, some = len(points), np.arange(len(points))
        if count >= n:
            return some
        candidates = max(KEPT // count, 4 * count)  # translates at all centres there can be kept
        if n > candidates:
            some = np.sort(rng.choice(n, candidates, replace=False, p=points.probabilities))
        with jax.enable_x64(True):
            return np.sort(some[self.choose(count, kernel, points.take(some), rng)])

    @abstractmethod
    def choose(
        self, count: int, kernel: LinearFamily, points: Points, rng: np.random.Generator
    ) -> Int[np.ndarray, " r"]:
        """Choose among the points, of which there are more than `count`, in any order."""


@dataclasses.dataclass(frozen=True)
class Pivots(CentreRule):
    """Centres spread over the kernel's space: each with a probability proportional to what those
    before leave of it (randomly pivoted Cholesky, in rounds). The smallest error of approximation;
    the default."""

    def choose(self, count, kernel, points, rng):
        # as many rounds as centres in each, drawn by what is left of the diagonal; those that
        # repeat others are dropped
        x, s = map(jax.device_put, (points.x, points.s))
        p, share = points.probabilities, math.isqrt(count - 1) + 1
        rounds = -(-count // share)
        left = np.asarray(gram_diagonal(kernel, x, s))
        least = SINGULAR * left.mean()
        factor: Any = jax.device_put(np.zeros((len(x), rounds * share)))
        found: list[int] = []
        for k in range(rounds):
            weights = np.where(left > least, p * left, 0.0)
            weights[found] = 0.0
            size = min(share, count - len(found), int(np.count_nonzero(weights)))
            if not size:
                break
            chosen = rng.choice(len(x), size, replace=False, p=weights / weights.sum())
            # one shape, one program
            chosen = np.concatenate([chosen, np.full(share - size, chosen[0])])
            rest = _rest(kernel, x, s, factor, chosen)
            square = np.asarray(rest)[chosen]
            triangle, kept = pivoted_cholesky(square, max(least, ROUNDING * square.max()))
            lift = np.zeros((share, share))
            lift[kept, : len(kept)] = triangular_inverse(triangle)
            factor, more = _extend(factor, rest, lift, np.int64(k * share))
            left = np.maximum(left - np.asarray(more), 0.0)
            found += [int(row) for row in chosen[kept]]
        return np.array(found)


@dataclasses.dataclass(frozen=True)
class Uniform(CentreRule):
    """Centres spread over the draws themselves: the cheapest."""

    def choose(self, count, kernel, points, rng):
        return rng.choice(len(points), count, replace=False, p=points.probabilities)


def represent_at_centres(
    family: LinearFamily, points: Points, count: int, rule: CentreRule, rng: np.random.Generator
) -> LinearFamily:
    """Return the family with features: its kernels, together, as translates at centres, orthonormal
    in the kernels' space."""
    x, s = points.x, points.s
    penalised, free = family.split()
    others, kernel = (None, None) if penalised is None else penalised.split_by_features(points.dim)
    if kernel is None:
        return family
    chosen = rule(count, kernel, points, rng)
    gram = gram_matrix(kernel, x[chosen], s[chosen])
    triangle, pivots = pivoted_cholesky(gram, SINGULAR * gram.diagonal().max())
    chosen = chosen[pivots]
    found = join(
        (others, kernel.translates(x[chosen], s[chosen], triangular_inverse(triangle)), free)
    )
    assert found is not None
    return found


@eqx.filter_jit
def _rest(kernel: LinearFamily, x: Any, s: Any, factor: Any, chosen: Any) -> Float[Array, "n k"]:
    """Return columns of what the factor leaves of the Gram."""
    return kernel.gram(x, s, x[chosen], s[chosen]) - factor @ factor[chosen].T


@eqx.filter_jit
def _extend(factor: Any, rest: Any, lift: Any, at: Any) -> tuple[Any, Any]:
    """Return the factor with more columns, and what these take from the diagonal."""
    new = rest @ lift
    return jax.lax.dynamic_update_slice_in_dim(factor, new, at, axis=1), jnp.sum(new**2, axis=1)
