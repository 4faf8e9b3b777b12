"""Fields on periodic lattices: control variates that shift with the field.

A vector field u on the configurations φ of a lattice is equivariant if u(shifted φ) is u(φ),
shifted. For averages over the lattice nothing is lost by taking only these, and there are fewer of
them by its volume. Those here are u_x = S[φ̃_xᵃ φ̃_{x+r}ᵇ] with φ̃ = S φ, where S smears by the heat
equation. By the chain rule the score of φ̃ is S s, and S enters the divergence by its square alone:

    L u = Σ_x s̃_x φ̃_xᵃ φ̃_{x+r}ᵇ + S²(0) a φ̃_xᵃ⁻¹ φ̃_{x+r}ᵇ + S²(r) b φ̃_xᵃ φ̃_{x+r}ᵇ⁻¹,  s̃ = S s.

Each sum is a cross-correlation, and so all shifts r come at once by Fourier transforms.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..arguments import (
    NOT_NEGATIVE,
    Requirement,
    check_argument,
    read_whole_numbers,
    several,
    takes,
    where,
)
from ..hyper import LEAF, WEIGHT
from ..inputs.points import Keeps
from ..operators import Langevin, Operator
from .base import BasisFamily, refuse_space
from .network import Architecture

Shape = tuple[int, ...]
Powers = tuple[int, int]


def _read_powers(value: Any) -> tuple[Powers, ...]:
    """Return pairs (a, b) for whole numbers, which stand for (0, b), and for pairs."""
    found = []
    for entry in value if isinstance(value, Iterable) else (value,):
        pair = np.atleast_1d(read_whole_numbers(entry)).tolist()
        a, b = (0, pair[0]) if len(pair) == 1 else pair
        if min(a, b) < 0 or (len(pair) == 2 and b == 0):
            raise ValueError("no powers")
        found.append((a, b))
    if not found or len(set(found)) < len(found):
        raise ValueError("none, or twice the same")
    return tuple(found)


POWERS = Requirement(
    "distinct powers: whole numbers b for φ_{x+r}ᵇ, or pairs (a, b) with b ≥ 1 for φ_xᵃ φ_{x+r}ᵇ",
    _read_powers,
)


def _read_shape(value: Any) -> Shape:
    shape = tuple(np.atleast_1d(read_whole_numbers(value)).tolist())
    if not shape or min(shape) < 1:
        raise ValueError("no shape")
    return shape


SHAPE_OF_LATTICE = Requirement(
    "the numbers of sites along each axis, such as (16, 16)", _read_shape
)
_TIMES = several(NOT_NEGATIVE, "distinct times ≥ 0 of the heat equation", empty=False)
TIMES = where(_TIMES.words, lambda times: len(set(times)) == len(times), _TIMES.read)


def _read_shifts(shape: Shape, value: Any) -> tuple[int, ...]:
    """Return for each shift, in C order, the number of its group, from 0 on, or −1."""
    numbers = read_whole_numbers(value)
    if numbers.shape == (math.prod(shape),):  # as files hold them
        numbers = numbers.reshape(shape)
    numbers = np.broadcast_to(numbers, shape).ravel()
    names, groups = np.unique(numbers, return_inverse=True)
    found = groups.ravel() - np.sum(names < 0)
    return tuple(np.maximum(found, -1).tolist())


def _reflections(shape: Shape) -> np.ndarray:
    """Return one number for all shifts that reflections along the axes turn into each other."""
    steps = np.stack(np.unravel_index(np.arange(math.prod(shape)), shape))
    size = np.array(shape)[:, None]
    return np.ravel_multi_index(tuple(np.minimum(steps, size - steps)), shape).reshape(shape)


class LatticeField(BasisFamily):
    """Control variates L u with u a vector field on a periodic lattice that shifts with φ.

    Draws are (n, V) with V the product of `shape`, in C order. The fields are u_x = Σ_r θ_r
    φ_{x+r}ᵇ for each whole number b among the `powers`, and Σ_r θ_r φ_xᵃ φ_{x+r}ᵇ for each pair (a,
    b). `smearing` adds the same of φ smeared by the heat equation, at each of these times, 0 for φ
    itself; linear and constant fields are taken at the first alone, as others add nothing.

    `shifts` holds integers that broadcast to `shape`: shifts r with the same number share one
    coefficient, negative ones are left out. By default r and its reflections along each axis do.
    Average integrands over what is shared, and over all translations. `weight` is the prior
    variance of the coefficients. Standardisation multiplies all sites by one number.
    """

    shape: Shape = eqx.field(static=True)
    powers: tuple[Powers, ...] = eqx.field(static=True)
    smearing: tuple[float, ...] = eqx.field(static=True)
    shifts: tuple[int, ...] = eqx.field(static=True)
    operator: Operator
    weight: np.ndarray = eqx.field(metadata=WEIGHT)

    @takes(shape=SHAPE_OF_LATTICE, powers=POWERS, smearing=TIMES, weight=LEAF)
    def __init__(
        self,
        shape: Any,
        powers: Any = (1, 3),
        smearing: Any = 0.0,
        shifts: Any = None,
        weight: Any = 1.0,
    ):
        self.shape, self.powers, self.smearing, self.weight = shape, powers, smearing, weight
        self.operator = Langevin()
        if shifts is None:
            shifts = _reflections(shape)
        words = f"integers that broadcast to {shape}, one at least not negative"
        wanted = where(words, lambda found: max(found) >= 0, lambda v: _read_shifts(shape, v))
        self.shifts = check_argument("LatticeField: shifts", shifts, wanted)

    @property
    def keeps_axes(self):
        return True

    @property
    def keeps(self):
        return Keeps.SYMMETRY

    def check(self, d):
        check_sites(self.describe(), self.shape, d)

    def check_space(self, space):
        refuse_space(self, space)

    def describe(self):
        powers = [b if a == 0 else (a, b) for a, b in self.powers]
        inside = ["×".join(map(str, self.shape)), f"powers {', '.join(map(str, powers))}"]
        if self.smearing != (0.0,):
            inside.append(f"smeared by {', '.join(f'{t:.3g}' for t in self.smearing)}")
        if self.weight != 1:
            inside.append(f"weight {float(self.weight):.3g}")
        return f"LatticeField({', '.join(inside)})"

    def num_features(self, d):
        return sum(len(groups) for *_, groups in self._terms())

    def unweighted(self):
        return LatticeField(self.shape, self.powers, self.smearing, self.shifts)

    def basis(self, x):
        # site x + r for each shift r
        sites = np.indices(self.shape).reshape(len(self.shape), -1)
        moved = np.ravel_multi_index(
            tuple(sites[:, None] + sites[:, :, None]), self.shape, mode="wrap"
        )
        fields = []
        for time, (a, b), groups in self._terms():
            smeared = self._smear(x[None], time)[0]
            products = self._smear(smeared**a * (smeared**b)[moved], time)
            fields.append(self._gather(products.T, groups).T)
        return jnp.sqrt(self.weight) * jnp.concatenate(fields)

    def features(self, x, s):
        columns = []
        for time, (a, b), groups in self._terms():
            y, t = self._smear(x, time), self._smear(s, time)
            square = self._smear(jnp.eye(1, self.sites, dtype=x.dtype), 2 * time)[0]  # S²(r)
            here = t * y**a
            if a:
                here = here + square[0] * a * y ** (a - 1)
            image = self._correlate(here, y**b)
            if b:
                image = image + square * self._correlate(y**a, b * y ** (b - 1))
            columns.append(self._gather(image, groups))
        return jnp.sqrt(self.weight) * jnp.concatenate(columns, axis=1)

    @property
    def sites(self) -> int:
        """The number of sites, V."""
        return math.prod(self.shape)

    def _terms(self) -> tuple[tuple[float, Powers, tuple[int, ...]], ...]:
        """Return the time, the powers, and the groups of shifts, of fields that differ."""
        return _fields_that_differ(self.powers, self.smearing, self.shifts)

    def _gather(self, image: Float[Array, "n V"], chosen: tuple[int, ...]) -> Float[Array, "n g"]:
        """Return sums over the chosen groups of shifts, each divided by the root of its size."""
        shifts = np.asarray(self.shifts)
        count = max(self.shifts) + 1
        sizes = np.bincount(shifts[shifts >= 0], minlength=count)
        # those left out make a group of their own, the last
        sums = jax.ops.segment_sum(image.T, np.where(shifts < 0, count, shifts), count + 1)
        return (sums[:count] / np.sqrt(sizes)[:, None])[np.asarray(chosen)].T

    def _smear(self, x: Float[Array, "n V"], time: float) -> Float[Array, "n V"]:
        """Return what the heat equation makes of fields after a time."""
        if time == 0:
            return x
        waves = [2 - 2 * np.cos(2 * np.pi * np.arange(k) / k) for k in self.shape]
        damping = np.exp(-time * sum(np.meshgrid(*waves, indexing="ij", sparse=True)))
        return self._invert(self._transform(x) * damping[..., : self.shape[-1] // 2 + 1])

    def _correlate(self, a: Float[Array, "n V"], b: Float[Array, "n V"]) -> Float[Array, "n V"]:
        """Return Σ_x a_x b_{x+r} for all r."""
        return self._invert(jnp.conj(self._transform(a)) * self._transform(b))

    def _transform(self, x: Float[Array, "n V"]) -> Any:
        return _transform(x, self.shape)

    def _invert(self, waves: Any) -> Float[Array, "n V"]:
        return _invert(waves, self.shape)


@functools.lru_cache(maxsize=64)
def _fields_that_differ(
    powers: tuple[Powers, ...], smearing: tuple[float, ...], shifts: tuple[int, ...]
) -> tuple[tuple[float, Powers, tuple[int, ...]], ...]:
    """Return time, powers and groups of shifts of each kind of field.

    Smearing makes of linear fields others of these, and constants do not change. At no shift only
    the sum of the powers counts.
    """
    groups = tuple(range(max(shifts) + 1))
    alone = shifts[0] if shifts.count(shifts[0]) == 1 else -1
    found = []
    for time in smearing:
        seen: set[int] = set()
        for a, b in powers:
            if a + b <= 1 and time != smearing[0]:
                continue
            kept = groups[:1] if b == 0 else groups
            if a + b in seen:
                kept = tuple(group for group in kept if group != alone)
            seen.add(a + b)
            found.append((time, (a, b), kept))
    return tuple(found)


class LatticeMLP(Architecture):
    """A network that shifts with a periodic lattice: at every site the same `depth` hidden layers
    of `width` units see the whole lattice as from there.

    The first layer is a convolution, by Fourier transforms; the others act on each site by itself.
    So the divergence is exact and costs no more than the network once again.
    """

    shape: Shape = eqx.field(static=True, default=())

    @takes(shape=SHAPE_OF_LATTICE)
    def __init__(
        self,
        shape: Any,
        width: Any = 32,
        depth: Any = 2,
        activation: Any = jax.nn.swish,
        layers: Any = (),
    ):
        super().__init__(width, depth, activation, layers)
        self.shape = shape

    @property
    def keeps(self) -> Keeps:
        """What standardisation must leave as it is."""
        return Keeps.SYMMETRY

    def check(self, d: int) -> None:
        """Raise a ValueError if these are not d sites."""
        check_sites(self.describe(), self.shape, d)

    def sizes(self, d, outputs):
        return [
            (d, self.width),
            *[(self.width, self.width)] * (self.depth - 1),
            (self.width, outputs // d),
        ]

    def rebuild(self, layers):
        return type(self)(self.shape, self.width, self.depth, self.activation, layers)

    def hidden_layer(self, x):
        """Return the last hidden layer at each site, (V, width)."""
        return self._from(self._convolve(x))

    def __call__(self, x):
        weight, bias = self.layers[-1]
        return (self.hidden_layer(x) @ weight + bias).T.ravel()

    def divergence(self, x):
        # only through itself does a site move its own units: the first layer's weights at no shift
        first = self._convolve(x)
        own = jnp.broadcast_to(self.layers[0][0][0], first.shape)
        slopes = jax.jvp(self._from, (first,), (own,))[1]
        return jnp.sum(slopes @ self.layers[-1][0], axis=0)

    def _convolve(self, x: Float[Array, " V"]) -> Float[Array, "V width"]:
        """Return Σ_r w_r x_{x+r} and the bias, at each site, for each unit."""
        weight, bias = self.layers[0]
        filters = jnp.asarray(weight).T
        waves = jnp.conj(_transform(filters, self.shape)) * _transform(x[None], self.shape)
        return _invert(waves, self.shape).T + bias

    def _from(self, units: Float[Array, "V width"]) -> Float[Array, "V width"]:
        """Return the last hidden layer from the first, before its activation."""
        units = self.activation(units)
        for weight, bias in self.layers[1:-1]:
            units = self.activation(units @ weight + bias)
        return units


def check_sites(name: str, shape: Shape, d: int) -> None:
    """Raise a ValueError if a lattice of this shape has not d sites."""
    if math.prod(shape) != d:
        raise ValueError(
            f"{name}: a lattice of shape {shape} has {math.prod(shape)} sites, and the draws have "
            f"d = {d}. Give draws (n, {math.prod(shape)}), the sites in C order, or another shape"
        )


def _transform(x: Float[Array, "n V"], shape: Shape) -> Any:
    return jnp.fft.rfftn(x.reshape(-1, *shape), axes=range(1, len(shape) + 1))


def _invert(waves: Any, shape: Shape) -> Float[Array, "n V"]:
    fields = jnp.fft.irfftn(waves, shape, axes=range(1, len(shape) + 1))
    return fields.reshape(len(waves), math.prod(shape))
