"""Other coordinates: scores against automatic differentiation of the transformed log density, and
real hierarchies."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import SCHOOLS

import zerovar as zv

SHIPPED = np.load(Path(zv.__file__).parent / "data" / "eight_schools.npz")
ORDER = [8, 9, *range(8)]  # μ, log τ, z in the shipped draws


def shipped(draws=250):
    x, s = (SHIPPED[name][:2, :draws, ORDER] for name in ("draws", "scores"))
    return zv.Sample(x, s, names=["mu", "log_tau", *(f"z{k}" for k in range(8))])


def log_tau_and_mu(x):
    return x[0], jnp.exp(x[1])


CENTRED = zv.Coupling(
    [(range(2, 10), log_tau_and_mu)], names=["mu", "log_tau", *(f"theta{k}" for k in range(8))]
)


def curved(x):
    """Invertible, coupled, and onto all of R³."""
    return jnp.stack(
        [x[0] + 0.3 * jnp.tanh(x[1]), jnp.sinh(x[1]), x[2] * jnp.exp(0.4 * x[0]) + x[1]]
    )


def uncurved(y):
    middle = jnp.arcsinh(y[1])
    first = y[0] - 0.3 * jnp.tanh(middle)
    return jnp.stack([first, middle, (y[2] - middle) * jnp.exp(-0.4 * first)])


def curved_log_det(x):
    return jnp.log(jnp.cosh(x[1])) + 0.4 * x[0]


def log_density(x):
    return -0.5 * jnp.sum(x**2) - 0.1 * x[0] ** 4 - 0.3 * jnp.cos(x[1] * x[2])


MAPS = {
    "Jacobian": zv.Coordinates(curved),
    "inverse and determinant": zv.Coordinates(curved, uncurved, curved_log_det),
    "determinant alone": zv.Coordinates(curved, log_det=curved_log_det),
    "backwards": zv.Coordinates(uncurved, curved, lambda y: -curved_log_det(uncurved(y))),
}


def test_the_choice_tries_other_coordinates():
    """In the shipped draws, of little data, the non-centred form wins; a map that fails is listed
    with its reason."""
    whole = shipped(500)
    draws, scores = whole.by_chain(whole.draws), whole.by_chain(whole.scores)
    broken = zv.Coordinates(lambda x: jnp.log(x))
    posterior = zv.Posterior(
        draws, scores, {"mu": draws[..., 0]}, coordinates={"centred": CENTRED, "broken": broken}
    )
    selection = zv.estimate(posterior, family=zv.Automatic("low")).selection
    centred = np.array([label.endswith(", centred") for label in selection.candidates])
    errors = selection.std_errors[:, 0]
    assert errors[~centred].min() < 0.7 * errors[centred].min()
    assert any(text.startswith("broken coordinates") for text in selection.skipped)


@pytest.mark.parametrize(
    ("there", "back", "names"),
    [
        (curved, uncurved, [name for name in MAPS if name != "backwards"]),
        (uncurved, curved, ["backwards"]),
    ],
    ids=["forwards", "backwards"],
)
def test_scores_are_those_of_the_transformed_log_density(there, back, names):
    x = np.random.default_rng(0).normal(size=(20, 3))

    def transformed(y):
        return log_density(back(y)) + jnp.linalg.slogdet(jax.jacfwd(back)(y))[1]

    with jax.enable_x64(True):
        s, y = jax.jit(lambda x: (jax.vmap(jax.grad(log_density))(x), jax.vmap(there)(x)))(x)
        expected = jax.jit(jax.vmap(jax.grad(transformed)))(y)
    for name in names:
        found = MAPS[name](zv.Sample(x, np.asarray(s)))
        np.testing.assert_allclose(found.draws, y, rtol=1e-12, err_msg=name)
        np.testing.assert_allclose(found.scores, expected, rtol=1e-8, atol=1e-10, err_msg=name)


def test_eight_schools_are_exactly_those_of_the_other_form():
    """Draws and scores of the centred log density by hand; back again; and Stein's identity, which
    the wrong scores fail."""
    sample, (effects, errors) = shipped(), SCHOOLS

    def centred(y):
        mu, log_tau, theta = y[0], y[1], y[2:]
        tau = jnp.exp(log_tau)
        likelihood = -0.5 * jnp.sum(((effects - theta) / errors) ** 2)
        prior = -0.5 * (mu / 5) ** 2 - jnp.log1p((tau / 5) ** 2) + log_tau
        return likelihood + prior - 0.5 * jnp.sum(((theta - mu) / tau) ** 2) - 8 * log_tau

    found = CENTRED(sample)
    with jax.enable_x64(True):
        expected = jax.jit(jax.vmap(jax.grad(centred)))(found.draws)
    np.testing.assert_allclose(found.scores, expected, rtol=1e-5, atol=1e-6)
    assert found.names[2] == "theta0"
    back = zv.Coupling([(range(2, 10), log_tau_and_mu)], backwards=True)(found)
    np.testing.assert_allclose(back.draws, sample.draws, atol=1e-9)
    np.testing.assert_allclose(back.scores, sample.scores, rtol=1e-6, atol=1e-6)
    product = found.draws[:, 0] * found.scores[:, 0] + 1
    # the control: scores of the other coordinates
    wrong = found.draws[:, 2] * sample.scores[:, 2] + 1
    assert abs(product.mean()) < 5 * product.std() / np.sqrt(len(product))
    assert abs(wrong.mean()) > 5 * wrong.std() / np.sqrt(len(wrong))


def test_a_matrix_and_blocks_that_depend_on_blocks():
    x = np.random.default_rng(1).normal(size=(30, 6))

    def matrix(x):
        return x[0] * jnp.ones(2), jnp.array([[1.0, 0.2], [0.3, 2.0]]) * jnp.exp(0.1 * x[0])

    coupling = zv.Coupling([((1, 2), matrix), ([4, 5], lambda x: (x[1], jnp.exp(0.2 * x[2])))])
    jacobian = zv.Coordinates(coupling.forward)
    sample = zv.Sample(x, -x)
    np.testing.assert_allclose(
        coupling(sample).scores, jacobian(sample).scores, rtol=1e-8, atol=1e-10
    )


def test_a_posterior_keeps_its_values():
    x, s = (array.reshape(2, 250, 10) for array in (shipped().draws, shipped().scores))
    posterior = zv.Posterior(x, s, None, names=tuple(f"p{k}" for k in range(10)))
    found = CENTRED(posterior)
    np.testing.assert_array_equal(found.values["p3"], x[..., 3])
    assert found.draws.shape == x.shape
    # as scores of centred effects have
    with pytest.warns(zv.SampleWarning, match="tails so heavy"):
        answer = zv.estimate(found, family=zv.Polynomial(1))
    assert answer.names == posterior.names


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: zv.Coordinates(curved, uncurved, lambda x: 0.0 * x[0])(
                zv.Sample(*2 * [np.eye(6)[:, :3] + 1.0])
            ),
            "log_det",
        ),
        (
            lambda: zv.Coordinates(lambda x: x[:2])(zv.Sample(*2 * [np.eye(6)[:, :3] + 1.0])),
            "one draw|as many",
        ),
        (
            lambda: zv.Coordinates(
                lambda x: x**2, jnp.sqrt, lambda x: jnp.sum(jnp.log(2 * jnp.abs(x)))
            )(shipped()),
            "lead back",
        ),
        (lambda: zv.Coordinates(curved)(np.ones((5, 3))), "zv.Sample or a Posterior"),
        (
            lambda: zv.Coordinates(jnp.sinh)(
                zv.Sample(*2 * [np.random.default_rng(0).normal(size=(8, 300))])
            ),
            "Coupling",
        ),
        (lambda: zv.Coupling([([0, 1], log_tau_and_mu), ([1, 2], log_tau_and_mu)]), "overlap"),
        (lambda: zv.Coupling([([0.5], log_tau_and_mu)]), "coordinate numbers"),
    ],
)
def test_what_is_no_change_of_coordinates_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_adapters_carry_other_coordinates():
    """Functions of a draw in its own structure, a dict, to a dict or an array; and Coordinates of
    the flat one."""
    draws = {
        "b": np.random.default_rng(0).normal(size=(40, 2)),
        "a": np.random.default_rng(1).normal(size=40),
    }

    def density(draw):
        return -0.5 * draw["a"] ** 2 - jnp.sum(jnp.cosh(draw["b"] - draw["a"]))

    def moved(draw):
        return {"a": draw["a"], "b": draw["b"] - draw["a"]}

    def joined(draw):
        return jnp.append(draw["a"], draw["b"] - draw["a"])

    maps = {"moved": moved, "joined": joined}
    maps["flat"] = zv.Coupling([((1, 2), lambda x: (-x[0], 1.0))])
    posterior = zv.from_log_density(density, draws, coordinates=maps)
    expected = zv.from_log_density(
        lambda y: -0.5 * y["a"] ** 2 - jnp.sum(jnp.cosh(y["b"])),
        {**draws, "b": draws["b"] - draws["a"][:, None]},
    )
    for found in (posterior.coordinates[name](posterior) for name in maps):
        np.testing.assert_allclose(found.draws, expected.draws, atol=1e-12)
        np.testing.assert_allclose(found.scores, expected.scores, atol=1e-9)
        np.testing.assert_array_equal(found.values["b[0]"], posterior.values["b[0]"])
    with pytest.raises(ValueError, match="coordinates must be a dict"):
        zv.from_log_density(density, draws, coordinates=moved)
    with pytest.raises(ValueError, match="or a function of one draw"):
        zv.from_log_density(density, draws, coordinates={"moved": 3})


def test_forms_of_a_numpyro_model_are_recognised_and_lead_to_each_other():
    """Draws and scores of either form, mapped by what was recognised in it, are those of the other;
    nothing is sampled here."""
    numpyro = pytest.importorskip("numpyro")
    from numpyro import distributions as dist
    from numpyro.infer.reparam import LocScaleReparam
    from numpyro.infer.util import potential_energy

    from zerovar.adapters.hierarchies import HierarchicalCoordinates

    def centred():
        mu = numpyro.sample("mu", dist.Normal(0, 5))
        tau = numpyro.sample("tau", dist.HalfCauchy(5))
        with numpyro.plate("group", 3):
            theta = numpyro.sample("theta", dist.Normal(mu, tau))
            numpyro.sample("y", dist.Normal(theta, 2.0), obs=jnp.array([1.0, -2.0, 0.5]))

    spread = numpyro.handlers.reparam(centred, config={"theta": LocScaleReparam(0.0)})
    rng = np.random.default_rng(0)
    z = {
        "mu": rng.normal(size=(1, 12)),
        "tau": 0.5 * rng.normal(size=(1, 12)),
        "theta_decentered": rng.normal(size=(1, 12, 3)),
    }
    theta = {
        "mu": z["mu"],
        "tau": z["tau"],
        "theta": z["mu"][..., None] + np.exp(z["tau"])[..., None] * z["theta_decentered"],
    }

    def posterior(model, draws, sites):
        with jax.enable_x64(True):
            slopes = jax.jit(jax.vmap(jax.grad(lambda one: -potential_energy(model, (), {}, one))))
            scores = slopes({name: array[0] for name, array in draws.items()})
        sides = (
            {name: array[0].reshape(12, -1) for name, array in part.items()}
            for part in (draws, {k: v[None] for k, v in scores.items()})
        )
        x, s = (np.concatenate([part[name] for name in sorted(part)], axis=1) for part in sides)
        return zv.Sample(x, s), HierarchicalCoordinates(model, (), {}, draws, sites)

    inner, outwards = posterior(spread, z, {**z, "theta": theta["theta"]})
    outer, inwards = posterior(centred, theta, theta)
    assert (list(outwards), list(inwards)) == (["centred"], ["non-centred"])
    for found, expected in (
        (outwards["centred"](inner), outer),
        (inwards["non-centred"](outer), inner),
    ):
        np.testing.assert_allclose(found.draws, expected.draws, atol=1e-6)
        np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5, atol=1e-5)
    assert outwards["centred"](inner).names[-1] == "theta[2]"
