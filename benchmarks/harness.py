"""Timing, tables and files that every benchmark shares."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from zerovar.io.atomic import atomic


@dataclasses.dataclass(frozen=True)
class Row:
    """One case: seconds of ours and of the floor that it is held against, both the best of several
    runs."""

    case: str
    floor: float
    ours: float
    bound: float | None = None  # the ratio that must not be exceeded
    note: str = ""

    @property
    def ratio(self) -> float:
        return self.ours / self.floor


class Slope(NamedTuple):
    """Seconds against one size, and the slope of their logarithms; of an iteration, where
    `iterations` counts them; and the peak of memory, where it was measured."""

    case: str
    sizes: tuple[int, ...]
    seconds: tuple[float, ...]
    bound: float
    iterations: tuple[int, ...] = ()
    gigabytes: tuple[float, ...] = ()

    @property
    def slope(self) -> float:
        return _steepness(self.sizes, self.seconds)

    @property
    def memory_slope(self) -> float | None:
        return _steepness(self.sizes, np.maximum(self.gigabytes, 1e-4)) if self.gigabytes else None


def _steepness(sizes: Sequence[float], values: Any) -> float:
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def best(run: Callable[[], Any], repeats: int = 5) -> float:
    """Seconds of the fastest of several runs: the others differ by what else the machine does."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def in_fresh_process(setup: str, call: str) -> tuple[float, float, float]:
    """Seconds to import zerovar, of the first run of `call`, which compiles, and of the second."""
    script = (
        "import time, warnings; warnings.simplefilter('ignore'); t = time.perf_counter(); import "
        f"zerovar as zv\nimport numpy as np; imported = time.perf_counter() - t\n{setup}\ngo = "
        f"lambda: {call}\nt = time.perf_counter(); go(); first = time.perf_counter() - t; t = "
        "time.perf_counter(); go()\nprint(imported, first, time.perf_counter() - t)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    imported, first, second = map(float, done.stdout.split())
    return imported, first, second


def workers(processes: int | None = None) -> Pool:
    """Processes that share the cores, by default one a core, each with one thread: more would wait
    for each other."""
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    context = get_context("spawn")
    return context.Pool(processes, _keep_to_one_core, (context.Value("i", 0),))


def _keep_to_one_core(started: Any) -> None:
    """Let this process have one core: zerovar starts as many threads as it may use cores, and
    sixteen processes of sixteen threads each had a load of fifty."""
    if not hasattr(os, "sched_setaffinity"):  # not on macOS or Windows
        return
    with started.get_lock():
        number, started.value = started.value, started.value + 1
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[number % len(cores)]})


def collect(ask: Callable[[Any], Any], jobs: Sequence[Any], processes: int | None) -> list[Any]:
    """What came of all jobs, in any order; those that return a message are told and left out."""
    found = []
    with workers(processes) as pool:
        for one in pool.imap_unordered(ask, jobs):
            if isinstance(one, str):
                print(one)
            else:
                found.append(one)
    return found


def sizes_asked(options: argparse.Namespace) -> dict[str, int]:
    """`--draws` and `--replicates`, where they are given."""
    asked = {key: getattr(options, key) for key in ("draws", "replicates")}
    return {key: size for key, size in asked.items() if size is not None}


def show(title: str, rows: list[Row], floor: str) -> None:
    table = Table(title=title, title_justify="left")
    for column, justify in (
        ("case", "left"),
        (f"{floor} (s)", "right"),
        ("zerovar (s)", "right"),
        ("ratio", "right"),
    ):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    table.add_column("bound", justify="right")
    table.add_column("", justify="left")
    for row in rows:
        bound = "" if row.bound is None else f"{row.bound:.3g}"
        verdict = "" if row.bound is None else ("ok" if row.ratio <= row.bound else "MISSED")
        table.add_row(
            row.case,
            f"{row.floor:.3f}",
            f"{row.ours:.3f}",
            f"{row.ratio:.3g}",
            bound,
            f"{verdict} {row.note}".strip(),
        )
    Console(width=120).print(table)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table whose first column is text and whose others are numbers, already formatted."""
    table = Table(title=title, title_justify="left")
    for k, column in enumerate(columns):
        table.add_column(column, justify="left" if k == 0 else "right")
    for row in rows:
        table.add_row(*map(str, row))
    Console(width=160).print(table)


def show_slopes(title: str, slopes: Sequence[Slope]) -> list[dict[str, Any]]:
    """A table of growth; and its rows for the file."""
    print_table(
        title,
        ("against", "sizes", "seconds", "iterations", "slope", "bound", "", "memory (GB)", "slope"),
        [
            (
                slope.case,
                " ".join(map(str, slope.sizes)),
                " ".join(f"{value:.2g}" for value in slope.seconds),
                " ".join(map(str, slope.iterations)),
                f"{slope.slope:.2f}",
                f"{slope.bound:g}",
                "ok" if slope.slope <= slope.bound else "MISSED",
                " ".join(f"{value:.2g}" for value in slope.gigabytes),
                "" if slope.memory_slope is None else f"{slope.memory_slope:.2f}",
            )
            for slope in slopes
        ],
    )
    return [
        slope._asdict() | {"slope": slope.slope, "memory_slope": slope.memory_slope}
        for slope in slopes
    ]


def peak_gigabytes() -> float:
    """That this process has had at most, imports included."""
    if sys.platform == "linux":  # where getrusage counts what the process was forked from
        status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return (
            next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024 / 1e9
        )
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size / 1e9 if sys.platform == "darwin" else size * 1024 / 1e9


def peak_begun_anew() -> float:
    """What there is now, from which the peak counts anew, so that earlier work does not; off Linux,
    the peak so far."""
    switch = Path("/proc/self/clear_refs")
    if switch.exists():
        switch.write_text("5", encoding="ascii")
    return peak_gigabytes()


def write(path: Path, results: dict[str, Any]) -> None:
    """All results with the machine that they were measured on, as JSON; rows with their ratios."""
    import jax
    import scipy

    machine = {
        "cores": os.cpu_count(),
        "processor": platform.machine(),
        "python": platform.python_version(),
        "jax": jax.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }
    record = {
        "machine": machine,
        "results": results,
    }

    def plain(row: Any) -> Any:
        """What JSON does not know by itself."""
        if isinstance(row, Row):
            return dataclasses.asdict(row) | {"ratio": row.ratio}
        raise TypeError(f"{row!r} is no row, and nothing that JSON knows")

    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic(path) as temporary:
        temporary.write_text(json.dumps(record, indent=2, default=plain) + "\n", encoding="utf-8")
