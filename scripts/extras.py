"""Try each extra alone, in an environment that has nothing else: run what the documentation shows
with it (`make extras`).

The environments begin as hard links to one that has the package without extras, so that each
installs only what its extra adds; versions are those of constraints.txt. Nothing is left behind.
`make dist` tries the extra numpyro, with the README.

    python scripts/extras.py                  # all
    python scripts/extras.py blackjax plots   # some
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pages import NOTEBOOK, ROOT, examples, text_of

# A package that is missing is named before the work, with a command that installs it.
PLAIN = """
import time
import numpy as np
import zerovar as zv

x = np.random.default_rng(0).normal(size=(2, 200, 2))
print(zv.estimate(x, -x, np.sin(x), family=zv.Polynomial(2)))
started = time.perf_counter()
for wide, package in (("wide", "pandas"), ("xarray", "xarray")):
    try:
        zv.summary(x, -x, fmt=wide)
    except ImportError as error:
        assert package in str(error) and "pip install '.[xarray]'" in str(error), error
    else:
        raise AssertionError(f"{package} is here without an extra: this environment shows nothing")
assert time.perf_counter() - started < 0.5
"""

# A picture and a report from the command line, as in `zerovar demo` but with a quick family.
PLOTS = """
from importlib.resources import files
from zerovar.cli import main

data = str(files("zerovar") / "data" / "eight_schools.npz")
shown = ["--figure", "out.png", "--report", "out.html"]
assert main(["estimate", data, "--family", "quadratic", *shown]) == 0
"""


def page(name: str, count: int | None = None) -> str:
    """The first examples of a page, or all."""
    return "\n".join(examples(text_of(name))[:count])


def notebook() -> str:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")


SHOWN = {
    "": PLAIN,
    "pymc": page("docs/samplers/pymc.md"),
    "dask": page("docs/large.md"),
    "blackjax": page("docs/samplers/blackjax.md"),
    "arviz": page("docs/samplers/arviz.md"),
    "plots,xarray": notebook(),
    "plots": PLOTS,
}  # those that take longest come first


def run(*command: str | Path, cwd: Path = ROOT) -> None:
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(done.stdout)


def install(python: Path, what: str) -> None:
    # what is imported is compiled then
    quiet = ("--quiet", "--disable-pip-version-check", "--no-compile")
    run(python, "-m", "pip", "install", *quiet, "--constraint", "constraints.txt", what)


def tried(extra: str, folder: Path, wheel: Path) -> str:
    """What went wrong with an extra, or nothing."""
    started = time.perf_counter()
    environment = folder / (extra or "none")
    try:
        shutil.copytree(folder / "base", environment, symlinks=True, copy_function=os.link)
        python = environment / "bin" / "python"
        if extra:
            install(python, f"{wheel}[{extra}]")
        installed = time.perf_counter()
        script, place = folder / f"{extra or 'none'}.py", folder / f"in {extra}"
        script.write_text(SHOWN[extra], encoding="utf-8")
        place.mkdir()
        run(python, "-I", script, cwd=place)
    except RuntimeError as error:
        return f"extra '{extra}':\n{error}"
    ended = time.perf_counter()
    print(
        f"{extra or 'no extra':<13} installed in {installed - started:.0f} s, ran in "
        f"{ended - installed:.0f} s",
        flush=True,
    )
    return ""


def main(wanted: list[str]) -> int:
    unknown = [extra for extra in wanted if extra not in SHOWN]
    if unknown:
        raise SystemExit(
            f"no such extra: {', '.join(unknown)}; there are {', '.join(filter(None, SHOWN))}"
        )
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="zerovar-extras-") as name:
        folder = Path(name)
        run(sys.executable, "-m", "venv", folder / "base")
        python = folder / "base" / "bin" / "python"
        run(
            python,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--wheel-dir",
            folder,
            ".",
        )
        (wheel,) = folder.glob("*.whl")
        install(python, str(wheel))
        print(f"the package alone: {time.perf_counter() - started:.0f} s", flush=True)
        with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
            problems = list(
                filter(None, pool.map(lambda extra: tried(extra, folder, wheel), wanted or SHOWN))
            )
    print(
        "\n".join(problems)
        or f"every extra is enough for what is shown with it; {time.perf_counter() - started:.0f} s"
    )
    return bool(problems)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
