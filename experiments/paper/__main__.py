"""python -m experiments.paper [NAME ...] [--quick | --full] --out DIR [--minutes N] [--data DIR]
[--workers N] [--reference].

Without a name and without --quick or --full: what there is, and what it would take.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from zerovar.io.atomic import atomic

from . import (
    choices,
    claims,
    costs,
    coverage,
    front,
    gaussian_processes,
    genz,
    grid_edges,
    lidar,
    logistic,
    lotka_volterra,
    polynomials,
    propositions,
    reasons,
)
from .files import read_about, read_csv
from .harness import (
    FULL,
    QUICK,
    MissingData,
    Row,
    Size,
    Study,
    TimeIsUp,
    collect,
    duration,
    expected_seconds,
    finished_jobs,
    key,
    wanted_jobs,
)
from .references import keep

STUDIES: dict[str, Study] = {
    study.NAME: study
    for study in (
        propositions,
        polynomials,
        genz,
        gaussian_processes,
        costs,
        lidar,
        lotka_volterra,
        logistic,
        reasons,
    )
}
REFERENCES = {lotka_volterra.NAME: lotka_volterra.reference, logistic.NAME: logistic.reference}
HERE = Path(__file__).parent
_AGAIN = "The same command goes on from there."


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.paper",
        description="Re-run the paper's experiments with zerovar.",
    )
    parser.add_argument(
        "names",
        nargs="*",
        choices=[*STUDIES, []],
        metavar="NAME",
        help=f"one or more of {', '.join(STUDIES)}",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=HERE,
        help="writes RESULTS.md there, and results/ with tables and pictures",
    )
    parser.add_argument(
        "--quick", action="store_true", help="two repetitions of a few settings, in minutes"
    )
    parser.add_argument(
        "--full", action="store_true", help="all of it; the default for a study that is named"
    )
    parser.add_argument(
        "--repetitions",
        type=int,
        default=FULL.repetitions,
        help="of the full size (default 20, as printed)",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        help="begin nothing new after so many; the same command goes on later",
    )
    parser.add_argument(
        "--data", type=Path, default=_data_folder(), help="folder with lidar.csv and the like"
    )
    parser.add_argument("--workers", type=int, help="processes; default one a core")
    parser.add_argument(
        "--reference",
        action="store_true",
        help=f"only compute again what {' and '.join(REFERENCES)} are compared with",
    )
    parser.add_argument(
        "--pages",
        action="store_true",
        help="run nothing: only write pages and pictures again from the tables",
    )
    arguments = parser.parse_args()
    if arguments.pages:
        page(arguments.out)
        pictures(arguments.out)
        print(f"{arguments.out / 'README.md'}")
        return 0
    if arguments.quick and arguments.full:
        parser.error("--quick or --full, not both")
    if arguments.quick and arguments.out.resolve() == HERE:
        parser.error("--quick needs --out DIR: the committed results are those of --full")
    if arguments.reference and not set(arguments.names) <= set(REFERENCES):
        parser.error(f"only {' and '.join(REFERENCES)} have references")
    if not (arguments.names or arguments.quick or arguments.full or arguments.reference):
        overview(arguments.out)
        return 0
    try:
        return _work(arguments)
    except TimeIsUp as stop:
        print(f"{stop}. {_AGAIN}", file=sys.stderr)
        return 75
    except KeyboardInterrupt:
        print(f"Interrupted; jobs that ended are kept. {_AGAIN}", file=sys.stderr)
        return 130


def _work(arguments: argparse.Namespace) -> int:
    size = QUICK if arguments.quick else FULL._replace(repetitions=arguments.repetitions)
    missing = 0
    for name in arguments.names or (REFERENCES if arguments.reference else STUDIES):
        try:
            if arguments.reference:
                keep(REFERENCES[name](arguments.data, arguments.workers))
            else:
                run(
                    STUDIES[name],
                    arguments.out,
                    size,
                    arguments.data,
                    arguments.workers,
                    arguments.minutes,
                )
        except MissingData as error:
            print(f"{name}: not run. {error}", file=sys.stderr)
            missing += 1
    if arguments.reference:
        return missing
    page(arguments.out)
    print(f"{arguments.out / 'RESULTS.md'}")
    return 1 if missing and arguments.names else 0


def run(
    study: Study,
    out: Path,
    size: Size,
    data: Path | None,
    workers: int | None,
    minutes: float | None = None,
) -> None:
    rows = collect(study, out / "results", size, data, workers, minutes)
    study.figure(rows, out / "results" / f"{study.NAME}.png")


def overview(out: Path) -> None:
    """A table of the studies: what each is, how far it is, and how long it takes on one core."""
    table = Table("name", "what", "jobs", "done", "one core, whole", "one core, left")
    for name, study in STUDIES.items():
        jobs, done = wanted_jobs(study, FULL), finished_jobs(name, out / "results")
        left = [job for job in jobs if key(job) not in done]
        times = (
            duration(expected_seconds(part, done)) if part else "nothing" for part in (jobs, left)
        )
        table.add_row(name, study.TITLE, str(len(jobs)), str(len(jobs) - len(left)), *times)
    Console().print(table)
    print(
        "python -m experiments.paper NAME ... runs what is left; --quick --out DIR is a short look "
        "at all of it, in minutes."
    )
    print("--minutes 10 works in pieces: the same command goes on where it stopped.")


def page(out: Path) -> None:
    """RESULTS.md from the tables that are there, and the front page where all are."""
    for name, written in pages(out).items():
        with atomic(out / name) as temporary:
            temporary.write_text(written)


def pictures(out: Path) -> None:
    """Of the tables that are there, and of the front page where all are."""
    abouts, tables = _read(out)
    for name in tables:
        STUDIES[name].figure(tables[name], out / "results" / f"{name}.png")
    if _whole(abouts, tables) == set(STUDIES):
        front.figure(tables, out / "results" / "front.png")


def _read(out: Path) -> tuple[dict[str, Any], dict[str, list[Row]]]:
    """What the tables say of themselves, and the tables."""
    abouts = {name: about for name in STUDIES if (about := read_about(name, out / "results"))}
    return abouts, {name: read_csv(out / "results" / f"{name}.csv") for name in abouts}


def _whole(abouts: dict[str, Any], tables: dict[str, list[Row]]) -> set[str]:
    """Studies with all of their parts, in full."""
    return {
        name
        for name in abouts
        if not abouts[name]["quick"] and _parts(tables[name]) == set(STUDIES[name].VERSIONS)
    }


def pages(out: Path) -> dict[str, str]:
    """RESULTS.md, and README.md where all tables are there: functions of the tables alone."""
    abouts, tables = _read(out)
    whole = _whole(abouts, tables)
    found = claims.judged({name: tables[name] for name in whole})
    made = {"RESULTS.md": _results(abouts, tables, found)}
    if whole == set(STUDIES):
        titles = {name: study.TITLE for name, study in STUDIES.items()}
        made["README.md"] = front.text(tables, found, titles)
    return made


def _results(
    abouts: dict[str, Any], tables: dict[str, list[Row]], found: list[claims.Judged]
) -> str:
    parts = [
        "# The paper's experiments with zerovar\n",
        "Made by `python -m experiments.paper` from `results/*.csv`; settings, machines, versions, "
        "times and commits are in `results/*.json`. Most of these commits are of working copies "
        "that were joined before they came into this repository: they tell runs apart, but cannot "
        "be checked out from it.\n",
        "## The paper's recipe, and what it leaves open\n",
        "*As in the paper* means this, everywhere: plain mini-batch steps with a falling rate on "
        "the coefficients themselves, batches of 8, the printed epochs, penalties and families. "
        "What had to be chosen was chosen once, and not towards the print:\n",
        choices.choices(),
        "### The authors' program\n",
        "What is known of the public program, and what is run here in its name:\n",
        choices.program(),
    ]
    titles = {name: STUDIES[name].TITLE.split(":")[0].split(" (")[0] for name in tables}
    parts += [
        "### Where searches end at an end of their grid\n",
        "Fits whose choice is the smallest or the largest that was offered: something beyond it "
        "might have been better. λ = 10⁻¹⁴ is no penalty at all.\n",
        grid_edges.section(tables, titles),
    ]
    if found:
        full = {name: about for name, about in abouts.items() if not about["quick"]}
        parts += [
            "## What the paper says, and what comes out\n",
            claims.section(found),
        ]
        parts += ["## Where everything is\n", coverage.section(full)]
    for name, about in abouts.items():
        mark = (
            "**A quick run, to see that it works: its numbers mean little.** "
            if about["quick"]
            else ""
        )
        count = f"{about['repetitions']} repetition{'s' if about['repetitions'] > 1 else ''}"
        parts.append(f"## {STUDIES[name].TITLE}\n\n{mark}{count}. ![{name}](results/{name}.png)\n")
        parts.append(STUDIES[name].section(tables[name]))
    return "\n".join(parts)


def _parts(rows: list[Row]) -> set[str]:
    return {row["part"] for row in rows}


def _data_folder() -> Path | None:
    named = os.environ.get("ZEROVAR_DATA")
    return Path(named) / "data" if named else None


if __name__ == "__main__":
    sys.exit(main())
