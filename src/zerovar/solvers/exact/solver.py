"""Direct solvers: linear systems of a linear family, factorised in float64."""

import dataclasses
from typing import ClassVar

import numpy as np

from ...arguments import instance, takes, whole
from ...families import Family, LinearFamily
from ...inputs.integrands import KEPT
from ...inputs.points import Points
from ...objectives import L1, L2, Objective, Ridge
from ..base import Prepared, Problem, Solver, check_sizes
from ..scope import FROM_MOMENTS, Scope
from .centres import CentreRule, Pivots, represent_at_centres
from .dual import PreparedDual
from .lasso import PreparedLasso
from .moments import solve_moments
from .moving_sums import PreparedMovingSums
from .primal import PreparedPrimal
from .spectral import PreparedSpectral
from .streamed import PreparedStream

_PIVOTS = Pivots()


@dataclasses.dataclass(frozen=True)
class Exact(Solver):
    """Solve the linear system of a linear family directly, in float64.

    With p features and m distinct draws: the primal, O(m p² + p³), when the family has features, p
    + 1 ≤ m, and either there is no ridge or that is less work; else the dual, O(m² d + m³).
    Ill-conditioning: see `PreparedDual` for the ridge policy (reported, never silent) and
    `PreparedPrimal` for the rank-revealing fallback.
    """

    silent: ClassVar[bool] = True
    scope: ClassVar[Scope] = Scope(
        penalties=(Ridge, L2, L1),
        intercept=(Ridge, L2),
        ordered=True,
        otherwise="Use solver=SGD()",
    )
    moments_scope: ClassVar[Scope | None] = FROM_MOMENTS

    def prepare(
        self, family: Family, objective: Objective, points: Points, seed: int = 0
    ) -> Prepared:
        assert isinstance(family, LinearFamily), "its scope has no others"
        ridge, l2, l1 = (objective.strength(kind, points.probabilities) for kind in (Ridge, L2, L1))
        if l2:
            family, ridge = family.coefficient_features(points.x, points.s), l2
        else:
            family = self.represent(family, points, seed)
        problem = Problem(family, points, ridge, l1, objective.intercept_variance)
        check_sizes(family, len(points), points.dim, bool(ridge) or not objective.needs_order)
        if objective.needs_order:
            return PreparedMovingSums(problem, objective)
        return PreparedLasso(problem) if l1 else self.factorise(problem)

    def represent(self, family: LinearFamily, points: Points, seed: int) -> LinearFamily:
        """Return the family as it is fitted."""
        return family

    def choose_features(self, family, objective, points, values, seed):
        return self.represent(family, points, seed)

    def solve_moments(self, matrix, penalty):
        return solve_moments(matrix, penalty)

    def factorise(self, problem: Problem) -> Prepared:
        """Prepare a least-squares problem whose penalty is quadratic."""
        m, d = problem.points.x.shape
        p = problem.family.num_features(d)
        if p is None or not (
            problem.family.split()[0] is None or primal_is_smaller(p, m, bool(problem.ridge))
        ):
            return PreparedDual(problem)
        if m * p > KEPT and np.isinf(problem.intercept_variance):
            return PreparedStream(problem)
        return PreparedPrimal(problem)

    def leaves_out(self, objective: Objective) -> bool:
        return not (objective.total(L1) or objective.needs_order)


@dataclasses.dataclass(frozen=True)
class Spectral(Exact):
    """`Exact` by one eigendecomposition of the dual, some ten times dearer than a Cholesky factor,
    after which `fitted.refit(ridge=…)` serves any ridge."""

    def factorise(self, problem):
        return (
            super().factorise(problem)
            if problem.family.split()[0] is None
            else PreparedSpectral(problem)
        )


@takes(
    centres=whole(1),
    rule=instance(CentreRule, "a rule that chooses centres, such as zv.centres.Pivots()"),
)
@dataclasses.dataclass(frozen=True)
class Nystrom(Exact):
    """`Exact` with kernels represented by their translates at `centres` draws, O(m centres²), where
    the dual of all draws is too large. `rule` says how these are chosen: `centres.Pivots()` or
    `Uniform()`."""

    # L2 would be of the translates at all draws
    scope: ClassVar[Scope] = dataclasses.replace(
        Exact.scope,
        penalties=(Ridge, L1),
        intercept=(Ridge,),
        otherwise="Centres go with the norm of the kernel, a Ridge. Use solver=Exact() or SGD()",
    )
    centres: int
    rule: CentreRule = _PIVOTS

    def represent(self, family, points, seed):
        return represent_at_centres(
            family, points, self.centres, self.rule, np.random.default_rng(seed)
        )


def primal_is_smaller(p: int, m: int, ridge: bool) -> bool:
    # Without a ridge the dual of p < m features is singular, so the primal is the only way
    """Return whether p × p is less work than m × m, or the only way."""
    return p < m and (not ridge or m * p**2 + p**3 / 3 < m**3 / 3)
