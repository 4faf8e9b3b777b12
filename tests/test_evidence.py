"""log Z of a chain: exact where the posterior is known, honest where it is estimated, refused or
said to be relative where it means less."""

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import zerovar as zv
from benchmarks.conjugate import pines
from zerovar.choice import LOW_EFFORT
from zerovar.evidences import bridge
from zerovar.evidences.proposals import Proposal
from zerovar.inputs.sample import Sample
from zerovar.mixtures import Frame, TMixture
from zerovar.session import Session


def posterior_of(trees, n: int, seed: int) -> zv.Posterior:
    return zv.from_log_density(trees.log_density, trees.draws(n, np.random.default_rng(seed)))


def test_both_models_of_the_pines_are_what_the_literature_says():
    assert pines("density").log_z == pytest.approx(-310.12829, abs=1e-5)
    assert pines("adjusted_density").log_z == pytest.approx(-301.70460, abs=1e-5)


@pytest.mark.whole
def test_pines_calibrated():
    """Both models, four samples of 400 draws each: squares of errors over their standard errors
    have a mean of one, by a χ² with eight degrees of freedom; a density that is 2 % off has not."""
    found = []
    for column in ("density", "adjusted_density"):
        trees = pines(column)
        for seed in range(4):
            posterior = posterior_of(trees, 400, seed)
            one = zv.evidence(posterior, family=LOW_EFFORT, progress=False)
            found.append((one.log_z - trees.log_z, one.std_error, one.plain_std_error))
    off, error, plain = np.transpose(found)
    most = stats.chi2(len(off)).isf(1e-3)
    assert np.sum((off / error) ** 2) < most
    assert np.sum(((off + np.log(1.02)) / error) ** 2) > most
    assert np.sqrt(np.mean(off**2)) < np.mean(plain) / 2  # the control variates' own doing
    assert np.median(plain / error) > 2


@pytest.mark.parametrize("d", [1, 5, 20, 100])
def test_normals_are_exact(d):
    """By scores: a regression of theirs on the draws is the precision, whatever the draws are."""
    rng = np.random.default_rng(d)
    root = np.tril(rng.normal(size=(d, d))) / np.sqrt(d) + np.eye(d)
    precision, mean = np.linalg.inv(root @ root.T), rng.normal(size=d)
    draws = mean + rng.normal(size=(60 + 4 * d, d)) @ root.T

    def log_density(x):
        return 7.0 - (x - mean) @ precision @ (x - mean) / 2

    exact = 7.0 + d / 2 * np.log(2 * np.pi) + np.linalg.slogdet(root)[1]
    found = zv.evidence(draws, log_density, progress=False)
    assert abs(found.log_z - exact) < 1e-8
    assert found.std_error < 1e-8
    assert found.overlap > 0.999
    assert found.evaluations <= 20 * len(draws) + 32


@pytest.mark.whole
def test_numpyro_keeps_all_constants():
    numpyro, dist = pytest.importorskip("numpyro"), pytest.importorskip("numpyro.distributions")
    trees = pines("density")

    def model(x, y):
        tau = numpyro.sample("tau", dist.Gamma(3.0, 2 * 300.0**2))
        alpha = numpyro.sample("alpha", dist.Normal(3000.0, 1 / jnp.sqrt(0.06 * tau)))
        beta = numpyro.sample("beta", dist.Normal(185.0, 1 / jnp.sqrt(6 * tau)))
        numpyro.sample("y", dist.Normal(alpha + beta * x, 1 / jnp.sqrt(tau)), obs=y)

    kernel = numpyro.infer.NUTS(model)
    mcmc = numpyro.infer.MCMC(kernel, num_warmup=300, num_samples=400, progress_bar=False)
    mcmc.run(jax.random.key(1), trees.design[:, 1], trees.y)
    found = zv.evidence(mcmc, family=LOW_EFFORT, progress=False)
    assert abs(found.log_z - trees.log_z) < 4 * found.std_error < 0.05
    assert found.relative == ()

    def with_factor(x, y):
        model(x, y)
        numpyro.factor("more", -1.0)

    def by_parts(x, y):
        with numpyro.plate("trees", len(y), subsample_size=10):
            pass
        model(x, y)

    def flat(x, y):
        numpyro.sample("free", dist.ImproperUniform(dist.constraints.real, (), ()))
        model(x, y)

    from zerovar.adapters.numpyro import _constants as constants

    args = (trees.design[:, 1], trees.y)
    seeded = numpyro.handlers.substitute(flat, data={"free": 0.0})
    assert "factor more" in constants(with_factor, args, {}).relative[0]
    assert "plate trees" in constants(by_parts, args, {}).meaningless[0]
    assert "prior of free is improper" in constants(seeded, args, {}).relative[0]


@pytest.mark.whole
def test_pymc_keeps_all_constants():
    pm, xarray = pytest.importorskip("pymc"), pytest.importorskip("xarray")
    trees = pines("density")
    with pm.Model() as model:
        tau = pm.Gamma("tau", 3.0, 2 * 300.0**2)
        alpha = pm.Normal("alpha", 3000.0, tau=0.06 * tau)
        beta = pm.Normal("beta", 185.0, tau=6 * tau)
        pm.Normal("y", alpha + beta * trees.design[:, 1], tau=tau, observed=trees.y)
    alpha, beta, log_tau = trees.draws(400, np.random.default_rng(0)).T
    exact = {"alpha": alpha, "beta": beta, "tau": np.exp(log_tau)}
    arrays = {name: (("chain", "draw"), one[None]) for name, one in exact.items()}
    trace = xarray.DataTree.from_dict({"posterior": xarray.Dataset(arrays)})
    found = zv.evidence(zv.from_pymc(model, trace), family=LOW_EFFORT, progress=False)
    assert abs(found.log_z - trees.log_z) < 4 * found.std_error < 0.05
    assert found.relative == ()
    from zerovar.adapters.pymc import pymc_constants

    with model:
        pm.Potential("more", -tau)
        pm.Flat("free")
    said = " ".join(pymc_constants(model).relative)
    assert "potential more" in said
    assert "prior of free is improper" in said


class Stan:
    """What zerovar uses of bridgestan.StanModel, of N(1, 2²): its default drops constants."""

    def param_names(self):
        return ["x"]

    def param_unconstrain(self, row):
        return row

    def param_constrain(self, row):
        return row

    def log_density_gradient(self, row):
        return self.log_density(row), -(row - 1) / 4

    def log_density(self, row, *, propto=True, jacobian=True):
        return float(-((row[0] - 1) ** 2) / 8 - (0 if propto else np.log(2 * np.sqrt(2 * np.pi))))


class OldStan(Stan):
    def log_density(self, row):
        return super().log_density(row)


def test_bridgestan_is_asked_for_constants():
    draws = 1 + 2 * np.random.default_rng(0).normal(size=(200, 1))
    found = zv.evidence(zv.from_bridgestan(Stan(), draws), progress=False)
    assert abs(found.log_z) < 1e-8
    assert found.relative == ()
    other = zv.evidence(zv.from_bridgestan(OldStan(), draws), progress=False)
    assert abs(other.log_z - np.log(2 * np.sqrt(2 * np.pi))) < 1e-8
    assert "Up to a constant alone" in str(other)
    assert "share a constant" in str(found.compare(other))


def bananas(d: int, bend: float, n: int, seed: int):
    """Normalised, d / 2 pairs of which the second bends about the first."""
    x = np.random.default_rng(seed).normal(size=(n, d))
    x[:, 1::2] += bend * (x[:, ::2] ** 2 - 1)

    def log_density(x):
        away = x[1::2] - bend * (x[::2] ** 2 - 1)
        return -(jnp.sum(x[::2] ** 2) + jnp.sum(away**2)) / 2 - d / 2 * jnp.log(2 * jnp.pi)

    return x, log_density


def test_no_answer_where_nothing_overlaps():
    with pytest.raises(zv.NumericalError, match=r"overlap by .*ladder"):
        zv.evidence(*bananas(20, 4.0, 400, 0), family=LOW_EFFORT, progress=False)


@pytest.mark.whole
def test_a_ladder_where_nothing_overlaps():
    """Strongly curved, in twenty dimensions: no two draws are near each other."""
    drawn = zv.ladder(*bananas(20, 4.0, 400, 0), progress=False)
    found = zv.evidence(drawn)
    assert abs(found.log_z) < 4 * found.std_error < 1.0


def test_what_does_not_belong_is_named():
    draws = np.random.default_rng(0).normal(size=(100, 2))
    posterior = zv.Posterior(draws[None], -draws[None], None)
    with pytest.raises(ValueError, match="came without"):
        zv.evidence(posterior, progress=False)
    with pytest.raises(ValueError, match="does not belong to these draws"):
        zv.evidence(posterior, lambda x: -2 * x @ x, progress=False)
    right = zv.evidence(posterior, lambda x: -x @ x / 2, progress=False)
    assert abs(right.log_z - np.log(2 * np.pi)) < 1e-8
    known = zv.from_log_density(lambda x: -x @ x / 2, draws)
    shifted = zv.evidence(known, lambda x: 3 - x @ x / 2, progress=False)  # what is given counts
    assert abs(shifted.log_z - np.log(2 * np.pi) - 3) < 1e-8
    with pytest.raises(ValueError, match="not finite at 100 of 100"):
        zv.evidence(posterior, lambda x: jnp.nan * x[0], progress=False)
    with pytest.raises(ValueError, match="at least 20 draws"):
        zv.evidence(draws[:10], lambda x: -x @ x / 2, progress=False)
    with pytest.raises(ValueError, match="evaluations must be"):
        zv.evidence(posterior, lambda x: -x @ x / 2, evaluations=1)


def test_points_outside_count_as_nothing():
    """Half a normal along the first of two coordinates, undefined beyond its edge."""
    draws = np.random.default_rng(0).normal(size=(400, 2))
    draws[:, 0] = np.exp(draws[:, 0] / 4)

    def log_density(x):
        inside = jnp.where(x[0] > 0.1, x[0], 1.0)
        value = -8 * jnp.log(inside) ** 2 - jnp.log(inside) - x[1] ** 2 / 2
        return jnp.where(x[0] > 0.1, value, jnp.nan)

    found = zv.evidence(draws, log_density, family=LOW_EFFORT, progress=False)
    exact = np.log(2 * np.pi / 4)
    assert abs(found.log_z - exact) < 4 * found.std_error
    assert any("NaN at" in text for text in found.warnings)


def test_comparison():
    """The errors of probabilities are those of a simulation."""
    pair = [
        zv.evidence(*bananas(2, bend, 400, 0), family=LOW_EFFORT, progress=False)
        for bend in (0.2, 0.4)
    ]
    found = pair[0].compare(pair[1], names=["less", "more"])
    assert found.log_bayes_factor[1] == pair[0].log_z - pair[1].log_z
    assert found.std_error[1] == np.hypot(pair[0].std_error, pair[1].std_error)
    noise = np.random.default_rng(0).normal(size=(100_000, 2))
    weight = np.exp(found.log_z + noise * found.log_z_error)
    spread = (weight / weight.sum(axis=1, keepdims=True)).std(axis=0)
    np.testing.assert_allclose(found.probability_error, spread, rtol=0.05)
    assert found.contrast("less", "more").std_error == found.std_error[1]
    assert found.probability.sum() == pytest.approx(1.0)
    assert "less" in str(found)
    assert "<table>" in found._repr_html_()
    with pytest.raises(ValueError, match="none of less, more"):
        found.contrast("less", "other")
    with pytest.raises(ValueError, match="at least one other"):
        pair[0].compare()
    with pytest.raises(ValueError, match="2 strings"):
        pair[0].compare(pair[1], names=["one"])
    with pytest.raises(ValueError, match="names must be distinct; got a more than once"):
        pair[0].compare(pair[1], names=["a", "a"])


def test_divergences_are_told_once():
    x, log_density = bananas(2, 0.3, 400, 1)
    posterior = dataclasses.replace(zv.from_log_density(log_density, x), divergences=7)
    with pytest.warns(zv.SampleWarning, match="7 of 400 transitions"):
        found = zv.evidence(posterior, family=LOW_EFFORT, progress=False)
    assert [text[:18] for text in found.warnings] == ["7 of 400 transitio"]


def test_shown(tmp_path):
    found = zv.evidence(*bananas(2, 0.3, 400, 1), family=LOW_EFFORT, progress=False)
    assert "second half" in str(found)
    assert "<table>" in found._repr_html_()
    assert found.to_dict()["parts"][0]["log_z"] == found.parts[0].log_z
    assert sum(found.shares.values()) == pytest.approx(1.0)
    again = zv.evidence(*bananas(2, 0.3, 400, 1), family=LOW_EFFORT, progress=False)
    assert again.log_z == found.log_z  # the same seed
    found.plot(tmp_path / "bridge.png")
    assert (tmp_path / "bridge.png").stat().st_size > 1000


def test_the_command_line_and_the_page(tmp_path, monkeypatch, capsys):
    """A file of draws with a log density from a module; a ladder; what is missing is said."""
    from zerovar.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("pines_model.py").write_text("def log_density(x):\n    return -x @ x / 2\n")
    x = np.random.default_rng(0).normal(size=(100, 2))
    np.savez("draws.npz", draws=x, scores=-x)
    assert main(["evidence", "draws.npz"]) == 2
    assert "--log-density" in capsys.readouterr().err
    wanted = ["--json", "answer.json", "--report", "answer.html"]
    command = ["evidence", "draws.npz", "--log-density", "pines_model:log_density"]
    assert main([*command, *wanted]) == 0
    assert "log Z" in capsys.readouterr().out
    answer = json.loads(Path("answer.json").read_text())
    assert abs(answer["log_z"] - np.log(2 * np.pi)) < 1e-8
    page = Path("answer.html").read_text()
    assert "log Z = 1.8378" in page
    assert "data:image" in page
    t = np.linspace(0, 1, 5)  # N(0, 1) and a likelihood exp(−x²/2)
    x = np.random.default_rng(1).normal(size=(5, 100, 1)) / np.sqrt(1 + t)[:, None, None]
    arrays = {"draws": x, "log_likelihood": -(x[..., 0] ** 2) / 2}
    scores = -(1 + t)[:, None, None] * x
    np.savez("ladder.npz", inverse_temperatures=t, scores=scores, **arrays)
    assert main(["evidence", "ladder.npz", "--json", "-"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert abs(answer["log_z"] + np.log(2) / 2) < 4 * answer["std_error"] + 1e-6
    np.savez("ladder.npz", inverse_temperatures=t, scores=scores)
    assert main(["evidence", "ladder.npz"]) == 2
    assert "without draws and log_likelihood" in capsys.readouterr().err


def test_proposals_are_densities_with_their_scores(x64):
    """Normals and t distributions together: by SciPy, and by automatic differentiation."""
    rng = np.random.default_rng(0)
    roots = np.tril(rng.normal(size=(2, 3, 3))) + 2 * np.eye(3)
    means, shares = rng.normal(size=(2, 3)), np.array([0.3, 0.7])
    mixture = TMixture(shares, means, roots, np.array([np.inf, 5.0]))
    x = rng.normal(size=(50, 3))
    each = [
        stats.multivariate_normal(means[0], roots[0] @ roots[0].T).pdf(x),
        stats.multivariate_t(means[1], roots[1] @ roots[1].T, df=5).pdf(x),
    ]
    np.testing.assert_allclose(np.exp(mixture.log_density(x)), shares @ each, rtol=1e-7)

    def log_density(point):
        parts = []
        for k, freedom in enumerate((None, 5.0)):
            u = jnp.linalg.solve(roots[k], point - means[k])
            square, size = u @ u, jnp.linalg.slogdet(roots[k])[1]
            fall = square / 2 if freedom is None else (freedom + 3) / 2 * jnp.log1p(square / 5)
            constant = -1.5 * jnp.log(2 * jnp.pi)
            if freedom is not None:
                constant = special.gammaln(4.0) - special.gammaln(2.5) - 1.5 * np.log(5 * np.pi)
            parts.append(jnp.log(shares[k]) + constant - size - fall)
        return jax.scipy.special.logsumexp(jnp.stack(parts))

    np.testing.assert_allclose(mixture.scores(x), jax.vmap(jax.grad(log_density))(x), rtol=1e-9)
    frame = Frame(np.ones(3), roots[0])
    np.testing.assert_allclose(frame.z(frame.x(x)), x, atol=1e-12)
    assert Sample(x, mixture.scores(x)).dim == 3


def test_points_are_fitted_to_other_points(monkeypatch):
    """In sample, many terms lean to one side, the same for both halves."""
    asked, side = [], bridge._side

    def spy(session, values, request):
        asked.append((len(values), request))
        return side(session, values, request)

    monkeypatch.setattr(bridge, "_side", spy)
    zv.evidence(*bananas(2, 0.2, 400, 0), family=LOW_EFFORT, progress=False)
    at_points = [request for count, request in asked if count == 3800]
    assert len(at_points) == 6  # three degrees for each half
    assert all(request.split == zv.cross_fit() for request in at_points)


def test_points_are_not_the_numbers_that_draws_were_made_of(monkeypatch):
    """A user's generator with the same seed: its draws would be the points themselves."""
    x, log_density = bananas(2, 0.3, 400, 0)
    found = zv.evidence(x, log_density, family=LOW_EFFORT, progress=False, seed=0)
    units = np.random.default_rng(0).normal(size=(400, 2))
    np.testing.assert_array_equal(units[:, 0], x[:, 0])  # the same seed, and the same stream
    made = []
    monkeypatch.setattr(Proposal, "points", lambda self, n, rng: made.append(rng) or stop())
    with pytest.raises(StopIteration):
        zv.evidence(x, log_density, family=LOW_EFFORT, progress=False, seed=0)
    assert not np.isin(made[0].normal(size=1000), units).any()
    assert abs(found.log_z) < 4 * found.std_error


def stop():
    raise StopIteration


def test_a_bridge_to_points_that_are_nowhere_near_is_found():
    """As of centred effects whose scale the proposal lets be 1e-150: log densities of -1e300."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 1))
    session = Session.of(zv.Posterior(x, -x, None))
    points = np.append(rng.normal(size=400), -1e300)
    crossing = bridge.Crossing(session, session, 3.0 + 0.1 * x[:, 0], 3.0 + 0.1 * points)
    log_z, overlap = crossing.solve()
    assert log_z == pytest.approx(3.0, abs=0.1)
    assert overlap > 0.9
