"""How a choice came about, for people to read."""

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float64

from ..io.archive import storable

if TYPE_CHECKING:
    from rich.table import Table


@storable
@dataclasses.dataclass(frozen=True, eq=False)
class Selection:
    """What was tried and what was taken, for k candidates and q integrands; `print` it for a table.

    `std_errors` (k, q) are those of each candidate by itself; `weights` (k, q) the convex
    combination in the answer; `reasons` says for each integrand why; `skipped` what was not used,
    and why not; `found` which effects were seen to have a scale in common, so that they were also
    tried in units of it.
    """

    names: tuple[str, ...]
    candidates: tuple[str, ...]
    std_errors: Float64[np.ndarray, "k q"]
    weights: Float64[np.ndarray, "k q"]
    reasons: tuple[str, ...]
    skipped: tuple[str, ...]
    found: tuple[str, ...] = ()

    @property
    def helped(self) -> Bool[np.ndarray, " q"]:
        """For which integrands a control variate is used at all."""
        return self.weights[0] < 1

    def without(self, columns: Bool[np.ndarray, " q"], reason: str) -> "Selection":
        """With no control variate for some of the integrands, for this reason."""
        weights = np.where(columns, np.eye(len(self.candidates))[:, :1], self.weights)
        reasons = (reason if so else own for so, own in zip(columns, self.reasons, strict=True))
        return dataclasses.replace(self, weights=weights, reasons=tuple(reasons))

    def instead(
        self,
        columns: Bool[np.ndarray, " q"],
        candidate: str,
        std_errors: Float64[np.ndarray, " q"],
        reason: str,
    ) -> "Selection":
        """With one more candidate, which is taken alone for some of the integrands, for this
        reason."""
        weights = np.concatenate([np.where(columns, 0.0, self.weights), columns[None] * 1.0])
        reasons = (reason if so else own for so, own in zip(columns, self.reasons, strict=True))
        return dataclasses.replace(
            self,
            candidates=(*self.candidates, candidate),
            std_errors=np.concatenate([self.std_errors, std_errors[None]]),
            weights=weights,
            reasons=tuple(reasons),
        )

    def describe(self, integrand: int) -> str:
        """What was taken for one integrand, in a word or two."""
        weights = self.weights[:, integrand]
        order = [k for k in np.argsort(-weights) if weights[k] > 0.005]
        if len(order) == 1:
            return self.candidates[order[0]]
        return ", ".join(f"{weights[k]:.0%} {self.candidates[k]}" for k in order)

    def table(self) -> "Table":
        """A rich table: what was taken for each integrand, and why."""
        from rich.table import Table
        from rich.text import Text

        table = Table("name", "taken", "why")
        for j, name in enumerate(self.names):
            table.add_row(*(Text(cell) for cell in (name, self.describe(j), self.reasons[j])))
        return table

    def __str__(self) -> str:
        from rich.console import Console

        console = Console(width=160, no_color=True, highlight=False)
        with console.capture() as capture:
            found = (f"found: {text}" for text in self.found)
            skipped = (f"not used: {text}" for text in self.skipped)
            console.print(self.table(), *found, *skipped, sep="\n")
        return capture.get().rstrip()

    __repr__ = __str__
