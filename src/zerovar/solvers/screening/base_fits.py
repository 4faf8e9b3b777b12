"""Least squares on a base, all linear terms and squares or fewer, and on a few products taken
besides.

Sums of products are all that is needed: of the features of the base, factorised once with each of
some ridges, and of the products with these. Which base and how much ridge is chosen by generalised
cross-validation, rss / (n − draws used up)².
"""

import dataclasses

import numpy as np
import scipy
from jaxtyping import Float64

from ..algebra.dense import ROUNDING, SINGULAR

_RIDGES = (1e-9, 1e-4, 1e-3, 1e-2)  # relative to the mean diagonal of the Gram of the features
_MOST = 0.9  # of the draws that a fit may use up: near all of them cross-validation is 0 / 0
# Of the loss, what another round or another base must promise to leave for it to be tried.
# Regression in d = 100: four rounds gain no more than one, and take half as long again; bases of
# twice the least loss gain nothing.
PAYS = 0.95

FeatureRows = Float64[np.ndarray, "p n"]


@dataclasses.dataclass(frozen=True, eq=False)
class BaseFit:
    """A ridge on the first `size` features, factorised: G + ridge = L Lᵀ."""

    size: int
    ridge: float
    inverse: Float64[np.ndarray, "p p"]  # L⁻¹
    # draws that the fit uses up: the trace of its hat matrix, and one for the intercept
    used: float


def base_fits(features: FeatureRows, sizes: list[int], ridge: float | None) -> list[BaseFit]:
    """Factorise for each size and each of some ridges, or for the one that is given; features are
    centred and weighted."""
    found = [BaseFit(0, 0.0 if ridge is None else ridge, np.zeros((0, 0)), 1.0)]
    if not sizes:
        return found
    gram = scipy.linalg.blas.dsyrk(1.0, features[: max(sizes)].T, trans=1, lower=1)
    for size in sizes:
        level = gram.diagonal()[:size].mean()
        for strength in (
            (ridge,) if ridge is not None else tuple(level * relative for relative in _RIDGES)
        ):
            block = gram[:size, :size].copy(order="F")
            block[np.diag_indices(size)] += strength
            factor, failed = scipy.linalg.lapack.dpotrf(block, lower=1, clean=1, overwrite_a=1)
            if failed:
                continue
            inverse, _ = scipy.linalg.lapack.dtrtri(factor, lower=1, overwrite_c=1)
            used = 1 + size - strength * float(np.sum(inverse**2))
            if used <= _MOST * features.shape[1]:
                found.append(BaseFit(size, float(strength), inverse, used))
    return found


class GroupFit:
    """The fits to some integrands f (n, q), centred and weighted: for each the best base, and the
    products that it took.

    `base`, `theta`, `products`, `loss` and the columns of `residual` are those of each integrand.
    """

    def __init__(self, bases: list[BaseFit], features: FeatureRows, f: Float64[np.ndarray, "n q"]):
        self._bases, self._features, self._f = bases, features, f
        n, q = f.shape
        right = features @ f
        self._halves = [base.inverse @ right[: base.size] for base in bases]
        self._new = [np.empty((0, n))] * q
        self._crossed = [np.empty((len(features), 0))] * q
        self._hopeful = np.ones((len(bases), q), dtype=bool)
        self.base, self.residual = [bases[0]] * q, f.copy()
        self.theta, self.products, self.loss = (
            [np.zeros(0)] * q,
            [np.zeros(0)] * q,
            np.full(q, np.inf),
        )
        losses = self._choose(list(range(q)))
        self._hopeful = PAYS * losses <= losses.min(axis=0)

    def take(self, new: dict[int, FeatureRows]) -> None:
        """Refit these integrands with more products."""
        ends = np.cumsum([len(rows) for rows in new.values()])
        crossed = np.split(self._features @ np.concatenate([*new.values()]).T, ends[:-1], axis=1)
        for (j, rows), more in zip(new.items(), crossed, strict=True):
            self._new[j] = np.concatenate([self._new[j], rows])
            self._crossed[j] = np.concatenate([self._crossed[j], more], axis=1)
        self._choose(list(new))

    def _choose(self, some: list[int]) -> Float64[np.ndarray, "b k"]:
        """Choose the best base for some of the integrands, and their coefficients; return the
        losses of all bases."""
        losses = np.full((len(self._bases), len(some)), np.inf)
        own = {
            j: (
                self._new[j] @ self._new[j].T,
                self._new[j] @ self._f[:, j],
                self._f[:, j] @ self._f[:, j],
            )
            for j in some
        }
        for number, (base, halves) in enumerate(zip(self._bases, self._halves, strict=True)):
            tried = [(k, j) for k, j in enumerate(some) if self._hopeful[number, j]]
            if not tried:
                continue
            ends = np.cumsum([len(self._new[j]) for _, j in tried])
            crossed = base.inverse @ np.concatenate(
                [self._crossed[j][: base.size] for _, j in tried], axis=1
            )
            found = np.split(crossed, ends[:-1], axis=1)
            solved = [
                _products(base, halves[:, j], half, *own[j][:2])
                for (_, j), half in zip(tried, found, strict=True)
            ]
            rest = [
                halves[:, j] - half @ pair[0]
                for (_, j), half, pair in zip(tried, found, solved, strict=True)
            ]
            theta = base.inverse.T @ np.stack(rest, axis=1)
            for column, ((k, j), (products, explained)) in enumerate(
                zip(tried, solved, strict=True)
            ):
                total, left = own[j][2], len(self._f) - base.used - len(products)
                penalty = base.ridge * (theta[:, column] @ theta[:, column] + products @ products)
                loss = max(total - explained - penalty, ROUNDING * total) / left**2
                if loss < losses[:, k].min() and left > (1 - _MOST) * len(self._f):
                    self.base[j], self.theta[j], self.products[j] = base, theta[:, column], products
                losses[number, k] = loss
        self.loss[some] = losses.min(axis=0)
        whole = np.zeros((len(self._features), len(some)))
        for k, j in enumerate(some):
            whole[: self.base[j].size, k] = self.theta[j]
        self.residual[:, some] = self._f[:, some] - self._features.T @ whole
        for j in some:
            self.residual[:, j] -= self.products[j] @ self._new[j]
        return losses


def _products(
    base: BaseFit, half: np.ndarray, crossed: np.ndarray, gram: np.ndarray, right: np.ndarray
) -> tuple[np.ndarray, float]:
    """Return coefficients of products, by the Schur complement of the base, and what fit and ridge
    together explain of fᵀf."""
    if not len(gram):
        return np.zeros(0), half @ half
    scale = 1 / np.sqrt(gram.diagonal() + base.ridge)
    complement = gram - crossed.T @ crossed
    complement[np.diag_indices(len(gram))] += base.ridge
    # bare: there are thousands of them
    sizes, vectors, _ = scipy.linalg.lapack.dsyevd(complement * np.outer(scale, scale))
    kept = sizes > SINGULAR
    along = vectors[:, kept].T @ (scale * (right - crossed.T @ half)) / np.sqrt(sizes[kept])
    return scale * (vectors[:, kept] @ (along / np.sqrt(sizes[kept]))), half @ half + along @ along
