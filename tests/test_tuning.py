"""Tuning: derivatives against differences, criteria against refits, and choices that can be
known."""

import equinox
import jax
import numpy as np
import pytest
from problems import ar1, gaussian
from tables import FAMILIES

import zerovar as zv
from zerovar.hyper import hyper_parameters
from zerovar.inputs.points import FittingDraws
from zerovar.kernels import Gaussian, InverseMultiquadric
from zerovar.tuning import Descent, DescentEnd, LeaveOneOut, MarginalLikelihood
from zerovar.tuning.descent import mean_diagonal

X, S = gaussian(60, 2)
SAMPLE = zv.Sample(X, S)
DRAWS = FittingDraws(SAMPLE.points())
VALUES = np.stack([np.sin(X[:, 0]) + X[:, 1], np.exp(0.3 * X[:, 0])], axis=1)

DEGREES = zv.Polynomial(3, weight=[20.0, 3.0, 0.5]) + zv.Kernel(InverseMultiquadric(2.0))
CRITERIA = {"leave-one-out": LeaveOneOut(), "marginal likelihood": MarginalLikelihood()}


def start(descent: Descent, ridge: float = 1e-4) -> np.ndarray:
    return np.concatenate([[np.log(ridge)], descent._flat()[0]])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("criterion", CRITERIA)
def test_derivatives_are_those_of_differences(family, criterion):
    descent = Descent.on(FAMILIES[family], DRAWS, VALUES, DRAWS)
    # at small ones few features leave nothing but rounding to differ
    position = start(descent, ridge=0.1)

    def loss(at):
        return descent._measure(at, descent.values, CRITERIA[criterion])[0]

    slope = descent._measure(position, descent.values, CRITERIA[criterion])[1]
    assert len(slope) == 1 + sum(map(np.size, hyper_parameters(FAMILIES[family])))
    step = 1e-5
    differences = [
        (loss(position + step * e) - loss(position - step * e)) / (2 * step)
        for e in np.eye(len(position))
    ]
    assert np.allclose(slope, differences, rtol=1e-4, atol=1e-5 * np.abs(slope).max())


def test_leave_one_out_is_that_of_the_solver():
    family = DEGREES
    descent = Descent.on(family, DRAWS, VALUES, DRAWS)
    position = start(descent)
    loss, _ = descent._measure(position, descent.values, LeaveOneOut())
    end = DescentEnd(position, loss, 1, np.eye(len(position)))
    tuned = descent.outcome(end, len(SAMPLE))
    fitted = zv.fit(tuned.family, SAMPLE, VALUES, tuned.objective)
    spread = VALUES.std(axis=0)
    expected = np.log(np.mean((fitted.leave_out() / spread) ** 2, axis=0)).mean()
    assert loss == pytest.approx(expected, abs=1e-6)


def test_marginal_likelihood_is_that_of_a_gaussian():
    """Against the density of contrasts: f projected on the complement of the constant, its scale
    profiled out."""
    family = zv.Kernel(Gaussian(1.5))
    descent = Descent.on(family, DRAWS, VALUES[:, :1], DRAWS)
    loss = descent._measure(start(descent), descent.values, MarginalLikelihood())[0]
    with jax.enable_x64(True):
        gram = np.asarray(
            family.gram(descent.points.x, descent.points.s, descent.points.x, descent.points.s)
        )
    n = len(gram)
    covariance = gram + (1e-4 + 10 * n * np.finfo(float).eps) * gram.diagonal().mean() * np.eye(n)
    contrasts = np.linalg.qr(np.column_stack([np.ones(n), np.eye(n)[:, 1:]]))[0][:, 1:]
    inside = contrasts.T @ covariance @ contrasts
    f = contrasts.T @ descent.values[:, 0]
    expected = (
        (n - 1) * np.log(f @ np.linalg.solve(inside, f)) + np.linalg.slogdet(inside)[1] + np.log(n)
    )
    assert loss == pytest.approx(expected / n, rel=1e-9)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_descent_finds_a_better_scale(criterion):
    poor = zv.Polynomial(1) + zv.Kernel(Gaussian(0.3))
    found = zv.tune(poor, SAMPLE, VALUES, criterion=CRITERIA[criterion])
    family, objective = found
    assert found.evaluations <= 75  # a line search is finished
    assert family.parts[1].base.length_scale > 0.6
    before = zv.fit(poor, SAMPLE, VALUES, objective).leave_out()
    after = zv.fit(family, SAMPLE, VALUES, objective).leave_out()
    assert np.all(np.mean(after**2, axis=0) < 0.1 * np.mean(before**2, axis=0))


def test_free_terms_stay_free_and_absent_ones_absent():
    family, _ = zv.tune(
        zv.Polynomial(3, weight=[np.inf, 2.0, 0.0]) + zv.Kernel(Gaussian(1.5)),
        SAMPLE,
        VALUES,
        evaluations=5,
    )
    assert np.isinf(family.parts[0].weight[0])
    assert family.parts[0].weight[2] == 0
    assert family.parts[0].weight[1] != 2.0


def test_each_integrand_by_itself():
    both = zv.tune(DEGREES, SAMPLE, VALUES, shared=False, evaluations=15)
    shared = zv.tune(DEGREES, SAMPLE, VALUES, evaluations=15)
    assert len(both) == 2
    assert np.mean([one.loss for one in both]) <= shared.loss + 1e-9
    assert not np.allclose(
        np.concatenate([np.ravel(h) for h in hyper_parameters(both[0].family)]), 0.0
    )


def test_ridges_by_one_eigendecomposition_agree_with_refits():
    family, ridges = zv.Kernel(Gaussian(1.5)), (1e-8, 1e-4, 1e-1)
    found = zv.tune(family, SAMPLE, VALUES, ridges=ridges)
    losses = []
    for ridge in ridges:
        descent = Descent.on(family, DRAWS, VALUES, DRAWS)
        strength = ridge * mean_diagonal(family, descent.points) / len(SAMPLE)
        left = zv.fit(family, SAMPLE, VALUES, zv.LeastSquares(zv.Ridge(strength))).leave_out()
        losses.append(np.log(np.mean(left**2, axis=0)).mean())
    assert found.loss == pytest.approx(min(losses), abs=1e-5)


def test_cross_validation_over_a_grid_is_by_blocks_within_chains():
    """A slow chain and a kernel so short that it only interpolates: leaving out one draw is fooled
    by its neighbours."""
    x = ar1(np.random.default_rng(0), 200, 1, 0.98)
    sample, values = zv.Sample(x, -x), np.cos(3 * x[:, 0])
    grid = [zv.Kernel(Gaussian(0.02)), zv.Kernel(Gaussian(1.0))]
    found = zv.tune(
        grid[0], sample, values, grid=grid, ridges=(1e-6, 1e-3), criterion=zv.CrossValidation(5)
    )
    assert found.family.base.length_scale == 1.0
    residuals = np.empty(200)
    for fitting, held in zv.cross_fit(5).folds(sample):
        fitted = zv.fit(
            found.family, zv.Sample(x[fitting], -x[fitting]), values[fitting], found.objective
        )
        held_out = zv.Sample(x[held], -x[held])
        residuals[held] = values[held] - fitted.intercept - fitted(held_out)[:, 0]
    # a fold's own mean diagonal differs
    assert found.loss == pytest.approx(np.log(np.mean(residuals**2)), abs=0.3)


def test_few_draws_serve_many():
    """The noise is kept, not the strength: tuned on 100 of 1000 draws, the objective is that of all
    of them."""
    x, s = gaussian(1000, 2)
    values = np.sin(x)
    family, objective = zv.tune(zv.Kernel(Gaussian(1.5)), zv.Sample(x, s), values, draws=100)
    fitted = zv.fit(family, zv.Sample(x, s), values, objective)
    assert np.all(fitted.leave_out().std(axis=0) < 1e-2)
    thinned, rows = zv.Sample(x.reshape(4, 250, 2), s.reshape(4, 250, 2)).thin(100)
    assert thinned.num_chains == 4
    assert np.array_equal(thinned.draws, x[rows])
    assert np.all(np.diff(rows.reshape(4, 25), axis=1) >= 10)


class Waves(zv.BasisFamily):
    """Sines of these frequencies: positive numbers that are no hyper-parameters, as nothing
    declares them."""

    operator: zv.ScalarLangevin = zv.ScalarLangevin()
    frequencies: np.ndarray = equinox.field(default_factory=lambda: np.array([0.5, 1.0, 2.0]))

    def basis(self, x):
        return jax.numpy.sin(self.frequencies[:, None] * x).ravel()

    def num_features(self, d):
        return len(self.frequencies) * d

    def describe(self):
        return "Waves"


class Bare(Waves):
    frequencies: tuple = equinox.field(static=True, default=(0.5, 1.0, 2.0))

    def basis(self, x):
        return jax.numpy.sin(jax.numpy.asarray(self.frequencies)[:, None] * x).ravel()


@pytest.mark.parametrize("waves", [Waves(), Bare()])
def test_what_is_not_declared_does_not_move(waves):
    """Of a family that declares nothing the ridge alone is chosen; beside a kernel, its numbers
    stay (the control moves)."""
    alone, objective = zv.tune(waves, SAMPLE, VALUES)
    np.testing.assert_array_equal(alone.frequencies, waves.frequencies)
    assert objective.total(zv.Ridge) > 0
    both, _ = zv.tune(waves + zv.Kernel(Gaussian(0.5)), SAMPLE, VALUES, evaluations=10)
    np.testing.assert_array_equal(both.parts[0].frequencies, waves.frequencies)
    assert both.parts[1].base.length_scale != 0.5


def test_weights_inside_wrappers_are_held_against_scales():
    """What a kernel's weight is measured against is the same inside of wrappers."""
    kernel = zv.Kernel(Gaussian(1.5), order=2)
    bare, wrapped = (
        Descent.on(f, DRAWS, VALUES, DRAWS)._gauge
        for f in (kernel, zv.Anisotropic(kernel, [2.0, 0.7]))
    )
    assert bare[1, 0] == 4.0
    np.testing.assert_array_equal(wrapped[:2, :2], bare)
