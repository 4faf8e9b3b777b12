"""Estimate: the answer, and the ways to look at it."""

from __future__ import annotations

import dataclasses
import hashlib
import html
import math
from os import PathLike
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Float64
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from . import storage
from .automatic import Selection
from .errors import listed
from .families import Family
from .sample import Sample

Vector = Float64[np.ndarray, " q"]

_NUMBERS = ("value", "std_error", "plain_value", "plain_std_error", "gain")  # what there is one of an integrand
EXACT = 1e18  # gains beyond this are those of rounding errors
_COLUMNS = ("name", "value", "plain Monte Carlo", "gain", "worth (draws)")


class Traces(NamedTuple):
    """What pictures show, at the draws that estimate: (chain, draw, q)."""

    values: Float64[np.ndarray, "chain draw q"]  # f
    residuals: Float64[np.ndarray, "chain draw q"]  # what is left of it about the answer, f − c − g, with the draw left out


@dataclasses.dataclass(frozen=True, eq=False)
class Estimate:
    """Means of q integrands with and without control variates; arrays are NumPy, (q,).

    `gain` is (plain_std_error / std_error)²: how many times more draws plain Monte Carlo would need for the same error.
    `covariance` (q, q) is that of the estimates, for differences, ratios and the delta method. `warnings` are the words
    of caution that were given, `stats` what was fitted and how. `family` is the one that was given; where it was chosen for
    each integrand it is None, and `selection` says what was taken and why. `traces` is what the pictures show,
    `settings` what was asked for, with a fingerprint of the data.
    """

    names: tuple[str, ...]
    value: Vector
    std_error: Vector
    plain_value: Vector
    plain_std_error: Vector
    covariance: Float64[np.ndarray, "q q"]
    num_draws: int
    family: Family | None
    split: str
    warnings: tuple[str, ...]
    stats: dict[str, Any]
    selection: Selection | None = None
    traces: Traces | None = None
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def gain(self) -> Vector:
        return (self.plain_std_error / self.std_error) ** 2

    def table(self) -> Table:
        """A rich table: name, value ± error, plain value ± error, gain, and what the draws are now worth."""
        table = Table()
        table.add_column(_COLUMNS[0], no_wrap=True)
        for column in _COLUMNS[1:]:
            table.add_column(column, justify="right", no_wrap=True)
        for row in self._rows():
            table.add_row(*(Text(cell) for cell in row))  # not markup: names hold brackets
        return table

    def __rich__(self) -> Group:
        notes = [Text(self.unhelped)] if self.unhelped else []
        cautions = [Text(f"! {text}", style="yellow") for text in self.warnings]
        return Group(Text(self._title, style="bold"), self.table(), *notes, *cautions)

    def __str__(self) -> str:
        longest = max(len(name) for name in self.names)
        console = Console(width=max(110, longest + 90), no_color=True, highlight=False)
        with console.capture() as capture:
            console.print(self)
        return capture.get().rstrip()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(column)}</th>" for column in _COLUMNS)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in self._rows())
        notes = f"<p>{html.escape(self.unhelped)}</p>" if self.unhelped else ""
        notes += "".join(f"<p>⚠ {html.escape(text)}</p>" for text in self.warnings)
        caption = f"<caption>{html.escape(self._title)}</caption>"
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON: one record an integrand, and what was done."""
        records = [
            {"name": name} | {key: float(getattr(self, key)[k]) for key in _NUMBERS} for k, name in enumerate(self.names)
        ]
        if self.selection is not None:
            for k, record in enumerate(records):
                record |= {"control_variate": self.selection.describe(k), "reason": self.selection.reasons[k]}
        return {
            "estimates": records,
            "num_draws": self.num_draws,
            "family": self._family,
            "split": self.split,
            "warnings": list(self.warnings),
        }

    def to_dataset(self) -> Any:
        """An xarray Dataset over the dimension `integrand` (needs the extra `zerovar[xarray]`)."""
        try:
            import xarray
        except ImportError as error:
            raise ImportError("to_dataset needs xarray: pip install 'zerovar[xarray]'") from error
        data: dict[str, Any] = {key: ("integrand", getattr(self, key)) for key in _NUMBERS}
        data["covariance"] = (("integrand", "integrand_"), self.covariance)
        names = list(self.names)
        attributes = {"family": self._family, "split": self.split, "num_draws": self.num_draws}
        return xarray.Dataset(data, coords={"integrand": names, "integrand_": names}, attrs=attributes)

    def plot(self, path: str | PathLike[str] | None = None) -> Any:
        """Estimates with error bars, plain against controlled; saved to `path` if given (needs `zerovar[plots]`)."""
        from .plots import forest

        return forest(self, path)

    def report(self, path: str | PathLike[str]) -> None:
        """Write one self-contained HTML page: answer, table, pictures, diagnostics, settings and versions."""
        from .report import write

        write(self, path)

    def save(self, path: str | PathLike[str]) -> None:
        """Write to one file without pickle; `zv.load` reads it."""
        state = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        chosen = None if self.selection is None else dataclasses.asdict(self.selection)
        storage.write(path, "estimate", state | {"selection": chosen})

    @staticmethod
    def _from_state(state: dict[str, Any]) -> Estimate:
        chosen = state.get("selection")
        traces = state.get("traces")
        found = {
            "selection": None if chosen is None else Selection(**chosen),
            "traces": None if traces is None else Traces(*traces),
        }
        return Estimate(**(state | found))

    @property
    def _family(self) -> str:
        return "chosen for each integrand" if self.family is None else self.family.describe()

    @property
    def unhelped(self) -> str:
        """The integrands for which plain Monte Carlo is the best answer, if there are any."""
        if self.selection is None or self.selection.helped.all():
            return ""
        names = [name for name, helped in zip(self.names, self.selection.helped, strict=True) if not helped]
        return f"No control variate helps {listed(names)}: the plain mean is given."

    @property
    def _title(self) -> str:
        return f"{self._family}, {self.split}, {self.num_draws} draws"

    def _rows(self) -> list[tuple[str, ...]]:
        columns = zip(self.names, *(getattr(self, key) for key in _NUMBERS), strict=True)
        return [
            (name, plus_minus(v, e), plus_minus(pv, pe), worth(g), human(g * self.num_draws))
            for name, v, e, pv, pe, g in columns
        ]


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


def worth(gain: float) -> str:
    """A gain in a few digits, or the word for one that only rounding limits."""
    if gain > EXACT:
        return "exact"
    return f"{float(f'{gain:.3g}'):g}" if gain < 1e4 else f"{gain:.1e}"


def plus_minus(value: float, error: float) -> str:
    """`value ± error` with two digits of the error and as many of the value as it allows."""
    if not (math.isfinite(value) and math.isfinite(error)) or error <= 0:
        return f"{value:.6g} ± {error:.2g}"
    size = math.floor(math.log10(max(abs(value), error)))
    digits = 1 - math.floor(math.log10(error))
    if -4 <= size < 6:
        digits = min(max(digits, 0), 15 - max(size, 0))
        return f"{value:.{digits}f} ± {error:.{digits}f}" if digits <= 6 else f"{value:.{digits}f} ± {error:.1e}"
    return f"{value:.{min(max(size + digits, 1), 15)}e} ± {error:.1e}"


def human(number: float) -> str:
    """A count as people say it: 950, 12 thousand, 3.4 million; nothing beyond what can be counted."""
    if number > EXACT:
        return ""
    for power, word in ((1e12, ""), (1e9, " billion"), (1e6, " million"), (1e3, " thousand")):
        if number >= power:
            return f"{number:.1e}" if not word else f"{number / power:.3g}{word}"
    return f"{number:.0f}"
