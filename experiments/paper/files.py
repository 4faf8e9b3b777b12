"""Tables and what they say of themselves, as files."""

from __future__ import annotations

import ast
import csv
import functools
import json
import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

from zerovar.io.atomic import atomic

Row = dict[str, Any]


def write_csv(path: Path, rows: list[Row]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    with atomic(path) as temporary, open(temporary, "w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)


def read_csv(path: Path) -> list[Row]:
    """Rows with numbers and truth values as they were, lists as tuples; what was empty is
    absent."""
    with open(path, newline="") as file:
        return [
            {name: parsed(text) for name, text in row.items() if text != ""}
            for row in csv.DictReader(file)
        ]


@functools.lru_cache(maxsize=100_000)  # most cells are repeated many times
def parsed(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    if text.startswith("["):
        return tuple(ast.literal_eval(text))
    return {"True": True, "False": False}.get(text, text)


def listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def read_about(name: str, out: Path) -> dict[str, Any]:
    """What a table says of itself; empty where there is none."""
    path = out / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}


@functools.cache
def provenance() -> dict[str, Any]:
    """Commit, machine and versions of what runs now."""
    found = {
        name: version(name) for name in ("zerovar", "jax", "equinox", "optax", "numpy", "scipy")
    }
    return {
        "commit": _commit(),
        "machine": _machine(),
        "versions": found | {"python": platform.python_version()},
    }


def _commit() -> str:
    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        ).stdout

    try:
        changed = git(
            "status",
            "--porcelain",
            "--untracked-files=no",
            "--",
            ":(top)src",
            ":(top)experiments/paper/*.py",
        )
        return git("rev-parse", "--short=12", "HEAD").strip() + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _machine() -> str:
    """Processor and cores."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(
            line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")
        )
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} cores"
