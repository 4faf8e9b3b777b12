"""Every closed form against automatic differentiation, and every family against Stein's identity,
exactly by quadrature."""

import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import FAMILIES, KERNELS, POLYNOMIALS, STEIN_KERNELS, SUMS, KernelRow, orders, rows

from zerovar import Anisotropic, Kernel, Langevin, Polynomial, RidgeFunctions, ScalarLangevin
from zerovar.families import BasisFamily, LinearFamily, Sum
from zerovar.families.base import Translates
from zerovar.kernels import Matern

pytestmark = pytest.mark.usefixtures("x64")


def points(n: int, d: int, seed: int = 0) -> tuple[jax.Array, jax.Array]:
    """Points and scores that have nothing to do with each other: the algebra must hold for any."""
    rng = np.random.default_rng(seed)
    return jax.device_put(rng.normal(size=(n, d))), jax.device_put(rng.normal(size=(n, d)))


def assert_close(actual, expected, tolerance: float) -> None:
    """Relative to the largest entry: cancellation leaves small entries no digits of their own."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape
    assert np.abs(actual - expected).max() <= tolerance * np.abs(expected).max()


@eqx.filter_jit
def features(family, x, s):
    return family.features(x, s)


def compiled(function):
    """Compiled without optimisation: references run once, on five points, so their time is all
    compilation."""
    return jax.jit(
        lambda *arrays: function(*arrays), compiler_options={"xla_backend_optimization_level": 0}
    )


# ---- operators


def test_langevin_by_hand():
    # u = (x₁²x₂, sin x₂): ∇·u = 2x₁x₂ + cos x₂
    x, s = jnp.array([0.7, -1.1]), jnp.array([0.4, 2.0])
    value = compiled(
        lambda x, s: Langevin()(lambda a: jnp.array([a[0] ** 2 * a[1], jnp.sin(a[1])]), x, s)
    )(x, s)
    expected = 2 * 0.7 * -1.1 + math.cos(-1.1) + 0.7**2 * -1.1 * 0.4 + math.sin(-1.1) * 2.0
    assert value == pytest.approx(expected, rel=1e-14)


def test_scalar_langevin_by_hand():
    # u = x₁³x₂: ∇u = (3x₁²x₂, x₁³), Δu = 6x₁x₂
    x, s = jnp.array([0.7, -1.1]), jnp.array([0.4, 2.0])
    value = compiled(lambda x, s: ScalarLangevin()(lambda a: a[0] ** 3 * a[1], x, s))(x, s)
    assert value == pytest.approx(6 * 0.7 * -1.1 + 3 * 0.49 * -1.1 * 0.4 + 0.343 * 2.0, rel=1e-14)


@pytest.mark.parametrize("operator", [Langevin(), ScalarLangevin()], ids=["vector", "scalar"])
def test_operators_take_stacks_of_functions(operator):
    x, s = np.random.default_rng(0).normal(size=(2, 3))

    def one(a):
        return jnp.sin(a) if isinstance(operator, Langevin) else jnp.sin(a).sum()

    def both(x, s):
        stacked = operator(lambda a: jnp.stack([one(a), one(2 * a)]), x, s)
        return stacked, jnp.stack([operator(one, x, s), operator(lambda a: one(2 * a), x, s)])

    assert_close(*compiled(both)(x, s), 1e-14)


# ---- kernels


def plain(row: KernelRow):
    """A kernel of the table as a function of two points, free of the package."""
    return lambda x, y: row.value(x @ x, y @ y, (x - y) @ (x - y))


@pytest.mark.parametrize("row", **rows(KERNELS))
def test_kernel_values(row):
    (x, y), _ = np.random.default_rng(0).normal(size=(2, 2, 3))
    found, expected = compiled(lambda x, y: (row.kernel(x, y), plain(row)(x, y)))(x, y)
    assert float(found) == pytest.approx(float(expected), rel=1e-14)


def reference(k, order: int, x, s, y, t):
    """The Stein operator on both arguments of k, by automatic differentiation, at all pairs of
    points."""

    def first_order(a, sa, b, tb):
        return Langevin()(lambda u: jax.grad(k, argnums=1)(u, b) + k(u, b) * tb, a, sa)

    def second_order(a, sa, b, tb):
        return ScalarLangevin()(lambda u: ScalarLangevin()(lambda v: k(u, v), b, tb), a, sa)

    pair = first_order if order == 1 else second_order
    return jax.vmap(lambda a, sa: jax.vmap(lambda b, tb: pair(a, sa, b, tb))(y, t))(x, s)


@pytest.mark.parametrize(
    ("row", "order"),
    [(row, order) for row in KERNELS.values() for order in orders(row.kernel)],
    ids=STEIN_KERNELS,
)
def test_stein_kernel_is_the_autodiff_one(row, order):
    (x, s), (y, t) = points(5, 3), points(5, 3, seed=1)
    expected = compiled(lambda *arrays: reference(plain(row), order, *arrays))(x, s, y, t)
    assert_close(Kernel(row.kernel, order).gram(x, s, y, t), expected, 1e-10)


@pytest.mark.parametrize("family", **rows(STEIN_KERNELS))
def test_stein_kernel_on_the_diagonal_is_the_limit(family):
    # Automatic differentiation through Matérn's square root is wrong at equal points, so the closed
    # form, which the test above holds to autodiff at distinct points, is its own reference just off
    # the diagonal; it moves by O(1e-5).
    x, s = points(5, 3)
    _, t = points(5, 3, seed=1)
    at, near = (np.diag(family.gram(x, s, x + step, t)) for step in (0.0, 1e-5 / math.sqrt(3)))
    assert np.isfinite(at).all()
    assert_close(at, near, 1e-3)


@pytest.mark.parametrize(
    ("nu", "order"), [(nu, order) for nu in (1.5, 2.5, 3.5, 4.5) for order in (1, 2) if nu > order]
)
def test_matern_on_the_diagonal_is_exact(nu, order):
    # k = φ(z) has k₀(x, x) = s·t φ(0) − 2d φ'(0), or 4d(d + 2) φ''(0) − 2 s·t φ'(0), and φ(z) = Σ
    # Γ(ν−k)/Γ(ν) (−νz/2ℓ²)ᵏ/k! up to k < ν. Points far out and many: ‖x‖² + ‖y‖² − 2x·y is then
    # often a little below zero where it should vanish.
    d, length_scale = 3, 1.2
    (x, s), (_, t) = (np.random.default_rng(seed).normal(size=(2, 50, d)) for seed in (0, 1))
    rate = nu / (2 * length_scale**2)
    slope, st = -rate / (nu - 1), np.sum(s * t, axis=1)
    curvature = rate**2 / ((nu - 1) * (nu - 2))
    expected = st - 2 * d * slope if order == 1 else 4 * d * (d + 2) * curvature - 2 * st * slope
    gram = compiled(Kernel(Matern(nu, length_scale), order).gram)(x + 10, s, x + 10, t)
    assert_close(np.diag(gram), expected, 1e-12)


def test_stein_kernel_weight_multiplies():
    (x, s), (y, t) = points(5, 3), points(5, 3, seed=1)
    base = Matern(2.5, 1.2)
    assert_close(
        Kernel(base, weight=3.0).gram(x, s, y, t), 3 * Kernel(base).gram(x, s, y, t), 1e-15
    )


@pytest.mark.parametrize(("nu", "order"), [(1.5, 2)])
def test_rough_kernels_are_refused(nu, order):
    with pytest.raises(ValueError, match="needs a base kernel with more than 2 derivatives"):
        Kernel(Matern(nu, 1.0), order=order)


# ---- polynomials

# Lower degrees are the first columns of degree 4 (a test below), so that only it is differentiated,
# which is slow to compile.
LOWER = [name for name in POLYNOMIALS if "degree" in name and name[-1] in "0123"]
POLYNOMIALS_IN_D = {
    f"{name}, d = 3": (family, 3) for name, family in POLYNOMIALS.items() if name not in LOWER
} | {
    f"{name}, d = {d}": (POLYNOMIALS[name], d)
    for name in ("degree 4", "vector degree 4")
    for d in (1, 2)
}


@pytest.mark.parametrize(("family", "d"), **rows(POLYNOMIALS_IN_D))
def test_polynomial_features_are_the_autodiff_ones(family, d):
    x, s = points(5, d)
    expected = compiled(lambda *arrays: BasisFamily.features(family, *arrays))(x, s)
    assert_close(features(family, x, s), expected, 1e-13)


@pytest.mark.parametrize("name", LOWER)
def test_lower_degrees_are_the_first_columns(name):
    x, s = points(5, 3)
    columns = features(POLYNOMIALS[name], x, s)
    assert columns.shape[1] == POLYNOMIALS[name].num_features(3)
    assert_close(
        columns, features(POLYNOMIALS[name[:-1] + "4"], x, s)[:, : columns.shape[1]], 1e-15
    )


@pytest.mark.parametrize(
    ("family", "d"),
    **rows({name: (family, 3) for name, family in POLYNOMIALS.items()} | POLYNOMIALS_IN_D),
)
def test_polynomial_gram_is_that_of_its_features(family, d):
    (x, s), (y, t) = points(5, d), points(5, d, seed=1)
    of_x, of_y = (np.asarray(features(family, *pair)) for pair in ((x, s), (y, t)))
    assert_close(family.gram(x, s, y, t), of_x @ of_y.T, 1e-13)


@pytest.mark.parametrize("operator", [Langevin(), ScalarLangevin()], ids=["vector", "scalar"])
def test_coordinates_are_a_smaller_problem(operator):
    x, s = points(5, 3)
    chosen = Polynomial(2, coordinates=(0, 2), operator=operator)
    alone = Polynomial(2, operator=operator)
    assert_close(features(chosen, x, s), features(alone, x[:, [0, 2]], s[:, [0, 2]]), 1e-15)
    assert chosen.num_features(3) == alone.num_features(2)


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("family", **rows(POLYNOMIALS))
def test_num_features(family, d):
    x = jax.ShapeDtypeStruct((5, d), np.float64)
    assert jax.eval_shape(family.features, x, x).shape == (5, family.num_features(d))


@pytest.mark.parametrize(
    ("family", "d", "expected"),
    [
        (Polynomial(2), 61, 1952),
        (Polynomial(4), 10, 1000),
        (Polynomial(1), 5, 5),
        (Polynomial(0, operator=Langevin()), 5, 5),
        (Polynomial(1, operator=Langevin()), 10, 110),
        (Polynomial(2, operator=Langevin()), 3, 30),
        (Polynomial(3, weight=(1.0, 0.0, 1.0)), 3, 3 + 10),
        (Polynomial(2, coordinates=(1, 4)), 10, 5),
    ],
)
def test_num_features_by_count(family, d, expected):
    x = jax.ShapeDtypeStruct((2, d), np.float64)
    assert family.num_features(d) == expected
    assert jax.eval_shape(family.features, x, x).shape == (2, expected)


# ---- overrides


OVERRIDDEN = [
    (name, method)
    for name, family in {**FAMILIES, **SUMS}.items()
    for method, base in (("features", BasisFamily), ("gram", LinearFamily), ("apply", LinearFamily))
    if isinstance(family, base)
    and not isinstance(family, Polynomial)  # the tests above have every kind of them
    and family.num_features(2) is not None
    and getattr(type(family), method) is not getattr(base, method)
]


@pytest.mark.parametrize(("name", "method"), OVERRIDDEN)
def test_overrides_are_what_they_override(name, method):
    """Wherever a family has features and a closed form of its own, that of the class above it is
    the reference."""
    family = {**FAMILIES, **SUMS}[name]
    (x, s), (y, t) = points(5, 2), points(4, 2, seed=1)
    others = {
        "features": (),
        "gram": (y, t),
        "apply": (np.random.default_rng(2).normal(size=(family.num_features(2), 3)),),
    }
    base = BasisFamily if method == "features" else LinearFamily
    found, expected = compiled(
        lambda *arrays: (getattr(family, method)(*arrays), getattr(base, method)(family, *arrays))
    )(x, s, *others[method])
    assert_close(found, expected, 1e-12)


# ---- sums and translates


@pytest.mark.parametrize("family", **rows(SUMS))
def test_sum_adds_grams(family):
    (x, s), (y, t) = points(5, 3), points(5, 3, seed=1)
    expected = sum(part.gram(x, s, y, t) for part in family.parts)
    assert_close(family.gram(x, s, y, t), expected, 1e-15)


def test_sum_concatenates_features():
    x, s = points(5, 3)
    parts = (
        Polynomial(2, weight=2.0),
        Polynomial(1, operator=Langevin()),
        Polynomial(1, coordinates=(1,)),
    )
    family = parts[0] + parts[1] + parts[2]
    assert isinstance(family, Sum)
    assert family.parts == parts, "a sum of sums is one flat sum"
    assert_close(
        features(family, x, s),
        jnp.concatenate([features(part, x, s) for part in parts], axis=1),
        1e-15,
    )
    assert family.num_features(3) == 9 + 12 + 1


def test_sum_with_a_kernel_has_no_features():
    assert SUMS["polynomial and kernel"].num_features(3) is None
    with pytest.raises(TypeError, match="no finite features"):
        SUMS["two kernels"].features(*points(5, 3))


def test_split_parts_free_from_penalised():
    kernel, free, both = (
        Kernel(Matern(2.5, 1.2)),
        Polynomial(1, weight=np.inf),
        Polynomial(2, weight=(np.inf, 2.0)),
    )
    assert (free + kernel).split() == (kernel, free)
    penalised, unpenalised = both.split()
    assert (penalised.num_features(3), unpenalised.num_features(3)) == (6, 3)
    x, s = points(5, 3)
    joined = jnp.concatenate([features(unpenalised, x, s), features(penalised, x, s)], axis=1)
    assert_close(joined, features(both, x, s), 1e-15)


def test_ridge_functions_are_their_family_of_projections():
    (x, s), (y, t) = points(5, 3), points(5, 3, seed=1)
    inner = Polynomial(3, weight=(0.5, 0.0, 3.0))
    directions = np.array([[1.0, 0.0], [2.0, 1.0], [-2.0, 1.0]])
    family = RidgeFunctions(inner, directions)
    unit = directions / np.linalg.norm(directions, axis=0)
    parts = [
        tuple(jax.device_put(np.asarray(p) @ unit[:, [k]]) for p in (x, s, y, t)) for k in range(2)
    ]
    of_x, of_y = (np.asarray(features(family, *pair)) for pair in ((x, s), (y, t)))
    gram = compiled(family.gram)(x, s, y, t)
    assert_close(gram, sum(np.asarray(compiled(inner.gram)(*part)) for part in parts), 1e-14)
    assert_close(
        of_x, np.concatenate([features(inner, *part[:2]) for part in parts], axis=1), 1e-14
    )
    assert_close(of_x @ of_y.T, gram, 1e-13)
    assert family.num_features(3) == 4


def test_anisotropic_is_its_family_in_other_coordinates():
    """Against the operator in the old coordinates, by automatic differentiation."""
    x, s = points(5, 2)
    scaling = np.array([3.0, 0.5])
    ratios = scaling / np.sqrt(1.5)
    family = Anisotropic(Polynomial(2, operator=Langevin()), scaling)

    def field(point):  # z = x r; the field in x that moves z by u is u / r
        return family.family.basis(point * ratios) / ratios

    expected = compiled(jax.vmap(lambda point, score: Langevin()(field, point, score)))(x, s)
    assert_close(features(family, x, s), expected, 1e-13)


def test_translates_are_columns_of_the_gram():
    (x, s), (y, t) = points(5, 3), points(5, 3, seed=1)
    kernel = Kernel(Matern(2.5, 1.2))
    family = Translates(kernel, y, t)
    assert_close(family.features(x, s), kernel.gram(x, s, y, t), 0.0)
    assert family.num_features(3) == 5


# Of every degree and kernel; the table of families has one of each kind
SINGLE = {**POLYNOMIALS, **STEIN_KERNELS, **SUMS}


@pytest.mark.parametrize(
    ("family", "d"),
    **rows(
        {k: (f, 3) for k, f in SINGLE.items()}
        | {f"{k}, d = 2": (f, 2) for k, f in FAMILIES.items()}
    ),
)
def test_gram_is_symmetric_positive_semidefinite(family, d):
    x, s = points(5, d)
    matrix = np.asarray(family.gram(x, s, x, s))
    assert_close(matrix, matrix.T, 1e-14)
    values = np.linalg.eigvalsh(matrix)
    assert values.min() >= -1e-13 * values.max()


# ---- Stein's identity


def log_density(x):
    """Not Gaussian, not symmetric, and coupled: no identity holds by luck."""
    if len(x) == 1:
        return -(x[0] ** 4) / 4 + x[0] / 2
    return (
        -(x[0] ** 4) / 4
        - x[1] ** 4 / 8
        - 0.3 * x[0] ** 2 * x[1] ** 2
        + x[0] / 2
        - 0.4 * x[0] * x[1]
    )


density_and_score = jax.jit(jax.vmap(jax.value_and_grad(log_density)))


@functools.cache
def rule(d: int, sign: float) -> list[tuple[np.ndarray, tuple[jax.Array, ...]]]:
    """For two fixed points y: the density times the weights of a rule, and (x, s, y, t) of its
    nodes, with scores times `sign`."""
    found = []
    for fixed in ([0.3, -0.5], [-0.8, 0.6]):
        y = np.array([fixed[:d]])
        x, weights = rays(y[0])
        (log_p, s), (_, t) = density_and_score(x), density_and_score(y)
        arrays = (x, sign * np.asarray(s), y, sign * np.asarray(t))
        found.append((np.exp(log_p) * weights, tuple(map(jax.device_put, arrays))))
    return found


def rays(centre: np.ndarray, radius: float = 7.0) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights along rays from `centre`, 4096 in either dimension: Gauss–Legendre in r,
    equal angles in d = 2.

    A Stein kernel is smooth along every ray from its fixed point, Matérn's too, so the rule is
    accurate to rounding; on a plain grid the kink of Matérn at the fixed point would leave an error
    of O(h²).
    """
    d = len(centre)
    panels, angles = (32, 2) if d == 1 else (1, 64)
    node, weight = np.polynomial.legendre.leggauss(64)
    edges = np.linspace(0, radius, panels + 1)[:-1, None]
    r, w = (
        (edges + radius / panels * (node + 1) / 2).ravel(),
        np.tile(radius / panels * weight / 2, panels),
    )
    angle = 2 * np.pi * np.arange(angles) / angles
    directions = np.stack([np.cos(angle), np.sin(angle)], axis=1)[:, :d]
    x = centre + r[:, None, None] * directions
    return x.reshape(-1, d), np.repeat(
        w * r ** (d - 1) * (1 if d == 1 else 2 * np.pi / angles), angles
    )


def relative_means(evaluate, d: int, sign: float = 1.0) -> np.ndarray:
    """|∫ g π| / ∫ |g| π for the functions g of evaluate(x, s, y, t), with scores times `sign`, for
    two fixed points y."""
    out = []
    for p, arrays in rule(d, sign):
        g = np.asarray(evaluate(*arrays))
        out.append(np.abs(p @ g) / (p @ np.abs(g)))
    return np.stack(out)


# Under a constant field or a linear potential g is a score, and minus a score has mean zero too:
# nothing to notice.
BLIND = ("degree 1", "vector degree 0")


@pytest.mark.parametrize("name", SINGLE)
def test_steins_identity(name):
    """And the wrong sign must fail."""
    family = SINGLE[name]
    assert relative_means(family.gram, 1).max() < 1e-11
    assert relative_means(family.gram, 2).max() < 1e-11
    assert name in BLIND or relative_means(family.gram, 2, sign=-1.0).min() > 0.1


# those of splines, which are smooth between knots alone, have a rule of their own: test_wavelets.py
SMOOTH = {name: family for name, family in FAMILIES.items() if name != "wavelets"}


@pytest.mark.parametrize("family", **rows(SMOOTH))
def test_steins_identity_in_the_plane(family):
    assert relative_means(family.gram, 2).max() < 1e-11
    assert relative_means(family.gram, 2, sign=-1.0).min() > 0.1, "the wrong sign must fail"


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("name", ["degree 4", "vector degree 4"])
def test_steins_identity_for_each_feature(name, d):
    assert relative_means(lambda x, s, *_: features(POLYNOMIALS[name], x, s), d).max() < 1e-11
