"""From an answer to an `Estimate`: the same last steps for draws in memory and on disk."""

import dataclasses
import hashlib
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import numpy as np

from ..errors import NumericalError, list_names
from ..inputs.sample import Sample
from ..output import Estimate, Selection, Traces
from ..output.formatting import EXACT
from ..output.record import gain_of
from ..statistics.series import covariance
from .answer import Answer, Mask
from .cautions import Cautions, Reported
from .facts import Facts
from .ledger import Ledger, assess
from .rules import Reason, Rule, agree_elsewhere, joint_errors, refused_share


def conclude(
    answer: Answer,
    facts: Facts,
    rules: Sequence[Rule],
    cautions: Cautions,
    *,
    split: str,
    settings: dict[str, Any],
    selection: Selection | None = None,
    chosen: bool = False,
) -> Estimate:
    """Standard errors and what they rest on, words of caution, and the record of it all.

    Where the control variate was `chosen` by us (always if there is a `selection`) and its error is
    no less than that of the plain mean, the plain mean is reported: a gain of one is the plain mean
    itself.
    """
    facts = dataclasses.replace(facts, plain=facts.settle(facts.plain))
    answer = facts.settle(answer)
    ledger = assess(answer, facts, rules)
    apart, refused = joint_errors(answer, facts.plain), refused_share(answer, facts.plain)
    agreed = agree_elsewhere(answer, facts.plain)
    lost = np.zeros(len(facts.names), dtype=bool)
    if chosen or selection is not None:
        # where an error is no number too
        lost = answer.controlled & ~(ledger.error < ledger.plain_error)
    if selection is not None:
        selection = selection.without(lost, Reason.PLAIN.value)
    if lost.any():
        answer = answer.insert(facts.plain.only(lost), lost)
        ledger = assess(answer, facts, rules)
    plain_error, error = (
        np.where(facts.constant, 0.0, each) for each in (ledger.plain_error, ledger.error)
    )
    if (bad := np.flatnonzero(~np.isfinite(answer.value + error))).size:
        names = list_names([facts.names[k] for k in bad])
        raise NumericalError(
            f"the answer for {names} is not finite: sums overflow or underflow. Are there draws or "
            "scores of very different size? Use other units, or leave those draws out"
        )
    reasons = _reasons(ledger, facts, lost, gain_of(plain_error, error) > EXACT)
    cautions.add_reported(
        Reported(answer, facts, reasons, plain_error, error, apart, refused, agreed)
    )
    return Estimate(
        names=facts.names,
        value=answer.value,
        std_error=error,
        plain_value=facts.plain.value,
        plain_std_error=plain_error,
        covariance=covariance(answer.influences, error),
        num_draws=facts.num_draws,
        family=answer.family,
        split=split,
        selection=selection,
        warnings=tuple(cautions.texts),
        stats=answer.stats | {"autocorrelation_time": facts.autocorrelation},
        error_reasons=tuple(_sentence(reason, facts) for reason in reasons),
        limits=_limits(reasons, facts),
        scores=facts.scores.describe() if answer.controlled.any() else "",
        settings=settings,
        traces=_traces(answer, facts),
    )


def _reasons(ledger: Ledger, facts: Facts, lost: Mask, only_rounding: Mask) -> tuple[Reason, ...]:
    """What each error rests on, the most telling reason first."""
    found = np.array(ledger.reasons, dtype=object)
    for columns, reason in (
        (only_rounding, Reason.EXACT),
        (lost, Reason.PLAIN),
        (facts.constant, Reason.CONSTANT),
    ):
        found[columns] = reason
    return tuple(found)


def _sentence(reason: Reason, facts: Facts) -> str:
    """The reason in words, with how far the draws verify the scores that an exact answer needs."""
    scores = facts.scores
    if reason is Reason.EXACT and scores.from_model:
        return f"{reason.value}, and they are the model's own"
    if reason is Reason.EXACT and scores.verified:
        return f"{reason.value}, which the draws verify {scores.verified} in every coordinate"
    return reason.value


def _limits(reasons: Sequence[Reason], facts: Facts) -> tuple[str, ...]:
    """Errors that no further draw would make smaller, and why."""
    lines = []
    for reason in dict.fromkeys(reasons):
        if reason.of_digits or reason is Reason.EXACT:
            why = "the digits of the input limit it, for " if reason.of_digits else ""
            pairs = zip(facts.names, reasons, strict=True)
            names = list_names([name for name, own in pairs if own is reason])
            lines.append(f"{names}: {why}{_sentence(reason, facts)}.")
    return tuple(lines)


def _traces(answer: Answer, facts: Facts) -> Traces | None:
    """The integrands and influences at the draws that estimate, if these are in memory."""
    if facts.values is None:
        return None
    at = facts.values if answer.rows is None else facts.values[answer.rows]
    return Traces(at.reshape(answer.influences.shape), answer.influences)


def describe_settings(sample: Sample, values: np.ndarray, **choices: Any) -> dict[str, Any]:
    """What was asked for, in words, and a fingerprint of the data: enough to make it again."""
    digest = hashlib.sha256()
    for array in (sample.draws, sample.scores, values, sample.probabilities):
        digest.update(np.ascontiguousarray(array).data)
    in_words = {
        name: "default" if choice is None else eqx.tree_pformat(choice, short_arrays=False)
        for name, choice in choices.items()
    }
    return {
        **in_words,
        "chains": sample.num_chains,
        "draws": len(sample) // sample.num_chains,
        "dimensions": sample.dim,
        "fingerprint": digest.hexdigest()[:16],
    }
