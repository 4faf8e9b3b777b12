"""Operators with a metric D(x), and of one's own: closed forms, Stein's identity, refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_operators_families import assert_close, compiled, points, relative_means

import zerovar as zv
from zerovar import Kernel, Langevin, Network, Polynomial, ScalarLangevin
from zerovar.families import BasisFamily
from zerovar.kernels import Gaussian, InverseMultiquadric, Matern

pytestmark = pytest.mark.usefixtures("x64")


def slanted(x):
    """A matrix that is positive definite everywhere, and constant in no entry."""
    v = jnp.sin(x + jnp.arange(len(x)))
    return jnp.eye(len(x)) + jnp.outer(v, v)


METRICS = {
    "a number": 2.0,
    "diagonal": np.array([0.5, 2.0]),
    "a matrix": np.array([[1.5, 0.4], [0.4, 0.8]]),
    "a number, D(x)": lambda x: 1 + 0.3 * jnp.sum(x**2),
    "diagonal, D(x)": lambda x: jnp.exp(x / 3),
    "a matrix, D(x)": slanted,
}
OPERATORS = {
    f"{kind.__name__}, {name}": kind(D)
    for name, D in METRICS.items()
    for kind in (Langevin, ScalarLangevin)
}


def by_hand(operator, u, x, s):
    """∇·(D u) + (D u)·s with the metric inside of what is differentiated."""
    field = u if operator.on_fields else jax.jacfwd(u)

    def weighed(at):
        D = jnp.asarray(operator.D(at) if callable(operator.D) else operator.D)
        return field(at) @ D if D.ndim == 2 else field(at) * D

    return jnp.trace(jax.jacfwd(weighed)(x), axis1=-2, axis2=-1) + weighed(x) @ s


@pytest.mark.parametrize(
    "name",
    # numbers and what is constant take the way of the others, and compile for seconds each
    [
        name
        if "D(x)" in name and "number" not in name
        else pytest.param(name, marks=pytest.mark.whole)
        for name in OPERATORS
    ],
)
def test_closed_forms_are_the_operator(name):
    """Of polynomials and kernels, against the operator's definition and its automatic
    differentiation."""
    operator, (x, s), (y, t) = OPERATORS[name], points(4, 2), points(3, 2, seed=1)
    family = Polynomial(
        3, operator=operator, weight=(0.5, 2.0, 3.0, 0.7)[-operator.on_fields - 3 :]
    )
    kernel = Kernel(Gaussian(1.3), operator=operator, weight=2.0)

    def pairs(a, sa, b, tb):
        unit = jnp.eye(2) if operator.on_fields else 1.0
        inner = lambda u: by_hand(operator, lambda v: kernel.base(u, v) * unit, b, tb)  # noqa: E731
        return by_hand(operator, inner, a, sa)

    @compiled
    def both(x, s, y, t):
        features = jax.vmap(lambda a, b: by_hand(operator, family.basis, a, b))(x, s)
        gram = jax.vmap(lambda a, sa: jax.vmap(lambda b, tb: pairs(a, sa, b, tb))(y, t))(x, s)
        found = family.features(x, s), BasisFamily.features(family, x, s), kernel.gram(x, s, y, t)
        return *found, features, 2.0 * gram

    closed, differentiated, gram, features, expected = both(x, s, y, t)
    assert_close(closed, features, 1e-13)
    assert_close(differentiated, features, 1e-13)
    assert_close(gram, expected, 1e-12)
    assert closed.shape == (4, family.num_features(2))


def test_coordinates_take_their_block_of_the_metric():
    x, s = points(4, 3)
    for kind in (Langevin, ScalarLangevin):
        family = Polynomial(2, coordinates=(0, 2), operator=kind(slanted))
        found = compiled(lambda x, s, f=family: (f.features(x, s), BasisFamily.features(f, x, s)))(
            x, s
        )
        assert_close(*found, 1e-13)


@pytest.mark.parametrize("base", [Matern(4.5, 1.2), InverseMultiquadric(1.3)], ids=["rough", "IMQ"])
@pytest.mark.parametrize("order", [1, 2])
def test_grams_by_differentiation_are_right_at_equal_points(base, order):
    """Where that through Matérn's square root is wrong; against the closed form for D = 1."""
    x, s = points(4, 3)
    plain, unit = Kernel(base, order), (Langevin, ScalarLangevin)[order - 1](1.0)
    found = compiled(Kernel(base, operator=unit).gram)(x, s, x, s)
    assert_close(found, plain.gram(x, s, x, s), 1e-12)


@pytest.mark.parametrize("name", ["Langevin, a matrix, D(x)", "ScalarLangevin, diagonal, D(x)"])
def test_steins_identity_under_a_metric(name):
    family = Polynomial(2, operator=OPERATORS[name]) + Kernel(
        Gaussian(0.9), operator=OPERATORS[name]
    )
    assert relative_means(compiled(family.gram), 2).max() < 1e-11
    assert relative_means(compiled(family.gram), 2, sign=-1.0).min() > 0.1


def test_a_metric_may_not_grow_faster_than_the_density_falls():
    """Under N(0, 1), by quadrature: e^x²/2 times the density has a limit, and a boundary term
    stays."""
    x = np.linspace(-12, 12, 4001)[:, None]
    p = np.exp(-0.5 * x[:, 0] ** 2) / np.sqrt(2 * np.pi) * (x[1, 0] - x[0, 0])

    def mean(D):
        operator = Langevin(lambda at: D(at[0]))
        g = compiled(jax.vmap(lambda at, s: operator(lambda u: jnp.tanh(u), at, s)))(x, -x)
        return float(p @ g)

    assert abs(mean(lambda x: 1 + x**2)) < 1e-12
    assert abs(mean(lambda x: jnp.exp(x**2 / 4))) < 1e-12
    assert mean(lambda x: jnp.exp(x**2 / 2)) == pytest.approx(2 / np.sqrt(2 * np.pi), rel=1e-6)


def test_networks_take_a_metric():
    (x, s), q = points(6, 2), 2
    rng = np.random.default_rng(0)
    for kind in (Langevin, ScalarLangevin):
        network = Network(zv.MLP(4, 1), kind(slanted)).build(2, q, rng).perturb(rng)
        shape = (lambda u: u.reshape(-1, 2)) if kind is Langevin else (lambda u: u)

        @compiled
        def both(x, s, net=network, shape=shape):
            one = lambda a, b: by_hand(net.operator, lambda u: shape(net.module(u)), a, b)  # noqa: E731
            return net(x, s), jax.vmap(one)(x, s)

        assert_close(*both(x, s), 1e-13)


def test_probes_under_a_metric_have_the_right_mean():
    x, s = points(2, 2)
    rng = np.random.default_rng(0)
    network = Network(zv.MLP(4, 1), Langevin(slanted), probes=1).build(2, 1, rng).perturb(rng)
    keys = jax.random.split(jax.random.key(0), 4000)
    first = compiled(jax.vmap(lambda key: network.probe(x, s, key)[0]))(keys)
    error = first.std(axis=0) / np.sqrt(len(keys))
    assert np.all(np.abs(first.mean(axis=0) - compiled(network.__call__)(x, s)) < 5 * error)


class Shifted(zv.Operator):
    """(Lu)(x) = u(x) − u(x − 1) e^(log π(x − 1) − log π(x)) under N(0, 1): no derivative at all."""

    def __call__(self, u, x, s):
        return u(x) - u(x - 1) * jnp.exp(jnp.sum(x) - 0.5 * len(x))


def test_an_operator_of_ones_own_serves_every_family():
    """Mean zero by quadrature, and an estimate by each family; this one knows the density of the
    draws as they are."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    at, x = nodes[:, None], np.random.default_rng(0).normal(size=(400, 1))
    families = [
        Polynomial(3, operator=Shifted()),
        Kernel(Gaussian(1.5), operator=Shifted()),
        Polynomial(3, operator=Shifted()) + Kernel(Gaussian(1.5), operator=Shifted()),
    ]
    ridge = zv.LeastSquares(zv.Ridge(1e-8))
    for family in families:
        gram = np.asarray(compiled(family.gram)(at, -at, x[:2], -x[:2]))
        assert np.abs(weights @ gram).max() < 1e-9 * (weights @ np.abs(gram)).max()
        found = zv.estimate(x, -x, x[:, 0] ** 2, family=family, objective=ridge, standardise=False)
        assert found.gain[0] > 5
        assert abs(found.value[0] - 1) < 4 * found.std_error[0]
        assert "Shifted" in family.describe()
    trained = Network(zv.MLP(8, 1), Shifted())
    found = zv.estimate(
        x, -x, x[:, 0] ** 2, family=trained, solver=zv.SGD(progress=False), standardise=False
    )
    assert abs(found.value[0] - 1) < 4 * found.std_error[0]


def test_what_is_no_metric_is_refused():
    x = np.random.default_rng(0).normal(size=(50, 2))
    words = "D must be a positive number"
    for wrong in (
        0.0,
        -1.0,
        [1.0, -1.0],
        [[1.0, 0.5], [0.4, 1.0]],
        [[1.0, 2.0], [2.0, 1.0]],
        "one",
    ):
        with pytest.raises(ValueError, match=words):
            Langevin(wrong)
    cases = {
        "D has 3 coordinates": np.ones(3),
        "D must be positive at every draw": lambda x: x,
        "D must return a number": lambda x: jnp.ones(5),
        "D must be symmetric": lambda x: jnp.array([[1.0, 0.2], [0.1, 1.0]]),
        "D cannot be called on a point of shape": lambda x: x.missing(),
    }
    for words, D in cases.items():
        family = Polynomial(2, operator=ScalarLangevin(D))
        with pytest.raises(ValueError, match=words):
            zv.estimate(x, -x, x[:, 0] ** 2, family=family)


def test_a_metric_is_saved_with_its_fit(tmp_path):
    x = np.random.default_rng(0).normal(size=(60, 2))
    family = Polynomial(2, operator=ScalarLangevin([1.0, 2.0])) + Kernel(
        Gaussian(2.0), operator=Langevin([[1.0, 0.2], [0.2, 1.0]])
    )
    fitted = zv.fit(family, zv.Sample(x, -x), np.sin(x), zv.LeastSquares(zv.Ridge(1e-6)))
    fitted.save(tmp_path / "fit.npz")
    assert np.array_equal(zv.load(tmp_path / "fit.npz").at(x, -x), fitted.at(x, -x))


def funnel(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """v ~ N(0, 1), θ ~ N(0, e^v): draws and scores."""
    rng = np.random.default_rng(seed)
    v = rng.normal(size=n)
    theta = np.exp(v / 2) * rng.normal(size=n)
    precision = np.exp(-v)
    return np.stack([v, theta], axis=1), np.stack(
        [-v - 0.5 + precision * theta**2 / 2, -precision * theta], axis=1
    )


def test_a_log_linear_metric_is_found_from_the_scores():
    """Of a funnel: s_θ² has the mean e^−v, so that D_θ is e^v; and it lets a quadratic follow θ."""
    x, s = funnel(2000)
    found = zv.metrics.LogLinear().resolve(x, s)
    assert np.allclose(found.slopes[1], [1.0, 0.0], atol=0.1)
    assert abs(found.intercept[1]) < 0.1
    assert np.allclose(found(jnp.asarray(x[0]))[1], np.exp(x[0, 0]), rtol=0.3)
    gains = [
        zv.estimate(x, s, x[:, 1], family=Polynomial(2, operator=ScalarLangevin(D))).gain[0]
        for D in (None, zv.metrics.LogLinear())
    ]
    assert gains[1] > 5 * gains[0]


def test_a_log_linear_metric_is_constant_beyond_the_draws():
    x, s = funnel(500)
    found = zv.metrics.LogLinear().resolve(x, s)
    near, far = (np.log(found(at * jnp.array([1.0, 0.0]))[1]) for at in (3.0, 1e6))
    assert far - found.intercept[1] <= found.reach[1] * (1 + 1e-12)
    assert far > near


@pytest.mark.whole
@pytest.mark.parametrize("rank", [0, 1])
def test_a_learned_metric_is_trained_beside_the_network(rank):
    """Its parameters move, it stays positive, and Stein's identity holds for whatever it is."""
    x, s = funnel(600)
    metric = zv.metrics.Learned(zv.MLP(4, 1), rank=rank)
    family = Network(zv.MLP(8, 1), Langevin(metric))
    solver = zv.SGD(epochs=40, progress=False)
    answer = zv.estimate(x, s, x[:, 1], family=family, solver=solver, split=zv.holdout(0.5))
    assert abs(answer.value[0]) < 5 * answer.plain_std_error[0]
    fitted = zv.fit(family, zv.Sample(x, s), x[:, 1], solver=solver)
    trained = fitted.terms[0].network.operator.D
    start = metric.build(2, np.random.default_rng(0))
    assert (
        np.abs(trained.module.layers[-1][0]).max() > 0 == np.abs(start.module.layers[-1][0]).max()
    )
    built = Network(zv.MLP(4, 1), Langevin(metric)).build(2, 1, np.random.default_rng(0))
    moved = built.perturb(np.random.default_rng(1))
    evaluate = compiled(lambda a, b, *_: moved(a, b))
    assert relative_means(evaluate, 2).max() < 1e-9
    assert relative_means(evaluate, 2, sign=-1.0).min() > 0.01
