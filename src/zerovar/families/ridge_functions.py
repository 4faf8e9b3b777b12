"""Functions of single directions: what many dimensions leave affordable beyond a linear control
variate."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float64

from ..arguments import read_numbers, takes, where
from ..statistics.ranks import normal_scores
from .base import LinearFamily, Wrapper


class RidgeFunctions(Wrapper):
    """Σ_r g_r(a_r·x), where every g_r is in `family` in one dimension.

    If s is the score of x, then a·s serves as that of a·x for any unit vector a: a family in one
    dimension, applied so, has mean zero. By default there is one direction an integrand, learned
    from the fitting draws: that of the linear regression of its normal scores. It is exact for an
    increasing function of one linear combination, as probabilities under a generalised linear model
    are. `directions` (d, r) gives them instead, in the coordinates of the standardised draws.
    """

    family: LinearFamily
    directions: np.ndarray | None

    @takes(
        family=where(
            "linear in its parameters and without coordinates, such as Polynomial(4)",
            lambda family: isinstance(family, LinearFamily) and not family.keeps_axes,
        ),
        directions=where(
            "finite columns (d, r), none of them zero",
            lambda a: a.ndim == 2 and a.size and np.isfinite(a).all() and a.any(axis=0).all(),
            read_numbers,
        ),
    )
    def __init__(self, family: LinearFamily, directions: Any = None):
        self.family, self.directions = family, directions
        if directions is not None:
            # of one that is a unit vector already, nothing is changed
            length = np.linalg.norm(directions, axis=0)
            self.directions = directions / np.where(np.abs(length - 1) < 1e-14, 1.0, length)

    @property
    def sees_values(self):
        return self.directions is None

    def describe(self):
        count = "" if self.directions is None else f", {self.directions.shape[1]} directions"
        return f"RidgeFunctions({self.family.describe()}{count})"

    def check(self, d):
        if self.directions is not None and len(self.directions) != d:
            raise ValueError(
                f"RidgeFunctions: directions must have d = {d} rows; got {len(self.directions)}"
            )
        self.family.check(1)

    def resolve(self, x, values):
        # standardised draws have the same spread in every direction
        family = self.family.resolve(x[:, :1], values)
        directions = steepest(x, values) if self.directions is None else self.directions
        return RidgeFunctions(family, directions)

    def wrap(self, family):
        return RidgeFunctions(family, self.directions)

    def inner_dimension(self, d):
        return 1

    def num_features(self, d):
        each = self.family.num_features(1)
        return (
            None
            if each is None
            else each * (1 if self.directions is None else self.directions.shape[1])
        )

    def features(self, x, s):
        each = jax.vmap(self.family.features)(self._project(x), self._project(s))
        return jnp.moveaxis(each, 0, 1).reshape(len(x), -1)

    def gram(self, x, s, y, t):
        def add(total, along):
            return total + self.family.gram(*along), None

        # one direction after the other, and once more for its derivative: all of them at a time do
        # not fit in a cache
        along = tuple(self._project(points) for points in (x, s, y, t))
        return jax.lax.scan(jax.checkpoint(add), jnp.zeros((len(x), len(y)), x.dtype), along)[0]

    def _project(self, points):
        """Return the points along each direction (r, n, 1). Directions are no hyper-parameters:
        nothing descends in them."""
        return (points @ jax.lax.stop_gradient(self.directions)).T[:, :, None]


def steepest(
    x: Float64[np.ndarray, "n d"], values: Float64[np.ndarray, "n q"]
) -> Float64[np.ndarray, "d r"]:
    """Return for each integrand the direction of the regression of its normal scores on x, those
    that the regression on so many draws does not tell apart once."""
    scores, centred = normal_scores(values), x - x.mean(axis=0)
    # by the normal equations: a direction needs few digits, and the draws are standardised
    found = np.linalg.lstsq(centred.T @ centred, centred.T @ scores, rcond=None)[0]
    kept: list[np.ndarray] = []
    for column, spread in zip(found.T, np.ptp(values, axis=0), strict=True):
        size = np.linalg.norm(column)
        if (
            spread > 0
            and size > 0
            and not any(size - abs(column @ other) < size / len(x) for other in kept)
        ):
            kept.append(column / size)
    return np.stack(kept, axis=1) if kept else np.eye(x.shape[1], 1)
