"""Training: every combination runs and learns, linear families land where the exact solver lands,
nothing is lost or hidden."""

import dataclasses
import functools
import itertools
import signal
import subprocess
import sys
import textwrap
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from problems import gaussian, metropolis
from tables import FAMILIES as TABLE

import zerovar as zv
from zerovar.inputs.points import Points
from zerovar.solvers.algebra.tiles import feature_matrix
from zerovar.solvers.training import driver, trainer
from zerovar.solvers.training.batch_order import BatchOrder
from zerovar.solvers.training.checkpoints import checkpoint_file
from zerovar.solvers.training.coordinates import CoordinateOptions, Penalties, make_coordinates
from zerovar.solvers.training.loop import Draws, Model, Params
from zerovar.solvers.training.whitening import Dense, LowRank

SMALL = {"width": 8, "depth": 1}
TRAINED = {
    "polynomial": zv.Polynomial(2),
    "vector polynomial": zv.Polynomial(1, operator=zv.Langevin()),
    "kernel": zv.Kernel(zv.kernels.Gaussian(1.5)),
    "second-order kernel": zv.Kernel(zv.kernels.Gaussian(1.5), order=2),
    "sum": zv.Polynomial(2)
    + zv.Kernel(zv.kernels.Gaussian(1.0))
    + zv.Kernel(zv.kernels.Gaussian(1.4)),
    "vector network": zv.Network(zv.MLP(**SMALL)),
    "probed network": zv.Network(zv.MLP(**SMALL), probes=2),
    "potential network": zv.Network(zv.ResNet(**SMALL), operator=zv.ScalarLangevin()),
    "ensemble": zv.Polynomial(1)
    + zv.Kernel(zv.kernels.Gaussian(1.5))
    + zv.Network(zv.MLP(**SMALL)),
}
OBJECTIVES = {"least squares": zv.LeastSquares, "variance": zv.Variance}
OPTIMISERS = {
    "default": {},
    "paper": {"learning_rate": zv.schedules.InverseTime(2.0, 50.0), "optimiser": None},
    "adam": {"optimiser": optax.adam(2e-2)},
}
# every optimiser and objective on one linear family and on a sum; of the others, which the table of
# families has, and of networks, which take long to compile, the default with both objectives, and
# each optimiser once on a network; the variance of more than one network is for `make whole`
COMBINATIONS = [
    (family, objective, optimiser)
    for family, objective, optimiser in itertools.product(TRAINED, OBJECTIVES, OPTIMISERS)
    if family in ("polynomial", "sum")
    or (
        optimiser == "default"
        and (objective == "variance" or "network" in family or family == "ensemble")
    )
    or (family, objective, optimiser)
    in {("vector network", "least squares", "paper"), ("ensemble", "variance", "adam")}
]


def problem(n=400, d=2, seed=0):
    """Draws of a Gaussian and two integrands, one nearly in every family's span."""
    x, s = gaussian(n, d, seed)
    z = (x - np.arange(1, d + 1)) / x.std(axis=0)
    return (
        x,
        s,
        np.stack([z.sum(axis=1) + 0.2 * np.sin(z[:, 0]), z[:, 0] ** 2 + 0.3 * z[:, 1]], axis=1),
    )


@functools.cache
def fresh(n=2000):
    """Draws of the same Gaussian (its factor is drawn first) that no fit has seen."""
    x, s = gaussian(n, 2, 0)
    mean, scale = np.arange(1, 3), gaussian(400, 2, 0)[0].std(axis=0)
    z = (x - mean) / scale
    return (
        x[400:],
        s[400:],
        np.stack([z.sum(axis=1) + 0.2 * np.sin(z[:, 0]), z[:, 0] ** 2 + 0.3 * z[:, 1]], axis=1)[
            400:
        ],
    )


LONG = [
    (name, "variance", "default") for name in ("probed network", "potential network", "ensemble")
]


@pytest.mark.parametrize(
    ("family", "objective", "optimiser"),
    [pytest.param(*c, marks=[pytest.mark.whole] * (c in LONG)) for c in COMBINATIONS],
    ids=[" / ".join(c) for c in COMBINATIONS],
)
def test_every_combination_learns_a_control_variate(family, objective, optimiser):
    x, s, f = problem()
    options = dict(OPTIMISERS[optimiser])
    if "network" in family or family == "ensemble":
        options |= {"epochs": 60, "batch_size": 32}
        if optimiser == "paper":
            options["learning_rate"] = zv.schedules.InverseTime(2.0, 100.0)
    penalty = zv.Magnitude(1e-3) if "network" in family else zv.Ridge(1e-3)
    fitted = zv.fit(
        TRAINED[family],
        zv.Sample(x, s),
        f,
        OBJECTIVES[objective](penalty),
        zv.SGD(**options),
        seed=1,
    )
    assert fitted.result.name == "OK"
    fresh_x, fresh_s, fresh_f = fresh()
    g = fitted.at(fresh_x, fresh_s)
    # Stein's identity survives training
    assert np.all(np.abs(g.mean(axis=0)) < 5 * g.std(axis=0) / np.sqrt(len(g)))
    left = (fresh_f - g).var(axis=0) / fresh_f.var(axis=0)
    assert np.all(left < 0.5), left
    assert len(fitted.stats["loss"]) == fitted.stats["epochs"]


L2 = zv.LeastSquares(zv.L2(1.0))
# L2 has all
CENTRED = [
    "polynomial",
    *(name for name, family in TABLE.items() if family.num_features(2) is None),
]
ROUTES = {
    **{
        f"{name}, Ridge": (family, zv.LeastSquares(zv.Ridge(0.02)), {})
        for name, family in TABLE.items()
        if name in CENTRED
    },
    **{
        f"{name}, L2": (family, L2, {"centres": 400, "epochs": 100})
        for name, family in TABLE.items()
    },
    "without a penalty": (zv.Polynomial(2), zv.LeastSquares(), {}),
    "variance": (zv.Polynomial(2), zv.Variance(), {}),
    "variance with a ridge": (zv.Kernel(zv.kernels.Gaussian(2.0)), zv.Variance(zv.Ridge(1e-3)), {}),
    "sparse": (zv.Polynomial(2), zv.LeastSquares(zv.L1(0.1)), {}),
    "semi-exact": (
        zv.Polynomial(1, weight=np.inf) + zv.Kernel(),
        zv.LeastSquares(zv.Ridge(1e-3)),
        {},
    ),
    "finite intercept variance": (
        zv.Polynomial(2),
        zv.LeastSquares(zv.Ridge(0.1), intercept_variance=2.0),
        {},
    ),
    "adam": (zv.Polynomial(2), zv.LeastSquares(), {"optimiser": optax.adam(1e-2), "epochs": 50}),
    "shuffled plain features": (
        zv.Polynomial(2),
        zv.LeastSquares(),
        {
            "precondition": False,
            "learning_rate": zv.schedules.Cosine(0.02),
            "epochs": 100,
            "batch_size": 16,
        },
    ),
}


def disagreement(trained, exact, f, x, s):
    """How far the trained g is from the exact one, in units of what the exact one leaves of f."""
    g = exact.at(x, s)
    return (trained.at(x, s) - g).var(axis=0) / (f - g).var(axis=0)


def misspecified(family, x, s, f):
    """These integrands and a function of the family, all with what no family explains, so that
    noise must be averaged away.

    A family that explains nothing of the first has its own: five columns of its Gram.
    """
    anchors, slopes, _ = problem()
    mean, scale = np.arange(1, 3), anchors.std(axis=0)
    z = (x - mean) / scale
    columns = family.resolve(z, f).translates((anchors[:5] - mean) / scale, slopes[:5] * scale)
    own = feature_matrix(columns, z, s * scale).sum(axis=0)
    f = np.column_stack([f, (own - own.mean()) / own.std()])
    return f + 0.3 * np.sign(x[:, [0, 1, 1]])


# Ridge is on one kernel and on two sums; on other kernels, which L2 has, it is for `make whole`
RIDGE_TOO = ("polynomial", "kernel", "polynomial and kernel", "sum of wrappers")
LONG_ROUTES = [f"{name}, Ridge" for name in CENTRED if name not in RIDGE_TOO]


@pytest.mark.parametrize(
    ("family", "objective", "options"),
    [
        pytest.param(*route, id=name, marks=[pytest.mark.whole] * (name in LONG_ROUTES))
        for name, route in ROUTES.items()
    ],
)
def test_linear_families_land_where_the_exact_solver_lands(family, objective, options):
    x, s, f = problem()
    f = misspecified(family, x, s, f)
    sample = zv.Sample(x, s)
    exact = zv.fit(family, sample, f, objective)
    trained = zv.fit(family, sample, f, objective, zv.SGD(**{"epochs": 50, **options}))
    x, s, f = fresh()
    f = misspecified(family, x, s, f)
    g = exact.at(x, s)
    left = (f - g).var(axis=0)
    # few centres stand for a rich space, and are not all whitened by half of the draws
    bound = 0.06 if family.num_features(2) is None else 0.02
    assert ((trained.at(x, s) - g).var(axis=0) / left).max() < bound
    np.testing.assert_allclose(trained.intercept, exact.intercept, atol=0.05)
    # and not because there was nothing to find: a g of zero is far from the exact one
    assert (g.var(axis=0) / left).max() > 0.5


def test_weights_and_repeated_draws_enter_as_in_the_exact_fit():
    x, s = metropolis(800)
    f = np.stack([np.sin(x[:, 0]) + x[:, 1] ** 2, x[:, 0]], axis=1)
    weights = 0.7 * np.sin(x[:, 0])
    for objective in (zv.LeastSquares(zv.Ridge(1e-2)), zv.Variance(zv.Ridge(1e-2))):
        sample = zv.Sample(x, s, weights)
        exact = zv.fit(zv.Polynomial(2), sample, f, objective)
        trained = zv.fit(zv.Polynomial(2), sample, f, objective, zv.SGD(epochs=50))
        assert disagreement(trained, exact, f, x, s)[0] < 0.02  # the other is fitted exactly
        np.testing.assert_allclose(trained.intercept, exact.intercept, atol=5e-3)
        # a fit that ignores the weights differs by far more
        flat = zv.fit(zv.Polynomial(2), zv.Sample(x, s), f, objective)
        assert np.abs(flat.intercept - exact.intercept).max() > 2e-2


@pytest.mark.parametrize(
    "keep", [trainer.KEPT, 0], ids=["features kept", "features made for each batch"]
)
def test_features_need_not_fit_into_memory(monkeypatch, keep):
    monkeypatch.setattr(trainer, "KEPT", keep)
    x, s, f = problem()
    for family in (zv.Polynomial(2), zv.Kernel(zv.kernels.Gaussian(2.0))):
        objective = zv.LeastSquares(zv.Ridge(1e-3))
        exact = zv.fit(family, zv.Sample(x, s), f, objective)
        trained = zv.fit(family, zv.Sample(x, s), f, objective, zv.SGD(epochs=50))
        assert trained.stats["features_kept"] is bool(keep)
        assert disagreement(trained, exact, f, x, s).max() < 0.02


def test_more_features_than_a_dense_whitening_takes():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(4000, 48))
    x = z * np.linspace(0.5, 3, 48)
    s = -x / np.linspace(0.5, 3, 48) ** 2
    f = z[:, 0] + 0.2 * z[:, 1] * z[:, 2]
    trained = zv.fit(
        zv.Polynomial(2), zv.Sample(x[:3000], s[:3000]), f[:3000], None, zv.SGD(epochs=40)
    )
    assert trained.stats["unknowns"] == 1 + 48 * 51 // 2 > 1024
    residual = f[3000:] - trained.at(x[3000:], s[3000:])[:, 0]
    assert residual.var() < 1e-3 * f.var()


def test_the_preconditioner_uses_few_draws():
    for m in (5000, 20_000):
        x, s, f = problem(m)
        fitted = zv.fit(zv.Polynomial(3), zv.Sample(x, s), f, None, zv.SGD(epochs=1))
        assert fitted.stats["preconditioner_draws"] <= m / 10
    x, s, f = problem(500)
    assert (
        zv.fit(zv.Polynomial(2), zv.Sample(x, s), f, None, zv.SGD(epochs=1)).stats[
            "preconditioner_draws"
        ]
        <= 250
    )


def test_whitening_makes_the_second_moment_the_identity(x64):
    x, s, _ = problem(3000)
    points = Points(x, s, np.full(3000, 1 / 3000))
    plan = CoordinateOptions(centres=None, precondition=True, keep=1 << 24)
    for family in (zv.Polynomial(4), zv.Kernel(zv.kernels.Gaussian(1.0))):
        at = make_coordinates(
            family, points, Penalties(1e-6, 0.0, False), True, plan, np.random.default_rng(0)
        )
        assert isinstance(at.basis, Dense)
        moment = at.rows.T @ at.rows / 3000 + np.diag(at.basis.penalty)
        used = np.linalg.norm(at.basis.matrix, axis=0) > 0
        values = np.linalg.eigvalsh(moment[used][:, used])
        assert 0.02 < values.min() < values.max() < 10.0
        assert at.largest >= values.max()
        plain = make_coordinates(
            family,
            points,
            Penalties(1e-6, 0.0, False),
            True,
            CoordinateOptions(None, False, 1 << 24),
            np.random.default_rng(0),
        )
        values = np.linalg.eigvalsh(plain.rows.T @ plain.rows / 3000)
        assert values.max() / max(values.min(), 1e-300) > 1e3  # without it


def test_low_rank_basis_is_one_linear_map(x64):
    rng = np.random.default_rng(0)
    basis = LowRank(
        rng.uniform(0.5, 2, 6),
        np.linalg.qr(rng.normal(size=(6, 2)))[0],
        np.array([0.1, 0.5]),
        rng.uniform(size=6),
    )
    phi, w = rng.normal(size=(9, 6)), rng.normal(size=(6, 2))
    np.testing.assert_allclose(basis(phi) @ w, phi @ basis.coefficients(w), rtol=1e-12)
    np.testing.assert_allclose(
        basis.quadratic(w), basis.penalty @ basis.coefficients(w) ** 2, rtol=1e-12
    )


# Mini-batches


def batch_losses(variance, stratified, count, size=8, m=83, networks=(), probes_share=False):
    """Means of the objective over all batches of `count` epochs, and the full objective that they
    estimate."""
    rng = np.random.default_rng(3)
    rows, values = rng.normal(size=(m, 3)) * rng.lognormal(size=(m, 1)), rng.normal(size=(m, 2))
    p = rng.uniform(0.5, 2.0, size=m)
    p /= p.sum()
    chance = 0.5 * p + 0.5 * rng.dirichlet(np.full(m, 5.0)) if not stratified else p
    w = rng.normal(size=(3, 2))
    total = -(-m // size) * size
    factor = (1.0 if not stratified else (total - 1) / total) / (1 - np.sum(p**2))
    model = Model(
        None,
        Dense(np.eye(3), np.full(3, 0.1)),
        (),
        (),
        None,
        np.float64(0.3),
        None,
        np.float64(factor),
        variance,
    )
    draws = Draws(jnp.asarray(rows), None, None, jnp.asarray(values), jnp.asarray(p / chance))
    order = BatchOrder(np.cumsum(chance), total // size, size, stratified, seed=0)

    @jax.jit
    def epoch(chosen):
        def one(chosen):
            return model.objective(Params(jnp.asarray(w)), draws.take(chosen), None)

        return jnp.mean(jax.vmap(one)(chosen))

    losses = np.asarray(
        jax.lax.map(epoch, jnp.asarray(np.stack([order.round(k) for k in range(count)])))
    )
    g = rows @ w
    residual = values - g
    offset = w[:1] if not variance else 0.0
    expected = np.sum(p @ residual**2)
    if variance:
        expected = np.sum(p @ (residual - p @ residual) ** 2) / (1 - np.sum(p**2))
    expected += 0.1 * np.sum(w**2) + 0.3 * np.sum(p @ (g - offset) ** 2)
    return losses, expected


@pytest.mark.parametrize("stratified", [True, False], ids=["shuffled", "resampled"])
@pytest.mark.parametrize("variance", [False, True], ids=["least squares", "variance"])
def test_batch_objectives_are_unbiased(variance, stratified, x64):
    losses, expected = batch_losses(variance, stratified, 12_000)
    error = losses.std() / np.sqrt(len(losses))
    # strata are slices of probability that may hold parts of two draws: a bias of a fraction of a
    # percent in the variance
    slack = 2e-3 * expected if variance and stratified else 0.0
    assert abs(losses.mean() - expected) < 5 * error + slack
    assert error < 4e-3 * expected  # and the test would see a factor (b − 1)/b or (m − 1)/m


def test_an_epoch_is_a_shuffle_where_draws_count_alike():
    order = BatchOrder(np.arange(1, 97) / 96, 12, 8, True, seed=1)
    found = order.round(0)
    assert sorted(found.ravel()) == list(range(96))
    assert not np.array_equal(found, order.round(1))
    assert not np.array_equal(found, dataclasses.replace(order, seed=2).round(0))
    independent = dataclasses.replace(order, stratified=False).round(0)
    assert len(np.unique(independent)) < 96


def test_a_table_has_the_rounds_that_are_asked_for():
    ladder = np.minimum(np.arange(1, 129) / 90, 1.0)  # 90 draws, padded
    order = BatchOrder(ladder, 12, 8, True, seed=1)
    table = order.table(5, 3)
    assert table.shape == (order.together, 16, 8)
    for k in range(3):
        np.testing.assert_array_equal(table[k, :12], order.round(5 + k))
    assert table.max() == 89
    assert not table[3:].any()
    assert BatchOrder(np.ones(3_000_000), 1, 32, True, seed=0).together == 1


@pytest.mark.whole
def test_convergence_at_the_rate_of_the_paper():
    """Proposition 3 of the supplement: with β/(γ + t) the expected excess of the objective falls
    like 1/t."""
    x, s = gaussian(500, 2, 0)
    f = np.sin(x).sum(axis=1)
    sample = zv.Sample(x, s)
    exact = zv.fit(zv.Polynomial(2), sample, f)
    best = np.var(f - exact.at(x, s)[:, 0])
    epochs = np.array([1, 2, 4, 8, 16, 32])

    def slope(rate):
        excess = []
        for count in epochs:
            options = zv.SGD(
                batch_size=8,
                epochs=int(count),
                learning_rate=rate,
                average=0.0,
                precondition=False,
                resample=True,
            )
            fits = (
                zv.fit(zv.Polynomial(2), sample, f, None, options, seed=seed) for seed in range(24)
            )
            excess.append(np.mean([np.var(f - fit.at(x, s)[:, 0]) - best for fit in fits]))
        return np.polyfit(np.log(epochs), np.log(excess), 1)[0]

    # 24 seeds: each mean excess is known to about a fifth, so the slope over five doublings to less
    # than a tenth
    assert slope(zv.schedules.InverseTime(2.0, 60.0)) < -0.8
    assert slope(zv.schedules.Constant(0.03)) > -0.5  # a constant rate stalls at its noise


# Reproducible, interruptible


def test_a_seed_decides_everything():
    x, s, f = problem(200)
    for family in (zv.Polynomial(2), zv.Network(zv.MLP(**SMALL))):
        solver = zv.SGD(epochs=3)
        one, same, other = (
            zv.fit(family, zv.Sample(x, s), f, None, solver, seed=seed).at(x, s)
            for seed in (1, 1, 2)
        )
        np.testing.assert_array_equal(one, same)
        assert not np.array_equal(one, other)


def test_how_the_work_is_cut_does_not_matter(monkeypatch):
    x, s, f = problem(200)
    fits = []
    for piece in (1e-9, 1e9):  # an epoch at a time, and as many as possible
        monkeypatch.setattr(driver, "PATIENCE", piece)
        fits.append(
            zv.fit(zv.Network(zv.MLP(**SMALL)), zv.Sample(x, s), f, None, zv.SGD(epochs=20)).at(
                x, s
            )
        )
    np.testing.assert_array_equal(*fits)


@pytest.mark.whole
def test_resuming_after_a_kill_gives_the_same_parameters(tmp_path):
    script = textwrap.dedent("""
        import sys
        import numpy as np
        import zerovar as zv
        x = np.random.default_rng(0).normal(size=(500, 2))
        solver = zv.SGD(epochs=1000, patience=1000, batch_size=16, checkpoint=sys.argv[1])
        zv.fit(zv.Network(zv.MLP(8, 1)), zv.Sample(x, -x), np.sin(x), None, solver, seed=3)
    """)
    folder = tmp_path / "state"
    process = subprocess.Popen([sys.executable, "-c", script, str(folder)])
    deadline = time.monotonic() + 120
    whole = "[!.]*.npz"  # not what the kill may have left half written, under another name
    while not list(folder.glob(whole)) and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(np.random.default_rng().uniform(0, 0.5))  # at a step that nobody chose
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert len(list(folder.glob(whole))) == 1
    x = np.random.default_rng(0).normal(size=(500, 2))

    def train(checkpoint):
        solver = zv.SGD(epochs=1000, patience=1000, batch_size=16, checkpoint=checkpoint)
        return zv.fit(zv.Network(zv.MLP(8, 1)), zv.Sample(x, -x), np.sin(x), None, solver, seed=3)

    resumed, whole = train(folder), train(None)
    assert 0 < resumed.stats["resumed"] < 1000
    assert resumed.stats["epochs"] == whole.stats["epochs"] == 1000
    np.testing.assert_array_equal(resumed.at(x, -x), whole.at(x, -x))


def test_a_checkpoint_of_another_fit_is_not_resumed(tmp_path):
    x, s, f = problem(200)

    def train(values, rate):
        solver = zv.SGD(epochs=3, checkpoint=tmp_path, learning_rate=rate)
        return zv.fit(zv.Polynomial(2), zv.Sample(x, s), values, None, solver)

    fits = [train(*case) for case in ((f, 0.01), (f + 1e-9, 0.01), (f, 0.02), (f, 0.01))]
    assert [fit.stats["resumed"] for fit in fits] == [0, 0, 0, 3]
    np.testing.assert_array_equal(fits[0].at(x, s), fits[3].at(x, s))
    for file in tmp_path.glob("*.npz"):
        file.write_bytes(b"not a file of arrays")
    with pytest.raises(ValueError, match="delete it to start anew"):
        train(f, 0.01)


def test_a_checkpoint_is_known_by_all_that_the_training_depends_on(tmp_path):
    """Functions by what they captured, modules by their numbers; and by nothing that another
    process would see otherwise."""
    import optax

    def names(*task):
        return checkpoint_file(tmp_path, *task).name

    def adam(rate, decay=0.999):
        return zv.SGD(optimiser=optax.adam(rate, b2=decay))

    network = zv.Network(zv.MLP(8, 1))
    tasks = [
        (adam(1e-3), zv.Polynomial(2)),
        (adam(1e-2), zv.Polynomial(2)),
        (adam(1e-3, 0.99), zv.Polynomial(2)),
        (zv.SGD(optimiser=optax.sgd(1e-3)), zv.Polynomial(2)),
        (zv.SGD(learning_rate=optax.cosine_decay_schedule(0.1, 10)), zv.Polynomial(2)),
        (zv.SGD(learning_rate=optax.cosine_decay_schedule(0.1, 20)), zv.Polynomial(2)),
        (adam(1e-3), zv.Polynomial(2, weight=2.0)),
        (adam(1e-3), zv.Kernel(zv.kernels.Gaussian(1.0))),
        (adam(1e-3), zv.Kernel(zv.kernels.Gaussian(1.1))),
        (adam(1e-3), network),
        (adam(1e-3), network, zv.LeastSquares(zv.L2(0.1))),
        (adam(1e-3), network, zv.LeastSquares(zv.L2(0.2))),
    ]
    assert len({names(*task) for task in tasks}) == len(tasks)
    again = (adam(1e-3), zv.Network(zv.MLP(8, 1)), zv.LeastSquares(zv.L2(0.2)))
    assert names(*again) == names(*tasks[-1])
    script = (
        "import sys, optax, zerovar as zv\nfrom zerovar.solvers.training.checkpoints import "
        "checkpoint_file\ntask = zv.SGD(optimiser=optax.adam(1e-3, b2=0.999)), "
        "zv.Polynomial(2)\nprint(checkpoint_file(sys.argv[1], *task).name)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == names(*tasks[0])


def interrupted_after(epochs, monkeypatch):
    """Ctrl-C after so many epochs, and ever again."""
    whole, calls = driver.advance, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) > epochs:
            raise KeyboardInterrupt
        return whole(*arguments)

    monkeypatch.setattr(driver, "advance", interrupted)
    monkeypatch.setattr(driver, "PATIENCE", 1e-9)
    return calls


def test_an_interruption_keeps_what_was_learnt(monkeypatch):
    x, s, f = problem(200)
    interrupted_after(3, monkeypatch)
    with pytest.warns(zv.NumericalWarning, match="interrupted"):
        fitted = zv.fit(zv.Polynomial(2), zv.Sample(x, s), f, None, zv.SGD(epochs=100))
    assert fitted.result.name == "INTERRUPTED"
    assert fitted.stats["epochs"] == 3
    assert np.all((f - fitted.at(x, s)).var(axis=0) < 0.5 * f.var(axis=0))


@pytest.mark.parametrize("epochs", [2, 5])
def test_an_interruption_ends_all_folds(epochs, monkeypatch):
    """In the first fold or a later one: a fold that is half trained is not passed off as trained,
    and no other begins."""
    x, s, f = problem(200)
    calls = interrupted_after(epochs, monkeypatch)
    options = {"family": zv.Polynomial(2), "solver": zv.SGD(epochs=4), "split": zv.cross_fit(3)}
    with pytest.raises(KeyboardInterrupt, match=rf"fold {1 + epochs // 4} of 3.*checkpoint"):
        zv.estimate(x, s, f, **options)
    assert len(calls) == epochs + 1


def test_an_interruption_keeps_what_was_learnt_where_there_is_one_fold(monkeypatch):
    x, s, f = problem(200)
    interrupted_after(3, monkeypatch)
    with pytest.warns(zv.NumericalWarning, match="interrupted"):
        answer = zv.estimate(
            x, s, f, family=zv.Polynomial(2), solver=zv.SGD(epochs=100), split=zv.holdout(0.5)
        )
    assert answer.stats["epochs"] == 3


def test_an_interruption_while_hyper_parameters_are_trained_ends_the_fit(monkeypatch):
    x, s, f = problem(200)
    calls = interrupted_after(1, monkeypatch)
    with pytest.raises(KeyboardInterrupt, match="hyper-parameters"):
        zv.fit(zv.Kernel(), zv.Sample(x, s), f, None, zv.SGD(hyper=True, centres=20, epochs=3))
    assert len(calls) == 2


def test_divergence_is_reported_with_the_fix():
    x, s, f = problem(200)
    solver = zv.SGD(learning_rate=1e3, epochs=20)
    with pytest.raises(zv.NumericalError, match="learning_rate"):
        zv.fit(zv.Polynomial(2), zv.Sample(x, s), f, None, solver)
    failed = zv.fit(zv.Polynomial(2), zv.Sample(x, s), f, None, solver, throw=False)
    assert failed.result.name == "DIVERGED"
    assert failed.stats["epochs"] < 20
    clipped = zv.fit(
        zv.Polynomial(2),
        zv.Sample(x, s),
        f,
        None,
        zv.SGD(optimiser=optax.sgd(1e-3), clip=1e-3, epochs=2),
    )
    assert np.abs(clipped.at(x, s)).max() < 0.1  # nothing moves further than clip × rate × steps


def test_early_stopping_takes_the_best_on_held_out_draws():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 4))
    noise = rng.normal(size=120)  # nothing to learn: training longer can only over-fit
    solver = zv.SGD(validation=0.3, patience=5, epochs=500, learning_rate=0.02, precondition=False)
    fitted = zv.fit(zv.Polynomial(3), zv.Sample(x, -x), noise, None, solver)
    curve = fitted.stats["validation"]
    assert fitted.stats["epochs"] < 500
    assert len(curve) == fitted.stats["epochs"]
    assert fitted.stats["best_epoch"] in (1, 1 + int(np.nanargmin(curve)))
    assert fitted.stats["epochs"] - fitted.stats["best_epoch"] <= 6


def test_hyper_parameters_are_trained_in_the_same_loop():
    x = np.random.default_rng(0).normal(size=(600, 1))
    f = np.cos(2 * x[:, 0])
    sample, objective = zv.Sample(x[:400], -x[:400]), zv.LeastSquares(zv.Ridge(1e-6))
    short = zv.Polynomial(1) + zv.Kernel(zv.kernels.Gaussian(0.05))

    def left(fit):
        return np.var(f[400:] - fit.at(x[400:], -x[400:])[:, 0])

    fixed = zv.fit(short, sample, f[:400], objective, zv.SGD())
    tuned = zv.fit(short, sample, f[:400], objective, zv.SGD(hyper=True))
    assert left(tuned) < 0.1 * left(fixed)
    assert tuned.family.parts[1].base.length_scale > 0.1
    assert "Gaussian" in tuned.family.describe()
    # what was found is a family like any other
    exact = zv.fit(tuned.family, sample, f[:400], objective)
    assert left(tuned) < 2 * left(exact)


@pytest.mark.whole
def test_estimate_by_training_is_calibrated():
    """Cross-fitted errors over replicates: the spread of (value − truth) / error is one."""
    rng = np.random.default_rng(0)
    z = []
    for replicate in range(60):
        x = rng.normal(size=(300, 2))
        f = np.stack([np.tanh(x[:, 0]) + x[:, 0] ** 2, np.sin(x[:, 1]) + x[:, 0]], axis=1)
        options = {"split": zv.cross_fit(3), "solver": zv.SGD(epochs=5), "seed": replicate}
        answer = zv.estimate(x, -x, f, family=zv.Polynomial(2), **options)
        z.append((answer.value - np.array([1.0, 0.0])) / answer.std_error)
    spread = np.sqrt(np.mean(np.square(z), axis=0))
    assert np.all((spread > 0.8) & (spread < 1.25)), spread  # 60 replicates: ± 0.09
    assert np.median(answer.gain) > 5


def test_refit_trains_new_integrands_with_the_same_coordinates():
    x, s, f = problem()
    fitted = zv.fit(zv.Polynomial(2), zv.Sample(x, s), f, None, zv.SGD())
    again = fitted.refit(f[:, :1])
    np.testing.assert_allclose(again.at(x, s)[:, 0], fitted.at(x, s)[:, 0], rtol=1e-10, atol=1e-12)
    with pytest.raises(ValueError, match="cross_fit"):
        fitted.leave_out()


def test_schedules():
    steps, epoch = 1000, 50
    assert zv.schedules.InverseTime(3.0, 2.0)(4, steps, epoch) == 0.5
    assert zv.schedules.Constant(0.1)(7, steps, epoch) == 0.1
    cosine = zv.schedules.Cosine(0.2, warmup=0.1)
    assert float(cosine(0, steps, epoch)) == pytest.approx(0.002)
    assert float(cosine(100, steps, epoch)) == pytest.approx(0.2)
    assert float(cosine(550, steps, epoch)) == pytest.approx(0.1)
    assert float(cosine(1000, steps, epoch)) == pytest.approx(0.0, abs=1e-7)
    assert float(zv.schedules.StepDecay(0.4, 0.5, 3)(149, steps, epoch)) == pytest.approx(0.4)
    assert float(zv.schedules.StepDecay(0.4, 0.5, 3)(150, steps, epoch)) == pytest.approx(0.2)
    x, s, f = problem(200)
    fitted = zv.fit(
        zv.Polynomial(2),
        zv.Sample(x, s),
        f,
        None,
        zv.SGD(learning_rate=optax.exponential_decay(0.05, 50, 0.9), epochs=10),
    )
    assert np.all((f - fitted.at(x, s)).var(axis=0) < 0.5 * f.var(axis=0))
