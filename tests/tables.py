"""The tables that drive the tests: a new kernel, family or solver is one row."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from zerovar import (
    CG,
    SGD,
    Anisotropic,
    DualSGD,
    Exact,
    Kernel,
    Langevin,
    LatticeField,
    LinearFamily,
    Nystrom,
    Polynomial,
    RidgeFunctions,
    Solver,
    SparsePolynomial,
    Spectral,
    Wavelets,
)
from zerovar.kernels import (
    AbstractKernel,
    Decaying,
    Gaussian,
    InverseMultiquadric,
    Matern,
    RationalQuadratic,
)


class KernelRow(NamedTuple):
    kernel: AbstractKernel
    # k as a plain function of p = ‖x‖², q = ‖y‖², z = ‖x − y‖², for autodiff
    value: Callable[[Any, Any, Any], Any]


def matern(nu: float, length_scale: float) -> Callable[[Any, Any, Any], Any]:
    polynomial = {
        1.5: lambda u: 1 + u,
        2.5: lambda u: 1 + u + u**2 / 3,
        3.5: lambda u: 1 + u + 2 * u**2 / 5 + u**3 / 15,
        4.5: lambda u: 1 + u + 3 * u**2 / 7 + 2 * u**3 / 21 + u**4 / 105,
    }[nu]

    def value(p, q, z):
        u = jnp.sqrt(2 * nu * z) / length_scale
        return polynomial(u) * jnp.exp(-u)

    return value


# Length-scales differ from one, and from each other within a pair, so that a lost power of ℓ or a
# swapped factor shows.
KERNELS = {
    "gaussian": KernelRow(Gaussian(0.9), lambda p, q, z: jnp.exp(-z / 1.62)),
    "inverse multiquadric": KernelRow(
        InverseMultiquadric(1.3), lambda p, q, z: (1 + z / 1.69) ** -0.5
    ),
    "rational quadratic": KernelRow(RationalQuadratic(1.4), lambda p, q, z: 1 / (1 + z / 1.96)),
    "matern 1.5": KernelRow(Matern(1.5, 1.2), matern(1.5, 1.2)),
    "matern 2.5": KernelRow(Matern(2.5, 1.2), matern(2.5, 1.2)),
    "matern 3.5": KernelRow(Matern(3.5, 1.2), matern(3.5, 1.2)),
    "matern 4.5": KernelRow(Matern(4.5, 1.2), matern(4.5, 1.2)),
    "decaying, sum": KernelRow(
        Decaying(0.2, 1.1), lambda p, q, z: jnp.exp(-z / 2.42) / (1 + 0.2 * p + 0.2 * q)
    ),
    "decaying, product": KernelRow(
        Decaying(0.2, 1.1, product=True),
        lambda p, q, z: jnp.exp(-z / 2.42) / ((1 + 0.2 * p) * (1 + 0.2 * q)),
    ),
    "scaled": KernelRow(2.0 * InverseMultiquadric(1.3), lambda p, q, z: 2 * (1 + z / 1.69) ** -0.5),
    "sum": KernelRow(
        Gaussian(0.9) + 0.5 * RationalQuadratic(1.4),
        lambda p, q, z: jnp.exp(-z / 1.62) + 0.5 / (1 + z / 1.96),
    ),
    "product": KernelRow(
        Matern(2.5, 1.2) * Gaussian(0.9),
        lambda p, q, z: matern(2.5, 1.2)(p, q, z) * jnp.exp(-z / 1.62),
    ),
}


def orders(kernel: AbstractKernel) -> list[int]:
    """The orders of Stein kernel that a base kernel is smooth enough for."""
    return [order for order in (1, 2) if kernel.smoothness > order]


STEIN_KERNELS = {
    f"{name}, order {order}": Kernel(row.kernel, order)
    for name, row in KERNELS.items()
    for order in orders(row.kernel)
}

# ZVCV's names and parametrisation of kernels: exp(−z/σ²), (1 + z/σ²)⁻¹, Matérn (λ, ν), the paper's
# kernel (α, λ) in two forms.
ZVCV_KERNELS: dict[str, Callable[..., AbstractKernel]] = {
    "gaussian": lambda sigma: Gaussian(sigma / np.sqrt(2)),
    "RQ": lambda sigma: RationalQuadratic(sigma),
    "matern": lambda length_scale, nu: Matern(nu, length_scale),
    "product": lambda alpha, length_scale: Decaying(alpha, length_scale),
    "prodsim": lambda alpha, length_scale: Decaying(alpha, length_scale, product=True),
}

# Degrees stop at 4: Δ of both arguments of (x·y)^j brings in its fourth derivative, so every term
# is met by then.
POLYNOMIALS = {
    **{f"degree {k}": Polynomial(k) for k in (1, 2, 3, 4)},
    **{f"vector degree {k}": Polynomial(k, operator=Langevin()) for k in (0, 1, 2, 3, 4)},
    "weights": Polynomial(3, weight=(0.5, 2.0, 3.0)),
    "a degree left out": Polynomial(3, weight=(0.5, 0.0, 3.0)),
    "vector weights": Polynomial(2, operator=Langevin(), weight=(0.5, 2.0, 3.0)),
    "free and penalised": Polynomial(2, weight=(np.inf, 2.0)),
    "one coordinate": Polynomial(3, coordinates=(0,)),
    "vector one coordinate": Polynomial(2, coordinates=(0,), operator=Langevin()),
}

SUMS = {
    "two polynomials": Polynomial(2, weight=2.0) + Polynomial(1, operator=Langevin()),
    "polynomial and kernel": Polynomial(2) + Kernel(RationalQuadratic(1.4), weight=0.3),
    "two kernels": Kernel(Gaussian(0.9)) + Kernel(Matern(3.5, 1.2), order=2, weight=2.0),
}

# One row a kind of linear family, in d = 2. Every row is held to automatic differentiation, to
# Stein's identity, to NumPy under `Exact`, to `Exact` under every other solver and both quadratic
# penalties, to differences under `tune`, and to itself after saving and loading. Weights differ
# from one, so that a lost one shows.
_TWO = [[1.0, 0.6], [0.3, -0.8]]
_TERMS = [[0, -1, -1], [1, -1, -1], [0, 0, -1], [1, 1, -1], [0, 1, 1], [0, 1, -1]]
FAMILIES: dict[str, LinearFamily] = {
    "polynomial": Polynomial(2, weight=3.0),
    "vector polynomial": Polynomial(1, operator=Langevin(), weight=(0.5, 2.0)),
    "weights by degree": Polynomial(3, weight=(np.inf, 2.0, 0.5)),
    "one coordinate": Polynomial(3, coordinates=(0,)),
    "kernel": Kernel(Gaussian(1.5), weight=2.0),
    "kernel of order 2": Kernel(Matern(4.5, 2.0), order=2, weight=0.5),
    "decaying kernel": Kernel(Decaying(0.3, 1.2), weight=2.0),
    "two kernels": Kernel(Gaussian(1.0), weight=0.3) + Kernel(InverseMultiquadric(3.0), weight=2.0),
    "polynomial and kernel": Polynomial(2, weight=(np.inf, 3.0))
    + Kernel(2.0 * InverseMultiquadric(2.0), weight=0.5),
    "ridge functions": RidgeFunctions(Polynomial(3, weight=(0.0, 1.0, 2.0)), _TWO),
    "ridge functions of a kernel": RidgeFunctions(Kernel(Gaussian(1.5), weight=25.0), _TWO),
    "anisotropic kernel": Anisotropic(Kernel(Gaussian(1.5), weight=25.0), [1.5, 0.7]),
    "anisotropic sum": Anisotropic(
        Polynomial(2, weight=(np.inf, 3.0)) + Kernel(Gaussian(1.5), weight=2.0), [0.8, 1.2]
    ),
    "sparse polynomial": SparsePolynomial(3, monomials=_TERMS, weight=2.0),
    "lattice field": LatticeField((2,), (1, 3, (2, 1)), (0.0, 0.4), weight=2.0),
    "wavelets": Wavelets(1, 3, 1.5, reach=1.0, weight=2.0),
    "sum of wrappers": RidgeFunctions(Polynomial(2, weight=3.0), _TWO)
    + Anisotropic(Kernel(Matern(3.5, 2.0)), [1.3, 0.8]),
}


class SolverRow(NamedTuple):
    solver: Solver
    # on how far g is from the exact one: the variance of the difference, in units of what that
    # leaves of f
    bound: float
    kernels: bool = True  # whether it takes families that have only a Gram


# One row a solver
SOLVERS = {
    "exact": SolverRow(Exact(), 1e-18),
    "spectral": SolverRow(Spectral(), 1e-10),
    "at all draws as centres": SolverRow(Nystrom(400), 1e-8),
    "conjugate gradients": SolverRow(CG(progress=False), 0.02),
    "training": SolverRow(SGD(epochs=50, progress=False), 0.06),
    "training of the dual": SolverRow(DualSGD(progress=False), 0.06),
}


def rows(table: dict) -> dict:
    """Arguments of pytest.mark.parametrize for a table of name → value."""
    return {"argvalues": list(table.values()), "ids": list(table)}
