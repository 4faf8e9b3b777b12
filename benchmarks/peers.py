"""Against plain re-implementations of what else there is, and error reached against time spent.

`per_example` is the common way to write such training: a loop in Python over examples, one gradient
each. `forming_everything` is that of packages in interpreted languages: all differences and
products of pairs as arrays, a general solve, one integrand at a time; it is checked to give
zerovar's answer before it is timed.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import zerovar as zv

from .chains import nuts_chain
from .harness import Row, best, print_table, show
from .targets import banana, banana_density, banana_means, integrands

_SCALE, _RIDGE = 3.0, 1e-5


class Reached(NamedTuple):
    """Root mean square error over replicates and integrands, in units of each integrand's
    deviation, after so many seconds."""

    method: str
    draws: int
    seconds: float
    error: float


def forming_everything(x: np.ndarray, s: np.ndarray, f: np.ndarray) -> np.ndarray:
    """Control functionals with a Gaussian kernel, order 1: every array n × n × d, and a solve for
    each integrand."""
    n, d = x.shape
    difference = x[:, None] - x[None]
    distance = np.sum(difference**2, axis=2)
    kernel = np.exp(-distance / (2 * _SCALE**2))
    cross = np.sum(s[:, None] * s[None], axis=2)
    slopes = np.sum((s[:, None] - s[None]) * difference, axis=2)
    gram = kernel * (cross + slopes / _SCALE**2 + d / _SCALE**2 - distance / _SCALE**4)
    system = gram + n * _RIDGE * np.eye(n)
    out = []
    for column in f.T:
        ones, solved = np.linalg.solve(system, np.ones(n)), np.linalg.solve(system, column)
        out.append(solved.sum() / ones.sum())
    return np.array(out)


def per_example(
    x: np.ndarray, s: np.ndarray, f: np.ndarray, epochs: int, rate: float = 0.01
) -> np.ndarray:
    """Degree two by stochastic gradients, one example at a time, in Python."""
    n, d = x.shape
    matrix, linear, intercept = np.zeros((d, d)), np.zeros(d), 0.0
    order = np.random.default_rng(0)
    for _ in range(epochs):
        for i in order.permutation(n):
            g = s[i] @ matrix @ x[i] + np.trace(matrix) + linear @ s[i]
            residual = f[i] - intercept - g
            outer = np.outer(s[i], x[i])
            matrix += rate * residual * (outer + outer.T + 2 * np.eye(d)) / 2
            linear += rate * residual * s[i]
            intercept += rate * residual
    return np.array([intercept])


def rows(n: int, epochs: int) -> list[Row]:
    """Seconds of both against zerovar's for the same job, d = 10."""
    x, s, f = banana(n)
    sample, kernel = zv.Sample(x, s), zv.Kernel(zv.kernels.Gaussian(_SCALE))

    def functional() -> np.ndarray:
        return zv.fit(
            kernel, sample, f, zv.LeastSquares(zv.Ridge(_RIDGE)), standardise=False
        ).intercept

    apart = np.abs(functional() - forming_everything(x, s, f)).max()
    assert apart < 1e-8, f"the re-implementation gives another answer, by {apart:.1e}"
    trained = zv.SGD(batch_size=1, epochs=epochs, progress=False)

    def training() -> Any:
        return zv.fit(zv.Polynomial(2), sample, f[:, 3], solver=trained)

    training()
    return [
        Row(
            f"control functional, n = {n}, 4 integrands",
            best(lambda: forming_everything(x, s, f), 2),
            best(functional, 3),
        ),
        Row(
            f"degree 2 by SGD, batch 1, {epochs} epochs",
            best(lambda: per_example(x, s, f[:, 3], epochs), 1),
            best(training, 2),
        ),
    ]


def digits(
    replicates: int, sizes: tuple[int, ...], longest: int, few: bool = False
) -> list[Reached]:
    """Error reached against time, the sampler's included: a longer chain, and what zerovar makes of
    a shorter one, in the `few` ways that compile little or in all."""
    truth, unit = banana_means(), banana(20_000, seed=10**6)[2].std(axis=0)
    chains, a_draw = nuts(replicates + 1, longest)
    ridge = zv.LeastSquares(zv.Ridge(1e-8))
    family = zv.Polynomial(2) + zv.Kernel(zv.kernels.InverseMultiquadric(3.2))
    methods: dict[str, Callable[..., np.ndarray]] = {
        "a longer chain": lambda x, s, f: f.mean(axis=0),
        "Polynomial(2)": lambda x, s, f: zv.fit(zv.Polynomial(2), zv.Sample(x, s), f).intercept,
        "kernel, Exact": lambda x, s, f: (
            zv.fit(family, zv.Sample(x, s), f, ridge, zv.Exact()).intercept
        ),
        "kernel, CG": lambda x, s, f: zv.fit(family, zv.Sample(x, s), f, ridge, zv.CG()).intercept,
        "kernel, SGD": lambda x, s, f: (
            zv.fit(family, zv.Sample(x, s), f, ridge, zv.SGD(progress=False)).intercept
        ),
        "automatic": lambda x, s, f: zv.estimate(x, s, f).value,
    }
    every = {"a longer chain": (*sizes, longest), "automatic": sizes[:-1] or sizes}
    found = []
    for name, method in list(methods.items())[: 3 if few else None]:
        for n in every.get(name, sizes):
            errors, seconds = [], []
            for k, (x, s) in enumerate(chains):
                f = integrands(x[:n])
                start = time.perf_counter()
                value = method(x[:n], s[:n], f)
                if k:  # the first compiles
                    seconds.append(time.perf_counter() - start)
                    errors.append((value - truth) / unit)
            found.append(
                Reached(
                    name,
                    n,
                    a_draw * n + float(np.mean(seconds)),
                    float(np.sqrt(np.mean(np.square(errors)))),
                )
            )
    return found


def nuts(chains: int, draws: int) -> tuple[list[tuple[np.ndarray, np.ndarray]], float]:
    """Draws and scores of the bent Gaussian by BlackJAX's NUTS, one chain after the other, and the
    seconds of a draw; what adapting takes, 500 draws more, is shared out among them."""
    program = jax.jit(nuts_chain(banana_density, 10, 500, draws))
    with jax.enable_x64(True):
        found, start = [], 0.0
        for key in jax.random.split(jax.random.key(0), chains):
            states = program(key)
            found.append((np.asarray(states.position), np.asarray(states.logdensity_grad)))
            start = start or time.perf_counter()  # after the first, which compiles
    return found, (time.perf_counter() - start) / max(chains - 1, 1) / draws


def picture(reached: list[Reached], path: Path) -> None:
    """Error against time on logarithmic axes, a line a method."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for name in dict.fromkeys(row.method for row in reached):
        line = [row for row in reached if row.method == name]
        style = {"color": "0.5", "linestyle": "--"} if name == "a longer chain" else {}
        label = f"{name}: {', '.join(f'{row.draws:,}' for row in line)} draws"
        axes.plot(
            [row.seconds for row in line],
            [row.error for row in line],
            marker="o",
            label=label,
            **style,
        )
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="seconds, the sampler's included",
        ylabel="error, in standard deviations of the integrand",
    )
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def measure(options: Namespace) -> dict[str, Any]:
    """What else there is, and the picture of error against time."""
    results: dict[str, Any] = {"peers": rows(100, 1) if options.quick else rows(1000, 5)}
    show("Against plain re-implementations", results["peers"], "peer")
    reached = (
        digits(1, (100,), 200, few=True) if options.quick else digits(5, (500, 2000, 8000), 100_000)
    )
    results["digits"] = [row._asdict() for row in reached]
    print_table(
        "Error reached against time, NUTS included, kernel + quadratic, d = 10",
        ("method", "draws", "seconds", "error (deviations)"),
        [(row.method, row.draws, f"{row.seconds:.3g}", f"{row.error:.2e}") for row in reached],
    )
    options.out.mkdir(parents=True, exist_ok=True)
    picture(reached, options.out / "digits.png")
    return results
