"""log Z from draws at several temperatures: exact ladders, ZVCV's own example, errors that are kept
and input that is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate

import zerovar as zv
from zerovar.evidences.combination import ROUTES, evidence_of_ladder
from zerovar.evidences.ladders import Ladder

TRAPEZIUM, CORRECTED, THIRD, FOURTH, FORWARDS, BACKWARDS, BRIDGES = range(7)


def normal_ladder(seed, d=1, n=200, rungs=11, chains=None, rho=0.0):
    """A prior N(0, I) and a normal likelihood: draws of all tempered targets, exact log Z(t)."""
    rng = np.random.default_rng(seed)
    t = np.linspace(0, 1, rungs) ** 3
    y, factor = 1 + np.arange(d) / d, np.tril(np.full((d, d), 0.3)) + np.eye(d)
    precision = 10 * factor.T @ factor
    shape = (rungs, n) if chains is None else (rungs, chains, n)
    z = rng.normal(size=(*shape, d))
    for i in range(1, n if rho else 0):
        z[..., i, :] = rho * z[..., i - 1, :] + np.sqrt(1 - rho**2) * z[..., i, :]
    draws, log_z = np.empty_like(z), np.empty(rungs)
    constant = 0.5 * np.linalg.slogdet(precision)[1] - 0.5 * d * np.log(2 * np.pi)
    for k in range(rungs):
        covariance = np.linalg.inv(np.eye(d) + t[k] * precision)
        mean = covariance @ (t[k] * precision @ y)
        draws[k] = mean + z[k] @ np.linalg.cholesky(covariance).T
        quadratic = mean @ np.linalg.solve(covariance, mean) - t[k] * y @ precision @ y
        log_z[k] = 0.5 * (np.linalg.slogdet(covariance)[1] + quadratic) + t[k] * constant
    away = draws - y
    likelihood = constant - 0.5 * np.einsum("...i,ij,...j->...", away, precision, away)
    parts = {"prior_scores": -draws, "likelihood_scores": -away @ precision}
    return t, draws, likelihood, parts, log_z


def own_scores(t, parts):
    power = t.reshape(-1, *(1 for _ in parts["prior_scores"].shape[1:]))
    return parts["prior_scores"] + power * parts["likelihood_scores"]


@pytest.mark.parametrize(("d", "gain"), [(1, 1e4), (5, 30)])
def test_a_conjugate_normal(d, gain):
    t, draws, likelihood, parts, log_z = normal_ladder(0, d=d)
    exact = log_z[-1] - log_z[0]
    ladder = Ladder(t, draws, likelihood, own_scores(t, parts))
    found, plain = evidence_of_ladder(ladder), evidence_of_ladder(ladder, order=0)
    assert found.target == "log Z"
    assert abs(found.log_z - exact) < 4 * found.std_error
    assert abs(plain.log_z - exact) < 4 * plain.std_error
    assert (plain.std_error / found.std_error) ** 2 > gain
    # each route says how far off it may be; backwards, the plain mean of 1/L rests on a few draws
    for route in found.routes[:BACKWARDS]:
        assert abs(route.value - exact) < 4 * route.std_error, route
    assert found.routes[TRAPEZIUM].discretisation > found.routes[CORRECTED].discretisation
    assert found.weights.sum() == pytest.approx(1)
    assert found.shares.sum() == pytest.approx(1)
    # the mean log-likelihood is the derivative of log Z
    fine = normal_ladder(0, d=d, rungs=2001, n=4)
    slope = np.gradient(fine[4], fine[0], edge_order=2)
    off = (found.means - np.interp(t, fine[0], slope))[1:]
    assert np.all(np.abs(off) < 4 * found.mean_errors[1:] + 1e-2 * np.abs(found.means[1:]))
    # with prior and likelihood apart, and as chains, it is the same
    apart = evidence_of_ladder(Ladder(t, draws, likelihood, **parts))
    assert apart.log_z == pytest.approx(found.log_z, abs=1e-9)


def test_plain_routes_are_the_textbook_ones():
    t, draws, likelihood, parts, _ = normal_ladder(1)
    routes = evidence_of_ladder(Ladder(t, draws, likelihood, **parts), order=0).routes
    h, mean, variance = np.diff(t), likelihood.mean(axis=1), likelihood.var(axis=1)
    trapezium = h @ (mean[1:] + mean[:-1]) / 2
    forwards = np.sum(np.log(np.mean(np.exp(h[:, None] * likelihood[:-1]), axis=1)))
    backwards = -np.sum(np.log(np.mean(np.exp(-h[:, None] * likelihood[1:]), axis=1)))
    by_hand = [trapezium, trapezium - h**2 @ np.diff(variance) / 12, forwards, backwards]
    found = [routes[k].value for k in (TRAPEZIUM, CORRECTED, FORWARDS, BACKWARDS)]
    np.testing.assert_allclose(found, by_hand, rtol=0, atol=1e-10)
    # the bridge is its own middle: as many draws on either side
    steps = []
    for k, step in enumerate(h):
        up, down = step * likelihood[k], step * likelihood[k + 1]
        low, high = -500.0, 500.0
        for _ in range(100):
            r = (low + high) / 2
            above = np.sum(1 / (1 + np.exp(r - up))) - np.sum(1 / (1 + np.exp(down - r)))
            low, high = (r, high) if above > 0 else (low, r)
        steps.append(low)
    assert routes[BRIDGES].value == pytest.approx(np.sum(steps), abs=1e-8)


def replicates(count, scale=1.0, **options):
    """Errors of log Z in reported ones, with scores `scale` times what they should be."""
    z = []
    for seed in range(count):
        t, draws, likelihood, parts, log_z = normal_ladder(100 + seed, **options)
        ladder = Ladder(t, draws, likelihood, scale * own_scores(t, parts) + scale - 1)
        found = evidence_of_ladder(ladder, check=False)
        z.append((found.log_z - log_z[-1] + log_z[0]) / found.std_error)
    return np.array(z)


@pytest.mark.parametrize(
    "options", [{"n": 150}, pytest.param({"n": 400, "rho": 0.8}, marks=pytest.mark.whole)]
)
def test_errors_are_kept(options):
    z = replicates(20, d=2, rungs=8, **options)
    assert np.sqrt(np.mean(z**2)) < 1.5  # of 20 unit normals beyond it in one of a thousand
    assert np.sum(np.abs(z) < 1.96) >= 16  # 95 % each: fewer in three of a thousand


def test_errors_with_wrong_scores_are_not_kept():
    z = replicates(10, scale=1.2, d=2, rungs=8, n=150)
    assert np.sum(np.abs(z) < 1.96) <= 5


def zero_ladder(n=400):
    """A likelihood exp(−1/x) that is zero for x ≤ 0, under N(0, 1); draws by the inverse of the
    distribution function on a fine grid."""
    rng = np.random.default_rng(5)
    t, grid = np.array([0.0, 0.05, 0.2, 0.5, 1.0]), np.linspace(1e-3, 9, 200_001)
    draws = np.empty((len(t), n, 1))
    draws[0, :, 0] = rng.normal(size=n)
    for k in range(1, len(t)):
        density = np.exp(-t[k] / grid - grid**2 / 2)
        mass = np.cumsum(density)
        draws[k, :, 0] = np.interp(rng.uniform(size=n), mass / mass[-1], grid)
    x = draws[..., 0]
    with np.errstate(divide="ignore"):
        likelihood = np.where(x > 0, -1 / x, -np.inf)
        slope = np.where(draws > 0, 1 / draws**2, np.nan)
    exact = integrate.quad(lambda x: np.exp(-1 / x - x**2 / 2) / np.sqrt(2 * np.pi), 0, 9)[0]
    return t, draws, likelihood, slope, np.log(exact)


def test_a_likelihood_of_zero_at_draws_of_the_prior():
    t, draws, likelihood, slope, exact = zero_ladder()
    found = evidence_of_ladder(
        Ladder(t, draws, likelihood, prior_scores=-draws, likelihood_scores=slope)
    )
    assert abs(found.log_z - exact) < 4 * found.std_error < 0.4
    assert np.isnan(found.means[0])
    assert np.isfinite(found.means[1:]).all()
    # weighted to other temperatures these draws count for nothing
    finer = np.sort([*t, 0.02, 0.1])
    other = evidence_of_ladder(
        Ladder(t, draws, likelihood, prior_scores=-draws, likelihood_scores=slope),
        temperatures=finer,
    )
    assert abs(other.log_z - exact) < 4 * other.std_error
    assert np.isfinite(other.means[1:]).all()
    likelihood[2, 7] = -np.inf
    with pytest.raises(ValueError, match=r"\(2, 7\), where t = 0.2"):
        Ladder(t, draws, likelihood, -draws)


def test_log_likelihoods_that_are_huge_at_draws_of_the_prior():
    """They make cumulants of no use, and nothing else."""
    t, draws, likelihood, parts, log_z = normal_ladder(2)
    likelihood = likelihood.copy()
    likelihood[0, :3] = -8e17
    found = evidence_of_ladder(Ladder(t, draws, likelihood, **parts, from_model=True))
    assert abs(found.log_z - log_z[-1] + log_z[0]) < 4 * found.std_error < 1.0
    assert found.weights[TRAPEZIUM] == 0


def test_a_part_of_a_ladder_says_what_it_estimates():
    t, draws, likelihood, parts, log_z = normal_ladder(2)
    part = slice(3, 8)
    some = {name: array[part] for name, array in parts.items()}
    found = evidence_of_ladder(Ladder(t[part], draws[part], likelihood[part], **some))
    assert found.target == f"log Z({t[7]:g}) − log Z({t[3]:g})"
    assert abs(found.log_z - log_z[7] + log_z[3]) < 4 * found.std_error
    shifted = evidence_of_ladder(
        Ladder(t[part], draws[part], likelihood[part], **some, log_z0=2.5, evaluations=7)
    )
    assert shifted.log_z == pytest.approx(found.log_z + 2.5)
    assert shifted.evaluations == 7
    assert (
        Ladder(t[:8], draws[:8], likelihood[:8], own_scores(t, parts)[:8]).target == "log Z(0.343)"
    )


def test_chains_are_chains():
    t, draws, likelihood, parts, log_z = normal_ladder(3, n=60, chains=4)
    chains = Ladder(t, draws, likelihood, **parts)
    flat = Ladder(
        t,
        *(one.reshape(11, 240, -1) for one in (draws,)),
        likelihood.reshape(11, 240),
        **{name: one.reshape(11, 240, -1) for name, one in parts.items()},
    )
    assert repr(chains) == "Ladder(11 temperatures from 0 to 1, 4 × 60 draws each, d = 1)"
    found = evidence_of_ladder(chains, order=2)
    assert found.routes[TRAPEZIUM].value == evidence_of_ladder(flat, order=2).routes[0].value
    assert abs(found.log_z - log_z[-1] + log_z[0]) < 4 * found.std_error


def test_zvcv_on_its_own_example(data):
    folder = Path(data, "golden", "vdp")
    arrays = {
        name: np.loadtxt(folder / f"{name}.csv", delimiter=",").T
        for name in ("samples", "loglike", "der_loglike", "der_logprior", "temperatures")
    }
    expanded = json.loads((folder / "evidence.json").read_text())["expanded"]
    ladder = Ladder(
        arrays["temperatures"],
        arrays["samples"][..., None],
        arrays["loglike"],
        prior_scores=arrays["der_logprior"][..., None],
        likelihood_scores=arrays["der_loglike"][..., None],
    )
    for order in (0, 1, 2):
        theirs = expanded[f"order{order}"]
        ours = evidence_of_ladder(ladder, temperatures=expanded["temperatures_all"], order=order)
        pairs = {
            "CTI_PS1": ours.routes[TRAPEZIUM].value,
            "CTI_PS2": ours.routes[CORRECTED].value,
            "SMC": ours.routes[FORWARDS].value,
            "SMC_expectations": ours.steps[FORWARDS],
            "LL": ours.means,
            "vLL": ours.variances,
        }
        for name, value in pairs.items():
            np.testing.assert_allclose(value, theirs[name], rtol=1e-8, atol=1e-8, err_msg=name)
    with pytest.raises(AssertionError):  # another order is another number
        np.testing.assert_allclose(ours.means, expanded["order1"]["LL"], rtol=1e-8)


def test_the_ladder_of_van_der_pol(data):
    """Less than a tenth of MBAR's spread, .048 with 80 draws a temperature; exact 25.573."""
    with np.load(Path(data, "data", "vdp_ladder.npz")) as file:
        ladder = Ladder(
            file["inverse_temperatures"], file["x"], file["log_likelihood"], file["score"]
        )
    rng = np.random.default_rng(0)
    off = []
    for _ in range(6):
        rows = np.array([rng.permutation(500)[:80] for _ in range(len(ladder))])
        off.append(evidence_of_ladder(ladder.take(rows)).log_z - 25.573)
    assert np.std(off) < 0.003
    assert np.abs(np.mean(off)) < 0.004


RIGHT = normal_ladder(4, d=2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"t": RIGHT[0][::-1]}, "not in increasing order"),
        ({"t": np.append(RIGHT[0][:-1], RIGHT[0][-2])}, "are repeated"),
        ({"t": 1 / np.maximum(RIGHT[0], 0.01)}, r"lie in \[0, 1\].*1/temperature"),
        ({"t": RIGHT[0][:5]}, "T = 5"),
        ({"draws": RIGHT[1][0]}, r"\(T, n, d\) or"),
        ({"draws": RIGHT[1][..., 0]}, r"draws\[..., None\]"),
        ({"likelihood": RIGHT[2].T}, "one number a draw"),
        ({"likelihood": np.where(RIGHT[2] > 0, np.nan, RIGHT[2])}, "log_likelihood is nan"),
        ({"scores": None}, "none of them"),
        ({"prior_scores": RIGHT[1]}, "got scores and prior_scores"),
        ({"scores": None, "prior_scores": RIGHT[1]}, "got prior_scores"),
        ({"scores": RIGHT[1][:, :50]}, "the shape of the draws"),
    ],
)
def test_arrays_that_are_no_ladder(change, message):
    t, draws, likelihood, parts, _ = RIGHT
    given = {"t": t, "draws": draws, "likelihood": likelihood, "scores": own_scores(t, parts)}
    given |= change
    arrays = [given.pop(name) for name in ("t", "draws", "likelihood", "scores")]
    with pytest.raises(ValueError, match=message):
        Ladder(*arrays, **given)


def kinds():
    """Scores and log-likelihoods that are of another kind, and what is said of them."""
    t, _, likelihood, parts, _ = RIGHT
    prior, slope, own = parts["prior_scores"], parts["likelihood_scores"], own_scores(t, parts)
    mixed = np.random.default_rng(0).permuted(likelihood, axis=1)
    return [
        ("right", likelihood, {"scores": own}, None),
        ("right, apart", likelihood, parts, None),
        ("of the prior", likelihood, {"scores": prior}, "of the prior alone"),
        ("of the posterior", likelihood, {"scores": prior + slope}, "highest temperature"),
        ("flipped", likelihood, {"scores": -own}, "sign is flipped"),
        (
            "exchanged",
            likelihood,
            {"prior_scores": slope, "likelihood_scores": prior},
            "are exchanged",
        ),
        (
            "own for those of the likelihood",
            likelihood,
            {"prior_scores": prior, "likelihood_scores": own},
            "likelihood_scores are those of each rung's own target",
        ),
        (
            "tempered",
            likelihood,
            {"prior_scores": prior, "likelihood_scores": t[:, None, None] * slope},
            "divide by t",
        ),
        ("other rows", mixed, {"scores": own}, "does not vary with the draws"),
        ("other rows, apart", mixed, parts, "does not vary with the draws"),
        ("twice", 2 * likelihood, {"scores": own}, "grows 0.5 times"),
        ("twice, apart", 2 * likelihood, parts, "2 times what likelihood_scores say"),
        ("times t", t[:, None] * likelihood, {"scores": own}, "without the factor t"),
    ]


@pytest.mark.parametrize(
    ("likelihood", "scores", "message"), [k[1:] for k in kinds()], ids=[k[0] for k in kinds()]
)
def test_what_does_not_belong_to_the_draws(likelihood, scores, message):
    ladder = Ladder(RIGHT[0], RIGHT[1], likelihood, **scores)
    if message is None:
        evidence_of_ladder(ladder)
        return
    with pytest.raises(ValueError, match=message):
        evidence_of_ladder(ladder)


def test_few_draws_of_many_dimensions_are_plain():
    t, draws, likelihood, parts, log_z = normal_ladder(6, d=30, n=40)
    found = evidence_of_ladder(Ladder(t, draws, likelihood, **parts), check=False)
    assert abs(found.log_z - log_z[-1] + log_z[0]) < 5 * found.std_error


def test_other_temperatures():
    t, draws, likelihood, parts, log_z = normal_ladder(7)
    ladder = Ladder(t, draws, likelihood, **parts)
    finer = np.sort([*t, *(t[1:] + t[:-1]) / 2])
    found = evidence_of_ladder(ladder, temperatures=finer)
    assert len(found.means) == len(finer)
    assert len(found.shares) == len(t)
    assert abs(found.log_z - log_z[-1] + log_z[0]) < 4 * found.std_error
    asked = zv.evidence(ladder, temperatures=finer)
    assert (asked.log_z, asked.std_error) == (found.log_z, found.std_error)
    with pytest.raises(ValueError, match="family is not for a Ladder: leave it out"):
        zv.evidence(ladder, family=zv.Automatic())
    with pytest.raises(ValueError, match="temperatures is not for draws without a ladder"):
        zv.evidence(draws[-1], lambda x: -x @ x, temperatures=finer)
    # draws shared by several temperatures are not counted as if they were more
    own = evidence_of_ladder(ladder, order=0)
    assert evidence_of_ladder(ladder, temperatures=finer, order=0).scatter > 0.6 * own.scatter
    with pytest.raises(ValueError, match="from the ladder's lowest, 0, to its highest"):
        evidence_of_ladder(ladder, temperatures=[0.0, 0.5])
    with pytest.raises(ValueError, match="prior_scores and likelihood_scores apart"):
        evidence_of_ladder(Ladder(t, draws, likelihood, own_scores(t, parts)), temperatures=finer)


def test_routes_have_names():
    found = evidence_of_ladder(Ladder(*RIGHT[:3], **RIGHT[3]), order=1)
    assert tuple(route.name for route in found.routes) == ROUTES
