"""Probabilities of events: integrals along lines, crossings, Stein's solution for a normal, and the
reading of what a user asks for."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import zerovar as zv
from zerovar.events.crossings import find_crossings
from zerovar.events.directions import Index, find_index
from zerovar.events.lines import Lines
from zerovar.events.normal import ByScores
from zerovar.events.quadrature import integrate_lines
from zerovar.events.quantities import Quantity, read_event, truth
from zerovar.inputs.density import Density
from zerovar.session import Session

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


# --- lines through draws ---------------------------------------------------------------------


class Normal:
    """A correlated normal in d dimensions: draws, the sample, and the density."""

    def __init__(self, d, n=400, seed=0):
        rng = np.random.default_rng(seed)
        factor = np.eye(d) + np.tril(rng.normal(size=(d, d))) / np.sqrt(d)
        self.mean, self.cov = np.arange(d) / d, factor @ factor.T
        self.precision = np.linalg.inv(self.cov)
        draws = self.mean + rng.normal(size=(n, d)) @ factor.T
        self.sample = zv.Sample(draws, -(draws - self.mean) @ self.precision)
        precision, mean = self.precision, self.mean
        self.density = Density(lambda x: -(x - mean) @ precision @ (x - mean) / 2, lambda x: x)

    def lines(self, b, quantity, width=1.0):
        """Along the direction that moves b·x and nothing independent of it."""
        deviation = np.sqrt(b @ self.cov @ b)
        index = Index((self.sample.draws - self.mean) @ b / deviation / width, b)
        vectors = np.tile(width * self.cov @ b / deviation, (len(self.sample), 1))
        return Lines.along(self.density, self.sample, index, vectors, quantity)

    def below(self, b, level):
        """The probability that b·x is below a level, and its density there."""
        known = stats.norm(b @ self.mean, np.sqrt(b @ self.cov @ b))
        return known.cdf(level), known.pdf(level)


@pytest.fixture(scope="module", params=[2, 10])
def normal(request):
    return Normal(request.param)


@pytest.mark.parametrize("width", [1.0, 0.4, 3.0])
def test_lines_are_exact_on_normals(normal, width):
    """Of b·x along Σb, every draw has the probability itself: an event, rare ones, a > b, and its
    density; also where a unit is not a deviation."""
    d = normal.sample.dim
    for b in (np.eye(d)[0], np.eye(d)[0] - np.eye(d)[1]):
        lines = normal.lines(b, lambda x, b=b: x @ b, width)
        center, unit = b @ normal.mean, np.sqrt(b @ normal.cov @ b)
        levels = center + unit * stats.norm.ppf([1e-5, 1e-3, 0.1, 0.5, 0.9])
        found = lines.below(np.array([*levels, 0.0]))
        p, height = normal.below(b, np.array([*levels, 0.0]))
        np.testing.assert_allclose(found.below, np.tile(p, (400, 1)), atol=2e-10)
        np.testing.assert_allclose(found.density, np.tile(height, (400, 1)), rtol=1e-5)
        assert np.all(found.error < 1e-9)


def test_levels_of_what_jumps_and_turns_along_lines(normal):
    """Several crossings, whole numbers with both kinds of sign, an event of two conditions, what is
    constant on the line, and what is not a number on part of it."""
    e = np.eye(normal.sample.dim)[0]
    unit, mean = np.sqrt(normal.cov[0, 0]), normal.mean[0]
    x0 = stats.norm(mean, unit)
    draws = normal.sample.draws

    def probability(text, function):
        event = read_event(text, lambda name: Quantity(name, function(draws), function), ["g"])
        found, error = event.smooth(normal.lines(e, event.quantity.at))
        np.testing.assert_allclose(found, found.mean(), atol=3e-10)
        assert error < 1e-9
        return pytest.approx(found.mean(), abs=3e-10)

    def whole(x):
        return np.floor(x[:, 0])

    assert probability("g < 1", whole) == x0.cdf(1)
    assert probability("g <= 1", whole) == x0.cdf(2)
    assert probability("g > 0", whole) == x0.sf(1)
    assert probability("0 <= g", whole) == x0.sf(0)
    assert probability("-1 < g <= 1", whole) == x0.cdf(2) - x0.cdf(0)
    assert probability("g < 0.25", lambda x: x[:, 0] ** 2) == x0.cdf(0.5) - x0.cdf(-0.5)
    negative = sum((-1) ** k * x0.cdf(k * np.pi) for k in range(-9, 9))
    assert probability("g < 0", lambda x: np.sin(x[:, 0])) == negative
    assert probability("g > 0.5", lambda x: 1.0 * (abs(x[:, 0]) < 0.3)) == x0.cdf(0.3) - x0.cdf(
        -0.3
    )
    with np.errstate(invalid="ignore"):  # as of what is no number: not below
        assert probability("g < 0.5", lambda x: np.sqrt(x[:, 0])) == x0.cdf(0.25) - x0.cdf(0)
    # along a direction that does not move it: the indicator itself
    other = np.linalg.solve(normal.cov, np.eye(normal.sample.dim)[1])
    still = normal.lines(other, lambda x: x[:, 0]).below(np.array([mean]))
    np.testing.assert_array_equal(still.below[:, 0], draws[:, 0] < mean)


def test_densities_along_lines_count_every_crossing(normal):
    e = np.eye(normal.sample.dim)[0]
    x0 = stats.norm(normal.mean[0], np.sqrt(normal.cov[0, 0]))
    found = normal.lines(e, lambda x: x[:, 0] ** 2).below(np.array([0.36]))
    known = (x0.pdf(0.6) + x0.pdf(-0.6)) / 1.2
    np.testing.assert_allclose(found.density, known, rtol=1e-5)
    np.testing.assert_allclose(found.below, x0.cdf(0.6) - x0.cdf(-0.6), atol=3e-10)


@pytest.mark.parametrize("what", ["both", "either"])
def test_joint_events_have_the_right_mean(normal, what):
    """Along a direction by regression, as users have it; with conditions that move along it too,
    the mean is still that of the indicator."""
    event = {
        "both": lambda x: (x[0] > 0.1) & (x[1] > 0.3),
        "either": lambda x: (x[0] > 0.1) | (x[1] > 0.3),
    }[what]
    at = normal.density.quantity(event)
    draws = normal.sample.draws
    happens = truth(Quantity("g", at(draws), at))
    marginal = happens.quantity.marginal(normal.sample, normal.density)
    assert isinstance(marginal, Lines)
    found, _ = happens.smooth(marginal)
    both = stats.multivariate_normal(-normal.mean[:2], normal.cov[:2, :2]).cdf([-0.1, -0.3])
    p = both
    if what == "either":
        edges = stats.norm(normal.mean[:2], np.sqrt(np.diag(normal.cov)[:2]))
        p = edges.sf([0.1, 0.3]).sum() - both
    error = found.std() / np.sqrt(len(draws))
    assert error < 0.9 * happens.seen.std() / np.sqrt(len(draws))
    assert abs(found.mean() - p) < 4 * error


def test_lines_that_cannot_be_laid_are_said():
    """Each falls back on scores, with the reason."""
    normal = Normal(2, n=40)
    draws, e = normal.sample.draws, np.eye(normal.sample.dim)[0]
    quantity = Quantity("a", draws[:, 0], lambda x: x[:, 0])

    def fail(x):
        raise RuntimeError("out of range")

    reasons = {
        "do not converge": Density(lambda x: 0.0 * x[0], lambda x: x),
        "at the draws": Density(lambda x: jnp.log(x[0]), lambda x: x),
        "out of range": Density(fail, lambda x: x),
    }
    for reason, density in reasons.items():
        with pytest.warns(zv.NumericalWarning, match=f"a: .* not used along lines, .*{reason}"):
            assert isinstance(quantity.marginal(normal.sample, density), ByScores)
    other = quantity._replace(at=lambda x: x[:, 0] + 0.5)
    with pytest.warns(zv.NumericalWarning, match="other values than it has at the draws"):
        assert isinstance(other.marginal(normal.sample, normal.density), ByScores)
    assert isinstance(quantity.marginal(normal.sample, None), ByScores)
    same = Quantity("b", np.ones(len(draws)), lambda x: 1.0 + 0 * (x @ e))
    assert same.marginal(normal.sample, normal.density) is None


def test_an_interruption_while_lines_are_laid_is_no_reason_to_go_on():
    """It reaches the caller, and the next call has its lines."""
    normal = Normal(2, n=40)
    quantity = Quantity("a", normal.sample.draws[:, 0], lambda x: x[:, 0])

    def interrupt(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantity.marginal(normal.sample, Density(interrupt, lambda x: x))
    assert isinstance(quantity.marginal(normal.sample, normal.density), Lines)


# --- Stein's solution for a normal -----------------------------------------------------------


def crescent(x):
    """The log density of a logistic x₀ and of x₁ given it, a normal about x₀²/4."""
    return -x[0] - 2 * jnp.log1p(jnp.exp(-x[0])) - (x[1] - x[0] ** 2 / 4) ** 2 / 2


@pytest.fixture(scope="module")
def many():
    """Draws of the crescent, with their scores."""
    rng = np.random.default_rng(1)
    x = rng.logistic(size=40_000)
    draws = np.stack([x, x**2 / 4 + rng.normal(size=len(x))], axis=1)
    rest = draws[:, 1] - x**2 / 4
    return zv.Sample(draws, np.stack([-np.tanh(x / 2) + rest * x / 2, -rest], axis=1))


def solve_by_scores(sample, values):
    return ByScores.of(sample, values, find_index(sample, values))


@pytest.mark.usefixtures("x64")
def test_the_image_is_that_of_its_field(many):
    """What is left of the indicator, against the divergence of φ(y) w by autodiff, on both sides of
    the jump; what has the density for its mean is its derivative in the level."""
    rows = np.arange(0, 40_000, 150)  # enough for one direction
    sample = many.take(rows, 1)
    x = sample.draws
    solved = solve_by_scores(sample, x[:, 0])
    assert solved.same_order
    unit = 1 / np.polyfit(x[:, 0], solved.index, 1)[0]
    centre = x[0, 0] - unit * solved.index[0]
    w = np.linalg.lstsq(sample.scores, solved.slope)[0]
    assert w[0] == pytest.approx(unit)  # along it the index rises by one
    cdf = jax.scipy.stats.norm.cdf

    def field(point, level):
        y, t = (point[0] - centre) / unit, (level - centre) / unit
        tails = cdf(jnp.minimum(y, t)) * cdf(-jnp.maximum(y, t))
        return tails * jnp.sqrt(2 * jnp.pi) * jnp.exp(y**2 / 2) * w

    def left(point, level):
        image = jnp.trace(jax.jacobian(field)(point, level))
        image += field(point, level) @ jax.grad(crescent)(point)
        return (point[0] < level) - image

    levels = np.sort(x[:, 0])[[8, 60, 120, 150]]
    levels = levels + 1e-4  # beside a draw, to which it is
    found = solved.below(levels)
    each = jax.jit(jax.vmap(jax.vmap(left, (None, 0)), (0, None)))
    np.testing.assert_allclose(found.below, each(x, levels), atol=2e-3)
    place = centre + unit * solved._place(levels)[0]  # by interpolation between draws
    np.testing.assert_allclose(found.below, each(x, place), atol=1e-9)
    step = 1e-6
    slope = (each(x, place + step) - each(x, place - step)) / (2 * step)
    per_unit = solved._place(levels)[1] * unit
    np.testing.assert_allclose(found.density, slope * per_unit, atol=1e-6)


MONOTONE = {
    "itself": (lambda x: x, 1.0),
    "exp": (np.exp, 1.0),
    "minus exp": (lambda x: -np.exp(x / 2), -1.0),
    "logit": (lambda x: 1 / (1 + np.exp(-x)), 1.0),
}


@pytest.mark.parametrize("what", MONOTONE)
def test_scores_alone_are_unbiased_off_normals(many, what):
    """Probabilities and densities of monotone functions of a logistic coordinate: a z test over all
    levels, and a negative control: draws of it with scores of something else."""
    function, sign = MONOTONE[what]
    solved = solve_by_scores(many, function(many.draws[:, 0]))
    assert solved.same_order
    assert solved.rising == (sign > 0)
    x = stats.logistic.ppf([0.05, 0.2, 0.5, 0.9, 0.97])
    levels = function(x)
    found = solved.below(levels)
    share = stats.logistic.cdf(x) if sign > 0 else stats.logistic.sf(x)
    slope = np.abs((function(x + 1e-6) - function(x - 1e-6)) / 2e-6)
    assert np.all(np.abs(z_of(found.below, share)) < 4)
    assert np.all(np.abs(z_of(found.density, stats.logistic.pdf(x) / slope)) < 4)
    assert np.all(found.error < 1e-4)
    wrong = zv.Sample(many.draws, many.scores * [1.3, 1.0])
    off = solve_by_scores(wrong, function(many.draws[:, 0])).below(levels)
    assert np.abs(z_of(off.below, share)).max() > 8


def z_of(columns, known):
    error = columns.std(axis=0) / np.sqrt(len(columns))
    return (columns.mean(axis=0) - known) / error


def test_what_no_draw_shows_stays_a_count(many):
    values = many.draws[:, 0]
    found = solve_by_scores(many, values).below(np.array([values.min() - 1, values.max() + 1]))
    np.testing.assert_array_equal(found.below, np.tile([0.0, 1.0], (len(values), 1)))


OTHERS = {
    "nearly a > b": lambda x: np.expm1(x[:, 0] / 50) - np.expm1(x[:, 1] / 50),
    "a sum": lambda x: np.exp(x[:, 0]) + np.exp(x[:, 1]),
    "the larger": lambda x: x.max(axis=1),
    "whole": lambda x: np.floor(2 * x[:, 0]),
    "a product": lambda x: x[:, 0] * x[:, 1],
}


@pytest.mark.parametrize("what", OTHERS)
def test_values_of_several_coordinates_are_calibrated(what):
    """Part of the jump is removed, and the error is that of the answer: over replicates its z
    values have unit spread. (With the level where the share of the draws says it is, the answer is
    the count itself, with an error thirty times too small: z of 3 to 9.)"""
    function = OTHERS[what]
    factor, mean = np.array([[1, 0], [0.6, 0.8]]), np.array([0.0, 0.4])
    precision = np.linalg.inv(factor @ factor.T)
    x = mean + np.random.default_rng(0).normal(size=(1_000_000, 2)) @ factor.T
    levels = np.quantile(function(x), [0.3, 0.9])
    known = np.mean(function(x)[:, None] < levels, axis=0)
    known_error = np.sqrt(known * (1 - known) / len(x))
    z, gains = [], []
    for part in np.split(x[:100_000], 100):  # of the reference, a tenth
        sample = zv.Sample(part, -(part - mean) @ precision)
        solved = solve_by_scores(sample, function(part))
        assert not solved.same_order
        found = solved.below(levels)
        assert found.density is None
        error = found.below.std(axis=0) / np.sqrt(len(part))
        error = np.hypot(error, found.error)
        z.append((found.below.mean(axis=0) - known) / np.hypot(error, known_error))
        gains.append(known * (1 - known) / len(part) / error**2)
    # of 200 squares, 100 of them independent: a mean of 1 with an error of 0.14
    assert 0.3 < np.mean(np.square(z)) < 1.6
    least = {"nearly a > b": 10, "a product": 0.99}.get(what, 2.0)
    assert np.all(np.median(gains, axis=0) > least)


def test_linear_values_are_an_index_of_their_own():
    """a > b by scores alone, on draws that are normal: nearly constant, as for a coordinate."""
    normal = Normal(3)
    b = np.array([1.0, -1.0, 0.5])
    solved = solve_by_scores(normal.sample, normal.sample.draws @ b)
    assert solved.same_order
    levels = b @ normal.mean + np.array([-1.5, 0.0, 0.7])
    p, height = normal.below(b, levels)
    found = solved.below(levels)
    assert np.all(found.below.std(axis=0) < 0.02)
    assert np.all(np.abs(z_of(found.below, p)) < 4)
    assert np.all(np.abs(z_of(found.density, height)) < 4)


def test_noise_is_left_alone():
    """What has nothing to do with the draws keeps its indicators, as they are."""
    normal = Normal(2)
    noise = np.random.default_rng(5).normal(size=400)
    solved = solve_by_scores(normal.sample, noise)
    levels = np.array([-1.0, 0.0, 1.0])
    np.testing.assert_array_equal(solved.below(levels).below, noise[:, None] < levels)


# --- what a user asks for --------------------------------------------------------------------

A, B, K = (np.array(x) for x in ([0.0, 1, 2, 3], [3.0, 1, 2, 0], [0.0, 1, 1, 2]))
KNOWN = {"a": Quantity("a", A), "b[0]": Quantity("b[0]", B), "k": Quantity("k", K)}
KNOWN["p-value"] = Quantity("p-value", B + 0.5)
FORMS = {
    "a < 2": A < 2,
    "a <= 2": A <= 2,
    "a > 2": A > 2,
    "a >= 2": A >= 2,
    "2 > a": A < 2,
    "2 <= a": A >= 2,
    " a>-1e-3 ": A > -1e-3,
    "a > b[0]": A > B,
    "a <= b[0]": A <= B,
    "b[0] < a": B < A,
    "a >= b[0]": A >= B,
    "k < 1": K < 1,
    "k <= 1": K <= 1,
    "k > 1": K > 1,
    "k >= 1": K >= 1,
    "0 < k < 2": (K > 0) & (K < 2),
    "0 <= k < 2": (K >= 0) & (K < 2),
    "0 < k <= 2": (K > 0) & (K <= 2),
    "2 >= k > 0": (K > 0) & (K <= 2),
    "1 <= k <= 1": K == 1,
    "3 > a >= 1": (A >= 1) & (A < 3),
    "a - b[0] > 0.5": A - B > 0.5,
    "exp(a) > 2": np.exp(A) > 2,
    "1 < 2 * abs(a - b[0]) < 5": (2 * abs(A - B) > 1) & (2 * abs(A - B) < 5),
    "a**2 > b[0] + k": A**2 > B + K,
    "a > 2 * log(3)": 2 * np.log(3) < A,
    "-a / 2 <= -1": -A / 2 <= -1,
    "a > 0 and b[0] > 0": (A > 0) & (B > 0),
    "(a > 2) or not (k < 1)": (A > 2) | (K >= 1),
    "0 < a < 3 and b[0] < a and k > 0": (A > 0) & (A < 3) & (B < A) & (K > 0),
    "p-value > a": KNOWN["p-value"].values > A,
}


@pytest.mark.parametrize("text", FORMS)
def test_events_are_read(text):
    np.testing.assert_array_equal(read_event(text, KNOWN.get, list(KNOWN)).seen, FORMS[text])


REFUSED = {
    "a": "without a comparison",
    "": "without a comparison",
    "a == 2": "without a comparison",
    "0 < a < 2 < 3": "with 3 comparisons",
    "a > c": "where 'c' is neither a number nor one of a, b",
    "a >": "where '' is neither",
    "b > 1": "where 'b' is neither",
    "a > nan": "where 'nan' is no level",
    "a < inf": "where 'inf' is no level",
    "1 < 2": "compares two numbers",
    "a < k < 2": "a quantity between two numbers",
    "0 < 1 < a": "a quantity between two numbers",
    "0 < a > 2": "two directions",
    "2 < a < 1": "no number fulfils",
    "1 < a < 1": "no number fulfils",
    "sinh(a) > 1": "where 'sinh(a)' is neither a number nor one of a, b[0], k, p-value",
    "a.real > 1": "where 'a.real' is neither",
    "__import__('os').system('true') > 1": "is neither a number",
    "(a > 1) + 1 > 1": "where '(a' is neither",
    "a and b[0] > 1": "where 'a and b[0]' is neither",
    "log(a) > 0": "where 'log(a)' is no finite number at some draws",
    "p-value + 1 > 2": "where 'p-value' is the name of a value",
    "a if a else a > 1": "where 'a if a else a' is neither",
    "a > 0 and b[0]": "where '0 and b[0]' is neither",
}


@pytest.mark.parametrize("text", REFUSED)
def test_events_that_cannot_be_read_are_refused_with_a_reason(text):
    with pytest.raises(ValueError, match=re.escape(REFUSED[text])) as told:
        read_event(text, KNOWN.get, list(KNOWN))
    assert repr(text) in str(told.value)
    assert '"tau > 5"' in str(told.value)


def test_repeated_draws_share_a_line():
    """As chains with rejected proposals have them: the same numbers to the last bit, or what
    follows refuses them; and no line is laid twice."""
    x = np.repeat(np.random.default_rng(0).normal(size=(100, 2)), 3, axis=0)
    posterior = zv.from_log_density(lambda x: -0.5 * jnp.sum(x**2) - 0.1 * x[0] ** 4, x)
    with pytest.warns(zv.ZerovarWarning, match="repeat an earlier one"):
        answer = zv.probability(posterior, "x[0] > 0.5", family=zv.Automatic("low"))
    assert float(re.search(r"(\d+) evaluations", answer.limits[-1])[1]) < 100 * 200


def test_an_answer_keeps_what_is_said_of_its_lines(monkeypatch):
    def fail(*_):
        raise RuntimeError("out of range")

    monkeypatch.setattr("zerovar.events.quantities.Lines.of", fail)
    x = np.random.default_rng(0).normal(size=(200, 2))
    posterior = zv.from_log_density(lambda x: -0.5 * jnp.sum(x**2), x)
    with pytest.warns(zv.NumericalWarning, match="out of range"):
        answer = zv.probability(posterior, "x[0] > 0.5", family=zv.Automatic("low"))
    assert any("out of range" in text for text in answer.warnings)


def test_what_has_the_name_of_another_value_is_told_apart():
    x = np.random.default_rng(0).normal(size=(2, 200, 2))
    posterior = zv.Posterior(x, -x, {"a": x[..., 0]})
    cheap = zv.Automatic("low")
    alone = zv.probability(posterior, {"e": "a > 1"}, family=cheap)
    both = zv.probability(posterior, {"a": x[..., 1] > 1.5, "e": "a > 1"}, family=cheap)
    assert both.value[1] == pytest.approx(alone.value[0], abs=1e-6)
    assert alone.value[0] == pytest.approx(stats.norm.sf(1), abs=1e-4)


def test_words_about_all_draws_come_once(recwarn):
    x = np.random.default_rng(0).normal(size=(2, 200, 2))
    posterior = zv.Posterior(x, -x, {"a": x[..., 0]}, divergences=7)
    found = zv.probability(posterior, ["a > 1", "a > 3.5"], family=zv.Automatic("low"))
    given = [str(one.message) for one in recwarn]
    assert sum("7 of 400 transitions" in text for text in given) == 1
    assert sum("7 of 400 transitions" in text for text in found.warnings) == 1
    assert sorted(set(given)) == sorted(found.warnings)


def test_expressions_are_as_exact_as_the_values_they_are_made_of():
    """Along lines where the log density is known, by scores elsewhere, on standard normals."""
    x = np.random.default_rng(0).normal(size=(2, 300, 2))
    known = zv.from_log_density(lambda u: -0.5 * (u @ u), x, chain_axis=0)
    alone = zv.Posterior(x, -x, {"x[0]": x[..., 0], "x[1]": x[..., 1]})
    events = ["x[0] - 2 * x[1] > 0.5", "exp(x[0]) > 2", "x[0] > 0 and x[1] > 0"]
    exact = [stats.norm.sf(0.5 / np.sqrt(5)), stats.norm.sf(np.log(2)), 0.25]
    for posterior, least in ((known, [1e4, 1e4, 5]), (alone, [100, 100, 1])):
        found = zv.probability(posterior, events, family=zv.Automatic("low"))
        assert found.names == tuple(events)
        assert np.all(np.abs(found.value - exact) < 4 * found.std_error + 1e-4)
        assert np.all(found.gain >= least)
    gradient = read_event("exp(x[0]) * x[1] > 2", *names_of(known)).quantity.at.gradient(x[0, :5])
    expected = np.exp(x[0, :5, 0])[:, None] * np.column_stack([x[0, :5, 1], np.ones(5)])
    np.testing.assert_allclose(gradient, expected, rtol=1e-9)


def names_of(posterior):
    session = Session.of(posterior)
    return session.find, list(session.values)
