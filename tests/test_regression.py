"""A few golden values that travel with the project, tested even where the data folder is not (see
test_golden.py)."""

import json
import re
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from pages import text_of
from tables import ZVCV_KERNELS

import zerovar as zv

GOLDEN = json.loads(Path(__file__).with_name("golden_small.json").read_text())
VALUES = np.array(GOLDEN["sample"]["values"])


def sample() -> zv.Sample:
    return zv.Sample(GOLDEN["sample"]["draws"], GOLDEN["sample"]["scores"])


def stein_kernel(entry: dict) -> zv.Kernel:
    return zv.Kernel(
        ZVCV_KERNELS[entry["kernel_function"]](*map(float, entry["sigma"])),
        order=entry["steinOrder"],
    )


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    "entry", GOLDEN["stein_kernels"], ids=lambda e: f"{e['kernel_function']} {e['steinOrder']}"
)
def test_stein_kernels(entry):
    x, s = (jnp.asarray(GOLDEN["points"][name]) for name in ("draws", "scores"))
    expected = np.array(entry["K0"])
    # ZVCV evaluates Matérn at z + 1e-10 and is itself off by 1e-9 there
    tolerance = 1e-8 if entry["kernel_function"] == "matern" else 1e-13
    assert (
        np.abs(stein_kernel(entry).gram(x, s, x, s) - expected).max()
        <= tolerance * np.abs(expected).max()
    )


# the target is Gaussian, for which the span is affinely invariant
@pytest.mark.parametrize("standardise", [False, True])
@pytest.mark.parametrize("degree", [1, 2, 3])
def test_least_squares(degree, standardise):
    fitted = zv.fit(zv.Polynomial(degree), sample(), VALUES, standardise=standardise)
    np.testing.assert_allclose(
        fitted.intercept, GOLDEN["least_squares"][str(degree)], rtol=0, atol=1e-12
    )


@pytest.mark.parametrize(
    ("variance", "weight", "expected"),
    [
        (np.inf, 1.0, "free_intercept"),
        # without a ridge, a factor of the kernel changes nothing …
        (np.inf, 4.0, "free_intercept"),
        (1.0, 1.0, "unit_intercept_variance"),
        # … but what it is relative to the variance of the intercept
        (4.0, 4.0, "unit_intercept_variance"),
    ],
)
def test_control_functional(variance, weight, expected):
    entry = GOLDEN["control_functional"]
    family = zv.Kernel(stein_kernel(entry).base, order=entry["steinOrder"], weight=weight)
    fitted = zv.fit(
        family, sample(), VALUES, zv.LeastSquares(intercept_variance=variance), standardise=False
    )
    np.testing.assert_allclose(fitted.intercept, entry[expected], rtol=0, atol=1e-11)


def test_semi_exact_control_functional():
    entry = GOLDEN["semi_exact"]
    family = zv.Polynomial(entry["degree"], weight=np.inf) + stein_kernel(entry)
    fitted = zv.fit(family, sample(), VALUES, standardise=False)
    np.testing.assert_allclose(fitted.intercept, entry["expectation"], rtol=0, atol=1e-11)


def test_the_page_for_those_who_come_from_zvcv_has_its_numbers():
    """Each row of the page: what ZVCV printed is in the golden values, and the call beside it gives
    the same digits."""
    rows = re.findall(
        r"^\| .* \| ([-\d., ]+) \| `(.*)` \|$", text_of("docs/from_zvcv.md"), flags=re.M
    )
    assert len(rows) == 5
    entries = [
        *GOLDEN["least_squares"].values(),
        GOLDEN["control_functional"]["free_intercept"],
        GOLDEN["semi_exact"]["expectation"],
    ]
    for (printed, call), golden in zip(rows, entries, strict=True):
        theirs = np.array(printed.split(", "), dtype=float)
        np.testing.assert_allclose(theirs, golden[1:], rtol=0, atol=5.1e-9)
        ours = zv.fit(
            eval(call, {"zv": zv, "np": np}), sample(), VALUES[:, 1:], standardise=False
        ).intercept
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=6e-9)
