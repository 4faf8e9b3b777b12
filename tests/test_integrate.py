"""Means without a chain: modes, proposals, weights, evidence, and refusals where importance
sampling does not reach."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import logsumexp
from scipy.stats import multivariate_t, norm

import zerovar as zv
from zerovar import cli
from zerovar.adapters.models import flat_density
from zerovar.choice import Policy
from zerovar.evidences.importance import Round, log_evidence
from zerovar.inference.answer import plain_answer
from zerovar.inference.cautions import Cautions
from zerovar.inference.task import Task
from zerovar.inputs.sample import Sample
from zerovar.integration.importance import (
    Frame,
    WeightedPoints,
    first_proposal,
    importance_sample,
)
from zerovar.integration.means import _may_miss, _refusal
from zerovar.integration.modes import find_modes
from zerovar.integration.second_opinion import hold, second_opinion
from zerovar.integration.target import Target
from zerovar.mixtures import TMixture
from zerovar.output import Selection

QUADRATIC = zv.Polynomial(2)


def normal(scales, mean=0.0):
    """A log density, without its constant."""
    return lambda x: -0.5 * jnp.sum(((x - mean) / jnp.asarray(scales)) ** 2)


def silent(_):
    pass


def test_a_search_that_takes_all_gradients_says_so():
    target = target_of(normal([1.0]), 1, 210)
    target.at(np.zeros((200, 1)))
    frame = Frame(np.zeros(1), np.eye(1))
    one = TMixture(np.ones(1), np.zeros((1, 1)), np.eye(1)[None], np.array([5.0]))
    with pytest.raises(zv.NumericalError, match="200 of 210 gradients"):
        importance_sample(target, frame, one, np.random.default_rng(0), True, silent)


def target_of(log_density, d, budget=2000):
    return Target(log_density, np.zeros(d), budget)


def test_a_mixture_has_the_density_of_its_points_and_is_normalised():
    mixture = TMixture(
        np.array([0.3, 0.7]),
        np.array([[0.0, 1.0], [4.0, -1.0]]),
        np.array([[[1.0, 0.0], [0.5, 2.0]], [[0.3, 0.0], [0.0, 0.4]]]),
        np.array([3.0, 30.0]),
    )
    x = np.random.default_rng(0).normal(size=(50, 2)) * 3
    parts = zip(mixture.means, mixture.roots, mixture.freedom, strict=True)
    each = [multivariate_t(mean, root @ root.T, df=freedom).pdf(x) for mean, root, freedom in parts]
    np.testing.assert_allclose(np.exp(mixture.log_density(x)), mixture.shares @ each, rtol=1e-10)
    for sobol in (True, False):
        points, drawn = mixture.points(4001, np.random.default_rng(1), sobol)
        np.testing.assert_allclose(drawn.shares, mixture.shares, atol=1 / 4000)
        left = points[np.abs(points[:, 0] - 4) > 2]  # nearly all of the first component
        error = np.sqrt(3 / len(left))  # three times the variance: t₃
        np.testing.assert_allclose(np.median(left, axis=0), [0.0, 1.0], atol=4 * error * 2)
    ratio = np.exp(mixture.log_density(points) - mixture.guard().log_density(points))
    assert ratio.max() < 1 / 0.8 + 1e-9  # what is added for the tails takes no more than its share


@pytest.mark.whole
def test_ill_conditioned_gaussians_are_exact():
    d = 20
    scales = np.geomspace(1, 1e4, d)  # variances to 1e8
    mean = np.linspace(-2, 2, d) * scales
    answer = zv.integrate(normal(scales, mean), d, gradients=1500, family=zv.Polynomial(1))
    np.testing.assert_allclose(answer.value / scales, mean / scales, atol=1e-9)
    exact = d / 2 * np.log(2 * np.pi) + np.log(scales).sum()
    record = answer.integration
    assert abs(record.log_evidence - exact) < 4 * record.log_evidence_error < 0.3
    assert record.gradients <= 1500
    assert record.effective_size > 0.4 * record.points


def test_a_posterior_with_known_evidence_and_means():
    """Radiata pine's first model in miniature: conjugate, so that means and log Z have closed
    forms."""
    rng = np.random.default_rng(3)
    x, n, a, b = rng.normal(size=20), 20, 3.0, 2.0
    y = 1 + 2 * x + rng.normal(size=n)
    # of the coefficients, times tau
    design, precision = np.stack([np.ones(n), x], axis=1), np.diag([0.5, 0.25])
    after = design.T @ design + precision
    centre = np.linalg.solve(after, design.T @ y)
    rate = b + 0.5 * (y @ y - centre @ after @ centre)
    from scipy.special import gammaln

    shape = a + n / 2
    exact = (
        -n / 2 * np.log(2 * np.pi)
        + 0.5 * np.linalg.slogdet(precision)[1]
        - 0.5 * np.linalg.slogdet(after)[1]
        + a * np.log(b)
        - shape * np.log(rate)
        + gammaln(shape)
        - gammaln(a)
    )

    def log_density(draw):
        beta, log_tau = draw["beta"], draw["log_tau"]
        tau = jnp.exp(log_tau)
        likelihood = 0.5 * n * (log_tau - jnp.log(2 * jnp.pi)) - 0.5 * tau * jnp.sum(
            (y - design @ beta) ** 2
        )
        prior = (
            log_tau
            - jnp.log(2 * jnp.pi)
            + 0.5 * np.linalg.slogdet(precision)[1]
            - 0.5 * tau * beta @ precision @ beta
        )
        return likelihood + prior + a * jnp.log(b) - gammaln(a) + a * log_tau - b * tau

    start = {"beta": np.zeros(2), "log_tau": np.zeros(())}
    values = {
        "intercept": lambda draw: draw["beta"][0],
        "tau": lambda draw: jnp.exp(draw["log_tau"]),
    }
    answer = zv.integrate(
        log_density, start, values, gradients=1000, family=zv.Automatic(effort="low")
    )
    assert answer.names == ("intercept", "tau")
    truth = np.array([centre[0], shape / rate])
    assert np.all(np.abs(answer.value - truth) < 4 * answer.std_error)
    assert np.all(answer.std_error < 0.1 * answer.plain_std_error)
    record = answer.integration
    assert abs(record.log_evidence - exact) < 4 * record.log_evidence_error < 0.1


@pytest.mark.whole
def test_two_modes_far_apart_are_both_found_and_weighed():
    def log_density(x, apart):
        one, other = (-0.5 * jnp.sum(x.at[0].add(sign * apart) ** 2) for sign in (1, -1))
        return jnp.logaddexp(jnp.log(0.7) + one, jnp.log(0.3) + other)

    # 120 points are few in five dimensions
    with pytest.warns(zv.SampleWarning, match="narrower ones may be missing"):
        answer = zv.integrate(lambda x: log_density(x, 5.0), 5, gradients=1200, family=QUADRATIC)
    assert len(answer.integration.starts) == 2
    assert abs(answer.value[0] + 2.0) < 4 * answer.std_error[0] < 1.0
    # the negative control: what no start and no proposal reaches is not seen
    start = np.array([[-500.0, 0, 0, 0, 0]])
    one = zv.integrate(lambda x: log_density(x, 500.0), start, gradients=1000, family=QUADRATIC)
    assert abs(one.value[0] + 500) < 0.1


def centred(x):
    """Four effects about their mean, with a scale that may be zero: the density has no maximum."""
    scale, away = jnp.exp(x[5]), jnp.sum((x[:4] - x[4]) ** 2)
    data = jnp.sum((x[:4] - jnp.array([2.8, 0.8, -0.3, 0.7])) ** 2)
    return -0.5 * away / scale**2 - 3 * x[5] - 0.5 * scale**2 - 0.5 * data - 0.1 * x[4] ** 2


@pytest.mark.parametrize(
    ("log_density", "d", "said"),
    [
        (
            lambda x: -(x[0] ** 2) / 18 - jnp.sum(x[1:] ** 2) * jnp.exp(-x[0]) / 2 - 9 * x[0] / 2,
            10,
            "does not reach",
        ),
        (
            lambda x: -0.5 * jnp.sum(x[::2] ** 2) - 2 * jnp.sum((x[1::2] - x[::2] ** 2) ** 2),
            40,
            "does not reach",
        ),
        (lambda x: -1e-300 * jnp.sum(x**2), 2, "does not fall"),
        (lambda x: -(x[0] ** 2) - jnp.exp(-x[1]), 2, "does not fall"),
        (lambda x: jnp.nan * x[0], 1, "NaN at all"),
        (lambda x: -1e300 + 0 * x[0], 1, "does not fall"),
        (centred, 6, "still rises"),
    ],
    ids=["funnel", "ridges", "flat", "improper", "undefined", "nothing", "centred"],
)
def test_refused_with_a_reason(log_density, d, said):
    with pytest.raises(zv.NumericalError, match=said):
        zv.integrate(log_density, d, gradients=1000)


@pytest.mark.parametrize(
    ("shares", "refused"),
    [
        ((0.2, 0.5, 0.62, 0.56), False),
        ((0.9, 0.48, 0.59, 0.51), True),
        ((0.9, 0.4, 0.7, 0.48), True),
    ],
)
def test_proposals_are_judged_by_the_median_and_the_best_of_the_last_rounds(shares, refused):
    n = 500
    rounds = tuple(
        Round(np.where(np.arange(n) < share * n, 0.0, -np.inf), np.empty((n, 0)))
        for share in shares
    )
    log_weights, x = (
        np.concatenate([one.log_weights for one in rounds]),
        np.zeros((n * len(shares), 1)),
    )
    reason = _refusal(
        WeightedPoints(x, log_weights, x, np.zeros(len(x), bool), np.zeros(len(x)), rounds)
    )
    assert (reason is not None) == refused
    assert reason is None or "last proposals" in reason


def test_a_hole_is_named_and_control_variates_are_left_out():
    def log_density(x):
        return jnp.where(jnp.sum((x - 1.0) ** 2) < 0.5, jnp.nan, -0.5 * jnp.sum(x**2))

    with pytest.warns(zv.SampleWarning, match="next to where its mass is"):
        answer = zv.integrate(log_density, 2, gradients=800)
    assert answer.integration.undefined > 0
    np.testing.assert_array_equal(answer.value, answer.plain_value)
    grid = np.stack(np.meshgrid(*2 * [np.linspace(-7, 7, 1401)]), axis=-1).reshape(-1, 2)
    density = np.where(
        np.sum((grid - 1) ** 2, axis=1) < 0.5, 0.0, np.exp(-0.5 * np.sum(grid**2, axis=1))
    )
    assert np.all(np.abs(answer.value - density @ grid / density.sum()) < 4 * answer.std_error)


def test_zero_far_from_the_mass_is_no_hole():
    answer = zv.integrate(
        lambda x: jnp.where(x[0] > 12, -jnp.inf, -0.5 * x[0] ** 2),
        1,
        gradients=600,
        family=QUADRATIC,
    )
    assert not answer.warnings
    assert answer.gain[0] > 1e6


def test_the_same_seed_gives_the_same_bits_and_gradients_are_bounded():
    density = normal([1.0, 3.0])
    one, same, random = (
        zv.integrate(density, 2, gradients=300, family=QUADRATIC, seed=1, sobol=sobol)
        for sobol in (True, True, False)
    )
    np.testing.assert_array_equal(one.plain_value, same.plain_value)
    assert one.plain_value[0] != random.plain_value[0]
    assert max(one.integration.gradients, random.integration.gradients) <= 300


def test_points_from_elsewhere_are_used_or_fitted():
    rng = np.random.default_rng(0)
    draws = 1.2 * rng.normal(size=(800, 2))
    log_proposal = -0.5 * np.sum((draws / 1.2) ** 2, axis=1) - np.log(2 * np.pi * 1.44)
    kwargs = {"draws": draws, "log_proposal": log_proposal, "family": QUADRATIC}
    answer = zv.integrate(normal([1.0, 1.0]), gradients=2000, **kwargs)
    assert answer.integration.gradients == answer.integration.points == 800
    assert (
        abs(answer.integration.log_evidence - np.log(2 * np.pi))
        < 4 * answer.integration.log_evidence_error
    )
    far = zv.integrate(normal([1.0, 1.0], 6.0), gradients=2500, **kwargs)  # too far to be weighted
    assert far.integration.gradients > 800
    np.testing.assert_allclose(far.value, 6.0, atol=1e-6)
    with pytest.raises(zv.NumericalError, match="count like"):
        zv.integrate(normal([1.0, 1.0], 6.0), gradients=800, **kwargs)


def test_weights_that_are_wrong_are_seen_in_the_evidence():
    """The negative control of log Z: points that are taken for those of another proposal."""
    target = target_of(normal([1.0, 1.0]), 2, 2000)
    frame = Frame(np.zeros(2), np.eye(2))
    one = TMixture(np.ones(1), np.zeros((1, 2)), np.eye(2)[None], np.array([5.0]))
    points = importance_sample(target, frame, one, np.random.default_rng(0), True, silent)
    value, error = log_evidence(points.rounds)
    assert abs(value - np.log(2 * np.pi)) < 4 * error
    bare = points._replace(
        rounds=tuple(one._replace(ratios=one.ratios[:, :0]) for one in points.rounds)
    )
    assert error < 0.7 * log_evidence(bare.rounds)[1]  # control variates help
    shifted = points._replace(
        rounds=tuple(one._replace(log_weights=one.log_weights + 0.1) for one in points.rounds)
    )
    assert abs(log_evidence(shifted.rounds)[0] - np.log(2 * np.pi)) > 4 * error


def test_modes_of_flat_and_skewed_densities_have_usable_widths():
    quartic = find_modes(
        target_of(lambda x: -jnp.sum(x**4), 3),
        np.ones((1, 3)),
        np.random.default_rng(0),
        silent,
        True,
    )
    widths = np.linalg.norm(quartic[0].root, axis=1)
    assert np.all((widths > 0.2) & (widths < 2))  # though the curvature at the top is zero


def normals(means, scales, masses):
    """The log density of a mixture of round normals."""
    means, scales = np.asarray(means, float), np.asarray(scales)
    level = np.log(np.asarray(masses)) - means.shape[1] * np.log(scales)
    return lambda x: logsumexp(
        jnp.asarray(level) - 0.5 * jnp.sum((x - means) ** 2, axis=1) / jnp.asarray(scales) ** 2
    )


def searched(log_density, d, seeds):
    """The modes of a search by each seed."""
    target = target_of(log_density, d, 5000)
    for seed in seeds:
        target.gradients = 0
        yield find_modes(target, np.zeros((1, d)), np.random.default_rng(seed), silent, True)


@pytest.mark.whole
def test_narrow_modes_are_found_or_others_are_likely():
    places = np.array([[0, 0], [9, 0], [0, 9], [-9, -9]])
    four = normals(places, [1.0, 0.3, 2.0, 0.1], [0.6, 0.2, 0.15, 0.05])
    found = list(searched(four, 2, range(8)))
    assert all(len(modes) == 4 or _may_miss(modes) for modes in found)
    assert sum(len(modes) == 4 for modes in found) >= 4  # 80 % are
    two = normals([[-4], [4]], [1.0, 0.01], [0.5, 0.5])
    assert sum(len(modes) == 2 for modes in searched(two, 1, range(8))) >= 6  # 95 % are
    # the negative control: nothing is said of modes that cannot be overlooked
    alike = normals([[-4, 0], [4, 0]], [1.0, 1.0], [0.7, 0.3])
    assert all(len(modes) == 2 and not _may_miss(modes) for modes in searched(alike, 2, range(4)))


def test_a_start_that_runs_away_spoils_no_other():
    """Errors of a moving average with a coefficient above one grow without bound: the climb from
    there goes nowhere, and the log density is flat to rounding."""
    y = np.random.default_rng(0).normal(size=200)

    def log_density(x):
        def step(error, value):
            error = value - x[0] * error
            return error, error

        errors = jax.lax.scan(step, jnp.zeros_like(x[0]), jnp.asarray(y))[1]
        return -0.5 * jnp.sum(errors**2) - 0.1 * jnp.sum(x**2)

    (modes,) = searched(log_density, 2, [4])
    assert len(modes) == 1
    assert abs(modes[0].at[0]) < 0.3


MEASURED = np.array([4.9, 1.2, 3.8, 0.4, 5.1, 2.7, 6.3, 2.2, 3.1, 4.4])


def numpyro_model():
    numpyro = pytest.importorskip("numpyro")
    import numpyro.distributions as dist

    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0, 10))
        sigma = numpyro.sample("sigma", dist.HalfNormal(10))
        numpyro.deterministic("ratio", mu / sigma)
        numpyro.sample("y", dist.Normal(mu, sigma), obs=y)

    return model, {"args": (MEASURED,)}


def pymc_model():
    pm = pytest.importorskip("pymc")
    with pm.Model() as model:
        mu, sigma = pm.Normal("mu", 0, 10), pm.HalfNormal("sigma", 10)
        pm.Deterministic("ratio", mu / sigma)
        pm.Normal("y", mu, sigma, observed=MEASURED)
    return model, {}


@pytest.mark.whole
@pytest.mark.parametrize("make", [numpyro_model, pymc_model])
def test_models_with_their_data(make):
    model, data = make()
    answer = zv.integrate(model, **data, gradients=800, family=zv.Polynomial(3))
    assert set(answer.names) == {"mu", "sigma", "ratio"}
    mu, sigma = (
        a.ravel() for a in np.meshgrid(np.linspace(-3, 10, 801), np.geomspace(0.5, 40, 801))
    )
    # on the grid of log sigma
    log_density = -0.5 * (mu / 10) ** 2 - 0.5 * (sigma / 10) ** 2 + np.log(sigma)
    log_density += sum(-0.5 * ((each - mu) / sigma) ** 2 - np.log(sigma) for each in MEASURED)
    density = np.exp(log_density - log_density.max())
    truth = {
        name: density @ each / density.sum()
        for name, each in (("mu", mu), ("sigma", sigma), ("ratio", mu / sigma))
    }
    found = dict(zip(answer.names, answer.value, strict=True))
    errors = dict(zip(answer.names, answer.std_error, strict=True))
    for name, value in truth.items():
        assert abs(found[name] - value) < 4 * errors[name] + 1e-6 * abs(value)


def test_constants_that_are_missing_are_said(tmp_path):
    """A flat prior and a factor make log Z relative; tables and files say it."""
    numpyro = pytest.importorskip("numpyro")
    import numpyro.distributions as dist

    def model(y, flat):
        prior = dist.ImproperUniform(dist.constraints.real, (), ()) if flat else dist.Normal(0, 10)
        mu = numpyro.sample("mu", prior)
        if flat:
            numpyro.factor("more", -mu)
        numpyro.sample("y", dist.Normal(mu, 1), obs=y)

    found = zv.integrate(model, args=(MEASURED, True), gradients=300, family=QUADRATIC)
    relative = found.integration.relative
    assert relative == ("the prior of mu is improper", "the factor more is no normalised density")
    assert "up to a constant alone: the prior of mu is improper" in str(found)
    found.save(tmp_path / "answer.npz")
    assert zv.load(tmp_path / "answer.npz").integration.relative == relative
    assert flat_density(model, None, (MEASURED, False), None).constants.relative == ()


@pytest.mark.whole
def test_constants_of_pymc_that_are_missing_are_said():
    pm = pytest.importorskip("pymc")
    with pm.Model() as model:
        mu = pm.Flat("mu")
        pm.Potential("more", -mu)
        pm.Normal("y", mu, 1, observed=MEASURED)
    relative = zv.integrate(model, gradients=400, family=QUADRATIC).integration.relative
    assert relative == (
        "the potential more is no normalised density",
        "the prior of mu is improper",
    )


def test_bad_arguments_are_refused():
    density = normal([1.0])
    for arguments, said in [
        (((density,), {}), "start must say how a draw looks"),
        (((density, 1), {"gradients": 10}), "gradients must be"),
        (((density, 1), {"draws": np.zeros((5, 1))}), "belong together"),
        (((density, 1, np.zeros(5)), {}), "values must be a function"),
        (((lambda x: x, 2), {}), "one number"),
        (((lambda x: x[3], 2), {}), "could not be evaluated"),
        (((density, 1), {"family": "quadratic", "gradients": 200}), "family must be"),
        (((3.0, 1), {}), "must be a JAX function"),
        (((lambda x: jnp.sum(x) + 0j, 1), {}), "floating-point number.*got complex"),
        (((lambda x: 3, 1), {}), "floating-point number.*got int"),
        (((lambda x: None, 1), {}), "one number; got None"),
        (((density, object()), {}), "start cannot be read"),
        (((density, {}), {}), "start has no numbers"),
        (((density, 1), {"args": 3}), "args must be a tuple"),
        (((density,), {"args": (1.0,)}), "no unobserved sites"),
        (((lambda y: y, 1), {"args": (1.0, 2.0)}), "could not be run as a NumPyro model"),
    ]:
        with pytest.raises(ValueError, match=said):
            zv.integrate(*arguments[0], **arguments[1])


def test_the_record_is_saved_printed_and_written_by_the_command_line(tmp_path, monkeypatch, capsys):
    source = (
        "import jax.numpy as jnp\nlog_density = lambda x: -0.5 * jnp.sum(x**2)\nsize = lambda x: "
        "{'size': jnp.sum(x**2)}\n"
    )
    (tmp_path / "chainless.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    command = [
        "integrate",
        "chainless:log_density",
        "--dimensions",
        "2",
        "--gradients",
        "300",
        "--family",
        "quadratic",
    ]
    assert cli.main([*command, "--values", "chainless:size", "--json", "answer.json"]) == 0
    assert "log evidence" in capsys.readouterr().out
    written = json.loads((tmp_path / "answer.json").read_text())
    assert abs(written["estimates"][0]["value"] - 2.0) < 1e-9
    assert (
        abs(written["integration"]["log_evidence"] - np.log(2 * np.pi))
        < 4 * written["integration"]["log_evidence_error"]
    )
    assert cli.main([*command[:1], "chainless", *command[2:]]) == 2
    assert "MODULE:FUNCTION" in capsys.readouterr().err
    answer = zv.integrate(normal([1.0]), 1, gradients=300, family=QUADRATIC)
    answer.save(tmp_path / "answer.npz")
    loaded = zv.load(tmp_path / "answer.npz")
    assert loaded.integration.describe() == answer.integration.describe()
    assert str(loaded) == str(answer)


def gumbel(x):
    """Of log of an exponential variable, in each coordinate: its left tail is exponential, its mean
    −0.5772."""
    return jnp.sum(x - jnp.exp(x))


@pytest.mark.whole
def test_exponential_tails_are_named_and_errors_cover():
    off = []
    for seed in range(3):
        with pytest.warns(zv.SampleWarning, match="exponential tail along x0, x1"):
            answer = zv.integrate(gumbel, 2, gradients=600, family=zv.Polynomial(3), seed=seed)
        off.append((answer.value + np.euler_gamma) / answer.std_error)
        assert np.all(answer.std_error < 0.3 * answer.plain_std_error)
    # 6 numbers: one in a thousand is above, if errors are right
    assert np.sqrt(np.mean(np.square(off))) < 1.9
    assert not zv.integrate(normal([1.0, 2.0]), 2, gradients=600, family=zv.Polynomial(3)).warnings


def test_a_wrong_answer_gives_way_to_the_second_one():
    rng = np.random.default_rng(0)
    sample = Sample(draws := rng.normal(size=(1000, 2)), -draws, np.zeros(1000))
    task = Task.of(sample, np.exp(draws[:, :1]))
    right = plain_answer(task)
    cautions, second = Cautions(), second_opinion(task, Policy())
    one = np.ones((1, 1))
    chosen = Selection(("f",), ("plain mean",), one, one, ("no other",), ())
    kept, same = hold(right, chosen, second, task, ("f",), cautions)
    np.testing.assert_array_equal(kept.value, right.value)
    assert same is chosen
    assert not cautions.texts
    wrong = dataclasses.replace(right, value=right.value + 0.5)
    with pytest.warns(zv.SampleWarning, match="That mean is reported"):
        found, taken = hold(wrong, chosen, second, task, ("f",), cautions)
    assert taken.describe(0) == "cross-fitted polynomial"
    assert "too far" in str(taken)
    np.testing.assert_array_equal(taken.std_errors[:, 0], [1.0, second.error[0]])
    np.testing.assert_array_equal(found.value, second.answer.value)
    assert np.abs(found.value - np.exp(0.5)) < 4 * found.scatter < 0.2


def test_long_tails_get_components_of_their_own_and_short_ones_none():
    rng = np.random.default_rng(0)
    one = TMixture(np.ones(1), np.zeros((1, 2)), np.eye(2)[None], np.array([30.0]))
    draws = rng.normal(size=(3000, 2))
    assert one.add_tails(draws, np.zeros(3000), np.eye(2), np.eye(2)) is one
    draws[:, 0] = 1.2 * np.log(rng.exponential(size=3000)) + 0.7
    more = one.add_tails(draws, np.zeros(3000), np.eye(2), np.eye(2))
    assert more.shares.sum() == pytest.approx(1)
    assert len(more.shares) == 2
    assert more.means[1, 0] < -3.2
    assert abs(more.means[1, 1]) < 1
    draws[:200, 0] += 300.0  # where the density is nothing
    nothing = np.where(np.arange(3000) < 200, -np.inf, 0.0)
    # the next one inwards has all that a tail may have
    nothing[200 + draws[200:, 0].argmax()] = np.log(1000.0)
    again = one.add_tails(draws, nothing, np.eye(2), np.eye(2))
    assert np.isfinite(again.roots).all()
    assert again.means[:, 0].max() < 1


def test_what_is_done_is_told_and_an_interruption_leaves_nothing_behind(monkeypatch):
    target, said = target_of(normal([1.0, 3.0]), 2, 500), []
    modes = find_modes(target, np.ones((1, 2)), np.random.default_rng(0), said.append, True)
    importance_sample(target, *first_proposal(modes), np.random.default_rng(0), True, said.append)
    assert said[0].startswith("modes: start 1 of")
    assert said[-1] == "points: round 12 of 12"
    before = zv.integrate(normal([1.0, 3.0]), 2, gradients=300, family=QUADRATIC)
    calls, at = [], Target.at

    def interrupted(self, x):
        calls.append(len(x))
        if len(calls) == 5:
            raise KeyboardInterrupt
        return at(self, x)

    with monkeypatch.context() as patch:
        patch.setattr(Target, "at", interrupted)
        with pytest.raises(KeyboardInterrupt):
            zv.integrate(normal([1.0, 3.0]), 2, gradients=300, family=QUADRATIC)
    after = zv.integrate(normal([1.0, 3.0]), 2, gradients=300, family=QUADRATIC)
    np.testing.assert_array_equal(after.value, before.value)
    np.testing.assert_array_equal(after.std_error, before.std_error)


def test_quantiles_of_a_log_density():
    """Of normals and of exp of one, to within their errors; and not where a family is given."""
    precision = np.linalg.inv(0.8 ** np.abs(np.subtract.outer(range(2), range(2))))
    probs = np.array([0.05, 0.5, 0.9])
    options = {"gradients": 600, "probs": probs, "progress": False}
    choice = zv.Automatic(effort="low", progress=False)
    answer = zv.integrate(
        lambda x: -x @ precision @ x / 2,
        2,
        {"a": lambda x: x[0], "b": lambda x: jnp.exp(x[1])},
        family=choice,
        **options,
    )
    assert answer.names == tuple(
        f"{name} {title}" for name in "ab" for title in ("5%", "50%", "90%")
    )
    exact = norm.ppf(probs)
    assert np.all(np.abs(answer.value - [*exact, *np.exp(exact)]) < 4 * answer.std_error)
    assert np.all(answer.gain > 1e6)
    assert answer.integration.points > 300
    with pytest.raises(zv.NumericalError, match="control variates are chosen"):
        zv.integrate(lambda x: -x @ x / 2, 2, family=zv.Polynomial(2), **options)
