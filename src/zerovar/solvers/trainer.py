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
from .course import Course, points
from .order import Order
from .running import Ending, run
from .schedules import Cosine
from .terms import LinearTerm, NetworkTerm, Term, summed
from .training import JUDGED, Draws, Job, Model, Params, State
from .windows import Windows

_NETWORK_HELD = 0.1
_HYPER_EPOCHS, _HYPER_RATE, _HYPER_HELD = 50, 0.02, 0.2
_KEEP = 1 << 26  # numbers of features that are kept, half a gigabyte
_KEEP_OF_WINDOW = 1 << 24  # a window has them three times: made, turned, and on the device


class Training(Prepared):
    """Coordinates, ready to train on any values: on the draws themselves, or on windows that they are the pilot of."""

    def __init__(
        self,
        options: Any,
        linear,
        networks,
        objective,
        x,
        s,
        probabilities,
        seed,
        windows: Windows | None = None,
        supple: bool = False,
    ):
        self._options, self._linear, self._networks, self._objective = options, linear, networks, objective
        self._x, self._s, self._p = x, s, probabilities
        self._seed, self._windows, self._supple = seed, windows, supple
        rng = np.random.default_rng([seed, 1])
        held = options.validation if options.validation is not None else (_NETWORK_HELD if networks else 0.0)
        if options.patience is not None and not held:
            raise ValueError("SGD: patience needs held-out draws; give validation a positive share")
        self._held, self._fit = _hold_out(len(x), held, rng)
        self._variance = isinstance(objective, Variance)
        self._coordinates = self._at(linear)
        if windows is not None:
            windows.hold_out(self._held)
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
        if self._windows is not None and self._coordinates.rows is not None:
            self._windows.cut(_KEEP_OF_WINDOW // max(self._coordinates.size, 1))
        course = self._course()
        if self._windows is not None:
            self._windows.rounds = course.epochs * course.lots
        ending = self._run(course, scaled, centre, unit, trained, fixed, gauge, ())
        self.result = ending.result
        state = jax.tree.map(np.asarray, ending.state)
        rounds = int(state.round)
        self.stats = self.stats | {
            "epochs": course.in_epochs(rounds),
            "steps": rounds * course.steps,
            "batch_size": course.batch_size,
            "loss": state.loss[:rounds],
            "resumed": course.in_epochs(ending.resumed),
        }
        if self._windows is not None:
            self.stats |= {"windows": self._windows.count, "trained_draws": self._windows.draws}
        if len(self._held):
            self.stats |= {
                "validation": state.validation[:rounds],
                "best_epoch": course.in_epochs(int(state.best_round) + 1),
            }
        if self.result.failed:
            return Solution(np.full(values.shape[1], np.nan), ())
        chosen = self._chosen(state, fixed, gauge, scaled, unit)
        intercept = centre + chosen.intercept * unit
        return Solution(intercept, chosen.terms, self._found)

    def _run(self, course, scaled, centre, unit, trained: tuple, fixed: tuple, gauge: tuple, hyper: Any) -> Ending:
        """The loop."""
        with jax.enable_x64(True):
            params = Params(np.zeros((self._coordinates.size, scaled.shape[1])), trained, hyper)
            at_zero = all(_starts_at_zero(eqx.combine(*pair)) for pair in zip(fixed, trained, strict=True))
            held = self._held_out(scaled) if len(self._held) else None
            model, recipe = self._model(fixed, gauge, unit, course.batch_size), course.recipe(held is not None)
            key = jax.random.key(self._seed)

            @functools.lru_cache(maxsize=1)
            def on(number: int) -> tuple[Job, Order]:
                draws, batches, order = course.batches(course.lot(number, scaled[self._fit], centre, unit))
                return Job(model, draws, held, batches, recipe, key), order

            def jobs(number: int) -> tuple[Job, Order]:
                return on(number if course.lots > 1 else 0)

            best_loss = self._without(scaled) if len(self._held) and at_zero else math.inf
            params = jax.tree.map(jnp.asarray, params)
            return run(jobs, params, best_loss, self._options.checkpoint, self._options.progress)

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
        # on the pilot, where there is one
        work = Training(options, self._linear, (), self._objective, self._x, self._s, self._p, self._seed, supple=True)
        hyper = work._coordinates.features.hyper()
        ending = work._run(work._course(), scaled, np.zeros_like(unit), unit, (), (), (), hyper)
        with jax.enable_x64(True):
            families = work._coordinates.features.with_hyper(ending.state.best.hyper).families()
        families = jax.tree.map(np.asarray, families)
        found: Family = functools.reduce(operator.add, families)
        self._found = functools.reduce(operator.add, (found, *self._networks))
        self._coordinates = self._at(found.separated()[0])
        self.stats = self.stats | self._coordinates.stats | {"hyper_loss": np.asarray(ending.state.validation)[:epochs]}

    def _normalised(self, rows: np.ndarray) -> np.ndarray:
        return self._p[rows] / self._p[rows].sum()

    def _course(self) -> Course:
        return Course(
            self._options,
            self._coordinates,
            self._x[self._fit],
            self._s[self._fit],
            self._normalised(self._fit),
            self._windows,
            self._seed,
            networks=bool(self._networks),
            supple=self._supple,
            variance=self._variance,
            sparse=self._objective.total(L1) > 0,
        )

    def _model(self, fixed: tuple, gauge: tuple, unit: np.ndarray, batch: int) -> Model:
        objective, at = self._objective, self._coordinates
        p = self._normalised(self._fit)
        decay, magnitude = objective.total(L2) if self._networks else 0.0, objective.total(Magnitude)
        count = -(-len(self._fit) // batch) * batch
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

    def _held_out(self, values: np.ndarray) -> Draws:
        x, s, count = self._x[self._held], self._s[self._held], len(self._held)
        rows = None if self._coordinates.rows is None else self._coordinates.at(x, s)
        room = -count % JUDGED if count > JUDGED else 0
        return points(rows, x, s, values[self._held], self._normalised(self._held), bool(self._networks), room)

    def _without(self, values: np.ndarray) -> float:
        """The held-out loss of g = 0."""
        p, f = self._normalised(self._held), values[self._held]
        return float(np.sum(p @ (f - p @ f) ** 2))

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
        q = values.shape[1]
        rest, g = values[self._held] - summed(others, x, s, q), summed(networks, x, s, q)
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
        if self._coordinates.rows is None:
            return summed(self._linear_terms(w), x, s, w.shape[1])
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
