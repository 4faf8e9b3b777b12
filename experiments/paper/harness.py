"""What all studies share: jobs in parallel, results that survive an interruption, tidy tables.

A study is a module with `NAME`, `TITLE`, `VERSIONS`, `jobs(size)`, `run(job, data)`, `figure(rows,
path)`, `section(rows)`. A job is a dict of plain settings, one repetition of one setting of one
`part`; running it gives rows, dicts with a method, an integrand, a value, the truth and a standard
error. `VERSIONS` has a number for each part, to be raised when what its jobs compute changes: a
finished job is known by its settings and that number. It is looked for in the table that is there
already, and in a journal, to which jobs are appended as they end; so the same command goes on where
it was stopped.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import zerovar as zv
from zerovar.io.atomic import atomic

from .files import Row, listed, parsed, provenance, read_about, read_csv, write_csv

Job = dict[str, Any]


class Size(NamedTuple):
    """How much of a study to do; `marks` are what the jobs of a quick run carry."""

    repetitions: int
    quick: bool

    @property
    def marks(self) -> Job:
        return {"quick": True} if self.quick else {}

    def at_most(self, repetitions: int) -> int:
        """For parts that repeat less often than the paper does."""
        return min(self.repetitions, repetitions)


QUICK, FULL = Size(2, True), Size(20, False)


class Study(Protocol):
    NAME: str
    TITLE: str
    VERSIONS: dict[str, int]

    def jobs(self, size: Size) -> list[Job]: ...
    def run(self, job: Job, data: Path | None) -> list[Row]: ...
    def figure(self, rows: list[Row], path: Path) -> None: ...
    def section(self, rows: list[Row]) -> str: ...


class MissingData(Exception):
    """Data that does not ship; the message says which and where it comes from."""


class TimeIsUp(Exception):
    """A piece of work ended before the study did; the message says how far it is."""


class Finished(NamedTuple):
    """A job that was run: its rows, how long it took (None if nobody knows) and what ran it."""

    job: Job
    rows: list[Row]
    seconds: float | None
    by: dict[str, Any]


def collect(
    study: Study,
    out: Path,
    size: Size,
    data: Path | None,
    workers: int | None = None,
    minutes: float | None = None,
) -> list[Row]:
    """All rows of a study; jobs that `out` already holds are not run again. `TimeIsUp` after about
    so many `minutes`."""
    out.mkdir(parents=True, exist_ok=True)
    journal = out / f"{study.NAME}.jsonl"
    wanted, done = wanted_jobs(study, size), finished_jobs(study.NAME, out)
    left = [job for job in wanted if key(job) not in done]
    until = math.inf if minutes is None else time.monotonic() + 60 * minutes
    columns = (
        TextColumn(study.NAME),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[eta]}"),
    )
    workers, by = min(workers or os.cpu_count() or 1, max(len(left), 1)), provenance()
    with open(journal, "a") as file, Progress(*columns) as bar:
        task = bar.add_task(
            "", total=len(wanted), completed=len(wanted) - len(left), eta=_eta(left, done, workers)
        )
        for job, (rows, seconds) in in_parallel(
            functools.partial(_timed, study.run, data), left, workers, until
        ):
            entry = Finished(job, rows, seconds, by)
            file.write(json.dumps(entry._asdict()) + "\n")
            file.flush()
            done[key(job)] = entry
            bar.update(
                task, advance=1, eta=_eta([j for j in left if key(j) not in done], done, workers)
            )
    missing = [job for job in wanted if key(job) not in done]
    if missing:
        raise TimeIsUp(
            f"{study.NAME}: {len(wanted) - len(missing)} of {len(wanted)} jobs are done and kept "
            f"in {journal}; {_eta(missing, done, workers)}"
        )
    return _write(study, out, [done[key(job)] for job in wanted])


def wanted_jobs(study: Study, size: Size) -> list[Job]:
    return [{**job, "version": study.VERSIONS[job["part"]]} for job in study.jobs(size)]


def finished_jobs(name: str, out: Path) -> dict[str, Finished]:
    """By key, from the table and from the journal."""
    done: dict[str, Finished] = {}
    about = read_about(name, out)
    if about and (out / f"{name}.csv").exists():
        seconds = {key(setting["setting"]): setting["seconds"] for setting in about["settings"]}
        for row in read_csv(out / f"{name}.csv"):
            job = {
                column: listed(row.pop(column))
                for column in about["columns"][row["part"]]
                if column in row
            }
            by = about["runs"][row.pop("run")]
            done.setdefault(
                key(job), Finished(job, [], seconds[key(setting_of(job))], by)
            ).rows.append(row)
    journal = out / f"{name}.jsonl"
    for line in journal.read_text().splitlines() if journal.exists() else ():
        try:
            entry = Finished(**json.loads(line))
        except (json.JSONDecodeError, TypeError):
            continue  # cut short by an interruption: that job runs again
        done[key(entry.job)] = entry
    return done


def expected_seconds(jobs: Sequence[Job], done: dict[str, Finished]) -> float:
    """Of one core, by what jobs of the same setting took, or those of the same part; NaN if nobody
    knows."""
    taken: dict[str, list[float]] = {}
    for entry in done.values():
        if entry.seconds is not None:
            for name in (key(setting_of(entry.job)), entry.job["part"]):
                taken.setdefault(name, []).append(entry.seconds)
    each = [taken.get(key(setting_of(job))) or taken.get(job["part"]) for job in jobs]
    return sum(float(np.mean(found)) if found else math.nan for found in each)


def duration(seconds: float) -> str:
    if math.isnan(seconds):
        return "unknown"
    return (
        f"{seconds:.0f} s"
        if seconds < 90
        else f"{seconds / 60:.0f} min"
        if seconds < 5400
        else f"{seconds / 3600:.1f} h"
    )


def _eta(left: Sequence[Job], done: dict[str, Finished], workers: int) -> str:
    return f"about {duration(expected_seconds(left, done) / workers)} left" if left else "done"


def _timed(run: Callable[..., list[Row]], data: Path | None, job: Job) -> tuple[list[Row], float]:
    started = time.perf_counter()
    rows = run(job, data=data)
    return rows, time.perf_counter() - started


def in_parallel(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    workers: int | None = None,
    until: float = math.inf,
) -> Iterable[tuple[Any, Any]]:
    """(argument, result) as they come, in processes of one thread each: two pools that share cores
    are slower than none.

    Nothing new is begun once the monotonic clock is past `until`.
    """
    workers = min(workers or os.cpu_count() or 1, max(len(arguments), 1))
    if workers == 1:
        for argument in arguments:
            if time.monotonic() > until:
                return
            yield argument, function(argument)
        return
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    queue = iter(arguments)
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        futures: dict[Future, Any] = {}
        try:
            while True:
                if time.monotonic() <= until:
                    for argument in itertools.islice(queue, workers - len(futures)):
                        futures[pool.submit(function, argument)] = argument
                if not futures:
                    return
                for future in wait(futures, return_when=FIRST_COMPLETED).done:
                    yield futures.pop(future), future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def key(job: Job) -> str:
    return json.dumps(job, sort_keys=True)


def setting_of(job: Job) -> Job:
    """What repetitions have in common."""
    return {name: value for name, value in job.items() if name != "repetition"}


# ---- Files


def _write(study: Study, out: Path, entries: Sequence[Finished]) -> list[Row]:
    """The table, and what it says of itself; returns the rows as they are read back."""
    runs: list[dict[str, Any]] = []
    settings: dict[str, dict[str, Any]] = {}
    rows: list[Row] = []
    for entry in entries:
        if entry.by not in runs:
            runs.append(entry.by)
        number = runs.index(entry.by)
        if any(listed(parsed(str(value))) != value for value in entry.job.values()):
            raise ValueError(
                f"{study.NAME}: a setting is read back from its table as another; text must not be "
                f"a number: {entry.job}"
            )
        rows += [{**entry.job, "run": number, **row} for row in entry.rows]
        fresh = {"setting": setting_of(entry.job), "repetitions": 0, "seconds": [], "runs": []}
        about = settings.setdefault(key(setting_of(entry.job)), fresh)
        about["repetitions"] += 1
        about["seconds"] += [] if entry.seconds is None else [entry.seconds]
        about["runs"] += [number] if number not in about["runs"] else []
    for about in settings.values():
        about["seconds"] = round(float(np.mean(about["seconds"])), 2) if about["seconds"] else None
    write_csv(out / f"{study.NAME}.csv", rows)
    whole = {
        "study": study.TITLE,
        "quick": any(entry.job.get("quick") for entry in entries),
        "repetitions": len({entry.job.get("repetition") for entry in entries}),
        "jobs": len(entries),
        "columns": {
            part: _columns(entry.job for entry in entries if entry.job["part"] == part)
            for part in study.VERSIONS
        },
        "settings": list(settings.values()),
        "runs": runs,
    }
    with atomic(out / f"{study.NAME}.json") as temporary:
        temporary.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n")
    return read_csv(out / f"{study.NAME}.csv")


def _columns(jobs: Iterable[Job]) -> list[str]:
    """Which columns of a part's rows are settings: in another part a column of that name may be a
    result."""
    return list(dict.fromkeys(name for job in jobs for name in job))


# ---- Rows and tables


def select(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    found = list(rows)
    for name, value in wanted.items():  # one after the other: pages are made of 3000 of these
        found = [row for row in found if row.get(name) == value]
    return found


def distinct(rows: Iterable[Row], name: str) -> list[Any]:
    """In order of appearance."""
    return list(dict.fromkeys(row[name] for row in rows if name in row))


def estimates(
    method: str, answer: Any, truth: np.ndarray, seconds: float, **more: Any
) -> list[Row]:
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


def constants(
    method: str,
    names: Iterable[str],
    values: Iterable[float],
    truth: Any,
    seconds: float,
    **more: Any,
) -> list[Row]:
    """Rows of a fit to all draws: its constants, which have no errors of their own."""
    common = {**more, "method": method, "std_error": None, "seconds": seconds}
    return [
        {**common, "integrand": name, "value": float(value), "truth": float(true)}
        for name, value, true in zip(names, values, truth, strict=True)
    ]


def compared(
    methods: dict[str, dict[str, Any]],
    draws: np.ndarray,
    scores: np.ndarray,
    values: Any,
    truth: np.ndarray,
    **more: Any,
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
    return [
        row | {"value": float(v), "std_error": float(e)}
        for row, (v, e) in zip(rows, numbers, strict=True)
    ]


class Error(NamedTuple):
    """Mean absolute error over repetitions, its own standard error, how often ± 2 standard errors
    held the truth, the mean time, and the number of repetitions that diverged and are not in the
    mean."""

    mean: float
    error: float
    within: float
    seconds: float
    diverged: int = 0

    def __str__(self) -> str:
        ended = f"{self.diverged} diverged" if self.diverged else ""
        if np.isnan(self.mean):
            return ended
        error = "" if np.isnan(self.error) else f" ± {self.error:.0e}"  # one repetition has none
        return f"{self.mean:.2e}{error}" + (f" ({ended})" if ended else "")


def absolute_error(rows: Sequence[Row]) -> Error:
    ended = [row for row in rows if np.isfinite(row["value"])]
    if not ended:
        return Error(*4 * [float("nan")], diverged=len(rows))
    off = np.array([row["value"] - row["truth"] for row in ended])
    errors = np.array(
        [np.nan if row.get("std_error") is None else row["std_error"] for row in ended], dtype=float
    )
    inside = np.abs(off) <= 2 * errors + 1e-13 * np.abs([row["truth"] for row in ended])
    within = (
        float(np.mean(inside[np.isfinite(errors)])) if np.isfinite(errors).any() else float("nan")
    )
    size = np.abs(off)
    spread = size.std(ddof=1) / np.sqrt(len(size)) if len(size) > 1 else float("nan")
    seconds = float(np.mean([row["seconds"] for row in ended]))
    return Error(float(size.mean()), float(spread), within, seconds, len(rows) - len(ended))


def markdown(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += [
        "| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows
    ]
    return "\n".join(lines) + "\n"
