"""The direct solver: it picks primal or dual by what the family has and what is smaller."""

from __future__ import annotations

import dataclasses

import numpy as np

from ..families import Family, LinearFamily
from ..objectives import L1, L2, Magnitude, Objective, Ridge, SpectralVariance
from .base import Prepared, Problem, Solver, check_sizes, check_sparse
from .centres import WAYS, at_centres
from .dual import Dual, Spectral
from .lasso import Lasso
from .moving_sums import MovingSums
from .primal import Primal
from .streamed import Streamed

KEPT = 2**26  # numbers of features up to which they are kept: half a gigabyte


@dataclasses.dataclass(frozen=True)
class Exact(Solver):
    """Solve the linear system of a linear family directly, in float64.

    With p features and m distinct draws: the primal, O(m p² + p³), when the family has features, p + 1 ≤ m, and either there
    is no ridge or that is less work; else the dual, O(m² d + m³). `spectral=True` factorises the dual by one
    eigendecomposition, some ten times dearer than Cholesky, after which `fitted.refit(ridge=…)` serves any ridge.
    Ill-conditioning: see `Dual` for the ridge policy (reported, never silent) and `Primal` for the rank-revealing fallback.

    centres: represent kernels by their translates at so many draws, O(m centres²), where the dual of all draws is too large.
    spread: how these are chosen: "pivots" (of the kernel matrix; the best approximation), "uniform", "k-means++" or "thinning".
    """

    spectral: bool = False
    centres: int | None = None
    spread: str = "pivots"

    def __post_init__(self) -> None:
        if self.centres is not None and (
            isinstance(self.centres, bool) or not isinstance(self.centres, (int, np.integer)) or self.centres < 1
        ):
            raise ValueError(f"Exact: centres must be an integer of at least 1; got {self.centres!r}")
        if self.spread not in WAYS:
            raise ValueError(f"Exact: spread must be one of {', '.join(map(repr, WAYS))}; got {self.spread!r}")
        if self.spectral and self.centres is not None:
            raise ValueError("Exact: spectral factorises the dual of all draws; give spectral or centres, not both")

    def prepare(self, family: Family, objective: Objective, x, s, probabilities, seed=0, order=None) -> Prepared:
        if not isinstance(family, LinearFamily):
            raise ValueError(
                f"Exact solves linear families; {family.describe()} is not linear in its parameters. Use solver=SGD()"
            )
        _check_penalties(family, objective, x.shape[1])
        if self.centres is not None and objective.total(L2):
            raise ValueError("Exact: centres go with the norm of the kernel, a Ridge; L2 is of the translates at all draws")
        ridge, l2, l1 = (objective.strength(kind, probabilities) for kind in (Ridge, L2, L1))
        if l2:
            family, ridge = family.on_coefficients(x, s), l2
        elif self.centres is not None:
            family = at_centres(family, x, s, probabilities, self.centres, self.spread, np.random.default_rng(seed))
        problem = Problem(family, x, s, probabilities, ridge, l1, objective.intercept_variance)
        penalised, free = family.split()
        m, d = x.shape
        p = family.num_features(d)
        unpenalised = 0 if free is None else free.num_features(d)
        if isinstance(objective, SpectralVariance):
            check_sizes(family, unpenalised if ridge else p, m, d)
            assert order is not None
            return MovingSums(problem, penalised, free, order, objective.window)
        check_sizes(family, unpenalised, m, d)
        if l1:
            return Lasso(problem, family)
        if self.spectral and penalised is not None:
            return Spectral(problem, penalised, free)
        if p is not None and (penalised is None or primal_is_smaller(p, m, bool(ridge))):
            if m * p > KEPT and np.isinf(objective.intercept_variance):
                return Streamed(problem)
            return Primal(problem, penalised, free)
        assert penalised is not None
        return Dual(problem, penalised, free)

    def leaves_out(self, objective: Objective) -> bool:
        return not (objective.total(L1) or isinstance(objective, SpectralVariance))


def _check_penalties(family: LinearFamily, objective: Objective, d: int) -> None:
    if objective.total(Magnitude):
        raise ValueError("Exact takes Ridge, L2 or L1; a Magnitude penalty needs solver=SGD()")
    if objective.total(L2) and objective.total(Ridge):
        raise ValueError("Exact takes Ridge or L2, not both: the two norms need different parametrisations")
    if isinstance(objective, SpectralVariance):
        if objective.total(L1) or objective.total(L2):
            raise ValueError("SpectralVariance takes a Ridge penalty; got L1 or L2")
        if family.num_features(d) is None:
            raise ValueError(f"SpectralVariance needs a family with features, such as a Polynomial; got {family.describe()}")
    if objective.total(L1):
        check_sparse(family, d)
        if np.isfinite(objective.intercept_variance):
            raise ValueError("L1 leaves the intercept free; intercept_variance must be inf with it")


def primal_is_smaller(p: int, m: int, ridge: bool) -> bool:
    # Without a ridge the dual of p < m features is singular, so the primal is the only way
    return p < m and (not ridge or m * p**2 + p**3 / 3 < m**3 / 3)
