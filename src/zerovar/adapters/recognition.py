"""What a user gives in place of arrays: by the adapter of its kind, or the name of the one that
must be told more."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..arguments import show
from ..chunked import is_chunked
from ..inputs.sample import Posterior, as_float
from .arviz import from_arviz
from .base import check_chains, label_entries
from .blackjax import from_blackjax
from .chunks import fetch_posterior
from .numpyro import from_numpyro

_ADVICE = {  # by the package that a class comes from
    "cmdstanpy": "zv.from_cmdstan(diagnostic_files, output_files), with its files",
    "bridgestan": "zv.from_bridgestan(model, draws)",
    "pymc": "zv.from_pymc(model, trace)",
    "emcee": "zv.from_log_density(log_density, sampler.get_chain(), chain_axis=1)",
    "zeus": "zv.from_log_density(log_density, sampler.get_chain(), chain_axis=1)",
    "tensorflow_probability": "zv.from_log_density(log_density, draws)",
}


def recognise(data: Any) -> Posterior | None:
    """Return the posterior of what a user gives: a `Posterior`, NumPyro's MCMC after its run, an
    InferenceData or DataTree with gradients, one chain of BlackJAX's states; None for arrays and
    what else may be one."""
    if isinstance(data, Posterior):
        return data
    package = type(data).__module__.split(".")[0]
    if package == "numpyro":
        return from_numpyro(data)
    if package in ("arviz", "arviz_base", "xarray") and (
        hasattr(data, "children") or hasattr(data, "groups")
    ):
        return from_arviz(data)
    if package != "dask" and hasattr(data, "position") and hasattr(data, "logdensity"):
        return from_blackjax(data)
    if isinstance(data, Mapping):
        raise ValueError(
            f"data is a {type(data).__name__} of draws without scores, the gradients of the log "
            "density that control variates are made of. Pass mcmc, NumPyro's MCMC after its run, "
            "in place of mcmc.get_samples(); zv.from_log_density(log_density, draws) computes "
            "scores"
        )
    if package in _ADVICE:
        raise ValueError(
            f"a {package} {type(data).__name__} does not have all that is needed. Use "
            f"{_ADVICE[package]}"
        )
    return None


def posterior_in_memory(data: Any) -> Posterior:
    """Return the posterior of what a user gives, its arrays in memory and its quantities named, or
    say what is expected."""
    posterior = recognise(data)
    if posterior is None:
        raise ValueError(
            "data must be an adapter's Posterior, NumPyro's MCMC after its run, or an "
            f"InferenceData or DataTree with gradients; got {type(data).__name__}. For arrays: "
            "zv.Posterior(draws, scores, values)"
        )
    return name_values(posterior)


def draws_in_chains(data: Any) -> np.ndarray:
    """Return an array of draws as (chain, draw, d), or say what is expected."""
    try:
        array = as_float("data", data, power=4)
        if array.ndim in (2, 3) and array.size:
            return array.reshape(-1, *array.shape[-2:])
        found = f"an array of shape {array.shape}"
    except ValueError as error:
        found = f"{show(data)}: {error}"
    raise ValueError(
        "data must be what an adapter returns, NumPyro's MCMC after its run, or finite draws "
        f"(n, d) or (chain, draw, d) with log_density; got {found}"
    )


def name_values(posterior: Posterior) -> Posterior:
    """Return a posterior in memory, with a named number of each draw for every entry of its values,
    which are the draws if there are none."""
    posterior = fetch_posterior(posterior) if is_chunked(posterior.draws) else posterior
    shape = (1, *np.shape(posterior.draws)[:-1])[-2:]
    values = np.reshape(posterior.draws, (*shape, -1))
    values = values if posterior.values is None else posterior.values
    named = values if isinstance(values, Mapping) else {"x": values}
    if not named:
        raise ValueError("the posterior has no values: leave them None for the draws themselves")
    arrays = {}
    for name, entry in named.items():
        array = np.asarray(entry)
        arrays[name] = array.reshape(shape) if array.size == math.prod(shape) else array
        check_chains(name, arrays[name].shape, shape)
    return dataclasses.replace(posterior, values=label_entries(arrays))
