"""How often a search ends at an end of its grid: what lies beyond it might be better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .harness import Row, markdown
from .networks import MAGNITUDES, PROGRAM, RECIPE
from .protocol import ALPHAS, STRENGTHS

_RECIPE, _PROGRAM = f"network, {RECIPE.label}", f"network, {PROGRAM.label}"
# What a row says of its fit; networks have one rate and one penalty for all integrands together
_FIT = ("part", "d", "m", "n", "repetition", "chain", "set", "sizes", "draws", "share", "method")
_KERNEL = (*_FIT, "integrand_family", "family", "integrand")


def _ends(
    rows: list[Row], name: str, grid: Sequence[float], fit: tuple[str, ...]
) -> tuple[str, str]:
    """The shares of distinct fits at the lower and at the upper end."""
    chosen = {tuple(row.get(key) for key in fit): row[name] for row in rows if name in row}
    low, high = (
        sum(abs(value / end - 1) < 1e-6 for value in chosen.values())
        for end in (min(grid), max(grid))
    )
    return f"{low} of {len(chosen)}", f"{high} of {len(chosen)}"


def section(tables: Mapping[str, list[Row]], titles: Mapping[str, str]) -> str:
    """A row for each study, method and hyper-parameter that is searched for by one of the recipes;
    both objectives share a choice and are counted once."""
    searched = (
        (_RECIPE, "rate", RECIPE.rates, _FIT),
        (_RECIPE, "strength", MAGNITUDES, _FIT),
        (_PROGRAM, "rate", PROGRAM.rates, _FIT),
        (_PROGRAM, "strength", MAGNITUDES, _FIT),
        ("kernel, as in the paper", "alpha", ALPHAS, _KERNEL),
        ("kernel, as in the paper", "strength", STRENGTHS, _KERNEL),
    )
    called = {"rate": "rate", "strength": "λ", "alpha": "α₁"}
    table = []
    for study, rows in tables.items():
        for method, name, grid, fit in searched:
            own = [
                row | {"method": method}
                for row in rows
                if str(row.get("method", "")).split(", J^")[0] == method and name in row
            ]
            if own:
                span = f"{min(grid):g} to {max(grid):g}"
                table.append(
                    (titles[study], method, called[name], span, *_ends(own, name, grid, fit))
                )
    return markdown(
        ("study", "method", "of", "grid", "at its lower end", "at its upper end"), table
    )
