"""Learning rates. Numbers in them are array leaves, so that another number does not compile another
program."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax.numpy as jnp

from ...arguments import read_numbers, takes, where
from ...hyper import LEAF


class Schedule(eqx.Module):
    """The step size as a function of the step; `steps` is how many there will be, `an_epoch` how
    many make an epoch."""

    @abstractmethod
    def __call__(self, step: Any, steps: Any, an_epoch: Any) -> Any:
        """Return the learning rate at `step` = 0, 1, …"""


@takes(rate=LEAF)
class Constant(Schedule):
    """The same rate throughout."""

    rate: Any

    def __call__(self, step, steps, an_epoch):
        return self.rate


@takes(beta=LEAF, gamma=LEAF)
class InverseTime(Schedule):
    """The paper's α_t = β / (γ + t): what convergence at the rate 1/t takes."""

    beta: Any
    gamma: Any

    def __call__(self, step, steps, an_epoch):
        return self.beta / (self.gamma + step)


@takes(
    peak=LEAF,
    warmup=where(
        "a share of the training, in [0, 1)", lambda w: w.ndim == 0 and 0 <= w < 1, read_numbers
    ),
)
class Cosine(Schedule):
    """From `peak` to zero over the whole training along half a cosine, after a linear rise over the
    first `warmup` of it."""

    peak: Any
    warmup: Any = 0.05

    def __call__(self, step, steps, an_epoch):
        rise = jnp.maximum(self.warmup * steps, 1.0)
        down = jnp.clip((step - rise) / jnp.maximum(steps - rise, 1.0), 0.0, 1.0)
        return (
            self.peak * jnp.minimum((step + 1.0) / rise, 1.0) * 0.5 * (1 + jnp.cos(jnp.pi * down))
        )


@takes(peak=LEAF, factor=LEAF, epochs=LEAF)
class StepDecay(Schedule):
    """`peak`, multiplied by `factor` after every `epochs` epochs."""

    peak: Any
    factor: Any = 0.1
    epochs: Any = 10

    def __call__(self, step, steps, an_epoch):
        return self.peak * self.factor ** jnp.floor(step / (self.epochs * an_epoch))
