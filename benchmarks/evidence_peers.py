"""Error of log Z against evaluations of the log density, beside programs of others: nested sampling
by dynesty, MBAR by pymbar (`pip install '.[benchmarks]'`), Meng and Wong's optimal bridge and plain
thermodynamic integration and stepping stones.

python -m benchmarks evidence --peers --data DIR [--quick]

All begin without a chain, and what finds the posterior is counted. A chain of NUTS is adapted for
as many draws as it keeps. Nested samples, and ladders of temperatures, begin from independent
normals about the posterior's mean, five of its deviations wide: nearer than priors are, and what
they know no user does. Programs that are not installed are named and left out.
"""

from __future__ import annotations

import importlib.util
import time
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import logsumexp, ndtri

import zerovar as zv
from zerovar.evidences.combination import evidence_of_ladder
from zerovar.evidences.ladders import Ladder

from .conjugate import pines
from .evidence import Case, model, plain_bridge
from .gradients import nuts
from .harness import collect, print_table
from .integrate import Problem
from .ladders import EXACT, mbar, van_der_pol

MODELS = ("kidscore_interaction", "arK", "garch11", "eight_schools_noncentered")
PEERS = ("dynesty", "pymbar")
_WIDE = 5.0  # deviations of what nested samples and ladders begin from, in the posterior's own


class Budgets(NamedTuple):
    """Draws of a chain, draws a temperature, live points, and gradients of `integrate`."""

    chain: tuple[int, ...] = (250, 1000)
    rung: tuple[int, ...] = (100, 400)
    live: tuple[int, ...] = (50, 400)
    gradients: tuple[int, ...] = (1000, 5000)


_QUICK = Budgets((100,), (), (25,), (500,))


class Target(NamedTuple):
    """A log density of one draw, log Z, and the posterior's mean and deviations (d,)."""

    log_density: Callable[[Any], Any]
    log_z: float
    mean: np.ndarray
    deviation: np.ndarray


class Reached(NamedTuple):
    """One answer: what log Z is off by and the error reported, evaluations of the log density or
    its gradient, how many of these the chain or ladder took, and seconds without a chain's."""

    case: str
    method: str
    setting: str
    off: float
    error: float
    evaluations: int
    sampling: int
    seconds: float
    refusal: str = ""


def target(name: str, data: Path | None) -> Target:
    """The pines, or a model of the folder with data."""
    if data is None:
        trees = pines("density")
        case = Case(trees.draws(4000, np.random.default_rng(0))[None], trees.log_density, 0.0)
        case = case._replace(log_z=trees.log_z)
    else:
        case = model(name, 0, 10_000, data)
    x = case.draws.reshape(-1, case.draws.shape[-1])
    return Target(case.log_density, case.log_z, x.mean(axis=0), x.std(axis=0))


def missing() -> list[str]:
    """Which programs of others are not installed."""
    return [name for name in PEERS if importlib.util.find_spec(name) is None]


def by_chain(of: Target, seed: int, n: int) -> Iterator[tuple[Any, ...]]:
    """A chain of NUTS: `zv.evidence`, and the optimal bridge on the same halves and proposals with
    as many points as draws."""
    empty = np.zeros(0)

    # about zero and of unit size, where NUTS starts
    def scaled(z: Any) -> Any:
        return of.log_density(of.mean + of.deviation * z)

    z, spent = nuts(Problem(scaled, len(of.mean), None, empty, empty, empty), n, seed)
    posterior = zv.from_log_density(of.log_density, of.mean + of.deviation * z)
    start = time.perf_counter()
    found = zv.evidence(posterior, progress=False, seed=seed)
    seconds = time.perf_counter() - start
    yield (
        "zv.evidence, chain",
        found.log_z,
        found.std_error,
        found.evaluations + spent,
        spent,
        seconds,
    )
    start, ratios = time.perf_counter(), found.traces
    halves = np.array_split(ratios.at_draws, 2), np.array_split(ratios.at_points, 2)
    plain = [plain_bridge(a, b[: len(a)]) for a, b in zip(*halves, strict=True)]
    seconds = time.perf_counter() - start
    log_z = found.log_z + float(np.mean(plain))
    yield "optimal bridge", log_z, np.nan, 2 * n + spent, spent, seconds


def by_ladder(of: Target, seed: int, n: int) -> Iterator[tuple[Any, ...]]:
    """A ladder of n draws a temperature: `zv.evidence`, plain thermodynamic integration by
    the trapezium, plain stepping stones, and MBAR."""
    width = _WIDE * of.deviation
    constant = np.log(width).sum() + len(width) / 2 * np.log(2 * np.pi)

    def log_prior(x: Any) -> Any:
        return -jnp.sum(((x - of.mean) / width) ** 2) / 2 - constant

    rng = np.random.default_rng([seed, n])
    start = time.perf_counter()
    drawn = zv.ladder(
        lambda x: of.log_density(x) - log_prior(x),
        log_prior=log_prior,
        prior_draws=of.mean + width * rng.normal(size=(n, len(width))),
        draws=n,
        chains=n // 10,
        seed=seed,
        progress=False,
    )
    ladder_seconds = time.perf_counter() - start
    cost = drawn.evaluations

    def plain() -> Any:
        return evidence_of_ladder(drawn, order=0, check=False)

    def answers() -> Iterator[tuple[str, Callable[[], tuple[float, float]]]]:
        yield "zv.evidence, ladder", lambda: _of(evidence_of_ladder(drawn))
        yield "thermodynamic integration", lambda: _of(plain().routes[0])
        yield "stepping stones", lambda: _of(plain().routes[4])
        if "pymbar" not in missing():
            yield "MBAR (pymbar)", lambda: pymbar_log_z(drawn)

    for method, ask in answers():
        start = time.perf_counter()
        log_z, error = ask()
        seconds = ladder_seconds + time.perf_counter() - start
        yield method, log_z, error, cost, cost, seconds


def _of(found: Any) -> tuple[float, float]:
    return getattr(found, "log_z", getattr(found, "value", np.nan)), found.std_error


def pymbar_log_z(ladder: Ladder) -> tuple[float, float]:
    """log Z(1) − log Z(0) by pymbar, and its error."""
    import pymbar

    t, values = ladder.inverse_temperatures, ladder.log_likelihood
    # where it is −∞ no product with t = 0 is a number
    finite = np.maximum(values, np.nan_to_num(values, neginf=0.0).min() - 1e6)
    counts = np.full(len(t), values.shape[1])
    # from zeros it does not converge where log-likelihoods at the first temperature are far apart:
    # it begins from stepping stones
    steps = np.diff(t)[:, None] * finite[:-1]
    stones = logsumexp(steps, axis=1) - np.log(values.shape[1])
    found = pymbar.MBAR(
        -np.multiply.outer(t, finite.ravel()),
        counts,
        initial_f_k=-np.cumsum(np.append(0.0, stones)),
    )
    free = found.compute_free_energy_differences()
    return -float(free["Delta_f"][0, -1]), float(free["dDelta_f"][0, -1])


def by_nested(of: Target, seed: int, live: int) -> Iterator[tuple[Any, ...]]:
    """Nested sampling by dynesty with its defaults and so many live points."""
    if "dynesty" in missing():
        return
    import dynesty

    width = _WIDE * of.deviation
    constant = np.log(width).sum() + len(width) / 2 * np.log(2 * np.pi)
    start = time.perf_counter()
    with jax.enable_x64(True):
        at = jax.jit(of.log_density)

        def log_likelihood(x: np.ndarray) -> float:
            value = float(at(x)) + np.sum(((x - of.mean) / width) ** 2) / 2 + constant
            return value if np.isfinite(value) else -1e300  # it takes no −∞

        sampler = dynesty.NestedSampler(
            log_likelihood,
            lambda u: of.mean + width * ndtri(u),
            len(of.mean),
            nlive=live,
            rstate=np.random.default_rng(seed),
        )
        sampler.run_nested(print_progress=False)
    found, seconds = sampler.results, time.perf_counter() - start
    cost = int(np.sum(found.ncall))
    yield "nested sampling (dynesty)", found.logz[-1], found.logzerr[-1], cost, 0, seconds


def by_integrate(of: Target, seed: int, gradients: int) -> Iterator[tuple[Any, ...]]:
    """`zv.integrate`, which also searches the modes. Its means, which are not asked for here, are
    the cheapest to be had."""
    start = time.perf_counter()
    record = zv.integrate(
        lambda z: of.log_density(of.mean + of.deviation * z),
        len(of.mean),
        gradients=gradients,
        family=zv.Polynomial(1),
        seed=seed,
        progress=False,
    ).integration
    seconds = time.perf_counter() - start
    log_z = record.log_evidence + np.log(of.deviation).sum()
    yield "zv.integrate", log_z, record.log_evidence_error, record.gradients, 0, seconds


def ask(job: tuple[str, int, Path | None, str, int]) -> list[Reached]:
    """All that one way gives with one setting."""
    name, seed, data, way, setting = job
    warnings.simplefilter("ignore")
    run = {
        "chain": by_chain,
        "rung": by_ladder,
        "live": by_nested,
        "gradients": by_integrate,
    }[way]
    of, label = target(name, data), f"{setting} {_UNITS[way]}"
    try:
        return [
            Reached(name, method, label, log_z - of.log_z, *rest)
            for method, log_z, *rest in run(of, seed, setting)
        ]
    except zv.NumericalError as error:
        method = {"chain": "zv.evidence, chain", "rung": "zv.evidence, ladder"}.get(
            way, "zv.integrate"
        )
        return [Reached(name, method, label, np.nan, np.nan, 0, 0, np.nan, str(error))]


_UNITS = {
    "chain": "draws",
    "rung": "draws a temperature",
    "live": "live points",
    "gradients": "gradients",
}


def run(
    data: Path | None,
    seeds: int = 8,
    quick: bool = False,
    only: Sequence[str] | None = None,
    processes: int | None = None,
) -> list[dict[str, Any]]:
    """Print a row a model, method and setting, and return them."""
    if absent := missing():
        print(f"Not installed, and left out: {', '.join(absent)}. pip install '.[benchmarks]'")
    budgets = _QUICK if quick else Budgets()
    names = ("pines",) if data is None else tuple(only or MODELS)
    jobs = [
        (name, seed, data, way, setting)
        for name in names
        for way in Budgets._fields
        for setting in getattr(budgets, way)
        for seed in range(seeds)
    ]
    found = [one for some in collect(ask, jobs, processes) for one in some]
    groups = dict.fromkeys((one.case, one.method, one.setting) for one in found)
    rows = [
        summarise([one for one in found if (one.case, one.method, one.setting) == group])
        for group in sorted(groups, key=lambda group: (names.index(group[0]), group[1]))
    ]
    rows.sort(key=lambda row: (names.index(row["case"]), row["method"], row["evaluations"]))
    cells = [
        [
            row["case"],
            row["method"],
            row["setting"],
            row["answers"],
            f"{row['evaluations']:.3g}",
            f"{row['sampling']:.3g}",
            *(f"{row[key]:.2g}" for key in ("error", "reported", "seconds")),
        ]
        for row in rows
    ]
    columns = ("case", "method", "with", "answers", "evaluations", "of them sampling")
    title = f"Error of log Z (root mean square of {seeds} seeds) against evaluations"
    print_table(title, (*columns, "error", "reported", "seconds"), cells)
    return rows


def summarise(some: list[Reached]) -> dict[str, Any]:
    """Of all seeds of one setting."""
    kept = [one for one in some if not one.refusal]
    row: dict[str, Any] = {
        "case": some[0].case,
        "method": some[0].method,
        "setting": some[0].setting,
        "answers": len(kept),
        "refusals": [one.refusal for one in some if one.refusal],
    }
    if not kept:
        return row | dict.fromkeys(
            ("evaluations", "sampling", "error", "reported", "seconds"), np.nan
        )
    off, error = (np.array([getattr(one, key) for one in kept]) for key in ("off", "error"))
    return row | {
        "evaluations": float(np.mean([one.evaluations for one in kept])),
        "sampling": float(np.mean([one.sampling for one in kept])),
        "error": float(np.sqrt(np.mean(off**2))),
        "reported": float(np.sqrt(np.mean(error**2))),
        "seconds": float(np.median([one.seconds for one in kept])),
    }


def beside_mbar(
    folder: Path, sizes: tuple[int, ...] = (20, 40, 60, 80), replicates: int = 40, seed: int = 0
) -> list[dict[str, Any]]:
    """Van der Pol's ladder: our combination, our own iteration of MBAR, and pymbar's, on the same
    draws. Spreads are about the mean, as the data have a bias of 0.002."""
    ladder, rng, rows = van_der_pol(folder), np.random.default_rng(seed), []
    for size in sizes:
        found: dict[str, list[tuple[float, float, float]]] = {}
        for _ in range(replicates):
            chosen = np.array([rng.permutation(500)[:size] for _ in range(len(ladder))])
            part = ladder.take(chosen)
            asked: dict[str, Callable[[], tuple[float, float]]] = {
                "zv.evidence": lambda part=part: _of(evidence_of_ladder(part)),
                "MBAR, own iteration": lambda part=part: (mbar(part), np.nan),
            }
            if "pymbar" not in missing():
                asked["MBAR (pymbar)"] = lambda part=part: pymbar_log_z(part)
            for name, one in asked.items():
                start = time.perf_counter()
                answer = one()
                found.setdefault(name, []).append((*answer, time.perf_counter() - start))
        for name, answers in found.items():
            value, error, seconds = np.transpose(answers)
            rows.append(
                {
                    "method": name,
                    "draws": size,
                    "bias": float(value.mean() - EXACT),
                    "spread": float(value.std(ddof=1)),
                    "reported": float(np.sqrt(np.mean(error**2))),
                    "seconds": float(np.median(seconds)),
                }
            )
    columns = ("method", "draws", "bias", "spread", "reported", "seconds")
    cells = [(row["method"], row["draws"], *(f"{row[c]:.2g}" for c in columns[2:])) for row in rows]
    print_table("van der Pol, 31 temperatures, draws of each", columns, cells)
    return rows


def picture(rows: list[dict[str, Any]], path: Path) -> None:
    """A panel for each model, a line for each method."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    cases = list(dict.fromkeys(row["case"] for row in rows))
    figure, axes = plt.subplots(1, len(cases), figsize=(2.6 * len(cases), 3.6), sharey=True)
    for axis, case in zip(np.atleast_1d(axes), cases, strict=True):
        for method, (colour, marker) in _STYLES.items():
            own = [row for row in rows if (row["case"], row["method"]) == (case, method)]
            points = [(row["evaluations"], row["error"]) for row in own if row["answers"]]
            if points:
                axis.loglog(*zip(*points, strict=True), c=colour, marker=marker, ms=4, label=method)
        axis.set_title(case, fontsize=9)
        axis.grid(alpha=0.3)
    figure.supxlabel("evaluations of the log density or its gradient", y=0.16, fontsize=9)
    figure.supylabel("error of log Z", fontsize=9)
    figure.tight_layout(rect=(0, 0.12, 1, 1))
    handles = {
        label: handle
        for axis in np.atleast_1d(axes)
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        [handles[name] for name in _STYLES if name in handles],
        [name for name in _STYLES if name in handles],
        fontsize=8,
        loc="lower center",
        ncols=4,
        frameon=False,
    )
    figure.savefig(path, dpi=120, metadata={"Software": None})


_STYLES = {
    "zv.evidence, chain": ("C0", "D"),
    "zv.evidence, ladder": ("C1", "D"),
    "zv.integrate": ("C2", "D"),
    "optimal bridge": ("0.4", "o"),
    "thermodynamic integration": ("0.6", "s"),
    "stepping stones": ("C5", "s"),
    "MBAR (pymbar)": ("C3", "^"),
    "nested sampling (dynesty)": ("C4", "v"),
}


def measure(options: Namespace) -> dict[str, Any]:
    """Beside MBAR on its own ladder too, and as a picture, where there are data."""
    data = None if options.quick else options.data
    rows = run(data, 1 if options.quick else 8, options.quick, processes=options.processes)
    found: dict[str, Any] = {"evidence_peers": rows}
    if data is not None:
        found["beside_mbar"] = beside_mbar(data.parent)
        options.out.mkdir(parents=True, exist_ok=True)
        picture(rows, options.out / "evidence_peers.png")
    return found
