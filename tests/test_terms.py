"""What a model's log density is made of: site by site with the Jacobian it is the log density, and
its derivatives in arguments are those of differences."""

from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer import NUTS
from numpyro.infer.reparam import LocScaleReparam
from numpyro.infer.util import potential_energy

import zerovar as zv

Y, SIGMA = np.array([28.1, 8.2, -3.3, 7.4]), np.array([15.0, 10, 16, 11])
RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 4))  # chain, draw


def schools(y, sigma, prior, scale=5.0):
    mu = numpyro.sample("mu", dist.Normal(prior["mean"], 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(scale))
    with numpyro.plate("school", 4):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, sigma), obs=y)
    numpyro.deterministic("far", mu / scale)


def regression(x, y, **more):
    b = numpyro.sample("b", dist.Normal(0, 1).expand([2]).to_event(1))
    s = numpyro.sample("s", dist.ImproperUniform(dist.constraints.positive, (), ()))
    numpyro.factor("jeffreys", -2 * jnp.log(s))
    with handlers.scale(scale=0.5):
        numpyro.sample("y", dist.Normal(x @ b, s), obs=y)
    with handlers.mask(mask=np.array([True, True, False])):
        numpyro.sample("z", dist.StudentT(4, b[0], s), obs=more["z"])


def imputed(y):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(mu, 1), obs=y, obs_mask=y > 0)


def walk(y):
    """Latent sites in a loop."""
    from numpyro.contrib.control_flow import scan

    s = numpyro.sample("s", dist.HalfNormal(1))

    def step(last, y):
        level = numpyro.sample("level", dist.LogNormal(last, s))
        numpyro.sample("y", dist.Normal(level, 1), obs=y)
        return level, None

    scan(step, 0.0, y)


def bounded(top):
    numpyro.sample("a", dist.Uniform(0, top))


def branching(scale):
    numpyro.sample("a", dist.Normal(0, scale if scale > 0 else 1))


def ran(model, sites, *args, **kwargs) -> zv.Posterior:
    """A posterior as after a run in single precision with these latent sites."""
    done = SimpleNamespace(
        sampler=NUTS(model),
        last_state=SimpleNamespace(z=dict.fromkeys(sites)),
        get_samples=lambda group_by_chain: {
            name: jnp.asarray(site, jnp.float32) for name, site in sites.items()
        },
        get_extra_fields=lambda group_by_chain: {
            "z_grad": dict(sites)  # any: terms need no scores
        },
    )
    return zv.from_numpyro(done, args=args, kwargs=kwargs)


def entries(size: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(2, 4, size))


CENTRED = {"mu": X, "tau": np.exp(X), "theta": entries(4)}
DECENTRED = {"mu": X, "tau": np.exp(X), "theta_decentered": entries(4)}
PRIOR = {"mean": 0.0}
reparametrised = handlers.reparam(schools, config={"theta": LocScaleReparam(0)})


def log_of(*names):
    """The log of the Jacobian of exp at a draw whose coordinates have these names."""
    return lambda x: sum(x[name] for name in names)


CASES = {
    "hierarchy": (
        partial(ran, schools, CENTRED, Y, SIGMA, prior=PRIOR),
        (["mu", "tau", "theta"], ["y"], ["mu", "tau"], []),
        {"mu": (), "tau": (), "theta": (4,), "y": (4,)},
        log_of("tau"),
    ),
    "stand-in": (
        partial(ran, reparametrised, DECENTRED, Y, SIGMA, prior=PRIOR),
        (["mu", "tau", "theta_decentered"], ["y"], ["mu", "tau"], []),
        {"mu": (), "tau": (), "theta_decentered": (4,), "y": (4,)},
        log_of("tau"),
    ),
    "regression": (
        partial(
            ran, regression, {"b": entries(2), "s": np.exp(X)}, entries(2)[0, :3], Y[:3], z=Y[:3]
        ),
        (["b", "s"], ["y", "z"], ["b", "s"], ["jeffreys"]),
        {"b": (), "s": (), "y": (3,), "z": (3,), "jeffreys": ()},
        log_of("s"),
    ),
    "loop": (
        partial(ran, walk, {"s": np.exp(X), "level": np.exp(entries(4))}, Y),
        (["s", "level"], ["y"], ["s"], []),
        {"s": (), "level": (4,), "y": (4,)},
        log_of("s", *(f"level[{k}]" for k in range(4))),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_sites_and_jacobian_are_the_log_density(case):
    make, kinds, shapes, jacobian = CASES[case]
    posterior = make()
    precision = jax.config.jax_enable_x64
    terms = posterior.density.terms()
    assert (terms.latent, terms.observed, terms.top, terms.factors) == tuple(map(tuple, kinds))
    found = at_first(terms, posterior)
    assert {name: value.shape for name, value in found.items()} == shapes
    x = posterior.draws[0, :1]
    total = sum(value.sum() for value in found.values())
    total += jacobian(dict(zip(posterior.names, x[0], strict=True)))
    np.testing.assert_allclose(total, posterior.density.at(x)[0], rtol=1e-9)
    assert jax.config.jax_enable_x64 == precision


def at_first(terms, posterior) -> dict[str, np.ndarray]:
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, jax.jit(terms.at)(posterior.draws[0, 0]))


def test_missing_data_are_neither_prior_nor_data():
    sites = {"mu": X, "y_unobserved": entries(4)}
    posterior = ran(imputed, sites, np.where(np.arange(4) < 3, Y + 4, np.nan))
    terms = posterior.density.terms()
    assert (terms.observed, terms.top) == (("y_observed",), ("mu",))
    found = at_first(terms, posterior)
    np.testing.assert_array_equal(found["y_observed"] == 0, np.arange(4) == 3)
    np.testing.assert_array_equal(found["y_unobserved"] == 0, np.arange(4) != 3)


def slopes_are_those_of_differences(posterior, names) -> None:
    """In double precision; and with the arguments as they are the log density is what it is."""
    terms, x = posterior.density.terms(), posterior.draws[0, 0]
    with jax.enable_x64(True):
        given = {name: jnp.asarray(terms.arguments[name], float) for name in names}
        both = jax.jit(jax.value_and_grad(partial(terms.with_arguments, x)))
        same, found = both(given)
        for name, value in given.items():
            assert found[name].dtype == np.float64
            for index in np.ndindex(value.shape):
                sides = [
                    both(given | {name: value.at[index].add(step)})[0] for step in (1e-4, -1e-4)
                ]
                expected = (sides[0] - sides[1]) / 2e-4
                assert abs(expected) > 1e-3
                np.testing.assert_allclose(found[name][index], expected, rtol=1e-6)
    np.testing.assert_allclose(same, posterior.density.at(x[None])[0], rtol=1e-12)


def test_slopes_in_arguments_are_those_of_differences():
    """Positional, by name, inside a dict, and at its default; after a program in single precision
    of the user's, whose arrays stay as they were."""
    z = {name: jnp.asarray(site[0, 0]) for name, site in CENTRED.items()}
    own = jax.jit(lambda z: potential_energy(schools, (Y, SIGMA, PRIOR), {}, z))
    before = own(z)  # and it is kept, as a sampler keeps it
    posterior = ran(schools, CENTRED, Y, SIGMA, prior=PRIOR)
    terms = posterior.density.terms()
    assert set(terms.arguments) == {"y", "sigma", "prior.mean", "scale"}
    slopes_are_those_of_differences(posterior, ["y", "sigma", "prior.mean", "scale"])
    assert terms.find_moved("scale") == ("far",)
    assert terms.find_moved("y") == ()
    with jax.enable_x64(True):
        found = jax.grad(
            lambda scale: terms.natural(posterior.draws[0, 0], {"scale": scale})["far"]
        )(5.0)
    np.testing.assert_allclose(found, -X[0, 0] / 25, rtol=1e-6)
    theta = posterior.draws[0, 0, -4:]
    exact = -0.5 * ((Y - theta) / SIGMA) ** 2 - np.log(SIGMA) - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(at_first(terms, posterior)["y"], exact, rtol=1e-12)
    assert own(z) == before == jax.jit(lambda z: own.__wrapped__(z))(z)
    regressed = ran(
        regression, {"b": entries(2), "s": np.exp(X)}, entries(2)[0, :3], Y[:3], z=Y[:3]
    )
    assert list(regressed.density.terms().arguments) == ["z", "x", "y"]


def test_what_has_no_such_slopes_is_named():
    x = np.zeros(1)
    terms = ran(bounded, {"a": 1 + X / 9}, 3.0).density.terms()
    with pytest.raises(ValueError, match="support of a depends on the argument top"):
        terms.with_arguments(x, {"top": 3.0})
    with pytest.raises(ValueError, match=r"bottom is no argument of the model; it has \['top'\]"):
        terms.with_arguments(x, {"bottom": 3.0})
    with pytest.raises(ValueError, match=r"top has shape \(\); got \(2,\)"):
        terms.with_arguments(x, {"top": np.ones(2)})
    terms = ran(branching, {"a": X}, 3.0).density.terms()
    with pytest.raises(ValueError, match="cannot follow the model through its argument scale"):
        terms.with_arguments(x, {"scale": 3.0})


def mixed(y):
    a = numpyro.sample("a", dist.Normal(0, 1))
    which = numpyro.sample("which", dist.Bernoulli(0.3), infer={"enumerate": "parallel"})
    numpyro.sample("y", dist.Normal(a + which, 1), obs=y)


def subsampled(y):
    a = numpyro.sample("a", dist.Normal(0, 1))
    with numpyro.plate("rows", 4, subsample_size=2) as rows:
        numpyro.sample("y", dist.Normal(a, 1), obs=y[rows])


@pytest.mark.parametrize(
    ("model", "message"), [(mixed, "which is summed out"), (subsampled, "rows takes 2 of 4 data")]
)
def test_likelihoods_that_cannot_be_told_apart(model, message):
    density = ran(model, {"a": X}, jnp.asarray(Y)).density
    for _ in range(2):
        with pytest.raises(ValueError, match=f"the likelihood cannot be told apart.*{message}"):
            density.terms()


def test_a_whole_plate_is_no_part_of_the_data():
    """Evidence needs all data; a plate that says nothing of a part has them."""
    assert not ran(schools, CENTRED, Y, SIGMA, prior=PRIOR).density.constants().meaningless
    assert ran(subsampled, {"a": X}, jnp.asarray(Y)).density.constants().meaningless


@pytest.mark.filterwarnings("ignore")  # those of PyMC and PyTensor are theirs
def test_terms_of_pymc():
    import pymc as pm
    import xarray as xr

    with pm.Model(coords={"school": range(4)}) as model:
        scale = pm.Data("scale", 5.0)
        sigma = pm.Data("sigma", SIGMA, dims="school")
        mu = pm.Normal("mu", 0, scale)
        tau = pm.HalfCauchy("tau", scale)
        theta = pm.Normal("theta", mu, tau, dims="school")
        pm.Deterministic("far", mu / scale)
        pm.Potential("pull", -((theta - sigma) ** 2) / 100)
        pm.Normal("y", theta, sigma, observed=pm.Data("data", Y, dims="school"), dims="school")
        pm.Uniform("low", 0, pm.Data("top", 3.0))
    sites = CENTRED | {"low": 1 + np.tanh(X)}
    places = {name: ("chain", "draw", "school")[: site.ndim] for name, site in sites.items()}
    drawn = xr.Dataset({name: (places[name], site) for name, site in sites.items()})
    precision = jax.config.jax_enable_x64
    for _ in range(2):  # the first time PyTensor's backend may be imported, the second it is there
        posterior = zv.from_pymc(model, xr.DataTree.from_dict({"posterior": drawn}))
    terms = posterior.density.terms()
    assert (terms.latent, terms.observed) == (("mu", "tau", "theta", "low"), ("y",))
    assert (terms.top, terms.factors) == (("mu", "tau", "low"), ("pull",))
    found = at_first(terms, posterior)
    assert {name: value.shape for name, value in found.items() if value.shape} == dict.fromkeys(
        ("theta", "y", "pull"), (4,)
    )
    x = posterior.draws[0, 0]
    named = dict(zip(posterior.names, x, strict=True))
    z = named["low_interval__"]
    total = sum(value.sum() for value in found.values()) + named["tau_log__"]
    total += np.log(3) + z - 2 * np.log1p(np.exp(z))
    np.testing.assert_allclose(total, posterior.density.at(x[None])[0], rtol=1e-9)
    assert set(terms.arguments) == {"scale", "sigma", "data", "top"}
    slopes_are_those_of_differences(posterior, ["scale", "sigma", "data"])
    assert terms.find_moved("scale") == ("far",)
    with pytest.raises(ValueError, match="support of low depends on the argument top"):
        terms.with_arguments(x, {"top": 3.0})
    assert jax.config.jax_enable_x64 == precision


@pytest.mark.filterwarnings("ignore")  # those of PyMC and PyTensor are theirs
def test_sensitivities_of_a_pymc_model_are_exact():
    """Programs that are made while another is traced are kept, and serve the next one."""
    import pymc as pm
    import xarray as xr

    y = np.array([1.0, 2.0, 0.5, 1.5, 3.0])
    with pm.Model() as model:
        mu = pm.Normal("mu", pm.Data("centre", 0.0), 2.0)
        pm.Normal("y", mu, 1.0, observed=y)
    precision = 1 / 4 + len(y)
    mean = y.sum() / precision
    draws = mean + np.random.default_rng(0).normal(size=(2, 200)) / np.sqrt(precision)
    tree = xr.DataTree.from_dict({"posterior": xr.Dataset({"mu": (("chain", "draw"), draws)})})
    posterior = zv.from_pymc(model, tree)

    def slopes(**asked):
        found = zv.sensitivity(posterior, family=zv.Polynomial(2), **asked)
        return dict(zip(found.to, found.derivative[0], strict=True))

    powers = slopes()
    assert powers["prior"] == pytest.approx(-mean / 4 / precision, rel=1e-6)
    assert powers["likelihood"] == pytest.approx(mean / 4 / precision, rel=1e-6)
    of_each = slopes(to="observations")
    exact = (y - mean) / precision
    assert np.allclose([of_each[f"y[{i}]"] for i in range(5)], exact, rtol=1e-6)
    assert slopes(to=["centre"])["centre"] == pytest.approx(1 / 4 / precision, rel=1e-6)
