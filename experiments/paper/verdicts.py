"""Verdicts on what the paper says, each computed from a study's table: a share of cases, how many
of them cannot be told, and the numbers behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from . import cost_tables, propositions
from .comparisons import apart, clear
from .genz_tables import SPLITS
from .harness import Row, absolute_error, distinct, select
from .integrands import GENZ


class Verdict(NamedTuple):
    """`share` of the cases that can be told which bear the sentence out, and `ties`, the share of
    all cases that cannot, as two of their errors hold both answers."""

    share: float
    number: str
    ties: float = 0.0

    @property
    def word(self) -> str:
        if self.ties > 0.5:
            return "undecided"
        if np.isnan(self.share):
            return "open"
        if self.share == 1:
            return "holds within errors" if self.ties else "holds"
        return "does not hold" if self.share <= 0.1 else "in part"


def count(cases: list[bool], what: str) -> Verdict:
    return Verdict(float(np.mean(cases)) if cases else 0.0, f"{sum(cases)} of {len(cases)} {what}")


def told(cases: Sequence[bool | None], number: str) -> Verdict:
    """Of cases that hold (True), do not (False), or cannot be told (None)."""
    clear = [case for case in cases if case is not None]
    ties = len(cases) - len(clear)
    counted = f"{sum(clear)} of {len(cases)} clearly so, {len(clear) - sum(clear)} clearly not"
    return Verdict(
        float(np.mean(clear)) if clear else float("nan"),
        f"{counted}, {ties} within two errors; {number}",
        ties / len(cases) if cases else 0.0,
    )


def enough(rows: list[Row], verdict: Verdict) -> Verdict:
    """Open where the paper's recipe was repeated less than three times."""
    count = len(distinct(rows, "repetition"))
    if count < 3:
        number = f"{count} repetition{'s' if count > 1 else ''} only; {verdict.number}"
        return Verdict(float("nan"), number)
    return verdict


# ---- Theory


def vanishes(rows: list[Row]) -> Verdict:
    """Where J goes, and the bound of the proofs. That J never rises is no case: families are
    nested."""
    cases, listed = [], []
    for target in distinct(rows, "target"):
        here = select(rows, target=target)
        degrees, bounds = select(here, over="degree"), select(here, over="bound")
        found = propositions.trend(degrees)
        cases += [found.to_zero, all(row["left"] <= row["bound"] for row in bounds)]
        cases.append(bounds[-1]["bound"] < bounds[0]["bound"])
        listed.append(
            f"{target}: J / Var f {found.last:.0e} at degree {degrees[-1]['size']}, where the "
            f"lower half predicts {found.predicted:.0e}; slopes of log J in √degree "
            f"{found.lower:.2f}, then {found.upper:.2f}; the bound is "
            f"{min(row['bound'] / row['left'] for row in bounds):.0f} times J or more and falls "
            f"from {bounds[0]['bound']:.2g} to {bounds[-1]['bound']:.2g}"
        )
    return Verdict(float(np.mean(cases)), "; ".join(listed))


def rate(rows: list[Row]) -> Verdict:
    inside = select(rows, rate="inside")
    slope, error = propositions.slope(inside)
    constant, its_error = propositions.slope(select(rows, rate="constant"))
    good = propositions.holds(inside) and abs(slope + 1) < 0.05 + 2 * error
    first = inside[0]
    return Verdict(
        float(good),
        f"slope {slope:.3f} ± {error:.3f} against γ + t, with β = {first['beta']:.2f} > "
        f"{first['least_beta']:.2f} and α₁ = {first['first']:.4f} ≤ {first['most_alpha']:.4f}; "
        f"with a constant rate {constant:.2f} ± {its_error:.2f}",
    )


# ---- Costs


def _places(rows: list[Row]) -> list[tuple[str, str]]:
    found = dict.fromkeys((row["family"], row["over"]) for row in select(rows, part="ours"))
    return [place for place in found if place[0] != "network"]


def cheaper(rows: list[Row]) -> Verdict:
    cases: dict[str, list[bool]] = {}
    crossings: dict[str, list[str]] = {}
    for family, over in _places(rows):
        for method in cost_tables.steps_of(select(rows, family=family, over=over)):
            places, ratios = cost_tables.curve(rows, family, over, method, "ratio")
            cases.setdefault(method, []).extend(bool(ratio < 1) for ratio in ratios)
            crossings.setdefault(f"{family} in {over}", []).append(
                cost_tables.crossing(places, ratios)
            )
    methods = list(cases)
    lean = [case for method in methods if "lean" in method for case in cases[method]]
    counted = ", ".join(f"{method} {sum(found)} of {len(found)}" for method, found in cases.items())
    listed = "; ".join(f"{place}: {', '.join(found)}" for place, found in crossings.items())
    return Verdict(
        float(np.mean(lean)),
        f"sizes at which steps are cheaper: {counted}; in that order from: {listed}",
    )


def orders(rows: list[Row]) -> Verdict:
    """Powers of an epoch, of a step, and of the lean solve, all without the features, which both
    ways need: they cancel in the difference of 25 and 5 epochs."""
    cases, listed = [], []
    for family, over in _places(rows):
        places, epoch = cost_tables.epochs(rows, family, over)
        features, solved = (
            cost_tables.curve(rows, family, over, way)[1] for way in ("lean features", "lean exact")
        )
        power = cost_tables.slope(places, epoch)
        powers = (power, power - 1 if over == "m" else power)
        cases += [found < 1.3 for found in powers]
        solve = cost_tables.slope(places, np.maximum(solved - features, 0.01 * solved))
        listed.append(
            f"{family} in {over}: " + ", ".join(f"{found:.1f}" for found in (*powers, solve))
        )
    return Verdict(
        float(np.mean(cases)),
        "powers of an epoch, of a step and of the solve, without features: " + "; ".join(listed),
    )


def calibrated(rows: list[Row]) -> Verdict:
    """Choosing hyper-parameters and then fitting: a network against a polynomial and a kernel, all
    measured."""
    here = select(rows, part="calibration")
    cases, listed = [], []
    for m in distinct(here, "m"):
        spent: dict[str, float] = {}
        for row in select(here, m=m):
            spent[row["family"]] = spent.get(row["family"], 0.0) + row["seconds"]
        ratios = [spent["network"] / spent[kind] for kind in ("polynomial", "kernel")]
        cases += [ratio > 2 for ratio in ratios]
        times = ", ".join(f"{kind} {seconds:.2g} s" for kind, seconds in spent.items())
        listed.append(f"m = {m}: {times}, ratios {ratios[0]:.2g} and {ratios[1]:.2g}")
    return Verdict(
        float(np.mean(cases)),
        "choosing rate and penalty, or kernel and penalty by 5 folds of at most 250 draws, and "
        f"then 25 epochs or a lean solve: {'; '.join(listed)}; much more is twice",
    )


def faster(draws: int) -> Callable[[list[Row]], Verdict]:
    def verdict(rows: list[Row]) -> Verdict:
        here = select(rows, part="paper", integrand_family="sum", family="polynomial", draws=draws)
        ratios = {}
        for d in distinct(here, "d"):
            stepped = select(here, d=d, method="polynomial, as in the paper", epochs=25)
            solved = select(here, d=d, method="polynomial, same family exact")
            ratios[d] = np.median([r["seconds"] for r in stepped]) / np.median(
                [r["seconds"] for r in solved]
            )
        cases = [ratio < 1 for ratio in ratios.values()]
        listed = ", ".join(f"{ratio:.0f} in d = {d}" for d, ratio in ratios.items())
        return Verdict(
            float(np.mean(cases)) if cases else 0.0,
            f"whole calls of the library, 25 epochs over the solve: {listed}",
        )

    return verdict


# ---- Accuracy


def approaches(rows: list[Row]) -> Verdict:
    here = select(rows, part="paper", family="polynomial", draws=1000)
    cases, listed = [], []
    for d in distinct(here, "d"):
        stepped = absolute_error(
            select(here, d=d, method="polynomial, as in the paper", epochs=25)
        ).mean
        solved = absolute_error(select(here, d=d, method="polynomial, same family exact")).mean
        mean = absolute_error(select(here, d=d, method="MC")).mean
        cases.append(stepped < max(2 * solved, 1e-6 * mean))
        listed.append(f"d = {d}: {stepped:.0e} against {solved:.0e}")
    return Verdict(float(np.mean(cases)), "after 25 epochs, " + ", ".join(listed))


def early(rows: list[Row]) -> Verdict:
    """A fifth of the training with at most twice the error of the whole."""
    cases, listed = [], []
    settings = ("integrand_family", "family", "draws", "share", "d")
    here = select(rows, part="paper")
    for place in dict.fromkeys(tuple(row[name] for name in settings) for row in here):
        _, family, draws, share, d = place
        stepped = select(
            here, **dict(zip(settings, place, strict=True)), method=f"{family}, as in the paper"
        )
        fifth, whole = (select(stepped, epochs=epochs) for epochs in (5, 25))
        difference = apart(fifth, whole)
        larger = clear(difference, float(np.log(2)))
        cases.append(None if larger is None else not larger)
        listed.append(f"{family} m = {share * draws:.0f} d = {d} {np.exp(difference[0]):.2g}")
    return told(
        cases, f"error after 5 epochs over that after 25, at most twice: {', '.join(listed)}"
    )


def _genz(
    part: str, method: Callable[[str], str], name: str, epochs: int | None, rows: list[Row]
) -> dict[str, list[Row]]:
    more = {"epochs": epochs} if epochs else {}
    here = select(rows, part=part, d=1, integrand=name, split="50/50")
    kinds = ("polynomial", "kernel", "polynomial + kernel")
    return {kind: select(here, method=method(kind), **more) for kind in kinds}


def _extreme(found: dict[str, list[Row]], kind: str, last: bool) -> bool | None:
    """Whether a family has the least, or with `last` the largest, mean absolute error."""
    errors = {other: absolute_error(part).mean for other, part in found.items() if other != kind}
    rival = (max if last else min)(errors, key=errors.__getitem__)
    pair = (found[kind], found[rival]) if last else (found[rival], found[kind])
    return clear(apart(*pair))


_WAYS: dict[str, tuple[str, Callable[[str], str], int | None]] = {
    "as in the paper": ("paper", lambda kind: f"{kind}, as in the paper", 25),
    "same family exact": ("paper", lambda kind: f"{kind}, same family exact", None),
    "our SGD": ("ours", lambda kind: f"{kind}, SGD 25 epochs", None),
    "our exact": ("ours", lambda kind: f"{kind}, exact", None),
}


def ordered(best: str, last: bool) -> Callable[[list[Row]], Verdict]:
    """Whether a family is the best, or with `last` the worst, of Table 1, by the paper's recipe and
    by the others."""

    def verdict(rows: list[Row]) -> Verdict:
        counts = {}
        for label, (part, method, epochs) in _WAYS.items():
            tables = [_genz(part, method, name, epochs, rows) for name in GENZ]
            means = [{k: absolute_error(v).mean for k, v in found.items()} for found in tables]
            pick = max if last else min
            counts[label] = sum(pick(found, key=found.__getitem__) == best for found in means)
            if label == "as in the paper":
                cases = [_extreme(found, best, last) for found in tables]
        listed = ", ".join(f"{label} {number}" for label, number in counts.items())
        return told(cases, f"by their means, of 6 functions: {listed}")

    return verdict


def reduction(rows: list[Row]) -> Verdict:
    """Less than half the error of the plain mean."""
    cases, halves = [], []
    for name in GENZ:
        plain = select(rows, part="ours", d=1, integrand=name, method="MC")
        for found in _genz(*_WAYS["as in the paper"][:2], name, 25, rows).values():
            difference = apart(plain, found)
            cases.append(clear(difference, float(np.log(2))))
            halves.append(difference[0] > np.log(2))
    return told(
        cases,
        f"{sum(halves)} of {len(halves)} cells have less than half the error of the plain mean, as "
        "in the paper",
    )


def near_solve(rows: list[Row]) -> Verdict:
    """Five epochs against the solve: within a factor of two."""
    ratios: dict[str, list[float]] = {}
    cases = []
    for d in distinct(rows, "d"):
        for name in distinct(select(rows, d=d), "integrand"):
            here = select(rows, d=d, integrand=name, split="50/50")
            for label, stepped, solved in (
                ("plain steps", "kernel, as in the paper", "kernel, same family exact"),
                ("ours", "kernel, SGD 5 epochs", "kernel, exact"),
            ):
                part = [
                    row
                    for row in select(here, method=stepped)
                    if row.get("epochs", 5) == 5 and row["part"] != "times"
                ]
                exact = [row for row in select(here, method=solved) if row["part"] != "times"]
                if part and exact:
                    difference = apart(exact, part)
                    ratios.setdefault(label, []).append(float(np.exp(-difference[0])))
                    cases += [clear(difference, -float(np.log(2)))][: label == "plain steps"]
    listed = ", ".join(
        f"{label} {np.median(found):.2g} (up to {max(found):.2g})"
        for label, found in ratios.items()
    )
    return told(cases, f"close is within twice; error over that of the solve, median: {listed}")


def share(rows: list[Row]) -> Verdict:
    """Of the recipe alone: each larger share against half, and the best of those that leave draws
    to estimate with."""
    cases, beaten, best, best_of_all = [], [], [], []
    for name in GENZ:
        here = select(
            rows, part="paper", d=1, integrand=name, method="kernel, as in the paper", epochs=5
        )
        parts = {split: select(here, split=split) for split in SPLITS}
        found = {split: absolute_error(part).mean for split, part in parts.items()}
        half, *larger = SPLITS
        beaten += [found[split] < found[half] for split in larger]
        cases += [clear(apart(parts[half], parts[split])) for split in larger]
        held = {split: found[split] for split in (half, *larger[:-1])}
        best.append(min(held, key=held.__getitem__) == half)
        best_of_all.append(min(found, key=found.__getitem__) == larger[-1])
    counted = count(beaten, "larger shares beat 50/50")
    return told(
        cases,
        f"{counted.number}; of the shares that leave draws to estimate with, 50/50 is best for "
        f"{sum(best)} of {len(best)} functions; 100/0, which leaves none, is best of all for "
        f"{sum(best_of_all)}; in print 50/50 is best for 5",
    )


def repetitions(rows: Sequence[Row]) -> str:
    """Of the paper's recipe where a table has it, else of ours."""
    parts = distinct(rows, "part")
    here = select(rows, part="paper" if "paper" in parts else parts[0])
    if not any("repetition" in row for row in here):
        turns = [row["turns"] for row in here if "turns" in row]
        return f"{min(turns)} to {max(turns)} turns" if turns else "1"
    settings = ("d", "m", "n", "set", "scale", "chain", "draws", "family", "integrand_family")
    found: dict[tuple, set] = {}
    for row in here:
        found.setdefault(tuple(row.get(name) for name in settings), set()).add(row["repetition"])
    counts = sorted({len(each) for each in found.values()})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
