"""Probabilities, quantiles, intervals and density curves against what is known.

`data` is a folder with models/densities.py (log densities in JAX), posteriors/events.json (levels
and their probabilities, by importance sampling) and the draws of posteriors and tails. Targets with
exact answers come with the benchmark. Each is asked twice: with its log density, and as draws and
scores alone.
"""

from __future__ import annotations

import functools
import json
import time
import warnings
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import special, stats

from . import shapes
from .harness import collect, print_table, sizes_asked
from .integrate import load_model

LEVELS = (0.01, 0.05, 0.5, 0.95, 0.99)


class Case(NamedTuple):
    """Draws with their log density and named quantities, and for q of these what is known: levels
    (q, l), their probabilities, and the errors of those."""

    log_density: Callable[[Any], Any]
    natural: Callable[[Any], dict[str, Any]]
    draws: np.ndarray
    scores: np.ndarray | None
    names: list[str]
    levels: np.ndarray
    probs: np.ndarray
    prob_errors: np.ndarray


class Outcome(NamedTuple):
    """Of one sample: errors and standard errors of probabilities and quantiles (q, l), those of
    plain quantiles, evaluations of the log density a line, and seconds."""

    case: str
    way: str
    probs: np.ndarray
    off: np.ndarray
    error: np.ndarray
    level_off: np.ndarray
    level_error: np.ndarray
    plain_level_error: np.ndarray
    evaluations: float
    seconds: float


def model(name: str, replicate: int, draws: int, data: Path) -> Case:
    """One of the models of the folder: the first draws of a chain."""
    log_density, values, folder = load_model(name, data)
    known = json.loads((data / "posteriors" / "events.json").read_text(encoding="utf-8"))
    rows = [known["quantiles_of_the_draws"].index(level) for level in LEVELS]
    levels, probs, errors = (np.array(known[name][key])[rows].T for key in ("levels", "p", "p_se"))
    with np.load(folder / f"{name}.npz") as stored:
        every, scores = stored["x"], stored["score"]
    if replicate >= len(every) or draws > every.shape[1]:
        raise ValueError(
            f"{name} has {len(every)} chains of {every.shape[1]} draws: ask for no more "
            "--replicates or --draws, or leave out --data"
        )
    x, scores = every[replicate, :draws], scores[replicate, :draws]
    names = [f"x[{j}]" for j in range(len(levels))]
    return Case(log_density, lambda x: {"x": values(x)}, x, scores, names, levels, probs, errors)


def _exact(
    log_density: Callable[[Any], Any],
    natural: Any,
    draws: np.ndarray,
    levels: np.ndarray,
    probs: Any,
) -> Case:
    names = [f"x[{j}]" for j in range(len(levels))]
    known = np.broadcast_to(probs, levels.shape)
    return Case(log_density, natural, draws, None, names, levels, known, np.zeros(levels.shape))


def normal(d: int, replicate: int, n: int, probs: tuple[float, ...] = LEVELS) -> Case:
    """Correlated by 0.9 to neighbours: all coordinates, of which eight are asked for."""
    rng = np.random.default_rng([d, replicate])
    covariance = 0.9 ** np.abs(np.subtract.outer(np.arange(d), np.arange(d)))
    precision = np.linalg.inv(covariance)
    draws = rng.multivariate_normal(np.zeros(d), covariance, n)
    levels = np.tile(special.ndtri(probs), (min(d, 8), 1))
    return _exact(lambda x: -x @ precision @ x / 2, lambda x: {"x": x}, draws, levels, probs)


def student(replicate: int, n: int) -> Case:
    """t with three degrees of freedom, three independent coordinates."""
    draws = np.random.default_rng([3, replicate]).standard_t(3, (n, 3))
    levels = np.tile(stats.t(3).ppf(LEVELS), (3, 1))
    import jax.numpy as jnp

    return _exact(
        lambda x: -2 * jnp.sum(jnp.log1p(x**2 / 3)), lambda x: {"x": x}, draws, levels, LEVELS
    )


def lognormal(replicate: int, n: int) -> Case:
    """Exponentials of correlated normals."""
    import jax.numpy as jnp

    found = normal(5, replicate, n)
    return found._replace(natural=lambda x: {"x": jnp.exp(x)}, levels=np.exp(found.levels))


def mixture(replicate: int, n: int) -> Case:
    """Two normals in two dimensions, four deviations apart, of which one has three tenths."""
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng([5, replicate])
    first = rng.random(n) < 0.3
    draws = rng.normal(size=(n, 2)) + np.where(first, -2.0, 2.0)[:, None]

    def log_density(x: Any) -> Any:
        parts = [jnp.log(w) - jnp.sum((x - m) ** 2) / 2 for w, m in ((0.3, -2.0), (0.7, 2.0))]
        return jax.scipy.special.logsumexp(jnp.stack(parts))

    grid = np.linspace(-8, 8, 200_001)
    below = 0.3 * special.ndtr(grid + 2) + 0.7 * special.ndtr(grid - 2)
    levels = np.tile(np.interp(LEVELS, below, grid), (2, 1))
    probs = 0.3 * special.ndtr(levels + 2) + 0.7 * special.ndtr(levels - 2)
    return _exact(log_density, lambda x: {"x": x}, draws, levels, probs)


def funnel(replicate: int, n: int) -> Case:
    """Neal's, in three dimensions: the log scale has deviation 1."""
    import jax.numpy as jnp

    rng = np.random.default_rng([7, replicate])
    v = rng.normal(size=(n, 1))
    draws = np.concatenate([v, np.exp(v) * rng.normal(size=(n, 2))], axis=1)
    nodes, weights = np.polynomial.hermite_e.hermegauss(201)
    weights = weights / weights.sum()
    grid = np.sinh(np.linspace(-6, 6, 20_001))
    below = special.ndtr(grid[:, None] / np.exp(nodes)) @ weights
    outer = np.interp(LEVELS, below, grid)
    probs = special.ndtr(outer[:, None] / np.exp(nodes)) @ weights
    levels = np.stack([special.ndtri(LEVELS), outer, outer])
    return _exact(
        lambda x: -(x[0] ** 2) / 2 - jnp.sum(x[1:] ** 2) * jnp.exp(-2 * x[0]) / 2 - 2 * x[0],
        lambda x: {"x": x},
        draws,
        levels,
        np.stack([np.array(LEVELS), probs, probs]),
    )


def groups(count: int, replicate: int, n: int) -> Case:
    """Effects θ_j ~ N(μ, τ), seen as y_j ~ N(θ_j, 1), μ ~ N(0, 5), log τ ~ N(0, 1/2); non-centred,
    by exact draws. Asked for: log τ, μ and six effects."""
    import jax.numpy as jnp

    rng = np.random.default_rng(count)
    y = 1 + rng.normal(size=count) * np.sqrt(1 + 0.5**2)
    grid = np.linspace(-4, 4, 4001)
    # given τ all is normal: of μ, whose precision is 1/25 + J / (1 + τ²), then of each effect
    total = 1 + np.exp(2 * grid)
    precision = 1 / 25 + count / total
    centre = y.sum() / total / precision
    log_p = (
        -(grid**2) / (2 * 0.5**2)
        - count / 2 * np.log(total)
        - (y**2).sum() / total / 2
        + centre**2 * precision / 2
        - np.log(precision) / 2
    )
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    below = np.cumsum(p) - p / 2
    shrink = np.exp(2 * grid) / total  # weight of y_j against μ

    own = np.random.default_rng([count, replicate])
    t = np.interp(own.random(n), below, grid)
    at = lambda values: np.interp(t, grid, values)  # noqa: E731
    mu = at(centre) + own.normal(size=n) / np.sqrt(at(precision))
    share = at(shrink)[:, None]
    theta = share * y + (1 - share) * mu[:, None]
    theta = theta + np.sqrt(share) * own.normal(size=(n, count))
    draws = np.column_stack([(theta - mu[:, None]) / np.exp(t)[:, None], mu, t])

    def known(mean: np.ndarray, deviation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        wide = np.linspace(-12, 12, 4001)
        cdf = special.ndtr((wide[:, None] - mean) / deviation) @ p
        levels = np.interp(LEVELS, cdf, wide)
        return levels, special.ndtr((levels[:, None] - mean) / deviation) @ p

    pairs = [known(centre, 1 / np.sqrt(precision))]
    for j in range(6):
        mean = shrink * y[j] + (1 - shrink) * centre
        pairs.append(known(mean, np.sqrt(shrink + (1 - shrink) ** 2 / precision)))
    levels = np.interp(LEVELS, below, grid)
    first = (levels, np.array(LEVELS))
    values = jnp.asarray(y)

    def log_density(x: Any) -> Any:
        z, mu, t = x[:-2], x[-2], x[-1]
        seen = jnp.sum((values - mu - jnp.exp(t) * z) ** 2)
        return -(jnp.sum(z**2) + seen + mu**2 / 25 + t**2 / 0.5**2) / 2

    def natural(x: Any) -> dict[str, Any]:
        theta = x[-2] + jnp.exp(x[-1]) * x[:6]
        return {"x": jnp.concatenate([x[-1:], x[-2:-1], theta])}

    return _exact(
        log_density,
        natural,
        draws,
        np.stack([first[0], *(pair[0] for pair in pairs)]),
        np.stack([first[1], *(pair[1] for pair in pairs)]),
    )


MODELS = (
    *("arK", "kidscore_interaction", "low_dim_gauss_mix", "logmesquite", "gp_regr"),
    *("hmm_drive_0", "lotka_volterra", "garch11", "dogs_log", "eight_schools_noncentered"),
)
EXACT: dict[str, Callable[[int, int], Case]] = {
    "normal, d = 2": functools.partial(normal, 2),
    "normal, d = 10": functools.partial(normal, 10),
    "normal, d = 50": functools.partial(normal, 50),
    "rare events, normal, d = 10": functools.partial(normal, 10, probs=(1e-5, 1e-3)),
    "log-normal, d = 5": lognormal,
    "t3, d = 3": student,
    "mixture, d = 2": mixture,
    "funnel, d = 3": funnel,
    "8 groups": functools.partial(groups, 8),
    "30 groups": functools.partial(groups, 30),
    "300 groups": functools.partial(groups, 300),
}


class Job(NamedTuple):
    case: str
    way: str
    replicate: int
    draws: int
    data: Path | None


def ask(job: Job) -> Outcome | str:
    """Probabilities and quantiles of one sample; the words of an error where there is one."""
    import zerovar as zv
    from zerovar.choice import Request
    from zerovar.distributions.quantiles import estimate_quantiles
    from zerovar.probabilities import estimate_with_events
    from zerovar.session import Session

    if job.case in EXACT:
        case = EXACT[job.case](job.replicate, job.draws)
    else:
        assert job.data is not None
        case = model(job.case, job.replicate, job.draws, job.data)
    found = zv.from_log_density(case.log_density, case.draws, transform=case.natural)
    if job.way == "scores":
        scores = found.scores if case.scores is None else case.scores[None]
        found = zv.Posterior(found.draws, scores, found.values, found.names)
    started = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            events = {
                event: event
                for name, row in zip(case.names, case.levels, strict=True)
                for event in (f"{name} < {float(level)!r}" for level in row)
            }
            session = Session.of(found)  # one for both: lines are laid once
            answer, _ = estimate_with_events(session, events, None, Request())
            titles = [str(k) for k in range(case.levels.shape[1])]
            levels = estimate_quantiles(session, case.names, case.probs, Request(), titles)
    except Exception as error:
        return f"{job.case}, {job.way}: {error!r}"
    seconds = time.perf_counter() - started
    shape = case.levels.shape
    lines = [one for one in session.marginals.values() if hasattr(one, "conditional")]
    cost = np.mean([one.conditional.evaluations for one in lines]) if lines else 0.0
    # an error of the known probability is one of the level
    slope = levels.std_error / np.maximum(answer.std_error, 1e-300)
    return Outcome(
        job.case,
        job.way,
        case.probs,
        answer.value.reshape(shape) - case.probs,
        np.hypot(answer.std_error.reshape(shape), case.prob_errors),
        levels.value.reshape(shape) - case.levels,
        np.hypot(levels.std_error.reshape(shape), slope.reshape(shape) * case.prob_errors),
        levels.plain_std_error.reshape(shape),
        float(cost) / len(case.draws),
        seconds,
    )


def run(
    data: Path | None = None,
    replicates: int = 10,
    draws: int = 1000,
    only: tuple[str, ...] = (),
    processes: int | None = None,
) -> list[dict[str, Any]]:
    """All cases, with their log density and by scores alone, in processes of one thread."""
    names = [*(MODELS if data is not None else ()), *EXACT]
    chosen = [name for name in names if not only or name in only]
    jobs = [
        Job(name, way, replicate, draws, data)
        for name in chosen
        for way in ("density", "scores")
        for replicate in range(replicates)
    ]
    found = collect(ask, jobs, processes)
    rows = []
    for name in chosen:
        for way in ("density", "scores"):
            own = [one for one in found if (one.case, one.way) == (name, way)]
            if own:
                rows.append(row(own, draws))
    show(rows)
    return rows


def row(own: list[Outcome], draws: int) -> dict[str, Any]:
    """Realised gains over replicates, inner levels and outer ones apart; how often errors cover."""
    probs = own[0].probs
    counting = probs * (1 - probs) / draws
    off, error = (np.array([getattr(one, key) for one in own]) for key in ("off", "error"))
    realised, reported = counting / np.mean(off**2, axis=0), counting / np.mean(error**2, axis=0)
    z = off / error
    level_off, level_error, plain = (
        np.array([getattr(one, key) for one in own])
        for key in ("level_off", "level_error", "plain_level_error")
    )
    level_z = level_off / np.where(level_error > 0, level_error, 1.0)
    levels = np.mean(plain**2, axis=0) / np.mean(level_off**2, axis=0)
    inner = (probs > 0.03) & (probs < 0.97)
    parts = {"inner": inner, "outer": ~inner}
    found: dict[str, Any] = {"case": own[0].case, "way": own[0].way, "replicates": len(own)}
    for part, some in parts.items():
        if some.any():
            found |= {
                f"{part} gain": float(np.median(realised[some])),
                f"{part} least": float(np.min(realised[some])),
                f"{part} reported": float(np.median(reported[some])),
                f"{part} within": float(np.mean(np.abs(z[:, some]) < 1.96)),
                f"{part} rms z": float(np.sqrt(np.mean(z[:, some] ** 2))),
                f"{part} quantile gain": float(np.median(levels[some])),
                f"{part} quantile within": float(np.mean(np.abs(level_z[:, some]) < 1.96)),
            }
    found["evaluations"] = float(np.mean([one.evaluations for one in own]))
    found["seconds"] = float(np.mean([one.seconds for one in own]))
    return found


def show(rows: list[dict[str, Any]]) -> None:
    """One table for levels of 5, 50 and 95 %, one for those of 1 and 99 %."""
    titles = ("gain", "least", "reported", "within", "rms z", "quantile gain", "quantile within")
    for part, words in (("inner", "5, 50 and 95 %"), ("outer", "1 and 99 %, or rarer")):
        lines = []
        for one in rows:
            if f"{part} gain" in one:
                cells = [one[f"{part} {title}"] for title in titles]
                shares = {3, 6}
                texts = [
                    f"{cell:.0%}" if k in shares else f"{cell:.2f}" if k == 4 else f"{cell:.2g}"
                    for k, cell in enumerate(cells)
                ]
                end = (f"{one['evaluations']:.0f}", f"{one['seconds']:.1f}")
                lines.append((one["case"], one["way"], *texts, *end))
        columns = ("case", "by", *titles, "evaluations", "seconds")
        print_table(f"Probabilities and quantiles at {words}, against counting", columns, lines)


def measure(options: Namespace) -> dict[str, Any]:
    """Probabilities, quantiles, intervals and curves where they are known."""
    if options.quick:
        one = ("normal, d = 2",)
        return {"intervals": run(None, 1, 100, one, 1), "shapes": shapes.run(1, 100, one, 1)}
    shared = sizes_asked(options) | {"processes": options.processes}
    return {"intervals": run(options.data, **shared), "shapes": shapes.run(**shared)}
