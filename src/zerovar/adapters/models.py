"""A log density, a NumPyro or a PyMC model as one function of one flat draw, with the quantities on
their natural scale."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Float64

from ..errors import missing_package
from ..inputs.integrands import entry_name, leaves_by_path
from .base import discrete_error
from .pymc import keep_precision


@dataclasses.dataclass(frozen=True, eq=False)
class FlatDensity:
    """A log density of d unconstrained numbers, and s starts for the search of its modes.

    `natural` takes one draw (d,) to what functions of the user see: the draw in its own structure,
    or a dict of all sites. `default`, a function too, gives the integrands where the user names
    none; None for the coordinates.
    """

    log_density: Callable[[Any], Any]
    starts: Float64[np.ndarray, "s d"]
    names: tuple[str, ...]
    natural: Callable[[Any], Any]
    default: Callable[[Any], Any] | None = None


def flat_density(
    model: Any, start: Any, args: tuple[Any, ...] | None, kwargs: Mapping[str, Any] | None
) -> FlatDensity:
    """Of a PyMC model, of a NumPyro model with its arguments, or of a JAX function and where it
    starts: a number of dimensions, an array (d,), or (s, d) for several, or a tree of arrays."""
    if type(model).__module__.split(".")[0] == "pymc":
        return _of_pymc(model)
    if not callable(model):
        raise ValueError(
            "log_density must be a JAX function of one draw, or a model; got "
            f"{type(model).__name__}"
        )
    if args is not None or kwargs is not None:
        return _of_numpyro(
            model, () if args is None else tuple(args), {} if kwargs is None else dict(kwargs)
        )
    if isinstance(start, (int, np.integer)) and not isinstance(start, bool) and start > 0:
        start = np.zeros(int(start))
    if start is None or isinstance(start, (bool, int, float, str)):
        raise ValueError(
            "start must say how a draw looks: a number of dimensions, an array (d,), or a dict of "
            f"arrays; got {start!r}. "
            "For a NumPyro model give its arguments instead: integrate(model, args=(y,))"
        )
    start = jax.tree.map(lambda leaf: np.asarray(leaf, dtype=np.float64), start)
    if isinstance(start, np.ndarray) and (start.ndim not in (1, 2) or not start.size):
        raise ValueError(
            "start must be (d,), (s, d) for several, or a dict of arrays; got an array of shape "
            f"{start.shape}"
        )
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(start)):
        raise ValueError("start must be finite; got NaN or infinite entries")
    if isinstance(start, np.ndarray) and start.ndim == 2:
        return dataclasses.replace(_flat(model, start[0]), starts=start)
    return _flat(model, start)


def _flat(log_density: Callable[[Any], Any], start: Any, **natural: Any) -> FlatDensity:
    """Of a function of a tree; a leaf of several entries has names theta[0], theta[1]."""
    with jax.enable_x64(True):
        flat, back = ravel_pytree(start)
    plain = isinstance(start, np.ndarray)
    names = [
        f"x{index[0]}" if plain else entry_name(name, index)
        for name, leaf in leaves_by_path(start).items()
        for index in np.ndindex(np.shape(leaf))
    ]
    if plain:
        return FlatDensity(
            log_density, np.asarray(flat)[None], tuple(names), lambda x: x, **natural
        )
    given = natural.pop("natural", None)
    show = back if given is None else lambda x: given(back(x))
    return FlatDensity(
        lambda x: log_density(back(x)), np.asarray(flat)[None], tuple(names), show, **natural
    )


def _of_numpyro(
    model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> FlatDensity:
    try:
        from numpyro.infer.util import initialize_model
    except ImportError as error:
        raise missing_package("numpyro", "numpyro") from error

    with jax.enable_x64(True):
        found = initialize_model(jax.random.key(0), model, model_args=args, model_kwargs=kwargs)
    start = {name: np.asarray(site, np.float64) for name, site in found.param_info.z.items()}
    flat = _flat(lambda z: -found.potential_fn(z), start, natural=found.postprocess_fn)
    return dataclasses.replace(flat, default=flat.natural)


def _of_pymc(model: Any) -> FlatDensity:
    with keep_precision():
        try:
            from pymc.sampling.jax import get_jaxified_graph
        except ImportError as error:
            raise missing_package("PyMC", "pymc") from error

        discrete = [
            variable.name
            for variable in model.free_RVs
            if variable.dtype.startswith(("int", "uint", "bool"))
        ]
        if discrete:
            raise discrete_error("variables", discrete)
        shown = [*model.free_RVs, *model.deterministics]
        density = get_jaxified_graph(inputs=model.value_vars, outputs=[model.logp()])
        forward = get_jaxified_graph(
            inputs=model.value_vars, outputs=model.replace_rvs_by_values(shown)
        )
        first = model.initial_point()
    order = [value.name for value in model.value_vars]
    start = {name: np.asarray(first[name], np.float64) for name in order}

    def natural(point: dict[str, Any]) -> dict[str, Any]:
        return dict(
            zip(
                (variable.name for variable in shown),
                forward(*(point[name] for name in order)),
                strict=True,
            )
        )

    flat = _flat(lambda point: density(*(point[name] for name in order))[0], start, natural=natural)
    return dataclasses.replace(flat, default=flat.natural)
