"""What a fit consists of: functions with their trained parameters, evaluated on the host in compiled tiles."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float64

from ..families import LinearFamily, Network
from .blocks import Matrix, evaluate, in_tiles


class Term(ABC):
    """One summand of g."""

    @abstractmethod
    def __call__(self, x: Matrix, s: Matrix) -> Float64[np.ndarray, "n q"]:
        """Its values at standardised points with scores."""


def summed(terms: Sequence[Term], x: Matrix, s: Matrix, q: int) -> Float64[np.ndarray, "n q"]:
    """g for q integrands: the sum of its terms, which may be none."""
    return sum((term(x, s) for term in terms), np.zeros((len(x), q)))


@dataclasses.dataclass(frozen=True)
class LinearTerm(Term):
    """Features of a linear family times coefficients (p, q)."""

    family: LinearFamily
    coefficients: Any

    def __call__(self, x, s):
        return evaluate(self.family, self.coefficients, x, s)


def linear_terms(families: Sequence[LinearFamily], theta: Float64[np.ndarray, "p q"], d: int) -> tuple[LinearTerm, ...]:
    """A term a family, from the coefficients of all their features in d dimensions, side by side."""
    sizes = [family.num_features(d) or 0 for family in families]
    shares = np.split(theta, np.cumsum(sizes)[:-1])
    return tuple(LinearTerm(*pair) for pair in zip(families, shares, strict=True))


@dataclasses.dataclass(frozen=True)
class NetworkTerm(Term):
    """A trained network; `scale` (q,) is the unit of each integrand that it was trained in."""

    network: Network
    scale: Any

    def __call__(self, x, s):
        values = in_tiles(lambda a, b: _values(self.network, a, b), x, s, self.network.floats(x.shape[1]))
        return values * self.scale


@eqx.filter_jit
def _values(network: Network, x: Any, s: Any) -> jax.Array:
    return network(x, s)
