"""Against plain re-implementations of what else there is, and error reached against time spent.

`per_example` is the common way to write such training: a loop in Python over examples, one gradient each.
`forming_everything` is that of packages in interpreted languages: all differences and products of pairs as arrays, a general
solve, one integrand at a time; it is checked to give zerovar's answer before it is timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import zerovar as zv

from .harness import Row, best
from .scale import banana, banana_means

_SCALE, _RIDGE = 3.0, 1e-5


class Reached(NamedTuple):
    """Root mean square error over replicates and integrands, in units of each integrand's deviation, after so many seconds."""

    method: str
    draws: int
    seconds: float
    error: float


def forming_everything(x: np.ndarray, s: np.ndarray, f: np.ndarray) -> np.ndarray:
    """Control functionals with a Gaussian kernel, order 1: every array n × n × d, and a solve for each integrand."""
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


def per_example(x: np.ndarray, s: np.ndarray, f: np.ndarray, epochs: int, rate: float = 0.01) -> np.ndarray:
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
        return zv.fit(kernel, sample, f, zv.LeastSquares(zv.Ridge(_RIDGE)), standardise=False).intercept

    apart = np.abs(functional() - forming_everything(x, s, f)).max()
    assert apart < 1e-8, f"the re-implementation gives another answer, by {apart:.1e}"
    trained = zv.SGD(batch_size=1, epochs=epochs, progress=False)

    def training() -> Any:
        return zv.fit(zv.Polynomial(2), sample, f[:, 3], solver=trained)

    training()
    return [
        Row(f"control functional, n = {n}, 4 integrands", best(lambda: forming_everything(x, s, f), 2), best(functional, 3)),
        Row(
            f"degree 2 by SGD, batch 1, {epochs} epochs", best(lambda: per_example(x, s, f[:, 3], epochs), 1), best(training, 2)
        ),
    ]


def digits(replicates: int, sizes: tuple[int, ...]) -> list[Reached]:
    """Error reached against time: more draws, and what zerovar makes of fewer. These draws are free, which no sampler's are."""
    truth, unit = banana_means(), banana(20_000, seed=10**6)[2].std(axis=0)
    ridge = zv.LeastSquares(zv.Ridge(1e-8))
    family = zv.Polynomial(2) + zv.Kernel(zv.kernels.InverseMultiquadric(3.2))
    methods: dict[str, Callable[..., np.ndarray]] = {
        "plain mean": lambda x, s, f: f.mean(axis=0),
        "Polynomial(2)": lambda x, s, f: zv.fit(zv.Polynomial(2), zv.Sample(x, s), f).intercept,
        "kernel, Exact": lambda x, s, f: zv.fit(family, zv.Sample(x, s), f, ridge, zv.Exact()).intercept,
        "kernel, CG": lambda x, s, f: zv.fit(family, zv.Sample(x, s), f, ridge, zv.CG()).intercept,
        "kernel, SGD": lambda x, s, f: zv.fit(family, zv.Sample(x, s), f, ridge, zv.SGD(progress=False)).intercept,
    }
    found = []
    for name, method in methods.items():
        for n in sizes if name != "plain mean" else tuple(100 * size for size in sizes):
            method(*banana(n, seed=1))  # compiles
            errors, start = [], time.perf_counter()
            for seed in range(replicates):
                errors.append((method(*banana(n, seed=seed + 2)) - truth) / unit)
            seconds = (time.perf_counter() - start) / replicates
            found.append(Reached(name, n, seconds, float(np.sqrt(np.mean(np.square(errors))))))
    return found


def picture(reached: list[Reached], path: Path) -> None:
    """Error against time on logarithmic axes, a line a method."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for name in dict.fromkeys(row.method for row in reached):
        line = [row for row in reached if row.method == name]
        style = {"color": "0.5", "linestyle": "--"} if name == "plain mean" else {}
        axes.plot([row.seconds for row in line], [row.error for row in line], marker="o", label=name, **style)
        axes.annotate(
            f"{line[-1].draws:,} draws", (line[-1].seconds, line[-1].error), (6, 4), textcoords="offset points", fontsize=8
        )
    axes.set(
        xscale="log", yscale="log", xlabel="seconds, draws included", ylabel="error, in standard deviations of the integrand"
    )
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
