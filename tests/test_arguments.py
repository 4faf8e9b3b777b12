"""Every public callable with absurd arguments, one at a time: what comes out is an answer without
NaN, or an error that zerovar raises itself and that names the argument."""

import ast
import functools
import inspect
import pathlib
import re
import traceback
import warnings
from types import SimpleNamespace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas
import pytest
from problems import gaussian

import zerovar as zv
from zerovar.arguments import FLAG, check_argument, several, takes, whole

ROOT = pathlib.Path(zv.__file__).parent
X, S = gaussian(120, 2)
F = X[:, 0]


class Thing:
    """Something else altogether."""

    def __repr__(self):
        return "Thing()"


# What is given for each argument in turn. What can be read once is made anew for each.
ABSURD = {
    "None": lambda: None,
    "text": lambda: "text",
    "nothing": lambda: "",
    "bytes": lambda: b"x",
    "minus one": lambda: -1,
    "zero": lambda: 0,
    "a fraction": lambda: 1.5,
    "NaN": lambda: np.nan,
    "infinite": lambda: np.inf,
    "huge": lambda: 10**400,
    "true": lambda: True,
    "complex": lambda: 1j,
    "no list": lambda: [],
    "no dict": lambda: {},
    "dict": lambda: {"a": 1},
    "list of None": lambda: [None],
    "thing": lambda: Thing(),
    "type": lambda: int,
    "function of nothing": lambda: lambda *given: None,
    "empty array": lambda: np.zeros((3, 0)),
    "words": lambda: np.array(["a", "b"]),
    "things": lambda: np.array([None, Thing()], dtype=object),
    "series": lambda: pandas.Series([1.0, np.nan]),
    "generator": lambda: (k for k in range(3)),
    "ragged": lambda: [[1.0], [1.0, 2.0]],
}


class State(NamedTuple):
    """What BlackJAX stacks."""

    position: np.ndarray
    logdensity: np.ndarray
    logdensity_grad: np.ndarray


@functools.cache
def answer():
    return zv.estimate(X, S, F, family=zv.Polynomial(1))


@functools.cache
def posterior():
    return zv.Posterior(X[None], S[None], None)


@functools.cache
def fitted():
    return zv.fit(zv.Polynomial(1), zv.Sample(X, S), F)


@functools.cache
def sensitivities():
    values, slopes = {"f": F[None]}, {"h": F[None]}
    return zv.sensitivity(posterior(), values, to=slopes, family=zv.Polynomial(1))


def tree():
    """A DataTree as nutpie leaves one."""
    import xarray

    def group(**arrays):
        pairs = {name: (("chain", "draw", "d")[: a.ndim], a) for name, a in arrays.items()}
        return xarray.Dataset(pairs)

    stats = group(unconstrained_draw=X[None], gradient=S[None])
    groups = {"posterior": group(mu=F[None]), "sample_stats": stats}
    return xarray.DataTree.from_dict(groups)


def bridge():
    gradient = lambda row: (0.0, -row)  # noqa: E731
    return SimpleNamespace(param_unconstrain=lambda row: row, log_density_gradient=gradient)


# What an argument without a default is by its name, and what else a call is given to be quick
GOOD = {
    "base": lambda: None,
    "beta": lambda: 1.0,
    "blocks": lambda: [([1], lambda x: (x[0], 1.0))],
    "centres": lambda: 10,
    "data": lambda: X[None],
    "degree": lambda: 1,
    "diagnostics": lambda: [],
    "draws": lambda: X,
    "estimate": answer,
    "events": lambda: "x[0] > 1",
    "family": lambda: zv.Kernel(zv.kernels.Gaussian(1.0)),
    "fitted": fitted,
    "forward": lambda: lambda x: x,
    "gamma": lambda: 1.0,
    "left": lambda: zv.kernels.Gaussian(),
    "log_density": lambda: lambda x: -x @ x / 2,
    "mcmc": lambda: None,
    "model": bridge,
    "idata": tree,
    "inverse_temperatures": lambda: None,
    "log_likelihood": lambda: None,
    "peak": lambda: 0.1,
    "rate": lambda: 0.1,
    "right": lambda: zv.kernels.Gaussian(),
    "rows": lambda: np.array([1]),
    "sample": lambda: zv.Sample(X, S),
    "scores": lambda: S,
    "shape": lambda: (2,),
    "space": lambda: zv.spaces.Torus(),
    "states": lambda: State(X, F, S),
    "strength": lambda: 0.1,
    "value": lambda: 1.0,
    "values": lambda: F,
}
ALSO = {
    "estimate": lambda: {"scores": S, "values": F, "family": zv.Polynomial(1)},
    "summary": lambda: {"scores": S[None], "family": zv.Polynomial(1)},
    "tune": lambda: {"evaluations": 2},
    "fit": lambda: {"family": zv.Polynomial(1)},
    "from_arviz": lambda: {"data": tree()},
    **{
        name: lambda: {"data": posterior(), "family": zv.Polynomial(1)}
        for name in ("probability", "quantile", "interval", "density")
    },
    "sensitivity": lambda: {
        "data": posterior(),
        "values": {"f": F[None]},
        "to": {"h": F[None]},
        "family": zv.Polynomial(1),
    },
    "evidence": lambda: {
        "data": X,
        "log_density": lambda x: -x @ x / 2,
        "family": zv.Automatic(effort="low", progress=False),
        "progress": False,
    },
    "Ladder": lambda: {
        "inverse_temperatures": np.array([0.0, 1.0]),
        "draws": np.stack([X, X]),
        "log_likelihood": np.stack([F, F]),
        "scores": np.stack([S, S]),
    },
    # what is wrong is said before the density is looked at
    "integrate": lambda: {"log_density": None, "start": 2},
    "ladder": lambda: {"data": None},
}
# Records that zerovar makes and users read; bases to subclass; warnings, which take any text
OTHERS = {"Estimate", "Fitted", "Check", "Selection", "Tuned", "Posterior", "LinearFamily"}
OTHERS |= {"Densities", "Evidence", "Comparison", "Sensitivities"}
OTHERS |= {"Solver", "Prepared", "BasisFamily", "AbstractKernel", "LengthScaleKernel", "Schedule"}
OTHERS |= {"NumericalError", "NumericalWarning", "SampleWarning", "ScoreWarning", "ZerovarWarning"}
OTHERS |= {"CentreRule", "keep_compiled"}  # the last changes JAX for the whole process


def public() -> dict[str, object]:
    """All that users call, by name: what `zerovar` and its public modules have, and the methods
    that the reference shows."""
    reference = (ROOT.parent.parent / "docs" / "api.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"auto\w+:: ([\w.]+)(?:\n +:members: (.*))?", reference))
    named = {name.rpartition(".")[2] for name in shown}
    found = {}
    for name in zv.__all__:
        thing = getattr(zv, name)
        if inspect.ismodule(thing):
            for inner, own in vars(thing).items():
                here = getattr(own, "__module__", "") == thing.__name__ and inner[0] != "_"
                if here and (isinstance(own, type) or inner in named):
                    found[f"{name}.{inner}"] = own
        else:
            found[name] = thing
    found = {name: one for name, one in found.items() if name.rpartition(".")[2] not in OTHERS}
    makers = (("Estimate", answer), ("Fitted", fitted), ("Sensitivities", sensitivities))
    for owner, maker in makers:
        for name in shown[owner].split(", "):
            if isinstance(getattr(getattr(zv, owner), name), property):
                continue
            found[f"{owner}.{name}"] = functools.partial(
                lambda maker, name: getattr(maker(), name), maker, name
            )
    return found


PUBLIC = public()


def is_raised_by_zerovar(error: BaseException) -> bool:
    """Whether it comes from a `raise` of the package, and not from what a line of it calls."""
    frame, line = list(traceback.walk_tb(error.__traceback__))[-1]
    path = pathlib.Path(frame.f_code.co_filename)
    return ROOT in path.parents and any(first <= line <= last for first, last in raises(path))


@functools.cache
def raises(path: pathlib.Path) -> list[tuple[int, int]]:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [(node.lineno, node.end_lineno) for node in nodes if isinstance(node, ast.Raise)]


def outcome(call, arguments):
    """The result and no error, or the other way round."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call(**arguments), None
        except Exception as error:
            return None, error


def faults(name: str, call) -> list[str]:
    parameters = inspect.signature(call).parameters
    also = {key: made for key, made in ALSO.get(name, dict)().items() if key in parameters}
    base = {key: GOOD[key]() for key, one in parameters.items() if one.default is one.empty} | also
    _, usual = outcome(call, base) if "path" not in base else (None, None)
    found = []
    for parameter in parameters:
        for what, make in ABSURD.items():
            value = make()
            if parameter in ("path", "checkpoint") and isinstance(value, str):
                continue  # a file of that name could be written
            if (name, parameter) == ("integrate", "log_density") and callable(value):
                continue  # tests/test_integrate.py has functions that are no densities
            result, error = outcome(call, base | {parameter: value})
            label = f"{name}({parameter}={what}): "
            if error is None:
                if isinstance(result, zv.Estimate) and np.isnan(result.std_error).any():
                    found.append(f"{label} NaN")
            elif not is_raised_by_zerovar(error):
                found.append(f"{label} raw {error!r}")
            elif parameter not in str(error) and str(error) != str(usual):
                found.append(f"{label} does not name it: {error}")
    return found


# What these do is done by others too, and each of their hundred calls tunes or integrates
LONG = ("interval", "probability", "sensitivity")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.whole] * (n in LONG)) for n in PUBLIC]
)
def test_absurd_arguments_are_named(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call = PUBLIC[name]
    call = call() if isinstance(call, functools.partial) else call
    monkeypatch.setitem(GOOD, "path", lambda: tmp_path / "file.svg")
    assert not faults(name, call)


def test_raw_errors_are_seen():
    """The negative control: what is not checked, and what is checked without its name."""

    def raw(number=1.0):
        return number > 1.0

    @takes(number=whole(1))
    def checked(number=1):
        return number

    def nameless(number=1):
        return check_argument("it", number, whole(1))

    assert any("raw TypeError" in fault for fault in faults("raw", raw))
    assert not faults("checked", checked)
    assert any("does not name it" in fault for fault in faults("nameless", nameless))


def test_the_fuzzer_sees_all_that_is_public():
    assert {"summary", "tune", "check", "load", "plots.forest", "Estimate.report"} <= set(PUBLIC)
    assert {"probability", "quantile", "interval", "density", "sensitivity"} <= set(PUBLIC)
    assert {"Fitted.refit", "schedules.Cosine", "SGD", "kernels.Matern", "Coupling"} <= set(PUBLIC)


@takes(count=whole(1), flag=FLAG)
def example(count: int = 3, flag: bool | None = None, *more: int) -> tuple:
    return count, flag, more


def test_arguments_are_what_the_code_works_with():
    assert example(np.int8(4)) == (4, None, ())
    assert type(example(np.int8(4))[0]) is int
    assert example(2, True, 7) == (2, True, (7,))
    with pytest.raises(
        ValueError, match=r"^example: count must be an integer of at least 1; got 0"
    ):
        example(0)
    with pytest.raises(ValueError, match="flag must be True or False; got 'yes'"):
        example(flag="yes")
    with pytest.raises(TypeError, match="unexpected keyword"):
        example(other=1)
    with pytest.raises(ValueError, match=r"got array\(.*\) \(ndarray\)"):
        example(np.zeros(100))
    assert several(whole(1), "integers").read(3) == (3,)
    assert inspect.signature(zv.holdout).parameters["fraction"].default == 0.5


def test_a_folder_is_a_path():
    with pytest.raises(ValueError, match=r"folder must be a path, .* got 3"):
        zv.keep_compiled(3)


def test_load_names_what_is_no_file(tmp_path):
    for path in (tmp_path, tmp_path / "absent.npz"):
        with pytest.raises(FileNotFoundError, match=path.name):
            zv.load(path)


# --- sizes of numbers ------------------------------------------------------------------------


def with_one(array, row, value):
    changed = array.copy()
    changed[row, 0] = value
    return changed


FITS = {
    "chosen": {"family": zv.Automatic(effort="low")},
    "polynomial": {"family": zv.Polynomial(2)},
    "kernel": {"family": zv.Kernel()},
    "gradients": {
        "family": zv.Kernel(),
        "solver": zv.CG(progress=False),
        "objective": zv.LeastSquares(zv.Ridge(1e-3)),
    },
}


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("size", [1e200, 1e60])
def test_a_draw_beyond_all_others_is_named(fit, size):
    """It gave NaN, a raw LinAlgError, or infinities in a matrix."""
    x = with_one(gaussian(300, 2)[0], 290, size)
    result, error = outcome(lambda: zv.estimate(x, -x, np.sin(x[:, 1]), **FITS[fit]), {})
    if error is None:  # the choice leaves the coordinate out, or takes the plain mean
        assert fit == "chosen"
        assert np.isfinite([result.value, result.std_error]).all()
        assert any("290" in text for text in result.warnings)
    else:
        assert isinstance(error, ValueError | zv.NumericalError)
        assert is_raised_by_zerovar(error)
        assert f"{size:.3g}" in str(error)


def test_the_draw_that_is_named_is_the_one_whose_scores_do_not_show_it():
    x, s = gaussian(300, 2)
    with pytest.raises(zv.NumericalError, match=r"number 17 of the 300 .* has 1e\+75"):
        zv.fit(zv.Kernel(), zv.Sample(with_one(x, 17, 1e75), 1e10 * s), np.sin(x[:, 1]))


@pytest.mark.parametrize("what", ["draws", "scores", "values"])
def test_numbers_whose_squares_underflow_are_refused(what):
    arrays = {"draws": X, "scores": S, "values": F}
    arrays[what] = 1e-300 * arrays[what]
    with pytest.raises(ValueError, match=f"{what}: .* moves by only .* underflow"):
        zv.estimate(**arrays)


def test_a_series_is_an_array_with_a_name():
    frame = pandas.DataFrame({"mu": F, "up": F > 0}, index=range(7, 127))
    series = zv.estimate(X, S, frame["mu"], family=zv.Polynomial(1))
    assert series.names == ("mu",)
    assert np.array_equal(series.value, answer().value)
    assert zv.estimate(X, S, pandas.Series(F), family=zv.Polynomial(1)).names == ("f0",)
    rows = zv.estimate(X, S, dict(frame), family=zv.Polynomial(1))
    assert rows.names == ("mu", "up")


# --- entries that are not there --------------------------------------------------------------

BEYOND = {
    "by an array": lambda x: x[jnp.array([0, 2])].sum(),
    "of an array of its own": lambda x: x[0] * jnp.arange(3.0)[jnp.array([0, 3])].sum(),
    "take": lambda x: jnp.take(x, 2),
    "along an axis": lambda x: jnp.take_along_axis(x, jnp.array([2]), 0)[0],
    "behind one that is meant": lambda x: (
        x.at[jnp.array([2])].get(mode="clip").sum() + x[jnp.array([2])].sum()
    ),
}


@pytest.mark.parametrize("what", BEYOND)
@pytest.mark.filterwarnings("ignore::zerovar.NumericalWarning")
def test_an_entry_beyond_the_end_is_refused(what):
    with pytest.raises(ValueError, match=r"values .* index [23] is out of bounds"):
        zv.estimate(X, S, BEYOND[what], family=zv.Polynomial(1))
    with pytest.raises(ValueError, match=r"log_density .* index [23] is out of bounds"):
        zv.from_log_density(lambda x: -(BEYOND[what](x) ** 2) - x @ x, X)


MEANT = {
    "filled": lambda x: x.at[jnp.array([0, 2])].get(mode="fill", fill_value=0.0).sum(),
    "padded": lambda x: jax.ops.segment_sum(x, jnp.array([0, 5]), 2)[jnp.array([0])].sum(),
    "from the end": lambda x: x[jnp.array([-1])].sum(),
    "on the other side": lambda x: jax.lax.cond(
        x[0] > np.inf, lambda: x[jnp.array([2])].sum(), lambda: x[jnp.array([0])].sum()
    ),
    "in order": lambda x: jnp.median(x) + jnp.interp(x[0], jnp.arange(3.0), jnp.arange(3.0)),
}


@pytest.mark.parametrize("what", MEANT)
def test_an_entry_that_is_there_or_filled_is_taken(what):
    assert np.isfinite(zv.fit(zv.Polynomial(1), zv.Sample(X, S), MEANT[what]).intercept).all()


CLIPPED = {
    "take": lambda x: jnp.take(x, 2, mode="clip"),
    "mapped": lambda x: jax.vmap(lambda k: x[k])(jnp.arange(3)).sum(),
    "in a loop": lambda x: jax.lax.fori_loop(
        0, 3, lambda k, total: total + jnp.take(x, k, mode="clip"), 0.0
    ),
    "on one side": lambda x: jax.lax.cond(
        x[0] < np.inf, lambda: jnp.take(x, 2, mode="clip"), lambda: 0.0
    ),
}


@pytest.mark.parametrize("what", CLIPPED)
def test_an_entry_that_is_clipped_is_told(what):
    with pytest.warns(zv.NumericalWarning, match="index 2 is out of bounds .* nearest entry"):
        zv.estimate(X, S, CLIPPED[what], family=zv.Polynomial(1))
