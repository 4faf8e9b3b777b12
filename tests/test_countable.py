"""Spins, indicators and counts: Barker's operator and its closed forms, Stein's identity by sums
over all states, answers against the truth, misuse."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_operators_families import assert_close, compiled

import zerovar as zv
from benchmarks.states import (
    CASES,
    LatticeSums,
    all_states,
    flip_ratios,
    mixture,
    step_ratios,
    two_seasons,
)
from zerovar import Kernel, Langevin, Network, Polynomial, ScalarLangevin
from zerovar.families import BasisFamily
from zerovar.inputs.points import Points
from zerovar.kernels import Gaussian, InverseMultiquadric, Matern
from zerovar.operators import Barker, Operator
from zerovar.spaces import Grid

UNIT = np.array([0.5, 1.0, 0.7])
OPERATORS = {"flips": Barker(), "steps": Barker(UNIT)}


def some(name, n, seed=0):
    """States as families see them, and any weights."""
    rng = np.random.default_rng(seed)
    if name == "flips":
        return rng.choice([-1.0, 1.0], size=(n, 3)), rng.uniform(size=(n, 3))
    return UNIT * rng.integers(-2, 3, size=(n, 3)), rng.uniform(size=(n, 6))


# ---- closed forms


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", OPERATORS)
def test_polynomials_are_the_operator(name):
    operator, (x, v), (y, w) = OPERATORS[name], some(name, 5), some(name, 4, 1)
    family = Polynomial(4, operator=operator, weight=(0.5, 2.0, 3.0, 0.7))

    @compiled
    def both(x, v, y, w):
        features = BasisFamily.features(family, x, v)
        return family.features(x, v), features, family.gram(x, v, y, w), family.features(y, w)

    closed, expected, gram, others = both(x, v, y, w)
    assert_close(closed, expected, 1e-13)
    assert_close(gram, expected @ others.T, 1e-12)
    part = Polynomial(3, coordinates=(0, 2), operator=operator)
    assert compiled(part.features)(x, v).shape == (5, part.num_features(3))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("base", [Gaussian(1.3), Matern(2.5, 1.2), InverseMultiquadric(1.3)])
@pytest.mark.parametrize("name", OPERATORS)
def test_kernels_are_the_operator(name, base):
    """On both arguments, and at equal points too: there are no derivatives."""
    operator, (x, v), (y, w) = OPERATORS[name], some(name, 4), some(name, 3, 1)
    y[0] = x[0]
    kernel = Kernel(base, operator=operator, weight=2.0)

    def pair(a, va, b, wb):
        return operator(lambda u: operator(lambda t: base(u, t), b, wb), a, va)

    @compiled
    def both(x, v, y, w):
        rows = jax.vmap(lambda a, va: jax.vmap(lambda b, wb: pair(a, va, b, wb))(y, w))
        return kernel.gram(x, v, y, w), 2.0 * rows(x, v)

    assert_close(*both(x, v, y, w), 1e-12)


@pytest.mark.usefixtures("x64")
def test_moments_are_those_of_the_moves():
    for name, operator in {**OPERATORS, "Rᵈ": ScalarLangevin(np.array([2.0, 1.0, 0.5]))}.items():
        x, w = some("steps" if name == "steps" else "flips", 1)
        drift, spread = compiled(operator.moments)(x[0], w[0])
        drifts, spreads = compiled(functools.partial(Operator.moments, operator))(x[0], w[0])
        assert_close(drift, drifts, 1e-14)
        assert_close(np.diag(spread), spreads, 1e-14)


# ---- Stein's identity, by sums over all states


def ising(side: int, beta: float) -> np.ndarray:
    """log p of all states of a periodic lattice."""
    spins = 2 * all_states(side**2).reshape(-1, side, side) - 1
    return beta * sum((spins * np.roll(spins, 1, axis)).sum(axis=(1, 2)) for axis in (1, 2))


def everything(log_p):
    """Probabilities of all states, and the states with their ratios as families see them."""
    p = np.exp(log_p - np.logaddexp.reduce(log_p))
    x = all_states(int(np.log2(len(p))))
    ratios = flip_ratios(log_p, np.arange(len(p)))
    return p, *Grid().place(x, ratios), Grid().place(x, -ratios)[1]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("log_p", [ising(4, 0.4), mixture()], ids=["Ising 4 × 4", "mixture"])
def test_means_are_zero_over_all_states(log_p):
    p, x, w, wrong = everything(log_p)
    operator, rng = Grid().own(ScalarLangevin()), np.random.default_rng(0)
    families = (Polynomial(2, operator=operator), Kernel(Gaussian(2.0), operator=operator))
    network = Network(zv.MLP(4, 1), operator).build(x.shape[1], 1, rng).perturb(rng)
    few = slice(37, 40)
    for weights, right in ((w, True), (wrong, False)):
        for g in (
            *(compiled(f.gram)(x, weights, x[few], weights[few]) for f in families),
            compiled(lambda x, w: network(x, w))(x, weights),
        ):
            mean = np.abs(p @ np.asarray(g)) / (p @ np.abs(g))
            assert mean.max() < 1e-11 if right else mean.max() > 0.01


def test_means_are_zero_over_counts():
    """And with impossible neighbours, and where steps up and down are swapped."""
    x = np.stack(np.meshgrid(np.arange(80.0), np.arange(80.0)), axis=-1).reshape(-1, 2)
    p = np.exp(two_seasons(x))
    sample = zv.Sample(x, step_ratios(two_seasons, x), space=Grid(0, np.inf))
    fitted = zv.fit(
        Polynomial(3) + Kernel(Gaussian(1.0), 2),
        sample.take(np.flatnonzero(p > 1e-3), 1),
        np.sin(x[p > 1e-3]),
        zv.LeastSquares(zv.Ridge(1e-6)),
    )
    g = fitted(sample)
    assert np.abs(p @ g).max() < 1e-9 * (p @ np.abs(g)).max()
    swapped = np.roll(np.where(np.isinf(sample.scores), -30.0, sample.scores), 2, axis=1)
    wrong = fitted.at(x, np.where(np.concatenate([x < 0, x == 0], axis=1), -np.inf, swapped))
    assert np.abs(p @ wrong).max() > 0.01 * (p @ np.abs(wrong)).max()


# ---- answers


FIRST, *OTHERS = (name for name, case in CASES.items() if case.family is None)


@pytest.mark.parametrize(
    "name", [FIRST, *(pytest.param(n, marks=pytest.mark.whole) for n in OTHERS)]
)
def test_the_default_call_is_right(name):
    case, gains = CASES[name], []
    truth = np.array([value for value, _ in case.truth().values()])
    for seed in range(
        2
    ):  # of states that hardly move the choice finds little in one sample of some
        answer = zv.estimate(*case.sample(seed, 1000), space=case.space)
        assert np.all(np.abs(answer.value - truth) < 4 * answer.std_error)
        gains.append(answer.gain.min())
    assert max(gains) > 3


def test_calibrated_where_states_come_again():
    """Of one draw left out, and not of its state: a line's errors are right, and small."""
    case = CASES["regression, 12 variables"]
    truth, z, gains = case.truth()["in: 0"][0], [], []
    for seed in range(20):
        draws, ratios, values = case.sample(seed, 300)
        found = zv.estimate(draws, ratios, values["in: 0"], space=Grid(), family=Polynomial(1))
        z.append((found.value[0] - truth) / found.std_error[0])
        gains.append(found.gain[0])
    assert 0.5 < np.sqrt(np.mean(np.square(z))) < 1.5
    assert np.median(gains) > 20


def test_single_draws_leave_alone():
    """Against fits without them, of a family with and one without features."""
    rng = np.random.default_rng(0)
    states = rng.choice(2**10, size=60, p=np.exp(mixture()) / 2)
    states[40:] = states[:20]
    x, ratios = all_states(10)[states], flip_ratios(mixture(), states)
    values = np.sin(x.sum(axis=1))[:, None]
    for family in (Polynomial(1), Kernel(Gaussian(3.0), 2)):
        # the same noise of each draw, whatever the number of draws
        def fit(rows, family=family):
            ridge = zv.LeastSquares(zv.Ridge(0.6 / len(rows)))
            return zv.fit(
                family, zv.Sample(x[rows], ratios[rows], space=Grid()), values[rows], ridge
            )

        found = fit(np.arange(60)).leave_out()
        for row in (3, 25, 43):
            other = fit(np.delete(np.arange(60), row))
            g = other.at(x[[row]], ratios[[row]])
            assert np.allclose(found[row], values[row] - other.intercept - g[0], rtol=1e-6)


def test_a_network_is_trained():
    draws, ratios, values = CASES["Bernoulli mixture, d = 10"].sample(0, 800)
    family, solver = Network(zv.MLP(16, 1), ScalarLangevin()), zv.SGD(epochs=60, progress=False)
    sample = zv.Sample(draws, ratios, space=Grid())
    fitted = zv.fit(family, sample, values["sum²"], solver=solver)
    p = np.exp(mixture() - np.logaddexp.reduce(mixture()))
    g = fitted.at(all_states(10), flip_ratios(mixture(), np.arange(2**10)))
    assert np.abs(p @ g).max() < 1e-10 * (p @ np.abs(g)).max()
    f = all_states(10).sum(axis=1) ** 2
    assert (p @ (f - p @ f) ** 2) > 4 * (p @ (f - p @ f - g[:, 0]) ** 2)


@pytest.mark.usefixtures("x64")
def test_sums_over_a_lattice_are_the_operator():
    operator = Grid().own(ScalarLangevin())
    rng = np.random.default_rng(0)
    x, w = rng.choice([-1.0, 1.0], size=(3, 256)), rng.uniform(size=(3, 256))
    found = compiled(
        lambda x, w: (
            LatticeSums(operator).features(x, w),
            BasisFamily.features(LatticeSums(operator), x, w),
        )
    )
    assert_close(*found(x, w), 1e-11)


def test_a_lattice_runs_in_seconds_and_gains_by_sums():
    case = CASES["Ising 16×16, β = 0.3"]
    draws, ratios, values = case.sample(0, 400)
    ridge = zv.LeastSquares(zv.Ridge(1e-8))
    found = zv.estimate(draws, ratios, values, space=Grid(), family=LatticeSums(), objective=ridge)
    assert found.gain[:3].min() > 5
    assert zv.estimate(draws, ratios, values, space=Grid()).gain.min() >= 1


def test_log_ratios_of_a_log_density():
    """As they are by hand; with bounds, a dict of draws, and chains."""
    x = CASES["two seasons of counts"].sample(0, 200).draws[0]

    def log_p(at):
        rates = jnp.array([3.0, 2.0]), jnp.array([9.0, 7.0])
        parts = [at @ jnp.log(rate) - rate.sum() for rate in rates]
        mixed = jnp.logaddexp(parts[0] + np.log(0.6), parts[1] + np.log(0.4))
        return mixed - jax.scipy.special.gammaln(at + 1).sum()

    found = zv.from_log_density(log_p, x, space=Grid(0, np.inf))
    assert np.allclose(found.scores[0], step_ratios(two_seasons, x), rtol=1e-9)
    assert found.from_model
    tree = {"a": x[:, 0].reshape(2, 100), "b": x[:, 1].reshape(2, 100)}
    again = zv.from_log_density(
        lambda at: log_p(jnp.stack([at["a"], at["b"]])), tree, chain_axis=0, space=Grid(0, np.inf)
    )
    assert np.allclose(again.scores.reshape(200, 4), found.scores[0])
    assert again.names == ("a", "b")
    assert zv.estimate(again, family=Polynomial(1)).names == ("a", "b")
    spins = np.random.default_rng(0).integers(2, size=(50, 3))
    flips = zv.from_log_density(lambda at: at[0] * at[1] - at[2], spins, space=Grid())
    assert np.allclose(flips.scores[0, :, 2], 2 * spins[:, 2] - 1)


def test_fits_are_saved(tmp_path):
    x = np.random.default_rng(0).poisson(4.0, size=(100, 1)).astype(float)
    sample = zv.Sample(x, step_ratios(lambda x: x[..., 0] * np.log(4.0), x), space=Grid(0, np.inf))
    fitted = zv.fit(Polynomial(2), sample, x)
    fitted.save(tmp_path / "fit.zv")
    assert np.array_equal(zv.load(tmp_path / "fit.zv")(sample), fitted(sample))


# ---- checks


def ising_sample(change=lambda ratios: ratios):
    draws, ratios, _ = CASES["Ising 16×16, β = 0.3"].sample(0, 800)
    return zv.Sample(draws, change(ratios), space=Grid())


def seasons_sample(change):
    x = np.random.default_rng(0).poisson([9.0, 4.0], size=(1000, 2)) + 20.0
    ratios = np.log(np.concatenate([[9.0, 4.0] / (x - 19), (x - 20) / [9.0, 4.0]], axis=1) + 1e-9)
    return zv.Sample(x, change(ratios), space=Grid(-np.inf, np.inf))


@pytest.mark.parametrize(
    ("sample", "words"),
    [
        (ising_sample, ""),
        (lambda: ising_sample(np.negative), "sign is flipped"),
        (lambda: ising_sample(lambda r: 1.4 * r), "another density"),
        (lambda: ising_sample(lambda r: np.roll(r, 1, axis=1)), "other draws"),
        (lambda: ising_sample(lambda r: np.roll(r, 1, axis=2)), "another density"),
        (lambda: seasons_sample(lambda r: r), ""),
        (lambda: seasons_sample(np.negative), "sign is flipped"),
        (lambda: seasons_sample(lambda r: r[:, [2, 3, 0, 1]]), "steps down come before"),
        (lambda: seasons_sample(lambda r: r[:, [0, 2, 1, 3]]), "come together"),
        (lambda: seasons_sample(lambda r: r[:, [1, 0, 3, 2]]), "last coordinate comes first"),
    ],
)
def test_wrong_ratios_are_found(sample, words):
    found = zv.check(sample())
    assert found.ok is (words == "")
    assert words in found.diagnosis


# ---- misuse

X = np.random.default_rng(0).integers(2, size=(40, 3)).astype(float)
R = np.sin(X @ [[1.0, 2.0, 3.0], [2.0, 5.0, 1.0], [4.0, 1.0, 2.0]])  # of the draw alone
WITH_NAN, WITH_INF, BETWEEN, OUTSIDE = R.copy(), R.copy(), X.copy(), X.copy()
WITH_NAN[3, 1], WITH_INF[3, 1], BETWEEN[3, 1], OUTSIDE[3, 1] = np.nan, np.inf, 0.5, 2.0
COUNTS = np.concatenate([R, np.where(X > 0, R, -np.inf)], axis=1)


def estimate(draws=X, scores=R, space=None, **options):
    return zv.estimate(draws, scores, X[:, 0], space=space or Grid(), **options)


MISUSE = {
    "missing": (lambda: estimate(scores=R[:, :2]), "3 neighbours for d = 3"),
    "too many": (lambda: estimate(scores=COUNTS), "3 neighbours for d = 3"),
    "flips of counts": (lambda: estimate(space=Grid(0, np.inf)), "6 neighbours for d = 3"),
    "rows": (lambda: estimate(scores=R[1:]), "same shape"),
    "NaN": (
        lambda: estimate(scores=WITH_NAN),
        r"NaN or \+inf entries, the first at index \(3, 1\)",
    ),
    "impossible draw": (lambda: estimate(scores=WITH_INF), "the draw itself is impossible"),
    "not whole": (lambda: estimate(BETWEEN), "draw 3 has 0.5 in coordinate 1"),
    "outside": (lambda: estimate(OUTSIDE), "draw 3 has 2 in coordinate 1"),
    "spins": (lambda: estimate(2 * X - 1), "whole numbers from low to high"),
    "ends": (
        lambda: estimate(scores=np.concatenate([R, R], axis=1), space=Grid(0, np.inf)),
        "where it ends, and its neighbour .*, one down, is impossible",
    ),
    "fields": (lambda: estimate(family=Kernel()), r"no derivatives.*Kernel\(order=2\)"),
    "vector polynomial": (
        lambda: estimate(family=Polynomial(1, operator=Langevin())),
        "no derivatives",
    ),
    "a metric": (
        lambda: estimate(family=Polynomial(1, operator=ScalarLangevin(2.0))),
        "no derivatives",
    ),
    "ridge functions": (
        lambda: estimate(family=zv.RidgeFunctions(Polynomial(2))),
        "is for draws in Rᵈ",
    ),
    "in Rᵈ": (
        lambda: zv.estimate(X, np.where(X > 0, R, -np.inf), X[:, 0]),
        "scores must be finite",
    ),
    "bounds": (lambda: Grid(1, 1), "low must be below high"),
    "fractions": (lambda: Grid(0, 1.5), "whole numbers or infinite"),
    "bounds of other coordinates": (
        lambda: estimate(space=Grid([0, 0], [1, 1])),
        "one for each of 3 coordinates",
    ),
}


@pytest.mark.parametrize("name", MISUSE)
def test_misuse(name):
    call, words = MISUSE[name]
    with pytest.raises(ValueError, match=words):
        call()


def test_a_log_density_that_fails_is_explained():
    with pytest.raises(ValueError, match="could not be evaluated as a JAX function of one draw"):
        zv.from_log_density(lambda at: at["missing"], X, space=Grid())
    with pytest.raises(ValueError, match="whole numbers from low to high"):
        zv.from_log_density(lambda at: at.sum(), X + 0.5, space=Grid())


def test_neighbours_are_in_order():
    x = np.array([[0.0, 3.0]])
    there, possible = Grid(0, 3).neighbours(x)
    assert np.array_equal(there[0], [[1, 3], [0, 3], [0, 3], [0, 2]])
    assert np.array_equal(possible[0], [True, False, False, True])
    assert np.array_equal(Grid().neighbours(np.array([[0.0, 1.0]]))[0][0], [[1, 1], [0, 0]])
    points = Points(x, np.full((1, 4), 0.5), np.ones(1), space=Grid(0, 3))
    assert len(points) == 1
