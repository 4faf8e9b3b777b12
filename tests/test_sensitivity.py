"""Sensitivities: exact on conjugate models, honest where they are estimated, and what events,
quantiles, powers and the jackknife make of them."""

import dataclasses
import json

import jax.numpy as jnp
import numpy as np
from scipy import stats

import zerovar as zv
from benchmarks.sensitivities import Regression, small, small_regression
from zerovar.choice import LOW_EFFORT
from zerovar.sensitivities.covariances import Covariances, Estimates
from zerovar.sensitivities.jackknife import jackknife
from zerovar.sensitivities.slopes import SlopeBasis


class Linear:
    """y ~ N(Xβ, 1) with β ~ N(m, s²) in three dimensions: the posterior is normal."""

    def __init__(self):
        rng = np.random.default_rng(3)
        self.x = rng.normal(size=(12, 3))
        self.y = self.x @ np.array([1.0, -1.0, 0.5]) + rng.normal(size=12)

    def posterior(self, m=0.5, s=2.0):
        precision = self.x.T @ self.x + np.eye(3) / s**2
        return np.linalg.solve(precision, self.x.T @ self.y + m / s**2), np.linalg.inv(precision)

    def draws(self, n, seed):
        mean, covariance = self.posterior()
        rng = np.random.default_rng(seed)
        return mean + rng.normal(size=(n, 3)) @ np.linalg.cholesky(covariance).T

    def observations(self, b):
        return -((self.y - self.x @ b) ** 2) / 2

    def prior(self, b, m=0.5, s=2.0):
        return -(((b - m) / s) ** 2).sum() / 2 - 3 * jnp.log(s)

    def log_density(self, b):
        return self.observations(b).sum() + self.prior(b)

    def sample(self, n, seed):
        return zv.from_log_density(self.log_density, self.draws(n, seed))


LOW = {"family": LOW_EFFORT}
LINEAR, SMALL = Linear(), small_regression()


def test_normal_posteriors_are_exact():
    """In the parameters of a prior and in every observation, from 200 draws, to rounding; plain
    covariances of the same draws are off by a twentieth."""
    mean, covariance = LINEAR.posterior()
    posterior = LINEAR.sample(200, 0)
    found = zv.sensitivity(posterior, log_density=LINEAR.prior, at={"m": 0.5, "s": 2.0})
    steps = [
        (np.subtract(*(LINEAR.posterior(**{name: at + e})[0] for e in (1e-3, -1e-3)))) / 2e-3
        for name, at in (("m", 0.5), ("s", 2.0))
    ]
    np.testing.assert_allclose(found.derivative, np.transpose(steps), rtol=1e-5)
    assert found.to == ("m", "s")
    each = zv.sensitivity(posterior, to={"observations": LINEAR.observations})
    exact = covariance @ LINEAR.x.T * (LINEAR.y - LINEAR.x @ mean)
    np.testing.assert_allclose(each.derivative, exact, atol=1e-10)
    assert np.abs(each.plain_derivative / exact - 1).max() > 0.05
    assert (each.gain > 1e12).all()
    away = exact - exact.mean(axis=1, keepdims=True)
    assert each.jackknife is not None
    np.testing.assert_allclose(each.jackknife.covariance, away @ away.T, rtol=1e-9)


def test_arrays_and_functions_say_the_same():
    """Of chains too, and whichever constant is added: h has the size of a log density."""
    posterior = LINEAR.sample(200, 8)
    h = -((LINEAR.y - posterior.draws @ LINEAR.x.T) ** 2) / 2
    ask = {"family": zv.Polynomial(3)}
    one = zv.sensitivity(posterior, to={"observations": h + 1e6}, **ask)
    other = zv.sensitivity(posterior, to={"observations": LINEAR.observations}, **ask)
    np.testing.assert_allclose(one.derivative, other.derivative, atol=1e-8)
    np.testing.assert_allclose(one.plain_derivative, other.plain_derivative, atol=1e-8)


def ask(case, value, family):
    """By arrays alone, without lines or programs of their own."""
    x = case.draws[0]
    f = np.column_stack([x[:, :4], np.exp(x[:, 4])])[:, value]
    h = -(((SMALL.y - x[:, :4] @ SMALL.design.T) / np.exp(x[:, 4:])) ** 2) / 2 - x[:, 4:]
    residuals = (SMALL.y - x[:, :4] @ SMALL.design.T) / np.exp(x[:, 4:])
    scores = np.column_stack(
        [
            residuals / np.exp(x[:, 4:]) @ SMALL.design,
            (residuals**2 - 1).sum(axis=1) + 1 - 2 / (1 + (2.5 / np.exp(x[:, 4])) ** 2),
        ]
    )
    posterior = zv.Posterior(x, scores, None)
    return zv.sensitivity(posterior, {"f": f}, to={"observations": h}, family=family)


def test_errors_are_calibrated():
    """Regressions with unknown scale, 20 samples of 200 draws with a small family: squares of z of
    one derivative each have a mean of one, by a χ²; those of a derivative that is off by a tenth
    have not. Of the jackknife's variance, too, whose noise plain covariances do not hide."""
    off, wrong, squares = [], [], []
    for replicate in range(20):
        case = small(replicate, 200, None)
        found = ask(case, 4, zv.Polynomial(1))
        k = replicate  # an observation of its own
        exact = case.exact["observations"][4, k]
        off.append((found.derivative[0, k] - exact) / found.std_error[0, k])
        wrong.append((found.derivative[0, k] - exact) / found.std_error[0, k] + 4)
        own = found.jackknife
        squares.append((own.plain[0, 0] - case.jackknife[4, 4]) / own.plain_std_error[0, 0])
    most = stats.chi2(20).isf(1e-3)
    assert np.sum(np.square(off)) < most
    assert np.sum(np.square(squares)) < 2 * most  # of a few hundred draws, skewed
    assert np.sum(np.square(wrong)) > most


def test_noise_is_taken_from_the_jackknife():
    """Squares of noisy covariances are too large by their variances: without these they are right
    on average, and vary as much as they say."""
    rng = np.random.default_rng(9)
    q, r, k = 2, 3, 15
    mixing, exact = rng.normal(size=(k, r)), rng.normal(size=(q, r))
    root = 0.4 * rng.normal(size=(q * r, q * r))
    joint = (root @ root.T).reshape(q, r, q, r)
    nothing = np.zeros((q, k))
    basis = SlopeBasis(np.zeros((1, r)), mixing, np.zeros(k), np.zeros((k, r)), None)
    found = []
    for _ in range(400):
        noisy = Estimates(exact + (root @ rng.normal(size=q * r)).reshape(q, r), joint)
        one = Covariances(basis, noisy, noisy, nothing, nothing)
        found.append(jackknife(one, np.ones(k, bool), ("f", "g")))
    values = np.array([one.covariance for one in found])
    away = (exact @ mixing.T) - (exact @ mixing.T).mean(axis=1, keepdims=True)
    error = values.std(axis=0) / np.sqrt(len(values))
    assert np.abs((values.mean(axis=0) - away @ away.T) / error).max() < 4
    gram = np.cov(mixing.T, ddof=0) * k
    noise = np.einsum("rc,arbc->ab", gram, joint)
    assert np.diag(noise / error).min() > 4  # what would be too much
    # the linear part of the reported variance has the noise of its slopes
    reported = np.sqrt(np.mean([one.std_error**2 for one in found], axis=0))
    assert np.diag(reported / values.std(axis=0)).min() > 0.9
    assert np.diag(reported / values.std(axis=0)).max() < 1.5


def test_events_and_quantiles_of_a_normal():
    """P(x > c) and quantiles of a normal move with its location as the density says, from 300
    draws, a hundred times more precisely than the share of the draws does; by arrays of slopes,
    which know nothing of lines, no better than plain."""
    draws = np.random.default_rng(5).normal(size=(300, 1))

    def log_density(x):
        return -jnp.sum(x**2) / 2

    posterior = zv.from_log_density(log_density, draws)
    shift = {"location": lambda x: x[0]}  # ∂ log φ(x − m) / ∂m at m = 0
    found = zv.sensitivity(posterior, {"above": "x[0] > 1"}, to=shift, probs=(0.25,), **LOW)
    np.testing.assert_allclose(found.derivative[:, 0], [stats.norm.pdf(1), 1.0], atol=1e-5)
    assert np.all(
        np.abs(found.derivative[:, 0] - [stats.norm.pdf(1), 1.0]) < 4 * found.std_error[:, 0] + 1e-8
    )
    assert (found.gain > 1e4).all()
    arrays = zv.sensitivity(posterior, {"above": "x[0] > 1"}, to={"location": draws}, **LOW)
    assert arrays.gain[0, 0] < 100


def test_powers_and_curves():
    """The mean of N(a, 1/2), prior N(0, 1) and likelihood N(2a, 1), along their powers: exact
    curves, the derivative's own end, and reweighting that agrees near one."""
    a = 1.0
    draws = a + np.random.default_rng(6).normal(size=(500, 1)) / np.sqrt(2)
    terms = {
        "prior": lambda x: -(x[0] ** 2) / 2,
        "likelihood": lambda x: -((x[0] - 2 * a) ** 2) / 2,
    }
    posterior = zv.from_log_density(lambda x: terms["prior"](x) + terms["likelihood"](x), draws)
    found = zv.sensitivity(posterior, to=terms, curve=(0.5, 2.0), **LOW)
    curves = found.curves
    assert curves is not None
    exact = np.stack([2 * a / (1 + curves.grid), 2 * a * curves.grid / (1 + curves.grid)])
    np.testing.assert_allclose(found.derivative[0], [-a / 2, a / 2], atol=1e-9)
    known = np.isfinite(curves.value[0])
    assert known[:, 6:11].all()  # near one
    off = np.abs(curves.value[0] - exact)[known]
    assert (off < 3 * curves.std_error[0][known] + 1e-12).all()
    near = np.abs(np.log2(curves.grid)) < 0.3
    away = (curves.reweighted[0] - exact)[:, near] / (curves.reweighted_error[0][:, near] + 1e-9)
    assert np.abs(away).max() < 4
    assert (curves.pareto_k[:, near] < 0.7).all()


def test_fewer_functions_stand_for_many_slopes():
    """A basis gives slopes back, at the draws and elsewhere, and knows what it leaves out."""
    rng = np.random.default_rng(7)
    mixing = rng.normal(size=(50, 4))
    few, elsewhere = rng.normal(size=(300, 4)), rng.normal(size=(20, 4))
    slopes = 3.0 + few @ mixing.T
    p = np.full(300, 1 / 300)
    basis = SlopeBasis.of(slopes, p, 100)
    assert basis.components.shape == (300, 4)
    np.testing.assert_allclose(basis.components @ basis.mixing.T + basis.centre, slopes)
    there = 3.0 + elsewhere @ mixing.T
    np.testing.assert_allclose(basis.at(there) @ basis.mixing.T + basis.centre, there)
    short = SlopeBasis.of(slopes, p, 2)
    assert short.rest is not None
    whole = short.centre + short.components @ short.mixing.T + short.rest
    np.testing.assert_allclose(whole, slopes)
    assert SlopeBasis.of(slopes[:, :5], p, 100).rest is None  # as many as there are


def test_what_is_left_out_of_a_basis_is_counted(monkeypatch):
    """With too few functions for all slopes, the rest is plain, and its error says so."""
    monkeypatch.setattr("zerovar.sensitivities.covariances.MOST_PRODUCTS", 15)
    mean, covariance = LINEAR.posterior()
    exact = covariance @ LINEAR.x.T * (LINEAR.y - LINEAR.x @ mean)
    posterior = LINEAR.sample(400, 2)
    found = zv.sensitivity(posterior, to={"observations": LINEAR.observations})
    off = (found.derivative - exact) / found.std_error
    assert 0.3 < np.sqrt(np.mean(off**2)) < 2.0
    assert (found.gain < 1e6).any()


def test_tables_pages_and_pictures(tmp_path):
    posterior = LINEAR.sample(200, 4)
    terms = {"prior": LINEAR.prior, "observations": LINEAR.observations}
    found = zv.sensitivity(posterior, to=terms, curve=(0.5, 2.0), **LOW)
    text = str(found)
    assert "observations[" in text
    assert "to first order" in text
    a, b = found.strongest(1)[0]
    assert abs(found.in_deviations[a, b]) == np.abs(found.in_deviations).max()
    found.report(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8").count("<figure>") == 3
    for name, one in {
        "curves": found,
        "influences": dataclasses.replace(found, curves=None),
        "bars": dataclasses.replace(found, curves=None, observed=np.zeros(13, bool)),
    }.items():
        one.plot(tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["derivative"] == found.derivative.tolist()
    assert plain["jackknife"]["covariance"] == found.jackknife.covariance.tolist()
    assert np.shape(plain["curves"]["value"]) == found.curves.value.shape
    dataset = found.to_dataset()
    assert dataset["gain"].sel(to="prior").shape == (3,)
    np.testing.assert_array_equal(dataset["value"], found.value)
    np.testing.assert_array_equal(dataset["jackknife_covariance"], found.jackknife.covariance)
    assert dataset["curve_value"].sel(term="prior").shape == (3, len(found.curves.grid))
    assert "Deviations over other data of the same kind" in text


def test_the_benchmark_knows_its_regression():
    """Exact covariances of the benchmark against an independent sum over many exact draws."""
    design = np.column_stack([np.ones(60), np.random.default_rng(11).normal(size=(60, 3))])
    model = Regression(design, np.random.default_rng(1).normal(size=60), 2.5)
    case = model.case(np.zeros((1, 1, 5)))
    x = model.draws(200_000, 3)
    h = -(((model.y - x[:, :4] @ design.T) / np.exp(x[:, 4:])) ** 2) / 2 - x[:, 4:]
    f = np.column_stack([x[:, :4], np.exp(x[:, 4])])
    f, h = f - f.mean(axis=0), h - h.mean(axis=0)
    products = f.T @ h / len(f)
    errors = np.sqrt((f**2).T @ h**2 / len(f) - products**2) / np.sqrt(len(f))
    assert np.sqrt(np.mean(((products - case.exact["observations"]) / errors) ** 2)) < 1.3


def test_a_value_with_the_name_of_another_is_itself():
    x = np.random.default_rng(0).normal(size=(2, 200, 2))
    posterior = zv.from_log_density(lambda u: -0.5 * (u @ u), x, chain_axis=0)
    slopes = {"h": lambda u: u[1]}
    found = [
        zv.sensitivity(posterior, {name: x[..., 1] ** 3}, to=slopes, family=zv.Automatic("low"))
        for name in ("x[0]", "f")
    ]
    np.testing.assert_allclose(found[0].derivative, found[1].derivative, atol=0.1)
    np.testing.assert_allclose(found[1].derivative, 3.0, atol=0.5)
