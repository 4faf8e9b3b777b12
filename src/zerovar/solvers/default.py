"""Which solver, where the user names none: by what each would cost.

The exact solution is the answer wherever it can be had: it has leave-out residuals in closed form.
Conjugate gradients come next, and training at centres, which costs a few passes over the draws
whatever their number, where neither fits into memory or patience. Rates are those of one core, or
one accelerator; `benchmarks/scale.py` measures them, and the choice.
"""

import os
from typing import NamedTuple

from ..families import Family, LinearFamily
from ..inputs.integrands import KEPT
from ..objectives import Objective, Ridge
from .algebra.memory import ACCELERATOR, CORE, on_host, room
from .base import Solver
from .exact.solver import Exact, Spectral, primal_is_smaller
from .iterative.solver import CG
from .screening.solver import Screening
from .training.solver import SGD

PATIENCE = 900.0  # seconds that an exact fit may take before a rougher one is preferred
# of conjugate gradients: 15 to 50 at ridges from 1e-4 to 1e-6 of the mean diagonal
_ITERATIONS = 40


class Cost(NamedTuple):
    """What a fit would take."""

    seconds: float
    bytes: float

    @property
    def affordable(self) -> bool:
        return self.seconds < PATIENCE and self.bytes < room()


def default_solver(family: Family, m: int, d: int, q: int, objective: Objective) -> Solver:
    """Return the solver for m draws in d dimensions and q integrands."""
    if not isinstance(family, LinearFamily):
        return SGD()
    if family.chooses_monomials:
        return Screening()
    exact, iterative = (
        exact_cost(family, m, d, bool(objective.total(Ridge))),
        cg_cost(family, m, d, q),
    )
    if exact.affordable or not objective.total(Ridge):
        return Exact() if exact.affordable or family.num_features(d) is not None else SGD()
    return CG() if iterative.affordable else SGD()


def default_streamed_solver(family: Family) -> Solver:
    """Return the solver for chunked draws, of which only moments and windows are to be had."""
    if not isinstance(family, LinearFamily):
        return SGD()
    return Screening() if family.chooses_monomials else Exact()


def any_ridge_solver() -> Solver:
    """Return the solver of which one factorisation serves every ridge."""
    return Spectral()


def exact_cost(family: LinearFamily, m: int, d: int, ridge: bool) -> Cost:
    """Return what an exact fit would take."""
    rate, p = _rates(), family.num_features(d)
    dual = Cost(m**3 / 3 / rate["multiply"] + m**2 / 2 / rate["pair"], 8.0 * m**2)
    if p is None:
        return dual
    primal = Cost((m * p**2 + p**3 / 3) / rate["multiply"], 8.0 * (p**2 + min(m * p, KEPT)))
    return primal if primal_is_smaller(p, m, ridge) else dual


def cg_cost(family: LinearFamily, m: int, d: int, q: int) -> Cost:
    """Return what conjugate gradients would take."""
    rate, work, kept = _rates(), family.work(d), 8.0 * m**2
    if kept < room():
        dual = Cost(_ITERATIONS * 2 * m**2 * (q + 2) / rate["stream"] + m**2 / rate["pair"], kept)
    else:
        dual = Cost(_ITERATIONS * m**2 / rate["pair"], 8.0 * m * 2000)
    if work is None:
        return dual
    return min(dual, Cost(_ITERATIONS * 4 * m * work * (q + 1) / rate["multiply"], 8.0 * m * d))


def _rates() -> dict[str, float]:
    """Return what this machine does a second."""
    if not on_host():
        return ACCELERATOR
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return {name: cores * rate for name, rate in CORE.items()}
