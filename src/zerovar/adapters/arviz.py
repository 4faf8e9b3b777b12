"""ArviZ: InferenceData (0.x) and DataTree (1.x), with gradients wherever the ecosystem puts
them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ..chunked import is_chunked
from ..inputs.sample import Posterior
from . import chunks
from .base import Labels, build_posterior, extra_values, label_entries, merge_values, named_entries
from .log_density import gradients

_ADVICE = (
    "Sample with nutpie.sample(…, store_gradient=True, store_unconstrained=True), or give "
    "log_density= or score=, "
    "or use zv.from_numpyro, zv.from_pymc, zv.from_bridgestan"
)


def from_arviz(
    data: Any,
    *,
    log_density: Callable[[Any], Any] | None = None,
    score: Callable[[Any], Any] | None = None,
    parameters: Sequence[str] | None = None,
    values: Mapping[str, Any] | None = None,
    group: str = "posterior",
) -> Posterior:
    """Draws, scores and all variables of an InferenceData (ArviZ 0.x) or DataTree (1.x).

    Unconstrained draws and gradients are taken from `sample_stats` (nutpie's `unconstrained_draw`
    and `gradient`). Without gradients, give one of log_density: a JAX function of one unconstrained
    draw, a dict of variables: those of the group `unconstrained_posterior` if
        there is one, else those of `posterior`, where a variable that is there transformed too
        (tau_log__) is taken so;
    score: its gradient, if you have it: a function of the same dict to a dict of the same names.
    parameters: the variables of `posterior` that the log density is one of, if it has others too
    (deterministic ones). values: more quantities, name → function of one draw (a dict of all
    variables of `posterior`), or array (chain, draw).

    Data that were opened with `chunks=` are not loaded: the posterior holds dask arrays, which
    `estimate` streams.
    """
    natural = dataset(data, group)
    stats = dataset(data, "sample_stats") if "sample_stats" in _groups(data) else {}
    chunked = is_chunked(natural) or is_chunked(stats)
    if log_density is not None and score is not None:
        raise ValueError("give log_density or score, not both")
    what, function = (
        ("score", score) if log_density is None else ("log_density", jax.grad(log_density))
    )
    if function is None:
        names = ["unconstrained_draw", "gradient"]
        has = [name for name in names if name in stats]
        if len(has) < len(names):
            found = f"only {has[0]}" if has else "neither"
            raise ValueError(
                f"sample_stats must have unconstrained_draw and gradient; it has {found}. {_ADVICE}"
            )
        arrays = (
            chunks.variables(stats, names)
            if chunked
            else {name: stacked_array(stats[name]) for name in names}
        )
        draws, scores = arrays.values()
        return Posterior(
            draws,
            scores,
            variable_values(natural, values, chunked),
            _parameter_names(stats[names[0]]),
        )
    held, names = _unconstrained(data, natural, parameters)
    if chunked:
        blocks = chunks.variables(held, names)
        draws, scores = chunks.concatenate(blocks), chunks.score_blocks(what, function, blocks)
        coordinates = tuple(named_entries({name: blocks[name] for name in sorted(blocks)}))
        return Posterior(draws, scores, variable_values(natural, values, chunked), coordinates)
    tree = {name: stacked_array(held[name]).astype(np.float64) for name in names}
    gradient = gradients(what, function, tree)
    if set(gradient) != set(tree):
        raise ValueError(
            f"score must return a dict with the names of its draw, {sorted(tree)}; got "
            f"{sorted(gradient)}"
        )
    return build_posterior(tree, gradient, variable_values(natural, values))


def dataset(data: Any, group: str) -> Any:
    """A group of an InferenceData or DataTree as an xarray Dataset."""
    groups = _groups(data)
    if group not in groups:
        others = f" with {', '.join(groups)}" if groups else ""
        raise ValueError(
            f"expected an InferenceData or DataTree with a group {group!r}; got "
            f"{type(data).__name__}{others}"
        )
    found = data[group]
    found = found.to_dataset() if hasattr(found, "to_dataset") else found  # a node of a DataTree
    if not {"chain", "draw"} <= set(found.dims):
        raise ValueError(
            f"group {group!r} must have the dimensions chain and draw; it has "
            f"{', '.join(map(str, found.dims))}"
        )
    return found


def variable_values(
    natural: Any, values: Mapping[str, Any] | None, chunked: bool = False
) -> Mapping[str, Any]:
    """All variables of a posterior by name, but for the transformed copies (tau_log__), and what
    the user adds."""
    names = [str(name) for name in natural if not str(name).endswith("__")]
    if chunked:
        return chunks.columns(chunks.variables(natural, names), _coordinate_labels(natural), values)
    kept = {name: stacked_array(natural[name]) for name in names}
    return merge_values(
        label_entries(kept, _coordinate_labels(natural)), extra_values(values, kept)
    )


def _parameter_names(unconstrained: Any) -> tuple[str, ...] | None:
    """Those of nutpie's unconstrained parameters, if they have names."""
    axis = next(dim for dim in unconstrained.dims if dim not in ("chain", "draw"))
    return tuple(map(str, unconstrained[axis].values)) if axis in unconstrained.coords else None


def _coordinate_labels(found: Any) -> Labels:
    """Entries called as ArviZ calls them, by their coordinates: theta[Choate]."""

    def label(name: str, index: tuple[int, ...]) -> str:
        variable = found[name]
        places = zip(
            (dim for dim in variable.dims if dim not in ("chain", "draw")), index, strict=True
        )
        labels = (variable[dim].values[i] if dim in variable.coords else i for dim, i in places)
        return f"{name}[{', '.join(map(str, labels))}]"

    return label


def _groups(data: Any) -> list[str]:
    if hasattr(data, "children"):  # a DataTree
        return [str(name) for name in data.children]
    if hasattr(data, "groups") and callable(data.groups):  # InferenceData
        return [str(name).strip("/") for name in data.groups()]
    return []


def stacked_array(variable: Any) -> np.ndarray:
    """A variable as an array (chain, draw, …)."""
    return np.asarray(variable.transpose("chain", "draw", ...))


def _unconstrained(
    data: Any, natural: Any, parameters: Sequence[str] | None
) -> tuple[Any, list[str]]:
    """A group, and the names of its variables that a log density is one of: all of
    `unconstrained_posterior` if there is one, else those of `posterior`, with the transformed in
    place of their originals."""
    if "unconstrained_posterior" in _groups(data):
        natural = dataset(data, "unconstrained_posterior")
        names = [str(name) for name in natural]
    elif parameters is not None:
        names = list(parameters)
        unknown = [name for name in names if name not in natural]
        if unknown:
            raise ValueError(
                f"parameters: {', '.join(unknown)} not among {', '.join(map(str, natural))}"
            )
    else:
        names = [str(name) for name in natural]
        # tau_log__ for tau, mu_sd_log__ for mu_sd and not mu
        for other in [name for name in names if name.endswith("__")]:
            originals = [name for name in names if name != other and other.startswith(f"{name}_")]
            names = [
                name
                for name in names
                if name != max(originals, key=len, default=other) or name == other
            ]
    return natural, names
