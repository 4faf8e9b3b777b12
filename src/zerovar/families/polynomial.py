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
import jax
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
from ..operators import OPERATOR, Barker, Diffusion, Operator, ScalarLangevin
from .base import BasisFamily, Nd
from .differences import flip_gram, monomial_pulls

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

    Under `ScalarLangevin` (the default), and other operators on potentials, u is a potential,
    degrees 1 … degree, p = C(d + degree, d) − 1. Under `Langevin`, and others on fields, it is a
    vector field with polynomial components, degrees 0 … degree, p = d · C(d + degree, d);
    `Polynomial(1, operator=Langevin())` already contains `Polynomial(2)`.

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
        return 0 if self.operator.on_fields else 1

    @property
    def keeps_axes(self):
        return self.coordinates is not None

    def describe(self):
        inside = [str(self.degree)]
        if self.coordinates is not None:
            inside.append(f"coordinates={list(self.coordinates)}")
        if (operator := self.operator.describe()) != ScalarLangevin().describe():
            inside.append(operator)
        if self.free:
            inside.append(
                "unpenalised" if not self.penalised else f"unpenalised in degree {list(self.free)}"
            )
        if self.penalised and np.any(self.weight != 1):
            inside.append("weight " + "/".join(f"{w:.3g}" for w in self.weight))
        return f"Polynomial({', '.join(inside)})"

    def num_features(self, d):
        d = len(self.coordinates) if self.coordinates is not None else d
        per_monomial = d if self.operator.on_fields else 1
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
        inner = x[None] if self.coordinates is None else x[None, np.asarray(self.coordinates)]
        degrees = _monomials(inner, self.degree)
        monomials = jnp.concatenate(
            [scale * degrees[k][:, 0] for k, scale in self._scales(inner.shape[1])]
        )
        if not self.operator.on_fields:
            return monomials
        directions = (
            jnp.eye(d) if self.coordinates is None else jnp.eye(d)[np.asarray(self.coordinates)]
        )
        return (monomials[:, None, None] * directions).reshape(-1, d)

    def features(self, x, s):
        if isinstance(self.operator, Barker) and self.coordinates is None:
            images = _images_by_steps(self.operator, self.degree, x, s)
            return jnp.concatenate(
                [scale[:, None] * images[k] for k, scale in self._scales(x.shape[1])]
            ).T
        if not isinstance(self.operator, Diffusion):
            return super().features(x, s)
        D, b = jax.vmap(self.operator.prepare)(x, s)
        x, b, D = self._restrict(x, b, D)
        monomials = _monomials(x, self.degree)
        # L P = tr(D H) + b·∇P of a potential, and L(P e_i) = (D∇P)_i + P b_i of a field
        slopes = (
            None if self._is_plain and not self.operator.on_fields else _slopes(monomials, D, x)
        )
        if not self.operator.on_fields:
            images = _images(monomials, slopes, x, b)
            blocks = [scale[:, None] * images[k] for k, scale in self._scales(x.shape[1])]
        else:
            assert slopes is not None
            blocks = [
                (scale[:, None, None] * (slopes[k] + monomials[k][:, None] * b.T)).reshape(
                    -1, len(x)
                )
                for k, scale in self._scales(x.shape[1])
            ]
        return jnp.concatenate(blocks).T

    @property
    def _is_plain(self) -> bool:
        """Whether its operator is one of Langevin's with D the identity."""
        return isinstance(self.operator, Diffusion) and self.operator.is_plain

    @property
    def _flips(self) -> bool:
        """Whether its operator is Barker's on all of some coordinates of ±1."""
        operator = self.operator
        return isinstance(operator, Barker) and operator.flips and self.coordinates is None

    @property
    def _quadratic(self) -> bool:
        """Whether it is a quadratic potential, whose control variates are sᵀAx + tr A + b·s."""
        potential = self._is_plain and not self.operator.on_fields
        return potential and self.degree == 2 and 2 in self._present

    def work(self, d):
        d = len(self.coordinates) if self.coordinates is not None else d
        return d * (d + 1) if self._quadratic else self.num_features(d)

    def apply(self, x, s, theta):
        """Return features @ theta, for a quadratic potential by matrix products alone: O(n d²) and
        no features."""
        if not self._quadratic:
            return super().apply(x, s, theta)
        x, s, _ = self._restrict(x, s, None)
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
        if self._flips:
            return flip_gram(lambda xy: self._by_products(xy, 0), x, s, y, t)
        if not self._is_plain:
            return super().gram(x, s, y, t)
        (x, s, _), (y, t, _) = self._restrict(x, s, None), self._restrict(y, t, None)
        d = x.shape[1]
        xy, st = x @ y.T, s @ t.T
        xs, yt = jnp.sum(x * s, axis=1)[:, None], jnp.sum(y * t, axis=1)[None, :]
        h = functools.partial(self._by_products, xy)

        if self.operator.on_fields:
            return st * h(0) + (d + xs + yt) * h(1) + xy * h(2)
        sy, xt = s @ y.T, x @ t.T
        total = st * h(1) + (xt * sy + 2 * (d + xs + yt)) * h(2)
        if self.degree >= 3:
            xx, yy = jnp.sum(x * x, axis=1)[:, None], jnp.sum(y * y, axis=1)[None, :]
            total = total + (4 * xy + yy * xt + xx * sy) * h(3) + xx * yy * h(4)
        return total

    def _by_products(self, xy: Any, order: int) -> Any:
        """Return the derivative of Σ_j weight_j (x·y)^j / (j!)² in x·y."""
        terms = [
            self._prior(k)
            * xy ** (k - order)
            / float(math.factorial(k) * math.factorial(k - order))
            for k in self._present
            if k >= order
        ]
        return sum(terms[1:], terms[0]) if terms else 0.0

    def _restrict(self, x, b, D):
        """Return points, drifts and D (n, …) of the coordinates that u depends on."""
        if self.coordinates is None:
            return x, b, D
        chosen = np.asarray(self.coordinates)
        if D is not None and D.ndim > 1:
            D = D[:, chosen] if D.ndim == 2 else D[:, chosen[:, None], chosen]
        return x[:, chosen], b[:, chosen], D

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
    rest: np.ndarray  # (p,) index of Q without x_v, among the monomials of all degrees in order
    # (p,) index of Q / x_v among those of degree j − 2 (0 where power is 0)
    grandparent: np.ndarray
    scale: np.ndarray  # (p,) 1 / √(α! j!)


@functools.lru_cache(maxsize=64)
def _table(d: int, degree: int) -> tuple[_Degree, ...]:
    """Return index tables of all monomials up to `degree` in d variables, made degree by degree."""
    zero = np.zeros(1, dtype=np.int32)
    tables = [_Degree(zero, zero, zero, zero, zero, np.ones(1))]
    last, power = zero, zero  # the last variable of each monomial and its power
    start = 0  # of the monomials of the degree before, among all
    for j in range(1, degree + 1):
        # children of Q are x_v Q for v ≥ last(Q): every monomial arises once, with sorted variables
        counts = d - last
        parent = np.repeat(np.arange(len(last), dtype=np.int32), counts)
        starts = np.cumsum(counts) - counts
        variable = (np.arange(counts.sum()) - starts[parent] + last[parent]).astype(np.int32)
        same = variable == last[parent] if j > 1 else np.zeros(len(parent), dtype=bool)
        before = np.where(same, power[parent], 0).astype(np.int32)
        grandparent = np.where(same, tables[-1].parent[parent], 0).astype(np.int32)
        rest = np.where(same, tables[-1].rest[parent], start + parent).astype(np.int32)
        start += len(last)
        # α! j! of P is (α_v of P) · j times that of Q
        scale = tables[-1].scale[parent] / np.sqrt((before + 1.0) * j)
        tables.append(_Degree(variable, parent, before, rest, grandparent, scale))
        last, power = variable, before + 1
    return tuple(tables)


def _monomials(x: Nd, degree: int) -> list[Float[Array, "p n"]]:
    """Return the monomials of each degree 0 … degree, P = x_v Q. Rows are monomials, so that every
    step is a gather of whole rows."""
    values = [jnp.ones_like(x.T[:1])]
    for table in _table(x.shape[1], degree)[1:]:
        values.append(x.T[table.variable] * values[-1][table.parent])
    return values


def _slopes(monomials: list[Float[Array, "p n"]], D: Any, x: Nd) -> list[Float[Array, "p d n"]]:
    """Return D∇P of all monomials P, for each degree, D (n, …) or None for the identity. With P =
    x_v Q: D∇P = x_v D∇Q + D e_v Q."""
    n, d = x.shape
    columns = _columns(D, d, x.dtype)
    slopes = [jnp.zeros((1, d, n), x.dtype)]
    for table, below in zip(_table(d, len(monomials) - 1)[1:], monomials[:-1], strict=True):
        through = x.T[table.variable][:, None] * slopes[-1][table.parent]
        slopes.append(through + columns[table.variable] * below[table.parent][:, None])
    return slopes


def _columns(D: Any, d: int, dtype: Any) -> Float[Array, "d d n"]:
    """Return D e_v for each coordinate v, at every point; one point where that suffices."""
    unit = jnp.eye(d, dtype=dtype)[:, :, None]
    if D is None:
        return unit
    return jnp.moveaxis(D, 0, 2) if D.ndim == 3 else unit * D.T


def _images(
    monomials: list[Float[Array, "p n"]], slopes: Any, x: Nd, b: Nd
) -> list[Float[Array, "p n"]]:
    """Return L P = tr(D H) + b·∇P of all monomials P, for each degree. With P = x_v Q: L P = x_v L
    Q + b_v Q + 2 (D∇Q)_v. Without `slopes` D is the identity, and ∂_v Q a multiple of the monomial
    before Q."""
    xt, bt, tables = x.T, b.T, _table(x.shape[1], len(monomials) - 1)
    images = [jnp.zeros_like(monomials[0])]
    for j, table in enumerate(tables[1:], 1):
        image = xt[table.variable] * images[-1][table.parent]
        image = image + bt[table.variable] * monomials[j - 1][table.parent]
        if j >= 2 and slopes is None:
            before = monomials[j - 2][table.grandparent]
            image = image + (2.0 * table.power)[:, None] * before
        elif j >= 2:
            image = image + 2.0 * slopes[j - 1][table.parent, table.variable]
        images.append(image)
    return images


def _images_by_steps(operator: Barker, degree: int, x: Nd, w: Any) -> list[Float[Array, "p n"]]:
    """Return L P of all monomials P under Barker's operator, for each degree. With P = x_v Q and
    Q = x_v^m R: L P = x_v L Q + (Σ w δ (x_v + δ)^m) R."""
    monomials, tables = _monomials(x, degree), _table(x.shape[1], degree)
    everything = jnp.concatenate(monomials)
    pulls = jnp.stack([pull.T for pull in monomial_pulls(operator, x, w, degree - 1)])
    images = [jnp.zeros_like(monomials[0])]
    for table in tables[1:]:
        through = x.T[table.variable] * images[-1][table.parent]
        images.append(through + pulls[table.power, table.variable] * everything[table.rest])
    return images
