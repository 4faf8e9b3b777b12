"""python -m benchmarks [NAME] [--quick]: one of those below, or all of them."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from zerovar.choice import Policy

from . import calibration
from .harness import write

# Modules, whose `measure` takes the options, prints tables and returns what the file keeps
BENCHMARKS = (
    "exact",
    "sgd",
    "automatic",
    "adapters",
    "scale",
    "calibration",
    "integrate",
    "intervals",
    "modes",
    "evidence",
    "sensitivities",
    "metrics",
    "wavelets",
    "checks",
    "dimensions",
    "states",
    "spaces",
    "peers",
    "stream",
    "device",
)


def varied(changes: list[str]) -> Policy:
    """The numbers of the choice with these, NAME=VALUE, in place of their own."""
    known = {name: value for name, value, *_ in Policy().explain()}
    found = {}
    for name, _, value in (change.partition("=") for change in changes):
        if name not in known or not isinstance(known[name], (int, float)):
            raise ValueError(
                f"--vary: {name!r} is no number of the choice; they are {', '.join(known)}"
            )
        found[name] = type(known[name])(float(value))
    return Policy(**found)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "what",
        nargs="?",
        choices=(*BENCHMARKS, "all"),
        default="all",
        help="default: %(default)s",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="small sizes and no tuning, to see that everything runs",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("benchmarks/out"),
        help="folder for the JSON (default: %(default)s)",
    )
    parser.add_argument(
        "--data",
        type=Path,
        help="folder with posteriors/ (*.npz, truth.json), sonar.csv, madelon_train.csv.gz",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the samples of `checks`")
    parser.add_argument(
        "--processes",
        type=int,
        help="that share the calls of `integrate` and `intervals` (default: one a core)",
    )
    parser.add_argument(
        "--peers",
        action="store_true",
        help="`evidence` beside dynesty, pymbar and others, and nothing else",
    )
    parser.add_argument(
        "--vary",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a number of the automatic choice, such as pilot=2000",
    )
    shared = "`intervals` has --draws and --replicates too, and `evidence` these and --only"
    calibration.add_options(parser.add_argument_group("calibration", shared))
    options = parser.parse_args()
    try:
        options.policy = varied(options.vary)
    except ValueError as error:
        parser.error(str(error))
    for name in BENCHMARKS if options.what == "all" else (options.what,):
        benchmark = importlib.import_module(f".{name}", __package__)
        write(options.out / f"{name}.json", benchmark.measure(options))


if __name__ == "__main__":
    main()
