"""The pieces that every solver shares: the problem it is given, the factorisation it makes, the fit that comes out."""

from __future__ import annotations

import dataclasses
import enum
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64, Int
from scipy.linalg import lapack

from ..families import Family, LinearFamily
from ..objectives import Objective
from .terms import Term

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
    DIVERGED = (
        "training diverged: the loss grew or became infinite (stats['loss'] has its curve). Lower learning_rate, use a larger "
        "batch_size, or give clip=1.0"
    )
    STALLED = (
        "conjugate gradients stopped before they converged; the control variate is valid, but not the best "
        "(stats['error_left'] estimates how far its intercept is from the exact fit's, in standard errors). "
        "Raise max_iterations, rank or the Ridge, or use solver=Exact(centres=…)"
    )
    INTERRUPTED = "the fit was interrupted; the best so far was taken (stats['epochs'] or ['iterations'] says how far it came)"

    @property
    def failed(self) -> bool:
        return self in (Result.COLLINEAR, Result.SINGULAR, Result.DIVERGED)


class ChainOrder(NamedTuple):
    """The chain that distinct draws were merged from."""

    group: Int[np.ndarray, " n"]  # the distinct draw that each draw of the chain is
    stretch: Int[np.ndarray, " n"]  # rows of one number follow each other without a gap


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
    """Intercept (q,) and the terms whose sum is g; and the family, where the solver changed its hyper-parameters."""

    intercept: Float64[np.ndarray, " q"]
    terms: tuple[Term, ...]
    family: Family | None = None


class Prepared(ABC):
    """What is computed once a family and sample, and then serves any integrands; `result` and `stats` are of the last solve."""

    result: Result
    stats: dict[str, Any]

    @abstractmethod
    def solve(self, values: Values, ridge: float | None = None) -> Solution:
        """Coefficients for these values; another `ridge` than the one factorised for, where the factorisation serves any."""

    def leave_out(self, values: Values, groups: Groups | None, ridge: float | None = None) -> Values:
        """f − c − g at every draw, from the fit that leaves its group out; `groups` partitions the rows, None is one each."""
        raise ValueError(
            "This fit (trained, or with an L1 penalty) has no closed-form leave-one-out residuals, so in_sample() has no "
            "honest standard error for it. Use split=cross_fit() or holdout()"
        )

    def intercept_weights(self, ridge: float | None = None) -> Float64[np.ndarray, " m"]:
        """w with c = Σ w f: leaving a group of draws out moves the intercept by Σ w · (leave-out residual) over the group."""
        raise ValueError("The intercept of this fit (trained, or with an L1 penalty) is no linear function of the integrand")


def solve_group(block: np.ndarray, right: np.ndarray, otherwise: np.ndarray, smallest: float = 0.0) -> np.ndarray:
    """block⁻¹ right for the positive block of a group that is left out, or `otherwise` where it is singular.

    It is singular when the remaining draws do not determine the fit. Nothing can then be predicted for the group, and its
    residuals are those without a control variate, the honest large ones.
    """
    factor, info = lapack.dpotrf(block, lower=1)
    if info or factor.diagonal().min() ** 2 < smallest:
        return otherwise
    return lapack.dpotrs(factor, right, lower=1)[0]


def packed(groups: Groups, most: int) -> Iterator[tuple[np.ndarray, list[slice]]]:
    """Whole groups together, up to `most` rows or one group: their row numbers, and where each group is among them."""
    waiting: list[np.ndarray] = []
    for k, group in enumerate(groups):
        waiting.append(group)
        if k + 1 == len(groups) or sum(map(len, waiting)) + len(groups[k + 1]) > most:
            ends = np.cumsum([0, *map(len, waiting)])
            yield np.concatenate(waiting), [slice(*pair) for pair in pairwise(ends)]
            waiting = []


def check_sizes(family: LinearFamily, unpenalised: int | None, m: int, d: int) -> None:
    """That so many terms, which no penalty holds, and the intercept are determined."""
    if unpenalised is not None and unpenalised + 1 > m:
        raise ValueError(
            f"{family.describe()} has {unpenalised} unpenalised terms and an intercept in d = {d}, but there are only {m} "
            "distinct draws to fit. Use more draws, a lower degree, or a finite weight with a Ridge penalty"
        )


def check_sparse(family: LinearFamily | None, d: int) -> None:
    """That an L1 penalty makes sense; None stands for what is not linear."""
    if family is None or family.num_features(d) is None or family.split()[1] is not None:
        raise ValueError("L1 needs a family with features, all of them penalised: a Polynomial with finite weights")


def only_its_own_ridge(ridge: float | None) -> None:
    """For factorisations that serve one ridge."""
    if ridge is not None:
        raise ValueError(
            "another ridge on the same factorisation needs solver=Exact(spectral=True); this fit was factorised for one ridge"
        )


class Solver(ABC):
    """How θ is found."""

    @abstractmethod
    def prepare(
        self,
        family: Family,
        objective: Objective,
        x: np.ndarray,
        s: np.ndarray,
        probabilities: np.ndarray,
        seed: int = 0,
        order: ChainOrder | None = None,
    ) -> Prepared:
        """Everything that does not depend on the integrands; x, s standardised. `seed` is for whatever is random, `order` for
        objectives that depend on how the draws follow each other."""

    def leaves_out(self, objective: Objective) -> bool:
        """Whether leave-out residuals, and so an in-sample standard error, come in closed form."""
        return False
