"""Verdicts on Gaussian processes and posteriors: ratios of errors on the same repetitions, with
their own errors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .comparisons import Gain, paired
from .harness import Row, distinct, select
from .verdicts import Verdict, count, enough

# ---- Gaussian processes


def _case(row: Row) -> tuple:
    return row["d"], row["m"], row.get("scale")


def _network(kind: str) -> str:
    return kind if "," in kind else f"{kind}, as in the paper"


def ratio(rows: list[Row], kind: str, case: tuple) -> tuple[float, float]:
    """The mean absolute error of the recipe at the end of its steps, over that of the plain mean
    of the same repetitions, with its error by leaving out a repetition at a time."""
    here = [row for row in select(rows, method=f"{_network(kind)}, J^LS") if _case(row) == case]
    last = max((row["epochs"] for row in here), default=0)
    ended = {
        row["repetition"]: abs(row["value"] - row["truth"])
        for row in here
        if row["epochs"] == last and np.isfinite(row["value"])
    }
    means = {
        row["repetition"]: abs(row["value"] - row["truth"])
        for row in select(rows, part="ours", method="MC")
        if _case(row) == case
    }
    pairs = np.array([(ended[r], means[r]) for r in ended if r in means])
    if len(pairs) < 2:
        return float("nan"), float("nan")
    left = [np.divide(*np.delete(pairs, k, axis=0).sum(axis=0)) for k in range(len(pairs))]
    error = np.sqrt((len(left) - 1) / len(left) * np.sum((left - np.mean(left)) ** 2))
    return float(np.divide(*pairs.sum(axis=0))), float(error)


def _listed(found: dict[str, list[tuple[float, float]]]) -> str:
    return "; ".join(
        f"{kind} " + ", ".join(f"{value:.2f} ± {error:.2f}" for value, error in part)
        for kind, part in found.items()
    )


def line(rows: list[Row]) -> Verdict:
    sizes = [m for m in (250, 500, 1000) if select(rows, part="paper", d=1, m=m)]
    kinds = ("kernel", "network", "network, authors' program")
    found = {kind: [ratio(rows, kind, (1, m, None)) for m in sizes] for kind in kinds}
    cases = [value < 0.7 for kind in kinds[:2] for value, _ in found[kind]]
    return Verdict(
        float(np.mean(cases)),
        f"error over the plain mean's at m = {', '.join(map(str, sizes))}: {_listed(found)}; "
        f"substantial is below 0.7 (by the recipe {sum(cases)} of {len(cases)})",
    )


def degrade(rows: list[Row]) -> Verdict:
    kinds = ("polynomial", "kernel", "network", "network, authors' program")
    found = {
        kind: [ratio(rows, kind, (d, 1000, "median")) for d in (2, 5, 10, 20)] for kind in kinds
    }
    cases = [value < 0.8 for value, _ in found["network"]]
    return Verdict(
        float(np.mean(cases)), f"error over the plain mean's in d = 2, 5, 10, 20: {_listed(found)}"
    )


def objectives(rows: list[Row]) -> Verdict:
    """By the recipe alone, at the end of training, on repetitions where both ended."""
    cases: dict[str, list[bool]] = {"paper": [], "program": []}
    for part, found in cases.items():
        here = select(rows, part=part)
        for method in distinct(here, "method"):
            if not method.endswith("J^LS") or "exact" in method:
                continue
            for case in dict.fromkeys(map(_case, select(here, method=method))):
                ends: list[dict[int, float]] = []
                for name in (method, method.replace("J^LS", "J^V")):
                    chosen = [row for row in select(here, method=name) if _case(row) == case]
                    last = max(row["epochs"] for row in chosen)
                    ends.append(
                        {
                            row["repetition"]: abs(row["value"] - row["truth"])
                            for row in chosen
                            if row["epochs"] == last and np.isfinite(row["value"])
                        }
                    )
                both = [r for r in ends[0] if r in ends[1]]
                means = [np.mean([end[r] for r in both]) for end in ends]
                found.append(bool(means[0] < means[1]))
    own, program = cases["paper"], cases["program"]
    by_chance = 0.5 + 1 / np.sqrt(max(len(own), 1))
    return Verdict(
        float(np.mean(own) > by_chance),
        f"{sum(own)} of {len(own)} settings of the recipe have the smaller error with J^LS, "
        f"{sum(program)} of {len(program)} of the authors' program; half is chance, and more than "
        f"{by_chance:.0%} would be beyond it",
    )


# ---- Posteriors


def _recipes(rows: list[Row], **where: object) -> dict[str, Gain]:
    """Gains of the recipe, and of networks by the authors' program, in one setting."""
    here = [row for row in select(rows, **where) if row["part"] in ("paper", "program")]
    found = paired(here, distinct(here, "integrand"))
    return {
        method.removesuffix(", as in the paper"): gain
        for method, gain in found.items()
        if method.endswith(("as in the paper", "authors' program"))
    }


def beaten(rows: list[Row]) -> Verdict:
    here = select(rows, part="paper")
    found = [_recipes(here, n=n) for n in distinct(here, "n")]
    cases = [gain.value > 1 for gains in found for gain in gains.values()]
    without = [g.value > 1 for gains in found for kind, g in gains.items() if kind != "network"]
    counted = count(cases, "families and sizes beat the plain mean")
    return counted._replace(
        number=f"{counted.number}; without networks {sum(without)} of {len(without)}"
    )


def best_two(by: str, **where: object) -> Callable[[list[Row]], Verdict]:
    """Whether the ensemble of two kernels or the network has the largest gain of the recipe."""

    def verdict(rows: list[Row]) -> Verdict:
        here = select(rows, **where)
        paper = select(here, part="paper")
        cases, listed = [], []
        for place in distinct(paper, by):
            found = _recipes(here, **{by: place})
            order = sorted(found, key=lambda method: -found[method].value)
            own = [method for method in order if "program" not in method]
            cases.append(own[0] in ("polynomial + two kernels", "network"))
            listed.append(
                f"{by} = {place}: " + ", ".join(f"{method} {found[method]}" for method in order)
            )
        return enough(paper, cases, "gains, " + "; ".join(listed))

    return verdict


def crossover(rows: list[Row]) -> Verdict:
    """Networks at least as good as the ensemble below a thousand draws, and worse from there."""
    cases, listed = [], []
    for name in distinct(select(rows, part="paper"), "set"):
        here = select(rows, set=name)
        for m in distinct(select(here, part="paper"), "m"):
            found = _recipes(here, m=m)
            network, ensemble = found["network"], found["polynomial + two kernels"]
            cases.append((network.value >= ensemble.value) == (m < 1000))
            listed.append(f"{name}, m = {m}: {network} against {ensemble}")
    number = "gains of the network against two kernels + polynomial: " + "; ".join(listed)
    return enough(select(rows, part="paper"), cases, number)


def comparable(rows: list[Row]) -> Verdict:
    here = select(rows, part="paper")
    cases, listed = [], []
    for name in distinct(here, "set"):
        part = select(here, set=name)
        largest = select(part, m=max(distinct(part, "m")))
        found = paired(largest, distinct(part, "integrand"))
        for kind in ("polynomial", "kernel"):
            stepped, solved = found[f"{kind}, as in the paper"], found[f"{kind}, same family exact"]
            cases.append(stepped.value > 0.8 * solved.value)
            listed.append(f"{name}, {kind} {stepped} against {solved}")
    return enough(here, cases, "gains of steps against the solve: " + "; ".join(listed))


def varies(rows: list[Row]) -> Verdict:
    """LIDAR: whether families differ by more than their errors, at each size."""
    here = select(rows, part="paper")
    cases, listed = [], []
    for n in distinct(here, "n"):
        found = _recipes(here, n=n)
        order = sorted(found.values(), key=lambda gain: gain.value)
        cases.append(order[-1].value - order[-1].error > order[0].value + order[0].error)
        listed.append(f"n = {n}: " + ", ".join(f"{kind} {gain}" for kind, gain in found.items()))
    return enough(here, cases, "gains, " + "; ".join(listed))
