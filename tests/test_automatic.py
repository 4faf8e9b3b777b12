"""The one call: it chooses, it says why, it is never worse than plain Monte Carlo, and its errors
are true."""

import dataclasses
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from problems import ar1, gaussian, metropolis
from scipy.special import ndtr

import zerovar as zv
from benchmarks.__main__ import varied
from zerovar.choice import Policy, race
from zerovar.choice.candidates import AsGiven, offer
from zerovar.choice.rivals import Rival, offer_rivals
from zerovar.choice.stacking import convex_weights
from zerovar.inference.task import Task
from zerovar.solvers.exact.moving_sums import moving_sums
from zerovar.statistics.rounding import equal_columns
from zerovar.statistics.series import batch_sums

RNG = np.random.default_rng(5)
NORMAL = RNG.normal(size=(300, 2))


VALUES = {
    "line": NORMAL[:, 0],
    "smooth": np.exp(NORMAL[:, 1]),
    "noise": np.random.default_rng(6).normal(size=300),
    "constant": np.full(300, 2.0),
}


def chosen():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", zv.SampleWarning)
        return zv.estimate(NORMAL, -NORMAL, VALUES)


@pytest.fixture(scope="module")
def answer():
    """Integrands of every kind: exact by a line, smooth, hopeless, and constant."""
    return chosen()


def test_each_integrand_gets_its_own(answer):
    taken = [answer.selection.describe(j) for j in range(4)]
    assert taken[0] == "Polynomial(1)"
    assert "Polynomial(3) +" in taken[1]
    assert taken[2] == taken[3] == "no control variate"
    assert list(answer.selection.helped) == [True, True, False, False]
    assert np.allclose(answer.selection.weights.sum(axis=0), 1.0)
    assert answer.family is None


def test_the_answer_is_right(answer):
    truth = np.array([0.0, np.exp(0.5), 0.0, 2.0])
    assert np.all(np.abs(answer.value - truth)[:3] < 5 * answer.std_error[:3])
    assert (answer.value[3], answer.std_error[3]) == (2.0, 0.0)
    assert answer.gain[1] > 20
    assert answer.value[2] == pytest.approx(answer.plain_value[2], rel=1e-12)
    assert answer.std_error[2] == pytest.approx(answer.plain_std_error[2], rel=1e-9)


def test_it_says_what_was_chosen_and_why(answer, tmp_path):
    text = str(answer.selection)
    assert "exact to rounding" in text
    assert "nothing helps" in text
    assert "times smaller than with Polynomial(3)" in text
    assert "No control variate helps noise: the plain mean" in str(answer)
    assert "No control variate helps" in answer._repr_html_()
    record = answer.to_dict()["estimates"][0]
    assert record["control_variate"] == "Polynomial(1)"
    assert record["reason"] == "exact to rounding"
    answer.save(tmp_path / "answer.zv")
    again = zv.load(tmp_path / "answer.zv")
    assert np.array_equal(again.selection.weights, answer.selection.weights)
    assert again.selection.reasons == answer.selection.reasons


def test_the_same_call_gives_the_same_numbers(answer):
    again = chosen()
    assert np.array_equal(again.value, answer.value)
    assert np.array_equal(again.std_error, answer.std_error)


def test_low_effort_is_polynomials_in_closed_form():
    answer = zv.estimate(NORMAL, -NORMAL, np.sin(NORMAL), family=zv.Automatic("low"))
    assert answer.selection.candidates == (
        "no control variate",
        "Polynomial(1)",
        "Polynomial(2)",
        "Polynomial(3)",
    )
    assert answer.selection.skipped == ("tuned kernels: left out at low effort",)
    with pytest.raises(ValueError, match="effort must be one of 'low', 'normal', 'high'; got 60"):
        zv.Automatic(60)


def test_families_of_the_users_own_compete():
    """A raw kernel that needs no tuning, named as the user wrote it."""
    own = zv.Kernel(zv.kernels.Gaussian(2.0))
    options = zv.Automatic(also=own)
    assert options.also == (own,)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", zv.SampleWarning)
        answer = zv.estimate(
            NORMAL, -NORMAL, np.sin(NORMAL), family=zv.Automatic("low", also=[own])
        )
    assert answer.selection.candidates[-1].startswith("Kernel(Gaussian(ℓ=2))")


def test_a_network_competes_when_asked_for():
    network = zv.Network(zv.MLP(width=8, depth=1)) + zv.Polynomial(1)
    x = NORMAL[:100]
    answer = AsGiven("network", network).answer(Task.of(zv.Sample(x, -x), np.sin(x)), Policy())
    assert answer.value.shape == (2,)
    # out of fold: the series about its own mean
    assert np.allclose(answer.influences.mean(axis=(0, 1)), 0.0, atol=1e-12)


def offered(sample, time=1.0):
    task = Task.of(sample, sample.draws[:, :1])
    return offer(dataclasses.replace(task, autocorrelation=time), Policy())


def test_candidates_follow_the_draws():
    def labels(n, d, time=1.0):
        return [candidate.label for candidate in offered(zv.Sample(*gaussian(n, d)), time)]

    assert not any(label == "Polynomial(2)" for label in labels(100, 8))
    assert not any("RidgeFunctions" in label for label in labels(300, 2))
    assert any("RidgeFunctions" in label for label in labels(300, 20))  # cubics are too many
    assert sum("spectral" in label for label in labels(300, 2, time=3.0)) == 2


# Never worse: 40 replicates of the cheap candidates here, 200 of all of them in benchmarks. Squared
# errors are compared on the same draws, so their difference has a standard error of its own that
# the threshold allows for.
@pytest.mark.parametrize(
    "case",
    ["noise", *(pytest.param(name, marks=pytest.mark.whole) for name in ("fast wave", "tail"))],
)
def test_never_worse_than_plain(case):
    rng = np.random.default_rng(11)
    plain, ours, z = [], [], []
    for _ in range(40):
        x = rng.normal(size=(120, 1))
        truth, f = {
            "noise": (0.0, rng.normal(size=120)),
            "fast wave": (0.0, np.sin(50 * x[:, 0])),
            "tail": (0.0227501, (x[:, 0] > 2.0).astype(float)),
        }[case]
        if np.ptp(f) == 0:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", zv.ZerovarWarning)
            answer = zv.estimate(x, -x, f, family=zv.Automatic("low"))
        plain.append((answer.plain_value[0] - truth) ** 2)
        ours.append((answer.value[0] - truth) ** 2)
        z.append((answer.value[0] - truth) / answer.std_error[0])
    excess = np.array(ours) - 1.05 * np.array(plain)
    assert excess.mean() < 3 * excess.std() / np.sqrt(len(excess))
    assert np.sqrt(np.mean(np.square(z))) < 1.25 + 3 / np.sqrt(2 * len(z))


def test_a_rich_family_without_a_choice_is_worse():
    """The negative control of the test above."""
    rng = np.random.default_rng(11)
    plain, rich = [], []
    for _ in range(40):
        x, f = rng.normal(size=(120, 1)), rng.normal(size=120)
        rich.append(
            zv.fit(
                zv.Polynomial(40), zv.Sample(x, -x), f, zv.LeastSquares(zv.Ridge(1e-9))
            ).intercept[0]
            ** 2
        )
        plain.append(f.mean() ** 2)
    assert np.sum(np.array(rich) > plain) >= 30  # of 40: one in a thousand if they were alike


@pytest.mark.whole
def test_gains_hold_on_metropolis_chains():
    """Half of the states repeat; the error is calibrated over replicates."""
    z, gains = [], []
    for seed in range(30):
        x, s = metropolis(600, seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", zv.ZerovarWarning)
            answer = zv.estimate(x, s, np.exp(0.5 * x[:, 0]), family=zv.Automatic("low"))
        z.append((answer.value[0] - np.exp(0.125)) / answer.std_error[0])
        gains.append(answer.gain[0])
    assert np.median(gains) > 10
    assert 0.4 < np.sqrt(np.mean(np.square(z))) < 1.25 + 3 / np.sqrt(60)


def test_candidates_far_from_the_plain_mean_are_not_believed():
    """Scores of a shifted target: a line then says, exactly to rounding, that the mean is 1. The
    plain mean knows better."""
    x = np.random.default_rng(7).normal(size=(300, 1))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        answer = zv.estimate(x, 1 - x, x, family=zv.Automatic("low"))
    assert any("scores do not agree" in str(warning.message) for warning in caught)
    assert abs(zv.estimate(x, -x, x, family=zv.Automatic("low")).value[0]) < 1e-12
    assert abs(answer.value[0]) < 4 * answer.std_error[0]
    assert answer.std_error[0] > 0.5 * answer.plain_std_error[0]


@pytest.mark.whole
def test_kinks_get_a_rough_kernel():
    """Tuned for the kink alone: the smooth integrand, which the others serve, would have it
    smooth."""
    x = np.random.default_rng(3).normal(size=(250, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", zv.ZerovarWarning)
        answer = zv.estimate(
            x, -x, {"smooth": np.exp(0.5 * x[:, 0]), "kink": np.abs(x[:, 0] - 0.5)}
        )
    smooth, kink = (answer.selection.describe(j) for j in range(2))
    assert "Matérn" in kink
    assert "Matérn" not in smooth
    truth = 2 * np.exp(-0.125) / np.sqrt(2 * np.pi) + 0.5 * (1 - 2 * 0.3085375387259869)
    assert abs(answer.value[1] - truth) < 4 * answer.std_error[1]
    assert answer.gain[1] > 200


# Many dimensions


def single_index(n: int = 400, d: int = 20, seed: int = 0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    a = np.arange(1.0, d + 1) / np.linalg.norm(np.arange(1.0, d + 1))
    return x, 1 / (1 + np.exp(-4 * (x @ a) + 1)), a


def test_ridge_functions_finds_the_direction_of_an_increasing_function():
    x, f, a = single_index()
    family = zv.Polynomial(1) + zv.RidgeFunctions(zv.Polynomial(4, weight=(0, 1, 1, 1)))
    found = zv.fit(family, zv.Sample(x, -x), f, standardise=False).family.parts[1].directions
    line = np.linalg.lstsq(x, f - f.mean(), rcond=None)[0]
    off, plain = (
        1 - abs(direction @ a) / np.linalg.norm(direction) for direction in (found[:, 0], line)
    )
    assert off < 1e-3
    assert plain > 4 * off, "a plain regression is further off"
    with pytest.raises(ValueError, match="no honest standard error"):
        zv.estimate(x, -x, f, family=family, split=zv.in_sample())


def test_ridge_functions_is_offered_where_cubics_are_too_many():
    x, f, _ = single_index()
    values = np.stack([f, np.zeros(400), x[:, 0]], axis=1)
    task = Task.of(zv.Sample(x, -x), values)
    found = {candidate.label: candidate for candidate in offer(task, Policy())}
    line = found["Polynomial(1)"].answer(task, Policy()).influences
    (label,) = (label for label in found if "RidgeFunctions" in label)
    bent = found[label].answer(task, Policy())
    assert np.mean(line[..., 0] ** 2) > 2 * np.mean(bent.influences[..., 0] ** 2)
    assert bent.value[1] == 0.0
    assert np.abs(bent.influences[..., 1:]).max() < 1e-10


@pytest.mark.whole
def test_ridge_functions_is_calibrated():
    """40 replicates of cross-fitted directions; the truth by quadrature."""
    node, weight = np.polynomial.hermite_e.hermegauss(80)
    truth = weight @ (1 / (1 + np.exp(-4 * node + 1))) / np.sqrt(2 * np.pi)
    family = zv.Polynomial(1) + zv.RidgeFunctions(zv.Polynomial(3, weight=(0, 1, 1)))
    z = []
    for seed in range(40):
        x, f, _ = single_index(200, 10, seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", zv.ZerovarWarning)
            answer = zv.estimate(x, -x, f, family=family)
        z.append((answer.value[0] - truth) / answer.std_error[0])
    assert 1 - 3 / np.sqrt(80) < np.sqrt(np.mean(np.square(z))) < 1.25 + 3 / np.sqrt(80)


# Stacking


def test_the_stack_is_the_best_convex_combination():
    columns = np.random.default_rng(0).normal(size=(200, 3)) * [1.0, 1.1, 30.0]
    weights = convex_weights(columns)
    assert weights.sum() == pytest.approx(1.0)
    assert np.all(weights >= 0)
    assert weights[2] < 0.02
    assert np.mean((columns @ weights) ** 2) < 0.8 * np.mean(columns[:, 0] ** 2)
    heavy = columns.copy()
    heavy[:, 0] = 0.0
    heavy[0, 0] = 200**0.5  # the same mean square, in one entry
    assert convex_weights(heavy)[0] < weights[0]


def test_batches_are_of_one_autocorrelation_time():
    series = np.arange(24.0).reshape(2, 12, 1)
    assert batch_sums(series, 1.0).shape == (24, 1)
    sums = batch_sums(series, 3.0)
    assert np.array_equal(sums[:, 0], series.reshape(8, 3).sum(axis=1))


# The spectral variance


def test_moving_sums_are_bartletts_estimate():
    r = np.random.default_rng(0).normal(size=(50, 1))
    window = 7
    lags = [
        np.sum(r[: 50 - k] * r[k:]) * (1 if k == 0 else 2) * (1 - k / window) for k in range(window)
    ]
    sums = moving_sums(r, np.zeros(50, dtype=int), window)
    assert np.sum(sums**2) / window == pytest.approx(sum(lags), rel=1e-12)
    two = moving_sums(r, np.repeat([0, 1], 25), window)
    apart = [
        np.sum(moving_sums(r[k : k + 25], np.zeros(25, dtype=int), window) ** 2) for k in (0, 25)
    ]
    assert np.sum(two**2) == pytest.approx(sum(apart), rel=1e-12)


def test_spectral_variance_is_minimal():
    """Its fit has the least Bartlett estimate: every change of coefficients raises it, and least
    squares has more."""
    x = ar1(np.random.default_rng(1), 400, 2, 0.9)
    sample, f = zv.Sample(x, -x), np.exp(0.5 * x[:, 0])

    def bartlett(fitted):
        r = f - fitted(sample)[:, 0]
        return np.sum(moving_sums((r - r.mean())[:, None], np.zeros(400, dtype=int), 20) ** 2)

    fitted = zv.fit(zv.Polynomial(2), sample, f, zv.SpectralVariance(20))
    squares = zv.fit(zv.Polynomial(2), sample, f)
    assert fitted.stats["window"] == 20
    assert bartlett(fitted) < 0.99 * bartlett(squares)
    term = fitted.terms[0]
    for k in range(5):
        for step in (-1e-3, 1e-3):
            theta = np.array(term.coefficients)
            theta[k] += step
            moved = dataclasses.replace(fitted, terms=(type(term)(term.family, theta),))
            assert bartlett(moved) > bartlett(fitted)
    # a window of one draw is least squares
    plain = zv.fit(zv.Polynomial(2), sample, f, zv.SpectralVariance(1))
    assert np.allclose(plain(sample), squares(sample), atol=1e-10)
    assert plain.intercept == pytest.approx(squares.intercept, abs=1e-10)


def test_spectral_variance_counts_repeated_states_in_their_order():
    x, s = metropolis(300)
    f = np.sin(x[:, 0])
    fitted = zv.fit(zv.Polynomial(1), zv.Sample(x, s), f, zv.SpectralVariance(10))
    features = np.stack([s[:, 0], s[:, 1]], axis=1)  # raw scores span the standardised ones
    centred, target = features - features.mean(axis=0), f - f.mean()
    sums = moving_sums(np.column_stack([centred, target]), np.zeros(300, dtype=int), 10)
    theta = np.linalg.lstsq(sums[:, :2], sums[:, 2], rcond=None)[0]
    g = fitted(zv.Sample(x, s))[:, 0]
    assert np.allclose(g - g.mean(), centred @ theta, atol=1e-8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", zv.SampleWarning)
        answer = zv.estimate(x, s, f, family=zv.Polynomial(1), objective=zv.SpectralVariance())
    assert "cross" in answer.split


# Words


def caught(*arguments, **options):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        zv.estimate(*arguments, family=zv.Polynomial(1), **options)
    return " ".join(str(warning.message) for warning in found)


def test_unconverged_chains_are_warned_of():
    x = np.random.default_rng(0).normal(size=(4, 100, 2))
    assert "R-hat" not in caught(x, -x, x[..., 0])
    integrands = {"a": x[..., 0], "b": x[..., 0] + np.array([0, 0, 0, 2])[:, None]}
    assert "R-hat is above 1.07 for b." in caught(x, -x, integrands)
    x[0, :, 1] += 1.5
    assert "have not converged: R-hat is 1.2" in caught(x, -x, integrands)
    assert "for coordinate 1 (above 1.07)" in caught(x, -x, integrands)


def test_folds_that_disagree_are_warned_of():
    x = np.random.default_rng(0).normal(size=(1000, 1))
    noise = np.random.default_rng(1).normal(size=1000)
    assert "folds disagree" not in caught(x, -x, np.cos(x[:, 0]) + noise)
    drift = np.where(np.arange(1000) < 200, 0.5, 0.0)
    assert "folds disagree" in caught(x, -x, drift + 0.2 * noise + x[:, 0])


def test_sums_over_coordinates_are_tried_where_they_pay():
    """In more than three dimensions, and only on integrands that nothing else has helped much."""
    rng = np.random.default_rng(0)
    labels = {d: [rival.label for rival in offer_rivals(d, Policy())] for d in (3, 10)}
    assert "additive + IMQ" in labels[10]
    assert "additive + IMQ" not in labels[3]
    x = rng.normal(size=(300, 4))
    products = np.prod(1 / (1 + (ndtr(x) - 0.5) ** 2), axis=1)
    answer = zv.estimate(x, -x, {"linear": x.sum(axis=1), "products": products})
    errors = dict(zip(answer.selection.candidates, answer.selection.std_errors, strict=True))
    # not tried on what is known exactly
    assert errors["additive + IMQ"][0] == pytest.approx(answer.plain_std_error[0], rel=1e-12)
    others = [error[1] for label, error in errors.items() if label != "additive + IMQ"]
    assert errors["additive + IMQ"][1] < 0.7 * min(others)


@pytest.mark.whole
def test_a_sum_of_functions_of_single_coordinates_is_recognised():
    """By a polynomial in closed form; nothing else is then tuned. Negative control: a product of
    coordinates is no such sum."""
    x = np.random.default_rng(0).normal(size=(400, 4))
    sums = zv.estimate(x, -x, np.exp(x[:, 0] / 2) + np.sin(2 * x[:, 1]))
    assert [label for label in sums.selection.candidates if "IMQ" in label] == ["additive + IMQ"]
    assert (
        "anisotropic Polynomial(3) + IMQ: not needed, as additive + IMQ leaves almost no error"
        in sums.selection.skipped
    )
    assert sums.gain[0] > 1e4
    assert abs(sums.value[0] - np.exp(1 / 8)) < 4 * sums.std_error[0]
    product = zv.estimate(x, -x, np.sin(x[:, 0] * x[:, 1]))
    assert not any("additive" in label for label in product.selection.candidates)
    assert (
        "additive + IMQ: its polynomial part has more error than other polynomials"
        in product.selection.skipped
    )
    assert sum("IMQ" in label for label in product.selection.candidates) == 2


def test_only_what_is_ahead_goes_on_with_more_draws(monkeypatch):
    x, resume, calls = NORMAL[:200], Rival.resume, []
    monkeypatch.setattr(
        Rival, "resume", lambda rival, *rest: calls.append(rival.label) or resume(rival, *rest)
    )
    for ahead in (1e9, 0.1):
        assert not calls
        policy = Policy(tuning_draws=100, ahead=ahead)
        zv.estimate(x, -x, np.sin(2 * x[:, 0] * x[:, 1]), family=zv.Automatic(policy=policy))
    assert calls


def test_what_is_exact_is_not_tuned_for():
    """Polynomials know a normal's means exactly; and forty draws are too few to tune on, which is
    said."""
    x = np.random.default_rng(0).normal(size=(300, 2))
    exact = zv.estimate(x, -x, x**2).selection
    assert not any("IMQ" in label for label in exact.candidates)
    assert not exact.skipped
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", zv.SampleWarning)
        few = zv.estimate(x[:40], -x[:40], np.sin(x[:40])).selection
    assert any("effective draws" in text for text in few.skipped)


@pytest.mark.whole
def test_the_best_of_the_race_is_fitted_to_all_draws():
    """On fewer draws than are compared the answer is that of the winner alone; its error is a few
    times smaller then."""
    x = np.random.default_rng(1).normal(size=(600, 1))
    policy = Policy(pilot=200, tuning_draws=100)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", zv.SampleWarning)
        picked = zv.estimate(x, -x, np.sin(3 * x), family=zv.Automatic(policy=policy))
    tuned = [label for label in picked.selection.candidates if "+" in label]
    assert len(tuned) == 1
    assert picked.gain[0] > 1000


def test_a_rival_may_be_fitted_to_all_draws_for_some_of_its_integrands():
    """One runs for all three integrands, a special one for two, and is ahead on one of them."""

    def runner(columns, squares):
        influences, columns = np.sqrt(np.array(squares))[None, None], np.array(columns)
        answer = SimpleNamespace(influences=influences)
        return race.Runner(SimpleNamespace(label=""), columns, columns, None, answer)

    general, special = (
        runner([True, True, True], [1.0, 1.0, 1.0]),
        runner([False, True, True], [0.9, 0.1]),
    )
    (first, all_of_them), (second, some) = race._winners([general, special])
    assert (first, second) == (general, special)
    np.testing.assert_array_equal(all_of_them, [True, True, True])
    np.testing.assert_array_equal(some, [False, False, True])
    np.testing.assert_allclose(special.attempt.squares, [np.inf, 0.9, 0.1])


def test_every_number_of_the_choice_says_what_it_is_for():
    explained = Policy().explain()
    assert {name for name, *_ in explained} == {field.name for field in dataclasses.fields(Policy)}
    assert all(meaning and measured for _, _, meaning, measured in explained)


def test_a_number_of_the_choice_can_be_varied():
    """As `python -m benchmarks automatic --vary kinks=1` does: in two dimensions no rough kernel is
    then offered."""
    rough = [
        any("Matérn" in one.label for one in offer_rivals(2, policy))
        for policy in (Policy(), varied(["kinks=1"]))
    ]
    assert rough == [True, False]
    with pytest.raises(ValueError, match="no number of the choice"):
        varied(["knots=1"])


@pytest.mark.filterwarnings("ignore::zerovar.ZerovarWarning")
def test_equal_columns_have_one_answer():
    """Up to rounding, in single precision too; those that differ have their own."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(500, 2))
    rho = np.tanh(0.6 * x[:, 0] + 0.3 * x[:, 1])
    in_single = rho.astype(np.float32)
    noise = rng.normal(size=500)
    values = {
        "rho[0, 1]": rho,
        "noise": noise,
        "other": rho + 1e-9 * x[:, 0],
        "rho[1, 0]": rho * (1 + 2e-16),
        "single[0]": in_single.astype(float),
        "single[1]": np.nextafter(in_single, np.float32(1)).astype(float),
        "noise again": noise * (1 + 2e-16),
    }
    columns = np.stack(list(values.values()), axis=1)
    assert equal_columns(columns).tolist() == [0, 1, 2, 0, 4, 4, 1]
    answer = zv.estimate(x, -x, values, family=zv.Automatic(effort="low"))
    assert answer.value[3] == answer.value[0] != answer.value[2]
    assert answer.std_error[3] == answer.std_error[0]
    assert answer.value[5] == answer.value[4]
    assert answer.gain[1] == answer.gain[6] == 1
    np.testing.assert_array_equal(answer.value[[1, 6]], answer.plain_value[[1, 6]])
    assert answer.selection.describe(3) == answer.selection.describe(0) != "no control variate"
