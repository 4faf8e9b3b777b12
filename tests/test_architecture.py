"""The layout shows the architecture: imports go down only, inside the wings too; files are short; a
word means one thing."""

import ast
import collections
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import zerovar as zv
from zerovar import solvers

SOURCE = Path(__file__).parent.parent / "src" / "zerovar"
# For each folder, the order of what is in it: each may import only from those above it, and
# `__init__` from all of them.
ORDER = {
    "": """environment errors progress io hyper inputs statistics operators kernels families
        objectives solvers fitting diagnostics output inference tuning choice chunked adapters
        estimation integration summaries cli __main__""",
    "inputs": "points sample integrands coordinates",
    "statistics": "ranks series tails rounding",
    "inference": "splits task answers cautions conclude",
    "io": "atomic archive programs",
    "families": "base polynomial kernel network anisotropic ridge_functions sparse_polynomial",
    "solvers": "algebra terms stats scope windows base exact iterative training screening default",
    "solvers/algebra": "memory threads dense tiles factors",
    "solvers/exact": "moments primal dual spectral streamed lasso moving_sums centres solver",
    "solvers/iterative": "products preconditioner conjugate shortest_residual stopping_rule primal "
    "dual solver",
    "solvers/training": "schedules batch_order whitening coordinates loop batch_schedule "
    "checkpoints driver trainer dual solver",
    "solvers/screening": "base_fits candidates solver",
    "tuning": "criteria descent grid tuned",
    "diagnostics": "identities layout outliers checks",
    "choice": "policy defaults candidates race stacking automatic",
    "output": "formatting selection record plots report estimates frames",
    "chunked": "arrays rows sums windows fits estimate",
    "adapters": "base chunks log_density arviz blackjax hierarchies numpyro pymc models stan "
    "recognition files",
    "integration": "target modes proposals importance evidence second_answer means",
}
FILES = sorted(SOURCE.rglob("*.py"))
NAMES = [str(path.relative_to(SOURCE)) for path in FILES]


def imported(path: Path) -> set[tuple[str, ...]]:
    """What a file imports of zerovar, as paths from the root, also inside functions."""
    package = path.relative_to(SOURCE).parts[:-1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1] + tuple(
                (node.module or "").split(".") if node.module else ()
            )
            found |= {(*base, alias.name) for alias in node.names}
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names = (
                [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else [alias.name for alias in node.names]
            )
            assert not any(name.split(".")[0] == "zerovar" for name in names), (
                "imports inside are relative"
            )
    return found


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_imports_go_down(path):
    own = path.relative_to(SOURCE).with_suffix("").parts
    for other in imported(path):
        depth = next(
            (k for k, pair in enumerate(zip(own, other, strict=False)) if pair[0] != pair[1]), None
        )
        if depth is None or own[depth] == "__init__":
            continue
        order = ORDER["/".join(own[:depth])].split()
        if other[depth] in order:
            assert order.index(other[depth]) < order.index(own[depth]), (
                f"{'.'.join(own)} must not import {'.'.join(other)}"
            )


def test_every_module_has_its_place():
    found = collections.defaultdict(set)
    for name in NAMES:
        *folder, leaf = name.removesuffix(".py").split("/")
        for depth in range(len(folder)):
            found["/".join(folder[:depth])].add(folder[depth])
        if leaf != "__init__":
            found["/".join(folder)].add(leaf)
    assert dict(found) == {folder: set(order.split()) for folder, order in ORDER.items()}


def test_nothing_goes_round_in_circles():
    """Modules import modules in an order: what is imported inside functions counts too."""
    graph = {}
    known = {path.relative_to(SOURCE).with_suffix("").parts for path in FILES}

    def module(other):
        """The file that a name is imported from: a module, or a package."""
        paths = (other, (*other, "__init__"), other[:-1], (*other[:-1], "__init__"))
        return next(path for path in paths if path in known)

    for path in FILES:
        graph[path.relative_to(SOURCE).with_suffix("").parts] = {
            module(other) for other in imported(path)
        }
    done: set[tuple[str, ...]] = set()

    def visit(node, above):
        assert node not in above, " -> ".join(".".join(part) for part in (*above, node))
        if node not in done:
            for other in graph[node]:
                visit(other, (*above, node))
            done.add(node)

    for node in graph:
        visit(node, ())


# Families are asked, not recognised: only the choice, its defaults, the command line's table and
# the public names know them.
KNOWS_FAMILIES = {"__init__.py", "cli.py", "choice/candidates.py", "choice/defaults.py"}


def concrete_families() -> set[str]:
    """Classes of `families/` that can be made."""
    found = set()
    for path in (SOURCE / "families").glob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                cls = getattr(sys.modules[f"zerovar.families.{path.stem}"], node.name)
                if (
                    isinstance(cls, type)
                    and not getattr(cls, "__abstractmethods__", None)
                    and hasattr(cls, "describe")
                ):
                    found.add(node.name)
    return found


def test_no_module_knows_a_concrete_family():
    names = concrete_families()
    assert {
        "Polynomial",
        "Kernel",
        "Network",
        "MLP",
        "RidgeFunctions",
        "Anisotropic",
        "Sum",
        "Translates",
    } <= names
    for path, name in zip(FILES, NAMES, strict=True):
        if name.startswith("families/") or name in KNOWS_FAMILIES:
            continue
        used = {other[-1] for other in imported(path) if "families" in other}
        assert not used & names, f"{name} knows {used & names}: ask the family instead"


# Solvers declare what they can do: only the public names and the command line's table know them.
KNOWS_SOLVERS = {"__init__.py", "cli.py"}


def test_no_module_outside_solvers_knows_a_concrete_solver():
    names = {
        name
        for name in dir(solvers)
        if isinstance(cls := getattr(solvers, name), type)
        and issubclass(cls, zv.Solver)
        and not cls.__abstractmethods__
    }
    assert {"Exact", "Spectral", "Nystrom", "Screening", "CG", "SGD", "DualSGD"} == names
    for path, name in zip(FILES, NAMES, strict=True):
        if name.startswith("solvers/") or name in KNOWS_SOLVERS:
            continue
        used = {other[-1] for other in imported(path) if "solvers" in other}
        assert not used & names, f"{name} knows {used & names}: ask what the solver declares"


def test_a_word_means_one_thing():
    """Classes, public functions and aliases of types have one name each in the whole package."""
    places = collections.defaultdict(list)
    for path, name in zip(FILES, NAMES, strict=True):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [node.name] if isinstance(node, (ast.ClassDef, ast.FunctionDef)) else []
            if isinstance(node, ast.Assign):
                names = [
                    target.id
                    for target in node.targets
                    if isinstance(target, ast.Name) and not target.id.isupper()
                ]
            for word in names:
                if not word.startswith("_"):
                    places[word].append(name)
    assert not {word: where for word, where in places.items() if len(where) > 1}


def test_what_takes_long_to_import_is_imported_when_used():
    heavy = [f"scipy.{part}" for part in ("linalg", "optimize", "special", "stats")]
    heavy += ["optax", "arviz_stats", "dask", "matplotlib", "pandas", "rich.console", "xarray"]
    heavy += [f"zerovar.solvers.{part}" for part in ("iterative.dual", "training.loop")]
    script = f"import gc, sys, zerovar; print([name for name in {heavy} if name in sys.modules])"
    script += "; print(gc.isenabled(), gc.get_freeze_count())"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]\nTrue 0", "and the collector is as the user had it"


def test_files_are_short():
    long = {
        path.name: count
        for path in FILES
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > 400
    }
    assert not long


def test_public_names_are_what_users_are_handed_or_subclass():
    modules = {"centres", "kernels", "plots", "schedules"}
    assert set(dir(zv)) == set(zv.__all__)
    assert {name for name in dir(zv) if type(getattr(zv, name)) is type(zv)} == modules
    assert {
        "Selection",
        "Tuned",
        "Check",
        "BasisFamily",
        "LinearFamily",
        "Solver",
        "Prepared",
        "Estimate",
        "Fitted",
    } <= set(dir(zv))
    import zerovar.estimation as module  # no function hides its module

    assert type(module) is type(zv)


def test_the_drawing_is_that_of_the_code():
    """`make drawing` would write what is there; and it has a dot for an import that is known, and
    none above the diagonal."""
    spec = importlib.util.spec_from_file_location(
        "drawing", SOURCE.parent.parent / "scripts" / "drawing.py"
    )
    drawing = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(drawing)
    assert drawing.DRAWING.read_text(encoding="utf-8") == drawing.drawn(), "run `make drawing`"
    graph, order = drawing.imports(), [part for row in drawing.rows() for part in row]
    assert graph["summaries"]["estimation"] == 1
    assert graph["solvers"]["families"] > 1
    assert all(order.index(other) < order.index(part) for part in graph for other in graph[part])
