"""What a solver takes, declared in one place, and the one refusal of what it does not."""

import dataclasses
import enum
from typing import NoReturn

import numpy as np

from ..families import Family, LinearFamily, NonlinearFamily
from ..objectives import L1, L2, Objective, Penalty, Ridge


class Families(enum.Enum):
    """Kinds of families that a solver may be for. The value is how a message calls them."""

    ANY = "linear families and networks"
    LINEAR = "linear families, such as Polynomial(2) or Kernel()"
    FEATURES = "linear families with features, such as Polynomial(2)"
    OPEN_TERMS = "families that choose their terms, such as SparsePolynomial(2)"


@dataclasses.dataclass(frozen=True)
class Scope:
    """The families, objectives and penalties that a solver takes; `check_scope` refuses others.

    penalties: the kinds of penalty, of which an objective may have some or none.
    needs_ridge: whether it must have a `Ridge`, and the family a penalised part.
    intercept: the penalties that a finite `intercept_variance` may stand beside; None where the
        intercept must be free.
    ordered: whether it takes objectives that need the order of the chain.
    otherwise: what to do about a combination that is not taken.
    """

    families: Families = Families.LINEAR
    penalties: tuple[type[Penalty], ...] = (Ridge,)
    needs_ridge: bool = False
    intercept: tuple[type[Penalty], ...] | None = None
    ordered: bool = False
    otherwise: str = "Use another solver, such as Exact()"


# of solvers that fit from moments of features by normal equations
FROM_MOMENTS = Scope(otherwise="Use solver=SGD(), or fewer draws, in memory")


def refuse(name: str, expected: str, got: str, advice: str) -> NoReturn:
    """Raise what every wrong combination of solver, family and objective ends in."""
    raise ValueError(f"{name} takes {expected}; got {got}. {advice}")


def check_scope(name: str, scope: Scope, family: Family, objective: Objective, d: int) -> None:
    """Refuse a family in d dimensions, or an objective, that is outside the scope of the solver of
    this name."""
    _check_family(name, scope, family, d)
    _check_objective(name, scope, family, objective, d)
    _check_penalties(name, scope, family, objective, d)


def _check_family(name: str, scope: Scope, family: Family, d: int) -> None:
    described = family.describe()
    _, nonlinear = family.separate()
    if scope.families is Families.ANY:
        taken = all(isinstance(part, NonlinearFamily) for part in nonlinear)
    elif not isinstance(family, LinearFamily):
        taken, described = False, f"{described}, which is not linear in its parameters"
    elif scope.families is Families.OPEN_TERMS:
        taken = family.chooses_monomials
    else:
        taken = scope.families is Families.LINEAR or family.num_features(d) is not None
    if not taken:
        refuse(name, scope.families.value, described, scope.otherwise)


def _check_objective(name: str, scope: Scope, family: Family, objective: Objective, d: int) -> None:
    got = type(objective).__name__
    if objective.needs_order and not scope.ordered:
        expected = "objectives of single draws, LeastSquares (with a free intercept) or Variance"
        refuse(name, expected, f"{got}, which needs the whole chain in order", scope.otherwise)
    if objective.needs_order and _features(family, d) is None:
        refuse(got, Families.FEATURES.value, family.describe(), "Use a Polynomial")
    if np.isinf(objective.intercept_variance):
        return
    beside = scope.intercept
    got += f" with intercept_variance={objective.intercept_variance:g}"
    if beside is None:
        refuse(name, "objectives that leave the intercept free", got, scope.otherwise)
    if others := [kind for kind in objective.kinds if not issubclass(kind, beside)]:
        expected = f"an intercept_variance beside {list_kinds(beside)}"
        refuse(name, expected, f"{got} and {list_kinds(others)}", scope.otherwise)


def _check_penalties(name: str, scope: Scope, family: Family, objective: Objective, d: int) -> None:
    linear, _ = family.separate()
    got = list_kinds(objective.kinds)
    if not all(issubclass(kind, scope.penalties) for kind in objective.kinds):
        expected = f"a {list_kinds(scope.penalties)} penalty or none"
        refuse(name, expected, got, scope.otherwise)
    if scope.needs_ridge and not objective.total(Ridge):
        refuse(name, "a Ridge penalty", got, "Give LeastSquares(Ridge(strength))")
    if scope.needs_ridge and (not isinstance(linear, LinearFamily) or linear.split()[0] is None):
        refuse(name, "a family with a penalised part", family.describe(), "Give finite weights")
    if objective.total(Ridge) and linear is None:
        advice = "Use L2 (of its parameters) or Magnitude (the mean of g²)"
        got = f"{family.describe()}, which has no norm of its own for Ridge"
        refuse(name, "Ridge for linear families", got, advice)
    if objective.total(Ridge) and objective.total(L2) and linear is not None:
        reason = "The two norms need different parametrisations"
        refuse(name, "Ridge or L2", "both", reason)
    if objective.total(L1):
        all_held = isinstance(family, LinearFamily) and linear is family and not family.split()[1]
        if not all_held or _features(family, d) is None:
            expected = "L1 for families with features, all of them penalised"
            refuse(name, expected, family.describe(), "Use a Polynomial with finite weights")


def _features(family: Family, d: int) -> int | None:
    return family.num_features(d) if isinstance(family, LinearFamily) else None


def list_kinds(kinds: tuple[type[Penalty], ...] | list[type[Penalty]]) -> str:
    """Return names of penalties as a sentence has them: Ridge, L2 or L1."""
    names = [kind.__name__ for kind in kinds]
    if len(names) < 2:
        return names[0] if names else "no penalty"
    return f"{', '.join(names[:-1])} or {names[-1]}"
