"""Base kernels k(x, y) and their algebra.

Every kernel here depends on its points through three numbers: p = ‖x‖², q = ‖y‖² and z = ‖x − y‖².
A Stein kernel needs derivatives of k in x and y up to fourth order, and by the chain rule these are
derivatives of k(p, q, z) times inner products. So a kernel is defined by one method, `derivative`,
elementwise on arrays of p, q, z: sums and products follow by linearity and Leibniz' rule, and whole
Gram matrices are built from matrix products without an n × n × d array (see `families/kernel.py`).
"""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float

from .arguments import FLAG, number, takes
from .hyper import LEAF, LENGTH_SCALE, SHAPE
from .io.archive import Storable

DerivativeOrder = tuple[int, int, int]  # how often to differentiate in p, in q and in z
Numbers = Float[Array, "..."]


class AbstractKernel(Storable, eqx.Module):
    """A positive definite function of two points."""

    @abstractmethod
    def derivative(
        self, order: DerivativeOrder, p: Numbers, q: Numbers, z: Numbers
    ) -> Numbers | int:
        """Return ∂ⁱ∂ʲ∂ˡ k in p, q and z elementwise, for order (i, j, l): the integer 0 where it
        vanishes identically, so that no work is spent on it."""

    @property
    def smoothness(self) -> float:
        """The number of derivatives in each argument that the kernel stays below (inf: it has all
        of them)."""
        return math.inf

    def resolve(self, length_scale: float) -> AbstractKernel:
        """Return this kernel with `length_scale` wherever none was given."""
        return self

    @property
    def needs_length_scale(self) -> bool:
        """Whether a length-scale is left open."""
        return False

    def describe(self) -> str:
        """Return a short name for tables."""
        return type(self).__name__

    def __call__(self, x: Float[Array, " d"], y: Float[Array, " d"]) -> Float[Array, ""]:
        return _differentiable((0, 0, 0), self, x @ x, y @ y, (x - y) @ (x - y))

    def __add__(self, other: AbstractKernel) -> KernelSum:
        return KernelSum(self, other) if isinstance(other, AbstractKernel) else NotImplemented

    def __mul__(self, other: AbstractKernel | float) -> KernelProduct:
        if isinstance(other, (int, float)):
            other = ConstantKernel(other)
        return KernelProduct(self, other) if isinstance(other, AbstractKernel) else NotImplemented

    __rmul__ = __mul__


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _differentiable(
    order: DerivativeOrder, kernel: AbstractKernel, p: Numbers, q: Numbers, z: Numbers
) -> Numbers:
    """Return a derivative of a kernel, whose own derivatives are the kernel's of higher order:
    automatic differentiation is then right at equal points too, and as far as the kernel is smooth.
    """
    return jnp.asarray(kernel.derivative(order, p, q, z), dtype=z.dtype)


def _differentiate(order: DerivativeOrder, at: Any, along: Any) -> tuple[Numbers, Numbers]:
    kernel, *numbers = at
    value = _differentiable(order, *at)
    slope = jnp.zeros_like(value)
    for k, direction in enumerate(along[1:]):
        if not isinstance(direction, SymbolicZero):
            higher = (*order[:k], order[k] + 1, *order[k + 1 :])
            slope = slope + _differentiable(higher, *at) * direction
    moved = jax.tree.leaves(along[0], is_leaf=lambda leaf: isinstance(leaf, SymbolicZero))
    if not all(isinstance(leaf, SymbolicZero) for leaf in moved):
        of_kernel = lambda kernel: _differentiable.fun(order, kernel, *numbers)  # noqa: E731
        directions = jax.tree.map(
            lambda leaf, to: jnp.zeros_like(leaf) if isinstance(to, SymbolicZero) else to,
            kernel,
            along[0],
        )
        slope = slope + jax.jvp(of_kernel, (kernel,), (directions,))[1]
    return value, slope


_differentiable.defjvp(_differentiate, symbolic_zeros=True)


class _Pair(AbstractKernel):
    """A kernel made of two."""

    left: AbstractKernel
    right: AbstractKernel

    @property
    def smoothness(self):
        return min(self.left.smoothness, self.right.smoothness)

    def resolve(self, length_scale):
        return type(self)(self.left.resolve(length_scale), self.right.resolve(length_scale))

    @property
    def needs_length_scale(self):
        return self.left.needs_length_scale or self.right.needs_length_scale


class KernelSum(_Pair):
    """The sum of two kernels."""

    def derivative(self, order, p, q, z):
        return self.left.derivative(order, p, q, z) + self.right.derivative(order, p, q, z)

    def describe(self):
        return f"{self.left.describe()} + {self.right.describe()}"


class KernelProduct(_Pair):
    """The product of two kernels."""

    def derivative(self, order, p, q, z):
        """Sum over all ways to share `order` between the factors, by Leibniz' rule."""
        total: Numbers | int = 0
        for share in np.ndindex(*(k + 1 for k in order)):
            rest = tuple(k - of_left for k, of_left in zip(order, share, strict=True))
            left = self.left.derivative(share, p, q, z)
            right = self.right.derivative(rest, p, q, z)
            if not (is_zero(left) or is_zero(right)):
                ways = math.prod(map(math.comb, order, share))
                total = total + ways * left * right
        return total

    def describe(self):
        factors = (
            f"({k.describe()})" if isinstance(k, KernelSum) else k.describe()
            for k in (self.left, self.right)
        )
        return " * ".join(factors)


class ConstantKernel(AbstractKernel):
    """k = value. A factor: `2.0 * Gaussian()` is `KernelProduct(Gaussian(),
    ConstantKernel(2.0))`."""

    value: np.ndarray = eqx.field(metadata=SHAPE)

    @takes(value=LEAF)
    def __init__(self, value: Any):
        self.value = value

    def describe(self):
        return f"{float(self.value):g}"

    def derivative(self, order, p, q, z):
        return 0 if any(order) else self.value * jnp.ones_like(z)


class LengthScaleKernel(AbstractKernel):
    """A base kernel with one length-scale ℓ, which `tune` moves. Without one, a fit takes the
    median heuristic of its draws.

    A subclass gives `derivative`, which reads `self.length_scale`, and `traits` if its description
    shows more than ℓ.
    """

    length_scale: Any = eqx.field(metadata=LENGTH_SCALE, default=None)  # float64 leaf, or None

    @takes(length_scale=LEAF)
    def __init__(self, length_scale: float | None = None):
        self.length_scale = length_scale

    def resolve(self, length_scale):
        if self.length_scale is not None:
            return self
        return eqx.tree_at(
            lambda k: k.length_scale,
            self,
            np.float64(length_scale),
            is_leaf=lambda leaf: leaf is None,
        )

    @property
    def needs_length_scale(self):
        return self.length_scale is None

    def describe(self):
        inside = self.traits()
        if self.length_scale is not None:
            inside = [*inside, f"ℓ={float(self.length_scale):.3g}"]
        return type(self).__name__ + (f"({', '.join(inside)})" if inside else "")

    def traits(self) -> list[str]:
        """Return what else tells this kernel from others of its class, such as "ν=2.5"."""
        return []


class Gaussian(LengthScaleKernel):
    """exp(−r²/2ℓ²)."""

    def derivative(self, order, p, q, z):
        if order[0] or order[1]:
            return 0
        slope = -0.5 / self.length_scale**2
        return slope ** order[2] * jnp.exp(slope * z)


class InverseMultiquadric(LengthScaleKernel):
    """(1 + r²/ℓ²)^(−1/2)."""

    def derivative(self, order, p, q, z):
        return 0 if order[0] or order[1] else _power(0.5, order[2], 1 / self.length_scale**2, z)


class RationalQuadratic(LengthScaleKernel):
    """(1 + r²/ℓ²)⁻¹."""

    def derivative(self, order, p, q, z):
        return 0 if order[0] or order[1] else _power(1.0, order[2], 1 / self.length_scale**2, z)


class Matern(LengthScaleKernel):
    """Matérn with half-integer ν ≥ 3/2, such as 5/2, 7/2, 9/2.

    With u = √(2ν) r/ℓ the kernel is e⁻ᵘ θ_m(u) / θ_m(0), ν = m + 1/2, where θ_m are the reverse
    Bessel polynomials, and d/dz (e⁻ᵘ θ_m) = −(ν/ℓ²) e⁻ᵘ θ_{m−1}. Automatic differentiation through
    the square root is wrong at r = 0; this is not.
    """

    nu: float = eqx.field(static=True, default=2.5)

    @takes(
        nu=number("a half-integer, 1.5, 2.5, 3.5, …", lambda x: x >= 1.5 and (x - 0.5).is_integer())
    )
    def __init__(self, nu: float = 2.5, length_scale: float | None = None):
        self.nu = nu
        super().__init__(length_scale)

    @property
    def smoothness(self):
        return self.nu

    def traits(self):
        return [f"ν={self.nu:g}"]

    def derivative(self, order, p, q, z):
        if order[0] or order[1]:
            return 0
        m = int(self.nu - 0.5)
        rate = self.nu / self.length_scale**2
        # Derivatives beyond the kernel's smoothness grow like a power of 1/r, but only ever meet
        # higher powers of z: a floor far below any distance keeps their product at its limit, zero.
        u = jnp.sqrt(2 * rate * jnp.maximum(z, jnp.finfo(z.dtype).tiny ** 0.2))
        return (
            (-rate) ** order[2]
            * jnp.exp(-u)
            * _reverse_bessel(m - order[2], u)
            / math.prod(range(1, 2 * m, 2))
        )


class Decaying(LengthScaleKernel):
    """The paper's kernel, (1 + α‖x‖² + α‖y‖²)⁻¹ exp(−r²/2ℓ²).

    With `product=True` the first factor is (1 + α‖x‖²)⁻¹(1 + α‖y‖²)⁻¹.
    """

    alpha: Any = eqx.field(metadata=SHAPE, default=0.1)
    product: bool = eqx.field(static=True, default=False)

    @takes(alpha=LEAF, product=FLAG)
    def __init__(
        self, alpha: float = 0.1, length_scale: float | None = None, product: bool = False
    ):
        super().__init__(length_scale)
        self.alpha, self.product = alpha, bool(product)

    def traits(self):
        return [f"α={float(self.alpha):.3g}", *(["product"] if self.product else [])]

    def derivative(self, order, p, q, z):
        kernel = KernelProduct(_Decay(self.alpha, self.product), Gaussian(self.length_scale))
        return kernel.derivative(order, p, q, z)


class _Decay(AbstractKernel):
    """(1 + α‖x‖² + α‖y‖²)⁻¹, or the product of (1 + α‖x‖²)⁻¹ and (1 + α‖y‖²)⁻¹."""

    alpha: np.ndarray
    product: bool = eqx.field(static=True)

    def derivative(self, order, p, q, z):
        if order[2]:
            return 0
        if self.product:
            return _power(1.0, order[0], self.alpha, p) * _power(1.0, order[1], self.alpha, q)
        return _power(1.0, order[0] + order[1], self.alpha, p + q)


def median_heuristic(x: Float[np.ndarray, "n d"], limit: int = 1000) -> float:
    """Return ℓ = √(½ median ‖x_i − x_j‖²) over distinct pairs of at most `limit` draws, equally
    spaced."""
    from scipy.spatial.distance import pdist

    rows = np.unique(np.linspace(0, len(x) - 1, min(len(x), limit)).astype(int))
    return math.sqrt(0.5 * float(np.median(pdist(x[rows], "sqeuclidean"))))


def is_zero(derivative: Numbers | int) -> bool:
    """Return whether a derivative vanishes identically, so that no work is spent on it."""
    return isinstance(derivative, int) and derivative == 0


def _power(exponent: float, order: int, rate: Any, z: Numbers) -> Numbers:
    """Return the derivative of (1 + rate·z)^−exponent, for a multiple of one half as exponent."""
    rising = math.prod(exponent + k for k in range(order))
    inverse = 1 / (1 + rate * z)
    root = jnp.sqrt(inverse) if exponent % 1 else 1.0  # a general power is five times slower
    return rising * (-rate) ** order * root * inverse ** int(exponent + order)


def _reverse_bessel(m: int, u: Numbers) -> Numbers:
    """Return θ_m(u), by θ_k = (2k − 1) θ_{k−1} + u² θ_{k−2} upwards from θ_{−1} = 1/u, θ_0 = 1, or
    downwards from them."""
    low, high = 1 / u, jnp.ones_like(u)
    for k in range(1, m + 1):
        low, high = high, (2 * k - 1) * high + u**2 * low
    for k in range(0, m, -1):
        low, high = (high - (2 * k - 1) * low) / u**2, low
    return high
