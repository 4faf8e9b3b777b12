"""Each page on a sampler runs with the real package, and the posterior that it ends with is right:
its scores, its means.

Stan's own tools cannot be installed everywhere: CmdStan's files are made by hand here, and
BridgeStan's model is an object with the same methods.
"""

import dataclasses
import re
import warnings
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
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
            (eight_schools_log_density(x + step * e) - eight_schools_log_density(x - step * e))
            / (2 * step)
            for e in np.eye(x.shape[-1])
        ],
        axis=-1,
    )


def write_cmdstan(folder: Path, warmup: int = 0) -> None:
    """Two chains as CmdStan writes them: diagnostic files with the gradients of the potential,
    output files beside them."""
    x, s, v = shipped()
    settings = "# stan_version_major = 2\n"
    for name, value in (
        ("num_warmup", warmup),
        ("num_samples", x.shape[1]),
        ("save_warmup", int(warmup > 0)),
        ("thin", 1),
    ):
        settings += f"#   {name} = {value}\n"
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
            text = (
                settings
                + ",".join(names)
                + "\n"
                + "\n".join(lines[:warmup])
                + ("\n" if warmup else "")
            )
            text += (
                middle + "\n".join(lines[warmup:]) + "\n#\n#  Elapsed Time: 0.1 seconds (Total)\n"
            )
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
    if page == "pymc":
        # PyTensor's JAX backend turns it on when it is first imported. An earlier test may have
        # imported it: on here by all means, as a user's fresh session has it, and off again below
        jax.config.update("jax_enable_x64", True)
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")  # those of the samplers' packages are theirs
        patch.chdir(folder)
        for example in re.findall(r"```python\n(.*?)```", text, flags=re.S):
            exec(compile(example, f"{page}.md", "exec"), names)
    jax.config.update("jax_enable_x64", precision)
    return names


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("stan")
    write_cmdstan(made)
    return made


# page, and the names of the posteriors that its code leaves
POSTERIORS = {
    "numpyro": ["posterior"],
    "pymc": ["free", "posterior"],
    "blackjax": ["posterior"],
    "stan": ["posterior", "other"],
}


# Stan's here, and NumPyro's by the README; `make whole` and `make extras` run all of them
LONG = ("numpyro", "pymc", "blackjax")


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.whole] * (page in LONG)) for page in POSTERIORS],
)
def test_scores_and_means_of_eight_schools(page, folder):
    names = after(page, folder)
    for name in POSTERIORS[page]:
        held(names[name])
    if page == "pymc":
        both_lines_of_arviz_read_the_same(names["idata"])
    if page == "numpyro":
        values, mcmc = names["posterior"].values, names["mcmc"]
        theta = np.stack([values[f"theta[{k}]"] for k in range(8)])
        # what the user adds
        np.testing.assert_allclose(values["best"], theta.max(axis=0), rtol=1e-6)
        mcmc.get_extra_fields = lambda group_by_chain: {}  # as if z_grad had not been asked for
        np.testing.assert_allclose(
            zv.from_numpyro(mcmc).scores, names["posterior"].scores, atol=1e-4, rtol=1e-4
        )


def both_lines_of_arviz_read_the_same(data) -> None:
    import xarray as xr

    groups = {name: data[name] for name in ("posterior", "sample_stats")}
    tree = xr.DataTree.from_dict(
        {
            name: group if isinstance(group, xr.Dataset) else group.to_dataset()
            for name, group in groups.items()
        }
    )
    ours, theirs = zv.from_arviz(tree), zv.from_arviz(data)
    np.testing.assert_array_equal(ours.draws, theirs.draws)
    np.testing.assert_array_equal(ours.scores, theirs.scores)
    assert list(ours.values) == list(theirs.values)
    assert "theta[St Paul's]" in ours.values
    table = zv.summary(data, var_names="mu", family=zv.Polynomial(2))  # an InferenceData by itself
    assert list(table.index) == ["mu"]


def held(posterior: zv.Posterior) -> None:
    """Scores by finite differences, `check`, means within their errors of the exact ones, gains
    above one."""
    values = posterior.values
    tau = values["tau"]
    if "theta[1]" in values and "theta[8]" in values:
        theta = [f"theta[{k}]" for k in range(1, 9)]
    else:
        theta = [name for name in values if re.fullmatch(r"theta\[.*\]", name)]
    if theta:
        z = (np.stack([values[name] for name in theta], axis=-1) - values["mu"][..., None]) / tau[
            ..., None
        ]
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
    np.testing.assert_allclose(
        posterior.scores[..., order][some], gradient(at), atol=2 * tolerance, rtol=tolerance
    )
    assert zv.check(zv.Sample(posterior.draws, posterior.scores)).ok
    assert not zv.check(zv.Sample(posterior.draws, -posterior.scores)).ok

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", zv.ZerovarWarning)
        answer = zv.estimate(
            posterior.draws,
            posterior.scores,
            {name: values[name] for name in ("mu", "tau", *theta)},
            family=zv.Polynomial(2),
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
        assert zv.check(posterior).ok
        answer = zv.estimate(posterior, family=zv.Polynomial(3))
    assert answer.names == ("mu", "tau")
    assert np.all(np.abs(answer.value - eight_schools_means()[:2]) < 5 * answer.std_error)
    assert np.all(answer.gain > 1)


def test_arviz(folder, capsys):
    names = after("arviz", folder)
    posterior = names["posterior"]
    assert list(posterior.values) == ["rate[north]", "rate[south]", "ratio"]
    np.testing.assert_allclose(posterior.scores, np.array([2.0, 5.0]) - np.exp(posterior.draws))
    np.testing.assert_allclose(
        posterior.values["ratio"], posterior.values["rate[north]"] / posterior.values["rate[south]"]
    )
    answer = zv.estimate(posterior, family=zv.Polynomial(3))
    assert np.all(np.abs(answer.value - [2.0, 5.0, 0.5]) < 5 * answer.std_error)
    assert np.all(answer.gain > 1)


def as_if_run(model, latent, **sites):
    """A NumPyro run whose draws (chain, draw, …) are any: an adapter need not know."""
    from numpyro.infer import NUTS

    return SimpleNamespace(
        sampler=NUTS(model),
        last_state=SimpleNamespace(z=dict.fromkeys(latent)),
        get_samples=lambda group_by_chain: sites,
        get_extra_fields=lambda group_by_chain: {},
    )


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore:Continuous inference poorly handles circular")
def test_numpyro_angles():
    """On a torus 1000 draws of NUTS are worth a hundred times as many and more, with scores as
    known; on NumPyro's unconstrained scale, the control, they are not."""
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS

    kappa, mu = np.array([1.5, 0.8]), np.array([2.5, -0.4])

    def model():
        numpyro.sample("t", dist.VonMises(mu, kappa).to_event(1))

    mcmc = MCMC(NUTS(model), num_warmup=200, num_samples=1000, progress_bar=False)
    mcmc.run(jax.random.key(0), extra_fields=("z_grad",))
    posterior = zv.from_numpyro(mcmc, space=zv.spaces.Torus())
    np.testing.assert_allclose(
        posterior.scores, -kappa * np.sin(posterior.draws - mu), atol=1e-5, rtol=1e-4
    )
    assert list(posterior.values) == ["cos t[0]", "sin t[0]", "cos t[1]", "sin t[1]"]
    on_line = dataclasses.replace(zv.from_numpyro(mcmc), values=posterior.values)
    found, control = (zv.estimate(one, family=zv.Polynomial(3)) for one in (posterior, on_line))
    ratio = scipy.special.ive(1, kappa) / scipy.special.ive(0, kappa)
    truth = np.stack([ratio * np.cos(mu), ratio * np.sin(mu)], axis=1).ravel()
    assert (np.abs(found.value - truth) < 5 * found.std_error + 1e-6).all()
    assert found.gain.min() > 100 > 10 * control.gain.min()


def test_numpyro_sites_in_their_space():
    """Unwrapped angles, a simplex and bounded sites, with scores as known; what is none of them
    says so."""
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer.reparam import CircularReparam

    rng = np.random.default_rng(0)
    angle, share = rng.vonmises(1.0, 2.0, (2, 6)), rng.dirichlet(np.ones(3), size=(2, 6))
    rate, part = rng.exponential(size=(2, 6)), rng.uniform(size=(2, 6, 2))

    @numpyro.handlers.reparam(config={"t": CircularReparam()})
    def angles():
        numpyro.sample("t", dist.VonMises(1.0, 2.0))

    def proportions():
        p = numpyro.sample("p", dist.Dirichlet(jnp.array([2.0, 3.0, 4.0])))
        numpyro.deterministic("odds", p[0] / p[1])

    def bounded():
        numpyro.sample("a", dist.Exponential(2.0))
        numpyro.sample("b", dist.Uniform(0, 1).expand([2]).to_event(1))

    with jax.enable_x64(True):
        turns = 2 * np.pi * rng.integers(-9, 9, size=(2, 6))
        ran = as_if_run(angles, ["t_unwrapped"], t=angle, t_unwrapped=angle + turns)
        posterior = zv.from_numpyro(ran, space=zv.spaces.Torus())
        assert (posterior.names, list(posterior.values)) == (("t",), ["cos t", "sin t"])
        np.testing.assert_allclose(posterior.scores[..., 0], -2 * np.sin(angle - 1))
        with pytest.warns(zv.ScoreWarning, match=r"t_unwrapped: .*space=zv.spaces.Torus\(\)"):
            zv.from_numpyro(ran)

        ran = as_if_run(proportions, ["p"], p=share, odds=share[..., 0] / share[..., 1])
        posterior = zv.from_numpyro(ran, space=zv.spaces.Simplex())
        assert list(posterior.values) == ["p[0]", "p[1]", "p[2]", "odds"]
        np.testing.assert_allclose(
            posterior.scores, [1, 2] / share[..., :2] - 3 / share[..., 2:], rtol=1e-10
        )
        with pytest.raises(ValueError, match=r"Torus; got p in Simplex.*Leave space out"):
            zv.from_numpyro(ran, space=zv.spaces.Torus())
        with pytest.raises(ValueError, match="no sites on a Sphere"):
            zv.from_numpyro(ran, space=zv.spaces.Sphere())

        ran = as_if_run(bounded, ["a", "b"], a=rate, b=part)
        posterior = zv.from_numpyro(ran, space=zv.spaces.Box(0, [np.inf, 1, 1]))
        np.testing.assert_allclose(posterior.scores, np.broadcast_to([-2, 0, 0], (2, 6, 3)))
        with pytest.raises(ValueError, match="Box; got b in Interval"):
            zv.from_numpyro(ran, space=zv.spaces.Box(0, np.inf))


def test_numpyro_models_of_every_kind():
    """A simplex, a correlation matrix, a support that depends on another site: scores by
    differences of the potential."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer.util import potential_energy

    def model(data):
        share = numpyro.sample("share", dist.Dirichlet(jnp.ones(3)))
        factor = numpyro.sample("factor", dist.LKJCholesky(2, 2.0))
        top = numpyro.sample("top", dist.HalfNormal(2.0))
        numpyro.sample("below", dist.Uniform(0.0, top))
        numpyro.deterministic("odds", share[0] / (1 - share[0]))
        numpyro.sample("obs", dist.Normal(share @ jnp.arange(3.0) + factor[1, 0], top), obs=data)

    latent = ("below", "factor", "share", "top")
    rng = np.random.default_rng(0)
    share, angle, top = (
        rng.dirichlet(np.ones(3), size=(2, 6)),
        rng.uniform(-1.5, 1.5, (2, 6)),
        2 * rng.uniform(size=(2, 6)),
    )
    factor = np.stack(
        [np.ones((2, 6)), np.zeros((2, 6)), np.sin(angle), np.cos(angle)], axis=2
    ).reshape(2, 6, 2, 2)
    sites = {"share": share, "factor": factor, "top": top, "below": top * rng.uniform(size=(2, 6))}
    sites["odds"] = share[..., 0] / (1 - share[..., 0])
    with jax.enable_x64(True):
        data = np.array([0.5, 1.5, 1.0])
        ran = as_if_run(model, latent, **sites)
        posterior = zv.from_numpyro(ran, args=(data,))
        sizes = {"below": (), "factor": (1,), "share": (2,), "top": ()}

        def potential(x):
            parts = jnp.split(x, np.cumsum([int(np.prod(sizes[name])) for name in latent])[:-1])
            return potential_energy(
                model,
                (data,),
                {},
                {n: p.reshape(sizes[n]) for n, p in zip(latent, parts, strict=True)},
            )

        potential = jax.jit(potential)
        x = posterior.draws.reshape(12, 5)[:3]
        expected = np.stack(
            [
                (potential_of(potential, x, -e) - potential_of(potential, x, e)) / 2e-5
                for e in np.eye(5)
            ],
            axis=1,
        )
        density_is_that_of(posterior)
    np.testing.assert_allclose(posterior.scores.reshape(12, 5)[:3], expected, atol=1e-6, rtol=1e-6)
    assert {"share[2]", "factor[1, 0]", "top", "below", "odds"} <= set(posterior.values)
    assert posterior.names == ("below", "factor[0]", "share[0]", "share[1]", "top")


@pytest.mark.whole
@pytest.mark.filterwarnings(
    "ignore:Some algorithms will automatically enumerate", "ignore::zerovar.ZerovarWarning"
)
def test_numpyro_sites_that_are_summed_out():
    """A mixture whose labels NUTS enumerates; the table straight from the run."""
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS

    def model(data):
        centre = numpyro.sample("centre", dist.Normal(0, 3))
        with numpyro.plate("data", len(data)):
            k = numpyro.sample("k", dist.Bernoulli(0.3))
            numpyro.sample("obs", dist.Normal(centre + 2 * k, 1), obs=data)

    data = np.array([0.1, 2.2, 0.4, -0.3, 1.9], np.float32)
    mcmc = MCMC(NUTS(model), num_warmup=100, num_samples=200, progress_bar=False)
    mcmc.run(jax.random.key(0), data, extra_fields=("z_grad",))
    given = zv.from_numpyro(mcmc)
    mcmc.get_extra_fields = lambda group_by_chain: {}  # as if z_grad had not been asked for
    posterior = zv.from_numpyro(mcmc)
    # as single precision goes
    np.testing.assert_allclose(posterior.scores, given.scores, rtol=1e-4, atol=1e-4)
    c = posterior.draws[..., :1]
    first, second = 0.7 * np.exp(-((data - c) ** 2) / 2), 0.3 * np.exp(-((data - c - 2) ** 2) / 2)
    expected = (
        np.sum((first * (data - c) + second * (data - c - 2)) / (first + second), axis=-1)
        - c[..., 0] / 9
    )
    np.testing.assert_allclose(posterior.scores[..., 0], expected, rtol=1e-4, atol=1e-4)
    assert list(zv.summary(mcmc, family=zv.Polynomial(2)).index) == ["centre"]
    assert zv.check(mcmc) == zv.check(posterior)
    assert zv.estimate(mcmc, family=zv.Polynomial(2)).gain[0] > 2


def test_entries_that_numpyro_leaves_out_of_its_samples():
    """As of the first step of an enumerated scan: gradients along those that are there, or words.
    The real thing is in `tests/test_examples.py`."""
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import NUTS

    def model():
        numpyro.sample("step", dist.Normal(0, 1).expand([4]).to_event(1))

    x = np.random.default_rng(0).normal(size=(2, 6, 4)).astype(np.float32)
    ran = SimpleNamespace(
        sampler=NUTS(model),
        last_state=SimpleNamespace(z={"step": x[:, -1]}),
        get_samples=lambda group_by_chain: {"step": x[:, :, 1:]},
        get_extra_fields=lambda group_by_chain: {"z_grad": {"step": x}},
    )
    posterior = zv.from_numpyro(ran)
    np.testing.assert_array_equal(posterior.scores, -posterior.draws)
    assert not posterior.coordinates
    ran.last_state.z["step"] = x[:, -2]  # thinned: which entries are there cannot be told
    with pytest.raises(ValueError, match="kept 3 numbers a draw of the site step"):
        zv.from_numpyro(ran)
    ran.get_extra_fields = lambda group_by_chain: {}
    with pytest.raises(ValueError, match=r"sampler moves 4.*z_grad"):
        zv.from_numpyro(ran)


def tree_of(posterior, stats=None, coords=None, dims=None):
    """Arrays (chain, draw, …) as a DataTree, which every version of ArviZ and PyMC takes."""
    import xarray as xr

    def group(arrays):
        axes = {
            name: (dims or {}).get(name, [f"{name}_dim_{k}" for k in range(array.ndim - 2)])
            for name, array in arrays.items()
        }
        held = {dim for own in axes.values() for dim in own}
        return xr.Dataset(
            {name: (["chain", "draw", *axes[name]], array) for name, array in arrays.items()},
            coords={dim: list(each) for dim, each in (coords or {}).items() if dim in held},
        )

    groups = {"posterior": posterior} | ({} if stats is None else {"sample_stats": stats})
    return xr.DataTree.from_dict({name: group(each) for name, each in groups.items()})


def test_divergences_are_counted_wherever_samplers_have_them(tmp_path):
    import numpyro
    import numpyro.distributions as dist
    import pymc as pm
    from numpyro.infer import NUTS

    rng = np.random.default_rng(0)
    x, diverging = rng.normal(size=(2, 6)), np.zeros((2, 6), bool)
    diverging[1, 2:5] = True
    ran = SimpleNamespace(
        sampler=NUTS(lambda: numpyro.sample("x", dist.Normal(0, 1))),
        last_state=SimpleNamespace(z={"x": None}),
        get_samples=lambda group_by_chain: {"x": x.astype(np.float32)},
        get_extra_fields=lambda group_by_chain: {"diverging": diverging},
    )
    assert zv.from_numpyro(ran).divergences == 3
    stats = {"diverging": diverging, "unconstrained_draw": x[..., None], "gradient": -x[..., None]}
    idata = tree_of({"x": x}, stats)
    assert zv.from_arviz(idata).divergences == 3
    assert zv.from_arviz(idata, score=lambda at: {"x": -at["x"]}).divergences == 3
    with pm.Model() as model:
        pm.Normal("x")
    assert zv.from_pymc(model, idata).divergences == 3
    info = SimpleNamespace(is_divergent=diverging[1])
    states = States({"x": x[0]}, -(x[0] ** 2) / 2, {"x": -x[0]})
    assert zv.from_blackjax((states, info)).divergences == 3
    assert zv.from_blackjax(SimpleNamespace(state=states, info=info)).divergences == 3
    assert zv.from_blackjax(states).divergences == 0
    rows = [f"0,{bad:d},{at},0,{at}" for bad, at in zip(diverging[1], x[1], strict=True)]
    file = tmp_path / "diagnostic.csv"
    file.write_text("\n".join(["# stan_version", "lp__,divergent__,x,p_x,g_x", *rows]))
    assert zv.from_cmdstan(file).divergences == 3


def potential_of(potential, x: np.ndarray, direction: np.ndarray) -> np.ndarray:
    return np.array([float(potential(row + 1e-5 * direction)) for row in x])


def test_repeated_draws_have_equal_scores():
    """Compiled batches differ in the last digit between places; rejected proposals must not."""
    import jax.numpy as jnp

    def log_density(x):
        def step(u, _):
            return u + 0.1 * jnp.stack([u[0] * x[0] - u[0] * u[1], u[0] * u[1] - u[1] * x[1]]), u

        return (
            -jnp.sum(
                jnp.log(jax.lax.scan(step, jnp.array([1.0, 0.5]) + 0 * x[:2], length=50)[1]) ** 2
            )
            - 0.5 * x @ x
        )

    x = np.repeat(np.random.default_rng(0).normal(size=(600, 3)), 2, axis=0)[1:]
    posterior = zv.from_log_density(
        log_density, 0.1 * x, transform=lambda x: {"z": x[2], "a": jnp.exp(x[0])}
    )
    assert list(posterior.values) == ["z", "a"]  # in the user's order
    for array in (posterior.scores[0], posterior.values["a"][0]):
        np.testing.assert_array_equal(array[1::2], array[2::2])


def test_arrays_that_jax_has_seen_in_single_precision():
    import jax.numpy as jnp

    data = np.random.default_rng(0).normal(size=20)
    x, which = np.random.default_rng(1).normal(size=(50, 2)), np.zeros(20, int)

    def log_density(x):
        return -0.5 * jnp.sum((data - x[which]) ** 2) - 0.5 * x @ x

    before = jax.jit(log_density)(x[0])
    posterior = zv.from_log_density(log_density, x)
    expected = -x + np.stack([np.sum(data - x[:, :1], axis=1), 0 * x[:, 0]], axis=1)
    np.testing.assert_allclose(posterior.scores[0], expected, rtol=1e-12)
    assert jax.jit(lambda x: log_density(x))(x[0]) == before  # and in the user's hands as it was


@pytest.mark.whole  # two of the kept runs in test_examples.py are such models
@pytest.mark.parametrize("given", [True, False], ids=["arguments", "globals"])
def test_numpyro_models_that_index_by_numpy_arrays(given):
    """A user's own program, the search for coordinates, a log density for `integrate`, the user's
    again: JAX remembers the arrays in the precision of whoever used them last."""
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import NUTS
    from numpyro.infer.util import potential_energy

    from zerovar.adapters.models import flat_density
    from zerovar.integration.target import Target

    group, data = np.array([0, 1, 2, 0, 1, 2]), np.array([0.3, 1.2, 2.0, 0.1, 0.9, 2.4])

    def model(group, data):
        top = numpyro.sample("top", dist.Normal(1, 2))
        size = numpyro.sample("size", dist.LogNormal(0, 0.3))
        effect = numpyro.sample("effect", dist.Normal(top, size).expand([3]).to_event(1))
        numpyro.sample("obs", dist.Normal(effect[group], 0.5), obs=data)

    used, args = (model, (group, data)) if given else (lambda: model(group, data), ())
    rng = np.random.default_rng(0)
    sites = {
        "effect": rng.normal(size=(2, 6, 3)),
        "size": rng.uniform(0.5, 2, (2, 6)),
        "top": rng.normal(size=(2, 6)),
    }
    sites = {name: site.astype(np.float32) for name, site in sites.items()}

    def own():
        potential = jax.jit(lambda z: potential_energy(used, args, {}, z))
        return potential, potential({name: site[0, 0] for name, site in sites.items()})

    kept = own()  # as a sampler keeps it
    ran = SimpleNamespace(
        sampler=NUTS(used),
        last_state=SimpleNamespace(z=dict.fromkeys(sites)),
        get_samples=lambda group_by_chain: sites,
        get_extra_fields=lambda group_by_chain: {},
    )
    posterior = zv.from_numpyro(ran, args=args)
    other = posterior.coordinates["non-centred"](posterior)
    expected = (sites["effect"][..., 1] - sites["top"]) / sites["size"]
    np.testing.assert_allclose(other.draws[..., 1], expected, rtol=1e-4, atol=1e-5)
    assert own()[1] == kept[1]
    flat = flat_density(used, None, args, None)
    at = Target(flat.log_density, flat.starts[0], 1).at(posterior.draws[0, :1])
    np.testing.assert_allclose(at.scores[0], posterior.scores[0, 0], rtol=1e-4, atol=1e-4)
    assert own()[1] == kept[1]


def test_single_precision_where_double_cannot_be_had():
    import jax.numpy as jnp

    start = jnp.zeros(())  # single, made by the user: a loop from it cannot carry doubles

    def log_density(x):
        return -0.5 * jax.lax.scan(lambda total, entry: (total + entry**2, None), start, x)[0]

    x = np.random.default_rng(0).normal(size=(50, 2))
    with pytest.warns(zv.NumericalWarning, match=r"log_density .* in single"):
        posterior = zv.from_log_density(log_density, x)
    np.testing.assert_allclose(posterior.scores[0], -x, rtol=1e-6)
    compiled = jax.jit(lambda x: x + 1)
    compiled(1.0)
    with pytest.raises(ValueError, match="as a JAX function of one draw"):
        zv.from_log_density(lambda x: np.sum(np.asarray(x)), x)
    assert compiled._cache_size(), "a function that fails costs nothing that is compiled"


class Place(NamedTuple):  # in an order that is not that of the alphabet
    mu: object
    log_tau: object


class States(NamedTuple):
    position: object
    logdensity: object
    logdensity_grad: object | None


@pytest.mark.parametrize("chain_axis", [None, 0, 1])
def test_blackjax_states_of_every_form(chain_axis):
    """Named tuples keep their order in draws and scores alike, and axes their meaning; without
    gradients the density serves."""
    rng = np.random.default_rng(0)
    shape = {None: (12,), 0: (2, 6), 1: (6, 2)}[chain_axis]
    place = Place(rng.normal(size=shape), 100 + rng.normal(size=(*shape, 3)))
    slope = Place(-place.mu, -2 * place.log_tau)
    states = States(place, np.zeros(shape), slope)
    posterior = zv.from_blackjax(
        states, chain_axis=chain_axis, values={"sum": lambda x: x.mu + x.log_tau.sum()}
    )
    assert posterior.draws.shape == {None: (1, 12, 4)}.get(chain_axis, (2, 6, 4))
    np.testing.assert_allclose(posterior.scores, posterior.draws * [-1, -2, -2, -2])
    assert list(posterior.values) == ["mu", "log_tau[0]", "log_tau[1]", "log_tau[2]", "sum"]
    np.testing.assert_allclose(posterior.values["mu"], posterior.draws[..., 0])
    np.testing.assert_allclose(posterior.values["sum"], posterior.draws.sum(axis=2))
    density = lambda x: -0.5 * x.mu**2 - (x.log_tau**2).sum()  # noqa: E731
    without = zv.from_blackjax(
        states._replace(logdensity_grad=None), density, chain_axis=chain_axis
    )
    np.testing.assert_allclose(without.scores, posterior.scores)
    with pytest.raises(ValueError, match="leading axes"):
        zv.from_blackjax(states, chain_axis=0 if chain_axis is None else None)
    with pytest.raises(ValueError, match="no logdensity_grad"):
        zv.from_blackjax(states._replace(logdensity_grad=None), chain_axis=chain_axis)


def test_arviz_with_transformed_variables():
    """tau_log__ stands for tau, mu_sd_log__ for mu_sd and not for mu; a score of one's own; what is
    deterministic is named."""
    import jax.numpy as jnp
    import xarray as xr

    rng = np.random.default_rng(0)
    names = {"mu": rng.normal(size=(2, 50)), "mu_sd_log__": rng.normal(size=(2, 50))}
    names["mu_sd"] = np.exp(names["mu_sd_log__"])
    data = xr.DataTree.from_dict(
        {"posterior": xr.Dataset({k: (("chain", "draw"), v) for k, v in names.items()})}
    )

    def log_density(x):
        assert set(x) == {"mu", "mu_sd_log__"}
        return -0.5 * x["mu"] ** 2 - 0.25 * x["mu_sd_log__"] ** 2

    posterior = zv.from_arviz(data, log_density=log_density)
    assert list(posterior.values) == ["mu", "mu_sd"]
    np.testing.assert_allclose(posterior.scores, posterior.draws * [-1, -0.5])
    by_hand = zv.from_arviz(
        data, score=lambda x: {"mu": -x["mu"], "mu_sd_log__": -0.5 * x["mu_sd_log__"]}
    )
    np.testing.assert_allclose(by_hand.scores, posterior.scores)
    some = zv.from_arviz(data, log_density=lambda x: -jnp.cosh(x["mu"]), parameters=["mu"])
    assert some.draws.shape == (2, 50, 1)
    with pytest.raises(ValueError, match="name of a variable already"):
        zv.from_arviz(data, log_density=log_density, values={"mu": lambda x: x["mu"]})
    with pytest.raises(ValueError, match="sample_stats must have unconstrained_draw and gradient"):
        zv.from_arviz(data)


def test_pymc_transformations():
    """A simplex and an interval with a random end: unconstrained draws and scores by differences of
    PyMC's own density."""
    rng = np.random.default_rng(0)
    top = np.abs(rng.normal(size=(1, 5))) + 0.1
    draws = {
        "top": top,
        "below": top * rng.uniform(0.1, 0.9, size=(1, 5)),
        "share": rng.dirichlet(np.ones(3), size=(1, 5)),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pymc as pm
        import xarray as xr

        with pm.Model() as model:
            pm.Uniform("below", 0.0, pm.HalfNormal("top", 2.0))
            share = pm.Dirichlet("share", np.ones(3))
            pm.Deterministic("odds", share[:2] / share[2])
        draws["odds"] = draws["share"][..., :2] / draws["share"][..., 2:]
        places = {"share": ("chain", "draw", "part"), "odds": ("chain", "draw", "first")}
        variables = {
            name: (places.get(name, ("chain", "draw")), array) for name, array in draws.items()
        }
        data = xr.Dataset(variables, coords={"part": ["x", "y", "z"], "first": ["x", "y"]})
        posterior = zv.from_pymc(model, xr.DataTree.from_dict({"posterior": data}))
        assert {"share[z]", "odds[x]"} <= set(posterior.values)
        logp = model.compile_logp(mode="FAST_COMPILE")
    x = posterior.draws[0]

    def density(row):
        return float(
            logp({"top_log__": row[0], "below_interval__": row[1], "share_simplex__": row[2:]})
        )

    expected = [
        [(density(row + 1e-5 * e) - density(row - 1e-5 * e)) / 2e-5 for e in np.eye(4)] for row in x
    ]
    np.testing.assert_allclose(posterior.scores[0], expected, atol=1e-6)
    np.testing.assert_allclose(x[:, 0], np.log(top[0]))
    density_is_that_of(posterior)


@pytest.mark.filterwarnings("ignore")
def test_pymc_labels_are_kept_everywhere():
    import pymc as pm

    from zerovar.adapters.models import flat_density
    from zerovar.inputs.integrands import as_values

    with pm.Model(coords={"who": ["ann", "bob"], "part": ["a", "b", "c"]}) as model:
        size = pm.HalfNormal("size", dims="who")
        pm.Deterministic("twice", 2 * size, dims="who")
        pm.Normal("plain", shape=2)
        pm.Dirichlet("share", np.ones(3), dims="part")
    inner = {"plain[0]", "plain[1]", "size_log__[ann]", "size_log__[bob]"}
    inner |= {"share_simplex__[0]", "share_simplex__[1]"}
    outer = {"plain[0]", "plain[1]", "size[ann]", "size[bob]", "twice[ann]", "twice[bob]"}
    outer |= {f"share[{part}]" for part in "abc"}
    flat = flat_density(model, None, None, None)
    assert set(flat.names) == inner
    assert set(flat.labels) == outer
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, 6))
    values = as_values(flat.default, zv.Sample(x, -x), flat.labels)
    found = dict(zip(values.names, values.values.T, strict=True))
    ann, bob = (np.exp(x[:, flat.names.index(f"size_log__[{who}]")]) for who in ("ann", "bob"))
    np.testing.assert_allclose(found["size[bob]"], bob)
    np.testing.assert_allclose(found["twice[ann]"], 2 * ann)
    trace = {
        "size": np.exp(rng.normal(size=(1, 5, 2))),
        "plain": rng.normal(size=(1, 5, 2)),
        "share": rng.dirichlet(np.ones(3), size=(1, 5)),
    }
    dims = {"size": ["who"], "share": ["part"]}
    posterior = zv.from_pymc(model, tree_of(trace, coords=model.coords, dims=dims))
    assert set(posterior.names) == inner
    assert set(posterior.values) == {name for name in outer if "twice" not in name}


def test_cmdstan_names_and_orders(tmp_path):
    """Parameters may be called g_rate; files of chains in another order are noticed; a run killed
    in its warm-up too."""
    rows = np.random.default_rng(0).normal(size=(9, 7))
    names = ["lp__", "rate", "g_rate", "p_rate", "p_g_rate", "g_rate", "g_g_rate"]
    lines = [",".join(f"{x:.17g}" for x in row) for row in rows]
    (tmp_path / "d.csv").write_text(
        "# stan_version_major = 2\n" + ",".join(names) + "\n" + "\n".join(lines) + "\n"
    )
    posterior = zv.from_cmdstan(tmp_path / "d.csv")
    np.testing.assert_array_equal(posterior.draws[0], rows[:, 1:3])
    np.testing.assert_array_equal(posterior.scores[0], -rows[:, 5:])
    write_cmdstan(tmp_path)
    files = [[tmp_path / f"{kind}_{k}.csv" for k in (1, 2)] for kind in ("diagnostic", "output")]
    with pytest.raises(ValueError, match="have other lp__"):
        zv.from_cmdstan(files[0], files[1][::-1])
    write_cmdstan(tmp_path, warmup=7)
    text = files[0][0].read_text().splitlines()
    files[0][0].write_text("\n".join(text[:10]) + "\n")
    with pytest.raises(ValueError, match="all of them of the warm-up"):
        zv.from_cmdstan(files[0][:1])


def test_numpyro_refuses_what_it_cannot_do():
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import NUTS

    def model():
        numpyro.sample("x", dist.Normal(0, numpyro.sample("k", dist.Bernoulli(0.5)) + 1.0))

    gibbs = SimpleNamespace(z={"x": None, "k": None})  # where the discrete site is sampled too
    ran = SimpleNamespace(
        sampler=NUTS(model), last_state=gibbs, get_samples=lambda group_by_chain: {}
    )
    with pytest.raises(ValueError, match="discrete sites, k"):
        zv.from_numpyro(ran)
    with pytest.raises(ValueError, match=r"after run\(\)"):
        zv.from_numpyro(object())


X = np.random.default_rng(0).normal(size=(2, 100, 2))
NAMED = zv.Posterior(X, -X, {"a": X[..., 0]}, names=("alpha", "beta"))


def test_a_posterior_is_taken_whole():
    answer = zv.estimate(NAMED, family=zv.Polynomial(1))
    assert answer.names == ("a",)
    np.testing.assert_array_equal(answer.value, zv.estimate(*NAMED, family=zv.Polynomial(1)).value)
    states = SimpleNamespace(position=X[0], logdensity=X[0, :, 0], logdensity_grad=-X[0])
    assert zv.estimate(states, family=zv.Polynomial(1)).names == ("x[0]", "x[1]")
    # N(0.1, 1)
    weighted = dataclasses.replace(NAMED, scores=-X + [0.1, 0], log_weights=0.1 * X[..., 0])
    np.testing.assert_array_equal(
        weighted.sample.weights, zv.Sample(X, -X, 0.1 * X[..., 0]).weights
    )
    assert zv.estimate(weighted, family=zv.Polynomial(1)).value == pytest.approx([0.1], abs=1e-12)
    with pytest.raises(ValueError, match="has weights, which are lost"):
        zv.estimate(*weighted)
    with pytest.raises(ValueError, match="a Posterior has scores, weights and a space of its own"):
        zv.estimate(NAMED, -X)
    with pytest.raises(
        ValueError, match="scores, the gradients of the log density at the draws, are needed"
    ):
        zv.estimate(X)


def test_parameters_are_called_by_their_names():
    wrong = dataclasses.replace(NAMED, scores=-X * np.array([1.0, 3.0]))
    verdict = zv.check(wrong)
    assert not verdict.ok
    assert "In beta" in verdict.diagnosis
    assert verdict.details[0].startswith("beta: ")
    with pytest.warns(zv.ScoreWarning, match="In beta"):
        zv.estimate(wrong, family=zv.Polynomial(1))
    with pytest.raises(ValueError, match="beta is the same number, 4"):
        zv.estimate(dataclasses.replace(NAMED, draws=np.where([True, False], X, 4.0)))


@pytest.mark.parametrize(
    ("package", "adapter"), [("cmdstanpy", "from_cmdstan"), ("emcee", "from_log_density")]
)
def test_what_lacks_something_is_told_its_adapter(package, adapter):
    other = type("Sampler", (), {"__module__": f"{package}.inside"})()
    for function in (zv.estimate, zv.summary):
        with pytest.raises(
            ValueError,
            match=f"a {package} Sampler does not have all that is needed. Use zv.{adapter}",
        ):
            function(other)


def test_values_have_the_shape_of_the_draws():
    x = np.random.default_rng(0).normal(size=(30, 2))
    density = lambda x: -0.5 * (x**2).sum()  # noqa: E731
    assert zv.from_log_density(density, x, values={"f": x[:, 0]}).values["f"].shape == (1, 30)
    with pytest.raises(ValueError, match=r"must be \(chain, draw, …\) = \(1, 30\)"):
        zv.from_log_density(density, x, values={"f": x[:7, 0]})
    with pytest.raises(ValueError, match="draws must be"):
        zv.from_log_density(density, x, chain_axis=0)
    with pytest.raises(ValueError, match="draws must be"):
        zv.from_log_density(density, {"a": x, "b": x[:3]})


def test_cmdstan_leaves_saved_warmup_out_and_reads_diagnostics_alone(tmp_path):
    write_cmdstan(tmp_path, warmup=7)
    alone = zv.from_cmdstan([tmp_path / f"diagnostic_{k}.csv" for k in (1, 2)])
    x, s, _ = shipped()
    np.testing.assert_array_equal(alone.draws, x)
    np.testing.assert_array_equal(alone.scores, s)
    assert list(alone.values) == ["mu", "tau", *(f"z[{k}]" for k in range(1, 9))]


@pytest.mark.parametrize(
    "package",
    [
        "numpyro",
        "pymc",
        "nutpie",
        "blackjax",
        "emcee",
        "arviz",
        "zarr",
        "h5netcdf",
        "matplotlib",
        "pandas",
    ],
)
def test_optional_packages_are_here(package):
    """These tests are of real packages: without one they must fail, not vanish."""
    from importlib.metadata import version

    assert version(package)


def test_gradients_that_are_not_those_of_the_values_are_found():
    """And answers say whose scores they rest on."""
    x = np.random.default_rng(0).normal(size=(400, 2))

    def wrong(x):
        return -jnp.sum(x**2) / 2 - 0.05 * x[0] * jax.lax.stop_gradient(x[0])

    with pytest.warns(zv.ScoreWarning, match="not those of its values, at . of 8 draws"):
        zv.from_log_density(wrong, x)
    posterior = zv.from_log_density(lambda x: -jnp.sum(x**2) / 2 - 1e5, x)
    assert posterior.from_model
    assert zv.Coordinates(jnp.sinh)(posterior).from_model
    answer = zv.estimate(posterior, family=zv.Polynomial(2))
    assert answer.scores == "scores from the model"
    assert "rest on scores from the model" in str(answer)
    given = zv.estimate(x, -x, x, family=zv.Polynomial(2))
    assert given.scores.startswith("scores as given, verified to ")


# --- the density that comes with a posterior -------------------------------------------------


def density_is_that_of(posterior: zv.Posterior, tolerance: float = 1e-6) -> None:
    """Its quantities are the values at the draws, all of those that are functions of them, and its
    gradient by differences the scores."""
    density = posterior.density
    draws, scores = posterior.sample.draws[:6], posterior.sample.scores[:6]
    for name, column in posterior.values.items():
        function = density.find(name, draws[0])
        assert function is not None, name
        np.testing.assert_allclose(
            function(draws), np.reshape(column, -1)[:6], rtol=tolerance, atol=tolerance
        )
    assert density.find("no such", draws[0]) is None
    step = 1e-5 * np.eye(draws.shape[1])
    ahead, behind = (
        density.at((draws[:, None] + side * step).reshape(-1, draws.shape[1])) for side in (1, -1)
    )
    found = ((ahead - behind) / 2e-5).reshape(draws.shape)
    np.testing.assert_allclose(found, scores, rtol=1e3 * tolerance, atol=1e2 * tolerance)


def log_density_of_two(x):
    return -0.5 * x["b"] ** 2 - jnp.sum(jnp.cosh(x["a"]))


def test_densities_of_log_densities():
    """A dict of draws, a transformation, further values; a plain array; BlackJAX's states."""
    rng = np.random.default_rng(0)
    draws = {"b": rng.normal(size=(2, 20)), "a": rng.normal(size=(2, 20, 2))}
    posterior = zv.from_log_density(
        log_density_of_two,
        draws,
        chain_axis=0,
        transform=lambda x: {"tau": jnp.exp(x["b"]), "a": x["a"], "up": x["a"] > 0},
        values={"ratio": lambda x: x["a"][0] / x["tau"], "pair": lambda x: x["a"] * 2},
    )
    assert {"tau", "a[1]", "up[0]", "ratio", "pair[1]"} <= set(posterior.values)
    density_is_that_of(posterior)
    at = posterior.density.quantity(lambda x: x["tau"] > 1)
    np.testing.assert_array_equal(at(posterior.sample.draws), draws["b"].ravel() > 0)
    density_is_that_of(zv.from_log_density(lambda x: -x @ x, rng.normal(size=(20, 3))))
    x = rng.normal(size=20)
    place = Place(x, rng.normal(size=(20, 2)))
    states = States(place, np.zeros(20), Place(-x, -2 * place.log_tau))
    wrong = zv.from_blackjax(states)
    assert wrong.density is None
    density = lambda x: -0.5 * x.mu**2 - (x.log_tau**2).sum()  # noqa: E731
    values = {"sum": lambda x: x.mu + x.log_tau.sum()}
    density_is_that_of(zv.from_blackjax(states, density, values=values))
    without = states._replace(logdensity_grad=None)
    density_is_that_of(zv.from_blackjax(without, density, transform=lambda x: {"mu": x.mu}))


def test_arrays_among_the_values_are_known_at_the_draws_alone():
    x = np.random.default_rng(0).normal(size=(30, 2))
    posterior = zv.from_log_density(lambda x: -x @ x, x, values={"f": x[:, 0] ** 2})
    assert posterior.density.find("f", x[0]) is None
    assert posterior.density.find("x[1]", x[0]) is not None


class WholeBridgeModel(BridgeModel):
    """With what densities need of bridgestan.StanModel too."""

    def log_density(self, x):
        return float(eight_schools_log_density(x))

    def param_constrain(self, x):
        return np.concatenate([x[:1], np.exp(x[1:2]), x[2:]])


def test_densities_of_stan_models():
    draws = bridge_draws()[:, :20]
    values = {"first": lambda x: x[0] + x[1] * x[2]}
    posterior = zv.from_bridgestan(WholeBridgeModel(), draws, chain_axis=0, values=values)
    density_is_that_of(posterior)
    at = posterior.density.quantity(lambda x: x[1] > 2.0)
    np.testing.assert_array_equal(at(posterior.sample.draws), draws[..., 1].ravel() > 2)
    # an older one, without
    assert zv.from_bridgestan(BridgeModel(), draws, chain_axis=0).density is None
    x = np.tile(np.linspace(-1, 1, 64)[:, None], (1, 10)) + bridge_draws()[0, :64]
    free = np.concatenate([x[:, :1], np.log(np.abs(x[:, 1:2])), x[:, 2:]], axis=1)
    some = posterior.density.at(free)
    np.testing.assert_allclose(some, eight_schools_log_density(free))


def test_densities_of_arviz():
    """The draws themselves are quantities, labelled as there; what is transformed is not known."""
    import xarray as xr

    rng = np.random.default_rng(0)
    names = {"mu": rng.normal(size=(2, 20, 2)), "sd_log__": rng.normal(size=(2, 20))}
    names["sd"] = np.exp(names["sd_log__"])
    data = xr.Dataset(
        {k: (("chain", "draw", "place")[: v.ndim], v) for k, v in names.items()},
        coords={"place": ["north", "south"]},
    )
    posterior = zv.from_arviz(
        xr.DataTree.from_dict({"posterior": data}),
        log_density=lambda x: -jnp.sum(x["mu"] ** 2) - 0.25 * x["sd_log__"] ** 2,
    )
    assert list(posterior.values) == ["mu[north]", "mu[south]", "sd"]
    assert posterior.density.find("sd", posterior.draws[0, 0]) is None
    known = {name: posterior.values[name] for name in ("mu[north]", "mu[south]")}
    density_is_that_of(dataclasses.replace(posterior, values=known))


def test_what_has_no_density():
    """Arrays, as a file has them: no lines."""
    x = np.random.default_rng(0).normal(size=(1, 400, 2))
    posterior = zv.from_log_density(lambda x: -x @ x / 2, x, chain_axis=0)
    for other in (zv.Posterior(*posterior), dataclasses.replace(posterior, density=None)):
        assert other.density is None
        answer = zv.probability(other, "x[0] > 0.3", family=zv.Automatic(effort="low"))
        assert not any("lines" in text for text in answer.limits)
