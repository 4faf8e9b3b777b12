"""Verdicts on Gaussian processes and posteriors: ratios of errors on the same repetitions, with
their own errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from . import depths
from .comparisons import Gain, between, clear, paired, ratio
from .harness import Row, distinct, select
from .verdicts import Verdict, enough, told

# ---- Gaussian processes


def _case(row: Row) -> tuple:
    return row["d"], row["m"], row.get("scale")


def _network(kind: str) -> str:
    return kind if "," in kind else f"{kind}, as in the paper"


def ratios(
    rows: list[Row], kinds: Sequence[str], case: tuple
) -> tuple[dict[str, tuple[float, float]], int]:
    """Mean absolute errors at the end of training over those of the plain mean, with their errors
    by leaving out a repetition at a time; all of the same repetitions, those that every kind has
    and that ended. And how many these are."""
    last = {kind: _last(rows, f"{_network(kind)}, J^LS", case) for kind in kinds}
    means = {
        row["repetition"]: abs(row["value"] - row["truth"])
        for row in select(rows, part="ours", method="MC")
        if _case(row) == case
    }
    both = [r for r in means if all(r in ends for ends in last.values())]
    found = {}
    for kind, ends in last.items():
        pairs = np.array([(ends[r], means[r]) for r in both])
        if len(pairs) < 2:
            found[kind] = float("nan"), float("nan")
            continue
        left = [np.divide(*np.delete(pairs, k, axis=0).sum(axis=0)) for k in range(len(pairs))]
        error = np.sqrt((len(left) - 1) / len(left) * np.sum((left - np.mean(left)) ** 2))
        found[kind] = float(np.divide(*pairs.sum(axis=0))), float(error)
    return found, len(both)


def _last(rows: list[Row], method: str, case: tuple) -> dict[int, float]:
    """Absolute errors at the end of training, by repetition, of those that ended."""
    here = [row for row in select(rows, method=method) if _case(row) == case]
    last = max((row["epochs"] for row in here), default=0)
    return {
        row["repetition"]: abs(row["value"] - row["truth"])
        for row in here
        if row["epochs"] == last and np.isfinite(row["value"])
    }


def _listed(found: list[dict[str, tuple[float, float]]]) -> str:
    return "; ".join(
        f"{kind} " + ", ".join(f"{part[kind][0]:.2f} ± {part[kind][1]:.2f}" for part in found)
        for kind in found[0]
    )


def _below(ratio: tuple[float, float], most: float) -> bool | None:
    """None where two errors do not tell."""
    value, error = ratio
    return None if abs(value - most) <= 2 * error else bool(value < most)


def line(rows: list[Row]) -> Verdict:
    sizes = [m for m in (250, 500, 1000) if select(rows, part="paper", d=1, m=m)]
    kinds = ("kernel", "network", "network, authors' program")
    found, counts = zip(*(ratios(rows, kinds, (1, m, None)) for m in sizes), strict=True)
    cases = [_below(part[kind], 0.7) for kind in kinds[:2] for part in found]
    small = sum(part[kind][0] < 0.7 for kind in kinds[:2] for part in found)
    return told(
        cases,
        f"error over the plain mean's at m = {', '.join(map(str, sizes))}, on the repetitions that "
        f"all ended ({', '.join(map(str, counts))}): {_listed(list(found))}; substantial is below "
        f"0.7 (by the recipe {small} of {len(cases)})",
    )


def degrade(rows: list[Row]) -> Verdict:
    """Networks would have less than 0.8 of the plain error in all dimensions, and so on average."""
    kinds = ("polynomial", "kernel", "network", "network, authors' program")
    places = (2, 5, 10, 20)
    found, counts = zip(*(ratios(rows, kinds, (d, 1000, "median")) for d in places), strict=True)
    means = {}
    for kind in kinds[2:]:
        values, errors = np.array([part[kind] for part in found]).T
        means[kind] = float(values.mean()), float(np.sqrt(np.sum(errors**2)) / len(errors))
    case = _below(means["network"], 0.8)
    ours, program = (f"{value:.2f} ± {error:.2f}" for value, error in means.values())
    return Verdict(
        float("nan") if case is None else float(case),
        f"error over the plain mean's in d = 2, 5, 10, 20, on the repetitions that all ended "
        f"({', '.join(map(str, counts))}): {_listed(list(found))}; on average networks {ours}, by "
        f"the authors' program {program}, where 0.8 would be a reduction",
        float(case is None),
    )


def objectives(rows: list[Row]) -> Verdict:
    """By the recipe alone, at the end of training, on repetitions where both ended."""
    cases: dict[str, list[bool]] = {"paper": [], "program": []}
    sizes: dict[str, list[float]] = {"paper": [], "program": []}
    for part, found in cases.items():
        here = select(rows, part=part)
        for method in distinct(here, "method"):
            if not method.endswith("J^LS") or "exact" in method:
                continue
            for case in dict.fromkeys(map(_case, select(here, method=method))):
                ends = [_last(here, name, case) for name in (method, method.replace("J^LS", "J^V"))]
                both = [r for r in ends[0] if r in ends[1]]
                means = [np.mean([end[r] for r in both]) for end in ends]
                found.append(bool(means[0] < means[1]))
                sizes[part].append(float(means[1] / means[0]))
    own, program = cases["paper"], cases["program"]
    by_chance = 0.5 + 1 / np.sqrt(max(len(own), 1))
    return Verdict(
        float(np.mean(own) > by_chance),
        f"{sum(own)} of {len(own)} settings of the recipe have the smaller error with J^LS, "
        f"{sum(program)} of {len(program)} of the authors' program, whose networks have the "
        f"smaller one with J^V in {len(program) - sum(program)}; error with J^V over that with "
        f"J^LS, median: {np.median(sizes['paper']):.2f} and {np.median(sizes['program']):.2f}; for "
        f"the recipe half is chance, and more than {by_chance:.0%} would be beyond it",
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


def _between(rows: list[Row], one: str, other: str, **where: object) -> tuple[float, float]:
    """`between` of two of these methods in one setting of the recipe."""
    here = select(rows, part="paper", **where)
    full = (f"{kind}, as in the paper" if "," not in kind else kind for kind in (one, other))
    return between(here, distinct(here, "integrand"), *full)


def beaten(rows: list[Row]) -> Verdict:
    here = select(rows, part="paper")
    found = [_recipes(here, n=n) for n in distinct(here, "n")]
    gains = [(kind, gain) for part in found for kind, gain in part.items()]
    cases = [clear((np.log(gain.value), gain.error / gain.value)) for _, gain in gains]
    more = [gain.value > 1 for _, gain in gains]
    without = [gain.value > 1 for kind, gain in gains if kind != "network"]
    return told(
        cases,
        f"{sum(more)} of {len(more)} families and sizes beat the plain mean; without networks "
        f"{sum(without)} of {len(without)}",
    )


def best_two(by: str, **where: object) -> Callable[[list[Row]], Verdict]:
    """Whether the ensemble of two kernels or the network has the largest gain of the recipe, by
    more than two errors of the comparison with the best of the others."""

    def verdict(rows: list[Row]) -> Verdict:
        here = select(rows, **where)
        paper = select(here, part="paper")
        cases, listed = [], []
        for place in distinct(paper, by):
            found = _recipes(here, **{by: place})
            order = sorted(found, key=lambda method: -found[method].value)
            own = [method for method in order if "program" not in method]
            two = [method for method in own if method in ("polynomial + two kernels", "network")]
            rival = next(method for method in own if method not in two)
            cases.append(clear(_between(here, two[0], rival, **{by: place})))
            listed.append(
                f"{by} = {place}: " + ", ".join(f"{method} {found[method]}" for method in order)
            )
        return enough(paper, told(cases, "gains, " + "; ".join(listed)))

    return verdict


def crossover(rows: list[Row]) -> Verdict:
    """Networks at least as good as the ensemble below a thousand draws, and worse from there."""
    cases: list[bool | None] = []
    listed = []
    for name in distinct(select(rows, part="paper"), "set"):
        here = select(rows, set=name)
        for m in distinct(select(here, part="paper"), "m"):
            found = _recipes(here, m=m)
            better = clear(_between(here, "network", "polynomial + two kernels", m=m))
            cases.append(None if better is None else better == (m < 1000))
            listed.append(
                f"{name}, m = {m}: {found['network']} against {found['polynomial + two kernels']}"
            )
    number = "gains of the network against two kernels + polynomial: " + "; ".join(listed)
    return enough(select(rows, part="paper"), told(cases, number))


def deeper(rows: list[Row]) -> Verdict:
    """Whether networks of twelve and of twenty-four layers gain more than those of six."""
    cases, listed = [], []
    for name in distinct(select(rows, part="depth"), "set"):
        here = select(rows, part="depth", set=name)
        count = len(distinct(here, "repetition"))
        for label in ("as in the paper", "authors' program"):
            six, *others = (depths.method(layers, label) for layers in depths.DEPTHS)
            found = [between(here, distinct(here, "integrand"), other, six) for other in others]
            cases += [clear(difference) for difference in found]
            ratios = ", ".join(map(ratio, found))
            listed.append(f"{name} ({count} repetitions), {label} {ratios}")
    layers = " and ".join(map(str, depths.DEPTHS[1:]))
    return told(
        cases,
        f"gains of {layers} layers over those of {depths.DEPTHS[0]} at m = 1000: "
        + "; ".join(listed),
    )


def comparable(rows: list[Row]) -> Verdict:
    """A gain of at least four fifths of that of the solve."""
    here = select(rows, part="paper")
    cases, listed = [], []
    for name in distinct(here, "set"):
        part = select(here, set=name)
        largest = select(part, m=max(distinct(part, "m")))
        names = distinct(part, "integrand")
        found = paired(largest, names)
        for kind in ("polynomial", "kernel"):
            stepped, solved = f"{kind}, as in the paper", f"{kind}, same family exact"
            difference = between(largest, names, stepped, solved)
            cases.append(clear(difference, float(np.log(0.8))))
            ratio = float(np.exp(difference[0]))
            listed.append(
                f"{name}, {kind} {found[stepped]} against {found[solved]} (ratio {ratio:.2f} ± "
                f"{ratio * difference[1]:.2f})"
            )
    number = "at least 0.8 of it is about the same; gains of steps against the solve: "
    return enough(here, told(cases, number + "; ".join(listed)))


def varies(rows: list[Row]) -> Verdict:
    """LIDAR: whether the best and the worst family differ by more than two errors, at each size."""
    here = select(rows, part="paper")
    cases, listed = [], []
    for n in distinct(here, "n"):
        found = _recipes(here, n=n)
        order = sorted(found, key=lambda kind: found[kind].value)
        cases.append(clear(_between(here, order[-1], order[0], n=n)))
        listed.append(f"n = {n}: " + ", ".join(f"{kind} {gain}" for kind, gain in found.items()))
    return enough(here, told(cases, "gains, " + "; ".join(listed)))
