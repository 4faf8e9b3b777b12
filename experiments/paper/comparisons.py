"""Methods side by side on several integrands: the tables that the posteriors' studies share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from .harness import Row, absolute_error, distinct, markdown, select


def error_table(rows: list[Row], names: Sequence[str]) -> str:
    """Mean absolute errors by integrand and method, then gains, calibration and times."""
    methods = _methods(rows)
    table: list[list[str]] = []
    for name in names:
        here = select(rows, integrand=name)
        table.append(
            [
                name,
                f"{here[0]['truth']:.6g}",
                *(str(absolute_error(select(here, method=m))) for m in methods),
            ]
        )
    found = {method: absolute_error(select(rows, method=method)) for method in methods}
    gains_ = paired(rows, names)
    table.append(["gain, median over the rows", "", *(str(gains_[m]) for m in methods)])
    table.append(
        [
            "within 2 standard errors",
            "",
            *("" if np.isnan(e.within) else f"{e.within:.0%}" for e in found.values()),
        ]
    )
    table.append(
        ["seconds", "", *(f"{e.seconds:.3g}" if m != "MC" else "" for m, e in found.items())]
    )
    return markdown(["", "truth", *methods], table)


class Gain(NamedTuple):
    """The ratio of mean squared errors, plain to controlled, on the repetitions whose fit ended,
    median over integrands; its error by leaving out a repetition at a time; and of how many fits
    how many diverged."""

    value: float
    error: float
    fits: int
    diverged: int

    def __str__(self) -> str:
        if np.isnan(self.value):
            return "–"
        if np.isnan(self.error) or self.error == 0:
            return f"{self.value:.3g}"
        rounded = float(f"{self.error:.1g}")
        return (
            f"{self.value:.3g} ± {rounded:g}"
            if rounded < 1000
            else (f"{self.value:.2g} ± {self.error:.0e}")
        )


Errors = dict[str, dict[tuple, dict[str, float]]]  # method → repetition → integrand → value − truth


def paired(rows: Sequence[Row], names: Sequence[str]) -> dict[str, Gain]:
    """For each method; rows are those of one setting. Plain means are those of the same draws."""
    off = _errors(rows)
    found = {}
    for method in _methods(rows):
        ended = len(_ended(off[method]))
        squares = _squares(off, ["MC", method], names)
        value, error = _jackknife(_gain, squares) if squares.size else (np.nan, np.nan)
        gain = float(np.exp(value))
        found[method] = Gain(gain, gain * error, len(off[method]), len(off[method]) - ended)
    return found


def between(rows: Sequence[Row], names: Sequence[str], one: str, other: str) -> tuple[float, float]:
    """The logarithm of the ratio of two methods' gains on the repetitions that both ended, and its
    error by leaving out a repetition at a time: their draws are the same, so that their own errors
    say too little about which is the larger."""
    squares = _squares(_errors(rows), ["MC", one, other], names)
    if not squares.size:
        return float("nan"), float("nan")
    return _jackknife(lambda part: _gain(part[:2]) - _gain(part[::2]), squares)


def apart(one: Sequence[Row], other: Sequence[Row]) -> tuple[float, float]:
    """The logarithm of the ratio of two mean absolute errors on the repetitions that both have, and
    its error by leaving out one at a time."""
    first, second = (
        {row["repetition"]: abs(row["value"] - row["truth"]) for row in rows}
        for rows in (one, other)
    )
    both = [r for r in first if r in second and np.isfinite(first[r]) and np.isfinite(second[r])]
    sizes = np.array([[table[r] for r in both] for table in (first, second)])
    if not sizes.size:
        return float("nan"), float("nan")
    return _jackknife(lambda part: float(np.log(np.divide(*part.sum(axis=1)))), sizes)


def ratio(difference: tuple[float, float]) -> str:
    """Of a logarithm and its error."""
    value, error = np.exp(difference[0]), np.exp(difference[0]) * difference[1]
    return f"{value:.2g}" + ("" if np.isnan(error) else f" ± {error:.1g}")


def clear(difference: tuple[float, float], least: float = 0.0) -> bool | None:
    """Whether a logarithm of a ratio is above `least`; None where two of its errors, or a
    hundredth, do not tell."""
    value, error = difference
    if np.isnan(value) or abs(value - least) <= max(2 * np.nan_to_num(error), 0.01):
        return None
    return bool(value > least)


def _errors(rows: Sequence[Row]) -> Errors:
    off: Errors = {}
    for row in rows:
        place = (row["part"], row.get("chain"), row["repetition"])
        off.setdefault(row["method"], {}).setdefault(place, {})[row["integrand"]] = (
            row["value"] - row["truth"]
        )
    return off


def _ended(fits: dict[tuple, dict[str, float]]) -> list[tuple]:
    return [place for place in fits if np.isfinite(list(fits[place].values())).all()]


def _squares(off: Errors, methods: Sequence[str], names: Sequence[str]) -> np.ndarray:
    """Squared errors (methods, repetitions, integrands) where all of the methods ended."""
    places = [p for p in _ended(off[methods[-1]]) if all(p in off[method] for method in methods)]
    places = [
        p for p in places if all(np.isfinite(list(off[m][p].values())).all() for m in methods)
    ]
    some = [name for name in names if all(name in off[methods[-1]][p] for p in places)]
    return np.array([[[off[m][p][name] ** 2 for name in some] for p in places] for m in methods])


def _gain(squares: np.ndarray) -> float:
    """Its logarithm, from squared errors (plain and controlled, repetitions, integrands)."""
    plain, controlled = squares.sum(axis=1)
    return float(np.log(np.median(plain / np.maximum(controlled, np.finfo(float).tiny))))


def _jackknife(function: Callable[[np.ndarray], float], table: np.ndarray) -> tuple[float, float]:
    """What a function makes of a table (methods, repetitions, …), and its error."""
    whole, n = function(table), table.shape[1]
    if n < 2:
        return whole, float("nan")
    left = [function(np.delete(table, k, axis=1)) for k in range(n)]
    return whole, float(np.sqrt((n - 1) / n * np.sum((np.array(left) - np.mean(left)) ** 2)))


def in_errors(rows: list[Row]) -> float:
    """The mean error over the repetitions, in standard errors of that mean."""
    off = np.array([row["value"] - row["truth"] for row in rows])
    return float(off.mean() / (off.std(ddof=1) / np.sqrt(len(off))))


def ranking(rows: list[Row], names: Sequence[str]) -> str:
    """Methods by their gains, the largest first, with their errors."""
    found = {method: gain for method, gain in paired(rows, names).items() if method != "MC"}
    return ", ".join(
        f"{method} ({found[method]})"
        for method in sorted(found, key=lambda method: -found[method].value)
    )


def gain_table(rows: list[Row], by: str, names: Sequence[str]) -> str:
    """The gain of each method for each value of the column `by`."""
    methods = [method for method in _methods(rows) if method != "MC"]
    table = []
    for place in sorted(distinct(rows, by)):
        found = paired(select(rows, **{by: place}), names)
        table.append([str(place), *(str(found[m]) if m in found else "" for m in methods)])
    return markdown([by, *methods], table)


def recipe_table(rows: list[Row], by: str, names: Sequence[str]) -> str:
    """The paper's recipe: gains by plain steps, and by the exact solve of the same family, for each
    value of the column `by`; the processor's seconds of a fit at the largest; and how many of the
    fits by steps diverged."""
    places = distinct(rows, by)
    found = {place: paired(select(rows, **{by: place}), names) for place in places}
    table = []
    for stepped, solved in _pairs(rows):
        cells = []
        for place in places:
            both = [found[place].get(method) for method in (stepped, solved)]
            cells.append(
                " / ".join("–" if gain is None else str(gain) for gain in both).removesuffix(" / –")
            )
        largest = [select(rows, method=method, **{by: places[-1]}) for method in (stepped, solved)]
        counts = [found[place][stepped] for place in places if stepped in found[place]]
        diverged = sum(gain.diverged for gain in counts)
        cells.append(
            " / ".join(
                f"{np.median([row['seconds'] for row in part]):.3g}" for part in largest if part
            )
        )
        name = stepped if "program" in stepped else stepped.split(", ")[0]
        fits = sum(gain.fits for gain in counts)
        table.append([name, *cells, f"{diverged} of {fits} fits" if diverged else ""])
    return markdown(
        [
            "",
            *(f"{by} = {place}" for place in places),
            f"seconds at {by} = {places[-1]}",
            "diverged",
        ],
        table,
    )


def _pairs(rows: list[Row]) -> list[tuple[str, str]]:
    """Methods by steps, each with the exact solve that it is compared with."""
    methods = _methods(rows)
    kinds = dict.fromkeys(method.split(", ")[0] for method in methods if ", " in method)
    pairs = []
    for kind in kinds:
        dual = f"{kind}, exact by the dual"
        solved = dual if dual in methods else f"{kind}, same family exact"
        pairs.append((f"{kind}, as in the paper", solved))
    return pairs + [(method, "") for method in methods if "authors' program" in method]


def repeated(rows: list[Row], by: str) -> str:
    """How often, at each place."""
    counts = {
        len(distinct(select(rows, **{by: place}), "repetition")) for place in distinct(rows, by)
    }
    return f"{' or '.join(map(str, sorted(counts)))} repetition{'s' if max(counts) > 1 else ''}"


def recipe_section(rows: list[Row], by: str, names: Sequence[str]) -> list[str]:
    if not rows:
        return []
    text = (
        f"**The paper's recipe**, {repeated(rows, by)}: gains (ratios of mean squared errors, "
        "plain to controlled on the repetitions that ended, median over the integrands) by plain "
        "steps / by the exact solve of the same family and penalty. Below 1 it does harm:\n"
    )
    return [text, recipe_table(rows, by, names)]


def _methods(rows: Sequence[Row]) -> list[str]:
    found = distinct(rows, "method")
    return [
        *["MC"][: "MC" in found],
        *(m for m in found if m not in ("MC", "automatic")),
        *["automatic"][: "automatic" in found],
    ]
