"""check(): how often it cries wolf, and how often it sees one."""

import numpy as np
import pytest
from problems import ar1, gaussian

import zerovar as zv


def _gaussian(rng, n, d, rho):
    factor = np.linalg.cholesky(np.eye(d) + 4.0)  # strongly correlated parameters
    z = ar1(rng, n, d, rho)
    return z @ factor.T, -np.linalg.solve(factor.T, z.T).T


def _log_gamma(rng, n, shape):
    g = rng.gamma(shape, size=(n, 3))
    return np.log(g), shape - g


def _student(rng, n):
    x = rng.standard_t(5, size=(n, 3))
    return x, -6 * x / (5 + x**2)


def _importance(rng, n):
    """Draws of N(0, 1.5²) weighted to N(0, 1): half of them count."""
    x = 1.5 * rng.normal(size=(n, 3))
    return x, -x, np.sum(-0.5 * x**2 + 0.5 * (x / 1.5) ** 2, axis=1)


RIGHT = {
    "gaussian": lambda rng: _gaussian(rng, 400, 5, 0.0),
    "slow chain": lambda rng: _gaussian(rng, 1000, 3, 0.9),
    "short slow chain": lambda rng: _gaussian(rng, 200, 2, 0.9),
    "many coordinates": lambda rng: _gaussian(rng, 500, 20, 0.3),
    "skewed": lambda rng: _log_gamma(rng, 500, 1.0),
    "heavy tails": lambda rng: _student(rng, 500),
    "importance weights": lambda rng: _importance(rng, 500),
}


def test_false_alarms_are_rare():
    """At most 1 % on right scores: with 100 replicates of each target, at most 13 of 700 (p < 0.03 if the rate is 1 %)."""
    alarms = {}
    for name, draw in RIGHT.items():
        rng = np.random.default_rng(11)
        alarms[name] = sum(not zv.check(zv.Sample(*draw(rng))).ok for _ in range(100))
    assert sum(alarms.values()) <= 13, alarms
    assert max(alarms.values()) <= 5, alarms


def test_many_correlated_coordinates_are_no_alarm():
    """Two draws a dimension: standardised by their own covariance, right scores fail (10 of 12 times in d = 500)."""
    rng = np.random.default_rng(0)
    d = 300
    factor = np.linalg.qr(rng.normal(size=(d, d)))[0] * np.exp(rng.normal(size=d))
    z = rng.normal(size=(2 * d, d))
    x, scores = z @ factor.T, -np.linalg.solve(factor.T, z.T).T
    assert zv.check(zv.Sample(x, scores)).ok
    assert not zv.check(zv.Sample(x, 1.2 * scores)).ok


def test_a_chain_that_sticks_can_be_checked():
    x = np.random.default_rng(0).normal(size=(200, 15))
    x[100:] = x[100]
    assert zv.check(zv.Sample(x, -x)).ok


def _positive(rng, n=1000):
    """τ ~ Gamma(4) drawn as x₁ = log τ next to a Gaussian x₀: draws, right scores, and τ."""
    tau = rng.gamma(4.0, size=n)
    x0 = rng.normal(size=n)
    return np.column_stack([x0, np.log(tau)]), np.column_stack([-x0, 4.0 - tau]), tau


def _flipped(rng):
    x, s, _ = _positive(rng)
    return x, -s


def _no_jacobian(rng):
    x, s, _ = _positive(rng)
    return x, s - np.array([0.0, 1.0])


def _constrained(rng):
    x, s, tau = _positive(rng)
    return x, np.column_stack([s[:, 0], (s[:, 1] - 1) / tau])


def _burn_in(rng):
    z = ar1(rng, 1000, 3, 0.5)
    z[:150] += 8 * np.exp(-np.arange(150) / 40)[:, None]
    return z, -z


def _shifted(rng):
    x, s, _ = _positive(rng)
    return x, np.roll(s, 1, axis=0)


def _doubled(rng):
    x, s, _ = _positive(rng)
    return x, 2 * s


WRONG = {
    "sign is flipped": _flipped,
    "Jacobian": _no_jacobian,
    "constrained": _constrained,
    "burn-in": _burn_in,
    "misaligned": _shifted,
    "times too large": _doubled,
}


@pytest.mark.parametrize("cause", WRONG)
def test_wrong_scores_are_found_and_named(cause):
    rng = np.random.default_rng(7)
    verdicts = [zv.check(zv.Sample(*WRONG[cause](rng))) for _ in range(40)]
    assert sum(not v.ok for v in verdicts) >= 38, "detected"
    assert sum(cause in v.diagnosis for v in verdicts) >= 34, [v.diagnosis for v in verdicts if cause not in v.diagnosis][:1]


def test_coordinates_are_called_by_name():
    x, s = _no_jacobian(np.random.default_rng(1))
    verdict = zv.check(zv.Sample(x, s, names=["mu", "log_tau"]))
    assert "In log_tau the scores" in verdict.diagnosis
    assert "mean score" in str(verdict)
    assert "log_tau" in str(verdict)


def test_weighted_draws_are_checked_with_their_weights():
    x, s = gaussian(2000, 2)
    log_weights = 0.7 * s[:, 0]  # tilts the draws, so that without a matching target E[s] is no longer 0
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
