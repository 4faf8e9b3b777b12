"""Polynomials of few terms: what hundreds of parameters leave affordable beyond a linear control
variate."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ..arguments import Requirement, check_argument, read_whole_numbers, takes, where, whole
from ..hyper import LEAF, WEIGHT
from .base import MonomialChoice, MonomialFamily
from .monomials import SUPERSCRIPTS, monomial_images, with_constant
from .polynomial import Polynomial


class SparsePolynomial(MonomialFamily):
    """Control variates L u with u a polynomial of degree at most `degree` in the parameters
    themselves, of which only the terms that matter are taken: all linear ones and squares where the
    draws allow, and those products that the fit finds.

    Parameters are scaled and not mixed, as mixing would turn one product into thousands. The terms
    are part of the fit (`Screening`, the default solver): each integrand has its own, so errors are
    cross-fitted. `terms` bounds the number of products an integrand; by default there are as many
    as stand out from chance.

    `monomials` (p, degree) are the terms where they are known: each row has the numbers of its
    coordinates in increasing order, with −1 for none at the end, so that (0, 3) is x₀x₃ and (3, −1)
    is x₃. Without them every other solver, and a sum with other families, takes all terms up to the
    degree. `weight` is the prior variance of the coefficients.
    """

    degree: int = eqx.field(static=True)
    terms: int | None = eqx.field(static=True)
    monomials: np.ndarray | None
    weight: np.ndarray = eqx.field(metadata=WEIGHT)

    # powers have names of one character
    @takes(degree=whole(1, len(SUPERSCRIPTS) - 1), terms=whole(0), weight=LEAF)
    def __init__(
        self, degree: int = 3, terms: int | None = None, monomials: Any = None, weight: float = 1.0
    ):
        self.degree, self.terms, self.weight = degree, terms, np.asarray(weight)
        self.monomials = None
        if monomials is not None:
            self.monomials = check_argument(
                "SparsePolynomial: monomials", monomials, _monomials(degree)
            )

    @property
    def keeps_axes(self):
        return True

    def describe(self):
        inside = [str(self.degree)]
        if self.monomials is not None:
            inside.append(f"{len(self.monomials)} terms")
        elif self.terms is not None:
            inside.append(f"terms={self.terms}")
        if self.weight != 1:
            inside.append(f"weight {self.weight:.3g}")
        return f"SparsePolynomial({', '.join(inside)})"

    def check(self, d):
        if self.monomials is not None and self.monomials.max() >= d:
            raise ValueError(
                f"SparsePolynomial: monomials must be of coordinates 0 … {d - 1} for draws with d "
                f"= {d}; got {self.monomials.max()}"
            )

    @property
    def choice(self):
        if self.monomials is not None:
            return None
        return MonomialChoice(self.degree, self.terms, float(self.weight))

    def with_monomials(self, monomials):
        return SparsePolynomial(self.degree, self.terms, monomials, float(self.weight))

    def unweighted(self):
        return SparsePolynomial(self.degree, self.terms, self.monomials)

    def num_features(self, d):
        return self._dense().num_features(d) if self.monomials is None else len(self.monomials)

    def features(self, x, s):
        if self.monomials is None:
            return self._dense().features(x, s)
        _, images, scale = monomial_images(*with_constant(x.T, s.T, jnp), self.monomials, jnp)
        return (jnp.sqrt(self.weight) * scale[:, None] * images).T

    def gram(self, x, s, y, t):
        return (
            self._dense().gram(x, s, y, t) if self.monomials is None else super().gram(x, s, y, t)
        )

    def work(self, d):
        return self._dense().work(d) if self.monomials is None else len(self.monomials)

    def apply(self, x, s, theta):
        return (
            self._dense().apply(x, s, theta)
            if self.monomials is None
            else super().apply(x, s, theta)
        )

    def _dense(self) -> Polynomial:
        """Return the polynomial with all monomials up to the degree."""
        unit = Polynomial(self.degree)
        return eqx.tree_at(lambda family: family.weight, unit, self.weight * np.ones(self.degree))


def _monomials(degree: int) -> Requirement:
    """Return the requirement of rows that are distinct monomials of at most this degree."""

    def test(rows: np.ndarray) -> bool:
        absent = rows == -1
        in_order = (rows[:, 1:] >= rows[:, :-1]) | absent[:, 1:]
        at_end = absent[:, 1:] >= absent[:, :-1]
        return (
            rows.shape == (len(rows) or 1, degree)
            and bool((rows >= -1).all() and (in_order & at_end).all())
            and not absent[:, 0].any()
            and len(np.unique(rows, axis=0)) == len(rows)
        )

    words = (
        f"integers (p, {degree}), one row a term: coordinate numbers in increasing order, −1 for "
        "none at the end, and no row twice"
    )
    return where(words, test, lambda value: read_whole_numbers(value).astype(np.int32))
