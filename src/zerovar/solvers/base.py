"""The pieces that every solver shares: the problem it is given, the factorisation it makes, the fit
that comes out."""

from __future__ import annotations

import dataclasses
import enum
from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float64

from ..families import Family, LinearFamily
from ..inputs.points import Points
from ..io.archive import storable
from ..objectives import Objective, Penalty
from .algebra.dense import Groups
from .scope import Families, Scope, check_scope
from .stats import FitStats
from .terms import Term
from .windows import Windows

Values = Float64[np.ndarray, "m q"]


@storable
class Result(enum.Enum):
    """How a solve ended. The value is the message."""

    OK = "solved"
    RIDGE_RAISED = (
        "the Gram matrix is singular to rounding; its ridge was raised to the rounding error of "
        "its entries (stats['ridge']). "
        "Give a Ridge penalty of your own, or a shorter length-scale, to choose it yourself"
    )
    RANK_DEFICIENT = (
        "the features are linearly dependent on these draws; the fit of least norm was taken "
        "(stats['rank']). Use a lower degree or a Ridge penalty"
    )
    COLLINEAR = (
        "the unpenalised terms are linearly dependent on these draws. Use a lower degree, "
        "or penalise them with a finite weight"
    )
    SINGULAR = (
        "the Gram matrix could not be factorised: are there infinite entries, or scores of "
        "very different size?"
    )
    NOT_CONVERGED = (
        "the L1 solver stopped before it converged. Raise its strength or lower the degree"
    )
    DIVERGED = (
        "training diverged: the loss grew or became infinite (stats['loss'] has its curve). Lower "
        "learning_rate, use a larger batch_size, or give clip=1.0"
    )
    STALLED = (
        "conjugate gradients stopped before they converged; the control variate is valid, but not "
        "the best (stats['error_left'] estimates how far its intercept is from the exact fit's, "
        "in standard errors). Raise max_iterations, rank or the Ridge, or use solver=Nystrom(…)"
    )
    INTERRUPTED = (
        "the fit was interrupted; the best so far was taken (stats['epochs'] or "
        "['iterations'] says how far it came)"
    )

    @property
    def failed(self) -> bool:
        return self in (Result.COLLINEAR, Result.SINGULAR, Result.DIVERGED)


@dataclasses.dataclass(frozen=True)
class Problem:
    """A linear least-squares problem on standardised points, with the strengths of its
    penalties."""

    family: LinearFamily
    points: Points
    ridge: float
    l1: float
    intercept_variance: float

    @property
    def penalised(self) -> LinearFamily:
        """The part of the family that the ridge holds."""
        found = self.family.split()[0]
        assert found is not None, "a dual needs a penalised part"
        return found


@dataclasses.dataclass(frozen=True)
class Solution:
    """Intercept (q,) and the terms whose sum is g; and the family, where the solver changed its
    hyper-parameters."""

    intercept: Float64[np.ndarray, " q"]
    terms: tuple[Term, ...]
    family: Family | None = None


class MomentsFit(NamedTuple):
    """A fit from moments, f ≈ intercept + φ·θ, and how its solve ended."""

    intercept: Float64[np.ndarray, " q"]
    theta: Float64[np.ndarray, "p q"]
    result: Result
    stats: FitStats


class Prepared(ABC):
    """What is computed once for a family and sample, and then serves any integrands; `result` and
    `stats` are of the last solve. any_ridge: whether it serves any `ridge`; else that is None."""

    any_ridge: ClassVar[bool] = False
    result: Result = Result.OK
    stats: FitStats

    @abstractmethod
    def solve(self, values: Values, ridge: float | None = None) -> Solution:
        """Return the fit to these values; with another `ridge` than the one factorised for, where
        the factorisation serves any."""

    def leave_out(
        self, values: Values, groups: Groups | None, ridge: float | None = None
    ) -> Values:
        """Return f − c − g at every draw, from the fit that leaves its group out; 0 at draws in no
        group. None: one group each."""
        raise ValueError(
            "This fit (trained, with terms chosen, or with an L1 penalty) has no closed-form "
            "leave-one-out residuals, so "
            "in_sample() has no honest standard error for it. Use split=cross_fit() or holdout()"
        )

    def intercept_weights(self, ridge: float | None = None) -> Float64[np.ndarray, " m"]:
        """Return w with c = Σ w f: leaving a group of draws out moves the intercept by Σ w ·
        (leave-out residual) over the group."""
        raise ValueError(
            "The intercept of this fit (trained, with terms chosen, or with an L1 penalty) is no "
            "linear function of the integrand"
        )


def check_sizes(family: LinearFamily, m: int, d: int, penalised: bool = True) -> None:
    """Refuse more terms that no penalty holds than the draws determine; `penalised`: whether a
    penalty holds the others."""
    free = family.split()[1] if penalised else family
    unpenalised = None if free is None else free.num_features(d)
    if unpenalised is not None and unpenalised + 1 > m:
        raise ValueError(
            f"{family.describe()} has {unpenalised} unpenalised terms and an intercept in d = {d}, "
            f"but there are only {m} distinct draws to fit. Use more draws, a lower degree, or a "
            "finite weight with a Ridge penalty"
        )


class Solver(ABC):
    """How θ is found, and declarations of what it can do, by which alone the library knows it.

    silent: whether it shows no progress and writes no files, so that several fits may run at once.
    scope: what it takes of draws in memory.
    moments_scope: what it takes where it fits from moments of features, which one pass over chunked
        draws gives; None if it does not.
    trains_on_windows: whether it trains on windows of chunked draws, within `scope`.
    """

    silent: ClassVar[bool] = False
    scope: ClassVar[Scope] = Scope(Families.ANY, (Penalty,), intercept=(Penalty,), ordered=True)
    moments_scope: ClassVar[Scope | None] = None
    trains_on_windows: ClassVar[bool] = False

    @abstractmethod
    def prepare(
        self, family: Family, objective: Objective, points: Points, seed: int = 0
    ) -> Prepared:
        """Do all that does not depend on the integrands, at distinct, standardised points; `seed`
        is for what is random."""

    def leaves_out(self, objective: Objective) -> bool:
        """Return whether leave-out residuals, and so an in-sample standard error, come in closed
        form."""
        return False

    def choose_features(
        self, family: LinearFamily, objective: Objective, points: Points, values: Values, seed: int
    ) -> LinearFamily:
        """Return the family whose features the moments are to be of, chosen on some standardised
        points, where the solver fits from moments."""
        return family

    def solve_moments(
        self, matrix: Float64[np.ndarray, "k k"], penalty: Float64[np.ndarray, " p"]
    ) -> MomentsFit:
        """Solve least squares with a free intercept and the penalty Σ penalty θ² a unit of weight,
        from Σ w z zᵀ with z = [1, features, integrands], where the solver fits from moments."""
        raise NotImplementedError(f"{type(self).__name__} does not fit from moments")

    def prepare_windows(
        self, family: Family, objective: Objective, points: Points, seed: int, windows: Windows
    ) -> Prepared:
        """Prepare to train on windows of draws that these points are a pilot of, where the solver
        does so."""
        raise NotImplementedError(f"{type(self).__name__} does not train on windows")

    def check(self, family: Family, objective: Objective, d: int) -> None:
        """Refuse a family in d dimensions, or an objective, that is outside its scope."""
        check_scope(type(self).__name__, self.scope, family, objective, d)
