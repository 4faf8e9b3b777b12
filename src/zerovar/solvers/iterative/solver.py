"""The iterative solver: conjugate gradients that need products with a matrix and never the
matrix."""

import dataclasses
from typing import ClassVar

import numpy as np

from ...arguments import FLAG, POSITIVE, Requirement, takes, whole
from ...families import Family, LinearFamily
from ...inputs.points import Points
from ...objectives import L2, Objective, Ridge
from ..algebra.memory import room
from ..base import Prepared, Problem, Solver, check_sizes
from ..scope import Scope, refuse


@takes(
    tolerance=Requirement("a positive number of standard errors", POSITIVE.read),
    rank=whole(1),
    keep=FLAG,
    max_iterations=whole(1),
    progress=FLAG,
)
@dataclasses.dataclass(frozen=True)
class CG(Solver):
    """Preconditioned conjugate gradients, on one or several devices, for fits that are too large to
    factorise.

    The dual, of any linear family: products with the m × m Gram, kept if it fits into memory (O(m²)
    an iteration) or made anew by tiles (O(m² d), memory O(m)), preconditioned by some draws solved
    for exactly and the others among neighbours. The primal, where it is less work: products with
    features that are never kept, of a quadratic polynomial never even made (O(m d²)). It stops
    when, by its own estimate, the intercept is within `tolerance` standard errors of the exact
    solution's, and g so near that at the default tolerance the variance of f − g is larger by a
    tenth at most. All directions are kept, 2 q m numbers an iteration, as long as memory lasts.
    There are no closed-form leave-out residuals: `estimate` cross-fits.

    rank: how many draws the preconditioner solves for exactly, at most half of them; default a
        twentieth, 100 to 1000, and on an accelerator a tenth, 100 to 2000.
    keep: whether the Gram is kept; default if it takes no more than half of the free memory, or 0.8
        of an accelerator's.
    max_iterations: after which the fit is taken as it is, with a warning.
    progress: a bar on a terminal; `False` for none.
    """

    scope: ClassVar[Scope] = Scope(penalties=(Ridge, L2), otherwise="Use solver=Exact() or SGD()")
    tolerance: float = 0.1
    rank: int | None = None
    keep: bool | None = None
    max_iterations: int = 500
    progress: bool = True

    def check(self, family, objective, d):
        super().check(family, objective, d)
        if objective.total(L2) and family.num_features(d) is None:
            refuse("CG", "Ridge for kernels", "L2", self.scope.otherwise)

    def prepare(
        self, family: Family, objective: Objective, points: Points, seed: int = 0
    ) -> Prepared:
        # as it is needed: it is a tenth of what zerovar takes to import
        from .dual import PreparedIterativeDual
        from .primal import PreparedIterativePrimal, primal_is_cheaper

        assert isinstance(family, LinearFamily), "its scope has no others"
        m, d = points.x.shape
        ridge, l2 = (objective.strength(kind, points.probabilities) for kind in (Ridge, L2))
        if l2:
            family, ridge = family.coefficient_features(points.x, points.s), l2
        problem = Problem(family, points, ridge, 0.0, np.inf)
        check_sizes(family, m, d)
        keep = 8 * m**2 <= room() if self.keep is None else self.keep
        if family.split()[0] is None or primal_is_cheaper(family, m, d, ridge, keep):
            return PreparedIterativePrimal(self, problem)
        return PreparedIterativeDual(self, problem, keep, seed)
