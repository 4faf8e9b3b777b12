"""From options, draws and values to the compiled loop, and back to a fit."""

import dataclasses
import functools
import math
import operator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from ...families import Family, LinearFamily, NonlinearFamily
from ...families.network import partition_arrays
from ...hyper import hyper_parameters
from ...inputs.integrands import KEPT, ROWS
from ...inputs.points import Points
from ...objectives import L1, L2, Magnitude, Objective, Ridge
from ..algebra.memory import SAMPLE
from ..base import Prepared, Result, Solution, Values
from ..stats import FitStats
from ..terms import LinearTerm, NetworkTerm, Term, linear_terms, sum_terms
from ..windows import Windows
from .batch_order import BatchOrder
from .batch_schedule import LINEAR, NETWORK, TUNING, BatchSchedule, put_on_device
from .coordinates import CoordinateOptions, Penalties, TrainingCoordinates, make_coordinates
from .driver import TrainingEnd, run
from .loop import Draws, Job, Model, Params, TrainingState


class BuiltNetworks(NamedTuple):
    """Networks of a given size without their arrays, the arrays, which are trained, and what the g
    of each is multiplied with."""

    fixed: tuple[NonlinearFamily, ...] = ()
    arrays: tuple[Any, ...] = ()
    gauge: tuple[np.float64, ...] = ()

    def whole(self, arrays: tuple[Any, ...]) -> list[NonlinearFamily]:
        """Return the networks with these arrays."""
        return [eqx.combine(*pair) for pair in zip(self.fixed, arrays, strict=True)]

    def terms(self, arrays: tuple[Any, ...], unit: Any) -> list[NetworkTerm]:
        """Return the terms of the networks with these arrays, for integrands in this unit."""
        pairs = zip(self.whole(arrays), self.gauge, strict=True)
        return [NetworkTerm(network, size * unit) for network, size in pairs]


class PreparedTraining(Prepared):
    """Coordinates, ready to train on any values: on the draws themselves, or on windows that they
    are the pilot of."""

    def __init__(
        self,
        options: Any,
        linear: LinearFamily | None,
        networks: tuple[NonlinearFamily, ...],
        objective: Objective,
        points: Points,
        seed: int,
        windows: Windows | None = None,
        for_tuning: bool = False,
    ):
        self._options, self._linear, self._networks, self._objective = (
            options,
            linear,
            networks,
            objective,
        )
        self._points, self._seed, self._windows, self._for_tuning = (
            points,
            seed,
            windows,
            for_tuning,
        )
        self._recipe = TUNING if for_tuning else NETWORK if networks else LINEAR
        held = self._recipe.validation if options.validation is None else options.validation
        if options.patience is not None and not held:
            raise ValueError("SGD: patience needs held-out draws; give validation a positive share")
        self._held, self._fit = _hold_out(len(points), held, np.random.default_rng([seed, 1]))
        self._fitting, self._holding = (
            points.take(self._fit),
            points.take(self._held) if len(self._held) else None,
        )
        self._variance = objective.pairwise
        self._coordinates = self._make_coordinates(linear)
        if windows is not None:
            windows.hold_out(self._held)
        self._found: Family | None = None
        self.stats = FitStats("sgd", self._coordinates.basis.size) | self._coordinates.stats

    def _make_coordinates(self, linear: LinearFamily | None) -> TrainingCoordinates:
        """Return coordinates to train a linear family in."""
        objective, options, tuning = self._objective, self._options, self._for_tuning
        quadratic = objective.total(L2) or objective.total(Ridge)
        penalties = Penalties(
            quadratic, quadratic / objective.intercept_variance, objective.total(L2) > 0
        )
        turned = options.optimiser is None and not self._networks and not tuning
        plan = CoordinateOptions(
            options.centres,
            options.precondition,
            0 if tuning else KEPT,
            tuning,
            turned,
            own_steps=turned and options.learning_rate is None,
            sparse=objective.total(L1) > 0,
        )
        return make_coordinates(
            linear,
            self._fitting,
            penalties,
            not self._variance,
            plan,
            np.random.default_rng([self._seed, 1]),
        )

    def solve(self, values: Values, ridge: float | None = None) -> Solution:
        centre, unit = units(values, self._points.probabilities)
        if np.isfinite(self._objective.intercept_variance):
            centre = np.zeros_like(centre)  # it is the intercept itself that is penalised
        scaled = (values - centre) / unit
        if self._options.hyper:
            self._tune(scaled, unit)
        networks = self._build(values.shape[1])
        if self._windows is not None and self._coordinates.rows is not None:
            # a window has features four times: made, turned, padded, and on the device
            self._windows.cut(KEPT // (4 * max(self._coordinates.basis.size, 1)))
        schedule = self._schedule()
        if self._windows is not None:
            self._windows.rounds = schedule.epochs * schedule.rounds_per_epoch
        ending = self._run(schedule, scaled, centre, unit, networks)
        self.result = ending.result
        state = jax.tree.map(np.asarray, ending.state)
        rounds = int(state.round)
        epochs, best = (
            schedule.count_epochs(rounds),
            schedule.count_epochs(int(state.best_round) + 1),
        )
        self.stats |= {
            "epochs": epochs,
            "steps": rounds * schedule.steps,
            "batch_size": schedule.batch_size,
        }
        self.stats |= {
            "loss": state.loss[:rounds],
            "resumed": schedule.count_epochs(ending.resumed),
        }
        if self._windows is not None:
            self.stats |= {"windows": self._windows.count, "trained_draws": self._windows.draws}
        if self._holding is not None:
            self.stats |= {"validation": state.validation[:rounds], "best_epoch": best}
        if self.result.failed:
            return Solution(np.full(values.shape[1], np.nan), ())
        intercept, terms = self._choose(state, networks, scaled, unit)
        return Solution(centre + intercept * unit, terms, self._found)

    def _run(
        self,
        schedule: BatchSchedule,
        scaled: np.ndarray,
        centre: np.ndarray,
        unit: np.ndarray,
        networks: BuiltNetworks,
        hyper: Any = (),
    ) -> TrainingEnd:
        """Run the loop."""
        with jax.enable_x64(True):
            start = np.zeros((self._coordinates.basis.size, scaled.shape[1]))
            params = jax.tree.map(jax.device_put, Params(start, networks.arrays, hyper))
            at_zero = all(network.starts_at_zero for network in networks.whole(networks.arrays))
            held = self._put_held_out(scaled)
            model = self._model(networks, unit, schedule.batch_size)
            rule = schedule.rule(held is not None)

            @functools.lru_cache(maxsize=1)
            def on(number: int) -> tuple[Job, BatchOrder]:
                draws, batches, order = schedule.batches(
                    schedule.draw_round(number, scaled[self._fit], centre, unit)
                )
                return Job(model, draws, held, batches, rule, jax.random.key(self._seed)), order

            best_loss = self._loss_of_zero(scaled) if at_zero else math.inf
            still = schedule.rounds_per_epoch == 1  # all rounds are on the same draws
            task = (self._linear, self._networks, self._objective, self._seed, self._for_tuning)
            return run(
                lambda number: on(0 if still else number), params, best_loss, self._options, task
            )

    def _tune(self, scaled: np.ndarray, unit: np.ndarray) -> None:
        """Train hyper-parameters with coefficients, by Adam in coordinates made for that; then
        those of what was found."""
        if self._linear is None:
            raise ValueError(
                "SGD(hyper=True) trains kernels' scales and parts' weights; this family has none"
            )
        epochs = self._options.epochs or TUNING.epochs
        nothing = dict.fromkeys(("validation", "average", "optimiser", "learning_rate"))
        options = dataclasses.replace(self._options, hyper=False, patience=epochs, **nothing)
        # on the pilot, where there is one
        work = PreparedTraining(
            options, self._linear, (), self._objective, self._points, self._seed, for_tuning=True
        )
        features = work._coordinates.features
        hyper = hyper_parameters(features.families())
        ending = work._run(
            work._schedule(), scaled, np.zeros_like(unit), unit, BuiltNetworks(), hyper
        )
        if ending.result is Result.INTERRUPTED:
            raise KeyboardInterrupt(
                "interrupted while hyper-parameters were trained, before there were coefficients "
                "to keep"
            )
        with jax.enable_x64(True):
            families = jax.tree.map(
                np.asarray, features.with_hyper(ending.state.best.hyper).families()
            )
        found: Family = functools.reduce(operator.add, families)
        self._found = functools.reduce(operator.add, (found, *self._networks))
        self._coordinates = self._make_coordinates(found.separate()[0])
        self.stats = (
            self.stats
            | self._coordinates.stats
            | {"hyper_loss": np.asarray(ending.state.validation)[:epochs]}
        )

    def _schedule(self) -> BatchSchedule:
        at, networks, sparse = (
            self._coordinates,
            bool(self._networks),
            self._objective.total(L1) > 0,
        )
        return BatchSchedule(
            self._options,
            at,
            self._fitting,
            self._windows,
            self._seed,
            networks,
            self._recipe,
            self._variance,
            sparse,
        )

    def _model(self, networks: BuiltNetworks, unit: np.ndarray, batch: int) -> Model:
        objective, at = self._objective, self._coordinates
        features = at.features if at.rows is None else None
        sparse = self._sparse(unit) if objective.total(L1) else None
        strengths = objective.total(Magnitude), objective.total(L2) if self._networks else 0.0
        magnitude, decay = (np.float64(strength) if strength else None for strength in strengths)
        count = -(-len(self._fit) // batch) * batch
        pairs = (1.0 if self._options.resample else (count - 1) / count) / (
            1 - float(np.sum(self._fitting.probabilities**2))
        )
        return Model(
            features,
            at.basis,
            networks.fixed,
            networks.gauge,
            sparse,
            magnitude,
            decay,
            np.float64(pairs),
            self._variance,
        )

    def _sparse(self, unit: np.ndarray) -> np.ndarray:
        """Return strengths (P, q) of |θ|, which is measured in units of f where squares are in
        units of its square."""
        spread = self._coordinates.spread
        assert spread is not None, "made where there is L1"
        out = self._objective.total(L1) * spread[:, None] / unit
        out[: int(self._coordinates.features.constant)] = 0.0
        return out

    def _build(self, q: int) -> BuiltNetworks:
        """Build the networks for q integrands; gauges bring g of typical parameters to unit size,
        so that one learning rate suits all scores."""
        if not self._networks:
            return BuiltNetworks()
        rng = np.random.default_rng([self._seed, 2])
        with jax.enable_x64(True):
            built = [network.build(self._points.dim, q, rng) for network in self._networks]
        some = self._fitting.take(np.arange(min(len(self._fitting), SAMPLE)))
        typical = [NetworkTerm(network.perturb(rng), 1.0)(some.x, some.s) for network in built]
        sizes = [float(np.sqrt(np.mean(g**2))) for g in typical]
        gauge = tuple(np.float64(1 / size if 0 < size < math.inf else 1.0) for size in sizes)
        arrays, fixed = zip(*map(partition_arrays, built), strict=True)
        return BuiltNetworks(fixed, arrays, gauge)

    def _put_held_out(self, values: np.ndarray) -> Draws | None:
        held = self._holding
        if held is None:
            return None
        rows = None if self._coordinates.rows is None else self._coordinates.at(held.x, held.s)
        room = -len(held) % ROWS if len(held) > ROWS else 0
        return put_on_device(
            rows, held, values[self._held], held.probabilities, bool(self._networks), room
        )

    def _loss_of_zero(self, values: np.ndarray) -> float:
        """Return the held-out loss of g = 0, or infinity if no draws are held out."""
        if self._holding is None:
            return math.inf
        p, f = self._holding.probabilities, values[self._held]
        return float(np.sum(p @ (f - p @ f) ** 2))

    def _choose(
        self, state: TrainingState, networks: BuiltNetworks, scaled: np.ndarray, unit: np.ndarray
    ) -> tuple[np.ndarray, tuple[Term, ...]]:
        """Return the best parameters on held-out draws; without those the last ones or their
        average, whichever has the lower objective."""
        candidates = [state.params if self._holding is None else state.best]
        if self._holding is None and int(state.counted) > 1:
            candidates.append(jax.tree.map(lambda total: total / int(state.counted), state.total))
        found = [self._evaluate(candidate, networks, scaled, unit) for candidate in candidates]
        intercepts, losses = (np.stack(part) for part in zip(*found, strict=True))
        if self._networks:  # one trunk for all integrands
            losses = losses.sum(axis=1, keepdims=True) + np.zeros_like(losses)
        pick = np.argmin(np.where(np.isfinite(losses), losses, np.inf), axis=0)
        columns = np.arange(len(unit))
        linear = np.stack([entry.linear for entry in candidates])[pick, :, columns].T
        terms: list[Term] = [*self._linear_terms(linear * unit)]
        if self._networks:
            whole = networks.terms(candidates[pick[0]].networks, unit)
            terms += (
                self._shrink(whole, terms, scaled * unit, self._holding)
                if self._holding is not None
                else whole
            )
        return intercepts[pick, columns], tuple(terms)

    def _shrink(
        self, networks: list[NetworkTerm], others: list[Term], values: np.ndarray, held: Points
    ) -> list[NetworkTerm]:
        """Return networks times the factor in [0, 1] that is best on held-out draws: one that
        learnt nothing does no harm."""
        p, at = held.probabilities, (held.x, held.s, values.shape[1])
        rest, g = values[self._held] - sum_terms(others, *at), sum_terms(networks, *at)
        rest, g = rest - p @ rest, g - p @ g
        size = p @ g**2
        factor = np.clip(
            np.where(size > 0, p @ (g * rest) / np.where(size > 0, size, 1.0), 0.0), 0.0, 1.0
        )
        self.stats = self.stats | {"shrinkage": factor}
        return [NetworkTerm(term.network, term.scale * factor) for term in networks]

    def _evaluate(
        self, params: Params, networks: BuiltNetworks, scaled: np.ndarray, unit: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the intercept that suits parameters, and the objective of each integrand."""
        at, p = self._coordinates, self._fitting.probabilities
        g = self._linear_values(params.linear)
        for term in networks.terms(params.networks, 1.0):
            g = g + term(self._fitting.x, self._fitting.s)
        residual = scaled[self._fit] - g
        free = np.isinf(self._objective.intercept_variance)
        intercept = p @ residual if free else at.basis.coefficients(params.linear)[0]
        loss = p @ (residual - intercept) ** 2 + at.basis.quadratic(params.linear)
        if self._objective.total(L1):
            loss = loss + np.sum(
                self._sparse(unit) * np.abs(at.basis.coefficients(params.linear)), axis=0
            )
        return intercept, loss

    def _linear_values(self, w: np.ndarray) -> np.ndarray:
        """Return g of the linear part, without the constant, at the fitting draws."""
        at = self._coordinates
        if at.rows is None:
            return sum_terms(self._linear_terms(w), self._fitting.x, self._fitting.s, w.shape[1])
        return at.rows @ w - (at.basis.coefficients(w)[:1] if at.features.constant else 0.0)

    def _linear_terms(self, w: np.ndarray) -> tuple[LinearTerm, ...]:
        at = self._coordinates
        theta = at.features.on_raw(at.basis.coefficients(w))[int(at.features.constant) :]
        return linear_terms(at.features.parts, theta, self._points.dim)


def units(values: Values, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of each integrand, the latter one where it is constant."""
    centre = p @ values
    spread = np.sqrt(p @ (values - centre) ** 2)
    return centre, np.where(spread > 0, spread, 1.0)


def _hold_out(m: int, share: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return rows held out and rows that fit, both in order."""
    count = round(share * m)
    if share and not 2 <= count <= m - 8:
        raise ValueError(
            f"SGD: validation={share} holds {count} of {m} fitting draws out; at least 2 must be, "
            "and 8 must remain"
        )
    mixed = rng.permutation(m)
    return np.sort(mixed[:count]), np.sort(mixed[count:])
