"""An answer: a value for each integrand, and what each draw adds to it.

Whatever the family, split and route, an answer is one record. n times what a draw adds to the value
is its influence; the scatter of the influences over the chain is the standard error. What scatter
does not show, such as a bias, is for the rules of `rules.py`: an answer has no bounds of its own.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int

from ..families import Family
from ..inputs.points import RowNumbers
from ..output.record import PerIntegrand
from ..solvers import FitStats, Result
from ..statistics.series import ROUNDING, Series, influences_on_mean, standard_error
from .task import Task

Mask = Bool[np.ndarray, " q"]
Outer = Float64[np.ndarray, "t m q"]


class Alternatives(NamedTuple):
    """Values (k, q) and errors (k, q) of other answers to the same question; NaN where none is."""

    value: Float64[np.ndarray, "k q"]
    error: Float64[np.ndarray, "k q"]


@dataclasses.dataclass(frozen=True, eq=False)
class Answer:
    """What a method makes of the draws.

    `influences` (chain, draw, q) are n times what each draw adds to `value` (q,), about zero.
    `rows` are the draws that they are at, where those are not all. `controlled` says which columns
    have a control variate; the others are plain means. `left_out` says that influences come from
    leave-out residuals times the weights of a fitted intercept, and not from the residuals of a
    plain mean; `residuals` are then what they would be in a plain mean. `outer` (tail, draw, q) are
    residuals at the outermost draws of each long tail, from fits without all of them where that is
    cheap. `alternatives` are there if the answer was chosen among several on the same draws.
    """

    value: PerIntegrand
    influences: Series
    stats: FitStats
    controlled: Mask
    results: tuple[Result, ...] = ()
    family: Family | None = None
    rows: RowNumbers | None = None
    left_out: bool = False
    residuals: Series | None = None
    outer: Outer | None = None
    alternatives: Alternatives | None = None

    @property
    def in_a_mean(self) -> Series:
        """n times what each draw's leave-out residual adds to a plain mean of them."""
        return self.influences if self.residuals is None else self.residuals

    @functools.cached_property
    def scatter(self) -> PerIntegrand:
        """The standard error by the influences alone, which may be below rounding."""
        return standard_error(self.influences, np.zeros(len(self.value)))

    @functools.cached_property
    def scatter_in_a_mean(self) -> PerIntegrand:
        """The same if every draw counts alike."""
        if self.residuals is None:
            return self.scatter
        return standard_error(self.residuals, np.zeros(len(self.value)))

    @property
    def bias(self) -> PerIntegrand:
        """The jackknife's estimate of the bias: the mean of the influences."""
        return self.influences.mean(axis=(0, 1))

    @property
    def internal_error(self) -> PerIntegrand:
        """The error by scatter, by bias, and by scatter if every draw counts alike."""
        return np.maximum.reduce([self.scatter, np.abs(self.bias), self.scatter_in_a_mean])

    def at_tails(self, tails: Int[np.ndarray, "t m"]) -> Outer:
        """Residuals at the outermost draws of long tails: `outer`, or those at these rows."""
        if self.outer is not None:
            return self.outer
        return self.in_a_mean.reshape(-1, len(self.value))[tails]

    def only(self, columns: Mask | Int[np.ndarray, " k"]) -> Answer:
        """The answer for some of the integrands, by number as often as they are named."""
        return self._map(lambda array: array[..., columns])

    def insert(self, some: Answer, columns: Mask) -> Answer:
        """This answer with `some` in place of these columns; others know no alternatives to it."""

        def put(own: np.ndarray, other: np.ndarray | float) -> np.ndarray:
            array = own.copy()
            array[..., columns] = other
            return array

        both = self.outer is not None and some.outer is not None
        others = self.alternatives
        return dataclasses.replace(
            self,
            value=put(self.value, some.value),
            influences=put(self.influences, some.influences),
            controlled=put(self.controlled, some.controlled),
            residuals=put(self.in_a_mean, some.in_a_mean),
            outer=put(self.outer, some.outer) if both else None,  # type: ignore[arg-type]
            alternatives=others and Alternatives(*(put(array, np.nan) for array in others)),
        )

    def rescale(self, centre: PerIntegrand, unit: PerIntegrand) -> Answer:
        """The answer for f, where this is that for (f − centre) / unit."""
        return dataclasses.replace(
            self,
            value=centre + unit * self.value,
            influences=unit * self.influences,
            residuals=None if self.residuals is None else unit * self.residuals,
            outer=None if self.outer is None else unit * self.outer,
        )

    def correct(self, share: PerIntegrand, doubted: Mask | bool = False) -> Answer:
        """Move the value by a share of the jackknife's correction, less what its scatter explains.

        The mean of the influences is a times the bias of a fit whose bias falls as n^-a. a is 1
        where a tail is exponential, and more where a rich family fits a smooth function: a half is
        the middle of what is to be corrected, and as much remains in doubt; or all of it, where it
        is `doubted`.
        """
        moved = share * _beyond_noise(self.bias, self.scatter) * self.bias
        influences = self.influences - np.where(doubted, 0.0, moved)
        return dataclasses.replace(self, value=self.value + moved, influences=influences)

    @property
    def contradiction(self) -> tuple[PerIntegrand, PerIntegrand]:
        """The mean of the leave-out residuals, and which part of it their scatter cannot explain.

        A fitted intercept discounts draws that the family can explain in any way, those with large
        scores. Where the fit is wrong there, as in hierarchies of tens of effects, the intercept
        is off and no scatter of its influences shows it. The mean of leave-out residuals does:
        each comes from a fit that has not seen the draw, and all draws count alike.
        """
        away = self.in_a_mean.mean(axis=(0, 1))
        return away, _beyond_noise(away, self.scatter_in_a_mean)

    def reconcile(self, doubted: Mask | bool = False) -> Answer:
        """Move the value to where leave-out residuals contradict it no more than by chance.

        With the intercept goes what it says of its own bias, but where that is `doubted`.
        """
        away, part = self.contradiction
        influences = self.influences - np.where(doubted, 0.0, part * self.bias)
        return dataclasses.replace(self, value=self.value + part * away, influences=influences)

    def _map(self, change) -> Answer:
        """Apply a function to every array that has a column for each integrand."""
        others = self.alternatives
        return dataclasses.replace(
            self,
            value=change(self.value),
            influences=change(self.influences),
            controlled=change(self.controlled),
            residuals=None if self.residuals is None else change(self.residuals),
            outer=None if self.outer is None else change(self.outer),
            alternatives=others and Alternatives(*map(change, others)),
        )


def _beyond_noise(mean: PerIntegrand, noise: PerIntegrand) -> PerIntegrand:
    """The part of a mean that is not its noise: what shrinkage to zero leaves of it."""
    size = np.where(mean == 0, 1.0, np.abs(mean))
    return np.maximum(1 - (noise / size) ** 2, 0.0)


def mean_answer(
    series: Series, probabilities: Float64[np.ndarray, " n"], stats: FitStats
) -> Answer:
    """The weighted mean of a series, such as f − g."""
    value, influences = influences_on_mean(series, probabilities)
    return Answer(value, influences, stats, np.ones(len(value), dtype=bool))


def plain_answer(task: Task) -> Answer:
    """The answer without any control variate."""
    stats = FitStats("plain", 0, draws=len(task), distinct_draws=task.draws.num_distinct)
    by_chain = task.sample.by_chain(task.values)
    answer = mean_answer(by_chain, task.sample.probabilities, stats)
    return dataclasses.replace(
        answer,
        controlled=np.zeros(len(answer.value), dtype=bool),
        outer=task.values[task.tails] - answer.value,
    )


def combine(
    answers: Sequence[Answer], weights: Float64[np.ndarray, "k q"], tails: Int[np.ndarray, "t m"]
) -> Answer:
    """The convex combination of answers with influences at all draws; the first is the plain one.

    Influences of a combination are the same combination of influences, so that nothing needs to be
    known of families or solvers.
    """

    def mix(arrays: list[np.ndarray]) -> np.ndarray:
        return sum(weight * array for weight, array in zip(weights, arrays, strict=True))

    return Answer(
        mix([answer.value for answer in answers]),
        mix([answer.influences for answer in answers]),
        answers[0].stats,
        controlled=weights[0] < 1,
        left_out=True,
        residuals=mix([answer.in_a_mean for answer in answers]),
        outer=mix([answer.at_tails(tails) for answer in answers]),
    )


def at_least_rounding(error: PerIntegrand, scale: PerIntegrand) -> PerIntegrand:
    """An error that is not below the rounding of values of this `scale`."""
    return np.maximum(error, ROUNDING * scale)
