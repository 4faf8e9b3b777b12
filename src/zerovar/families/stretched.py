"""A family in coordinates of unequal scale: what tuning makes of it is known as automatic relevance determination."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from .base import LinearFamily


class Stretched(LinearFamily):
    """`family` applied to coordinates x_i r_i, whose scores are s_i / r_i: smoother where r_i is small.

    `stretch` (d,) holds the r_i, of which only ratios matter; by default all are 1, and `tune` moves them. They belong to
    the coordinates of the draws themselves, so that standardisation treats each by itself, or with `mixing=True` to those of
    the draws after full standardisation (in which coordinate i is what is left of it after those before it).
    """

    family: LinearFamily
    stretch: np.ndarray | None
    mixing: bool = eqx.field(static=True)

    def __init__(self, family: LinearFamily, stretch: Any = None, mixing: bool = False):
        if not isinstance(family, LinearFamily):
            raise ValueError(f"Stretched: family must be linear in its parameters, such as Kernel(); got {family!r}")
        if stretch is not None:
            array = np.asarray(stretch, dtype=np.float64)
            if array.ndim != 1 or not (array > 0).all() or not np.isfinite(array).all():
                raise ValueError(f"Stretched: stretch must be one positive number a coordinate; got {stretch!r}")
            stretch = array
        self.family, self.stretch, self.mixing = family, stretch, bool(mixing)

    @property
    def keeps_axes(self):
        return not self.mixing or self.family.keeps_axes

    @property
    def sees_values(self):
        return self.family.sees_values

    def describe(self):
        stretch = "" if self.stretch is None else " by " + "/".join(f"{r:.2g}" for r in self._ratios(np))
        return f"Stretched({self.family.describe()}{stretch})"

    def check(self, d):
        if self.stretch is not None and len(self.stretch) != d:
            raise ValueError(f"Stretched: stretch must be one positive number a coordinate, {d}; got {len(self.stretch)}")
        self.family.check(d)

    def resolve(self, x, values):
        stretch = np.ones(x.shape[1]) if self.stretch is None else self.stretch
        return Stretched(self.family.resolve(x, values), stretch, self.mixing)

    def split(self):
        return tuple(None if part is None else Stretched(part, self.stretch, self.mixing) for part in self.family.split())

    def on_coefficients(self, x, s):
        ratios = self._ratios(np)
        return Stretched(self.family.on_coefficients(x * ratios, s / ratios), self.stretch, self.mixing)

    def num_features(self, d):
        return self.family.num_features(d)

    def features(self, x, s):
        ratios = self._ratios()
        return self.family.features(x * ratios, s / ratios)

    def gram(self, x, s, y, t):
        ratios = self._ratios()
        return self.family.gram(x * ratios, s / ratios, y * ratios, t / ratios)

    def _ratios(self, numpy: Any = jnp):
        return self.stretch / numpy.exp(numpy.mean(numpy.log(self.stretch)))
