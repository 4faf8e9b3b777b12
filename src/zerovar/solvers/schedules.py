"""Learning rates. Numbers in them are array leaves, so that another number does not compile another program."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np


class Schedule(eqx.Module):
    """The step size as a function of the step; `steps` is how many there will be, `an_epoch` how many make an epoch."""

    @abstractmethod
    def __call__(self, step: Any, steps: Any, an_epoch: Any) -> Any:
        """The learning rate at `step` = 0, 1, …"""


class Constant(Schedule):
    """The same rate throughout."""

    rate: np.ndarray

    def __init__(self, rate: float):
        self.rate = _positive("Constant", rate=rate)

    def __call__(self, step, steps, an_epoch):
        return self.rate


class InverseTime(Schedule):
    """The paper's α_t = β / (γ + t): what convergence at the rate 1/t takes."""

    beta: np.ndarray
    gamma: np.ndarray

    def __init__(self, beta: float, gamma: float):
        self.beta, self.gamma = _positive("InverseTime", beta=beta), _positive("InverseTime", gamma=gamma)

    def __call__(self, step, steps, an_epoch):
        return self.beta / (self.gamma + step)


class Cosine(Schedule):
    """From `peak` to zero over the whole training along half a cosine, after a linear rise over the first `warmup` of it."""

    peak: np.ndarray
    warmup: np.ndarray

    def __init__(self, peak: float, warmup: float = 0.05):
        self.peak = _positive("Cosine", peak=peak)
        if not 0 <= warmup < 1:
            raise ValueError(f"Cosine: warmup must be a share of the training, in [0, 1); got {warmup!r}")
        self.warmup = np.asarray(warmup, dtype=np.float64)

    def __call__(self, step, steps, an_epoch):
        rise = jnp.maximum(self.warmup * steps, 1.0)
        down = jnp.clip((step - rise) / jnp.maximum(steps - rise, 1.0), 0.0, 1.0)
        return self.peak * jnp.minimum((step + 1.0) / rise, 1.0) * 0.5 * (1 + jnp.cos(jnp.pi * down))


class StepDecay(Schedule):
    """`peak`, multiplied by `factor` after every `epochs` epochs."""

    peak: np.ndarray
    factor: np.ndarray
    epochs: np.ndarray

    def __init__(self, peak: float, factor: float = 0.1, epochs: float = 10):
        self.peak, self.factor = _positive("StepDecay", peak=peak), _positive("StepDecay", factor=factor)
        self.epochs = _positive("StepDecay", epochs=epochs)

    def __call__(self, step, steps, an_epoch):
        return self.peak * self.factor ** jnp.floor(step / (self.epochs * an_epoch))


def _positive(name: str, **entry: Any) -> np.ndarray:
    ((field, value),) = entry.items()
    if isinstance(value, (str, bool)) or np.ndim(value) != 0 or not 0 < float(value) < math.inf:
        raise ValueError(f"{name}: {field} must be a positive number; got {value!r}")
    return np.asarray(value, dtype=np.float64)
