"""The shortest residual that the directions of conjugate gradients allow.

Their iterates have the least error in the norm of the operator, and residuals that leap: near a singular Gram, g at the draws
is wrong by many deviations while the energy has long converged. Among all combinations of the same directions the one with
the shortest residual is taken instead. The preconditioned operator is not symmetric in the plain norm, so that no short
recurrence finds it: directions and their images are kept. Each time some have come, least squares over all of them correct
what there was, which mends the rounding of their normal equations, too.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.linalg import cho_factor, cho_solve

from .memory import room

Batch = Float[Array, "steps n q"]
Columns = Float[Array, "n q"]

_ROUNDING = 1e-14  # of an image's squared length: directions that differ by less from others are held back


class Shortest:
    """For right-hand sides (n, q): the residual, and the solution that has it. Where memory ends the oldest directions go."""

    def __init__(self, right: Columns):
        self.solution, self.residual = jnp.zeros_like(right), right
        self._past: list[tuple[Batch, Batch]] = []
        self._gram = np.zeros((right.shape[1], 0, 0))  # of the images

    def add(self, directions: Batch, images: Batch) -> None:
        """Directions, of these columns and maybe more, and what the operator makes of them."""
        q, steps = self.residual.shape[1], len(images)
        new = _scaled(directions[:, :, :q], images[:, :, :q])
        if self._past and room() < 2 * new[0].nbytes:
            gone = len(self._past.pop(0)[0])
            self._gram = self._gram[:, gone:, gone:]
        self._past.append(new)
        border = np.concatenate([np.asarray(_inner(old, new[1])) for _, old in self._past], axis=1)
        self._gram = np.block([[self._gram, border[:, :-steps]], [border.transpose(0, 2, 1)]])
        shares = np.concatenate([np.asarray(_inner(old, self.residual[None])) for _, old in self._past], axis=1)
        held = self._gram + _ROUNDING * len(self._gram[0]) * np.eye(len(self._gram[0]))
        lengths = np.concatenate([cho_solve(cho_factor(one), share) for one, share in zip(held, shares, strict=True)], axis=1)
        first = 0
        for batch in self._past:
            part = jnp.asarray(lengths[first : first + len(batch[0])])
            self.solution, self.residual = _moved(self.solution, self.residual, *batch, part)
            first += len(part)


@eqx.filter_jit
def _scaled(directions: Batch, images: Batch) -> tuple[Batch, Batch]:
    """To images of length 1; a column that is solved has none."""
    length = jnp.linalg.norm(images, axis=1, keepdims=True)
    scale = jnp.where(length > 0, 1 / jnp.where(length > 0, length, 1.0), 0.0)
    return scale * directions, scale * images


@eqx.filter_jit
def _inner(some: Batch, others: Batch) -> Float[Array, "q some others"]:
    return jnp.einsum("inq,jnq->qij", some, others)


@eqx.filter_jit
def _moved(solution: Columns, residual: Columns, directions: Batch, images: Batch, lengths: Float[Array, "steps q"]):
    along, less = (jnp.einsum("inq,iq->nq", part, lengths) for part in (directions, images))
    return solution + along, residual - less
