"""Sensitivities: derivatives of answers with their errors, and the ways to look at them."""

from __future__ import annotations

import dataclasses
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float64

from ..arguments import PATH, instance, takes, whole
from ..errors import missing_package
from . import report, sensitivity_plots
from .formatting import plus_minus, worth
from .record import gain_of
from .tables import html_table, render, text_table

if TYPE_CHECKING:  # what only people who print need is imported as they print
    from rich.console import Group
    from rich.table import Table

PerPair = Float64[np.ndarray, "q k"]
PerTwo = Float64[np.ndarray, "q q"]


@dataclasses.dataclass(frozen=True, eq=False)
class Jackknife:
    """The infinitesimal jackknife covariance of q posterior means over other data of the same kind,
    (q, q), with standard errors; `plain` and `plain_std_error` are without control variates. The
    noise of estimates is subtracted from both."""

    names: tuple[str, ...]
    observations: int
    covariance: PerTwo
    std_error: PerTwo
    plain: PerTwo
    plain_std_error: PerTwo

    @property
    def deviation(self) -> Float64[np.ndarray, " q"]:
        """Of each mean over other data, (q,); NaN where nothing is left after noise."""
        squares = np.diag(self.covariance)
        return np.sqrt(np.where(squares > 0, squares, np.nan))

    @property
    def deviation_error(self) -> Float64[np.ndarray, " q"]:
        return np.diag(self.std_error) / (2 * self.deviation)

    def describe(self, posterior: Float64[np.ndarray, " q"]) -> str:
        """Return a sentence: deviations over other data, beside those over the `posterior` (q,), of
        the values where these differ most."""
        known = np.isfinite(self.deviation) & (self.deviation > 0) & (posterior > 0)
        if not known.any():
            return "Of deviations over other data nothing is left after noise."
        far = np.full(len(posterior), -1.0)
        far[known] = np.abs(np.log(self.deviation[known] / posterior[known]))
        most = np.argsort(-far, kind="stable")[: min(_MOST_DEVIATIONS, int(known.sum()))]
        each = [
            f"{self.names[k]} "
            f"{plus_minus(float(self.deviation[k]), float(self.deviation_error[k]))} "
            f"({posterior[k]:.3g})"
            for k in most
        ]
        return (
            "Deviations over other data of the same kind, by the infinitesimal jackknife (over the "
            f"posterior): {', '.join(each)}."
        )


@dataclasses.dataclass(frozen=True, eq=False)
class PowerCurves:
    """How q values move with the powers of k terms, on a grid of m of them.

    value, std_error (q, k, m): by controlled derivatives up to the second, and its error, the third
        among it; NaN where that is too much. reweighted, reweighted_error (q, k, m): by importance
        weights. pareto_k (k, m): of these; above 0.7 they cannot be trusted.
    """

    names: tuple[str, ...]
    to: tuple[str, ...]
    grid: Float64[np.ndarray, " m"]
    value: Float64[np.ndarray, "q k m"]
    std_error: Float64[np.ndarray, "q k m"]
    reweighted: Float64[np.ndarray, "q k m"]
    reweighted_error: Float64[np.ndarray, "q k m"]
    pareto_k: Float64[np.ndarray, "k m"]

    def ends(self) -> tuple[str, ...]:
        """Say where curves end before the grid does: a line for each power that has such."""
        known = np.isfinite(self.value)
        said = []
        for b, term in enumerate(self.to):
            early = ~known[:, b].all(axis=1)
            if early.any():
                first = int(np.argmin(known[:, b].sum(axis=1)))
                reach = self.grid[known[first, b]]
                where = f"goes from {reach[0]:.2g} to {reach[-1]:.2g}" if len(reach) else "is empty"
                said.append(
                    f"{early.sum()} of {len(self.names)} curves for the power of {term} end early, "
                    f"where third derivatives matter; that of {self.names[first]} {where}."
                )
        return tuple(said)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Sensitivities:
    """Derivatives of q values in k numbers that the log density depends on, as `zv.sensitivity`
    gives them.

    values, to: the names of both.
    value, value_error: what the values are, (q,), and their errors.
    deviation: of each value over the posterior, (q,): what derivatives are compared with.
    derivative, std_error: (q, k), with control variates; plain_derivative and plain_std_error
        without.
    observed: which of the k are powers of single observations: leaving one out moves a value by
        minus its derivative, to first order.
    jackknife: where there are observations, the infinitesimal jackknife covariance of the values.
    curves: how values move with powers, if that was asked for.
    warnings, notes: words of caution, and what the answer rests on.
    """

    values: tuple[str, ...]
    to: tuple[str, ...]
    value: Float64[np.ndarray, " q"]
    value_error: Float64[np.ndarray, " q"]
    deviation: Float64[np.ndarray, " q"]
    derivative: PerPair
    std_error: PerPair
    plain_derivative: PerPair
    plain_std_error: PerPair
    observed: Bool[np.ndarray, " k"]
    num_draws: int
    jackknife: Jackknife | None = None
    curves: PowerCurves | None = None
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def gain(self) -> PerPair:
        """How many times more draws plain covariances would need, (q, k)."""
        return gain_of(self.plain_std_error.ravel(), self.std_error.ravel()).reshape(
            self.std_error.shape
        )

    @property
    def in_deviations(self) -> PerPair:
        """The derivatives in posterior deviations of the values, (q, k)."""
        unit = np.where(self.deviation > 0, self.deviation, 1.0)
        return self.derivative / unit[:, None]

    def strongest(self, most: int = 12) -> list[tuple[int, int]]:
        """Return the rows and columns of the largest derivatives, in deviations."""
        size = np.abs(self.in_deviations).ravel()
        order = np.argsort(-size, kind="stable")[:most]
        return [divmod(int(k), len(self.to)) for k in order]

    @takes(most=whole(1))
    def table(self, most: int = 12) -> Table:
        """Return a rich table of what moves most, in posterior deviations, plain beside
        controlled."""
        return text_table(_COLUMNS, self._cells(most))

    def _cells(self, most: int = 12) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = []
        for a, b in self.strongest(most):
            rows.append(
                (
                    self.values[a],
                    self.to[b],
                    plus_minus(float(self.derivative[a, b]), float(self.std_error[a, b])),
                    plus_minus(
                        float(self.plain_derivative[a, b]), float(self.plain_std_error[a, b])
                    ),
                    worth(float(self.gain[a, b])),
                    f"{self.in_deviations[a, b]:+.2g}",
                )
            )
        return rows

    @property
    def title(self) -> str:
        many = [
            f"{len(names)} {word}{'' if len(names) == 1 else 's'}"
            for names, word in ((self.values, "value"), (self.to, "number"))
        ]
        return f"Sensitivities of {many[0]} to {many[1]}, from {self.num_draws} draws"

    @property
    def _said(self) -> tuple[str, ...]:
        left = self.derivative.size - 12
        more = (f"And {left} more that move less.",) if left > 0 else ()
        spread = () if self.jackknife is None else (self.jackknife.describe(self.deviation),)
        ends = () if self.curves is None else self.curves.ends()
        return (*more, *self.notes, *spread, *ends)

    def __rich__(self) -> Group:
        from rich.console import Group
        from rich.text import Text

        notes = [Text(note) for note in self._said]
        cautions = [Text(f"! {text}", style="yellow") for text in self.warnings]
        return Group(Text(self.title, style="bold"), self.table(), *notes, *cautions)

    def __str__(self) -> str:
        return render(self, max(len(a) + len(b) for a in self.values for b in self.to))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_table(self.title, _COLUMNS, self._cells(), self._said, self.warnings)

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers for JSON."""
        found: dict[str, Any] = {"values": list(self.values), "to": list(self.to)}
        for key in (*_OF_VALUES, "observed", *_TABLES, "gain", "in_deviations"):
            found[key] = getattr(self, key).tolist()
        for key, part in (("jackknife", self.jackknife), ("curves", self.curves)):
            found[key] = None if part is None else _plain_numbers(part)
        return found | {"warnings": list(self.warnings), "notes": list(self.notes)}

    def to_dataset(self) -> Any:
        """Return an xarray Dataset over the dimensions `integrand` and `to`, with the jackknife
        over `integrand` and `other`, and curves over `integrand`, `term` and `power` (needs the
        extra `zerovar[xarray]`)."""
        try:
            import xarray
        except ImportError as error:
            raise missing_package("xarray", "xarray") from error
        tables = (*_TABLES, "gain", "in_deviations")
        data: dict[str, Any] = {key: (("integrand", "to"), getattr(self, key)) for key in tables}
        data |= {key: ("integrand", getattr(self, key)) for key in _OF_VALUES}
        data["observed"] = ("to", self.observed)
        coords: dict[str, Any] = {"integrand": list(self.values), "to": list(self.to)}
        if self.jackknife is not None:
            coords["other"] = list(self.values)
            for key in _OF_JACKKNIFE:
                data[f"jackknife_{key}"] = (("integrand", "other"), getattr(self.jackknife, key))
        if (curves := self.curves) is not None:
            coords |= {"term": list(curves.to), "power": curves.grid}
            for key in _OF_CURVES:
                data[f"curve_{key}"] = (("integrand", "term", "power"), getattr(curves, key))
            data["curve_pareto_k"] = (("term", "power"), curves.pareto_k)
        return xarray.Dataset(data, coords=coords)

    @takes(path=PATH, value=instance((str, type(None)), "the name of a value"))
    def plot(self, path: str | PathLike[str] | None = None, *, value: str | None = None) -> Any:
        """Plot what moves most as bars with errors, or derivatives by observation where there are
        such, of one `value`; curves where they were asked for. Save it to `path` if given (needs
        `zerovar[plots]`)."""
        if value is not None and value not in self.values:
            raise ValueError(f"value must be one of {', '.join(self.values)}; got {value!r}")
        if self.curves is not None:
            return sensitivity_plots.along_powers(self, path, value)
        if self.observed.any():
            return sensitivity_plots.influences(self, path, value)
        return sensitivity_plots.bars(self, path, value)

    @takes(path=PATH)
    def report(self, path: str | PathLike[str]) -> None:
        """Write one self-contained HTML page: table, what it rests on, pictures."""
        report.write_short(self, path, self.title, _draws_of(self))


def _draws_of(found: Sensitivities) -> list[tuple[Any, str]]:
    draws = [(sensitivity_plots.bars, "what moves most")]
    if found.observed.any():
        draws.append((sensitivity_plots.influences, "each observation"))
    if found.curves is not None:
        draws.append((sensitivity_plots.along_powers, "along the powers"))
    return draws


def _plain_numbers(part: Jackknife | PowerCurves) -> dict[str, Any]:
    return {
        field.name: one.tolist()
        if isinstance(one := getattr(part, field.name), np.ndarray)
        else one
        for field in dataclasses.fields(part)
    }


_MOST_DEVIATIONS = 4  # in a sentence that is read
_COLUMNS = ("value", "moves with", "derivative", "plain", "gain", "in deviations")
_OF_VALUES = ("value", "value_error", "deviation")
_TABLES = ("derivative", "std_error", "plain_derivative", "plain_std_error")
_OF_JACKKNIFE = ("covariance", "std_error", "plain", "plain_std_error")
_OF_CURVES = ("value", "std_error", "reweighted", "reweighted_error")
