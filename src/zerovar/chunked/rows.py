"""From a chunk to rows that a fit can use: checked, with integrands and weights, in standardised
coordinates."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float64, Int

from ..inputs.integrands import map_tiles, run_in_double
from ..inputs.points import Standardisation
from .arrays import BadNumbers, finite_block


@dataclasses.dataclass(frozen=True)
class Function:
    """A user's integrands. Workers are sent them again and again: copies of one call are equal, and
    so compiled once."""

    call: str
    function: Callable[[Any], Any] = dataclasses.field(compare=False)

    def __call__(self, draw: Any) -> Any:
        return self.function(draw)


class View(NamedTuple):
    """How rows are looked at; small, and sent to each worker once."""

    standardisation: Standardisation
    function: Function | None  # the integrands, where they are no arrays
    value_names: list[str]  # the arrays of integrands, where they are
    centre: Float64[np.ndarray, " q"]  # integrands enter fits as (f − centre) / unit
    unit: Float64[np.ndarray, " q"]
    log_weight: float  # weights are relative to this
    # edges of the parts, along the draws of a chain, that fits are to
    parts: Int[np.ndarray, " edges"]

    def standardise(self, f: Float64[np.ndarray, "n q"]) -> Float64[np.ndarray, "n q"]:
        """Return integrands as they enter fits."""
        return (f - self.centre) / self.unit


class ChunkRows(NamedTuple):
    """Standardised points and scores, integrands as they are, and what each row counts (None: one
    each)."""

    x: Float64[np.ndarray, "n d"]
    s: Float64[np.ndarray, "n d"]
    f: Float64[np.ndarray, "n q"]
    weights: Float64[np.ndarray, " n"] | None


class OpenChunk(NamedTuple):
    """One chunk, checked. Its arrays are (chain, draw, …); rows are numbered chain after chain."""

    view: View
    chain: int  # where it begins
    draw: int
    draws: np.ndarray
    scores: np.ndarray
    values: list[np.ndarray]
    weights: np.ndarray | None

    @staticmethod
    def of(
        view: View,
        chain: int,
        draw: int,
        draws: Any,
        scores: Any,
        values: Sequence[Any],
        log_weights: Any,
    ) -> OpenChunk:
        """Return one chunk, as `Chunks.tasks` has it, checked."""
        draws, scores = (
            finite_block("draws", draws, chain, draw),
            finite_block("scores", scores, chain, draw),
        )
        values = [
            finite_block(*pair, chain, draw) for pair in zip(view.value_names, values, strict=True)
        ]
        weights = None
        if log_weights is not None:
            with np.errstate(over="ignore"):
                weights = np.exp(
                    finite_block("log_weights", log_weights, chain, draw) - view.log_weight
                )
            if not np.isfinite(weights).all():
                raise BadNumbers(
                    f"log_weights of the chunk that begins at chain {chain}, draw {draw} are "
                    "larger than those of the pilot by more than 700: these few draws would be "
                    "the whole answer. Are these logarithms of weights?"
                )
        return OpenChunk(view, chain, draw, draws, scores, values, weights)

    @property
    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """(chains, 1) and (draws,): the numbers of its chains, and of its draws within a chain."""
        return (self.chain + np.arange(len(self.draws)))[:, None], self.draw + np.arange(
            self.draws.shape[1]
        )

    def part(self, number: int) -> np.ndarray:
        """Return the rows that lie in a part."""
        first, last = np.searchsorted(self.places[1], self.view.parts[[number, number + 1]])
        return (
            np.arange(len(self.draws))[:, None] * self.draws.shape[1] + np.arange(first, last)
        ).ravel()

    def rows(self, which: np.ndarray) -> ChunkRows:
        """Return some of the rows, at least one, as a fit can use them."""
        draws, scores, *values = (
            _rows(array, which) for array in (self.draws, self.scores, *self.values)
        )
        weights = None if self.weights is None else self.weights.ravel()[which]
        return ChunkRows(
            *self.view.standardisation(draws, scores), self._integrands(draws, values), weights
        )

    def _integrands(self, draws: np.ndarray, values: list[np.ndarray]) -> np.ndarray:
        """Return integrands (n, q), from the arrays or from the function."""
        function = self.view.function
        if function is None:
            return values[0] if len(values) == 1 else np.concatenate(values, axis=1)
        f = run_in_double("values", lambda: evaluate_in_tiles(function, draws))
        if not np.isfinite(f).all():
            first = draws[np.argwhere(~np.isfinite(f))[0][0]]
            where = (
                f"the chunk that begins at chain {self.chain}, draw {self.draw}, first at the "
                f"draw {first}"
            )
            raise BadNumbers(
                f"values must be finite; the function gives NaN or infinity in {where}"
            )
        return f


def _rows(array: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return rows of (chain, draw, k) by number; without a copy where they follow each other, as
    they do in one chain."""
    flat = array.reshape(-1, array.shape[2])
    return flat[rows[0] : rows[-1] + 1] if rows[-1] - rows[0] + 1 == len(rows) else flat[rows]


def evaluate_in_tiles(function: Callable[[Any], Any], draws: Any) -> Float64[np.ndarray, "n m"]:
    """Evaluate a function of one draw at an array or tree of arrays (n, …), its results side by
    side; compiled once for all chunks."""
    leaves = jax.tree.leaves(map_tiles(lambda some: _at_tile(function, some), draws))
    return np.concatenate(
        [np.asarray(leaf, dtype=np.float64).reshape(len(leaf), -1) for leaf in leaves], axis=1
    )


@eqx.filter_jit
def _at_tile(function: Any, draws: Any) -> Any:
    return jax.vmap(function)(draws)
