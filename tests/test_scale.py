"""Solvers for many draws: every one of them gives the exact solver's answer within what it
promises."""

import json
import os
import subprocess
import sys

import equinox as eqx
import jax
import numpy as np
import pytest
from problems import gaussian
from tables import rows

import zerovar as zv
from zerovar.inputs.points import Points
from zerovar.solvers import default
from zerovar.solvers.algebra import factors
from zerovar.solvers.algebra.tiles import feature_matrix, gram_matrix
from zerovar.solvers.exact import dual
from zerovar.solvers.exact import solver as exact
from zerovar.solvers.iterative import preconditioner
from zerovar.solvers.iterative.conjugate import System, conjugate_gradients
from zerovar.solvers.iterative.preconditioner import neighbours
from zerovar.solvers.iterative.products import Stored, slab_rows
from zerovar.solvers.iterative.shortest_residual import ShortestResidual

GAUSSIAN = zv.kernels.Gaussian(2.0)
SUM = zv.Polynomial(2, weight=(np.inf, 1.0)) + zv.Kernel(GAUSSIAN)


def problem(n, d, seed):
    x, s = gaussian(n, d, seed)
    z = x - x.mean(axis=0)
    values = np.stack([np.sin(z[:, 0]), z[:, 0] * z[:, -1] + np.cos(z.sum(axis=1))], axis=1)
    return zv.Sample(x, s), values


def standard_errors(fitted):
    influence = fitted.intercept_weights()[:, None] * fitted.leave_out()
    return np.sqrt(np.sum(influence**2, axis=0))


# family, draws, dimensions, ridge: primal and dual, with and without free terms, kept and made
# anew, more terms than draws
SIZES = {
    "semi-exact": (SUM, 300, 2, 1e-7),
    "quadratic, primal": (zv.Polynomial(2), 900, 4, 0.0),
    "cubic, primal": (zv.Polynomial(3), 900, 3, 1e-3),
    "more terms than draws": (zv.Polynomial(2), 200, 25, 1e-2),
}


@pytest.mark.parametrize(
    ("case", "keep"),
    [
        ("semi-exact", True),
        ("quadratic, primal", True),
        *(
            pytest.param(case, keep, marks=pytest.mark.whole)
            for case, keep in (
                ("cubic, primal", True),
                ("more terms than draws", True),
                ("semi-exact", False),
            )
        ),
    ],
)
def test_conjugate_gradients_keep_their_promise(case, keep):
    """By default the intercept is within a tenth of a standard error of the exact one, and g so
    near that its residuals are; with a tolerance of a millionth both agree to as many digits."""
    family, n, d, ridge = SIZES[case]
    sample, values = problem(n, d, seed=len(case))
    objective = zv.LeastSquares(zv.Ridge(ridge))
    reference = zv.fit(family, sample, values, objective, zv.Exact())
    error = standard_errors(reference)
    spread = np.std(reference.leave_out(), axis=0)
    found = zv.fit(family, sample, values, objective, zv.CG(keep=keep))
    assert found.stats["error_left"] <= 0.1
    assert np.all(np.abs(found.intercept - reference.intercept) < 0.1 * error + 1e-12)
    assert np.all(np.std(found(sample) - reference(sample), axis=0) < 0.5 * spread + 1e-9)
    sharp = zv.fit(family, sample, values, objective, zv.CG(keep=keep, tolerance=1e-6))
    np.testing.assert_allclose(
        sharp.intercept, reference.intercept, atol=1e-6 * np.max(error) + 1e-12
    )
    assert sharp.stats["iterations"] >= found.stats["iterations"]


def test_conjugate_gradients_in_any_units():
    """Blocks are in single precision, which would underflow or overflow."""
    sample, values = problem(300, 2, seed=4)
    fitted = zv.fit(zv.Kernel(GAUSSIAN), sample, values, zv.LeastSquares(zv.Ridge(1e-4)), zv.CG())
    assert fitted._work.prepared._system.preconditioner.orders[0].blocks.dtype == np.float32
    for unit in (1e-60, 1e60):
        scaled = fitted.refit(unit * values)
        assert scaled.stats["iterations"] == fitted.stats["iterations"]
        np.testing.assert_allclose(scaled.intercept / unit, fitted.intercept, rtol=1e-6)


class Bare(System):
    """A matrix without a preconditioner."""

    matrix: jax.Array

    def apply(self, v):
        return self.matrix @ v

    def precondition(self, v):
        return v


def turned(rng):
    """A matrix (60, 60) with eigenvalues from a thousandth to one, and its eigenvectors."""
    turn = np.linalg.qr(rng.normal(size=(60, 60)))[0]
    return turn * np.geomspace(1e-3, 1, 60) @ turn.T, turn


def test_the_shortest_residual_of_all_directions():
    """That of least squares over all of them, where conjugate gradients' own leap (the control);
    with the solution that has it, and in the end the only one. A column that is solved at once
    stays as it is."""
    rng = np.random.default_rng(5)
    matrix, turn = turned(rng)
    right = np.stack([*rng.normal(size=(2, 60)), turn[:, 3], rng.normal(size=60)], axis=1)
    plain, short, taken = [], [], []
    with jax.enable_x64(True):
        shortest = ShortestResidual(jax.numpy.asarray(right[:, :3]))

        def watch(directions, images):
            shortest.add(directions, images)
            short.append((np.asarray(shortest.solution), np.asarray(shortest.residual)))
            taken.append(np.asarray(images))

        def judge(state, _):
            plain.append(np.linalg.norm(state.residual[:, :2], axis=0))
            return 2.0

        conjugate_gradients(
            Bare(jax.numpy.asarray(matrix)), jax.numpy.asarray(right), judge, 100, False, watch
        )
    assert np.any(np.diff(plain, axis=0) > 0)
    for solution, residual in short:
        np.testing.assert_allclose(right[:, :3] - matrix @ solution, residual, atol=1e-8)
    for k in (1, 4, 7):
        for column in (0, 1):
            images = np.concatenate(taken[: k + 1])[:, :, column].T
            images /= np.linalg.norm(images, axis=0)
            # not by rounding
            best = (
                right[:, column] - images @ np.linalg.lstsq(images, right[:, column], rcond=1e-6)[0]
            )
            found = np.linalg.norm(short[k][1][:, column])
            assert found <= np.linalg.norm(best) * (1 + 1e-3) + 1e-6
            assert found < plain[k][column]
    np.testing.assert_allclose(
        short[-1][0], np.linalg.solve(matrix, right[:, :3]), rtol=1e-3, atol=1e-3
    )


def test_directions_are_forgotten_where_memory_ends(monkeypatch):
    """From the oldest on, and the residual still never grows."""
    monkeypatch.setattr("zerovar.solvers.iterative.shortest_residual.room", lambda: 0)
    rng = np.random.default_rng(5)
    matrix, right = turned(rng)[0], rng.normal(size=(60, 2))
    lengths = []
    with jax.enable_x64(True):
        shortest = ShortestResidual(jax.numpy.asarray(right))

        def watch(directions, images):
            shortest.add(directions, images)
            lengths.append(np.linalg.norm(shortest.residual, axis=0))

        conjugate_gradients(
            Bare(jax.numpy.asarray(matrix)),
            jax.numpy.asarray(right),
            lambda *_: 2.0,
            50,
            False,
            watch,
        )
    assert np.all(np.diff(lengths, axis=0) <= 1e-12)
    assert len(shortest._past) == 1


@pytest.mark.parametrize("ridge", [1e-3, 1e-7])
def test_preconditioners_of_host_and_device_are_the_same(ridge):
    """Centres and one block of all draws leave nothing to iterate for, to the digits of the
    precision that its ridge allows; several blocks do (the control)."""
    rng = np.random.default_rng(6)
    points = rng.normal(size=(256, 3))
    gram = np.exp(-0.5 * np.sum((points[:, None] - points) ** 2, axis=2))
    places, whole = rng.choice(256, 40, replace=False), gram + ridge * np.eye(256)
    for block in (64, 256):
        with jax.enable_x64(True):
            mixed = rng.permutation(256)
            centres, order, rows, noise = map(
                jax.device_put, (places, mixed, whole[places], np.float64(ridge))
            )
            product = Stored(*map(jax.device_put, (gram, np.ones((256, 1)))))
            built, left = preconditioner.preconditioner(
                product, centres, jax.device_put(mixed[None]), block, noise
            )
            for one, other in zip(
                preconditioner._inside_on_host(rows, centres, 0.0),
                preconditioner._inside_on_device(rows, centres, 0.0),
                strict=True,
            ):
                np.testing.assert_allclose(one, other, atol=1e-9 * np.abs(other).max())
            diagonal = ridge + np.isin(np.arange(256), places)
            near = preconditioner._near(
                product, *map(jax.device_put, (mixed.reshape(-1, block), diagonal))
            )
            on_device = preconditioner._on_device(near, built.low, order, 1.0, False)
            on_host = preconditioner._on_host(near, built.low, order, 1.0, False)
            np.testing.assert_allclose(on_host, on_device, atol=1e-6 * np.abs(on_device).max())
            inverse, diagonal = map(
                np.asarray,
                eqx.filter_jit(lambda built, v: (built(v), built.diagonal()))(built, np.eye(256)),
            )
        precision = built.orders[0].blocks.dtype
        assert precision == (np.float32 if ridge == 1e-3 else np.float64)
        assert 0 < float(left) < 0.5
        others = np.setdiff1d(np.arange(256), places)
        np.testing.assert_allclose(diagonal[others], inverse.diagonal()[others], rtol=1e-4)
        assert not diagonal[places].any()
        np.testing.assert_allclose(inverse, inverse.T, atol=1e-4 * np.abs(inverse).max())
        apart = np.abs(inverse @ whole - np.eye(256)).max()
        assert apart < (5e-3 if precision == np.float32 else 5e-4) if block == 256 else apart > 1, (
            apart
        )


def test_products_by_slabs():
    """Where a product with the whole Gram would be copied: every slab of rows by itself, in whole
    tiles."""
    rng = np.random.default_rng(7)
    with jax.enable_x64(True):
        matrix, root, v = (
            jax.device_put(rng.normal(size=shape)) for shape in ((192, 192), (192, 1), (192, 5))
        )
        np.testing.assert_allclose(
            *(eqx.filter_jit(Stored(matrix, root, slab))(v) for slab in (64, None)), rtol=1e-12
        )
    rows = slab_rows(102_400, 4096)
    assert rows % 4096 == 0
    assert 102_400 % rows == 0
    assert slab_rows(8192, 4096) == 8192
    assert slab_rows(24_576, 4096) == 4096


def test_a_stall_is_reported():
    sample, values = problem(300, 2, 2)
    objective, solver = zv.LeastSquares(zv.Ridge(1e-4)), zv.CG(max_iterations=10, tolerance=1e-6)
    with pytest.warns(zv.NumericalWarning, match="before they converged"):
        found = zv.fit(zv.Kernel(GAUSSIAN), sample, values, objective, solver)
    assert found.stats["iterations"] == 10
    assert found.stats["error_left"] > 1e-6


@pytest.mark.parametrize("family", [SUM, zv.Polynomial(2)], ids=["dual", "primal"])
def test_a_constant_needs_no_iteration(family):
    """It is left to rounding by the intercept, which must not be taken for something to fit."""
    sample, values = problem(300, 2, 4)
    both = np.stack([np.full(300, 0.1), values[:, 0]], axis=1)
    fitted = zv.fit(family, sample, both, zv.LeastSquares(zv.Ridge(1e-4)), zv.CG())
    assert fitted.stats["iterations"] < 100
    np.testing.assert_allclose(fitted.intercept[0], 0.1, rtol=1e-12)
    np.testing.assert_allclose(fitted(sample)[:, 0], 0.0, atol=1e-12)


def test_conjugate_gradients_say_what_they_do_not_take():
    sample, values = problem(60, 2, 3)
    kernel = zv.Kernel(GAUSSIAN)
    for objective, words in (
        (zv.LeastSquares(zv.L1(0.1)), "L1"),
        (zv.LeastSquares(zv.L2(0.1)), "Ridge for kernels"),
        (zv.LeastSquares(zv.Ridge(0.1), intercept_variance=1.0), "intercept free"),
        (zv.SpectralVariance(), "SpectralVariance"),
    ):
        with pytest.raises(ValueError, match=words):
            zv.fit(kernel, sample, values, objective, zv.CG())
    with pytest.raises(ValueError, match="only 60 distinct draws"):
        zv.fit(zv.Polynomial(11, weight=np.inf), sample, values, solver=zv.CG())
    with pytest.raises(ValueError, match=r"a Ridge or L1 penalty or none; got L2\. Centres"):
        zv.fit(kernel, sample, values, zv.LeastSquares(zv.L2(0.1)), zv.Nystrom(9))
    with pytest.raises(ValueError, match="not linear"):
        zv.fit(zv.Network(), sample, values, solver=zv.CG())
    for options in ({"tolerance": 0.0}, {"rank": 0}, {"max_iterations": 1.5}, {"keep": "yes"}):
        with pytest.raises(ValueError, match=f"CG: {next(iter(options))}"):
            zv.CG(**options)
    for options in ({"centres": 0}, {"centres": 5, "rule": "pivots"}):
        with pytest.raises(ValueError, match="Nystrom: "):
            zv.Nystrom(**options)


def test_estimate_cross_fits_with_conjugate_gradients():
    # folds that fit to as many draws as other tests do: one program
    sample, values = problem(375, 2, 4)
    options = {"family": zv.Kernel(GAUSSIAN), "objective": zv.LeastSquares(zv.Ridge(1e-2))}
    found = zv.estimate(sample.draws, sample.scores, values, **options, solver=zv.CG())
    reference = zv.estimate(sample.draws, sample.scores, values, **options, split=zv.cross_fit())
    assert "cross-fitting" in found.split
    assert np.all(np.abs(found.value - reference.value) < 0.3 * reference.std_error)
    assert np.all(found.gain > 0.7 * reference.gain)


QUADRATICS = {
    "degree 2": zv.Polynomial(2),
    "free and penalised": zv.Polynomial(2, weight=(np.inf, 2.0)),
    "without lines": zv.Polynomial(2, weight=(0.0, 2.0)),
    "some coordinates": zv.Polynomial(2, coordinates=(0, 2)),
    "a sum": zv.Polynomial(2, weight=0.5) + zv.Polynomial(1, operator=zv.Langevin()),
}


@pytest.mark.parametrize("family", **rows(QUADRATICS))
def test_products_with_features_need_no_features(family, x64):
    """Nor do those with their transpose, which conjugate gradients take."""
    x, s = gaussian(7, 3)
    features = feature_matrix(family, x, s).T
    theta = np.random.default_rng(0).normal(size=(features.shape[1], 2))

    @jax.jit
    def there_and_back(x, s, theta):
        image, back = jax.vjp(lambda coefficients: family.apply(x, s, coefficients), theta)
        return image, back(image)[0]

    image, back = there_and_back(x, s, theta)
    np.testing.assert_allclose(image, features @ theta, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(back, features.T @ (features @ theta), rtol=1e-10, atol=1e-9)


RULES = [zv.centres.Pivots(), zv.centres.Uniform()]


@pytest.mark.parametrize("rule", RULES, ids=[type(rule).__name__ for rule in RULES])
def test_centres_approach_the_exact_fit(rule):
    sample, values = problem(1500, 2, 5)
    objective = zv.LeastSquares(zv.Ridge(1e-6))
    reference = zv.fit(SUM, sample, values, objective)
    error = standard_errors(reference)
    few, many = (
        zv.fit(SUM, sample, values, objective, zv.Nystrom(count, rule)) for count in (15, 250)
    )
    distances = [
        np.max(np.abs(found.intercept - reference.intercept) / error) for found in (few, many)
    ]
    assert distances[1] < (0.05 if isinstance(rule, zv.centres.Pivots) else 0.5)
    assert distances[1] < distances[0]
    assert few.stats["unknowns"] == 15 + 5


def test_all_centres_are_the_exact_fit():
    sample, values = problem(80, 2, 6)
    objective = zv.LeastSquares(zv.Ridge(1e-3))
    reference = zv.fit(SUM, sample, values, objective)
    found = zv.fit(SUM, sample, values, objective, zv.Nystrom(80))
    np.testing.assert_allclose(found.intercept, reference.intercept, atol=1e-8)
    np.testing.assert_allclose(found.leave_out(), reference.leave_out(), atol=1e-6)


def test_pivots_leave_less_of_the_kernel_than_uniform_centres():
    sample, _ = problem(1000, 2, 7)
    kernel = zv.Kernel(GAUSSIAN)
    x, s = (sample.draws - sample.draws.mean(axis=0)) / 2, 2 * sample.scores
    gram = gram_matrix(kernel, x, s)
    left = {}
    for rule in (zv.centres.Pivots(), zv.centres.Uniform()):
        chosen = rule(60, kernel, Points(x, s, np.full(1000, 1e-3)), np.random.default_rng(0))
        assert len(np.unique(chosen)) == len(chosen) <= 60
        columns = gram[:, chosen]
        left[type(rule)] = np.trace(gram) - np.sum(
            columns * np.linalg.lstsq(gram[np.ix_(chosen, chosen)], columns.T, rcond=1e-12)[0].T
        )
    assert left[zv.centres.Pivots] < 0.8 * left[zv.centres.Uniform]


def test_fits_at_centres_are_saved(tmp_path):
    sample, values = problem(200, 2, 8)
    fitted = zv.fit(SUM, sample, values, zv.LeastSquares(zv.Ridge(1e-3)), zv.Nystrom(30))
    fitted.save(tmp_path / "fit.npz")
    np.testing.assert_array_equal(zv.load(tmp_path / "fit.npz")(sample), fitted(sample))


@pytest.mark.parametrize(
    ("family", "ridge"),
    [(SUM, 1e-3), (zv.Polynomial(3), 0.0), (zv.Polynomial(2, weight=(np.inf, 1.0)), 1e-2)],
)
def test_features_need_not_be_kept(monkeypatch, family, ridge):
    """The streamed primal is the primal: fits, weights, residuals with draws and with blocks left
    out."""
    x, s = gaussian(5000, 3)
    sample = zv.Sample(x, s, np.random.default_rng(0).normal(size=5000) * 0.1)
    values = np.stack([np.sin(x[:, 0]), x[:, 1] ** 3], axis=1)
    objective, solver = zv.LeastSquares(zv.Ridge(ridge)), zv.Nystrom(40)
    kept = zv.fit(family, sample, values, objective, solver)
    monkeypatch.setattr(exact, "KEPT", 0)
    found = zv.fit(family, sample, values, objective, solver)
    assert (kept.stats["form"], found.stats["form"]) == ("primal", "primal, streamed")
    blocks = np.array_split(np.arange(5000), 23)
    np.testing.assert_allclose(found.intercept, kept.intercept, rtol=1e-9)
    np.testing.assert_allclose(found(sample), kept(sample), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(
        found.intercept_weights(), kept.intercept_weights(), rtol=1e-6, atol=1e-10
    )
    np.testing.assert_allclose(found.leave_out(), kept.leave_out(), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(
        found.leave_out(blocks), kept.leave_out(blocks), rtol=1e-6, atol=1e-7
    )


@pytest.mark.parametrize(
    ("family", "options"),
    [(SUM, {}), (zv.Kernel(GAUSSIAN), {"intercept_variance": 2.0})],
    ids=["semi-exact", "finite variance"],
)
def test_tiles_of_an_accelerator_are_lapack(monkeypatch, family, options):
    sample, values = problem(300, 2, 9)
    objective = zv.LeastSquares(zv.Ridge(1e-4), **options)
    reference = zv.fit(family, sample, values, objective)
    monkeypatch.setattr(
        dual, "make_factor", lambda *arguments: factors.OnDevice(*arguments, tile=64)
    )
    found = zv.fit(family, sample, values, objective)
    blocks = np.array_split(np.arange(300), 7)
    np.testing.assert_allclose(found.intercept, reference.intercept, rtol=1e-10)
    np.testing.assert_allclose(found(sample), reference(sample), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(found.leave_out(), reference.leave_out(), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(
        found.leave_out(blocks), reference.leave_out(blocks), rtol=1e-6, atol=1e-9
    )
    np.testing.assert_allclose(
        found.intercept_weights(), reference.intercept_weights(), rtol=1e-6, atol=1e-12
    )


def test_tiles_notice_a_singular_matrix(monkeypatch):
    sample, values = problem(150, 1, 10)
    monkeypatch.setattr(
        dual, "make_factor", lambda *arguments: factors.OnDevice(*arguments, tile=64)
    )
    with pytest.warns(zv.NumericalWarning, match="singular to rounding"):
        zv.fit(zv.Kernel(zv.kernels.Gaussian(5.0)), sample, values, zv.LeastSquares())


def test_neighbours_are_near():
    x = np.random.default_rng(0).uniform(size=(1000, 2))
    order = neighbours(x, 100)
    np.testing.assert_array_equal(np.sort(order), np.arange(1000))
    within = np.mean([x[order[i : i + 100]].std(axis=0) for i in range(0, 1000, 100)])
    assert within < 0.5 * x.std(axis=0).mean()


_SHARED = """
import json
import jax, numpy as np
import zerovar as zv
from test_scale import shared_fits
print(json.dumps([jax.device_count(), *shared_fits()]))
"""


def shared_fits(exact=False):
    """Of the Gram kept and made anew, and of features: intercepts."""
    sample, values = problem(100, 2, 12)
    found = []
    for family, keep in (
        (zv.Kernel(GAUSSIAN), True),
        (zv.Kernel(GAUSSIAN), False),
        (zv.Polynomial(2), None),
    ):
        solver = zv.Exact() if exact else zv.CG(keep=keep, tolerance=1e-7)
        found.append(
            zv.fit(
                family, sample, values, zv.LeastSquares(zv.Ridge(1e-4)), solver
            ).intercept.tolist()
        )
    return found


@pytest.mark.whole
def test_draws_are_shared_among_devices():
    """Four virtual devices give the exact answer; only another process can have another number of
    them."""
    # compiled in half the time
    several = "--xla_force_host_platform_device_count=4 --xla_backend_optimization_level=0"
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false {several}"
    environment = os.environ | {"XLA_FLAGS": flags, "PYTHONPATH": os.path.dirname(__file__)}
    done = subprocess.run(
        [sys.executable, "-c", _SHARED], capture_output=True, text=True, check=True, env=environment
    )
    devices, *shared = json.loads(done.stdout)
    assert devices == 4
    for intercept, expected in zip(shared, shared_fits(exact=True), strict=True):
        np.testing.assert_allclose(intercept, expected, rtol=1e-8, atol=1e-10)


def test_the_default_solver_is_chosen_by_cost(monkeypatch):
    kernel, ridge = zv.Kernel(), zv.LeastSquares(zv.Ridge(1e-6))
    monkeypatch.setattr(default, "room", lambda: 8e9)
    monkeypatch.setattr(
        default, "_rates", lambda: {name: 2 * rate for name, rate in default.CORE.items()}
    )

    def chosen(family, m, d, objective=ridge):
        return type(default.default_solver(family, m, d, 5, objective))

    assert chosen(kernel, 5000, 10) is zv.Exact
    assert chosen(kernel, 300_000, 10) is zv.SGD
    assert chosen(zv.Polynomial(2), 10**7, 20, zv.LeastSquares()) is zv.Exact
    assert chosen(zv.Polynomial(2), 50_000, 100) is zv.Exact
    assert chosen(zv.Polynomial(2), 40_000, 90) is zv.Exact
    assert chosen(zv.Polynomial(2), 40_000, 300) is zv.CG
    assert chosen(zv.Network(), 100, 2) is zv.SGD
    monkeypatch.setattr(default, "PATIENCE", 80.0)
    assert chosen(kernel, 20_000, 10) is zv.CG
    monkeypatch.setattr(default, "room", lambda: 1e9)
    assert chosen(kernel, 20_000, 10) is zv.SGD


def test_fitting_uses_the_chosen_solver(monkeypatch):
    sample, values = problem(300, 2, 11)
    monkeypatch.setattr(default, "exact_cost", lambda *arguments: default.Cost(1e9, 0.0))
    fitted = zv.fit(SUM, sample, values, zv.LeastSquares(zv.Ridge(1e-4)))
    assert "conjugate gradients" in fitted.stats["form"]
