"""Hyper-parameters: fields of kernels and families that say what they are.

A field that may be tuned is declared with its kind,

    length_scale: Any = eqx.field(metadata=LENGTH_SCALE)

and nothing else is ever moved. Families made of families need to declare nothing for their parts:
fields are found wherever they lie in the tree of modules. All hyper-parameters are positive, so
they are moved on the scale of their logarithms.
"""

import dataclasses
import enum
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .arguments import POSITIVE, Requirement, check_argument

_KEY = "hyper-parameter"


class Kind(enum.Enum):
    """What a hyper-parameter is, which decides how far tuning may move it."""

    WEIGHT = (
        "a prior variance of coefficients: 0 and inf mean absent and unpenalised and stay; "
        "only ratios matter"
    )
    LENGTH_SCALE = "the length over which functions vary"
    SHAPE = "any other positive number"


# What a field of an Equinox module has as its metadata, to be tuned
WEIGHT, LENGTH_SCALE, SHAPE = ({_KEY: kind} for kind in Kind)


# Positive numbers as float64 arrays of NumPy, which stay double whatever JAX's global setting
LEAF = Requirement(POSITIVE.words, lambda value: np.asarray(POSITIVE.read(value)))


def positive(name: str, value: Any) -> Any:
    """Check a positive number, and return it as a float64 array of NumPy. Tracers pass."""
    return check_argument(name, value, LEAF)


class Declaration(NamedTuple):
    """A leaf of a tree that a field declares."""

    number: int  # among all leaves
    kind: Kind
    # the modules that hold it, with the paths to them, outermost first
    modules: tuple[tuple[tuple[Any, ...], eqx.Module], ...]


def declarations(tree: Any) -> list[Declaration]:
    """Return the hyper-parameters of a module, or of a tuple of modules, in the order of its
    leaves."""
    found = []
    for index, (path, _) in enumerate(jax.tree_util.tree_flatten_with_path(tree)[0]):
        node, kind, modules = tree, None, []
        for depth, key in enumerate(path):
            if isinstance(node, eqx.Module) and isinstance(key, jax.tree_util.GetAttrKey):
                modules.append((path[:depth], node))
                kind = _kinds(type(node)).get(key.name, kind)
                node = getattr(node, key.name)
            else:
                node = node[getattr(key, "idx", getattr(key, "key", None))]
        if kind is not None:
            found.append(Declaration(index, kind, tuple(modules)))
    return found


def hyper_parameters(tree: Any) -> list[Any]:
    """Return the logarithms of all hyper-parameters, 0 where a weight says absent or
    unpenalised."""
    leaves = jax.tree.leaves(tree)
    chosen = [leaves[entry.number] for entry in declarations(tree)]
    return [np.log(np.where(may_move(leaf), leaf, 1.0)) for leaf in chosen]


def with_hyper_parameters(tree: Any, logarithms: list[Any]) -> Any:
    """Return the tree with these logarithms in place of its own, traced or not."""
    leaves, rebuild = jax.tree.flatten(tree)
    numpy = jnp if any(isinstance(new, jax.core.Tracer) for new in logarithms) else np
    for entry, new in zip(declarations(tree), logarithms, strict=True):
        leaf = leaves[entry.number]
        leaves[entry.number] = numpy.where(may_move(leaf), numpy.exp(new), leaf)
    return jax.tree.unflatten(rebuild, leaves)


def may_move(leaf: Any) -> Any:
    """Return which entries may change: not weights that say absent (0) or unpenalised (inf)."""
    return (leaf > 0) & (leaf < np.inf)


def _kinds(cls: type) -> dict[str, Kind]:
    """Return the kinds of a class's declared fields, by name."""
    return {
        field.name: field.metadata[_KEY]
        for field in dataclasses.fields(cls)
        if _KEY in field.metadata
    }
