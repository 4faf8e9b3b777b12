"""Adaptive importance sampling in which every point counts: all of them are weighted by the mixture
of all proposals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64

from ..errors import NumericalError
from ..evidences.importance import Round
from ..mixtures import (
    GUARD,
    GUESSED,
    Frame,
    TMixture,
    cholesky,
    effective_number,
    fit_mixture,
    log_sum,
    normalise,
    relative_weights,
)
from ..statistics.tails import weights_shape
from .modes import Mode
from .target import Target

# Points of each, relative: proposals improve by rounds, and answers by points. The small ones look
# for mass beyond the points of largest weight.
_ROUNDS = (1, 1, 1, 1, 1, 1, 1, 1, 4, 4, 4, 4)
_JUDGED = 3  # last rounds by which the proposals are judged
NEGLIGIBLE = 1e-12  # share of an average weight with which points change no sum
# a fit is to points that count at least like a third of them, or like five a coordinate
_TEMPERED = 3


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
    def last_shares(self) -> tuple[float, float]:
        """The median and the largest effective share of the last rounds."""
        shares = [one.share for one in self.rounds[-_JUDGED:]]
        return float(np.median(shares)), max(shares)

    @property
    def top_share(self) -> float:
        """Of all weight, in the ten largest."""
        weights = np.sort(relative_weights(self.log_weights))
        return float(weights[-10:].sum() / weights.sum())


def first_proposal(modes: Sequence[Mode]) -> tuple[Frame, TMixture]:
    """Laplace's approximation with the tails of a t distribution, a component a mode, in the
    coordinates of the best one."""
    frame = Frame(modes[0].at, modes[0].root)
    mass = np.array([mode.log_mass for mode in modes])
    shares = np.maximum(np.exp(mass - mass.max()), GUARD)
    roots = [_triangular(np.linalg.solve(frame.root, mode.root)) for mode in modes]
    means = frame.z(np.stack([mode.at for mode in modes]))
    return frame, TMixture(
        shares / shares.sum(), means, np.stack(roots), np.full(len(modes), GUESSED)
    )


def fit_proposal(points: WeightedPoints) -> tuple[Frame, TMixture]:
    """A proposal like points of which only their own density is known, by weights so tempered that
    enough of them count."""
    log_weights = points.log_weights
    good = np.isfinite(log_weights)
    if good.sum() <= points.x.shape[1] + 1:
        raise NumericalError(
            f"the log density is finite at {good.sum()} of {len(good)} draws: too few to begin with"
        )
    tempered = _temper(log_weights[good], points.x.shape[1])
    probabilities, x = np.exp(tempered), points.x[good]
    mean = probabilities @ x
    away = x - mean
    root = cholesky(away.T @ (probabilities[:, None] * away))
    d = len(mean)
    return Frame(mean, root), TMixture(
        np.ones(1), np.zeros((1, d)), np.eye(d)[None], np.array([GUESSED])
    )


def _temper(log_weights: Float64[np.ndarray, " n"], d: int) -> Float64[np.ndarray, " n"]:
    """Log probabilities by the largest power of the weights by which enough points count to fit d
    dimensions."""
    enough = min(len(log_weights) / _TEMPERED, max(50.0, 5.0 * d))
    power = 1.0
    while effective_number(power * log_weights) < enough and power > 1e-6:
        power *= 0.8
    return normalise(power * log_weights)


def _triangular(root: np.ndarray) -> np.ndarray:
    """The lower triangular matrix with the same product by its transpose."""
    upper = np.asarray(np.linalg.qr(root.T, mode="r"))
    return upper.T * np.where(np.diag(upper) < 0, -1.0, 1.0)


def importance_sample(
    target: Target,
    frame: Frame,
    proposal: TMixture,
    rng: np.random.Generator,
    sobol: bool,
    tell: Callable[[str], Any],
) -> WeightedPoints:
    """All that the budget leaves, in rounds; before each the proposal is fitted to the points so
    far."""
    if target.left < sum(_ROUNDS):
        raise NumericalError(
            f"the search for modes took {target.gradients} of {target.budget} gradients, and left "
            "none for points: give more, or a start near the mass"
        )
    cloud = _Cloud(target, frame)
    ends = np.cumsum((0, *_ROUNDS)) * target.left // sum(_ROUNDS)
    for k, size in enumerate(np.diff(ends)):
        tell(f"points: round {k + 1} of {len(_ROUNDS)}")
        proposal = cloud.fit(proposal) if k else proposal
        cloud.add(cloud.guard(proposal, _ROUNDS[k] < max(_ROUNDS)), int(size), rng, sobol)
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
        """n points of a proposal."""
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

    def guard(self, proposal: TMixture, exploring: bool) -> TMixture:
        """With what guards against tails, and finds mass that it does not show.

        Components about points of large weight make these smaller, and tails with them: the large
        rounds have none.
        """
        bulk, proposal = proposal.covariance, proposal.guard()
        if not self.mixtures:
            return proposal
        log_weights = self.log_density - self.log_proposal()
        proposal = proposal.add_tails(self.z, log_weights, self.frame.root, bulk)
        return proposal.add_frontier(self.z, log_weights) if exploring else proposal

    def log_proposal(self) -> np.ndarray:
        """Of the mixture of all proposals, each by how many points it gave, in z."""
        shares = np.log(np.array([n for n, _ in self.mixtures]) / len(self.z))
        return log_sum(shares[:, None] + self.each)

    def fit(self, before: TMixture) -> TMixture:
        """A proposal for the next round, by weights so tempered that enough points count."""
        log_proposal = self.log_proposal()
        log_weights = self.log_density - log_proposal
        good = np.isfinite(log_weights)
        if not good.any():
            return before
        tempered = _temper(log_weights[good], self.target.dim)
        positive = tempered > np.log(NEGLIGIBLE / len(tempered))
        log_density = log_proposal[good] + tempered + np.log(len(self.z))
        return fit_mixture(
            self.z[good][positive], log_density[positive], np.exp(tempered[positive]), before
        )

    def points(self) -> WeightedPoints:
        return WeightedPoints(
            self.frame.x(self.z),
            self.log_density,
            self.scores,
            self.undefined,
            self.log_proposal() - self.frame.log_volume,
            tuple(self.rounds),
        )
