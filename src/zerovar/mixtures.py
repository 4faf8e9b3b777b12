"""Mixtures of multivariate t distributions: to draw from, to evaluate, and to fit to weighted
points."""

from __future__ import annotations

import dataclasses
import warnings
from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float64

_FREEDOMS = (3.0, 8.0, 30.0, 200.0)  # tails that a fit chooses from
_STEPS = 10  # of expectation maximisation, from the mixture of the round before
_MOST = 8  # components
POINTS_PER_NUMBER = 4  # effective points for each number of a richer mixture
GUESSED = 5.0  # freedom of components that no fit has chosen
GUARD = 0.05  # share of a component that is there in case
# scale of the component that keeps weights in the tails bounded
_WIDER = 2.0
# share of those that are long in one coordinate each, all together, and their scale
_LONG, _LONGER = 0.15, 8.0
_PART = 0.02  # of the mass, or the points, that makes a component
_ADDED = 0.1  # share of components where the points ask for some, each kind together
_OUTPOSTS = 4  # components about the points of largest weight
_ROUNDER = 0.05  # of the mixture's variances that such components have at least
# dimensions up to which there are long components, and those at the frontier and in tails
_MOST_LONG = 30
_FEWEST = 20  # points in a tail that has a component
_FURTHER = 3.2  # deviations to the mean of such a tail from which it is long; a normal's is at 2.4


class Frame(NamedTuple):
    """Coordinates z of x = centre + root z, in which the density is about standard."""

    centre: Float64[np.ndarray, " d"]
    root: Float64[np.ndarray, "d d"]

    def x(self, z: Float64[np.ndarray, "n d"]) -> Float64[np.ndarray, "n d"]:
        return self.centre + z @ self.root.T

    def z(self, x: Float64[np.ndarray, "n d"]) -> Float64[np.ndarray, "n d"]:
        return np.linalg.solve(self.root, (x - self.centre).T).T

    @property
    def log_volume(self) -> float:
        return float(np.linalg.slogdet(self.root)[1])


@dataclasses.dataclass(frozen=True, eq=False)
class TMixture:
    """Σ shares_k t(means_k, roots_k roots_kᵀ, freedom_k), k components in d dimensions; a freedom
    that is infinite makes a component normal."""

    shares: Float64[np.ndarray, " k"]
    means: Float64[np.ndarray, "k d"]
    roots: Float64[np.ndarray, "k d d"]  # lower triangular
    freedom: Float64[np.ndarray, " k"]

    @property
    def dim(self) -> int:
        return self.means.shape[1]

    def with_freedom(self, freedom: float) -> TMixture:
        return dataclasses.replace(self, freedom=np.full(len(self.shares), freedom))

    def log_density(self, x: Float64[np.ndarray, "n d"]) -> Float64[np.ndarray, " n"]:
        return log_sum(self._by_component(x)[0])

    def scores(self, x: Float64[np.ndarray, "n d"]) -> Float64[np.ndarray, "n d"]:
        """Gradients of the log density."""
        each, distance = self._by_component(x)
        pull = np.exp(each - log_sum(each)) * self._pull(distance)
        found = np.zeros_like(x)
        for weight, mean, root in zip(pull, self.means, self.roots, strict=True):
            found -= scipy.linalg.cho_solve((root, True), (weight[:, None] * (x - mean)).T).T
        return found

    def densities(self, x: Float64[np.ndarray, "n d"]) -> Float64[np.ndarray, "k n"]:
        """Log densities of the components that have a share."""
        some = self.shares > 0
        return self._by_component(x)[0][some] - np.log(self.shares[some])[:, None]

    def points(
        self, n: int, rng: np.random.Generator, sobol: bool
    ) -> tuple[Float64[np.ndarray, "n d"], TMixture]:
        """n points, as many of each component as its share says; and the mixture with the shares
        that these are."""
        counts = np.floor(n * self.shares).astype(int)
        order = np.argsort(counts - n * self.shares, kind="stable")
        counts[order[: n - counts.sum()]] += 1
        found = [
            mean + _standard_t(int(count), self.dim, float(nu), rng, sobol) @ root.T
            for count, mean, root, nu in zip(
                counts, self.means, self.roots, self.freedom, strict=True
            )
            if count
        ]
        return np.concatenate(found), dataclasses.replace(self, shares=counts / n)

    @property
    def covariance(self) -> Float64[np.ndarray, "d d"]:
        """Of normal components in place of the t distributions."""
        away = self.means - self.shares @ self.means
        within = np.einsum("k,kij->ij", self.shares, self.roots @ self.roots.transpose(0, 2, 1))
        return within + np.einsum("k,ki,kj->ij", self.shares, away, away)

    def guard(self, long: bool = True) -> TMixture:
        """With components of heavy tails about all of it, so that no tail is left to chance: one
        that is wide, and for each coordinate one that is `long` in it, along the regression of the
        others on that coordinate."""
        mean, covariance, d = self.shares @ self.means, self.covariance, self.dim
        added = [_WIDER**2 * covariance]
        if long and d <= _MOST_LONG:
            along = covariance / np.sqrt(np.diag(covariance))
            added += [covariance + (_LONGER**2 - 1) * np.outer(line, line) for line in along.T]
        count = len(added) - 1
        shares = np.append(GUARD, np.full(count, _LONG / max(count, 1)))
        means, roots = np.broadcast_to(mean, (len(added), d)), cholesky(np.stack(added))
        return self._join(shares, means, roots, np.append(_FREEDOMS[0], np.full(count, GUESSED)))

    def add_frontier(
        self, x: Float64[np.ndarray, "n d"], log_weights: Float64[np.ndarray, " n"]
    ) -> TMixture:
        """With small components about the points of largest weight, each like the points around it:
        where weights are large, the density goes on beyond what was seen."""
        if self.dim > _MOST_LONG:
            return self
        root = cholesky(self.covariance)
        unit = scipy.linalg.solve_triangular(root, x.T, lower=True).T
        probabilities = np.exp(normalise(log_weights))
        free, near = np.isfinite(log_weights), max(2 * self.dim, int(_PART * len(x)))
        means, roots = [], []
        for _ in range(_OUTPOSTS):
            if not free.any():
                break
            top = int(np.where(free, log_weights, -np.inf).argmax())
            around = np.argsort(np.sum((unit - unit[top]) ** 2, axis=1))[:near]
            free[around] = False
            share = probabilities[around] + 1 / len(x)
            away = unit[around] - unit[top]
            local = away.T @ (share[:, None] * away) / share.sum() + _ROUNDER * np.eye(self.dim)
            means.append(x[top])
            roots.append(root @ cholesky(local))
        if not means:
            return self
        count = len(means)
        shares, freedom = np.full(count, _ADDED / count), np.full(count, GUESSED)
        return self._join(shares, np.stack(means), np.stack(roots), freedom)

    def add_tails(
        self,
        x: Float64[np.ndarray, "n d"],
        log_weights: Float64[np.ndarray, " n"],
        along: Float64[np.ndarray, "k d"],
        covariance: Float64[np.ndarray, "d d"],
    ) -> TMixture:
        """With components in the long tails of the linear functions in `along`, like the points
        there; the longer the tail, the larger its share. `covariance` is that of the bulk. An
        exponential tail has mass far out, and seldom in the direction in which the bulk is long."""
        if self.dim > _MOST_LONG:
            return self
        probabilities = np.exp(normalise(log_weights))
        centre, least = probabilities @ x, max(_FEWEST, 2 * self.dim)
        means, roots, excess = [], [], []
        for line in along:
            u = (x - centre) @ line / np.sqrt(line @ covariance @ line)
            for side in (1.0, -1.0):
                order = np.argsort(-side * u)
                far = order[
                    : max(least, int(np.searchsorted(np.cumsum(probabilities[order]), _PART)))
                ]
                share = probabilities[far] + probabilities[far].mean() / 10
                if not share.sum() > 0:  # far out, and the density is nothing there
                    continue
                share /= share.sum()
                if side * share @ u[far] < _FURTHER:
                    continue
                mean = share @ x[far]
                away = x[far] - mean
                means.append(mean)
                roots.append(cholesky(away.T @ (share[:, None] * away) + _ROUNDER * covariance))
                excess.append(np.abs(share @ u[far] - u[far[-1]]) + np.finfo(float).eps)
        if not means:
            return self
        shares = (
            min(_ADDED, len(means) * _ADDED / 2) * np.square(excess) / np.sum(np.square(excess))
        )
        return self._join(shares, np.stack(means), np.stack(roots), np.full(len(means), GUESSED))

    def _join(
        self, shares: np.ndarray, means: np.ndarray, roots: np.ndarray, freedom: np.ndarray
    ) -> TMixture:
        """With more components, whose shares are taken from the others in proportion."""
        return TMixture(
            np.append((1 - shares.sum()) * self.shares, shares),
            np.concatenate([self.means, means]),
            np.concatenate([self.roots, roots]),
            np.append(self.freedom, freedom),
        )

    def _pull(self, distance: Float64[np.ndarray, "k n"]) -> Float64[np.ndarray, "k n"]:
        """What a point counts for the mean and scale of a t distribution: less, far out."""
        normal = np.isinf(self.freedom)[:, None]
        freedom = np.where(normal, 1.0, self.freedom[:, None])
        return np.where(normal, 1.0, (freedom + self.dim) / (freedom + distance))

    def _by_component(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log of share times density, and squared distances in widths, (k, n) each."""
        from scipy.special import gammaln

        nu, d = self.freedom, self.dim
        pairs = zip(self.means, self.roots, strict=True)
        distance = np.stack(
            [
                np.sum(scipy.linalg.solve_triangular(r, (x - m).T, lower=True) ** 2, axis=0)
                for m, r in pairs
            ]
        )
        heavy = np.isfinite(nu)
        finite = np.where(heavy, nu, 1.0)
        constant = np.where(
            heavy,
            gammaln((finite + d) / 2) - gammaln(finite / 2) - d / 2 * np.log(finite * np.pi),
            -d / 2 * np.log(2 * np.pi),
        )
        fall = np.where(
            heavy[:, None],
            (finite + d)[:, None] / 2 * np.log1p(distance / finite[:, None]),
            distance / 2,
        )
        volume = np.log(np.abs(np.diagonal(self.roots, axis1=1, axis2=2))).sum(axis=1)
        with np.errstate(divide="ignore"):  # a share of zero
            level = np.log(self.shares) + constant - volume
        return level[:, None] - fall, distance


def cholesky(covariance: Float64[np.ndarray, "*k d d"]) -> Float64[np.ndarray, "*k d d"]:
    """The lower triangular root, in units of the deviations: scales may be far apart, and rounding
    makes no correlation too large."""
    scale = np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))[..., None]
    rounding = np.sqrt(np.finfo(float).eps) * np.eye(len(covariance[-1]))
    return scale * np.linalg.cholesky(covariance / scale / scale.swapaxes(-1, -2) + rounding)


def log_sum(each: Float64[np.ndarray, "k n"]) -> Float64[np.ndarray, " n"]:
    """log Σ_k e^each_k without overflow."""
    top = each.max(axis=0)
    safe = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return safe + np.log(np.exp(each - safe).sum(axis=0))


def normalise(log_weights: Float64[np.ndarray, " n"]) -> Float64[np.ndarray, " n"]:
    """Log probabilities."""
    return log_weights - log_sum(log_weights[:, None])[0]


def effective_number(log_weights: Float64[np.ndarray, " n"]) -> float:
    weights = relative_weights(log_weights)
    return float(weights.sum() ** 2 / np.sum(weights**2)) if weights.any() else 0.0


def relative_weights(log_weights: Float64[np.ndarray, " n"]) -> Float64[np.ndarray, " n"]:
    """In units of the largest; all zero where none is positive."""
    top = log_weights.max()
    return np.exp(log_weights - top) if np.isfinite(top) else np.zeros_like(log_weights)


def _standard_t(
    n: int, d: int, freedom: float, rng: np.random.Generator, sobol: bool
) -> Float64[np.ndarray, "n d"]:
    if not sobol and np.isinf(freedom):
        return rng.standard_normal((n, d))
    if not sobol:
        return rng.standard_normal((n, d)) / np.sqrt(rng.chisquare(freedom, (n, 1)) / freedom)
    from scipy.special import gammaincinv, ndtri
    from scipy.stats import qmc

    with warnings.catch_warnings():
        # balance is best at powers of two; scrambled points need none
        warnings.simplefilter("ignore", UserWarning)
        uniform = qmc.Sobol(d + 1, rng=rng).random(n)
    uniform = np.clip(uniform, 1e-12, 1 - 1e-12)
    return ndtri(uniform[:, :d]) / np.sqrt(2 * gammaincinv(freedom / 2, uniform[:, d:]) / freedom)


def fit_mixture(
    x: Float64[np.ndarray, "n d"],
    log_density: Float64[np.ndarray, " n"],
    probabilities: Float64[np.ndarray, " n"],
    before: TMixture,
) -> TMixture:
    """A mixture for points with these probabilities under a normalised density, by expectation
    maximisation from the one `before` and from finer ones.

    Tails and the number of components are those of the largest effective share that importance
    sampling from it would have, 1 / E[density / mixture] over the points, less what so many numbers
    would gain by chance. Likelihood alone would have tails too light. Covariances of few points are
    shrunk towards those before.
    """
    effective = 1 / np.sum(probabilities**2)
    numbers = 1 + x.shape[1] + x.shape[1] * (x.shape[1] + 1) / 2

    def score(mixture: TMixture, fitted: int = 0) -> float:
        ratio = log_density - mixture.guard(long=False).log_density(x)
        return -float(
            log_sum((np.log(probabilities) + ratio)[:, None])[0]
        ) - fitted * numbers / len(x)

    found = [
        max(
            ((score(one), one) for one in (before, *(before.with_freedom(nu) for nu in _FREEDOMS))),
            key=lambda pair: pair[0],
        )
    ]
    start = before
    while True:
        fits = [_maximise(x, probabilities, start.with_freedom(nu), effective) for nu in _FREEDOMS]
        found.append(
            max(((score(one, len(one.shares)), one) for one in fits), key=lambda pair: pair[0])
        )
        best = found[-1]
        more = 2 * len(best[1].shares)
        improves = len(found) == 2 or best[0] > found[-2][0]
        if not improves or more > _MOST or effective < POINTS_PER_NUMBER * more * numbers:
            break
        start = _split(best[1])
    return max(found, key=lambda pair: pair[0])[1]


def _maximise(
    x: np.ndarray, probabilities: np.ndarray, start: TMixture, effective: float
) -> TMixture:
    mixture, d = start, x.shape[1]
    prior = start.roots @ start.roots.transpose(0, 2, 1)
    for _ in range(_STEPS):
        each, distance = mixture._by_component(x)
        with np.errstate(invalid="ignore"):
            share = probabilities * np.exp(each - log_sum(each))
        pull = share * mixture._pull(distance)
        mass = share.sum(axis=1)
        kept = mass > max(_PART, 2 / effective) if len(mass) > 1 else np.array([True])
        kept = kept if kept.any() else mass == mass.max()
        share, pull, mass, prior = share[kept], pull[kept], mass[kept], prior[kept]
        means = pull @ x / pull.sum(axis=1)[:, None]
        away = x - means[:, None]
        scatter = (
            np.einsum("kn,kni,knj->kij", pull, away, away, optimize=True) / mass[:, None, None]
        )
        size, shrinkage = (effective * mass)[:, None, None], d + 1.0
        covariance = (size * scatter + shrinkage * prior) / (size + shrinkage)
        mixture = TMixture(
            mass / mass.sum(),
            means,
            cholesky(covariance),
            mixture.freedom[kept],
        )
    return mixture


def _split(mixture: TMixture) -> TMixture:
    """Every component as two, moved apart along its longest axis."""
    left, _, _ = np.linalg.svd(mixture.roots)
    length = np.linalg.norm(mixture.roots, ord=2, axis=(1, 2))
    step = 0.7 * length[:, None] * left[:, :, 0]
    return TMixture(
        np.repeat(mixture.shares / 2, 2),
        np.stack([mixture.means - step, mixture.means + step], axis=1).reshape(-1, mixture.dim),
        np.repeat(mixture.roots, 2, axis=0),
        np.repeat(mixture.freedom, 2),
    )
