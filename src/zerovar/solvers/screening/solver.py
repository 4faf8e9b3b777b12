"""Screening: the terms of a fit are those that stand out from chance."""

from __future__ import annotations

import collections
import dataclasses
import math
from contextlib import nullcontext
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy
from jaxtyping import Float64

from ...arguments import takes, whole
from ...families import Family, MonomialFamily
from ...families.monomials import (
    monomial_images,
    monomial_name,
    monomial_rows,
    with_constant,
)
from ...inputs.integrands import ROWS
from ...inputs.points import DRAWS_PER_DIMENSION, Points
from ...objectives import Objective, Ridge
from ..algebra.dense import ROUNDING
from ..algebra.memory import COLUMNS, CORE
from ..algebra.threads import map_on_threads, use_one_thread
from ..base import Prepared, Solution, Solver, Values
from ..exact.moments import solve_moments
from ..scope import FROM_MOMENTS, Families, Scope
from ..stats import FitStats
from ..terms import Term
from .base_fits import PAYS, BaseFit, GroupFit, base_fits
from .candidates import Candidates, Norms, Product


@takes(rounds=whole(1), at_a_time=whole(1))
@dataclasses.dataclass(frozen=True)
class Screening(Solver):
    """Choose the terms of a `SparsePolynomial` for each integrand, and fit them.

    The base is all linear terms and squares, or fewer where draws are few, with a ridge: both by
    generalised cross-validation, unless the objective has a `Ridge`. Then come rounds. Each takes
    at most `at_a_time` of the products of coordinates whose correlation with what is left is more
    than the largest that chance would give, and refits. The first round looks at all pairs, O(n d²)
    an integrand; later ones at pairs with coordinates that came up in the first, and up to the
    family's degree at products of a coordinate with terms that were taken. `at_a_time` is also how
    many of these coordinates and terms a round looks at.
    """

    silent: ClassVar[bool] = True
    scope: ClassVar[Scope] = Scope(Families.OPEN_TERMS, otherwise="Use solver=Exact()")
    moments_scope: ClassVar[Scope | None] = dataclasses.replace(
        FROM_MOMENTS, families=Families.OPEN_TERMS
    )
    rounds: int = 4
    at_a_time: int = 16

    def prepare(
        self, family: Family, objective: Objective, points: Points, seed: int = 0
    ) -> Prepared:
        assert isinstance(family, MonomialFamily), "its scope has no others"
        ridge = objective.strength(Ridge, points.probabilities) if objective.total(Ridge) else None
        return PreparedScreening(self, family, points, ridge)

    def choose_features(self, family, objective, points, values, seed):
        """Return the family with the terms of all integrands; the linear ones, if there are
        none."""
        found = self.prepare(family, objective, points).solve(values).family
        linear = monomial_rows([(j,) for j in range(points.dim)], family.choice.degree)
        return family.with_monomials(linear) if found is None else found

    def solve_moments(self, matrix, penalty):
        return solve_moments(matrix, penalty)


@dataclasses.dataclass(frozen=True)
class SparseTerm(Term):
    """Terms of which each integrand has its own few: coefficient `coefficients[k]` of term
    `terms[k]` for integrand `integrands[k]`, of `monomials` (p, degree) as a `SparsePolynomial` has
    them."""

    monomials: Any
    terms: Any
    integrands: Any
    coefficients: Any
    num_integrands: int

    def __call__(self, x, s):
        shape = (self.num_integrands, len(self.monomials))
        matrix = scipy.sparse.csr_matrix(
            (self.coefficients, (self.integrands, self.terms)), shape=shape
        )
        out = np.empty((len(x), self.num_integrands))
        for first in range(0, len(x), ROWS):
            rows = slice(first, first + ROWS)
            _, images, scale = monomial_images(*with_constant(x[rows].T, s[rows].T), self.monomials)
            out[rows] = (matrix @ (scale[:, None] * images)).T
        return out

    def name_terms(self, names):
        """Return names of terms, those with the largest coefficients first."""
        found = []
        for j in range(self.num_integrands):
            own = np.flatnonzero(self.integrands == j)
            order = own[np.argsort(-np.abs(self.coefficients[own]), kind="stable")]
            found.append(tuple(monomial_name(self.monomials[self.terms[k]], names) for k in order))
        return found


class PreparedScreening(Prepared):
    """Features of the base, factorised; norms of all pairs."""

    def __init__(
        self, solver: Screening, family: MonomialFamily, points: Points, ridge: float | None
    ):
        n, d = points.x.shape
        assert family.choice is not None
        degree, terms, weight = family.choice
        self._solver, self._family, self._degree = solver, family, degree
        self._root = np.sqrt(points.probabilities)
        self._unit = math.sqrt(weight)  # of features, as a ridge sees them
        self._candidates = Candidates(points.x, points.s, points.probabilities, solver.at_a_time)
        self._sizes = [size for size in (d, 2 * d)[:degree] if size < n]
        rows = np.concatenate([points.s.T, points.x.T * points.s.T + 1.0])[
            : max(self._sizes, default=0)
        ]
        self._features, self._means = self._centre(rows)
        self._bases = base_fits(self._features, self._sizes, ridge)
        # with fewer draws for each, products that chance made look good are taken too
        most = n // DRAWS_PER_DIMENSION
        self._most = most if terms is None else min(terms, most)
        # not to be held against the draws: how many terms these allow was weighed
        self.stats = FitStats("screened", 0)

    def solve(self, values: Values, ridge: float | None = None) -> Solution:
        means = self._root**2 @ values
        f = self._root[:, None] * (values - means)
        chosen: dict[int, _Chosen] = {}
        first, *others = self._groups(f.shape[1])
        found = self._group(f[:, first], None)
        often = collections.Counter(k for one in found for term in one.taken for k in term)
        hubs = [k for k, _ in often.most_common(self._solver.at_a_time // 2)]
        chosen |= zip(first.tolist(), found, strict=True)
        with use_one_thread() if len(others) > 1 else nullcontext():
            rest = map_on_threads(self._group, [(f[:, some], hubs) for some in others])
        for some, found in zip(others, rest, strict=True):
            chosen |= zip(some.tolist(), found, strict=True)
        return self._solution([chosen[j] for j in range(f.shape[1])], means)

    def _groups(self, q: int) -> list[np.ndarray]:
        """Return integrands that are fitted together. The first of them are as many as all pairs
        are affordable for, in about a second of a core, and far apart, so that they stand for the
        others."""
        n, d = len(self._root), self._candidates.dim
        explorers = int(np.clip(CORE["multiply"] / (n * d**2), 2, COLUMNS))
        first = np.unique(np.linspace(0, q - 1, min(explorers, q)).round().astype(int))
        rest = np.setdiff1d(np.arange(q), first)
        return [first, *np.array_split(rest, -(-len(rest) // COLUMNS))] if len(rest) else [first]

    def _group(self, f: Values, hubs: list[int] | None) -> list[_Chosen]:
        """Take rounds of screening and refitting. Without `hubs` the first looks at all pairs, with
        them at those with one of these, or with a coordinate that matters most to the integrand's
        own base."""
        fit, q = GroupFit(self._bases, self._features, f), f.shape[1]
        taken: list[list[Product]] = [[] for _ in range(q)]
        norms: Norms = {}
        seen = [[] if hubs is None else self._strongest(fit.theta[j], hubs) for j in range(q)]
        going = list(range(q))
        for _ in range(self._solver.rounds):
            left, total = (np.sum(array**2, axis=0) for array in (fit.residual, f))
            going = [
                j for j in going if left[j] > ROUNDING * total[j] and len(taken[j]) < self._most
            ]
            residuals = {j: fit.residual[:, j] / self._root for j in going}
            offered = self._offer(fit, residuals, taken, seen, norms)
            new = {}
            for j, (terms, count) in offered.items():
                seen[j] = seen[j] or _members(terms)
                new[j] = self._select(terms, residuals[j], count)[: self._most - len(taken[j])]
            going = [j for j, terms in new.items() if terms]
            if not going:
                break
            before = fit.loss.copy()
            fit.take({j: self._centre(self._candidates.images(new[j]))[0] for j in going})
            for j in going:
                taken[j] += new[j]
            going = [j for j in going if fit.loss[j] < PAYS * before[j]]
        return [_Chosen(fit.base[j], fit.theta[j], taken[j], fit.products[j]) for j in range(q)]

    def _strongest(self, theta: np.ndarray, hubs: list[int]) -> list[int]:
        """Return these coordinates, and those whose terms in the base vary most."""
        varying = np.abs(theta) * np.sqrt(
            np.einsum("ij,ij->i", self._features[: len(theta)], self._features[: len(theta)])
        )
        each = varying.reshape(-1, self._candidates.dim).max(axis=0) if len(theta) else np.zeros(0)
        return list(
            dict.fromkeys(
                [*hubs, *np.argsort(-each, kind="stable")[: self._solver.at_a_time // 2].tolist()]
            )
        )

    def _offer(
        self,
        fit: GroupFit,
        residuals: dict[int, np.ndarray],
        taken: list[list[Product]],
        seen: list[list[int]],
        norms: Norms,
    ) -> dict[int, tuple[list[Product], int]]:
        """Return for each of these integrands terms on the short lists, and of how many they are
        the best; `seen` are coordinates to look at pairs with, all if there are none."""
        d, degree, most = self._candidates.dim, self._degree, self._solver.at_a_time
        found: dict[int, list[Product]] = {
            j: [] if fit.base[j].size else [(k,) for k in range(d)] for j in residuals
        }
        counts = {j: len(terms) for j, terms in found.items()}
        if degree >= 2:
            some = {
                j: list(dict.fromkeys([*_members(taken[j]), *seen[j]]))[:most]
                for j in residuals
                if seen[j]
            }
            for j in residuals.keys() - some.keys():
                found[j] += self._candidates.pairs(residuals[j])
            if some:
                short = self._candidates.pairs_with([*some.values()], [residuals[j] for j in some])
                for j, terms in zip(some, short, strict=True):
                    found[j] += terms
            counts = {j: count + d * (d + 1) // 2 for j, count in counts.items()}
        parents = {j: own for j in residuals if (own := _parents(taken[j], degree, most))}
        if parents:
            short = self._candidates.children(
                [*parents.values()], [residuals[j] for j in parents], norms
            )
            for j, terms in zip(parents, short, strict=True):
                found[j] += terms
                counts[j] += len(parents[j]) * d
        for j, terms in found.items():
            found[j] = [
                term
                for term in dict.fromkeys(terms)
                if term not in taken[j] and not self._in_base(term, fit.base[j].size)
            ]
        return {j: (terms, counts[j]) for j, terms in found.items()}

    def _in_base(self, term: Product, size: int) -> bool:
        """Return whether a base of this size has a term: linear terms are the first, squares the
        next."""
        return len(set(term)) == 1 and len(term) <= 2 and len(term) * self._candidates.dim <= size

    def _select(self, offered: list[Product], residual: np.ndarray, count: int) -> list[Product]:
        """Return those whose correlation with the residual is more than the largest of `count` that
        chance would give."""
        if not offered:
            return []
        sizes = self._candidates.significance(offered, residual)
        order = np.argsort(-sizes, kind="stable")[: self._solver.at_a_time]
        return [offered[k] for k in order if sizes[k] > math.sqrt(2 * math.log(max(count, 2)))]

    def _centre(
        self, images: Float64[np.ndarray, "m n"]
    ) -> tuple[Float64[np.ndarray, "m n"], Float64[np.ndarray, " m"]]:
        """Return features, centred and weighted, and their means."""
        images *= self._unit
        means = images @ self._root**2
        return (images - means[:, None]) * self._root, means

    def _solution(self, chosen: list[_Chosen], means: np.ndarray) -> Solution:
        d, counts = self._candidates.dim, [len(one.theta) + len(one.taken) for one in chosen]
        self.stats |= {
            "unknowns": max(counts, default=0),
            "terms": counts,
            "products": [len(one.taken) for one in chosen],
            "ridge": [one.base.ridge for one in chosen],
        }
        numbers: dict[Product, int] = {}
        terms = []
        for one in chosen:
            own = [(k,) if k < d else (k - d, k - d) for k in range(len(one.theta))] + one.taken
            terms.append([numbers.setdefault(term, len(numbers)) for term in own])
        if not numbers:
            return Solution(means, ())
        monomials = monomial_rows(list(numbers), self._degree)
        coefficients = self._unit * np.concatenate(
            [part for one in chosen for part in (one.theta, one.products)]
        )
        integrands = np.repeat(np.arange(len(chosen)), counts)
        term = SparseTerm(
            monomials, np.concatenate(terms).astype(int), integrands, coefficients, len(chosen)
        )
        offsets = np.array([self._mean_g(one) for one in chosen])
        return Solution(means - offsets, (term,), self._family.with_monomials(monomials))

    def _mean_g(self, one: _Chosen) -> float:
        """Return the mean of g over the draws."""
        products = (
            one.products @ self._centre(self._candidates.images(one.taken))[1] if one.taken else 0.0
        )
        return float(self._means[: len(one.theta)] @ one.theta + products)


class _Chosen(NamedTuple):
    """The terms and coefficients of one integrand: of its base, and of the products that it
    took."""

    base: BaseFit
    theta: np.ndarray
    taken: list[Product]
    products: np.ndarray


def _parents(taken: list[Product], degree: int, most: int) -> list[Product]:
    """Return terms whose children are looked at: those taken, and squares of their coordinates."""
    found = [term for term in taken if 2 <= len(term) < degree] + [
        (k, k) for k in _members(taken) if degree >= 3
    ]
    return list(dict.fromkeys(found))[:most]


def _members(terms: list[Product]) -> list[int]:
    """Return the coordinates of terms, in the order in which they come up."""
    return list(dict.fromkeys(k for term in terms for k in term))
