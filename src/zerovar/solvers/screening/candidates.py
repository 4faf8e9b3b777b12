"""Which products of coordinates correlate with what a fit leaves.

Every term is a term of one degree less times a coordinate: a child of its parent P, whose image is
x_k L P + s_k P, but for derivatives of P. So the sums of a residual r times all children of some
parents are two matrix products, (r ∘ L P) xᵀ + (r ∘ P) sᵀ, and no child is made until it is on a
short list. All pairs of d coordinates are the children of these themselves.
"""

import functools
import math
from typing import Any

import numpy as np
from jaxtyping import Float64

from ...errors import NumericalError
from ...families.monomials import monomial_images, monomial_rows, with_constant

Product = tuple[int, ...]  # its coordinates, in increasing order

_EPS = np.finfo(np.float32).eps

Residual = Float64[np.ndarray, " n"]
Norms = dict[Product, np.ndarray]  # of all children of a term


class Candidates:
    """The products of coordinates at some points x, s (n, d), with probabilities (n,), of which
    `short` are put on a short list."""

    def __init__(self, x: np.ndarray, s: np.ndarray, probabilities: np.ndarray, short: int):
        self._p, self._short = probabilities, short
        self._double = with_constant(np.ascontiguousarray(x.T), np.ascontiguousarray(s.T))
        if np.abs(self._double[1]).max() > np.finfo(np.float32).max ** 0.5:
            raise NumericalError(
                "scores: some are so large that products with them overflow in single precision, "
                "in which terms are ranked. Leave those draws out, or use Polynomial"
            )
        # to rank by, and no more
        self._single = self._double[0].astype(np.float32), self._double[1].astype(np.float32)
        self._x, self._s = (array[:-1] for array in self._single)

    @property
    def dim(self) -> int:
        return len(self._x)

    def images(self, terms: list[Product]) -> Float64[np.ndarray, "m n"]:
        """Return the images of terms, scaled as in a `Polynomial`."""
        _, images, scale = monomial_images(
            *self._double, monomial_rows(terms, max(map(len, terms)))
        )
        return scale[:, None] * images

    def significance(self, terms: list[Product], residual: Residual) -> np.ndarray:
        """Return how far the sum of residual times image is from zero, for each term, in units of
        its own standard error: by sums over short stretches of the chain, it knows of tails, of
        unequal scatter, and of draws that follow each other."""
        _, images = self._make(terms)
        images -= (images @ self._p.astype(np.float32))[:, None]
        images *= self._weigh(residual)
        n = images.shape[1]
        parts = np.add.reduceat(images, np.arange(0, n, math.isqrt(math.isqrt(n))), axis=1)
        return np.abs(parts.sum(axis=1)) / np.sqrt(np.maximum(np.sum(parts**2, axis=1), _EPS))

    def pairs(self, residual: Residual) -> list[Product]:
        """Return those products of two coordinates, squares among them, that correlate most with
        the residual; O(n d²)."""
        found = (self._x * self._weigh(residual)) @ self._s.T
        found += found.T
        np.abs(found, out=found)
        found /= self._pair_norms
        return self._shorten(found, [(j,) for j in range(self.dim)])

    def pairs_with(self, some: list[list[int]], residuals: list[Residual]) -> list[list[Product]]:
        """Return the same for pairs with one of some coordinates, for several residuals at once."""
        every, r = np.concatenate(some), self._repeat(some, residuals)
        found = (self._x[every] * r) @ self._s.T + (self._s[every] * r) @ self._x.T
        return self._split_lists(
            np.abs(found) / self._pair_norms[every], [[(j,) for j in own] for own in some]
        )

    def children(
        self, parents: list[list[Product]], residuals: list[Residual], norms: Norms
    ) -> list[list[Product]]:
        """Return those children of some terms that correlate most with a residual, for several
        residuals at once; `norms` are those of calls before, to which the new ones are added."""
        every = [parent for own in parents for parent in own]
        (u, v), r = self._make(every), self._repeat(parents, residuals)
        if new := {parent: k for k, parent in enumerate(every) if parent not in norms}:
            rows = [*new.values()]
            norms |= zip(new, self._norms_of(u[rows], v[rows]), strict=True)
        u *= r
        v *= r
        found = np.abs(v @ self._x.T + u @ self._s.T)
        return self._split_lists(found / np.stack([norms[parent] for parent in every]), parents)

    def _split_lists(self, found: np.ndarray, parents: list[list[Product]]) -> list[list[Product]]:
        ends = np.cumsum([len(own) for own in parents])
        return [
            self._shorten(part, own)
            for part, own in zip(np.split(found, ends[:-1]), parents, strict=True)
        ]

    def _repeat(self, some: list[Any], residuals: list[Residual]) -> np.ndarray:
        """Return each residual as often as there are entries for it."""
        return np.repeat(
            [self._weigh(residual) for residual in residuals], [len(own) for own in some], axis=0
        )

    def _shorten(self, found: np.ndarray, parents: list[Product]) -> list[Product]:
        """Return the best of all children of these, each once; a pair may be there as a child of
        both."""
        most = min(2 * self._short, found.size)
        best = np.argpartition(found.ravel(), found.size - most)[-most:]
        best = best[np.argsort(-found.ravel()[best], kind="stable")]
        terms = (tuple(sorted((*parents[k // self.dim], int(k % self.dim)))) for k in best)
        return list(dict.fromkeys(terms))[: self._short]

    def _make(self, terms: list[Product]) -> tuple[np.ndarray, np.ndarray]:
        """Return terms and their images (m, n), in single precision."""
        return monomial_images(*self._single, monomial_rows(terms, max(map(len, terms))))[:2]

    def _weigh(self, residual: Residual) -> np.ndarray:
        """Return a residual times what each draw counts; at unit size, which no single precision
        loses."""
        weighted = self._p * residual
        return (weighted / np.abs(weighted).max()).astype(np.float32)

    def _norms_of(self, u: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Return root mean squares (m, d) of all children x_k v + s_k u."""
        p = self._p.astype(np.float32)
        x2, s2, xs = self._squares
        squares = (p * v**2) @ x2.T + (p * u**2) @ s2.T + 2 * (p * u * v) @ xs.T
        return np.sqrt(np.maximum(squares, _EPS))

    @functools.cached_property
    def _squares(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self._x**2, self._s**2, self._x * self._s

    @functools.cached_property
    def _pair_norms(self) -> np.ndarray:
        """(d, d): root mean squares of x_i s_j + x_j s_i, and on the diagonal of 2 (x_i s_i +
        1)."""
        p = self._p.astype(np.float32)
        x2, s2, xs = self._squares
        squares = (p * x2) @ s2.T
        squares += squares.T
        squares += 2 * (p * xs) @ xs.T
        np.fill_diagonal(squares, 4 * (xs + 1) ** 2 @ p)
        return np.sqrt(np.maximum(squares, _EPS))
