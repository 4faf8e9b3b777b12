"""Solvers: how the parameters of a family are found."""

from .base import Prepared as Prepared
from .base import Result as Result
from .base import Solution as Solution
from .base import Solver as Solver
from .exact import Exact as Exact
from .sgd import SGD as SGD
