"""A log density, a NumPyro or a PyMC model as one function of one flat draw, with the quantities on
their natural scale."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Float64

from ..errors import missing_package
from ..inputs.density import Constants
from ..inputs.integrands import DrawFunction, Tree, entry_name, leaves_by_path, run_in_double
from ..inputs.sample import as_float
from .base import copy_arrays
from .numpyro import numpyro_constants
from .pymc import dimension_labels, pymc_constants, pymc_in_jax


@dataclasses.dataclass(frozen=True, eq=False)
class FlatDensity:
    """A log density of d unconstrained numbers, and s starts for the search of its modes.

    `natural` takes one draw (d,) to what functions of the user see: the draw in its own structure,
    or a dict of all sites. `default`, a function too, gives the integrands where the user names
    none; None for the coordinates. `labels` are the names of its numbers, if they have some.
    `constants` says what is known of the constants of the log density.
    """

    log_density: DrawFunction
    starts: Float64[np.ndarray, "s d"]
    names: tuple[str, ...]
    natural: DrawFunction
    default: DrawFunction | None = None
    labels: tuple[str, ...] | None = None
    constants: Constants = dataclasses.field(default_factory=Constants)


def flat_density(
    model: Any, start: Any, args: Sequence[object] | None, kwargs: Mapping[str, object] | None
) -> FlatDensity:
    """Return that of a PyMC model, of a NumPyro model with its arguments, or of a JAX function and
    where it starts: a number of dimensions, an array (d,), or (s, d) for several, or a tree of
    arrays."""
    if type(model).__module__.split(".")[0] == "pymc":
        return _flatten_pymc(model)
    if not callable(model):
        raise ValueError(
            "log_density must be a JAX function of one draw, or a model; got "
            f"{type(model).__name__}"
        )
    if args is not None or kwargs is not None:
        args, kwargs = () if args is None else args, {} if kwargs is None else kwargs
        if not isinstance(args, (tuple, list)) or not isinstance(kwargs, Mapping):
            raise ValueError(
                "args must be a tuple and kwargs a dict, the data of a NumPyro model; got "
                f"{type(args).__name__} and {type(kwargs).__name__}"
            )
        return _flatten_numpyro(model, tuple(args), dict(kwargs))
    if isinstance(start, (int, np.integer)) and not isinstance(start, bool) and start > 0:
        start = np.zeros(int(start))
    if start is None or isinstance(start, (bool, int, float, str)):
        raise ValueError(
            "start must say how a draw looks: a number of dimensions, an array (d,), or a dict of "
            f"arrays; got {start!r}. "
            "For a NumPyro model give its arguments instead: integrate(model, args=(y,))"
        )
    start = jax.tree.map(lambda leaf: as_float("start", leaf), start)
    if not jax.tree.leaves(start):
        raise ValueError("start has no numbers: it must say how a draw looks")
    if isinstance(start, np.ndarray) and (start.ndim not in (1, 2) or not start.size):
        raise ValueError(
            "start must be (d,), (s, d) for several, or a dict of arrays; got an array of shape "
            f"{start.shape}"
        )
    if isinstance(start, np.ndarray) and start.ndim == 2:
        return dataclasses.replace(_flatten(model, start[0]), starts=start)
    return _flatten(model, start)


def _flatten(
    log_density: DrawFunction, start: Tree, natural: DrawFunction | None = None
) -> FlatDensity:
    """Return the density of a function of a tree; a leaf of several entries has names theta[0],
    theta[1]. `natural`, of such a tree, gives the integrands by default too."""
    if isinstance(start, np.ndarray):
        names = tuple(f"x{j}" for j in range(len(start)))
        return FlatDensity(log_density, start[None], names, lambda x: x)
    with jax.enable_x64(True):
        flat, back = ravel_pytree(start)
    names = tuple(
        entry_name(name, index)
        for name, leaf in leaves_by_path(start).items()
        for index in np.ndindex(np.shape(leaf))
    )
    show = back if natural is None else lambda x: natural(back(x))
    return FlatDensity(
        lambda x: log_density(back(x)),
        np.asarray(flat)[None],
        names,
        show,
        None if natural is None else show,
    )


def _flatten_numpyro(
    model: Callable[..., Any], args: tuple[object, ...], kwargs: dict[str, object]
) -> FlatDensity:
    try:
        from numpyro.infer.util import initialize_model
    except ImportError as error:
        raise missing_package("numpyro", "numpyro") from error

    args, kwargs = copy_arrays((args, kwargs))

    def initialise() -> Any:
        return initialize_model(jax.random.key(0), model, model_args=args, model_kwargs=kwargs)

    try:
        found = run_in_double("the model", initialise)
    except Exception as error:
        raise ValueError(
            f"log_density could not be run as a NumPyro model with args and kwargs: {error}. Leave "
            "them out if it is a function of one draw"
        ) from error
    if not found.param_info.z:
        raise ValueError(
            "log_density has no unobserved sites as a NumPyro model with args and kwargs. Leave "
            "them out if it is a function of one draw"
        )
    start = {name: np.asarray(site, np.float64) for name, site in found.param_info.z.items()}
    flat = _flatten(lambda z: -found.potential_fn(z), start, found.postprocess_fn)
    return dataclasses.replace(flat, constants=numpyro_constants(found.model_trace))


def _flatten_pymc(model: Any) -> FlatDensity:
    with pymc_in_jax(model) as as_function:
        shown = [*model.free_RVs, *model.deterministics]
        density = as_function(model.value_vars, [model.logp()])
        forward = as_function(model.value_vars, model.replace_rvs_by_values(shown))
        first = model.initial_point()
    order = [value.name for value in model.value_vars]
    names = [variable.name for variable in shown]

    def log_density(point: dict[str, Any]) -> Any:
        return density(*(point[name] for name in order))[0]

    def natural(point: dict[str, Any]) -> dict[str, Any]:
        return dict(zip(names, forward(*(point[name] for name in order)), strict=True))

    start = {name: np.asarray(first[name], np.float64) for name in order}
    flat = _flatten(log_density, start, natural)
    label = dimension_labels(model)

    def entries(shapes: dict[str, tuple[int, ...]]) -> tuple[str, ...]:
        return tuple(
            label(name, index) if index else name
            for name in sorted(shapes)  # as JAX has the entries of a dict
            for index in np.ndindex(shapes[name])
        )

    shapes = {name: np.shape(leaf) for name, leaf in start.items()}
    with jax.enable_x64(True):
        shown_shapes = {name: leaf.shape for name, leaf in jax.eval_shape(natural, start).items()}
    return dataclasses.replace(
        flat,
        names=entries(shapes),
        labels=entries(shown_shapes),
        constants=pymc_constants(model),
    )
