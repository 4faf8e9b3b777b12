"""Draws that are larger than memory: chunked arrays of Dask, recognised, checked, aligned, and
looked at.

A chunked array is a dask array, or an xarray DataArray or Variable with one inside (Zarr and NetCDF
files opened with `chunks=`). Nothing here loads more than a few chunks: shapes are known
beforehand, and numbers are checked as they stream by.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int

from ..inputs.integrands import FEW_NUMBERS, ROWS, as_values, has_chains
from ..inputs.points import FittingDraws
from ..inputs.sample import Sample

# Draws of the pilot: enough to standardise, check and choose by. It is read in pieces of about
# `ROWS` draws, each from one chunk where that can be had: fewer stand for less of the chains, and
# more are more to read.
_PILOT_DRAWS = 2**15

Blocks = Any  # a dask array (chain, draw, …)


class BadNumbers(ValueError):
    """An error that a block raises about its numbers; the message is for the user."""


@contextmanager
def plain_errors() -> Iterator[None]:
    """Raise what blocks say about the user's numbers without the trace of Dask, whose doing it is
    not."""
    try:
        yield
    except BadNumbers as error:
        raise ValueError(str(error)) from None


class Columns(Mapping[str, Any]):
    """A mapping from names to (chain, draw), kept as one chunked array (chain, draw, q): one task a
    chunk, however many names there are."""

    def __init__(self, names: tuple[str, ...], array: Blocks):
        self.names, self.array = names, array

    def __getitem__(self, name: str) -> Blocks:
        if name not in self.names:
            raise KeyError(name)
        return self.array[:, :, self.names.index(name)]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"Columns({', '.join(self.names)})"


class Pilot(NamedTuple):
    """Some of the draws, as a sample of short segments; their integrands, the names of these, the
    largest log weight."""

    sample: Sample
    values: Float64[np.ndarray, "n q"]
    names: tuple[str, ...]
    events: Bool[np.ndarray, " q"]
    log_weight: float
    chain: Int[np.ndarray, " n"]  # where each of them is
    draw: Int[np.ndarray, " n"]


class ChunkTask(NamedTuple):
    """One chunk: its first chain and draw, and the delayed blocks of its arrays."""

    chain: int
    draw: int
    draws: Blocks
    scores: Blocks
    values: list[Blocks]
    log_weights: Blocks | None


def is_chunked(thing: Any) -> bool:
    """Return whether this is a chunked array, or a dict with one: by Dask's protocol, without
    importing Dask."""
    graph = getattr(thing, "__dask_graph__", None)
    if callable(graph):
        return graph() is not None
    return isinstance(thing, Mapping) and any(map(is_chunked, thing.values()))


@dataclasses.dataclass(frozen=True)
class Chunks:
    """Draws, scores and integrands in aligned chunks: cut alike along chains and draws, and never
    along parameters."""

    draws: Blocks  # (chain, draw, d)
    scores: Blocks  # (chain, draw, d)
    # (chain, draw, q), a dict of such, or a function of one draw
    values: dict[str, Blocks] | Blocks | Callable[[Any], Any]
    log_weights: Blocks | None  # (chain, draw)
    # of the entries of `values`, where it is one array that has names
    names: tuple[str, ...] | None = None

    @staticmethod
    def of(draws: Any, scores: Any, values: Any, log_weights: Any) -> Chunks:
        """Return what a user has in aligned chunks; `values` None stands for the draws."""
        draws, scores = _chunked_array("draws", draws), _chunked_array("scores", scores)
        if draws.shape != scores.shape or draws.ndim not in (2, 3):
            got = f"{draws.shape} and {scores.shape}. For one parameter use draws[:, None]"
            raise ValueError(
                f"draws and scores must have the same shape, (n, d) or (chain, draw, d); got {got}"
            )
        if draws.ndim == 2:
            draws, scores = draws[None], scores[None]
        chains, length, d = draws.shape
        if not (chains and d) or length < 4:
            raise ValueError(
                f"draws must hold at least 4 draws a chain of at least one parameter; got {chains} "
                f"chain(s) of {length} draws "
                f"in {d} dimensions. If the axes are (parameter, draw), transpose"
            )
        cuts = _cuts(draws)

        def align(name: str, entry: Any) -> Blocks:
            array = _flat(name, _chunked_array(name, entry), chains, length)
            return array.rechunk({0: cuts[0], 1: cuts[1], 2: -1})

        draws, scores = align("draws", draws), align("scores", scores)
        names = None
        if values is None:
            names, values = tuple(f"x{j}" for j in range(d)), draws
        elif isinstance(values, Columns):
            names, values = values.names, align("values", values.array)
        elif isinstance(values, Mapping):
            if not values:
                raise ValueError("values is an empty dict: give at least one integrand")
            values = {str(key): align(f"values[{key!r}]", entry) for key, entry in values.items()}
        elif is_chunked(values) or not callable(values):
            values = align("values", values)
        if log_weights is not None:
            log_weights = align("log_weights", log_weights)
            if log_weights.shape[2] != 1:
                raise ValueError(
                    f"log_weights must be (n,) or (chain, draw); got {log_weights.shape}"
                )
            log_weights = log_weights[:, :, 0]
        return Chunks(draws, scores, values, log_weights, names)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(chains, draws a chain, d)."""
        return self.draws.shape

    def __len__(self) -> int:
        return self.shape[0] * self.shape[1]

    @property
    def value_blocks(self) -> dict[str, Blocks]:
        """The integrands that are arrays, in order, by what messages call them; none where they are
        a function."""
        if isinstance(self.values, dict):
            return {f"values[{key!r}]": array for key, array in self.values.items()}
        return {} if self.function else {"values": self.values}

    @property
    def function(self) -> Callable[[Any], Any] | None:
        """The integrands, where they are no arrays."""
        return self.values if callable(self.values) and not is_chunked(self.values) else None

    def pilot(self, names: Sequence[str] | None, coordinates: Sequence[str] | None = None) -> Pilot:
        """Read some of the draws, in segments spread over all chains, with their integrands."""
        import dask

        places, length = self._pieces()

        weights = {} if self.log_weights is None else {"log_weights": self.log_weights}
        arrays = {"draws": self.draws, "scores": self.scores} | weights | self.value_blocks
        wanted = {
            label: [array[at, start : start + length] for at, start in places]
            for label, array in arrays.items()
        }
        found = {label: np.stack(pieces) for label, pieces in dask.compute(wanted)[0].items()}
        for label, array in found.items():
            for piece, place in zip(array, places, strict=True):
                finite_block(label, piece[None], *place)
        log_weights = found.pop("log_weights", None)
        sample = Sample(found.pop("draws"), found.pop("scores"), log_weights, coordinates)
        values = next(iter(found.values()), self.values)
        if isinstance(self.values, dict):
            values = dict(zip(self.values, found.values(), strict=True))
        array, names, events = as_values(values, sample, self.names if names is None else names)
        # equal draws with other scores or values are an error
        FittingDraws(sample.points()).merge(array)
        chain, first = np.array(places).T
        where = np.repeat(chain, length), (first[:, None] + np.arange(length)).ravel()
        return Pilot(
            sample,
            array,
            names,
            events,
            0.0 if log_weights is None else float(log_weights.max()),
            *where,
        )

    def _pieces(self) -> tuple[list[tuple[int, int]], int]:
        """Return (chain, first draw) of each segment of the pilot, and their length; whole chains
        if there are few draws."""
        chains, draws, _ = self.shape
        if len(self) <= 1.5 * _PILOT_DRAWS:
            return [(chain, 0) for chain in range(chains)], draws
        pieces = -(-_PILOT_DRAWS // ROWS)
        used = np.unique(np.linspace(0, chains - 1, min(chains, pieces)).astype(int))
        per = -(-pieces // len(used))
        length = min(max(_PILOT_DRAWS // (per * len(used)), 4), draws // per)
        edges = np.concatenate([[0], np.cumsum(self.draws.chunks[1])])
        places = []
        for j, chain in enumerate(used):
            for i in range(per):
                start = min(int((i + j / len(used)) * draws / per), draws - length)
                block = int(np.searchsorted(edges, start, side="right")) - 1
                # inside one chunk, where that can be had: fewer are read
                if edges[block + 1] - edges[block] >= length:
                    start = min(start, int(edges[block + 1]) - length)
                places.append((int(chain), start))
        return places, length

    def tasks(self) -> list[ChunkTask]:
        """Return all chunks.

        Graphs are not optimised one by one: so arrays that are cut from the same file keep sharing
        what is read of it.
        """

        def blocks(array: Blocks) -> np.ndarray:
            return array.to_delayed(optimize_graph=False).reshape(*array.numblocks[:2])

        x, s, *values = (
            blocks(array) for array in (self.draws, self.scores, *self.value_blocks.values())
        )
        weights = np.full(x.shape, None) if self.log_weights is None else blocks(self.log_weights)
        chains, draws = (
            [0, *itertools.accumulate(map(int, sizes))] for sizes in self.draws.chunks[:2]
        )
        places = itertools.product(range(x.shape[0]), range(x.shape[1]))
        return [
            ChunkTask(
                chains[i], draws[j], x[i, j], s[i, j], [v[i, j] for v in values], weights[i, j]
            )
            for i, j in places
        ]


def finite_block(name: str, block: Any, chain: int, draw: int) -> np.ndarray:
    """Return a block (chain, draw, …), which begins at this chain and draw, in double precision;
    raise an error where it is not finite."""
    array = np.asarray(block, dtype=np.float64)
    # a sum that overflows is looked at more closely
    if not np.isfinite(array.sum()) and (bad := ~np.isfinite(array)).any():
        at = np.argwhere(bad)[0]
        first = f"the first at chain {at[0] + chain}, draw {at[1] + draw}" + (
            f", entry {at[2]}" if len(at) > 2 else ""
        )
        got = (
            f"{bad.sum()} NaN or infinite entries in the chunk that begins at chain {chain}, "
            f"draw {draw}, {first}"
        )
        advice = (
            "Remove those draws or mend the log density there: zerovar does not drop them for you"
        )
        raise BadNumbers(f"{name} must be finite; got {got}. {advice}")
    return array


def _chunked_array(name: str, thing: Any) -> Blocks:
    """Return the dask array inside, (chain, draw, …) in that order where dimensions have names."""
    import dask.array

    if not is_chunked(thing):
        raise ValueError(
            f"{name} is in memory ({type(thing).__name__}) while other arguments are chunked. Give "
            f"all of them chunked, dask.array.from_array({name.partition('[')[0]}, chunks=…), or "
            "all of them in memory, np.asarray(…)"
        )
    if isinstance(getattr(thing, "dims", None), tuple):  # xarray
        thing = (
            thing.transpose("chain", "draw", ...) if {"chain", "draw"} <= set(thing.dims) else thing
        ).data
    if not isinstance(thing, dask.array.Array):
        raise ValueError(
            f"{name} must be a dask array, or an xarray DataArray with one inside; got "
            f"{type(thing).__name__}"
        )
    if thing.dtype.kind not in "fiub":
        raise ValueError(
            f"{name} must be an array of real numbers; got an array of dtype {thing.dtype}"
        )
    if np.isnan(thing.shape).any():
        raise ValueError(f"{name} has chunks of unknown size; call its compute_chunk_sizes() first")
    return thing


def _flat(name: str, array: Blocks, chains: int, length: int) -> Blocks:
    """Return any of the shapes that `estimate` takes as (chain, draw, q)."""
    if has_chains(name, array.shape, chains, length):
        return array if array.ndim == 3 else array[:, :, None]
    flat = array if array.ndim == 2 else array[:, None]
    return flat[None] if chains == 1 else flat.reshape(chains, length, flat.shape[1])


def _cuts(draws: Blocks) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return sizes of chunks along chains and along draws: those of the draws, small ones
    joined."""
    of_chains, of_draws, _ = draws.chunks
    row = draws.shape[2]
    of_draws = _join(of_draws, FEW_NUMBERS / (row * max(of_chains)))
    return _join(of_chains, FEW_NUMBERS / (row * max(of_draws))), of_draws


def _join(sizes: Sequence[int], least: float) -> tuple[int, ...]:
    """Put neighbours together until each has `least`; the last may have less."""
    out: list[int] = []
    for size in map(int, sizes):
        if out and out[-1] < least:
            out[-1] += size
        else:
            out.append(size)
    return tuple(out)
