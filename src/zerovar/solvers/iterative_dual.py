"""The dual by conjugate gradients.

In coordinates weighted by √p, with U an orthonormal basis of the free columns (the intercept, unpenalised terms) and P the
projection off it: P(G + λ)P ã = P√p f, G = √p K √p. The intercept is u·√p f − ℓ·ã with u the part of U that belongs to it
and ℓ = PGu.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64, Int
from scipy.linalg import solve_triangular

from ..families import LinearFamily, Translates
from .base import Prepared, Problem, Result, Solution, Values, only_its_own_ridge
from .blocks import feature_matrix
from .conjugate import State, System, conjugate_gradients, ended, largest_ratio, still_to_come, without_rounding
from .dual import economic_qr
from .preconditioner import Preconditioner, neighbours, preconditioner
from .products import Product, mesh_of_draws, padded_points, product, tile_rows
from .terms import LinearTerm

_EPS = np.finfo(np.float64).eps
_ORDERS = 3  # in which draws are put
_JUDGED = 2048  # draws that standard errors are judged by
_ALIGNED = 0.1  # share of the bound on an intercept's error that is met, at most: two errors are far from parallel
_ROUGHER = 5.0  # what is tolerated of g, in deviations: at 0.5 of one the variance of f − g grows by less than a tenth


class Bordered(System):
    """P(G + λ)P and its preconditioner, off the free columns U."""

    product: Product
    preconditioner: Preconditioner
    free: Float[Array, "n b"]
    ridge: Float[Array, ""]

    def apply(self, v):
        return self.off(self.product(v)) + self.ridge * v

    def precondition(self, v):
        return self.off(self.preconditioner(v))

    def off(self, v: Float[Array, "n k"]) -> Float[Array, "n k"]:
        return v - self.free @ (self.free.T @ v)


class Start(NamedTuple):
    """What does not depend on the integrands."""

    contrast: Float[Array, " n"]  # u
    functional: Float[Array, "n 1"]  # ℓ
    probe: Float[Array, "n 1"]  # random signs, off the border
    judged: Int[Array, " k"]  # draws for estimates of size
    inverse_diagonal: Float[Array, " k"]  # the preconditioner's, there


def _rank_and_block(n: int) -> tuple[int, int]:
    """Of the preconditioner; a block is of neighbours. To an accelerator both are cheap, iterations are not."""
    draws, most, block = (40, 1000, 512) if jax.default_backend() == "cpu" else (10, 2000, 2048)
    whole = -(-n // 64) * 64
    return int(np.clip(n // draws, 100, most)), min(block, max(512, 1 << (n // 10).bit_length()), whole)


@eqx.filter_jit
def _started(system: Bordered, first: Any, signs: Any, places: Any) -> Start:
    contrast = system.free @ first
    functional = system.off(system.product(contrast[:, None]))
    return Start(contrast, functional, system.off(signs), *system.preconditioner.diagonal(places))


@eqx.filter_jit
def _finished(system: Bordered, start: Start, right: Any, state: State) -> tuple[Any, Any, Any]:
    """Intercepts (q,), what the free columns take of f − g (b, q), and the weights (n,) of values in an intercept."""
    q = right.shape[1]
    adjoint = state.solution[:, q]
    through = start.functional[:, 0] @ state.solution[:, :q] + adjoint @ state.residual[:, :q]
    rest = right - system.product(state.smooth[:, :q])
    return start.contrast @ right - through, system.free.T @ rest, start.contrast - adjoint


@eqx.filter_jit
def _sizes(state: State, start: Start, trace: Any, n: int) -> tuple[Any, Any, Any]:
    """Standard errors (q,), deviations of left-out residuals (q,), and of what g still lacks at the draws (q,).

    For a left-out residual a / diag Q, the preconditioner's diagonal stands in for that of Q, brought to its trace, which
    the energy of a column of random signs estimates.
    """
    q = state.solution.shape[1] - 2
    some = state.solution[start.judged]
    diagonal = start.inverse_diagonal * (trace / n) / jnp.mean(start.inverse_diagonal)
    left_out = some[:, :q] / diagonal[:, None]
    influence = (start.contrast[start.judged] - some[:, q])[:, None] * left_out
    more = jnp.sqrt(n / len(some))
    errors, spread = (more * jnp.linalg.norm(part, axis=0) for part in (influence, left_out))
    return errors, spread, jnp.linalg.norm(state.smooth_residual[:, :q], axis=0)


class IterativeDual(Prepared):
    """Ready to iterate for any values: the Gram or its points, the preconditioner, the border."""

    def __init__(
        self, options: Any, problem: Problem, penalised: LinearFamily, free: LinearFamily | None, keep: bool, seed: int
    ):
        self._options, self._problem, self._penalised, self._free = options, problem, penalised, free
        n = len(problem.x)
        mesh = mesh_of_draws()
        rank, block = _rank_and_block(n)
        tile = block if n < 8 * tile_rows() else max(block, tile_rows())
        self._size = -(-n // (tile * mesh.size)) * tile * mesh.size
        root = np.sqrt(problem.probabilities)
        columns = [np.ones((1, n)), *([] if free is None else [feature_matrix(free, problem.x, problem.s)])]
        self._orthonormal, self._triangle, independent = economic_qr(root[:, None] * np.concatenate(columns).T)
        self.stats = {"form": "dual by conjugate gradients", "unknowns": n, "free_terms": self._triangle.shape[0]}
        self.result = Result.OK if independent else Result.COLLINEAR
        if not independent:
            return
        rank = min(options.rank or rank, n)
        rng = np.random.default_rng(seed)
        centres = np.sort(rng.choice(n, rank, replace=False))
        orders = self._orders(block, rng)
        with jax.enable_x64(True):
            points = padded_points(problem.x, problem.s, root, self._size)
            gram = product(penalised, points, tile, mesh, keep)
            floor = 10 * _EPS * float(jnp.sum(gram.diagonal()))
            ridge = max(problem.ridge, floor)
            self.result = Result.RIDGE_RAISED if ridge > problem.ridge else Result.OK
            first = solve_triangular(self._triangle, np.eye(len(self._triangle))[0], trans=1)
            signs = self._padded(rng.choice([-1.0, 1.0], (n, 1)))
            inverse, left = preconditioner(gram, jnp.asarray(centres), jnp.asarray(orders), block, jnp.asarray(ridge))
            border = jnp.asarray(self._padded(self._orthonormal))
            self._system = Bordered(gram, inverse, border, jnp.asarray(ridge))
            places = jnp.asarray(rng.choice(block, min(block, -(-_JUDGED * block // n)), replace=False))
            start = _started(self._system, jnp.asarray(first), jnp.asarray(signs), places)
            drawn = np.asarray(start.judged) < n  # not padded
            self._start = start._replace(judged=start.judged[drawn], inverse_diagonal=start.inverse_diagonal[drawn])
        self._prepared = self.result
        self._weights: np.ndarray | None = None
        self.stats |= {"ridge": ridge, "rank": rank, "unexplained": float(left), "kept": keep}

    def solve(self, values: Values, ridge: float | None = None) -> Solution:
        only_its_own_ridge(ridge)
        (n, q), root = values.shape, np.sqrt(self._problem.probabilities)[:, None]
        with jax.enable_x64(True):
            right = jnp.asarray(self._padded(root * values))
            inside = without_rounding(self._system.off(right), right)
            every = jnp.concatenate([inside, self._start.functional, self._start.probe], axis=1)
            ending = conjugate_gradients(
                self._system, every, self._distance, self._options.max_iterations, self._options.progress
            )
            intercept, inside, weights = _finished(self._system, self._start, right, ending.state)
            free = solve_triangular(self._triangle, np.asarray(inside))
            self._weights = np.asarray(weights)[:n] * root[:, 0]
            coefficients = root * np.asarray(ending.state.smooth[:n, :q])
        self.result, self.stats = ended(ending, self._options, self._prepared, self.stats)
        terms = [LinearTerm(Translates(self._penalised, self._problem.x, self._problem.s), coefficients)]
        if self._free is not None:
            terms.append(LinearTerm(self._free, free[1:]))
        return Solution(np.asarray(intercept), tuple(terms))

    def intercept_weights(self, ridge: float | None = None) -> Float64[np.ndarray, " m"]:
        only_its_own_ridge(ridge)
        assert self._weights is not None, "known once something was solved"
        return self._weights

    def _distance(self, state: State, energies: Float[np.ndarray, "i k"]) -> float:
        """The largest of two errors against what is tolerated: of an intercept, in standard errors, and of g at the draws, in
        deviations of the residuals that are left out."""
        q = state.solution.shape[1] - 2
        left = still_to_come(energies)
        trace = energies[:, -1].sum() + left[-1]
        errors, spread, misfit = (np.asarray(part) for part in _sizes(state, self._start, trace, len(self._problem.x)))
        tolerance = self._options.tolerance
        of_intercept = largest_ratio(_ALIGNED * np.sqrt(left[:q] * left[q]), tolerance * errors)
        return max(of_intercept, largest_ratio(misfit, _ROUGHER * tolerance * spread))

    def _orders(self, block: int, rng: np.random.Generator) -> np.ndarray:
        """(parts, size): neighbours along the axes, and along others; the padding at the end."""
        n, d = self._problem.x.shape
        turns = [np.eye(d), *(np.linalg.qr(rng.normal(size=(d, d)))[0] for _ in range(_ORDERS - 1))]
        padding = np.arange(n, self._size)
        return np.stack([np.concatenate([neighbours(self._problem.x @ turn, block), padding]) for turn in turns])

    def _padded(self, array: np.ndarray) -> np.ndarray:
        """(n, k) with zeros at the end."""
        return np.pad(array, ((0, self._size - len(array)), (0, 0)))
