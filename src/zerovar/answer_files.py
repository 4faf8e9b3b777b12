"""Where a command's answer goes: to the terminal, and to the files that were asked for."""

import argparse
import csv
import dataclasses
import io
import json
import sys
from pathlib import Path

from rich.console import Console

from .io.atomic import atomic, destination
from .output import Estimate, Evidence

_FORMULA = tuple("=+-@\t\r\n")  # spreadsheets take text that begins so for a formula


def as_output(text: str) -> Path:
    """Return a path, or - for standard output."""
    # that device may be a file, which what is printed goes to as well
    return Path("-" if text == "/dev/stdout" else text)


def check_outputs(options: argparse.Namespace) -> None:
    """Raise an error for what cannot be written, before the work."""
    outputs = _outputs(options)
    if outputs.count(Path("-")) > 1:
        raise ValueError("only one of --json and --csv can go to standard output")
    for path in outputs:
        if path != Path("-"):
            destination(path)
    for name, path in (("--figure", options.figure), ("--report", options.report)):
        if path == Path("-"):
            raise ValueError(f"{name} needs a file: it cannot go to standard output")


def _outputs(options: argparse.Namespace) -> list[Path]:
    return [
        path
        for path in (options.json, options.csv, options.figure, options.report)
        if path is not None
    ]


def write_outputs(
    options: argparse.Namespace, result: Estimate | Evidence, origin: dict[str, str]
) -> int:
    """Show an answer on the terminal, and write it to the files that were asked for."""
    if isinstance(result, Estimate):
        result = dataclasses.replace(result, settings=result.settings | origin)
    if Path("-") in _outputs(options):
        for text in result.warnings:
            print(f"zerovar: {text}", file=sys.stderr)
    else:
        print_answer(result)
    if options.json:
        _write(options.json, json.dumps(result.to_dict(), indent=2, allow_nan=False) + "\n")
    if options.csv:
        _write(options.csv, _csv(result))
    try:
        if options.figure:
            result.plot(options.figure)
    except ImportError as error:
        raise ValueError(str(error)) from error
    if options.report:
        result.report(options.report)
    return 0


def print_answer(result: Estimate | Evidence) -> None:
    """Print an answer, in colours on a terminal."""
    console = Console()
    (console.print if console.is_terminal else print)(result)


def _csv(result: Estimate | Evidence) -> str:
    out = io.StringIO()
    records = result.to_dict()["estimates" if isinstance(result, Estimate) else "parts"]
    writer = csv.DictWriter(out, fieldnames=list(records[0]), lineterminator="\n")
    writer.writeheader()
    for record in records:
        formulas = {
            key: f"'{cell}"
            for key, cell in record.items()
            if isinstance(cell, str) and cell.startswith(_FORMULA)
        }
        writer.writerow(record | formulas)
    return out.getvalue()


def _write(path: Path, text: str) -> None:
    if path == Path("-"):
        sys.stdout.write(text)
        return
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
