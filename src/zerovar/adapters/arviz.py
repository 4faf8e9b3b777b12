"""ArviZ: InferenceData (0.x) and DataTree (1.x), with gradients wherever the ecosystem puts
them."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ..arguments import MORE_VALUES, NAMES, OF_A_DRAW, instance, takes, where
from ..chunked import is_chunked
from ..errors import list_names
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

_TRANSFORMED = "idata_kwargs={'include_transformed': True}"
_ADVICE = (
    "Sample with nutpie.sample(…, store_gradient=True, store_unconstrained=True), in PyMC 6 with "
    f"pm.sample(nuts_sampler='nutpie', nuts={{'store_gradient': True}}, {_TRANSFORMED}), or give "
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
    log_density: a JAX function of one unconstrained draw, a dict of the variables of `posterior`,
        where those that are transformed too are taken so, under the name that they have there: tau
        of the group `unconstrained_posterior`, as ArviZ's schema has it, or tau_log__ of that group
        or of `posterior`, as PyMC has it;
    score: its gradient, if you have it: a function of the same dict to a dict of the same names.
    parameters: the variables that the log density is one of, if `posterior` has others too
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
    variables = _find_unconstrained(data, group, natural, parameters)
    tree = stack_variables(variables, list(variables), chunked)
    if chunked:
        draws = chunks.concatenate(tree)
        scores = _or_what_is_absent(lambda: chunks.score_blocks(what, function, tree))
        labels = tuple(named_entries(dict(sorted(tree.items()))))
        return Posterior(
            draws, scores, wanted, labels, from_model=score is None, divergences=diverged
        )
    tree = {name: array.astype(np.float64) for name, array in tree.items()}
    slopes = _or_what_is_absent(lambda: gradients(what, function, tree))
    check_score(slopes, tree)
    if idle := [name for name in tree if not np.any(slopes[name])]:
        raise ValueError(
            f"{what} does not depend on {list_names(idle)}. If that is a function of the others, "
            f"leave it out: parameters={[name for name in tree if name not in idle]}"
        )
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
    data: Any, group: str, natural: Any, parameters: Sequence[str] | None
) -> dict[str, Any]:
    """Return the variables that a log density is one of: those of a group, the transformed in place
    of their originals, or some of them. Next to a group with all of them its `unconstrained_…` has
    those that are transformed alone."""
    own = {str(name): natural[name] for name in natural}
    copies = {name: own.pop(name) for name in list(own) if name.endswith("__")}
    if (beside := f"unconstrained_{group}") in _groups(data):
        there = dataset(data, beside)
        shapes = [tuple(one.sizes[dim] for dim in ("chain", "draw")) for one in (natural, there)]
        if len(set(shapes)) > 1:
            raise ValueError(
                f"groups {group!r} and {beside!r} must have the same draws; they have (chain, draw)"
                f" = {shapes[0]} and {shapes[1]}. Cut and thin both alike"
            )
        copies |= {str(name): there[name] for name in there}
    taken = {_original(name, list(own)): name for name in copies}
    found = {name: own[name] for name in own if name not in taken}
    found |= {name: copies[name] for name in taken.values()}
    if parameters is None:
        return found
    names = [taken.get(name, name) for name in parameters]
    if unknown := [name for name in names if name not in found]:
        raise ValueError(f"parameters: {', '.join(unknown)} not among {', '.join(found)}")
    return {name: found[name] for name in names}


def _original(name: str, others: list[str]) -> str:
    """Return which variable a transformed one stands for: tau for tau or tau_log__, mu_sd for
    mu_sd_log__ and not mu; itself if there is none."""
    if name in others or not name.endswith("__"):
        return name
    # tau_log__ is no copy of tau_log
    fits = [other for other in others if name.removesuffix("__").startswith(f"{other}_")]
    return max(fits, key=len, default=name)


def _or_what_is_absent(scores: Callable[[], Any]) -> Any:
    """Return scores, or say how to have a transformed variable that a function asks for."""
    try:
        return scores()
    except ValueError as error:
        if isinstance(error.__cause__, KeyError) and str(error.__cause__).endswith("__'"):
            raise ValueError(
                f"{error}. PyMC keeps transformed variables by pm.sample(…, {_TRANSFORMED}), and "
                "zv.from_pymc(model, idata) does without"
            ) from error
        raise
