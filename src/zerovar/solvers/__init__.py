"""Solvers: how the parameters of a family are found.

A solver prepares what does not depend on the integrands, and what it prepares then solves for any
of them. `exact` factorises, `iterative` multiplies, `training` takes random batches, `screening`
chooses terms; `algebra` is what they share, `default` chooses among them by cost.
"""

from .base import MomentsFit as MomentsFit
from .base import Prepared as Prepared
from .base import Problem as Problem
from .base import Result as Result
from .base import Solution as Solution
from .base import Solver as Solver
from .default import any_ridge_solver as any_ridge_solver
from .default import default_solver as default_solver
from .default import default_streamed_solver as default_streamed_solver
from .exact.solver import Exact as Exact
from .exact.solver import Nystrom as Nystrom
from .exact.solver import Spectral as Spectral
from .iterative.solver import CG as CG
from .scope import Families as Families
from .scope import Scope as Scope
from .screening.solver import Screening as Screening
from .stats import FitStats as FitStats
from .terms import LinearTerm as LinearTerm
from .terms import NetworkTerm as NetworkTerm
from .terms import Term as Term
from .training.solver import SGD as SGD
from .training.solver import DualSGD as DualSGD
