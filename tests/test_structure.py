"""Hierarchies that are found from draws and scores alone."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest

import zerovar as zv
from benchmarks.hierarchies import EXACT, draw_in
from benchmarks.known_means import hierarchy
from zerovar import session
from zerovar.choice.structure import find_hierarchy

WEAK = "8 groups, weak data"
LOW = zv.Automatic("low", progress=False)


def drawn(form, name=WEAK):
    x, s, _ = draw_in(EXACT[name], form, np.random.default_rng(0), 1000)
    return zv.Sample(x, s)


def without_structure(kind, rng, n=1000, d=10):
    x = rng.normal(size=(n, d))
    if kind == "correlated":
        root = np.linalg.cholesky(np.cov(rng.normal(size=(d, 2 * d))))
        return x @ root.T, -np.linalg.solve(root.T, x.T).T
    if kind == "t":
        x = rng.standard_t(5, size=(n, d))
        return x, -6 * x / (5 + x * x)
    if kind == "banana":
        y, s = x.copy(), -x
        y[:, 1] += x[:, 0] ** 2 / 2
        s[:, 0] += x[:, 0] * x[:, 1]
        return y, s
    return x, -x


def test_effects_of_a_centred_hierarchy_are_standard_normal_in_units_of_their_scale():
    """Data are normal, so that nothing is left; μ is the location and log τ the parent."""
    sample = drawn("centred")
    (level,) = find_hierarchy(sample, 1000.0).levels
    assert level.effects.tolist() == list(range(2, 10))
    assert level.parents.tolist() == [1]
    assert level.exponents.tolist() == [-2]
    assert level.locations.tolist() == [0]
    there = level(sample)
    assert np.abs(there.draws + there.scores)[:, level.effects].max() < 1e-6
    # the negative control: as they were
    unit = sample.scores[:, level.effects] / sample.scores[:, level.effects].std(axis=0)
    assert np.abs(sample.draws[:, level.effects] + unit).mean() > 0.3


def test_centred_and_non_centred_draws_lead_to_the_same_coordinates():
    there = []
    for form in ("centred", "non-centred"):
        sample = drawn(form, name="8 groups")
        found = find_hierarchy(sample, 1000.0)
        assert found.levels[0].effects.tolist() == list(range(2, 10))
        there.append(found.levels[0](sample))
    assert np.allclose(there[0].draws, there[1].draws, atol=1e-6)
    assert np.allclose(there[0].scores, there[1].scores, atol=1e-6)


@pytest.mark.parametrize("form", ["centred", "non-centred"])
def test_scores_in_closed_form_are_those_of_a_coupling(form):
    sample = drawn(form, name="8 groups")
    level = find_hierarchy(sample, 1000.0).levels[0]

    def location_and_scale(x):
        x = x - level.origin
        g = jnp.exp(x[level.parents] @ level.exponents)
        p = g * level.precision[0] + level.precision[1]
        others = jnp.concatenate([jnp.ones(1), x[level.locations]])
        powers = jnp.array([g, jnp.sqrt(g), 1.0])
        q = jnp.einsum("p,l,plk->k", powers, others, level.location)
        return level.origin[level.effects] + q / p, 1 / jnp.sqrt(p)

    coupling = zv.Coupling([(level.effects, location_and_scale)], backwards=True)
    told, found = coupling(sample), level(sample)
    assert np.allclose(told.draws, found.draws, rtol=1e-9, atol=1e-9)
    assert np.allclose(told.scores, found.scores, rtol=1e-6, atol=1e-6)


def test_both_levels_of_groups_in_regions_are_found():
    """Data tell much of the means of regions: the steepest score is that of the mean over all, of
    which they are the locations, seen from the wrong side."""
    sample = drawn("centred", name="20 regions of 3 groups")
    groups, regions = find_hierarchy(sample, 1000.0).levels
    assert groups.effects.tolist() == list(range(23, 83))
    assert groups.parents.tolist() == [2]
    assert groups.locations.tolist() == list(range(3, 23))
    assert regions.effects.tolist() == list(range(3, 23))
    assert regions.parents.tolist() == [1]
    assert 0 in regions.locations
    there = regions(groups(sample))
    assert np.abs(there.draws + there.scores)[:, groups.effects].max() < 1e-5


@pytest.mark.parametrize(("form", "exponent"), [("half centred", -1), ("softplus", -2)])
def test_other_units_and_other_scales_are_followed(form, exponent):
    """Effects in units of the root of their scale; and a scale that is log(1 + eˣ), of which the
    logarithm is nearly linear where it is small."""
    sample = drawn(form)
    (level,) = find_hierarchy(sample, 1000.0).levels
    assert level.effects.tolist() == list(range(2, 10))
    assert level.parents.tolist() == [1]
    assert level.exponents == pytest.approx([exponent], rel=0.2)


@pytest.mark.parametrize("kind", ["independent", "correlated", "t", "banana"])
def test_nothing_is_found_where_there_is_nothing(kind):
    rng = np.random.default_rng(0)
    for _ in range(20):
        x, s = without_structure(kind, rng)
        assert find_hierarchy(zv.Sample(x, s), 1000.0) is None
    # the control: two of the coordinates in units of another one
    scale = np.exp(0.7 * x[:, [5]])
    x[:, 7:9], s[:, 7:9], before = scale * x[:, 7:9], s[:, 7:9] / scale, x[:, 7:9] * s[:, 7:9]
    s[:, 5] -= 0.7 * np.sum(before + 1, axis=1)
    found = find_hierarchy(zv.Sample(x, s), 1000.0)
    assert found is not None
    assert found.levels[0].parents.tolist() == [5]


@pytest.mark.parametrize("spread", [1.0, 70.0])
def test_scales_over_all_orders_of_magnitude_do_no_harm(spread):
    """Up to the largest draws that are allowed, what is found is finite; with log scales over a few
    units, the control, it is all there is."""
    rng = np.random.default_rng(0)
    v, z = rng.normal(size=(1000, 1)), rng.normal(size=(1000, 3))
    size = np.exp(spread * v / 2)
    slope = -v + spread / 2 * (np.sum(z**2, axis=1, keepdims=True) - 3)
    x, s = np.concatenate([v, size * z], axis=1), np.concatenate([slope, -z / size], axis=1)
    sample = zv.Sample(x, s)
    found = find_hierarchy(sample, 1000.0)
    if spread > 1:
        assert found is None or np.isfinite(found(sample).scores).all()
    else:
        assert found is not None
        assert found.levels[0].effects.tolist() == [1, 2, 3]


def test_where_nothing_is_found_nothing_changes(monkeypatch):
    x, s = without_structure("t", np.random.default_rng(1), 400, 4)
    answer = zv.estimate(x, s, family=LOW)
    monkeypatch.setattr(session, "find_hierarchy", lambda *_: None)
    before = zv.estimate(x, s, family=LOW)
    assert np.array_equal(answer.value, before.value)
    assert np.array_equal(answer.std_error, before.std_error)
    assert answer.selection.found == ()


def test_the_default_call_tries_what_was_found_and_says_so(monkeypatch):
    """Errors are right over 6 samples of 6 integrands, a third of which count as independent."""
    z, gains = [], []
    for seed in range(6):
        found = hierarchy(np.random.default_rng(seed), 500, WEAK, "centred")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", zv.ZerovarWarning)
            answer = zv.estimate(found.x, found.s, found.f, family=LOW)
        z.append((answer.value - found.means) / np.hypot(answer.std_error, found.errors))
        gains.append(answer.gain)
    assert np.mean(np.abs(z) < 1.96) > 0.95 - 3 * np.sqrt(0.95 * 0.05 / 12)
    assert np.median(gains) > 30
    assert answer.selection.found[0].startswith(
        "the spread of coordinate 2 to coordinate 9 (8 coordinates) changes with exp(coordinate 1)"
    )
    assert "Found: the spread of coordinate 2" in str(answer)
    told = next(text for text in answer.warnings if text.startswith("The scores of"))
    assert "in units of that spread" in told
    # the control: without, effects have the plain mean, and the advice of old
    monkeypatch.setattr(session, "find_hierarchy", lambda *_: None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", zv.ZerovarWarning)
        before = zv.estimate(found.x, found.s, found.f, family=LOW)
    assert np.median(before.gain) < 2
    assert any("can mislead" in text for text in before.warnings)


def test_coefficients_beside_an_unknown_scale_are_not_called_a_hierarchy():
    """Two of an epidemic's rates, about normal, whose precision is that of counts with an
    overdispersion φ, and of a prior: their spread follows φ, and they gain by that."""
    rng = np.random.default_rng(0)
    log_phi = rng.normal(-2.1, 0.5, size=1000)
    precision = np.exp(-log_phi)[:, None] * [1000.0, 140.0] + [140.0, 20.0]
    away = rng.normal(size=(1000, 2)) / np.sqrt(precision)
    grown = (precision - [140.0, 20.0]) / precision  # of the normal's log density, by log φ
    slope = -(log_phi + 2.1) / 0.25 + np.sum((grown * precision * away**2 - grown) / 2, axis=1)
    x = np.column_stack([0.55 + away[:, 0], -0.63 + away[:, 1], log_phi])
    s = np.column_stack([-precision * away, slope])
    posterior = zv.Posterior(x, s, None, ("beta", "gamma", "phi_inv"))
    answer = zv.estimate(posterior, values=x[:, :2] ** 2, family=LOW)
    (told,) = answer.selection.found
    assert told.startswith("the spread of beta and gamma changes with exp(0.5 phi_inv)")
    assert "or of coefficients beside an unknown scale of errors" in told
    assert "effects)" not in told
    assert np.median(answer.gain) > 1e4
