"""From an answer to an `Estimate`: the same last steps for draws in memory and on disk."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Bool

from ..families import Family
from ..inputs.points import Points
from ..inputs.sample import Sample
from ..output import Estimate, Traces
from ..output.formatting import EXACT
from ..output.record import EXACT_IF, PerIntegrand, gain_of
from ..output.selection import Selection
from ..statistics.series import covariance, r_hat, segments_apart, some_columns
from ..statistics.tails import falls_as_a_power, heaviness
from .answers import DISTANCE, SCATTER, Answer, ErrorBound, plain_answer, rounded_input
from .cautions import NO_VARIANCE, Cautions
from .task import Task

_WRONG = 4.5  # joint errors from the plain mean, of which one right answer in 150 000 is
CONSTANT = "a constant: there is nothing to estimate"
GIVEN_UP = (
    "the plain mean: no control variate has less error, and the variance is probably infinite"
)


class Evidence(NamedTuple):
    """What is known of the draws besides the answer."""

    names: tuple[str, ...]
    plain: Answer
    low: PerIntegrand  # extremes of the integrands at the draws
    high: PerIntegrand
    events: Bool[np.ndarray, " q"]  # which of the integrands are events
    tail: PerIntegrand  # Pareto k of the integrands, less what it may be too large by
    chains: int
    length: int  # draws a chain
    autocorrelation: float
    kish: float  # 1/Σp², the number of draws by their weights alone
    r_hat: tuple[np.ndarray, np.ndarray]  # of the integrands, and of some coordinates
    unit: str = "draw"  # what an influence is of
    points: Points | None = None  # if they are draws of the target, and not weighted
    digits: tuple[ErrorBound, ...] = ()  # by those that draws, scores and values came with
    verified: str = ""  # how precisely the scores were

    @staticmethod
    def of(
        task: Task, names: tuple[str, ...], events: Bool[np.ndarray, " q"], verified: str = ""
    ) -> Evidence:
        """Of draws in memory."""
        sample, values, plain, points = (
            task.sample,
            task.values,
            plain_answer(task),
            task.sample.points(),
        )
        return Evidence(
            names=names,
            plain=plain,
            low=values.min(axis=0),
            high=values.max(axis=0),
            events=events,
            tail=heaviness(
                plain.influences, points, task.effective, weighted=sample.weights is not None
            ),
            chains=sample.num_chains,
            length=len(sample) // sample.num_chains,
            autocorrelation=task.autocorrelation,
            kish=float(1 / np.sum(sample.probabilities**2)),
            r_hat=(
                r_hat(sample.by_chain(values)),
                r_hat(sample.by_chain(some_columns(sample.draws))),
            ),
            points=points if sample.weights is None else None,
            digits=rounded_input(sample, values, len(sample)),
            verified=verified,
        )

    @property
    def scale(self) -> PerIntegrand:
        """The size of the integrands' values, whose rounding no error is below."""
        size = np.maximum(np.abs(self.low), np.abs(self.high))
        return np.where(size > 0, size, 1.0)

    @property
    def constant(self) -> Bool[np.ndarray, " q"]:
        """Integrands that are known and not estimated. An event that no draw shows is not known to
        be impossible."""
        return (self.low == self.high) & ~self.events

    @property
    def one_sided(self) -> Bool[np.ndarray, " q"]:
        """Events that none of the draws shows, or all of them do."""
        return (self.low == self.high) & self.events


def concluded(
    evidence: Evidence,
    answer: Answer,
    cautions: Cautions,
    *,
    family: Family | None,
    split: str,
    settings: dict[str, Any],
    selection: Selection | None = None,
    traces: Traces | None = None,
) -> Estimate:
    """Standard errors and what they rest on, words of caution, and the record of it all."""
    names, constant = evidence.names, evidence.constant
    plain, answer = (_where_constant(found, evidence) for found in (evidence.plain, answer))
    answer = dataclasses.replace(answer, bounds=(*answer.bounds, *evidence.digits))
    draws = evidence.chains * evidence.length
    cautions.convergence(names, evidence.length, *evidence.r_hat)
    if family is not None:
        cautions.numerics(family, answer.results)
    plain_error, _ = plain.std_error(evidence.scale)
    if evidence.unit == "draw":  # batches of draws on disk have averaged their tails away
        answer = answer.with_tails(
            plain, plain_error, evidence.autocorrelation, evidence.scale, evidence.points
        )
    given_up = np.zeros(len(names), dtype=bool)
    # x² under t₃ has 1.3 times the plain mean's squared error
    if selection is not None and evidence.points is not None:
        given_up = (
            (evidence.tail >= NO_VARIANCE)
            & (answer.std_error(evidence.scale)[0] >= plain_error)
            & ~constant
        )
        given_up &= given_up.any() and falls_as_a_power(evidence.points)
        answer, selection = (
            answer.with_columns(plain, given_up),
            selection.without(given_up, GIVEN_UP),
        )
    apart = np.abs(answer.value - plain.value) / np.hypot(
        plain_error, answer.std_error(evidence.scale)[0]
    )
    answer = answer.with_distance(plain, apart, _WRONG)
    error, reasons = answer.std_error(evidence.scale)
    plain_error, error = (np.where(constant, 0.0, each) for each in (plain_error, error))
    exact = EXACT_IF + (
        f", which the draws verify {evidence.verified} in every coordinate"
        if evidence.verified
        else ""
    )
    only_rounding = gain_of(plain_error, error) > EXACT
    reasons = tuple(
        exact if so else reason for so, reason in zip(only_rounding, reasons, strict=True)
    )
    reasons = tuple(
        GIVEN_UP if so else reason for so, reason in zip(given_up, reasons, strict=True)
    )
    reasons = tuple(
        CONSTANT if known else reason for known, reason in zip(constant, reasons, strict=True)
    )
    cautions.events(names, evidence.one_sided)
    cautions.size(draws, evidence.autocorrelation, evidence.kish, answer.stats)
    cautions.integrands(names, evidence.tail)
    # a few draws may rule the scatter: the error counts it
    known = np.array([reason != SCATTER for reason in reasons])
    heavy = cautions.tails(
        names, np.where(known, 0.0, answer.influences), answer.left_out, evidence.unit
    )
    cautions.segments(names, np.where(known | heavy, 0.0, segments_apart(answer.influences)))
    moving = np.flatnonzero(~constant)
    some = [names[k] for k in moving]
    far = np.array([reasons[k] == DISTANCE for k in moving])  # and not for want of use
    cautions.usefulness(some, np.where(far, 1.0, (plain_error[moving] / error[moving]) ** 2))
    cautions.agreement(some, apart[moving])
    return Estimate(
        names=names,
        value=answer.value,
        std_error=error,
        plain_value=plain.value,
        plain_std_error=plain_error,
        covariance=covariance(answer.influences, error),
        num_draws=draws,
        family=answer.family,
        split=split,
        selection=selection,
        warnings=tuple(cautions.texts),
        stats=answer.stats | {"autocorrelation_time": evidence.autocorrelation},
        error_reasons=reasons,
        settings=settings,
        traces=traces,
    )


def _where_constant(answer: Answer, evidence: Evidence) -> Answer:
    """With what needs no fit: a constant is its value; one over the draws' number, thrice, is how
    rare an event may be that was not seen, at 95 % (the rule of three)."""
    same = evidence.low == evidence.high
    unseen = np.where(
        evidence.one_sided, 3 * max(evidence.autocorrelation, 1.0) / evidence.kish, 0.0
    )
    return dataclasses.replace(
        answer,
        value=np.where(same, evidence.low, answer.value),
        influences=np.where(same, 0.0, answer.influences),
        bounds=(*answer.bounds, ErrorBound(unseen, "an event that no draw shows, or every draw")),
    )


def traces_of(values: np.ndarray, answer: Answer) -> Traces:
    """The integrands (n, q) and influences at the draws that estimate."""
    at = values if answer.rows is None else values[answer.rows]
    return Traces(at.reshape(answer.influences.shape), answer.influences)


def settings(sample: Sample, values: np.ndarray, *choices: Any) -> dict[str, Any]:
    """What was asked for, in words, and a fingerprint of the data: what it takes to make the answer
    again."""
    named = zip(("family", "objective", "solver", "split"), choices, strict=True)
    digest = hashlib.sha256()
    for array in (sample.draws, sample.scores, values, sample.probabilities):
        digest.update(np.ascontiguousarray(array).data)
    return {
        **{
            name: "default" if choice is None else eqx.tree_pformat(choice, short_arrays=False)
            for name, choice in named
        },
        "chains": sample.num_chains,
        "draws": len(sample) // sample.num_chains,
        "dimensions": sample.dim,
        "fingerprint": digest.hexdigest()[:16],
    }
