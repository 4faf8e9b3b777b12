"""What was asked for: how control variates are to be fitted, or that they are to be chosen."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ..families import Family
from ..fitting import Method, check_call
from ..inference.splits import Split
from ..objectives import Objective
from ..solvers import Solver
from .automatic import Automatic
from .defaults import polynomials


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
        check_call(self.standardise, self.seed)
        told = self.score_error
        number = isinstance(told, (int, float)) and not isinstance(told, bool)
        if not (told == "verified" if isinstance(told, str) else number and 0 <= told < np.inf):
            raise ValueError(
                "score_error must be a relative error of the scores, a number ≥ 0, or 'verified' "
                f"for what zv.check can see; got {told!r}"
            )
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
            policy = Automatic().policy
            family = polynomials(n, d, policy.draws_per_term)[:2][-1]
        assert not isinstance(family, Automatic)
        return Method(family, self.objective, self.solver)

    def describe(self) -> dict[str, Any]:
        """The arguments by name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
