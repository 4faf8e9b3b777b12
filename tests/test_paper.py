"""The paper's experiments: integrals against quadrature, results that survive interruption, and
numbers of quick runs."""

import jax
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.stats import norm

import zerovar as zv
from experiments.paper import __main__ as program
from experiments.paper import (
    files,
    harness,
    lidar,
    logistic,
    lotka_volterra,
    networks,
    printed,
    propositions,
    protocol,
    reasons,
)
from experiments.paper.integrands import GENZ, Polynomial, sum_of_complements, sum_of_coordinates
from experiments.paper.mixtures import Mixture, SquaredExponential


def cube_rule(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gauss–Legendre on [0, 1]², cut at u, where kinks and jumps are."""
    node, weight = np.polynomial.legendre.leggauss(40)
    axes = []
    for cut in u:
        low = (cut * (node + 1) / 2, cut * weight / 2)
        high = (cut + (1 - cut) * (node + 1) / 2, (1 - cut) * weight / 2)
        axes.append([np.concatenate(pair) for pair in zip(low, high, strict=True)])
    points = np.stack(np.meshgrid(axes[0][0], axes[1][0], indexing="ij"), axis=-1).reshape(-1, 2)
    return points, np.outer(axes[0][1], axes[1][1]).ravel()


@pytest.mark.parametrize("name", GENZ)
def test_genz_integrals(name):
    a, u = np.array([1.3, 5.0]), np.array([0.4, 0.6])
    points, weights = cube_rule(u)
    assert GENZ[name].integral(a, u) == pytest.approx(
        weights @ GENZ[name].value(points, a, u), rel=1e-10
    )


def test_corner_peak_in_twenty_dimensions():
    """All a = 1: the sum over corners by exact integers, Σ (−1)^k C(d, k) / (1 + k) / d!, is 1 /
    ((d + 1) d!)."""
    d = 20
    expected = 1 / ((d + 1) * float(np.prod(np.arange(1.0, d + 1))))
    assert GENZ["Corner Peak"].integral(np.ones(d), np.ones(d)) == pytest.approx(
        expected, rel=1e-10
    )


def test_polynomial_means():
    f = Polynomial(np.array([[2.0, 1.0], [1.0, 3.0]]), np.array([[4, 2], [1, 2]]))
    assert f.mean(2.0) == pytest.approx(2 * 3 * 16 * 4)
    assert f(np.array([[2.0, 3.0]])) == pytest.approx(2 * 16 * 9 + 2 * 3 * 9)
    assert sum_of_coordinates(3).mean() == 0.0
    assert sum_of_complements(3).mean() == 3.0
    assert sum_of_complements(3)(np.array([[1.0, 2.0, 3.0]])) == pytest.approx(-3.0)


class Counted:
    NAME, TITLE = "counted", "A study for the harness"

    def __init__(self):
        self.ran, self.VERSIONS = [], {"ours": 1}

    def jobs(self, size):
        return [{"part": "ours", "repetition": r, **size.marks} for r in range(size.repetitions)]

    def run(self, job, data):
        if job["repetition"] == 2 and not self.ran[2:]:
            self.ran.append("interrupted")
            raise KeyboardInterrupt
        self.ran.append(job["repetition"])
        return [
            {
                "method": "m",
                "integrand": "f",
                "value": 1.0 + job["repetition"],
                "truth": 1.0,
                "std_error": 1.0,
                "seconds": 0.0,
            }
        ]


def test_an_interrupted_study_goes_on_where_it_stopped(tmp_path):
    study, size = Counted(), harness.Size(4, False)
    with pytest.raises(KeyboardInterrupt):
        harness.collect(study, tmp_path, size, None, workers=1)
    with open(tmp_path / "counted.jsonl", "a") as file:
        file.write('{"job": {"repet\n')  # cut short
    with pytest.raises(harness.TimeIsUp, match="2 of 4 jobs are done"):
        harness.collect(study, tmp_path, size, None, workers=1, minutes=-1)
    rows = harness.collect(study, tmp_path, size, None, workers=1)
    assert study.ran == [0, 1, "interrupted", 2, 3]
    assert [row["repetition"] for row in rows] == [0, 1, 2, 3]
    found = harness.absolute_error(rows)
    assert found.mean == 1.5
    assert found.within == 0.75
    assert harness.absolute_error([*rows, rows[0] | {"value": np.nan}]) == found._replace(
        diverged=1
    )
    about = files.read_about("counted", tmp_path)
    assert not about["quick"]
    assert about["settings"][0]["repetitions"] == 4
    assert set(about["runs"][0]) == {"commit", "machine", "versions"}


def test_a_finished_job_is_known_by_its_version_and_its_settings(tmp_path):
    """From the table alone, without the journal: a new part, or a new version of one, is all that
    is run."""
    study, size = Counted(), harness.Size(2, False)
    rows = harness.collect(study, tmp_path, size, None, workers=1)
    (tmp_path / "counted.jsonl").unlink()
    assert harness.collect(study, tmp_path, size, None, workers=1) == rows
    assert study.ran == [0, 1]
    study.VERSIONS = {"ours": 2}
    assert len(harness.collect(study, tmp_path, size, None, workers=1)) == 2
    assert study.ran == [0, 1, 0, 1]
    quick = harness.collect(study, tmp_path, size._replace(quick=True), None, workers=1)
    assert [row["quick"] for row in quick] == [True, True]
    assert files.read_about("counted", tmp_path)["quick"]


def test_tables_survive_their_file(tmp_path):
    rows = [
        {"a": 1, "b": 0.1 + 0.2, "c": "50/50", "d": True, "e": (100, 300)},
        {"a": 2, "b": float("inf"), "c": "median"},
    ]
    files.write_csv(tmp_path / "t.csv", [rows[0] | {"e": [100, 300]}, rows[1]])
    assert files.read_csv(tmp_path / "t.csv") == rows


def test_without_a_name_it_says_what_there_is(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["experiments.paper"])
    monkeypatch.setenv("COLUMNS", "200")
    assert program.main() == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in program.STUDIES)
    assert "--minutes 10" in printed


def test_an_interruption_says_that_the_same_command_resumes(monkeypatch, capsys, tmp_path):
    def stopped(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(program, "collect", stopped)
    monkeypatch.setattr("sys.argv", ["experiments.paper", "costs", "--out", str(tmp_path)])
    assert program.main() == 130
    assert "same command" in capsys.readouterr().err


# ---- Quick runs, as `make paper` does them: what must come out of each


def off(rows, **wanted):
    """Absolute errors."""
    found = [abs(row["value"] - row["truth"]) for row in harness.select(rows, **wanted)]
    assert found, wanted
    return np.array(found)


def _polynomials(rows):
    here = harness.select(rows, d=5)
    assert off(here, method="MC").max() > 1e-3
    assert off(here, method="exact").max() < 1e-13
    assert off(here, method="SGD", epochs=25).max() < 1e-13
    assert off(here, method="SGD", epochs=1).min() > off(here, method="SGD", epochs=25).max()


def _genz(rows):
    line, five = harness.select(rows, d=1), harness.select(rows, d=5)
    for name, row in printed.TABLE_1.items():
        for method in ("kernel, exact", "polynomial + kernel, exact"):
            assert off(line, integrand=name, method=method).max() < 5 * row[2], (name, method)
    assert off(five, method="kernel, exact").max() < 3 * printed.TABLE_4[5][1]
    assert off(five, method="kernel, SGD 5 epochs").max() < 3 * printed.TABLE_4[5][3]


def _gaussian_processes(rows):
    """The constant of an exact fit is the same with either objective, and nearly that of a trained
    one; networks are sane."""
    found = {
        method: np.array([r["value"] for r in harness.select(rows, method=method)])
        for method in METHODS
    }
    error = np.array([r["std_error"] for r in harness.select(rows, method="MC")])
    assert found["polynomial, exact, J^LS"] == pytest.approx(
        found["polynomial, exact, J^V"], rel=1e-4
    )
    assert (
        np.max(np.abs(found["polynomial, SGD, J^LS"] - found["polynomial, exact, J^LS"]) / error)
        < 0.5
    )
    assert np.max(off(rows, method="network, J^LS") / error) < 5


METHODS = ("polynomial, exact, J^LS", "polynomial, exact, J^V", "polynomial, SGD, J^LS")


def _costs(rows):
    """Times are not tested; that what is timed does its work is, and so is the arithmetic of slopes
    and crossings."""
    left = {
        method: max(row["left"] for row in harness.select(rows, method=method, family="kernel"))
        for method in ("exact", "lean exact", "lean steps, 5 epochs", "SGD")
    }
    assert left["exact"] < 1e-3
    assert left["lean exact"] < 1e-3
    assert left["SGD"] < left["lean steps, 5 epochs"] < 0.3
    assert all(row["ratio"] > 0 for row in rows if "ratio" in row)


def _propositions(rows):
    """The bound is above J; the conditions hold inside and not outside; a falling rate converges
    where a constant one does not."""
    for target in propositions.TARGETS:
        here = harness.select(rows, target=target)
        assert all(row["left"] < row["bound"] for row in harness.select(here, over="bound"))
        assert harness.select(here, over="degree")[-1]["left"] < 0.1
    inside, outside, constant = (harness.select(rows, rate=rate) for rate in propositions.RATES)
    assert propositions.holds(inside)
    assert not propositions.holds(outside)
    assert propositions.slope(inside)[0] < -0.8 < propositions.slope(constant)[0]


def _reasons(rows):
    """Few centres are what kernel SGD loses by, not steps."""
    few, all_, trained = (
        off(rows, of="sum", method=m).mean()
        for m in ("exact, 83 centres", "exact, all draws", "SGD, 83 centres")
    )
    assert all_ < few / 2
    assert few / 5 < trained < 5 * few


def _lidar(rows):
    for chain in lidar.CHAINS:
        here = harness.select(rows, chain=chain)
        z = [
            (r["value"] - r["truth"]) / r["std_error"]
            for r in harness.select(here, method="polynomial, exact")
        ]
        assert np.max(np.abs(z)) < 4
    own = harness.select(rows, chain="own")
    for name in lidar.NAMES[:2]:
        assert off(own, integrand=name, method="polynomial + kernel, exact").max() < 0.005
        # 200 draws that count like 40: four errors of the mean
        assert 1e-3 < off(own, integrand=name, method="MC").max() < 0.3


def _lotka_volterra(rows):
    """A quadratic in the log rates has ten thousand times less error than the plain mean, by either
    solver."""
    for method in ("polynomial, exact", "polynomial, SGD"):
        assert off(rows, method=method).max() < 1e-4 * off(rows, method="MC").max() * 20
        z = [
            (r["value"] - r["truth"]) / r["std_error"] for r in harness.select(rows, method=method)
        ]
        assert np.max(np.abs(z)) < 5


def _logistic(rows):
    """Answers are within their errors, and training lands where the exact solve does."""
    z = [
        (r["value"] - r["truth"]) / r["std_error"] for r in harness.select(rows, method="automatic")
    ]
    assert np.mean(np.abs(z) < 3) >= 0.8
    exact, trained = (
        harness.select(rows, method=f"polynomial, {solver}") for solver in ("exact", "SGD")
    )
    apart = [abs(one["value"] - other["value"]) for one, other in zip(exact, trained, strict=True)]
    assert np.mean(apart) < 0.5 * np.mean(
        [r["std_error"] for r in harness.select(rows, method="MC")]
    )


QUICK = {
    "propositions": _propositions,
    "reasons": _reasons,
    "polynomials": _polynomials,
    "genz": _genz,
    "gaussian_processes": _gaussian_processes,
    "costs": _costs,
    "lidar": _lidar,
    "lotka_volterra": _lotka_volterra,
    "logistic": _logistic,
}


@pytest.mark.whole
@pytest.mark.parametrize("name", program.STUDIES)
def test_quick_run(name, tmp_path, request):
    study, folder = program.STUDIES[name], None
    if study in (lidar, lotka_volterra, logistic):
        with pytest.raises(harness.MissingData, match="--data DIR"):
            study.run(study.jobs(harness.QUICK)[0], tmp_path)
        folder = request.getfixturevalue("data") / "data"
    program.run(study, tmp_path, harness.QUICK, folder, workers=1)
    rows = harness.collect(study, tmp_path / "results", harness.QUICK, folder, workers=1)
    QUICK[name](harness.select(rows, part="ours"))
    recipe = harness.select(rows, part="paper")
    assert ("paper" in study.VERSIONS) == bool(recipe)
    assert np.isfinite([row["value"] for row in recipe]).all()
    program.page(tmp_path)
    page = (tmp_path / "RESULTS.md").read_text()
    assert study.TITLE in page
    assert "A quick run" in page
    assert "nan" not in page
    assert (tmp_path / "results" / f"{name}.png").stat().st_size > 10_000


def test_the_papers_recipe():
    """Plain steps on a line land where least squares does; its network has mean zero, unlike one
    whose score is wrong."""
    x = np.random.default_rng(0).normal(size=(200, 1))
    problem = protocol.Problem.of(x, -x, x[:, 0] + 3.0, 100)
    rows = protocol.rows_of(
        problem, ["f"], [3.0], ["polynomial"], lambda kind: (5, 25), one_run=True
    )
    few, many, solved = (abs(row["value"] - row["truth"]) for row in rows)
    assert solved < 1e-9
    assert many < 1e-4
    assert many < few / 10
    node = np.linspace(-9, 9, 4001)
    weight = norm.pdf(node)
    network = networks.SharedField(zv.MLP(4, 2, jax.numpy.tanh))
    with jax.enable_x64(True):
        built = network.build(1, 2, np.random.default_rng(1)).perturb(np.random.default_rng(2))
        means = [
            weight @ np.asarray(built(node[:, None], -scale * node[:, None])) / weight.sum()
            for scale in (1.0, 1.1)
        ]
    assert np.abs(means[0]).max() < 1e-6
    assert np.abs(means[1]).min() > 1e-4


def test_interactions_of_the_product_peak():
    """In two dimensions: the variance of what is left without its additive part, by quadrature."""
    node, weight = np.polynomial.legendre.leggauss(40)
    y, w = (node + 1) / 2, weight / 2
    h = 1 / (1 + (y - 0.5) ** 2)
    mean, f = w @ h, np.outer(h, h)
    additive = mean * (h[:, None] + h) - mean**2
    variance, rest = (
        np.einsum("i,j,ij->", w, w, (g - np.einsum("i,j,ij->", w, w, g)) ** 2)
        for g in (f, f - additive)
    )
    assert reasons.interactions(2)[0] == pytest.approx(rest / variance, rel=1e-6)


def test_the_solution_of_the_differential_equation():
    """Against an adaptive solver; chains, truth and scores all belong to the same scheme, so that
    1e-5 is plenty."""
    times = np.linspace(0, 25, 101)
    with jax.enable_x64(True):
        found = np.asarray(lotka_volterra.solution(np.log([0.67, 1.33, 1.0, 1.0]), times))

    def slope(t, u):
        return [0.67 * u[0] - 1.33 * u[0] * u[1], u[0] * u[1] - u[1]]

    expected = solve_ivp(slope, (0, 25), [1, 1], t_eval=times, rtol=1e-10, atol=1e-12).y.T
    assert found == pytest.approx(expected, abs=2e-5)


def test_gaussian_processes_integrate_against_mixtures():
    """Integrals of the covariance by quadrature, scores by differences, and draws that agree with
    their own integrals."""
    rng = np.random.default_rng(0)
    mixture = Mixture(np.array([0.3, 0.7]), np.array([[-1.0], [0.8]]), np.array([[[0.5]], [[0.2]]]))
    grid = np.linspace(-8, 8, 4001)[:, None]
    sd, place = np.sqrt(mixture.covariances[:, 0]), mixture.means
    density = (mixture.weights[:, None] * norm.pdf(grid.T, place, sd)).sum(axis=0)
    weight = density * (grid[1, 0] - grid[0, 0])
    kernel = SquaredExponential(1.3, 0.7)
    x = np.array([[-2.0], [0.1], [1.5]])
    assert kernel.integrated(x, mixture) == pytest.approx(
        kernel.matrix(x, grid) @ weight, rel=1e-10
    )
    assert kernel.twice_integrated(mixture) == pytest.approx(
        weight @ kernel.integrated(grid, mixture), rel=1e-10
    )
    assert mixture.scores(grid)[1:-1, 0] == pytest.approx(
        np.gradient(np.log(density), grid[:, 0])[1:-1], abs=1e-3
    )
    f, integral = kernel.draw(rng, grid[::20], mixture)
    assert integral == pytest.approx(weight[::20] @ f * 20, abs=1e-6)
