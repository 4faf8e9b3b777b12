"""Answers of several candidates made one: the convex combination of least variance.

No one family wins everywhere, and errors of good ones partly cancel. The simplest candidate within
one standard error of the stack is taken instead of it, so that nothing rich is used without need.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64

from ..inference.answer import Alternatives, Answer, at_least_rounding, combine
from ..inference.cautions import RARE
from ..inference.rules import SUSPICIOUS, joint_errors
from ..inference.task import Task
from ..statistics.series import ROUNDING, batch_sums, relative_uncertainty, tail_share, unit_size
from ..statistics.tails import grows_in_tails
from .policy import Policy


class Contender(NamedTuple):
    """A candidate that was tried, with an answer at all draws for all integrands."""

    label: str
    simple: bool
    answer: Answer


class Stack(NamedTuple):
    """The combined answer, how much of each candidate is in it (k, q), their own errors (k, q), and
    why."""

    answer: Answer
    weights: Float64[np.ndarray, "k q"]
    errors: Float64[np.ndarray, "k q"]
    reasons: list[str]


def stack(task: Task, contenders: Sequence[Contender], policy: Policy) -> Stack:
    """Combine the contenders. The first is the plain mean, and the others are held against it."""
    scale, plain = task.scale, contenders[0].answer
    doubted = grows_in_tails(plain.at_tails(task.tails), task.values.std(axis=0))
    found = [one.answer.reconcile(doubted) for one in contenders[1:]]
    answers = [plain, *(_believe(one, plain) for one in found)]
    errors = np.stack([at_least_rounding(answer.scatter, scale) for answer in answers])
    sums = np.stack([batch_sums(answer.influences, task.autocorrelation) for answer in answers])
    weights, reasons = _weigh(sums, errors <= ROUNDING * scale, contenders)
    # with weights and without: far points of a proposal have values that count for nothing, and the
    # weights of a narrow one a tail of their own
    shares = tail_share(task.sample.by_chain(task.values)), tail_share(plain.influences)
    rare = np.minimum(*shares) > RARE
    worse = combine(answers, weights, task.tails).scatter > errors[0]
    for j in np.flatnonzero((rare | worse) & (weights[0] < 1)):
        weights[:, j] = np.eye(len(answers))[0]
        reasons[j] = (
            "its variance rests on a handful of draws: too few to learn from"
            if rare[j]
            else "nothing helps once autocorrelation is counted"
        )
    answer = combine(answers, weights, task.tails)
    share = policy.corrected * answer.controlled
    answer = answer.correct(share, doubted)
    alternatives = Alternatives(
        np.array([one.value for one in found]).reshape(len(found), len(scale)),
        np.array([one.internal_error for one in found]).reshape(len(found), len(scale)),
    )
    answer = dataclasses.replace(answer, alternatives=alternatives)
    return Stack(answer, weights, errors, reasons)


def _believe(answer: Answer, plain: Answer) -> Answer:
    """The answer, with the plain mean where it is too far from that: no draw says what is wrong
    with it, but the plain mean does."""
    far = joint_errors(answer, plain) > SUSPICIOUS
    return answer.insert(plain.only(far), far) if far.any() else answer


def _weigh(
    sums: Float64[np.ndarray, "k b q"],
    exact: Bool[np.ndarray, "k q"],
    contenders: Sequence[Contender],
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
        mixture = convex_weights(sums[:, :, j].T)
        best = (mixture @ sums[:, :, j]) ** 2
        excess = sums[simple, :, j] ** 2 - best
        near = excess.mean(axis=1) <= excess.std(axis=1) / np.sqrt(batches)
        if near.any():
            k = simple[int(near.argmax())]
            weights[k, j] = 1.0
            within = f"{contenders[k].label} is within one standard error of the best"
            reasons.append(within if k else "nothing helps by more than its uncertainty")
        else:
            weights[:, j] = mixture
            k = simple[int(excess.mean(axis=1).argmin())]
            ratio = np.sqrt(np.mean(sums[k, :, j] ** 2) / best.mean())
            reasons.append(
                f"its error is {ratio:.3g} times smaller than with {contenders[k].label}"
            )
    return weights, reasons


def convex_weights(columns: Float64[np.ndarray, "b k"]) -> Float64[np.ndarray, " k"]:
    """The convex combination of columns of least mean square, where the standard error of its own
    is held against each: one whose own rests on a few entries counts for less."""
    size = np.mean(columns**2, axis=0)
    if not size.min() > 0:
        return np.eye(len(size))[size.argmin()]
    # In units of the smallest column, so that those that matter are not lost in the rounding of
    # those that do not
    unit = columns / np.sqrt(size.min() * len(columns))
    doubt = np.sqrt(relative_uncertainty(columns) * size / size.min())
    # one more row asks for a sum of one. Whatever its weight, the best weights are those of the
    # best convex combination times a number, which is then divided by
    rows = np.concatenate([unit, np.diag(doubt), np.ones((1, len(size)))])
    from scipy.optimize import nnls  # a tenth of the time that importing zerovar takes

    weights, _ = nnls(rows, np.append(np.zeros(len(rows) - 1), 1.0))
    return weights / weights.sum()
