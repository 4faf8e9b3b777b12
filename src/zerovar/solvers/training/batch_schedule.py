"""The batch schedule: which draws each round of a training is on, how batches are drawn from them,
and how long steps are."""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float64

from ...inputs.points import Points
from ..windows import Windows
from .batch_order import BatchOrder
from .coordinates import TrainingCoordinates
from .loop import Batches, Draws, StepRule
from .schedules import Constant, Cosine
from .whitening import by_leverage


class Recipe(NamedTuple):
    """What a training does unless its options say otherwise.

    visits: of draws, for which windows are read; more are not worth the reading.
    rate: the peak of a cosine schedule; None where the draws say which steps are safe.
    average: the share of the last steps whose parameters are averaged.
    validation: the share of the draws that is held out.
    """

    epochs: int
    visits: int
    batch_size: int
    rate: float | None
    average: float
    validation: float


# Whitened coordinates contract by a constant factor an epoch: after 25 what is left is noise, which
# averaging removes.
LINEAR = Recipe(25, 1_000_000, 32, None, 0.5, 0.0)
# Adam's usual rate for data of unit size; a tenth of the draws tells when to stop.
NETWORK = Recipe(400, 4_000_000, 64, 5e-3, 0.0, 0.1)
# Adam moves a logarithm by about its rate a step: far enough in fifty epochs.
TUNING = Recipe(50, 4_000_000, 32, 0.02, 0.0, 0.2)
# Share of leverage in the sampling probabilities, the rest is as the draws count: with all of it,
# draws of little leverage would have weights without bound.
_BY_LEVERAGE = 0.9


class RoundDraws(NamedTuple):
    """The draws that a round is on: all that fit, or a window of them."""

    rows: Any  # ψ, where it is kept
    leverage: Float64[np.ndarray, " n"]
    points: Points  # their probabilities are shares in all draws
    values: Float64[np.ndarray, "n q"]  # in units of their standard deviations


@dataclasses.dataclass(frozen=True)
class BatchSchedule:
    """From options and coordinates. `points` are the fitting draws in memory: the pilot of
    `windows`, where there are such."""

    options: Any
    at: TrainingCoordinates
    points: Points
    windows: Windows | None
    seed: int
    networks: bool
    recipe: Recipe
    variance: bool
    sparse: bool

    @property
    def rounds_per_epoch(self) -> int:
        """Rounds that make an epoch."""
        return 1 if self.windows is None else self.windows.count

    def count_epochs(self, rounds: int) -> int | float:
        """Return rounds in epochs."""
        return rounds if self.rounds_per_epoch == 1 else rounds / self.rounds_per_epoch

    @property
    def batch_size(self) -> int:
        size = self.options.batch_size or self.recipe.batch_size
        if self.variance and size < 2:
            raise ValueError(
                f"SGD: the Variance objective needs batch_size of at least 2; got {size}"
            )
        return min(size, len(self.points))

    @property
    def steps(self) -> int:
        """Steps of a round."""
        draws = (
            len(self.points) if self.windows is None else self.windows.draws / self.windows.count
        )
        return math.ceil(draws / self.batch_size)

    @property
    def epochs(self) -> int:
        if self.options.epochs or self.windows is None:
            return self.options.epochs or self.recipe.epochs
        return max(1, min(self.recipe.epochs, -(-self.recipe.visits // self.windows.draws)))

    def rule(self, validated: bool) -> StepRule:
        """Return how to step; `validated`: whether held-out draws end the training."""
        options, epochs = self.options, self.epochs
        rounds = epochs * self.rounds_per_epoch
        average = self.recipe.average if options.average is None else options.average
        schedule: Any = options.learning_rate
        if options.optimiser is not None:
            schedule = Constant(1.0)
        elif schedule is None:
            if self.recipe.rate is not None:
                schedule = Cosine(self.recipe.rate)
            elif self.sparse:  # at a constant rate coefficients that should be zero hover about it
                schedule = Cosine(self._own_step, warmup=0.0)
            else:
                schedule = Constant(self._own_step)
        elif not callable(schedule):
            schedule = Constant(schedule)
        patience = (
            (options.patience or max(1, epochs // 5)) * self.rounds_per_epoch
            if validated
            else rounds
        )
        chosen = optimiser(self.recipe.rate is not None, options.clip, options.optimiser)
        average_from = math.ceil(rounds * self.steps * (1 - average))
        return StepRule(
            chosen, schedule, np.int64(rounds), np.int64(average_from), np.int64(patience)
        )

    def draw_round(
        self, number: int, values: np.ndarray, centre: np.ndarray, unit: np.ndarray
    ) -> RoundDraws:
        """Return the draws of a round: those in memory with `values`, or a window, whose values
        become (f − centre) / unit."""
        at = self.at
        if self.windows is None:
            return RoundDraws(at.rows, at.leverage, self.points, values)
        points, values = self.windows(number)
        values = (values - centre) / unit
        if at.rows is None:
            return RoundDraws(
                None,
                at.leverages(points, np.random.default_rng([self.seed, 3, number])),
                points,
                values,
            )
        rows = at.at(points.x, points.s)
        return RoundDraws(rows, np.sum(rows**2, axis=1), points, values)

    def batches(self, drawn: RoundDraws) -> tuple[Draws, Batches, BatchOrder]:
        """Return draws, batches and their order. All windows get the same number of steps; one that
        has less of the draws counts for less in each."""
        p = drawn.points.probabilities
        chance = self._chances(drawn.leverage, p)
        share = self.rounds_per_epoch * p.sum()  # against that of an average window
        # The objective of a window is to count in proportion; that of Variance is quadratic in the
        # weights
        weights = share ** (0.5 if self.variance else 1.0) * (p / p.sum()) / chance
        m = len(chance)
        most = m if self.windows is None else self.windows.most
        bucket = 64 if most < 4096 else 1024
        room = -(-most // bucket) * bucket - m  # rows that are never drawn, for fewer programs
        ladder = np.minimum(np.cumsum(np.pad(chance, (0, room))), 1.0)
        ladder[m - 1 :] = 1.0
        step_factor, ours = (
            1.0,
            not self.networks
            and self.options.optimiser is None
            and self.options.learning_rate is None,
        )
        # draws farther out than the pilot's need shorter steps
        if self.windows is not None and ours:
            step_factor = min(
                1.0, self._step(weights, drawn.leverage, self._largest(drawn)) / self._own_step
            )
        draws = put_on_device(drawn.rows, drawn.points, drawn.values, weights, self.networks, room)
        order = BatchOrder(
            ladder, self.steps, self.batch_size, not self.options.resample, self.seed
        )
        return (
            draws,
            Batches(np.int64(self.steps), np.int64(self.rounds_per_epoch), np.float64(step_factor)),
            order,
        )

    def _chances(self, leverage: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
        """Return the probability of each draw to be in a batch: by leverage where the family is
        linear and preconditioned."""
        p = probabilities / probabilities.sum()
        return (
            p
            if self.networks or not self.options.precondition
            else by_leverage(leverage, p, _BY_LEVERAGE)
        )

    @functools.cached_property
    def _own_step(self) -> float:
        weights = self.points.probabilities / self._chances(
            self.at.leverage, self.points.probabilities
        )
        assert self.at.largest is not None, "made where steps are derived from the draws"
        return self._step(weights, self.at.leverage, self.at.largest)

    def _largest(self, drawn: RoundDraws) -> float:
        """Return the largest eigenvalue of a window's second moment."""

        def psi(some: np.ndarray) -> np.ndarray:
            return (
                self.at.at(drawn.points.x[some], drawn.points.s[some])
                if drawn.rows is None
                else drawn.rows[some]
            )

        probabilities = self.rounds_per_epoch * drawn.points.probabilities
        return self.at.largest_at(
            psi, drawn.leverage, probabilities, np.random.default_rng(self.seed)
        )

    def _step(self, weights: np.ndarray, leverage: np.ndarray, largest: float) -> float:
        """Return the largest constant step that is safe: for weighted rows with w‖ψ‖² ≤ L the error
        contracts up to 2 / (L/b + λ)."""
        largest_row = float(np.max(weights * leverage)) if len(leverage) else 1.0
        if self.at.rows is None:
            largest_row *= 1.5  # leverages are then estimates
        # half, because the gradient of a square is twice the residual
        return 0.5 / (largest_row / self.batch_size + (1 - 1 / self.batch_size) * largest)


def put_on_device(
    rows: Any, points: Points, values: Any, weights: Any, networks: bool, room: int
) -> Draws:
    """Put draws on the device, with `room` more rows of zeros; x and s only where ψ alone does not
    do."""
    needed = networks or rows is None
    draws = Draws(rows, points.x if needed else None, points.s if needed else None, values, weights)
    return jax.tree.map(
        lambda a: jax.device_put(np.pad(a, [(0, room)] + [(0, 0)] * (a.ndim - 1))), draws
    )


@functools.lru_cache(maxsize=32)
def optimiser(adam: bool = False, clip: float | None = None, own: Any = None) -> Any:
    """Return Adam or plain descent for a schedule to scale, or the user's own; cached, as another
    object is another program."""
    import optax  # imported when used: it takes a tenth of the time that importing zerovar takes

    ours = optax.chain(optax.scale_by_adam(), optax.scale(-1.0)) if adam else optax.scale(-1.0)
    base = ours if own is None else own
    return base if clip is None else optax.chain(optax.clip_by_global_norm(clip), base)
