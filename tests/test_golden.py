"""Against the R package ZVCV 2.1.3, which the golden values come from, on raw coordinates as it
works."""

import itertools
import json
import math
import warnings
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from tables import ZVCV_KERNELS

import zerovar as zv
from zerovar.solvers.algebra.tiles import feature_matrix

CASES = ("g2", "b2", "s2", "g3", "b3", "g10", "s10")
GAUSSIAN = ("g2", "g3", "g10")
KERNEL_NAMES = ("gaussian", "RQ", "matern", "product", "prodsim")


@pytest.fixture(scope="module")
def golden(data):
    """Read each file once: golden("K0") is K0.json."""
    read = {path.stem: json.loads(path.read_text()) for path in Path(data, "golden").glob("*.json")}
    return read.__getitem__


@pytest.fixture(scope="module")
def inputs(data):
    with np.load(Path(data, "golden", "inputs.npz")) as file:
        return dict(file)


def arrays(inputs, case: str, rows: slice = slice(None)) -> tuple[zv.Sample, np.ndarray]:
    """A case's sample and integrands, or some of its rows."""
    sample = zv.Sample(inputs[f"{case}/samples"][rows], inputs[f"{case}/scores"][rows])
    return sample, inputs[f"{case}/integrands"][rows]


def relative_error(actual, expected, values) -> float:
    """The largest error of an expectation, relative to the size of its integrand; NaN (no golden
    value) is left out."""
    return float(
        np.nanmax(np.abs(actual - np.asarray(expected, dtype=float)) / np.abs(values).max(axis=0))
    )


def stein_kernel(entry: dict) -> zv.Kernel:
    return zv.Kernel(
        ZVCV_KERNELS[entry["kernel_function"]](*map(float, entry["sigma"])),
        order=entry["steinOrder"],
    )


def is_ours(entry: dict) -> bool:
    """Whether we have the kernel: Matérn only with half-integer ν."""
    return entry["kernel_function"] != "matern" or entry["sigma"][1] % 1 == 0.5


# ---- kernel and feature matrices


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("kernel", KERNEL_NAMES)
@pytest.mark.parametrize("case", ["pts1", "pts2", "pts3", "pts10"])
def test_stein_kernels(golden, inputs, case, kernel):
    x, s = jnp.asarray(inputs[f"{case}/samples"]), jnp.asarray(inputs[f"{case}/scores"])
    entries = [
        e
        for e in golden("K0")[case].values()
        if isinstance(e, dict) and e["kernel_function"] == kernel and is_ours(e)
    ]
    assert entries
    for entry in entries:
        expected = np.array(entry["K0"])
        # ZVCV evaluates Matérn at z + 1e-10 and is itself off by 1e-9 there
        assert (
            np.abs(stein_kernel(entry).gram(x, s, x, s) - expected).max()
            <= 1e-8 * np.abs(expected).max()
        )


def monomial_scale(d: int, degree: int) -> np.ndarray:
    """1/√(α! j!) of all monomials x^α of degree j = 1 … degree, in the order of our features."""
    scale = []
    for j in range(1, degree + 1):
        for variables in itertools.combinations_with_replacement(range(d), j):
            powers = [variables.count(v) for v in set(variables)]
            scale.append(1 / math.sqrt(math.prod(map(math.factorial, powers)) * math.factorial(j)))
    return np.array(scale)


def zvcv_columns(golden, inputs, d: int, degree: int) -> tuple[np.ndarray, np.ndarray]:
    """ZVCV's column for the monomial P is −½ L P: its number for each of ours, and the largest
    difference of the columns.

    ZVCV orders monomials by shape (x_j, x_j², x_j x_i, …), not alike for different degrees: columns
    are matched by value.
    """
    features = feature_matrix(
        zv.Polynomial(degree), inputs[f"pts{d}/samples"], inputs[f"pts{d}/scores"]
    ).T
    ours = -0.5 * features / monomial_scale(d, degree)
    theirs = np.array(golden("Phi")[f"pts{d}"][f"order{degree}"])
    assert (theirs[:, 0] == 1).all()
    difference = np.abs(ours[:, :, None] - theirs[:, None, 1:]).max(axis=0)
    return difference.argmin(axis=1) + 1, difference.min(axis=1).max() / np.abs(theirs).max()


FEATURES = [(d, degree) for d in (1, 2, 3) for degree in (1, 2, 3, 4)] + [
    (10, degree) for degree in (1, 2, 3)
]


@pytest.mark.parametrize(("d", "degree"), FEATURES)
def test_polynomial_features(golden, inputs, d, degree):
    columns, error = zvcv_columns(golden, inputs, d, degree)
    assert error < 1e-14
    assert sorted(columns) == list(range(1, math.comb(d + degree, d))), "each column once"


# ---- polynomials


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("case", CASES)
def test_least_squares(golden, inputs, case, degree):
    sample, values = arrays(inputs, case)
    entry = golden("zvcv_ols")[case][f"order{degree}"]
    fitted = zv.fit(zv.Polynomial(degree), sample, values, standardise=False)
    assert relative_error(fitted.intercept, entry["expectation"], values) < 1e-12
    residual = values - fitted.intercept - fitted(sample)
    assert (
        np.abs(np.mean(residual**2, axis=0) - entry["mse"]).max()
        < 1e-12 * np.abs(values).max() ** 2
    )
    # Σ b_P (−½ L P) = Σ θ_P scale_P L P
    (term,) = fitted.terms
    theta = term.coefficients
    coefficients = np.array(entry["coefs"])
    columns, _ = zvcv_columns(golden, inputs, sample.dim, degree)
    ours = np.zeros_like(coefficients)
    ours[0], ours[columns] = (
        fitted.intercept,
        -2 * monomial_scale(sample.dim, degree)[:, None] * theta,
    )
    assert np.abs(ours - coefficients).max() < 1e-10 * np.abs(coefficients).max()


# The span of L u over potentials u of degree k changes under an affine map x = μ + Lz, as L becomes
# ∇·(Σ∇u) + s·Σ∇u with Σ = LLᵀ. It does not for degree 1 (combinations of the scores), nor for a
# Gaussian target, where it is all polynomials of degree k with mean zero, nor for vector fields.
INVARIANT = [
    (case, degree) for case in CASES for degree in (1, 2, 3) if degree == 1 or case in GAUSSIAN
]


@pytest.mark.parametrize(("case", "degree"), INVARIANT)
def test_standardised_least_squares_where_the_span_is_invariant(golden, inputs, case, degree):
    sample, values = arrays(inputs, case)
    fitted = zv.fit(zv.Polynomial(degree), sample, values, standardise=True)
    assert (
        relative_error(
            fitted.intercept, golden("zvcv_ols")[case][f"order{degree}"]["expectation"], values
        )
        < 1e-12
    )


@pytest.mark.parametrize("case", ["b2", "s2", "b3"])
def test_vector_fields_are_affinely_invariant(inputs, case):
    sample, values = arrays(inputs, case)
    raw, standardised = (
        zv.fit(
            zv.Polynomial(1, operator=zv.Langevin()), sample, values, standardise=choice
        ).intercept
        for choice in (False, True)
    )
    assert relative_error(raw, standardised, values) < 1e-12


def test_potentials_are_not_affinely_invariant(golden, inputs):
    # The control of the two tests above: were it invariant, the list of cases there would be too
    # short.
    sample, values = arrays(inputs, "b2")
    fitted = zv.fit(zv.Polynomial(2), sample, values, standardise=True)
    assert (
        relative_error(fitted.intercept, golden("zvcv_ols")["b2"]["order2"]["expectation"], values)
        > 1e-5
    )


@pytest.mark.parametrize("degree", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_lasso(golden, inputs, case, degree):
    sample, values = arrays(inputs, case)
    entry = golden("glmnet_fixed_lambda")[case][f"lasso_order{degree}"]
    expectation = np.array(entry["expectation"], dtype=float)  # (integrand, λ), with a few NaN
    assert np.isfinite(expectation).mean() > 0.8
    for strength, expected in zip(entry["lambda"], expectation.T, strict=True):
        # glmnet minimises ½ mean r² + λ‖b‖₁, we mean r² + strength · ‖b‖₁
        objective = zv.LeastSquares(zv.L1(2 * strength))
        fitted = zv.fit(zv.Polynomial(degree), sample, values, objective, standardise=False)
        assert relative_error(fitted.intercept, expected, values) < 1e-7


# ---- control functionals


def comparable(golden, file: str, case: str, kernel: str):
    """Entries of cf.json or secf.json for a case and kernel, but for those where nearPD changed the
    matrix.

    There ZVCV moved eigenvalues near zero, and its numbers depend on rounding.
    """
    known = golden("kernel_comparable")[case]
    for name, entry in golden(file)[case].items():
        if not (isinstance(entry, dict) and entry.get("kernel_function") == kernel):
            continue
        method = f"SECF{entry['polyorder']}" if file == "secf" else "CF"
        if not known[name.removesuffix(f"_q{entry.get('polyorder')}")][method]["nearPD_active"]:
            yield entry


def fit(family: zv.Kernel, sample, values, **kwargs) -> zv.Fitted:
    """A fit on raw coordinates, where we may raise the ridge of matrices that ZVCV still takes as
    they are."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", zv.NumericalWarning)
        return zv.fit(family, sample, values, standardise=False, **kwargs)


def tolerance(entry: dict) -> float:
    return 1e-8 + 1e-16 * entry["cond_K0"]


# Cases where nearPD was active at every scale and order: nothing to compare. Everywhere else a test
# without entries fails.
NONE_LEFT = {
    (case, kernel) for case in ("b2", "s2") for kernel in ("gaussian", "product", "prodsim")
}
KERNEL_CASES = [
    (case, kernel) for case in CASES for kernel in KERNEL_NAMES if (case, kernel) not in NONE_LEFT
]


@pytest.mark.parametrize(("case", "kernel"), KERNEL_CASES)
def test_control_functionals(golden, inputs, case, kernel):
    sample, values = arrays(inputs, case)
    entries = list(comparable(golden, "cf", case, kernel))
    assert entries
    for entry in entries:
        family = stein_kernel(entry)
        free = fit(family, sample, values)
        assert relative_error(free.intercept, entry["expectation"], values) < tolerance(entry)
        penalised = fit(family, sample, values, objective=zv.LeastSquares(intercept_variance=1.0))
        assert relative_error(
            penalised.intercept, entry["expectation_one_in_denom"], values
        ) < tolerance(entry)


@pytest.mark.parametrize(("case", "kernel"), KERNEL_CASES)
def test_semi_exact_control_functionals(golden, inputs, case, kernel):
    sample, values = arrays(inputs, case)
    entries = list(comparable(golden, "secf", case, kernel))
    assert entries
    for entry in entries:
        family = zv.Polynomial(entry["polyorder"], weight=np.inf) + stein_kernel(entry)
        fitted = fit(family, sample, values)
        assert relative_error(fitted.intercept, entry["expectation"], values) < tolerance(entry)


# ---- fitted on some draws, evaluated at others: f − g there, which `intercept` alone does not test

FITTED, OTHERS = slice(0, None, 2), slice(1, None, 2)  # R's rows 1, 3, 5, … and the rest


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_held_out_least_squares(golden, inputs, degree):
    (sample, values), (others, other_values) = (
        arrays(inputs, "b3", FITTED),
        arrays(inputs, "b3", OTHERS),
    )
    fitted = zv.fit(zv.Polynomial(degree), sample, values, standardise=False)
    estimate = np.mean(other_values - fitted(others), axis=0)
    assert (
        relative_error(
            estimate, golden("extra")["b3_est_inds_odd"][f"order{degree}"]["expectation"], values
        )
        < 1e-12
    )


@pytest.mark.parametrize("file", ["cf", "secf"])
@pytest.mark.parametrize("kernel", KERNEL_NAMES)
@pytest.mark.parametrize("case", ["g2", "b3"])
def test_held_out_control_functionals(golden, inputs, case, kernel, file):
    (sample, values), (others, other_values) = (
        arrays(inputs, case, FITTED),
        arrays(inputs, case, OTHERS),
    )
    entries = list(comparable(golden, file, case, kernel))
    assert entries
    for entry in entries:
        family = stein_kernel(entry)
        if file == "secf":
            family = zv.Polynomial(entry["polyorder"], weight=np.inf) + family
        estimate = np.mean(other_values - fit(family, sample, values)(others), axis=0)
        assert relative_error(estimate, entry["expectation_est_inds_odd"], values) < tolerance(
            entry
        )


# ---- the rest


@pytest.mark.parametrize("standardise", [False, True])  # a Gaussian target: see INVARIANT
@pytest.mark.parametrize("degree", [1, 2, 3])
def test_importance_weights(golden, inputs, degree, standardise):
    values = inputs["w3/integrands"]
    sample = zv.Sample(
        inputs["w3/samples"], inputs["w3/scores"], log_weights=inputs["w3/log_weights"][:, 0]
    )
    expected = golden("extra")["w3_weighted"]
    assert relative_error(sample.probabilities @ values, expected["order0"], values) < 1e-14
    fitted = zv.fit(zv.Polynomial(degree), sample, values, standardise=standardise)
    assert (
        relative_error(fitted.intercept, expected[f"order{degree}"]["expectation"], values) < 1e-12
    )


@pytest.mark.parametrize("degree", [4, 5, 6])
def test_high_degrees(golden, inputs, degree):
    sample, values = arrays(inputs, "s2")
    fitted = zv.fit(zv.Polynomial(degree), sample, values, standardise=False)
    assert (
        relative_error(fitted.intercept, golden("extra")["s2_high"][f"order{degree}"], values)
        < 1e-11
    )


def test_some_coordinates(golden, inputs):
    sample, values = arrays(inputs, "b3")
    fitted = zv.fit(zv.Polynomial(2, coordinates=(0, 2)), sample, values, standardise=False)
    assert (
        relative_error(
            fitted.intercept, golden("extra")["b3_apriori_1_3_order2"]["expectation"], values
        )
        < 1e-12
    )


# ZVCV keeps repeated rows in least squares, as we do by their counts; in kernel methods it drops
# them. We count them there too, but without a ridge f = c + g holds exactly at every distinct draw,
# and how often a draw occurs does not matter.
DUPLICATES = {
    "zvcv_order2": zv.Polynomial(2),
    "CF_RQ_1_s1": zv.Kernel(zv.kernels.RationalQuadratic(1.0)),
    "SECF_RQ_1_s1_q2": zv.Polynomial(2, weight=np.inf)
    + zv.Kernel(zv.kernels.RationalQuadratic(1.0)),
}


@pytest.mark.parametrize("name", DUPLICATES)
def test_repeated_draws(golden, inputs, name):
    sample, values = arrays(inputs, "dup2")
    fitted = zv.fit(DUPLICATES[name], sample, values, standardise=False)
    assert (fitted.stats["draws"], fitted.stats["distinct_draws"]) == (120, 48)
    assert relative_error(fitted.intercept, golden("extra")["dup2"][name], values) < 1e-12
