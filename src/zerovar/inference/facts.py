"""What the rules for errors must know of the draws, one constructor for each route."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from ..diagnostics import Check
from ..inputs.points import Points, Standardisation
from ..inputs.sample import Sample, coordinate_name
from ..statistics.rounding import Rounding
from ..statistics.series import ROUNDING, r_hat, some_columns, some_places
from ..statistics.tails import end_at_one, heaviness
from .answer import Alternatives, Answer, Mask, PerIntegrand, plain_answer
from .task import Task


class Digits(NamedTuple):
    """The error (q,) that the digits of the input leave in a mean, by what has them.

    Errors of single precision may come from arithmetic, and all lean to one side; those of stored
    draws and of text average out. A control variate passes on errors of draws and scores in units
    of their deviations, times that of the integrand.
    """

    single_values: PerIntegrand
    short_values: PerIntegrand
    single_scores: PerIntegrand
    short_draws: PerIntegrand

    @staticmethod
    def of(sample: Sample, values: Float64[np.ndarray, "n q"], draws: int) -> Digits:
        """Read them off values, draws and scores, for a mean over so many `draws` like these."""
        of_values = Rounding.of(values)
        deviation, own = values.std(axis=0), of_values.in_mean(draws)
        coarse = of_values.size > deviation  # then all are rounded alike
        text = np.where(coarse, of_values.size, own)
        by_values = (
            np.where(of_values.single, own, 0.0),
            np.where(of_values.single, 0.0, text),
        )
        if sample.space.is_countable:  # states are exact, and ratios of some models few numbers
            return Digits(*by_values, 0 * deviation, 0 * deviation)
        of_draws, of_scores = map(Rounding.of, (sample.draws, sample.scores))
        # in a box scores may be constant
        away, slope = (
            np.where(size > 0, size, 1.0)
            for size in (sample.draws.std(axis=0), sample.scores.std(axis=0))
        )
        squares = (of_draws.size / away) ** 2 / 3  # of draws, to second order
        single = np.max(np.where(of_scores.single, of_scores.size / slope, 0.0))
        few = np.where(of_scores.single, 0.0, of_scores.in_mean(draws) / slope)
        few = np.max(few + of_draws.size / away / np.sqrt(3 * draws) + squares)
        return Digits(*by_values, single * deviation, few * deviation)


@dataclasses.dataclass(frozen=True, eq=False)
class SecondOpinion:
    """Another answer for each integrand, whose error is that of a mean whatever the tails.

    `error` (q,) is its upper standard error; `long_tails` says whether the density has a tail that
    falls no faster than an exponential.
    """

    answer: Answer
    error: PerIntegrand
    long_tails: bool


@dataclasses.dataclass(frozen=True, eq=False)
class ScoreFacts:
    """What is known of the scores: whether they are the model's own, in words how precisely the
    draws verify them, and whether the density is `cut`, so that they miss a jump.

    `error` is a relative error of the scores that standard errors are to carry, and `response` (q,)
    how far means move by a relative error of one. Scores with an error ∇h are those of another
    density, e^h times this one, under which a mean differs by the covariance of f and h. In
    standardised coordinates z a shift of all scores along z_j by a share of their deviation has h =
    z_j, and a factor h = z_j²/2: their root sum of squares is the response.
    """

    from_model: bool = False
    verified: str = ""
    cut: bool = False
    error: float = 0.0
    response: PerIntegrand | None = None

    @staticmethod
    def of(
        sample: Sample,
        verdict: Check,
        values: Float64[np.ndarray, "n q"],
        score_error: float | str = 0.0,
    ) -> ScoreFacts:
        """Gather them. A `score_error` of "verified" is what the check could see; all of it, where
        it could not see."""
        precision = 1.0 if np.isnan(verdict.precision) else verdict.precision
        error = precision if isinstance(score_error, str) else float(score_error)
        response = None
        if error:
            if not sample.space.is_flat:
                raise ValueError(
                    "score_error is for draws in Rᵈ; these live on a " + sample.space.describe()
                )
            points = sample.points()
            z = Standardisation.of(points)(points.x, points.s)[0]
            p = points.probabilities
            weighted = p[:, None] * (values - p @ values)
            squares = [np.sum((h.T @ weighted) ** 2, axis=0) for h in (z, z**2 / 2)]
            response = np.sqrt(sum(squares))
        return ScoreFacts(sample.from_model, verdict.verified, verdict.cut, error, response)

    def describe(self) -> str:
        """Where the scores come from, and how far they are verified."""
        verified = f"verified {self.verified} in every coordinate" if self.verified else ""
        if self.from_model:
            return "scores from the model"
        return f"scores as given, {verified or 'not verified'}"


def some_names(sample: Sample) -> tuple[str, ...]:
    """What the coordinates are called that `some_columns` takes of the draws."""
    return tuple(coordinate_name(sample.names, j) for j in some_places(sample.dim))


@dataclasses.dataclass(frozen=True, eq=False)
class Facts:
    """What is known of the draws besides the answer.

    `plain` is the answer without a control variate; `low` and `high` are the extremes of the
    integrands at the draws, `events` which of them are events, `tail` their Pareto k, less what it
    may be too large by. `length` counts draws a chain, and `kish` all draws by their weights alone,
    1/Σp². `r_hat` are those of the integrands and of some coordinates, which are called
    `coordinates`. `points` are the draws if they are the target's own, without weights; `values`
    (n, q) the integrands there, if they are in memory: influences are else of batches of draws.
    `known_bounded` integrands have all moments; `stand_ins` take the place of an event's indicator,
    with the same mean, and are not what the user has asked for; `off` is what integrands may be
    off by at a draw, besides rounding. `flat` says whether draws live in Rᵈ.
    """

    names: tuple[str, ...]
    plain: Answer
    low: PerIntegrand
    high: PerIntegrand
    events: Mask
    tail: PerIntegrand
    chains: int
    length: int
    autocorrelation: float
    kish: float
    r_hat: tuple[np.ndarray, np.ndarray]
    coordinates: tuple[str, ...]
    digits: Digits
    scores: ScoreFacts = ScoreFacts()
    points: Points | None = None
    values: Float64[np.ndarray, "n q"] | None = None
    second: SecondOpinion | None = None
    known_bounded: Mask | None = None
    stand_ins: Mask | None = None
    off: PerIntegrand | float = 0.0
    flat: bool = True

    @staticmethod
    def in_memory(
        task: Task,
        names: tuple[str, ...],
        events: Mask,
        scores: ScoreFacts | None = None,
        second: SecondOpinion | None = None,
        known_bounded: Mask | None = None,
        stand_ins: Mask | None = None,
        off: PerIntegrand | float = 0.0,
    ) -> Facts:
        """The facts of a task, whose draws are in memory."""
        sample, values, plain = task.sample, task.values, plain_answer(task)
        points = sample.points()
        # what scores say of tails, they say of draws of the target in Rᵈ
        has_tails = sample.weights is None and sample.space.is_flat
        return Facts(
            names=names,
            plain=plain,
            low=values.min(axis=0),
            high=values.max(axis=0),
            events=events,
            tail=heaviness(plain.influences, points, task.effective, not has_tails),
            chains=sample.num_chains,
            length=len(sample) // sample.num_chains,
            autocorrelation=task.autocorrelation,
            kish=float(1 / np.sum(sample.probabilities**2)),
            r_hat=(
                r_hat(sample.by_chain(values)),
                r_hat(sample.by_chain(some_columns(sample.draws))),
            ),
            coordinates=some_names(sample),
            digits=Digits.of(sample, values, len(sample)),
            scores=ScoreFacts(sample.from_model) if scores is None else scores,
            points=points if has_tails else None,
            values=values,
            second=second,
            known_bounded=known_bounded,
            stand_ins=stand_ins,
            off=off,
            flat=sample.space.is_flat,
        )

    @property
    def scale(self) -> PerIntegrand:
        """The size of the integrands' values, whose rounding no error is below."""
        size = np.maximum(np.abs(self.low), np.abs(self.high))
        return np.where(size > 0, size, 1.0)

    @property
    def settled(self) -> Mask:
        """Integrands that are constant up to rounding, as the diagonal of a correlation matrix, or
        up to what they may be off by: nothing that chains or fits show of the rest means anything.
        What may be off by more than all of it, as a probability that no draw has come near, is not
        known to be constant."""
        off = np.minimum(self.off, np.abs(self.high + self.low) / 2)
        return self.high - self.low <= ROUNDING * self.scale + off

    @property
    def constant(self) -> Mask:
        """Integrands that are known. An event that no draw shows is not known to be impossible."""
        return (self.low == self.high) & ~self.events

    @property
    def bounded(self) -> Mask:
        """Integrands that have all moments: those that are known to, events, and those that end at
        1."""
        ends = end_at_one(self.low, self.high, self.num_draws) | self.events
        return ends if self.known_bounded is None else ends | self.known_bounded

    @property
    def one_sided(self) -> Mask:
        """Events that none of the draws shows, or all of them do."""
        return (self.low == self.high) & self.events

    @property
    def unit(self) -> str:
        """What an influence is of."""
        return "batch" if self.values is None else "draw"

    @property
    def num_draws(self) -> int:
        """The number of draws of all chains."""
        return self.chains * self.length

    @property
    def effective_extremes(self) -> float:
        """How many independent draws count for the extremes of a series.

        Extreme draws of a slow chain come in clusters that are shorter than its autocorrelation
        time.
        """
        return self.num_draws / np.sqrt(max(self.autocorrelation, 1.0))

    def settle(self, answer: Answer) -> Answer:
        """The answer with what needs no fit: a constant is its value, without a control variate."""
        same, others = self.settled, answer.alternatives
        return dataclasses.replace(
            answer,
            value=np.where(same, self.low + (self.high - self.low) / 2, answer.value),
            influences=np.where(same, 0.0, answer.influences),
            residuals=None if answer.residuals is None else np.where(same, 0.0, answer.residuals),
            controlled=answer.controlled & ~same,
            alternatives=others and Alternatives(*(np.where(same, np.nan, one) for one in others)),
        )
