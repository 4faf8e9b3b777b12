"""The record of an answer: plain data that tables, pictures and pages are drawn from."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64

from ..errors import list_names
from ..families import Family
from ..io.archive import storable
from ..solvers import FitStats
from .formatting import plus_minus
from .selection import Selection

# what there is one of an integrand
NUMBERS = ("value", "std_error", "plain_value", "plain_std_error", "gain")
PerIntegrand = Float64[np.ndarray, " q"]


@storable
@dataclasses.dataclass(frozen=True, eq=False)
class Traces:
    """What pictures show, at the draws that estimate: (chain, draw, q)."""

    values: Float64[np.ndarray, "chain draw q"]  # f
    # n times what each draw adds to the answer: f − c − g, weighted
    residuals: Float64[np.ndarray, "chain draw q"]


@storable
@dataclasses.dataclass(frozen=True, eq=False)
class Integration:
    """How the points of `zv.integrate` came about.

    `modes` (m, d) are the maxima that were found, each by so many of the `starts`; `effective_size`
    and `pareto_k` are those of the importance weights. `log_evidence` is log ∫ exp(log density),
    with its standard error; `relative` says why it is known up to a constant alone, if it is. At
    `outside` of the points the density is zero, at `undefined` of them it is NaN: both have weight
    zero.
    """

    gradients: int
    points: int
    rounds: int
    effective_size: float
    pareto_k: float
    modes: Float64[np.ndarray, "m d"]
    starts: tuple[int, ...]
    log_evidence: float
    log_evidence_error: float
    outside: int = 0
    undefined: int = 0
    relative: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON."""
        return dataclasses.asdict(self) | {
            "modes": self.modes.tolist(),
            "starts": list(self.starts),
        }

    def describe(self) -> str:
        zero = (
            f"; zero at {self.outside} points and undefined at {self.undefined}"
            if self.outside + self.undefined
            else ""
        )
        several = (
            f"{len(self.starts)} modes"
            if len(self.starts) > 1
            else "one mode"
            if self.starts
            else "points as given"
        )
        alone = f", up to a constant alone: {'; '.join(self.relative)}" if self.relative else ""
        return (
            f"{self.gradients} gradients: {several}, {self.points} weighted points that count like "
            f"{self.effective_size:.0f}, Pareto k {self.pareto_k:.2f}{zero}. log evidence "
            f"{plus_minus(self.log_evidence, self.log_evidence_error)}{alone}."
        )


class Contrast(NamedTuple):
    """The difference of two means that are estimated from the same draws, and its error."""

    value: float
    std_error: float

    def __str__(self) -> str:
        return plus_minus(*self)


@dataclasses.dataclass(frozen=True, eq=False)
class EstimateRecord:
    """Means of q integrands with and without control variates; arrays are NumPy, (q,).

    `gain` is (plain_std_error / std_error)²: how many times more draws plain Monte Carlo would need
    for the same error. `covariance` (q, q) is that of the estimates, for differences, ratios and
    the delta method. `error_reasons` says what each standard error rests on, and `limits`
    which of them no further draw would make smaller. `scores` says where the scores come from that
    control variates rest on: from the model, or as given and how far the draws verify them; nothing
    where all answers are plain means. `warnings` are the
    words of caution that were given, `stats` what was fitted and how. `family` is the one that was
    given; where it was chosen for each integrand it is None, and `selection` says what was taken
    and why. `traces` is what the pictures show, `settings` what was asked for, with a fingerprint
    of the data. `integration` says how the points of `zv.integrate` came about.
    """

    names: tuple[str, ...]
    value: PerIntegrand
    std_error: PerIntegrand
    plain_value: PerIntegrand
    plain_std_error: PerIntegrand
    covariance: Float64[np.ndarray, "q q"]
    num_draws: int
    family: Family | None
    split: str
    warnings: tuple[str, ...]
    stats: FitStats
    error_reasons: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    scores: str = ""
    selection: Selection | None = None
    traces: Traces | None = None
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    integration: Integration | None = None

    @property
    def gain(self) -> PerIntegrand:
        return gain_of(self.plain_std_error, self.std_error)

    @property
    def unhelped(self) -> str:
        """The integrands for which plain Monte Carlo is the best answer, if there are any."""
        if self.selection is None:
            return ""
        unhelped = ~self.selection.helped & (self.plain_std_error > 0) & ~(self.gain > 1)
        names = [name for name, so in zip(self.names, unhelped, strict=True) if so]
        return (
            f"No control variate helps {list_names(names)}: the plain mean is given."
            if names
            else ""
        )

    @property
    def notes(self) -> list[str]:
        """What stands under the table besides warnings."""
        skipped = list[str]()
        if self.selection is not None:
            skipped = [f"Found: {text}." for text in self.selection.found]
            skipped += [f"Not used: {text}." for text in self.selection.skipped]
        origin = [] if self.integration is None else [self.integration.describe()]
        unhelped = [self.unhelped] if self.unhelped else []
        rests = [f"Control variates rest on {self.scores}."] if self.scores else []
        return [*origin, *unhelped, *skipped, *rests, *self.limits]


def gain_of(plain: PerIntegrand, controlled: PerIntegrand) -> PerIntegrand:
    """Of standard errors; NaN where there is nothing to gain, because a constant has no error."""
    return np.divide(plain, controlled, out=np.full_like(plain, np.nan), where=controlled > 0) ** 2


def by_integrand(record: EstimateRecord) -> list[tuple[Any, ...]]:
    """For each integrand its name and its `NUMBERS`."""
    return list(zip(record.names, *(getattr(record, key).tolist() for key in NUMBERS), strict=True))
