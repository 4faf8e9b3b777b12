"""Gram and feature matrices on the host, filled by compiled tiles.

Tiles have one of a few fixed shapes, padded with zeros, so that every n (every fold, every
candidate) reuses one compiled program a family and dimension; a tile's intermediate arrays stay in
cache; and of a symmetric Gram half the tiles suffice. The host then factorises in place with
LAPACK: one n × n array is all the memory that an exact fit needs.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64

from ...families import LinearFamily
from ...families.base import join, parts_of
from ...hyper import declarations
from ...inputs.integrands import KEPT, ROWS
from ...inputs.points import Matrix, PointData
from .memory import on_host
from .threads import map_on_threads

# Sides of tiles. On a core the intermediate arrays of 192 draws stay in cache: tiles of 512 took
# up to a fourth longer.
_TILES = (64, 192)
# An accelerator waits for its instructions unless each is large; of a derivative, which keeps more
# arrays than its function, the largest are left out.
DEVICE_TILES = (512, 1024, 4096)


_gram_tile = eqx.filter_jit(lambda family, x, s, y, t: family.gram(x, s, y, t))
_gram_product = eqx.filter_jit(lambda family, x, s, y, t, right: family.gram(x, s, y, t) @ right)
_feature_tile = eqx.filter_jit(lambda family, x, s: family.features(x, s).T)


@eqx.filter_jit
def _pull_tile(family, x, s, y, t, slope):
    leaves, rebuild = jax.tree.flatten(family)
    chosen = [entry.number for entry in declarations(family)]

    def total(new):
        moved = dict(enumerate(leaves)) | dict(zip(chosen, new, strict=True))
        return jnp.sum(jax.tree.unflatten(rebuild, moved.values()).gram(x, s, y, t) * slope)

    return jax.grad(total)([leaves[index] for index in chosen])


def gram_matrix(family: LinearFamily, x: Matrix, s: PointData) -> Float64[np.ndarray, "n n"]:
    """Return the symmetric Gram of one set of points."""
    made, rest = split_translates(family)
    if made and on_host():
        return _gram_of_translates(made, rest, x, s)
    n = len(x)
    # half of the tiles suffice: rather a few than one
    tile = _tile_for(n // 2, _TILES if on_host() else DEVICE_TILES)
    xs, ss = pad_tiles(x, tile), pad_tiles(s, tile)
    out = np.empty((n, n))

    def fill(i: int, j: int) -> None:
        top, left = slice(i * tile, min((i + 1) * tile, n)), slice(j * tile, min((j + 1) * tile, n))
        block = np.asarray(_gram_tile(family, xs[i], ss[i], xs[j], ss[j]))
        out[top, left] = part = block[: top.stop - top.start, : left.stop - left.start]
        if i != j:
            out[left, top] = part.T

    map_on_threads(fill, _lower_half(len(xs)))
    return out


def split_translates(family: LinearFamily) -> tuple[list[Any], LinearFamily | None]:
    """Return the summands that are spans of translates, and the rest of the family."""
    parts = [part for part in parts_of(family) if isinstance(part, LinearFamily)]
    made = [part.translated for part in parts if part.translated is not None]
    return made, join(tuple(part for part in parts if part.translated is None))


def _gram_of_translates(
    made: list[Any], rest: LinearFamily | None, x: Matrix, s: PointData
) -> Float64[np.ndarray, "n n"]:
    """Return the same where parts of the family are translates. A tile would make all of these for
    its draws, once for each tile of a row: here their features are made once, and held."""
    out = np.zeros((len(x), len(x))) if rest is None else gram_matrix(rest, x, s)
    for part in made:
        features = feature_matrix(part, x, s)
        out += features.T @ features
    return out


@eqx.filter_jit
def gram_diagonal(family: LinearFamily, x: Any, s: Any) -> Float[Array, " n"]:
    """Return the diagonal of the Gram of one set of points, where that itself is not made; within
    JAX's own context of precision."""
    return jax.vmap(
        lambda point, score: family.gram(point[None], score[None], point[None], score[None])[0, 0]
    )(x, s)


def gram_slopes(
    family: LinearFamily, x: Matrix, s: PointData, slope: Float64[np.ndarray, "n n"]
) -> list[np.ndarray]:
    """Return the derivative of Σ slope · Gram in each of the family's hyper-parameters; `slope` is
    symmetric."""
    if not declarations(family):
        return []
    tile = _tile_for(len(x), _TILES if on_host() else DEVICE_TILES[:-1])
    xs, ss = pad_tiles(x, tile), pad_tiles(s, tile)

    def pull(i: int, j: int) -> list[np.ndarray]:
        part = slope[i * tile : (i + 1) * tile, j * tile : (j + 1) * tile]
        block = np.zeros((tile, tile))
        block[: part.shape[0], : part.shape[1]] = part if i == j else 2 * part
        return [np.asarray(leaf) for leaf in _pull_tile(family, xs[i], ss[i], xs[j], ss[j], block)]

    parts = map_on_threads(pull, _lower_half(len(xs)))
    return [np.asarray(sum(leaf)) for leaf in zip(*parts, strict=True)]


def feature_matrix(family: LinearFamily, x: Matrix, s: PointData) -> Float64[np.ndarray, "p n"]:
    """Return features with one row a feature, the layout in which they are computed and in which
    LAPACK wants them."""
    n = len(x)
    tile = _feature_rows(n)
    xs, ss = pad_tiles(x, tile), pad_tiles(s, tile)
    p = family.num_features(x.shape[1])
    assert p is not None, "a family without features has only a Gram"
    out = np.empty((p, n))
    with jax.enable_x64(True):
        following = _feature_tile(family, xs[0], ss[0])
        for i in range(len(xs)):
            block = following
            if i + 1 < len(xs):  # computed while this one is copied
                following = _feature_tile(family, xs[i + 1], ss[i + 1])
            place = out[:, i * tile : (i + 1) * tile]
            place[:] = np.asarray(block)[:, : place.shape[1]]
    return out


def evaluate(
    family: LinearFamily, theta: Float64[np.ndarray, "p q"], x: Matrix, s: PointData
) -> Float64[np.ndarray, "n q"]:
    """Return features(x, s) @ theta, tile by tile, without ever holding all features."""
    if (kernel := family.translated) is not None:
        weights = theta if kernel.lift is None else kernel.lift @ theta
        return _evaluate_translates(kernel, weights, x, s)
    tile = _feature_rows(len(x))
    with jax.enable_x64(True):
        tiles = zip(pad_tiles(x, tile), pad_tiles(s, tile), strict=True)
        return np.concatenate(
            [np.asarray(_feature_tile(family, *pair)).T @ theta for pair in tiles]
        )[: len(x)]


def _evaluate_translates(
    kernel: Any, a: Float64[np.ndarray, "m q"], x: Matrix, s: PointData
) -> Float64[np.ndarray, "n q"]:
    """Return Σ_j k(·, x_j) a_j. On an accelerator tiles are multiplied where they are made, for
    what travels to be small."""
    there = not on_host()
    tile, columns = (
        _tile_for(size, DEVICE_TILES if there else _TILES) for size in (len(x), len(a))
    )
    across: list[Any] = [pad_tiles(array, columns) for array in (kernel.points, kernel.scores, a)]
    out = []
    with jax.enable_x64(True):
        if there:
            across = [jax.device_put(array) for array in across]
        for row in zip(pad_tiles(x, tile), pad_tiles(s, tile), strict=True):
            if there:
                parts = [
                    _gram_product(kernel.family, *row, *column)
                    for column in zip(*across, strict=True)
                ]
            else:
                made = [
                    (_gram_tile(kernel.family, *row, y, t), part)
                    for y, t, part in zip(*across, strict=True)
                ]
                parts = [np.asarray(block) @ part for block, part in made]
            out.append(np.asarray(sum(parts[1:], parts[0])))
    return np.concatenate(out)[: len(x)]


def evaluate_tiles(
    values: Callable[..., jax.Array], x: Matrix, s: PointData, floats: int
) -> Float64[np.ndarray, "n q"]:
    """Evaluate a compiled function of points and scores, which holds `floats` numbers a row, by
    tiles of one shape."""
    tile = int(np.clip(KEPT // floats, 8, ROWS))
    with jax.enable_x64(True):
        blocks = [
            np.asarray(values(a, b))
            for a, b in zip(pad_tiles(x, tile), pad_tiles(s, tile), strict=True)
        ]
    return np.concatenate(blocks)[: len(x)]


def _lower_half(count: int) -> list[tuple[int, int]]:
    """Return rows and columns of the tiles that a symmetric matrix is known by."""
    return [(i, j) for i in range(count) for j in range(i + 1)]


def _feature_rows(n: int) -> int:
    """Return how many rows of features are made at once: of few draws an eighth of the usual."""
    return _tile_for(n, (ROWS // 8, ROWS))


def _tile_for(n: int, sizes: tuple[int, ...]) -> int:
    """Return the smallest size that holds n, or the largest."""
    return next((size for size in sizes if n <= size), sizes[-1])


def pad_tiles(array: np.ndarray, tile: int) -> np.ndarray:
    """Return (n, d) as (ceil(n / tile), tile, d), zeros at the end."""
    count = -(-len(array) // tile)
    out = np.zeros((count * tile, array.shape[1]))
    out[: len(array)] = array
    return out.reshape(count, tile, -1)
