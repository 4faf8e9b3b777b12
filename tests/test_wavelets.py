"""Spline wavelets against SciPy's splines and quadrature between knots, and what they say no to.

`FAMILIES` in tests/tables.py has a row of them: closed forms under `Langevin`, every solver, files.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.interpolate import BSpline
from test_operators_families import assert_close, compiled, density_and_score, features, points

import zerovar as zv
from zerovar.families.base import BasisFamily, LinearFamily
from zerovar.families.wavelets import b_spline

pytestmark = pytest.mark.usefixtures("x64")


def cells(width: float, nodes: int, reach: float = 5.5) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of Gauss and Legendre's rule in each cell between knots."""
    node, weight = np.polynomial.legendre.leggauss(nodes)
    edges = np.arange(-reach, reach, width)
    x = edges[:, None] + width * (node + 1) / 2
    return x.ravel(), np.tile(width * weight / 2, len(edges))


@pytest.mark.parametrize("order", [2, 3, 4, 6])
def test_splines_are_those_of_scipy(order):
    t = np.linspace(0, order, 101)[:-1]
    found = [np.polyval(b_spline(order)[int(at)][::-1], at % 1) for at in t]
    np.testing.assert_allclose(found, BSpline.basis_element(np.arange(order + 1))(t), atol=1e-14)


@pytest.mark.parametrize("order", [2, 3, 4])
def test_levels_are_orthogonal(order):
    """And all functions have norm one; within a level neighbours are not, the control."""
    family = zv.Wavelets(2, order, 0.0, reach=0.5)
    x, weights = cells(0.25, order, 8.0)
    u = np.asarray(jax.jit(jax.vmap(family.basis))(x[:, None]))[:, :, 0]
    products = u.T @ (weights[:, None] * u)
    sizes = [zv.Wavelets(j, order, reach=0.5).num_features(1) for j in range(3)]
    level = np.searchsorted(sizes, np.arange(sizes[-1]), side="right")
    np.testing.assert_allclose(np.diagonal(products), 1, rtol=1e-13)
    assert np.abs(products[level[:, None] != level]).max() < 1e-13
    assert np.abs(products[0, 1]) > 0.1


@pytest.mark.parametrize("operator", [zv.Langevin(), zv.ScalarLangevin()])
@pytest.mark.parametrize("d", [1, 2])
def test_steins_identity(d, operator):
    """For every function, exact between knots; the wrong sign must fail."""
    family = zv.Wavelets(1, 3, 0.5, reach=2.0 if d == 1 else 0.4, operator=operator)
    line, weights = cells(0.5, 12)
    x = jnp.stack(jnp.meshgrid(*[line] * d, indexing="ij"), axis=-1).reshape(-1, d)
    weights = weights if d == 1 else np.outer(weights, weights).ravel()
    log_p, s = density_and_score(x)
    p = np.exp(log_p) * weights

    def relative_means(sign):
        g = np.asarray(features(family, x, sign * s))
        return np.abs(p @ g) / (p @ np.abs(g))

    assert relative_means(1.0).max() < 1e-11
    assert np.median(relative_means(-1.0)) > 0.01


@pytest.mark.parametrize("d", [1, 3])
def test_potentials_are_those_of_automatic_differentiation(d):
    (x, s), (y, t) = points(4, d), points(3, d, seed=1)
    levels = 1 if d == 1 else 0
    family = zv.Wavelets(levels, 4, 1.5, 1.0, zv.ScalarLangevin(), weight=2.0)
    found = compiled(
        lambda x, s, y, t: (
            family.features(x, s),
            BasisFamily.features(family, x, s),
            family.gram(x, s, y, t),
            LinearFamily.gram(family, x, s, y, t),
        )
    )(x, s, y, t)
    assert_close(*found[:2], 1e-12)
    assert_close(*found[2:], 1e-12)


def test_a_jump_is_found_where_a_cubic_does_not():
    """Pr(x > 0.3) of a thousand normal draws."""
    x = np.random.default_rng(0).normal(size=(1000, 1))
    objective = zv.LeastSquares(zv.Ridge(1e-6))
    found, cubic = (
        zv.estimate(x, -x, (x[:, 0] > 0.3) * 1.0, family=family, objective=objective)
        for family in (zv.Wavelets(6), zv.Polynomial(3))
    )
    assert abs(found.value[0] - 0.3820886) < 4 * found.std_error[0]
    assert found.gain[0] > 5 * cubic.gain[0]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: zv.Wavelets(-1), "levels must be an integer of at least 0"),
        (lambda: zv.Wavelets(3, 1), "order under Langevin must be an integer of at least 2"),
        (
            lambda: zv.Wavelets(3, 2, operator=zv.ScalarLangevin()),
            "order under ScalarLangevin must be an integer of at least 3",
        ),
        (lambda: zv.Wavelets(decay=-1.0), "decay must be a finite number ≥ 0"),
        (lambda: zv.Wavelets(reach=0.0), "reach must be a positive number"),
        (
            lambda: zv.fit(zv.Wavelets(), zv.Sample(*[np.eye(4)] * 2), np.arange(4.0)),
            "d ≤ 3; got d = 4",
        ),
        (lambda: zv.Wavelets().check_space(zv.spaces.Torus()), "is for draws in Rᵈ"),
    ],
)
def test_what_makes_no_sense_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()
