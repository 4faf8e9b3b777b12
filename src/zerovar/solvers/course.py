"""The course of a training: which draws each round is on, how batches are drawn from them, how long steps are, and how many."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float64

from .coordinates import Coordinates
from .order import Order
from .schedules import Constant, Cosine
from .training import Batches, Draws, Recipe
from .whitening import by_leverage
from .windows import Windows

_LINEAR_EPOCHS, _NETWORK_EPOCHS = 25, 400
_LINEAR_VISITS, _NETWORK_VISITS = 1_000_000, 4_000_000  # of draws: to read windows more often is not worth it
_LINEAR_BATCH, _NETWORK_BATCH = 32, 64
_NETWORK_RATE = 5e-3
_BY_LEVERAGE = 0.9  # share of leverage in the sampling probabilities; the rest is as the draws count


class Lot(NamedTuple):
    """The draws that a round is on: all that fit, or a window of them."""

    rows: Any  # ψ, where it is kept
    leverage: Float64[np.ndarray, " n"]
    x: Float64[np.ndarray, "n d"]
    s: Float64[np.ndarray, "n d"]
    values: Float64[np.ndarray, "n q"]  # in units of their standard deviations
    probabilities: Float64[np.ndarray, " n"]  # shares in all draws


@dataclasses.dataclass(frozen=True)
class Course:
    """From options and coordinates. x, s, probabilities are those of the fitting draws in memory: the pilot of `windows`, where
    there are such."""

    options: Any
    at: Coordinates
    x: Float64[np.ndarray, "m d"]
    s: Float64[np.ndarray, "m d"]
    probabilities: Float64[np.ndarray, " m"]
    windows: Windows | None
    seed: int
    networks: bool
    supple: bool
    variance: bool
    sparse: bool

    @property
    def lots(self) -> int:
        """Rounds an epoch."""
        return 1 if self.windows is None else self.windows.count

    def in_epochs(self, rounds: int) -> float:
        return rounds if self.lots == 1 else rounds / self.lots

    @property
    def batch_size(self) -> int:
        size = self.options.batch_size or (_NETWORK_BATCH if self.networks else _LINEAR_BATCH)
        if self.variance and size < 2:
            raise ValueError(f"SGD: the Variance objective needs batch_size of at least 2; got {size}")
        return min(size, len(self.x))

    @property
    def steps(self) -> int:
        """Of a round."""
        draws = len(self.x) if self.windows is None else self.windows.draws / self.windows.count
        return math.ceil(draws / self.batch_size)

    @property
    def epochs(self) -> int:
        most, visits = (_NETWORK_EPOCHS, _NETWORK_VISITS) if self.networks else (_LINEAR_EPOCHS, _LINEAR_VISITS)
        if self.options.epochs or self.windows is None:
            return self.options.epochs or most
        return max(1, min(most, -(-visits // self.windows.draws)))

    def recipe(self, judged: bool) -> Recipe:
        """`judged`: whether held-out draws end the training."""
        options, epochs = self.options, self.epochs
        rounds = epochs * self.lots
        average = options.average if options.average is not None else (0.0 if self.networks else 0.5)
        schedule: Any = options.learning_rate
        if options.optimiser is not None:
            schedule = Constant(1.0)
        elif schedule is None:
            schedule = Cosine(_NETWORK_RATE) if self.networks else Constant(self._own_step)
            if self.sparse:  # with a constant rate coefficients that should be zero hover about it
                schedule = Cosine(self._own_step, warmup=0.0)
        elif not callable(schedule):
            schedule = Constant(schedule)
        patience = (options.patience or max(1, epochs // 5)) * self.lots
        return Recipe(
            optimiser=optimiser(self.networks or self.supple, options.clip, options.optimiser),
            schedule=schedule,
            rounds=np.int64(rounds),
            average_from=np.int64(math.ceil(rounds * self.steps * (1 - average))),
            patience=np.int64(patience if judged else rounds),
        )

    def lot(self, number: int, values: np.ndarray, centre: np.ndarray, unit: np.ndarray) -> Lot:
        """Of a round: the draws in memory with `values`, or a window, whose values become (f − centre) / unit."""
        at = self.at
        if self.windows is None:
            return Lot(at.rows, at.leverage, self.x, self.s, values, self.probabilities)
        x, s, values, p = self.windows(number)
        values = (values - centre) / unit
        if at.rows is None:
            return Lot(None, at.leverages(x, s, np.random.default_rng([self.seed, 3, number])), x, s, values, p)
        rows = at.at(x, s)
        return Lot(rows, np.sum(rows**2, axis=1), x, s, values, p)

    def batches(self, lot: Lot) -> tuple[Draws, Batches, Order]:
        """All windows get the same number of steps; one that has less of the draws counts for less in each."""
        chance = self._chances(lot.leverage, lot.probabilities)
        share = self.lots * lot.probabilities.sum()  # against that of an average window
        # The objective of a window is to count in proportion; that of Variance is quadratic in the weights
        weights = share ** (0.5 if self.variance else 1.0) * (lot.probabilities / lot.probabilities.sum()) / chance
        m = len(chance)
        most = m if self.windows is None else self.windows.most
        bucket = 64 if most < 4096 else 1024
        room = -(-most // bucket) * bucket - m  # rows that are never drawn, for fewer programs
        ladder = np.minimum(np.cumsum(np.pad(chance, (0, room))), 1.0)
        ladder[m - 1 :] = 1.0
        pace = 1.0
        if self.windows is not None and self._steps_are_ours:  # draws farther out than the pilot's need shorter steps
            pace = min(1.0, self._step(weights, lot.leverage, self._largest(lot)) / self._own_step)
        draws = points(lot.rows, lot.x, lot.s, lot.values, weights, self.networks, room)
        order = Order(ladder, self.steps, self.batch_size, not self.options.resample, self.seed)
        return draws, Batches(np.int64(self.steps), np.int64(self.lots), np.float64(pace)), order

    def _chances(self, leverage: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
        """The probability of each draw to be in a batch: by leverage where the family is linear and preconditioned."""
        p = probabilities / probabilities.sum()
        if self.networks or not self.options.precondition:
            return p
        return by_leverage(leverage, p, _BY_LEVERAGE)

    @property
    def _steps_are_ours(self) -> bool:
        return not self.networks and self.options.optimiser is None and self.options.learning_rate is None

    @functools.cached_property
    def _own_step(self) -> float:
        weights = self.probabilities / self._chances(self.at.leverage, self.probabilities)
        return self._step(weights, self.at.leverage, self.at.largest)

    def _largest(self, lot: Lot) -> float:
        """Eigenvalue of a window's second moment."""

        def psi(some: np.ndarray) -> np.ndarray:
            return self.at.at(lot.x[some], lot.s[some]) if lot.rows is None else lot.rows[some]

        return self.at.largest_at(psi, lot.leverage, self.lots * lot.probabilities, np.random.default_rng(self.seed))

    def _step(self, weights: np.ndarray, leverage: np.ndarray, largest: float) -> float:
        """The largest constant step that is safe: for weighted rows with w‖ψ‖² ≤ L the error contracts up to 2 / (L/b + λ)."""
        largest_row = float(np.max(weights * leverage)) if len(leverage) else 1.0
        if self.at.rows is None:
            largest_row *= 1.5  # leverages are then estimates
        # half, because the gradient of a square is twice the residual
        return 0.5 / (largest_row / self.batch_size + (1 - 1 / self.batch_size) * largest)


def points(rows: Any, x: Any, s: Any, values: Any, weights: Any, networks: bool, room: int) -> Draws:
    """On the device, with `room` more rows of zeros; x and s only where ψ alone does not do."""
    needed = networks or rows is None
    draws = Draws(rows, x if needed else None, s if needed else None, values, weights)
    return jax.tree.map(lambda a: jnp.asarray(np.pad(a, [(0, room)] + [(0, 0)] * (a.ndim - 1))), draws)


@functools.lru_cache(maxsize=32)
def optimiser(adam: bool = False, clip: float | None = None, own: Any = None) -> Any:
    """Adam or plain descent for a schedule to scale, or the user's own; cached, as another object is another program."""
    import optax  # imported when used: it takes a tenth of the time that importing zerovar takes

    base = own
    if own is None:
        base = optax.chain(optax.scale_by_adam(), optax.scale(-1.0)) if adam else optax.scale(-1.0)
    return base if clip is None else optax.chain(optax.clip_by_global_norm(clip), base)
