"""The polynomials that are taken where a user names no family, and asks for no choice either."""

from collections.abc import Sequence

from ..families import LinearFamily, Polynomial
from ..inputs.points import DRAWS_PER_TERM
from .policy import Policy


def polynomials(
    n: int, d: int, draws_per_term: float, most: int | None = None
) -> Sequence[LinearFamily]:
    """Degrees one to three, as far as there are draws for each term and at most so many terms; a
    line always."""
    rich = (Polynomial(degree) for degree in (2, 3))
    terms = n / draws_per_term if most is None else min(most, n / draws_per_term)
    return [Polynomial(1), *(one for one in rich if one.num_features(d) <= terms)]


def streamed_polynomial(n: int, d: int, policy: Policy) -> LinearFamily:
    """The richest one for draws larger than memory, whose chains may be slow."""
    slow = DRAWS_PER_TERM * policy.slow_factor
    return polynomials(n, d, slow, policy.streamed_terms)[-1]
