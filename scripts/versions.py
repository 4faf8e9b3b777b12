"""Run the core of the tests on the oldest versions that zerovar allows (`make lowest`), or on the
newest, with those of PyMC, nutpie and BlackJAX (`make highest`).

The oldest are those of lowest.txt. The newest are whatever is to be had on the day for this
interpreter, so that run can fail without a change of zerovar: it tells what to expect, and is no
part of `.ci/run`.

    make lowest                        # with python3
    make highest PYTHON=python3.13     # with another interpreter

The environment is made anew and left in build/. lowest.txt is made by

    uv pip compile --resolution lowest-direct --python-version 3.11 --extra test pyproject.toml
    --no-annotate -o lowest.txt
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Fits against R and NumPy, families against automatic differentiation, errors, checks, files, the
# table, traces; calibration takes long and shows nothing of versions
CORE = (
    "golden",
    "regression",
    "operators_families",
    "exact",
    "estimate",
    "checks",
    "files",
    "summary",
    "traces",
)
CHOSEN = ["-m", "not whole", "-k", "not calibrated and not false_alarms"]
# What is installed beside the core. The newest samplers are tried too, adapter by adapter and by
# their pages; what they and the lowest of the core allow each other is not known
EXTRAS = {"lowest": [".[test]"], "highest": [".[test,blackjax,pymc]", "emcee", "funsor"]}
PAGES = ["-m", "whole", "-k", "eight_schools", "tests/test_samplers.py"]


def main(wanted: str) -> int:
    started = time.perf_counter()
    environment = ROOT / "build" / f"{wanted}-{sys.version_info.major}.{sys.version_info.minor}"
    shutil.rmtree(environment, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    python = environment / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    choice = ["--constraint", "lowest.txt"] if wanted == "lowest" else ["--upgrade"]
    subprocess.run([*pip, *choice, *EXTRAS[wanted]], cwd=ROOT, check=True)
    print(f"installed in {time.perf_counter() - started:.0f} s", flush=True)
    subprocess.run([environment / "bin" / "zerovar", "info"], check=True)
    settings = {
        "JAX_COMPILATION_CACHE_DIR": environment / "compiled",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.03",
    }
    settings |= {"OPENBLAS_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    highest = wanted == "highest"
    core = [*CORE, "samplers"] if highest else CORE
    runs = [[*CHOSEN, *(f"tests/test_{name}.py" for name in core)], *([PAGES] if highest else [])]
    run = [
        python,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--numprocesses",
        "auto",
        "--maxprocesses",
        "8",
    ]
    if not highest:  # what old versions of others say of each other is not ours to mend
        run += ["-W", "default::DeprecationWarning"]
    env = os.environ | {name: str(value) for name, value in settings.items()}
    failed = [subprocess.run([*run, *tests], cwd=ROOT, env=env).returncode for tests in runs]
    print(
        f"{wanted} versions, Python {sys.version.split()[0]}: {time.perf_counter() - started:.0f} s"
    )
    return max(failed)


if __name__ == "__main__":
    if sys.argv[1:] not in (["lowest"], ["highest"]):
        raise SystemExit("say which: python scripts/versions.py lowest, or highest")
    raise SystemExit(main(sys.argv[1]))
