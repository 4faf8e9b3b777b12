"""Estimate: the answer, and the ways to look at it."""

import dataclasses
import math
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arguments import PATH, instance, takes
from ..errors import list_names, missing_package
from ..io import archive
from ..io.archive import storable
from . import plots, report
from .formatting import format_count, plus_minus, worth
from .record import NUMBERS, Contrast, EstimateRecord, by_integrand
from .tables import html_table, render, text_table

if TYPE_CHECKING:  # what only people who print need is imported as they print
    from rich.console import Group
    from rich.table import Table

_COLUMNS = ("name", "value", "plain Monte Carlo", "gain", "worth (draws)")


@storable
@dataclasses.dataclass(frozen=True, eq=False)
class Estimate(EstimateRecord):
    """Means of q integrands with and without control variates, as `zv.estimate` gives them, or
    probabilities, quantiles and ends of intervals; arrays are NumPy, (q,).

    `gain` is (plain_std_error / std_error)²: how many times more draws plain Monte Carlo would need
    for the same error. `covariance` (q, q) is that of the estimates, for differences, ratios and
    the delta method. `error_reasons` says what each standard error rests on. `warnings` are the
    words of caution that were given, `stats` what was fitted and how. `family` is the one that was
    given; where it was chosen for each integrand it is None, and `selection` says what was taken
    and why. `traces` is what the pictures show, `settings` what was asked for, with a fingerprint
    of the data. `integration` says how the points of `zv.integrate` came about.
    """

    def table(self) -> "Table":
        """Return a rich table: name, value ± error, plain value ± error, gain, and what the draws
        are now worth."""
        return text_table(_COLUMNS, self._cells())

    def __rich__(self) -> "Group":
        from rich.console import Group
        from rich.text import Text

        notes = [Text(note) for note in self.notes]
        cautions = [Text(f"! {text}", style="yellow") for text in self.warnings]
        return Group(Text(self._title, style="bold"), self.table(), *notes, *cautions)

    def __str__(self) -> str:
        return render(self, max(len(name) for name in self.names))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_table(self._title, _COLUMNS, self._cells(), self.notes, self.warnings)

    @takes(a=instance(str, "the name of an integrand"), b=instance(str, "the name of an integrand"))
    def contrast(self, a: str, b: str) -> Contrast:
        """Return the mean of `a` less that of `b`, both among the names, with its standard error.

        Both come from the same draws, so that their errors partly cancel: `covariance` says how
        far, and serves sums, ratios and other functions alike.
        """
        for name in (a, b):
            if name not in self.names:
                raise ValueError(f"{name!r} is none of {list_names(self.names)}")
        at = [self.names.index(name) for name in (a, b)]
        signs = np.array([1.0, -1.0])
        variance = signs @ self.covariance[np.ix_(at, at)] @ signs
        return Contrast(float(signs @ self.value[at]), math.sqrt(max(float(variance), 0.0)))

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers for JSON: one record an integrand, and what was done."""
        records = [dict(zip(("name", *NUMBERS), row, strict=True)) for row in by_integrand(self)]
        for k, record in enumerate(records):
            record["gain"] = None if math.isnan(record["gain"]) else record["gain"]  # a constant's
            if self.selection is not None:
                record["control_variate"] = self.selection.describe(k)
                record["reason"] = self.selection.reasons[k]
        found = {
            "estimates": records,
            "num_draws": self.num_draws,
            "family": self._family,
            "split": self.split,
            "warnings": list(self.warnings),
        }
        if self.integration is not None:
            found["integration"] = self.integration.to_dict()
        return found

    def to_dataset(self) -> Any:
        """Return an xarray Dataset over the dimension `integrand` (needs the extra
        `zerovar[xarray]`)."""
        try:
            import xarray
        except ImportError as error:
            raise missing_package("xarray", "xarray") from error
        data: dict[str, Any] = {key: ("integrand", getattr(self, key)) for key in NUMBERS}
        data["covariance"] = (("integrand", "integrand_"), self.covariance)
        names = list(self.names)
        attributes = {"family": self._family, "split": self.split, "num_draws": self.num_draws}
        return xarray.Dataset(
            data, coords={"integrand": names, "integrand_": names}, attrs=attributes
        )

    @takes(path=PATH)
    def plot(self, path: str | PathLike[str] | None = None) -> Any:
        """Plot estimates with error bars, plain against controlled, and save it to `path` if given
        (needs `zerovar[plots]`)."""
        return plots.forest(self, path)

    @takes(path=PATH)
    def report(self, path: str | PathLike[str]) -> None:
        """Write one self-contained HTML page: answer, table, pictures, diagnostics, settings and
        versions."""
        report.write_page(self, path)

    @takes(path=PATH)
    def save(self, path: str | PathLike[str]) -> None:
        """Write to one file without pickle; `zv.load` reads it."""
        archive.write(path, self)

    @property
    def _family(self) -> str:
        return "chosen for each integrand" if self.family is None else self.family.describe()

    @property
    def _title(self) -> str:
        return f"{self._family}, {self.split}, {self.num_draws} draws"

    def _cells(self) -> list[tuple[str, ...]]:
        rows, n = by_integrand(self), self.num_draws
        return [
            (name, plus_minus(v, e), plus_minus(pv, pe), worth(g), format_count(g * n))
            for name, v, e, pv, pe, g in rows
        ]
