"""Means without a chain: errors of `zv.integrate` on posteriors with known means, exact cases and
traps.

python -m benchmarks.integrate [--data ../shared/data] [--seeds 10] [--gradients 5000] [--processes
2] [--only arK ...]

`data` is a folder with models/densities.py (log densities in JAX), posteriors/truth.json and
tails/truth.json. Errors are in posterior standard deviations. Each row is one target over all
seeds; `refused` counts calls that ended in a refusal.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .conjugate import pines
from .harness import print_table, workers

# independent ones that errors are compared with: what four chains of 1000 would be worth at best
_DRAWS = 4000


class Problem(NamedTuple):
    """A log density of d numbers, integrands of one draw, their means with errors, deviations, and
    log Z where it is known."""

    log_density: Callable[[Any], Any]
    d: int
    values: Callable[[Any], Any] | None
    means: np.ndarray
    errors: np.ndarray
    deviations: np.ndarray
    log_z: float = np.nan


class Outcome(NamedTuple):
    """Of one call: offsets, errors and plain offsets over deviations (q,), seconds, gradients, and
    what was said."""

    off: np.ndarray
    error: np.ndarray
    truth_error: np.ndarray
    plain_off: np.ndarray
    seconds: float
    gradients: int
    effective: float
    log_z_off: float  # in its standard errors
    warned: bool
    refused: str = ""


def _exact(
    log_density: Callable[[Any], Any], means: np.ndarray, deviations: Any, log_z: float = np.nan
) -> Problem:
    ones = np.ones(len(means))
    return Problem(
        log_density, len(means), None, np.asarray(means), 0 * ones, deviations * ones, log_z
    )


def gaussian(d: int, condition: float = 1.0) -> Problem:
    import jax.numpy as jnp

    scales = np.geomspace(1, np.sqrt(condition), d)
    means = np.linspace(-2, 2, d) * scales
    log_z = d / 2 * np.log(2 * np.pi) + np.log(scales).sum()
    return _exact(
        lambda x: -0.5 * jnp.sum(((x - jnp.asarray(means)) / jnp.asarray(scales)) ** 2),
        means,
        scales,
        log_z,
    )


def two_modes() -> Problem:
    import jax.numpy as jnp

    apart = np.array([5.0, 0, 0, 0, 0])

    def log_density(x: Any) -> Any:
        one, other = (-0.5 * jnp.sum((x + sign * jnp.asarray(apart)) ** 2) for sign in (1, -1))
        return jnp.logaddexp(jnp.log(0.7) + one, jnp.log(0.3) + other)

    return _exact(
        log_density,
        np.array([-2.0, 0, 0, 0, 0]),
        np.array([4.7, 1, 1, 1, 1]),
        2.5 * np.log(2 * np.pi),
    )


def funnel(d: int) -> Problem:
    import jax.numpy as jnp

    def log_density(x: Any) -> Any:
        return -(x[0] ** 2) / 18 - jnp.sum(x[1:] ** 2) * jnp.exp(-x[0]) / 2 - (d - 1) * x[0] / 2

    scale = np.append(3.0, np.full(d - 1, np.exp(9 / 4)))
    return _exact(log_density, np.zeros(d), scale, np.log(3) + d / 2 * np.log(2 * np.pi))


def student(freedom: int) -> Problem:
    import jax.numpy as jnp

    return _exact(
        lambda x: -(freedom + 1) / 2 * jnp.log1p(x[0] ** 2 / freedom),
        np.zeros(1),
        np.sqrt(freedom / (freedom - 2)),
    )


def hole() -> Problem:
    """A normal with a hole in which it is not a number; means by a grid."""
    import jax.numpy as jnp

    grid = np.stack(np.meshgrid(*2 * [np.linspace(-8, 8, 1601)]), axis=-1).reshape(-1, 2)
    density = np.where(
        np.sum((grid - 1) ** 2, axis=1) < 0.5, 0.0, np.exp(-0.5 * np.sum(grid**2, axis=1))
    )

    def log_density(x: Any) -> Any:
        return jnp.where(jnp.sum((x - 1.0) ** 2) < 0.5, jnp.nan, -0.5 * jnp.sum(x**2))

    return _exact(log_density, density @ grid / density.sum(), 1.0)


def ridges(d: int) -> Problem:
    """Pairs of which one is near the other's square."""
    import jax.numpy as jnp

    def log_density(x: Any) -> Any:
        return -0.5 * jnp.sum(x[::2] ** 2) - 2 * jnp.sum((x[1::2] - x[::2] ** 2) ** 2)

    log_z = d / 2 * (np.log(2 * np.pi) + np.log(0.5))
    return _exact(log_density, np.tile([0.0, 1.0], d // 2), np.tile([1.0, 1.5], d // 2), log_z)


def radiata(column: str) -> Problem:
    """Strength of pine by density, or by density adjusted for resin: means and log Z by
    conjugacy."""
    import jax.numpy as jnp

    trees = pines(column)
    scale, shift = np.array([100.0, 100.0, 1.0]), np.append(trees.centre, 0.0)

    def log_density(z: Any) -> Any:
        return trees.log_density(z * scale + shift) + 2 * np.log(100.0)

    means = np.array([*trees.centre, trees.now / trees.left])
    variances = np.diag(np.linalg.inv(trees.after)) * trees.left / (trees.now - 1)
    spread = np.sqrt(np.append(variances, trees.now / trees.left**2))
    values = lambda z: (z * scale + shift).at[2].set(jnp.exp(z[2]))  # noqa: E731
    return Problem(log_density, 3, values, means, np.zeros(3), spread, trees.log_z)


EXACT: dict[str, Callable[[], Problem]] = {
    **{f"normal, d = {d}": (lambda d=d: gaussian(d)) for d in (1, 10, 30)},  # type: ignore[misc]
    "normal, d = 30, condition 1e8": lambda: gaussian(30, 1e8),
}
TRAPS: dict[str, Callable[[], Problem]] = {
    "two modes, d = 5": two_modes,
    "funnel, d = 2": lambda: funnel(2),
    "funnel, d = 10": lambda: funnel(10),
    "t3": lambda: student(3),
    "hole": hole,
    "normal, d = 100": lambda: gaussian(100),
    "ridges, d = 4": lambda: ridges(4),
    "ridges, d = 100": lambda: ridges(100),
}


class Model(NamedTuple):
    """A log density and its parameters on the natural scale, functions of one draw; and the folder
    with draws of it."""

    log_density: Callable[[Any], Any]
    values: Callable[[Any], Any]
    folder: Path


def load_model(name: str, data: Path) -> Model:
    """Return one of the models of the folder."""
    import jax

    spec = importlib.util.spec_from_file_location("densities", data / "models" / "densities.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with jax.enable_x64(True):  # the data stay in double precision
        spec.loader.exec_module(module)
        log_density, values = module.load(name)
    folder = next(
        data / part for part in ("posteriors", "tails") if (data / part / f"{name}.npz").exists()
    )
    return Model(log_density, values, folder)


def posterior(name: str, data: Path) -> Problem:
    """Of the folder with models."""
    log_density, values, folder = load_model(name, data)
    truth = json.loads((folder / "truth.json").read_text(encoding="utf-8"))[name]
    with np.load(folder / f"{name}.npz") as stored:
        d = stored["x"].shape[-1]
    return Problem(log_density, d, values, *(np.array(truth[key]) for key in ("truth", "se", "sd")))


def problem(name: str, data: Path | None) -> Problem:
    if name in EXACT or name in TRAPS:
        return (EXACT | TRAPS)[name]()
    if name.startswith("radiata"):
        return radiata(name.split(": ")[1])
    assert data is not None
    return posterior(name, data)


def outcome(job: tuple[str, Path | None, int, int, bool]) -> Outcome:
    """One call; `simple` leaves the tuned candidates out."""
    import zerovar as zv

    name, data, gradients, seed, simple = job
    given = problem(name, data)
    empty = np.full(len(given.means), np.nan)
    choice = zv.Automatic(effort="low" if simple else "normal", progress=False)
    started = time.perf_counter()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            found = zv.integrate(
                given.log_density,
                given.d,
                given.values,
                gradients=gradients,
                seed=seed,
                family=choice,
            )
        except zv.NumericalError as error:
            return Outcome(
                empty,
                empty,
                empty,
                empty,
                time.perf_counter() - started,
                gradients,
                np.nan,
                np.nan,
                True,
                str(error),
            )
    record = found.integration
    assert record is not None
    return Outcome(
        (found.value - given.means) / given.deviations,
        found.std_error / given.deviations,
        given.errors / given.deviations,
        (found.plain_value - given.means) / given.deviations,
        time.perf_counter() - started,
        record.gradients,
        record.effective_size / record.points,
        (record.log_evidence - given.log_z) / record.log_evidence_error,
        bool(said),
    )


HEAD = (
    "target",
    "calls",
    "refused",
    "warned",
    "effective",
    "plain",
    "error",
    "reported",
    "of 4000 draws'",
    "rms z",
    "± 1.96 covers",
    "log Z: rms z",
    "seconds",
)


def row(name: str, some: Sequence[Outcome]) -> list[str]:
    """Medians over integrands of root mean squares over calls, all in deviations."""
    good = [one for one in some if not one.refused]
    shares = [str(len(some)), str(len(some) - len(good)), str(sum(one.warned for one in good))]
    if not good:
        return [name, *shares, *8 * [""], f"{np.mean([one.seconds for one in some]):.0f}"]
    off, error, truth, plain = (
        np.array([getattr(one, key) for one in good])
        for key in ("off", "error", "truth_error", "plain_off")
    )
    z = off / np.hypot(np.hypot(error, truth), 1e-12)
    sizes = [f"{np.median(np.sqrt(np.mean(each**2, axis=0))):.1e}" for each in (plain, off, error)]
    evidence = np.sqrt(np.mean([one.log_z_off**2 for one in good]))
    return [
        name,
        *shares,
        f"{np.mean([one.effective for one in good]):.2f}",
        *sizes,
        f"{np.median(np.sqrt(np.mean(off**2, axis=0))) * np.sqrt(_DRAWS):.1e}",
        f"{np.sqrt(np.mean(z**2)):.2f}",
        f"{np.mean(np.abs(z) < 1.96):.0%}",
        "" if np.isnan(evidence) else f"{evidence:.2f}",
        f"{np.mean([one.seconds for one in some]):.0f}",
    ]


def run(
    data: Path | None = None,
    seeds: int = 10,
    gradients: int = 5000,
    processes: int | None = None,
    only: Sequence[str] = ("",),
    simple: bool = False,
    first: int = 0,
) -> dict[str, list[str]]:
    """Print the table and return its rows."""
    names = [*EXACT, *TRAPS]
    if data is not None:
        spec = sorted(
            {*json.loads((data / "posteriors" / "truth.json").read_text(encoding="utf-8"))}
            - {"diamonds"}
        )
        names += [*spec, *json.loads((data / "tails" / "truth.json").read_text(encoding="utf-8"))]
        names += ["radiata: density", "radiata: adjusted_density"]
    names = [name for name in names if name.startswith(tuple(only))]
    jobs = [
        (name, data, gradients, seed, simple)
        for name in names
        for seed in range(first, first + seeds)
    ]
    if processes == 1:
        found = [outcome(job) for job in jobs]
    else:
        with workers(processes) as pool:
            found = pool.map(outcome, jobs, chunksize=1)
    rows = {name: row(name, found[k * seeds : (k + 1) * seeds]) for k, name in enumerate(names)}
    print_table(
        f"Means without a chain: {gradients} gradients, errors in posterior deviations",
        HEAD,
        list(rows.values()),
    )
    return rows


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """From log densities to their means, without a chain."""
    if options.quick:
        return {
            "integrate": run(
                seeds=1, gradients=600, processes=1, only=("normal, d = 1", "hole"), simple=True
            )
        }
    return {"integrate": run(options.data, processes=options.processes)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="a folder with models/, posteriors/ and tails/")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the first of these seeds")
    parser.add_argument("--gradients", type=int, default=5000)
    parser.add_argument("--processes", type=int, help="default: one a core")
    parser.add_argument("--only", nargs="+", default=[""], help="targets whose names begin so")
    parser.add_argument("--simple", action="store_true", help="polynomials only, to be quick")
    run(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
