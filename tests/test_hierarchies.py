"""Hierarchies with known means: what their scores do to fits, and the coordinates that help."""

import warnings
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import zerovar as zv
from benchmarks.known_means import hierarchy
from zerovar.fitting import Method
from zerovar.inference.fits import fit_answer
from zerovar.inference.task import Task

CAFES = "2 × 15 groups"


@pytest.mark.parametrize("name", ["8 groups", CAFES])
def test_exact_draws_have_the_means_and_scores_of_the_model(name):
    """Means by quadrature, scores by differentiation, draws by conditional normals: three ways."""
    found = hierarchy(np.random.default_rng(0), 2000, name, "centred")
    f, x, s = found.f[0], found.x[0], found.s[0]
    z = (f.mean(axis=0) - found.means) / np.hypot(f.std(axis=0) / np.sqrt(len(f)), found.errors)
    assert np.abs(z).max() < 4
    for identity in (s, x * s + 1):  # Stein's
        z = identity.mean(axis=0) / identity.std(axis=0) * np.sqrt(len(x))
        assert np.abs(z).max() < 4.5


def test_leave_out_residuals_contradict_an_intercept_that_discounts_draws():
    """The café model: a kernel's intercept is off by far more than its influences scatter; moved by
    what leave-out residuals say beyond chance it is not."""
    family = zv.Kernel(zv.kernels.InverseMultiquadric(6.0)) + zv.Polynomial(1)
    as_fitted, moved, reported = [], [], []
    for replicate in range(8):
        found = hierarchy(np.random.default_rng(replicate), 500, CAFES, "centred")
        task = Task.of(zv.Sample(found.x, found.s), found.f[0])
        answer = fit_answer(task, Method(family), zv.in_sample())
        there = answer.reconcile()
        error = np.maximum(answer.scatter, answer.scatter_in_a_mean)
        as_fitted.append((answer.value - found.means) / answer.scatter)
        moved.append((there.value - found.means) / error)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            user = zv.estimate(found.x, found.s, found.f, family=family)
        reported.append((user.value - found.means) / user.std_error)
        assert np.array_equal(user.value, answer.value)  # a user's family reports its intercept

    def rms(z):
        return np.sqrt(np.mean(np.square(z)))

    # 112 deviations, of which those of one replicate go together: 1 ± 0.25
    assert rms(moved) < 1.5
    assert rms(reported) < 1.5
    assert rms(as_fitted) > 1.5  # the negative control


@pytest.mark.whole
@pytest.mark.parametrize("name", ["8 groups, weak data", "15 groups", CAFES])
def test_more_effort_gives_no_less(name):
    """Centred hierarchies, given as arrays: what the low effort gains, the default keeps, as the
    errors have it and as the means do."""
    reported, off = {"low": [], "normal": []}, {"low": [], "normal": []}
    for replicate in range(4):
        found = hierarchy(np.random.default_rng(replicate), 1000, name, "centred")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for effort, errors in reported.items():
                answer = zv.estimate(found.x, found.s, found.f, family=zv.Automatic(effort))
                errors.append(answer.std_error / answer.plain_std_error)
                off[effort].append((answer.value - found.means) / answer.plain_std_error)
    low, normal = (np.exp(np.mean(np.log(reported[effort]))) for effort in ("low", "normal"))
    assert normal < 1.1 * low
    assert low < 0.5  # else there is nothing to lose
    low, normal = (np.sqrt(np.mean(np.square(off[effort]))) for effort in ("low", "normal"))
    assert normal < 1.5 * low  # the four samples' errors go together: the ratio is known to a half


def test_matrices_of_a_coupling_are_inverted_and_counted():
    rng = np.random.default_rng(1)
    roots = jnp.asarray(np.tril(rng.normal(size=(3, 2, 2))) + 2 * np.eye(2))
    there = zv.Coupling([(range(2, 8), lambda x: (jnp.tile(x[:2], 3), jnp.exp(x[0]) * roots))])
    back = zv.Coupling(
        [(range(2, 8), lambda x: (jnp.tile(x[:2], 3), jnp.exp(x[0]) * roots))], backwards=True
    )
    x, s = rng.normal(size=(2, 5, 8))
    y, t = there.map(x, s)
    again, scores = back.map(y, t)
    assert np.allclose(again, x)
    assert np.allclose(scores, s)
    by_jacobian = zv.Coordinates(there.forward).map(x, s)
    assert np.allclose(by_jacobian[1], t)


def test_non_centred_coordinates_are_found_for_a_multivariate_normal_site():
    """Against the log density of the non-centred form, differentiated; μ has a flat prior, from
    which nothing can be sampled. Draws are any: an adapter need not know."""
    numpyro = pytest.importorskip("numpyro")
    import numpyro.distributions as dist
    from numpyro.infer import NUTS

    correlation = np.linalg.cholesky([[1.0, 0.5], [0.5, 1.0]]).astype(np.float32)

    def pairs():
        mu = numpyro.sample("mu", dist.ImproperUniform(dist.constraints.real, (), (2,)))
        numpyro.factor("prior of mu", -0.5 * jnp.sum(mu**2))
        scale = numpyro.sample("scale", dist.LogNormal(0, 1))
        prior = dist.MultivariateNormal(mu, scale_tril=scale * jnp.asarray(correlation))
        effects = numpyro.sample("effects", prior.expand([3]))
        numpyro.sample("y", dist.Normal(effects, 1).to_event(2), obs=jnp.ones((3, 2)))

    rng = np.random.default_rng(0)
    sites = {
        "mu": rng.normal(size=(1, 8, 2)),
        "scale": np.exp(0.5 * rng.normal(size=(1, 8))),
        "effects": rng.normal(size=(1, 8, 3, 2)),
    }
    sites = {name: array.astype(np.float32) for name, array in sites.items()}
    ran = SimpleNamespace(
        sampler=NUTS(pairs),
        last_state=SimpleNamespace(z=dict.fromkeys(sorted(sites))),
        get_samples=lambda group_by_chain: sites,
        get_extra_fields=lambda group_by_chain: {},
    )
    posterior = zv.from_numpyro(ran)
    mapped = posterior.coordinates["non-centred"](zv.Sample(posterior.draws, posterior.scores))

    def log_density(y):
        z, mu, log_scale = y[:6].reshape(3, 2), y[6:8], y[8]
        effects = mu + jnp.exp(log_scale) * z @ correlation.T
        return -0.5 * (jnp.sum(y**2) + jnp.sum((effects - 1) ** 2))

    scores = jax.jit(jax.vmap(jax.grad(log_density)))(mapped.draws)
    assert np.abs(mapped.scores - scores).max() < 1e-3  # sites are in single precision
    assert mapped.names == (
        *(f"effects_decentered[{j}]" for j in range(6)),
        "mu[0]",
        "mu[1]",
        "scale",
    )
