"""Adaptive importance sampling in which every point counts: all of them are weighted by the mixture
of all proposals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64

from ..errors import NumericalError
from ..inputs.points import Points
from ..statistics.tails import inwards, weights_shape
from .modes import Mode
from .proposals import (
    FREEDOMS,
    POINTS_PER_NUMBER,
    WIDE,
    TMixture,
    fit_mixture,
    log_sum,
    normalise,
)
from .target import Target

# Points of each round, relative: proposals improve by rounds, and answers by points.
_ROUNDS = (1, 1, 1, 1, 1, 1, 1, 1, 4, 4, 4, 4)
_LAST = _ROUNDS.count(max(_ROUNDS))  # the large rounds, by which proposals are judged
_LEAST_COUNT = 1 / 3  # of the points, that count in a fit


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


class Round(NamedTuple):
    """n points, of one proposal that does not depend on them: log weights by it alone, and the
    ratios of its components to it, each of mean one; no ratios where it is known at the points
    alone."""

    log_weights: Float64[np.ndarray, " n"]
    ratios: Float64[np.ndarray, "n c"]

    @property
    def share(self) -> float:
        """The effective share of the points."""
        return effective_number(self.log_weights) / len(self.log_weights)


class WeightedPoints(NamedTuple):
    """n points in rounds, the log density and scores there, and the log density of the mixture of
    all their proposals."""

    x: Float64[np.ndarray, "n d"]
    log_density: Float64[np.ndarray, " n"]
    scores: Float64[np.ndarray, "n d"]
    undefined: Bool[np.ndarray, " n"]
    log_proposal: Float64[np.ndarray, " n"]
    rounds: tuple[Round, ...]

    @property
    def log_weights(self) -> Float64[np.ndarray, " n"]:
        return self.log_density - self.log_proposal

    @property
    def effective(self) -> float:
        """Kish's effective size."""
        return effective_number(self.log_weights)

    @property
    def pareto_k(self) -> float:
        """The shape of the weights' tail: from 0.7 on sums of them cannot be trusted."""
        return weights_shape(relative_weights(self.log_weights))

    @property
    def last_rounds(self) -> tuple[Round, ...]:
        """The large ones, with two thirds of the points."""
        return self.rounds[-_LAST:]

    @property
    def last_share(self) -> float:
        """The second best effective share of the last rounds: of many, one is good by chance."""
        return sorted(one.share for one in self.last_rounds)[-2:][0]


def effective_number(log_weights: Float64[np.ndarray, " n"]) -> float:
    """Kish's effective size; zero where no weight is positive."""
    weights = relative_weights(log_weights)
    return float(weights.sum() ** 2 / np.sum(weights**2)) if weights.any() else 0.0


def relative_weights(log_weights: Float64[np.ndarray, " n"]) -> Float64[np.ndarray, " n"]:
    """Weights in units of the largest; all zero where none is positive."""
    top = log_weights.max()
    return np.exp(log_weights - top) if np.isfinite(top) else np.zeros_like(log_weights)


def first_proposal(modes: Sequence[Mode]) -> tuple[Frame, TMixture]:
    """Laplace's approximation with the tails of a t distribution, a component a mode, in the
    coordinates of the best one."""
    frame = Frame(modes[0].at, modes[0].root)
    mass = np.array([mode.log_mass for mode in modes])
    shares = np.maximum(np.exp(mass - mass.max()), WIDE)
    roots = [_triangular(np.linalg.solve(frame.root, mode.root)) for mode in modes]
    means = frame.z(np.stack([mode.at for mode in modes]))
    return frame, TMixture(
        shares / shares.sum(), means, np.stack(roots), np.full(len(modes), FREEDOMS[0])
    )


def fit_proposal(points: WeightedPoints) -> tuple[Frame, TMixture]:
    """Fit a proposal to points of which only their own density is known.

    Weights are so tempered that enough of them count.
    """
    log_weights = points.log_weights
    good = np.isfinite(log_weights)
    if good.sum() <= points.x.shape[1] + 1:
        raise NumericalError(
            f"the log density is finite at {good.sum()} of {len(good)} draws: too few to begin with"
        )
    d, x = points.x.shape[1], points.x[good]
    probabilities = np.exp(_temper(log_weights[good], d))
    mean = probabilities @ x
    covariance = (x - mean).T @ (probabilities[:, None] * (x - mean))
    scale = np.sqrt(np.diag(covariance))
    root = scale[:, None] * np.linalg.cholesky(
        covariance / np.outer(scale, scale) + 1e-8 * np.eye(d)
    )
    return Frame(mean, root), TMixture(
        np.ones(1), np.zeros((1, d)), np.eye(d)[None], np.array([FREEDOMS[0]])
    )


def _temper(log_weights: Float64[np.ndarray, " n"], d: int) -> Float64[np.ndarray, " n"]:
    """Return log probabilities by the largest power of the weights by which enough points count to
    fit d dimensions."""
    enough = min(_LEAST_COUNT * len(log_weights), POINTS_PER_NUMBER * (d + 1))
    power = 1.0
    while effective_number(power * log_weights) < enough and power > 1e-6:
        power *= 0.8
    return normalise(power * log_weights)


def _triangular(root: np.ndarray) -> np.ndarray:
    """Return the lower triangular matrix with the same product by its transpose."""
    upper = np.asarray(np.linalg.qr(root.T, mode="r"))
    return upper.T * np.where(np.diag(upper) < 0, -1.0, 1.0)


def importance_sample(
    target: Target,
    frame: Frame,
    proposal: TMixture,
    rng: np.random.Generator,
    sobol: bool,
    tell: Callable[[str], None],
) -> WeightedPoints:
    """Draw all points that the budget leaves, in rounds; before each the proposal is fitted to the
    points so far."""
    cloud = _Cloud(target, frame)
    ends = np.cumsum((0, *_ROUNDS)) * target.left // sum(_ROUNDS)
    for k, size in enumerate(np.diff(ends)):
        tell(f"points: round {k + 1} of {len(_ROUNDS)}")
        proposal = cloud.fit(proposal) if k else proposal
        cloud.add(cloud.guard(proposal), int(size), rng, sobol)
    return cloud.points()


class _Cloud:
    """The points so far, in the coordinates of a frame."""

    def __init__(self, target: Target, frame: Frame):
        self.target, self.frame = target, frame
        self.mixtures: list[tuple[int, TMixture]] = []
        self.z = np.empty((0, target.dim))
        self.log_density, self.scores = np.empty(0), np.empty((0, target.dim))
        self.undefined = np.empty(0, dtype=bool)
        self.each = np.empty((0, 0))  # log densities of all proposals at all points
        self.rounds: list[Round] = []

    def add(self, proposal: TMixture, n: int, rng: np.random.Generator, sobol: bool) -> None:
        """Add n points of a proposal."""
        z, proposal = proposal.points(n, rng, sobol)
        found = self.target.at(self.frame.x(z))
        components = proposal.densities(z)
        own = proposal.log_density(z)
        earlier = (
            np.stack([one.log_density(z) for _, one in self.mixtures])
            if self.mixtures
            else np.empty((0, n))
        )
        now = np.concatenate([proposal.log_density(self.z), own])
        self.each = np.concatenate([np.concatenate([self.each, earlier], axis=1), now[None]])
        self.rounds.append(
            Round(found.log_density - own + self.frame.log_volume, np.exp(components - own).T)
        )
        self.mixtures.append((n, proposal))
        self.z = np.concatenate([self.z, z])
        self.log_density = np.concatenate([self.log_density, found.log_density])
        self.scores = np.concatenate([self.scores, found.scores])
        self.undefined = np.concatenate([self.undefined, found.undefined])

    def guard(self, proposal: TMixture) -> TMixture:
        """Add what guards against tails, and what is like the points in those that are long."""
        if not self.mixtures:
            return proposal.guard()
        weights = relative_weights(self.log_density - self.log_proposal())
        kept = weights > np.finfo(float).eps * weights.mean()  # others change no sum
        z, p = self.z[kept], weights[kept] / weights[kept].sum()
        rows = inwards(Points(self.frame.x(z), self.scores[kept], p))
        return proposal.guard().add_tails(z, p, rows, proposal.covariance)

    def log_proposal(self) -> np.ndarray:
        """Log density in z of the mixture of all proposals, each by how many points it gave."""
        shares = np.log(np.array([n for n, _ in self.mixtures]) / len(self.z))
        return log_sum(shares[:, None] + self.each)

    def fit(self, before: TMixture) -> TMixture:
        """Fit a proposal for the next round, by weights so tempered that enough points count."""
        log_proposal = self.log_proposal()
        log_weights = self.log_density - log_proposal
        good = np.isfinite(log_weights)
        if not good.any():
            return before
        tempered = _temper(log_weights[good], self.target.dim)
        positive = tempered > np.log(np.finfo(float).eps / len(tempered))  # others change no sum
        log_density = log_proposal[good] + tempered + np.log(len(self.z))
        return fit_mixture(
            self.z[good][positive], log_density[positive], np.exp(tempered[positive]), before
        )

    def points(self) -> WeightedPoints:
        """Return all points, with their weights."""
        return WeightedPoints(
            self.frame.x(self.z),
            self.log_density,
            self.scores,
            self.undefined,
            self.log_proposal() - self.frame.log_volume,
            tuple(self.rounds),
        )
