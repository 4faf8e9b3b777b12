"""The dual by conjugate gradients.

In coordinates weighted by √p, with U an orthonormal basis of the free columns (the intercept, unpenalised terms) and P the
projection off it: P(G + λ)P ã = P√p f, G = √p K √p. The intercept is u·√p f − ℓ·ã with u the part of U that belongs to it
and ℓ = PGu.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64
from scipy.linalg import solve_triangular

from ..families import LinearFamily, Translates
from .base import Prepared, Problem, Result, Solution, Values, only_its_own_ridge
from .blocks import feature_matrix
from .conjugate import System, conjugate_gradients, ended, without_rounding
from .dual import economic_qr
from .judge import Judge, Start, intercepts, strata
from .preconditioner import Preconditioner, neighbours, preconditioner
from .products import Product, mesh_of_draws, padded_points, product, tile_rows
from .terms import LinearTerm

_EPS = np.finfo(np.float64).eps
_ORDERS = 3  # in which draws are put


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


def _rank_and_block(n: int) -> tuple[int, int]:
    """Of the preconditioner; a block is of neighbours. To an accelerator both are cheap, iterations are not."""
    draws, most, block = (20, 1000, 1024) if jax.default_backend() == "cpu" else (10, 2000, 2048)
    count = -(-n // min(block, max(512, 1 << (n // 10).bit_length())))
    return int(np.clip(n // draws, 100, most)), -(-n // (16 * count)) * 16


def _tile(n: int, block: int) -> int:
    """Rows of the Gram that are made at once: a divisor or a multiple of a block."""
    rows = tile_rows()
    if block > rows:
        return block >> (-(-block // rows) - 1).bit_length()
    return block if n < 8 * rows else rows // block * block


@eqx.filter_jit
def _started(system: Bordered, first: Any, signs: Any) -> Start:
    contrast = system.free @ first
    functional = system.off(system.product(contrast[:, None]))
    diagonal = jnp.where(signs[:, 0] != 0, system.preconditioner.diagonal(), 0.0)
    return Start(contrast, functional, system.off(signs), diagonal, strata(diagonal))


@eqx.filter_jit
def _free_part(system: Bordered, right: Any, solution: Any) -> Any:
    """What the free columns take of f − g (b, q)."""
    return system.free.T @ (right - system.product(solution))


class IterativeDual(Prepared):
    """Ready to iterate for any values: the Gram or its points, the preconditioner, the border."""

    def __init__(
        self, options: Any, problem: Problem, penalised: LinearFamily, free: LinearFamily | None, keep: bool, seed: int
    ):
        self._options, self._problem, self._penalised, self._free = options, problem, penalised, free
        n = len(problem.x)
        mesh = mesh_of_draws()
        rank, block = _rank_and_block(n)
        tile = _tile(n, block)
        whole = max(block, tile) * mesh.size
        self._size = -(-n // whole) * whole
        root = np.sqrt(problem.probabilities)
        columns = [np.ones((1, n)), *([] if free is None else [feature_matrix(free, problem.x, problem.s)])]
        self._orthonormal, self._triangle, independent = economic_qr(root[:, None] * np.concatenate(columns).T)
        self.stats = {"form": "dual by conjugate gradients", "unknowns": n, "free_terms": self._triangle.shape[0]}
        self.result = Result.OK if independent else Result.COLLINEAR
        if not independent:
            return
        rank = min(options.rank or rank, -(-n // 2))  # the others are solved for among neighbours
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
            self._start = _started(self._system, jnp.asarray(first), jnp.asarray(signs))
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
            judge = Judge(self._start, right, inside, self._options.tolerance, n)
            ending = conjugate_gradients(
                self._system, every, judge.distance, self._options.max_iterations, self._options.progress, judge.shortest.add
            )
            solution, _ = judge.shorter(ending.state)
            intercept = np.asarray(intercepts(self._start, right, ending.state))
            self._weights = np.asarray(self._start.contrast - ending.state.solution[:, q])[:n] * root[:, 0]
            coefficients = root * np.asarray(solution[:n])
            terms = [LinearTerm(Translates(self._penalised, self._problem.x, self._problem.s), coefficients)]
            if self._free is not None:
                taken = solve_triangular(self._triangle, np.asarray(_free_part(self._system, right, solution)))
                terms.append(LinearTerm(self._free, taken[1:]))
        self.result, self.stats = ended(ending, self._options, self._prepared, self.stats)
        return Solution(intercept, tuple(terms))

    def intercept_weights(self, ridge: float | None = None) -> Float64[np.ndarray, " m"]:
        only_its_own_ridge(ridge)
        assert self._weights is not None, "known once something was solved"
        return self._weights

    def _orders(self, block: int, rng: np.random.Generator) -> np.ndarray:
        """(parts, size): neighbours along the axes, and along others; the padding at the end."""
        n, d = self._problem.x.shape
        turns = [np.eye(d), *(np.linalg.qr(rng.normal(size=(d, d)))[0] for _ in range(_ORDERS - 1))]
        padding = np.arange(n, self._size)
        return np.stack([np.concatenate([neighbours(self._problem.x @ turn, block), padding]) for turn in turns])

    def _padded(self, array: np.ndarray) -> np.ndarray:
        """(n, k) with zeros at the end."""
        return np.pad(array, ((0, self._size - len(array)), (0, 0)))
