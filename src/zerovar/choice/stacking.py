"""Answers of several candidates made one: the convex combination whose influences have least
variance.

No one family wins everywhere, and errors of good ones partly cancel. The simplest candidate within
one standard error of the stack is taken instead of it, so that nothing rich is used without need.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64

from ..inference.answers import Answer, ErrorBound
from ..inference.task import Task
from ..statistics.series import (
    ROUNDING,
    Series,
    batch_sums,
    relative_uncertainty,
    standard_error,
    tail_share,
    unit_size,
)
from .policy import Policy

_NEARLY_ALL = 0.999  # of a stack, from which a candidate is the answer
_SUM_TO_ONE = 1e4  # the weight of that condition among the rows of a least-squares problem
_CHOSEN = "the best of several was chosen on the same draws: the upper standard error"
_BIAS = "the candidates' own estimate of their bias"
_DISAGREEMENT = "another candidate is further away than both errors explain"


class CandidateAnswer(NamedTuple):
    """A candidate that was tried."""

    label: str
    simple: bool
    answer: Answer  # at all draws


class Stack(NamedTuple):
    """The combined answer, how much of each candidate is in it (k, q), their own errors (k, q), and
    why."""

    answer: Answer
    weights: Float64[np.ndarray, "k q"]
    errors: Float64[np.ndarray, "k q"]
    reasons: list[str]


def stacked(task: Task, contenders: Sequence[CandidateAnswer], policy: Policy) -> Stack:
    """The first was the plain mean, and the others are held against it."""
    scale, plain = task.scale, contenders[0].answer
    found = np.stack([one.answer.value for one in contenders])
    chains = np.stack([one.answer.influences for one in contenders])
    residuals = np.stack([one.answer.in_a_mean for one in contenders])
    outer = np.stack([one.answer.at_tails(task.tails) for one in contenders])
    errors = np.stack([one.answer.scatter(scale) for one in contenders])
    far = np.abs(found - found[0]) > policy.far * np.hypot(errors, errors[0])
    for k, j in np.argwhere(far):  # no draw says what is wrong with it, but the plain mean does
        found[k, j], errors[k, j] = found[0, j], errors[0, j]
        for each in (chains, residuals, outer):
            each[k, :, :, j] = each[0, :, :, j]
    sums = batch_sums(chains, task.autocorrelation)
    weights, reasons = _weighed(sums, errors <= ROUNDING * scale, contenders, policy)
    series, in_a_mean = (np.einsum("kq,kcdq->cdq", weights, each) for each in (chains, residuals))
    error = standard_error(series, scale)
    rare = tail_share(task.sample.by_chain(task.values)) > policy.rare
    for j in np.flatnonzero((rare | (error > errors[0])) & (weights[0] < 1)):
        weights[:, j] = np.eye(len(contenders))[0]
        series[:, :, j], in_a_mean[:, :, j], error[j] = (
            chains[0, :, :, j],
            residuals[0, :, :, j],
            errors[0, j],
        )
        few = "its variance rests on a handful of draws: too few to learn from"
        reasons[j] = few if rare[j] else "nothing helps once autocorrelation is counted"
    value = np.sum(weights * found, axis=0)
    at_tails = np.einsum("kq,ktmq->tmq", weights, outer)
    raw = Answer(value, series, plain.stats, left_out=True, residuals=in_a_mean, outer=at_tails)
    answer = raw.corrected(policy.corrected * (weights[0] < 1))
    # in long tails all of it is in doubt
    bias = (raw if len(task.tails) else answer).influences.mean(axis=(0, 1))
    answer = dataclasses.replace(
        answer, bounds=_bounds(task, answer.influences, weights[0] < 1, error, np.abs(bias))
    )
    apart = _disagreement(task, answer, contenders, weights, policy)
    answer = dataclasses.replace(
        answer, bounds=(*answer.bounds, ErrorBound(np.minimum(apart, errors[0]), _DISAGREEMENT))
    )
    from_plain = np.abs(answer.value - plain.value) / np.hypot(error, errors[0])
    return Stack(answer.with_distance(plain, from_plain, policy.suspect), weights, errors, reasons)


def _disagreement(
    task: Task,
    answer: Answer,
    contenders: Sequence[CandidateAnswer],
    weights: np.ndarray,
    policy: Policy,
) -> Float64[np.ndarray, " q"]:
    """The error of the answer as many times larger as another candidate is joint errors away from
    it, if that is many.

    Fits that extrapolate in different ways differ where few draws are, and no scatter over the
    draws shows that.
    """
    error = _with_bias(answer, task.scale)
    distance = np.zeros_like(error)
    for k, (_, _, other) in enumerate(contenders[1:], 1):
        away = np.abs(other.value - answer.value) / np.hypot(_with_bias(other, task.scale), error)
        distance = np.where(
            (weights[k] < _NEARLY_ALL) & (weights[0] < 1), np.maximum(distance, away), distance
        )
    return np.where(distance > policy.apart_in_errors, distance * error, 0.0)


def _with_bias(answer: Answer, scale: np.ndarray) -> Float64[np.ndarray, " q"]:
    """By scatter, bounds, bias, and scatter if every draw counts alike."""
    bias = np.abs(answer.influences.mean(axis=(0, 1)))
    return np.maximum.reduce([answer.std_error(scale)[0], bias, answer.scatter_in_a_mean])


def _bounds(
    task: Task, series: Series, helped: Bool[np.ndarray, " q"], error: np.ndarray, bias: np.ndarray
) -> tuple[ErrorBound, ...]:
    """The best of several is chosen on the same draws, and an error that a few of them carry is
    itself uncertain: its upper standard error is what is reported."""
    doubt = relative_uncertainty(batch_sums(series, task.autocorrelation))
    upper = np.sqrt(1 + doubt * helped)
    return ErrorBound(upper * error, _CHOSEN), ErrorBound(upper * bias, _BIAS)


def _weighed(
    sums: Float64[np.ndarray, "k b q"],
    exact: Bool[np.ndarray, "k q"],
    contenders: Sequence[CandidateAnswer],
    policy: Policy,
) -> tuple[np.ndarray, list[str]]:
    """The weights of the k candidates for each integrand, and why.

    `exact` are those whose error is nothing but rounding, and which cannot be told apart.
    """
    count, batches, q = sums.shape
    sums = unit_size(sums)[0]
    simple = [k for k, one in enumerate(contenders) if one.simple]
    weights, reasons = np.zeros((count, q)), []
    for j in range(q):
        if exact[:, j].any():
            weights[int(exact[:, j].argmax()), j] = 1.0
            reasons.append("exact to rounding")
            continue
        stack = _convex(sums[:, :, j].T, policy.doubt)
        best = (stack @ sums[:, :, j]) ** 2
        excess = sums[simple, :, j] ** 2 - best
        near = excess.mean(axis=1) <= excess.std(axis=1) / np.sqrt(batches)
        if near.any():
            k = simple[int(near.argmax())]
            weights[k, j] = 1.0
            within = f"{contenders[k].label} is within one standard error of the best"
            reasons.append(within if k else "nothing helps by more than its uncertainty")
        else:
            weights[:, j] = stack
            k = simple[int(excess.mean(axis=1).argmin())]
            ratio = np.sqrt(np.mean(sums[k, :, j] ** 2) / best.mean())
            reasons.append(
                f"its error is {ratio:.3g} times smaller than with {contenders[k].label}"
            )
    return weights, reasons


def _convex(columns: Float64[np.ndarray, "b k"], doubts: float) -> Float64[np.ndarray, " k"]:
    """The convex combination of columns of least mean square, where one whose own rests on a few
    entries counts for less."""
    squares = columns**2
    size = np.mean(squares, axis=0)
    if not size.min() > 0:
        return np.eye(len(size))[size.argmin()]
    # In units of the smallest column, so that those that matter are not lost in the rounding of
    # those that do not
    unit = columns / np.sqrt(size.min() * len(columns))
    doubt = np.sqrt(doubts * relative_uncertainty(columns) * size / size.min())
    rows = np.concatenate([unit, np.diag(doubt), np.full((1, len(size)), _SUM_TO_ONE)])
    # imported when used: a tenth of the time that importing zerovar takes
    from scipy.optimize import nnls

    weights, _ = nnls(rows, np.append(np.zeros(len(rows) - 1), _SUM_TO_ONE))
    return weights / weights.sum()
