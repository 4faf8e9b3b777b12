"""The shortest residual among all combinations of the directions of conjugate gradients.

The iterates themselves have the least error in the norm of the operator, but their residuals can be
large. Near a singular Gram, g at the draws is then wrong by many deviations while the energy has
long converged. So g is another combination of the same directions: the one with the shortest
residual. No short recurrence finds it, because the preconditioned operator is not symmetric in the
plain norm; directions and their images are therefore kept. When some more have come, least squares
over all of them corrects the combination so far, which also removes the rounding errors of earlier
corrections.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float

from ..algebra.dense import EPS
from ..algebra.memory import room
from .products import Vectors

Batch = Float[Array, "steps n q"]


class ShortestResidual:
    """For right-hand sides (n, q): the residual, and the solution that has it. Where memory ends
    the oldest directions go."""

    def __init__(self, right: Vectors):
        self.solution, self.residual = jax.device_put(np.zeros(right.shape, right.dtype)), right
        self._past: list[tuple[Batch, Batch]] = []
        self._gram = np.zeros((right.shape[1], 0, 0))  # of the images

    def add(self, directions: Batch, images: Batch) -> None:
        """Take directions, of these columns and maybe more, and what the operator makes of them."""
        q, steps = self.residual.shape[1], len(images)
        new = _scale_columns(directions, images, q)
        if self._past and room() < 2 * new[0].nbytes:
            gone = len(self._past.pop(0)[0])
            self._gram = self._gram[:, gone:, gone:]
        self._past.append(new)
        border = np.concatenate([np.asarray(_inner(old, new[1])) for _, old in self._past], axis=1)
        self._gram = np.block([[self._gram, border[:, :-steps]], [border.transpose(0, 2, 1)]])
        shares = np.concatenate(
            [np.asarray(_shares(old, self.residual)) for _, old in self._past], axis=1
        )
        # directions that differ by less than rounding from others are held back
        count, rounding = len(self._gram[0]), EPS * np.sqrt(len(self.residual))
        steadied = self._gram + rounding * count * np.eye(count)
        lengths = np.concatenate(
            [
                scipy.linalg.cho_solve(scipy.linalg.cho_factor(one), share)
                for one, share in zip(steadied, shares, strict=True)
            ],
            axis=1,
        )
        first = 0
        for batch in self._past:
            part = jax.device_put(lengths[first : first + len(batch[0])])
            self.solution, self.residual = _move(self.solution, self.residual, batch, part)
            first += len(part)


@eqx.filter_jit
def _scale_columns(
    directions: Float[Array, "steps n k"], images: Float[Array, "steps n k"], q: int
) -> tuple[Any, Any]:
    """Return the first q columns, brought to images of length 1; a column that is solved has
    none."""
    directions, images = directions[:, :, :q], images[:, :, :q]
    length = jnp.linalg.norm(images, axis=1, keepdims=True)
    scale = jnp.where(length > 0, 1 / jnp.where(length > 0, length, 1.0), 0.0)
    return scale * directions, scale * images


@eqx.filter_jit
def _inner(
    some: Float[Array, "some n q"], others: Float[Array, "others n q"]
) -> Float[Array, "q some others"]:
    return jnp.einsum("inq,jnq->qij", some, others)


@eqx.filter_jit
def _shares(some: Float[Array, "some n q"], residual: Vectors) -> Float[Array, "q some 1"]:
    return _inner(some, residual[None])


@eqx.filter_jit
def _move(
    solution: Vectors, residual: Vectors, batch: tuple[Batch, Batch], lengths: Any
) -> tuple[Vectors, Vectors]:
    along, less = (jnp.einsum("inq,iq->nq", part, lengths) for part in batch)
    return solution + along, residual - less
