"""The families that are taken where a user names none, and asks for no choice either."""

from ..families import LinearFamily, Polynomial
from .policy import Policy

_POLICY = Policy()


def polynomial(n: int, d: int) -> LinearFamily:
    """As large as n draws in d dimensions allow: quadratic, or linear."""
    quadratic = Polynomial(2)
    return quadratic if _POLICY.draws_per_term * quadratic.num_features(d) <= n else Polynomial(1)


def streamed_polynomial(n: int, d: int) -> LinearFamily:
    """Of the highest degree up to three with at most 600 terms, and twenty draws for each: for
    draws larger than memory."""
    most = min(_POLICY.streamed_terms, n / _POLICY.streamed_draws_per_term)
    return next((p for p in map(Polynomial, (3, 2)) if p.num_features(d) <= most), Polynomial(1))


def polynomials(n: int, d: int) -> list[LinearFamily]:
    """Of degrees one to three, as far as n draws in d dimensions give each term twenty: simple
    ones, to hold others against."""
    rich = [
        p
        for p in map(Polynomial, (2, 3))
        if p.num_features(d) * _POLICY.streamed_draws_per_term <= n
    ]
    return [Polynomial(1), *rich]
