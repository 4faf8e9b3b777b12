"""The layout shows the architecture: imports go one way, files stay short, the version is said once."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "zerovar"
# each may import only from those above it, and a folder's modules from their own folder's base upwards
ORDER = [
    "errors",
    "files",
    "sample",
    "operators",
    "kernels",
    "families",
    "objectives",
    "solvers",
    "integrands",
    "storage",
    "fitting",
    "splits",
    "std_errors",
    "runs",
    "criteria",
    "tuning",
    "checks",
    "cautions",
    "candidates",
    "automatic",
    "result",
    "chunked",
    "estimate",
    "loading",
    "adapters",
    "summary",
    "plots",
    "report",
    "reading",
    "cli",
    "__main__",
    "__init__",
]
# Estimate.plot and .report import what draws them when they are called, by design; those read the type that they draw
ALLOWED = {("result", "plots"), ("result", "report")}


def modules_imported(path: Path) -> set[str]:
    """First names under zerovar of everything that a file imports, also inside functions."""
    depth = len(path.relative_to(SOURCE).parts) - 1
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level == depth + 1:
            found |= {node.module.split(".")[0]} if node.module else {alias.name for alias in node.names}
    return found


FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(SOURCE)) for path in FILES])
def test_imports_go_one_way(path):
    name = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    for other in modules_imported(path):
        if (name, other) not in ALLOWED and other in ORDER:
            assert ORDER.index(other) <= ORDER.index(name), f"{name} must not import {other}"


def test_what_takes_long_to_import_is_imported_when_used():
    heavy = ["optax", "scipy.special", "scipy.stats", "scipy.optimize", "arviz_stats", "dask", "matplotlib", "pandas", "xarray"]
    script = f"import sys, zerovar; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_module_has_its_place():
    names = {path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in FILES}
    assert names == set(ORDER)


def test_files_are_short():
    long = {path.name: count for path in FILES if (count := len(path.read_text(encoding="utf-8").splitlines())) > 420}
    assert not long
