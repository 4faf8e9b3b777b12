"""Solvers: how the parameters of a family are found."""

from .base import Prepared as Prepared
from .base import Result as Result
from .base import Solution as Solution
from .base import Solver as Solver
from .cg import CG as CG
from .choice import default_solver as default_solver
from .exact import Exact as Exact
from .sgd import SGD as SGD
