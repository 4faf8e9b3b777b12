"""Sparse polynomials: which terms are chosen, that they are fitted as any others, and that errors
know of the choice."""

import itertools

import equinox as eqx
import jax
import numpy as np
import pytest
from problems import ar1, gaussian

import zerovar as zv
from zerovar.families.monomials import monomial_rows
from zerovar.fitting import Method
from zerovar.inference.fits import fit_answer
from zerovar.inference.task import Task

NAMES = [f"p{j}" for j in range(12)]


def skewed(n, d, seed=0):
    """Independent draws of the density exp(3x − 3eˣ) in every coordinate, and scores."""
    rng = np.random.default_rng(seed)
    x = np.log(rng.gamma(3.0, size=(n, d)) / 3)
    return x, 3 - 3 * np.exp(x)


def test_all_monomials_are_the_polynomial():
    x, s = skewed(6, 3)
    terms = [
        term for k in (1, 2, 3) for term in itertools.combinations_with_replacement(range(3), k)
    ]
    sparse, dense = (
        zv.SparsePolynomial(3, monomials=monomial_rows(terms, 3), weight=2.0),
        zv.Polynomial(3, weight=2.0),
    )
    whole = zv.SparsePolynomial(3, weight=2.0)
    with jax.enable_x64(True):
        features = [
            np.asarray(eqx.filter_jit(family.features)(x, s)) for family in (sparse, dense, whole)
        ]
    np.testing.assert_allclose(features[0], features[1], rtol=1e-12)
    np.testing.assert_array_equal(features[1], features[2])


def test_products_that_matter_are_found_and_no_others():
    x, s = gaussian(1000, 12)
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    pair, cube = z[:, 2] * z[:, 7], z[:, 4] ** 2 * z[:, 9] + z[:, 4] * z[:, 9]
    values = np.stack(
        [z[:, 0], pair + z[:, 1], cube, np.random.default_rng(1).normal(size=1000)], axis=1
    )
    fitted = zv.fit(zv.SparsePolynomial(), zv.Sample(x, s, names=NAMES), values)
    found = [{term for term in terms if "·" in term} for terms in fitted.chosen_terms()]
    assert "p2·p7" in found[1]
    assert {"p4·p9", "p4²·p9"} <= found[2]
    assert not found[0]
    assert not found[3], "noise has no terms that stand out"
    assert not any(
        "·" in term for terms in fitted_of_degree(1, x, s, values).chosen_terms() for term in terms
    )


def fitted_of_degree(degree, x, s, values):
    return zv.fit(zv.SparsePolynomial(degree), zv.Sample(x, s, names=NAMES), values)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_chosen_terms_are_fitted_as_exact_fits_them(weighted):
    x, s = skewed(400, 10)
    f = np.exp(0.3 * x[:, 1] + 0.5 * x[:, 3] * x[:, 6])[:, None]
    sample = zv.Sample(x, s, np.random.default_rng(3).normal(size=400) if weighted else None)
    objective = zv.LeastSquares(zv.Ridge(1e-3))
    found = zv.fit(zv.SparsePolynomial(weight=2.0), sample, f, objective)
    assert found.stats["products"][0] >= 1
    exact = zv.fit(found.family, sample, f, objective, zv.Exact())
    np.testing.assert_allclose(found.intercept, exact.intercept, rtol=1e-9)
    np.testing.assert_allclose(found(sample), exact(sample), atol=1e-8 * f.std())


def test_many_integrands_share_what_the_first_of_them_found():
    """Integrands beyond the first few look only at pairs with coordinates that earlier ones took,
    and their own strongest."""
    x, s = gaussian(300, 12)
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    values = np.stack([z[:, j % 10] + z[:, j % 10] * z[:, 11] for j in range(40)], axis=1)
    found = fitted_of_degree(2, x, s, values).chosen_terms()
    assert all(f"p{j % 10}·p11" in terms for j, terms in enumerate(found))


def test_few_draws_leave_a_smaller_base():
    x, s = gaussian(60, 50)
    fitted = zv.fit(
        zv.SparsePolynomial(), zv.Sample(x, s), np.stack([x[:, 0], x[:, 3] ** 2], axis=1)
    )
    assert fitted.stats.unknowns <= 54
    assert np.isfinite(fitted.intercept).all()


def test_errors_know_that_terms_were_chosen():
    """z has unit spread where errors are cross-fitted, and not where the fit's own residuals would
    make them."""
    z, own = [], []
    for seed in range(16):
        x, s = skewed(100, 18, seed)
        values = np.stack(
            [np.cos(3 * x[:, j]) + x[:, j + 1] * x[:, j + 2] for j in range(0, 18, 3)], axis=1
        )
        task = Task.of(zv.Sample(x, s), values)
        answer = fit_answer(task, Method(zv.SparsePolynomial()), zv.cross_fit(3))
        z.append((answer.value, answer.scatter))
        fitted = zv.fit(zv.SparsePolynomial(), task.sample, values)
        rest = values - fitted(task.sample)
        own.append((fitted.intercept, rest.std(axis=0) / 10))
    big = skewed(400_000, 3, 99)[0]
    truth = np.cos(3 * big[:, 0]).mean() + big[:, 1].mean() * big[:, 2].mean()
    spread, optimistic = (
        np.sqrt(np.mean([((value - truth) / error) ** 2 for value, error in kind]))
        for kind in (z, own)
    )
    assert spread == pytest.approx(1.0, abs=4 / np.sqrt(2 * 96))
    assert optimistic > 1 + 4 / np.sqrt(2 * 96), "the control: a fit's own residuals are too small"


def test_estimate_cross_fits_and_files_keep_everything(tmp_path):
    x, s = skewed(300, 8)
    answer = zv.estimate(x, s, {"a": x[:, 0] * x[:, 1], "b": x[:, 2]}, family=zv.SparsePolynomial())
    assert "cross-fitting" in answer.split
    fitted = zv.fit(zv.SparsePolynomial(), zv.Sample(x, s, names=NAMES[:8]), x[:, :2] ** 2)
    fitted.save(tmp_path / "fit.zv")
    loaded = zv.load(tmp_path / "fit.zv")
    np.testing.assert_array_equal(loaded.at(x, s), fitted.at(x, s))
    assert loaded.chosen_terms() == fitted.chosen_terms()
    family, objective = zv.tune(
        zv.SparsePolynomial(2), zv.Sample(x, s), x[:, 0] ** 2, ridges=(1e-6, 1e-2)
    )
    again = zv.fit(family, zv.Sample(x, s), x[:, :2] ** 2, objective)
    assert again.stats["ridge"] == 2 * [pytest.approx(objective.total(zv.Ridge))]
    with pytest.raises(ValueError, match="a SparsePolynomial chooses some"):
        zv.fit(zv.Polynomial(1), zv.Sample(x, s), x).chosen_terms()


def test_draws_on_disk_have_their_terms_chosen_by_the_pilot():
    dask = pytest.importorskip("dask.array")
    x, s = skewed(4000, 6)
    f = np.stack([x[:, 0] * x[:, 1] + x[:, 2], x[:, 3] ** 2], axis=1)
    chunked = [dask.from_array(array, chunks=(500, -1)) for array in (x, s, f)]
    far, near = (
        zv.estimate(*chunked, family=zv.SparsePolynomial(2)),
        zv.estimate(x, s, f, family=zv.SparsePolynomial(2)),
    )
    np.testing.assert_allclose(far.std_error, near.std_error, rtol=0.2)
    assert (np.abs(far.value - near.value) < 2 * near.std_error).all()


def test_a_slow_chain_has_no_more_products_than_a_fast_one():
    """Sums over a chain whose draws follow each other scatter more; by single draws they would all
    stand out."""
    counts = []
    for rho in (0.0, 0.95):
        x = ar1(np.random.default_rng(0), 2000, 30, rho)
        values = np.stack([np.abs(x[:, j]) + np.sin(2 * x[:, j + 1]) for j in range(6)], axis=1)
        counts.append(
            sum(zv.fit(zv.SparsePolynomial(2), zv.Sample(x, -x), values).stats["products"])
        )
    assert max(counts) <= 6


SAMPLE = zv.Sample(*skewed(30, 2))
REFUSED = {
    "degree": (
        lambda: zv.SparsePolynomial(0),
        "degree must be an integer of at least 1 and at most 9",
    ),
    "terms": (
        lambda: zv.SparsePolynomial(terms=-1),
        "terms must be an integer of at least 0",
    ),
    "weight": (
        lambda: zv.SparsePolynomial(weight=np.inf),
        "weight must be a positive number",
    ),
    "shape": (lambda: zv.SparsePolynomial(2, monomials=[[0, 1, 2]]), r"integers \(p, 2\)"),
    "order": (lambda: zv.SparsePolynomial(2, monomials=[[1, 0]]), "increasing order"),
    "twice": (lambda: zv.SparsePolynomial(2, monomials=[[0, 1], [0, 1]]), "no row twice"),
    "coordinates": (
        lambda: zv.fit(zv.SparsePolynomial(2, monomials=[[0, 5]]), SAMPLE, SAMPLE.draws),
        "0 … 1 for draws",
    ),
    "rounds": (lambda: zv.Screening(rounds=0), "rounds must be an integer"),
    "family": (
        lambda: zv.fit(zv.Kernel(), SAMPLE, SAMPLE.draws, solver=zv.Screening()),
        r"Use solver=Exact\(\)",
    ),
    "penalty": (
        lambda: zv.fit(zv.SparsePolynomial(), SAMPLE, SAMPLE.draws, zv.LeastSquares(zv.L1(0.1))),
        "got L1",
    ),
    "in sample": (
        lambda: zv.estimate(
            *skewed(30, 2), skewed(30, 2)[0], family=zv.SparsePolynomial(), split=zv.in_sample()
        ),
        "chooses directions or terms",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_makes_no_sense_is_refused(name):
    make, words = REFUSED[name]
    with pytest.raises(ValueError, match=words):
        make()
