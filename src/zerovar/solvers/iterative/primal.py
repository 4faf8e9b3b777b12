"""The primal by conjugate gradients: products with centred features Φ and their transpose, tile by
tile, features never kept.

(ΦᵀΦ + D)θ = Φᵀf, weighted by √p, D the ridge (zero on free terms). The intercept is mean f −
means·θ. The preconditioner is the diagonal: in standardised coordinates the features of a
polynomial are nearly uncorrelated where the target is nearly Gaussian.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...families import LinearFamily, join
from ...inputs.integrands import KEPT
from ..algebra.memory import SAMPLE
from ..base import Prepared, Problem, Result, Solution, Values
from ..stats import FitStats
from ..terms import arrange, linear_terms
from .conjugate import (
    Iterate,
    System,
    conjugate_gradients,
    drop_rounding,
    energy_to_come,
    largest_ratio,
    summarise_end,
)
from .products import DevicePoints, cut_tiles, map_devices, mesh_of_draws, pad_points, pad_rows


class Normal(System):
    """The operator ΦᵀΦ + D, and its diagonal as the preconditioner."""

    family: LinearFamily
    points: DevicePoints
    means: Float[Array, " p"]
    penalty: Float[Array, " p"]
    diagonal: Float[Array, " p"]
    tile: int = eqx.field(static=True)
    mesh: Any = eqx.field(static=True)

    def apply(self, v):
        inner = self._sum_rows(v, lambda g, points: points.root**2 * g, self.points)
        return inner - jnp.outer(self.means, self.means @ v) + self.penalty[:, None] * v

    def precondition(self, v):
        return v / self.diagonal[:, None]

    @eqx.filter_jit
    def transpose(self, right: Float[Array, "n q"]) -> Float[Array, "p q"]:
        """Return Σ √p φ r."""
        theta = jnp.zeros((len(self.means), right.shape[1]))
        return self._sum_rows(theta, lambda g, points, r: points.root * r, self.points, right)

    def _sum_rows(
        self, theta: Float[Array, "p q"], values: Callable[..., Any], *rows: Any
    ) -> Float[Array, "p q"]:
        """Return Σ φ · values, which are a function of φ·θ and of points, and maybe of more
        rows."""

        def share(rows: Any, theta: Any) -> Any:
            def add(total, part):
                g, back = jax.vjp(
                    lambda theta: self.family.apply(part[0].x, part[0].s, theta), theta
                )
                return total + back(values(g, *part))[0], None

            return jax.lax.scan(add, jnp.zeros_like(theta), cut_tiles(rows, self.tile))[0]

        return map_devices(share, self.mesh, rows, theta, summed=True)


class PreparedIterativePrimal(Prepared):
    """Ready to iterate for any values."""

    def __init__(self, options: Any, problem: Problem):
        self._options, self._problem = options, problem
        n, d = problem.points.x.shape
        self._parts, penalised = arrange(problem.family, d)
        family = join(self._parts)
        assert family is not None
        mesh = mesh_of_draws()
        # a tile's largest array: of features, or of a quadratic's products; the compiler folds the
        # integrands in one by one
        tile = int(
            2 ** np.clip(np.log2(KEPT / 4 / max(d, (family.work(d) or 1) // max(d, 1))) // 1, 6, 13)
        )
        tile = min(tile, 1 << (n - 1).bit_length())
        self._size = -(-n // (tile * mesh.size)) * tile * mesh.size
        penalty = problem.ridge * penalised
        self._root = np.sqrt(problem.points.probabilities)[:, None]
        some = np.unique(np.linspace(0, n - 1, min(n, SAMPLE)).astype(int))
        with jax.enable_x64(True):
            points = pad_points(problem.points.x, problem.points.s, self._root[:, 0], self._size)
            squares = _mean_squares(
                family,
                problem.points.x[some],
                problem.points.s[some],
                problem.points.probabilities[some],
            )
            whole = np.asarray(squares) + penalty
            zeros, held_back, diagonal = map(
                jax.device_put, (0 * penalty, penalty, np.where(whole > 0, whole, 1.0))
            )
            system = Normal(family, points, zeros, held_back, diagonal, tile, mesh)
            means = jax.device_put(np.asarray(system.transpose(points.root))[:, 0])
            self._system = eqx.tree_at(lambda found: found.means, system, means)
        self.stats = FitStats("primal by conjugate gradients", len(penalty), counts_terms=True) | {
            "ridge": problem.ridge
        }

    def solve(self, values: Values, ridge: float | None = None) -> Solution:
        mean = self._root[:, 0] ** 2 @ values
        with jax.enable_x64(True):
            centred = np.asarray(drop_rounding(self._root * (values - mean), self._root * values))
            variance = np.sum(centred**2, axis=0)
            right = self._system.transpose(pad_rows(centred, self._size))
            every = jax.device_put(
                np.concatenate([right, np.asarray(self._system.means)[:, None]], axis=1)
            )

            def distance(state: Iterate, energies: Any) -> float:
                # The energy is what the fit has taken from the variance, and its rest bounds the
                # square of g's error
                left, taken = energy_to_come(energies), energies.sum(axis=0)[:-1]
                spread = np.sqrt(np.maximum(variance - taken, 1e-24 * variance))
                error = spread * np.sqrt(np.sum(self._problem.points.probabilities**2))
                of_intercept = largest_ratio(
                    np.sqrt(left[:-1] * left[-1]), self._options.tolerance * error
                )
                return max(
                    of_intercept,
                    largest_ratio(np.sqrt(left[:-1]), self._options.tolerance * spread),
                )

            ending = conjugate_gradients(
                self._system, every, distance, self._options.max_iterations, self._options.progress
            )
            solution, residual = (
                np.asarray(ending.state.solution),
                np.asarray(ending.state.residual)[:, :-1],
            )
            through = np.asarray(self._system.means) @ solution[:, :-1] + solution[:, -1] @ residual
        self.result, self.stats = summarise_end(ending, self._options, Result.OK, self.stats)
        return Solution(
            mean - through, linear_terms(self._parts, solution[:, :-1], self._problem.points.dim)
        )


@eqx.filter_jit
def _mean_squares(family: LinearFamily, x: Any, s: Any, p: Any) -> Float[Array, " p"]:
    def add(total, row):
        return total + row[2] * family.features(row[0][None], row[1][None])[0] ** 2, None

    return jax.lax.scan(add, jnp.zeros(family.num_features(x.shape[1])), (x, s, p / jnp.sum(p)))[0]


def primal_is_cheaper(family: LinearFamily, m: int, d: int, ridge: float, kept: bool) -> bool:
    """Return whether the primal takes fewer multiplications a product; without a ridge, where there
    are fewer terms than draws, it is the only way.

    An entry of the Gram that is not `kept` is made anew for each product, at some hundred
    multiplications.
    """
    work, p = family.work(d), family.num_features(d)
    if work is None or p is None:
        return False
    return 4 * work < (m if kept else 100 * m) or (not ridge and p < m)
