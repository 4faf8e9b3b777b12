"""check(): how often it cries wolf, and how often it sees one."""

import re
import warnings

import numpy as np
import pytest
from problems import ar1, gaussian, quadratic

import zerovar as zv
from benchmarks.checks import check_samples, cost, events
from benchmarks.samples import EVENT_CASES, RIGHT, WRONG, cut_normal
from benchmarks.samples import gaussian as chains_of_normals
from zerovar.statistics.series import (
    INDEPENDENT,
    autocorrelation_time,
    effective_size,
    r_hat,
    unit_size,
)

HARDEST = (
    "AR(0.9), d = 5",
    "AR(-0.9), d = 3, 400 draws",
    "log-gamma, shape 0.3",
    "repeated states (Metropolis)",
    "log-normal weights, 400 draws",
    "centred hierarchy, 8 groups",
)


@pytest.mark.whole
def test_false_alarms_are_rare():
    """At most 1 % on right scores: with 15 samples of each of six kinds, at most 4 of 90 (p < 0.002
    if the rate is 1 %)."""
    alarms = {
        name: sum(not verdict.ok for verdict in check_samples(RIGHT[name], 15, seed=11))
        for name in HARDEST
    }
    assert sum(alarms.values()) <= 4, alarms


def test_many_correlated_coordinates_are_no_alarm():
    """Two draws a dimension: standardised by their own covariance, right scores fail (10 of 12
    times in d = 500)."""
    rng = np.random.default_rng(0)
    d = 300
    factor = np.linalg.qr(rng.normal(size=(d, d)))[0] * np.exp(rng.normal(size=d))
    z = rng.normal(size=(2 * d, d))
    x, scores = z @ factor.T, -np.linalg.solve(factor.T, z.T).T
    assert zv.check(zv.Sample(x, scores)).ok
    assert not zv.check(zv.Sample(x, 1.2 * scores)).ok


def test_a_density_that_is_cut_is_found_and_one_that_goes_on_is_not():
    """At 2.5 the draws that are missing, six of a thousand, are found in half of the samples; with
    those beyond the cut beside them, or for a slow chain, in few."""
    half = sum(verdict.cut for verdict in check_samples(cut_normal(2.5), 40, seed=1))
    assert half >= 15, "three of five are expected: so few have p < 0.003"
    none = [
        chains_of_normals(1, 1000, 1),
        chains_of_normals(1, 1000, 3, 0.9),
        RIGHT["logit of uniforms"],
    ]
    found = [verdict.cut for maker in none for verdict in check_samples(maker, 40, seed=2)]
    assert sum(found) <= 4, "p < 0.005 at one in a hundred"


def test_a_cut_density_has_plain_means_and_a_warning():
    x, s = cut_normal(2.0, d=2)(np.random.default_rng(0))
    with pytest.warns(zv.SampleWarning, match="ends with a jump.*no draw lies above"):
        answer = zv.estimate(x, s, x, family=zv.Automatic(effort="low"))
    assert np.array_equal(answer.value, answer.plain_value)
    with pytest.warns(zv.SampleWarning, match="ends with a jump"):
        answer = quadratic(x, s, x)
    assert np.all(answer.std_error >= answer.plain_std_error), "a family that was asked for"
    assert "jump" in answer.error_reasons[0]


def test_a_chain_that_sticks_can_be_checked():
    x = np.random.default_rng(0).normal(size=(200, 15))
    x[100:] = x[100]
    assert zv.check(zv.Sample(x, -x)).ok


@pytest.mark.parametrize("mistake", [name for name in WRONG if "of 100" not in name])
def test_mistakes_are_found_and_named(mistake):
    maker, words = WRONG[mistake]
    verdicts = check_samples(maker, 6, seed=7)
    assert sum(not v.ok for v in verdicts) >= 5, "found"
    said = [v.diagnosis for v in verdicts]
    assert sum(any(word in text for word in words) for text in said) >= 5, said


def _no_jacobian(rng):
    """τ ~ Gamma(4) drawn as x₁ = log τ next to a Gaussian x₀."""
    tau, x0 = rng.gamma(4.0, size=1000), rng.normal(size=1000)
    return np.column_stack([x0, np.log(tau)]), np.column_stack([-x0, 3.0 - tau])


def test_a_chain_given_twice_in_a_row_is_found():
    x = np.random.default_rng(0).normal(size=(500, 2))
    both = np.concatenate([x, x])
    assert "repeat themselves from draw 500" in zv.check(zv.Sample(both, -both)).diagnosis


def test_chains_that_go_to_and_fro_are_not_interleaved_walkers():
    """Nor is anything that came as chains. NUTS on a centred hierarchy has coordinates that know
    nothing of the draw before, and others that do: 17 of 24 runs of one chain were accused."""
    rng = np.random.default_rng(8)
    slow, even, odd = (ar1(rng, 1000, 1, 0.7) for _ in range(3))
    fro = np.stack([even, odd], axis=1).reshape(-1, 1)[:1000]
    x = np.concatenate([slow, fro], axis=1)
    assert zv.check(zv.Sample(x, -x)).ok
    assert "2 walkers lie interleaved" in zv.check(zv.Sample(fro, -fro)).diagnosis
    assert zv.check(zv.Sample(fro[None], -fro[None])).ok


@pytest.mark.parametrize("noise", [1e-7, 1e-5])
def test_draws_given_twice_with_noise_are_found(noise):
    """In single precision, in another order; equal draws of a Metropolis chain are none."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 2))
    both = np.concatenate([x, x + noise * rng.normal(size=x.shape)]).astype(np.float32)
    both = both[rng.permutation(len(both))]
    assert "have a twin" in zv.check(zv.Sample(both, -both)).diagnosis
    with pytest.warns(zv.SampleWarning, match="have a twin"):
        quadratic(both, -both, both[:, 0] > 0)
    right = check_samples(RIGHT["repeated states (Metropolis)"], 2, seed=3)
    assert not any("twin" in verdict.diagnosis for verdict in right)


def test_the_bad_chain_and_the_outlying_draws_are_named():
    x = np.random.default_rng(0).normal(size=(4, 300, 2))
    s = -x
    s[2] *= -1
    verdict = zv.check(zv.Sample(x, s))
    assert verdict.diagnosis.startswith(
        "Only chain 2 disagrees; the others pass. There: The sign is flipped"
    )
    s = -x
    s[1, 17] = 1e7
    verdict = zv.check(zv.Sample(x, s))
    assert verdict.finding == "Some scores are outlying"
    assert "of 1 draw are far beyond all others: 17 of chain 1." in verdict.diagnosis


def test_layout_is_not_blamed_on_the_scores():
    x = ar1(np.random.default_rng(0), 4000, 2, 0.9).reshape(4, 1000, 2).swapaxes(0, 1)
    with pytest.warns(zv.SampleWarning, match="The axes look swapped"):
        answer = quadratic(x, -x, x[..., 0])
    assert not any("scores do not agree" in text for text in answer.warnings)


def test_how_precisely_scores_are_verified():
    """Two standard errors of E[z t], which is √2/√n for a normal: 4.5 % by 4000 draws; also next to
    an exact answer."""
    x = np.random.default_rng(0).normal(size=(4, 1000, 2))
    verdict = zv.check(zv.Sample(x, -x))
    np.testing.assert_allclose(verdict.precision, 2 * np.sqrt(2 / 4000), rtol=0.3)
    assert f"{verdict.verified} in every coordinate" in str(verdict)
    assert np.isnan(zv.check(zv.Sample(x, x)).precision)
    answer = quadratic(x, -x, x[..., 0] ** 2)
    assert answer.error_reasons[0].startswith(
        "exact to rounding if the scores are right, which the draws verify to "
    )
    assert f"verify {verdict.verified} in every coordinate" in str(answer)


def test_weights_with_a_heavy_tail_are_named_and_scores_are_not():
    x, s, log_weights = WRONG["weights of N(2, 1) to N(0, 1)"][0](np.random.default_rng(0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", zv.SampleWarning)
        answer = quadratic(x, s, x[:, 0], log_weights=log_weights)
    assert any(
        re.match(r"The importance weights have a heavy tail\. .* Pareto k = 0\.\d\d", text)
        for text in answer.warnings
    )
    assert not any("scores do not agree" in text for text in answer.warnings)


def test_coordinates_are_called_by_name():
    x, s = _no_jacobian(np.random.default_rng(1))
    verdict = zv.check(zv.Sample(x, s, names=["mu", "log_tau"]))
    assert "In log_tau the scores" in verdict.diagnosis
    assert "mean score" in str(verdict)
    assert "log_tau" in str(verdict)


def test_weighted_draws_are_checked_with_their_weights():
    x, s = gaussian(2000, 2)
    # tilts the draws, so that without a matching target E[s] is no longer 0
    log_weights = 0.7 * s[:, 0]
    assert zv.check(zv.Sample(x, s)).ok
    assert not zv.check(zv.Sample(x, s, log_weights)).ok


def test_real_posteriors_pass(data):
    files = sorted((data / "data" / "posteriors").glob("*.npz"))
    assert len(files) == 9
    for file in files:
        with np.load(file) as arrays:
            verdict = zv.check(zv.Sample(arrays["x"], arrays["score"]))
            assert verdict.ok, f"{file.stem}: {verdict}"
            assert "sign is flipped" in zv.check(zv.Sample(arrays["x"], -arrays["score"])).diagnosis


def test_never_seen_events_are_covered():
    """By value ± 1.96 errors, in at least 93 % of those that no draw shows; by zero alone in
    none."""
    rows = events(25, {"4 × 250, AR(0.8)": EVENT_CASES["4 × 250, AR(0.8)"]})
    unseen, covered = sum(row.unseen for row in rows), sum(row.covered_unseen for row in rows)
    assert unseen > 40
    assert covered >= 0.93 * unseen


def test_a_check_in_many_dimensions_is_small():
    """No d × d matrix for each batch: 0.25 GB at d = 1000; a third of the sample's own 13 MB
    arrays, ten times, at d = 400."""
    assert cost(400, 1000)["gigabytes"] < 0.2


def test_independent_draws_in_many_dimensions_are_not_slow():
    """The slowest of many independent series is slow by chance only; one slow series among them is
    still found."""
    rng = np.random.default_rng(1)
    series = rng.normal(size=(1, 400, 80))
    assert (400 / effective_size(series)).max() > INDEPENDENT, (
        "by the largest it would be called slow"
    )
    assert autocorrelation_time(series) < INDEPENDENT
    series[0, :, 7] = ar1(rng, 400, 1, 0.8)[:, 0]
    assert autocorrelation_time(series) > 4


@pytest.mark.parametrize(("chains", "draws"), [(1, 100), (2, 101), (4, 1000), (3, 501)])
@pytest.mark.parametrize("rho", [-0.95, -0.5, 0.0, 0.5, 0.9, 0.9999])
def test_effective_sizes_and_r_hat_are_those_of_arviz(chains, draws, rho):
    from arviz_stats.base import array_stats

    x = ar1(np.random.default_rng(draws), chains * draws, 4, rho).reshape(chains, draws, 4)
    x[..., 2], x[..., 3] = np.round(x[..., 2]), x[..., 3] > 0  # ties, and two values
    axes = {"chain_axis": 0, "draw_axis": 1}
    moving = np.ptp(x, axis=(0, 1)) > 0
    np.testing.assert_allclose(
        effective_size(x)[moving], array_stats.ess(x, method="mean", **axes)[moving], rtol=1e-9
    )
    with np.errstate(all="ignore"):
        # on this scale ties with the median are the same
        expected = np.asarray(array_stats.rhat(unit_size(x)[0], **axes))
    known = np.isfinite(expected) & (expected < 1e6)
    np.testing.assert_allclose(r_hat(x)[known], expected[known], rtol=1e-9)
    assert np.all(r_hat(x) == 1) if chains == 1 else known.any()
