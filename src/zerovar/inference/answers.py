"""An answer: a value for each integrand, what each draw adds to it, and how small its error may be
called.

Whatever the family, split and route, an answer is one record. n times what a draw adds to the value
is its influence; the scatter of the influences over the chain is the standard error. Where
something is known that scatter does not show, such as a bias, it is a lower bound of the error with
its reason.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int

from ..families import Family
from ..fitting import Method, fit_draws, interruption
from ..inputs.points import Points
from ..inputs.sample import Sample
from ..output.record import DIGITS
from ..solvers import FitStats, Result, Solver, default_solver
from ..solvers.algebra.threads import limit_threads, map_on_threads, use_one_thread
from ..statistics.rounding import Rounding
from ..statistics.series import INDEPENDENT, ROUNDING, Series, influences_on_mean, standard_error
from ..statistics.tails import beyond_the_draws, extremes, in_long_tails
from .splits import OutOfFold, RowNumbers, Split, blocks, cross_fit, in_sample
from .task import Task

# Draws up to which folds are fitted side by side, and numbers in them from and up to which: less is
# no use, more takes memory
_FEW, _LEAST, _MOST = 5000, 20_000, 2_000_000
_BLOCK_TIMES = 4  # chains are left out in blocks of this many autocorrelation times
# of the error within. From a half on t₂ gains two per cent of coverage, and calibrated ones lose as
# much
_NOTICEABLE = 1.0
SCATTER = "scatter over the draws"
_OWN_BIAS = "the fit's own estimate of its bias"
_DISCOUNTED = "leave-out residuals of draws that the fit discounts"
_BEYOND = "the growth of extreme residuals, towards what lies beyond the draws"
_LONG = "residuals in a long tail, of fits without its outermost draws"
DISTANCE = "half the distance from the plain mean, which is more than both errors explain"

Outer = Float64[np.ndarray, "t m q"]


class ErrorBound(NamedTuple):
    """A standard error is at least `bound` (q,), for this reason."""

    bound: Float64[np.ndarray, " q"]
    reason: str


@dataclasses.dataclass(frozen=True, eq=False)
class Answer:
    """What a method makes of the draws.

    `influences` (chain, draw, q) are n times what each draw adds to `value` (q,), about zero.
    `rows` are the draws that they are at, where those are not all. `left_out` says that they come
    from leave-out residuals times the weights of a fitted intercept, and not from the residuals of
    a plain mean; `residuals` are then what they would be in a plain mean. `outer` (tail, draw, q)
    are residuals at the outermost draws of each long tail, from fits without all of them where that
    is cheap.
    """

    value: Float64[np.ndarray, " q"]
    influences: Series
    stats: FitStats
    bounds: tuple[ErrorBound, ...] = ()
    results: tuple[Result, ...] = ()
    family: Family | None = None
    rows: RowNumbers | None = None
    left_out: bool = False
    residuals: Series | None = None
    outer: Outer | None = None

    @property
    def in_a_mean(self) -> Series:
        """n times what each draw's leave-out residual adds to a plain mean of them."""
        return self.influences if self.residuals is None else self.residuals

    def scatter(self, scale: Float64[np.ndarray, " q"]) -> Float64[np.ndarray, " q"]:
        """The standard error by the influences alone, at least the rounding of values of this
        `scale` (q,)."""
        return np.maximum(self._scatter, ROUNDING * scale)

    @functools.cached_property
    def _scatter(self) -> Float64[np.ndarray, " q"]:
        return standard_error(self.influences, np.zeros(len(self.value)))

    @functools.cached_property
    def scatter_in_a_mean(self) -> Float64[np.ndarray, " q"]:
        """The same if every draw counts alike, which may be below rounding."""
        return (
            self._scatter
            if self.residuals is None
            else standard_error(self.residuals, np.zeros(len(self.value)))
        )

    def at_tails(self, tails: Int[np.ndarray, "t m"]) -> Outer:
        """Residuals at the outermost draws of long tails: `outer`, or where there are none those at
        these rows."""
        return (
            self.in_a_mean.reshape(-1, len(self.value))[tails] if self.outer is None else self.outer
        )

    def with_columns(self, other: Answer, columns: Bool[np.ndarray, " q"]) -> Answer:
        """With the value and influences of another answer for some integrands; bounds stay."""
        return dataclasses.replace(
            self,
            value=np.where(columns, other.value, self.value),
            influences=np.where(columns, other.influences, self.influences),
            residuals=np.where(columns, other.in_a_mean, self.in_a_mean),
            outer=None
            if self.outer is None or other.outer is None
            else np.where(columns, other.outer, self.outer),
        )

    @staticmethod
    def of_mean(
        series: Series, probabilities: Float64[np.ndarray, " n"], stats: FitStats
    ) -> Answer:
        """The weighted mean of a series, such as f − g."""
        return Answer(*influences_on_mean(series, probabilities), stats)

    def rescaled(
        self, centre: Float64[np.ndarray, " q"], unit: Float64[np.ndarray, " q"]
    ) -> Answer:
        """That of f, where this is the answer of (f − centre) / unit."""
        bounds = tuple(ErrorBound(unit * bound, reason) for bound, reason in self.bounds)
        residuals = None if self.residuals is None else unit * self.residuals
        outer = None if self.outer is None else unit * self.outer
        value, influences = centre + unit * self.value, unit * self.influences
        return dataclasses.replace(
            self,
            value=value,
            influences=influences,
            residuals=residuals,
            outer=outer,
            bounds=bounds,
        )

    def corrected(self, share: Float64[np.ndarray, " q"]) -> Answer:
        """With a share of the jackknife's correction for bias, the mean of the influences, less
        what their scatter explains.

        The mean is a times the bias of a fit whose bias falls as n^-a. a is 1 where a tail is
        exponential, and more where a rich family fits a smooth function: a half is the middle of
        what is to be corrected, and as much remains in doubt.
        """
        mean = self.influences.mean(axis=(0, 1))
        size = np.where(mean == 0, 1.0, np.abs(mean))
        moved = share * np.maximum(1 - (self._scatter / size) ** 2, 0.0) * mean
        return dataclasses.replace(
            self, value=self.value + moved, influences=self.influences - moved
        )

    def std_error(
        self, scale: Float64[np.ndarray, " q"]
    ) -> tuple[Float64[np.ndarray, " q"], tuple[str, ...]]:
        """Standard errors and what each rests on; `scale` (q,) is the size of the integrands'
        values, whose rounding bounds every error from below."""
        error = self.scatter(scale)
        reasons = [SCATTER] * len(error)
        for bound, reason in self.bounds:
            reasons = [
                reason if up else before for up, before in zip(bound > error, reasons, strict=True)
            ]
            error = np.maximum(error, bound)
        return error, tuple(reasons)

    def with_distance(self, plain: Answer, apart: Float64[np.ndarray, " q"], most: float) -> Answer:
        """With a bound where it is more than `most` joint errors `apart` from `plain`, which needs
        no score and no smoothness, only draws."""
        half = np.abs(self.value - plain.value) / 2
        return dataclasses.replace(
            self, bounds=(*self.bounds, ErrorBound(np.where(apart > most, half, 0.0), DISTANCE))
        )

    def with_tails(
        self,
        plain: Answer,
        plain_error: Float64[np.ndarray, " q"],
        autocorrelation: float,
        scale: Float64[np.ndarray, " q"],
        points: Points | None = None,
    ) -> Answer:
        """With more bounds where it is not `plain`: the scatter of residuals if every draw counts
        alike, and what lies beyond the draws, by the growth of residuals and by those in long
        tails. `points` are those of `plain`, if they are draws of the target.

        A fitted intercept trusts the fit more than the draws in its tails, which get a hundredth of
        their weight in a mean. That is right for a regression's posterior, and wrong by nine
        standard errors where a tail is exponential.
        """
        residuals = self.in_a_mean
        alike = residuals.shape == plain.influences.shape
        controlled = (
            np.any(residuals != plain.influences, axis=(0, 1))
            if alike
            else np.ones(len(self.value), dtype=bool)
        )
        # extreme draws of a slow chain come in clusters that are shorter than its autocorrelation
        # time
        effective = residuals.shape[0] * residuals.shape[1] / np.sqrt(max(autocorrelation, 1.0))
        scatter = np.where(controlled, self.scatter_in_a_mean, 0.0)
        own = points if points is None or self.rows is None else points.take(self.rows)
        beyond = beyond_the_draws(
            extremes(residuals, own), extremes(plain.influences, points), effective, self.left_out
        )
        outer = (self.outer, plain.outer)
        long = (
            0 * beyond
            if outer[0] is None or outer[1] is None
            else in_long_tails(outer[0], outer[1], effective)
        )
        within = np.maximum(self.std_error(scale)[0], scatter)

        def both(outside: Float64[np.ndarray, " q"]) -> Float64[np.ndarray, " q"]:
            return np.where(
                controlled & (outside > _NOTICEABLE * within), np.hypot(within, outside), 0.0
            )

        # with the plain error the plain mean would be as good, and it has seen no more of the tails
        found = ((scatter, _DISCOUNTED), (both(beyond), _BEYOND), (both(long), _LONG))
        bounds = (ErrorBound(np.minimum(bound, plain_error), reason) for bound, reason in found)
        return dataclasses.replace(self, bounds=(*self.bounds, *bounds))


def rounded_input(
    sample: Sample, values: Float64[np.ndarray, "n q"], draws: int
) -> tuple[ErrorBound, ...]:
    """What the digits of `values`, and of draws and scores, leave open in a mean over so many
    `draws` like these.

    Errors of single precision may come from arithmetic, and all lean to one side; those of stored
    draws and of text average out. A control variate passes on errors of draws and scores in units
    of their deviations, times that of the integrand.
    """
    of_values, of_draws, of_scores = map(Rounding.of, (values, sample.draws, sample.scores))
    deviation, own = values.std(axis=0), of_values.in_mean(draws)
    coarse = of_values.size > deviation  # then all are rounded alike
    text = np.where(of_values.single, 0.0, np.where(coarse, of_values.size, own))
    away, slope = sample.draws.std(axis=0), sample.scores.std(axis=0)
    squares = (of_draws.size / away) ** 2 / 3  # of draws, to second order
    single = np.max(np.where(of_scores.single, of_scores.size / slope, 0.0))
    few = np.where(of_scores.single, 0.0, of_scores.in_mean(draws) / slope)
    few = np.max(few + of_draws.size / away / np.sqrt(3 * draws) + squares)
    bounds = (np.where(of_values.single, own, 0.0), text, single * deviation, few * deviation)
    return tuple(ErrorBound(bound, reason) for bound, reason in zip(bounds, DIGITS, strict=True))


def plain_answer(task: Task) -> Answer:
    """No control variate at all."""
    stats = FitStats("plain", 0, draws=len(task), distinct_draws=len(task.draws.distinct))
    answer = Answer.of_mean(task.sample.by_chain(task.values), task.sample.probabilities, stats)
    return dataclasses.replace(answer, outer=task.values[task.tails] - answer.value)


def default_split(task: Task, method: Method) -> Split:
    """In sample where leave-out residuals come in closed form and are honest, else
    cross-fitting."""
    closed = _solver(task, method).leaves_out(method.complete()[1])
    return in_sample() if closed and not method.family.sees_values else cross_fit()


def _solver(task: Task, method: Method) -> Solver:
    """That of the method, or the default one."""
    family, objective, solver = method.complete()
    return solver or default_solver(
        family, len(task), task.sample.dim, task.values.shape[1], objective
    )


def answer_of(task: Task, method: Method, split: Split) -> Answer:
    """By one family, fitted and estimated as the split says."""
    with limit_threads(len(task)):
        return (
            _out_of_fold(task, method, split)
            if isinstance(split, OutOfFold)
            else _in_sample(task, method)
        )


def _in_sample(task: Task, method: Method) -> Answer:
    """The fitted intercept, with influences n w r, w its weights and r the leave-out residuals.

    Leaving draws out moves the intercept by Σ w r over them, exactly, so these are its influences:
    the weights matter where a rich family gives draws in the tails far more or less than 1/n. Their
    mean estimates the intercept's own bias. On nine real posteriors that bound lifts the coverage
    of 1.96 errors by an interpolating kernel from 89 % to 97 %, and leaves polynomials as they are.
    """
    if method.family.sees_values:
        raise ValueError(
            f"{method.family.describe()} chooses directions or terms by the integrands at all "
            "fitting draws, so that "
            "in_sample() has no honest standard error for it. Use split=cross_fit() or holdout()"
        )
    fitted = fit_draws(task.draws, task.values, method, task.seed, task.sample)
    slow = task.autocorrelation >= INDEPENDENT
    groups = (
        blocks(task.sample, int(np.ceil(_BLOCK_TIMES * task.autocorrelation))) if slow else None
    )
    residuals = fitted.leave_out(groups)
    influences = len(task) * fitted.intercept_weights()[:, None] * residuals
    bias = ErrorBound(np.abs(influences.mean(axis=0)), _OWN_BIAS)
    stats = fitted.stats | {
        "left_out": "single draws" if groups is None else f"{len(groups)} blocks"
    }
    return Answer(
        fitted.intercept,
        task.sample.by_chain(influences),
        stats,
        (bias,),
        (fitted.result,),
        fitted.family,
        left_out=True,
        residuals=task.sample.by_chain(len(task) * task.sample.probabilities[:, None] * residuals),
        outer=np.array([fitted.without(rows) for rows in task.tails]).reshape(
            *task.tails.shape, task.values.shape[1]
        ),
    )


def _side_by_side(task: Task, method: Method) -> bool:
    """Whether folds are fitted at once: fits that are neither tiny nor large, and whose solver
    shows nothing meanwhile."""
    return (
        len(task) <= _FEW
        and _LEAST <= task.sample.draws.size <= _MOST
        and _solver(task, method).silent
    )


def _out_of_fold(task: Task, method: Method, split: OutOfFold) -> Answer:
    """The mean of f − g, each draw by a fit that did not see it."""
    sample, values = task.sample, task.values
    folds = split.folds(sample)
    residuals = np.empty_like(values)

    def fitted(fold: int, fitting: np.ndarray, estimating: np.ndarray) -> tuple[Result, FitStats]:
        fit = fit_draws(task.part(fitting), values[fitting], method, task.seed)
        if fit.result is Result.INTERRUPTED and len(folds) > 1:
            raise interruption(fold, len(folds))
        residuals[estimating] = values[estimating] - fit.at(
            sample.draws[estimating], sample.scores[estimating]
        )
        return fit.result, fit.stats

    jobs = [(fold, *rows) for fold, rows in enumerate(folds, 1)]
    if _side_by_side(task, method):
        with use_one_thread():
            fits = map_on_threads(fitted, jobs)
    else:
        fits = [fitted(*job) for job in jobs]
    rows = np.sort(np.concatenate([estimating for _, estimating in folds]))
    series = residuals[rows].reshape(sample.num_chains, -1, values.shape[1])
    answer = Answer.of_mean(series, sample.points(rows).probabilities, fits[-1][1])
    outer = residuals[task.tails] - answer.value if len(rows) == len(task) else None
    return dataclasses.replace(
        answer,
        results=tuple(result for result, _ in fits),
        family=method.family,
        rows=rows,
        outer=outer,
    )
