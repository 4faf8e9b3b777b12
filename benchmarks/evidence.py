"""log Z of chains against what is known, beside the plain bridge on the same draws.

`data` is a folder with models/densities.py (log densities in JAX), posteriors/events.json (log Z by
importance sampling) and the draws of posteriors and tails. Hierarchies have exact draws and log Z
by conjugacy, and come with the benchmark, as do regressions with conjugate priors. Ladders are in
`ladders.py`, other programs in `evidence_peers.py`.
"""

from __future__ import annotations

import json
import time
import warnings
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize

from . import ladders
from .conjugate import Regression, pines, simulated
from .harness import collect, print_table, sizes_asked
from .integrate import load_model
from .intervals import MODELS


class Case(NamedTuple):
    """Draws (chain, draw, d), their log density, and log Z with its error."""

    draws: np.ndarray
    log_density: Callable[[Any], Any]
    log_z: float
    log_z_error: float = 0.0


class Outcome(NamedTuple):
    """Of one sample: what log Z is off by, its error, the same of the plain bridge with as many
    points as draws, overlap, evaluations of the log density a draw, seconds; or why there is no
    answer."""

    case: str
    off: float
    error: float
    plain_off: float
    plain_error: float
    overlap: float
    evaluations: float
    seconds: float
    refusal: str = ""


def model(name: str, replicate: int, draws: int, data: Path) -> Case:
    """One of the models of the folder: chains of 1000 draws."""
    log_density, _, folder = load_model(name, data)
    known = json.loads((data / "posteriors" / "events.json").read_text(encoding="utf-8"))[name]
    count = max(draws // 1000, 1)
    with np.load(folder / f"{name}.npz") as stored:
        x = stored["x"][[(count * replicate + k) % len(stored["x"]) for k in range(count)]]
    return Case(x[:, :draws].astype(float), log_density, known["log_z"], known["log_z_se"])


def hierarchy(groups: int, centred: bool, replicate: int, draws: int) -> Case:
    """y_j ~ N(θ_j, 1), θ_j ~ N(μ, τ²), μ ~ N(0, 5²), log τ ~ N(0, ½²): exact independent draws, and
    log Z by an integral over τ."""
    import jax.numpy as jnp

    y = 1 + np.sqrt(2) * np.random.default_rng(groups).normal(size=groups)
    grid = np.linspace(-4, 4, 20_001)
    variance = 1 + np.exp(2 * grid)
    precision = groups / variance + 1 / 25
    mean = y.sum() / variance / precision
    log_density = (
        -groups / 2 * np.log(2 * np.pi * variance)
        - np.log(25 * precision) / 2
        - ((y**2).sum() / variance - mean**2 * precision) / 2
        - (grid / 0.5) ** 2 / 2
        - np.log(0.5 * np.sqrt(2 * np.pi))
    )
    density = np.exp(log_density - log_density.max())
    log_z = float(np.log(np.trapezoid(density, grid)) + log_density.max())
    rng = np.random.default_rng([groups, replicate])
    below = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    t = np.interp(rng.random(draws), below / below[-1], grid)
    precision = groups / (1 + np.exp(2 * t)) + 1 / 25
    mu = y.sum() / (1 + np.exp(2 * t)) / precision + rng.normal(size=draws) / np.sqrt(precision)
    share = (1 / (1 + np.exp(-2 * t)))[:, None]
    theta = mu[:, None] + share * (y - mu[:, None])
    theta += np.sqrt(share) * rng.normal(size=(draws, groups))
    effects = theta if centred else (theta - mu[:, None]) / np.exp(t)[:, None]

    def normal(x: Any, scale: Any) -> Any:
        return -((x / scale) ** 2) / 2 - jnp.log(scale) - np.log(2 * np.pi) / 2

    def joint(x: Any) -> Any:
        mu, tau, effect = x[0], jnp.exp(x[1]), x[2:]
        theta = effect if centred else mu + tau * effect
        prior = normal(effect - mu, tau) if centred else normal(effect, 1.0)
        return prior.sum() + normal(y - theta, 1.0).sum() + normal(mu, 5.0) + normal(x[1], 0.5)

    return Case(np.column_stack([mu, t, effects])[None], joint, log_z)


EXACT: dict[str, Callable[[int, int], Case]] = {
    f"{groups} groups, {'centred' if centred else 'non-centred'}": (
        lambda replicate, draws, groups=groups, centred=centred: hierarchy(
            groups, centred, replicate, draws
        )
    )
    for groups in (8, 48, 301)
    for centred in (True, False)
}


def regression(of: Regression, replicate: int, draws: int) -> Case:
    """Exact independent draws of a regression, whose noise is unknown."""
    x = of.draws(draws, np.random.default_rng([len(of.y), replicate]))
    return Case(x[None], of.log_density, of.log_z)


def known_noise(k: int, replicate: int, draws: int) -> Case:
    """k coefficients, y ~ N(X β, 1) and β ~ N(0, 1): the posterior is a normal."""
    of = simulated(k)
    precision = of.design.T @ of.design + np.eye(k)
    mean = np.linalg.solve(precision, of.design.T @ of.y)
    left = of.y @ of.y - mean @ precision @ mean
    log_z = -(len(of.y) * np.log(2 * np.pi) + np.linalg.slogdet(precision)[1] + left) / 2
    noise = np.random.default_rng([k, replicate]).normal(size=(draws, k))
    x = mean + np.linalg.solve(np.linalg.cholesky(precision).T, noise.T).T

    def log_density(x: Any) -> Any:
        away, count = of.y - of.design @ x, len(of.y) + k
        return -(away @ away + x @ x + count * np.log(2 * np.pi)) / 2

    return Case(x[None], log_density, float(log_z))


CONJUGATE: dict[str, Callable[[int, int], Case]] = {
    "pines, density": lambda *job: regression(pines("density"), *job),
    "pines, adjusted density": lambda *job: regression(pines("adjusted_density"), *job),
    "regression, 20 coefficients and noise": lambda *job: regression(simulated(20), *job),
} | {
    f"regression, {k} coefficient{'s' * (k > 1)}, noise known": (
        lambda *job, k=k: known_noise(k, *job)
    )
    for k in (1, 5, 20, 100)
}


def plain_bridge(at_draws: np.ndarray, at_points: np.ndarray) -> float:
    """log Z where the two plain means of Meng and Wong's optimal bridge are equal."""

    def difference(log_z: float) -> float:
        tanh = [np.tanh((one - log_z) / 2).mean() for one in (at_draws, at_points)]
        return -sum(tanh)

    ends = np.concatenate([at_draws, at_points])
    ends = ends[np.isfinite(ends)]
    return float(optimize.brentq(difference, ends.min() - 1, ends.max() + 1))


def ask(name: str, replicate: int, draws: int, data: Path | None) -> Outcome:
    """One sample of one case."""
    import zerovar as zv

    warnings.simplefilter("ignore")
    if name in EXACT | CONJUGATE:
        case = (EXACT | CONJUGATE)[name](replicate, draws)
    else:
        assert data is not None
        case = model(name, replicate, draws, data)
    posterior = zv.from_log_density(case.log_density, case.draws, chain_axis=0)
    start = time.perf_counter()
    try:
        found = zv.evidence(posterior, progress=False, seed=replicate)
    except zv.NumericalError as error:
        nothing = [np.nan] * 6
        return Outcome(name, *nothing, time.perf_counter() - start, str(error))
    seconds = time.perf_counter() - start
    count = case.draws.shape[0] * case.draws.shape[1]
    ratios = found.traces
    halves = np.array_split(ratios.at_draws, 2), np.array_split(ratios.at_points, 2)
    plain = [plain_bridge(a, b[: len(a)]) for a, b in zip(*halves, strict=True)]
    return Outcome(
        name,
        found.log_z - case.log_z,
        float(np.hypot(found.std_error, case.log_z_error)),
        found.log_z + float(np.mean(plain)) - case.log_z,
        found.plain_std_error,
        found.overlap,
        found.evaluations / count,
        seconds,
    )


def _ask(job: tuple[str, int, int, Path | None]) -> Outcome:
    return ask(*job)


def run(
    data: Path | None,
    replicates: int = 10,
    draws: int = 1000,
    only: Sequence[str] | None = None,
    processes: int | None = None,
) -> list[dict[str, Any]]:
    """Print a row a case, and return them."""
    names = list(only or [*(MODELS if data else ()), *EXACT])
    jobs = [(name, k, draws, data) for k in range(replicates) for name in names]
    outcomes = collect(_ask, jobs, processes)
    rows = [summarise(name, [one for one in outcomes if one.case == name]) for name in names]
    cells = [[row["case"], row["answers"], *(f"{row[c]:.2g}" for c in _NUMBERS)] for row in rows]
    title = f"log Z of {draws} draws, {replicates} samples"
    print_table(title, ("case", "answers", *_NUMBERS), cells)
    return rows


_NUMBERS = (
    "error",
    "reported",
    "plain bridge",
    "ratio",
    "within",
    "rms z",
    "overlap",
    "log densities a draw",
    "seconds",
)


def summarise(name: str, outcomes: list[Outcome]) -> dict[str, Any]:
    """Of all samples of a case."""
    kept = [one for one in outcomes if not one.refusal]
    if not kept:
        return {"case": name, "answers": 0} | dict.fromkeys(_NUMBERS, np.nan)
    off, error, plain = (
        np.array([getattr(one, key) for one in kept]) for key in ("off", "error", "plain_off")
    )
    sizes = [float(np.sqrt(np.mean(each**2))) for each in (off, error, plain)]
    return {
        "case": name,
        "answers": len(kept),
        "error": sizes[0],
        "reported": sizes[1],
        "plain bridge": sizes[2],
        "ratio": sizes[0] / sizes[2],
        "within": float(np.mean(np.abs(off) < 1.96 * error)),
        "rms z": float(np.sqrt(np.mean((off / error) ** 2))),
        "overlap": float(np.mean([one.overlap for one in kept])),
        "log densities a draw": float(np.mean([one.evaluations for one in kept])),
        "seconds": float(np.median([one.seconds for one in kept])),
    }


def measure(options: Namespace) -> dict[str, Any]:
    """log Z of chains, and along a ladder, where it is known; or beside other programs."""
    from . import evidence_peers  # which takes cases and the plain bridge from here

    if options.peers:
        return evidence_peers.measure(options)
    if options.quick:
        return {
            "evidence": run(None, 1, 200, ("8 groups, non-centred",), 1),
            "evidence_peers": evidence_peers.run(None, 1, True, processes=1),
        }
    data, only = options.data, tuple(options.only)
    found: dict[str, Any] = {}
    for part, cases, replicates in (
        ("evidence", [*(MODELS if data else ()), *EXACT], 10),
        ("conjugate", CONJUGATE, 40),
    ):
        names = [name for name in cases if name.startswith(only)]
        if names:
            sizes = {"replicates": replicates} | sizes_asked(options)
            found[part] = run(data, only=names, processes=options.processes, **sizes)
    if "crescents".startswith(only):
        found["crescents"] = [row._asdict() for row in ladders.drawn_rows()]
    if data is not None and "ladder".startswith(only):
        rows = ladders.ladder_rows(data.parent)
        ladders.show_ladder(rows)
        found["ladder"] = [row._asdict() for row in rows]
    if not found:
        raise ValueError(f"--only: no case that there is begins with {' or '.join(only)}")
    return found
