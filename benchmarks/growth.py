"""Growth of time and memory in n, d, p and q for every solver, warm, each line of a table in a
process of its own.

`python -m benchmarks.growth NAME AXIS SIZE …` prints JSON. Memory is the peak above what the
process had before the fit: what a solver takes besides the draws. p is the number of features: of a
polynomial in some of the coordinates, of centres, of units of a network's layer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import zerovar as zv

from .harness import Slope, best, peak_begun_anew, peak_gigabytes
from .targets import banana


class Case(NamedTuple):
    """A solver: how it is asked, at which sizes along each axis, and which exponents it must not
    exceed."""

    fit: Callable[[dict[str, int]], Any]  # sizes n, d, p, q → a call that fits
    base: dict[str, int]
    axes: dict[str, tuple[tuple[int, ...], float]]  # axis → sizes, bound


def problem(at: dict[str, int]) -> tuple[zv.Sample, np.ndarray]:
    """Draws of the bent Gaussian, and q waves."""
    x, s, _ = banana(at["n"], at["d"])
    directions = np.random.default_rng(1).normal(size=(at["d"], at["q"])) / np.sqrt(at["d"])
    return zv.Sample(x, s), np.cos(x @ directions + 0.3)


def fitted(
    family: Callable[[dict[str, int]], zv.Family],
    solver: Callable[[dict[str, int]], Any],
    ridge: float = 0.0,
) -> Any:
    def call(at: dict[str, int]) -> Callable[[], Any]:
        sample, f = problem(at)
        objective = zv.LeastSquares(zv.Ridge(ridge)) if ridge else None
        return lambda: zv.fit(family(at), sample, f, objective, solver(at))

    return call


def quadratic(at: dict[str, int]) -> zv.Family:
    """With about p features in some of the coordinates, or in all."""
    if "p" not in at:
        return zv.Polynomial(2)
    count = round((np.sqrt(9 + 8 * at["p"]) - 3) / 2)
    return zv.Polynomial(2, coordinates=list(range(count)))


def kernel(at: dict[str, int]) -> zv.Family:
    return zv.Polynomial(1) + zv.Kernel(zv.kernels.InverseMultiquadric(np.sqrt(at["d"])))


def chunked(at: dict[str, int]) -> Callable[[], Any]:
    """Draws as Dask has them, here of arrays in memory, one chunk after the other."""
    import dask
    import dask.array as da

    sample, f = problem(at)
    x, s, f = (
        da.from_array(array, chunks=(20_000, -1)) for array in (sample.draws, sample.scores, f)
    )

    def call() -> Any:
        with dask.config.set(scheduler="synchronous"):
            return zv.estimate(x, s, f, family=quadratic(at))

    return call


CASES = {
    "Exact(), primal": Case(
        fitted(quadratic, lambda at: zv.Exact()),
        {"n": 40_000, "d": 27, "q": 4},
        {
            "n": ((40_000, 80_000, 160_000), 1.1),
            "d": ((20, 30, 45), 4.1),
            "p": ((135, 230, 405), 2.1),
            "q": ((4, 32, 256), 1.1),
        },
    ),
    "Exact(), dual": Case(
        fitted(kernel, lambda at: zv.Exact(), 1e-8),
        {"n": 3000, "d": 10, "q": 4},
        {"n": ((2000, 4000, 8000), 3.1), "d": ((5, 20, 80), 1.1), "q": ((4, 32, 256), 1.1)},
    ),
    "Nystrom(p)": Case(
        fitted(kernel, lambda at: zv.Nystrom(at.get("p", 300)), 1e-8),
        {"n": 20_000, "d": 10, "q": 4},
        {
            "n": ((10_000, 20_000, 40_000, 80_000), 1.1),
            "d": ((5, 20, 80), 1.1),
            "p": ((200, 400, 800), 2.1),
            "q": ((4, 32, 256), 1.1),
        },
    ),
    "CG(), dual, an iteration": Case(
        fitted(kernel, lambda at: zv.CG(), 1e-8),
        {"n": 4000, "d": 10, "q": 4},
        {"n": ((4000, 8000, 16_000), 2.1), "d": ((5, 20, 80), 1.1), "q": ((4, 32, 256), 1.1)},
    ),
    "CG(), primal, an iteration": Case(
        fitted(quadratic, lambda at: zv.CG()),
        {"n": 20_000, "d": 40, "q": 4},
        {"n": ((20_000, 40_000, 80_000), 1.1), "d": ((20, 40, 80), 2.1), "q": ((4, 16, 64), 1.1)},
    ),
    "SGD(centres=p), 2 epochs": Case(
        fitted(kernel, lambda at: zv.SGD(centres=at.get("p", 200), epochs=2, progress=False), 1e-8),
        {"n": 20_000, "d": 10, "q": 4},
        {
            "n": ((10_000, 20_000, 40_000, 80_000), 1.1),
            "d": ((5, 20, 80), 1.1),
            "p": ((100, 200, 400, 800), 2.1),
            "q": ((4, 32, 256), 1.1),
        },
    ),
    "SGD(), a network of 2 layers of p, 2 epochs": Case(
        fitted(
            lambda at: zv.Network(zv.MLP(at.get("p", 32), 2)),
            lambda at: zv.SGD(epochs=2, progress=False),
        ),
        {"n": 5000, "d": 10, "q": 4},
        {
            "n": ((5000, 10_000, 20_000, 40_000), 1.1),
            "d": ((5, 20, 80), 1.1),
            "p": ((16, 32, 64, 128), 2.1),
            "q": ((4, 16, 64), 1.1),
        },
    ),
    "Exact() on chunks": Case(
        chunked,
        {"n": 100_000, "d": 27, "q": 4},
        {
            "n": ((100_000, 200_000, 400_000), 1.1),
            "d": ((20, 30, 45), 4.1),
            "p": ((135, 230, 405), 2.1),
            "q": ((4, 32, 256), 2.1),
        },
    ),
}


def slopes(quick: bool) -> list[Slope]:
    """For every solver along every axis; quickly, one of the solvers along n, where sizes are no
    matter."""
    if quick:
        return [_measured("Exact(), dual", "n", (200, 400), 99.0)]
    return [
        _measured(name, axis, *line)
        for name, case in CASES.items()
        for axis, line in case.axes.items()
    ]


def _measured(name: str, axis: str, sizes: tuple[int, ...], bound: float) -> Slope:
    command = [sys.executable, "-m", "benchmarks.growth", name, axis, *map(str, sizes)]
    # so that whatever is freed goes back at once, and the next peak is one of its own
    surroundings = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{name}, {axis}: {done.stderr[-2000:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    fixed = ", ".join(f"{key} = {value}" for key, value in CASES[name].base.items() if key != axis)
    return Slope(
        f"{name}: {axis} ({fixed})",
        sizes,
        bound=bound,
        **{key: tuple(value) for key, value in found.items()},
    )


def main() -> None:
    name, axis, *sizes = sys.argv[1:]
    case = CASES[name]
    found: dict[str, list[float]] = {"seconds": [], "iterations": [], "gigabytes": []}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for size in map(int, sizes):
            at = case.base | {axis: size}
            call = case.fit(at)
            count = call().stats.get("iterations") or 1  # it compiles
            before = peak_begun_anew()
            found["seconds"].append(best(call, 2) / count)
            found["gigabytes"].append(peak_gigabytes() - before)
            found["iterations"] += [count] if count > 1 else []
    print(json.dumps(found))


if __name__ == "__main__":
    main()
