"""What the log density of a PyMC model is made of."""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import numpy as np

from ..inputs.integrands import Tree
from ..inputs.terms import Terms


def pymc_terms(model: Any, draw: np.ndarray, unravel: Callable[[jax.Array], Tree]) -> Terms:
    """Return the terms of a model; its arguments are its data containers, `pm.Data`. `unravel`
    gives the value variables of a draw (d,)."""
    if some := find_minibatches(model):
        raise ValueError(f"the likelihood cannot be told apart: {some[0]}")
    free, observed, factors = model.free_RVs, model.observed_RVs, model.potentials
    every, shown = [*free, *observed, *factors], [*free, *model.deterministics]
    data = {one.name: one for one in model.data_vars}
    values = {name: np.asarray(one.get_value()) for name, one in data.items()}

    @functools.cache
    def compile_terms() -> Callable[..., Any]:
        return _in_jax(model, model.logp(every, jacobian=False, sum=False), [])

    @functools.cache
    def compile_density(names: tuple[str, ...]) -> Callable[..., Any]:
        return _in_jax(model, [model.logp()], [data[name] for name in names])

    @functools.cache
    def natural_graphs() -> list[Any]:
        return model.replace_rvs_by_values(shown)

    @functools.cache
    def compile_natural(names: tuple[str, ...]) -> Callable[..., Any]:
        return _in_jax(model, natural_graphs(), [data[name] for name in names])

    def complete(new: Mapping[str, Any]) -> dict[str, Any]:
        """Return the data that a program takes: one serves for all that have derivatives."""
        smooth = {name: one for name, one in values.items() if one.dtype.kind == "f"}
        return dict(sorted((smooth | dict(new)).items()))

    def point(x: Any) -> list[Any]:
        draw = unravel(x)
        return [draw[value.name] for value in model.value_vars]

    def at(x: Any) -> dict[str, Any]:
        found = compile_terms()(*point(x))
        return {one.name: value for one, value in zip(every, found, strict=True)}

    def log_density(x: Any, new: Mapping[str, Any]) -> jax.Array:
        given = complete(new)
        return compile_density(tuple(given))(*point(x), *given.values())[0]

    def natural(x: Any, new: Mapping[str, Any]) -> dict[str, Any]:
        given = complete(new)
        found = compile_natural(tuple(given))(*point(x), *given.values())
        return {one.name: value for one, value in zip(shown, found, strict=True)}

    def moves(name: str) -> tuple[str, ...]:
        pairs = zip(shown, natural_graphs(), strict=True)
        return tuple(one.name for one, graph in pairs if data[name] in _ancestors([graph]))

    return Terms(
        tuple(one.name for one in free),
        tuple(one.name for one in observed),
        tuple(one.name for one in free if not _ancestors(one.owner.inputs) & set(free)),
        tuple(one.name for one in factors),
        at,
        values,
        log_density,
        natural,
        moves,
    )


def find_minibatches(model: Any) -> list[str]:
    """Say which observed variables are seen a part at a time."""
    return [
        f"{one.name} takes some of its data at a time"
        for one in model.observed_RVs
        if "Minibatch" in type(one.owner.op).__name__
    ]


def _in_jax(model: Any, graphs: list[Any], data: list[Any]) -> Callable[..., Any]:
    """Return graphs as a function of the value variables and of some data, in JAX."""
    from pytensor.graph.replace import clone_replace

    # of known shapes, as JAX needs them
    given = {one: one.type.clone(shape=np.shape(one.get_value()))(name=one.name) for one in data}
    return jaxify(
        [*model.value_vars, *given.values()], clone_replace(graphs, given) if given else graphs
    )


def jaxify(inputs: list[Any], graphs: list[Any]) -> Callable[..., Any]:
    """Return PyTensor's graphs as a function in JAX, which may be kept: its constants are arrays
    even where it is made while something else is traced."""
    # not by pymc_in_jax, which would restore the precision of whoever traces this
    from pymc.sampling.jax import get_jaxified_graph

    with jax.ensure_compile_time_eval():
        return get_jaxified_graph(inputs, graphs)


def _ancestors(graphs: Iterable[Any]) -> set[Any]:
    """Return the variables that graphs are made of, themselves too."""
    found: set[Any] = set()
    ahead = list(graphs)
    while ahead:
        if (one := ahead.pop()) not in found:
            found.add(one)
            ahead += one.owner.inputs if one.owner is not None else []
    return found
