"""What a fit consists of: functions with their trained parameters, evaluated on the host in
compiled tiles."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float64

from ..families import LinearFamily, NonlinearFamily
from ..inputs.integrands import KEPT
from ..inputs.points import PointData
from ..io.archive import Storable
from .algebra.tiles import Matrix, evaluate, evaluate_tiles, split_translates


class Term(Storable, ABC):
    """One summand of g."""

    @abstractmethod
    def __call__(self, x: Matrix, s: PointData) -> Float64[np.ndarray, "n q"]:
        """Return its values at standardised points with scores."""

    def name_terms(self, names: tuple[str, ...] | None) -> list[tuple[str, ...]] | None:
        """Return for each integrand the terms that were chosen for it, in these names of
        coordinates; None if none were chosen."""
        return None


def sum_terms(terms: Sequence[Term], x: Matrix, s: PointData, q: int) -> Float64[np.ndarray, "n q"]:
    """Return g for q integrands: the sum of its terms, which may be none."""
    return sum((term(x, s) for term in terms), np.zeros((len(x), q)))


@dataclasses.dataclass(frozen=True)
class LinearTerm(Term):
    """Features of a linear family times coefficients (p, q)."""

    family: LinearFamily
    coefficients: Any

    def __call__(self, x, s):
        return evaluate(self.family, self.coefficients, x, s)


def linear_terms(
    families: Sequence[LinearFamily], theta: Float64[np.ndarray, "p q"], d: int
) -> tuple[LinearTerm, ...]:
    """Return a term a family, from the coefficients of all their features in d dimensions, side by
    side."""
    ends = np.cumsum([width(family, d) for family in families])
    return tuple(
        LinearTerm(*pair) for pair in zip(families, np.split(theta, ends)[:-1], strict=True)
    )


def terms_of_translates(
    span: LinearFamily, a: Float64[np.ndarray, "n q"]
) -> tuple[LinearTerm, ...]:
    """Return Σ_j k₀(·, x_j) a_j of a span of translates. Parts of k₀ that are translates themselves
    get coefficients of their own: else a value at a point would make all of them for each x_j."""
    kernel = span.translated
    assert kernel is not None, "as `make_border` arranges them"
    made, rest = split_translates(kernel.family)
    terms = [] if rest is None else [LinearTerm(rest.translates(kernel.points, kernel.scores), a)]
    for part in made:
        columns = part.family.translates(kernel.points, kernel.scores)
        theta = evaluate(columns, a, part.points, part.scores)
        terms.append(LinearTerm(part, theta if part.lift is None else part.lift.T @ theta))
    return tuple(terms)


LinearParts = tuple[LinearFamily, ...]


def arrange(family: LinearFamily, d: int) -> tuple[LinearParts, Float64[np.ndarray, " p"]]:
    """Return the family in parts, penalised ones first, and for each feature 1 where a ridge holds
    it and 0 where it is free."""
    penalised, free = family.split()
    parts = [(part, flag) for part, flag in ((penalised, 1.0), (free, 0.0)) if part is not None]
    return tuple(part for part, _ in parts), np.concatenate(
        [np.full(width(part, d), flag) for part, flag in parts]
    )


def width(term: LinearFamily, d: int) -> int:
    """Return how many features a family has; raise an error, before memory is taken, if they are
    far too many."""
    p = term.num_features(d)
    assert p is not None, "a family without features has only a Gram"
    if p > KEPT:
        raise ValueError(
            f"{term.describe()} has {p:,} terms in d = {d}, more than fit into memory one by one. "
            "Use a lower degree, or "
            "solver=Exact() with a Ridge penalty, which needs only the Gram matrix of the draws"
        )
    return p


@dataclasses.dataclass(frozen=True)
class NetworkTerm(Term):
    """A trained network; `scale` (q,) is the unit of each integrand that it was trained in."""

    network: NonlinearFamily
    scale: Any

    def __call__(self, x, s):
        return (
            evaluate_tiles(
                lambda a, b: _values(self.network, a, b), x, s, self.network.floats(x.shape[1])
            )
            * self.scale
        )


_values = eqx.filter_jit(lambda network, x, s: network(x, s))
