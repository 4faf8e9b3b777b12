"""python -m experiments.paper [NAME ...] --out DIR [--quick | --full] [--data DIR] [--workers N] [--reference]."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from zerovar.io.atomic import atomic

from . import costs, gaussian_processes, genz, lidar, logistic, lotka_volterra, polynomials
from .harness import FULL, QUICK, MissingData, Size, Study, collect
from .references import keep

STUDIES: dict[str, Study] = {
    study.NAME: study for study in (polynomials, genz, gaussian_processes, costs, lidar, lotka_volterra, logistic)
}
REFERENCES = {lotka_volterra.NAME: lotka_volterra.reference, logistic.NAME: logistic.reference}
HERE = Path(__file__).parent


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.paper", description="Re-run the paper's experiments with zerovar."
    )
    parser.add_argument("names", nargs="*", choices=[*STUDIES, []], metavar="NAME", help=f"default all: {', '.join(STUDIES)}")
    parser.add_argument("--out", type=Path, default=HERE, help="writes RESULTS.md there, and results/ with tables and pictures")
    parser.add_argument("--quick", action="store_true", help="two repetitions of a few settings, in minutes")
    parser.add_argument(
        "--full", action="store_true", help="20 repetitions, as printed (the default); resumes where it stopped"
    )
    parser.add_argument("--repetitions", type=int, default=FULL.repetitions, help="of the full size (default 20, as printed)")
    parser.add_argument("--data", type=Path, default=_data_folder(), help="folder with lidar.csv and the like")
    parser.add_argument("--workers", type=int, help="processes; default one a core")
    parser.add_argument(
        "--reference", action="store_true", help=f"only compute again what {' and '.join(REFERENCES)} are compared with"
    )
    arguments = parser.parse_args()
    if arguments.quick and arguments.full:
        parser.error("--quick or --full, not both")
    if arguments.quick and arguments.out.resolve() == HERE:
        parser.error("--quick needs --out DIR: the committed results are those of --full")
    if arguments.reference and not set(arguments.names) <= set(REFERENCES):
        parser.error(f"only {' and '.join(REFERENCES)} have references")
    size = QUICK if arguments.quick else FULL._replace(repetitions=arguments.repetitions)
    missing = 0
    for name in arguments.names or (REFERENCES if arguments.reference else STUDIES):
        try:
            if arguments.reference:
                keep(REFERENCES[name](arguments.data, arguments.workers))
                continue
            run(STUDIES[name], arguments.out, size, arguments.data, arguments.workers)
        except MissingData as error:
            print(f"{name}: not run. {error}", file=sys.stderr)
            missing += 1
    if arguments.reference:
        return missing
    page(arguments.out)
    print(f"{arguments.out / 'RESULTS.md'}")
    return 1 if missing and arguments.names else 0


def run(study: Study, out: Path, size: Size, data: Path | None, workers: int | None) -> None:
    folder = out / "results"
    rows = collect(study, folder, size, data, workers)
    study.figure(rows, folder / f"{study.NAME}.png")
    with atomic(folder / f"{study.NAME}.md") as temporary:
        temporary.write_text(study.section(rows))


def page(out: Path) -> None:
    """RESULTS.md from the sections that are there."""
    parts = ["# The paper's experiments with zerovar\n"]
    parts.append(
        "Made by `python -m experiments.paper`; tables are in `results/*.csv`, settings and versions in `results/*.json`.\n"
    )
    for name, study in STUDIES.items():
        section = out / "results" / f"{name}.md"
        if section.exists():
            about = json.loads((out / "results" / f"{name}.json").read_text())
            count = f"{about['repetitions']} repetition{'s' if about['repetitions'] > 1 else ''}"
            parts.append(f"## {study.TITLE}\n\n{count}. ![{name}](results/{name}.png)\n")
            parts.append(section.read_text())
    with atomic(out / "RESULTS.md") as temporary:
        temporary.write_text("\n".join(parts))


def _data_folder() -> Path | None:
    named = os.environ.get("ZEROVAR_DATA")
    return Path(named) / "data" if named else None


if __name__ == "__main__":
    sys.exit(main())
