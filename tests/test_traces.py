"""Traces of a small model as PyMC 5 with ArviZ 0.x and PyMC 6 with ArviZ 1.x leave them, read with
whichever versions are there: tests/traces/make.py has the model."""

import gzip
import warnings
from functools import cache
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

import zerovar as zv

TRACES = Path(__file__).parent / "traces"
LINES = ("pymc5", "pymc6")
Y = np.array([0.5, 2.0])
PARAMETERS = ["mu", "tau", "share"]
# the same by what PyMC calls them, as nutpie and `from_arviz` order them
INNER = ["mu", "share_simplex__", "tau_log__"]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("traces")
    for line in LINES:
        packed = (TRACES / f"{line}.nc.gz").read_bytes()
        (folder / f"{line}.nc").write_bytes(gzip.decompress(packed))
    return lambda line: folder / f"{line}.nc"


@cache
def read(path: Path) -> dict[str, xr.Dataset]:
    with xr.open_datatree(path, engine="h5netcdf") as tree:
        return {name: node.to_dataset().load() for name, node in tree.children.items()}


def without_gradients(path: Path) -> dict[str, xr.Dataset]:
    return {name: each for name, each in read(path).items() if name != "sample_stats"}


def tree_of(groups: dict[str, xr.Dataset]) -> xr.DataTree:
    return xr.DataTree.from_dict(groups)


def log_density(mu, tau, share):
    """Of μ, log τ and PyMC's coordinates of the simplex, by hand, with the Jacobians; for NumPy and
    JAX alike."""
    sd = jnp.exp(tau)
    logits = jnp.concatenate([share, -jnp.sum(share, keepdims=True)])
    logits = logits - jnp.log(jnp.sum(jnp.exp(logits)))
    prior = -0.5 * ((mu - 1) / 2) ** 2 - 0.5 * sd**2 + tau
    prior += jnp.array([1.0, 2.0, 3.0]) @ logits + jnp.sum(logits)
    return prior - 0.5 * jnp.sum(((Y - mu) / sd) ** 2) - len(Y) * tau


def of_pymc(draw):
    return log_density(draw["mu"], draw["tau_log__"], draw["share_simplex__"])


def differences(x: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """The gradient at one draw in the order of INNER, by the density in double precision."""

    def at(x):
        return float(of_pymc({"mu": x[0], "share_simplex__": x[1:3], "tau_log__": x[3]}))

    return np.array([(at(x + step * e) - at(x - step * e)) / (2 * step) for e in np.eye(4)])


def in_order(posterior: zv.Posterior) -> tuple[np.ndarray, np.ndarray]:
    """Draws and scores with coordinates in the order of INNER, whatever their names end with."""
    names = posterior.names
    order = [k for own in INNER for k, name in enumerate(names) if name.startswith(own)]
    assert sorted(order) == [0, 1, 2, 3]
    return posterior.draws[..., order], posterior.scores[..., order]


@pytest.mark.parametrize("reader", ["arviz", "xarray"])
@pytest.mark.parametrize("line", LINES)
@pytest.mark.usefixtures("x64")
def test_gradients_that_nutpie_kept(line, reader, file):
    if reader == "arviz":
        arviz = pytest.importorskip("arviz")
        data = arviz.from_netcdf(file(line))  # an InferenceData or a DataTree, by the version
    else:
        data = tree_of(read(file(line)))
    posterior = zv.from_arviz(data)
    draws, scores = in_order(posterior)
    assert list(posterior.values) == ["mu", "tau", "share[a]", "share[b]", "share[c]", "odds"]
    np.testing.assert_allclose(draws[..., 0], posterior.values["mu"])
    np.testing.assert_allclose(np.exp(draws[..., 3]), posterior.values["tau"])
    for chain in range(2):
        expected = [differences(x) for x in draws[chain]]
        np.testing.assert_allclose(scores[chain], expected, atol=1e-7, rtol=1e-7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", zv.ZerovarWarning)
        table = zv.summary(data, family=zv.Polynomial(1), intervals=False)
    assert list(table.index) == list(posterior.values)
    assert (table["gain"] > 1).any()


def layouts(path: Path) -> dict[str, dict[str, xr.Dataset]]:
    """The same draws as PyMC 6 leaves them with nutpie, as its own samplers do and PyMC 5, and by
    ArviZ's schema; with all variables on the unconstrained scale, as ArviZ makes them."""
    groups = without_gradients(path)
    posterior, free = groups["posterior"], groups["unconstrained_posterior"]
    schema = free.rename(tau_log__="tau", share_simplex__="share")
    return {
        "PyMC 6": groups,
        "in one group": {"posterior": xr.merge([posterior, free])},
        "schema": {"posterior": posterior, "unconstrained_posterior": schema},
        "complete": {
            "posterior": posterior,
            "unconstrained_posterior": schema.assign(mu=posterior["mu"], odds=posterior["odds"]),
        },
    }


@pytest.mark.parametrize("layout", ["PyMC 6", "in one group", "schema", "complete"])
@pytest.mark.parametrize("named", ["all", "parameters"])
def test_log_densities_take_every_variable_unconstrained(layout, named, file):
    """Those that are transformed from where they stand, the others from the posterior: d is 4 and
    scores are those that nutpie kept."""
    data = layouts(file("pymc6"))[layout]
    own = layout in ("schema", "complete")
    if named == "all":  # without the deterministic one
        data = {name: each.drop_vars("odds", errors="ignore") for name, each in data.items()}
    seen = []

    def density(draw):
        seen.append(sorted(draw))
        return log_density(*(draw[name] for name in PARAMETERS)) if own else of_pymc(draw)

    parameters = PARAMETERS if named == "parameters" else None
    posterior = zv.from_arviz(tree_of(data), log_density=density, parameters=parameters)
    assert seen[0] == (sorted(PARAMETERS) if own else INNER)
    draws, scores = in_order(zv.from_arviz(tree_of(read(file("pymc6")))))
    np.testing.assert_array_equal(posterior.draws, draws)  # sorted by name
    np.testing.assert_allclose(posterior.scores, scores, atol=1e-8, rtol=1e-8)
    assert ("odds" in posterior.values) == (named == "parameters")


def test_traces_on_disk_take_every_variable_too(file):
    data = tree_of(layouts(file("pymc6"))["PyMC 6"]).chunk({"draw": 5})
    posterior = zv.from_arviz(data, log_density=of_pymc, parameters=PARAMETERS)
    draws, scores = in_order(zv.from_arviz(tree_of(read(file("pymc6")))))
    np.testing.assert_array_equal(np.asarray(posterior.draws), draws)
    np.testing.assert_allclose(np.asarray(posterior.scores), scores, atol=1e-8, rtol=1e-8)
    with pytest.raises(ValueError, match=r"there is no 'sd_log__'\. PyMC keeps transformed"):
        zv.from_arviz(data, log_density=lambda draw: draw["sd_log__"])


def test_a_variable_whose_name_is_like_a_transformed_one_stays(file):
    """tau_log__ is of tau, also where there is a tau_log."""
    groups = without_gradients(file("pymc6"))
    kept = groups["posterior"][["tau", "mu"]].rename(mu="tau_log")
    data = tree_of({**groups, "posterior": kept})
    posterior = zv.from_arviz(
        data,
        log_density=lambda x: -(x["tau_log"] ** 2) - jnp.cosh(x["tau_log__"]),
        parameters=["tau_log", "tau"],
    )
    assert posterior.names == ("tau_log", "tau_log__")


def test_what_is_missing_is_said(file):
    whole = read(file("pymc6"))
    groups = without_gradients(file("pymc6"))
    alone = {"posterior": groups["posterior"]}
    include = r"include_transformed': True"

    def refused(data, words, **options):
        with pytest.raises(ValueError, match=words):
            zv.from_arviz(tree_of(data), **options)

    refused(alone, f"neither.*{include}")
    stats = whole["sample_stats"].drop_vars("unconstrained_draw")
    refused({**whole, "sample_stats": stats}, f"only gradient.*{include}")
    said = f"a dict of mu, share .3,., tau: there is no 'tau_log__'.*{include}.*from_pymc"
    refused(alone, said, log_density=of_pymc, parameters=PARAMETERS)
    # what depends on nothing is no parameter: d would be 5, and one of the scores zero
    refused(
        groups,
        r"does not depend on odds\..*parameters=\['mu', 'tau_log__', 'share_simplex__'\]",
        log_density=of_pymc,
    )
    refused(
        groups,
        "parameters: sigma not among mu, odds, tau_log__, share_simplex__",
        log_density=of_pymc,
        parameters=["mu", "sigma"],
    )
    thinned = {**groups, "posterior": groups["posterior"].isel(draw=slice(None, None, 2))}
    refused(thinned, r"\(2, 6\) and \(2, 12\)\. Cut and thin both", log_density=of_pymc)
