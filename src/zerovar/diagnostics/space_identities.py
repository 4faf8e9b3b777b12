"""Stein's identities in spaces other than Rᵈ: for the coordinates that families see, some
combinations of these, and their squares, by the space's own operator."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float64

from ..inputs.sample import Sample
from ..operators import Barker, Operator, ScalarLangevin
from ..statistics.series import autocorrelation_time, some_columns
from .identities import SHORTEST, BatchMean, batch_length

# Directions in which coordinates move together: those that hold most of what they have in common
_PRINCIPAL = 4
# Draws of a rare state that may all be missing: −log 0.001, the level of a test
_UNSEEN = 7


class SpaceIdentities(NamedTuple):
    """How far means of L φ are from zero, for coordinates φ = x_j − m_j, combinations of these, and
    their squares: p-values. How many times too large E[φ L φ] is for coordinates, and the errors of
    that, of combinations as well; and the number of batches."""

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
    images = _Images.of(sample, factor)
    linear, square, energy = images.along(np.eye(images.dim))
    of_linear, of_square = _batch_means(sample, linear, square)
    # a neighbour that no draw has seen adds as much the other way
    step, far = images.steps, np.abs(images.centred).max(axis=0)
    of_linear = of_linear.allow(_UNSEEN * step / len(sample))
    of_square = of_square.allow(_UNSEEN * step * (2 * far + step) / len(sample))
    size = np.maximum(sample.probabilities @ energy, np.finfo(float).tiny)
    tests = [of_linear.p_values(), of_square.p_values()]
    scale_error = of_square.error / (2 * size)
    # Spins without a field, each by itself, pass with any scores, so that some directions are
    # tested in which they move together: those of the first halves of chains, on the second
    half = len(sample) // sample.num_chains // 2
    later = np.zeros(sample.by_chain(sample.draws).shape[:2], dtype=bool)
    later[:, half:] = True
    if images.dim > 1 and half >= SHORTEST:
        directions = images.principal(~later.ravel())
        rows = np.flatnonzero(later)
        linear, square, energy = (part[rows] for part in images.along(directions))
        of_both = _batch_means(sample.take(rows, sample.num_chains), linear, square)
        tests += [one.p_values() for one in of_both]
        more = of_both[1].error / (2 * np.maximum(energy.mean(axis=0), np.finfo(float).tiny))
        scale_error = np.concatenate([scale_error, more])
    return SpaceIdentities(
        np.concatenate(tests),
        1 - of_square.value / (2 * size),
        scale_error,
        len(of_linear.batches),
    )


@eqx.filter_jit
def _moments(operator: Operator, x: Any, s: Any) -> Any:
    return jax.vmap(operator.moments)(x, s)


def _batch_means(sample: Sample, *parts: Float64[np.ndarray, "n k"]) -> list[BatchMean]:
    """Return the means of some series over batches that are longer than what is slow in them."""
    some = np.concatenate([some_columns(part, 20) for part in parts], axis=1)
    batch = batch_length(sample, autocorrelation_time(sample.by_chain(some)))
    weights = None
    if sample.weights is not None:
        weights = sample.by_chain(len(sample) * sample.weights)
    return [BatchMean.of(sample.by_chain(part), weights, batch) for part in parts]


class _Images(NamedTuple):
    """L x and Γ at all draws, as `moments` of an operator has them, and x about its mean."""

    drift: np.ndarray
    spread: np.ndarray
    centred: np.ndarray
    probabilities: np.ndarray
    steps: np.ndarray  # how far neighbours are along each coordinate, 0 where there are none

    @staticmethod
    def of(sample: Sample, factor: float) -> "_Images":
        """Compute them, with scores times `factor`; what is impossible stays so."""
        space = sample.space.resolve(sample.draws, sample.probabilities)
        scores = np.where(np.isinf(sample.scores), sample.scores, factor * sample.scores)
        x, s = space.place(sample.draws, scores)
        operator, p, steps = space.own(ScalarLangevin()), sample.probabilities, np.zeros(x.shape[1])
        with jax.enable_x64(True):
            drift, spread = map(np.asarray, _moments(operator, x, s))
            if isinstance(operator, Barker):
                moves = np.abs(np.asarray(operator.moves(jnp.asarray(x))))
                steps = moves[:, : x.shape[1]].max(axis=0)
        return _Images(drift, spread, x - p @ x, p, steps)

    @property
    def dim(self) -> int:
        """The number of coordinates that families see."""
        return self.centred.shape[1]

    def along(
        self, directions: Float64[np.ndarray, "d k"]
    ) -> tuple[Float64[np.ndarray, "n k"], Float64[np.ndarray, "n k"], Float64[np.ndarray, "n k"]]:
        """Return L φ for φ = ξ·(x − m) along directions ξ, L φ², and ξ·Γξ = L φ²/2 − φ L φ, whose
        mean is −E[φ L φ]."""
        linear, phi = self.drift @ directions, self.centred @ directions
        if self.spread.ndim == 3:
            energy = np.sum((self.spread @ directions) * directions, axis=1)
        else:
            energy = self.spread @ directions**2
        return linear, 2 * (phi * linear + energy), energy

    def principal(self, some: Bool[np.ndarray, " n"]) -> Float64[np.ndarray, "d k"]:
        """Return the directions in which some of the draws move most."""
        x, p = self.centred[some], self.probabilities[some]
        vectors = np.linalg.eigh((x * p[:, None]).T @ x)[1]
        return vectors[:, -_PRINCIPAL:]
