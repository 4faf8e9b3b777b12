"""Spaces other than Rᵈ: Stein's identity by quadrature, with scores that it must not hold for; the
default call on draws whose means are known; what is refused."""

import functools
import warnings
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

import zerovar as zv
from zerovar.families.settling import settle
from zerovar.inputs.points import FittingDraws, Keeps, Points
from zerovar.kernels import Gaussian, InverseMultiquadric
from zerovar.spaces import Box, Simplex, Space, Sphere, Torus

Rule = tuple[np.ndarray, np.ndarray]  # nodes (n, d) and what each counts


def angles(nodes: int, d: int) -> Rule:
    line = 2 * np.pi * np.arange(nodes) / nodes
    grid = np.stack(np.meshgrid(*[line] * d, indexing="ij"), axis=-1).reshape(-1, d)
    return grid, np.full(len(grid), 1 / len(grid))


def globe(nodes: int = 40) -> Rule:
    """Directions in three dimensions: Gauss–Legendre in the height, equal steps around."""
    z, weight = np.polynomial.legendre.leggauss(nodes)
    around = 2 * np.pi * (np.arange(2 * nodes) + 0.3) / (2 * nodes)
    z, phi = (a.ravel() for a in np.meshgrid(z, around, indexing="ij"))
    x = np.stack([np.sqrt(1 - z**2) * np.cos(phi), np.sqrt(1 - z**2) * np.sin(phi), z], axis=1)
    return x, np.repeat(weight, 2 * nodes)


def between(low: float, high: float) -> Rule:
    t, weight = np.polynomial.legendre.leggauss(60)
    return (low + (high - low) * (t[:, None] + 1) / 2), weight


def half_line(power: float) -> Rule:
    """Of x^power e^−x on (0, ∞): equal steps of log x."""
    x = np.exp(np.arange(-40, 5, 0.1))[:, None]
    return x, x[:, 0] ** (power + 1) * np.exp(-x[:, 0])


def shares(alpha: tuple[float, ...], nodes: int = 16) -> Rule:
    """All but the last share of a Dirichlet, each a Beta part of what those before leave, by
    Gauss–Jacobi."""
    x, p, rest = np.zeros((1, 0)), np.ones(1), np.ones(1)
    for j, a in enumerate(alpha[:-1]):
        t, weight = scipy.special.roots_jacobi(nodes, sum(alpha[j + 1 :]) - 1, a - 1)
        u = (t + 1) / 2
        x = np.concatenate([np.repeat(x, nodes, axis=0), np.outer(rest, u).reshape(-1, 1)], axis=1)
        p, rest = np.outer(p, weight).ravel(), np.outer(rest, 1 - u).ravel()
    return x, p


class Row(NamedTuple):
    """A density in a space: nodes, log density there as far as the nodes do not count for it, and
    its gradient with respect to what the space says. `wrong` are scores of the same density with
    respect to something else."""

    space: Space
    rule: Rule
    log_density: Callable[[jnp.ndarray], jnp.ndarray]
    also: Callable[[np.ndarray], np.ndarray]  # scores of what nodes count for
    wrong: Callable[[np.ndarray], np.ndarray]  # what is added to them then

    def points(self, sign: float = 1.0, wrong: bool = False) -> Points:
        x, p = self.rule
        logs, slopes = jax.vmap(jax.value_and_grad(self.log_density))(x)
        p = p * np.exp(np.asarray(logs))
        s = np.asarray(slopes) + self.also(x) + (self.wrong(x) if wrong else 0.0)
        return Points(x, sign * s, p / p.sum(), space=self.space)


def none(x):
    return np.zeros_like(x)


def dirichlet(alpha):
    a = np.array(alpha)

    def scores(x):
        return (a[:-1] - 1) / x - ((a[-1] - 1) / (1 - x.sum(axis=1)))[:, None]

    # in units of log ratios a Jacobian Π x comes in
    return Row(
        Simplex(),
        shares(alpha),
        lambda x: jnp.sum(x) ** 2,
        scores,
        lambda x: 1 / x - (1 / (1 - x.sum(axis=1)))[:, None],
    )


MU = np.array([1.0, 2.0, 2.0]) / 3
A = np.array([[2.0, 0.7, 0.0], [0.7, -1.0, 0.3], [0.0, 0.3, -1.0]])
ROWS = {
    "circle": Row(
        Torus(), angles(60, 1), lambda t: jnp.sin(t[0]) + jnp.cos(2 * t[0]), none, np.sin
    ),
    "degrees": Row(
        Torus(360.0),
        (lambda t, p: (t * 180 / np.pi, p))(*angles(60, 1)),
        lambda t: 2 * jnp.cos(jnp.pi * t[0] / 180),
        none,
        # of the angle in radians
        lambda t: -(180 / np.pi - 1) * np.pi / 90 * np.sin(np.pi * t / 180) + 1,
    ),
    "torus": Row(
        Torus(),
        angles(40, 2),
        lambda t: 1.5 * jnp.cos(t[0] - 1) + jnp.cos(t[0] - t[1]),
        none,
        lambda t: np.cos(t),
    ),
    "directions in the plane": Row(
        Sphere(),
        (lambda t, p: (np.concatenate([np.cos(t), np.sin(t)], axis=1), p))(*angles(60, 1)),
        lambda x: 2 * x[0] - x[0] * x[1],
        none,
        lambda x: np.stack([x[:, 1] ** 2, 0 * x[:, 0]], axis=1),
    ),
    "von Mises–Fisher": Row(
        # of longitude and latitude, with the Jacobian cos(latitude) = √(1 − z²)
        Sphere(),
        globe(),
        lambda x: 2 * MU @ x,
        none,
        lambda x: np.stack([0 * x[:, 2], 0 * x[:, 2], -x[:, 2] / (1 - x[:, 2] ** 2)], axis=1),
    ),
    "Bingham": Row(Sphere(), globe(), lambda x: x @ A @ x, none, lambda x: x[:, [1, 2, 0]]),
    "between bounds": Row(
        # of the logit, with its Jacobian
        Box(),
        between(0, 1),
        lambda x: 1.5 * x[0],
        none,
        lambda x: (1 - 2 * x) / (x * (1 - x)),
    ),
    "arcsine": Row(
        Box(-1, 1),
        (lambda t, w: (t[:, None], w))(*scipy.special.roots_jacobi(40, -0.5, -0.5)),
        lambda x: 0.3 * x[0],
        lambda x: x / (1 - x**2),
        lambda x: -2 * x / (1 - x**2),
    ),
    "from zero on": Row(
        Box(0, np.inf),
        half_line(0.5),
        lambda x: 0.0 * x[0],
        lambda x: 0.5 / x - 1,
        lambda x: 1 / x,
    ),
    "up to zero": Row(
        Box(-np.inf, 0),
        (lambda x, p: (-x, p))(*half_line(0.0)),
        lambda x: 0.0 * x[0],
        lambda x: 1 + 0 * x,
        lambda x: 1 / x,
    ),
    "two shares": dirichlet((0.6, 1.0, 2.5)),
    "three shares": dirichlet((1.0, 1.0, 0.7, 2.0)),
}
FAMILIES = {
    "potentials and fields": zv.Polynomial(3) + zv.Polynomial(2, operator=zv.Langevin()),
    "kernel": zv.Kernel(Gaussian(1.7)),
}


def relative_means(points: Points, frame: FittingDraws, family: zv.LinearFamily) -> np.ndarray:
    """|E g| / E|g| of some g of the family, by quadrature."""
    z = frame.standardisation().points(points)
    family = settle(family, z, np.zeros((len(z), 1)))
    some = np.linspace(0, len(z) - 1, 4).astype(int)

    @jax.jit
    def images(x, s):
        if family.num_features(x.shape[1]) is None:
            return family.gram(x, s, x[some], s[some])
        return family.features(x, s)

    g = np.asarray(images(z.x, z.s))
    size = z.probabilities @ np.abs(g)
    seen = size > 1e-8 * size.max()  # 1 − ‖x‖² is zero on a sphere
    return (np.abs(z.probabilities @ g) / size)[seen]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", ROWS)
def test_steins_identity(name, family):
    check_identity(ROWS[name], FAMILIES[family])


@pytest.mark.whole
@pytest.mark.usefixtures("x64")
def test_steins_identity_of_a_kernel_of_order_two():
    check_identity(ROWS["directions in the plane"], zv.Kernel(InverseMultiquadric(2.0), 2))


def check_identity(row, family):
    right = row.points()
    frame = FittingDraws(right)
    assert relative_means(right, frame, family).max() < 1e-9
    # one part of the potentials may be right by chance, not all of them
    assert relative_means(row.points(wrong=True), frame, family).max() > 0.02
    assert relative_means(row.points(-1.0), frame, family).max() > 0.1


# ---- draws


def von_mises(rng, n):
    """Independent angles, and means by Bessel functions."""
    mu, kappa = np.array([0.5, 2.0]), np.array([1.0, 3.0])
    x = rng.vonmises(mu, kappa, size=(n, 2))
    ratio = lambda m, k: scipy.special.ive(m, k) / scipy.special.ive(0, k)  # noqa: E731
    first = ratio(1, kappa)
    values = {
        "cos": (np.cos(x[:, 0]), first[0] * np.cos(mu[0])),
        "sin 2": (np.sin(2 * x[:, 1]), ratio(2, kappa[1]) * np.sin(2 * mu[1])),
        "both": (np.cos(x[:, 0] - x[:, 1]), first.prod() * np.cos(mu[0] - mu[1])),
    }
    return Torus(), x, -kappa * np.sin(x - mu), values


def von_mises_fisher(rng, n, kappa=3.0):
    """By its distribution along the mean direction, of which all moments are known."""
    u = rng.random(n)
    w = 1 + np.log(u + (1 - u) * np.exp(-2 * kappa)) / kappa
    phi, r = rng.uniform(0, 2 * np.pi, n), np.sqrt(1 - w**2)
    across = np.linalg.svd(MU[None])[2][1:]
    x = (
        np.outer(w, MU)
        + np.outer(r * np.cos(phi), across[0])
        + np.outer(r * np.sin(phi), across[1])
    )
    length = 1 / np.tanh(kappa) - 1 / kappa
    square = 1 - 2 * length / kappa  # E w²
    matrix = square * np.outer(MU, MU) + (1 - square) / 2 * (np.eye(3) - np.outer(MU, MU))
    values = {"x": (x[:, 0], length * MU[0]), "xy": (x[:, 0] * x[:, 1], matrix[0, 1])}
    return Sphere(), x, np.broadcast_to(kappa * MU, x.shape), values


def proportions(rng, n):
    a = np.array([0.7, 1.0, 2.5])
    x = rng.dirichlet(a, n)[:, :2]
    total = a.sum()
    log = scipy.special.digamma(a[0] + 1) - scipy.special.digamma(total + 1)
    values = {
        "share": (x[:, 0], a[0] / total),
        "both": (x[:, 0] * x[:, 1], a[0] * a[1] / (total * (total + 1))),
        "entropy": (x[:, 0] * np.log(x[:, 0]), a[0] / total * log),
    }
    return Simplex(), x, dirichlet(a).also(x), values


def cut_exponentials(rng, n):
    """Densities that do not vanish at 0 or 1, and one that ends at 10."""
    rate = np.array([1.5, -2.0])
    x = -np.log1p(-rng.random((n, 2)) * (1 - np.exp(-rate))) / rate
    x = np.column_stack([x, 10 + rng.exponential(50.0, n)])
    mean = 1 / rate - 1 / np.expm1(rate)
    values = {
        "x": (x[:, 0], mean[0]),
        "product": (x[:, 0] * x[:, 1], mean.prod()),
        "long": (x[:, 2] ** 2, 100 + 2 * 10 * 50 + 2 * 50**2),
    }
    s = np.broadcast_to([*-rate, -1 / 50], x.shape)
    return Box([0, 0, 10], [1, 1, np.inf]), x, s, values


DRAWN = {
    "torus": von_mises,
    "sphere": von_mises_fisher,
    "simplex": proportions,
    "box": cut_exponentials,
}


@functools.cache
def drawn(name, n=600, seed=0):
    return DRAWN[name](np.random.default_rng(seed), n)


def columns(values):
    return {key: array for key, (array, _) in values.items()}, [mean for _, mean in values.values()]


def rarely(*often):
    """One of the kinds of draws at every run of the tests, the others where there is time."""
    return [
        name if name in often else pytest.param(name, marks=pytest.mark.whole) for name in DRAWN
    ]


@pytest.mark.whole  # docs/gallery/spaces.md, which runs every time, has two of them
@pytest.mark.parametrize("name", DRAWN)
def test_the_default_call(name):
    """A hundred times as many draws would be needed without, and the truth is within the errors."""
    space, x, s, values = drawn(name)
    given, truth = columns(values)
    found = zv.estimate(x, s, given, space=space)
    assert (np.abs(found.value - truth) < 5 * found.std_error + 1e-9).all()
    assert found.gain.min() > 100
    assert zv.check(zv.Sample(x, s, space=space)).ok


@pytest.mark.parametrize("name", rarely("sphere"))
def test_errors_are_calibrated(name):
    """Over 30 replicates of two or three integrands."""
    inside = []
    for seed in range(30):
        space, x, s, values = DRAWN[name](np.random.default_rng(seed), 200)
        given, truth = columns(values)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", zv.ZerovarWarning)  # few draws of a long tail
            found = zv.estimate(x, s, given, space=space, family=zv.Polynomial(2))
        error = np.maximum(found.std_error, 1e-9 * np.abs(truth))
        inside.append(np.abs(found.value - truth) < 1.96 * error)
    assert 0.88 <= np.mean(inside) <= 1


def test_weights_and_chains():
    """Draws of another von Mises distribution, weighted, in two chains."""
    rng = np.random.default_rng(3)
    x = rng.vonmises(0.3, 1.5, size=(2, 400, 1))
    log_weights = 2.0 * np.cos(x[..., 0]) - 1.5 * np.cos(x[..., 0] - 0.3)
    values, family = np.cos(x[..., 0]), zv.Polynomial(3)
    found = zv.estimate(
        x, -2 * np.sin(x), values, space=Torus(), log_weights=log_weights, family=family
    )
    truth = scipy.special.iv(1, 2) / scipy.special.iv(0, 2)
    assert abs(found.value[0] - truth) < 5 * found.std_error[0]
    assert found.gain[0] > 30


def test_what_is_estimated_by_default_on_a_torus():
    """An angle has no mean."""
    space, x, s, _ = drawn("torus")
    found = zv.estimate(x, s, space=space, family=zv.Polynomial(2))
    assert found.names == ("cos x0", "sin x0", "cos x1", "sin x1")


def test_functions_of_a_draw():
    space, x, s, values = drawn("torus")
    found = zv.estimate(x, s, lambda t: jnp.cos(t[0]), space=space, family=zv.Polynomial(2))
    assert abs(found.value[0] - values["cos"][1]) < 5 * found.std_error[0]


def test_units_do_not_matter():
    """Degrees are as good as radians, and a box of hours as one of seconds."""
    space, x, s, values = drawn("torus")
    given, _ = columns(values)
    radians = zv.estimate(x, s, given, space=space, family=zv.Polynomial(3))
    turn = 180 / np.pi
    degrees = zv.estimate(x * turn, s / turn, given, space=Torus(360.0), family=zv.Polynomial(3))
    np.testing.assert_allclose(degrees.value, radians.value, rtol=1e-9)
    space, x, s, values = drawn("box", 200)
    given, _ = columns(values)
    family = zv.Polynomial(2) + zv.Kernel(InverseMultiquadric(0.5))
    seconds = zv.estimate(x, s, given, space=space, family=family)
    hours = zv.estimate(
        x / 3600,
        s * 3600,
        given,
        space=Box(np.array([0, 0, 10]) / 3600, np.array([1, 1, np.inf]) / 3600),
        family=family,
    )
    np.testing.assert_allclose(hours.value, seconds.value, rtol=1e-6)


def test_what_a_symmetric_family_keeps():
    """Circles and bounds that are to stay alike have one unit and one weight, though their draws
    are spread as they are by chance."""
    for name in ("torus", "box"):
        space, x, s, _ = drawn(name)
        draws = FittingDraws(zv.Sample(x, s, space=space).points())
        own, alike = (draws.standardisation(keeps).space for keeps in (Keeps.AXES, Keeps.SYMMETRY))
        assert len(set(own.weights)) > 1
        assert len(set(alike.weights)) == len(set(alike.unit)) == len(set(alike.origin)) == 1


@pytest.mark.parametrize("name", rarely("torus", "box"))
def test_a_fit_is_saved_with_its_space(name, tmp_path):
    space, x, s, values = drawn(name)
    sample = zv.Sample(x, s, space=space)
    fitted = zv.fit(
        zv.Polynomial(2) + zv.Kernel(InverseMultiquadric(0.5)), sample, columns(values)[0]
    )
    fitted.save(tmp_path / "fit.npz")
    loaded = zv.load(tmp_path / "fit.npz")
    np.testing.assert_allclose(loaded(sample), fitted(sample), rtol=1e-10, atol=1e-12)
    assert loaded.standardisation.kind == type(space).__name__


def test_networks_leave_the_space_as_it_is():
    """What is trained are weights, not where draws live: the mean of g under the target is zero
    afterwards, by quadrature."""
    _, x, s, values = drawn("box", 400)
    sample = zv.Sample(x[:, :2], s[:, :2], space=Box())
    network = zv.Network(zv.MLP(8, 1))
    fitted = zv.fit(
        network,
        sample,
        columns(values)[0]["product"],
        zv.LeastSquares(zv.L2(1e-2)),
        zv.SGD(epochs=5, progress=False),
    )
    one, weight = between(0, 1)
    grid = np.stack([a.ravel() for a in np.meshgrid(one[:, 0], one[:, 0], indexing="ij")], axis=1)
    rate = np.array([1.5, -2.0])
    p = np.outer(weight, weight).ravel() * np.exp(-grid @ rate)
    g = fitted.at(grid, np.broadcast_to(-rate, grid.shape))[:, 0]
    assert abs(p @ g) < 1e-8 * (p @ np.abs(g))


def test_log_densities_on_a_space():
    """Scores by differentiation; on a sphere along it, whatever the function is around it."""
    space, x, s, values = drawn("sphere")
    posterior = zv.from_log_density(
        lambda y: 3.0 * jnp.dot(MU, y) / jnp.linalg.norm(y), x, space=space
    )
    assert posterior.space is space
    _, t = space.place(x, s)
    np.testing.assert_allclose(space.place(x, posterior.sample.scores)[1], t, atol=1e-12)
    found = zv.estimate(posterior, family=zv.Polynomial(2))
    assert abs(found.value[0] - values["x"][1]) < 5 * found.std_error[0]
    angles = zv.from_log_density(lambda t: jnp.cos(t[0]), drawn("torus")[1][:, :1], space=Torus())
    assert list(angles.values) == ["cos x[0]", "sin x[0]"]
    with pytest.raises(ValueError, match="one array, and have no other coordinates"):
        zv.from_log_density(lambda t: jnp.cos(t["a"]), {"a": x[:, 0]}, space=Torus())


# ---- what is refused, and what is found


@pytest.mark.parametrize(
    ("space", "x", "words"),
    [
        (Sphere(), np.linspace(0, 3, 20).reshape(10, 2), "length one.*Torus"),
        (Sphere(), np.ones((10, 1)), "k ≥ 2"),
        (Box(), np.linspace(0, 1, 10)[:, None], "strictly between the bounds; draw 0 has 0"),
        (Box([0, 0], 1), np.full((10, 3), 0.5), "one bound or d of them"),
        (Simplex(), np.full((10, 2), 0.5), "sum to one: leave the last share out"),
        (Simplex(), np.full((10, 2), 0.7), "sum to less than one"),
    ],
)
def test_points_that_are_not_in_the_space(space, x, words):
    with pytest.raises(ValueError, match=words):
        zv.Sample(x, np.ones_like(x), space=space)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Box(1, 0), "low must be below high"),
        (lambda: Box([0, 1], [2, 1]), "got 1 and 1 for coordinate 1"),
        (lambda: Box(-np.inf, np.inf), "needs no Box"),
        (lambda: Box([0, 0], [1, 1, 1]), "one for each coordinate"),
        (lambda: Torus(0.0), "positive"),
        (lambda: zv.Sample(np.ones((9, 1)), np.ones((9, 1)), space="torus"), "Torus"),
    ],
)
def test_spaces_that_make_no_sense(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize(
    ("family", "words"),
    [
        (zv.RidgeFunctions(zv.Polynomial(2), np.eye(4)), "for draws in Rᵈ"),
        (zv.SparsePolynomial(2), "for draws in Rᵈ"),
        (zv.Polynomial(2) + zv.Anisotropic(zv.Kernel(), [1.0, 2.0, 1.0, 1.0]), "for draws in Rᵈ"),
        (zv.Kernel(operator=zv.Langevin(2.0)), "the metric is that of the space; leave D out"),
    ],
)
def test_families_that_are_for_other_spaces(family, words):
    space, x, s, values = drawn("torus")
    with pytest.raises(ValueError, match=words):
        zv.estimate(x, s, columns(values)[0], space=space, family=family)


def test_calls_that_are_for_draws_in_the_reals():
    x = drawn("torus")[1]
    at = lambda t: jnp.sum(jnp.array([1.0, 3.0]) * jnp.cos(t - jnp.array([0.5, 2.0])))  # noqa: E731
    posterior = zv.from_log_density(at, x, space=Torus(), values={"a": lambda t: t[0]})
    for call in (zv.quantile, zv.interval, zv.density, zv.evidence, zv.Coordinates(lambda t: t)):
        with pytest.raises(ValueError, match="for draws in Rᵈ, and these live on a Torus"):
            call(posterior)
    with pytest.raises(ValueError, match="for draws in Rᵈ"):
        zv.sensitivity(posterior, to={"kappa": np.cos(x[:, 0])}, probs=0.5)
    with pytest.raises(ValueError, match="a space of its own"):
        zv.estimate(posterior, space=Torus())
    with pytest.raises(ValueError, match="score_error is for draws in Rᵈ"):
        zv.estimate(posterior, score_error=0.01, family=zv.Polynomial(1))
    table = zv.summary(posterior, family=zv.Polynomial(2), round_to=None)
    assert {"cv_mean", "gain"} <= set(table)
    assert "cv_median" not in table
    event = zv.probability(posterior, "a > 0.5", family=zv.Automatic(effort="low"))
    # from the mean direction to where angles are cut
    truth = scipy.stats.vonmises.cdf(np.pi - 0.5, 1.0) - 0.5
    assert abs(event.value[0] - truth) < 5 * event.std_error[0]


def test_sensitivities_of_means_on_a_torus():
    """d E cos(θ − μ) / dκ = 1 − A/κ − A², with A the ratio of Bessel functions."""
    space, x, s, _ = drawn("torus")
    posterior = zv.Posterior(x, s, {"c": np.cos(x[:, 1] - 2.0)[None]}, space=space)
    family = zv.Automatic(effort="low")
    found = zv.sensitivity(posterior, to={"kappa": np.cos(x[:, 1] - 2.0)}, family=family)
    ratio = scipy.special.iv(1, 3) / scipy.special.iv(0, 3)
    error = float(found.std_error.squeeze())
    assert abs(float(found.derivative.squeeze()) - (1 - ratio / 3 - ratio**2)) < 5 * error


def test_chunked_draws_are_refused(tmp_path):
    dask = pytest.importorskip("dask.array")
    space, x, s, _ = drawn("torus")
    with pytest.raises(ValueError, match="chunked draws must live in Rᵈ, not on a Torus"):
        zv.estimate(dask.from_array(x), dask.from_array(s), space=space)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("torus", lambda x, s: s * 180 / np.pi, "derivatives of the log density in each angle"),
        ("torus", lambda x, s: -s, "sign is flipped"),
        ("sphere", lambda x, s: s * 0 + [1.0, 0, 0], "with respect to the volume"),
        ("simplex", lambda x, s: s * x, "What a Simplex asks for"),
        ("simplex", lambda x, s: s + 1 / x, "all shares but the last"),
        ("box", lambda x, s: s + np.array([1, 1, 0]) * (1 / x - 1 / (1.1 - x)), "Jacobian"),
    ],
)
def test_scores_of_another_space_are_found(name, change, words):
    space, x, s, _ = drawn(name, 2000)
    verdict = zv.check(zv.Sample(x, change(x, s), space=space))
    assert not verdict.ok
    assert words in verdict.diagnosis
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(zv.ScoreWarning):
            zv.estimate(x, change(x, s), space=space, family=zv.Polynomial(1))


def test_a_density_that_ends_with_a_jump_is_told_of_the_box():
    """N(0, 1) cut at 1: its scores are those of the whole, and in a box they are right."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20_000, 1))
    x = x[x[:, 0] < 1][:4000]
    verdict = zv.check(zv.Sample(x, -x))
    assert not verdict.ok
    assert "space=zv.spaces.Box(low, high)" in verdict.diagnosis
    assert zv.check(zv.Sample(x, -x, space=Box(-np.inf, 1))).ok
