"""What all studies share: jobs in parallel, results that survive an interruption, tidy tables.

A study is a module with `NAME`, `TITLE`, `jobs(size)`, `run(job, data)`, `figure(rows, path)` and `section(rows)`. A job is a
dict of plain settings, one repetition of one setting; running it gives rows, dicts with a method, an integrand, a value, the
truth and a standard error. Finished jobs are appended to one file as they come, so that the same command goes on where it was
interrupted.
"""

from __future__ import annotations

import csv
import functools
import json
import multiprocessing
import os
import platform
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import zerovar as zv
from zerovar.io.atomic import atomic

Row = dict[str, Any]
Job = dict[str, Any]


class Size(NamedTuple):
    """How much of a study to do; `marks` are what the jobs of a quick run carry."""

    repetitions: int
    quick: bool

    @property
    def marks(self) -> Job:
        return {"quick": True} if self.quick else {}


QUICK, FULL = Size(2, True), Size(20, False)


class Study(Protocol):
    NAME: str
    TITLE: str

    def jobs(self, size: Size) -> list[Job]: ...
    def run(self, job: Job, data: Path | None) -> list[Row]: ...
    def figure(self, rows: list[Row], path: Path) -> None: ...
    def section(self, rows: list[Row]) -> str: ...


class MissingData(Exception):
    """Data that does not ship; the message says which and where it comes from."""


def collect(study: Study, out: Path, size: Size, data: Path | None, workers: int | None = None) -> list[Row]:
    """All rows of a study; jobs that `out` already holds are not run again."""
    out.mkdir(parents=True, exist_ok=True)
    journal = out / f"{study.NAME}.jsonl"
    wanted = [_key(job) for job in study.jobs(size)]
    done = _read(journal)
    left = [json.loads(key) for key in wanted if key not in done]
    columns = (TextColumn(study.NAME), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with open(journal, "a") as file, Progress(*columns) as bar:
        task = bar.add_task("", total=len(wanted), completed=len(wanted) - len(left))
        for job, rows in in_parallel(functools.partial(study.run, data=data), left, workers):
            entry = {"job": job, "rows": rows, "versions": versions()}
            file.write(json.dumps(entry) + "\n")
            file.flush()
            done[_key(job)] = entry
            bar.advance(task)
    rows = [{**json.loads(key), **row} for key in wanted for row in done[key]["rows"]]
    _write_csv(out / f"{study.NAME}.csv", rows)
    machines: list[dict[str, str]] = []
    for key in wanted:
        if done[key]["versions"] not in machines:
            machines.append(done[key]["versions"])
    repetitions = len({json.loads(key).get("repetition") for key in wanted})
    about = {"study": study.TITLE, "repetitions": repetitions, "jobs": len(wanted), "versions": machines}
    with atomic(out / f"{study.NAME}.json") as temporary:
        temporary.write_text(json.dumps(about, indent=2) + "\n")
    return rows


def in_parallel(
    function: Callable[..., Any], arguments: Sequence[Any], workers: int | None = None
) -> Iterable[tuple[Any, Any]]:
    """(argument, result) as they come, in processes of one thread each: two pools that share cores are slower than none."""
    workers = min(workers or os.cpu_count() or 1, max(len(arguments), 1))
    if workers == 1:
        for argument in arguments:
            yield argument, function(argument)
        return
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(function, argument): argument for argument in arguments}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _key(job: Job) -> str:
    return json.dumps(job, sort_keys=True)


def _read(journal: Path) -> dict[str, dict[str, Any]]:
    done: dict[str, dict[str, Any]] = {}
    if journal.exists():
        for line in journal.read_text().splitlines():
            try:
                entry = json.loads(line)
            except json.JSONDecodeError:
                continue  # cut short by an interruption: that job runs again
            done[_key(entry["job"])] = entry
    return done


def _write_csv(path: Path, rows: list[Row]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    with atomic(path) as temporary, open(temporary, "w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)


def versions() -> dict[str, str]:
    found = {name: version(name) for name in ("zerovar", "jax", "equinox", "optax", "numpy", "scipy")}
    return found | {"python": platform.python_version(), "cores": str(os.cpu_count())}


# ---- Rows and tables


def select(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    return [row for row in rows if all(row.get(name) == value for name, value in wanted.items())]


def distinct(rows: Iterable[Row], name: str) -> list[Any]:
    """In order of appearance."""
    return list(dict.fromkeys(row[name] for row in rows if name in row))


def estimates(method: str, answer: Any, truth: np.ndarray, seconds: float, **more: Any) -> list[Row]:
    """Rows of one answer of `zv.estimate`."""
    return [
        {
            **more,
            "method": method,
            "integrand": name,
            "value": float(answer.value[j]),
            "truth": float(truth[j]),
            "std_error": float(answer.std_error[j]),
            "seconds": seconds,
        }
        for j, name in enumerate(answer.names)
    ]


def constants(method: str, names: Iterable[str], values: Iterable[float], truth: Any, seconds: float, **more: Any) -> list[Row]:
    """Rows of a fit to all draws: its constants, which have no errors of their own."""
    common = {**more, "method": method, "std_error": None, "seconds": seconds}
    return [
        {**common, "integrand": name, "value": float(value), "truth": float(true)}
        for name, value, true in zip(names, values, truth, strict=True)
    ]


def compared(
    methods: dict[str, dict[str, Any]], draws: np.ndarray, scores: np.ndarray, values: Any, truth: np.ndarray, **more: Any
) -> list[Row]:
    """Rows of the plain mean, and of `zv.estimate` with each method's options."""
    rows: list[Row] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", zv.ZerovarWarning)
        for method, options in methods.items():
            started = time.perf_counter()
            answer = zv.estimate(draws, scores, values, **options)
            rows += estimates(method, answer, truth, time.perf_counter() - started, **more)
    return plain(answer, truth, **more) + rows


def automatic(quick: bool) -> zv.Automatic:
    """The automatic choice; in quick runs, of what needs no tuning."""
    return zv.Automatic("low" if quick else "normal", progress=False)


def plain(answer: Any, truth: np.ndarray, **more: Any) -> list[Row]:
    """Rows of the plain mean, which every answer of `zv.estimate` carries."""
    rows = estimates("MC", answer, truth, 0.0, **more)
    numbers = zip(answer.plain_value, answer.plain_std_error, strict=True)
    return [row | {"value": float(v), "std_error": float(e)} for row, (v, e) in zip(rows, numbers, strict=True)]


class Error(NamedTuple):
    """Mean absolute error over repetitions, its own standard error, and how often ± 2 standard errors held the truth."""

    mean: float
    error: float
    within: float
    seconds: float

    def __str__(self) -> str:
        return "" if np.isnan(self.mean) else f"{self.mean:.2e} ± {self.error:.0e}"


def absolute_error(rows: Sequence[Row]) -> Error:
    if not rows:
        return Error(*4 * [float("nan")])
    off = np.array([row["value"] - row["truth"] for row in rows])
    errors = np.array([row["std_error"] if row["std_error"] is not None else np.nan for row in rows], dtype=float)
    inside = np.abs(off) <= 2 * errors + 1e-13 * np.abs([row["truth"] for row in rows])
    within = float(np.mean(inside[np.isfinite(errors)])) if np.isfinite(errors).any() else float("nan")
    size = np.abs(off)
    spread = size.std(ddof=1) / np.sqrt(len(size)) if len(size) > 1 else float("nan")
    return Error(float(size.mean()), float(spread), within, float(np.mean([row["seconds"] for row in rows])))


def markdown(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"
