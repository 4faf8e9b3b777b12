"""The compiled loop: epochs of mini-batch steps on any model, with averaging, early stopping and a
stop at divergence.

One program runs any number of rounds; the host only says how far to go, so that it can show
progress, write checkpoints and hear Ctrl-C in between. A round is an epoch, or where not all draws
are in memory together, the share of an epoch that falls to one window of them. Everything random is
derived from the seed and the number of the round: cutting the work into other pieces, or resuming
it, gives the same numbers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ...families import NonlinearFamily
from ...inputs.integrands import ROWS
from ..algebra.dense import EPS
from .coordinates import Basis, Features
from .schedules import Schedule


class Draws(NamedTuple):
    """Points to train or validate on: ψ where it was kept, else None; x and s where they are
    needed, else None."""

    rows: Any
    x: Any
    s: Any
    values: Any  # (m, q), in units of their standard deviations
    # (m,): probability over probability of being drawn; (m,) probabilities where draws are
    # validated
    weights: Any

    def take(self, rows: Any) -> Draws:
        return jax.tree.map(lambda leaf: leaf[rows], self)


class Batches(eqx.Module):
    """How many batches there are, and how far they go."""

    steps: Any  # batches a round
    windows: Any  # rounds an epoch
    step_factor: Any  # what steps are multiplied with


class Model(eqx.Module):
    """g and the objective, as functions of the parameters (w, networks' arrays)."""

    features: Features | None  # None where ψ is kept
    basis: Basis
    networks: tuple[NonlinearFamily, ...]  # without their arrays, which are parameters
    gauge: tuple[Any, ...]  # what the g of each is multiplied with
    sparse: Any  # (P,) strengths of |θ|, or None
    magnitude: Any  # strength of the mean of g²
    decay: Any  # strength of ‖parameters‖² of networks
    pair_factor: Any  # makes the mean over pairs of a batch the objective's variance
    variance: bool = eqx.field(static=True)

    def outputs(self, params: Params, draws: Draws, key: Any = None) -> tuple[Any, Any]:
        """Return two unbiased estimates of g (+ intercept) at the draws, the same one twice where g
        is exact."""
        first = second = self._rows(params, draws) @ params.linear
        for network, arrays, size in zip(self.networks, params.networks, self.gauge, strict=True):
            whole = eqx.combine(network, arrays)
            if whole.probes and key is not None:
                one, two = whole.probe(draws.x, draws.s, key)
            else:
                one = two = whole(draws.x, draws.s)
            first, second = first + size * one, second + size * two
        return first, second

    def loss(self, params: Params, draws: Draws, other: Draws | None, key: Any) -> Float[Array, ""]:
        """Return what is descended. Parameters follow the objective on a batch; hyper-parameters,
        where they are trained, follow the misfit on a batch of other draws, which the parameters
        have not seen: on their own draws they would over-fit."""
        if other is None:
            return self.objective(params, draws, key)
        fixed = jax.lax.stop_gradient(params)
        first = self.objective(params._replace(hyper=fixed.hyper), draws, key)
        return first + self.misfit(fixed._replace(hyper=params.hyper), other, None)[0]

    def objective(self, params: Params, draws: Draws, key: Any) -> Float[Array, ""]:
        """Return the objective on one batch, summed over integrands: unbiased, at a cost linear in
        the batch."""
        total, first, second = self.misfit(params, draws, key)
        weights, size = draws.weights[:, None], len(draws.weights)
        total = total + jnp.sum(self.basis.quadratic(params.linear))
        if self.sparse is not None:
            total = total + jnp.sum(self.sparse * jnp.abs(self.basis.coefficients(params.linear)))
        if self.magnitude is not None:
            # The constant is not part of g
            offset = 0.0 if self.variance else self.basis.coefficients(params.linear)[:1]
            total = (
                total
                + self.magnitude * jnp.sum(weights * (first - offset) * (second - offset)) / size
            )
        if self.decay is not None:
            total = total + self.decay * sum(
                jnp.sum(leaf**2) for leaf in jax.tree.leaves(params.networks)
            )
        return total

    def misfit(self, params: Params, draws: Draws, key: Any) -> tuple[Float[Array, ""], Any, Any]:
        """Return the objective without penalties, and the two estimates of g that it was made
        from."""
        first, second = self.outputs(params, draws, key)
        one, two = draws.values - first, draws.values - second
        weights, size = draws.weights[:, None], len(draws.weights)
        if self.variance:
            # Σ_{i≠j} w_i w_j (r_i − r_j)²/2 in O(b): pairs of a draw with itself vanish
            apart = jnp.sum(weights * one, axis=0) * jnp.sum(weights * two, axis=0)
            pairs = jnp.sum(weights) * jnp.sum(weights * one * two, axis=0) - apart
            total = self.pair_factor * jnp.sum(pairs) / (size * (size - 1))
        else:
            total = jnp.sum(weights * one * two) / size
        return total, first, second

    def validation_loss(self, params: Params, draws: Draws) -> Float[Array, ""]:
        """Return Σ over integrands of the variance of f − g at held-out draws, always with the
        exact g."""

        def residual(tile: tuple) -> Any:
            return tile[3] - self.outputs(params, Draws(*tile))[0]

        if len(draws.weights) <= ROWS:
            residuals = residual(tuple(draws))
        else:  # so that memory does not grow with the number of draws; it is padded to whole tiles
            tiles = jax.tree.map(lambda leaf: leaf.reshape(-1, ROWS, *leaf.shape[1:]), tuple(draws))
            residuals = jnp.concatenate(jax.lax.map(residual, tiles))
        centred = residuals - draws.weights @ residuals
        return jnp.sum(draws.weights @ centred**2)

    def _rows(self, params: Params, draws: Draws) -> Any:
        if self.features is None:
            return draws.rows
        features = self.features.with_hyper(params.hyper) if params.hyper else self.features
        return self.basis(features(draws.x, draws.s))


class Params(NamedTuple):
    """What is trained."""

    linear: Any  # (r, q), the intercept included where it is trained
    networks: tuple = ()
    hyper: Any = ()  # logarithms of hyper-parameters, where they are trained


class TrainingState(NamedTuple):
    """All that training changes, at the end of a round."""

    params: Params
    optimiser: Any
    total: Params  # of the parameters over the steps that are averaged
    counted: Any
    best: Params
    best_loss: Any
    best_round: Any
    round: Any
    loss: Any  # (≥ rounds,) mean over the batches of each round
    validation: Any  # (≥ rounds,) on held-out draws, NaN where there are none
    diverged: Any


class StepRule(NamedTuple):
    """How to step: numbers are leaves, functions are static."""

    optimiser: Any  # an optax.GradientTransformation
    schedule: Any
    rounds: Any
    average_from: Any  # the step from which parameters are averaged
    patience: Any  # rounds without a better held-out loss after which training ends


class Job(eqx.Module):
    """All that training needs besides its state: what is trained, on which draws, and how."""

    model: Any  # a Model, or what has its methods
    draws: Draws
    held: Draws | None
    batches: Batches
    rule: StepRule
    key: Any


def initial_state(params: Params, rule: StepRule, best_loss: float) -> TrainingState:
    """Return the state before the first round; `best_loss` is what any held-out loss must beat for
    the parameters to be kept."""
    nothing = jax.tree.map(np.zeros_like, params)
    # few sizes, so that few programs are compiled
    room = max(64, 1 << (int(rule.rounds) - 1).bit_length())
    empty, zero = np.full(room, np.nan), np.int64(0)
    start = eqx.filter_jit(rule.optimiser.init)(params)
    return TrainingState(
        params,
        start,
        nothing,
        zero,
        params,
        np.float64(best_loss),
        zero,
        zero,
        empty,
        empty,
        np.bool_(False),
    )


@eqx.filter_jit
def advance(
    job: Job,
    state: TrainingState,
    table: Int[Array | np.ndarray, "rounds most size"],
    first: Any,
    until: Any,
) -> TrainingState:
    """Train up to round `until`, or to the end that early stopping or divergence makes; `table` has
    the rows of the batches of each round from `first` on."""
    model, draws, held, batches, rule = job.model, job.draws, job.held, job.batches, job.rule
    steps = rule.rounds * batches.steps
    without = jnp.sum(draws.weights @ draws.values**2) / len(draws.weights)
    # with half of the digits of f gone: a training that is only rough at first stays far below
    limit = (1.0 + without) / np.sqrt(EPS)

    def rate(step):
        if isinstance(rule.schedule, Schedule):
            return rule.schedule(step, steps, batches.steps * batches.windows)
        return rule.schedule(step)

    def one(state: TrainingState) -> TrainingState:
        round_key = jax.random.fold_in(job.key, state.round)
        indices = table[state.round - first]

        def step(t, carry):
            params, optimiser, total, counted, loss = carry
            batch = draws.take(indices[t])
            step_key = (
                jax.random.fold_in(round_key, t)
                if any(network.probes for network in model.networks)
                else None
            )
            other = (
                _some(held, jax.random.fold_in(round_key, t), table.shape[2])
                if params.hyper
                else None
            )
            value, slope = jax.value_and_grad(model.loss)(params, batch, other, step_key)
            change, optimiser = rule.optimiser.update(slope, optimiser, params)
            number = state.round * batches.steps + t
            scale = batches.step_factor * rate(number)
            params = jax.tree.map(lambda p, c: p + scale * c, params, change)
            counts = number >= rule.average_from
            total = jax.tree.map(lambda a, p: a + jnp.where(counts, p, 0.0), total, params)
            return params, optimiser, total, counted + counts, loss + value

        start = (state.params, state.optimiser, state.total, state.counted, jnp.zeros(()))
        params, optimiser, total, counted, loss = jax.lax.fori_loop(0, batches.steps, step, start)
        loss = loss / batches.steps
        diverged = ~jnp.isfinite(loss) | (jnp.abs(loss) > limit)
        best, validation = (state.best, state.best_loss, state.best_round), state.validation
        if held is not None:
            current = model.validation_loss(params, held)
            better = current < state.best_loss
            best = jax.tree.map(
                lambda new, old: jnp.where(better, new, old), (params, current, state.round), best
            )
            validation = validation.at[state.round].set(current)
        curve = state.loss.at[state.round].set(loss)
        return TrainingState(
            params, optimiser, total, counted, *best, state.round + 1, curve, validation, diverged
        )

    return jax.lax.while_loop(
        lambda state: (state.round < until) & ~is_finished(state, rule), one, state
    )


def _some(held: Draws | None, key, size: int) -> Draws:
    """Return a batch of held-out draws."""
    assert held is not None, "hyper-parameters are trained on held-out draws"
    chosen = jax.random.choice(key, len(held.weights), (size,), p=held.weights)
    return held.take(chosen)._replace(weights=jnp.ones(size))


def is_finished(state: TrainingState, rule: StepRule) -> Any:
    """Return whether nothing more is to be done."""
    return (
        (state.round >= rule.rounds)
        | state.diverged
        | (state.round - state.best_round > rule.patience)
    )
