"""Any JAX log density: emcee, zeus, TensorFlow Probability, a sampler of your own."""

from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from ..arguments import MORE_VALUES, OF_A_DRAW, takes
from ..inputs.integrands import DrawFunction, Tree, run_in_double, run_or_explain
from ..inputs.sample import Posterior
from .base import (
    CHAIN_AXIS,
    MAPS,
    build_posterior,
    extra_values,
    label_entries,
    map_chains,
    merge_values,
    named_leaves,
    put_chains_first,
)


@takes(
    log_density=OF_A_DRAW,
    chain_axis=CHAIN_AXIS,
    transform=OF_A_DRAW,
    values=MORE_VALUES,
    coordinates=MAPS,
)
def from_log_density(
    log_density: DrawFunction,
    draws: Tree,
    *,
    chain_axis: int | None = None,
    transform: DrawFunction | None = None,
    values: Mapping[str, object] | None = None,
    coordinates: Mapping[str, object] | None = None,
) -> Posterior:
    """Return draws with the scores of a log density that is written in JAX.

    log_density: a function of one draw, (d,) or a dict of arrays, on the unconstrained scale;
        constants do not matter.
    draws: an array (draw, d), or with `chain_axis` (chain, draw, d) or (draw, chain, d); or a dict
        of arrays with such leading axes. emcee's and zeus' chains are (draw, walker, d):
        `chain_axis=1`.
    transform: from one draw to the quantities on their natural scale (a number, an array, or a
        dict); by default the draw.
    values: more of them, name → function of one (transformed) draw, or array (chain, draw).
    coordinates: name → other coordinates to try, `zv.Coupling(…)`, `zv.Coordinates(…)` or a smooth
        invertible function of one draw onto all of Rᵈ; `posterior.coordinates[name](posterior)` has
        the same draws in them.
    """
    tree = jax.tree.map(lambda leaf: put_chains_first("draws", leaf, chain_axis), draws)
    shapes = {np.shape(leaf)[:2] for leaf in jax.tree.leaves(tree)}
    if len(shapes) != 1 or (isinstance(tree, np.ndarray) and tree.ndim != 3):
        axes = {None: "(draw, …)", 0: "(chain, draw, …)"}.get(chain_axis, "(draw, chain, …)")
        found = jax.tree.map(np.shape, draws)
        raise ValueError(
            f"draws must be {axes} with chain_axis={chain_axis}, an array with a last axis d; got "
            f"shapes {found}"
        )
    scores = gradients("log_density", jax.grad(lambda x: jnp.reshape(log_density(x), ())), tree)
    return build_posterior(tree, scores, natural_values(tree, transform, values), coordinates)


def gradients(name: str, function: DrawFunction, tree: Tree) -> Tree:
    """Return a gradient at all draws, or say why not."""
    try:
        return run_in_double(name, lambda: map_chains(function, tree))
    except Warning:
        raise
    except Exception as error:
        raise ValueError(
            f"{name} could not be evaluated as a JAX function of one draw: {error}. "
            "It takes one draw, without leading axes, and a log density returns a number"
        ) from error


def natural_values(
    tree: Tree, transform: DrawFunction | None, values: Mapping[str, object] | None
) -> dict[str, np.ndarray]:
    """Return the draws on their natural scale by name, and what the user adds."""
    if transform is not None:
        order: list[str] = []  # JAX sorts dicts; the user's order is seen only while it traces

        def look(x: Tree) -> Tree:
            out = transform(x)
            order[:] = list(out) if isinstance(out, dict) else []
            return out

        tree = run_or_explain(
            "transform", partial(map_chains, look, tree), "", "values= in place of it"
        )
        if not jax.tree.leaves(tree):
            raise ValueError("transform must return numbers, arrays or a dict of them; got nothing")
        tree = {name: tree[name] for name in order} if order else tree
    return merge_values(label_entries(named_leaves(tree)), extra_values(values, tree))
