"""Quantiles, intervals, curves and rare events on targets whose answers are known: z values within
what chance allows, never worse than counting, and a control that must fail."""

import dataclasses
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import SCHOOLS
from scipy import optimize, stats

import zerovar as zv
from zerovar.events.lines import Lines

LOW = zv.Automatic(effort="low", progress=False)
PROBS = (0.05, 0.5, 0.945)
DRAWS, REPLICATES = 400, 3


class Mixture:
    """Two normals, as scipy has distributions."""

    parts = stats.norm(-1.5, 0.5), stats.norm(1.5, 1)

    def pdf(self, x):
        return 0.4 * self.parts[0].pdf(x) + 0.6 * self.parts[1].pdf(x)

    def cdf(self, x):
        return 0.4 * self.parts[0].cdf(x) + 0.6 * self.parts[1].cdf(x)

    def ppf(self, p):
        return optimize.brentq(lambda x: self.cdf(x) - p, -20, 20, xtol=1e-14)


# one target of five coordinates, two of which are correlated, and its marginals
KNOWN = {
    "a": stats.norm(),
    "tau": stats.lognorm(1.0),
    "gumbel": stats.gumbel_r(),
    "mixture": Mixture(),
    "t": stats.t(3),
}
RHO = 0.6


def log_density(x):
    two = -(x[0] ** 2 - 2 * RHO * x[0] * x[1] + x[1] ** 2) / (2 * (1 - RHO**2))
    first, second = (
        jnp.log(0.4 / 0.5) - (x[3] + 1.5) ** 2 / 0.5,
        jnp.log(0.6) - (x[3] - 1.5) ** 2 / 2,
    )
    return two - x[2] - jnp.exp(-x[2]) + jnp.logaddexp(first, second) - 2 * jnp.log1p(x[4] ** 2 / 3)


def natural(x):
    return {"a": x[0], "tau": jnp.exp(x[1]), "gumbel": x[2], "mixture": x[3], "t": x[4]}


def posterior_of(seed, n=DRAWS):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=n)
    left = rng.uniform(size=n) < 0.4
    mixture = np.where(left, rng.normal(-1.5, 0.5, n), rng.normal(1.5, 1, n))
    b = RHO * a + np.sqrt(1 - RHO**2) * rng.normal(size=n)
    draws = np.stack([a, b, rng.gumbel(size=n), mixture, rng.standard_t(3, n)], axis=1)
    return zv.from_log_density(log_density, draws, transform=natural)


@pytest.fixture(scope="module")
def posteriors():
    return [posterior_of(seed) for seed in range(REPLICATES)]


def scores_only(posterior):
    return dataclasses.replace(posterior, density=None)


HOW = {"lines": lambda posterior: posterior, "scores": scores_only}
pytestmark = pytest.mark.filterwarnings("ignore::zerovar.SampleWarning")


def z_values(answer, known):
    """How many errors each row is from what is known of it: name → number."""
    truth = np.array([known[name] for name in answer.names])
    return (answer.value - truth) / answer.std_error


def within_chance(z):
    """Bounds on N z values of unit spread, not all of them independent: one in a thousand runs is
    beyond either."""
    z = np.asarray(z)
    bound = stats.norm.isf(5e-4 / z.size)
    return np.abs(z).max() < bound and np.mean(z**2) < 1 + 3.3 * np.sqrt(2 / (z.size / 3))


QUANTILES = {f"{k} {100 * p:g}%": float(d.ppf(p)) for k, d in KNOWN.items() for p in PROBS}


@pytest.mark.parametrize("how", HOW)
def test_quantiles_are_calibrated(posteriors, how):
    z, gains = [], []
    for posterior in posteriors:
        answer = zv.quantile(HOW[how](posterior), PROBS, family=LOW)
        z.append(z_values(answer, QUANTILES))
        gains.append(answer.gain)
        assert np.all(answer.gain >= 1)
    assert within_chance(z)
    # by lines thousands everywhere; by scores alone on normals, and something elsewhere
    typical = dict(zip(answer.names, np.median(gains, axis=0), strict=True))
    if how == "lines":
        assert min(typical.values()) > 100
    else:
        assert min(typical["a 50%"], typical["tau 50%"]) > 20
        assert np.median(list(typical.values())) > 2


def test_wrong_conditional_probabilities_are_found(posteriors, monkeypatch):
    """The control: shifted by three of their own errors, on average over the draws."""
    right = Lines.below

    def shifted(self, levels):
        found = right(self, levels)
        off = 3 * found.below.std(axis=0) / np.sqrt(len(found.below))
        return found._replace(below=found.below + off)

    monkeypatch.setattr(Lines, "below", shifted)
    answer = zv.quantile(posteriors[0], PROBS, var_names=["gumbel", "mixture"], family=LOW)
    assert not within_chance(z_values(answer, QUANTILES))


def shortest(known, prob=0.89):
    """The ends of the interval of highest density, where there is one."""

    def unlike(share):
        return known.pdf(known.ppf(share)) - known.pdf(known.ppf(share + prob))

    share = optimize.brentq(unlike, 1e-6, 1 - prob - 1e-6, xtol=1e-15)
    return known.ppf(share), known.ppf(share + prob)


SHORTEST = {
    f"{name} hdi89_{end}": float(place)
    for name, known in KNOWN.items()
    for end, place in zip(("lb", "ub"), shortest(known), strict=True)
}


@pytest.mark.whole
@pytest.mark.parametrize("how", HOW)
def test_shortest_intervals_are_calibrated(posteriors, how):
    """Also of exp of a normal by scores, whose density has a slope near its lower end that
    differences over a tenth of a deviation do not show."""
    z = []
    for posterior in posteriors[:2]:
        answer = zv.interval(HOW[how](posterior), kind="hdi", family=LOW)
        assert np.all(answer.gain >= 1)
        # the normal's ends are found to 1e-8, where the last of Newton's steps was short
        off = answer.value - [SHORTEST[name] for name in answer.names]
        z.append(np.where(np.abs(off) < 1e-6, 0.0, off / answer.std_error))
    assert within_chance(z)


def test_intervals_of_equal_tails_are_quantiles(posteriors):
    ends = zv.interval(posteriors[0], 0.9, var_names=["a", "t"], family=LOW)
    assert ends.names == ("a eti90_lb", "a eti90_ub", "t eti90_lb", "t eti90_ub")
    both = zv.quantile(posteriors[0], (0.05, 0.95), var_names=["a", "t"], family=LOW)
    np.testing.assert_allclose(ends.value, both.value, rtol=1e-9)
    np.testing.assert_allclose(ends.std_error, both.std_error, rtol=1e-5)


@pytest.mark.parametrize("how", HOW)
def test_curves_are_calibrated(posteriors, how):
    """Pointwise, where draws are; no bandwidth: what is below zero is cut, the area is one but for
    what lies beyond the grid."""
    inside = []
    for posterior in posteriors[:2]:
        curves = zv.density(HOW[how](posterior), points=33)
        assert curves.names == tuple(KNOWN)
        assert np.all(curves.value >= 0)
        for name, x, y, error in zip(
            curves.names, curves.grid, curves.value, curves.std_error, strict=True
        ):
            known = KNOWN[name]
            beyond = known.cdf(x[0]) + 1 - known.cdf(x[-1])
            rough = np.abs(np.trapezoid(known.pdf(x), x) + beyond - 1)  # of the grid itself
            step = x[1] - x[0]
            tolerance = 5 * step * np.sqrt(np.sum(error**2)) * (1 if how == "scores" else 33)
            assert abs(np.trapezoid(y, x) + beyond - 1) < rough + tolerance + 1e-9
            inside.append(np.mean(np.abs(y - known.pdf(x)) <= 1.96 * error + 1e-12))
    assert min(inside) > 0.5
    assert 0.85 < np.mean(inside) <= 1
    dataset = curves.to_dataset()
    assert dict(dataset.sizes) == {"quantity": 5, "point": 33}


def test_curves_of_what_has_no_density():
    """A value of several coordinates by scores alone, whole numbers, a constant: left out, and
    refused where nothing else is."""
    x = np.random.default_rng(0).normal(size=(1, 200, 2))
    values = {"sum": np.exp(x).sum(axis=2), "whole": np.floor(x[..., 0]), "a": x[..., 0]}
    assert zv.density(zv.Posterior(x, -x, values), points=9).names == ("a",)
    with pytest.raises(ValueError, match="density: sum, whole has none that could be known"):
        zv.density(zv.Posterior(x, -x, values), var_names=["sum", "whole"])


# --- particular quantities -------------------------------------------------------------------


@pytest.fixture(scope="module")
def weighted():
    """Draws of a wider normal, with weights; and some quantities of them."""
    x = 1.3 * np.random.default_rng(0).normal(size=(800, 2))
    functions = {
        "one": lambda x: 1.0 + 0 * x[0],
        "whole": lambda x: jnp.floor(2 * x[0] + 0.4),
        "larger": lambda x: jnp.maximum(x[0], x[1]),
    }
    posterior = zv.from_log_density(lambda x: -x @ x / 2, x, values=functions)
    noise = np.random.default_rng(1).normal(size=(1, 800))
    return dataclasses.replace(
        posterior,
        values={**posterior.values, "noise": noise},
        log_weights=-np.sum(x**2, axis=1)[None] / 2 * (1 - 1 / 1.69),
    )


@pytest.mark.parametrize("how", HOW)
def test_weights_and_quantities_of_all_kinds(weighted, how):
    """Weighted draws; a constant; whole numbers, whose quantiles are whole; what has nothing to do
    with the draws, whose answer is the plain one."""
    answer = zv.quantile(HOW[how](weighted), (0.1, 0.5), family=LOW)
    rows = dict(zip(answer.names, zip(answer.value, answer.std_error, strict=True), strict=True))
    half = np.sqrt([0.1, 0.5])
    known = {
        "x[0] 10%": stats.norm.ppf(0.1),
        "x[0] 50%": 0.0,
        "larger 10%": stats.norm.ppf(half[0]),
        "larger 50%": stats.norm.ppf(half[1]),
    }
    for name, number in known.items():
        value, error = rows[name]
        assert abs(value - number) < 4 * error
        assert error < 0.1
    assert rows["one 50%"] == (1.0, 0.0)
    assert rows["whole 10%"][0] == np.floor(2 * stats.norm.ppf(0.1) + 0.4)
    assert rows["whole 50%"][0] == 0.0
    plain = dict(zip(answer.names, answer.plain_value, strict=True))
    assert rows["noise 50%"][0] == pytest.approx(plain["noise 50%"], abs=0.05)
    assert np.all(answer.gain[~np.isnan(answer.gain)] >= 1)


@pytest.mark.parametrize("how", HOW)
def test_events_of_all_kinds(weighted, how):
    """Against what is known, with weights; the counts beside; and strictness at whole numbers."""
    known = {
        "x[0] > 1": stats.norm.sf(1),
        "x[0] > x[1]": 0.5,
        "-1 < x[1] < 0.5": stats.norm.cdf(0.5) - stats.norm.cdf(-1),
        "whole >= 1": stats.norm.sf(0.3),
        "whole > 1": stats.norm.sf(0.8),
        "whole <= 1": stats.norm.cdf(0.8),
        "larger < 0.3": stats.norm.cdf(0.3) ** 2,
        "noise > 0": 0.5,
    }
    answer = zv.probability(HOW[how](weighted), list(known), family=LOW)
    assert answer.names == tuple(known)
    assert np.all(np.abs(z_values(answer, known)) < 4)
    assert np.all(answer.gain >= 1)
    p, x = weighted.sample.probabilities, weighted.sample.draws
    np.testing.assert_allclose(answer.plain_value[0], p @ (x[:, 0] > 1))
    exact = answer.std_error[: 6 if how == "lines" else 1]
    assert np.all(exact < 1e-3)
    names = {"lines": "conditional probabilities along lines", "scores": "Stein's solution"}
    assert any(names[how] in text for text in answer.limits)
    if how == "lines":
        assert any("evaluations of the log density" in text for text in answer.limits)


def test_functions_and_arrays_as_events(weighted):
    """With a comparison they are the same thing; a function has lines, an array only scores."""
    x = weighted.draws[..., 0]
    events = {"text": "x[0] > 1", "function": lambda x: x[0] > 1, "array": x > 1}
    answer = zv.probability(weighted, events, family=LOW)
    np.testing.assert_allclose(answer.value[:2], stats.norm.sf(1), atol=1e-6)
    assert abs(answer.value[2] - stats.norm.sf(1)) < 4 * answer.std_error[2]
    assert len(set(answer.plain_value)) == 1
    means = zv.estimate(weighted, values={**events, "square": lambda x: x[0] ** 2}, family=LOW)
    np.testing.assert_allclose(means.value[[0, 1, 3]], [*answer.value[:2], 1], atol=1e-6)
    with pytest.raises(ValueError, match="events: square has other values than 0 and 1"):
        zv.probability(weighted, {"square": lambda x: x[0] ** 2}, family=LOW)
    with pytest.raises(ValueError, match=r"events\['f'\] is a function, and these draws came"):
        zv.probability(scores_only(weighted), {"f": lambda x: x[0] > 1})
    with pytest.raises(ValueError, match=r"events\['f'\] must be a comparison, .* 800 draws"):
        zv.probability(weighted, {"f": x[0, :7] > 1})
    with pytest.raises(ValueError, match="events is empty"):
        zv.probability(weighted, [])


def test_what_no_draw_shows(posteriors):
    """P = 1e-5: known by lines, and by scores alone no better than counting, which says so."""
    level = float(stats.norm.isf(1e-5))
    text = f"a > {level!r}"
    answer = zv.probability(posteriors[0], text, family=LOW)
    assert abs(answer.value[0] - 1e-5) < 4 * answer.std_error[0] < 1e-7
    with pytest.warns(zv.SampleWarning, match="none of the draws shows"):
        counted = zv.probability(scores_only(posteriors[0]), text, family=LOW)
    assert counted.value[0] == 0
    assert 1 / DRAWS < counted.std_error[0] < 10 / DRAWS


def test_functions_that_fail_are_explained(posteriors):
    """Which event, what went wrong and which names there are; of means as of events."""
    for call, argument in ((zv.probability, "events"), (zv.estimate, "values")):
        told = rf"{argument}\['e'\] .* a dict of a, gumbel, mixture, t, tau: there is no 'nope'"
        with pytest.raises(ValueError, match=told):
            call(posteriors[0], **{argument: {"e": lambda draw: draw["nope"] > 1}})
    with pytest.raises(ValueError, match=r"events\['two'\] .* \(2,\)"):
        zv.probability(posteriors[0], {"two": lambda draw: jnp.stack(2 * [draw["a"] > 1])})


def test_functions_in_single_precision_alone_rest_on_scores(posteriors):
    """As a loop whose state is in single precision: the values are there, lines are not."""

    def event(draw):
        return jax.lax.fori_loop(0, 2, lambda i, c: c + draw["a"] / 2, jnp.float32(0)) > 1

    answer = zv.probability(posteriors[0], {"e": event, "a": "a > 1"}, family=LOW)
    assert any(text.startswith("e: by Stein's solution") for text in answer.limits)
    assert any(text.startswith("a: by conditional") for text in answer.limits)
    assert answer.plain_value[0] == answer.plain_value[1]
    assert abs(answer.value[0] - stats.norm.sf(1)) < 4 * answer.std_error[0]


def test_levels_that_no_line_crosses(posteriors):
    """On either side; no draw shows them, nor any line, and that is said."""
    with pytest.warns(zv.SampleWarning, match="none of the draws shows"):
        answer = zv.probability(posteriors[0], ["a > 50", "a < 50"], family=LOW)
    np.testing.assert_array_equal(answer.value, [0.0, 1.0])
    assert np.all(answer.std_error > 1 / DRAWS)


def test_quantiles_of_a_tail(posteriors):
    """Far beyond the last draw: found along lines, also of what cannot be negative; by scores alone
    the draws' own, with a warning that names it, and none for what draws know."""
    probs = (1e-9, 1e-5, 0.5, 1 - 1e-7)
    options = {"var_names": ["a", "tau"], "family": LOW}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        answer = zv.quantile(posteriors[0], probs, **options)
    assert "a 99.99999%" in answer.names
    known = np.concatenate([KNOWN[name].ppf(probs) for name in ("a", "tau")])
    assert np.all(np.abs(answer.value - known) < 4 * answer.std_error)
    # lines are integrated to 1e-10, a tenth of the rarest share: an error of a tenth in its log
    assert np.all(answer.std_error < 0.05 * np.maximum(np.abs(known), 1e-3))
    assert np.all(answer.gain >= 1)
    beyond = r"Fewer than 3 effective draws lie beyond a 1e-07%, a 0.001%, a 99.99999%, tau 1e-07%"
    with pytest.warns(zv.SampleWarning, match=beyond):
        plain = zv.quantile(scores_only(posteriors[0]), probs, **options)
    assert plain.value[0] == pytest.approx(posteriors[0].values["a"].min(), rel=1e-6)
    assert any("effective draws lie beyond" in text for text in plain.warnings)


def test_words_fit_what_was_asked_for():
    """Of a quantile by scores that have no mean, in a wide funnel, no one is told that it has heavy
    tails, or to look at the median; of the mean they are. Of what is not reported nothing is said:
    here the draws' own median is."""
    v, z = np.random.default_rng(0).normal(size=(2, 1, 2000))
    v = 3 * v
    x = np.exp(v) * z
    scores = np.stack([-v / 9 - 1 + z**2, -z * np.exp(-v)], axis=2)
    funnel = zv.Posterior(np.stack([v, x], axis=2), scores, {"x": x})
    with pytest.warns(zv.SampleWarning) as given:
        median = zv.quantile(funnel, 0.5, family=LOW)
    told = " ".join(str(one.message) for one in given)
    assert median.value[0] == median.plain_value[0]
    assert "x 50%" not in told
    assert "The tails of" not in told
    assert "the median" not in told
    with pytest.warns(zv.SampleWarning, match="The tails of x are heavy"):
        zv.estimate(funnel, values=funnel.values, family=LOW)


# --- the table, and many draws ---------------------------------------------------------------


@pytest.mark.whole
def test_the_table_has_the_same_intervals(posteriors):
    options = {"family": LOW, "var_names": ["a", "mixture"]}
    for kind in ("eti", "hdi"):
        ends = zv.interval(posteriors[0], 0.8, kind, **options)
        table = zv.summary(posteriors[0], prob=0.8, ci_kind=kind, round_to=None, **options)
        for side, end in enumerate(("lb", "ub")):
            own = f"{kind}80_{end}"
            for prefix, column in (("cv", ends.value), ("cv_mcse", ends.std_error)):
                np.testing.assert_allclose(table[f"{prefix}_{own}"], column[side::2], rtol=1e-9)
            np.testing.assert_allclose(table[own], ends.plain_value[side::2])
    median = zv.summary(posteriors[0], kind="all_median", round_to=None, **options)
    answer = zv.quantile(posteriors[0], 0.5, **options)
    np.testing.assert_allclose(median["cv_mcse_median"], answer.std_error, rtol=0.5)
    np.testing.assert_allclose(median["median"], answer.plain_value)
    assert np.all(np.abs(median["cv_median"] - answer.value) < 4 * answer.std_error)
    plain = zv.summary(posteriors[0], intervals=False, round_to=None, **options)
    assert not [name for name in plain.columns if name.startswith("cv_eti")]


def test_lines_through_some_of_many_draws():
    """It is said; arrays of all draws go with them; scores alone take all."""
    x = np.random.default_rng(0).normal(size=(2, 2100, 1))
    posterior = zv.from_log_density(lambda x: -x @ x / 2, x, chain_axis=0)
    events = {"text": "x[0] > 1", "array": x[..., 0] > 1}
    said = "Lines are laid through 4000 of the 4200 draws."
    assert said in zv.probability(posterior, events, family=LOW).limits
    assert said in zv.quantile(posterior, 0.5, family=LOW).limits
    curves = zv.density(posterior, points=8)
    assert said in curves.limits
    assert said in repr(curves)
    assert curves.limits[0].startswith("x[0]: by conditional probabilities along lines, ")
    whole = zv.quantile(scores_only(posterior), 0.5, family=LOW)
    assert said not in whole.limits
    assert whole.plain_value[0] == pytest.approx(np.median(x))


# --- hierarchies -----------------------------------------------------------------------------


def eight_schools_probabilities(mu, tau, theta):
    """Exact P(μ < …), P(τ < …), P(θ₁ < …) by quadrature over log τ, given which all are normal."""
    y, sigma = SCHOOLS
    log_tau = np.linspace(-20, 8, 20001)[:, None]
    t = np.exp(log_tau)
    variance = sigma**2 + t**2
    precision = np.sum(1 / variance, axis=1) + 1 / 25
    centre = np.sum(y / variance, axis=1) / precision
    log_weight = -0.5 * np.sum(np.log(variance) + y**2 / variance, axis=1)
    log_weight += 0.5 * centre**2 * precision - 0.5 * np.log(precision)
    log_weight += -np.log1p((t[:, 0] / 5) ** 2) + log_tau[:, 0]
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    shrink = (sigma**2 / variance)[:, 0]
    own = (1 - shrink) * y[0] + shrink * centre
    spread = np.sqrt(shrink * t[:, 0] ** 2 + shrink**2 / precision)
    below_tau = np.interp(np.log(tau), log_tau[:, 0], np.cumsum(weight) - weight / 2)
    return np.array(
        [
            weight @ stats.norm.cdf(mu, centre, 1 / np.sqrt(precision)),
            below_tau,
            weight @ stats.norm.cdf(theta, own, spread),
        ]
    )


def test_a_hierarchy_by_scores_alone():
    """Eight schools in ten dimensions, as a file has it: a coordinate, exp of one, and a value of
    three of them; none worse than counting."""
    from test_samplers import shipped

    x, s, v = shipped(chains=4)
    values = {"mu": v[..., 0], "tau": v[..., 1], "theta": v[..., 2]}
    posterior = zv.Posterior(x, s, values)
    levels = [0.0, 5.0, 5.0], [4.5, 2.5, 12.0]
    names = [f"{n} < {c}" for row in levels for n, c in zip(values, row, strict=True)]
    answer = zv.probability(posterior, names, family=LOW)
    truth = np.concatenate([eight_schools_probabilities(*row) for row in levels])
    z = (answer.value - truth) / answer.std_error
    assert np.all(np.abs(z) < 4)
    assert np.all(answer.gain >= 1)
    assert np.median(answer.gain) > 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantiles = zv.quantile(posterior, 0.5, family=LOW)
    there = eight_schools_probabilities(*quantiles.value)
    slope = (eight_schools_probabilities(*(quantiles.value + 1e-3)) - there) / 1e-3
    assert np.all(np.abs((there - 0.5) / (slope * quantiles.std_error)) < 4)
