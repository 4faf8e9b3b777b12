"""Networks by the paper's recipe, and as the authors' public program trains them.

The paper names no optimiser for networks; its text has plain stochastic gradients throughout. The
authors' program trains the same first-order networks u = (v, …, v) by Adam with gradients clipped
at 10. Its rate and first parameters are not known here: the rate is chosen as that of plain steps.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import zerovar as zv
from zerovar.families import NonlinearFamily

from .harness import Row
from .protocol import BATCH, FOLDS, LEAST_SQUARES, Problem, fit, timed

MAGNITUDES = (1e-4, 1e-2, 1.0)
CLIP = 10.0


class SharedField(NonlinearFamily):
    """g = ∇·u + u·s for u = (v, …, v) with v a network of one output an integrand: Σ_i ∂_i v + v
    Σ_i s_i."""

    module: Any
    probes: int = eqx.field(static=True)

    def __init__(self, module: Any):
        self.module, self.probes = module, 0

    def describe(self):
        return "SharedField"

    def build(self, d, q, rng):
        module = self.module if self.module.layers else self.module.build(d, q, rng)
        return SharedField(module)

    def perturb(self, rng):
        def moved(leaf: Any) -> Any:
            if not eqx.is_inexact_array(leaf):
                return leaf
            return leaf + rng.normal(size=leaf.shape) * (
                1 / np.sqrt(leaf.shape[0]) if leaf.ndim > 1 else 0.3
            )

        return jax.tree.map(moved, self)

    def __call__(self, x, s):
        def one(point, score):
            v, slope = jax.jvp(self.module, (point,), (jnp.ones_like(point),))
            return slope + v * jnp.sum(score)

        return jax.vmap(one)(x, s)

    def probe(self, x, s, key):
        return 2 * (self(x, s),)

    def floats(self, d):
        return self.module.width * self.module.depth

    @property
    def starts_at_zero(self):
        return True


@functools.cache
def _descent(rate: float, steps: int) -> Any:
    """Plain descent with β/(γ + t), falling from `rate` to half of it; one object for each, as
    another is another program."""
    import optax

    return optax.sgd(lambda t: rate * steps / (steps + t))


@functools.cache
def _adam(rate: float, steps: int) -> Any:
    import optax

    return optax.adam(rate)


class Training(NamedTuple):
    """How networks are trained: what methods are called, the rates to choose from, and the largest
    norm of a gradient."""

    label: str
    rates: tuple[float, ...]
    optimiser: Callable[[float, int], Any]
    clip: float | None = None

    def solver(self, rate: float, epochs: int, m: int) -> zv.SGD:
        return zv.SGD(
            BATCH,
            epochs,
            optimiser=self.optimiser(rate, epochs * -(-m // BATCH)),
            clip=self.clip,
            validation=0.0,
            resample=True,
            progress=False,
        )


RECIPE = Training("as in the paper", (0.3, 0.1, 0.03, 0.01), _descent)
PROGRAM = Training("authors' program", (1e-2, 3e-3, 1e-3, 3e-4), _adam, CLIP)


class Trainer(NamedTuple):
    """A ReLU network on a problem, and how it is trained."""

    problem: Problem
    architecture: Any
    epochs: int
    training: Training = RECIPE

    def fit(
        self, rows: np.ndarray, rate: float, strength: float, objective: Any = zv.LeastSquares
    ) -> zv.Fitted | None:
        """To some of the draws; None if it diverged."""
        problem = self.problem
        sample = zv.Sample(problem.x[rows], problem.s[rows])
        solver = self.training.solver(rate, self.epochs, problem.m)
        penalised, network = objective(zv.Magnitude(strength)), SharedField(self.architecture)
        return fit(network, sample, problem.values[rows], penalised, solver)

    def calibrate(self) -> tuple[float, float]:
        """The rate and then the penalty that one fold of the draws that fit prefers."""
        problem, m = self.problem, self.problem.m
        inside, held = np.arange(m - m // FOLDS), np.arange(m - m // FOLDS, m)
        f = problem.values[:m]

        def loss(rate: float, strength: float) -> float:
            fitted = self.fit(inside, rate, strength)
            if fitted is None:
                return np.inf
            off = f[held] - fitted.at(problem.x[held], problem.s[held])
            return float(np.sum(off.var(axis=0) / f.var(axis=0)))

        rate = min(self.training.rates, key=lambda rate: loss(rate, MAGNITUDES[0]))
        return rate, min(MAGNITUDES, key=lambda strength: loss(rate, strength))


def network_rows(
    problem: Problem,
    names: Sequence[str],
    truth: Sequence[float],
    architecture: Any,
    epochs: int = 25,
    objectives: dict[str, Any] = LEAST_SQUARES,
    training: Training = RECIPE,
    **more: Any,
) -> list[Row]:
    """Rows of a ReLU network for all integrands together, its rate and penalty chosen by one fold
    of the draws that fit."""
    m, trainer = problem.m, Trainer(problem, architecture, epochs, training)
    rate, strength = trainer.calibrate()
    rows: list[Row] = []
    for label, objective in objectives.items():
        work = functools.partial(trainer.fit, np.arange(m), rate, strength, objective)
        program = (training.label, label, rate, problem.x.shape, m, len(names))
        fitted, seconds, compiled = timed(program, work)
        common = {
            **more,
            "method": f"network, {training.label}{label}",
            "seconds": seconds,
            "compilation": compiled,
        }
        common |= {"epochs": epochs, "rate": rate, "strength": strength}
        for j, (value, error) in enumerate(problem.estimates(fitted, range(len(names)))):
            found = {"integrand": names[j], "truth": float(truth[j])}
            rows.append({**common, **found, "value": value, "std_error": error})
    return rows
