"""The L1 penalty, by cyclic coordinate descent on the p × p Gram, all integrands at once in one
compiled loop."""

import jax
import jax.numpy as jnp
import numpy as np

from ..algebra.dense import ROUNDING
from ..base import Prepared, Problem, Result, Solution, Values
from ..stats import FitStats
from .primal import CentredFeatures

_MAX_SWEEPS = 10_000  # after which slow convergence is reported


class PreparedLasso(Prepared):
    """Features brought to unit variance, for Σ p r² + strength · Σ sd_j |θ_j| + ridge · Σ θ_j²."""

    def __init__(self, problem: Problem):
        self._data = CentredFeatures(problem)
        phi = self._data.centre(np.ones(len(self._data.raw)))
        sd = np.linalg.norm(phi, axis=1)
        self._sd = np.where(sd > 0, sd, 1.0)
        self._unit = phi / self._sd[:, None]
        self._gram = self._unit @ self._unit.T
        self._ridge = self._data.penalty / self._sd**2
        self._strength = problem.l1
        self.stats = FitStats("lasso", len(phi)) | {"ridge": problem.ridge}

    def solve(self, values: Values, ridge: float | None = None) -> Solution:
        f, mean = self._data.values(values)
        scale = np.linalg.norm(f, axis=0)  # of each: beside large ones small ones would end early
        scale = np.where(scale > 0, scale, 1.0)
        with jax.enable_x64(True):
            beta, sweeps = _descend(
                self._gram, self._unit @ f / scale, self._ridge, 0.5 * self._strength / scale
            )
            beta, sweeps = scale * np.asarray(beta), int(sweeps)
        self.stats |= {"sweeps": sweeps, "nonzero": np.count_nonzero(beta, axis=0).tolist()}
        if sweeps >= _MAX_SWEEPS:
            self.result = Result.NOT_CONVERGED
        return self._data.solution(beta / self._sd[:, None], mean)


@jax.jit
def _descend(gram, target, ridge, threshold):
    """Minimise ½βᵀ(R + ridge)β − βᵀc + threshold ‖β‖₁ for each column c of `target`."""

    def coordinate(j, state):
        beta, rest, change = state  # rest = c − Rβ
        old = beta[j]
        pull = rest[j] + gram[j, j] * old
        new = jnp.sign(pull) * jnp.maximum(jnp.abs(pull) - threshold, 0.0) / (gram[j, j] + ridge[j])
        new = jnp.where(gram[j, j] > 0, new, 0.0)
        change = jnp.maximum(change, jnp.max(jnp.abs(new - old)))
        return beta.at[j].set(new), rest - gram[j][:, None] * (new - old), change

    def sweep(state):
        beta, rest, _, count = state
        beta, rest, change = jax.lax.fori_loop(
            0, len(gram), coordinate, (beta, rest, jnp.zeros(()))
        )
        return beta, rest, change, count + 1

    start = (jnp.zeros_like(target), target, jnp.full((), jnp.inf), 0)
    beta, _, _, count = jax.lax.while_loop(
        lambda state: (state[2] > ROUNDING) & (state[3] < _MAX_SWEEPS), sweep, start
    )
    return beta, count
