"""Any JAX log density: emcee, zeus, TensorFlow Probability, a sampler of your own."""

from collections.abc import Callable, Mapping
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from ..arguments import MORE_VALUES, OF_A_DRAW, takes
from ..errors import ScoreWarning, warn
from ..inputs.coordinates import CLOSE
from ..inputs.integrands import (
    DrawFunction,
    Tree,
    describe_draw,
    reason_of,
    run_in_double,
    run_or_explain,
)
from ..inputs.points import Matrix
from ..inputs.sample import Posterior
from ..spaces import REALS, SPACE, Grid, Space
from .base import (
    CHAIN_AXIS,
    MAPS,
    build_posterior,
    density_of,
    extra_values,
    label_entries,
    map_chains,
    merge_values,
    named_leaves,
    put_chains_first,
    ravel,
    unraveller,
)

# Draws at which gradients are held against differences, and the step in deviations: the error of a
# central difference, its square, is then far below what a wrong gradient makes
_COMPARED, _STEP = 8, 1e-3
# Numbers of neighbours that are held at once, 32 megabytes: more are not faster
_NEIGHBOURS = 2**22


@takes(
    log_density=OF_A_DRAW,
    chain_axis=CHAIN_AXIS,
    transform=OF_A_DRAW,
    values=MORE_VALUES,
    coordinates=MAPS,
    space=SPACE,
)
def from_log_density(
    log_density: DrawFunction,
    draws: Tree,
    *,
    chain_axis: int | None = None,
    transform: DrawFunction | None = None,
    values: Mapping[str, object] | None = None,
    coordinates: Mapping[str, object] | None = None,
    space: Space | None = None,
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
    space: where the draws live, if it is not Rᵈ, as in `zv.estimate`. The log density is then that
        of one draw there: of angles, of a direction (any smooth function around the sphere, as the
        part of its gradient across it has no effect), of numbers between bounds, without a
        Jacobian. In a `Grid` scores are its differences to the neighbours of each draw, which it is
        evaluated at.
    """
    where = REALS if space is None else space
    is_curved = not (where.is_flat or where.is_countable)
    if is_curved and (coordinates or not hasattr(draws, "shape")):
        raise ValueError(
            f"on a {where.describe()} draws are one array, and have no other coordinates; got "
            f"{'coordinates' if coordinates else type(draws).__name__}"
        )
    tree = jax.tree.map(lambda leaf: put_chains_first("draws", leaf, chain_axis), draws)
    shapes = {np.shape(leaf)[:2] for leaf in jax.tree.leaves(tree)}
    if len(shapes) != 1 or (isinstance(tree, np.ndarray) and tree.ndim != 3):
        axes = {None: "(draw, …)", 0: "(chain, draw, …)"}.get(chain_axis, "(draw, chain, …)")
        found = jax.tree.map(np.shape, draws)
        raise ValueError(
            f"draws must be {axes} with chain_axis={chain_axis}, an array with a last axis d; got "
            f"shapes {found}"
        )
    tree = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree)

    def number(x: Tree) -> jax.Array:
        return jnp.reshape(log_density(x), ())

    natural = natural_values(tree, transform, values)
    if is_curved and transform is None:
        d = tree.shape[-1]
        rest = dict(list(natural.items())[d:])
        natural = where.values(tree, list(natural)[:d]) | rest
    if isinstance(where, Grid):
        return build_posterior(tree, log_ratios(number, tree, where), natural, space=where)
    scores = gradients("log_density", jax.grad(number), tree)
    compare_with_differences(number, tree, scores)
    return build_posterior(
        tree,
        scores,
        natural,
        coordinates,
        density=density_of(tree, log_density, transform, values),
        space=where,
    )


def gradients(name: str, function: DrawFunction, tree: Tree) -> Tree:
    """Return a gradient at all draws, or say why not."""
    try:
        return run_in_double(name, lambda: map_chains(function, tree))
    except Warning:
        raise
    except Exception as error:
        draw = describe_draw(jax.tree.map(lambda leaf: leaf[0, 0], tree))
        raise ValueError(
            f"{name} could not be evaluated as a JAX function of one draw, {draw}: "
            f"{reason_of(error)}. It takes one draw, without leading axes, and a log density "
            "returns a number"
        ) from error


def log_ratios(log_density: DrawFunction, tree: Tree, space: Grid) -> np.ndarray:
    """Return log p(x′) − log p(x) for the neighbours of draws on a grid, (chain, draw, k), tile by
    tile."""
    unravel, flat = unraveller(tree), ravel(tree)
    draws = flat.reshape(-1, flat.shape[-1])
    space.check_draws(draws)
    at = jax.jit(jax.vmap(lambda x: log_density(unravel(x))))

    def ratios() -> np.ndarray:
        tile = max(1, _NEIGHBOURS // (2 * draws.shape[1] ** 2))
        found = []
        for first in range(0, len(draws), tile):
            some = draws[np.minimum(np.arange(first, first + tile), len(draws) - 1)]
            there, possible = space.neighbours(some)
            values = np.asarray(at(there.reshape(-1, there.shape[2]))).reshape(possible.shape)
            change = values - np.asarray(at(some))[:, None]
            found.append(np.where(possible, change, -np.inf))
        return np.concatenate(found)[: len(draws)]

    try:
        scores = run_in_double("log_density", ratios)
    except Warning:
        raise
    except Exception as error:
        raise ValueError(
            f"log_density could not be evaluated as a JAX function of one draw: {error}"
        ) from error
    return scores.reshape(*flat.shape[:2], -1)


def compare_with_differences(log_density: DrawFunction, tree: Tree, scores: Tree) -> None:
    """Warn if gradients at some draws are not those of the values nearby, as where a function has a
    rule of its own for derivatives, or stops them."""
    unravel = unraveller(tree)
    draws, slopes = (flat.reshape(-1, flat.shape[-1]) for flat in (ravel(tree), ravel(scores)))

    def value(points: Matrix) -> np.ndarray:
        at = jax.jit(jax.vmap(lambda x: log_density(unravel(x))))
        return run_in_double("log_density", lambda: np.asarray(at(points)))

    wrong = slopes_apart(value, draws, slopes, CLOSE)
    if wrong.sum() > len(wrong) / 2:
        warn(
            f"The gradients of log_density are not those of its values, at {wrong.sum()} of "
            f"{len(wrong)} draws by finite differences: a rule for derivatives of your own, a "
            "stop_gradient, or a step? Every answer rests on them. Mend the function",
            ScoreWarning,
        )


def slopes_apart(
    value: Callable[[Matrix], np.ndarray], draws: Matrix, scores: Matrix, tolerance: float
) -> np.ndarray:
    """Return whether the slopes of a log density, a function of points (m, d), at some of the
    draws (n, d) are further than a relative tolerance from what the scores (n, d) say: each along
    one random direction."""
    rows = np.unique(np.linspace(0, len(draws) - 1, _COMPARED).astype(int))
    # of a long tail the deviation is far more than what the middle takes for a step
    low, high = np.quantile(draws, [0.25, 0.75], axis=0)
    scale = np.where(high > low, np.minimum(high - low, draws.std(axis=0)), draws.std(axis=0))
    noise = np.random.default_rng(0).normal(size=(len(rows), draws.shape[1]))
    steps = np.where(scale > 0, scale, 1.0) * noise * _STEP
    ahead, behind = np.split(value(np.concatenate([draws[rows] + steps, draws[rows] - steps])), 2)
    parts = scores[rows] * steps
    off = np.abs((ahead - behind) / 2 - parts.sum(axis=1))
    rounding = _COMPARED * np.finfo(ahead.dtype).eps * np.maximum(np.abs(ahead), np.abs(behind))
    return off > tolerance * np.abs(parts).sum(axis=1) + rounding + _STEP**2


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
