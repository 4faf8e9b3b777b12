"""The exact solver against independent computations: brute force, NumPy, and its own other
route."""

import jax
import numpy as np
import pytest
from problems import gaussian, metropolis
from tables import FAMILIES

import zerovar as zv
from zerovar.hyper import Kind, declarations
from zerovar.solvers.algebra.tiles import feature_matrix, gram_matrix

GAUSSIAN = zv.kernels.Gaussian(2.0)
X, S = gaussian(60, 3)
VALUES = np.stack([np.sin(X[:, 0]), X[:, 1] ** 2 + X[:, 2], np.exp(0.2 * X[:, 0])], axis=1)

# family, ridge: every route through Exact once
ROUTES = {
    "primal": (zv.Polynomial(2), 0.0),
    "primal ridge": (zv.Polynomial(2), 1e-2),
    "primal free and penalised": (zv.Polynomial(2, weight=(np.inf, 0.5)), 1e-2),
    "dual": (zv.Kernel(GAUSSIAN), 1e-2),
    "dual of few features": (zv.Polynomial(4), 1e-1),
    "dual semi-exact": (zv.Polynomial(1, weight=np.inf) + zv.Kernel(GAUSSIAN), 1e-3),
    "dual sum": (zv.Polynomial(2, weight=3.0) + zv.Kernel(GAUSSIAN, weight=0.5), 1e-3),
}


def fit(family, x=X, s=S, values=VALUES, ridge=0.0, log_weights=None, solver=None, **options):
    sample = zv.Sample(x, s, log_weights)
    return zv.fit(
        family,
        sample,
        values,
        zv.LeastSquares(zv.Ridge(ridge), **options),
        solver,
        standardise=False,
    )


@pytest.mark.parametrize("degree", [1, 2, 3, 4])
@pytest.mark.parametrize("standardise", [True, False])
def test_a_polynomial_on_a_gaussian_is_exact(degree, standardise):
    x, s = gaussian(400, 3, seed=degree)
    sample = zv.Sample(x, s)
    u = x[:, 0] - 1.0
    # s = −Σ⁻¹(x − μ) gives Σ without error, and with it the moments of (x₀ − 1)
    sigma = np.linalg.inv(np.linalg.lstsq(x - np.arange(1, 4), -s, rcond=None)[0])[0, 0] ** 0.5
    moment = {1: 0.0, 2: sigma**2, 3: 0.0, 4: 3 * sigma**4}[degree]
    fitted = zv.fit(zv.Polynomial(degree), sample, u**degree, standardise=standardise)
    assert abs(fitted.intercept[0] - moment) < 1e-10
    residual = u**degree - fitted.intercept - fitted(sample)[:, 0]
    assert np.abs(residual).max() < 1e-9


def test_a_polynomial_of_lower_degree_is_not_exact():
    x, s = gaussian(400, 3, seed=3)
    fitted = zv.fit(zv.Polynomial(2), zv.Sample(x, s), (x[:, 0] - 1) ** 3)
    assert abs(fitted.intercept[0]) > 1e-4


@pytest.mark.parametrize("route", ROUTES)
def test_normal_equations_hold(route):
    """At the minimum the gradient vanishes: Σ p r = 0, and penalised features meet λθ/…; checked by
    perturbing the solution."""
    family, ridge = ROUTES[route]
    fitted = fit(family, ridge=ridge)
    penalised, _ = family.split()
    residual = VALUES - fitted.intercept - fitted.at(X, S)
    np.testing.assert_allclose(residual.mean(axis=0), 0.0, atol=1e-10)
    if penalised is not None and ridge:
        # representer: g_penalised = K a with a = residual / (n λ), which takes the residuals'
        # rounding K / (n λ) times over
        a = residual / (len(X) * ridge)
        gram = gram_matrix(penalised, X, S)
        free = VALUES - fitted.intercept - gram @ a - residual
        if family.split()[1] is None:
            np.testing.assert_allclose(
                free, 0.0, atol=1e-12 * np.linalg.norm(gram, 2) / (len(X) * ridge)
            )


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_is_fitted_as_numpy_fits_it(name):
    """K a + λ n a + B b = f with Bᵀa = 0, as one dense bordered system."""
    family, ridge, x, s, f = FAMILIES[name], 1e-2, X[:, :2], S[:, :2], VALUES
    penalised, free = family.split()
    n, gram = len(x), gram_matrix(penalised, x, s)
    border = (
        np.ones((n, 1))
        if free is None
        else np.column_stack([np.ones(n), feature_matrix(free, x, s).T])
    )
    size = border.shape[1]
    system = np.block([[gram + n * ridge * np.eye(n), border], [border.T, np.zeros((size, size))]])
    a, b = np.split(np.linalg.solve(system, np.concatenate([f, np.zeros((size, f.shape[1]))])), [n])
    fitted = fit(family, x, s, f, ridge)
    np.testing.assert_allclose(fitted.intercept, b[0], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(
        fitted.at(x, s), gram @ a + border[:, 1:] @ b[1:], rtol=1e-6, atol=1e-8
    )


@pytest.mark.parametrize("name", FAMILIES)
def test_weights_do_not_matter_to_a_penalty_on_coefficients(name):
    """L2 is on the coefficients themselves; under a Ridge weights do matter (the control)."""
    family = FAMILIES[name]
    weights = [entry.number for entry in declarations(family) if entry.kind is Kind.WEIGHT]
    assert weights, "a family that ships declares a weight: see docs/extending.md, A family"
    leaves, rebuild = jax.tree.flatten(family)
    heavier = jax.tree.unflatten(
        rebuild, [7.0 * leaf if k in weights else leaf for k, leaf in enumerate(leaves)]
    )
    sample = zv.Sample(X[:, :2], S[:, :2])

    def both(penalty):
        return (
            zv.fit(one, sample, VALUES, zv.LeastSquares(penalty)).at(X[:, :2], S[:, :2])
            for one in (family, heavier)
        )

    np.testing.assert_allclose(*both(zv.L2(0.1)), rtol=1e-7, atol=1e-9)
    assert not np.allclose(*both(zv.Ridge(0.1)), rtol=1e-3)


@pytest.mark.parametrize("route", ROUTES)
def test_leave_one_out_is_what_refitting_gives(route):
    family, ridge = ROUTES[route]
    quick = fit(family, ridge=ridge).leave_out()
    n = len(X)
    for i in (0, 17, 59):
        rest = np.arange(n) != i
        # the closed form keeps the other draws' weights, 1/n; a refit renormalises them to 1/(n−1)
        slow = fit(family, X[rest], S[rest], VALUES[rest], ridge * n / (n - 1))
        expected = VALUES[i] - slow.intercept - slow.at(X[i : i + 1], S[i : i + 1])[0]
        np.testing.assert_allclose(quick[i], expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("route", ROUTES)
def test_leave_block_out_is_what_refitting_gives(route):
    family, ridge = ROUTES[route]
    n, blocks = len(X), np.array_split(np.arange(len(X)), 6)
    quick = fit(family, ridge=ridge).leave_out(blocks)
    rest = np.setdiff1d(np.arange(n), blocks[2])
    slow = fit(family, X[rest], S[rest], VALUES[rest], ridge * n / len(rest))
    expected = VALUES[blocks[2]] - slow.intercept - slow.at(X[blocks[2]], S[blocks[2]])
    np.testing.assert_allclose(quick[blocks[2]], expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("route", [name for name in ROUTES if "primal" not in name])
def test_one_eigendecomposition_serves_every_ridge_and_integrand(route):
    family, ridge = ROUTES[route]
    spectral = fit(family, ridge=1.0, solver=zv.Spectral())
    for strength in (ridge, 10 * ridge):
        again = spectral.refit(ridge=strength)
        direct = fit(family, ridge=strength)
        np.testing.assert_allclose(again.intercept, direct.intercept, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(again.at(X, S), direct.at(X, S), rtol=1e-7, atol=1e-9)
    same = fit(family, ridge=ridge, solver=zv.Spectral())
    np.testing.assert_allclose(
        same.leave_out(), fit(family, ridge=ridge).leave_out(), rtol=1e-6, atol=1e-9
    )
    blocks = np.array_split(np.arange(len(X)), 6)
    np.testing.assert_allclose(
        same.leave_out(blocks), fit(family, ridge=ridge).leave_out(blocks), rtol=1e-6, atol=1e-9
    )


@pytest.mark.parametrize("solver", [zv.Exact(), zv.Spectral()])
def test_primal_and_dual_agree(solver):
    """19 features on 60 draws: the primal by default; the dual when a kernel of almost no weight
    joins the sum."""
    primal = fit(zv.Polynomial(3), ridge=1e-3)
    dual = fit(zv.Polynomial(3) + zv.Kernel(GAUSSIAN, weight=1e-14), ridge=1e-3, solver=solver)
    assert primal.stats["form"] == "primal"
    assert dual.stats["form"] != "primal"
    np.testing.assert_allclose(dual.intercept, primal.intercept, rtol=1e-8)
    np.testing.assert_allclose(dual.at(X, S), primal.at(X, S), rtol=1e-6, atol=1e-8)


def test_more_features_than_draws_go_through_the_dual():
    x, s = gaussian(50, 30)
    fitted = fit(zv.Polynomial(2), x, s, x[:, 0] * x[:, 1], ridge=1e-6)
    assert fitted.stats["form"] == "dual"
    assert fitted.stats["unknowns"] == 50
    features = feature_matrix(zv.Polynomial(2), x, s)
    centred = features - features.mean(axis=1, keepdims=True)
    theta = centred @ np.linalg.solve(
        centred.T @ centred + 50 * 1e-6 * np.eye(50), x[:, 0] * x[:, 1] - np.mean(x[:, 0] * x[:, 1])
    )
    np.testing.assert_allclose(fitted.at(x, s)[:, 0], features.T @ theta, rtol=1e-6, atol=1e-6)


def test_five_hundred_dimensions_at_degree_two():
    """125 750 terms, one system of 200 draws: the mean of a quadratic form, which 200 plain draws
    cannot give."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(200, 500))
    values = np.sum(x**2, axis=1) / 500
    fitted = zv.fit(
        zv.Polynomial(2, weight=(1.0, 1.0)),
        zv.Sample(x, -x),
        values,
        zv.LeastSquares(zv.Ridge(1e-8)),
    )
    assert fitted.stats["form"] == "dual"
    assert np.isfinite(fitted.intercept).all()


@pytest.mark.parametrize("route", ["primal ridge", "dual", "dual semi-exact"])
def test_variance_is_least_squares_with_another_strength(route):
    family, ridge = ROUTES[route]
    sample, m = zv.Sample(X, S), len(X)
    variance = zv.fit(family, sample, VALUES, zv.Variance(zv.Ridge(ridge)))
    squares = zv.fit(family, sample, VALUES, zv.LeastSquares(zv.Ridge(ridge * (m - 1) / m)))
    other = zv.fit(family, sample, VALUES, zv.LeastSquares(zv.Ridge(ridge)))
    np.testing.assert_allclose(variance.intercept, squares.intercept, rtol=1e-12)
    assert not np.allclose(variance.at(X, S), other.at(X, S), rtol=1e-9)


@pytest.mark.parametrize("polynomial", [None, zv.Polynomial(2)], ids=["kernel", "sum"])
def test_l2_on_translates_is_the_papers_penalty(polynomial):
    """min mean (f − c − Φθ)² + λ‖θ‖² over c and θ, by NumPy; and the fit is kept as θ, so that a
    value elsewhere takes each translate once."""
    strength, n, kernel = 1e-2, len(X), zv.Kernel(GAUSSIAN)
    fitted = zv.fit(
        kernel if polynomial is None else polynomial + kernel,
        zv.Sample(X, S),
        VALUES,
        zv.LeastSquares(zv.L2(strength)),
        standardise=False,
    )
    y, t = gaussian(20, 3, seed=5)
    translates = kernel.translates(X, S)
    rows = [
        np.column_stack(
            [
                np.ones(len(x)),
                *(feature_matrix(one, x, s).T for one in (polynomial, translates) if one),
            ]
        )
        for x, s in ((X, S), (y, t))
    ]
    design = rows[0]
    penalty = strength * np.diag([0.0] + [1.0] * (design.shape[1] - 1))
    expected = np.linalg.solve(design.T @ design / n + penalty, design.T @ VALUES / n)
    np.testing.assert_allclose(fitted.intercept, expected[0], rtol=1e-8)
    np.testing.assert_allclose(fitted.at(y, t), rows[1][:, 1:] @ expected[1:], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(fitted.terms[-1].coefficients, expected[-n:], rtol=1e-5, atol=1e-9)


def test_l1_meets_its_optimality_conditions():
    strength = 0.05
    objective = zv.LeastSquares((zv.L1(strength), zv.Ridge(1e-3)))
    fitted = zv.fit(zv.Polynomial(2), zv.Sample(X, S), VALUES, objective, standardise=False)
    (term,) = fitted.terms
    theta = term.coefficients
    features = feature_matrix(zv.Polynomial(2), X, S)
    sd = features.std(axis=1)
    residual = VALUES - fitted.intercept - features.T @ theta
    gradient = 2 * features @ residual / len(X) - 2 * 1e-3 * theta
    zero = theta == 0
    assert 0 < zero.sum() < zero.size
    bound = strength * np.broadcast_to(sd[:, None], theta.shape)
    assert np.all(np.abs(gradient[zero]) <= bound[zero] * (1 + 1e-6))
    np.testing.assert_allclose(gradient[~zero], (np.sign(theta) * bound)[~zero], rtol=1e-6)


def test_l1_has_no_in_sample_error():
    with pytest.raises(ValueError, match="cross_fit"):
        zv.estimate(X, S, VALUES, objective=zv.LeastSquares(zv.L1(0.1)), split=zv.in_sample())
    # so it is not the default
    assert "cross" in zv.estimate(X, S, VALUES, objective=zv.LeastSquares(zv.L1(0.1))).split


@pytest.mark.parametrize("route", ["primal ridge", "dual", "dual semi-exact"])
def test_a_weight_of_two_is_a_draw_given_twice(route):
    family, ridge = ROUTES[route]
    twice = np.concatenate([np.arange(60), np.arange(20)])
    log_weights = np.log(np.bincount(twice))
    repeated = fit(family, X[twice], S[twice], VALUES[twice], ridge)
    weighted = fit(family, ridge=ridge, log_weights=log_weights)
    assert repeated.stats["distinct_draws"] == 60
    assert repeated.stats["draws"] == 80
    np.testing.assert_allclose(repeated.intercept, weighted.intercept, rtol=1e-9)
    np.testing.assert_allclose(repeated.at(X, S), weighted.at(X, S), rtol=1e-7, atol=1e-10)
    assert not np.allclose(repeated.intercept, fit(family, ridge=ridge).intercept, rtol=1e-6)


def test_metropolis_states_are_merged_and_leave_together():
    x, s = metropolis(300)
    fitted = fit(zv.Kernel(GAUSSIAN), x, s, np.sin(x[:, 0]), 1e-4)
    assert fitted.stats["distinct_draws"] < 250
    left = fitted.leave_out()
    repeats = np.flatnonzero((x[1:] == x[:-1]).all(axis=1))
    np.testing.assert_array_equal(left[repeats + 1], left[repeats])
    # negative control: residuals of the full fit at those states are far smaller than their
    # leave-out residuals
    inside = np.sin(x[:, :1]) - fitted.intercept - fitted.at(x, s)
    assert np.abs(left).mean() > 2 * np.abs(inside).mean()


def test_singular_gram_raises_the_ridge_once_and_says_so():
    x = np.linspace(-1, 1, 200)[:, None]
    with pytest.warns(zv.NumericalWarning, match="ridge was raised"):
        fitted = fit(zv.Kernel(zv.kernels.Gaussian(3.0)), x, -x, np.cos(x))
    assert fitted.result.name == "RIDGE_RAISED"
    assert 0 < fitted.stats["ridge"] < 1e-10
    assert np.isfinite(fitted.intercept).all()


def test_rank_deficient_features_are_reported_and_solved():
    x, s = gaussian(80, 2)
    doubled = zv.Polynomial(1) + zv.Polynomial(1)
    with pytest.warns(zv.NumericalWarning, match="linearly dependent"):
        fitted = fit(doubled, x, s, x[:, 0])
    assert fitted.stats["rank"] == 2
    np.testing.assert_allclose(
        fitted.intercept, fit(zv.Polynomial(1), x, s, x[:, 0]).intercept, rtol=1e-10
    )


def test_collinear_unpenalised_terms_fail_with_the_fix():
    family = zv.Polynomial(1, weight=np.inf) + zv.Polynomial(1, weight=np.inf) + zv.Kernel(GAUSSIAN)
    with pytest.raises(zv.NumericalError, match="finite weight"):
        fit(family)
    failed = zv.fit(family, zv.Sample(X, S), VALUES, throw=False)
    assert failed.result.failed
    for use in (
        lambda: failed.at(X, S),
        failed.leave_out,
        lambda: failed.refit(VALUES),
        lambda: failed.save("never"),
    ):
        with pytest.raises(zv.NumericalError, match="finite weight"):
            use()


@pytest.mark.parametrize("solver", [zv.Exact(), zv.Spectral()], ids=["direct", "spectral"])
@pytest.mark.parametrize("route", ROUTES)
def test_leaving_draws_out_moves_the_intercept_by_weight_times_residual(route, solver):
    family, ridge = ROUTES[route]
    if isinstance(solver, zv.Spectral) and not ridge:
        pytest.skip("without a ridge the dual of few features is singular")
    log_weights = 0.3 * np.sin(np.arange(60))
    for variance in (np.inf, 2.0):
        fitted = fit(
            family, ridge=ridge, log_weights=log_weights, solver=solver, intercept_variance=variance
        )
        weights = fitted.intercept_weights()
        np.testing.assert_allclose(weights @ VALUES, fitted.intercept, rtol=1e-8)
        block = np.arange(20, 26)
        residuals = fitted.leave_out([np.arange(20), block, np.arange(26, 60)])[block]
        rest = np.setdiff1d(np.arange(60), block)
        kept = zv.Sample(X, S, log_weights).probabilities[rest].sum()
        slow = fit(
            family,
            X[rest],
            S[rest],
            VALUES[rest],
            ridge / kept,
            log_weights[rest],
            solver,
            intercept_variance=variance,
        )
        np.testing.assert_allclose(
            fitted.intercept - slow.intercept, weights[block] @ residuals, rtol=1e-6, atol=1e-9
        )


def test_refit_keeps_its_ridge():
    family, ridge = ROUTES["dual"]
    spectral = fit(family, ridge=1.0, solver=zv.Spectral()).refit(ridge=ridge)
    direct = fit(family, ridge=ridge)
    np.testing.assert_allclose(spectral.leave_out(), direct.leave_out(), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(
        spectral.intercept_weights(), direct.intercept_weights(), rtol=1e-6, atol=1e-12
    )
    np.testing.assert_allclose(
        spectral.refit(np.cos(X)).intercept, direct.refit(np.cos(X)).intercept, rtol=1e-9
    )
    assert spectral.stats["ridge"] == ridge
    variance = zv.fit(family, zv.Sample(X, S), VALUES, zv.Variance(zv.Ridge(ridge)))
    again = zv.fit(
        family, zv.Sample(X, S), VALUES, zv.Variance(zv.Ridge(1.0)), zv.Spectral()
    ).refit(ridge=ridge)
    np.testing.assert_allclose(again.intercept, variance.intercept, rtol=1e-9)


def test_leave_out_needs_a_partition():
    fitted = fit(zv.Polynomial(1))
    for groups in ([np.arange(10)], [np.arange(60), np.arange(5)]):
        with pytest.raises(ValueError, match="a partition of the 60 rows"):
            fitted.leave_out(groups)


@pytest.mark.parametrize(
    "family",
    [zv.Polynomial(3), zv.Polynomial(2, weight=np.inf) + zv.Kernel(GAUSSIAN)],
    ids=["primal", "dual"],
)
def test_a_block_that_the_fit_cannot_do_without_keeps_its_plain_residuals(family):
    fitted = fit(family, ridge=1e-6 if "Kernel" in family.describe() else 0.0)
    almost_all = [np.arange(55), np.arange(55, 60)]  # 5 draws cannot determine 9 or 19 free terms
    left = fitted.leave_out(almost_all)
    np.testing.assert_allclose(left[:55], (VALUES - VALUES.mean(axis=0))[:55], rtol=1e-9)


def test_refit_serves_new_integrands():
    family, ridge = ROUTES["dual semi-exact"]
    fitted = fit(family, ridge=ridge)
    fitted.leave_out()  # replaces the factor by its inverse; refits must not notice
    other = np.cos(X)
    np.testing.assert_allclose(
        fitted.refit(other).intercept, fit(family, values=other, ridge=ridge).intercept, rtol=1e-9
    )
    with pytest.raises(ValueError, match=r"Spectral\(\)"):
        fitted.refit(ridge=1.0)


def test_a_finite_intercept_variance_shrinks_the_intercept():
    family, ridge = ROUTES["dual"]
    free, tight = fit(family, ridge=ridge), fit(family, ridge=ridge, intercept_variance=1e-4)
    wide = fit(family, ridge=ridge, intercept_variance=1e8)
    assert np.all(np.abs(tight.intercept) < np.abs(free.intercept))
    np.testing.assert_allclose(wide.intercept, free.intercept, rtol=1e-4)
    primal = fit(zv.Polynomial(2), ridge=1e-2, intercept_variance=2.0)
    dual = fit(
        zv.Polynomial(2) + zv.Kernel(GAUSSIAN, weight=1e-14), ridge=1e-2, intercept_variance=2.0
    )
    np.testing.assert_allclose(primal.intercept, dual.intercept, rtol=1e-8)


def test_standardisation_does_not_change_what_is_affine_invariant():
    """Linear vector fields are the same in all affine coordinates; quadratic potentials are not
    (their Laplacian changes)."""
    # not a Gaussian's scores, which would make the features dependent
    sample = zv.Sample(X, S + 0.1 * X**2)
    vector = [
        zv.fit(zv.Polynomial(1, operator=zv.Langevin()), sample, VALUES, standardise=flag)
        for flag in (False, True)
    ]
    np.testing.assert_allclose(vector[0].intercept, vector[1].intercept, rtol=1e-9)
    potential = [
        zv.fit(zv.Polynomial(2), sample, VALUES, standardise=flag) for flag in (False, True)
    ]
    assert not np.allclose(potential[0].intercept, potential[1].intercept, rtol=1e-6)


def test_coordinates_keep_their_meaning_under_standardisation():
    fitted = zv.fit(zv.Polynomial(2, coordinates=(0, 2)), zv.Sample(X, S), VALUES)
    assert fitted.stats["standardisation"] == "diagonal"
    moved = np.array([0.0, 5.0, 0.0])
    np.testing.assert_array_equal(fitted.at(X + moved, S - moved), fitted.at(X, S))


def test_l1_ends_as_near_for_small_integrands_beside_large_ones():
    root = np.linalg.cholesky(0.97 + 0.03 * np.eye(4))
    x = np.random.default_rng(0).normal(size=(400, 4)) @ root.T
    s = -x @ np.linalg.inv(root @ root.T)
    small, large = x[:, 1] ** 2 + x[:, 2] * x[:, 3], 1e12 * s[:, 0]
    options = {"objective": zv.LeastSquares(zv.L1(1e-6)), "standardise": False}
    alone, beside = (
        zv.estimate(x, s, values, family=zv.Polynomial(2), **options)
        for values in (small, np.stack([small, large], axis=1))
    )
    np.testing.assert_allclose(beside.std_error[0], alone.std_error[0], rtol=1e-3)
    assert abs(beside.value[0] - alone.value[0]) < 0.01 * alone.std_error[0]
