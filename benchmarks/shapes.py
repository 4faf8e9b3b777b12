"""Density curves, shortest intervals and events of two sides or two values, where all are known.

Curves are held against a kernel density estimate of the same draws, the others against the draws
themselves. Draws are exact, and so are the answers: normals and functions of them, and eight
schools, where all is normal given the deviation τ of the effects.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import interpolate, optimize, stats

from .harness import collect, print_table

PROB = 0.89
# Observed effects of coaching in eight schools, and their standard errors
SCHOOLS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12]), np.array([15.0, 10, 16, 11, 9, 11, 10, 18])


class Marginal(NamedTuple):
    """A distribution of one number: its density and the probability to be below."""

    pdf: Callable[[Any], Any]
    cdf: Callable[[Any], Any]


class Case(NamedTuple):
    """A log density and its values, draws of it, the distributions of some values by name, which of
    them are asked for shortest intervals, and the probabilities of events."""

    log_density: Callable[[Any], Any]
    natural: Callable[[Any], dict[str, Any]]
    draws: np.ndarray
    known: dict[str, Marginal]
    peaked: list[str]
    events: dict[str, float]


def _of(distribution: Any) -> Marginal:
    return Marginal(distribution.pdf, distribution.cdf)


def normal(d: int, replicate: int, n: int) -> Case:
    """Correlated by 0.9 to neighbours, with means 0, 0.3, 0.6, …"""
    rng = np.random.default_rng([d, replicate])
    covariance = 0.9 ** np.abs(np.subtract.outer(np.arange(d), np.arange(d)))
    precision, mean = np.linalg.inv(covariance), 0.3 * np.arange(d)
    names = [f"x[{j}]" for j in range(min(d, 4))]
    return Case(
        lambda x: -(x - mean) @ precision @ (x - mean) / 2,
        lambda x: {"x": x},
        rng.multivariate_normal(mean, covariance, n),
        {name: _of(stats.norm(mean[j])) for j, name in enumerate(names)},
        names,
        {
            "x[0] > x[1]": stats.norm.sf(0.3 / np.sqrt(0.2)),
            "-1 < x[0] < 0.5": stats.norm.cdf(0.5) - stats.norm.cdf(-1),
        },
    )


def lognormal(replicate: int, n: int) -> Case:
    """Exponentials of three correlated normals, half as wide."""
    import jax.numpy as jnp

    rng = np.random.default_rng([6, replicate])
    covariance = 0.25 * 0.6 ** np.abs(np.subtract.outer(np.arange(3), np.arange(3)))
    precision = np.linalg.inv(covariance)
    names = [f"x[{j}]" for j in range(3)]
    wide = np.log(2) / np.sqrt(2 * 0.25 * (1 - 0.6))
    return Case(
        lambda x: -x @ precision @ x / 2,
        lambda x: {"x": jnp.exp(x)},
        rng.multivariate_normal(np.zeros(3), covariance, n),
        {name: _of(stats.lognorm(0.5)) for name in names},
        names,
        {
            "ratio > 2": stats.norm.sf(wide),
            "0.5 < x[0] < 2": 1 - 2 * stats.norm.sf(np.log(2) / 0.5),
        },
    )


def student(replicate: int, n: int) -> Case:
    """t with three degrees of freedom, two independent coordinates."""
    import jax.numpy as jnp

    t = stats.t(3)
    return Case(
        lambda x: -2 * jnp.sum(jnp.log1p(x**2 / 3)),
        lambda x: {"x": x},
        np.random.default_rng([3, replicate]).standard_t(3, (n, 2)),
        {"x[0]": _of(t), "x[1]": _of(t)},
        ["x[0]", "x[1]"],
        {"x[0] > x[1]": 0.5, "-1 < x[0] < 3": t.cdf(3) - t.cdf(-1)},
    )


def mixture(replicate: int, n: int) -> Case:
    """Two coordinates, each of two normals, of which one has four tenths and half the width."""
    import jax.numpy as jnp

    rng = np.random.default_rng([5, replicate])
    first = rng.random((n, 2)) < 0.4
    draws = np.where(first, rng.normal(-1.5, 0.5, (n, 2)), rng.normal(1.5, 1, (n, 2)))
    parts = (0.4, stats.norm(-1.5, 0.5)), (0.6, stats.norm(1.5, 1))

    def log_density(x: Any) -> Any:
        narrow = jnp.log(0.4 / 0.5) - (x + 1.5) ** 2 / 0.5
        return jnp.sum(jnp.logaddexp(narrow, jnp.log(0.6) - (x - 1.5) ** 2 / 2))

    both = Marginal(
        lambda x: sum(w * one.pdf(x) for w, one in parts),
        lambda x: sum(w * one.cdf(x) for w, one in parts),
    )
    return Case(
        log_density,
        lambda x: {"x": x},
        draws,
        {"x[0]": both, "x[1]": both},
        [],
        {"x[0] > x[1]": 0.5, "-1 < x[0] < 1": both.cdf(1) - both.cdf(-1)},
    )


def schools(replicate: int, n: int) -> Case:
    """Eight schools, non-centred: draws of log τ by its distribution function, then of the mean μ
    and the effects θ given it."""
    import jax.numpy as jnp

    y, sigma = SCHOOLS
    grid = np.linspace(-18, 8, 8001)
    tau = np.exp(grid)[:, None]
    variance = sigma**2 + tau**2
    precision = np.sum(1 / variance, axis=1) + 1 / 25
    centre = np.sum(y / variance, axis=1) / precision
    log_p = -0.5 * np.sum(np.log(variance) + y**2 / variance, axis=1) + 0.5 * centre**2 * precision
    log_p += -0.5 * np.log(precision) - np.log1p((tau[:, 0] / 5) ** 2) + grid
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    step, shrink = grid[1] - grid[0], sigma**2 / variance  # of y_j towards μ

    def of_normals(mean: np.ndarray, square: np.ndarray) -> Marginal:
        """A mixture over τ."""
        root, few = np.sqrt(square), p > 1e-14
        one, weight = stats.norm(mean[few], root[few]), p[few]
        return Marginal(
            lambda x: one.pdf(np.asarray(x)[..., None]) @ weight,
            lambda x: one.cdf(np.asarray(x)[..., None]) @ weight,
        )

    def effect(j: int) -> Marginal:
        own = shrink[:, j]
        mean = (1 - own) * y[j] + own * centre
        return of_normals(mean, own * tau[:, 0] ** 2 + own**2 / precision)

    below = interpolate.CubicSpline(grid, np.cumsum(p) - p / 2)
    least = tau[0, 0]
    of_tau = Marginal(
        lambda x: np.where(x > 0, below(np.log(np.maximum(x, least)), 1), 0) / np.maximum(x, least),
        lambda x: np.where(x > 0, below(np.log(np.maximum(x, least))), 0),
    )
    apart = (1 - shrink[:, 0]) * y[0] - (1 - shrink[:, 1]) * y[1]
    apart += (shrink[:, 0] - shrink[:, 1]) * centre
    square = (shrink[:, 0] + shrink[:, 1]) * tau[:, 0] ** 2
    square += (shrink[:, 0] - shrink[:, 1]) ** 2 / precision
    first, mu = effect(0), of_normals(centre, 1 / precision)

    rng = np.random.default_rng([8, replicate])
    t = np.interp(rng.random(n), np.cumsum(p) - p / 2, grid)
    row = np.clip(np.searchsorted(grid, t - step / 2), 0, len(grid) - 1)
    t = grid[row]  # on the grid, of which 1300 points are within a deviation
    m = centre[row] + rng.normal(size=n) / np.sqrt(precision[row])
    own = shrink[row]
    mean = (1 - own) * y + own * m[:, None]
    theta = mean + np.sqrt(own) * np.exp(t)[:, None] * rng.normal(size=(n, 8))
    draws = np.column_stack([(theta - m[:, None]) / np.exp(t)[:, None], m, t])

    def log_density(x: Any) -> Any:
        z, mu, t = x[:8], x[8], x[9]
        seen = jnp.sum(((y - mu - jnp.exp(t) * z) / sigma) ** 2)
        return -(jnp.sum(z**2) + seen + mu**2 / 25) / 2 - jnp.log1p(jnp.exp(2 * t) / 25) + t

    return Case(
        log_density,
        lambda x: {"theta": x[8] + jnp.exp(x[9]) * x[:8], "mu": x[8], "tau": jnp.exp(x[9])},
        draws,
        {"theta[0]": first, "theta[1]": effect(1), "mu": mu, "tau": of_tau},
        ["theta[0]", "theta[1]", "mu"],
        {
            "theta[0] > theta[1]": 1 - float(of_normals(apart, square).cdf(0.0)),
            "0 < theta[0] < 10": float(first.cdf(10.0) - first.cdf(0.0)),
            "0 < mu < 5": float(mu.cdf(5.0) - mu.cdf(0.0)),
            "2 < tau < 8": float(of_tau.cdf(8.0) - of_tau.cdf(2.0)),
        },
    )


CASES: dict[str, Callable[[int, int], Case]] = {
    "normal, d = 2": functools.partial(normal, 2),
    "normal, d = 10": functools.partial(normal, 10),
    "log-normal, d = 3": lognormal,
    "t3, d = 2": student,
    "mixture, d = 2": mixture,
    "eight schools": schools,
}


def shortest(known: Marginal, x: np.ndarray) -> np.ndarray:
    """The ends of the shortest interval, from about those of some draws."""
    start = np.quantile(x, [(1 - PROB) / 2, (1 + PROB) / 2])

    def off(ends: np.ndarray) -> np.ndarray:
        return np.array(
            [
                known.cdf(ends[1]) - known.cdf(ends[0]) - PROB,
                known.pdf(ends[1]) - known.pdf(ends[0]),
            ]
        )

    return optimize.fsolve(off, start, xtol=1e-13)


class Job(NamedTuple):
    case: str
    way: str
    replicate: int
    draws: int


class Outcome(NamedTuple):
    """Of one sample: integrated squared errors of curves and of kernel estimates (k,), the share of
    their points within 1.96 errors, their areas, the least value; offsets and errors of intervals'
    ends and of events, and the plain ones."""

    job: Job
    curve: np.ndarray
    kernel: np.ndarray
    within: np.ndarray
    area: np.ndarray
    least: float
    ends: np.ndarray
    events: np.ndarray


def ask(job: Job) -> Outcome | str:
    """Curves, intervals and events of one sample; the words of an error where there is one."""
    import zerovar as zv

    case = CASES[job.case](job.replicate, job.draws)
    values = (
        {"ratio": lambda draw: draw["x"][0] / draw["x"][1]} if "ratio > 2" in case.events else {}
    )
    found = zv.from_log_density(case.log_density, case.draws, transform=case.natural, values=values)
    if job.way == "scores":
        found = zv.Posterior(found.draws, found.scores, found.values, found.names)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            curves = zv.density(found, var_names=list(case.known))
            events = zv.probability(found, list(case.events))
            ends = None
            if case.peaked:
                ends = zv.interval(found, PROB, "hdi", var_names=case.peaked)
    except Exception as error:
        return f"{job}: {error!r}"
    rows = []
    for k, name in enumerate(curves.names):
        x, value, error = curves.grid[k], curves.value[k], curves.std_error[k]
        known = case.known[name]
        truth = known.pdf(x)
        kernel = stats.gaussian_kde(np.ravel(found.values[name]))(x)
        beyond = known.cdf(x[0]) + 1 - known.cdf(x[-1])
        rough = np.trapezoid(truth, x) + beyond - 1  # of the grid itself
        rows.append(
            (
                np.trapezoid((value - truth) ** 2, x),
                np.trapezoid((kernel - truth) ** 2, x),
                np.mean(np.abs(value - truth) < 1.96 * error + 1e-12),
                np.trapezoid(value, x) + beyond - rough,
            )
        )
    columns = np.transpose(rows)
    offsets = np.empty((0, 4))
    if ends is not None:
        true = [shortest(case.known[name], np.ravel(found.values[name])) for name in case.peaked]
        offsets = _offsets(ends, np.ravel(true))
    chances = _offsets(events, np.array(list(case.events.values())))
    return Outcome(job, *columns, float(curves.value.min()), offsets, chances)


def _offsets(answer: Any, truth: np.ndarray) -> np.ndarray:
    """Offset, error, plain offset and plain error of each row."""
    off, plain = answer.value - truth, answer.plain_value - truth
    return np.stack([off, answer.std_error, plain, answer.plain_std_error], axis=1)


def run(
    replicates: int = 10,
    draws: int = 1000,
    only: tuple[str, ...] = (),
    processes: int | None = None,
) -> list[dict[str, Any]]:
    """All cases, with their log density and by scores alone, in processes of one thread."""
    chosen = [name for name in CASES if not only or name in only]
    ways = ("density", "scores")
    jobs = [
        Job(name, way, replicate, draws)
        for name in chosen
        for way in ways
        for replicate in range(replicates)
    ]
    found = collect(ask, jobs, processes)
    rows = []
    for name in chosen:
        for way in ways:
            own = [one for one in found if (one.job.case, one.job.way) == (name, way)]
            if own:
                rows.append(row(name, way, own))
    show(rows)
    return rows


def row(name: str, way: str, own: list[Outcome]) -> dict[str, Any]:
    """Means over replicates, and medians over quantities; how often errors cover."""
    found: dict[str, Any] = {"case": name, "way": way, "replicates": len(own)}
    curve, kernel, within, area = (
        np.array([getattr(one, key) for one in own])
        for key in ("curve", "kernel", "within", "area")
    )
    found |= {
        "curve": float(np.median(kernel.mean(axis=0) / curve.mean(axis=0))),
        "curve least": float(np.min(kernel.mean(axis=0) / curve.mean(axis=0))),
        "band": float(within.mean()),
        "area off": float(np.abs(area - 1).max()),
        "least value": min(one.least for one in own),
    }
    for part in ("ends", "events"):
        off, error, plain, _ = np.moveaxis(np.array([getattr(one, part) for one in own]), 2, 0)
        if off.size:
            gains = np.mean(plain**2, axis=0) / np.maximum(np.mean(off**2, axis=0), 1e-30)
            # what is found to rounding is
            z = np.where(np.abs(off) < 1e-9, 0.0, off / np.maximum(error, 1e-300))
            found |= {
                f"{part} gain": float(np.median(gains)),
                f"{part} least": float(gains.min()),
                f"{part} within": float(np.mean(np.abs(z) < 1.96)),
                f"{part} rms z": float(np.sqrt(np.mean(z**2))),
            }
    return found


def show(rows: list[dict[str, Any]]) -> None:
    """One line a case and way."""
    lines = []
    for one in rows:
        cells = [
            f"{one['curve']:.2g} ({one['curve least']:.2g})",
            f"{one['band']:.0%}",
            f"{one['area off']:.0e}",
        ]
        for part in ("ends", "events"):
            if f"{part} gain" in one:
                cells += [
                    f"{one[f'{part} gain']:.2g} ({one[f'{part} least']:.2g})",
                    f"{one[f'{part} within']:.0%} / {one[f'{part} rms z']:.2f}",
                ]
            else:
                cells += ["", ""]
        lines.append((one["case"], one["way"], *cells))
    columns = ("case", "by", "curve: gain", "band", "area off", "hdi ends: gain", "within / rms z")
    columns = (*columns, "events: gain", "within / rms z")
    print_table("Curves, shortest intervals and events of two sides", columns, lines)


if __name__ == "__main__":
    import argparse

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=10)
    parser.add_argument("--only", nargs="+", default=())
    parser.add_argument("--processes", type=int)
    options = parser.parse_args()
    run(options.replicates, only=tuple(options.only), processes=options.processes)
