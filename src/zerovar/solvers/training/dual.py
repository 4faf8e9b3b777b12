"""The dual by random blocks: coefficients a of all draws' translates, g = Σ a_j k₀(·, x_j).

With Λ = λ diag(1/p) the fit solves (K + Λ) a = f. A step takes a random block of draws, makes their
rows of K, and solves for the block's coefficients with the others held fixed (block Gauss–Seidel):
no step size, no divergence, memory O(m), and a cost of O(b m d) a step whatever the number of
features. The intercept and unpenalised terms enter with a large variance. Directions with large
eigenvalues converge first; at a small ridge, whitened centres need far fewer epochs.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ...families import LinearFamily
from ...inputs.points import Points
from ...objectives import Objective, Ridge
from ..algebra.tiles import gram_matrix
from ..base import Prepared, Problem, Solution, Values
from ..exact.dual import make_border
from ..stats import FitStats
from ..terms import LinearTerm
from .batch_order import BatchOrder
from .batch_schedule import optimiser
from .driver import run
from .loop import Batches, Draws, Job, Params, StepRule
from .schedules import Constant
from .trainer import units

# Of the intercept and unpenalised terms, in units of the mean of diag K: they are then free to a
# thousandth, and blocks stay well-conditioned.
_FREE_VARIANCE = 1e3


class DualModel(eqx.Module):
    """Blocks of the dual as something to descend: its slope is minus the exact correction of the
    block."""

    family: LinearFamily
    x: Any
    s: Any
    border: Any  # (m, k) columns of large variance
    ridge: Any  # (m,)
    networks: tuple = ()

    def loss(self, params: Params, draws: Draws, other: None, key: Any) -> Any:
        """Return half the decrease of the dual objective that the block's correction brings, as a
        linear function of it."""
        block, a = draws.rows, params.linear
        rows = (
            self.family.gram(draws.x, draws.s, self.x, self.s) + self.border[block] @ self.border.T
        )
        rest = draws.values - rows @ a - self.ridge[block][:, None] * a[block]
        # A draw that comes twice in a block would make it singular: its second copy is ignored
        again = jnp.triu(block[:, None] == block, 1).any(axis=0)
        rest = jnp.where(again[:, None], 0.0, rest)
        square = rows[:, block] + jnp.diag(self.ridge[block])
        square = jnp.where(again[:, None] | again, jnp.eye(len(block)), square)
        change = jax.scipy.linalg.solve(square, rest, assume_a="pos")
        return -jnp.sum(jax.lax.stop_gradient(change) * a[block])


class PreparedDualTraining(Prepared):
    """Ready to train on any values."""

    def __init__(
        self, options: Any, family: LinearFamily, objective: Objective, points: Points, seed: int
    ):
        self._options, self._points, self._seed = options, points, seed
        problem = Problem(
            family, points, objective.strength(Ridge, points.probabilities), 0.0, np.inf
        )
        self._penalised = problem.penalised
        some = slice(0, min(len(points), 256))
        size = (
            float(np.trace(gram_matrix(self._penalised, points.x[some], points.s[some])))
            / some.stop
        )
        border, self._parts = make_border(problem)
        self._centred = np.isinf(objective.intercept_variance)
        self._scale = np.full(border.shape[1], _FREE_VARIANCE * size) / np.mean(border**2, axis=0)
        if not self._centred:
            self._scale[0] = objective.intercept_variance
        self._border = border * np.sqrt(self._scale)
        self._ridge = problem.ridge / points.probabilities
        self.stats = FitStats("dual sgd", len(points)) | {"free_terms": border.shape[1]}

    def solve(self, values: Values, ridge: float | None = None) -> Solution:
        m = len(self._points)
        centre, unit = units(values, self._points.probabilities)
        centre = centre if self._centred else np.zeros_like(centre)
        scaled = (values - centre) / unit
        batch = min(self._options.batch_size, m)
        epochs = self._options.epochs
        steps = -(-m // batch)
        with jax.enable_x64(True):
            host = (self._points.x, self._points.s, self._border, self._ridge)
            x, s, border, ridges = map(jax.device_put, host)
            model = DualModel(self._penalised, x, s, border, ridges)
            draws = Draws(*map(jax.device_put, (np.arange(m), x, s, scaled, np.ones(m))))
            order = BatchOrder(
                np.arange(1, m + 1) / m, steps, batch, not self._options.resample, self._seed
            )
            batches = Batches(np.int64(steps), np.int64(1), np.float64(1))
            rule = StepRule(
                optimiser(),
                Constant(1.0),
                np.int64(epochs),
                np.int64(epochs * steps),
                np.int64(epochs),
            )
            job = Job(model, draws, None, batches, rule, jax.random.key(self._seed))
            ending = run(
                lambda _: (job, order),
                Params(jax.device_put(np.zeros(values.shape))),
                np.inf,
                self._options,
                (self._parts, self._border, self._ridge, self._seed),
            )
            a = np.asarray(ending.state.params.linear)
        self.result, done = ending.result, int(ending.state.round)
        self.stats |= {"epochs": done, "steps": done * steps, "batch_size": batch}
        self.stats |= {"resumed": ending.resumed, "loss": np.asarray(ending.state.loss)[:done]}
        if self.result.failed:
            return Solution(np.full(values.shape[1], np.nan), ())
        free = np.sqrt(self._scale)[:, None] * (self._border.T @ a)
        terms = (
            LinearTerm(term, theta * unit)
            for term, theta in zip(self._parts, (a, free[1:]), strict=False)
        )
        return Solution(centre + free[0] * unit, tuple(terms))
