"""LIDAR: the posterior of a Gaussian process' two hyper-parameters, φ = log (λ₁, λ₂), as in the text of the paper.

r = g(l) + ε on 221 points, ε ~ N(0, 0.04), g a centred Gaussian process with covariance λ₁² exp(−λ₂² |l − l'|² / 2), standard
Cauchy priors on φ. Truths are by quadrature on a grid. Every repetition has a thinned MALA chain of its own.
"""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import zerovar as zv
from benchmarks.chains import metropolis

from .harness import Job, MissingData, Row, Size, absolute_error, distinct, estimates, markdown, plain, select

NAME = "lidar"
TITLE = "LIDAR: moments of a Gaussian process' hyper-parameters and its log likelihood (supplement)"

NAMES = ("phi1", "phi2", "phi1²", "phi2²", "log p(y|phi)")
_KEYS = ("E[phi1]", "E[phi2]", "E[phi1^2]", "E[phi2^2]", "E[log p(y|phi)]")
_NOISE = 0.04
_THIN = 8
# Mean and sd of the posterior, roughly: the chain moves in units of these
_CENTRE, _SPREAD = np.array([-0.73, -4.65]), np.array([0.45, 0.29])


def jobs(size: Size) -> list[Job]:
    draws = 200 if size.quick else 1000
    return [{"repetition": r, "draws": draws} for r in range(size.repetitions)]


def load(data: Path | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ranges and log ratios (221,), and the five truths."""
    if data is None or not (data / "lidar.csv").exists():
        raise MissingData(
            "lidar needs --data DIR with lidar.csv (columns range and logratio, 221 rows; the data set `lidar` of the R "
            "package SemiPar) and lidar_gp_reference.json (posterior moments by quadrature)"
        )
    table = np.genfromtxt(data / "lidar.csv", delimiter=",", skip_header=1)
    reference = json.loads((data / "lidar_gp_reference.json").read_text())["si2021_text"]
    return table[:, 0], table[:, 1], np.array([reference[key] for key in _KEYS])


def log_likelihood(ranges: np.ndarray, ratios: np.ndarray) -> Any:
    squares = (ranges[:, None] - ranges) ** 2

    def value(phi: jax.Array) -> jax.Array:
        covariance = jnp.exp(2 * phi[0]) * jnp.exp(-0.5 * jnp.exp(2 * phi[1]) * squares) + _NOISE * jnp.eye(len(ranges))
        factor = jnp.linalg.cholesky(covariance)
        white = jax.scipy.linalg.solve_triangular(factor, ratios, lower=True)
        return -0.5 * white @ white - jnp.log(jnp.diag(factor)).sum() - 0.5 * len(ranges) * jnp.log(2 * jnp.pi)

    return value


def run(job: Job, data: Path | None) -> list[Row]:
    ranges, ratios, truth = load(data)
    likelihood = log_likelihood(ranges, ratios)

    def target(z: jax.Array) -> jax.Array:
        phi = _CENTRE + _SPREAD * z
        return likelihood(phi) - jnp.log1p(phi**2).sum()

    start = np.random.default_rng([job["repetition"], 7]).normal(size=(1, 2))
    made = metropolis(target, start, job["draws"], 1.0, True, seed=job["repetition"], thin=_THIN)
    phi, scores = _CENTRE + _SPREAD * made.draws[0], made.scores[0] / _SPREAD
    with jax.enable_x64(True):
        log_p = np.asarray(jax.lax.map(likelihood, jnp.asarray(phi)))
    values = dict(zip(NAMES, (*phi.T, *(phi**2).T, log_p), strict=True))
    rows: list[Row] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", zv.ZerovarWarning)
        for method, options in _methods().items():
            started = time.perf_counter()
            answer = zv.estimate(phi, scores, values, **options)
            rows += estimates(method, answer, truth, time.perf_counter() - started)
    return plain(answer, truth) + rows


def _methods() -> dict[str, dict[str, Any]]:
    kernel = zv.Kernel(zv.kernels.Decaying(0.1, 1.5))
    penalty = zv.LeastSquares(zv.Ridge(1e-6))
    return {
        "polynomial, SGD": {"family": zv.Polynomial(2), "solver": zv.SGD(8, 25, progress=False)},
        "kernel, SGD": {"family": kernel, "objective": penalty, "solver": zv.SGD(8, 10, progress=False)},
        "polynomial, exact": {"family": zv.Polynomial(2)},
        "kernel, exact": {"family": kernel, "objective": penalty},
        "polynomial + kernel, exact": {"family": zv.Polynomial(2) + kernel, "objective": penalty},
        "automatic": {"family": zv.Automatic(progress=False)},
    }


def section(rows: list[Row]) -> str:
    methods = distinct(rows, "method")
    table = []
    for name in NAMES:
        here = select(rows, integrand=name)
        table.append(
            [name, f"{here[0]['truth']:.4f}", *(str(absolute_error(select(here, method=method))) for method in methods)]
        )
    gains, shares = ["gain, median over the five", ""], ["within 2 standard errors", ""]
    for method in methods:
        ratios = [_square(rows, name, "MC") / _square(rows, name, method) for name in NAMES]
        gains.append(f"{np.median(ratios):.3g}")
        shares.append(f"{absolute_error(select(rows, method=method)).within:.0%}")
    text = (
        "Mean absolute errors against quadrature over the repetitions, each a thinned chain of its own. The gain is the ratio "
        "of mean squared errors to those of the plain mean.\n\n"
    )
    return text + markdown(["", "quadrature", *methods], [*table, gains, shares])


def _square(rows: list[Row], name: str, method: str) -> float:
    return float(np.mean([(row["value"] - row["truth"]) ** 2 for row in select(rows, integrand=name, method=method)]))


def figure(rows: list[Row], path: Path) -> None:
    import matplotlib.pyplot as plt

    methods = distinct(rows, "method")
    figure, panels = plt.subplots(1, len(NAMES), figsize=(13, 3), sharey=True, layout="constrained")
    for axes, name in zip(panels, NAMES, strict=True):
        for k, method in enumerate(methods):
            off = [abs(row["value"] - row["truth"]) for row in select(rows, integrand=name, method=method)]
            axes.plot(off, np.full(len(off), k), ".", color=f"C{k}", alpha=0.4)
            axes.plot(2 * [np.mean(off)], [k - 0.35, k + 0.35], color=f"C{k}", lw=2)
        axes.set(xscale="log", title=name, yticks=range(len(methods)), yticklabels=methods)
        axes.grid(axis="x", alpha=0.3)
    panels[0].invert_yaxis()
    figure.supxlabel("absolute error of each repetition; bar: their mean", fontsize=9)
    figure.savefig(path, dpi=150)
    plt.close(figure)
