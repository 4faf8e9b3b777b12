"""log Z by a bridge between a chain and a proposal that is like it: both sides of it are means of
smooth bounded functions, and control variates work on both."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float64

from ..choice import Request, polynomials
from ..diagnostics import Check
from ..errors import NumericalError, hold_warnings
from ..inference.splits import cross_fit
from ..inputs.density import Density
from ..inputs.points import DRAWS_PER_TERM, Vector
from ..inputs.sample import Sample
from ..session import Session
from ..statistics.series import influences_on_mean, standard_error
from .proposals import Proposal, fit_proposals

# Of log densities, relative: they are sums of many terms
_ROUNDING = 64 * np.finfo(float).eps
# Twenty curved densities in 2 to 40 dimensions, 16 samples each: errors are 0.1 at this overlap,
# and 94 to 100 % of the answers within two of them down to a tenth of it
LEAST_OVERLAP = 0.05
# Error of the points beside that of the draws that is small enough, and points of a pilot
_SMALL, _PILOT = 0.5, 1000
_SOUND = Check(True, "", (), 1.0)  # points and scores of a proposal are our own


class Side(NamedTuple):
    """The logarithm of a mean over one of the two distributions, with control variates and plain,
    and their standard errors."""

    log_mean: float
    error: float
    plain: float
    plain_error: float

    @property
    def gain(self) -> float:
        return (self.plain_error / self.error) ** 2


class Half(NamedTuple):
    """log Z by half of the draws, and by points of a proposal that was fitted to the other half.

    `ratios` and `point_ratios` are log density less that of the proposal, at the draws (n,) and at
    the points (m,). `overlap` is one where proposal and posterior are the same, and zero where they
    are apart. `undefined` counts points at which the log density was NaN.
    """

    proposal: Proposal
    overlap: float
    start: float
    posterior: Side
    points: Side
    ratios: Vector
    point_ratios: Vector
    undefined: int

    @property
    def log_z(self) -> float:
        return self.start + self.points.log_mean - self.posterior.log_mean

    @property
    def plain_log_z(self) -> float:
        return self.start + self.points.plain - self.posterior.plain

    @property
    def error(self) -> float:
        return float(np.hypot(self.points.error, self.posterior.error))

    @property
    def plain_error(self) -> float:
        return float(np.hypot(self.points.plain_error, self.posterior.plain_error))


class Crossing(NamedTuple):
    """What is on both sides of a bridge: a session with the posterior's draws, and one with the
    proposal's points; the ratios there."""

    draws: Session
    points: Session
    ratios: Vector
    point_ratios: Vector

    def integrands(
        self, log_z: float
    ) -> tuple[Float64[np.ndarray, " n"], Float64[np.ndarray, " m"]]:
        """2 q / (p + q) at the draws of p and 2 p / (p + q) at the points of q, with Z e^log_z for
        that of p. Whatever log_z is, the mean of the second by that of the first is Z e^(−log_z).

        p and q count alike in the sum. A smaller share of p lets the points count more, of which
        there are more than draws. It costs coverage: over ten models 95 % of 100 answers within
        1.96 errors by a half, 88 % by the best of a half, a fifth and a twentieth.
        """
        return (
            1 - np.tanh((self.ratios - log_z) / 2),
            1 + np.tanh((self.point_ratios - log_z) / 2),
        )

    def means(self, log_z: float) -> tuple[float, float]:
        """Plain means of the two; both are the overlap ∫ 2 p q / (p + q) if log_z is right."""
        at_draws, at_points = self.integrands(log_z)
        return float(self.draws.sample.probabilities @ at_draws), float(at_points.mean())

    def solve(self) -> tuple[float, float]:
        """log Z by plain means, where they are equal, and the overlap there."""
        ends = [self.ratios.min(), self.ratios.max(), *self.point_ratios]
        inside = np.array(ends)[np.isfinite(ends)]

        def difference(log_z: float) -> float:
            return float(np.subtract(*self.means(log_z)))

        low, high = inside.min() - 1, inside.max() + 1
        if not difference(low) < 0 < difference(high):  # no density at any of the points
            return np.nan, 0.0
        # where points have no density to speak of the ends are up to 1e308 apart, and are halved
        log_z = float(scipy.optimize.brentq(difference, low, high, maxiter=5000))
        return log_z, min(self.means(log_z))


def cross(
    session: Session,
    log_density: Vector,
    density: Density,
    num_points: int,
    request: Request,
    rng: np.random.Generator,
    tell: Callable[[str], None],
) -> tuple[list[Half], float]:
    """Return log Z by both halves of the draws of a session, with their log density (n,): each with
    a proposal fitted to the other half, and half of so many points. And the correlation of the
    errors that draws make of both.

    A proposal that is fitted to the same draws makes the plain mean of their ratios more exact than
    a mean is, and no error tells.
    """
    sample = session.sample
    rows = sample.by_chain(np.arange(len(sample)))
    halves = [part.ravel() for part in np.array_split(rows, 2, axis=1)]
    parts = [sample.take(own, sample.num_chains) for own in halves]
    found = []
    for k in (0, 1):
        tell(f"bridge of half {k + 1} of 2")
        own = dataclasses.replace(session, sample=parts[k], values={}, divergences=0)
        proposal = _most_alike(
            parts[1 - k], log_density[halves[1 - k]], parts[k], log_density[halves[k]]
        )
        found.append(
            _bridge(
                own, log_density[halves[k]], proposal, density, (num_points + k) // 2, request, rng
            )
        )
    return found, _correlate(parts, [log_density[own] for own in halves], found)


def _correlate(parts: list[Sample], log_density: list[Vector], halves: list[Half]) -> float:
    """Return how far the errors of two halves are one and the same.

    The proposal of each has the chance of the other half in it, and the mean over a half its own:
    the product of the two is in both. By so much the integrand over a half changes if the proposal
    is fitted to that half itself; half of that variance is each proposal's.
    """
    shared, alone = [], []
    for k, (part, one) in enumerate(zip(parts, halves, strict=True)):
        within = log_density[k] - halves[1 - k].proposal.log_density(part.draws)
        change = np.tanh((one.ratios - one.start) / 2) - np.tanh((within - one.start) / 2)
        _, influences = influences_on_mean(part.by_chain(change[:, None]), part.probabilities)
        shared.append(standard_error(influences, np.zeros(1))[0] ** 2 / 2)
        alone.append(one.posterior.plain_error**2)
    return float(min(np.sum(shared) / np.sum(alone), 1.0))


def _most_alike(
    other: Sample,
    other_log_density: Float64[np.ndarray, " m"],
    sample: Sample,
    log_density: Float64[np.ndarray, " n"],
) -> Proposal:
    """Of the proposals that are fitted to other draws, the one over which the bridge's integrand
    varies least at these: not at all, if it is the posterior."""
    found = list(fit_proposals(other, other_log_density))
    if not found:
        raise NumericalError(
            f"{len(other)} draws, half of those given, do not fix a normal distribution in "
            f"{other.dim} dimensions, which log Z is measured against: give more draws, or a "
            "zv.Ladder"
        )

    def variation(proposal: Proposal) -> float:
        ratios = log_density - proposal.log_density(sample.draws)
        return float(np.std(np.tanh((ratios - np.median(ratios)) / 2)))

    return min(found, key=variation)


def _bridge(
    session: Session,
    log_density: Vector,
    proposal: Proposal,
    density: Density,
    num_points: int,
    request: Request,
    rng: np.random.Generator,
) -> Half:
    points = proposal.points(num_points, rng)
    at_points = density.at(points)
    undefined = np.isnan(at_points)
    crossing = Crossing(
        session,
        Session(Sample(points, proposal.scores(points), from_model=True), _SOUND, {}),
        log_density - proposal.log_density(session.sample.draws),
        np.where(undefined, -np.inf, at_points) - proposal.log_density(points),
    )
    log_z, overlap = crossing.solve()
    if overlap < LEAST_OVERLAP:
        raise NumericalError(
            f"draws and the proposal that log Z is measured against ({proposal.name}) overlap by "
            f"{overlap:.1%}, and below {LEAST_OVERLAP:.0%} there is no answer with an honest "
            "error. A ladder of temperatures between the two bridges the gap: "
            "zv.evidence(zv.ladder(…))"
        )
    spread = float(np.ptp(np.append(crossing.ratios, crossing.point_ratios)))
    rounding = _ROUNDING * float(np.abs(log_density).max())
    if spread < rounding:  # the proposal is the posterior
        sides = (Side(0.0, rounding, 0.0, rounding),) * 2
    else:
        sides = _sides(crossing, log_z, request)
    return Half(
        proposal,
        overlap,
        log_z,
        *sides,
        crossing.ratios,
        crossing.point_ratios,
        int(undefined.sum()),
    )


def _sides(crossing: Crossing, log_z: float, request: Request) -> tuple[Side, Side]:
    """Both means with control variates, whose errors for the points need only be small beside those
    for the draws: there are many, and a choice among kernels takes ten times as long as one among
    polynomials. It is made where it gains more on a pilot of them."""
    at_draws, at_points = crossing.integrands(log_z)
    posterior = _side(crossing.draws, at_draws, request)
    sample = crossing.points.sample
    with hold_warnings():  # of points that are our own: their errors say it all
        points = _side_by_polynomials(crossing.points, at_points, request.seed)
        if points.error < _SMALL * posterior.error:
            return posterior, points
        some = np.arange(min(len(at_points), _PILOT))
        pilot = dataclasses.replace(crossing.points, sample=sample.take(some, 1))
        if _side(pilot, at_points[some], request).gain > points.gain:
            points = _side(crossing.points, at_points, request)
    return posterior, points


def _side_by_polynomials(session: Session, values: Vector, seed: int) -> Side:
    """The mean over points by polynomials that are fitted to other points: as these are
    independent, it has no bias. In sample a cubic of 164 terms at 4000 points was off by 0.4 of its
    own error, to the same side for both halves (lotka_volterra)."""
    sample = session.sample
    families = polynomials(len(sample), sample.dim, DRAWS_PER_TERM)
    every = (
        _side(session, values, Request(family, split=cross_fit(), seed=seed)) for family in families
    )
    return min(every, key=lambda side: side.error)


def _side(session: Session, values: Vector, request: Request) -> Side:
    means = session.estimate({"the bridge": values}, request=request, bounded=["the bridge"])
    plain = float(means.plain_value[0])
    # of numbers that are not negative
    value = float(means.value[0]) if means.value[0] > 0 else plain
    return Side(
        float(np.log(value)),
        float(means.std_error[0] / value),
        float(np.log(plain)),
        float(means.plain_std_error[0] / plain),
    )
