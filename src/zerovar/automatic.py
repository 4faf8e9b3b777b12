"""The control variate chosen for each integrand, and never worse than plain Monte Carlo.

Candidates run from none at all through polynomials to tuned sums of polynomials and kernels. Each gives a value and the series
of influences on it, from fits that left the draw, or its block of the chain, out. The mean square of batch sums of that series
estimates the asymptotic variance, autocorrelation included. Candidates are then stacked: the convex combination whose
influences have least variance, since no one family wins everywhere and errors of good ones partly cancel. The simplest
candidate within one standard error of the stack is taken instead of it, so that nothing rich is used without need.
"""

from __future__ import annotations

import dataclasses
import sys
import time as clock
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from .candidates import KINKS, Answer, Candidate, candidates, tried
from .errors import NumericalError
from .families import Family
from .runs import Run, plain_run
from .sample import Sample
from .std_errors import ROUNDING, batch_sums, mean_and_error, relative_uncertainty, tail_share, unit_size

_FEW_ENOUGH = 3000  # draws up to which every candidate is fitted to all of them
_PILOT = 1000  # draws on which they are compared where there are more
_SUM_TO_ONE = 1e4
_RARE = 0.9  # share of an integrand's own variance in a hundredth of the draws from which it is a rare event
# Standard errors of its variance that are held against a candidate. On gp_regr, whose tails few draws have seen, stacks without
# this are three times over-confident; on most posteriors it changes little.
_DOUBT = 3.0
_NONE = "no control variate"
# Joint standard errors from the plain mean beyond which a candidate is not believed, and beyond which the error of an answer is
# raised to half the distance. Where modes are of very different width and draws are few, a kernel can fit all draws of every
# mode and still be wrong about the constant, and no draw left out can tell.
_FAR, _SUSPECT = 4.5, 3.0
_DONE = 1e12  # gain from which there is nothing left to learn
_APART = 1e3  # ratio of gains from which integrands are too unlike to be tuned for together


@dataclasses.dataclass(frozen=True)
class Automatic:
    """Choose the control variate for each integrand; what `estimate` does when no family is given.

    budget: seconds after which no further candidate is begun (the one under way is finished; polynomials are always tried).
    also: families to try besides the built-in ones, such as `Network()`; they are fitted as they are.
    progress: show the candidates on a terminal as they are tried.
    """

    budget: float = 60.0
    also: Sequence[Family] = ()
    progress: bool = True

    def __post_init__(self):
        if isinstance(self.budget, bool) or not isinstance(self.budget, (int, float)) or not self.budget >= 0:
            raise ValueError(f"Automatic: budget must be a number of seconds ≥ 0; got {self.budget!r}")
        also = (self.also,) if isinstance(self.also, Family) else tuple(self.also)
        if not all(isinstance(family, Family) for family in also):
            raise ValueError(f"Automatic: also must be families such as Network(); got {self.also!r}")
        object.__setattr__(self, "also", also)


@dataclasses.dataclass(frozen=True, eq=False)
class Selection:
    """What was tried and what was taken, for k candidates and q integrands; `print` it for a table.

    `std_errors` (k, q) are those of each candidate by itself; `weights` (k, q) the convex combination in the answer; `reasons`
    says for each integrand why; `skipped` what was not tried, and why not.
    """

    names: tuple[str, ...]
    candidates: tuple[str, ...]
    std_errors: Float64[np.ndarray, "k q"]
    weights: Float64[np.ndarray, "k q"]
    reasons: tuple[str, ...]
    skipped: tuple[str, ...]

    @property
    def helped(self) -> Bool[np.ndarray, " q"]:
        """For which integrands a control variate is used at all."""
        return self.weights[0] < 1

    def describe(self, integrand: int) -> str:
        """What was taken for one integrand, in a word or two."""
        weights = self.weights[:, integrand]
        order = [k for k in np.argsort(-weights) if weights[k] > 0.005]
        if len(order) == 1:
            return self.candidates[order[0]]
        return ", ".join(f"{weights[k]:.0%} {self.candidates[k]}" for k in order)

    def table(self) -> Table:
        """A rich table: what was taken for each integrand, and why."""
        table = Table("name", "taken", "why")
        for j, name in enumerate(self.names):
            table.add_row(*(Text(cell) for cell in (name, self.describe(j), self.reasons[j])))
        return table

    def __str__(self) -> str:
        console = Console(width=160, no_color=True, highlight=False)
        with console.capture() as capture:
            console.print(self.table(), *(f"not tried: {text}" for text in self.skipped), sep="\n")
        return capture.get().rstrip()

    __repr__ = __str__


def choose(
    names: tuple[str, ...], sample: Sample, values: np.ndarray, options: Automatic, standardise: bool, seed: int, time: float
) -> tuple[Run, Selection]:
    """The stacked answer, its intercept and series of influences, and how it came about."""
    started = clock.perf_counter()
    deadline = started + options.budget
    plain = plain_run(sample, values)
    labels, answers, skipped = [_NONE], [Answer(plain.value, plain.influence)], []
    offered = _offered(sample, values, standardise, seed, time, deadline)
    cheap = sum(candidate.cheap for candidate in offered)  # always tried
    offered += [Candidate(family.describe(), family) for family in options.also if np.ptp(values, axis=0).any()]
    tuned = next((k for k, candidate in enumerate(offered) if candidate.criterion is not None), len(offered))
    simple = 1
    for k, candidate in _shown(offered, options.progress):
        if k >= cheap and clock.perf_counter() > deadline:
            skipped.append(f"{candidate.label}: the budget of {options.budget:g} s was spent")
            continue
        gains = _gains(answers)
        columns = candidate.for_all | (gains < candidate.below)
        if not columns.any():
            continue
        guides = _alike(gains) if sample.dim <= KINKS and k > tuned and candidate.for_all else None
        try:
            some = tried(candidate, sample, values[:, columns], standardise, seed, time, guides)
        except NumericalError as error:
            skipped.append(str(error))
            continue
        answer = Answer(plain.value.copy(), plain.influence.copy())
        answer.value[columns], answer.influence[:, columns] = some
        labels.append(candidate.label)
        answers.append(answer)
        simple += k < cheap
    stack = _stacked(sample, values, time, labels, answers, simple)
    stats = plain.stats | {"form": "stack", "seconds": clock.perf_counter() - started}
    selection = Selection(names, tuple(labels), stack.errors, stack.weights, tuple(stack.reasons), tuple(skipped))
    return Run(stack.value, stack.series, np.full(len(sample), 1 / len(sample)), [], stats, None), selection


def _offered(sample: Sample, values: np.ndarray, standardise: bool, seed: int, time: float, deadline: float) -> list[Candidate]:
    """The built-in candidates; where draws are many, of those that cost n³ only the one that did best on fewer."""
    if not np.ptp(values, axis=0).any():
        return []
    offered = candidates(sample, time)
    if len(sample) <= _FEW_ENOUGH:
        return offered
    tuned = [candidate for candidate in offered if candidate.criterion is not None and candidate.for_all]
    better = _best(tuned, sample, values, standardise, seed, time, deadline)
    beaten = {candidate.label for candidate in tuned} - {candidate.label for candidate in better}
    return [candidate for candidate in offered if candidate.label not in beaten]


class _Stack(NamedTuple):
    """The combined value (q,) and its influences, how much of each candidate is in it, and why."""

    value: Float64[np.ndarray, " q"]
    series: Float64[np.ndarray, "chain draw q"]
    weights: Float64[np.ndarray, "k q"]
    errors: Float64[np.ndarray, "k q"]
    reasons: list[str]


def _stacked(
    sample: Sample, values: np.ndarray, time: float, labels: Sequence[str], answers: Sequence[Answer], simple: int
) -> _Stack:
    """The first answer is the plain one, and the others are held against it."""
    equal, scale = np.full(len(sample), 1 / len(sample)), np.abs(values).max(axis=0)
    found = np.stack([answer.value for answer in answers])
    chains = np.stack([sample.by_chain(answer.influence) for answer in answers])
    errors = np.stack([mean_and_error(one, equal, scale)[1] for one in chains])
    far = np.abs(found - found[0]) > _FAR * np.hypot(errors, errors[0])
    for k, j in np.argwhere(far):  # no draw says what is wrong with it, but the plain mean does
        found[k, j], errors[k, j], chains[k, :, :, j] = found[0, j], errors[0, j], chains[0, :, :, j]
    weights, reasons = _weighed(batch_sums(chains, time), errors <= ROUNDING * scale, labels, simple)
    series = np.einsum("kq,kcdq->cdq", weights, chains)
    error = mean_and_error(series, equal, scale)[1]
    rare = tail_share(sample.by_chain(values)) > _RARE
    for j in np.flatnonzero((rare | (error > errors[0])) & (weights[0] < 1)):
        weights[:, j] = np.eye(len(labels))[0]
        series[:, :, j], error[j] = chains[0, :, :, j], errors[0, j]
        few = "its variance rests on a handful of draws: too few to learn from"
        reasons[j] = few if rare[j] else "nothing helps once autocorrelation is counted"
    value = np.sum(weights * found, axis=0)
    gap = np.abs(value - found[0])
    doubtful = gap > _SUSPECT * np.hypot(error, errors[0])
    series += np.where(doubtful, gap / 2, 0.0)  # an error is never below the mean of its influences
    return _Stack(value, series, weights, errors, reasons)


def _gains(answers: Sequence[Answer]) -> Float64[np.ndarray, " q"]:
    """By how much the best answer so far has less variance than the first, the plain one; infinite for constants."""
    squares = np.stack([np.mean(answer.influence**2, axis=0) for answer in answers])
    best = squares.min(axis=0)
    return np.divide(squares[0], best, out=np.full(len(best), np.inf), where=best > 0)


def _alike(gains: Float64[np.ndarray, " q"]) -> Bool[np.ndarray, " q"] | None:
    """The integrands to tune for together, once a kernel was tried: not those that lag far behind, nor those with nothing
    left to learn; None for all."""
    learning = gains < _DONE
    found = learning & (gains > np.max(gains, where=learning, initial=0.0) / _APART)
    return found if found.any() else None


def _best(
    offered: list[Candidate], sample: Sample, values: np.ndarray, standardise: bool, seed: int, time: float, deadline: float
) -> list[Candidate]:
    """The candidate of least error on a thinned sample, by the mean logarithm over integrands; all, if no time is left."""
    pilot, rows = sample.thinned(_PILOT)
    spacing = max(time * len(pilot) / len(sample), 1.0)
    scores = []
    for candidate in offered:
        if clock.perf_counter() > deadline:
            break
        try:
            influence = tried(candidate, pilot, values[rows], standardise, seed, spacing).influence
        except NumericalError:
            continue
        scores.append((float(np.log(np.mean(influence**2, axis=0) + np.finfo(float).tiny).mean()), candidate))
    return [min(scores, key=lambda pair: pair[0])[1]] if scores else offered


def _weighed(
    sums: Float64[np.ndarray, "k b q"], exact: Bool[np.ndarray, "k q"], labels: Sequence[str], simple: int
) -> tuple[np.ndarray, list[str]]:
    """The weights of the k candidates for each integrand, and why; the first `simple` are simpler than a stack.

    `exact` are those whose error is nothing but rounding, and which cannot be told apart.
    """
    count, batches, q = sums.shape
    sums = unit_size(sums)[0]
    weights, reasons = np.zeros((count, q)), []
    for j in range(q):
        if exact[:, j].any():
            k = int(exact[:, j].argmax())
            weights[k, j] = 1.0
            reasons.append("exact to rounding")
            continue
        stack = _convex(sums[:, :, j].T)
        best = (stack @ sums[:, :, j]) ** 2
        excess = sums[:simple, :, j] ** 2 - best
        near = excess.mean(axis=1) <= excess.std(axis=1) / np.sqrt(batches)
        if near.any():
            k = int(near.argmax())
            weights[k, j] = 1.0
            within = f"{labels[k]} is within one standard error of the best"
            reasons.append(within if k else "nothing helps by more than its uncertainty")
        else:
            weights[:, j] = stack
            k = int(excess.mean(axis=1).argmin())
            ratio = np.sqrt(np.mean(sums[k, :, j] ** 2) / best.mean())
            reasons.append(f"its error is {ratio:.3g} times smaller than with {labels[k]}")
    return weights, reasons


def _convex(columns: Float64[np.ndarray, "b k"]) -> Float64[np.ndarray, " k"]:
    """The convex combination of columns of least mean square, where one whose own rests on a few entries counts for less."""
    squares = columns**2
    size = np.mean(squares, axis=0)
    if not size.min() > 0:
        return np.eye(len(size))[size.argmin()]
    # In units of the smallest column, so that those that matter are not lost in the rounding of those that do not
    unit = columns / np.sqrt(size.min() * len(columns))
    doubt = np.sqrt(_DOUBT * relative_uncertainty(columns) * size / size.min())
    rows = np.concatenate([unit, np.diag(doubt), np.full((1, len(size)), _SUM_TO_ONE)])
    from scipy.optimize import nnls  # imported when used: a tenth of the time that importing zerovar takes

    weights, _ = nnls(rows, np.append(np.zeros(len(rows) - 1), _SUM_TO_ONE))
    return weights / weights.sum()


def _shown(offered: Sequence[Candidate], wanted: bool) -> Iterator[tuple[int, Candidate]]:
    """The candidates one by one, named on a terminal while they are tried."""
    console = Console(stderr=True)
    columns = (TextColumn("choosing"), BarColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True, disable=not (wanted and sys.stderr.isatty())) as bar:
        task = bar.add_task("", total=len(offered))
        for k, candidate in enumerate(offered):
            bar.update(task, description=candidate.label)
            yield k, candidate
            bar.advance(task)
