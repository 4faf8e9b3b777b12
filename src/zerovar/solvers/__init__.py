"""Solvers: how the parameters of a family are found."""

from .base import Factorisation as Factorisation
from .base import Result as Result
from .base import Solution as Solution
from .base import Solver as Solver
from .exact import Exact as Exact
