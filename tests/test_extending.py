"""The page on extending: its classes from module files in a scratch folder, what it says of joining
zerovar in a copy of the repository, and numbers that the documentation repeats."""

import importlib
import inspect
import itertools
import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from types import ModuleType, SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import zerovar as zv
from zerovar.choice import Policy
from zerovar.choice.rivals import offer_rivals
from zerovar.chunked import arrays
from zerovar.chunked import estimate as chunked_estimate
from zerovar.chunked import windows as chunk_windows
from zerovar.hyper import declarations
from zerovar.inference import rules
from zerovar.inputs import integrands
from zerovar.inputs.points import DRAWS_PER_TERM
from zerovar.solvers import Result
from zerovar.solvers.training import batch_schedule, coordinates
from zerovar.statistics.series import INDEPENDENT
from zerovar.tuning import descent
from zerovar.tuning.criteria import SteinGp

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
STEPS = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.S)
MODULES = {found[1]: block for block in BLOCKS if (found := re.match(r"# (\w+)\.py\n", block))}


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    """A folder with the page's modules, and their classes, imported from there."""
    folder = tmp_path_factory.mktemp("extending")
    for name, source in MODULES.items():
        (folder / f"{name}.py").write_text(source, encoding="utf-8")
    sys.path.insert(0, str(folder))
    found: dict[str, ModuleType] = {name: importlib.import_module(name) for name in MODULES}
    yield SimpleNamespace(
        folder=folder,
        Cauchy=found["cauchy"].Cauchy,
        Symmetric=found["symmetric"].Symmetric,
        Irreversible=found["irreversible"].Irreversible,
        NormalEquations=found["normal_equations"].NormalEquations,
        GeneralisedCrossValidation=found["gcv"].GeneralisedCrossValidation,
    )
    sys.path.remove(str(folder))
    for name in MODULES:
        del sys.modules[name]


def banana(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    z = np.random.default_rng(seed).normal(size=(n, 2))
    x = np.stack([z[:, 0], z[:, 1] + 0.3 * z[:, 0] ** 2], axis=1)
    return x, np.stack([-x[:, 0] + 0.6 * x[:, 0] * z[:, 1], -z[:, 1]], axis=1)


X, S = banana(400)
SAMPLE = zv.Sample(X, S)
VALUES = np.stack([np.cos(2 * X[:, 0]), X[:, 1]], axis=1)


def in_a_fresh_process(script: str, *path: Path) -> str:
    there = os.pathsep.join(map(str, path))
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": there},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---- the page


def test_the_page_has_the_modules_that_it_speaks_of():
    expected = {"cauchy", "symmetric", "irreversible", "normal_equations", "gcv", "few_draws"}
    assert set(MODULES) == expected


@pytest.mark.whole
def test_the_page_runs_with_its_modules_in_files(scratch, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", zv.ZerovarWarning)
        for block in BLOCKS:
            module = re.match(r"# (\w+)\.py\n", block)
            exec(
                compile(
                    f"from {module[1]} import *" if module else block, "docs/extending.md", "exec"
                ),
                names,
            )
    assert names["Cauchy"] is scratch.Cauchy, "the blocks that follow use the class of the file"
    printed = capsys.readouterr().out
    for expected in re.findall(r"```text\n(.*?)```", PAGE, flags=re.S):
        for line in expected.splitlines():
            assert line in printed


# ---- the kernel


def plain(p, q, z):
    return (1 + z / 2.88) ** -2.0  # ℓ = 1.2


@pytest.mark.usefixtures("x64")
def test_derivatives_of_the_kernel_are_those_of_autodiff(scratch):
    kernel, at = scratch.Cauchy(1.2), tuple(map(jnp.asarray, (0.3, 1.1, 0.7)))
    for order in itertools.product(range(5), repeat=3):
        if sum(order) > 4:
            continue
        expected = plain
        for argument, times in enumerate(order):
            for _ in range(times):
                expected = jax.grad(expected, argnums=argument)
        assert float(kernel.derivative(order, *at)) == pytest.approx(
            float(expected(*at)), rel=1e-12, abs=1e-15
        ), order


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("order", [1, 2])
def test_the_stein_kernel_is_the_autodiff_one(scratch, order):
    rng = np.random.default_rng(0)
    x, s, y, t = (jnp.asarray(rng.normal(size=(4, 3))) for _ in range(4))

    def k(a, b):
        return plain(a @ a, b @ b, (a - b) @ (a - b))

    def first(a, sa, b, tb):
        return zv.Langevin()(lambda u: jax.grad(k, argnums=1)(u, b) + k(u, b) * tb, a, sa)

    def second(a, sa, b, tb):
        return zv.ScalarLangevin()(lambda u: zv.ScalarLangevin()(lambda v: k(u, v), b, tb), a, sa)

    pair = first if order == 1 else second
    rows = jax.vmap(lambda a, sa: jax.vmap(lambda b, tb: pair(a, sa, b, tb))(y, t))
    expected = np.asarray(
        jax.jit(rows, compiler_options={"xla_backend_optimization_level": 0})(x, s)
    )
    gram = np.asarray(zv.Kernel(scratch.Cauchy(1.2), order).gram(x, s, y, t))
    assert np.abs(gram - expected).max() < 1e-10 * np.abs(expected).max()
    own = np.linalg.eigvalsh(np.asarray(zv.Kernel(scratch.Cauchy(1.2), order).gram(x, s, x, s)))
    assert own.min() > -1e-13 * own.max()


# ---- the family


@pytest.mark.usefixtures("x64")
def test_features_of_the_family_are_the_operator_by_hand(scratch):
    """L(uv) = u Lv + v Lu + 2 ∇u·∇v, from the three sums that the others are products of."""
    rng, d = np.random.default_rng(1), 5
    x, s = rng.normal(size=(6, d)), rng.normal(size=(6, d))
    neighbours = np.roll(x, 1, axis=1) + np.roll(x, -1, axis=1)
    square, near = np.sum(x**2, axis=1), np.sum(x * np.roll(x, 1, axis=1), axis=1)
    of_square = 2 * d + 2 * np.sum(x * s, axis=1)
    of_near = np.sum(neighbours * s, axis=1)
    of_quartic = 12 * square + 4 * np.sum(x**3 * s, axis=1)
    expected = [
        of_square,
        of_near,
        of_quartic,
        2 * square * of_square + 8 * square,
        square * of_near + near * of_square + 8 * near,
        2 * near * of_near + 2 * np.sum(neighbours**2, axis=1),
    ]
    family = scratch.Symmetric(4.0)
    features = np.asarray(jax.jit(lambda x, s: family.features(x, s))(x, s)) / 2
    np.testing.assert_allclose(features, np.stack(expected, axis=1), rtol=1e-12, atol=1e-12)
    assert features.shape[1] == scratch.Symmetric().num_features(d)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("which", ["kernel", "kernel of order 2", "family", "sum"])
def test_steins_identity_by_quadrature_in_one_dimension(scratch, which):
    kernel = zv.Kernel(scratch.Cauchy(1.2))
    family = {
        "kernel": kernel,
        "kernel of order 2": zv.Kernel(scratch.Cauchy(1.2), order=2),
        "family": scratch.Symmetric(),
        "sum": scratch.Symmetric() + kernel,
    }[which]
    # the trapezium rule is exact to rounding: π and its derivatives vanish at the ends
    x = np.linspace(-7, 7, 4001)[:, None]
    density = np.exp(-(x[:, 0] ** 4) / 4 + x[:, 0] / 2)
    y, gram = np.array([[-0.8], [0.3]]), jax.jit(lambda *points: family.gram(*points))

    def relative_means(score) -> np.ndarray:
        """|∫ g π| / ∫ |g| π."""
        g = np.asarray(gram(x, score(x), y, score(y)))
        return np.abs(density @ g) / (density @ np.abs(g))

    assert relative_means(lambda x: -(x**3) + 0.5).max() < 1e-11
    assert relative_means(lambda x: x**3 - 0.5).min() > 0.1, "a wrong sign must fail"
    assert relative_means(lambda x: -(x**3) + 1.0).min() > 0.01, "a wrong constant must fail"


@pytest.mark.usefixtures("x64")
def test_the_operator_has_mean_zero_by_quadrature(scratch):
    """Under a normal in three dimensions, since in fewer J is zero."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(8)
    grid = np.stack(np.meshgrid(nodes, nodes, nodes), axis=-1).reshape(-1, 3)
    p = np.prod(np.stack(np.meshgrid(weights, weights, weights), axis=-1), axis=-1).ravel()
    root = np.array([[1.0, 0, 0], [0.6, 0.8, 0], [-0.3, 0.5, 0.9]])
    x, s = grid @ root.T, -grid @ np.linalg.inv(root)
    family = zv.Polynomial(3, operator=scratch.Irreversible(2.0))

    def features(family, scores):
        return np.asarray(jax.jit(lambda *at: family.features(*at))(x, scores))

    def relative(scores):
        g = features(family, scores)
        return np.abs(p @ g) / (p @ np.abs(g))

    assert relative(s).max() < 1e-12
    assert relative(-s).max() > 0.1
    assert np.abs(features(family, s) - features(zv.Polynomial(3), s)).max() > 1


# ---- all of them in a fit


def in_standard_errors(fitted: zv.Fitted, reference: zv.Fitted) -> np.ndarray:
    """How far two intercepts are apart, in the reference's own standard error from its leave-out
    influences."""
    influences = len(SAMPLE) * reference.intercept_weights()[:, None] * reference.leave_out()
    return np.abs(fitted.intercept - reference.intercept) / (
        influences.std(axis=0) / np.sqrt(len(SAMPLE))
    )


@pytest.mark.parametrize("which", ["kernel", "family"])
def test_solvers_land_near_each_other(scratch, which):
    family = zv.Kernel(scratch.Cauchy(3.0)) if which == "kernel" else scratch.Symmetric()
    objective = zv.LeastSquares(zv.Ridge(1e-3))
    exact, iterated, trained = (
        zv.fit(family, SAMPLE, VALUES, objective, solver)
        for solver in (zv.Exact(), zv.CG(progress=False), zv.SGD(progress=False))
    )
    assert in_standard_errors(iterated, exact).max() < zv.CG().tolerance
    # kernels are trained at centres, which is a smaller space
    assert in_standard_errors(trained, exact).max() < 0.5
    wrong = zv.fit(family, zv.Sample(X, -S), VALUES, objective)
    assert in_standard_errors(wrong, exact).max() > 1.0, "the fit to wrong scores is not near"


# ---- the solver

ROUTES = {
    "no penalty": (zv.Polynomial(2), 0.0),
    "ridge": (zv.Polynomial(3), 1e-2),
    "free and penalised": (zv.Polynomial(3, weight=(np.inf, 2.0, 0.5)), 1e-2),
}


def repeated(n: int = 60) -> tuple[zv.Sample, np.ndarray]:
    """Draws with importance weights, some of them repeated: points count unequally."""
    rows = np.repeat(np.arange(n), np.random.default_rng(2).integers(1, 3, size=n))
    weights = np.random.default_rng(3).normal(size=n)
    return zv.Sample(X[rows], S[rows], 0.3 * weights[rows]), VALUES[rows]


@pytest.mark.parametrize("route", ROUTES)
def test_the_solver_is_exact(scratch, route):
    family, ridge = ROUTES[route]
    sample, values = repeated()
    ours, exact = (
        zv.fit(family, sample, values, zv.LeastSquares(zv.Ridge(ridge)), solver)
        for solver in (scratch.NormalEquations(), None)
    )
    blocks = np.array_split(np.arange(len(sample)), 7)
    for groups in (None, blocks):
        np.testing.assert_allclose(
            ours.leave_out(groups), exact.leave_out(groups), rtol=1e-7, atol=1e-9
        )
    np.testing.assert_allclose(ours.intercept, exact.intercept, rtol=1e-9)
    np.testing.assert_allclose(
        ours.intercept_weights(), exact.intercept_weights(), rtol=1e-7, atol=1e-12
    )
    np.testing.assert_allclose(ours.intercept_weights() @ values, ours.intercept, rtol=1e-9)
    np.testing.assert_allclose(ours(sample), exact(sample), rtol=1e-7, atol=1e-9)
    assert np.abs(ours.leave_out() - (values - ours.intercept - ours(sample))).max() > 1e-3, (
        "residuals in sample are not these"
    )


def test_leaving_out_is_what_refitting_gives(scratch):
    family, ridge, n, out = zv.Polynomial(3), 1e-2, 60, np.arange(12, 19)
    rest = np.setdiff1d(np.arange(n), out)

    def fit(rows, strength):
        sample, objective = zv.Sample(X[rows], S[rows]), zv.LeastSquares(zv.Ridge(strength))
        return zv.fit(
            family, sample, VALUES[rows], objective, scratch.NormalEquations(), standardise=False
        )

    groups = [out, *np.array_split(rest, 5)]
    quick = fit(np.arange(n), ridge).leave_out(groups)[out]
    slow = fit(rest, ridge * n / len(rest))  # the closed form keeps the other draws' weights, 1/n
    np.testing.assert_allclose(
        quick, VALUES[out] - slow.intercept - slow.at(X[out], S[out]), rtol=1e-7, atol=1e-9
    )


@pytest.mark.filterwarnings("ignore:The control variate does harm")  # a cubic, to cos 2x
def test_estimates_by_the_solver_are_those_of_exact(scratch):
    answers = [
        zv.estimate(
            X,
            S,
            VALUES,
            family=zv.Polynomial(3),
            objective=zv.LeastSquares(zv.Ridge(1e-3)),
            solver=solver,
        )
        for solver in (scratch.NormalEquations(), zv.Exact())
    ]
    assert answers[0].split == answers[1].split == "in sample"
    assert answers[0].stats.form == "normal equations"
    for name in ("value", "std_error", "covariance"):
        np.testing.assert_allclose(*(getattr(answer, name) for answer in answers), rtol=1e-7)
    assert answers[0].error_reasons == answers[1].error_reasons


def test_the_solver_says_what_it_does_not_solve(scratch):
    solver = scratch.NormalEquations()
    with pytest.raises(ValueError, match="takes linear families with features"):
        zv.fit(zv.Kernel(), SAMPLE, VALUES, solver=solver)
    with pytest.raises(ValueError, match="a Ridge penalty or none; got L1"):
        zv.fit(zv.Polynomial(2), SAMPLE, VALUES, zv.LeastSquares(zv.L1(0.1)), solver)
    # in d = 1 neighbours are the sites themselves: features repeat
    one = zv.Sample(X[:, :1], -X[:, :1])
    failed = zv.fit(scratch.Symmetric(), one, VALUES, solver=solver, throw=False)
    assert failed.result is Result.COLLINEAR
    with pytest.raises(zv.NumericalError, match="linearly dependent"):
        zv.fit(scratch.Symmetric(), one, VALUES, solver=solver)


# ---- tuning


def test_tuning_moves_what_is_declared(scratch):
    directions = np.array([[1.0], [0.5]])
    start = zv.Kernel(scratch.Cauchy(1.0)) + zv.RidgeFunctions(
        zv.Kernel(scratch.Cauchy(1.0)), directions
    )
    tuned, _ = zv.tune(start, SAMPLE, VALUES[:, 0], draws=150, evaluations=15)
    moved, still = [], []
    known = {entry.number for entry in declarations(start)}
    for number, (before, after) in enumerate(
        zip(jax.tree.leaves(start), jax.tree.leaves(tuned), strict=True)
    ):
        (moved if number in known else still).append(np.abs(np.log(np.abs(after / before))).max())
    assert len(moved) == 4, "two length-scales and two weights"
    assert len(still) == 1, "the direction"
    assert max(still) < 1e-15, "made a unit vector once more, and not moved"
    assert all(
        part.length_scale != 1.0 for part in (tuned.parts[0].base, tuned.parts[1].family.base)
    )


def test_a_family_with_one_weight_gets_a_ridge(scratch):
    """Only ratios of weights matter: one of them is held."""
    family, values = scratch.Symmetric(), (VALUES[:, 0] - VALUES[:, 0].mean()) / VALUES[:, 0].std()
    tuned = zv.tune(family, SAMPLE, values)
    assert tuned.family == family
    assert tuned.objective.total(zv.Ridge) > 0
    for ridge in (1e-8, 1e-4, 1.0):  # descent starts at the best of such
        assert tuned.loss <= zv.tune(family, SAMPLE, values, ridges=[ridge]).loss + 1e-6


def test_the_criterion_has_the_derivative_that_it_gives(scratch):
    rng, m = np.random.default_rng(4), 12
    root = rng.normal(size=(m, m))
    values, border, direction = rng.normal(size=(m, 2)), np.ones((m, 1)), root + root.T
    criterion, p = scratch.GeneralisedCrossValidation(), np.full(m, 1 / m)

    def measured(step: float) -> tuple[float, np.ndarray]:
        return criterion.measure(
            SteinGp.of(root @ root.T + step * direction, np.full(m, 0.5), border, values), p
        )

    difference = (measured(1e-5)[0] - measured(-1e-5)[0]) / 2e-5
    slope = measured(0.0)[1]
    assert np.sum(slope * direction) == pytest.approx(difference, rel=1e-6)
    assert np.allclose(slope, slope.T)


# ---- files

LOADING = """
import sys
import numpy as np
import zerovar as zv
try:
    zv.load("fit.zv")
except ValueError as error:
    print(error)
import cauchy, symmetric
draws, scores = np.load("draws.npy")
loaded = zv.load("fit.zv")
np.save("there.npy", loaded(zv.Sample(draws, scores)))
print(loaded.family.describe())
"""


def test_files_need_the_module_and_nothing_else(scratch, monkeypatch):
    monkeypatch.chdir(scratch.folder)
    family = scratch.Symmetric() + zv.Kernel(scratch.Cauchy(2.5))
    fitted = zv.fit(family, SAMPLE, VALUES, zv.LeastSquares(zv.Ridge(1e-4)))
    fitted.save("fit.zv")
    np.save("draws.npy", np.stack([X, S]))
    printed = in_a_fresh_process(LOADING, scratch.folder, ROOT / "src")
    assert (
        "names a class that zerovar does not know: 'cauchy.Cauchy'" in printed
        or "'symmetric.Symmetric'" in printed
    )
    assert "import the module that defines it first" in printed
    assert family.describe() in printed
    np.testing.assert_allclose(np.load("there.npy"), fitted(SAMPLE), rtol=1e-12, atol=1e-12)


# ---- joining zerovar

JOINING = PAGE.partition("## Joining zerovar")[2]
# the rows of the tables that the page adds, by words of their names, and the test of its rule
ROWS = ("cauchy", "sites", "equations", "few_draws")
TABLES = ("operators_families", "exact", "solvers", "sgd", "tuning", "files", "rules")


def copy_of_the_repository(to: Path) -> Path:
    """All files that git knows, as they are now."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, to / name)
    return to


def add_lines(root: Path, block: str) -> None:
    """Change the files that a block of the page names: a line with a plus goes below the one before
    it, of which … is the rest."""
    for part in re.split(r"^--- ", block, flags=re.M)[1:]:
        name, *changes = part.splitlines()
        lines, at = (root / name).read_text(encoding="utf-8").splitlines(), 0
        for change in changes:
            if change.startswith("+"):
                lines.insert(at, change[1:])
                at += 1
                continue
            start, rest, _ = change[1:].partition("…")
            found = [
                k
                for k in range(at, len(lines))
                if (lines[k].startswith(start) if rest else lines[k] == start)
            ]
            assert found, f"{name} has no line {change!r}: mend docs/extending.md"
            at = found[0] + 1
        (root / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def without_imports(module: str) -> str:
    return re.sub(r"^(#|import|from) .*\n", "", module, flags=re.M).strip()


def join(root: Path) -> None:
    """What the page says under "Joining zerovar", in its order."""
    for module, name in re.findall(r"class of `(\w+)\.py`[^`]*the end of `(\S+)`", JOINING):
        with open(root / name, "a", encoding="utf-8") as file:
            file.write("\n\n" + without_imports(MODULES[module]) + "\n")
    for module, name in re.findall(r"module `(\w+)\.py` becomes `(\S+)`", JOINING):
        inside = MODULES[module].replace(f"from zerovar.{(root / name).parent.name}.", "from .")
        (root / name).write_text(inside.replace("from zerovar.", "from .."), encoding="utf-8")
    for module, new, old, line, name in re.findall(
        r"function of `(\w+)\.py`[^`]*with `(\S+)` in place of `(\S+)`[^`]*the line `([^`]+)` of "
        r"`(\S+)`",
        JOINING,
    ):
        bare = without_imports(MODULES[module]).replace(old, new)
        text = (root / name).read_text(encoding="utf-8")
        assert line in text, f"{name} has no line {line!r}: mend docs/extending.md"
        (root / name).write_text(text.replace(line, f"{line}\n\n{bare}", 1), encoding="utf-8")
    for block in re.findall(r"```diff\n(.*?)```", JOINING, flags=re.S):
        add_lines(root, block)


def run_in(root: Path, *command: str) -> subprocess.CompletedProcess:
    there = os.environ | {"PYTHONPATH": str(root / "src"), "MYPYPATH": "src"}
    return subprocess.run(
        [sys.executable, *command], cwd=root, env=there, capture_output=True, text=True, check=False
    )


@pytest.mark.whole
def test_the_lines_to_join_zerovar_are_enough(tmp_path):
    """In a copy of the whole repository, what the page says is done, and nothing else: lint, types,
    the new rows of the tables, the architecture and the reference then are in order."""
    root = copy_of_the_repository(tmp_path)
    join(root)
    for command in (
        "-m ruff check --fix .",
        "-m ruff format .",
        "scripts/drawing.py",
        "-m ruff check .",
        "-m ruff format --check .",
        "-m mypy",
    ):
        done = run_in(root, *command.split())
        assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}{done.stderr[-2000:]}"
    files = [f"tests/test_{name}.py" for name in ("architecture", "docs", *TABLES)]
    words = " or ".join(("architecture", "test_rules", "every_public_name", "links_point", *ROWS))
    quick = ("-m", "pytest", "-v", "-p", "no:cacheprovider", "-m", "not whole")
    done = run_in(root, *quick, *files, "-k", words)
    assert done.returncode == 0, done.stdout[-6000:]
    for name in TABLES:
        met = rf"tests/test_{name}\.py::.*({'|'.join(ROWS)}).* PASSED"
        assert re.search(met, done.stdout), f"no row of the page in tests/test_{name}.py"
    calibration = ("-m", "benchmarks.calibration", str(tmp_path / "kept"), "--replicates", "2")
    done = run_in(root, *calibration, "--only", "kernel: few", "--without", "few_draws")
    without = done.stdout.partition("without few_draws")[2]
    assert "kernel: few draws" in without, f"{done.stdout}{done.stderr[-2000:]}"
    # a step that is left out is named
    order = root / "tests" / "test_architecture.py"
    order.write_text(order.read_text(encoding="utf-8").replace("symmetric", ""), encoding="utf-8")
    done = run_in(root, *quick, str(order), "-k", "place or imports_go_down")
    assert "add 'symmetric' to ORDER['families']" in done.stdout


def test_the_steps_name_what_there_is():
    for text in (STEPS, PAGE):
        new = re.findall(r"becomes `(\S+)`", text)
        for path in re.findall(r"`((?:src|tests|docs|experiments)/[\w./]+)`", text):
            assert (ROOT / path).exists() or path in new, path
        for table, path in re.findall(r"`([A-Z]+)` of\s+`(\S+?)`", text):
            assert re.search(
                rf"^{table}\b.*= ", (ROOT / path).read_text(encoding="utf-8"), flags=re.M
            ), f"{table} in {path}"
    targets = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^    make (\w+)", STEPS, flags=re.M):
        assert f"\n{target}:" in targets


def test_the_page_on_theory_has_all_rules():
    page = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
    routes = {
        "draws on disk": rules.ON_DISK,
        "one family": rules.ONE_FAMILY,
        "the automatic choice": rules.STACK,
        "`zv.integrate`": rules.WEIGHTED_POINTS,
    }
    first = {rule.__name__: name for name, route in reversed(routes.items()) for rule in route}
    assert dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", page, flags=re.M)) == first


# ---- numbers that the docs repeat

POLICY = Policy()
SLOW = DRAWS_PER_TERM * POLICY.slow_factor


def additive_share() -> int:
    """The part of the draws that sums of functions of single coordinates are tuned on."""
    return next(rival.share for rival in offer_rivals(10, POLICY) if rival.sign is not None)


TUNING_DRAWS = inspect.signature(zv.tune).parameters["draws"].default
WORDS = {
    "a tenth": 0.1,
    "half": 0.5,
    "three": 3,
    "four": 4,
    "eight": 8,
    "ten": 10,
    "twenty": 20,
    "four thousand": 4000,
}
WORDS |= {"a million": 10**6, "four million": 4 * 10**6}

# page, words around the numbers (each a #), and the numbers by the code
REPEATED = [
    ("docs/guide.md", "from at most # draws by default", [TUNING_DRAWS]),
    ("docs/guide.md", "`cross_fit(k)`, with k = # by default", [zv.cross_fit().k]),
    (
        "docs/guide.md",
        "on some draws (# of up to #, # up to #, # beyond)",
        [
            0.5,
            2 * coordinates._SUBSET,
            coordinates._SUBSET,
            coordinates._SUBSET / coordinates._SHARE,
            coordinates._SHARE,
        ],
    ),
    ("docs/guide.md", "# of the draws is held out", [batch_schedule.NETWORK.validation]),
    (
        "docs/choosing.md",
        "at least # effective draws a term, or # of a slow chain (one with an autocorrelation time "
        "of # or more)",
        [DRAWS_PER_TERM, SLOW, INDEPENDENT],
    ),
    (
        "docs/choosing.md",
        "a quartic from # effective draws on, a cubic from # on",
        [SLOW * POLICY.at_a_time * powers for powers in (3, 2)],
    ),
    ("docs/choosing.md", "5. from # effective draws on", [POLICY.fewest]),
    (
        "docs/choosing.md",
        "whose gain is still below #, in up to # dimensions a Matérn kernel",
        [POLICY.smooth, POLICY.kinks],
    ),
    ("docs/choosing.md", "in up to # dimensions a Gaussian of order 2", [POLICY.kinks]),
    ("docs/choosing.md", "Where polynomials of degree # in single", [POLICY.separate_degree]),
    ("docs/choosing.md", "if it then has # times less variance", [POLICY.apart]),
    (
        "docs/choosing.md",
        "With more than # draws they are compared on # of them",
        [POLICY.pilot, POLICY.pilot],
    ),
    (
        "docs/choosing.md",
        "the marginal likelihood of # draws, those of sums of single coordinates of #.",
        [POLICY.tuning_draws, POLICY.tuning_draws // additive_share()],
    ),
    (
        "docs/choosing.md",
        "with at least # times less variance than polynomials go on for # steps with all of up to "
        "# draws",
        [POLICY.ahead, POLICY.more_steps, POLICY.pilot],
    ),
    (
        "docs/choosing.md",
        "fitted to all of up to # draws, and of more to at most half of them and at most #",
        [POLICY.dense, POLICY.dense],
    ),
    ("docs/choosing.md", "In more than # dimensions none is tuned", [POLICY.kernel_dimensions]),
    ("docs/choosing.md", "further than # joint standard errors", [rules.SUSPICIOUS]),
    ("docs/integrate.md", "more than # joint errors apart", [rules.SUSPICIOUS]),
    ("docs/choosing.md", "more than # joint errors from the answer", [rules.APART]),
    ("docs/choosing.md", "# of what the candidates estimate as their bias", [POLICY.corrected]),
    (
        "docs/choosing.md",
        "several draws a term: # at the least, # for a slow chain",
        [DRAWS_PER_TERM, SLOW],
    ),
    ("docs/theory.md", "further than # joint standard errors", [rules.SUSPICIOUS]),
    ("docs/theory.md", "the plain mean, where it is more than # joint errors", [rules.SUSPICIOUS]),
    ("docs/theory.md", "is joint errors away, from # on", [rules.APART]),
    ("docs/theory.md", "where that is more than # of its errors", [rules.APART]),
    ("docs/theory.md", "# of a cross-fitted polynomial's error", [rules._LEAST]),
    ("docs/large.md", "within `tolerance` standard errors, # by default", [zv.CG().tolerance]),
    (
        "docs/large.md",
        "at most # terms and # draws a term",
        [POLICY.streamed_terms, SLOW],
    ),
    ("docs/large.md", "pilot of about # draws", [round(arrays._PILOT_DRAWS, -3)]),
    (
        "docs/large.md",
        "in # segments from all over the chains",
        [arrays._PILOT_DRAWS // integrands.ROWS],
    ),
    (
        "docs/large.md",
        "windows of # chunks or about # draws",
        [chunk_windows.TOGETHER, round(chunk_windows.TRAINED_AT_ONCE, -4)],
    ),
    (
        "docs/large.md",
        "as make # visits of draws for a network, # for a linear family",
        [batch_schedule.NETWORK.visits, batch_schedule.LINEAR.visits],
    ),
    ("docs/large.md", "every one of some # batches", [round(chunked_estimate.SAMPLE, -3)]),
    ("docs/large.md", "`cross_fit(#)` by default", [zv.cross_fit().k]),
    (
        "docs/large.md",
        "Chunks smaller than # MB are joined",
        [round(8 * integrands.FEW_NUMBERS / 1e6)],
    ),
    ("docs/extending.md", "a factor of # either way", [np.exp(descent._FARTHEST)]),
]


def numbers(page: str, phrase: str) -> list[list[float]]:
    """Those in the place of each # of the phrase, wherever it stands on the page."""
    number = (
        r"(\d[\d.e]*\d(?: 000)?|\d|(?i:" + "|".join(sorted(WORDS, key=len, reverse=True)) + "))"
    )
    pattern = re.escape(phrase).replace(r"\#", number).replace(r"\ ", " ")
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    found = [match if isinstance(match, tuple) else (match,) for match in re.findall(pattern, text)]
    return [
        [float(WORDS.get(entry.lower(), entry.replace(" ", ""))) for entry in match]
        for match in found
    ]


@pytest.mark.parametrize(
    ("page", "phrase", "values"),
    REPEATED,
    ids=[f"{page}: {phrase}" for page, phrase, _ in REPEATED],
)
def test_docs_repeat_constants_of_the_code(page, phrase, values):
    found = numbers(page, phrase)
    assert found, f"{page} no longer says {phrase!r}: mend this table"
    for match in found:
        assert match == pytest.approx(values), phrase


def test_a_number_that_differs_is_seen():
    assert numbers("docs/choosing.md", "further than # joint standard errors") != [
        [rules.SUSPICIOUS + 0.5]
    ]
    assert numbers("docs/choosing.md", "further than # joint standard deviations") == []
