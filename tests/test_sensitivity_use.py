"""How `zv.sensitivity` is asked, what it says to those who ask wrongly, and what is drawn of it."""

from types import SimpleNamespace

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import NUTS

import zerovar as zv
from zerovar.output import PowerCurves

Y = np.array([2.5, 0.5, 1.0, 3.0, -6.0])
PRECISION = 1 / 4 + len(Y)  # of mu under N(0, 2²) and five observations with unit errors
MEAN, DEVIATION = Y.sum() / PRECISION, PRECISION**-0.5
Z = np.random.default_rng(0).normal(size=(2, 200))
MU = MEAN + DEVIATION * Z
FAMILY = zv.Polynomial(2)


def conjugate(y, scale=2.0, unused=1.0, count=3, flag=True):
    mu = numpyro.sample("mu", dist.Normal(0.0, scale))
    numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)
    numpyro.deterministic("ratio", mu / scale)


def factors(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    numpyro.factor("fit", -0.5 * jnp.sum((y - mu) ** 2))


def half(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    numpyro.sample("y", dist.Normal(mu, 1.0).expand([2]), obs=y[:2])
    numpyro.factor("fit", -0.5 * jnp.sum((y[2:] - mu) ** 2))


def bounded(y, top=50.0):
    mu = numpyro.sample("mu", dist.Uniform(-50.0, top))
    numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def ran(model, **values) -> zv.Posterior:
    """A posterior as after a run of NumPyro, by exact draws of N(MEAN, DEVIATION²), and what the
    model computes of them."""
    done = SimpleNamespace(
        sampler=NUTS(model),
        last_state=SimpleNamespace(z={"mu": None}),
        get_samples=lambda group_by_chain: {"mu": jnp.asarray(MU), **values},
        get_extra_fields=lambda group_by_chain: {"z_grad": {"mu": PRECISION * (MU - MEAN)}},
    )
    return zv.from_numpyro(done, args=(Y,))


POSTERIOR = ran(conjugate, ratio=jnp.asarray(MU / 2))
ARRAYS = zv.Posterior(MU[..., None], -PRECISION * (MU - MEAN)[..., None], {"mu": MU})


def ask(data=POSTERIOR, values=None, **more):
    return zv.sensitivity(data, values, **({"family": FAMILY, "var_names": "mu"} | more))


def test_powers_arguments_and_observations_of_a_conjugate_model():
    """Log densities are quadratic in mu, and all covariances with it known exactly."""
    found = ask(to=["prior", "likelihood", "scale", "observations"])
    assert found.to[:3] == ("prior", "likelihood", "scale")
    slopes = [-MEAN / 4, MEAN / 4, MEAN / 4, *(Y - MEAN)]  # d MEAN / dα, times the precision
    exact = np.array(slopes) / PRECISION
    assert np.allclose(found.derivative[0], exact, rtol=1e-4, atol=1e-5)
    assert not np.allclose(found.plain_derivative[0], exact, rtol=1e-2)
    assert np.allclose(found.in_deviations[0], exact / MU.std(), rtol=1e-3, atol=1e-4)
    # each of the others moves the mean by (y − MEAN) / PRECISION
    moved = (Y - MEAN) / PRECISION
    assert np.allclose(found.jackknife.covariance, np.sum((moved - moved.mean()) ** 2), rtol=1e-3)
    assert any("minus its derivative" in note for note in found.notes)


def test_a_site_and_an_argument_of_one_name():
    with pytest.raises(ValueError, match="'site y', the power of its density, or for 'argument y'"):
        ask(to="y")
    assert np.allclose(ask(to="argument y").derivative, 1 / PRECISION, rtol=1e-4)
    power = ask(to="site y")
    assert power.to == ("y",)
    assert np.allclose(power.derivative, MEAN / 4 / PRECISION, rtol=1e-4)


def test_what_moves_by_itself_is_counted():
    found = ask(to="scale", var_names="ratio")  # mu / scale
    exact = MEAN / 4 / PRECISION / 2 - MEAN / 4
    assert np.allclose(found.derivative, exact, rtol=1e-4)


def test_what_moves_by_itself_is_known_of_the_models_own_values_alone():
    """A user's function may have the name of a value of the model, and be something else."""
    ratio = POSTERIOR.values["ratio"]
    assert (
        ask(values={"ratio": ratio}, to="scale").derivative
        == ask(to="scale", var_names="ratio").derivative
    )
    for other in (lambda draw: draw["mu"], np.sin(np.asarray(ratio))):
        with pytest.raises(ValueError, match="ratio may depend on it"):
            ask(values={"ratio": other}, to="scale")


def test_a_quantile_where_no_density_is_known_is_named():
    """Of whole numbers, which have none."""
    counts = zv.Posterior(ARRAYS.draws, ARRAYS.scores, {"count": np.round(MU / 10)})
    with pytest.raises(ValueError, match="count 50%: no density is known there"):
        ask(counts, to={"h": MU}, probs=0.5, var_names="count")


def test_what_the_density_does_not_depend_on_is_said():
    found = ask(to=["unused", "prior"])
    assert found.derivative[0, 0] == found.std_error[0, 0] == 0
    assert found.derivative[0, 1] != 0
    assert "does not depend on unused: derivatives are 0" in str(found)
    found = ask(ARRAYS, to={"constant": np.full_like(MU, -1e6)})
    assert found.derivative[0, 0] == found.std_error[0, 0] == 0
    assert "does not depend on constant" in str(found)


def test_a_log_density_of_ones_own():
    found = ask(
        log_density=lambda draw, shift: -0.5 * jnp.sum((Y + shift - draw["mu"]) ** 2),
        at={"shift": 0.0},
    )
    assert np.allclose(found.derivative, len(Y) / PRECISION, rtol=1e-4)


LONELY = {"log_density": lambda draw: 0.0}
WRONG = {
    "no model": (ARRAYS, {"to": "prior"}, "came without their model .* Give to= a dict"),
    "unknown": (POSTERIOR, {"to": "tau"}, "'tau' is no site of the model, which has mu, y"),
    "no site": (POSTERIOR, {"to": "site scale"}, "'site scale' is no site"),
    "empty": (POSTERIOR, {"to": []}, "to is empty"),
    "whole": (POSTERIOR, {"to": "count"}, "argument count must be a real .* got whole numbers"),
    "boolean": (POSTERIOR, {"to": "flag"}, "argument flag must be a real .* got booleans"),
    "at": (POSTERIOR, {"to": "prior", "at": {"a": 1.0}}, "at goes with log_density"),
    "no at": (POSTERIOR, LONELY, "log_density needs at="),
    "at whole": (POSTERIOR, LONELY | {"at": {"a": 1}}, r"at\['a'\] must be a real number"),
    "values": (POSTERIOR, {"values": MU}, "values must be a dict .* got ndarray"),
    "size": (ARRAYS, {"to": {"h": MU[:, :7]}}, "to.*h"),
    "reversed": (POSTERIOR, {"curve": (2, 0.5)}, "curve must be two powers, one below 1"),
    "above": (POSTERIOR, {"curve": (1.5, 2)}, "curve must be two powers, one below 1"),
    "one end": (POSTERIOR, {"curve": (0.5,)}, "curve must be two powers, one below 1"),
    "quantiles": (POSTERIOR, {"curve": (0.5, 2), "probs": 0.5}, "curve follows means"),
    "no power": (POSTERIOR, {"curve": (0.5, 2), "to": "scale"}, "curve follows powers"),
}


@pytest.mark.parametrize("what", WRONG)
def test_who_asks_wrongly_is_told(what):
    data, more, words = WRONG[what]
    with pytest.raises(ValueError, match=words):
        ask(data, **more)


@pytest.mark.parametrize("bad", [-np.inf, np.nan])
def test_slopes_that_are_no_numbers_are_refused(bad):
    with pytest.raises(ValueError, match=r"missing: the slope .* at 400 of 400 draws"):
        ask(log_density=lambda draw, missing: draw["mu"] * missing * bad, at={"missing": 0.5})
    with pytest.raises(ValueError, match="h"):
        ask(ARRAYS, to={"h": np.where(Z > 2, bad, MU)})


def test_factors_are_neither_prior_nor_likelihood():
    with pytest.raises(ValueError, match=r"no observed sites: its likelihood .*; fit can be asked"):
        ask(ran(factors), to="likelihood")
    with pytest.raises(ValueError, match="no observed sites, and so no observations"):
        ask(ran(factors), to="observations")
    found = ask(ran(factors), to=["prior", "fit"])
    assert np.allclose(found.derivative[0], np.array([-1, 1]) * MEAN / 4 / PRECISION, rtol=1e-4)
    with pytest.warns(zv.SampleWarning, match="fit is neither prior nor likelihood"):
        ask(ran(half), to="likelihood")


def test_a_support_that_moves_is_refused():
    with pytest.raises(ValueError, match="the support of mu depends on top"):
        ask(ran(bounded), to="top")


# --- what is drawn and said --------------------------------------------------------------------


@pytest.fixture(scope="module")
def found():
    return ask(to=["observations", "prior", "likelihood"], curve=(0.8, 1.25))


def test_curves_and_reweighting_go_the_same_way(found):
    """To the means of the conjugate model with other powers; weights within their errors."""
    curves = found.curves
    prior, likelihood = curves.grid / 4, curves.grid * len(Y)
    exact = np.stack([Y.sum() / (prior + len(Y)), curves.grid * Y.sum() / (1 / 4 + likelihood)])
    assert (np.abs(curves.value[0] - exact) < 2 * curves.std_error[0] + 1e-4).all()
    away = np.abs(curves.reweighted[0] - exact) / curves.reweighted_error[0]
    assert (away < 4).all()
    # less the plain mean's own error, weights by the prior move it the right way
    moved = curves.reweighted[0, 0, [0, -1]] - curves.reweighted[0, 0, 8]
    assert np.allclose(moved, exact[0, [0, -1]] - MEAN, rtol=0.5)


def test_pictures_show_the_numbers(found, tmp_path):
    figure = found.plot(tmp_path / "curves.png")
    assert [axes.get_xlabel() for axes in figure.axes] == ["power of prior", "power of likelihood"]
    drawn = figure.axes[1].lines[0].get_ydata()
    assert np.array_equal(drawn, found.curves.value[0, 1])
    with pytest.raises(ValueError, match="value must be one of mu; got 'nu'"):
        found.plot(value="nu")
    each = ask(to="observations").plot()
    assert each.axes[0].get_title() == "mu"
    _, (shown, *_) = (box.lines for box in each.axes[0].containers)
    assert np.allclose(shown.get_ydata(), -(Y - MEAN) / PRECISION / MU.std(), rtol=1e-3, atol=1e-4)
    bars = ask().plot().axes[0]
    assert len(bars.patches) == 4  # plain and controlled, of prior and likelihood
    assert {text.get_text() for text in bars.get_yticklabels()} == {
        "mu  ·  prior",
        "mu  ·  likelihood",
    }
    plt.close("all")


def test_table_report_and_numbers(found, tmp_path):
    found.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count("<img") + page.count("<svg") >= 3
    assert "Sensitivities of 1 value to 7 numbers, from 400 draws" in page
    assert found.to_dict()["derivative"] == found.derivative.tolist()
    dataset = found.to_dataset()
    assert float(dataset.derivative.sel(integrand="mu", to="prior")) == found.derivative[0, 5]
    strongest = found.table(most=1)
    assert strongest.row_count == 1
    assert "y[4]" in str(found).splitlines()[4]  # the outlier moves it most


def test_curves_that_end_early_are_told_in_a_line_a_power():
    value = np.zeros((3, 2, 5))
    value[1, 1, 4] = value[2, 1, [0, 3, 4]] = np.nan
    none = np.zeros_like(value)
    grid = np.array([0.5, 0.7, 1.0, 1.4, 2.0])
    names, to = ("a", "b", "c"), ("prior", "likelihood")
    curves = PowerCurves(names, to, grid, value, none, none, none, none[0])
    (line,) = curves.ends()
    assert line.startswith("2 of 3 curves for the power of likelihood end early")
    assert line.endswith("that of c goes from 0.7 to 1.")
    assert PowerCurves(names, to, grid, none, none, none, none, none[0]).ends() == ()
