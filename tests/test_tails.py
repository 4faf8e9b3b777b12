"""What no draw has seen: formulas against integrals and known tails, errors against known means."""

import warnings

import numpy as np
import pytest
from scipy.integrate import quad

import zerovar as zv
from zerovar import answers
from zerovar.tails import beyond_the_draws, pareto_k

# residuals and integrands whose p-quantiles are r (1/p)^k, for 1/p = 1 … n: the largest is r n^k of a sample of n
CASES = {
    "light": (0.2, 0.1),
    "steep": (1.6, 0.2),
    "at one": (1.0, 0.4),
    "heavy": (2.0, 0.7),
    "slower than the integrand": (0.1, 0.3),
}


def quantiles(k, size, n=1000):
    return size * (n / np.arange(1.0, n + 1)) ** k


@pytest.mark.parametrize("case", CASES)
def test_the_share_beyond_the_draws_is_the_integral_of_the_smaller_tail(case):
    k, slower = CASES[case]
    n, top = 1000, 0.01 * 1000**k
    residuals, plain = quantiles(k, 0.01), quantiles(slower, 5.0)
    hill = [np.mean(np.log(each[:10] / each[10])) for each in (residuals, plain)]
    most = max(plain[0], top)
    integral, _ = quad(lambda t: np.exp(min(np.log(top) + hill[0] * t, np.log(most) + hill[1] * t) - t), 0, 200, limit=500)
    found = beyond_the_draws(residuals[None, :, None], plain[None, :, None], float(n))
    assert found[0] == pytest.approx(integral / n, rel=1e-4)
    signs = np.where(np.arange(n) % 2, 1.0, -1.0)  # residuals of either sign partly cancel
    extremes = residuals[:10] * signs[:10]
    cancelled = beyond_the_draws((signs * residuals)[None, :, None], plain[None, :, None], float(n))
    assert cancelled[0] == pytest.approx(found[0] * np.sqrt(abs(extremes.sum()) / np.abs(extremes).sum()), rel=1e-12)


def test_zeros_have_no_tails():
    zero = np.zeros((2, 50, 1))
    assert beyond_the_draws(zero, zero, 100.0) == 0
    assert beyond_the_draws(zero, zero + 1.0, 100.0) == 0


def test_the_shape_of_known_tails():
    """2000 draws leave 134 in the tail, so that k is known to (1 + k)/√134; the largest of four is within three of these."""
    rng = np.random.default_rng(0)
    truth = np.array([0.3, 0.5, 0.8, 1.2])
    found = pareto_k(rng.pareto(1 / truth, size=(1, 2000, 4)))
    assert np.all(np.abs(found - truth) < 3 * (1 + truth) / np.sqrt(134))
    assert np.all(pareto_k(rng.normal(size=(1, 2000, 3)) ** [1, 2, 3]) < 0.5)
    assert pareto_k((rng.normal(size=(1, 2000, 1)) > 2) * 1.0) == 0  # an event has no tail


def t_draws(rng, freedom, n, d):
    x = rng.normal(size=(n, d)) / np.sqrt(rng.chisquare(freedom, size=(n, 1)) / freedom)
    return x, -(freedom + d) * x / (freedom + (x**2).sum(axis=1, keepdims=True))


def covered(replicates=40):
    """How often x² under a t with five degrees of freedom is within two standard errors."""
    family = zv.Polynomial(2) + zv.Kernel(zv.kernels.InverseMultiquadric(2.0), weight=4.0)
    rng, hits = np.random.default_rng(0), []
    for _ in range(replicates):
        x, s = t_draws(rng, 5, 400, 2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", zv.ZerovarWarning)
            answer = zv.estimate(x, s, x**2, family=family, objective=zv.LeastSquares(zv.Ridge(1e-6)))
        hits.append(np.abs(answer.value - 5 / 3) < 2 * answer.std_error)
    return np.mean(hits)


def test_errors_count_tails_that_few_draws_have_seen(monkeypatch):
    """80 answers know a coverage of nine in ten to 3 %. Negative control: by scatter alone it is a half."""
    assert covered() > 0.8
    monkeypatch.setattr(answers, "beyond_the_draws", lambda residuals, plain, effective: 0 * residuals[0, 0])
    assert covered() < 0.7


def test_an_integrand_without_a_variance_is_named():
    x, s = t_draws(np.random.default_rng(1), 2, 2000, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", zv.ZerovarWarning)
        answer = zv.estimate(x, s, {"square": x[:, 0] ** 2, "atan": np.arctan(x[:, 0])}, family=zv.Polynomial(1))
    assert any(text.startswith("The tails of square are") for text in answer.warnings)
    assert not any("atan" in text for text in answer.warnings)
