"""Cholesky factors of A = K + shift + diag(ridge): by LAPACK on the host, or tile by tile on an
accelerator.

On the host one n × n array is all the memory: its lower triangle becomes the factor, the other
keeps K. On an accelerator one tile holds all draws where there is room, and beyond that tiles of
one size are made, updated and factorised column by column: a few compiled programs serve every n,
and only half a matrix is ever stored, so that 100 000 draws take 40 GB.
"""

import contextlib
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Float64, Int

from ...families import LinearFamily
from ...inputs.points import Matrix, PointData, Vector
from .dense import Groups, pack_groups
from .memory import on_host, room
from .threads import use_one_thread
from .tiles import DEVICE_TILES, gram_diagonal, gram_matrix, pad_tiles

# One tile holds all draws if there is room for so many of it: the Gram, its factor, two inverses,
# and what the compiler takes besides.
_COPIES = 6

HostVectors = Float64[np.ndarray, "n q"]


class Factor(ABC):
    """A factor of A, which gives A⁻¹ on vectors, and blocks of it."""

    rcond: float  # smallest over largest squared pivot, 0 if there is no factor

    @abstractmethod
    def diagonal(self) -> Vector:
        """Return the diagonal of K + shift."""

    @abstractmethod
    def factorise(self, ridge: Vector) -> bool:
        """Factorise A, and return whether it has a Cholesky factor to rounding."""

    @abstractmethod
    def solve(self, right: HostVectors) -> HostVectors:
        """Return A⁻¹ right."""

    @abstractmethod
    def inverse_diagonal(self) -> Vector:
        """Return the diagonal of A⁻¹."""

    def small_work(self) -> AbstractContextManager[Any]:
        """Return a context for what the host does besides: with all its threads, unless they would
        only wait for each other."""
        return contextlib.nullcontext()

    @abstractmethod
    def inverse_blocks(
        self, groups: Groups
    ) -> Iterator[tuple[Int[np.ndarray, " k"], Float64[np.ndarray, "k k"]]]:
        """Yield each group of rows with the block of A⁻¹ that belongs to it."""


def make_factor(family: LinearFamily, x: Matrix, s: PointData, shift: float) -> Factor:
    """Return the factor that is made where the machine is fastest."""
    smallest, least, most = DEVICE_TILES
    if not on_host() and len(x) > least:  # fewer are not worth the way there
        unit = smallest // 8  # so that few programs serve all numbers of draws
        whole = -(-len(x) // unit) * unit
        return OnDevice(family, x, s, shift, whole if _COPIES * 8 * whole**2 < room() else most)
    return OnHost(family, x, s, shift)


class OnHost(Factor):
    """A factor that LAPACK makes in place."""

    def __init__(self, family: LinearFamily, x: Matrix, s: PointData, shift: float):
        array = gram_matrix(family, x, s)
        if shift:
            array += shift
        self._array = array.T  # Fortran order, as LAPACK wants it; symmetric, so the same matrix
        self._diagonal = self._array.diagonal().copy()
        self._untouched, self._inverted = True, False

    def diagonal(self):
        return self._diagonal

    def factorise(self, ridge):
        if not self._untouched:
            self._restore()
        self._untouched = False
        np.fill_diagonal(self._array, self._diagonal + ridge)
        _, info = scipy.linalg.lapack.dpotrf(self._array, lower=1, overwrite_a=1, clean=0)
        pivots = self._array.diagonal()
        self.rcond = float((pivots.min() / pivots.max()) ** 2) if info == 0 else 0.0
        return info == 0

    def solve(self, right):
        if self._inverted:
            half = scipy.linalg.blas.dtrmm(1.0, self._array, right, lower=1)
            return scipy.linalg.blas.dtrmm(1.0, self._array, half, lower=1, trans_a=1)
        return scipy.linalg.lapack.dpotrs(self._array, right, lower=1)[0]

    def inverse_diagonal(self):
        self._invert()
        n = len(self._array)
        steps = [np.arange(i, min(i + 256, n)) for i in range(0, n, 256)]
        return np.concatenate([np.sum(self._inverse_columns(step) ** 2, axis=0) for step in steps])

    def inverse_blocks(self, groups):
        self._invert()
        for group in groups:
            columns = self._inverse_columns(group)
            yield group, columns.T @ columns

    def _restore(self) -> None:
        n = len(self._array)
        for start in range(0, n, 256):
            stop = min(start + 256, n)
            self._array[stop:, start:stop] = self._array[start:stop, stop:].T
            block = self._array[start:stop, start:stop]
            block[:] = np.triu(block) + np.triu(block, 1).T

    def _invert(self) -> None:
        """Replace the factor by its inverse, from which every block of A⁻¹ is one product."""
        if not self._inverted:
            scipy.linalg.lapack.dtrtri(self._array, lower=1, overwrite_c=1)
            self._inverted = True

    def _inverse_columns(self, columns: Int[np.ndarray, " k"]) -> np.ndarray:
        """Return these columns of the lower-triangular L⁻¹, below their first row; the rest of the
        array is not part of it."""
        start = int(columns.min())
        block = np.array(self._array[start:, columns], order="F")
        stop = int(columns.max()) + 1 - start
        block[:stop][np.arange(start, start + stop)[:, None] < columns] = 0.0
        return block


class OnDevice(Factor):
    """A factor of tiles of the lower triangle; rows are padded by those of the identity."""

    def __init__(self, family: LinearFamily, x: Matrix, s: PointData, shift: float, tile: int):
        self._family, self._shift, self._tile, self._width = (
            family,
            shift,
            tile,
            min(tile, DEVICE_TILES[-1]),
        )
        self._n = len(x)
        with jax.enable_x64(True):
            self._x, self._s = (jnp.asarray(pad_tiles(array, tile)) for array in (x, s))
        self._count = len(self._x)

    def diagonal(self):
        with jax.enable_x64(True):
            found = [
                gram_diagonal(self._family, a, b) for a, b in zip(self._x, self._s, strict=True)
            ]
            return np.concatenate([np.asarray(part) for part in found])[: self._n] + self._shift

    def factorise(self, ridge):
        whole, real = (
            pad_tiles(column[:, None], self._tile)[:, :, 0] for column in (ridge, np.ones(self._n))
        )
        self._tiles = tiles = dict[tuple[int, int], Any]()
        with jax.enable_x64(True):
            for j in range(self._count):
                for i in range(j, self._count):
                    points = (self._x[i], self._s[i], self._x[j], self._s[j])
                    diagonal = whole[i] + (1 - real[i]) if i == j else None
                    tile = _gram(self._family, *points, real[i], real[j], self._shift, diagonal)
                    for k in range(j):
                        tile = _less(tile, tiles[i, k], tiles[j, k])
                    tiles[i, j] = _root(tile) if i == j else _over(tile, tiles[j, j])
            found = np.concatenate(
                [np.asarray(jnp.diagonal(tiles[j, j])) for j in range(self._count)]
            )[: self._n]
        ok = bool(np.isfinite(found).all())
        self.rcond = float((found.min() / found.max()) ** 2) if ok else 0.0
        return ok

    def solve(self, right):
        with jax.enable_x64(True):
            parts = self._forward([jnp.asarray(part) for part in pad_tiles(right, self._tile)])
            for i in reversed(range(self._count)):
                for k in range(i + 1, self._count):
                    parts[i] = _less_transposed(parts[i], self._tiles[k, i], parts[k])
                parts[i] = _solved_transposed(self._tiles[i, i], parts[i])
            return np.concatenate([np.asarray(part) for part in parts])[: self._n]

    def small_work(self):
        return use_one_thread()  # with sixteen, an exact fit of 20 000 draws took a fifth longer

    def inverse_diagonal(self):
        rows = [np.arange(i, min(i + self._width, self._n)) for i in range(0, self._n, self._width)]
        with jax.enable_x64(True):
            return np.concatenate(
                [np.asarray(jnp.diagonal(self._inverse(some)))[: len(some)] for some in rows]
            )

    def inverse_blocks(self, groups):
        for rows, parts in pack_groups(groups, self._width):
            with jax.enable_x64(True):
                block = np.asarray(self._inverse(rows))
            for part in parts:
                yield rows[part], block[part, part]

    def _inverse(self, rows: Int[np.ndarray, " k"]) -> Any:
        """Return the block of A⁻¹ that belongs to some rows, padded: XᵀX with LX = their columns of
        the identity."""
        width = max(self._width, len(rows))  # one shape for all but groups that are larger
        places = np.pad(rows, (0, width - len(rows)), constant_values=-1)
        unit = [_unit(jnp.asarray(places - i * self._tile), self._tile) for i in range(self._count)]
        total = jnp.zeros((width, width))
        for part in self._forward(unit, int(rows.min()) // self._tile):
            total = _more(total, part)
        return total

    def _forward(self, parts: list[Any], first: int = 0) -> list[Any]:
        """Return L⁻¹ times columns in tiles, those before `first` being zero."""
        for i in range(first, self._count):
            for k in range(first, i):
                parts[i] = _less_product(parts[i], self._tiles[i, k], parts[k])
            parts[i] = _solved(self._tiles[i, i], parts[i])
        return parts[first:]


@eqx.filter_jit
def _gram(family, x, s, y, t, row, column, shift, diagonal):
    tile = (family.gram(x, s, y, t) + shift) * row[:, None] * column
    return (
        tile if diagonal is None else tile + jnp.where(jnp.eye(len(x), dtype=bool), diagonal, 0.0)
    )


def _in_place(function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Compile a function so that its first argument's memory becomes the result's."""
    return jax.jit(function, donate_argnums=0)


_solve = functools.partial(jax.lax.linalg.triangular_solve, lower=True)
_root = _in_place(functools.partial(jax.lax.linalg.cholesky, symmetrize_input=False))
_over = _in_place(lambda tile, factor: _solve(factor, tile, left_side=False, transpose_a=True))
_solved = jax.jit(lambda factor, part: _solve(factor, part, left_side=True))
_solved_transposed = jax.jit(
    lambda factor, part: _solve(factor, part, left_side=True, transpose_a=True)
)
_less = _in_place(lambda tile, left, right: tile - left @ right.T)
_less_product = _in_place(lambda part, tile, other: part - tile @ other)
_less_transposed = _in_place(lambda part, tile, other: part - tile.T @ other)
_more = _in_place(lambda total, part: total + part.T @ part)


@functools.partial(jax.jit, static_argnames="size")
def _unit(rows: Any, size: int) -> Any:
    """Return columns of the identity, those of these rows."""
    return (jnp.arange(size)[:, None] == rows).astype(jnp.float64)
