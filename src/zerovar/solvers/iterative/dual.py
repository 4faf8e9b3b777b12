"""The dual by conjugate gradients.

In coordinates weighted by √p, with U an orthonormal basis of the free columns (the intercept,
unpenalised terms) and P the projection off it: P(G + λ)P ã = P√p f, G = √p K √p. The intercept is
u·√p f − ℓ·ã with u the part of U that belongs to it and ℓ = PGu.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float, Float64

from ..algebra.dense import economic_qr, gram_rounding
from ..algebra.memory import on_host
from ..base import Prepared, Problem, Result, Solution, Values
from ..exact.dual import make_border
from ..stats import FitStats
from ..terms import LinearTerm
from .conjugate import System, conjugate_gradients, drop_rounding, summarise_end
from .preconditioner import Preconditioner, neighbours, preconditioner
from .products import GramProduct, mesh_of_draws, pad_points, pad_rows, product, tile_rows
from .stopping_rule import Start, StoppingRule, intercepts, strata

_ORDERS = 3  # in which draws are put: half the iterations of one, and more gain little


class Bordered(System):
    """P(G + λ)P and its preconditioner, off the free columns U."""

    product: GramProduct
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
    """Return the rank and the size of blocks of neighbours of the preconditioner. To an accelerator
    both are cheap, iterations are not."""
    draws, most, block = (20, 1000, 1024) if on_host() else (10, 2000, 2048)
    count = -(-n // min(block, max(512, 1 << (n // 10).bit_length())))
    return int(np.clip(n // draws, 100, most)), -(-n // (16 * count)) * 16


def _tile(n: int, block: int) -> int:
    """Return how many rows of the Gram are made at once: a divisor or a multiple of a block."""
    rows = tile_rows()
    if block > rows:
        return block >> (-(-block // rows) - 1).bit_length()
    return block if n < 8 * rows else rows // block * block


@eqx.filter_jit
def _make_start(system: Bordered, first: Any, signs: Any) -> Start:
    contrast = system.free @ first
    functional = system.off(system.product(contrast[:, None]))
    diagonal = jnp.where(signs[:, 0] != 0, system.preconditioner.diagonal(), 0.0)
    return Start(contrast, functional, system.off(signs), diagonal, strata(diagonal))


@eqx.filter_jit
def _right_sides(system: Bordered, start: Start, right: Any) -> tuple[Any, Any]:
    """Return right-hand sides off the free columns, and the same with those of the adjoint and of
    the random signs."""
    inside = drop_rounding(system.off(right), right)
    return inside, jnp.concatenate([inside, start.functional, start.probe], axis=1)


_trace = eqx.filter_jit(lambda product: jnp.sum(product.diagonal()))

# what the free columns take of f − g (b, q)
_free_part = eqx.filter_jit(
    lambda system, right, solution: system.free.T @ (right - system.product(solution))
)


class PreparedIterativeDual(Prepared):
    """Ready to iterate for any values: the Gram or its points, the preconditioner, the border."""

    def __init__(self, options: Any, problem: Problem, keep: bool, seed: int):
        self._options, self._problem, n = options, problem, len(problem.points)
        rank, block = _rank_and_block(n)
        mesh, tile = mesh_of_draws(), _tile(n, block)
        whole = max(block, tile) * mesh.size
        self._size = -(-n // whole) * whole
        root = np.sqrt(problem.points.probabilities)
        border, self._parts = make_border(problem)
        orthonormal, self._triangle, independent = economic_qr(root[:, None] * border)
        self.stats = FitStats("dual by conjugate gradients", n) | {
            "free_terms": self._triangle.shape[0]
        }
        self.result = Result.OK if independent else Result.COLLINEAR
        if not independent:
            return
        rank = min(options.rank or rank, -(-n // 2))  # the others are solved for among neighbours
        rng = np.random.default_rng(seed)
        centres = np.sort(rng.choice(n, rank, replace=False))
        orders = self._orders(block, rng)
        with jax.enable_x64(True):
            points = pad_points(problem.points.x, problem.points.s, root, self._size)
            gram = product(problem.penalised, points, tile, mesh, keep)
            ridge = max(problem.ridge, gram_rounding(1, float(_trace(gram))))
            self.result = Result.RIDGE_RAISED if ridge > problem.ridge else Result.OK
            first = scipy.linalg.solve_triangular(
                self._triangle, np.eye(len(self._triangle))[0], trans=1
            )
            signs = pad_rows(rng.choice([-1.0, 1.0], (n, 1)), self._size)
            noise = jax.device_put(np.float64(ridge))
            inverse, left = preconditioner(
                gram, jax.device_put(centres), jax.device_put(orders), block, noise
            )
            self._system = Bordered(gram, inverse, pad_rows(orthonormal, self._size), noise)
            self._start = _make_start(self._system, jax.device_put(first), signs)
        self._prepared = self.result
        self._weights: np.ndarray | None = None
        self.stats |= {"ridge": ridge, "rank": rank, "unexplained": left, "kept": keep}

    def solve(self, values: Values, ridge: float | None = None) -> Solution:
        (n, q), root = values.shape, np.sqrt(self._problem.points.probabilities)[:, None]
        with jax.enable_x64(True):
            right = pad_rows(root * values, self._size)
            inside, every = _right_sides(self._system, self._start, right)
            rule = StoppingRule(self._start, right, inside, self._options.tolerance, n)
            limit, progress = self._options.max_iterations, self._options.progress
            ending = conjugate_gradients(
                self._system, every, rule.distance, limit, progress, rule.shortest.add
            )
            solution, _ = rule.choose_shorter(ending.state)
            intercept = np.asarray(intercepts(self._start, right, ending.state))
            self._weights = (
                np.asarray(self._start.contrast) - np.asarray(ending.state.solution)[:, q]
            )[:n] * root[:, 0]
            coefficients = [root * np.asarray(solution)[:n]]
            if len(self._parts) > 1:
                taken = scipy.linalg.solve_triangular(
                    self._triangle, np.asarray(_free_part(self._system, right, solution))
                )
                coefficients.append(taken[1:])
        self.result, self.stats = summarise_end(ending, self._options, self._prepared, self.stats)
        return Solution(
            intercept,
            tuple(LinearTerm(*pair) for pair in zip(self._parts, coefficients, strict=True)),
        )

    def intercept_weights(self, ridge: float | None = None) -> Float64[np.ndarray, " m"]:
        assert self._weights is not None, "known once something was solved"
        return self._weights

    def _orders(self, block: int, rng: np.random.Generator) -> np.ndarray:
        """Return orders of the draws (parts, size): neighbours along the axes, and along others;
        the padding at the end."""
        n, d = self._problem.points.x.shape
        turns = [np.eye(d), *(np.linalg.qr(rng.normal(size=(d, d)))[0] for _ in range(_ORDERS - 1))]
        padding = np.arange(n, self._size)
        return np.stack(
            [
                np.concatenate([neighbours(self._problem.points.x @ turn, block), padding])
                for turn in turns
            ]
        )
