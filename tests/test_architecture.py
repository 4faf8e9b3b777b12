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
    "": """environment progress interrupts arguments errors variables io hyper operators spaces
        inputs statistics kernels families objectives solvers fitting diagnostics output inference
        tuning choice chunked adapters events session probabilities estimation distributions
        sensitivities mixtures evidences integration summaries demonstration answer_files cli
        __main__""",
    "spaces": "base grid manifolds",
    "inputs": "points sample indices integrands coordinates effects terms density",
    "statistics": "ranks series quantiles tails rounding",
    "inference": "splits task answer fits facts rules ledger cautions conclude",
    "io": "atomic archive programs",
    "families": """base settling monomials differences polynomial kernel network lattice metrics
        anisotropic ridge_functions sparse_polynomial wavelets""",
    "solvers": """algebra terms stats scope windows base exact iterative training
        screening default""",
    "solvers/algebra": "memory threads dense tiles factors",
    "solvers/exact": "moments primal dual spectral streamed lasso moving_sums centres solver",
    "solvers/iterative": "products preconditioner conjugate shortest_residual stopping_rule primal "
    "dual solver",
    "solvers/training": "schedules batch_order whitening coordinates loop batch_schedule "
    "checkpoints driver trainer dual solver",
    "solvers/screening": "base_fits candidates solver",
    "tuning": "criteria descent grid tuned",
    "diagnostics": "identities space_identities layout outliers edges checks",
    "choice": """policy defaults candidates rivals race stacking structure automatic
        request""",
    "output": """formatting tables selection record plots report estimates densities evidences
        sensitivity_plots sensitivities frames""",
    "chunked": "arrays rows sums windows fits estimate",
    "adapters": """base chunks log_density arviz blackjax hierarchies numpyro_terms numpyro_spaces
        numpyro pymc_terms pymc models stan recognition files""",
    "summaries": "tables columns calls",
    "distributions": "marginals quantiles highest_density curves calls",
    "sensitivities": "slopes asking covariances jackknife powers subjects calls",
    "events": "panels quadrature crossings directions lines normal expressions quantities",
    "integration": "target modes importance second_opinion means",
    "evidences": """importance opening proposals bridge ladders rungs steps thermodynamic stepping
        belonging combination tempering feet sampling calls""",
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
        folder = "/".join(own[:depth])
        order = ORDER.get(folder, "").split()
        assert own[depth] in order, unlisted(folder, own[depth])
        if other[depth] in order:
            assert order.index(other[depth]) < order.index(own[depth]), (
                f"{'.'.join(own)} must not import {'.'.join(other)}: it stands below it in ORDER "
                f"[{folder!r}] of tests/test_architecture.py"
            )


def unlisted(folder: str, name: str) -> str:
    """What to do about a module that has no place in the order."""
    return (
        f"add {name!r} to ORDER[{folder!r}] of tests/test_architecture.py, behind all that it "
        "imports"
    )


def test_every_module_has_its_place():
    found = collections.defaultdict(set)
    for name in NAMES:
        *folder, leaf = name.removesuffix(".py").split("/")
        for depth in range(len(folder)):
            found["/".join(folder[:depth])].add(folder[depth])
        if leaf != "__init__":
            found["/".join(folder)].add(leaf)
    listed = {folder: set(order.split()) for folder, order in ORDER.items()}
    for folder in found:
        for name in sorted(found[folder] - listed.get(folder, set())):
            raise AssertionError(unlisted(folder, name))
    for folder in listed:
        gone = sorted(listed[folder] - found[folder])
        assert not gone, f"take {gone} out of ORDER[{folder!r}] of tests/test_architecture.py"


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
KNOWS_FAMILIES = {
    "__init__.py",
    "cli.py",
    "choice/candidates.py",
    "choice/defaults.py",
    "choice/rivals.py",
}


def concrete_families() -> set[str]:
    """Classes of `families/` that can be made."""
    found = set()
    for path in (SOURCE / "families").glob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                module = sys.modules.get(f"zerovar.families.{path.stem}")
                assert module is not None, (
                    f"add {node.name} of {path.name} to src/zerovar/families/__init__.py"
                )
                cls = getattr(module, node.name)
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
    assert {"Exact", "Spectral", "Nystrom", "Screening", "CG", "SGD", "DualSGD"} <= names
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


# Words that mean one thing wherever a parameter or a field has them: the types that it may have,
# besides None, and Any where an argument has not been checked yet. A new use of a word has another
# name, or the row says what both have in common.
WORDS = {
    "answer": {"Answer"},
    "base": {"AbstractKernel", "BaseFit"},
    "criterion": {"Criterion", "Differentiable"},
    "family": {"Family", "LinearFamily", "MonomialFamily", "Automatic"},
    "groups": {"Groups", "Sequence[Any]"},
    "length_scale": {"float"},
    "method": {"Method"},
    "monomials": {"np.ndarray", "list[Float[Array, 'p n']]"},
    "names": {"Sequence[str]", "list[str]", "tuple[str, ...]"},
    "objective": {"Objective", "LeastSquares"},
    "operator": {"Operator", "Langevin", "ScalarLangevin", "Barker"},
    "progress": {"bool"},
    "reason": {"str", "Reason"},
    "sample": {"Sample", "Posterior"},
    "seed": {"int"},
    "task": {"Task", "StreamedTask"},
    "weight": {"np.ndarray", "float"},
}


def types_of(node: ast.expr) -> set[str]:
    """The types of an annotation: the members of a union, without None and what is unchecked."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return types_of(node.left) | types_of(node.right)
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "eqx.AbstractVar":
        return types_of(node.slice)
    return {ast.unparse(node)} - {"None", "Any", "object"}


def annotations(tree: ast.AST) -> list[tuple[str, ast.expr]]:
    """Names and types of all parameters of functions and fields of classes."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            every = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            found += [(one.arg, one.annotation) for one in every if one.annotation is not None]
        elif isinstance(node, ast.ClassDef):
            found += [
                (field.target.id, field.annotation)
                for field in node.body
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
            ]
    return found


def test_a_parameter_or_field_means_one_thing():
    for path, place in zip(FILES, NAMES, strict=True):
        for word, annotation in annotations(ast.parse(path.read_text(encoding="utf-8"))):
            other = types_of(annotation) - WORDS.get(word, types_of(annotation))
            assert not other, f"{place}: `{word}` is {other}, and elsewhere {WORDS[word]}"


def test_another_meaning_of_a_word_is_seen():
    tree = ast.parse("class A:\n    seed: str | None\ndef f(task: Task, sample: Any): ...")
    assert [(word, types_of(note)) for word, note in annotations(tree)] == [
        ("seed", {"str"}),
        ("task", {"Task"}),
        ("sample", set()),
    ]


# Functions are verbs or nouns. Participles that end in -ed are seen by their ending; these are the
# others.
PARTICIPLES = """
    begun bent bound broken brought chosen cut done drawn fallen felt found given gone grown held
    hidden kept known laid left lost made met paid risen seen sent shown sought spent taken told
    torn worn written built
"""
# After one of these a participle is what the verb is done to
VERBS = {"add", "as", "check", "require", "estimate", "find", "is", "keep", "make", "must"}
# Nouns and adjectives that end so, and what users call
NO_PARTICIPLES = {
    "cut": "the verb",
    "_cut": "the verb",
    "unweighted": "the family without its weights; classes of users have it",
    "_two_valued": "an adjective",
    "_two_sided": "an adjective",
}


def function_names(tree: ast.AST) -> set[str]:
    """All functions and methods, but for properties."""
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and not any("property" in ast.unparse(each) for each in node.decorator_list)
    }


def is_participle(name: str) -> bool:
    first, *_, last = 2 * name.strip("_").split("_")
    if first in VERBS:
        return False
    return (last.endswith("ed") and len(last) > 4) or last in PARTICIPLES.split()


def test_functions_are_verbs_or_nouns():
    names = set()
    for path in FILES:
        names |= function_names(ast.parse(path.read_text(encoding="utf-8")))
    found = {name for name in names if is_participle(name)} - NO_PARTICIPLES.keys()
    assert not found, "name them by a verb in the imperative or a noun"


def test_participles_are_seen():
    assert all(map(is_participle, ["told", "_thinned", "well_chosen", "__centred"]))
    assert not any(
        map(is_participle, ["tell", "thin", "seed", "split", "is_known", "_find_centred"])
    )


# Of each folder that has more than a few, and of all others together
MOST_NUMBERS = {
    "evidences": 35,
    "solvers": 28,
    "choice": 27,
    "integration": 23,
    "events": 29,
    "statistics": 21,
    "mixtures": 16,
    "diagnostics": 13,
    "distributions": 10,
}
MOST_ELSEWHERE = 47


def numbers_of(name: str, text: str) -> dict[str, bool]:
    """Names at the top of a module whose values contain a number, and the fields of `Policy`; and
    whether each has its reason: a comment on its lines or above them, or words in a field."""
    tree, lines = ast.parse(text), text.splitlines()
    fields = [
        node
        for policy in tree.body
        if isinstance(policy, ast.ClassDef) and policy.name == "Policy"
        for node in policy.body
    ]
    found = {}
    for node in (*tree.body, *fields):
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            continue
        constants = [
            type(part.value) for part in ast.walk(node.value) if isinstance(part, ast.Constant)
        ]
        if node not in fields and not {int, float, complex} & set(constants):
            continue
        above = lines[node.lineno - 2].strip() if node.lineno > 1 else ""
        own = lines[node.lineno - 1 : node.end_lineno]
        commented = above.startswith("#") or any("#" in line for line in own)
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            for part in target.elts if isinstance(target, ast.Tuple) else [target]:
                has_reason = commented or (node in fields and str in constants)
                found[f"{name}: {ast.unparse(part)}"] = has_reason
    return found


def test_numbers_are_few():
    """Each number is one more thing to know: there are few, and each has its reason beside it. So
    that no folder spends what another has saved, each has a bound of its own."""
    bounds = MOST_NUMBERS | {"": MOST_ELSEWHERE}
    count = dict.fromkeys(bounds, 0)
    for path, name in zip(FILES, NAMES, strict=True):
        found = numbers_of(name, path.read_text(encoding="utf-8"))
        bare = [name for name, has_reason in found.items() if not has_reason]
        assert not bare, f"each number has a comment with its reason: {bare}"
        folder = name.split("/")[0].removesuffix(".py")
        count[folder if folder in count else ""] += len(found)
    assert count == {folder: min(count[folder], most) for folder, most in bounds.items()}


def test_numbers_are_counted():
    text = "A, B = 1, 2\n\n# why\nC = (f(3.0),)\nD: int = 4  # why\nE = 'x'\nF = True\n"
    assert numbers_of("m", text) == {"m: A": False, "m: B": False, "m: C": True, "m: D": True}


def test_what_takes_long_to_import_is_imported_when_used():
    heavy = [f"scipy.{part}" for part in ("linalg", "optimize", "special", "stats")]
    heavy += ["optax", "arviz_stats", "dask", "matplotlib", "pandas", "rich.console", "xarray"]
    heavy += [f"zerovar.solvers.{part}" for part in ("iterative.dual", "training.loop")]
    script = f"import sys, zerovar; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_files_are_short():
    long = {
        path.name: count
        for path in FILES
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > 400
    }
    assert not long


def test_public_names_are_what_users_are_handed_or_subclass():
    modules = {"centres", "kernels", "metrics", "plots", "schedules", "spaces"}
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
    assert graph["summaries"]["session"] == 2
    assert graph["solvers"]["families"] > 1
    assert all(order.index(other) < order.index(part) for part in graph for other in graph[part])
