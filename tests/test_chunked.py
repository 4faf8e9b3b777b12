"""Draws on disk: the answers are those of memory, whatever the chunks, the order and the
workers."""

import logging
import os
import signal
import warnings

import dask
import dask.array as da
import jax.numpy as jnp
import numpy as np
import pytest
import xarray
from problems import ar1, gaussian, quadratic

import zerovar as zv
from zerovar.choice import Policy
from zerovar.choice.defaults import streamed_polynomial
from zerovar.chunked import arrays, sums
from zerovar.chunked import estimate as streaming
from zerovar.chunked.rows import Function, View, evaluate_in_tiles
from zerovar.inputs.points import Standardisation
from zerovar.solvers import Families, FitStats, MomentsFit, Result, Scope
from zerovar.solvers.exact.moments import moments, solve_moments
from zerovar.solvers.terms import arrange

CHAINS, LENGTH, D = 3, 1003, 3
X, S = (array.reshape(CHAINS, LENGTH, D) for array in gaussian(CHAINS * LENGTH, D, seed=1))
F = np.stack([np.sin(X[..., 0]), X[..., 1] * X[..., 2] ** 2], axis=2)
LOG_WEIGHTS = 0.3 * np.random.default_rng(2).normal(size=(CHAINS, LENGTH))


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    """Chunks stay as small as the tests make them, and batches are longer than a draw."""
    monkeypatch.setattr(arrays, "FEW_NUMBERS", 0)
    monkeypatch.setattr(streaming, "SAMPLE", 600)
    with dask.config.set(scheduler="synchronous"):
        yield


def on_disk(array, chunks=(2, 217, 2)):
    """Chunks that divide nothing, and cut the parameters too."""
    return da.from_array(array, chunks=chunks[: array.ndim])


def close(answer, expected, rtol=1e-9):
    """The same means to rounding; errors are by batches, and so the same to their own noise."""
    assert answer.names == expected.names
    np.testing.assert_allclose(answer.value, expected.value, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(answer.plain_value, expected.plain_value, rtol=rtol)
    np.testing.assert_allclose(answer.std_error, expected.std_error, rtol=0.3)
    np.testing.assert_allclose(answer.plain_std_error, expected.plain_std_error, rtol=0.3)
    np.testing.assert_allclose(np.diag(answer.covariance), answer.std_error**2)


def both(values, chunked_values, chunks=(2, 217, 2), log_weights=None, **options):
    """The same call in memory and on chunks."""
    options = {"family": zv.Polynomial(2), "split": zv.cross_fit(5)} | options
    weights = None if log_weights is None else on_disk(log_weights, chunks)
    expected = zv.estimate(X, S, values, log_weights=log_weights, **options)
    return zv.estimate(
        on_disk(X, chunks), on_disk(S), chunked_values, log_weights=weights, **options
    ), expected


# moments


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize(
    ("family", "ridge"),
    [
        (zv.Polynomial(3), 0.0),
        (zv.Polynomial(2), 1e-2),
        (zv.Polynomial(2, weight=[np.inf, 0.3]), 1e-2),
        (zv.Polynomial(1, operator=zv.Langevin()) + zv.Polynomial(3, coordinates=[0]), 1e-3),
    ],
    ids=["cubic", "ridge", "partly free", "sum"],
)
def test_fits_from_moments_are_those_of_the_primal(family, ridge, weighted):
    sample = zv.Sample(X, S, LOG_WEIGHTS if weighted else None)
    f = F.reshape(-1, 2)
    expected = zv.fit(family, sample, f, zv.LeastSquares(zv.Ridge(ridge)), zv.Exact(), throw=False)
    x, s = expected.standardisation(sample.draws, sample.scores)
    terms, held = arrange(family, D)
    weights = sample.weights * 3000 if weighted else None
    starts = np.array([0, 1, 700, 1024, 2500])
    found = moments(terms, x, s, f - f[0], weights, starts)
    fit = solve_moments(found.matrix, ridge * held)
    np.testing.assert_allclose(fit.intercept + f[0], expected.intercept, rtol=1e-10)
    np.testing.assert_allclose(
        fit.theta,
        np.concatenate([term.coefficients for term in expected.terms]),
        rtol=1e-7,
        atol=1e-9,
    )
    w = np.ones(len(x)) if weights is None else weights
    sums = np.add.reduceat(w[:, None] * (f - f[0]), starts, axis=0)
    np.testing.assert_allclose(found.sums[:, -2:], sums, rtol=1e-11)
    np.testing.assert_allclose(found.sums[:, 0], np.add.reduceat(w, starts), rtol=1e-12)


def test_sums_do_not_depend_on_the_order_of_the_chunks():
    chunks = arrays.Chunks.of(on_disk(X), on_disk(S), on_disk(F), None)
    sample = zv.Sample(X, S)
    terms, _ = arrange(zv.Polynomial(2), D)
    parts = np.array([0, 401, LENGTH])
    view = View(
        Standardisation.of(sample.points()), None, ["values"], np.zeros(2), np.ones(2), 0.0, parts
    )
    plan = sums.PassPlan(view, np.array([0, 50, 401, 700, LENGTH]), terms)
    pieces = [sums.sum_chunk(plan, *(dask.compute(*task))) for task in chunks.tasks()]
    expected = sums.merge_sums(pieces)
    rng = np.random.default_rng(0)
    for _ in range(5):
        some = [pieces[k] for k in rng.permutation(len(pieces))]
        cut = int(rng.integers(1, len(some)))
        other = sums.merge_sums([sums.merge_sums(some[:cut]), sums.merge_sums(some[cut:])])
        np.testing.assert_array_equal(other.numbers, np.arange(CHAINS * 4))
        np.testing.assert_allclose(other.batches, expected.batches, rtol=1e-13, atol=1e-11)
        for part, matrix in expected.moments.items():
            scale = np.sqrt(np.outer(matrix.diagonal(), matrix.diagonal()))
            assert np.abs(other.moments[part] - matrix).max() <= 1e-13 * scale.max()


# the same answers as in memory


CASES = {
    "array": (F, on_disk(F), {}),
    "small chunks": (F, on_disk(F), {"chunks": (1, 41, 1)}),
    "one chunk": (F, on_disk(F, (-1, -1, -1)), {"chunks": (-1, -1, -1)}),
    "one integrand": (F[..., 0], on_disk(F[..., 0]), {}),
    "flat values": (F.reshape(-1, 2), on_disk(F.reshape(-1, 2), (500, 1)), {}),
    "dict": ({"a": F[..., 0], "b": F}, {"a": on_disk(F[..., 0]), "b": on_disk(F, (1, 333, 2))}, {}),
    "function": (lambda x: jnp.sin(x), lambda x: jnp.sin(x), {}),
    "function with names": (
        lambda x: {"b": x[:2] ** 3, "a": x[0]},
        lambda x: {"b": x[:2] ** 3, "a": x[0]},
        {},
    ),
    "draws": (None, None, {}),
    "xarray": (
        F,
        xarray.DataArray(F, dims=("chain", "draw", "k"))
        .transpose("k", "draw", "chain")
        .chunk({"draw": 99}),
        {},
    ),
    "names": (F, on_disk(F), {"names": ["one", "two"]}),
    "weights": (F, on_disk(F), {"log_weights": LOG_WEIGHTS}),
    "holdout": (F, on_disk(F), {"split": zv.holdout(0.3)}),
    "two folds": (F, on_disk(F), {"split": zv.cross_fit(2)}),
    "cubic": (F, on_disk(F), {"family": zv.Polynomial(3)}),
    "free": (F, on_disk(F), {"family": zv.Polynomial(2, weight=np.inf)}),
    "coordinates": (
        F,
        on_disk(F),
        {"family": zv.Polynomial(2, coordinates=[0, 2]), "standardise": False},
    ),
    "not standardised": (F, on_disk(F), {"standardise": False}),
    "variance": (
        F,
        on_disk(F),
        {"objective": zv.Variance(zv.Ridge(0.1)), "log_weights": LOG_WEIGHTS, "standardise": False},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_answers_are_those_of_memory(case):
    values, chunked_values, options = CASES[case]
    close(*both(values, chunked_values, **options))


def test_one_chain_without_a_chain_axis():
    x, s, f = X[0], S[0], F[0]
    answer = quadratic(on_disk(x, (100, 2)), on_disk(s, (77, 3)), on_disk(f, (500, 1)))
    close(answer, quadratic(x, s, f, split=zv.cross_fit()))
    close(
        quadratic(*(on_disk(a, (100, 2)) for a in (x, s)), on_disk(f[:, 0], (9,))),
        quadratic(x, s, f[:, 0], split=zv.cross_fit()),
    )


def test_a_large_mean_costs_no_digits():
    shifted, scaled = 1e9 + F, 1e-140 * F
    answer = quadratic(on_disk(X), on_disk(S), on_disk(shifted))
    reference = quadratic(on_disk(X), on_disk(S), on_disk(F))
    np.testing.assert_allclose(answer.value - 1e9, reference.value, atol=1e-6)
    np.testing.assert_allclose(answer.std_error, reference.std_error, rtol=1e-5)
    tiny = quadratic(on_disk(X), on_disk(S), on_disk(scaled))
    np.testing.assert_allclose(tiny.std_error * 1e140, reference.std_error, rtol=1e-9)


def test_float32_files_are_read_in_double():
    x, s, f = (array.astype(np.float32) for array in (X, S, F))
    close(quadratic(on_disk(x), on_disk(s), on_disk(f)), quadratic(x, s, f, split=zv.cross_fit()))


def test_the_default_family_follows_the_draws():
    def name(n, d):
        return streamed_polynomial(n, d, Policy()).describe()

    assert (name(10**7, 5), name(10**7, 20), name(10**7, 50)) == (
        "Polynomial(3)",
        "Polynomial(2)",
        "Polynomial(1)",
    )
    assert (name(400, 5), name(100, 5)) == ("Polynomial(2)", "Polynomial(1)")
    answer = zv.estimate(on_disk(X), on_disk(S))
    assert answer.family.describe() == "Polynomial(3)"
    assert answer.split == "cross-fitting in 5 folds"


def test_the_numbers_of_a_choice_hold_on_disk_and_families_beside_it_are_refused():
    few = zv.Automatic(policy=Policy(streamed_terms=5))
    assert zv.estimate(on_disk(X), on_disk(S), family=few).family.describe() == "Polynomial(1)"
    with pytest.raises(ValueError, match=r"chunked draws are fitted by one family.*Network"):
        zv.estimate(on_disk(X), on_disk(S), family=zv.Automatic(also=[zv.Network()]))


@pytest.mark.filterwarnings("ignore::zerovar.ZerovarWarning")
def test_a_gain_of_one_is_the_plain_mean_on_disk_too():
    """Where the family was not asked for; the one that was is reported as it is."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(4, 500, 2))
    values = np.concatenate([rng.normal(size=(4, 500, 9)), x[..., :1]], axis=2)  # mostly noise
    arrays = [da.from_array(each, chunks=(2, 250, -1)) for each in (x, -x, values)]
    answer = zv.estimate(*arrays)
    plain = answer.gain <= 1
    assert plain.sum() > 2
    np.testing.assert_array_equal(answer.gain[plain], 1.0)
    np.testing.assert_array_equal(answer.value[plain], answer.plain_value[plain])
    assert answer.gain[-1] > 10
    asked = zv.estimate(*arrays, family=zv.Polynomial(3))
    assert asked.gain.min() < 1


def test_each_chunk_is_read_twice_at_most():
    """For the pilot and for the pass, however many arrays are cut from it."""
    read = []

    def load(block):
        if block.size:
            read.append(1)
        return block

    file = da.from_array(np.concatenate([X, S, F], axis=2), chunks=(CHAINS, 200, -1)).map_blocks(
        load, dtype=float
    )
    read.clear()
    quadratic(
        file[..., :3], file[..., 3:6], {"a": file[..., 6], "b": file[..., 7], "c": file[..., 6:]}
    )
    assert len(read) <= 2 * 6


def test_kernels_have_features_at_centres():
    family, objective = zv.Kernel(zv.kernels.Gaussian(3.0)), zv.LeastSquares(zv.Ridge(1e-4))
    answer = zv.estimate(
        on_disk(X),
        on_disk(S),
        on_disk(F),
        family=family,
        objective=objective,
        solver=zv.Nystrom(40),
    )
    assert answer.stats["unknowns"] == 40
    assert np.all(answer.gain > 10)
    reference = quadratic(X, S, F, split=zv.cross_fit())
    assert np.all(
        np.abs(answer.value - reference.value) < 4 * np.hypot(answer.std_error, reference.std_error)
    )


def test_features_that_depend_on_each_other_are_reported():
    with pytest.warns(zv.NumericalWarning, match="linearly dependent"):
        answer = zv.estimate(
            on_disk(X), on_disk(S), on_disk(F), family=zv.Polynomial(2) + zv.Polynomial(1)
        )
    assert answer.stats["rank"] == 9
    np.testing.assert_allclose(
        answer.value, quadratic(X, S, F, split=zv.cross_fit()).value, rtol=1e-8
    )


# what a chunked answer can do


def test_an_answer_without_traces_prints_draws_and_is_stored(tmp_path):
    answer = quadratic(on_disk(X), on_disk(S), on_disk(F))
    assert "cross-fitting in 5 folds, 3009 draws" in str(answer)
    answer.plot(tmp_path / "a.png")
    answer.report(tmp_path / "a.html")
    assert "picture is missing" not in (tmp_path / "a.html").read_text(encoding="utf-8")
    assert answer.to_dataset().sizes["integrand"] == 2
    answer.save(tmp_path / "a.zv")
    again = zv.load(tmp_path / "a.zv")
    np.testing.assert_array_equal(again.value, answer.value)
    assert again.stats["chunks"] == answer.stats["chunks"] == 2 * 5
    assert again.settings["draws"] == LENGTH
    with pytest.raises(ValueError, match="chunked draws, which are not kept"):
        zv.plots.scatter(answer)


# bad input


def spoilt(array, where, value=np.nan):
    out = array.copy()
    out[where] = value
    return on_disk(out)


REFUSED = {
    "NaN": (
        lambda: quadratic(on_disk(X), spoilt(S, (2, 900, 1)), on_disk(F)),
        "scores must be finite.*chain 2, draw 900, entry 1",
    ),
    "infinite": (
        lambda: quadratic(on_disk(X), on_disk(S), spoilt(F, (0, 3, 0), np.inf)),
        "values must be finite.*chain 0, draw 3",
    ),
    "NaN weight": (
        lambda: quadratic(
            on_disk(X), on_disk(S), on_disk(F), log_weights=spoilt(LOG_WEIGHTS, (1, 7))
        ),
        "log_weights must be finite.*chain 1, draw 7",
    ),
    "mixture": (
        lambda: quadratic(on_disk(X), S, on_disk(F)),
        "scores is in memory .ndarray. while other arguments are chunked",
    ),
    "mixed values": (
        lambda: quadratic(on_disk(X), on_disk(S), {"a": F}),
        r"values\['a'\] is in memory",
    ),
    "chunked values only": (lambda: quadratic(X, S, on_disk(F)), "draws is in memory"),
    "shapes": (
        lambda: quadratic(on_disk(X), on_disk(S[:, 1:]), on_disk(F)),
        "must have the same shape",
    ),
    "values' shape": (
        lambda: quadratic(on_disk(X), on_disk(S), on_disk(F[:, 1:])),
        "values must be .* to match the draws",
    ),
    "text": (
        lambda: quadratic(on_disk(X.astype(str)), on_disk(S)),
        "draws must be an array of real numbers",
    ),
    "unknown chunks": (
        lambda: quadratic(on_disk(X)[:, da.ones(LENGTH) > 0], on_disk(S)),
        "compute_chunk_sizes",
    ),
    "delayed": (lambda: quadratic(dask.delayed(X), on_disk(S)), "must be a dask array"),
    "empty": (lambda: quadratic(on_disk(X), on_disk(S), {}), "empty dict"),
    "in sample": (
        lambda: quadratic(on_disk(X), on_disk(S), split=zv.in_sample()),
        "Use split=cross_fit",
    ),
    "split": (lambda: quadratic(on_disk(X), on_disk(S), split=5), "split must be"),
    "folds": (
        lambda: quadratic(on_disk(X), on_disk(S), split=zv.cross_fit(600)),
        "needs at least 1200 draws",
    ),
    "holdout": (
        lambda: quadratic(on_disk(X), on_disk(S), split=zv.holdout(1e-4)),
        "both need at least 4",
    ),
    "kernel": (lambda: zv.estimate(on_disk(X), on_disk(S), family=zv.Kernel()), "has no features"),
    "network": (
        lambda: zv.estimate(on_disk(X), on_disk(S), family=zv.Network(), solver=zv.Exact()),
        r"linear families, .* got Network.* Use solver=SGD\(\)",
    ),
    "CG": (
        lambda: quadratic(on_disk(X), on_disk(S), solver=zv.CG()),
        r"solver=Exact\(\).* or trained by SGD\(\); got CG",
    ),
    "family": (
        lambda: zv.estimate(on_disk(X), on_disk(S), family="cubic"),
        "family must be a family",
    ),
    "dual SGD": (
        lambda: quadratic(
            on_disk(X), on_disk(S), solver=zv.DualSGD(), objective=zv.LeastSquares(zv.Ridge(1e-3))
        ),
        "got DualSGD",
    ),
    "order": (
        lambda: quadratic(on_disk(X), on_disk(S), solver=zv.SGD(), objective=zv.SpectralVariance()),
        "needs the whole chain in order",
    ),
    "hardly any to train on": (
        lambda: quadratic(on_disk(X), on_disk(S), solver=zv.SGD(), split=zv.holdout(0.995)),
        "only 15 draws of the pilot",
    ),
    "L1": (
        lambda: quadratic(on_disk(X), on_disk(S), objective=zv.LeastSquares(zv.L1(1.0))),
        "Ridge penalty or none; got L1",
    ),
    "objective": (
        lambda: quadratic(on_disk(X), on_disk(S), objective=zv.SpectralVariance()),
        "LeastSquares .* or Variance",
    ),
}


class Plain(zv.Solver):
    """A solver that declares nothing."""

    def prepare(self, family, objective, points, seed=0):
        return zv.Exact().prepare(family, objective, points, seed)


class FromMoments(Plain):
    """Ridge regression from moments, in the plainest way."""

    moments_scope = Scope(Families.FEATURES, (zv.Ridge,), otherwise="Use Exact()")

    def solve_moments(self, matrix, penalty):
        p = len(penalty)
        system = matrix[: 1 + p, : 1 + p] / matrix[0, 0] + np.diag(np.append(0.0, penalty))
        theta = np.linalg.solve(system, matrix[: 1 + p, 1 + p :] / matrix[0, 0])
        return MomentsFit(theta[0], theta[1:], Result.OK, FitStats("plain ridge regression", p))


def test_a_solver_of_ones_own_that_declares_moments_serves_chunked_draws():
    options = {"family": zv.Polynomial(2), "objective": zv.LeastSquares(zv.Ridge(1e-2))}
    own, exact = (
        zv.estimate(*map(on_disk, (X, S, F)), **options, solver=solver)
        for solver in (FromMoments(), zv.Exact())
    )
    np.testing.assert_allclose(own.value, exact.value, rtol=1e-9)
    np.testing.assert_allclose(own.std_error, exact.std_error, rtol=1e-9)
    assert own.stats["form"] == "plain ridge regression"
    with pytest.raises(ValueError, match=r"solvers that declare moments or windows.*got Plain"):
        zv.estimate(*map(on_disk, (X, S, F)), **options, solver=Plain())
    for wrong, words in (
        ({"objective": zv.LeastSquares(zv.L1(1.0))}, "a Ridge penalty or none; got L1"),
        ({"family": zv.Kernel()}, "families with features.*; got Kernel"),
    ):
        with pytest.raises(ValueError, match=rf"FromMoments\(\) on chunked.*{words}.*Use Exact"):
            zv.estimate(*map(on_disk, (X, S, F)), **(options | wrong), solver=FromMoments())


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused(case):
    call, message = REFUSED[case]
    with pytest.raises(ValueError, match=f"(?s){message}"):
        call()


def test_bad_numbers_beyond_the_pilot_are_found_in_the_pass(monkeypatch):
    """With no more than 100 draws in the pilot; the message is ours, not Dask's."""
    monkeypatch.setattr(arrays, "_PILOT_DRAWS", 100)
    with pytest.raises(ValueError, match="chain 1, draw 640") as caught:
        quadratic(spoilt(X, (1, 640, 0)), on_disk(S), on_disk(F))
    assert type(caught.value) is ValueError
    with pytest.raises(ValueError, match="the function gives NaN"):
        quadratic(on_disk(X), on_disk(S), lambda x: jnp.where(x[0] == X[1, 640, 0], jnp.nan, x[0]))


def test_problems_of_the_draws_are_warned_of_at_the_callers_line():
    moved = X + 5 * np.arange(CHAINS)[:, None, None]
    cases = {
        "sign is flipped": (X, -S, F),
        "or every one: f0": (X, S, X[..., 0] > 99),
        "have not converged": (moved, S, F),
    }
    for expected, case in cases.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            answer = zv.estimate(*map(on_disk, case), family=zv.Polynomial(2))
        assert any(expected in text for text in answer.warnings)
        assert {entry.filename for entry in caught} == {__file__}
        assert [str(entry.message) for entry in caught] == list(answer.warnings)


def test_constants_are_known():
    answer = zv.estimate(
        *map(on_disk, (X, S, np.stack([X[..., 0], np.full_like(X[..., 0], 2.0)], axis=2))),
        family=zv.Polynomial(1),
    )
    assert (answer.value[1], answer.std_error[1], answer.warnings) == (2, 0, ())


# standard errors


@pytest.mark.whole
def test_standard_errors_are_calibrated_on_slow_chains(monkeypatch):
    """Batches of 20 draws at ρ = 0.8: 60 replicates know a spread to 9 % (χ²), so 0.7 to 1.35
    leaves nearly four of their errors on either side. Negative control: as if draws were
    independent, plain errors are far too small."""
    monkeypatch.setattr(streaming, "SAMPLE", 100)
    rng = np.random.default_rng(0)
    truth = np.array([np.exp(-0.5), np.exp(-2.5)])
    z, plain, naive = [], [], []
    for _ in range(60):
        x = ar1(rng, 2000, 2, 0.8)
        f = np.stack([np.sin(x[:, 0]) + np.cos(x[:, 1]), np.cos(2 * x[:, 0] + x[:, 1])], axis=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", zv.ZerovarWarning)
            answer = quadratic(
                da.from_array(x, chunks=(700, 2)),
                da.from_array(-x, chunks=(700, 2)),
                da.from_array(f, chunks=(700, 2)),
            )
        assert answer.stats["batches"] == 100
        z.append((answer.value - truth) / answer.std_error)
        plain.append((answer.plain_value - truth) / answer.plain_std_error)
        naive.append((f.mean(axis=0) - truth) / (f.std(axis=0) / np.sqrt(2000)))
    spread, of_plain, of_naive = (
        np.sqrt(np.mean(np.square(each), axis=0)) for each in (z, plain, naive)
    )
    assert np.all((spread > 0.7) & (spread < 1.35)), spread
    assert np.all((of_plain > 0.7) & (of_plain < 1.35)), of_plain
    assert of_naive[0] > 1.5, of_naive


# files


def tree_of(x, s):
    posterior = xarray.Dataset(
        {
            "mu": (("chain", "draw"), x[..., 0]),
            "beta": (("chain", "draw", "who"), np.exp(x[..., 1:] / 3)),
        },
        coords={"who": np.array([10, 20])},
    )
    stats = xarray.Dataset(
        {"unconstrained_draw": (("chain", "draw", "k"), x), "gradient": (("chain", "draw", "k"), s)}
    )
    return xarray.DataTree.from_dict({"posterior": posterior, "sample_stats": stats})


@pytest.mark.parametrize("engine", ["zarr", "h5netcdf"])
def test_files_are_streamed(engine, tmp_path):
    tree, path = tree_of(X, S), tmp_path / f"run.{engine}"
    how = {"consolidated": False} if engine == "zarr" else {}
    if engine == "zarr":
        tree.to_zarr(path, **how)
    else:
        tree.to_netcdf(path, engine=engine)
    values = {"ratio": lambda draw: draw["mu"] / draw["beta"]}
    with xarray.open_datatree(path, engine=engine, chunks={}, **how) as opened:
        posterior = zv.from_arviz(opened.chunk({"draw": 300}), values=values)
        assert isinstance(posterior.draws, da.Array)
        assert set(posterior.values) == {"mu", "beta[10]", "beta[20]", "ratio[0]", "ratio[1]"}
        np.testing.assert_array_equal(posterior.values["beta[20]"], np.exp(X[..., 2] / 3))
        answer = zv.estimate(*posterior, family=zv.Polynomial(2))
        table = zv.summary(posterior, family=zv.Polynomial(1), var_names="beta", round_to=None)
    draws, scores, reference = zv.from_arviz(tree, values=values)
    expected = quadratic(
        draws, scores, {name: reference[name] for name in answer.names}, split=zv.cross_fit()
    )
    close(answer, expected)
    np.testing.assert_allclose(table["mean"], [reference[name].mean() for name in table.index])


def test_log_densities_are_evaluated_by_block():
    x = np.random.default_rng(0).normal(size=(2, 500, 3))
    data = {"v": (("chain", "draw"), x[..., 0]), "u": (("chain", "draw", "k"), x[..., 1:])}
    tree = xarray.DataTree.from_dict({"posterior": xarray.Dataset(data)})

    def log_density(draw):
        return -0.5 * jnp.sum(draw["u"] ** 2) - 0.25 * draw["v"] ** 4

    for option in (
        {"log_density": log_density},
        {"score": lambda draw: {"u": -draw["u"], "v": -(draw["v"] ** 3)}},
    ):
        posterior = zv.from_arviz(tree.chunk({"draw": 77}), **option)
        expected = zv.from_arviz(tree, **option)
        assert isinstance(posterior.scores, da.Array)
        np.testing.assert_allclose(posterior.draws, expected.draws)
        np.testing.assert_allclose(posterior.scores, expected.scores)
        assert list(posterior.values) == list(expected.values)
    with pytest.raises(ValueError, match="names of its draw"):
        zv.from_arviz(tree.chunk({"draw": 77}), score=lambda draw: {"u": -draw["u"]})
    with pytest.raises(ValueError, match="could not be evaluated"):
        zv.from_arviz(tree.chunk({"draw": 77}), log_density=lambda draw: draw["w"])


# workers


def test_copies_of_a_function_are_compiled_once():
    """As a worker is sent them, window after window; another call's function is another."""
    traced = []

    def first(x):
        traced.append(x)
        return x[0]

    for call in ("one", "one", "two"):
        found = evaluate_in_tiles(Function(call, lambda x: first(x)), X[0])
        np.testing.assert_allclose(found[:, 0], X[0, :, 0], rtol=1e-6)
    assert len(traced) == 2


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore:The control variate does harm")  # one epoch is no training
def test_a_worker_that_dies_costs_a_retry(tmp_path):
    """One of two processes kills itself in the middle of the pass; the answer is that of threads.
    What is left of the cluster then reads windows for a network, and evaluates it."""
    from distributed import Client, LocalCluster

    blocks = 12
    count, killed = tmp_path / "count", tmp_path / "killed"
    # in the pilot every block is read once, and in the pass once more
    deadly = blocks + blocks // 2

    def load(block):
        with open(count, "ab") as file:
            file.write(b"x")
        if os.path.getsize(count) > deadly and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return block

    x, s, f = (da.from_array(array, chunks=(1, 251, -1)) for array in (X, S, F))
    one_epoch = {
        "family": zv.Network(zv.MLP(width=4, depth=1)),
        "solver": zv.SGD(epochs=1),
        "split": zv.holdout(),
    }
    with dask.config.set(scheduler="threads"):
        expected = zv.estimate(x, s, f, family=zv.Polynomial(1))
        network = zv.estimate(x, s, f, **one_epoch)
    quiet = {
        "distributed.worker.memory.terminate": False,
        "distributed.scheduler.allowed-failures": 5,
    }
    levels = {
        name: logging.getLogger(name).level
        for name in ("distributed", "distributed.nanny", "distributed.scheduler")
    }
    with (
        dask.config.set(quiet, scheduler=None),
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster),
    ):
        answer = zv.estimate(
            x.map_blocks(load, dtype=float, meta=np.empty((0, 0, 0))), s, f, family=zv.Polynomial(1)
        )
        on_cluster = zv.estimate(x, s, f, **one_epoch)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    assert killed.exists()
    assert os.path.getsize(count) > 2 * blocks
    np.testing.assert_allclose(answer.value, expected.value, rtol=1e-12)
    np.testing.assert_allclose(answer.std_error, expected.std_error, rtol=1e-12)
    np.testing.assert_allclose(on_cluster.value, network.value, rtol=1e-12)
