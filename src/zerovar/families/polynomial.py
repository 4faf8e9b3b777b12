"""Polynomial control variates in closed form: features by a recursion over degrees, Gram at O(d) a
pair for every degree.

Monomials of degree j are scaled to x^α / √(α! j!), the scaling under which Σ_{|α|=j} is the
dot-product kernel h_j(x·y) = (x·y)^j / (j!)² (for potentials of degree 2 it is the Frobenius norm
on the symmetric matrix of ½xᵀAx). So the sum over C(d+j−1, j) monomials never appears in the Gram:
k₀ is the Stein operator applied to h_j in both arguments.
"""

import functools
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..arguments import (
    Requirement,
    check_argument,
    read_numbers,
    read_whole_numbers,
    takes,
    where,
    whole,
)
from ..hyper import WEIGHT
from ..operators import OPERATOR, Langevin, Operator, ScalarLangevin
from .base import BasisFamily, Nd

_HIGHEST = 80  # degree: the squares of factorials, by which coefficients are scaled, are doubles


def _weights(count: int) -> Requirement:
    """Return the requirement of weights of so many degrees."""
    return where(
        f"a number ≥ 0 or one a degree, {count} of them, and not all zero",
        lambda w: w.shape in ((), (count,)) and (w >= 0).all() and w.any(),
        read_numbers,
    )


class Polynomial(BasisFamily):
    """Control variates L u with u a polynomial of total degree at most `degree`.

    Under `ScalarLangevin` (the default) u is a potential, degrees 1 … degree, p = C(d + degree, d)
    − 1. Under `Langevin` it is a vector field with polynomial components, degrees 0 … degree, p = d
    · C(d + degree, d); `Polynomial(1, operator=Langevin())` already contains `Polynomial(2)`.

    `coordinates` restricts u to some of the coordinates (standardisation then treats each
    coordinate by itself). `weight` is the prior variance of the coefficients, one number or one a
    degree: what a ridge divides by. `inf` leaves the terms unpenalised (with a kernel: semi-exact
    control functionals), `0` leaves a degree out.
    """

    degree: int = eqx.field(static=True)
    coordinates: tuple[int, ...] | None = eqx.field(static=True)
    operator: Operator
    weight: np.ndarray = eqx.field(metadata=WEIGHT)
    # Which degrees are penalised and which are free is structure, not a number that a compiled
    # program may vary.
    penalised: tuple[int, ...] = eqx.field(static=True)
    free: tuple[int, ...] = eqx.field(static=True)

    @takes(
        coordinates=where(
            "distinct column numbers, integers from 0 on",
            lambda found: min(found) >= 0 and len(set(found)) == len(found),
            lambda value: tuple(np.atleast_1d(read_whole_numbers(value)).tolist()),
        ),
        operator=OPERATOR,
    )
    def __init__(
        self,
        degree: int,
        coordinates: Any = None,
        operator: Operator | None = None,
        weight: Any = 1.0,
    ):
        self.operator = ScalarLangevin() if operator is None else operator
        under = f"Polynomial: degree under {type(self.operator).__name__}"
        self.degree = check_argument(under, degree, whole(self.lowest, _HIGHEST))
        self.coordinates = coordinates
        degrees = range(self.lowest, self.degree + 1)
        weights = check_argument("Polynomial: weight", weight, _weights(len(degrees)))
        self.weight = weights = np.broadcast_to(weights, len(degrees)).copy()
        self.penalised = tuple(k for k, w in zip(degrees, weights, strict=True) if 0 < w < math.inf)
        self.free = tuple(k for k, w in zip(degrees, weights, strict=True) if w == math.inf)

    @property
    def lowest(self) -> int:
        """The lowest degree that the operator does not take to zero."""
        return 0 if isinstance(self.operator, Langevin) else 1

    @property
    def keeps_axes(self):
        return self.coordinates is not None

    def describe(self):
        inside = [str(self.degree)]
        if self.coordinates is not None:
            inside.append(f"coordinates={list(self.coordinates)}")
        if isinstance(self.operator, Langevin):
            inside.append("Langevin")
        if self.free:
            inside.append(
                "unpenalised" if not self.penalised else f"unpenalised in degree {list(self.free)}"
            )
        if self.penalised and np.any(self.weight != 1):
            inside.append("weight " + "/".join(f"{w:.3g}" for w in self.weight))
        return f"Polynomial({', '.join(inside)})"

    def num_features(self, d):
        d = len(self.coordinates) if self.coordinates is not None else d
        per_monomial = d if isinstance(self.operator, Langevin) else 1
        return per_monomial * sum(math.comb(d + k - 1, k) for k in self._present)

    def check(self, d):
        if self.coordinates is not None and max(self.coordinates) >= d:
            raise ValueError(
                f"{self.describe()}: coordinates must lie in 0 … {d - 1} for draws with d = {d}; "
                f"got {max(self.coordinates)}"
            )

    def unweighted(self):
        unit = np.where(np.isinf(self.weight), np.inf, self.weight > 0)
        return Polynomial(self.degree, self.coordinates, self.operator, unit)

    def split(self):
        if not self.free or not self.penalised:
            return (None, self) if self.free else (self, None)
        finite = np.isfinite(self.weight)
        rebuild = functools.partial(Polynomial, self.degree, self.coordinates, self.operator)
        return rebuild(np.where(finite, self.weight, 0.0)), rebuild(
            np.where(finite, 0.0, self.weight)
        )

    def basis(self, x):
        d = len(x)
        inner, _ = self._restrict(x[None], x[None])
        degrees = _monomials(inner, inner, self.degree)
        monomials = jnp.concatenate(
            [scale * degrees[k][0][:, 0] for k, scale in self._scales(inner.shape[1])]
        )
        if isinstance(self.operator, ScalarLangevin):
            return monomials
        directions = (
            jnp.eye(d) if self.coordinates is None else jnp.eye(d)[np.asarray(self.coordinates)]
        )
        return (monomials[:, None, None] * directions).reshape(-1, d)

    def features(self, x, s):
        x, s = self._restrict(x, s)
        degrees = list(_monomials(x, s, self.degree))
        if isinstance(self.operator, ScalarLangevin):
            blocks = [scale[:, None] * degrees[k][1] for k, scale in self._scales(x.shape[1])]
        else:  # L(P e_i) = ∂_i P + P s_i
            monomials = [p for p, _ in degrees]
            gradients = _gradients(x, monomials)
            blocks = [
                (scale[:, None, None] * (gradients[k] + monomials[k][:, None] * s.T[None])).reshape(
                    -1, len(x)
                )
                for k, scale in self._scales(x.shape[1])
            ]
        return jnp.concatenate(blocks).T

    @property
    def _quadratic(self) -> bool:
        """Whether it is a quadratic potential, whose control variates are sᵀAx + tr A + b·s."""
        return isinstance(self.operator, ScalarLangevin) and self.degree == 2 and 2 in self._present

    def work(self, d):
        d = len(self.coordinates) if self.coordinates is not None else d
        return d * (d + 1) if self._quadratic else self.num_features(d)

    def apply(self, x, s, theta):
        """Return features @ theta, for a quadratic potential by matrix products alone: O(n d²) and
        no features."""
        if not self._quadratic:
            return super().apply(x, s, theta)
        x, s = self._restrict(x, s)
        d, q = x.shape[1], theta.shape[1]
        scaled = jnp.concatenate([scale for _, scale in self._scales(d)])[:, None] * theta
        linear = scaled[:d] if len(scaled) > d * (d + 1) // 2 else jnp.zeros((d, q), theta.dtype)
        first, second = _table(d, 2)[2].parent, _table(d, 2)[2].variable
        upper = jnp.zeros((d, d, q), theta.dtype).at[first, second].set(scaled[-len(first) :])
        # L(x_i x_j) = x_i s_j + x_j s_i, and 2 x_i s_i + 2 on the diagonal
        matrix = upper + jnp.swapaxes(upper, 0, 1)
        image = (x @ matrix.reshape(d, d * q)).reshape(len(x), d, q)
        return jnp.einsum("niq,ni->nq", image, s) + jnp.trace(matrix) + s @ linear

    def gram(self, x, s, y, t):
        (x, s), (y, t) = self._restrict(x, s), self._restrict(y, t)
        d = x.shape[1]
        xy, st = x @ y.T, s @ t.T
        xs, yt = jnp.sum(x * s, axis=1)[:, None], jnp.sum(y * t, axis=1)[None, :]

        def h(order: int) -> Any:  # the derivative of Σ_j weight_j (x·y)^j / (j!)²
            terms = [
                self._prior(k)
                * xy ** (k - order)
                / float(math.factorial(k) * math.factorial(k - order))
                for k in self._present
                if k >= order
            ]
            return sum(terms[1:], terms[0]) if terms else 0.0

        if isinstance(self.operator, Langevin):
            return st * h(0) + (d + xs + yt) * h(1) + xy * h(2)
        sy, xt = s @ y.T, x @ t.T
        total = st * h(1) + (xt * sy + 2 * (d + xs + yt)) * h(2)
        if self.degree >= 3:
            xx, yy = jnp.sum(x * x, axis=1)[:, None], jnp.sum(y * y, axis=1)[None, :]
            total = total + (4 * xy + yy * xt + xx * sy) * h(3) + xx * yy * h(4)
        return total

    def _restrict(self, x, s):
        if self.coordinates is None:
            return x, s
        chosen = np.asarray(self.coordinates)
        return x[:, chosen], s[:, chosen]

    def _scales(self, d: int) -> list[tuple[int, Float[Array, " p"]]]:
        """Return for each degree present the factors of its monomials, √(weight / (α! j!))."""
        tables = _table(d, self.degree)
        return [(k, jnp.sqrt(self._prior(k)) * tables[k].scale) for k in self._present]

    @property
    def _present(self) -> list[int]:
        """The degrees whose weight is not zero, in order."""
        return sorted((*self.penalised, *self.free))

    def _prior(self, k: int) -> Any:
        """Return the weight of a degree in features and Gram, 1 where it is free."""
        return 1.0 if k in self.free else self.weight[k - self.lowest]


class _Degree(NamedTuple):
    """Monomials of one degree, each written as P = x_v · Q with v its last variable and Q = parent
    of one degree less."""

    variable: np.ndarray  # (p,) v
    parent: np.ndarray  # (p,) index of Q among the monomials of degree j − 1
    power: np.ndarray  # (p,) the power of x_v in Q: ∂_v Q = power · (Q / x_v)
    # (p,) index of Q / x_v among those of degree j − 2 (0 where power is 0)
    grandparent: np.ndarray
    scale: np.ndarray  # (p,) 1 / √(α! j!)


@functools.lru_cache(maxsize=64)
def _table(d: int, degree: int) -> tuple[_Degree, ...]:
    """Return index tables of all monomials up to `degree` in d variables, made degree by degree."""
    zero = np.zeros(1, dtype=np.int32)
    tables = [_Degree(zero, zero, zero, zero, np.ones(1))]
    last, power = zero, zero  # the last variable of each monomial and its power
    for j in range(1, degree + 1):
        # children of Q are x_v Q for v ≥ last(Q): every monomial arises once, with sorted variables
        counts = d - last
        parent = np.repeat(np.arange(len(last), dtype=np.int32), counts)
        starts = np.cumsum(counts) - counts
        variable = (np.arange(counts.sum()) - starts[parent] + last[parent]).astype(np.int32)
        same = variable == last[parent] if j > 1 else np.zeros(len(parent), dtype=bool)
        before = np.where(same, power[parent], 0).astype(np.int32)
        grandparent = np.where(same, tables[-1].parent[parent], 0).astype(np.int32)
        # α! j! of P is (α_v of P) · j times that of Q
        scale = tables[-1].scale[parent] / np.sqrt((before + 1.0) * j)
        tables.append(_Degree(variable, parent, before, grandparent, scale))
        last, power = variable, before + 1
    return tuple(tables)


def _monomials(x: Float[Array, "n d"], s: Float[Array, "n d"], degree: int):
    """Return for each degree 0 … degree monomials P and L P = ΔP + ∇P·s, both (p, n).

    With P = x_v Q:  L P = x_v L Q + s_v Q + 2 ∂_v Q. Rows are monomials, so that every step is a
    gather of whole rows.
    """
    xt, st = x.T, s.T
    tables = _table(x.shape[1], degree)
    values = [(jnp.ones_like(xt[:1]), jnp.zeros_like(xt[:1]))]
    for j in range(1, degree + 1):
        table = tables[j]
        p, lp = values[-1]
        q, lq, xv = p[table.parent], lp[table.parent], xt[table.variable]
        image = xv * lq + st[table.variable] * q
        if j >= 2:
            image = image + (2.0 * table.power)[:, None] * values[-2][0][table.grandparent]
        values.append((xv * q, image))
    return values


def _gradients(x: Nd, monomials: list[Float[Array, "p n"]]) -> list[Float[Array, "p d n"]]:
    """Return ∇P of all monomials P, for each degree. With P = x_v Q: ∂_i P = x_v ∂_i Q + δ_iv Q."""
    n, d = x.shape
    gradients = [jnp.zeros((1, d, n), x.dtype)]
    for table, below in zip(_table(d, len(monomials) - 1)[1:], monomials[:-1], strict=True):
        units = jnp.eye(d, dtype=x.dtype)[table.variable][:, :, None]
        through = x.T[table.variable][:, None] * gradients[-1][table.parent]
        gradients.append(through + units * below[table.parent][:, None])
    return gradients
