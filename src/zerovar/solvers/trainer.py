"""From options, draws and values to the compiled loop, and back to a fit."""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..families import MLP, Family, LinearFamily, Network, ResNet
from ..objectives import L1, L2, Magnitude, Ridge, Variance
from .base import Prepared, Result, Solution, Values, only_its_own_ridge
from .coordinates import Coordinates, Penalties, Plan, coordinates
from .running import Ending, run
from .schedules import Constant, Cosine
from .terms import LinearTerm, NetworkTerm, Term
from .training import JUDGED, Batches, Draws, Job, Model, Params, Recipe, State
from .whitening import by_leverage

_LINEAR_EPOCHS, _NETWORK_EPOCHS = 25, 400
_LINEAR_BATCH, _NETWORK_BATCH = 32, 64
_NETWORK_RATE = 5e-3
_NETWORK_HELD = 0.1
_HYPER_EPOCHS, _HYPER_RATE, _HYPER_HELD = 50, 0.02, 0.2
_KEEP = 1 << 26  # numbers of features that are kept, half a gigabyte
_BY_LEVERAGE = 0.9  # share of leverage in the sampling probabilities; the rest is as the draws count


class Training(Prepared):
    """Coordinates, ready to train on any values."""

    def __init__(self, options: Any, linear, networks, objective, x, s, probabilities, seed, supple=False):
        self._options, self._linear, self._networks, self._objective = options, linear, networks, objective
        self._x, self._s, self._p = x, s, probabilities
        self._seed, self._supple = seed, supple
        rng = np.random.default_rng([seed, 1])
        held = options.validation if options.validation is not None else (_NETWORK_HELD if networks else 0.0)
        if options.patience is not None and not held:
            raise ValueError("SGD: patience needs held-out draws; give validation a positive share")
        self._held, self._fit = _hold_out(len(x), held, rng)
        self._variance = isinstance(objective, Variance)
        self._coordinates = self._at(linear)
        self._found: Family | None = None
        self.result = Result.OK
        self.stats = {"form": "sgd", **self._coordinates.stats}

    def _at(self, linear: LinearFamily | None) -> Coordinates:
        objective = self._objective
        on_coefficients = objective.total(L2) > 0
        quadratic = objective.total(L2) if on_coefficients else objective.total(Ridge)
        constant = 0.0 if np.isinf(objective.intercept_variance) else quadratic / objective.intercept_variance
        return coordinates(
            linear,
            self._x[self._fit],
            self._s[self._fit],
            self._normalised(self._fit),
            Penalties(quadratic, constant, on_coefficients),
            constant=not self._variance,
            plan=Plan(
                self._options.centres,
                self._options.precondition,
                keep=0 if self._supple else _KEEP,
                supple=self._supple,
                turned=self._options.optimiser is None and not self._networks and not self._supple,
            ),
            rng=np.random.default_rng([self._seed, 1]),
        )

    def solve(self, values: Values, ridge: float | None = None) -> Solution:
        only_its_own_ridge(ridge)
        centre, unit = units(values, self._p)
        if np.isfinite(self._objective.intercept_variance):
            centre = np.zeros_like(centre)  # it is the intercept itself that is penalised
        scaled = (values - centre) / unit
        if self._options.hyper:
            self._tune(scaled, unit)
        rng = np.random.default_rng([self._seed, 2])
        with jax.enable_x64(True):
            built = tuple(network.built(self._x.shape[1], values.shape[1], rng) for network in self._networks)
        gauge = self._gauges(built, rng)
        trained, fixed = zip(*(eqx.partition(n, eqx.is_inexact_array) for n in built), strict=True) if built else ((), ())
        ending, steps = self._run(scaled, unit, trained, fixed, gauge, ())
        self.result = ending.result
        state = jax.tree.map(np.asarray, ending.state)
        epochs = int(state.epoch)
        self.stats = self.stats | {
            "epochs": epochs,
            "steps": epochs * steps,
            "batch_size": self._batch_size(),
            "loss": state.loss[:epochs],
            "resumed": ending.resumed,
        }
        if len(self._held):
            self.stats |= {
                "validation": state.validation[:epochs],
                "best_epoch": int(state.best_epoch) + 1,
            }
        if self.result.failed:
            return Solution(np.full(values.shape[1], np.nan), ())
        chosen = self._chosen(state, fixed, gauge, scaled, unit)
        intercept = centre + chosen.intercept * unit
        return Solution(intercept, chosen.terms, self._found)

    def _run(self, scaled, unit, trained: tuple, fixed: tuple, gauge: tuple, hyper: Any) -> tuple[Ending, int]:
        """The loop, and the number of steps in an epoch."""
        with jax.enable_x64(True):
            batch = self._batch_size()
            draws, batches = self._batches(scaled[self._fit], batch)
            params = Params(np.zeros((self._coordinates.size, scaled.shape[1])), trained, hyper)
            at_zero = all(_starts_at_zero(eqx.combine(*pair)) for pair in zip(fixed, trained, strict=True))
            job = Job(
                model=self._model(fixed, gauge, unit),
                draws=draws,
                held=self._held_out(scaled) if len(self._held) else None,
                batches=batches,
                recipe=self._recipe(int(batches.steps), batch),
                key=jax.random.key(self._seed),
            )
            best_loss = self._without(scaled) if len(self._held) and at_zero else math.inf
            params = jax.tree.map(jnp.asarray, params)
            ending = run(job, params, best_loss, self._options.checkpoint, self._options.progress)
        return ending, int(batches.steps)

    def _tune(self, scaled: np.ndarray, unit: np.ndarray) -> None:
        """Train hyper-parameters with coefficients, by Adam in supple coordinates; then take coordinates of what was found."""
        if self._linear is None:
            raise ValueError("SGD(hyper=True) trains kernels' scales and parts' weights; this family has none")
        epochs = self._options.epochs or _HYPER_EPOCHS
        options = dataclasses.replace(
            self._options,
            validation=_HYPER_HELD,
            epochs=epochs,
            patience=epochs,
            average=0.0,
            optimiser=None,
            learning_rate=Cosine(_HYPER_RATE),
            hyper=False,
        )
        work = Training(options, self._linear, (), self._objective, self._x, self._s, self._p, self._seed, supple=True)
        hyper = work._coordinates.features.hyper()
        ending, _ = work._run(scaled, unit, (), (), (), hyper)
        with jax.enable_x64(True):
            families = work._coordinates.features.with_hyper(ending.state.best.hyper).families()
        families = jax.tree.map(np.asarray, families)
        found: Family = functools.reduce(operator.add, families)
        self._found = functools.reduce(operator.add, (found, *self._networks))
        self._coordinates = self._at(found.separated()[0])
        self.stats = self.stats | self._coordinates.stats | {"hyper_loss": np.asarray(ending.state.validation)[:epochs]}

    def _normalised(self, rows: np.ndarray) -> np.ndarray:
        return self._p[rows] / self._p[rows].sum()

    def _batch_size(self) -> int:
        size = self._options.batch_size or (_NETWORK_BATCH if self._networks else _LINEAR_BATCH)
        if self._variance and size < 2:
            raise ValueError(f"SGD: the Variance objective needs batch_size of at least 2; got {size}")
        return min(size, len(self._fit))

    def _model(self, fixed: tuple, gauge: tuple, unit: np.ndarray) -> Model:
        objective, at = self._objective, self._coordinates
        p = self._normalised(self._fit)
        decay, magnitude = objective.total(L2) if self._networks else 0.0, objective.total(Magnitude)
        count = -(-len(self._fit) // self._batch_size()) * self._batch_size()
        pairs = (1.0 if self._options.resample else (count - 1) / count) / (1 - float(np.sum(p**2)))
        return Model(
            features=None if at.rows is not None else at.features,
            basis=at.basis,
            networks=fixed,
            gauge=gauge,
            sparse=self._sparse(unit) if objective.total(L1) else None,
            magnitude=np.float64(magnitude) if magnitude else None,
            decay=np.float64(decay) if decay else None,
            pair_factor=np.float64(pairs),
            variance=self._variance,
        )

    def _sparse(self, unit: np.ndarray) -> np.ndarray:
        """Strengths (P, q) of |θ|, which is measured in units of f where squares are in units of its square."""
        out = self._objective.total(L1) * self._coordinates.spread[:, None] / unit
        out[: int(self._coordinates.features.constant)] = 0.0
        return out

    def _gauges(self, built: tuple[Network, ...], rng: np.random.Generator) -> tuple[np.float64, ...]:
        """What brings g of a network with typical parameters to unit size, so that one learning rate suits all scores."""
        rows = self._fit[:1024]
        out = []
        for network in built:
            g = NetworkTerm(network.stirred(rng), 1.0)(self._x[rows], self._s[rows])
            size = float(np.sqrt(np.mean(g**2)))
            out.append(np.float64(1 / size if 0 < size < math.inf else 1.0))
        return tuple(out)

    def _draws(self, rows: np.ndarray, values: np.ndarray, weights: np.ndarray | None) -> Draws:
        """`weights=None`: draws to be judged, with their probabilities."""
        kept = self._coordinates.rows
        needs_points = bool(self._networks) or kept is None
        psi = kept
        if kept is not None and weights is None:
            raw = self._coordinates.features.raw_on_host(self._x[rows], self._s[rows])
            psi = self._coordinates.basis(self._coordinates.features.lifted(raw))
        weights = self._normalised(rows) if weights is None else weights
        x, s = (self._x[rows], self._s[rows]) if needs_points else (None, None)
        return Draws(psi, x, s, values, weights)

    def _held_out(self, values: np.ndarray) -> Draws:
        draws = self._draws(self._held, values[self._held], None)
        count = len(self._held)
        return _extended(draws, -count % JUDGED if count > JUDGED else 0)

    def _without(self, values: np.ndarray) -> float:
        """The held-out loss of g = 0."""
        p, f = self._normalised(self._held), values[self._held]
        return float(np.sum(p @ (f - p @ f) ** 2))

    def _batches(self, values: np.ndarray, size: int) -> tuple[Draws, Batches]:
        p = self._normalised(self._fit)
        chance = self._chances()
        draws = self._draws(self._fit, values, p / chance)
        m = len(p)
        room = -(-m // 64) * 64 - m if m < 4096 else -(-m // 1024) * 1024 - m  # rows that are never drawn, for fewer programs
        ladder = np.minimum(np.cumsum(np.pad(chance, (0, room))), 1.0)
        ladder[m - 1 :] = 1.0
        return _extended(draws, room), Batches(jnp.asarray(ladder), np.int64(-(-m // size)), size, not self._options.resample)

    def _chances(self) -> np.ndarray:
        """The probability of each draw to be in a batch: by leverage where the family is linear and preconditioned."""
        p, leverage = self._normalised(self._fit), self._coordinates.leverage
        if self._networks or not self._options.precondition:
            return p
        return by_leverage(leverage, p, _BY_LEVERAGE)

    def _recipe(self, steps: int, batch: int) -> Recipe:
        options, networks = self._options, bool(self._networks)
        epochs = options.epochs or (_NETWORK_EPOCHS if networks else _LINEAR_EPOCHS)
        average = options.average if options.average is not None else (0.0 if networks else 0.5)
        schedule: Any = options.learning_rate
        if options.optimiser is not None:
            schedule = Constant(1.0)
        elif schedule is None:
            schedule = Cosine(_NETWORK_RATE) if networks else Constant(self._step(batch))
            if self._objective.total(L1):  # with a constant rate coefficients that should be zero hover about it
                schedule = Cosine(self._step(batch), warmup=0.0)
        elif not callable(schedule):
            schedule = Constant(schedule)
        patience = options.patience or max(1, epochs // 5)
        return Recipe(
            optimiser=optimiser(networks or self._supple, options.clip, options.optimiser),
            schedule=schedule,
            epochs=np.int64(epochs),
            average_from=np.int64(math.ceil(epochs * steps * (1 - average))),
            patience=np.int64(patience if len(self._held) else epochs),
        )

    def _step(self, batch: int) -> float:
        """The largest constant step that is safe: for weighted rows with w‖ψ‖² ≤ L the error contracts up to 2 / (L/b + λ)."""
        at = self._coordinates
        weights = self._normalised(self._fit) / self._chances()
        largest_row = float(np.max(weights * at.leverage)) if len(at.leverage) else 1.0
        if at.rows is None:
            largest_row *= 1.5  # leverages are then estimates
        # half, because the gradient of a square is twice the residual
        return 0.5 / (largest_row / batch + (1 - 1 / batch) * at.largest)

    def _chosen(self, state: State, fixed: tuple, gauge: tuple, scaled: np.ndarray, unit: np.ndarray) -> Solution:
        """The best on held-out draws; without those the last parameters or their average, whichever has the lower objective."""
        if len(self._held):
            candidates = [state.best]
        else:
            candidates = [state.params]
            if int(state.counted) > 1:
                candidates.append(jax.tree.map(lambda total: total / int(state.counted), state.total))
        found = [self._evaluated(candidate, fixed, gauge, scaled, unit) for candidate in candidates]
        losses = np.stack([loss for _, _, loss in found])
        if self._networks:  # one trunk for all integrands
            losses = losses.sum(axis=1, keepdims=True) + np.zeros_like(losses)
        pick = np.argmin(np.where(np.isfinite(losses), losses, np.inf), axis=0)
        columns = np.arange(len(unit))
        intercept = np.stack([intercept for _, intercept, _ in found])[pick, columns]
        params = [candidate for candidate, _, _ in found]
        linear = np.stack([entry.linear for entry in params])[pick, :, columns].T
        terms = self._linear_terms(linear * unit)
        if fixed:
            arrays = params[pick[0]].networks
            whole = [NetworkTerm(eqx.combine(*pair), size * unit) for *pair, size in zip(fixed, arrays, gauge, strict=True)]
            terms += self._shrunk(whole, terms, scaled * unit) if len(self._held) else whole
        return Solution(intercept, tuple(terms))

    def _shrunk(self, networks: list[NetworkTerm], others: list[Term], values: np.ndarray) -> list[NetworkTerm]:
        """Networks times the factor in [0, 1] that is best on held-out draws: one that learnt nothing does no harm."""
        x, s, p = self._x[self._held], self._s[self._held], self._normalised(self._held)
        rest = values[self._held] - sum((term(x, s) for term in others), np.zeros((len(x), values.shape[1])))
        g = sum((term(x, s) for term in networks), np.zeros_like(rest))
        rest, g = rest - p @ rest, g - p @ g
        size = p @ g**2
        factor = np.clip(np.where(size > 0, p @ (g * rest) / np.where(size > 0, size, 1.0), 0.0), 0.0, 1.0)
        self.stats = self.stats | {"shrinkage": factor}
        return [NetworkTerm(term.network, term.scale * factor) for term in networks]

    def _evaluated(
        self, params: Params, fixed: tuple, gauge: tuple, scaled: np.ndarray, unit: np.ndarray
    ) -> tuple[Params, np.ndarray, np.ndarray]:
        """Parameters on the host, the intercept that suits them, and the objective of each integrand."""
        at = self._coordinates
        g = self._linear_values(params.linear)
        for network, arrays, size in zip(fixed, params.networks, gauge, strict=True):
            term = NetworkTerm(eqx.combine(network, arrays), np.full(scaled.shape[1], size))
            g = g + term(self._x[self._fit], self._s[self._fit])
        p = self._normalised(self._fit)
        residual = scaled[self._fit] - g
        free = np.isinf(self._objective.intercept_variance)
        intercept = p @ residual if free else at.basis.coefficients(params.linear)[0]
        loss = p @ (residual - intercept) ** 2 + at.basis.quadratic(params.linear)
        if self._objective.total(L1):
            loss = loss + np.sum(self._sparse(unit) * np.abs(at.basis.coefficients(params.linear)), axis=0)
        return params, intercept, loss

    def _linear_values(self, w: np.ndarray) -> np.ndarray:
        """g of the linear part, without the constant, at the fitting draws."""
        x, s = self._x[self._fit], self._s[self._fit]
        out = np.zeros((len(x), w.shape[1]))
        if self._coordinates.rows is None:
            return sum((term(x, s) for term in self._linear_terms(w)), out)
        constant = 0.0
        if self._coordinates.features.constant:
            constant = self._coordinates.basis.coefficients(w)[:1]
        return self._coordinates.rows @ w - constant

    def _linear_terms(self, w: np.ndarray) -> list[Term]:
        at = self._coordinates
        theta = at.features.on_raw(at.basis.coefficients(w))
        theta = theta[1:] if at.features.constant else theta
        widths = [part.num_features(self._x.shape[1]) or 0 for part in at.features.parts]
        blocks = np.split(theta, np.cumsum(widths)[:-1]) if widths else []
        return [LinearTerm(*pair) for pair in zip(at.features.parts, blocks, strict=True)]


def units(values: Values, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each integrand, the latter one where it is constant."""
    centre = p @ values
    spread = np.sqrt(p @ (values - centre) ** 2)
    return centre, np.where(spread > 0, spread, 1.0)


@functools.lru_cache(maxsize=32)
def optimiser(adam: bool = False, clip: float | None = None, own: Any = None) -> Any:
    """Adam or plain descent for a schedule to scale, or the user's own; cached, as another object is another program."""
    import optax  # imported when used: it takes a tenth of the time that importing zerovar takes

    base = own
    if own is None:
        base = optax.chain(optax.scale_by_adam(), optax.scale(-1.0)) if adam else optax.scale(-1.0)
    return base if clip is None else optax.chain(optax.clip_by_global_norm(clip), base)


def _extended(draws: Draws, count: int) -> Draws:
    """On the device, with `count` more rows of zeros."""
    return jax.tree.map(lambda a: jnp.asarray(np.pad(a, [(0, count)] + [(0, 0)] * (a.ndim - 1))), draws)


def _starts_at_zero(network: Network) -> bool:
    """Whether its output layer is zero, as that of a new architecture of ours is."""
    module = network.module
    return isinstance(module, (MLP, ResNet)) and not any(np.any(leaf) for leaf in module.layers[-1])


def _hold_out(m: int, share: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows held out and rows that fit, both in order."""
    count = round(share * m)
    if share and not 2 <= count <= m - 8:
        raise ValueError(
            f"SGD: validation={share} holds {count} of {m} fitting draws out; at least 2 must be, and 8 must remain"
        )
    mixed = rng.permutation(m)
    return np.sort(mixed[:count]), np.sort(mixed[count:])
