"""ArviZ: InferenceData (0.x) and DataTree (1.x), with gradients wherever the ecosystem puts
them."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ..arguments import MORE_VALUES, NAMES, OF_A_DRAW, instance, takes, where
from ..chunked import is_chunked
from ..inputs.integrands import DrawFunction, entry_name
from ..inputs.sample import Posterior
from . import chunks
from .base import (
    Labels,
    build_posterior,
    check_score,
    density_of,
    extra_values,
    label_entries,
    merge_values,
    named_entries,
)
from .log_density import gradients

_ADVICE = (
    "Sample with nutpie.sample(…, store_gradient=True, store_unconstrained=True), or give "
    "log_density= or score=, or use zv.from_numpyro, zv.from_pymc, zv.from_bridgestan"
)


def _groups(data: Any) -> list[str]:
    if hasattr(data, "children"):  # a DataTree
        return [str(name) for name in data.children]
    if hasattr(data, "groups") and callable(data.groups):  # InferenceData
        return [str(name).strip("/") for name in data.groups()]
    return []


TREE = where("an InferenceData or DataTree with groups", lambda data: bool(_groups(data)))


@takes(
    data=TREE,
    log_density=OF_A_DRAW,
    score=OF_A_DRAW,
    parameters=NAMES,
    values=MORE_VALUES,
    group=instance(str, "the name of a group"),
)
def from_arviz(
    data: Any,
    *,
    log_density: DrawFunction | None = None,
    score: DrawFunction | None = None,
    parameters: Sequence[str] | None = None,
    values: Mapping[str, object] | None = None,
    group: str = "posterior",
) -> Posterior:
    """Return draws, scores and all variables of an InferenceData (ArviZ 0.x) or DataTree (1.x).

    Unconstrained draws and gradients are taken from `sample_stats` (nutpie's `unconstrained_draw`
    and `gradient`). Without gradients, give one of
    log_density: a JAX function of one unconstrained draw, a dict of variables: those of the group
        `unconstrained_posterior` if there is one, else those of `posterior`, where a variable that
        is there transformed too (tau_log__) is taken so;
    score: its gradient, if you have it: a function of the same dict to a dict of the same names.
    parameters: the variables of `posterior` that the log density is one of, if it has others too
        (deterministic ones).
    values: more quantities, name → function of one draw (a dict of all variables of `posterior`),
        or array (chain, draw).

    Data that were opened with `chunks=` are not loaded: the posterior holds dask arrays, which
    `estimate` streams.
    """
    natural = dataset(data, group)
    stats = dataset(data, "sample_stats") if "sample_stats" in _groups(data) else {}
    chunked = is_chunked(natural) or is_chunked(stats)
    wanted, diverged = variable_values(natural, values, chunked), count_divergences(data)
    if log_density is not None and score is not None:
        raise ValueError("give log_density or score, not both")
    if log_density is None and score is None:
        names = ["unconstrained_draw", "gradient"]
        has = [name for name in names if name in stats]
        if len(has) < len(names):
            found = f"only {has[0]}" if has else "neither"
            raise ValueError(
                f"sample_stats must have unconstrained_draw and gradient; it has {found}. {_ADVICE}"
            )
        draws, scores = stack_variables(stats, names, chunked).values()
        labels = _parameter_names(stats[names[0]])
        return Posterior(draws, scores, wanted, labels, from_model=True, divergences=diverged)
    what = "score" if log_density is None else "log_density"
    function = score if log_density is None else jax.grad(log_density)
    assert function is not None
    tree = stack_variables(*_find_unconstrained(data, natural, parameters), chunked)
    if chunked:
        draws, scores = chunks.concatenate(tree), chunks.score_blocks(what, function, tree)
        labels = tuple(named_entries(dict(sorted(tree.items()))))
        return Posterior(
            draws, scores, wanted, labels, from_model=score is None, divergences=diverged
        )
    tree = {name: array.astype(np.float64) for name, array in tree.items()}
    slopes = gradients(what, function, tree)
    check_score(slopes, tree)
    known = None
    if log_density is not None:
        # variables that are not transformed are known as functions of the draw
        same = [
            name
            for name, array in tree.items()
            if name in natural and np.array_equal(array, stack_variables(natural, [name])[name])
        ]
        known = density_of(
            tree,
            log_density,
            lambda draw: {name: draw[name] for name in same},
            labels=axis_labels(natural),
        )
    posterior = build_posterior(tree, slopes, wanted, from_model=score is None, density=known)
    return dataclasses.replace(posterior, divergences=diverged)


def dataset(data: Any, group: str) -> Any:
    """Return a group of an InferenceData or DataTree as an xarray Dataset."""
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


def count_divergences(data: Any) -> int:
    """Return how many of the sampler's transitions diverged, as far as the data tell."""
    stats = data["sample_stats"] if "sample_stats" in _groups(data) else {}
    return int(np.asarray(stats["diverging"].sum())) if "diverging" in stats else 0


def variable_values(
    natural: Any, values: Mapping[str, object] | None, chunked: bool = False
) -> Mapping[str, Any]:
    """Return all variables of a posterior by name, but for the transformed copies (tau_log__), and
    what the user adds."""
    names = [str(name) for name in natural if not str(name).endswith("__")]
    kept, labels = stack_variables(natural, names, chunked), axis_labels(natural)
    if chunked:
        return chunks.columns(kept, labels, values)
    return merge_values(label_entries(kept, labels), extra_values(values, kept))


def stack_variables(found: Any, names: list[str], chunked: bool = False) -> dict[str, Any]:
    """Return variables of a dataset as arrays (chain, draw, …), in memory or of Dask."""
    if chunked:
        return chunks.variables(found, names)
    return {name: np.asarray(found[name].transpose("chain", "draw", ...)) for name in names}


def _parameter_names(unconstrained: Any) -> tuple[str, ...] | None:
    """Return the names of nutpie's unconstrained parameters, if they have some."""
    axis = next(dim for dim in unconstrained.dims if dim not in ("chain", "draw"))
    return tuple(map(str, unconstrained[axis].values)) if axis in unconstrained.coords else None


def axis_labels(found: Any) -> Labels:
    """Return the names of entries as ArviZ has them, by the labels of axes: theta[Choate]."""

    def label(name: str, index: tuple[int, ...]) -> str:
        if name not in found:
            return entry_name(name, index)
        variable = found[name]
        places = zip(
            (dim for dim in variable.dims if dim not in ("chain", "draw")), index, strict=True
        )
        labels = (variable[dim].values[i] if dim in variable.coords else i for dim, i in places)
        return f"{name}[{', '.join(map(str, labels))}]"

    return label


def _find_unconstrained(
    data: Any, natural: Any, parameters: Sequence[str] | None
) -> tuple[Any, list[str]]:
    """Return a group, and the names of its variables that a log density is one of: all of
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
            if originals:
                names.remove(max(originals, key=len))
    return natural, names
