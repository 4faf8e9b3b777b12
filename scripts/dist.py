"""Build the source archive and the wheel, and use the wheel as a stranger would (`make dist`).

The wheel is made from the source archive, so that nothing is missing in either. It is installed
into an environment that has nothing else; there, in an empty folder, the README's first examples
and `zerovar demo` run. The two files are left in dist/.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
import time
import zipfile
from pathlib import Path

from extras import install, page, run
from pages import ROOT, text_of

SHIPPED = {"zerovar/py.typed", "zerovar/data/eight_schools.npz", "zerovar/data/report.html"}
# what a page that lists packages shows: a licence by its SPDX name, and no addresses while there is
# no public home
WANTED = (
    "License-Expression: MIT",
    "License-File: LICENSE",
    "Requires-Python: >=3.11",
    "Classifier: Typing :: Typed",
)
UNWANTED = ("Project-URL:", "Home-page:")


def version() -> str:
    return re.search(r'^__version__ = "(.+)"$', text_of("src/zerovar/environment.py"), flags=re.M)[
        1
    ]


def problems(wheel: Path) -> list[str]:
    """What is wrong with a wheel, before it is installed."""
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        head = file.read(metadata).decode("utf-8").partition("\n\n")[0]
    wrong = [f"{name} is missing" for name in sorted(SHIPPED - names)]
    wrong += [
        f"its metadata lacks {line}"
        for line in (f"Version: {version()}", *WANTED)
        if line not in head.splitlines()
    ]
    wrong += [f"its metadata has {line}" for line in head.splitlines() if line.startswith(UNWANTED)]
    return wrong + [
        f"{name} is no part of the package"
        for name in names
        if not re.match(r"zerovar(-[\w.]+\.dist-info)?/", name)
    ]


def tried(wheel: Path, folder: Path) -> None:
    """The README's two lines, as they stand there, then the demonstration with its picture."""
    python, script, place = (
        folder / "fresh" / "bin" / "python",
        folder / "readme.py",
        folder / "empty",
    )
    run(sys.executable, "-m", "venv", folder / "fresh")
    install(python, f"{wheel}[numpyro]")
    place.mkdir()
    script.write_text(page("README.md", 3), encoding="utf-8")
    run(python, "-I", script, cwd=place)
    install(python, f"{wheel}[plots]")
    run(python.parent / "zerovar", "demo", cwd=place)
    run(python.parent / "zerovar", "info", cwd=place)
    if not (place / "zerovar-demo.png").stat().st_size > 10_000:
        raise RuntimeError("zerovar demo left no picture")


def main() -> int:
    started = time.perf_counter()
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", "dist", ".")
    (wheel,), (source,) = (ROOT / "dist").glob("*.whl"), (ROOT / "dist").glob("*.tar.gz")
    wrong = problems(wheel)
    if wrong:
        print(f"{wheel.name}: " + "; ".join(wrong))
        return 1
    print(
        f"{source.name}, {source.stat().st_size / 1e6:.1f} MB; {wheel.name}, "
        f"{wheel.stat().st_size / 1e6:.1f} MB",
        flush=True,
    )
    with tempfile.TemporaryDirectory(prefix="zerovar-dist-") as name:
        tried(wheel, Path(name))
    print(
        "the wheel runs the README and the demonstration in a fresh environment; "
        f"{time.perf_counter() - started:.0f} s"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
