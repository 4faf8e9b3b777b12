"""What was asked for: how control variates are to be fitted, or that they are to be chosen."""

import dataclasses
from typing import Any

from ..arguments import NOT_NEGATIVE, Requirement
from ..errors import refuse_fork
from ..families import Family
from ..fitting import Method
from ..inference.splits import Split
from ..inputs.points import DRAWS_PER_TERM
from ..objectives import Objective
from ..solvers import Solver
from .automatic import Automatic
from .defaults import polynomials


def _read_score_error(value: Any) -> float | str:
    return value if isinstance(value, str) and value == "verified" else NOT_NEGATIVE.read(value)


SCORE_ERROR = Requirement(
    "a relative error of the scores, a number ≥ 0, or 'verified' for what zv.check can see",
    _read_score_error,
)


@dataclasses.dataclass(frozen=True)
class Request:
    """The arguments of `estimate` that are not data: None stands for a default."""

    family: Family | Automatic | None = None
    objective: Objective | None = None
    solver: Solver | None = None
    split: Split | None = None
    standardise: bool = True
    seed: int = 0
    score_error: float | str = 0.0

    def __post_init__(self):
        refuse_fork()
        if isinstance(self.family, Automatic) and self.is_spelled_out:
            raise ValueError(
                "Automatic chooses objective, solver and split itself; leave them out, or give a "
                "family"
            )

    @property
    def is_spelled_out(self) -> bool:
        """Whether it says how to fit."""
        return not (self.objective is None and self.solver is None and self.split is None)

    @property
    def automatic(self) -> Automatic | None:
        """The choice that was asked for, by default or by name."""
        if self.family is None and not self.is_spelled_out:
            return Automatic()
        return self.family if isinstance(self.family, Automatic) else None

    def method(self, n: int, d: int) -> Method:
        """How to fit: without a family, a polynomial as large as n draws in d dimensions allow."""
        family = self.family
        if family is None:
            family = polynomials(n, d, DRAWS_PER_TERM)[:2][-1]
        assert not isinstance(family, Automatic)
        return Method(family, self.objective, self.solver)

    def describe(self) -> dict[str, Any]:
        """The arguments by name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
