"""Spline wavelets in up to three dimensions: control variates with local detail.

On the line these are the B-splines N of an order m on whole knots, and at each level j the wavelets
2^{j/2} ψ(2^j x − k) of Chui and Wang with the same order,

    ψ(t) = Σ_n q_n N(2t − n),   q_n = (−1)ⁿ 2^{1−m} Σ_l C(m, l) N_{2m}(n + 1 − l),   0 ≤ n ≤ 3m − 2,

with compact support and orthogonal between levels. In more dimensions they are all products. All
are polynomials between knots, and so are their derivatives. Under the operators with D the identity
a Gram is made of the Grams of each coordinate, so that the number of products does not matter.
"""

import functools
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..arguments import NOT_NEGATIVE, POSITIVE, Requirement, check_argument, takes, whole
from ..hyper import LEAF, SHAPE, WEIGHT
from ..operators import OPERATOR, Diffusion, Langevin, Operator
from .base import BasisFamily, refuse_space

_DECAY = Requirement(NOT_NEGATIVE.words, lambda value: np.asarray(NOT_NEGATIVE.read(value)))


class Wavelets(BasisFamily):
    """Control variates L u with u made of spline wavelets: kinks, jumps and other local detail.

    Under `Langevin` (the default) u is a vector field, under operators on potentials a potential.
    Knots are whole numbers in standardised coordinates, and 2^j of them a unit at `levels` j = 1,
    2, …; `order` 3 is of piecewise quadratics, whose second derivatives exist between knots.
    Functions cover −reach … reach in each coordinate and vanish a little beyond: add a polynomial
    for the tails. With K functions on the line there are K^d products, and d times as many fields.

    `weight` is the prior variance of the coefficients, times 4^{−decay j} for wavelets of level j
    (from 0 on), as in a Besov norm of smoothness `decay`; 0 makes all levels alike.
    """

    levels: int = eqx.field(static=True)
    order: int = eqx.field(static=True)
    reach: float = eqx.field(static=True)
    operator: Operator
    decay: np.ndarray = eqx.field(metadata=SHAPE)
    weight: np.ndarray = eqx.field(metadata=WEIGHT)

    # levels up to 2¹² knots a unit, more than draws can tell
    @takes(levels=whole(0, 12), reach=POSITIVE, decay=_DECAY, weight=LEAF, operator=OPERATOR)
    def __init__(
        self,
        levels: int = 5,
        order: int = 3,
        decay: Any = 2.0,
        reach: float = 4.0,
        operator: Operator | None = None,
        weight: Any = 1.0,
    ):
        self.operator = Langevin() if operator is None else operator
        under = f"Wavelets: order under {type(self.operator).__name__}"
        least = 2 if self.operator.on_fields else 3  # derivatives that exist between knots
        self.order = check_argument(
            under, order, whole(least, 6)
        )  # higher ones are nearly Gaussian
        self.levels, self.decay, self.reach, self.weight = levels, decay, reach, weight

    @property
    def keeps_axes(self):
        return True

    def check(self, d):
        if d > 3:  # where few levels already have many thousands of products
            raise ValueError(
                f"{self.describe()}: wavelets are for draws with d ≤ 3; got d = {d}. Use a Kernel"
            )

    def check_space(self, space):
        refuse_space(self, space)

    def describe(self):
        inside = [f"{self.levels} levels, order {self.order}, decay {float(self.decay):.3g}"]
        if self.reach != 4:
            inside.append(f"reach {self.reach:.3g}")
        if (operator := self.operator.describe()) != Langevin().describe():
            inside.append(operator)
        if self.weight != 1:
            inside.append(f"weight {float(self.weight):.3g}")
        return f"Wavelets({', '.join(inside)})"

    def num_features(self, d):
        on_line = sum(scale.size for scale in _scales(self.levels, self.order, self.reach))
        return (d if self.operator.on_fields else 1) * on_line**d

    def unweighted(self):
        return Wavelets(self.levels, self.order, 0.0, self.reach, self.operator)

    def basis(self, x):
        d = len(x)
        products = _products([self._on_line(x[j : j + 1]) for j in range(d)])[0]
        products = jnp.sqrt(self.weight) * products
        if not self.operator.on_fields:
            return products
        return (products[:, None, None] * jnp.eye(d, dtype=x.dtype)).reshape(-1, d)

    def features(self, x, s):
        if not self._is_plain:
            return super().features(x, s)
        values, images = self._by_coordinate(x, s)
        each = [_products([*values[:i], image, *values[i + 1 :]]) for i, image in enumerate(images)]
        if self.operator.on_fields:
            return jnp.sqrt(self.weight) * jnp.stack(each, axis=2).reshape(len(x), -1)
        return jnp.sqrt(self.weight) * sum(each)

    def gram(self, x, s, y, t):
        if not self._is_plain:
            return super().gram(x, s, y, t)
        (u, lu), (v, lv) = self._by_coordinate(x, s), self._by_coordinate(y, t)
        axes = range(x.shape[1])
        values = [u[i] @ v[i].T for i in axes]
        images = [lu[i] @ lv[i].T for i in axes]
        if self.operator.on_fields:
            pairs = [_replace(values, {i: images[i]}) for i in axes]
            return self.weight * sum(pairs)
        left, right = [lu[i] @ v[i].T for i in axes], [u[i] @ lv[i].T for i in axes]
        pairs = [
            _replace(values, {i: images[i]} if i == j else {i: left[i], j: right[j]})
            for i in axes
            for j in axes
        ]
        return self.weight * sum(pairs)

    @property
    def _is_plain(self) -> bool:
        return isinstance(self.operator, Diffusion) and self.operator.is_plain

    def _by_coordinate(self, x: Any, s: Any) -> tuple[list[Any], list[Any]]:
        """Return for each coordinate the functions on its line at the draws, (n, K), and what the
        operator makes of them there."""
        columns = range(x.shape[1])
        values = [self._on_line(x[:, i]) for i in columns]
        slopes = [self._on_line(x[:, i], 1) for i in columns]
        if self.operator.on_fields:  # u' + s u
            images = [slopes[i] + s[:, i : i + 1] * values[i] for i in columns]
        else:  # u'' + s u'
            images = [self._on_line(x[:, i], 2) + s[:, i : i + 1] * slopes[i] for i in columns]
        return values, images

    def _on_line(self, x: Float[Array, " n"], derivative: int = 0) -> Float[Array, "n K"]:
        """Return a derivative of all functions on the line, times √4^{−decay j}."""
        blocks = []
        for scale in _scales(self.levels, self.order, self.reach):
            factor = jnp.asarray(2.0, x.dtype) ** (-self.decay * scale.level)
            blocks.append(factor.astype(x.dtype) * scale.evaluate(x, derivative))
        return jnp.concatenate(blocks, axis=1)


class _Scale(NamedTuple):
    """The translates of one spline: on 1/knots, at every `stride` knots from `first` on, with
    coefficients (pieces, order) in the distance from the knot to the left, in units of knots."""

    level: int
    knots: float  # a unit
    stride: int
    first: int
    size: int
    pieces: np.ndarray

    def evaluate(self, x: Float[Array, " n"], derivative: int = 0) -> Float[Array, "n size"]:
        """Return a derivative of all translates at x."""
        pieces = np.polynomial.polynomial.polyder(self.pieces, derivative, axis=1)
        table = jnp.asarray(pieces * self.knots**derivative, x.dtype)
        # far out all are zero
        last = self.first + self.stride * self.size + len(pieces)
        place = jnp.clip(self.knots * x, self.first - 1, last)
        cell = jnp.floor(place)
        away, cell = (place - cell)[:, None], cell.astype(int)[:, None] - self.first
        # the few translates that do not vanish there
        number = cell // self.stride - np.arange(math.ceil(len(pieces) / self.stride))
        piece = jnp.minimum(cell - self.stride * number, len(pieces) - 1)
        value = sum(table[piece, power] * away**power for power in range(table.shape[1]))
        beyond = (cell - self.stride * number >= len(pieces)) | (number < 0)
        number = jnp.where(beyond, self.size, number)
        zeros = jnp.zeros((len(x), self.size), x.dtype)
        return zeros.at[jnp.arange(len(x))[:, None], number].set(value, mode="drop")


@functools.lru_cache(maxsize=64)
def _scales(levels: int, order: int, reach: float) -> tuple[_Scale, ...]:
    """Return the B-splines and the wavelets of each level that do not vanish on −reach … reach,
    each with ∫ u² = 1."""
    found = []
    spline, wavelet = b_spline(order), spline_wavelet(order)
    for level, pieces, knots, stride in [
        (0, spline, 1, 1),
        *((j, wavelet, 2 ** (j + 1), 2) for j in range(levels)),
    ]:
        edge = reach * knots
        # starts between the first whose support ends within reach, and the last that begins there
        first = math.floor((-edge - len(pieces)) / stride) * stride + stride
        count = math.ceil((edge - first) / stride)
        unit = math.sqrt(_square(pieces) / knots)
        found.append(_Scale(level, float(knots), stride, first, count, pieces / unit))
    return tuple(found)


def b_spline(order: int) -> Float[np.ndarray, "pieces order"]:
    """Return the B-spline on the knots 0 … order: on each piece its coefficients in the distance
    from the knot to the left."""
    pieces = np.ones((1, 1))
    for m in range(2, order + 1):
        # (m − 1) N_m(t) = t N_{m−1}(t) + (m − t) N_{m−1}(t − 1), at t = i + a
        raised = np.zeros((m, m))
        for i in range(m):
            for below, start, slope in ((i, i, 1), (i - 1, m - i, -1)):
                if 0 <= below < m - 1:
                    raised[i, :-1] += start * pieces[below]
                    raised[i, 1:] += slope * pieces[below]
        pieces = raised / (m - 1)
    return pieces


def spline_wavelet(order: int) -> Float[np.ndarray, "pieces order"]:
    """Return Chui and Wang's wavelet with support 0 … 2 order − 1, on pieces of length ½, with
    coefficients in the distance from the knot to the left, in units of ½."""
    spline = b_spline(order)
    at_knots = np.append(b_spline(2 * order)[:, 0], 0.0)  # N_{2m} at 0 … 2m
    pieces = np.zeros((4 * order - 2, order))
    for n in range(3 * order - 1):
        terms = (
            math.comb(order, l) * at_knots[n + 1 - l]
            for l in range(order + 1)
            if 0 <= n + 1 - l < len(at_knots)
        )
        pieces[n : n + order] += (-1) ** n * 2.0 ** (1 - order) * sum(terms) * spline
    return pieces


def _square(pieces: np.ndarray) -> float:
    """Return ∫ u² over the pieces, of length one."""
    order = pieces.shape[1]
    hilbert = 1 / (np.arange(order)[:, None] + np.arange(order) + 1)
    return float(np.einsum("ki,ij,kj->", pieces, hilbert, pieces))


def _products(factors: list[Float[Array, "n K"]]) -> Float[Array, "n p"]:
    """Return all products of one function of each coordinate."""
    found = factors[0]
    for other in factors[1:]:
        found = (found[:, :, None] * other[:, None, :]).reshape(len(found), -1)
    return found


def _replace(factors: list[Any], others: dict[int, Any]) -> Any:
    """Return the product of factors, some of them replaced."""
    return math.prod((others.get(i, factor) for i, factor in enumerate(factors)), start=1.0)
