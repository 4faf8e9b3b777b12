"""Networks: the operators are right, what is invalid is refused, files bring them back."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import gaussian

import zerovar as zv
from zerovar.families import Ensemble, Sum
from zerovar.families.network import ACTIVATIONS

SMOOTH = {name: function for name, function in ACTIVATIONS.items() if name != "relu"}
RNG = np.random.default_rng


def stirred(network, d, q, seed=0):
    return network.build(d, q, RNG(seed)).perturb(RNG(seed + 1))


def compiled(function):
    """As one program, without optimisation: all of its time is compilation."""
    return jax.jit(
        lambda *arrays: function(*arrays), compiler_options={"xla_backend_optimization_level": 0}
    )


ARCHITECTURES = {f"MLP, {name}": zv.MLP(6, 2, function) for name, function in SMOOTH.items()} | {
    "ResNet": zv.ResNet(6, 2)
}


@pytest.mark.parametrize("architecture", list(ARCHITECTURES.values()), ids=list(ARCHITECTURES))
@pytest.mark.parametrize(
    "operator", [zv.Langevin(), zv.ScalarLangevin()], ids=["vector field", "potential"]
)
def test_operators_agree_with_automatic_differentiation(architecture, operator, x64):
    d, q = 3, 2
    network = stirred(zv.Network(architecture, operator), d, q)
    x, s = RNG(0).normal(size=(2, 5, d))
    # of which a potential's Laplacian is the divergence, through reverse mode
    slope = jax.jacrev(network.module)

    def field(point):
        return (
            slope(point)
            if isinstance(operator, zv.ScalarLangevin)
            else network.module(point).reshape(q, d)
        )

    def expected(point, score):
        return jnp.trace(jax.jacrev(field)(point), axis1=1, axis2=2) + field(point) @ score

    found, reference = compiled(lambda x, s: (network(x, s), jax.vmap(expected)(x, s)))(x, s)
    np.testing.assert_allclose(found, reference, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("activation", "operator"),
    [
        *((f, zv.Langevin()) for f in ACTIVATIONS.values()),
        *((f, zv.ScalarLangevin()) for f in SMOOTH.values()),
    ],
    ids=[
        *(f"{name}, vector field" for name in ACTIVATIONS),
        *(f"{name}, potential" for name in SMOOTH),
    ],
)
def test_steins_identity_by_quadrature(activation, operator, x64):
    # kinks cost the trapezoidal rule its order: half a grid cell a kink
    grid = np.linspace(-12, 12, 200_001 if activation is jax.nn.relu else 4001)[:, None]
    density = np.exp(-0.5 * grid[:, 0] ** 2) / np.sqrt(2 * np.pi)
    network = stirred(zv.Network(zv.MLP(6, 1, activation), operator), 1, 1)
    g = np.asarray(compiled(network)(grid, -grid))[:, 0]
    assert abs(np.trapezoid(g * density, grid[:, 0])) < (
        1e-3 if activation is jax.nn.relu else 1e-9
    )
    # under another density it is not
    assert abs(np.trapezoid(g * np.exp(-0.5 * (grid[:, 0] - 0.5) ** 2), grid[:, 0])) > 1e-2


def test_probes_are_unbiased_in_pairs(x64):
    network = stirred(zv.Network(zv.MLP(6, 1), probes=1), 4, 1)
    x, s = RNG(0).normal(size=(2, 3, 4))
    keys = jax.random.split(jax.random.key(0), 40_000)
    one, two = jax.jit(
        lambda keys: jax.lax.map(lambda key: network.probe(x, s, key), keys, batch_size=1000)
    )(keys)
    one, two = np.asarray(one), np.asarray(two)
    exact = np.asarray(compiled(network)(x, s))
    error = np.std(one, axis=0) / 200
    assert np.all(np.abs(np.mean(one, axis=0) - exact) < 5 * error)
    product = one * two
    assert np.all(np.abs(product.mean(axis=0) - exact**2) < 5 * product.std(axis=0) / 200)
    square = one * one  # the same probe twice is biased: what two are for
    assert np.all(square.mean(axis=0) - exact**2 > 5 * square.std(axis=0) / 200)


def test_relu_is_refused_as_a_potential_and_allowed_as_a_field():
    x, s = gaussian(200, 2)
    relu = zv.MLP(4, 1, jax.nn.relu)
    with pytest.raises(ValueError, match="mean zero"):
        zv.fit(zv.Network(relu, operator=zv.ScalarLangevin()), zv.Sample(x, s), x[:, 0])
    module = eqx.nn.MLP(2, "scalar", 4, 1, lambda v: jnp.maximum(v, 0.1 * v), key=jax.random.key(0))
    # also by another name, and inside a module of the user's
    with pytest.raises(ValueError, match="smooth activation"):
        zv.fit(zv.Network(module, operator=zv.ScalarLangevin()), zv.Sample(x, s), x[:, 0])
    assert (
        zv.fit(zv.Network(relu), zv.Sample(x, s), x[:, 0], None, zv.SGD(epochs=2)).result.name
        == "OK"
    )
    # the reason: its "control variate" has not mean zero
    z = RNG(0).normal(size=100_000)
    g = -z * (z > 0)
    assert abs(g.mean() + 0.399) < 0.01


@pytest.mark.whole
def test_any_module_is_a_potential_or_a_field():
    x, s = gaussian(400, 2)
    z = (x - [1, 2]) / x.std(axis=0)
    f = z[:, 0] + 0.3 * z[:, 1] ** 2
    scalar = eqx.nn.MLP(2, "scalar", 8, 1, jnp.tanh, key=jax.random.key(0))
    field = eqx.nn.MLP(2, 2, 8, 1, jax.nn.softplus, key=jax.random.key(0))
    for network in (zv.Network(scalar, operator=zv.ScalarLangevin()), zv.Network(field)):
        fitted = zv.fit(network, zv.Sample(x, s), f, None, zv.SGD(epochs=100, batch_size=32))
        assert np.var(f - fitted.at(x, s)[:, 0]) < 0.5 * np.var(f)
    with pytest.raises(
        ValueError,
        match=r"returns shape \(\); 2 integrand\(s\) in d = 2 under ScalarLangevin need \(2,\)",
    ):
        zv.fit(zv.Network(scalar, operator=zv.ScalarLangevin()), zv.Sample(x, s), x)
    draws = RNG(0).normal(size=(100, 3))
    with pytest.raises(ValueError, match=r"cannot be called on a point of shape \(3,\)"):
        zv.fit(zv.Network(field), zv.Sample(draws, -draws), draws[:, 0])


def test_training_starts_at_the_plain_mean():
    x, s = gaussian(200, 2)
    network = zv.Network().build(2, 1, RNG(0))
    with jax.enable_x64(True):
        assert not np.any(compiled(network)(x, s))
    barely = zv.fit(
        zv.Network(), zv.Sample(x, s), x[:, 0] + 5, None, zv.SGD(epochs=1, learning_rate=1e-12)
    )
    np.testing.assert_allclose(barely.intercept, x[:, 0].mean() + 5, rtol=0.05)


def test_nothing_to_learn_does_no_harm():
    rng = RNG(0)
    x = rng.normal(size=(300, 5))
    noise = rng.normal(size=300)
    fitted = zv.fit(zv.Network(), zv.Sample(x, -x), noise, None, zv.SGD(epochs=50))
    fresh = rng.normal(size=(5000, 5))
    # of a noise of one, by early stopping and shrinkage
    assert fitted.at(fresh, -fresh).std() < 0.5
    assert np.all((fitted.stats["shrinkage"] >= 0) & (fitted.stats["shrinkage"] <= 1))


@pytest.mark.parametrize(
    "family",
    [
        zv.Network(zv.ResNet(6, 1, jnp.sin)),
        zv.Polynomial(2) + zv.Kernel() + zv.Network(zv.MLP(6, 1)),
    ],
)
def test_files_bring_networks_back(tmp_path, family):
    x, s = gaussian(200, 2)
    fitted = zv.fit(
        family, zv.Sample(x, s), x, zv.LeastSquares(zv.Magnitude(1e-3)), zv.SGD(epochs=3)
    )
    fitted.save(tmp_path / "fit.npz")
    loaded = zv.load(tmp_path / "fit.npz")
    np.testing.assert_array_equal(loaded.at(x, s), fitted.at(x, s))
    assert loaded.family.describe() == fitted.family.describe()
    assert loaded.objective.penalties[0].strength == 1e-3


def test_a_module_of_ones_own_is_not_written(tmp_path):
    x, s = gaussian(100, 2)
    module = eqx.nn.MLP(2, 2, 4, 1, jnp.tanh, key=jax.random.key(0))
    fitted = zv.fit(zv.Network(module), zv.Sample(x, s), x[:, 0], None, zv.SGD(epochs=1))
    with pytest.raises(TypeError, match="tree_serialise_leaves"):
        fitted.save(tmp_path / "fit.npz")
    assert not list(tmp_path.iterdir())


def test_sums_with_networks():
    linear, network = zv.Polynomial(1) + zv.Kernel(), zv.Network()
    both = linear + network
    assert isinstance(both, Ensemble)
    assert both.separate()[0].describe() == linear.describe()
    assert [part.describe() for part in both.separate()[1]] == [network.describe()]
    assert isinstance(zv.Polynomial(1) + zv.Kernel(), Sum)
    assert (network + linear).separate()[0].num_features(2) is None
    with pytest.raises(TypeError):
        network + 1


def test_the_default_solver_of_a_network_is_sgd():
    x, s = gaussian(300, 1)
    answer = zv.estimate(
        x, s, np.sin(x), family=zv.Network(zv.MLP(8, 1)), split=zv.holdout(0.5), seed=2
    )
    assert answer.stats["form"] == "sgd"
    with pytest.raises(ValueError, match="SGD"):
        zv.fit(zv.Network(), zv.Sample(x, s), x, solver=zv.Exact())


@pytest.mark.parametrize("architecture", [zv.MLP(8, 2), zv.ResNet(8, 1)])
def test_divergence_in_more_dimensions_than_hidden_units(architecture, x64):
    rng, d = np.random.default_rng(0), 40
    network = zv.Network(architecture).build(d, 2, rng).perturb(rng)
    x, s = rng.normal(size=(2, d))
    expected = compiled(
        lambda x, s: zv.Langevin()(lambda point: network.module(point).reshape(2, d), x, s)
    )(x, s)
    assert np.asarray(compiled(network)(x[None], s[None]))[0] == pytest.approx(
        np.asarray(expected), rel=1e-12
    )
