"""What the paper says, sentence by sentence, with verdicts that are computed from the tables."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from . import costs, propositions
from .comparisons import gains
from .genz_tables import SPLITS
from .harness import Row, absolute_error, distinct, markdown, select
from .integrands import GENZ

Tables = dict[str, list[Row]]


class Verdict(NamedTuple):
    """`share` of the cases that bear the sentence out."""

    share: float
    number: str

    @property
    def word(self) -> str:
        if np.isnan(self.share):
            return "open"
        return "holds" if self.share == 1 else "does not hold" if self.share <= 0.1 else "in part"


class Claim(NamedTuple):
    text: str
    where: str
    study: str  # whose table and picture
    verdict: Callable[[list[Row]], Verdict]


def _count(cases: list[bool], what: str) -> Verdict:
    return Verdict(float(np.mean(cases)) if cases else 0.0, f"{sum(cases)} of {len(cases)} {what}")


def _enough(rows: list[Row], cases: list[bool], number: str) -> Verdict:
    """Open where the paper's recipe was repeated less than three times."""
    count = len(distinct(rows, "repetition"))
    if count < 3:
        return Verdict(float("nan"), f"{count} repetition{'s' if count > 1 else ''} only; {number}")
    return Verdict(float(np.mean(cases)), number)


# ---- Costs


def _cheaper(rows: list[Row]) -> Verdict:
    cases, ours = [], []
    for family, over in dict.fromkeys((row["family"], row["over"]) for row in rows):
        places, exact = costs.curve(rows, family, over, "exact")
        cases += list(costs.curve(rows, family, over, "as in the paper")[1] < exact)
        ours.append(
            f"{family} in {over}: "
            f"{costs.crossing(places, exact, costs.curve(rows, family, over, 'SGD')[1])}"
        )
    found = _count(cases, "sizes, plain steps")
    return Verdict(found.share, f"{found.number}; ours cheaper from: {'; '.join(ours)}")


def _orders(rows: list[Row]) -> Verdict:
    """Linear for steps; for the solve a power, not an exponential."""
    found = {}
    for family, over in dict.fromkeys((row["family"], row["over"]) for row in rows):
        for method in ("exact", "as in the paper", "SGD"):
            places, seconds = costs.curve(rows, family, over, method)
            found[family, over, method] = costs.slope(places, seconds)
    linear = [found[place] < 1.3 for place in found if place[2] == "as in the paper"]
    listed = "; ".join(
        f"{family} in {over}: {found[family, over, 'as in the paper']:.1f} and "
        f"{found[family, over, 'exact']:.1f}"
        for family, over in dict.fromkeys(place[:2] for place in found)
    )
    return Verdict(float(np.mean(linear)), f"powers of plain steps and of the solve, {listed}")


def _faster(draws: int) -> Callable[[list[Row]], Verdict]:
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
            f"25 epochs take as many times the solve: {listed}",
        )

    return verdict


# ---- Accuracy


def _approaches(rows: list[Row]) -> Verdict:
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


def _genz(
    part: str, method: Callable[[str], str], name: str, epochs: int | None, rows: list[Row]
) -> dict[str, float]:
    more = {"epochs": epochs} if epochs else {}
    here = select(rows, part=part, d=1, integrand=name, split="50/50")
    kinds = ("polynomial", "kernel", "polynomial + kernel")
    return {kind: absolute_error(select(here, method=method(kind), **more)).mean for kind in kinds}


_WAYS: dict[str, tuple[str, Callable[[str], str], int | None]] = {
    "as in the paper": ("paper", lambda kind: f"{kind}, as in the paper", 25),
    "same family exact": ("paper", lambda kind: f"{kind}, same family exact", None),
    "our SGD": ("ours", lambda kind: f"{kind}, SGD 25 epochs", None),
    "our exact": ("ours", lambda kind: f"{kind}, exact", None),
}


def _ordered(best: str, last: bool) -> Callable[[list[Row]], Verdict]:
    """Whether a family is the best, or with `last` the worst, of Table 1, by the paper's recipe and
    by the others."""

    def verdict(rows: list[Row]) -> Verdict:
        counts = {}
        for label, (part, method, epochs) in _WAYS.items():
            tables = [_genz(part, method, name, epochs, rows) for name in GENZ]
            pick = max if last else min
            counts[label] = [pick(found, key=found.__getitem__) == best for found in tables]
        listed = ", ".join(f"{label} {sum(cases)}" for label, cases in counts.items())
        return Verdict(float(np.mean(counts["as in the paper"])), f"of 6 functions: {listed}")

    return verdict


def _reduction(rows: list[Row]) -> Verdict:
    cases = []
    for name in GENZ:
        mean = absolute_error(select(rows, part="ours", d=1, integrand=name, method="MC")).mean
        cases += [
            found < mean / 2
            for found in _genz(*_WAYS["as in the paper"][:2], name, 25, rows).values()
        ]
    return _count(cases, "cells have less than half the error of the plain mean, as in the paper")


def _near_solve(rows: list[Row]) -> Verdict:
    """Five epochs against the solve: within a factor of two."""
    ratios: dict[str, list[float]] = {}
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
                    ratios.setdefault(label, []).append(
                        absolute_error(part).mean / absolute_error(exact).mean
                    )
    listed = ", ".join(
        f"{label} {np.median(found):.2g} (up to {max(found):.2g})"
        for label, found in ratios.items()
    )
    cases = [ratio < 2 for ratio in ratios.get("plain steps", [])]
    return Verdict(
        float(np.mean(cases)) if cases else 0.0, f"error over that of the solve, median: {listed}"
    )


def _share(rows: list[Row]) -> Verdict:
    counts = {}
    for label, part, method, more in (
        ("as in the paper", "paper", "kernel, as in the paper", {"epochs": 5}),
        ("our exact", "ours", "kernel, exact", {}),
    ):
        best = []
        for name in GENZ:
            here = select(rows, part=part, d=1, integrand=name, method=method, **more)
            found = {split: absolute_error(select(here, split=split)).mean for split in SPLITS}
            best.append(min(found, key=found.__getitem__) != SPLITS[0])
        counts[label] = best
    listed = ", ".join(f"{label} {sum(cases)}" for label, cases in counts.items())
    return Verdict(
        float(np.mean(counts["our exact"])),
        f"functions of 6 for which more than half is best: {listed}; in print 1",
    )


def _ratios(rows: list[Row], kind: str, **where: object) -> float:
    """Of errors of the paper's recipe, at the end of its steps, and of the plain mean of the same
    repetitions."""
    here = select(rows, part="paper", method=f"{kind}, as in the paper, J^LS", **where)
    here = [
        row
        for row in here
        if row["epochs"] == max(row["epochs"] for row in here) and np.isfinite(row["value"])
    ]
    repeated = distinct(here, "repetition")
    plain = [
        row
        for row in select(rows, part="ours", method="MC", **where)
        if row["repetition"] in repeated
    ]
    return absolute_error(here).mean / absolute_error(plain).mean if here else float("nan")


def _line(rows: list[Row]) -> Verdict:
    sizes = [m for m in (250, 500, 1000) if select(rows, part="paper", d=1, m=m)]
    found = {kind: [_ratios(rows, kind, d=1, m=m) for m in sizes] for kind in ("kernel", "network")}
    listed = "; ".join(
        f"{kind} {', '.join(f'{ratio:.2g}' for ratio in part)}" for kind, part in found.items()
    )
    cases = [ratio < 0.7 for part in found.values() for ratio in part]
    return Verdict(
        float(np.mean(cases)),
        f"error over the plain mean's at m = {', '.join(map(str, sizes))}: {listed}",
    )


def _objectives(rows: list[Row]) -> Verdict:
    cases = []
    for part in ("ours", "paper"):
        here = select(rows, part=part)
        for method in distinct(here, "method"):
            if not method.endswith("J^LS") or "exact" in method:
                continue
            for d, m, scale in dict.fromkeys(
                (row["d"], row["m"], row.get("scale")) for row in here
            ):
                chosen = [row for row in select(here, d=d, m=m) if row.get("scale") == scale]
                ends = [r.get("epochs", 0) for r in select(chosen, method=method)]
                pair = [
                    absolute_error(
                        [
                            r
                            for r in select(chosen, method=name)
                            if part == "ours" or r.get("epochs") == max(ends)
                        ]
                    ).mean
                    for name in (method, method.replace("J^LS", "J^V"))
                ]
                cases.append(bool(pair[0] < pair[1]))
    found = _count(cases, "trained cells have the smaller error with J^LS; half is chance")
    by_chance = 0.5 + 2 * 0.5 / np.sqrt(max(len(cases), 1))
    return found._replace(share=float(found.share > by_chance))


def _degrade(rows: list[Row]) -> Verdict:
    found = {}
    for kind in ("polynomial", "kernel", "network"):
        found[kind] = [_ratios(rows, kind, d=d, m=1000, scale="median") for d in (2, 5, 10, 20)]
    listed = "; ".join(
        f"{kind} {', '.join(f'{r:.2g}' for r in part)}" for kind, part in found.items()
    )
    cases = [ratio < 0.8 for ratio in found["network"]]
    return Verdict(
        float(np.mean(cases)), f"error over the plain mean's in d = 2, 5, 10, 20: {listed}"
    )


def _beaten(rows: list[Row]) -> Verdict:
    here = select(rows, part="paper")
    cases = [
        value > 1
        for n in distinct(here, "n")
        for method, value in gains(select(here, n=n), distinct(here, "integrand")).items()
        if method.endswith("as in the paper")
    ]
    return _count(cases, "families and sizes beat the plain mean, as in the paper")


def _best_two(by: str, **where: object) -> Callable[[list[Row]], Verdict]:
    """Whether the ensemble of two kernels or the network has the largest gain of the paper's
    recipe."""

    def verdict(rows: list[Row]) -> Verdict:
        here = select(rows, part="paper", **where)
        cases, listed = [], []
        for place in distinct(here, by):
            found = gains(select(here, **{by: place}), distinct(here, "integrand"))
            found = {
                m.removesuffix(", as in the paper"): v
                for m, v in found.items()
                if m.endswith("as in the paper")
            }
            order = sorted(found, key=lambda method: -found[method])
            cases.append(order[0] in ("polynomial + two kernels", "network"))
            listed.append(
                f"{by} = {place}: " + ", ".join(f"{method} {found[method]:.2g}" for method in order)
            )
        return _enough(here, cases, "gains, " + "; ".join(listed))

    return verdict


def _comparable(rows: list[Row]) -> Verdict:
    here = select(rows, part="paper")
    cases, listed = [], []
    for name in distinct(here, "set"):
        part = select(here, set=name)
        found = gains(select(part, m=max(distinct(part, "m"))), distinct(part, "integrand"))
        for kind in ("polynomial", "kernel"):
            stepped, solved = found[f"{kind}, as in the paper"], found[f"{kind}, same family exact"]
            cases.append(stepped > 0.8 * solved)
            listed.append(f"{name}, {kind} {stepped:.2g} against {solved:.2g}")
    return _enough(here, cases, "gains of steps against the solve: " + "; ".join(listed))


# ---- Theory


def _vanishes(rows: list[Row]) -> Verdict:
    cases, listed = [], []
    for target in distinct(rows, "target"):
        for over in ("degree", "centres"):
            here = select(rows, target=target, over=over)
            cases.append(all(b["J"] <= 1.001 * a["J"] for a, b in itertools.pairwise(here)))
            listed.append(
                f"{target}, {over} {here[-1]['size']}: {here[-1]['J'] / here[-1]['plain']:.0e}"
            )
    return Verdict(
        float(np.mean(cases)), "J never rises with the family; J / Var f at " + "; ".join(listed)
    )


def _rate(rows: list[Row]) -> Verdict:
    falling, constant = (propositions.slope(select(rows, rate=rate)) for rate in propositions.RATES)
    return Verdict(
        float(abs(falling + 1) < 0.25), f"slope {falling:.2f}; with a constant rate {constant:.2f}"
    )


CLAIMS = (
    Claim("inf J over growing families is zero", "Propositions 1, 2", "propositions", _vanishes),
    Claim(
        "with α_t = β/(γ + t) the excess of J falls like 1/t",
        "Proposition 3",
        "propositions",
        _rate,
    ),
    Claim("SGD is cheaper than a linear system", "Section 3, conclusion (i)", "costs", _cheaper),
    Claim("SGD is linear in m and d, the solve is worse", "Figure 2, right", "costs", _orders),
    Claim(
        "even the toy problem (m = 500) has significant speed-ups",
        "Figure 1",
        "polynomials",
        _faster(1000),
    ),
    Claim("with m = 5000 they are larger", "supplement", "polynomials", _faster(10_000)),
    Claim("SGD approaches the solve as t grows", "supplement", "polynomials", _approaches),
    Claim(
        "polynomials always have the largest error",
        "Table 1",
        "genz",
        _ordered("polynomial", last=True),
    ),
    Claim(
        "polynomial + kernel is consistently best",
        "Table 1",
        "genz",
        _ordered("polynomial + kernel", last=False),
    ),
    Claim("a substantial reduction in all cases", "Table 1", "genz", _reduction),
    Claim(
        "5 epochs are close to the linear system, in every dimension",
        "Tables 3, 4",
        "genz",
        _near_solve,
    ),
    Claim("fitting with more than half of the draws may be preferable", "Table 5", "genz", _share),
    Claim(
        "kernels and networks reduce the error substantially in d = 1",
        "Figure 2",
        "gaussian_processes",
        _line,
    ),
    Claim("J^LS does better than J^V", "Figure 2", "gaussian_processes", _objectives),
    Claim("networks do not degrade with d", "Figure 2", "gaussian_processes", _degrade),
    Claim("every family beats the plain mean", "Figure 3", "lotka_volterra", _beaten),
    Claim(
        "two kernels + polynomial, or the network, are best",
        "Figure 3",
        "lotka_volterra",
        _best_two("n"),
    ),
    Claim("the same on Sonar", "supplement", "logistic", _best_two("m", set="sonar")),
    Claim("the same on Madelon", "Figure 4", "logistic", _best_two("m", set="madelon")),
    Claim("steps have about the error of the solve", "Figure 4", "logistic", _comparable),
)


def section(tables: Tables) -> str:
    """Of the claims whose tables are there."""
    rows = []
    for claim in CLAIMS:
        if claim.study in tables:
            found = claim.verdict(tables[claim.study])
            picture = f"[{claim.study}](results/{claim.study}.png)"
            rows.append([claim.text, claim.where, f"**{found.word}**", found.number, picture])
    return (
        "Each verdict is a share of cases, counted in the tables: *holds* in all of them, *does "
        "not hold* in one tenth or less. Where nothing else is said, the paper's own recipe is "
        "judged. Its repetitions are in the next table; with 3000 draws of a logistic regression "
        "they are eight, and the order of neighbours is within chance. *Open* claims have fewer "
        "than three.\n\n" + markdown(["the paper", "where", "verdict", "number", "picture"], rows)
    )
