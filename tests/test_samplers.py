"""Each page on a sampler runs with the real package, and the posterior that it ends with is right: its scores, its means.

Stan's own tools cannot be installed everywhere: CmdStan's files are made by hand here, and BridgeStan's model is an object with
the same methods.
"""

import re
import warnings
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from problems import eight_schools_log_density, eight_schools_means

import zerovar as zv

PAGES = Path(__file__).parent.parent / "docs" / "samplers"
SHIPPED = np.load(Path(zv.__file__).parent / "data" / "eight_schools.npz")
_ORDER = [8, 9, *range(8)]  # μ, log τ, z in the shipped draws


def shipped(chains: int = 2) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draws (μ, log τ, z), their scores, and (μ, τ, θ), 500 draws a chain."""
    return tuple(
        SHIPPED[name][:chains, ::2, order]
        for name, order in (("draws", _ORDER), ("scores", _ORDER), ("values", list(range(10))))
    )


def gradient(x: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """Finite differences of the log density, by hand."""
    return np.stack(
        [
            (eight_schools_log_density(x + step * e) - eight_schools_log_density(x - step * e)) / (2 * step)
            for e in np.eye(x.shape[-1])
        ],
        axis=-1,
    )


def write_cmdstan(folder: Path, warmup: int = 0) -> None:
    """Two chains as CmdStan writes them: diagnostic files with the gradients of the potential, output files beside them."""
    x, s, v = shipped()
    settings = f"# stan_version_major = 2\n#   num_samples = {x.shape[1]}\n#   save_warmup = {int(warmup > 0)}\n#   thin = 1\n"
    inner = ["mu", "tau", *(f"z.{k + 1}" for k in range(8))]
    outer = ["mu", "tau", *(f"theta.{k + 1}" for k in range(8))]
    for k in range(2):
        lp = eight_schools_log_density(x[k])[:, None]
        tables = {
            "diagnostic": (
                ["lp__", *inner, *(f"p_{n}" for n in inner), *(f"g_{n}" for n in inner)],
                [lp, x[k], 0 * x[k], -s[k]],
            ),
            "output": (["lp__", *outer], [lp, v[k]]),
        }
        for kind, (names, columns) in tables.items():
            rows = np.concatenate(columns, axis=1)
            rows = np.concatenate([np.full((warmup, rows.shape[1]), 9e9), rows])
            lines = [",".join(f"{number:.17g}" for number in row) for row in rows]
            middle = "# Adaptation terminated\n# Step size = 0.5\n"
            text = settings + ",".join(names) + "\n" + "\n".join(lines[:warmup]) + ("\n" if warmup else "")
            text += middle + "\n".join(lines[warmup:]) + "\n#\n#  Elapsed Time: 0.1 seconds (Total)\n"
            (folder / f"{kind}_{k + 1}.csv").write_text(text, encoding="utf-8")


class BridgeModel:
    """What zerovar uses of bridgestan.StanModel: parameters mu, tau, z on the natural scale."""

    def param_names(self):
        return ["mu", "tau", *(f"z.{k + 1}" for k in range(8))]

    def param_unconstrain(self, theta):
        return np.concatenate([theta[:1], np.log(theta[1:2]), theta[2:]])

    def log_density_gradient(self, x):
        return eight_schools_log_density(x), gradient(x)


def bridge_draws() -> np.ndarray:
    x, _, _ = shipped()
    return np.concatenate([x[..., :1], np.exp(x[..., 1:2]), x[..., 2:]], axis=-1)


@cache
def after(page: str, folder: Path) -> dict:
    """The names that a page's code leaves, run as a user would."""
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    names: dict = {"model": BridgeModel(), "draws": bridge_draws()} if page == "stan" else {}
    precision = jax.config.jax_enable_x64
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")  # those of the samplers' packages are theirs
        patch.chdir(folder)
        for example in re.findall(r"```python\n(.*?)```", text, flags=re.S):
            exec(compile(example, f"{page}.md", "exec"), names)
    jax.config.update("jax_enable_x64", precision)  # PyTensor's JAX backend, imported by nutpie, turns it on
    return names


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("stan")
    write_cmdstan(made)
    return made


# page, and the names of the posteriors that its code leaves; a page runs once, so that its tests belong to one worker
POSTERIORS = {
    "numpyro": ["posterior"],
    "pymc": ["free", "posterior"],
    "blackjax": ["posterior"],
    "stan": ["posterior", "other"],
}


@pytest.mark.parametrize("page", [pytest.param(page, marks=pytest.mark.xdist_group(page)) for page in POSTERIORS])
def test_scores_and_means_of_eight_schools(page, folder):
    names = after(page, folder)
    for name in POSTERIORS[page]:
        held(names[name])
    if page == "numpyro":
        values, mcmc = names["posterior"].values, names["mcmc"]
        theta = np.stack([values[f"theta[{k}]"] for k in range(8)])
        np.testing.assert_allclose(values["best"], theta.max(axis=0), rtol=1e-6)  # what the user adds
        mcmc.get_extra_fields = lambda group_by_chain: {}  # as if z_grad had not been asked for
        np.testing.assert_allclose(zv.from_numpyro(mcmc).scores, names["posterior"].scores, atol=1e-4, rtol=1e-4)


def held(posterior: zv.Posterior) -> None:
    """Scores by finite differences, `check`, means within their errors of the exact ones, gains above one."""
    values = posterior.values
    tau = values["tau"]
    if "theta[1]" in values and "theta[8]" in values:
        theta = [f"theta[{k}]" for k in range(1, 9)]
    else:
        theta = [name for name in values if re.fullmatch(r"theta\[.*\]", name)]
    if theta:
        z = (np.stack([values[name] for name in theta], axis=-1) - values["mu"][..., None]) / tau[..., None]
    else:
        z = np.stack([values[f"z[{k}]"] for k in range(1, 9)], axis=-1)
    x = np.concatenate([values["mu"][..., None], np.log(tau)[..., None], z], axis=-1)
    # the sampler's own order of coordinates, found by comparing columns
    gap = np.abs(posterior.draws[..., :, None] - x[..., None, :]).mean(axis=(0, 1))
    order = gap.argmin(axis=0)
    assert sorted(order) == list(range(10))
    single = np.abs(posterior.draws - posterior.draws.astype(np.float32)).max() == 0
    tolerance = 1e-3 if single else 1e-6
    np.testing.assert_allclose(posterior.draws[..., order], x, atol=tolerance, rtol=tolerance)
    some = (slice(None), slice(None, None, 25))
    at = posterior.draws[..., order][some]
    np.testing.assert_allclose(posterior.scores[..., order][some], gradient(at), atol=2 * tolerance, rtol=tolerance)
    assert zv.check(zv.Sample(posterior.draws, posterior.scores)).ok
    assert not zv.check(zv.Sample(posterior.draws, -posterior.scores)).ok

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", zv.ZerovarWarning)
        answer = zv.estimate(
            posterior.draws, posterior.scores, {name: values[name] for name in ("mu", "tau", *theta)}, family=zv.Polynomial(2)
        )
    truth = eight_schools_means()[: len(answer.names)]
    assert np.all(np.abs(answer.value - truth) < 5 * answer.std_error)
    assert np.all(answer.gain > 1)


def test_emcee(folder):
    """The effects are integrated out: two parameters, the same means."""
    names = after("emcee", folder)
    posterior, log_density = names["posterior"], names["log_density"]
    flat = posterior.draws.reshape(-1, 2)[::50]
    with jax.enable_x64(True):
        value = jax.vmap(log_density)
        steps = [(value(flat + 1e-5 * e) - value(flat - 1e-5 * e)) / 2e-5 for e in np.eye(2)]
        expected = np.stack(steps, axis=-1)
    np.testing.assert_allclose(posterior.scores.reshape(-1, 2)[::50], expected, atol=1e-6)
    assert posterior.draws.shape == (16, 200, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", zv.ZerovarWarning)
        assert zv.check(zv.Sample(*posterior[:2])).ok
        answer = zv.estimate(*posterior, family=zv.Polynomial(3))
    assert answer.names == ("mu", "tau")
    assert np.all(np.abs(answer.value - eight_schools_means()[:2]) < 5 * answer.std_error)
    assert np.all(answer.gain > 1)


def test_arviz(folder, capsys):
    names = after("arviz", folder)
    posterior = names["posterior"]
    assert list(posterior.values) == ["rate[north]", "rate[south]", "ratio"]
    np.testing.assert_allclose(posterior.scores, np.array([2.0, 5.0]) - np.exp(posterior.draws))
    np.testing.assert_allclose(posterior.values["ratio"], posterior.values["rate[north]"] / posterior.values["rate[south]"])
    answer = zv.estimate(*posterior, family=zv.Polynomial(3))
    assert np.all(np.abs(answer.value - [2.0, 5.0, 0.5]) < 5 * answer.std_error)
    assert np.all(answer.gain > 1)


@pytest.mark.xdist_group("pymc")
def test_both_lines_of_arviz_read_the_same(folder):
    import xarray as xr

    data = after("pymc", folder)["idata"]
    groups = {name: data[name] for name in ("posterior", "sample_stats")}
    tree = xr.DataTree.from_dict(
        {name: group if isinstance(group, xr.Dataset) else group.to_dataset() for name, group in groups.items()}
    )
    ours, theirs = zv.from_arviz(tree), zv.from_arviz(data)
    np.testing.assert_array_equal(ours.draws, theirs.draws)
    np.testing.assert_array_equal(ours.scores, theirs.scores)
    assert list(ours.values) == list(theirs.values)
    assert "theta[St Paul's]" in ours.values
    table = zv.summary(data, var_names="mu", family=zv.Polynomial(2))  # an InferenceData by itself
    assert list(table.index) == ["mu"]


def test_numpyro_models_of_every_kind():
    """A simplex, a correlation matrix, a support that depends on another site: scores by differences of the potential."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import NUTS, Predictive
    from numpyro.infer.util import potential_energy

    def model(data):
        share = numpyro.sample("share", dist.Dirichlet(jnp.ones(3)))
        factor = numpyro.sample("factor", dist.LKJCholesky(2, 2.0))
        top = numpyro.sample("top", dist.HalfNormal(2.0))
        numpyro.sample("below", dist.Uniform(0.0, top))
        numpyro.deterministic("odds", share[0] / (1 - share[0]))
        numpyro.sample("obs", dist.Normal(share @ jnp.arange(3.0) + factor[1, 0], top), obs=data)

    latent = ("below", "factor", "share", "top")
    with jax.enable_x64(True):
        data = jnp.array([0.5, 1.5, 1.0])
        sites = Predictive(model, num_samples=12)(jax.random.key(0), data=None)
        sites = {name: site.reshape(2, 6, *site.shape[1:]) for name, site in sites.items() if name != "obs"}
        ran = SimpleNamespace(  # a run whose draws are the prior's: an adapter need not know
            sampler=NUTS(model),
            last_state=SimpleNamespace(z=dict.fromkeys(latent)),
            get_samples=lambda group_by_chain: sites,
            get_extra_fields=lambda group_by_chain: {},
        )
        posterior = zv.from_numpyro(ran, args=(data,))
        sizes = {"below": (), "factor": (1,), "share": (2,), "top": ()}

        def potential(x):
            parts = jnp.split(x, np.cumsum([int(np.prod(sizes[name])) for name in latent])[:-1])
            return potential_energy(model, (data,), {}, {n: p.reshape(sizes[n]) for n, p in zip(latent, parts, strict=True)})

        potential = jax.jit(potential)
        x = posterior.draws.reshape(12, 5)[:3]
        expected = np.stack(
            [(potential_of(potential, x, -e) - potential_of(potential, x, e)) / 2e-5 for e in np.eye(5)], axis=1
        )
    np.testing.assert_allclose(posterior.scores.reshape(12, 5)[:3], expected, atol=1e-6, rtol=1e-6)
    assert {"share[2]", "factor[1, 0]", "top", "below", "odds"} <= set(posterior.values)


def potential_of(potential, x: np.ndarray, direction: np.ndarray) -> np.ndarray:
    return np.array([float(potential(row + 1e-5 * direction)) for row in x])


def test_repeated_draws_have_equal_scores():
    """Compiled batches differ in the last digit between places; rejected proposals must not."""
    import jax.numpy as jnp

    def log_density(x):
        def step(u, _):
            return u + 0.1 * jnp.stack([u[0] * x[0] - u[0] * u[1], u[0] * u[1] - u[1] * x[1]]), u

        return -jnp.sum(jnp.log(jax.lax.scan(step, jnp.array([1.0, 0.5]) + 0 * x[:2], length=50)[1]) ** 2) - 0.5 * x @ x

    x = np.repeat(np.random.default_rng(0).normal(size=(600, 3)), 2, axis=0)[1:]
    posterior = zv.from_log_density(log_density, 0.1 * x, transform=lambda x: {"z": x[2], "a": jnp.exp(x[0])})
    assert list(posterior.values) == ["z", "a"]  # in the user's order
    for array in (posterior.scores[0], posterior.values["a"][0]):
        np.testing.assert_array_equal(array[1::2], array[2::2])


def test_arrays_that_jax_has_seen_in_single_precision():
    import jax.numpy as jnp

    data = np.random.default_rng(0).normal(size=20)
    x = np.random.default_rng(1).normal(size=(50, 2))

    def log_density(x):
        return -0.5 * jnp.sum((data - x[0]) ** 2) - 0.5 * x @ x

    jax.jit(log_density)(x[0])
    posterior = zv.from_log_density(log_density, x)
    expected = -x + np.stack([np.sum(data - x[:, :1], axis=1), 0 * x[:, 0]], axis=1)
    np.testing.assert_allclose(posterior.scores[0], expected, rtol=1e-12)


def test_single_precision_where_double_cannot_be_had():
    import jax.numpy as jnp

    start = jnp.zeros(())  # single, made by the user: a loop from it cannot carry doubles

    def log_density(x):
        return -0.5 * jax.lax.scan(lambda total, entry: (total + entry**2, None), start, x)[0]

    x = np.random.default_rng(0).normal(size=(50, 2))
    with pytest.warns(zv.NumericalWarning, match=r"log_density .* in single"):
        posterior = zv.from_log_density(log_density, x)
    np.testing.assert_allclose(posterior.scores[0], -x, rtol=1e-6)
    with pytest.raises(ValueError, match="as a JAX function of one draw"):
        zv.from_log_density(lambda x: np.sum(np.asarray(x)), x)


def test_cmdstan_leaves_saved_warmup_out_and_reads_diagnostics_alone(tmp_path):
    write_cmdstan(tmp_path, warmup=7)
    alone = zv.from_cmdstan([tmp_path / f"diagnostic_{k}.csv" for k in (1, 2)])
    x, s, _ = shipped()
    np.testing.assert_array_equal(alone.draws, x)
    np.testing.assert_array_equal(alone.scores, s)
    assert list(alone.values) == ["mu", "tau", *(f"z[{k}]" for k in range(1, 9))]


@pytest.mark.parametrize(
    "package", ["numpyro", "pymc", "nutpie", "blackjax", "emcee", "arviz", "zarr", "h5netcdf", "matplotlib", "pandas"]
)
def test_optional_packages_are_here(package):
    """These tests are of real packages: without one they must fail, not vanish."""
    from importlib.metadata import version

    assert version(package)
