"""The primal by conjugate gradients: products with centred features Φ and their transpose, tile by tile, features never kept.

(ΦᵀΦ + D)θ = Φᵀf, weighted by √p, D the ridge (zero on free terms). The intercept is mean f − means·θ. The preconditioner is
the diagonal: in standardised coordinates the features of a polynomial are nearly uncorrelated where the target is nearly
Gaussian.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..families import LinearFamily
from ..families.base import joined
from .base import Prepared, Problem, Result, Solution, Values, only_its_own_ridge
from .conjugate import State, System, conjugate_gradients, ended, largest_ratio, still_to_come, without_rounding
from .moments import arranged
from .products import Points, in_tiles, mesh_of_draws, over_draws, padded_points
from .terms import linear_terms

_NUMBERS = 2**24  # that a tile's products may hold: 128 MB
_JUDGED = 2048  # draws that the diagonal is taken from


class Normal(System):
    """ΦᵀΦ + D, and its diagonal as the preconditioner."""

    family: LinearFamily
    points: Points
    means: Float[Array, " p"]
    penalty: Float[Array, " p"]
    diagonal: Float[Array, " p"]
    tile: int = eqx.field(static=True)
    mesh: Any = eqx.field(static=True)

    def apply(self, v):
        def share(points: Points, v: Any) -> Any:
            def add(total, part):
                g, back = jax.vjp(lambda theta: self.family.apply(part.x, part.s, theta), v)
                return total + back(part.root**2 * g)[0], None

            return jax.lax.scan(add, jnp.zeros_like(v), in_tiles(points, self.tile))[0]

        inner = over_draws(share, self.mesh, self.points, v)
        return inner - jnp.outer(self.means, self.means @ v) + self.penalty[:, None] * v

    def precondition(self, v):
        return v / self.diagonal[:, None]

    def transpose(self, right: Float[Array, "n q"]) -> Float[Array, "p q"]:
        """Σ √p φ r."""

        def share(both: Any) -> Any:
            def add(total, part):
                points, r = part
                _, back = jax.vjp(lambda theta: self.family.apply(points.x, points.s, theta), total)
                return total + back(points.root * r)[0], None

            points, r = both
            tiles = (in_tiles(points, self.tile), r.reshape(-1, self.tile, r.shape[1]))
            return jax.lax.scan(add, jnp.zeros((len(self.means), r.shape[1])), tiles)[0]

        return over_draws(share, self.mesh, (self.points, right))


@eqx.filter_jit
def _transpose(system: Normal, right: Any) -> Any:
    return system.transpose(right)


class IterativePrimal(Prepared):
    """Ready to iterate for any values."""

    def __init__(self, options: Any, problem: Problem):
        self._options, self._problem = options, problem
        n, d = problem.x.shape
        self._terms, held = arranged(problem.family, d)
        family = joined(self._terms)
        assert family is not None
        mesh = mesh_of_draws()
        # a tile's largest array: of features, or of a quadratic's products; the compiler folds the integrands in one by one
        tile = int(2 ** np.clip(np.log2(_NUMBERS / max(d, (family.work(d) or 1) // max(d, 1))) // 1, 6, 13))
        tile = min(tile, 1 << (n - 1).bit_length())
        self._size = -(-n // (tile * mesh.size)) * tile * mesh.size
        penalty = problem.ridge * held
        self._root = np.sqrt(problem.probabilities)[:, None]
        some = np.unique(np.linspace(0, n - 1, min(n, _JUDGED)).astype(int))
        with jax.enable_x64(True):
            points = padded_points(problem.x, problem.s, self._root[:, 0], self._size)
            squares = _mean_squares(family, problem.x[some], problem.s[some], problem.probabilities[some])
            diagonal = squares + jnp.asarray(penalty)
            diagonal = jnp.where(diagonal > 0, diagonal, 1.0)
            zero = jnp.zeros(len(penalty))
            system = Normal(family, points, zero, jnp.asarray(penalty), diagonal, tile, mesh)
            means = _transpose(system, points.root)[:, 0]
            self._system = eqx.tree_at(lambda found: found.means, system, means)
        self.result = Result.OK
        self.stats = {"form": "primal by conjugate gradients", "unknowns": len(penalty), "ridge": problem.ridge}

    def solve(self, values: Values, ridge: float | None = None) -> Solution:
        only_its_own_ridge(ridge)
        mean = self._root[:, 0] ** 2 @ values
        with jax.enable_x64(True):
            centred = np.asarray(without_rounding(self._root * (values - mean), self._root * values))
            variance = np.sum(centred**2, axis=0)
            f = jnp.asarray(np.pad(centred, ((0, self._size - len(values)), (0, 0))))
            right = _transpose(self._system, f)
            every = jnp.concatenate([right, self._system.means[:, None]], axis=1)

            def distance(state: State, energies: Any) -> float:
                # The energy is what the fit has taken from the variance, and its rest bounds the square of g's error
                left, taken = still_to_come(energies), energies.sum(axis=0)[:-1]
                spread = np.sqrt(np.maximum(variance - taken, 1e-24 * variance))
                error = spread * np.sqrt(np.sum(self._problem.probabilities**2))
                tolerance = self._options.tolerance
                return max(
                    largest_ratio(np.sqrt(left[:-1] * left[-1]), tolerance * error),
                    largest_ratio(np.sqrt(left[:-1]), tolerance * spread),
                )

            ending = conjugate_gradients(self._system, every, distance, self._options.max_iterations, self._options.progress)
            solution, residual = ending.state.solution, ending.state.residual
            theta = np.asarray(solution[:, :-1])
            through = np.asarray(self._system.means @ solution[:, :-1] + solution[:, -1] @ residual[:, :-1])
        self.result, self.stats = ended(ending, self._options, Result.OK, self.stats)
        return Solution(mean - through, linear_terms(self._terms, theta, self._problem.x.shape[1]))


@eqx.filter_jit
def _mean_squares(family: LinearFamily, x: Any, s: Any, p: Any) -> Float[Array, " p"]:
    def add(total, row):
        return total + row[2] * family.features(row[0][None], row[1][None])[0] ** 2, None

    return jax.lax.scan(add, jnp.zeros(family.num_features(x.shape[1])), (x, s, p / jnp.sum(p)))[0]


def primal_is_cheaper(family: LinearFamily, m: int, d: int, ridge: float, kept: bool) -> bool:
    """By the multiplications of a product; without a ridge, where there are fewer terms than draws, it is the only way.

    An entry of the Gram that is not `kept` is made anew for each product, at some hundred multiplications.
    """
    work, p = family.work(d), family.num_features(d)
    if work is None or p is None:
        return False
    return 4 * work < (m if kept else 100 * m) or (not ridge and p < m)
