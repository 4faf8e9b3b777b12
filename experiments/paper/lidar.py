"""LIDAR: the posterior of a Gaussian process' two hyper-parameters, φ = log (λ₁, λ₂), as in the
text of the paper.

r = g(l) + ε on 221 points, ε ~ N(0, 0.04), g a centred Gaussian process with covariance λ₁²
exp(−λ₂² |l − l'|² / 2), standard Cauchy priors on φ. Truths are by quadrature on a grid. Every
repetition has a chain of its own by adaptive Metropolis. More repetitions take stretches of the
published chains of Chen et al., whose parameters are (2φ₁, 2φ₂ − log 2), with Cauchy priors on
those, so that the posterior is another one; they come without scores, which are computed here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import zerovar as zv
from benchmarks.chains import adaptive_metropolis

from .comparisons import error_table, recipe_section
from .harness import Job, MissingData, Row, Size, automatic, compared, constants, distinct, select
from .networks import PROGRAM, RECIPE, network_rows
from .pictures import PARTS, TINY, WIDTH, colour, curves, finish, ordered, strips, style
from .protocol import Problem, rows_of

NAME = "lidar"
TITLE = "LIDAR: moments of a Gaussian process' hyper-parameters and its log likelihood (supplement)"
VERSIONS = {"ours": 2, "paper": 3, "program": 1}

NAMES = ("phi1", "phi2", "phi1²", "phi2²", "log p(y|phi)")
_KEYS = ("E[phi1]", "E[phi2]", "E[phi1^2]", "E[phi2^2]", "E[log p(y|phi)]")
# and the keys of their posteriors in the reference
CHAINS = {"own": "si2021_text", "stored": "chen2018_code"}
_NOISE = 0.04
_THIN = 8
# Mean and sd of the posterior, roughly: the chain moves in units of these
_CENTRE, _SPREAD = np.array([-0.73, -4.65]), np.array([0.45, 0.29])


def jobs(size: Size) -> list[Job]:
    less = {"draws": 200 if size.quick else 1000, **size.marks}
    ours = [
        {"part": "ours", "chain": chain, "repetition": r, **less}
        for chain in CHAINS
        for r in range(size.repetitions)
    ]
    sizes = [100] if size.quick else [100, 200, 500, 1000]
    return ours + [
        {"part": part, "chain": "own", "repetition": r, "sizes": sizes, **less}
        for part in ("paper", "program")
        for r in range(size.repetitions)
    ]


def load(data: Path | None, chain: str = "own") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ranges and log ratios (221,), and the five truths of the posterior of a chain."""
    if data is None or not (data / "lidar.csv").exists():
        raise MissingData(
            "lidar needs --data DIR with lidar.csv (columns range and logratio, 221 rows; the "
            "data set `lidar` of the R package SemiPar), lidar_gp_reference.json (posterior "
            "moments by quadrature) and lidar_gp_chains.npz (two chains of 100 000 states, "
            "published with Chen et al., Stein points)"
        )
    table = np.genfromtxt(data / "lidar.csv", delimiter=",", skip_header=1)
    reference = json.loads((data / "lidar_gp_reference.json").read_text())[CHAINS[chain]]
    return table[:, 0], table[:, 1], np.array([reference[key] for key in _KEYS])


def log_likelihood(ranges: np.ndarray, ratios: np.ndarray) -> Any:
    squares = (ranges[:, None] - ranges) ** 2

    def value(phi: jax.Array) -> jax.Array:
        covariance = jnp.exp(2 * phi[0]) * jnp.exp(
            -0.5 * jnp.exp(2 * phi[1]) * squares
        ) + _NOISE * jnp.eye(len(ranges))
        factor = jnp.linalg.cholesky(covariance)
        white = jax.scipy.linalg.solve_triangular(factor, ratios, lower=True)
        return (
            -0.5 * white @ white
            - jnp.log(jnp.diag(factor)).sum()
            - 0.5 * len(ranges) * jnp.log(2 * jnp.pi)
        )

    return value


def run(job: Job, data: Path | None) -> list[Row]:
    ranges, ratios, truth = load(data, job["chain"])
    likelihood = log_likelihood(ranges, ratios)
    phi, scores, log_p = (_own if job["chain"] == "own" else _stored)(job, likelihood, data)
    values = dict(zip(NAMES, (*phi.T, *(phi**2).T, log_p), strict=True))
    if job["part"] != "ours":
        return _recipe(phi, scores, values, truth, job)
    return compared(_methods(job.get("quick", False)), phi, scores, values, truth)


def _recipe(
    phi: np.ndarray, scores: np.ndarray, values: dict[str, np.ndarray], truth: np.ndarray, job: Job
) -> list[Row]:
    """The recipe of the paper, or networks as the authors' program trains them, on n states,
    equally spaced; it does not say how many fit: half."""
    quick, program = job.get("quick", False), job["part"] == "program"
    epochs = {"kernel": (10,), "polynomial": (25,)}
    kinds = () if program else ("polynomial",) if quick else ("polynomial", "kernel")
    architecture = zv.MLP(20, 2 if quick else 6, jax.nn.relu)
    rows: list[Row] = []
    for n in job["sizes"]:
        part = np.linspace(0, len(phi) - 1, n).round().astype(int)
        part = np.concatenate([part[::2], part[1::2]])  # both halves all along the chain
        array = np.stack(list(values.values()), axis=1)[part]
        problem = Problem.of(phi[part], scores[part], array, n // 2)
        means = constants("MC", NAMES, array.mean(axis=0), truth, 0.0, n=n)
        rows += means + rows_of(problem, NAMES, truth, kinds, epochs.__getitem__, n=n)
        if program or not quick:
            trained = {"training": PROGRAM if program else RECIPE, "epochs": 2 if quick else 25}
            rows += network_rows(problem, NAMES, truth, architecture, **trained, n=n)
    return rows


def _own(job: Job, likelihood: Any, data: Path | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draws and scores (n, 2) and log likelihoods (n,) of an adaptive chain, thinned."""

    def target(z: jax.Array) -> jax.Array:
        phi = _CENTRE + _SPREAD * z
        return likelihood(phi) - jnp.log1p(phi**2).sum()

    start = np.random.default_rng([job["repetition"], 7]).normal(size=(1, 2))
    length = {"thin": 2, "warm_up": 100} if job.get("quick") else {"thin": _THIN}
    made = adaptive_metropolis(target, start, job["draws"], job["repetition"], **length)
    phi = _CENTRE + _SPREAD * made.draws[0]
    with jax.enable_x64(True):
        return phi, made.scores[0] / _SPREAD, np.asarray(jax.lax.map(likelihood, jnp.asarray(phi)))


def _stored(
    job: Job, likelihood: Any, data: Path | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same from a stretch of 10 000 states of one of the published chains, thinned."""
    assert data is not None
    place, chain = divmod(job["repetition"], 2)
    states = np.load(data / "lidar_gp_chains.npz")[f"chain{chain + 1}"][
        10_000 * place : 10_000 * (place + 1)
    ]
    phi = states[:: 10_000 // job["draws"]]

    def parts(phi: jax.Array) -> tuple[jax.Array, jax.Array]:
        log_p = likelihood(jnp.stack([phi[0] / 2, (phi[1] + jnp.log(2.0)) / 2]))
        return log_p - jnp.log1p(phi**2).sum(), log_p

    with jax.enable_x64(True):
        scores, log_p = jax.lax.map(jax.grad(parts, has_aux=True), jnp.asarray(phi))
        return phi, np.asarray(scores), np.asarray(log_p)


def _methods(quick: bool) -> dict[str, dict[str, Any]]:
    kernel = zv.Kernel(zv.kernels.Decaying(0.1, 1.5))
    penalty = zv.LeastSquares(zv.Ridge(1e-6))
    methods = {
        "polynomial, SGD": {"family": zv.Polynomial(2), "solver": zv.SGD(8, 25, progress=False)},
        "kernel, SGD": {
            "family": kernel,
            "objective": penalty,
            "solver": zv.SGD(8, 10, progress=False),
        },
        "polynomial, exact": {"family": zv.Polynomial(2)},
        "kernel, exact": {"family": kernel, "objective": penalty},
        "polynomial + kernel, exact": {"family": zv.Polynomial(2) + kernel, "objective": penalty},
        "network": {
            "family": zv.Network(),
            "solver": zv.SGD(8, 25, progress=False),
            "split": zv.holdout(0.5),
        },
        "automatic": {"family": automatic(quick)},
    }
    return {
        name: methods[name]
        for name in methods
        if not quick or ("SGD" not in name and name != "network")
    }


def section(rows: list[Row]) -> str:
    paper, rows = [row for row in rows if row["part"] != "ours"], select(rows, part="ours")
    tail = _bias(select(rows, chain="own"))
    parts = [
        "Mean absolute errors against quadrature over the repetitions. The gain is the ratio of "
        "mean squared errors to those of the plain mean.\n",
        "**The posterior of the text**, each repetition a thinned chain of its own, by adaptive "
        "Metropolis\n",
        error_table(select(rows, chain="own"), NAMES),
        f"The automatic answers are off by {tail}. What no chain of this length has seen, φ₁ "
        "beyond 1.7 or so, has a mass of 6e-5 and a share of 1e-4 in E[φ₁] (by quadrature), and "
        "no function fitted to the draws can know it: this is what limits control variates here.\n",
        "**Published chains** (other parameters, stretches of 10 000 states thinned to 1000)\n",
        error_table(select(rows, chain="stored"), NAMES),
    ]
    return "\n".join([*parts, *recipe_section(paper, "n", NAMES)])


def _bias(rows: list[Row]) -> str:
    here = select(rows, integrand=NAMES[0], method="automatic")
    off = np.array([row["value"] - row["truth"] for row in here])
    errors = np.mean([row["std_error"] for row in here])
    same = max(int(np.sum(off > 0)), int(np.sum(off < 0)))
    text = (
        f"{off.mean():.1e} ± {off.std():.0e} for φ₁, on the same side in {same} of {len(off)} "
        "repetitions"
    )
    return f"{text}; standard errors of {errors:.0e} are reported"


def figure(rows: list[Row], path: Path) -> None:
    import matplotlib.pyplot as plt

    rows = select(rows, chain="own")
    drawn = {
        part: draw
        for part, draw in {"paper": _against_draws, "ours": _dots}.items()
        if select(rows, part=part)
    }
    figure = plt.figure(figsize=(WIDTH, 2.9 * len(drawn) + 0.6), layout="constrained")
    for strip, (part, draw) in zip(strips(figure, len(drawn)), drawn.items(), strict=True):
        strip.suptitle(PARTS[part], fontweight="bold", fontsize=11)
        here = select(rows, part=part)
        panels = strip.subplots(1, len(NAMES), sharey=draw is _dots)
        for axes, name in zip(panels, NAMES, strict=True):
            draw(axes, select(here, integrand=name), ordered(distinct(here, "method")))
            axes.set_title(name.replace("phi", "φ"), fontsize=10)
        if draw is _against_draws:
            panels[0].set_ylabel("mean absolute error")
        else:
            strip.supxlabel("absolute error of each repetition; bar: their mean", fontsize=10)
    finish(figure, path)


def _against_draws(axes: Any, rows: list[Row], methods: list[str]) -> None:
    curves(axes, rows, "n", methods)


def _dots(axes: Any, rows: list[Row], methods: list[str]) -> None:
    """A line of dots for each method."""
    for k, method in enumerate(methods):
        off = np.array([abs(row["value"] - row["truth"]) for row in select(rows, method=method)])
        off = np.maximum(off[np.isfinite(off)], TINY)
        axes.plot(off, np.full(len(off), k), ".", color=colour(method), alpha=0.4)
        if len(off):
            axes.plot(2 * [off.mean()], [k - 0.35, k + 0.35], color=colour(method), lw=2)
    axes.set(xscale="log", yticks=range(len(methods)), ylim=(len(methods) - 0.5, -0.5))
    axes.set_yticklabels([style(method)["label"] for method in methods])
    axes.tick_params(which="both", labelsize=8)
    axes.grid(axis="x", alpha=0.3)
