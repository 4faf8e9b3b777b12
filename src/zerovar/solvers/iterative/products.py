"""Products with the weighted Gram G = WKW of all draws, on whatever devices JAX has: stored, or
made anew for each product.

Rows are padded to whole tiles with draws of weight zero, which add nothing. With several devices
the rows of G are shared among them (the draw axis is sharded); vectors are kept whole on each.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, Int

from ...families import LinearFamily
from ...inputs.integrands import KEPT
from ..algebra.memory import on_host
from ..algebra.tiles import gram_diagonal

Vectors = Float[Array, "n q"]

# Of n = 2000, products with so many columns took half the time of those with 3 or 5.
_COLUMNS = 8


class DevicePoints(eqx.Module):
    """Draws and scores (n, d), padded, with the square roots of their probabilities (n, 1): zero in
    the padding."""

    x: Any
    s: Any
    root: Any


class Stored(eqx.Module):
    """K as one array, its rows shared among the devices."""

    matrix: Float[Array, "n n"]
    root: Float[Array, "n 1"]
    slab: int | None = eqx.field(static=True, default=None)  # rows of one product; all where None

    def __call__(self, v: Vectors) -> Vectors:
        weighted, q = self.root * v, v.shape[1]
        if self.slab is None:
            image = (self.matrix @ jnp.pad(weighted, ((0, 0), (0, -q % _COLUMNS))))[:, :q]
        else:
            slabs = self.matrix.reshape(-1, self.slab, len(v))
            image = jax.lax.map(lambda rows: rows @ weighted, slabs).reshape(v.shape)
        return self.root * image

    def rows(self, chosen: Any) -> Float[Array, "r n"]:
        return self.root[chosen] * self.matrix[chosen] * self.root.T

    def diagonal(self) -> Float[Array, " n"]:
        return jnp.diagonal(self.matrix) * self.root[:, 0] ** 2

    def near(self, rows: Int[Array, "k b"]) -> Float[Array, "k b b"]:
        return _weigh(
            jax.lax.map(lambda some: self.matrix[some[:, None], some], rows), self.root[rows]
        )


class MadeAnew(eqx.Module):
    """G by tiles: memory for one tile, and the work of a Gram in every product."""

    family: LinearFamily
    points: DevicePoints
    tile: int = eqx.field(static=True)
    mesh: Mesh = eqx.field(static=True)

    def __call__(self, v: Vectors) -> Vectors:
        across = cut_tiles((self.points, self.points.root * v), self.tile)

        def of_row(row: DevicePoints) -> Any:
            def add(total, column):
                points, part = column
                return total + self.family.gram(row.x, row.s, points.x, points.s) @ part, None

            return jax.lax.scan(add, jnp.zeros((self.tile, v.shape[1]), v.dtype), across)[0]

        def of_share(share: DevicePoints) -> Any:
            return jax.lax.map(of_row, cut_tiles(share, self.tile)).reshape(-1, v.shape[1])

        return self.points.root * map_devices(of_share, self.mesh, self.points)

    def rows(self, chosen: Any) -> Float[Array, "r n"]:
        some = jax.tree.map(lambda leaf: leaf[chosen], self.points)
        found = jax.lax.map(
            lambda part: self.family.gram(part.x, part.s, some.x, some.s),
            cut_tiles(self.points, self.tile),
        )
        return some.root * found.reshape(len(self.points.x), -1).T * self.points.root.T

    def near(self, rows: Int[Array, "k b"]) -> Float[Array, "k b b"]:
        """Return blocks of G, of each row of row numbers with itself."""

        def one(some):
            x, s = self.points.x[some], self.points.s[some]
            return self.family.gram(x, s, x, s)

        return _weigh(jax.lax.map(one, rows), self.points.root[rows])

    def diagonal(self) -> Float[Array, " n"]:
        return (
            gram_diagonal(self.family, self.points.x, self.points.s) * self.points.root[:, 0] ** 2
        )


GramProduct = Stored | MadeAnew


def mesh_of_draws() -> Mesh:
    """Return all devices of the default kind that this process has, along the draw axis."""
    return Mesh(np.array(jax.local_devices()), ("draws",))


def map_devices(
    function: Callable[..., Any], mesh: Mesh, draws: Any, *others: Any, summed: bool = False
) -> Any:
    """Apply a function of rows to rows, or to a sum over them, each device on its share; `others`
    are whole on each."""
    if mesh.size == 1:
        return function(draws, *others)
    split, whole = PartitionSpec("draws"), PartitionSpec()
    work = (lambda *share: jax.lax.psum(function(*share), "draws")) if summed else function
    given, made = (split, *(whole for _ in others)), whole if summed else split
    return jax.shard_map(work, mesh=mesh, in_specs=given, out_specs=made, check_vma=False)(
        draws, *others
    )


def tile_rows() -> int:
    """Return how many rows a tile has: few enough on a processor that its intermediate arrays stay
    in cache."""
    return 512 if on_host() else 4096


def slab_rows(n: int, tile: int) -> int:
    """Return a divisor of n rows, in whole tiles, for products of no more numbers than may be kept:
    the compiler of an accelerator copies the matrices of a product to try its programs on."""
    count = n // tile
    return tile * max(
        k for k in range(1, count + 1) if count % k == 0 and (k == 1 or k * tile * n <= KEPT)
    )


def pad_points(x: np.ndarray, s: np.ndarray, root: np.ndarray, size: int) -> DevicePoints:
    """Put points on the devices, in rows of which `size` is a multiple of the tile."""
    return DevicePoints(*(pad_rows(array, size) for array in (x, s, root[:, None])))


def pad_rows(array: Float[np.ndarray, "n k"], size: int) -> Float[Array, "size k"]:
    """Put rows on the devices, with zeros at the end."""
    return jax.device_put(np.pad(array, ((0, size - len(array)), (0, 0))))


def product(
    family: LinearFamily, points: DevicePoints, tile: int, mesh: Mesh, keep: bool
) -> GramProduct:
    """Return G, kept if asked for."""
    assert not len(points.x) % (tile * mesh.size), "rows are in whole tiles on every device"
    made_anew = MadeAnew(family, points, tile, mesh)
    if not keep:
        return made_anew
    if mesh.size > 1:
        return Stored(_make_rows(made_anew), points.root)
    slab = None if on_host() else slab_rows(len(points.x), tile)
    return Stored(_symmetric(family, points, tile), points.root, slab)


@eqx.filter_jit
def _symmetric(family: LinearFamily, points: DevicePoints, tile: int) -> Float[Array, "n n"]:
    """Return K: half of the tiles, each written twice, in one loop over one array.

    Weights are left to the vectors: a factor here keeps the compiler from making tiles on all
    cores, five times slower.
    """
    n = len(points.x)
    above, left = (jnp.asarray(index * tile) for index in np.tril_indices(n // tile))

    def cut(start):
        return jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, tile), points)

    def write(k, out):
        row, column = cut(above[k]), cut(left[k])
        block = family.gram(row.x, row.s, column.x, column.s)
        out = jax.lax.dynamic_update_slice(out, block.T, (left[k], above[k]))
        return jax.lax.dynamic_update_slice(out, block, (above[k], left[k]))

    return jax.lax.fori_loop(0, len(above), write, jnp.zeros((n, n)))


@eqx.filter_jit
def _make_rows(product: MadeAnew) -> Float[Array, "n n"]:
    """Return K, of which every device makes its own rows."""
    points, family = product.points, product.family

    def of_share(share: DevicePoints) -> Any:
        block = jax.lax.map(
            lambda row: family.gram(row.x, row.s, points.x, points.s),
            cut_tiles(share, product.tile),
        )
        return block.reshape(len(share.x), -1)

    return map_devices(of_share, product.mesh, points)


def _weigh(blocks: Float[Array, "k b b"], root: Float[Array, "k b 1"]) -> Float[Array, "k b b"]:
    return root * blocks * jnp.swapaxes(root, 1, 2)


def cut_tiles(rows: Any, tile: int) -> Any:
    """Return (n, d) as (n / tile, tile, d)."""
    return jax.tree.map(lambda leaf: leaf.reshape(-1, tile, leaf.shape[1]), rows)
