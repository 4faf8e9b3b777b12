"""Draws on disk: a pass over Zarr against bare NumPy over the same chunks, memory, workers, and one
that is killed.

Every measurement is a fresh process with one thread of BLAS, `python -m benchmarks.stream JOB FILE
DRAWS`, which prints JSON.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from argparse import Namespace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .harness import Row, peak_gigabytes, print_table, show

D = 20
_ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
}
_SUB_BLOCK = 2048  # rows of the bare pass, so that its features stay in cache


class Growth(NamedTuple):
    draws: int
    seconds: float
    gigabytes: float  # peak of the process, imports included


class Workers(NamedTuple):
    one: float  # seconds of the pass
    two: float
    killed: float  # with two, one of which is killed in the middle
    change: float  # of the values by that, relative
    restarts: int

    @property
    def ratio(self) -> float:
        return self.one / self.two


def rows(folder: Path, n: int) -> list[Row]:
    """The statistics pass against bare NumPy, each on one core."""
    ours, bare, products = (
        _measure(job, folder, n)["seconds"] for job in ("ours", "bare", "products")
    )
    case = f"Polynomial(2), d = {D}, n = {n:.0e}"
    return [
        Row(f"{case}: features and products in NumPy", bare, ours, 2.0),
        Row(f"{case}: products alone, features given", products, ours, 2.0),
    ]


def growth(folder: Path, sizes: tuple[int, ...]) -> list[Growth]:
    """The whole call on Dask's threads."""
    found = [_measure("call", folder, n) for n in sizes]
    return [
        Growth(n, each["seconds"], each["gigabytes"]) for n, each in zip(sizes, found, strict=True)
    ]


def workers(folder: Path, n: int) -> Workers:
    one, two, killed = (_measure(job, folder, n) for job in ("one worker", "two workers", "killed"))
    change = np.max(np.abs(np.subtract(killed["value"], two["value"])) / np.abs(two["value"]))
    return Workers(
        one["seconds"], two["seconds"], killed["seconds"], float(change), killed["restarts"]
    )


def written(n: int, chunk: int) -> tempfile.TemporaryDirectory[str]:
    """n independent logistic draws in d = 20 and their scores, uncompressed."""
    import zarr

    folder = tempfile.TemporaryDirectory()
    group = zarr.open_group(folder.name, mode="w")
    shape = {"shape": (n, D), "chunks": (chunk, D), "dtype": "f8", "compressors": None}
    draws, scores = (group.create_array(name, **shape) for name in ("draws", "scores"))
    rng = np.random.default_rng(0)
    for first in range(0, n, chunk):
        x = rng.logistic(size=(min(chunk, n - first), D))
        draws[first : first + chunk], scores[first : first + chunk] = x, -np.tanh(x / 2)
    return folder


def _measure(job: str, folder: Path, n: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.stream", job, str(folder), str(n)]
    done = subprocess.run(
        command, env=os.environ | _ONE_THREAD, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{job}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _arrays(folder: str, n: int) -> tuple[Any, Any]:
    import dask.array as da

    return tuple(da.from_zarr(folder, component=name)[:n] for name in ("draws", "scores"))  # type: ignore[return-value]


def _estimate(draws: Any, scores: Any) -> Any:
    import zerovar as zv

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return zv.estimate(draws, scores, family=zv.Polynomial(2))


def _ours(folder: str, n: int) -> dict[str, Any]:
    import dask

    with dask.config.set(scheduler="synchronous"):
        draws, scores = _arrays(folder, n)
        _estimate(draws[:2000], scores[:2000])  # compiles
        return {"seconds": _estimate(draws, scores).stats["pass_seconds"]}


def _call(folder: str, n: int) -> dict[str, Any]:
    start = time.perf_counter()
    _estimate(*_arrays(folder, n))
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "gigabytes": peak_gigabytes()}


def _bare(folder: str, n: int, features: bool = True) -> dict[str, Any]:
    """What one would write in NumPy for the same matrix: read a chunk, and in small blocks make
    features and add products."""
    import zarr

    group = zarr.open_group(folder, mode="r")
    chunk = group["draws"].chunks[0]
    first, second = np.triu_indices(D)
    twice = 2.0 * (first == second)
    total = np.zeros((1 + 2 * D + len(first), 1 + 2 * D + len(first)))
    z = np.ones((len(total), _SUB_BLOCK))
    start = time.perf_counter()
    for top in range(0, n, chunk):
        x, s = group["draws"][top : min(top + chunk, n)], group["scores"][top : min(top + chunk, n)]
        for left in range(0, len(x), _SUB_BLOCK):
            a, b = x[left : left + _SUB_BLOCK].T, s[left : left + _SUB_BLOCK].T
            block = z[:, : a.shape[1]]
            if features:
                block[1 : 1 + D] = b
                block[1 + D : -D] = a[first] * b[second] + a[second] * b[first] + twice[:, None]
                block[-D:] = a
            total += block @ block.T
    return {"seconds": time.perf_counter() - start}


def _cluster(folder: str, n: int, count: int, kill: bool = False) -> dict[str, Any]:
    import logging

    import dask
    from distributed import Client, LocalCluster

    # One thread each, XLA's too. Dask also has its workers give freed memory back at once
    # (MALLOC_TRIM_THRESHOLD_), which here costs a quarter of the time
    threads = {
        "OPENBLAS_NUM_THREADS": 1,
        "OMP_NUM_THREADS": 1,
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    }
    dask.config.set({"distributed.nanny.pre-spawn-environ": threads})
    options = {"threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    with LocalCluster(n_workers=count, **options) as cluster, Client(cluster) as client:
        draws, scores = _arrays(folder, n)
        some = min(n, 10 * count * draws.chunksize[0])
        warm = _estimate(draws[:some], scores[:some])  # imports and compiles, on every worker
        before = set(client.run(os.getpid).values())
        if kill:
            middle = 0.5 * warm.stats["pass_seconds"] * n / some
            threading.Timer(middle, os.kill, (min(before), signal.SIGKILL)).start()
        answer = _estimate(draws, scores)
        client.wait_for_workers(count)
        restarts = len(before - set(client.run(os.getpid).values()))
    return {
        "seconds": answer.stats["pass_seconds"],
        "value": answer.value.tolist(),
        "restarts": restarts,
    }


def measure(options: Namespace) -> dict[str, Any]:
    """Ten million draws on disk, 3.2 GB."""
    sizes, chunk = ((20_000,), 5000) if options.quick else ((10**5, 10**6, 10**7), 10**5)
    results: dict[str, Any] = {}
    with written(sizes[-1], chunk) as name:
        folder = Path(name)
        if not options.quick:
            results["pass"] = rows(folder, sizes[-1])
            show(
                "One pass over chunks on disk, on one core, against bare NumPy",
                results["pass"],
                "NumPy",
            )
        grown = growth(folder, sizes)
        results["growth"] = [row._asdict() for row in grown]
        print_table(
            "The whole call on Dask's threads, in a fresh process",
            ("draws", "seconds", "seconds a million draws", "peak memory (GB)"),
            [
                (
                    f"{g.draws:.0e}",
                    f"{g.seconds:.2f}",
                    f"{1e6 * g.seconds / g.draws:.2f}",
                    f"{g.gigabytes:.2f}",
                )
                for g in grown
            ],
        )
        if not options.quick:
            found = workers(folder, sizes[-1])
            results["workers"] = found._asdict() | {"ratio": found.ratio}
            print_table(
                "Local workers with one thread each (seconds of the pass)",
                (
                    "one",
                    "two",
                    "ratio",
                    "two, one killed in the middle",
                    "change of the values",
                    "restarted",
                ),
                [
                    (
                        f"{found.one:.1f}",
                        f"{found.two:.1f}",
                        f"{found.ratio:.2f}",
                        f"{found.killed:.1f}",
                        f"{found.change:.1e}",
                        found.restarts,
                    )
                ],
            )
    return results


def main() -> None:
    job, folder, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
    jobs = {
        "ours": _ours,
        "call": _call,
        "bare": _bare,
        "products": lambda folder, n: _bare(folder, n, features=False),
        "one worker": lambda folder, n: _cluster(folder, n, 1),
        "two workers": lambda folder, n: _cluster(folder, n, 2),
        "killed": lambda folder, n: _cluster(folder, n, 2, kill=True),
    }
    print(json.dumps(jobs[job](folder, n)))


if __name__ == "__main__":
    main()
