"""The paper's experiments: integrals against quadrature, results that survive interruption, and numbers of quick runs."""

import numpy as np
import pytest
from scipy.stats import norm

from experiments.paper import genz, harness, polynomials
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
    assert GENZ[name].integral(a, u) == pytest.approx(weights @ GENZ[name].value(points, a, u), rel=1e-10)


def test_corner_peak_in_twenty_dimensions():
    """All a = 1: the sum over corners by exact integers, Σ (−1)^k C(d, k) / (1 + k) / d!, is 1 / ((d + 1) d!)."""
    d = 20
    expected = 1 / ((d + 1) * float(np.prod(np.arange(1.0, d + 1))))
    assert GENZ["Corner Peak"].integral(np.ones(d), np.ones(d)) == pytest.approx(expected, rel=1e-10)


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
        self.ran = []

    def jobs(self, size):
        return [{"repetition": r} for r in range(size.repetitions)]

    def run(self, job, data):
        if job["repetition"] == 2 and not self.ran[2:]:
            self.ran.append("interrupted")
            raise KeyboardInterrupt
        self.ran.append(job["repetition"])
        return [
            {"method": "m", "integrand": "f", "value": 1.0 + job["repetition"], "truth": 1.0, "std_error": 1.0, "seconds": 0.0}
        ]


def test_an_interrupted_study_goes_on_where_it_stopped(tmp_path):
    study, size = Counted(), harness.Size(4, False)
    with pytest.raises(KeyboardInterrupt):
        harness.collect(study, tmp_path, size, None, workers=1)
    with open(tmp_path / "counted.jsonl", "a") as file:
        file.write('{"job": {"repet')  # cut short
    with open(tmp_path / "counted.jsonl", "a") as file:
        file.write("\n")
    rows = harness.collect(study, tmp_path, size, None, workers=1)
    assert study.ran == [0, 1, "interrupted", 2, 3]
    assert [row["repetition"] for row in rows] == [0, 1, 2, 3]
    found = harness.absolute_error(rows)
    assert found.mean == 1.5
    assert found.within == 0.75
    assert (tmp_path / "counted.csv").read_text().count("\n") == 5


def test_sgd_reaches_the_exact_answer_on_polynomial_integrands():
    job = {"integrand_family": "sum", "draws": 1000, "share": 0.5, "family": "polynomial", "d": 5, "repetition": 0}
    rows = polynomials.run(job, None)
    off = {(row["method"], row["epochs"]): abs(row["value"] - row["truth"]) for row in rows}
    assert off["MC", 0] > 1e-3
    assert off["exact", 0] < 1e-13
    assert off["SGD", 25] < 1e-13
    assert off["SGD", 1] > off["SGD", 25]


def test_the_product_peak_in_five_dimensions():
    rows = genz.run({"d": 5, "repetition": 0}, None)
    off = {row["method"]: abs(row["value"] - row["truth"]) for row in rows}
    printed = genz.TABLE_4[5]
    assert off["automatic"] < printed[1]
    assert off["kernel, exact"] < 3 * printed[1]
    assert off["kernel, SGD 5 epochs"] < 3 * printed[3]


def test_gaussian_processes_integrate_against_mixtures():
    """Integrals of the covariance by quadrature, scores by differences, and draws that agree with their own integrals."""
    rng = np.random.default_rng(0)
    mixture = Mixture(np.array([0.3, 0.7]), np.array([[-1.0], [0.8]]), np.array([[[0.5]], [[0.2]]]))
    grid = np.linspace(-8, 8, 4001)[:, None]
    sd, place = np.sqrt(mixture.covariances[:, 0]), mixture.means
    density = (mixture.weights[:, None] * norm.pdf(grid.T, place, sd)).sum(axis=0)
    weight = density * (grid[1, 0] - grid[0, 0])
    kernel = SquaredExponential(1.3, 0.7)
    x = np.array([[-2.0], [0.1], [1.5]])
    assert kernel.integrated(x, mixture) == pytest.approx(kernel.matrix(x, grid) @ weight, rel=1e-10)
    assert kernel.twice_integrated(mixture) == pytest.approx(weight @ kernel.integrated(grid, mixture), rel=1e-10)
    assert mixture.scores(grid)[1:-1, 0] == pytest.approx(np.gradient(np.log(density), grid[:, 0])[1:-1], abs=1e-3)
    f, integral = kernel.draw(rng, grid[::20], mixture)
    assert integral == pytest.approx(weight[::20] @ f * 20, abs=1e-6)
