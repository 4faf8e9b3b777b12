"""Integrands in any of the forms that users have them, as one (n, q) array with names."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from jaxtyping import Bool, Float64

from ..errors import NumericalWarning, refuse_fork, require_distinct, warn
from .indices import find_out_of_bounds
from .points import find_distinct
from .sample import Sample, as_float, underflows

# Rows of functions or features that are made at once: with a few hundred columns they stay in a
# core's cache for what reads them next, and more would not be faster.
ROWS = 1024
# Numbers, two megabytes, that are handled in a few hundredths of a second: smaller chunks are
# joined, and no more are looked at where a look is all that is wanted.
FEW_NUMBERS = 2**18
# Numbers, half a gigabyte, that are kept for the next pass rather than made anew: beyond that,
# writing and reading them takes as long as making them.
KEPT = 2**26

Tree = Any  # of arrays, as JAX has them: an array, or dicts and tuples of trees
Returned = TypeVar("Returned")
DrawFunction = Callable[[Any], Any]  # from one draw, a tree, to another tree, in JAX


class Integrands(NamedTuple):
    """Integrands at the draws, their names, and which of them are events: booleans, and numbers
    that are all 0 or 1, in every entry of a variable."""

    values: Float64[np.ndarray, "n q"]
    names: tuple[str, ...]
    events: Bool[np.ndarray, " q"]


def as_values(values: Any, sample: Sample, names: Sequence[str] | None = None) -> Integrands:
    """Return the integrands at the draws. `values` is (n,), (n, q), (chain, draw), (chain, draw,
    q), a dict of name → such arrays, a data frame, or a callable on one draw (d,).

    A callable is vmapped over the draws and may return a number, an array, or a dict of these, with
    names a, b[0], c[0, 1].
    """
    if values is None:
        raise ValueError(
            "values is None: give the integrands at the draws, or a function of one draw"
        )
    if callable(values):
        values = _named_results(values, sample)
    if isinstance(values, Mapping):
        if not values:
            raise ValueError("values is an empty dict: give at least one integrand")
        columns = {key: _flat(f"values[{key!r}]", entry, sample) for key, entry in values.items()}
        array = np.concatenate(list(columns.values()), axis=1)
        sizes = [column.shape[1] for column in columns.values()]
        found = [
            entry_name(str(key), (k,) if size > 1 else ())
            for key, size in zip(columns, sizes, strict=True)
            for k in range(size)
        ]
    else:
        array = _flat("values", values, sample)
        found = list(map(str, _own_names(values) or _default_names(array.shape[1])))
    if array.shape[1] == 0:
        raise ValueError(f"values has no integrands: its shape is {np.shape(values)}")
    if names is not None:
        names = list(names) if isinstance(names, Iterable) and not isinstance(names, str) else names
        if not isinstance(names, list) or len(names) != array.shape[1]:
            raise ValueError(
                f"names must be {array.shape[1]} strings, one an integrand; got {names!r}"
            )
        found = [str(name) for name in names]
    if (small := np.flatnonzero(underflows(array))).size:
        raise ValueError(
            f"values: {found[small[0]]} moves by only {np.ptp(array[:, small[0]]):.2g}, and "
            "squares underflow. Use other units"
        )
    require_distinct("names", found)
    return Integrands(array, tuple(found), _events(array, found))


def _events(array: Float64[np.ndarray, "n q"], names: Sequence[str]) -> Bool[np.ndarray, " q"]:
    """Which columns hold 0 and 1 alone. The ones on the diagonal of a correlation matrix are no
    events: other entries of that variable are other numbers."""
    binary = np.all((array == 0) | (array == 1), axis=0)
    variables = [name.split("[")[0] if name.endswith("]") else name for name in names]
    others = {name for name, so in zip(variables, binary, strict=True) if not so}
    return np.array([name not in others for name in variables])


def _own_names(values: Any) -> list[Any]:
    """Return the names that a data frame or a series has."""
    name = getattr(values, "name", None)
    return list(getattr(values, "columns", () if name is None else (name,)))


def _default_names(count: int) -> list[str]:
    return [f"f{k}" for k in range(count)]


def _named_results(function: DrawFunction, sample: Sample) -> dict[str, np.ndarray]:
    """Return every number that a function of one draw gives, (n,), dicts in the order of their
    sorted keys."""
    found = run_or_explain(
        "values",
        lambda: map_draws(function, sample.draws),
        f" of shape ({sample.dim},)",
        "an array of values at the draws",
    )
    columns = {}
    for key, leaf in leaves_by_path(found).items():
        for index in np.ndindex(leaf.shape[1:]):
            numbered = not key and len(index) < 2  # f0, f1 of a bare number or vector
            label = f"f{index[0] if index else 0}" if numbered else entry_name(key or "f", index)
            columns[label] = leaf[:, *index]
    return columns


def leaves_by_path(tree: Tree) -> dict[str, Any]:
    """Return the leaves of a tree by their places: a, b.c, and nothing for one that is all of
    it."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def entry_name(name: str, index: tuple[int, ...]) -> str:
    """Return what an entry of an array is called: tau, theta[0], corr[0, 1]."""
    return f"{name}[{', '.join(map(str, index))}]" if index else name


def _flat(name: str, entry: Any, sample: Sample) -> np.ndarray:
    array = as_float(name, entry)
    has_chains(name, array.shape, sample.num_chains, len(sample) // sample.num_chains)
    return array.reshape(len(sample), -1)


def has_chains(name: str, shape: tuple[int, ...], chains: int, length: int) -> bool:
    """Return whether values of this shape are (chain, draw, …), not (n, …); an error if these
    chains of draws could have neither."""
    n = chains * length
    if len(shape) in (1, 2) and shape[0] == n:
        return False
    if len(shape) in (2, 3) and shape[:2] == (chains, length):
        return True
    forms = f"(n,) = ({n},) or (n, q)"
    if chains > 1:
        forms += f", (chain, draw) = ({chains}, {length}) or (chain, draw, q)"
    hint = "; the axes look swapped" if len(shape) == 2 and shape[1] == n else ""
    raise ValueError(f"{name} must be {forms} to match the draws; got {shape}{hint}")


def run_or_explain(
    name: str,
    run: Callable[[], Returned],
    draw: str,
    instead: str,
    precision: Callable[[str, Callable[[], Returned]], Returned] | None = None,
) -> Returned:
    """Return `run()`, which calls a user's function of one draw, or say why not, how draws look and
    what would do. `precision` runs it; by default `run_in_double`."""
    try:
        return (precision or run_in_double)(name, run)
    except Exception as error:
        raise ValueError(
            f"{name} could not be evaluated as a JAX function of one draw{draw}: "
            f"{reason_of(error)}. Give {instead} if the function is not written in JAX"
        ) from error


def reason_of(error: Exception) -> str:
    """Return why a user's function of a draw failed, in words."""
    return f"there is no {error}" if isinstance(error, KeyError) else str(error)


def describe_draw(draw: Tree) -> str:
    """Say how one draw looks, a tree of arrays, to whoever writes functions of it."""
    shapes = jax.tree.map(lambda leaf: tuple(leaf.shape), draw)
    if not isinstance(shapes, dict):
        return f"an array of shape {shapes}"
    return "a dict of " + ", ".join(
        f"{key} {shape}" if shape else f"{key}" for key, shape in shapes.items()
    )


def map_draws(function: DrawFunction, draws: Tree) -> Tree:
    """Return `function` of one draw at all of them, a tree of arrays (n, …): compiled, some at a
    time to bound memory.

    A compiled function may differ in the last digit between two places of a batch; evaluated once,
    equal draws have the same.
    """
    columns = [np.reshape(leaf, (len(leaf), -1)) for leaf in jax.tree.leaves(draws)]
    first, back = find_distinct(np.concatenate(columns, axis=1))
    asked = find_out_of_bounds(function, jax.tree.map(lambda leaf: leaf[0], draws))
    if asked.mistake:
        raise IndexError(asked.mistake)
    if asked.clipped:
        warn(
            f"A function of one draw asks for an entry that is not there: {asked.clipped}. The "
            'nearest entry is taken, as jax.vmap and mode="clip" have it. If that is meant, '
            "bring the index inside by jnp.clip",
            NumericalWarning,
        )
    out = map_tiles(jax.jit(jax.vmap(function)), jax.tree.map(lambda leaf: leaf[first], draws))
    return jax.tree.map(lambda leaf: leaf[back], out)


def map_tiles(function: Callable[[Tree], Tree], draws: Tree) -> Tree:
    """Return a compiled function of many draws at a tree of arrays (n, …), in tiles of one shape:
    one program serves all."""
    n = len(jax.tree.leaves(draws)[0])
    size, tiles = min(n, ROWS), []
    for first in range(0, n, size):
        # the last one again and again to the tile's end
        rows = np.minimum(np.arange(first, first + size), n - 1)
        tiles.append(
            function(jax.tree.map(lambda leaf, rows=rows: jax.device_put(leaf[rows]), draws))
        )
    return jax.tree.map(
        lambda *parts: np.concatenate([np.asarray(part) for part in parts])[:n], *tiles
    )


class InSingleOnly(Exception):
    """A user's function runs in single precision alone: `found` is what it gave there."""

    def __init__(self, found: Any):
        super().__init__("it cannot be evaluated in double precision")
        self.found = found


def insist_on_double(run: Callable[[], Returned]) -> Returned:
    """Return `run()`, which calls a user's function, in double precision; an `InSingleOnly` error
    where only that is at fault.

    JAX keeps the NumPy arrays inside a function that it has compiled in the precision of that time,
    and fails on the mixture until it forgets them: in double where the user ran it in single, and
    afterwards the other way round in the user's hands. A loop that starts from a single-precision
    state works only as the user runs it.
    """
    refuse_fork()
    try:
        with jax.enable_x64(True):
            return run()
    except Exception as error:
        try:
            single = run()  # as the user runs it
        except Exception:
            raise error from None
    jax.clear_caches()  # only the precision is at fault, and such arrays are kept nowhere else
    try:
        with jax.enable_x64(True):
            found = run()
    except Exception as error:
        raise InSingleOnly(single) from error
    jax.clear_caches()  # or the user's next run finds them in double
    return found


def run_in_double(name: str, run: Callable[[], Returned]) -> Returned:
    """Return `run()`, which calls a user's function, in double precision if it can be had, and with
    a warning if not."""
    try:
        return insist_on_double(run)
    except InSingleOnly as single:
        warn(
            f"{name} could not be evaluated in double precision, and was in single: about seven "
            "digits. The usual cause is an array that was made in single precision, such as a "
            "loop's first state: make it inside the function",
            NumericalWarning,
        )
        return single.found
