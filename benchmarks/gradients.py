"""Error against the number of gradients: plain importance sampling, `integrate`, NUTS, and NUTS
with `estimate`.

python -m benchmarks.gradients --data ../shared/data [--models gp_regr ...] [--seeds 3]   # runs,
and appends to gradients.csv python -m benchmarks.gradients --picture docs/images/gradients.png
# draws what is there

Errors are root mean squares over the parameters, in posterior deviations. Gradients of NUTS are
those of the warm-up too.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .harness import print_table, workers
from .integrate import Problem, problem

RESULTS = Path(__file__).parent / "gradients.csv"
BUDGETS = (500, 1000, 2000, 5000, 20_000)
LENGTHS = (60, 400, 2400)  # draws of one chain of NUTS, after as many of warm-up
MODELS = ("arK", "eight_schools_noncentered", "garch11", "gp_regr", "hmm_drive_0", "logmesquite")
METHODS = ("importance sampling", "NUTS", "NUTS + estimate", "integrate")


class Point(NamedTuple):
    """One run."""

    model: str
    method: str
    seed: int
    gradients: int
    error: float


def nuts(given: Problem, length: int, seed: int) -> tuple[np.ndarray, int]:
    """Draws of one chain (n, d), and the gradients that it took with its warm-up."""
    import jax
    from numpyro.infer import MCMC, NUTS

    with jax.enable_x64(True):
        kernel = NUTS(potential_fn=lambda x: -given.log_density(x))
        chain = MCMC(kernel, num_warmup=length, num_samples=length, progress_bar=False)
        key, start = (
            jax.random.key(seed),
            0.1 * np.random.default_rng(seed).standard_normal(given.d),
        )
        chain.warmup(key, init_params=start, extra_fields=("num_steps",), collect_warmup=True)
        spent = int(np.sum(chain.get_extra_fields()["num_steps"]))
        chain.run(key, init_params=start, extra_fields=("num_steps",))
        return np.asarray(chain.get_samples()), spent + int(
            np.sum(chain.get_extra_fields()["num_steps"])
        )


def values_at(given: Problem, draws: np.ndarray) -> np.ndarray:
    import jax

    with jax.enable_x64(True):
        return draws if given.values is None else np.asarray(jax.vmap(given.values)(draws))


def points(job: tuple[str, Path, int]) -> list[Point]:
    """Of one model and seed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(_points(*job))


def _points(model: str, data: Path, seed: int) -> Iterator[Point]:
    import jax

    import zerovar as zv

    given = problem(model, data)

    def error(value: Any) -> float:
        return float(np.sqrt(np.mean(((value - given.means) / given.deviations) ** 2)))

    choice = zv.Automatic(progress=False)
    for budget in BUDGETS:
        try:
            found = zv.integrate(
                given.log_density, given.d, given.values, gradients=budget, seed=seed, family=choice
            )
        except zv.NumericalError as refused:
            print(model, budget, refused)
            continue
        yield Point(model, "importance sampling", seed, budget, error(found.plain_value))
        yield Point(model, "integrate", seed, budget, error(found.value))
    for length in LENGTHS:
        draws, spent = nuts(given, length, seed)
        with jax.enable_x64(True):
            posterior = zv.from_log_density(given.log_density, draws)
        found = zv.estimate(posterior, values=values_at(given, draws), family=choice)
        yield Point(model, "NUTS", seed, spent, error(found.plain_value))
        yield Point(model, "NUTS + estimate", seed, spent, error(found.value))


def _chain(job: tuple[str, Path, int]) -> tuple[np.ndarray, int, float]:
    """1000 draws of NUTS after as many of warm-up, the gradients that they took, and the
    seconds."""
    model, data, seed = job
    given, started = problem(model, data), time.perf_counter()
    return *nuts(given, 1000, seed), time.perf_counter() - started


def reference(model: str, data: Path, chains: list[tuple[np.ndarray, int, float]]) -> list[str]:
    """The median error over parameters of four chains, over that of as many independent draws."""
    given = problem(model, data)
    draws = np.concatenate([chain for chain, _, _ in chains])
    error = float(
        np.median(np.abs(values_at(given, draws).mean(axis=0) - given.means) / given.deviations)
    )
    likely = 0.6745 / np.sqrt(len(draws))  # the median absolute error of independent ones
    return [
        model,
        f"{error:.1e}",
        f"{error / likely:.2g}",
        str(sum(spent for _, spent, _ in chains)),
        f"{sum(each for _, _, each in chains):.0f}",
    ]


def picture(path: Path) -> None:
    """A panel for each model, a line for each method: medians over the seeds that were answered."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    with RESULTS.open(encoding="utf-8") as file:
        rows = [
            Point(
                row["model"],
                row["method"],
                int(row["seed"]),
                int(row["gradients"]),
                float(row["error"]),
            )
            for row in csv.DictReader(file)
        ]
    models = list(dict.fromkeys(row.model for row in rows))
    figure, axes = plt.subplots(
        -(-len(models) // 3), 3, figsize=(9.6, 5.8), sharex=True, sharey=True
    )
    styles = dict(zip(METHODS, (("0.55", "o"), ("C1", "s"), ("C2", "^"), ("C0", "D")), strict=True))
    for axis, model in zip(axes.flat, models, strict=True):
        for method in METHODS:
            alike = _alike([row for row in rows if (row.model, row.method) == (model, method)])
            gradients, error = np.exp(
                [
                    np.median(np.log([(row.gradients, row.error) for row in some]), axis=0)
                    for some in alike
                ]
            ).T
            colour, marker = styles[method]
            axis.loglog(gradients, error, marker=marker, ms=4, color=colour, label=method)
        axis.set_title(model, fontsize=10)
        axis.grid(alpha=0.3)
    # a chain of 60 draws that has not arrived is a hundred deviations away
    axes[0, 0].set_ylim(top=3)
    figure.supxlabel("gradients", y=0.07, fontsize=10)
    figure.supylabel("error in posterior deviations", fontsize=10)
    figure.tight_layout(rect=(0, 0.04, 1, 1))
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(),
        fontsize=9,
        loc="lower center",
        ncols=len(METHODS),
        frameon=False,
    )
    figure.savefig(path, dpi=120, metadata={"Software": None})


def _alike(rows: list[Point]) -> list[list[Point]]:
    """Runs of one model and method, by what they were given: a number of gradients, or for NUTS a
    length of the chain."""
    groups = defaultdict(list)
    for seed in {row.seed for row in rows}:
        mine = sorted((row for row in rows if row.seed == seed), key=lambda row: row.gradients)
        for k, row in enumerate(mine):
            groups[k if "NUTS" in row.method else row.gradients].append(row)
    return [groups[key] for key in sorted(groups)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="a folder with models/, posteriors/ and tails/")
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, help="default: one a core")
    parser.add_argument(
        "--reference",
        action="store_true",
        help="4 × 1000 draws of NUTS on these models, and nothing else",
    )
    parser.add_argument("--picture", type=Path, help="draw what was measured, and run nothing")
    options = parser.parse_args()
    if options.picture is not None:
        picture(options.picture)
        return
    if options.data is None:
        parser.error("--data: a folder with models/, posteriors/ and tails/")
    if options.reference:
        with workers(options.processes) as pool:
            chains = pool.map(
                _chain,
                [(model, options.data, seed) for model in options.models for seed in range(4)],
                chunksize=1,
            )
        rows = [
            reference(model, options.data, chains[4 * k : 4 * k + 4])
            for k, model in enumerate(options.models)
        ]
        print_table(
            "4 × 1000 draws of NUTS",
            ("model", "error", "of 4000 draws'", "gradients", "seconds"),
            rows,
        )
        return
    new = not RESULTS.exists()
    jobs = [
        (model, options.data, seed) for model in options.models for seed in range(options.seeds)
    ]
    with (
        RESULTS.open("a", encoding="utf-8", newline="") as file,
        workers(options.processes) as pool,
    ):
        write = csv.writer(file, lineterminator="\n")
        if new:
            write.writerow(Point._fields)
        for found in pool.imap_unordered(points, jobs):
            write.writerows((*one[:4], f"{one.error:.4g}") for one in found)
            file.flush()


if __name__ == "__main__":
    main()
