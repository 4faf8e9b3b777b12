"""Solvers: how the parameters of a family are found.

A solver prepares what does not depend on the integrands, and what it prepares then solves for any
of them. `exact` factorises, `iterative` multiplies, `training` takes random batches, `screening`
chooses terms; `algebra` is what they share, `default` chooses among them by cost.
"""

from .base import MomentsFit, Prepared, Problem, Result, Solution, Solver
from .default import any_ridge_solver, default_solver, default_streamed_solver
from .exact.solver import Exact, Nystrom, Spectral
from .iterative.solver import CG
from .scope import Families, Scope
from .screening.solver import Screening
from .stats import FitStats
from .terms import LinearTerm, NetworkTerm, Term
from .training.solver import SGD, DualSGD

__all__ = [
    "CG",
    "SGD",
    "DualSGD",
    "Exact",
    "Families",
    "FitStats",
    "LinearTerm",
    "MomentsFit",
    "NetworkTerm",
    "Nystrom",
    "Prepared",
    "Problem",
    "Result",
    "Scope",
    "Screening",
    "Solution",
    "Solver",
    "Spectral",
    "Term",
    "any_ridge_solver",
    "default_solver",
    "default_streamed_solver",
]
