"""The pieces that every solver shares: the problem it is given, the factorisation it makes, the fit that comes out."""

from __future__ import annotations

import dataclasses
import enum
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float64

from ..families import Family, LinearFamily
from ..objectives import Objective

Values = Float64[np.ndarray, "m q"]
Groups = Sequence[np.ndarray]  # of row numbers


class Result(enum.Enum):
    """How a solve ended. The value is the message."""

    OK = "solved"
    RIDGE_RAISED = (
        "the Gram matrix is singular to rounding; its ridge was raised to the rounding error of its entries (stats['ridge']). "
        "Give a Ridge penalty of your own, or a shorter length-scale, to choose it yourself"
    )
    RANK_DEFICIENT = (
        "the features are linearly dependent on these draws; the fit of least norm was taken (stats['rank']). "
        "Use a lower degree or a Ridge penalty"
    )
    COLLINEAR = (
        "the unpenalised terms are linearly dependent on these draws. Use a lower degree, or penalise them with a finite weight"
    )
    SINGULAR = "the Gram matrix could not be factorised: are there infinite entries, or scores of very different size?"
    NOT_CONVERGED = "the L1 solver stopped before it converged. Raise its strength or lower the degree"

    @property
    def failed(self) -> bool:
        return self in (Result.COLLINEAR, Result.SINGULAR)


@dataclasses.dataclass(frozen=True)
class Problem:
    """A linear least-squares problem on standardised points: x, s (m, d), probabilities (m,), and strengths of penalties."""

    family: LinearFamily
    x: Float64[np.ndarray, "m d"]
    s: Float64[np.ndarray, "m d"]
    probabilities: Float64[np.ndarray, " m"]
    ridge: float
    l1: float
    intercept_variance: float


@dataclasses.dataclass(frozen=True)
class Solution:
    """Intercept (q,) and one coefficient matrix (p, q) for each of the factorisation's terms."""

    intercept: Float64[np.ndarray, " q"]
    coefficients: tuple[np.ndarray, ...]


class Factorisation(ABC):
    """What is computed once a family and sample, and then serves any integrands.

    Control variates are g = Σ features of terms[k] · coefficients[k].
    """

    terms: tuple[LinearFamily, ...]
    result: Result
    stats: dict[str, Any]

    @abstractmethod
    def solve(self, values: Values) -> Solution: ...

    @abstractmethod
    def leave_out(self, values: Values, groups: Groups | None) -> Values:
        """f − c − g at every draw, from the fit that leaves its group out; `groups` partitions the rows, None is one each."""


class Solver(ABC):
    """How θ is found."""

    @abstractmethod
    def prepare(
        self, family: Family, objective: Objective, x: np.ndarray, s: np.ndarray, probabilities: np.ndarray
    ) -> Factorisation:
        """Everything that does not depend on the integrands; x, s standardised."""
