"""A family in coordinates of unequal scale: what tuning makes of it is known as automatic relevance
determination."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ..arguments import FLAG, read_numbers, takes, where
from ..hyper import SHAPE
from .base import LINEAR, LinearFamily, Wrapper


class Anisotropic(Wrapper):
    """`family` applied to coordinates x_i r_i, whose scores are s_i / r_i: smoother where r_i is
    small.

    `scaling` (d,) holds the r_i, of which only ratios matter; by default all are 1, and `tune`
    moves them. They belong to the coordinates of the draws themselves, so that standardisation
    treats each by itself, or with `mixing=True` to those of the draws after full standardisation
    (in which coordinate i is what is left of it after those before it).
    """

    family: LinearFamily
    scaling: np.ndarray | None = eqx.field(metadata=SHAPE)
    mixing: bool = eqx.field(static=True)

    @takes(
        family=LINEAR,
        scaling=where(
            "one positive number a coordinate",
            lambda r: r.ndim == 1 and np.isfinite(r).all() and (r > 0).all(),
            read_numbers,
        ),
        mixing=FLAG,
    )
    def __init__(self, family: LinearFamily, scaling: Any = None, mixing: bool = False):
        self.family, self.scaling, self.mixing = family, scaling, bool(mixing)

    @property
    def keeps_axes(self):
        return not self.mixing or self.family.keeps_axes

    @property
    def sees_values(self):
        return self.family.sees_values

    def describe(self):
        scaling = (
            "" if self.scaling is None else " by " + "/".join(f"{r:.2g}" for r in self._ratios(np))
        )
        return f"Anisotropic({self.family.describe()}{scaling})"

    def check(self, d):
        if self.scaling is not None and len(self.scaling) != d:
            raise ValueError(
                f"Anisotropic: scaling must be one positive number a coordinate, {d}; got "
                f"{len(self.scaling)}"
            )
        self.family.check(d)

    def resolve(self, x, values):
        scaling = np.ones(x.shape[1]) if self.scaling is None else self.scaling
        return Anisotropic(self.family.resolve(x, values), scaling, self.mixing)

    def wrap(self, family):
        return Anisotropic(family, self.scaling, self.mixing)

    def num_features(self, d):
        return self.family.num_features(d)

    def features(self, x, s):
        ratios = self._ratios()
        return self.family.features(x * ratios, s / ratios)

    def gram(self, x, s, y, t):
        ratios = self._ratios()
        return self.family.gram(x * ratios, s / ratios, y * ratios, t / ratios)

    def _ratios(self, numpy: Any = jnp):
        return self.scaling / numpy.exp(numpy.mean(numpy.log(self.scaling)))
