"""Stein's identities in spaces other than Rᵈ: for the coordinates that families see, and their
squares, by the space's own operator."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float64

from ..inputs.sample import Sample
from ..operators import Operator, ScalarLangevin
from ..statistics.series import autocorrelation_time, some_columns
from .identities import BatchMean, batch_length


class SpaceIdentities(NamedTuple):
    """How far means of L φ are from zero, for coordinates φ = x_j − m_j and their squares: the
    p-values (2k,); how many times too large E[φ L φ] is, with its error (k,); and the number of
    batches."""

    p_values: np.ndarray
    scale: np.ndarray
    scale_error: np.ndarray
    num_batches: int

    @property
    def adjusted(self) -> float:
        """The smallest p-value times the number of tests."""
        return float(min(1.0, len(self.p_values) * self.p_values.min()))


def identities_in_space(sample: Sample, factor: float = 1.0) -> SpaceIdentities:
    """Test the identities, with scores times `factor`."""
    linear, square, energy = _images(sample, factor)
    series = [sample.by_chain(part) for part in (linear, square)]
    some = np.concatenate([some_columns(part, 20) for part in (linear, square)], axis=1)
    slowest = autocorrelation_time(sample.by_chain(some))
    batch = batch_length(sample, slowest)
    weights = None
    if sample.weights is not None:
        weights = sample.by_chain(len(sample) * sample.weights)
    of_linear, of_square = (BatchMean.of(one, weights, batch) for one in series)
    size = np.maximum(sample.probabilities @ energy, np.finfo(float).tiny)
    return SpaceIdentities(
        np.concatenate([of_linear.p_values(), of_square.p_values()]),
        1 - of_square.value / (2 * size),
        of_square.error / (2 * size),
        len(of_linear.batches),
    )


@eqx.filter_jit
def _both(operator: Operator, centre: Any, x: Any, s: Any) -> Any:
    """L of φ and φ² at all points, (n, 2, k)."""

    def one(x: Any, s: Any) -> Any:
        return operator(lambda at: jnp.stack([at - centre, (at - centre) ** 2]), x, s)

    return jax.vmap(one)(x, s)


def _images(sample: Sample, factor: float) -> tuple[Float64[np.ndarray, "n k"], ...]:
    """Return L φ for coordinates about their means, L φ², and Γφ = L φ²/2 − φ L φ, whose mean is
    −E[φ L φ]."""
    x, s = sample.space.place(sample.draws, factor * sample.scores)
    operator, centre = sample.space.own(ScalarLangevin()), sample.probabilities @ x
    with jax.enable_x64(True):
        both = np.asarray(_both(operator, centre, x, s))
    linear, square = both[:, 0], both[:, 1]
    return linear, square, square / 2 - (x - centre) * linear
