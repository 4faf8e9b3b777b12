"""Make the environment of the Makefile, with the versions of constraints.txt.

    python3 scripts/install.py .venv plots        # what zerovar needs, with an extra: enough to run
    it from src/ python3 scripts/install.py .venv dev          # zerovar itself, editable, with all
    that tests and documentation need

The demonstration waits for the first of these, and half of what an ordinary installation takes is
not for it: a copy of pip in the environment, and a build of zerovar in an environment of its own.
So pip is that of the interpreter where it has one.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# pip would compile every module of every package, which takes longer than all else; Python compiles
# those that are imported
OPTIONS = [
    "install",
    "--quiet",
    "--disable-pip-version-check",
    "--no-compile",
    "--constraint",
    "constraints.txt",
]
# version of pip that installs into the environment of another interpreter
_FIRST_FOR_OTHERS = (22, 3)


def main(folder: str, extra: str) -> None:
    python = ROOT / folder / "bin" / "python"
    here = _pip_here()
    if not python.exists():
        subprocess.run(
            [sys.executable, "-m", "venv", *(["--without-pip"] if here else []), ROOT / folder],
            check=True,
        )
    if extra == "dev":
        subprocess.run([python, "-m", "ensurepip"], check=True, capture_output=True)
        pip, what = [python, "-m", "pip"], ["--editable", f".[{extra}]"]
    else:
        pip = [sys.executable, "-m", "pip", "--python", python] if here else [python, "-m", "pip"]
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        what = project["dependencies"] + project["optional-dependencies"][extra]
    subprocess.run([*pip, *OPTIONS, *what], cwd=ROOT, check=True)


def _pip_here() -> bool:
    """Whether this interpreter has a pip that can install for another one."""
    try:
        major, minor = metadata.version("pip").split(".")[:2]
    except metadata.PackageNotFoundError:
        return False
    return (int(major), int(minor)) >= _FIRST_FOR_OTHERS


if __name__ == "__main__":
    main(*sys.argv[1:])
