"""The dual by random blocks: coefficients a of all draws' translates, g = Σ a_j k₀(·, x_j).

With Λ = λ diag(1/p) the fit solves (K + Λ) a = f. A step takes a random block of draws, makes their rows of K, and solves for
the block's coefficients with the others held fixed (block Gauss–Seidel): no step size, no divergence, memory O(m), and a cost
of O(b m d) a step whatever the number of features. The intercept and unpenalised terms enter with a large variance. Directions
with large eigenvalues converge first; at a small ridge, whitened centres need far fewer epochs.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..families import LinearFamily, Translates
from ..objectives import L1, L2, Magnitude, Objective, Ridge
from .base import Prepared, Result, Solution, Values, only_its_own_ridge
from .blocks import feature_matrix
from .course import optimiser
from .order import Order
from .running import run
from .schedules import Constant
from .terms import LinearTerm, Term
from .trainer import units
from .training import Batches, Draws, Job, Params, Recipe

_EPOCHS, _BATCH = 50, 128
_FREE_VARIANCE = 1e3  # of the intercept and unpenalised terms, in units of the mean of diag K


class DualModel(eqx.Module):
    """Blocks of the dual as something to descend: its slope is minus the exact correction of the block."""

    family: LinearFamily
    x: Any
    s: Any
    border: Any  # (m, k) columns of large variance
    ridge: Any  # (m,)
    networks: tuple = ()

    def loss(self, params: Params, draws: Draws, other: None, key: Any) -> Any:
        """Half the decrease of the dual objective that the block's correction brings, as a linear function of it."""
        block, a = draws.rows, params.linear
        rows = self.family.gram(draws.x, draws.s, self.x, self.s) + self.border[block] @ self.border.T
        rest = draws.values - rows @ a - self.ridge[block][:, None] * a[block]
        # A draw that comes twice in a block would make it singular: its second copy is ignored
        again = jnp.triu(block[:, None] == block, 1).any(axis=0)
        rest = jnp.where(again[:, None], 0.0, rest)
        square = rows[:, block] + jnp.diag(self.ridge[block])
        square = jnp.where(again[:, None] | again, jnp.eye(len(block)), square)
        change = jax.scipy.linalg.solve(square, rest, assume_a="pos")
        return -jnp.sum(jax.lax.stop_gradient(change) * a[block])


class DualTraining(Prepared):
    """Ready to train on any values."""

    def __init__(self, options: Any, family: LinearFamily, objective: Objective, x, s, probabilities, seed: int):
        if any(objective.total(kind) for kind in (L1, L2, Magnitude)) or not objective.total(Ridge):
            raise ValueError("SGD(dual=True) solves with a Ridge penalty and no other: give LeastSquares(Ridge(strength))")
        if options.optimiser is not None or options.learning_rate is not None or options.validation or options.hyper:
            raise ValueError("SGD(dual=True) solves blocks exactly: optimiser, learning_rate, validation, hyper do not apply")
        self._options, self._x, self._s, self._p, self._seed = options, x, s, probabilities, seed
        penalised, self._free = family.split()
        if penalised is None:
            raise ValueError(f"SGD(dual=True) needs a penalised part; {family.describe()} has none")
        self._penalised = penalised
        with jax.enable_x64(True):
            some = slice(0, min(len(x), 256))
            size = float(np.trace(np.asarray(penalised.gram(x[some], s[some], x[some], s[some])))) / (some.stop)
        columns = [np.ones((1, len(x)))]
        if self._free is not None:
            columns.append(feature_matrix(self._free, x, s))
        border = np.concatenate(columns).T
        finite = np.isfinite(objective.intercept_variance)
        self._scale = np.full(border.shape[1], _FREE_VARIANCE * size) / np.mean(border**2, axis=0)
        if finite:
            self._scale[0] = objective.intercept_variance
        self._centred = not finite
        self._border = border * np.sqrt(self._scale)
        self._ridge = objective.strength(Ridge, probabilities) / probabilities
        self.result = Result.OK
        self.stats: dict[str, Any] = {"form": "dual sgd", "unknowns": len(x), "free_terms": border.shape[1]}

    def solve(self, values: Values, ridge: float | None = None) -> Solution:
        only_its_own_ridge(ridge)
        m = len(self._x)
        centre, unit = units(values, self._p)
        centre = centre if self._centred else np.zeros_like(centre)
        scaled = (values - centre) / unit
        batch = min(self._options.batch_size or _BATCH, m)
        epochs = self._options.epochs or _EPOCHS
        steps = -(-m // batch)
        with jax.enable_x64(True):
            x, s, border, ridges = (jnp.asarray(array) for array in (self._x, self._s, self._border, self._ridge))
            model = DualModel(self._penalised, x, s, border, ridges)
            draws = Draws(*(jnp.asarray(array) for array in (np.arange(m), self._x, self._s, scaled, np.ones(m))))
            order = Order(np.arange(1, m + 1) / m, steps, batch, not self._options.resample, self._seed)
            job = Job(
                model=model,
                draws=draws,
                held=None,
                batches=Batches(np.int64(steps), np.int64(1), np.float64(1)),
                recipe=Recipe(optimiser(), Constant(1.0), np.int64(epochs), np.int64(epochs * steps), np.int64(epochs)),
                key=jax.random.key(self._seed),
            )
            params = Params(jnp.zeros((m, values.shape[1])))
            ending = run(lambda _: (job, order), params, np.inf, self._options.checkpoint, self._options.progress)
            a = np.asarray(ending.state.params.linear)
        self.result = ending.result
        done = int(ending.state.round)
        self.stats = self.stats | {"epochs": done, "steps": done * steps, "batch_size": batch, "resumed": ending.resumed}
        self.stats["loss"] = np.asarray(ending.state.loss)[:done]
        if self.result.failed:
            return Solution(np.full(values.shape[1], np.nan), ())
        free = np.sqrt(self._scale)[:, None] * (self._border.T @ a)
        terms: list[Term] = [LinearTerm(Translates(self._penalised, self._x, self._s), a * unit)]
        if self._free is not None:
            terms.append(LinearTerm(self._free, free[1:] * unit))
        return Solution(centre + free[0] * unit, tuple(terms))
