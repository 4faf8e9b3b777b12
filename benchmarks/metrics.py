"""Operators with a metric D(x) beside the identity, at equal cost: the same family, the same draws,
and for networks as many epochs.

Each case is a target with exact draws, and integrands. Var f / Var(f − g) is measured on fresh
draws: what a control variate leaves, without the errors of a mean.
"""

from __future__ import annotations

import time
import warnings
from argparse import Namespace
from collections.abc import Callable
from typing import Any

import numpy as np

from .harness import print_table
from .targets import genz

Rng = np.random.Generator
Case = tuple[np.ndarray, np.ndarray, np.ndarray]  # draws, scores, integrands


def funnel(rng: Rng, n: int) -> Case:
    """v ~ N(0, 1), and nine θ ~ N(0, e^v): v, the first two θ and the square of the first."""
    v = rng.normal(size=n)
    theta = np.exp(v / 2)[:, None] * rng.normal(size=(n, 9))
    precision = np.exp(-v)[:, None]
    s_v = -v + np.sum(precision * theta**2 - 1, axis=1) / 2
    values = np.column_stack([v, theta[:, :2], theta[:, 0] ** 2])
    return np.column_stack([v, theta]), np.column_stack([s_v, -precision * theta]), values


def banana(rng: Rng, n: int) -> Case:
    """x ~ N(0, 1), y ~ N(x², ½²), z ~ N(0, 1): all three, and xy."""
    x, z = rng.normal(size=(2, n))
    y = x**2 + rng.normal(size=n) / 2
    off = 4 * (y - x**2)
    scores = np.column_stack([-x + 2 * x * off, -off, -z])
    return np.column_stack([x, y, z]), scores, np.column_stack([x, y, z, x * y])


def hierarchy(rng: Rng, n: int) -> Case:
    """Eight centred effects θ_j ~ N(μ, τ²) with data y_j ~ N(θ_j, 1), by importance resampling of
    exact draws given μ and log τ: μ, log τ, the first two effects."""
    y = np.random.default_rng(8).normal(0.5, 1.5, size=8)
    mu, log_tau = rng.normal(0, 2, size=40 * n), rng.normal(0, 1, size=40 * n)
    total = 1 + np.exp(2 * log_tau)[:, None]
    log_w = -np.sum((y - mu[:, None]) ** 2 / total + np.log(total), axis=1) / 2
    rows = rng.choice(40 * n, n, replace=False, p=np.exp(log_w) / np.exp(log_w).sum())
    mu, log_tau = mu[rows], log_tau[rows]
    precision = np.exp(-2 * log_tau)[:, None]
    theta = (y + precision * mu[:, None]) / (1 + precision)
    theta = theta + rng.normal(size=(n, 8)) / np.sqrt(1 + precision)
    away = precision * (theta - mu[:, None])
    s_mu = -mu / 4 + away.sum(axis=1)
    s_tau = -log_tau + np.sum(away * (theta - mu[:, None]) - 1, axis=1)
    scores = np.column_stack([s_mu, s_tau, y - theta - away])
    values = np.column_stack([mu, log_tau, theta[:, :2]])
    return np.column_stack([mu, log_tau, theta]), scores, values


def genz_functions(rng: Rng, n: int) -> Case:
    """The paper's six, in one dimension."""
    x = rng.normal(size=(n, 1))
    return x, -x, genz(x)


CASES: dict[str, Callable[[Rng, int], Case]] = {
    "funnel, d = 10": funnel,
    "banana, d = 3": banana,
    "hierarchy, d = 10": hierarchy,
    "Genz, d = 1": genz_functions,
}


def families(epochs: int) -> dict[str, Callable[[Any], tuple[Any, Any]]]:
    """By name, what makes a family and a solver of a metric."""
    import zerovar as zv

    def linear(make: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, Any]]:
        return lambda D: (make(D), None)

    def network(D: Any) -> tuple[Any, Any]:
        return zv.Network(zv.MLP(16, 2), zv.Langevin(D)), zv.SGD(epochs=epochs, progress=False)

    return {
        "Polynomial(2)": linear(lambda D: zv.Polynomial(2, operator=zv.ScalarLangevin(D))),
        "Kernel": linear(lambda D: zv.Kernel(zv.kernels.Gaussian(), operator=zv.Langevin(D))),
        "Network": network,
    }


def metrics(kind: str) -> dict[str, Any]:
    """The metrics that a family is tried with; only networks train one."""
    import zerovar as zv

    found: dict[str, Any] = {"identity": None, "log-linear": zv.metrics.LogLinear()}
    if kind == "Network":
        found |= {
            "learned": zv.metrics.Learned(zv.MLP(8, 1)),
            "learned, rank 1": zv.metrics.Learned(zv.MLP(8, 1), rank=1),
        }
    return found


def left(case: str, kind: str, metric: str, seed: int, n: int, epochs: int) -> tuple[Any, float]:
    """Var f / Var(f − g) on fresh draws, (q,), and the seconds of the fit."""
    import zerovar as zv

    warnings.simplefilter("ignore")
    rng = np.random.default_rng([seed, len(case)])
    x, s, values = CASES[case](rng, n)
    family, solver = families(epochs)[kind](metrics(kind)[metric])
    sample = zv.Sample(x, s)
    objective = zv.LeastSquares(zv.Ridge(1e-6)) if solver is None else zv.LeastSquares()
    start = time.perf_counter()
    fitted = zv.fit(family, sample, values, objective, solver, seed=seed, throw=False)
    seconds = time.perf_counter() - start
    x, s, values = CASES[case](rng, 5 * n)
    rest = values - fitted.at(x, s)
    return values.var(axis=0) / rest.var(axis=0), seconds


def run(seeds: int = 5, n: int = 1000, epochs: int = 100) -> list[dict[str, Any]]:
    """Print and return a row for each case, family and metric: the variance ratio, geometric mean
    over integrands, median over seeds, and its share of the identity's."""
    rows: list[dict[str, Any]] = []
    for case in CASES:
        for kind in families(epochs):
            for metric in metrics(kind):
                found = [left(case, kind, metric, seed, n, epochs) for seed in range(seeds)]
                means = [float(np.exp(np.log(ratio).mean())) for ratio, _ in found]
                seconds = float(np.median([one for _, one in found]))
                row = {"case": case, "family": kind, "metric": metric, "seconds": seconds}
                rows.append(row | {"ratio": float(np.median(means)), "each": means})
    base = {(r["case"], r["family"]): r["each"] for r in rows if r["metric"] == "identity"}
    for row in rows:
        own = np.log(row["each"]) - np.log(base[row["case"], row["family"]])
        row["of identity"] = float(np.exp(own.mean()))
        row["error"] = float(own.std(ddof=1) / np.sqrt(seeds)) if seeds > 1 else float("nan")
    cells = [
        [
            row["case"],
            row["family"],
            row["metric"],
            f"{row['ratio']:.3g}",
            f"{row['of identity']:.3g} (± {100 * row['error']:.0f} %)",
            f"{row['seconds']:.2f}",
        ]
        for row in rows
    ]
    header = ("case", "family", "D(x)", "variance ratio", "of the identity's", "seconds")
    print_table(f"metrics, {n} draws, {seeds} seeds", header, cells)
    return rows


def measure(options: Namespace) -> dict[str, Any]:
    """Operators with a metric D(x) beside the identity."""
    return {"metrics": run(1, 200, 2) if options.quick else run(3, 1000, 60)}
