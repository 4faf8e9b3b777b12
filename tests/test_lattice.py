"""Fields on lattices: closed forms by Fourier transforms, symmetry, Stein's identity, answers that
are known, refusals."""

import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_operators_families import assert_close, compiled

import zerovar as zv
from benchmarks import gauge, lattice
from zerovar import LatticeField, LatticeMLP, Network, Polynomial, spaces
from zerovar.families import BasisFamily
from zerovar.inputs.points import Keeps

pytestmark = pytest.mark.usefixtures("x64")

STEPS = np.arange(4)
FIELDS = {
    "plain": LatticeField((4, 3)),
    "three dimensions, pairs, smeared": LatticeField(
        (3, 2, 2), (1, 3, (2, 1), (1, 2)), (0, 0.5), weight=2.0
    ),
    "with constants, smeared alone": LatticeField((5,), (0, 2, (1, 1)), 0.3),
    "slices": LatticeField((4, 3), (3, (2, 1)), shifts=np.minimum(STEPS, 4 - STEPS)[:, None]),
    "near": LatticeField((5,), (1, (2, 1)), (0, 1), shifts=[0, 2, -1, -3, 2]),
}


def configurations(shape, n=5, seed=0):
    return np.random.default_rng(seed).normal(size=(2, n, int(np.prod(shape))))


def moved(x, shape, shift):
    """Fields (n, V), shifted."""
    axes = tuple(range(1, len(shape) + 1))
    return np.roll(x.reshape(-1, *shape), shift, axes).reshape(len(x), -1)


@pytest.mark.parametrize("name", FIELDS)
def test_closed_forms_are_the_operator(name):
    """Against automatic differentiation, one shift at a time; they do not change when fields and
    scores shift, and their number is as it is said."""
    family = FIELDS[name]
    x, s = configurations(family.shape)
    shift = tuple(range(1, len(family.shape) + 1))

    @compiled
    def all_of_it(x, s, there, here):
        return (
            family.features(x, s),
            family.features(there, here),
            BasisFamily.features(family, x, s),
        )

    found, shifted, expected = all_of_it(
        x, s, moved(x, family.shape, shift), moved(s, family.shape, shift)
    )
    assert_close(found, expected, 1e-13)
    assert_close(shifted, found, 1e-12)
    assert found.shape == (5, family.num_features(x.shape[1]))


def test_fields_are_what_they_say():
    """Σ_x s_x φ_{x+r}³ + 3 φ_x² at r = 0, with r and −r together."""
    family = LatticeField((4,), 3)
    x, s = configurations((4,))
    columns = [np.sum(s * x**3 + 3 * x**2, axis=1)]
    columns += [np.sum(s * (np.roll(x, 1, 1) ** 3 + np.roll(x, -1, 1) ** 3), axis=1) / np.sqrt(2)]
    columns += [np.sum(s * np.roll(x, 2, 1) ** 3, axis=1)]
    assert_close(compiled(family.features)(x, s), np.stack(columns, axis=1), 1e-13)


def test_fields_that_coincide_are_taken_once():
    """φ³ and φ² φ at no shift; linear fields, smeared; constants, at any shift."""
    assert LatticeField((5,), (3, (2, 1))).num_features(5) == 3 + 2
    assert LatticeField((5,), (1, 3), (0, 1, 2)).num_features(5) == 3 + 3 * 3
    assert LatticeField((5,), 0).num_features(5) == 1
    x, s = configurations((6, 5), 400)
    for family in (
        LatticeField((6, 5), (1, 3, (2, 1), (1, 2))),
        LatticeField((6, 5), (0, 2, (1, 1)), (0, 1)),
    ):
        found = np.asarray(compiled(family.features)(x, s))
        assert np.linalg.matrix_rank(found) == found.shape[1]


def action(phi):
    return jnp.sum(0.5 * (jnp.roll(phi, 1) - phi) ** 2 + 0.1 * phi**2 + 0.3 * phi**4 + 0.2 * phi)


@pytest.mark.parametrize(
    "family",
    [
        LatticeField((3,), (0, 1, 2, 3, (2, 1), (1, 2)), (0, 0.5)),
        LatticeField((3,), (3,), 0.7, shifts=[0, 1, 2]),
    ],
    ids=["of all kinds", "without reflections"],
)
def test_steins_identity(family):
    """By quadrature on three sites; the wrong sign must fail."""
    # equal steps: for what falls to nothing at both ends no rule is better
    x = np.array(list(itertools.product(np.linspace(-4, 4, 45), repeat=3)))
    value, slope = compiled(jax.vmap(jax.value_and_grad(action)))(x)
    p = np.exp(-np.asarray(value))
    for sign, passes in ((-1.0, True), (1.0, False)):
        g = np.asarray(compiled(family.features)(x, sign * np.asarray(slope)))
        mean = np.abs(p @ g) / (p @ np.abs(g))
        assert mean.max() < 1e-9 if passes else mean.max() > 0.1


def free_field(shape, mass, n, seed=0):
    """Draws and scores without interaction, and the matrix of which scores are −K φ."""
    sites = int(np.prod(shape))
    unit = np.eye(sites).reshape(sites, *shape)
    K = (mass + 2 * len(shape)) * unit
    for axis in range(1, len(shape) + 1):
        K = K - np.roll(unit, 1, axis) - np.roll(unit, -1, axis)
    K = K.reshape(sites, sites)
    x = np.random.default_rng(seed).multivariate_normal(np.zeros(sites), np.linalg.inv(K), n)
    return x, -x @ K, K


def test_the_free_field_is_exact():
    """Every two-point function, whatever the scale of the field; standardised by one number, in
    sums too, so that the symmetry is not broken by noise."""
    shape = (4, 4)
    x, s, K = free_field(shape, 0.5, 100)
    x, s = 3 * x, s / 3
    pairs = x.reshape(-1, *shape)
    values = {
        f"at {r}": np.mean(pairs * np.roll(pairs, r, (1, 2)), axis=(1, 2)) for r in ((0, 0), (2, 1))
    }
    inverse = 9 * np.linalg.inv(K).reshape(4, 4, 4, 4)
    for family in (LatticeField(shape), LatticeField(shape) + Polynomial(1)):
        est = zv.estimate(x, s, values, family=family)
        assert est.stats["standardisation"] == "by one number"
        np.testing.assert_allclose(est.value, [inverse[0, 0, 0, 0], inverse[0, 0, 2, 1]], rtol=1e-9)
        assert np.all(est.gain > 1e10)
    assert (Polynomial(2) + LatticeField(shape)).keeps is Keeps.SYMMETRY


def test_smearing_is_the_heat_equation():
    x, _ = configurations((4, 3))
    _, _, K = free_field((4, 3), 0.0 + 1e-9, 1)
    values, vectors = np.linalg.eigh(K)
    by_matrix = x @ (vectors * np.exp(-0.7 * values)) @ vectors.T
    assert_close(compiled(lambda x: LatticeField((4, 3))._smear(x, 0.7))(x), by_matrix, 1e-8)


@pytest.mark.parametrize("shape", [(5,), (4, 3)], ids=["chain", "square"])
def test_networks_shift_with_the_field(shape):
    """And their divergence, by one forward derivative, is that of automatic differentiation."""
    sites, rng = int(np.prod(shape)), np.random.default_rng(0)
    network = Network(LatticeMLP(shape, 6, 2)).build(sites, 2, rng).perturb(rng)
    x, s = configurations(shape)
    shift = (1, 2)[: len(shape)]

    def field(point):
        return network.module(point).reshape(-1, sites)

    @compiled
    def all_of_it(x, s, there):
        each = jax.vmap(lambda a, b: network.operator(field, a, b))
        return network(x, s), each(x, s), jax.vmap(field)(x), jax.vmap(field)(there)

    found, expected, at, there = all_of_it(x, s, moved(x, shape, shift))
    assert_close(found, expected, 1e-13)
    at, there = np.asarray(at), np.asarray(there)
    for k in range(2):
        assert_close(there[:, k], moved(at[:, k], shape, shift), 1e-12)
    assert network.keeps is Keeps.SYMMETRY


@pytest.mark.whole
def test_networks_are_trained_and_kept(tmp_path):
    """Alone, and beside fields in closed form; they give the same after saving."""
    shape = (3, 3)
    x, s, K = free_field(shape, 1.0, 400)
    square = np.mean(x**2, axis=1)
    network = Network(LatticeMLP(shape, 8, 1, jnp.tanh))
    for family, gain in ((network, 3), (network + LatticeField(shape), 30)):
        est = zv.estimate(x, s, square, family=family, solver=zv.SGD(epochs=60, progress=False))
        assert est.gain[0] > gain
        assert abs(est.value[0] - np.trace(np.linalg.inv(K)) / 9) < 4 * est.std_error[0]
    fitted = zv.fit(network, zv.Sample(x, s), square, solver=zv.SGD(epochs=1, progress=False))
    fitted.save(tmp_path / "fitted.npz")
    kept = zv.load(tmp_path / "fitted.npz")
    np.testing.assert_array_equal(*(each.at(x, s) for each in (kept, fitted)))


def test_fits_are_kept(tmp_path):
    family = FIELDS["near"]
    x, s = configurations(family.shape, 50)
    fitted = zv.fit(family, zv.Sample(x, s), x[:, 0])
    fitted.save(tmp_path / "fitted.npz")
    kept = zv.load(tmp_path / "fitted.npz")
    assert kept.family.describe() == family.describe()
    np.testing.assert_array_equal(*(each.at(x, s) for each in (kept, fitted)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LatticeField((4, 0)), "shape must be the numbers of sites along each axis"),
        (lambda: LatticeField((4.5, 2)), "shape must be the numbers of sites along each axis"),
        (lambda: LatticeMLP(()), "shape must be the numbers of sites along each axis"),
        (lambda: LatticeField((4,), ()), "powers must be distinct powers"),
        (lambda: LatticeField((4,), (3, (0, 3))), "powers must be distinct powers"),
        (lambda: LatticeField((4,), ((2, 0),)), "powers must be distinct powers"),
        (lambda: LatticeField((4,), (-1,)), "powers must be distinct powers"),
        (lambda: LatticeField((4,), smearing=-1.0), "smearing must be distinct times ≥ 0"),
        (lambda: LatticeField((4,), smearing=(1, 1)), "smearing must be distinct times ≥ 0"),
        (lambda: LatticeField((4, 3), shifts=[1, 2]), r"integers that broadcast to \(4, 3\)"),
        (lambda: LatticeField((4,), shifts=[0.5] * 4), r"integers that broadcast to \(4,\)"),
        (lambda: LatticeField((4,), shifts=[-1] * 4), "one at least not negative"),
    ],
)
def test_what_is_no_lattice_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_draws_of_other_sizes_and_spaces_are_refused():
    x, _ = configurations((4, 3), 50)
    s = -x
    sites = r"a lattice of shape \(4, 4\) has 16 sites, and the draws have d = 12"
    for family in (LatticeField((4, 4)), Network(LatticeMLP((4, 4)))):
        with pytest.raises(ValueError, match=sites):
            zv.estimate(x, s, x[:, 0], family=family)
    with pytest.raises(ValueError, match="is for draws in Rᵈ, and these live on a Torus"):
        LatticeField((4,)).check_space(spaces.Torus())


@pytest.mark.whole
def test_quick_benchmarks_run(capsys):
    """Errors fall by far more than ten, of lattices and of loops; the full runs show how far."""
    for main in (lattice.main, gauge.main):
        main(["--quick"])
    printed = capsys.readouterr().out
    best = [
        float(x) for x in re.findall(r"half the lattice +error ratio reported +(\S+),", printed)
    ]
    assert max(best) > 10
    assert all(float(x) > 10 for x in re.findall(r"area.*reported +(\S+),", printed))
