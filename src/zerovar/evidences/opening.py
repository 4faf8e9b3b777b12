"""Draws and the log density that they were taken from, as a user gives them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from ..adapters.log_density import from_log_density
from ..adapters.recognition import draws_in_chains, posterior_in_memory, recognise
from ..errors import NumericalError
from ..inputs.density import Density
from ..inputs.integrands import DrawFunction, InSingleOnly, Returned, insist_on_double
from ..inputs.sample import Posterior, require_reals


def open_density(data: Any, log_density: DrawFunction | None) -> tuple[Posterior, Density]:
    """Return the draws and their log density, a function of one draw that was given before that
    of an adapter; or say what is missing, or why its integral means nothing."""
    if log_density is None and isinstance(data, np.ndarray):
        raise ValueError(
            "data is an array: give log_density too, a JAX function of one draw (d,), with all its "
            "constants"
        )
    if log_density is not None and recognise(data) is None:
        data = from_log_density(log_density, draws_in_chains(data), chain_axis=0)
    posterior = posterior_in_memory(data)
    require_reals(posterior, "log Z")
    if log_density is not None:
        posterior = dataclasses.replace(posterior, density=Density(log_density, lambda x: x))
    density = posterior.density
    if density is None:
        raise ValueError(
            "this needs the log density itself, and these draws came without: use an adapter that "
            "has it (zv.from_numpyro, zv.from_pymc, zv.from_bridgestan, zv.from_log_density), or "
            "give log_density=, a JAX function of one unconstrained draw"
        )
    if meaningless := density.constants().meaningless:
        raise ValueError(
            f"log Z of this model means nothing: {'; '.join(meaningless)}. Run it with all its data"
        )
    return posterior, density


def require_double(run: Callable[[], Returned]) -> Returned:
    """Return `run()`, which evaluates a log density, in double precision, or raise an error."""
    try:
        return insist_on_double(run)
    except InSingleOnly as single:
        raise NumericalError(
            "the log density can be evaluated in single precision alone, whose seven digits are "
            f"too few for log Z: {single}. Let it keep the precision of its argument"
        ) from None
