"""From an answer to an `Estimate`: the same last steps for draws in memory and on disk."""

import hashlib
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from .answers import Answer
from .choice import Selection
from .diagnostics import Cautions
from .families import Family
from .output import Estimate, Traces
from .output.record import PerIntegrand
from .sample import Sample
from .std_errors import covariance, segments_apart


class Evidence(NamedTuple):
    """What is known of the draws besides the answer."""

    names: tuple[str, ...]
    plain: Answer
    scale: PerIntegrand  # of the integrands' values, whose rounding bounds every error from below
    chains: int
    length: int  # draws a chain
    autocorrelation: float
    kish: float  # 1/Σp², the number of draws by their weights alone
    r_hat: tuple[np.ndarray, np.ndarray]  # of the integrands, and of some coordinates
    unit: str = "draw"  # what an influence is of


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
    names, plain = evidence.names, evidence.plain
    draws = evidence.chains * evidence.length
    cautions.convergence(names, evidence.length, *evidence.r_hat)
    if family is not None:
        cautions.numerics(family, answer.results)
    plain_error, _ = plain.std_error(evidence.scale)
    error, reasons = answer.std_error(evidence.scale)
    cautions.size(draws, evidence.autocorrelation, evidence.kish, answer.stats)
    cautions.tails(names, answer.influences, answer.left_out, evidence.unit)
    cautions.segments(names, segments_apart(answer.influences))
    cautions.usefulness(names, (plain_error / error) ** 2)
    cautions.agreement(names, np.abs(answer.value - plain.value) / np.hypot(plain_error, error))
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


def settings(sample: Sample, values: np.ndarray, *choices: Any) -> dict[str, Any]:
    """What was asked for, in words, and a fingerprint of the data: what it takes to make the answer again."""
    named = zip(("family", "objective", "solver", "split"), choices, strict=True)
    digest = hashlib.sha256()
    for array in (sample.draws, sample.scores, values, sample.probabilities):
        digest.update(np.ascontiguousarray(array).data)
    return {
        **{name: "default" if choice is None else eqx.tree_pformat(choice, short_arrays=False) for name, choice in named},
        "chains": sample.num_chains,
        "draws": len(sample) // sample.num_chains,
        "dimensions": sample.dim,
        "fingerprint": digest.hexdigest()[:16],
    }
