"""Ladders that zerovar draws itself: exact integrals from bad beginnings, several modes, densities
that are zero somewhere, and runs that are interrupted."""

import dataclasses
import sys

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import gammaln

import zerovar as zv
from zerovar.evidences import sampling
from zerovar.evidences.combination import evidence_of_ladder
from zerovar.evidences.feet import make_foot
from zerovar.evidences.sampling import ladder
from zerovar.evidences.tempering import next_temperature, pick
from zerovar.inputs.density import Constants

pytest.importorskip("blackjax")


def normal(d):
    """A normal with correlations; its mean, and log Z."""
    rng = np.random.default_rng(1)
    root = np.eye(d) + np.tril(rng.normal(size=(d, d))) * 0.3 / np.sqrt(d)
    precision, mean = root.T @ root, rng.normal(size=d)
    log_z = 3 + d / 2 * np.log(2 * np.pi) - np.linalg.slogdet(precision)[1] / 2
    return lambda x: 3.0 - 0.5 * (x - mean) @ precision @ (x - mean), mean, log_z


def is_right(found, exact):
    """Whether log Z is; and an answer that is five errors off is seen."""
    away = (found.log_z - exact) / found.std_error
    return abs(away) < 3 and abs(away + 5 * np.sign(away)) > 3


@pytest.mark.parametrize(
    ("d", "error"), [(2, 1e-3), pytest.param(20, 0.05, marks=pytest.mark.whole)]
)
def test_a_normal_from_a_bad_beginning(d, error):
    log_density, mean, exact = normal(d)
    # two deviations off, and half as wide
    points = mean + 2 + 0.5 * np.random.default_rng(0).normal(size=(400, d))
    made = ladder(log_density, start=points, progress=False)
    assert made.inverse_temperatures[0] == 0
    assert made.inverse_temperatures[-1] == 1
    found = evidence_of_ladder(made)
    assert is_right(found, exact)
    assert found.std_error < error
    last = made.draws[-1]
    assert np.all(np.abs(last.mean(axis=0) - mean) < 6 * last.std(axis=0) / np.sqrt(len(last) / 2))


def test_two_modes_from_draws():
    d, places = 3, np.array([[-3.0, 0, 0], [3.0, 0, 0]])

    def log_density(x):
        far = jnp.sum((x - places) ** 2, axis=1)
        narrow, wide = -far[0] / 0.5 - d * np.log(0.5), -far[1] / 2
        return jnp.logaddexp(np.log(0.3) + narrow, np.log(0.7) + wide)

    rng = np.random.default_rng(0)
    first = rng.uniform(size=1000) < 0.3
    z = rng.normal(size=(1000, d))
    draws = np.where(first[:, None], places[0] + 0.5 * z, places[1] + z)
    posterior = zv.from_log_density(log_density, draws)
    made = ladder(posterior, progress=False)
    assert made.reference == "normal fitted to the draws"
    assert is_right(evidence_of_ladder(made), d / 2 * np.log(2 * np.pi))
    assert np.mean(made.draws[-1][:, 0] < 0) == pytest.approx(0.3, abs=0.15)


@pytest.mark.whole
def test_what_is_curved_in_many_dimensions():
    """Bananas, whose draws and a proposal overlap by a hundredth."""
    d = 20

    def log_density(x):
        return -0.5 * jnp.sum(x[::2] ** 2 + ((x[1::2] - x[::2] ** 2) / 0.5) ** 2)

    rng = np.random.default_rng(0)
    u = rng.normal(size=(1000, d // 2))
    draws = np.stack([u, u**2 + 0.5 * rng.normal(size=u.shape)], axis=-1).reshape(-1, d)
    found = evidence_of_ladder(ladder(draws, log_density, draws=600, progress=False))
    assert is_right(found, d / 2 * np.log(2 * np.pi * 0.5))
    assert found.std_error < 0.5


def test_a_density_that_is_zero_somewhere():
    def log_density(x):
        inside = jnp.all(x > 0)
        safe = jnp.where(inside, x, 1.0)
        return jnp.where(inside, jnp.sum(2 * jnp.log(safe) - safe), -jnp.inf)

    draws = np.random.default_rng(0).gamma(3.0, size=(1000, 2))
    made = ladder(draws, log_density, progress=False)
    assert np.isneginf(made.log_likelihood[0]).any()
    assert is_right(evidence_of_ladder(made), 2 * gammaln(3.0))


def likelihood(x):
    return -0.5 * jnp.sum((x - 1.5) ** 2) / 0.01


def prior(x):
    return -0.5 * jnp.sum(x**2) - jnp.log(2 * jnp.pi)


@pytest.mark.parametrize("given", [True, False])
def test_from_prior_to_posterior(given):
    rng = np.random.default_rng(0)
    begin = {"prior_draws": rng.normal(size=(700, 2))} if given else {"start": 2}
    made = ladder(likelihood, log_prior=prior, progress=False, **begin)
    assert made.reference == "prior"
    exact = 2 * (0.5 * np.log(0.01 / 1.01) - 0.5 * 1.5**2 / 1.01)
    assert is_right(evidence_of_ladder(made), exact)


def test_an_interrupted_ladder_goes_on(tmp_path, monkeypatch):
    log_density, mean, _ = normal(2)
    points, file = mean + 2 + 0.5 * np.random.default_rng(0).normal(size=(400, 2)), tmp_path / "run"
    whole = ladder(log_density, start=points, progress=False)
    climb, after = sampling._climb, 3

    def stop(foot, tempering, rungs, *others):
        if len(rungs) == after:
            raise KeyboardInterrupt
        return climb(foot, tempering, rungs, *others)

    monkeypatch.setattr(sampling, "_climb", stop)
    with pytest.raises(KeyboardInterrupt):
        ladder(log_density, start=points, progress=False, path=file)
    monkeypatch.undo()
    assert len(zv.load(file).rungs) == after
    for change, words in (
        ({"seed": 1}, "seed = 0, not 1"),
        ({"start": points + 1}, "draws or start"),
    ):
        with pytest.raises(ValueError, match=words):
            ladder(log_density, **({"start": points, "progress": False, "path": file} | change))
    with pytest.raises(ValueError, match="log density is another"):
        ladder(lambda x: 2 * log_density(x), start=points, progress=False, path=file)

    begun = []
    monkeypatch.setattr(sampling, "_climb", lambda *all: begun.append(1) or climb(*all))
    resumed = ladder(log_density, start=points, progress=False, path=file)
    assert len(begun) == len(whole) - after
    for name in ("inverse_temperatures", "draws", "log_likelihood", "likelihood_scores"):
        assert np.array_equal(getattr(resumed, name), getattr(whole, name)), name
    assert resumed.evaluations == whole.evaluations > 0


def test_temperatures_keep_the_overlap():
    rest = np.random.default_rng(0).normal(size=5000) * 20
    t, probabilities = next_temperature(0.0, rest, 0.5)
    assert 1 / np.sum(probabilities**2) == pytest.approx(2500, rel=1e-6)
    assert t == pytest.approx(np.sqrt(np.log(2)) / 20, rel=0.1)  # of a normal
    zero = np.append(rest, np.full(5000, -np.inf))
    again, weights = next_temperature(0.0, zero, 0.5)
    assert again == pytest.approx(t)
    assert not weights[5000:].any()
    assert next_temperature(0.9, rest / 100, 0.5)[0] == 1
    rows = pick(probabilities, 50, np.random.default_rng(0))
    assert np.all(np.diff(rows) >= 0)


def test_numbers_are_not_those_of_the_draws():
    """Draws made by the same seed as the ladder: the first rung is independent of them."""
    draws = np.random.default_rng(0).normal(size=(500, 30))
    made = ladder(draws, lambda x: -0.5 * jnp.sum(x**2), draws=500, progress=False)
    likeness = np.corrcoef(made.draws[0].ravel(), draws.ravel())[0, 1]
    assert abs(likeness) < 5 / np.sqrt(draws.size)


def test_draws_of_another_density_are_seen():
    log_density, mean, _ = normal(2)
    draws = mean + 2 + 0.5 * np.random.default_rng(0).normal(size=(400, 2))
    with pytest.warns(zv.SampleWarning, match="not like those given"):
        ladder(draws, log_density, progress=False)


def test_constants_that_are_missing_are_said():
    """From a model and from its draws; and two models are compared with a word on it."""
    numpyro = pytest.importorskip("numpyro")
    import numpyro.distributions as dist

    def model(y):
        mu = numpyro.sample("mu", dist.ImproperUniform(dist.constraints.real, (), ()))
        numpyro.sample("y", dist.Normal(mu, 1), obs=y)

    y = np.arange(4.0)
    said = ("the prior of mu is improper",)
    made = ladder(model, args=(y,), draws=200, progress=False)
    assert made.relative == said
    found = zv.evidence(made)
    exact = -0.5 * np.sum((y - y.mean()) ** 2) - 1.5 * np.log(2 * np.pi) - 0.5 * np.log(4)
    assert is_right(found, exact)
    assert found.relative == said
    assert "Up to a constant alone: the prior of mu is improper." in found.notes
    other = dataclasses.replace(found, relative=())
    assert "share a constant: the prior of mu" in str(other.compare(found))


def test_constants_of_draws_that_are_missing_are_said():
    log_density, mean, _ = normal(2)
    draws = mean + np.random.default_rng(0).normal(size=(400, 2))
    posterior = zv.from_log_density(log_density, draws)
    density = dataclasses.replace(
        posterior.density, constants=lambda: Constants(relative=("of a reason",))
    )
    known = dataclasses.replace(posterior, density=density)
    assert make_foot(known, None, None, None, None, None, None).relative == ("of a reason",)
    # a density that is given is the user's own
    assert make_foot(known, log_density, None, None, None, None, None).relative == ()


def test_what_cannot_begin_is_refused(monkeypatch):
    log_density, _, _ = normal(2)
    draws = np.random.default_rng(0).normal(size=(400, 2))
    for words, call in {
        "too few to go on": lambda: ladder(lambda x: jnp.log(x[0] - 9), start=2),
        "4 are needed": lambda: ladder(log_density, start=2, draws=20, chains=10),
        "belong to a model": lambda: ladder(draws, log_density, start=2),
        "is the log-likelihood": lambda: ladder(draws, log_prior=log_density),
        "must be at least 500": lambda: ladder(
            likelihood, log_prior=prior, prior_draws=draws, progress=False
        ),
        "came without": lambda: ladder(zv.Posterior(draws[None], -draws[None], None)),
    }.items():
        with pytest.raises((ValueError, zv.NumericalError), match=words):
            call()
    monkeypatch.setitem(sys.modules, "blackjax.mcmc", None)
    with pytest.raises(ImportError, match=r"\[blackjax\]"):
        ladder(log_density, start=2)
