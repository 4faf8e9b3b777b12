"""Stein kernels k₀ in closed form, for any base kernel of `zerovar.kernels`.

Write k(p, q, z) with p = ‖x‖², q = ‖y‖², z = ‖x − y‖², D = x − y. Then ∇ₓk = 2x k_p + 2D k_z and
∇ᵧk = 2y k_q − 2D k_z, and 2x·D = p + z − q, −2y·D = q + z − p are again functions of p, q, z. What
remains are inner products with the scores, so a Gram needs four matrix products (x·y, s·t, s·y,
x·t) and elementwise arithmetic, whatever the base kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..arguments import Requirement, instance, takes, whole
from ..hyper import LEAF, WEIGHT
from ..kernels import AbstractKernel, Gaussian, is_zero, median_heuristic
from ..operators import OPERATOR, Barker, Diffusion, Langevin, Operator, ScalarLangevin
from .base import LinearFamily, Md, Nd
from .differences import flip_gram, kernel_of_products, step_gram


class Kernel(LinearFamily):
    """Control variates in the reproducing-kernel space of a Stein kernel k₀ made from `base`.

    The operator is applied to both arguments: `Langevin()` to those of base · I (control
    functionals of Oates et al., the paper's k₀), `ScalarLangevin()` to those of base, which needs a
    base with second derivatives in each. `order` 1 or 2 names these two in short; other operators
    are given as `operator`. `weight` multiplies k₀: the part's prior variance in a sum. A base
    without length-scale gets the median heuristic.
    """

    base: AbstractKernel
    weight: np.ndarray = eqx.field(metadata=WEIGHT)
    operator: Operator

    @takes(
        base=instance(AbstractKernel, "a kernel such as kernels.Gaussian(1.0)"),
        order=Requirement("1 (Langevin) or 2 (scalar Langevin)", whole(1, 2).read),
        weight=LEAF,
        operator=OPERATOR,
    )
    def __init__(
        self,
        base: AbstractKernel | None = None,
        order: int | None = None,
        weight: Any = 1.0,
        operator: Operator | None = None,
    ):
        if operator is None:
            operator = ScalarLangevin() if order == 2 else Langevin()
        self.base = base = Gaussian() if base is None else base
        self.weight, self.operator = weight, operator
        if order not in (None, self.order):
            raise ValueError(
                f"Kernel: {operator.describe()} is of order {self.order}, not {order}; leave order "
                "out"
            )
        if isinstance(operator, Diffusion) and base.smoothness <= self.order:
            raise ValueError(
                f"Kernel: order {self.order} needs a base kernel with more than {self.order} "
                "derivatives in each argument; "
                f"this one has fewer than {base.smoothness}. Use a larger nu, or order=1"
            )

    @property
    def order(self) -> int:
        """1 where the operator is on vector fields, 2 where it is on potentials."""
        return 1 if self.operator.on_fields else 2

    def resolve(self, x, values):
        if not self.base.needs_length_scale:
            return self
        base = self.base.resolve(median_heuristic(x))
        return Kernel(base, None, self.weight, self.operator)

    def describe(self):
        plain = {Langevin().describe(): "", ScalarLangevin().describe(): ", order 2"}
        order = plain.get(name := self.operator.describe(), f", {name}")
        weight = "" if self.weight == 1 else f", weight {float(self.weight):.3g}"
        return f"Kernel({self.base.describe()}{order}{weight})"

    def num_features(self, d):
        return None

    def features(self, x, s):
        raise TypeError(
            "A kernel family has no finite features; use its gram, or Translates at some points"
        )

    @property
    def length_scale_power(self):
        return 2.0 * self.order

    def unweighted(self):
        return Kernel(self.base, operator=self.operator)

    def gram(self, x, s, y, t):
        operator = self.operator
        if isinstance(operator, Diffusion) and operator.is_plain:
            stein = first_order if self.order == 1 else second_order
            return self.weight * stein(self.base, InnerProducts.of(x, s, y, t))
        if isinstance(operator, Barker):
            if operator.flips:
                value = kernel_of_products(self.base, x.shape[1])
                return self.weight * flip_gram(value, x, s, y, t)
            return self.weight * step_gram(operator, self.base, x, s, y, t)
        known = [jax.vmap(operator.prepare)(*points) for points in ((x, s), (y, t))]
        if isinstance(operator, Langevin):
            return self.weight * under_metric(self.base, x, y, *known)
        return self.weight * self._gram_by_differentiation(x, y, *known)

    def _gram_by_differentiation(self, x: Nd, y: Md, at_x: Any, at_y: Any) -> Float[Array, "n m"]:
        """Return the operator on both arguments of base, or of base · I under one on fields, by
        automatic differentiation."""
        operator, unit = self.operator, jnp.eye(x.shape[1], dtype=x.dtype)

        def value(a: Any, b: Any) -> Any:
            k = self.base(a, b)
            return k * unit if operator.on_fields else k

        def pair(a: Any, at_a: Any, b: Any, at_b: Any) -> Any:
            return operator.apply(lambda u: operator.apply(lambda v: value(u, v), b, at_b), a, at_a)

        row = jax.vmap(pair, (None, None, 0, 0))
        return jax.vmap(row, (0, 0, None, None))(x, at_x, y, at_y)


class InnerProducts(NamedTuple):
    """The inner products between two sets of points with scores, as (n, m) or broadcastable
    arrays."""

    d: int
    p: Float[Array, "n 1"]  # ‖x‖²
    q: Float[Array, "1 m"]  # ‖y‖²
    z: Float[Array, "n m"]  # ‖x − y‖²
    xy: Float[Array, "n m"]
    st: Float[Array, "n m"]
    sx: Float[Array, "n 1"]
    ty: Float[Array, "1 m"]
    sy: Float[Array, "n m"]
    tx: Float[Array, "n m"]

    @staticmethod
    def of(x: Nd, s: Nd, y: Md, t: Md) -> InnerProducts:
        """Compute them, four by matrix products."""
        p, q = jnp.sum(x * x, axis=1)[:, None], jnp.sum(y * y, axis=1)[None, :]
        xy = x @ y.T
        z = p + q - 2 * xy
        # A distance that is nothing but the rounding of p + q − 2xy is zero: exact on the diagonal,
        # where it matters
        z = jnp.where(z < 50 * jnp.finfo(z.dtype).eps * (p + q), 0.0, z)
        sx, ty = jnp.sum(s * x, axis=1)[:, None], jnp.sum(t * y, axis=1)[None, :]
        return InnerProducts(x.shape[1], p, q, z, xy, s @ t.T, sx, ty, s @ y.T, x @ t.T)


def first_order(base: AbstractKernel, m: InnerProducts) -> Float[Array, "n m"]:
    """Return ∇ₓ·∇ᵧk + s·∇ᵧk + t·∇ₓk + s·t k."""
    k = _derivatives(base, m)
    sd, td = m.sx - m.sy, m.tx - m.ty  # s·D, t·D
    return _total(
        (m.st, k(0, 0, 0)),
        (2 * (td - sd) - 2 * m.d, k(0, 0, 1)),
        (-4 * m.z, k(0, 0, 2)),
        (2 * m.tx, k(1, 0, 0)),
        (2 * m.sy, k(0, 1, 0)),
        (4 * m.xy, k(1, 1, 0)),
        (-2 * (m.p + m.z - m.q), k(1, 0, 1)),
        (-2 * (m.q + m.z - m.p), k(0, 1, 1)),
    )


def under_metric(
    base: AbstractKernel, x: Nd, y: Md, at_x: tuple[Any, Any], at_y: tuple[Any, Any]
) -> Float[Array, "n m"]:
    """Return the Langevin operator on both arguments of base · I, from D and drift b at each point:
    tr(D ∇ₓ∇ᵧᵀk E) + c·D∇ₓk + b·E∇ᵧk + b·c k, with E and c those at y.

    Products D y and E x of all pairs are an n × m × d array, of one tile at a time.
    """
    d = x.shape[1]
    (D, b), (E, c) = ((_as_matrices(D, d), b) for D, b in (at_x, at_y))
    p, q = jnp.sum(x * x, axis=1)[:, None], jnp.sum(y * y, axis=1)[None, :]
    z = jnp.sum((x[:, None] - y) ** 2, axis=2)
    k = lambda *order: base.derivative(order, p, q, z)  # noqa: E731
    dx = jnp.einsum("nij,nj->ni", D, x)[:, None]
    ey = jnp.einsum("mij,mj->mi", E, y)[None]
    dz = dx - jnp.einsum("nij,mj->nmi", D, y)  # D (x − y), and E (x − y)
    ez = jnp.einsum("mij,nj->nmi", E, x) - ey
    dot = lambda u, v: jnp.sum(u * v, axis=2)  # noqa: E731
    b, c = b[:, None], c[None]
    return _total(
        (dot(b, c), k(0, 0, 0)),
        (2 * dot(c, dx), k(1, 0, 0)),
        (2 * dot(b, ey), k(0, 1, 0)),
        (2 * dot(c, dz) - 2 * dot(b, ez) - 2 * jnp.einsum("nij,mji->nm", D, E), k(0, 0, 1)),
        (4 * dot(dx, ey), k(1, 1, 0)),
        (-4 * dot(dx, ez), k(1, 0, 1)),
        (4 * dot(dz, ey), k(0, 1, 1)),
        (-4 * dot(dz, ez), k(0, 0, 2)),
    )


def _as_matrices(D: Any, d: int) -> Float[Array, "n d d"]:
    """Return D at each point as a matrix."""
    if D.ndim == 3:
        return D
    return jnp.eye(d, dtype=D.dtype) * (D[:, None, None] if D.ndim == 1 else D[:, None, :])


def second_order(base: AbstractKernel, m: InnerProducts) -> Float[Array, "n m"]:
    """Return LₓLᵧk with L = Δ + score·∇.

    Lₓk = a + (s·x) 2k_p + (s·D) 2k_z with a = Δₓk; then Lᵧ of each term by the product rule, where
    y enters s·D too.
    """
    k = _derivatives(base, m)
    sd, td = m.sx - m.sy, m.tx - m.ty

    # ∂_q^j ∂_z^l of a = 2d(k_p + k_z) + 4p k_pp + 4z k_zz + 4(p + z − q) k_pz
    def laplacian(j: int, l: int) -> Any:
        return _total(
            (2 * m.d + 4 * l, k(1, j, l)),
            (2 * m.d + 4 * l, k(0, j, l + 1)),
            (4 * m.p, k(2, j, l)),
            (4 * m.z, k(0, j, l + 2)),
            (4 * (m.p + m.z - m.q), k(1, j, l + 1)),
            (-4 * j, k(1, j - 1, l + 1)) if j else (0, 0),
        )

    # Lᵧ of a function of q and z, given its derivatives
    def apply(h: Callable[[int, int], Any]) -> Any:
        return _total(
            (2 * m.d + 2 * m.ty, h(1, 0)),
            (2 * m.d - 2 * td, h(0, 1)),
            (4 * m.q, h(2, 0)),
            (4 * m.z, h(0, 2)),
            (4 * (m.q + m.z - m.p), h(1, 1)),
        )

    return _total(
        (1.0, apply(laplacian)),
        (2 * m.sx, apply(lambda j, l: k(1, j, l))),
        (2 * sd, apply(lambda j, l: k(0, j, l + 1))),
        (8 * sd, k(0, 0, 2)),
        (-2 * m.st, k(0, 0, 1)),
        (-8 * m.sy, k(0, 1, 1)),
    )


def _derivatives(base: AbstractKernel, m: InnerProducts) -> Callable[[int, int, int], Any]:
    return lambda i, j, l: base.derivative((i, j, l), m.p, m.q, m.z)


def _total(*terms: tuple[Any, Any]) -> Any:
    """Return Σ coefficient · derivative, without those that vanish identically."""
    present = [a * b for a, b in terms if not is_zero(b)]
    return sum(present[1:], present[0]) if present else 0
