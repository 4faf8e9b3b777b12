"""Evidence: log Z with its error, what it is made of, and the ways to look at it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float64

from ..arguments import PATH, instance, takes
from ..errors import require_distinct
from . import plots, report
from .formatting import plus_minus, worth
from .record import Contrast
from .tables import html_table, render, text_table

if TYPE_CHECKING:  # what only people who print need is imported as they print
    from rich.console import Group
    from rich.table import Table


class Part(NamedTuple):
    """log Z by one part of the draws, or by one route along a ladder, with control variates and
    plain; `weight` is what it counts in the answer."""

    name: str
    log_z: float
    std_error: float
    plain_log_z: float
    plain_std_error: float
    weight: float

    @property
    def gain(self) -> float:
        return (self.plain_std_error / self.std_error) ** 2


class BridgeTraces(NamedTuple):
    """Log density less that of the proposal and less log Z, at the draws (n,) and at the proposal's
    points (m,): the picture of a bridge."""

    at_draws: Float64[np.ndarray, " n"]
    at_points: Float64[np.ndarray, " m"]


class LadderTraces(NamedTuple):
    """Inverse temperatures (t,), the means of the log-likelihood there with their errors, and each
    rung's share in the variance: the picture of a ladder."""

    temperatures: Float64[np.ndarray, " t"]
    means: Float64[np.ndarray, " t"]
    errors: Float64[np.ndarray, " t"]
    rungs: Float64[np.ndarray, " r"]
    shares: Float64[np.ndarray, " r"]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Evidence:
    """log Z, as `zv.evidence` gives it.

    log_z, std_error: with control variates; plain_log_z and plain_std_error without. `gain` is the
        ratio of their variances: how many times more draws the plain one would need.
    title: what it was computed by, in words; `target`: what log_z is the logarithm of.
    parts: log Z by each half of the draws, or by each route along a ladder.
    shares: name → part of the variance that it is responsible for.
    overlap: of the posterior and the proposal, one where they are the same; None for a ladder.
    evaluations: of the log density; None where it is not known.
    relative: why log Z is known up to a constant alone, if it is. Models whose constants are the
        same can be compared.
    warnings: the words of caution that were given.
    """

    log_z: float
    std_error: float
    plain_log_z: float
    plain_std_error: float
    title: str
    target: str
    parts: tuple[Part, ...]
    shares: dict[str, float]
    overlap: float | None
    evaluations: int | None
    relative: tuple[str, ...]
    warnings: tuple[str, ...]
    traces: BridgeTraces | LadderTraces

    @property
    def gain(self) -> float:
        return (self.plain_std_error / self.std_error) ** 2

    def compare(self, *others: Evidence, names: Sequence[str] | None = None) -> Comparison:
        """Return log Bayes factors for this model against others, and the posterior probabilities
        of all if they are equally probable beforehand, with errors.

        Draws of different models are independent, and so are the errors of their evidences.
        """
        every = (self, *others)
        for one in others:
            if not isinstance(one, Evidence):
                raise ValueError(
                    f"compare takes what zv.evidence returns for other models; got {one!r}"
                )
        if not others:
            raise ValueError("compare needs the evidence of at least one other model")
        if names is None:
            names = [f"model {k + 1}" for k in range(len(every))]
        if len(names) != len(every) or isinstance(names, str):
            raise ValueError(f"names must be {len(every)} strings, this model's first; got {names}")
        names = tuple(map(str, names))
        require_distinct("names", names)
        log_z = np.array([one.log_z for one in every])
        return Comparison(
            names,
            log_z,
            np.array([one.std_error for one in every]),
            tuple(dict.fromkeys(text for one in every for text in one.relative)),
        )

    def table(self) -> Table:
        """Return a rich table: each part and all together, plain beside controlled."""
        return text_table(_COLUMNS, self._cells(), above_the_line=len(self.parts))

    def _cells(self) -> list[tuple[str, ...]]:
        rows = [
            (
                one.name,
                plus_minus(one.log_z, one.std_error),
                plus_minus(one.plain_log_z, one.plain_std_error),
                worth(one.gain),
                f"{one.weight:.0%}",
            )
            for one in self.parts
        ]
        both = (self.log_z, self.std_error), (self.plain_log_z, self.plain_std_error)
        return [*rows, ("log Z", *(plus_minus(*pair) for pair in both), worth(self.gain), "")]

    @property
    def notes(self) -> tuple[str, ...]:
        """What the answer rests on, in sentences."""
        said = [f"{name} {share:.0%}" for name, share in self.shares.items() if share > 0.005]
        notes = [f"{self.target}. Its variance is due to: {', '.join(said)}."]
        if self.overlap is not None:
            notes.append(f"Posterior and proposal overlap by {self.overlap:.0%}.")
        if self.evaluations is not None:
            notes.append(f"{self.evaluations} evaluations of the log density.")
        notes += [f"Up to a constant alone: {text}." for text in self.relative]
        return tuple(notes)

    def __rich__(self) -> Group:
        from rich.console import Group
        from rich.text import Text

        notes = [Text(note) for note in self.notes]
        cautions = [Text(f"! {text}", style="yellow") for text in self.warnings]
        return Group(Text(self.title, style="bold"), self.table(), *notes, *cautions)

    def __str__(self) -> str:
        return render(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_table(self.title, _COLUMNS, self._cells(), self.notes, self.warnings)

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers for JSON."""
        skipped = ("traces", "parts")
        found = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in skipped
        }
        return found | {"gain": self.gain, "parts": [one._asdict() for one in self.parts]}

    @takes(path=PATH)
    def plot(self, path: str | PathLike[str] | None = None) -> Any:
        """Plot where the two sides of the bridge meet, or the mean log-likelihood along the ladder,
        whose area is log Z; and save it to `path` if given (needs `zerovar[plots]`)."""
        if isinstance(self.traces, BridgeTraces):
            return plots.bridge(self, path)
        return plots.temperatures(self, path)

    @takes(path=PATH)
    def report(self, path: str | PathLike[str]) -> None:
        """Write one self-contained HTML page: table, what it rests on, picture."""
        report.write_evidence(self, path)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Models by their evidences: m names, log Z (m,) and its errors (m,). `relative` are reasons
    for which log Z is known up to a constant alone: factors are right where it is the same."""

    names: tuple[str, ...]
    log_z: Float64[np.ndarray, " m"]
    log_z_error: Float64[np.ndarray, " m"]
    relative: tuple[str, ...] = ()

    @property
    def log_bayes_factor(self) -> Float64[np.ndarray, " m"]:
        """Of the first model against each, (m,): positive where the data speak for the first."""
        return self.log_z[0] - self.log_z

    @property
    def std_error(self) -> Float64[np.ndarray, " m"]:
        """Of the log Bayes factors, (m,)."""
        error = np.hypot(self.log_z_error[0], self.log_z_error)
        error[0] = 0.0
        return error

    @property
    def probability(self) -> Float64[np.ndarray, " m"]:
        """Of each model if all are equally probable beforehand, (m,)."""
        weight = np.exp(self.log_z - self.log_z.max())
        return weight / weight.sum()

    @property
    def probability_error(self) -> Float64[np.ndarray, " m"]:
        """By the delta method, (m,)."""
        p = self.probability
        slope = np.diag(p) - np.outer(p, p)
        return np.sqrt(np.square(slope) @ np.square(self.log_z_error))

    @takes(a=instance(str, "the name of a model"), b=instance(str, "the name of a model"))
    def contrast(self, a: str, b: str) -> Contrast:
        """Return the log Bayes factor of one model against another, with its error."""
        for name in (a, b):
            if name not in self.names:
                raise ValueError(f"{name!r} is none of {', '.join(self.names)}")
        at, other = (self.names.index(name) for name in (a, b))
        error = 0.0 if at == other else math.hypot(self.log_z_error[at], self.log_z_error[other])
        return Contrast(float(self.log_z[at] - self.log_z[other]), error)

    def table(self) -> Table:
        """Return a rich table: log Z, log Bayes factor of the first against each, probability."""
        return text_table(_COMPARED, self._cells())

    def _cells(self) -> list[tuple[str, ...]]:
        columns = (
            (self.log_z, self.log_z_error),
            (self.log_bayes_factor, self.std_error),
            (self.probability, self.probability_error),
        )
        rows: list[tuple[str, ...]] = []
        for k, name in enumerate(self.names):
            cells = [plus_minus(float(v[k]), float(e[k])) for v, e in columns]
            rows.append((name, cells[0], cells[1] if k else "", cells[2]))
        return rows

    def __rich__(self) -> Group:
        from rich.console import Group
        from rich.text import Text

        return Group(self.table(), *(Text(f"! {text}") for text in self._cautions))

    @property
    def _cautions(self) -> list[str]:
        return [f"Right if the models share a constant: {text}." for text in self.relative]

    def __str__(self) -> str:
        return render(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_table("", _COMPARED, self._cells(), (), self._cautions)


_COLUMNS = ("by", "log Z", "plain", "gain", "weight")
_COMPARED = ("model", "log Z", "log Bayes factor of the first", "probability")
