"""Whatever comes in, `estimate` and `check` give finite numbers or say in words why not: never a
silent NaN, never a raw error.

Small and the same every time in the suite; `make fuzz` runs many more examples.
"""

import os
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, seed, settings
from hypothesis import strategies as st

import zerovar as zv

LONG = int(os.environ.get("ZEROVAR_FUZZ", "1"))
EXAMPLES = settings(
    max_examples=120 * LONG,
    deadline=None,
    database=None,
    derandomize=LONG == 1,
    suppress_health_check=[HealthCheck.too_slow],
)
FAMILIES = [zv.Polynomial(1), zv.Polynomial(2), zv.Kernel(zv.kernels.Gaussian(1.0))] + [None] * (
    LONG > 1
)
HOW = ["as is"] * 4 + ["single", "fortran", "every other", "list", "one bad", "transposed", "flat"]


@st.composite
def arguments(draw):
    """Draws, scores, values and log weights of a few shapes (others would all be compiled anew), of
    any type, size and kind."""
    chains, n, d = (
        draw(st.sampled_from([1, 2])),
        draw(st.sampled_from([3, 5, 24])),
        draw(st.sampled_from([1, 3])),
    )
    rng = np.random.default_rng(draw(st.integers(0, 9)))
    x = rng.normal(size=(chains, n, d))
    kind = draw(st.sampled_from(["normal", "tails", "copies", "line", "far", "integers"]))
    if kind == "tails":
        x = rng.standard_cauchy(size=x.shape)
    elif kind == "copies":
        x = np.repeat(x[:, : -(-n // 2)], 2, axis=1)[:, :n]
    elif kind == "line":
        x = np.broadcast_to(x[..., :1], x.shape)
    elif kind == "far":
        x = x + 1e9
    elif kind == "integers":
        x = np.round(3 * x)
    scale = 10.0 ** draw(st.sampled_from([0, 0, 0, -5, 5, -160, 160, -300, 300]))
    with np.errstate(over="ignore"):
        at, score = (
            x * scale,
            {"right": -x / scale, "zero": 0 * x, "other": rng.normal(size=x.shape)},
        )
    s = score[draw(st.sampled_from(list(score)))]
    f = {
        "draws": x,
        "event": x > 0.5,
        "never": x > 1e12,
        "constant": np.full(x.shape, 7.0),
        "huge": np.sign(x) * 1.7e308,
        "tiny": x * 1e-310,
        "whole": np.round(5 * np.tanh(x)).astype(int),
        "noise": rng.normal(size=(chains, n, 2)),
    }[
        draw(
            st.sampled_from(
                ["draws", "event", "never", "constant", "huge", "tiny", "whole", "noise"]
            )
        )
    ]
    arrays = {"draws": at, "scores": s, "values": f}
    for name in arrays:
        how = draw(st.sampled_from(HOW))
        arrays[name] = changed(arrays[name], how, draw)
        event(f"{name}: {how}")
    weights = draw(st.sampled_from([None, None, "normal", "one rules"]))
    if weights:
        arrays["log_weights"] = rng.normal(size=(chains, n)) * (1 if weights == "normal" else 300)
    return arrays


def changed(array, how, draw):
    if how == "single":
        with np.errstate(all="ignore"):
            return array.astype(np.float32)
    if how == "fortran":
        return np.asfortranarray(array)
    if how == "every other":
        return np.repeat(array, 2, axis=1)[:, ::2]
    if how == "list":
        return array.tolist()
    if how == "one bad" and array.dtype.kind == "f":
        array = array.copy()
        array.flat[draw(st.integers(0, array.size - 1))] = draw(
            st.sampled_from([np.nan, np.inf, -np.inf])
        )
    if how == "transposed":
        return np.swapaxes(array, 0, 1)
    return array.reshape(-1, array.shape[2]) if how == "flat" else array


def said(call):
    """What a call returns, or None where it says in words why it cannot."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", zv.ZerovarWarning)
        try:
            return call()
        except (ValueError, zv.NumericalError) as error:
            text = str(error)
    assert len(text) > 20
    event("refused")
    return None


@EXAMPLES
@seed(0)
@given(
    arguments(),
    st.sampled_from(FAMILIES),
    st.sampled_from([None, zv.cross_fit(2), zv.holdout(0.5)]),
)
def test_an_estimate_is_finite_or_refused(given, family, split):
    answer = said(
        lambda: zv.estimate(**given, family=family, split=None if family is None else split)
    )
    if answer is not None:
        for numbers in (
            answer.value,
            answer.std_error,
            answer.plain_value,
            answer.plain_std_error,
            answer.covariance,
        ):
            assert np.isfinite(numbers).all()
        assert np.all(answer.std_error >= 0)
        constant = answer.std_error == 0
        assert np.array_equal(np.isnan(answer.gain), constant)
        assert "nan" not in str(answer)


@EXAMPLES
@seed(0)
@given(arguments())
def test_a_check_has_a_verdict(given):
    given.pop("values")
    verdict = said(lambda: zv.check(zv.Sample(**given)))
    if verdict is not None:
        assert 0 <= verdict.p_value <= 1
        assert verdict.ok or verdict.diagnosis
        assert "nan" not in str(verdict)


def test_a_nan_would_be_noticed():
    """The negative control: a call that returns NaN, and one that fails in a raw way."""
    with pytest.raises(RuntimeWarning, match="invalid value"):
        said(lambda: np.float64(0) / np.float64(0))
    with pytest.raises(IndexError):
        said(lambda: [][0])


def test_parts_of_a_sample_have_its_numbers():
    """Chains, thinned draws and some coordinates, with weights that sum to one and no copies of
    what stays."""
    rng = np.random.default_rng(0)
    x, log_weights = rng.normal(size=(3, 20, 4)), rng.normal(size=(3, 20))
    sample = zv.Sample(x, -x, log_weights, names=list("abcd"))
    some = sample.chains(np.array([True, False, True]))
    whole = zv.Sample(x[[0, 2]], -x[[0, 2]], log_weights[[0, 2]])
    np.testing.assert_array_equal(some.draws, whole.draws)
    np.testing.assert_allclose(some.weights, whole.weights, rtol=1e-14)
    assert (some.num_chains, some.names) == (2, sample.names)
    thin, rows = sample.thin(30)
    np.testing.assert_array_equal(thin.scores, sample.scores[rows])
    np.testing.assert_allclose(
        thin.weights, sample.weights[rows] / sample.weights[rows].sum(), rtol=1e-14
    )
    assert sample.thin(1000)[0] is sample
    along = sample.along(np.array([False, True, False, True]))
    assert (along.names, along.dim) == (("b", "d"), 2)
    assert along.weights is sample.weights
    assert sample.replace(scores=sample.scores / 2).draws is sample.draws
