"""Learning rates. Numbers in them are array leaves, so that another number does not compile another
program."""

import dataclasses
import math
from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np


class Schedule(eqx.Module):
    """The step size as a function of the step; `steps` is how many there will be, `an_epoch` how
    many make an epoch."""

    @abstractmethod
    def __call__(self, step: Any, steps: Any, an_epoch: Any) -> Any:
        """Return the learning rate at `step` = 0, 1, …"""


def _number(name: str, default: Any = dataclasses.MISSING, below_one: bool = False) -> Any:
    """Return a field of a schedule that is an array of no dimensions."""

    def check(value: Any) -> np.ndarray:
        if below_one and not 0 <= value < 1:
            raise ValueError(f"{name} must be a share of the training, in [0, 1); got {value!r}")
        if not below_one and (
            isinstance(value, (str, bool)) or np.ndim(value) != 0 or not 0 < float(value) < math.inf
        ):
            raise ValueError(f"{name} must be a positive number; got {value!r}")
        return np.asarray(value, dtype=np.float64)

    return eqx.field(converter=check, default=default)


class Constant(Schedule):
    """The same rate throughout."""

    rate: Any = _number("Constant: rate")

    def __call__(self, step, steps, an_epoch):
        return self.rate


class InverseTime(Schedule):
    """The paper's α_t = β / (γ + t): what convergence at the rate 1/t takes."""

    beta: Any = _number("InverseTime: beta")
    gamma: Any = _number("InverseTime: gamma")

    def __call__(self, step, steps, an_epoch):
        return self.beta / (self.gamma + step)


class Cosine(Schedule):
    """From `peak` to zero over the whole training along half a cosine, after a linear rise over the
    first `warmup` of it."""

    peak: Any = _number("Cosine: peak")
    warmup: Any = _number("Cosine: warmup", 0.05, below_one=True)

    def __call__(self, step, steps, an_epoch):
        rise = jnp.maximum(self.warmup * steps, 1.0)
        down = jnp.clip((step - rise) / jnp.maximum(steps - rise, 1.0), 0.0, 1.0)
        return (
            self.peak * jnp.minimum((step + 1.0) / rise, 1.0) * 0.5 * (1 + jnp.cos(jnp.pi * down))
        )


class StepDecay(Schedule):
    """`peak`, multiplied by `factor` after every `epochs` epochs."""

    peak: Any = _number("StepDecay: peak")
    factor: Any = _number("StepDecay: factor", 0.1)
    epochs: Any = _number("StepDecay: epochs", 10)

    def __call__(self, step, steps, an_epoch):
        return self.peak * self.factor ** jnp.floor(step / (self.epochs * an_epoch))
