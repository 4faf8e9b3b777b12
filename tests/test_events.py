"""Probabilities of events: integrals along lines, crossings, Stein's solution for a normal, and the
reading of what a user asks for."""

import numpy as np
import pytest
from scipy import stats

from zerovar.events.crossings import find_crossings
from zerovar.events.quadrature import integrate_lines

# --- integrals along lines -------------------------------------------------------------------

LINES = 60


class Mixture:
    """Two normals, as scipy has distributions."""

    def __init__(self, share, first, second):
        self.share, self.parts = share, (first, second)

    def mean(self):
        return self.share * self.parts[0].mean() + (1 - self.share) * self.parts[1].mean()

    def std(self):
        x = np.linspace(-30, 30, 200_001)
        return np.sqrt(np.trapezoid((x - self.mean()) ** 2 * np.exp(self.logpdf(x)), x))

    def logpdf(self, x):
        a, b = (part.logpdf(x) for part in self.parts)
        return np.logaddexp(np.log(self.share) + a, np.log1p(-self.share) + b)

    def cdf(self, x):
        return self.share * self.parts[0].cdf(x) + (1 - self.share) * self.parts[1].cdf(x)


# the density of a line, what is taken for its deviation, and the most evaluations of a line
ALONG = {
    "normal": (stats.norm(), 1.0, 150),
    "logistic": (stats.logistic(), 1.0, 250),
    "Gumbel": (stats.gumbel_r(), 1.0, 300),
    "t3": (stats.t(3), 1.0, 600),
    "Laplace": (stats.laplace(), 1.0, 900),
    "a fifth as wide": (stats.norm(), 5.0, 500),
    "a thousandth as wide": (stats.norm(), 1e3, 1100),
    "thirty times as wide": (stats.norm(), 1 / 30, 400),
    "two modes": (Mixture(0.3, stats.norm(-2, 0.1), stats.norm(2, 1)), 1.0, 700),
    "a peak on a hill": (Mixture(0.5, stats.norm(0.4, 0.03), stats.norm(0, 2)), 1.0, 1000),
    "exponential": (stats.expon(), 1.0, 1000),
    "uniform": (stats.uniform(), 1.0, 1600),
    "an end with a slope": (stats.beta(2, 1), 1.0, 1500),
    "an end with no height": (stats.gamma(2), 1.0, 900),
}


@pytest.mark.parametrize("what", ALONG)
def test_integrals_are_as_near_as_they_say(what):
    """On lines through draws, with centres that are only about right: the probability before
    places, at most so far off as is reported; the bound on evaluations is on their mean."""
    target, unit, most = ALONG[what]
    rng = np.random.default_rng(0)
    unit = unit * target.std()
    x = np.quantile(target_grid(target), rng.uniform(size=LINES))
    x[0], wrong = target.mean(), rng.normal(size=LINES)
    wrong[0] = 0.0  # the first line's panels are split at its draw
    counted = 0

    def along(line, u):
        nonlocal counted
        counted += u.size
        found = target.logpdf(x[line][:, None] + u * unit)
        return np.where(np.isfinite(found) | (line[:, None] % 2 == 0), found, np.nan)

    centre = (target.mean() - x) / unit + wrong * min(1.0, target.std() / unit)
    found = integrate_lines(along, centre, target.logpdf(x))
    assert found.evaluations == counted <= most * LINES
    places = target.mean() + target.std() * np.linspace(-2.5, 2.5, 11)
    rows = np.arange(LINES)
    off = np.zeros(LINES)
    for place in places:
        off = np.maximum(off, np.abs(found.until(rows, (place - x) / unit) - target.cdf(place)))
    assert np.all(off <= found.error + 1e-13)
    assert found.error.max() < 1e-9
    inside = places[(target.cdf(places) > 0.01) & (target.cdf(places) < 0.99)]
    for place in inside:
        height = found.at(rows, (place - x) / unit) / unit
        np.testing.assert_allclose(height, np.exp(target.logpdf(place)), rtol=1e-4)


def target_grid(target):
    """Numbers whose quantiles are those of a distribution, nearly."""
    x = target.mean() + target.std() * np.linspace(-4, 4, 4001)
    return np.interp((np.arange(500) + 0.5) / 500, target.cdf(x), x)


ENDLESS = {
    "flat": lambda u: 0.0 * u,
    "flat on one side": lambda u: np.minimum(u, 0.0),
    "rising": lambda u: u,
    "one over u": lambda u: -np.log1p(np.abs(u)),
    "nowhere but here": lambda u: np.where(u == 0, 0.0, np.nan),
    "infinite": lambda u: np.where(np.abs(u - 0.4) < 0.2, np.inf, -u * u),
    "noise": lambda u: np.sin(1e9 * u) - u * u,
}


@pytest.mark.parametrize("what", ENDLESS)
def test_lines_without_an_integral_say_so_and_end(what):
    """With a line that has one beside them, which is as right as ever."""
    log_density = ENDLESS[what]

    def along(line, u):
        return np.where(line[:, None] == 1, -(u**2) / 2, log_density(u))

    found = integrate_lines(along, np.array([0.0, 0.5, 1.0]), log_density(np.zeros(3)))
    assert np.all(found.error[[0, 2]] > 1e-2)
    assert found.error[1] < 1e-9
    assert np.all(found.error <= 1)
    assert found.evaluations < 3 * 4000
    assert found.until(np.array([1]), np.array([0.3]))[0] == pytest.approx(stats.norm.cdf(0.3))


# --- crossings -------------------------------------------------------------------------------

SHAPES = {
    "straight": (lambda u: 3 * u - 1, 1 / 3),
    "curved": (lambda u: np.exp(u) - 1.7, np.log(1.7)),
    "flat at the root": (lambda u: (u - 0.3) ** 9, 0.3),
    "steep": (lambda u: np.tanh(1e6 * (u - 0.123)), 0.123),
    "a step": (lambda u: np.where(u < 0.7, -1.0, 1.0), 0.7),
    "whole numbers": (lambda u: np.floor(5 * u) - 2.0, {1: 0.4, -1: 0.6}),
    "a pole": (lambda u: 1 / np.where(u == 0.2, 1.0, 0.2 - u), 0.2),
}


@pytest.mark.parametrize("what", SHAPES)
@pytest.mark.parametrize("sign", [1, -1])
def test_crossings_are_found(what, sign):
    """All brackets at once, rising and falling; whichever of them is done is not evaluated."""
    function, root = SHAPES[what]
    root = root[sign] if isinstance(root, dict) else root
    before, after = np.array([0.0, -2.0, 0.1, 0.0]), np.array([1.0, 0.95, 0.9, 30.0])
    calls = []

    def excess(rows, at):
        calls.append(len(rows))
        assert np.all((before[rows] <= at) & (at <= after[rows]))
        return sign * function(at)

    ends = (sign * function(before), sign * function(after))
    found = find_crossings(excess, before, after, *ends)
    tolerance = 1e-2 if what == "flat at the root" else 1e-14
    np.testing.assert_allclose(found, root, atol=60 * tolerance)
    assert len(calls) <= 60
    if what in ("straight", "curved"):
        assert sum(calls) <= 4 * 12
