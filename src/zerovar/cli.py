"""The command line: zerovar demo | estimate FILE | check FILE."""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
import warnings
import zipfile
from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from .checks import check
from .errors import NumericalError, ZerovarWarning
from .estimate import estimate
from .families import Family, Kernel, Polynomial
from .files import atomic
from .result import Estimate
from .sample import Sample
from .splits import Split, cross_fit, holdout, in_sample

FAMILIES: dict[str, Family] = {
    "linear": Polynomial(1),
    "quadratic": Polynomial(2),
    "cubic": Polynomial(3),
    "kernel": Kernel(),
    "quadratic+kernel": Polynomial(2, weight=np.inf) + Kernel(),
}
SPLITS: dict[str, Split] = {"in-sample": in_sample(), "holdout": holdout(), "cross-fit": cross_fit()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 if all is well, 1 if a check failed, 2 for bad input, as argparse has it."""
    options = _parser().parse_args(arguments)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ZerovarWarning)  # they stand under the table, or go to standard error
            return options.run(options)
    except (ValueError, NumericalError, OSError) as error:
        print(f"zerovar: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("zerovar: interrupted; nothing was written", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="zerovar", description="Means of integrands over Monte Carlo draws, made precise by control variates."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="the eight schools posterior that ships with zerovar: a table and a picture")
    demo.add_argument(
        "--figure", type=Path, default=Path("zerovar-demo.png"), help="where to save the picture (default: %(default)s)"
    )
    demo.set_defaults(run=_demo)

    run = commands.add_parser(
        "estimate",
        help="estimate from a file",
        description="FILE is an .npz with arrays draws and scores, (n, d) or (chain, draw, d); optionally values, (n, q) or "
        "(chain, draw, q); names, q strings; log_weights, (n,). Without values, the means of the draws are estimated.",
        epilog="example: zerovar estimate posterior.npz --family quadratic --json answer.json",
    )
    run.add_argument("file", type=Path)
    run.add_argument("--family", choices=FAMILIES, help="control variates to use (default: chosen for each integrand)")
    run.add_argument("--split", choices=SPLITS, help="which draws fit and which estimate, for one family (default: in-sample)")
    run.add_argument("--json", type=Path, metavar="PATH", help="write the answer as JSON ('-' for standard output)")
    run.add_argument("--csv", type=Path, metavar="PATH", help="write the table as CSV ('-' for standard output)")
    run.add_argument("--figure", type=Path, metavar="PATH", help="save a picture of plain against controlled estimates")
    run.set_defaults(run=_estimate)

    test = commands.add_parser("check", help="test whether the scores in a file belong to its draws; exit status 1 if not")
    test.add_argument("file", type=Path)
    test.set_defaults(run=_check)
    return parser


def _demo(options: argparse.Namespace) -> int:
    with as_file(files("zerovar") / "data" / "eight_schools.npz") as path:
        arrays = _read(path)
    print(
        "Eight schools: effects of coaching, 4 chains of 1000 NUTS draws. Posterior means of mu, tau and the school effects:\n"
    )
    result = _estimated(arrays, None, None)
    _show(result)
    factor = float(np.median(result.gain))
    print(f"\nThe same draws, with errors as if there were {factor:.0f} times as many of them (median gain).")
    try:
        result.plot(options.figure)
        print(f"Picture: {options.figure}")
    except ImportError as error:
        print(f"No picture: {error}")
    return 0


def _estimate(options: argparse.Namespace) -> int:
    outputs = [path for path in (options.json, options.csv, options.figure) if path is not None]
    if outputs.count(Path("-")) > 1:
        raise ValueError("only one of --json and --csv can go to standard output")
    for path in outputs:
        if path != Path("-") and (path.is_dir() or not path.absolute().parent.is_dir()):
            raise ValueError(f"{path} cannot be written: it must be a file in a folder that exists")
    family = FAMILIES[options.family] if options.family else None
    split = SPLITS[options.split] if options.split else None
    result = _estimated(_read(options.file), family, split)
    if Path("-") in outputs:
        for text in result.warnings:
            print(f"zerovar: {text}", file=sys.stderr)
    else:
        _show(result)
    if options.json:
        _write(options.json, json.dumps(result.to_dict(), indent=2, allow_nan=False) + "\n")
    if options.csv:
        _write(options.csv, _csv(result))
    if options.figure:
        try:
            result.plot(options.figure)
        except ImportError as error:
            raise ValueError(str(error)) from error
    return 0


def _check(options: argparse.Namespace) -> int:
    arrays = _read(options.file)
    verdict = check(Sample(arrays["draws"], arrays["scores"], arrays.get("log_weights")))
    print(verdict)
    return 0 if verdict.ok else 1


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise ValueError(f"{path}: no such file")
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is not an .npz file; expected one with arrays draws and scores")
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (ValueError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    missing = [name for name in ("draws", "scores") if name not in arrays]
    if missing:
        raise ValueError(f"{path} has no array {' or '.join(missing)}; it has {', '.join(arrays) or 'nothing'}")
    return arrays


def _estimated(arrays: dict[str, Any], family: Family | None, split: Split | None) -> Estimate:
    names = [str(name) for name in np.atleast_1d(arrays["names"]).astype(str)] if "names" in arrays else None
    values, weights = arrays.get("values"), arrays.get("log_weights")
    return estimate(arrays["draws"], arrays["scores"], values, family=family, split=split, names=names, log_weights=weights)


def _show(result: Estimate) -> None:
    console = Console()
    if console.is_terminal:
        console.print(result)
    else:
        print(result)


def _csv(result: Estimate) -> str:
    out = io.StringIO()
    records = result.to_dict()["estimates"]
    writer = csv.DictWriter(out, fieldnames=list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return out.getvalue()


def _write(path: Path, text: str) -> None:
    if path == Path("-"):
        sys.stdout.write(text)
        return
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
