"""Direct solvers: linear systems of a linear family, factorised in float64."""

import dataclasses
from typing import ClassVar

import numpy as np

from ...families import Family, LinearFamily
from ...inputs.points import Points
from ...objectives import L1, L2, Magnitude, Objective, Ridge, SpectralVariance
from ..base import Prepared, Problem, Solver, check_sizes, check_sparse
from .centres import CentreRule, Pivots, at_centres
from .dual import PreparedDual
from .lasso import PreparedLasso
from .moving_sums import PreparedMovingSums
from .primal import PreparedPrimal
from .spectral import PreparedSpectral
from .streamed import PreparedStream

KEPT = 2**26  # numbers of features up to which they are kept: half a gigabyte
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

    def prepare(
        self, family: Family, objective: Objective, points: Points, seed: int = 0
    ) -> Prepared:
        if not isinstance(family, LinearFamily):
            raise ValueError(
                f"{type(self).__name__} solves linear families; {family.describe()} is not linear "
                "in its parameters. "
                "Use solver=SGD()"
            )
        if objective.total(Magnitude):
            raise ValueError("Exact takes Ridge, L2 or L1; a Magnitude penalty needs solver=SGD()")
        if objective.total(L2) and objective.total(Ridge):
            raise ValueError(
                "Exact takes Ridge or L2, not both: the two norms need different parametrisations"
            )
        if isinstance(objective, SpectralVariance) and (objective.total(L1) or objective.total(L2)):
            raise ValueError("SpectralVariance takes a Ridge penalty; got L1 or L2")
        if isinstance(objective, SpectralVariance) and family.num_features(points.dim) is None:
            raise ValueError(
                "SpectralVariance needs a family with features, such as a Polynomial; got "
                f"{family.describe()}"
            )
        if objective.total(L1):
            check_sparse(family, points.dim)
            if np.isfinite(objective.intercept_variance):
                raise ValueError(
                    "L1 leaves the intercept free; intercept_variance must be inf with it"
                )
        ridge, l2, l1 = (objective.strength(kind, points.probabilities) for kind in (Ridge, L2, L1))
        if l2:
            family, ridge = family.coefficient_features(points.x, points.s), l2
        else:
            family = self.represented(family, points, seed)
        problem = Problem(family, points, ridge, l1, objective.intercept_variance)
        check_sizes(
            family,
            len(points),
            points.dim,
            bool(ridge) or not isinstance(objective, SpectralVariance),
        )
        if isinstance(objective, SpectralVariance):
            return PreparedMovingSums(problem, objective.window)
        return PreparedLasso(problem) if l1 else self.factorised(problem)

    def represented(self, family: LinearFamily, points: Points, seed: int) -> LinearFamily:
        """The family as it is fitted."""
        return family

    def factorised(self, problem: Problem) -> Prepared:
        """A least-squares problem whose penalty is quadratic."""
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
        return not (objective.total(L1) or isinstance(objective, SpectralVariance))


@dataclasses.dataclass(frozen=True)
class Spectral(Exact):
    """`Exact` by one eigendecomposition of the dual, some ten times dearer than a Cholesky factor,
    after which `fitted.refit(ridge=…)` serves any ridge."""

    def factorised(self, problem):
        return (
            super().factorised(problem)
            if problem.family.split()[0] is None
            else PreparedSpectral(problem)
        )


@dataclasses.dataclass(frozen=True)
class Nystrom(Exact):
    """`Exact` with kernels represented by their translates at `centres` draws, O(m centres²), where
    the dual of all draws is too large. `rule` says how these are chosen: `centres.Pivots()`,
    `Uniform()`, `KMeans()` or `SteinThinning()`."""

    centres: int
    rule: CentreRule = _PIVOTS

    def __post_init__(self) -> None:
        if (
            isinstance(self.centres, bool)
            or not isinstance(self.centres, (int, np.integer))
            or self.centres < 1
        ):
            raise ValueError(
                f"Nystrom: centres must be an integer of at least 1; got {self.centres!r}"
            )
        if not isinstance(self.rule, CentreRule):
            raise ValueError(
                f"Nystrom: rule must be one such as zv.centres.Pivots(); got {self.rule!r}"
            )

    def prepare(self, family, objective, points, seed=0):
        if objective.total(L2):
            raise ValueError(
                "Nystrom: centres go with the norm of the kernel, a Ridge; L2 is of the translates "
                "at all draws"
            )
        return super().prepare(family, objective, points, seed)

    def represented(self, family, points, seed):
        return at_centres(family, points, self.centres, self.rule, np.random.default_rng(seed))


def primal_is_smaller(p: int, m: int, ridge: bool) -> bool:
    # Without a ridge the dual of p < m features is singular, so the primal is the only way
    return p < m and (not ridge or m * p**2 + p**3 / 3 < m**3 / 3)
