"""PyMC: the model and its trace, through JAX."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax

from ..errors import missing_package
from ..inputs.coordinates import Coordinates
from ..inputs.sample import Posterior
from .arviz import dataset, stacked_array, variable_values
from .base import discrete_error, map_chains, named_entries, offer_maps, ravel


def from_pymc(
    model: Any,
    idata: Any,
    *,
    values: Mapping[str, Any] | None = None,
    coordinates: Mapping[str, Any] | None = None,
) -> Posterior:
    """Draws and scores of a PyMC model's trace, whichever sampler made it.

    model: the `pm.Model`; idata: its trace, InferenceData or DataTree, with a group `posterior`
    that has every free variable. values: more quantities, name → function of one draw (a dict of
    all variables of the posterior), or array (chain, draw). coordinates: name → other coordinates
    to try, as in `zv.from_log_density`; a function takes a dict of the model's value
        variables, on the unconstrained scale, such as tau_log__.

    The model's log density is compiled to JAX and differentiated at every draw on the unconstrained
    scale. A trace by nutpie with `store_gradient=True, store_unconstrained=True` has all this
    already: use `zv.from_arviz(idata)`.
    """
    posterior = dataset(idata, "posterior")
    with keep_precision():
        try:
            from pymc.sampling.jax import get_jaxified_graph
            from pytensor.graph.replace import clone_replace
        except ImportError as error:
            raise missing_package("PyMC", "pymc") from error

        free = model.free_RVs
        discrete = [
            variable.name for variable in free if variable.dtype.startswith(("int", "uint", "bool"))
        ]
        if discrete:
            raise discrete_error("variables", discrete)
        absent = [variable.name for variable in free if variable.name not in posterior]
        if absent:
            raise ValueError(
                f"the posterior lacks the model's free variables {', '.join(absent)}; it has "
                f"{list(posterior)}"
            )

        pairs = [(variable, model.rvs_to_transforms[variable]) for variable in free]
        unconstrained = [
            x if change is None else change.forward(x, *x.owner.inputs) for x, change in pairs
        ]
        # numbers in place of random variables
        given = [variable.type(name=variable.name) for variable in free]
        forward = get_jaxified_graph(
            given, clone_replace(unconstrained, dict(zip(free, given, strict=True)))
        )
        density = get_jaxified_graph(inputs=model.value_vars, outputs=[model.logp()])
        with jax.enable_x64(True):
            draws = map_chains(
                lambda xs: list(forward(*xs)),
                [stacked_array(posterior[variable.name]) for variable in free],
            )
            scores = map_chains(jax.grad(lambda xs: density(*xs)[0]), draws)
    names = [value.name for value in model.value_vars]
    entries = named_entries(dict(zip(names, draws, strict=True)))
    found = offer_maps(_of_dict(coordinates, names), draws)
    wanted = variable_values(posterior, values)
    return Posterior(ravel(draws), ravel(scores), wanted, tuple(entries), coordinates=found)


def _of_dict(coordinates: Mapping[str, Any] | None, names: list[str]) -> Mapping[str, Any] | None:
    """Functions of a dict as functions of a list in the model's order."""
    if not isinstance(coordinates, Mapping):
        return coordinates

    def of_list(function: Any) -> Any:
        if isinstance(function, Coordinates) or not callable(function):
            return function

        def in_order(draw: list[Any]) -> list[Any]:
            out = function(dict(zip(names, draw, strict=True)))
            return [out[name] for name in names]

        return in_order

    return {name: of_list(function) for name, function in coordinates.items()}


@contextmanager
def keep_precision() -> Iterator[None]:
    """PyTensor's JAX backend turns double precision on for the whole process when it is imported;
    the choice is the user's."""
    before = jax.config.read("jax_enable_x64")
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)
