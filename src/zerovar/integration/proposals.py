"""Mixtures of multivariate t distributions: to draw from, to evaluate, and to fit to weighted
points."""

from __future__ import annotations

import dataclasses
import warnings
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float64, Int

# Tails that a fit chooses from; the heaviest is that of what guards against tails unseen.
FREEDOMS = (3.0, 8.0, 30.0, 200.0)
_STEPS = 10  # of expectation maximisation, from the mixture of the round before
POINTS_PER_NUMBER = 5  # effective points for each number that is fitted to them
# Shares of what guards against tails: a wide component or one in a tail, and long ones or those in
# tails all together. With 0.1 of the long ones both tails of two log exponentials were seen in 4
# samples of 15 of 600 points, with 0.15 in 10.
WIDE = 0.05
_LONG = 0.15  # see above
_MOST_LONG = 30  # dimensions up to which there are long ones: with 100, they take most of the time
_LONGER = 8.0  # deviations of these, along their coordinate; the wide one has two


@dataclasses.dataclass(frozen=True, eq=False)
class TMixture:
    """Σ shares_k t(means_k, roots_k roots_kᵀ, freedom_k), k components in d dimensions."""

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

    def densities(self, x: Float64[np.ndarray, "n d"]) -> Float64[np.ndarray, "k n"]:
        """Log densities of the components that have a share, one row each."""
        some = self.shares > 0
        return self._by_component(x)[0][some] - np.log(self.shares[some])[:, None]

    def points(
        self, n: int, rng: np.random.Generator, sobol: bool
    ) -> tuple[Float64[np.ndarray, "n d"], TMixture]:
        """Draw n points, as many of each component as its share says; return the mixture with the
        shares that these are, too."""
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
        """The covariance that normal components in place of the t distributions would have."""
        away = self.means - self.shares @ self.means
        within = np.einsum("k,kij->ij", self.shares, self.roots @ self.roots.transpose(0, 2, 1))
        return within + np.einsum("k,ki,kj->ij", self.shares, away, away)

    def guard(self, long: bool = True) -> TMixture:
        """Add components of heavy tails about all of it, so that no tail is left to chance.

        One is wide, and for each coordinate one is `long` in it, along the regression of the others
        on that coordinate.
        """
        covariance = self.covariance
        added, shares = [4 * covariance], [WIDE]
        if long and self.dim <= _MOST_LONG:
            along = covariance / np.sqrt(np.diag(covariance))
            added += [covariance + (_LONGER**2 - 1) * np.outer(line, line) for line in along.T]
            shares += self.dim * [_LONG / self.dim]
        centres = np.broadcast_to(self.shares @ self.means, (len(added), self.dim))
        return self._add(np.array(shares), centres, np.stack(added))

    def add_tails(
        self,
        x: Float64[np.ndarray, "n d"],
        probabilities: Float64[np.ndarray, " n"],
        inwards: Int[np.ndarray, "t n"],
        bulk: Float64[np.ndarray, "d d"],
    ) -> TMixture:
        """Add a component in each of t tails, like the points there; `bulk` is the covariance of
        all, and `inwards` has row numbers from the outermost point of a tail on.

        An exponential tail has mass far out, seldom in the direction in which the bulk is long.
        """
        if not len(inwards):
            return self
        tails = [_moments_of_tail(x[rows], probabilities[rows], bulk) for rows in inwards]
        means, covariances = map(np.stack, zip(*tails, strict=True))
        shares = np.full(len(tails), min(WIDE, _LONG / len(tails)))
        return self._add(shares, means, covariances)

    def _add(
        self,
        shares: Float64[np.ndarray, " c"],
        means: Float64[np.ndarray, "c d"],
        covariances: Float64[np.ndarray, "c d d"],
    ) -> TMixture:
        """Add components of the heaviest tails, whose shares are taken from the others."""
        return TMixture(
            np.append((1 - shares.sum()) * self.shares, shares),
            np.concatenate([self.means, means]),
            np.concatenate([self.roots, np.linalg.cholesky(covariances)]),
            np.append(self.freedom, np.full(len(shares), FREEDOMS[0])),
        )

    def _pull(self, distance: Float64[np.ndarray, "k n"]) -> Float64[np.ndarray, "k n"]:
        """Say what points count for the means and scales of t distributions: less, far out."""
        return (self.freedom[:, None] + self.dim) / (self.freedom[:, None] + distance)

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
        constant = gammaln((nu + d) / 2) - gammaln(nu / 2) - d / 2 * np.log(nu * np.pi)
        volume = np.log(np.abs(np.diagonal(self.roots, axis1=1, axis2=2))).sum(axis=1)
        with np.errstate(divide="ignore"):  # a share of zero
            level = np.log(self.shares) + constant - volume
        return level[:, None] - (nu + d)[:, None] / 2 * np.log1p(distance / nu[:, None]), distance


def log_sum(each: Float64[np.ndarray, "k n"]) -> Float64[np.ndarray, " n"]:
    """log Σ_k e^each_k without overflow."""
    top = each.max(axis=0)
    safe = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return safe + np.log(np.exp(each - safe).sum(axis=0))


def normalise(log_weights: Float64[np.ndarray, " n"]) -> Float64[np.ndarray, " n"]:
    """Turn log weights into log probabilities."""
    return log_weights - log_sum(log_weights[:, None])[0]


def _standard_t(
    n: int, d: int, freedom: float, rng: np.random.Generator, sobol: bool
) -> Float64[np.ndarray, "n d"]:
    """Draw n points of the standard t distribution in d dimensions."""
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


class _Scored(NamedTuple):
    """A mixture, and the logarithm of the effective share that it would have."""

    score: float
    mixture: TMixture


def fit_mixture(
    x: Float64[np.ndarray, "n d"],
    log_density: Float64[np.ndarray, " n"],
    probabilities: Float64[np.ndarray, " n"],
    before: TMixture,
) -> TMixture:
    """Fit a mixture to points with these probabilities under a normalised density, by expectation
    maximisation from the one `before` and from finer ones.

    Tails and the number of components are those of the largest effective share that importance
    sampling from it would have, 1 / E[density / mixture] over the points, less what so many numbers
    would gain by chance. Likelihood alone would have tails too light. Covariances of few points are
    shrunk towards those before.
    """
    effective = 1 / np.sum(probabilities**2)
    numbers = 1 + x.shape[1] + x.shape[1] * (x.shape[1] + 1) / 2

    def score(mixture: TMixture, fitted: int = 0) -> _Scored:
        ratio = log_density - mixture.guard(long=False).log_density(x)
        cost = log_sum((np.log(probabilities) + ratio)[:, None])[0]
        return _Scored(-float(cost) - fitted * numbers / len(x), mixture)

    as_before = (before, *(before.with_freedom(nu) for nu in FREEDOMS))
    found = [max(map(score, as_before), key=itemgetter(0))]
    start = before
    while True:
        fits = [_maximise(x, probabilities, start.with_freedom(nu), effective) for nu in FREEDOMS]
        found.append(max((score(one, len(one.shares)) for one in fits), key=itemgetter(0)))
        more = 2 * len(found[-1].mixture.shares)
        improves = len(found) == 2 or found[-1].score > found[-2].score
        if not improves or effective < POINTS_PER_NUMBER * more * numbers:
            break
        start = _split(found[-1].mixture)
    return max(found, key=itemgetter(0)).mixture


def _maximise(
    x: np.ndarray, probabilities: np.ndarray, start: TMixture, effective: float
) -> TMixture:
    """Take steps of expectation maximisation from `start`.

    Its covariances count like d + 1 points; components with less are dropped.
    """
    mixture, least = start, x.shape[1] + 1.0
    prior = start.roots @ start.roots.transpose(0, 2, 1)
    for _ in range(_STEPS):
        each, distance = mixture._by_component(x)
        with np.errstate(invalid="ignore"):
            share = probabilities * np.exp(each - log_sum(each))
        pull = share * mixture._pull(distance)
        mass = share.sum(axis=1)
        kept = mass >= min(least / effective, mass.max())
        share, pull, mass, prior = share[kept], pull[kept], mass[kept], prior[kept]
        means = pull @ x / pull.sum(axis=1)[:, None]
        away = x - means[:, None]
        scatter = (
            np.einsum("kn,kni,knj->kij", pull, away, away, optimize=True) / mass[:, None, None]
        )
        size = (effective * mass)[:, None, None]
        covariance = (size * scatter + least * prior) / (size + least)
        mixture = TMixture(
            mass / mass.sum(), means, np.linalg.cholesky(covariance), mixture.freedom[kept]
        )
    return mixture


def _moments_of_tail(
    x: Float64[np.ndarray, "n d"],
    probabilities: Float64[np.ndarray, " n"],
    bulk: Float64[np.ndarray, "d d"],
) -> tuple[Float64[np.ndarray, " d"], Float64[np.ndarray, "d d"]]:
    """Mean and covariance of the first points, as many as count enough for a fit; the covariance
    of the `bulk` counts like d + 1 of them."""
    least = x.shape[1] + 1.0
    size = POINTS_PER_NUMBER * least
    effective = np.cumsum(probabilities) ** 2 / np.cumsum(probabilities**2)
    far = np.maximum.accumulate(effective) <= size
    share = probabilities[far] / probabilities[far].sum()
    mean = share @ x[far]
    away = x[far] - mean
    scatter = away.T @ (share[:, None] * away)
    return mean, (size * scatter + least * bulk) / (size + least)


def _split(mixture: TMixture) -> TMixture:
    """Make two of every component, moved apart along its longest axis."""
    left, _, _ = np.linalg.svd(mixture.roots)
    length = np.linalg.norm(mixture.roots, ord=2, axis=(1, 2))
    step = 0.7 * length[:, None] * left[:, :, 0]
    return TMixture(
        np.repeat(mixture.shares / 2, 2),
        np.stack([mixture.means - step, mixture.means + step], axis=1).reshape(-1, mixture.dim),
        np.repeat(mixture.roots, 2, axis=0),
        np.repeat(mixture.freedom, 2),
    )
