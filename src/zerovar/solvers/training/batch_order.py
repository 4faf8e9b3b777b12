"""Which draws make up the batches of each round.

They are chosen on the host, in tables of a fixed shape for several rounds at once: a compiled sort
and random numbers would be most of the time that a training loop takes to compile, for every loop
anew.
"""

import dataclasses

import numpy as np
from jaxtyping import Float64, Int32

# Rows that a training has before it at once: row numbers of the rounds to come, and the draws of a
# window of chunked ones, whose mixture is to stand for all. Some thousand steps, and small next to
# memory.
TRAINED_AT_ONCE = 2**17


@dataclasses.dataclass(frozen=True)
class BatchOrder:
    """`steps` batches of `size` a round, from a ladder of cumulated probabilities; a round's depend
    on its number and the seed.

    Stratified: one from each of as many equal slices of probability, in random order, so that a
    round visits every draw as often as it should; with equal probabilities that is a shuffle.
    Otherwise independently.
    """

    ladder: Float64[np.ndarray, " m"]
    steps: int
    size: int
    stratified: bool
    seed: int

    @property
    def most(self) -> int:
        """Batches that a table has room for: as many as there may be, whatever the number of draws
        that the ladder is padded from."""
        return -(-len(self.ladder) // self.size)

    @property
    def together(self) -> int:
        """Rounds that a table has room for."""
        return max(1, TRAINED_AT_ONCE // (self.most * self.size))

    def table(self, first: int, count: int) -> Int32[np.ndarray, "together most size"]:
        """Return row numbers of `count` rounds from `first` on; zeros in the rest."""
        out = np.zeros((self.together, self.most, self.size), dtype=np.int32)
        for k in range(count):
            out[k, : self.steps] = self.round(first + k)
        return out

    def round(self, number: int) -> Int32[np.ndarray, "steps size"]:
        """Return the row numbers of one round."""
        rng, count = np.random.default_rng([self.seed, 5, number]), self.steps * self.size
        uniform = rng.random(count)
        if self.stratified:
            uniform = (np.arange(count) + uniform) / count
        rows = np.minimum(np.searchsorted(self.ladder, uniform), len(self.ladder) - 1).astype(
            np.int32
        )
        return (rng.permutation(rows) if self.stratified else rows).reshape(self.steps, self.size)
