"""Misuse, one row each: the message must name the argument, what was got, and what to do."""

import os
import subprocess
import sys
import textwrap

import jax
import numpy as np
import optax
import pandas
import pytest
from problems import gaussian, quadratic

import zerovar as zv

X, S = gaussian(40, 2)
F = X[:, 0]
WITH_NAN, FLAT = X.copy(), X.copy()
WITH_NAN[3, 1] = np.nan
FLAT[:, 1] = 4.0
CHANGED = np.concatenate([S[:20], S[:20] + 1.0])
TWICE = np.concatenate([X[:20], X[:20]])


def estimate(draws=X, scores=S, values=F, **options):
    return zv.estimate(draws, scores, values, **options)


def posterior():
    return zv.Posterior(X, S, {"a": X[:, 0]})


def summary(**options):
    return zv.summary(X[None], S[None], **options)


def fitted():
    return zv.fit(zv.Polynomial(1), zv.Sample(X, S), F)


def tune(**options):
    return zv.tune(zv.Kernel(), zv.Sample(X, S), F, **options)


# what is done wrong: (call, words that the message must hold)
MISUSE = {
    "shapes differ": (lambda: estimate(scores=S[:-1]), ["draws and scores", "(40, 2)", "(39, 2)"]),
    "axes swapped": (lambda: estimate(X.T, S), ["same shape", "swapped"]),
    "one-dimensional draws": (
        lambda: estimate(X[:, 0], S[:, 0]),
        ["(n, d)", "(40,)", "draws[:, None]"],
    ),
    "four-dimensional draws": (
        lambda: estimate(X[None, None], S[None, None]),
        ["(chain, draw, d)", "(1, 1, 40, 2)"],
    ),
    "NaN in draws": (lambda: estimate(WITH_NAN), ["draws", "NaN", "(3, 1)", "does not drop"]),
    "NaN in scores": (lambda: estimate(scores=WITH_NAN), ["scores", "NaN", "(3, 1)"]),
    "infinite values": (
        lambda: estimate(values=np.where(F > 1, np.inf, F)),
        ["values", "infinite"],
    ),
    "text": (lambda: estimate(np.full((40, 2), "a")), ["draws", "non-numeric"]),
    "complex": (lambda: estimate(X.astype(complex)), ["draws", "complex128"]),
    "ragged": (lambda: estimate([[1.0, 2.0], [3.0]]), ["draws", "array"]),
    "one draw": (lambda: estimate(X[:1], S[:1], F[:1]), ["at least 4 draws", "1 draws"]),
    "no parameters": (lambda: estimate(X[:, :0], S[:, :0]), ["0 dimensions"]),
    "constant coordinate": (lambda: estimate(FLAT), ["coordinate 1", "4", "leave it out"]),
    "collinear draws": (
        lambda: zv.estimate(np.column_stack([X, X.sum(axis=1)]), np.column_stack([S, S[:, 0]])),
        ["coordinate 2", "linear function", "redundant"],
    ),
    "zero scores": (lambda: estimate(scores=np.zeros_like(S)), ["scores", "coordinate 0"]),
    "values of another length": (lambda: estimate(values=F[:-1]), ["values", "(40,)", "(39,)"]),
    "values transposed": (
        lambda: estimate(values=np.stack([F, F, F])),
        ["values", "(3, 40)", "swapped"],
    ),
    "values missing": (lambda: zv.fit(zv.Polynomial(1), zv.Sample(X, S), None), ["values", "None"]),
    "empty dict": (lambda: estimate(values={}), ["values", "empty"]),
    "bad entry of a dict": (lambda: estimate(values={"a": F, "b": F[:5]}), ["values['b']", "(5,)"]),
    "function that is not JAX": (
        lambda: estimate(values=lambda x: float(x[0])),
        ["function of one draw", "array of values"],
    ),
    "too few names": (lambda: estimate(values=X, names=["a"]), ["names", "2 strings", "['a']"]),
    "names not distinct": (
        lambda: estimate(values=X, names=["a", "a"]),
        ["names", "distinct", "a"],
    ),
    "weights of another length": (
        lambda: estimate(log_weights=np.zeros(7)),
        ["log_weights", "(40,)", "(7,)"],
    ),
    "NaN weights": (lambda: estimate(log_weights=np.full(40, np.nan)), ["log_weights", "NaN"]),
    "zero weights": (
        lambda: estimate(log_weights=np.where(F > 1, -np.inf, 0.0)),
        ["log_weights", "weight zero", "leave"],
    ),
    "equal draws, other scores": (
        lambda: estimate(TWICE, CHANGED),
        ["scores differ", "rows 0 and 20", "order"],
    ),
    "equal draws, other values": (
        lambda: estimate(TWICE, S[np.r_[:20, :20]], F),
        ["values differ", "rows 0 and 20", "posterior predictive", "give E[y | θ] in place of y"],
    ),
    "too few draws for free terms": (
        lambda: estimate(family=zv.Polynomial(8, weight=np.inf)),
        ["44 unpenalised", "40 distinct", "lower degree"],
    ),
    "coordinates out of range": (
        lambda: estimate(family=zv.Polynomial(1, coordinates=[5])),
        ["coordinates", "0 … 1", "5"],
    ),
    "family is not one": (
        lambda: estimate(family="polynomial"),
        ["family", "'polynomial'", "Polynomial(2)"],
    ),
    "objective is not one": (lambda: estimate(objective=0.1), ["objective", "0.1", "LeastSquares"]),
    "solver is not one": (lambda: estimate(solver="exact"), ["solver", "'exact'", "Exact()"]),
    "split is not one": (lambda: estimate(split=0.5), ["split", "0.5", "holdout(fraction)"]),
    "holdout of everything": (lambda: zv.holdout(1.0), ["fraction", "between 0 and 1", "1.0"]),
    "holdout of too little": (
        lambda: estimate(split=zv.holdout(0.05)),
        ["2 to estimate", "at least 4", "another fraction"],
    ),
    "one fold": (lambda: zv.cross_fit(1), ["k", "at least 2", "1"]),
    "more folds than draws": (
        lambda: estimate(split=zv.cross_fit(30)),
        ["cross_fit(30)", "60 draws", "fewer folds"],
    ),
    "degree zero": (lambda: zv.Polynomial(0), ["degree", "at least 1", "0"]),
    "fractional degree": (lambda: zv.Polynomial(1.5), ["degree", "integer", "1.5"]),
    "negative weight": (lambda: zv.Polynomial(1, weight=-1.0), ["weight", "≥ 0", "-1.0"]),
    "weights for other degrees": (
        lambda: zv.Polynomial(2, weight=(1, 1, 1)),
        ["weight", "2 of them"],
    ),
    "negative length-scale": (
        lambda: zv.kernels.Gaussian(-1.0),
        ["length_scale", "positive", "-1.0"],
    ),
    "nu not half-integer": (lambda: zv.kernels.Matern(2.0), ["nu", "half-integer", "2.0"]),
    "kernel too rough": (
        lambda: zv.Kernel(zv.kernels.Matern(1.5), order=2),
        ["order 2", "larger nu"],
    ),
    "order three": (lambda: zv.Kernel(order=3), ["order", "1", "2", "3"]),
    "base is not a kernel": (lambda: zv.Kernel(1.0), ["base", "kernels.Gaussian", "1.0"]),
    "masked draws": (lambda: estimate(np.ma.masked_greater(X, 2.0)), ["draws", "masked"]),
    "no integrands": (lambda: estimate(values=X[:, :0]), ["no integrands", "(40, 0)"]),
    "weights that underflow": (
        lambda: estimate(log_weights=np.linspace(0, -900, 40)),
        ["log_weights", "zero to rounding"],
    ),
    "coordinates as booleans": (
        lambda: zv.Polynomial(1, coordinates=[False, True]),
        ["coordinates", "integers"],
    ),
    "length-scale as text": (lambda: zv.kernels.Gaussian("a"), ["length_scale", "'a'"]),
    "several length-scales": (
        lambda: zv.kernels.Gaussian([1.0, 2.0]),
        ["length_scale", "positive number"],
    ),
    "weight of a kernel missing": (lambda: zv.Kernel(weight=None), ["weight", "None"]),
    "penalties missing": (lambda: zv.LeastSquares(None), ["penalties", "None"]),
    "L1 with a tight intercept": (
        lambda: estimate(objective=zv.LeastSquares(zv.L1(0.1), intercept_variance=1.0)),
        ["L1", "intercept_variance"],
    ),
    "a coordinate that is stuck where it fits": (
        lambda: estimate(np.where(np.arange(40)[:, None] < [0, 25], 1.5, X), split=zv.holdout(0.5)),
        ["coordinate 1", "does not move"],
    ),
    "negative ridge": (lambda: zv.Ridge(-1.0), ["strength", "≥ 0", "-1.0"]),
    "ridge as a number": (lambda: zv.LeastSquares(0.1), ["penalties", "Ridge", "0.1"]),
    "Ridge and L2": (
        lambda: estimate(objective=zv.LeastSquares((zv.Ridge(1.0), zv.L2(1.0)))),
        ["Ridge or L2"],
    ),
    "L1 on a kernel": (
        lambda: estimate(family=zv.Kernel(), objective=zv.LeastSquares(zv.L1(1.0))),
        ["L1", "features"],
    ),
    "sample of another dimension": (
        lambda: zv.fit(zv.Polynomial(1), zv.Sample(X, S), F)(zv.Sample(*gaussian(40, 3))),
        ["d = 2", "(40, 3)"],
    ),
    "batch size zero": (lambda: zv.SGD(batch_size=0), ["batch_size", "at least 1", "0"]),
    "fractional epochs": (lambda: zv.SGD(epochs=2.5), ["epochs", "integer", "2.5"]),
    "average above one": (lambda: zv.SGD(average=1.5), ["average", "between 0 and 1", "1.5"]),
    "everything held out": (lambda: zv.SGD(validation=1.0), ["validation", "1.0"]),
    "too few to hold out": (
        lambda: estimate(solver=zv.SGD(validation=0.01)),
        ["validation=0.01", "at least 2"],
    ),
    "negative clip": (lambda: zv.SGD(clip=-1.0), ["clip", "positive", "-1.0"]),
    "optimiser by name": (lambda: zv.SGD(optimiser="adam"), ["optimiser", "optax.adam", "'adam'"]),
    "two learning rates": (
        lambda: zv.SGD(optimiser=optax.adam(0.1), learning_rate=0.1),
        ["learning rate", "not to both"],
    ),
    "negative learning rate": (lambda: zv.SGD(learning_rate=-0.1), ["positive", "-0.1"]),
    "patience without held-out draws": (
        lambda: zv.SGD(patience=3, validation=0.0),
        ["patience", "validation"],
    ),
    "patience where nothing is held out by default": (
        lambda: estimate(solver=zv.SGD(patience=3)),
        ["patience", "validation"],
    ),
    "schedule with a negative number": (
        lambda: zv.schedules.InverseTime(-1.0, 1.0),
        ["beta", "positive", "-1.0"],
    ),
    "warm-up longer than training": (
        lambda: zv.schedules.Cosine(0.1, warmup=1.0),
        ["warmup", "1.0"],
    ),
    "variance of single draws": (
        lambda: estimate(objective=zv.Variance(), solver=zv.SGD(batch_size=1)),
        ["Variance", "batch_size", "2"],
    ),
    "in sample by training": (
        lambda: estimate(solver=zv.SGD(epochs=1), split=zv.in_sample()),
        ["in_sample()", "cross_fit()"],
    ),
    "Ridge on a network": (
        lambda: estimate(family=zv.Network(), objective=zv.LeastSquares(zv.Ridge(1.0))),
        ["no norm of its own", "L2", "Magnitude"],
    ),
    "L1 on a network": (
        lambda: estimate(family=zv.Network(), objective=zv.LeastSquares(zv.L1(1.0))),
        ["L1", "features"],
    ),
    "Ridge and L2 in training": (
        lambda: estimate(objective=zv.LeastSquares((zv.Ridge(1.0), zv.L2(1.0))), solver=zv.SGD()),
        ["Ridge or L2"],
    ),
    "Magnitude in a linear system": (
        lambda: estimate(objective=zv.LeastSquares(zv.Magnitude(1.0))),
        ["Magnitude", "SGD()"],
    ),
    "dual without a ridge": (lambda: estimate(solver=zv.DualSGD()), ["DualSGD", "Ridge"]),
    "dual of a network": (
        lambda: estimate(family=zv.Network(), solver=zv.DualSGD()),
        ["DualSGD", "not linear"],
    ),
    "dual without blocks": (
        lambda: zv.DualSGD(batch_size=0),
        ["DualSGD: batch_size", "at least 1", "0"],
    ),
    "hyper-parameters of a network": (
        lambda: estimate(family=zv.Network(), solver=zv.SGD(hyper=True)),
        ["hyper=True"],
    ),
    "network that cannot be called": (lambda: zv.Network(module=3), ["module", "MLP()", "3"]),
    "network with another operator": (
        lambda: zv.Network(operator="langevin"),
        ["operator", "Langevin()", "'langevin'"],
    ),
    "probes of a potential": (
        lambda: zv.Network(operator=zv.ScalarLangevin(), probes=2),
        ["probes", "Langevin()"],
    ),
    "fractional probes": (lambda: zv.Network(probes=0.5), ["probes", "integer", "0.5"]),
    "negative width": (lambda: zv.MLP(width=-1), ["MLP", "width", "-1"]),
    "activation by name": (
        lambda: zv.ResNet(activation="tanh"),
        ["ResNet", "activation", "'tanh'"],
    ),
    "negative seed": (lambda: estimate(seed=-1), ["seed", "-1"]),
    "score_error of words": (lambda: estimate(score_error="all"), ["score_error", "'all'"]),
    "negative score_error": (lambda: estimate(score_error=-0.1), ["score_error", "-0.1"]),
    "arrays for a sample": (
        lambda: zv.fit(zv.Polynomial(1), X, F),
        ["sample", "zv.Sample(draws, scores)", "ndarray"],
    ),
    "an entry that a draw has not": (
        lambda: estimate(values=lambda x: x[5]),
        ["values", "index 5", "size 2"],
    ),
    "an entry before the first": (
        lambda: estimate(values=lambda x: {"a": x[0], "b": x[-3]}),
        ["values", "out of bounds"],
    ),
    "masked weights": (
        lambda: estimate(log_weights=np.ma.masked_greater(F, 1.0)),
        ["log_weights", "masked"],
    ),
    "complex weights": (
        lambda: estimate(log_weights=F.astype(complex)),
        ["log_weights", "complex128"],
    ),
    "weights as text": (lambda: estimate(log_weights=["a"] * 40), ["log_weights", "non-numeric"]),
    "standardise as text": (
        lambda: estimate(standardise="no"),
        ["standardise", "True or False", "'no'"],
    ),
    "standardise as text, in fit": (
        lambda: zv.fit(zv.Polynomial(1), zv.Sample(X, S), F, standardise="no"),
        ["standardise", "True or False", "'no'"],
    ),
    "standardise as a number, in tune": (
        lambda: tune(standardise=1),
        ["standardise", "True or False", "1"],
    ),
    "negative evaluations": (lambda: tune(evaluations=-1), ["evaluations", "at least 1", "-1"]),
    "above NaN": (lambda: summary(above={"x": np.nan}), ["above['x']", "finite", "nan"]),
    "above a word": (lambda: summary(above={"x": "zero"}), ["above['x']", "number", "zero"]),
    "two probabilities": (
        lambda: summary(prob=0.89, ci_prob=0.5),
        ["prob or ci_prob, not both", "0.89", "0.5"],
    ),
    "above without a name": (lambda: summary(above=0.0 + 1), ["above", "dict", "1.0"]),
    "no regular expression": (
        lambda: summary(var_names=["x", "["], filter_vars="regex"),
        ["var_names", "'['", "regular expression", "filter_vars='like'"],
    ),
    "var_names as a number": (lambda: summary(var_names=3), ["var_names", "names", "3"]),
    "array for a sample": (
        lambda: fitted()(X),
        ["zv.Sample", "ndarray", "fitted.at(draws, scores)"],
    ),
    "a fit at one point": (lambda: fitted().at(X[0], S[0]), ["d = 2", "(2,)", "draws[None]"]),
    "a fit at chains": (lambda: fitted().at(X[None], S[None]), ["d = 2", "(1, 40, 2)", "reshape"]),
    "a fit in another dimension": (lambda: fitted().at(X[:, :1], S[:, :1]), ["d = 2", "(40, 1)"]),
    "a fit at no points": (lambda: fitted().at(X[:0], S[:0]), ["at least one row", "(0, 2)"]),
    "a fit without a draw that it has not": (
        lambda: fitted().without(np.array([40])),
        ["some of the 40", "from 0 on", "40"],
    ),
    "a fit without all draws": (
        lambda: fitted().without(np.arange(40)),
        ["some of the 40", "not of all"],
    ),
    "a fit without none": (lambda: fitted().without(np.arange(0)), ["some of the 40", "[]"]),
    "a fit with fewer scores": (lambda: fitted().at(X, S[:3]), ["(40, 2)", "(3, 2)"]),
    "too many terms": (
        lambda: zv.estimate(*gaussian(40, 10), family=zv.Polynomial(50), solver=zv.SGD()),
        ["Polynomial(50)", "75,394,027,565 terms", "d = 10", "lower degree"],
    ),
    "a degree that overflows": (lambda: zv.Polynomial(500), ["degree", "at most 80", "500"]),
    "names as a number": (lambda: estimate(names=3), ["names", "1 string", "3"]),
    "no files": (lambda: zv.from_cmdstan(None), ["CSV files", "None", "save_latent_dynamics=True"]),
    "files by number": (lambda: zv.from_cmdstan([3]), ["paths", "[3]"]),
    "values that overflow": (
        lambda: estimate(values=1.7e308 * np.sign(F)),
        ["values", "1.7e+308", "overflow", "units"],
    ),
    "draws that overflow": (
        lambda: estimate(1e200 * X, 1e-200 * S),
        ["draws", "1e75", "overflow", "at index (", "Leave that draw out"],
    ),
    "a handful of draws": (
        lambda: estimate(X[:5], S[:5], F[:5]),
        ["too few for d = 2", "2 distinct", "at least 20"],
    ),
    "a quantile twice": (
        lambda: zv.quantile(posterior(), [0.5, 0.5]),
        ["probs", "50%", "distinct"],
    ),
    "a quantile twice, to differentiate": (
        lambda: zv.sensitivity(posterior(), to={"h": X[:, 1]}, probs=[0.5, 0.5]),
        ["probs", "50%", "distinct"],
    ),
    "a quantile that has the name of a value": (
        lambda: zv.sensitivity(posterior(), {"a 50%": X[:, 1]}, to={"h": X[:, 1]}, probs=0.5),
        ["names", "a 50%", "distinct"],
    ),
    "an event twice": (
        lambda: zv.probability(posterior(), ["a > 1", "a > 1", "a > 0"]),
        ["events", "a > 1", "distinct"],
    ),
    "names that are the same in writing": (
        lambda: zv.quantile(zv.Posterior(X, S, {"1": X[:, 0], 1: X[:, 1]})),
        ["names", "distinct", "got 1 "],
    ),
    "a slope that fails": (
        lambda: zv.sensitivity(posterior(), to={"h": lambda u: 1 / 0}),
        ["to['h']", "division by zero", "at the draws"],
    ),
    "draws without their sampler": (
        lambda: zv.summary({"a": X[:, 0]}),
        ["Pass mcmc", "mcmc.get_samples()", "scores"],
    ),
    "a likelihood that is a constant": (
        lambda: zv.Ladder([0, 1], X.reshape(2, 20, 2), np.zeros((2, 20)), S.reshape(2, 20, 2)),
        ["log_likelihood is 0 at every draw", "no ladder is needed"],
    ),
    "check without a sample": (lambda: zv.check(X), ["sample", "zv.Sample"]),
}


@pytest.mark.parametrize("what", MISUSE)
def test_misuse_is_explained(what):
    call, words = MISUSE[what]
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the words are checked below)
        call()
    message = str(caught.value)
    for word in words:
        assert word in message, f"{word!r} is not in: {message}"


MEANT = {
    "from the end": lambda x: x[-1],
    "at most the last": lambda x: x.at[5].get(mode="clip"),
    "counted by a loop": lambda x: jax.lax.fori_loop(0, 2, lambda i, total: total + x[i], 0.0),
}


@pytest.mark.parametrize("what", MEANT)
def test_indices_that_are_meant_are_taken(what):
    assert np.isfinite(zv.fit(zv.Polynomial(1), zv.Sample(X, S), MEANT[what]).intercept).all()


FORK = """
    import os, sys, warnings
    import numpy as np
    import zerovar as zv
    warnings.simplefilter("ignore")  # JAX warns of any fork
    x = np.random.default_rng(0).normal(size=(50, 1))
    estimate = lambda: zv.estimate(x, -x, family=zv.Polynomial(1))
    if sys.argv[1] == "late":
        fitted = zv.fit(zv.Polynomial(1), zv.Sample(x, -x), x)
    child = os.fork()
    if child:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    if sys.argv[1] == "early":
        print(estimate().value.shape, flush=True)
        os._exit(0)
    calls = estimate, lambda: zv.tune(zv.Kernel(), zv.Sample(x, -x), x), lambda: fitted.at(x, -x)
    for call in (*calls, lambda: zv.from_log_density(lambda x: -x @ x / 2, x)):
        try:
            call()
        except (RuntimeError, ValueError) as error:
            print(error, flush=True)
    os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
@pytest.mark.parametrize("when", ["early", "late"])
def test_a_forked_process_works_or_says_why_not(when):
    """Forked after JAX has started it would hang."""
    command = [sys.executable, "-c", textwrap.dedent(FORK), when]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    lines = done.stdout.splitlines()
    if when == "early":
        assert lines == ["(1,)"]
    else:
        assert len(lines) == 4
        assert all('get_context("spawn")' in line for line in lines)


def test_wrong_scores_are_warned_of():
    x, s = gaussian(500, 2)
    with pytest.warns(zv.ScoreWarning, match="sign is flipped"):
        estimate = quadratic(x, -s, x)
    assert any("sign is flipped" in text for text in estimate.warnings)


@pytest.mark.parametrize(
    "family",
    [None, zv.Polynomial(2), zv.Kernel(zv.kernels.Gaussian(0.3))],
    ids=["chosen", "linear", "kernel"],
)
def test_a_constant_is_its_value_without_an_error_or_a_word(family):
    """But for zeros and ones, which are events."""
    x, s = gaussian(200, 2)
    estimate = zv.estimate(
        x,
        s,
        {"a third": np.full(200, 1 / 3), "x": x[:, 0] + 1e6, "minus": np.full(200, -2.5)},
        family=family,
    )
    assert np.array_equal(estimate.value[[0, 2]], [1 / 3, -2.5])
    assert np.array_equal(estimate.std_error[[0, 2]], [0, 0])
    assert np.array_equal(np.isnan(estimate.gain), [True, False, True])
    assert estimate.warnings == ()
    assert estimate.unhelped == ""
    assert [record["gain"] is None for record in estimate.to_dict()["estimates"]] == [
        True,
        False,
        True,
    ]
    assert "nan" not in str(estimate)
    alone = zv.estimate(x, s, np.full(200, 2.0), family=family)
    assert (alone.value[0], alone.std_error[0], alone.warnings) == (2, 0, ())


@pytest.mark.parametrize("kind", ["dict", "frame", "function", "array"])
def test_an_event_that_no_draw_shows_may_still_be_possible(kind):
    x, s = gaussian(400, 2)
    events = np.stack([x[:, 0] > 9, x[:, 0] < 9], axis=1)
    given = {
        "dict": {"never": events[:, 0], "always": events[:, 1]},
        "frame": pandas.DataFrame({"never": events[:, 0], "always": events[:, 1], "x": x[:, 1]}),
        "function": lambda z: {"1": z[0] > 9, "2": z[0] < 9},
        "array": events,
    }[kind]
    with pytest.warns(
        zv.SampleWarning,
        match="Events that none of the draws shows, or every one: (never, always|1, 2|f0, f1)",
    ):
        estimate = zv.estimate(x, s, given, family=zv.Polynomial(1))
    assert estimate.value[:2] == pytest.approx([0, 1], abs=0)
    # effective draws are known so well
    assert estimate.std_error[:2] == pytest.approx(3 / 400, rel=0.2)
    assert estimate.error_reasons[0].startswith("an event that no draw shows")


def test_few_draws_for_the_family_are_warned_of():
    x, s = gaussian(60, 2)
    with pytest.warns(zv.SampleWarning, match="Few draws"):
        zv.estimate(x, s, np.sin(x), family=zv.Polynomial(7))


def test_a_handful_of_draws_is_warned_of():
    x, s = gaussian(12, 1)
    with pytest.warns(zv.SampleWarning, match="too few to know"):
        zv.estimate(x, s, np.sin(x))


def test_nothing_is_warned_of_when_all_is_well(recwarn):
    zv.estimate(*gaussian(300, 2))
    assert not recwarn.list
