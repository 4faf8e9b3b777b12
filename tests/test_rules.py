"""Rules for errors: pure, ablatable, never above the plain mean where that could be reported."""

import dataclasses
import inspect
import warnings

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra.numpy import arrays
from scipy import stats
from scipy.special import digamma, ive, polygamma

import zerovar as zv
from benchmarks import calibration
from zerovar.inference import rules
from zerovar.inference.answer import Alternatives, Answer, plain_answer
from zerovar.inference.cautions import Cautions
from zerovar.inference.conclude import conclude
from zerovar.inference.facts import Facts, ScoreFacts, SecondOpinion
from zerovar.inference.ledger import Ledger, assess
from zerovar.inference.rules import Bound, Reason
from zerovar.inference.task import Task
from zerovar.output import Selection

ROUTES = {name: getattr(rules, name) for name in ("ON_DISK", "ONE_FAMILY", "STACK")}
ROUTES["WEIGHTED_POINTS"] = rules.WEIGHTED_POINTS
Q = 3
X = np.random.default_rng(0).standard_t(4, size=(200, 1))
SCORES = -5 * X / (4 + X**2)
VALUES = np.column_stack([X, np.exp(X / 3), X > 1.5])
NAMES = ("x", "e^x/3", "P(x > 1.5)")


def facts_of(second: bool = False) -> tuple[Task, Facts]:
    task = Task.of(zv.Sample(X, SCORES), VALUES)
    facts = Facts.in_memory(task, NAMES, np.array([False, False, True]))
    if second:
        other = dataclasses.replace(plain_answer(task), controlled=np.ones(Q, dtype=bool))
        opinion = SecondOpinion(other, other.scatter, long_tails=True)
        facts = dataclasses.replace(facts, second=opinion)
    return task, facts


TASK, FACTS = facts_of()
SECOND = facts_of(second=True)[1]
ORDERS = [np.random.default_rng(seed).permuted([range(200)] * 2, axis=1) for seed in range(20)]
sizes = st.floats(-3, 3, allow_nan=False)


# What an answer is made of: near the plain mean and far from it, with small influences and large
# ones, with bias and without, some columns plain. Answers are made in the tests, as checks of types
# at random have no place in a strategy.
recipes = st.fixed_dictionaries(
    {
        "log_scale": arrays(float, Q, elements=sizes),
        "log_discount": arrays(float, Q, elements=sizes),
        "away": arrays(float, Q, elements=st.floats(-8, 8)),
        "bias": arrays(float, Q, elements=sizes),
        "controlled": arrays(bool, Q),
        "others": st.none() | arrays(float, (2, Q), elements=st.floats(-9, 9)),
        "orders": st.sampled_from(ORDERS),
    }
)


def make(recipe) -> Answer:
    plain, unit, controlled = FACTS.plain, FACTS.plain.scatter, recipe["controlled"]
    scale, (first, second) = 10.0 ** recipe["log_scale"], recipe["orders"]
    mixed = scale * plain.influences[:, first]
    others = recipe["others"]
    full = Answer(
        plain.value + unit * recipe["away"],
        mixed - mixed.mean(axis=(0, 1)) + unit * recipe["bias"],
        plain.stats,
        np.ones(Q, dtype=bool),
        left_out=True,
        residuals=10.0 ** recipe["log_discount"] * mixed[:, second],
        outer=None if plain.outer is None else scale * plain.outer,
        alternatives=None
        if others is None
        else Alternatives(plain.value + unit * others, np.stack([unit] * 2)),
    )
    return full.insert(plain.only(~controlled), ~controlled)


def report(answer: Answer, facts: Facts, route, selected: bool = True) -> zv.Estimate:
    weights = np.stack([~answer.controlled, answer.controlled]).astype(float)
    selection = Selection(NAMES, ("none", "some"), weights, weights, ("",) * Q, ())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", zv.ZerovarWarning)
        return conclude(
            answer,
            facts,
            route,
            Cautions(),
            split="in sample",
            settings={},
            selection=selection if selected else None,
        )


@pytest.mark.parametrize("route", ROUTES)
@settings(max_examples=60, deadline=None)
@given(recipe=recipes)
def test_no_error_is_above_the_plain_one_where_that_could_be_reported(route, recipe):
    found = report(make(recipe), SECOND, ROUTES[route])
    assert np.all(found.std_error <= found.plain_std_error * (1 + 1e-12))
    plain = ~found.selection.helped
    assert np.array_equal(found.value[plain], found.plain_value[plain])
    assert np.array_equal(found.std_error[plain], found.plain_std_error[plain])
    assert not any("does harm" in text for text in found.warnings)


@settings(max_examples=60, deadline=None)
@given(recipe=recipes, columns=arrays(bool, Q))
def test_a_column_that_is_replaced_has_no_bound_of_before(recipe, columns):
    """Its bounds are those of what took its place; those of the others stay."""
    plain, answer = FACTS.plain, make(recipe)
    before = assess(answer, FACTS, rules.STACK)
    after = assess(answer.insert(plain.only(columns), columns), FACTS, rules.STACK)
    own = assess(plain, FACTS, rules.STACK)
    for old, new, bare in zip(before.bounds, after.bounds, own.bounds, strict=True):
        np.testing.assert_allclose(new.size[columns], bare.size[columns], rtol=1e-12)
        np.testing.assert_allclose(new.size[~columns], old.size[~columns], rtol=1e-9)
    assert np.array_equal(after.error[columns], after.plain_error[columns])


@settings(max_examples=30, deadline=None)
@given(recipe=recipes)
def test_a_rule_that_is_left_out_lowers_errors_and_moves_no_value(recipe):
    """Every rule is a lower bound; without a choice no value depends on one."""
    answer = make(recipe)
    whole = report(answer, SECOND, rules.WEIGHTED_POINTS, selected=False)
    for left_out in rules.WEIGHTED_POINTS:
        some = [rule for rule in rules.WEIGHTED_POINTS if rule is not left_out]
        found = report(answer, SECOND, some, selected=False)
        assert np.all(found.std_error <= whole.std_error)
        assert np.array_equal(found.value, whole.value)


def test_the_property_can_fail():
    """Negative control: a rule without a cap, on a route that has no plain mean to fall back to."""
    wide = lambda answer, facts: Bound(Reason.BIAS, 2 * facts.plain.scatter)  # noqa: E731
    answer = dataclasses.replace(
        FACTS.plain, value=FACTS.plain.value + 1e-9, controlled=np.ones(Q, dtype=bool)
    )
    assert np.all(report(answer, FACTS, [wide], selected=False).gain < 1)
    assert np.all(report(answer, FACTS, [wide]).gain == 1)


def test_errors_and_reasons_are_those_of_the_largest_bound():
    scatter, plain = np.array([1.0, 1.0, 1.0]), np.array([3.0, 3.0, 3.0])
    ledger = Ledger(
        scatter,
        plain,
        (
            Bound(Reason.BIAS, np.array([0.5, 2.0, 2.0])),
            Bound(Reason.BEYOND, np.array([0.0, 9.0, 1.0]), capped=True),
            Bound(Reason.UNSEEN, np.array([0.0, 0.0, 5.0]), shared=True),
        ),
    )
    assert ledger.error.tolist() == [1.0, 3.0, 5.0]
    assert ledger.plain_error.tolist() == [3.0, 3.0, 5.0]
    assert ledger.reasons == (Reason.SCATTER, Reason.BEYOND, Reason.UNSEEN)


def test_a_density_with_a_jump_leaves_the_plain_mean():
    """The error of a fit is that of the plain mean and the distance from it; of a density that goes
    on it stays."""
    answer = dataclasses.replace(FACTS.plain, controlled=np.ones(Q, dtype=bool))
    answer = dataclasses.replace(answer, influences=answer.influences / 100)
    cut = dataclasses.replace(FACTS, scores=ScoreFacts(cut=True))
    assert np.all(rules.density_with_a_jump(answer, FACTS).size == 0)
    np.testing.assert_allclose(rules.density_with_a_jump(answer, cut).size, FACTS.plain.scatter)
    assert not report(answer, cut, rules.STACK).selection.helped.any()


def test_errors_carry_the_error_of_the_scores_that_is_named():
    """Scores 1 + e times too large are those of a normal that is as much narrower: x² is wrong by
    e, and scores that are off by e shift x by e."""
    x = np.random.default_rng(0).normal(size=(4000, 1))
    f = np.concatenate([x, x**2], axis=1)
    sample = zv.Sample(x, -x)
    verdict = zv.check(sample)
    for told, error in ((0.02, 0.02), ("verified", verdict.precision)):
        scores = ScoreFacts.of(sample, verdict, f, told)
        facts = Facts.in_memory(Task.of(sample, f), ("x", "x²"), np.zeros(2, dtype=bool), scores)
        exact = facts.plain.rescale(np.zeros(2), np.ones(2))
        exact = dataclasses.replace(exact, influences=0 * exact.influences)
        size = rules.wrong_scores(exact, facts).size
        np.testing.assert_allclose(size, [error, error], rtol=0.15)
    none = dataclasses.replace(facts, scores=ScoreFacts())
    assert np.all(rules.wrong_scores(exact, none).size == 0)


def test_candidates_that_are_refused_are_named():
    answer = dataclasses.replace(FACTS.plain, controlled=np.ones(Q, dtype=bool))
    unit = FACTS.plain.scatter
    away = np.array([[9.0, 9.0, 0.0], [-9.0, 0.0, 0.0], [9.0, 0.0, 0.0]])
    others = Alternatives(FACTS.plain.value + unit * away, np.stack([unit] * 3))
    found = report(dataclasses.replace(answer, alternatives=others), FACTS, rules.STACK)
    said = [text for text in found.warnings if "most control variates" in text]
    assert len(said) == 1
    assert said[0].startswith("For x most control variates")


def fitted_integrand(own: bool, factor: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draws of log Gamma(400), scores times a factor, and the log density less a quadratic: with
    the draws' own mean and covariance, or with those of the distribution."""
    t = np.random.default_rng(1).gamma(400.0, size=(1000, 7))
    x = np.log(t)
    mean, variance = digamma(400.0), polygamma(1, 400.0)
    covariance = np.cov(x.T) if own else variance * np.eye(7)
    z = x - (x.mean(axis=0) if own else mean)
    quadratic = np.einsum("ni,ij,nj->n", z, np.linalg.inv(covariance), z) / 2
    return x, factor * (400.0 - t), np.sum(400.0 * x - t, axis=1) + quadratic


@pytest.mark.parametrize(
    ("own", "factor", "said"), [(True, 1.0, True), (False, 1.0, False), (True, 1.3, False)]
)
def test_an_integrand_that_was_fitted_to_the_draws_is_named(own, factor, said):
    x, s, f = fitted_integrand(own, factor)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", zv.ZerovarWarning)
        answer = zv.estimate(x, s, {"f": f}, family=zv.Automatic(effort="low"))
    told = [text for text in answer.warnings if "fitted to these draws" in text]
    assert len(told) == said
    if said:
        assert told[0].startswith("For f the control variates that were tried agree")
        assert answer.gain[0] == 1


def test_candidates_that_differ_from_each_other_say_nothing_of_the_integrand():
    unit = FACTS.plain.scatter
    one = dataclasses.replace(FACTS.plain, controlled=np.ones(Q, dtype=bool))

    def agreed(*away):
        others = Alternatives(
            FACTS.plain.value + unit * np.array(away)[:, None],
            0 * unit + 0.1 * unit * np.ones((len(away), 1)),
        )
        return rules.agree_elsewhere(dataclasses.replace(one, alternatives=others), FACTS.plain)

    assert agreed(9.0, 9.1, 9.2).all()
    assert not agreed(9.0, 9.1, 6.0).any()
    assert not agreed(9.0, -9.0).any()
    assert not agreed(9.0).any()
    assert not agreed(1.0, 1.1).any()


def test_what_lies_beyond_the_draws_is_no_more_than_the_nearest_other_candidate_allows():
    residuals = 0.1 * FACTS.plain.influences**3  # they grow three times as fast as the integrands
    fitted = dataclasses.replace(
        FACTS.plain, influences=residuals, controlled=np.ones(Q, dtype=bool), left_out=True
    )
    alone = rules.beyond_draws(fitted, FACTS).size
    own = fitted.internal_error
    outside = np.sqrt(alone**2 - own**2)
    assert np.all(outside > 0)

    def bound(*others):
        value = fitted.value + np.array([away for away, _ in others])
        found = Alternatives(value, np.array([error for _, error in others]))
        return rules.beyond_draws(dataclasses.replace(fitted, alternatives=found), FACTS).size

    # the nearest is what the answer is made of; the next one counts, by its distance and its error
    itself, small, far = (0 * own, 0 * own), 0.1 * outside, 9 * outside
    assert np.allclose(bound(itself, (small, small), (far, far)), np.hypot(own, 4 * small))
    assert np.array_equal(bound(itself, (far, small)), alone)
    assert np.array_equal(bound(itself), alone)


def test_what_a_gap_of_the_circle_hides_is_in_the_error():
    """A von Mises angle that leaves half of the circle empty: its samples are covered, and without
    the rule they are not. Where draws are everywhere it changes next to nothing."""

    def ask(kappa, seed):
        x = np.random.default_rng(seed).vonmises(0, kappa, size=(1000, 1))
        given = (x, -kappa * np.sin(x), np.cos(x))
        return zv.estimate(*given, space=zv.spaces.Torus(), family=zv.Polynomial(4))

    truth = ive(1, 5.55) / ive(0, 5.55)
    everywhere = ask(1.0, 0).std_error
    for left_out, few, most in (("", 10, 12), ("unvisited_gaps", 0, 7)):
        with calibration.leave_out(left_out):
            found = [ask(5.55, seed) for seed in range(12)]
            assert np.isclose(everywhere, ask(1.0, 0).std_error, rtol=0.1)
        inside = [abs(one.value[0] - truth) < 1.96 * one.std_error[0] for one in found]
        assert few <= sum(inside) <= most
        reasons = {one.error_reasons[0] for one in found}
        assert (Reason.GAPS.value in reasons) is not bool(left_out)


def test_every_rule_is_a_function_of_answer_and_facts_with_a_reason_of_its_own():
    every = rules.WEIGHTED_POINTS
    for rule in every:
        assert list(inspect.signature(rule).parameters) == ["answer", "facts"]
        assert inspect.getdoc(rule)
    found = [rule(FACTS.plain, SECOND).reason for rule in every]
    assert len(set(found)) == len(found)
    assert all(set(ROUTES[name]) <= set(every) for name in ROUTES)


def test_a_rule_can_be_left_out_by_name():
    for rule in calibration.rule_names():
        with calibration.leave_out(rule):
            for route in calibration.ROUTES.values():
                assert rule not in [one.__name__ for one in getattr(rules, route)]
    assert len(calibration.rule_names()) == len(rules.WEIGHTED_POINTS)
    with pytest.raises(ValueError, match="no rule is called luck"):
        calibration.run(None, 60, 1, without=["luck"])


def test_what_is_constant_up_to_rounding_is_a_constant():
    """The diagonal of a correlation matrix, as its Cholesky factor gives it."""
    x = np.random.default_rng(0).normal(size=(400, 2))
    rho = np.tanh(x[:, 0])
    diagonal = rho * rho + np.sqrt(1 - rho * rho) ** 2
    assert np.ptp(diagonal) > 0
    found = zv.estimate(x, -x, {"rho": rho, "diagonal": diagonal})  # and no warning is an error
    assert abs(found.value[1] - 1) <= np.ptp(diagonal)
    assert found.std_error[1] < 1e-13
    assert found.std_error[1] <= found.plain_std_error[1]
    assert found.gain[0] > 100


def test_unseen_events_of_a_slow_chain_are_bounded_as_often_as_asked():
    """An event that is as probable as its bound says is not seen in at most one chain in twenty:
    200 chains of AR(0.95) know that share to 1.5 %. Autocorrelation in full would make the bound
    six times as large."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(2000, 200))
    for t in range(1, len(x)):
        x[t] = 0.95 * x[t - 1] + np.sqrt(1 - 0.95**2) * x[t]
    task = Task.of(zv.Sample(x[:, :1], -x[:, :1]), np.zeros((2000, 1)))
    facts = Facts.in_memory(task, ("x > 9",), np.array([True]))
    assert task.autocorrelation > 20
    bound = rules.unseen_event(facts.plain, facts).size[0]
    assert 3 / 2000 < bound < 0.3 * 3 * task.autocorrelation / 2000
    assert np.mean(x.max(axis=0) < stats.norm.isf(bound)) < 0.05 + 3 * 0.015
    assert np.mean(x.max(axis=0) < stats.norm.isf(3 / 2000)) > 0.2, "without autocorrelation"
