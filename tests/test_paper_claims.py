"""Every number behind a verdict on the paper, counted again from the committed tables: by nothing
of the experiments, with csv, dicts and NumPy's polyfit and median."""

import csv
import functools
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parents[1] / "experiments" / "paper"
SMOOTH_AND_ROUGH = (
    *("Continuous", "Corner Peak", "Discontinuous"),
    *("Gaussian Peak", "Oscillatory", "Product Peak"),
)
KINDS = ("polynomial", "kernel", "polynomial + kernel")
Row = dict[str, str]


@functools.cache
def table(name: str) -> list[Row]:
    with open(HERE / "results" / f"{name}.csv", newline="") as file:
        return list(csv.DictReader(file))


def where(rows: list[Row], **wanted: object) -> list[Row]:
    return [row for row in rows if all(row[k] == str(v) for k, v in wanted.items())]


def column(rows: list[Row], name: str) -> np.ndarray:
    return np.array([float(row[name]) for row in rows])


def off(rows: list[Row]) -> dict[str, float]:
    """Absolute errors of those that ended, by repetition."""
    found = {row["repetition"]: abs(float(row["value"]) - float(row["truth"])) for row in rows}
    return {repetition: error for repetition, error in found.items() if np.isfinite(error)}


def mean_error(rows: list[Row]) -> float:
    return float(np.mean(list(off(rows).values())))


def jackknife(function: Callable, repetitions: list) -> tuple[float, float]:
    """A function of a list of repetitions, and its error."""
    without = [function(repetitions[:k] + repetitions[k + 1 :]) for k in range(len(repetitions))]
    n = len(repetitions)
    return function(repetitions), float(np.sqrt((n - 1) ** 2 / n * np.var(without, ddof=1)))


def log_ratio(one: list[Row], other: list[Row]) -> tuple[float, float]:
    first, second = off(one), off(other)
    both = [r for r in first if r in second]
    return jackknife(
        lambda some: np.log(sum(first[r] for r in some) / sum(second[r] for r in some)), both
    )


def told(cases: list[tuple[float, float]]) -> str:
    """Of (how far above its threshold, error)."""
    tie = [abs(value) <= max(2 * error, 0.01) for value, error in cases]
    up = [value > 0 and not even for (value, _), even in zip(cases, tie, strict=True)]
    down = len(cases) - sum(tie) - sum(up)
    return f"{sum(up)} of {len(cases)} clearly so, {down} clearly not, {sum(tie)} within two errors"


# ---- Gains


def squares(rows: list[Row], method: str) -> dict[str, dict[str, float]]:
    """Squared errors by repetition and integrand."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        if row["method"] == method:
            error = (float(row["value"]) - float(row["truth"])) ** 2
            found.setdefault(row["repetition"], {})[row["integrand"]] = error
    return {r: part for r, part in found.items() if np.isfinite(list(part.values())).all()}


def log_gain(plain: dict, controlled: dict, repetitions: list) -> float:
    points = list(controlled[repetitions[0]])
    ratios = [
        sum(plain[r][p] for r in repetitions) / sum(controlled[r][p] for r in repetitions)
        for p in points
    ]
    return float(np.log(np.median(ratios)))


def gains(rows: list[Row], methods: list[str]) -> dict[str, tuple[float, float]]:
    """Logarithms and their errors."""
    plain, found = squares(rows, "MC"), {}
    for method in methods:
        controlled = squares(rows, method)
        both = [r for r in controlled if r in plain]
        if both:
            found[method] = jackknife(functools.partial(log_gain, plain, controlled), both)
    return found


def between(rows: list[Row], one: str, other: str) -> tuple[float, float]:
    plain, first, second = (squares(rows, method) for method in ("MC", one, other))
    both = [r for r in first if r in second and r in plain]
    return jackknife(
        lambda some: log_gain(plain, first, some) - log_gain(plain, second, some), both
    )


def recipe(rows: list[Row]) -> list[str]:
    found = dict.fromkeys(row["method"] for row in rows)
    return [method for method in found if method.endswith("as in the paper")]


# ---- Claims


def propositions_1_2() -> list[str]:
    found = []
    for target in ("N(0, 1)", "two normals"):
        here = where(table("propositions"), target=target)
        degree, bound = where(here, over="degree"), where(here, over="bound")
        size, left = column(degree, "size"), column(degree, "left")
        lower = (size <= size[-1] / 2) & (size >= size[-1] / 16)
        line, after = (
            np.polyfit(np.sqrt(size[part]), np.log(left[part]), 1)
            for part in (lower, size > size[-1] / 2)
        )
        predicted = np.exp(np.polyval(line, np.sqrt(size[-1])))
        times = (column(bound, "bound") / column(bound, "left")).min()
        ends = column(bound, "bound")[[0, -1]]
        found.append(
            f"{target}: J / Var f {left[-1]:.0e} at degree {size[-1]:.0f}, where the lower half "
            f"predicts {predicted:.0e}; slopes of log J in √degree {line[0]:.2f}, then "
            f"{after[0]:.2f}; the bound is {times:.0f} times J or more and falls from "
            f"{ends[0]:.2g} to {ends[1]:.2g}"
        )
    return found


def proposition_3() -> list[str]:
    inside = where(table("propositions"), rate="inside")
    gamma = float(inside[0]["gamma"])
    t, excess = column(inside, "size"), column(inside, "excess")
    late = t >= 10 * gamma
    slope = np.polyfit(np.log(gamma + t[late]), np.log(excess[late]), 1)[0]
    first, most = float(inside[0]["first"]), float(inside[0]["most_alpha"])
    assert first <= most * (1 + 1e-9)
    return [f"slope {slope:.3f} ± ", f"α₁ = {first:.4f} ≤ {most:.4f}"]


STEPS = ("lean steps, 5 epochs", "lean steps, 25 epochs", "lean steps, 2500 steps")
STEPS = (*STEPS, "SGD", "as in the paper")


def timed() -> dict[tuple[str, str], list[Row]]:
    found: dict[tuple[str, str], list[Row]] = {}
    for row in where(table("costs"), part="ours"):
        if row["family"] != "network":
            found.setdefault((row["family"], row["over"]), []).append(row)
    return found


def cheaper() -> list[str]:
    found = []
    for method in STEPS:
        ratios = np.concatenate(
            [column(where(rows, method=method), "ratio") for rows in timed().values()]
        )
        found.append(f"{method} {sum(ratios < 1)} of {len(ratios)}")
    for (family, over), rows in timed().items():
        here = where(rows, method=STEPS[0])
        places, logs = column(here, over), np.log(column(here, "ratio"))
        if logs[-1] < 0 < logs[0] and np.abs(logs).max() > 0.1:
            k = max(k for k, value in enumerate(logs) if value >= 0)
            share = logs[k] / (logs[k] - logs[k + 1])
            crossed = places[k] * (places[k + 1] / places[k]) ** share
            found.append(f"{family} in {over}: {crossed:.0f}, ")
    assert len(found) > 6
    return found


def orders() -> list[str]:
    found = []
    for (family, over), rows in timed().items():
        few, many, features, solved = (
            column(where(rows, method=method), "seconds")
            for method in (*STEPS[:2], "lean features", "lean exact")
        )
        places = column(where(rows, method=STEPS[0]), over)
        last = max(2, (len(places) + 1) // 2)
        logs = np.log(places[-last:])
        epoch = np.polyfit(logs, np.log((many - few)[-last:]), 1)[0]
        solve = np.polyfit(logs, np.log((solved - features)[-last:]), 1)[0]
        powers = epoch, epoch - (over == "m"), solve
        found.append(f"{family} in {over}: " + ", ".join(f"{power:.1f}" for power in powers))
    return found


def calibration() -> list[str]:
    found = []
    for m in ("500", "1000", "2000", "4000"):
        spent = {"polynomial": 0.0, "kernel": 0.0, "network": 0.0}
        for row in where(table("costs"), part="calibration", m=m):
            spent[row["family"]] += float(row["seconds"])
        times = ", ".join(f"{kind} {seconds:.2g} s" for kind, seconds in spent.items())
        ratios = [spent["network"] / spent[kind] for kind in ("polynomial", "kernel")]
        found.append(f"m = {m}: {times}, ratios {ratios[0]:.2g} and {ratios[1]:.2g}")
    return found


def faster(draws: int) -> list[str]:
    rows = where(
        table("polynomials"),
        part="paper",
        integrand_family="sum",
        family="polynomial",
        draws=draws,
    )
    found = []
    for d in dict.fromkeys(row["d"] for row in rows):
        here = where(rows, d=d)
        stepped = where(here, method="polynomial, as in the paper", epochs=25)
        solved = where(here, method="polynomial, same family exact")
        ratio = np.median(column(stepped, "seconds")) / np.median(column(solved, "seconds"))
        found.append(f"{ratio:.0f} in d = {d}")
    return found


def approaches() -> list[str]:
    rows = where(table("polynomials"), part="paper", family="polynomial", draws=1000)
    found = []
    for d in dict.fromkeys(row["d"] for row in rows):
        here = where(rows, d=d)
        stepped = mean_error(where(here, method="polynomial, as in the paper", epochs=25))
        solved = mean_error(where(here, method="polynomial, same family exact"))
        found.append(f"d = {d}: {stepped:.0e} against {solved:.0e}")
    return found


def stopped_early() -> list[str]:
    rows, cases, found = where(table("polynomials"), part="paper"), [], []
    setting = ("integrand_family", "family", "draws", "share", "d")
    for place in dict.fromkeys(tuple(row[name] for name in setting) for row in rows):
        here = where(rows, **dict(zip(setting, place, strict=True)))
        here = where(here, method=f"{place[1]}, as in the paper")
        value, error = log_ratio(where(here, epochs=5), where(here, epochs=25))
        cases.append((np.log(2) - value, error))
        m = round(float(place[2]) * float(place[3]))
        found.append(f"{place[1]} m = {m} d = {place[4]} {np.exp(value):.2g}")
    return [told(cases), *found]


def cells(name: str) -> dict[str, list[Row]]:
    here = where(table("genz"), part="paper", d=1, integrand=name, split="50/50", epochs=25)
    return {kind: where(here, method=f"{kind}, as in the paper") for kind in KINDS}


def extreme(best: str, last: bool) -> list[str]:
    cases, first = [], 0
    for name in SMOOTH_AND_ROUGH:
        found = cells(name)
        means = {kind: mean_error(part) for kind, part in found.items()}
        order = sorted(means, key=lambda kind: means[kind], reverse=last)
        first += order[0] == best
        rival = next(kind for kind in order if kind != best)
        value, error = log_ratio(found[best], found[rival])
        cases.append((value if last else -value, error))
    return [told(cases), f"as in the paper {first}, "]


def reduction() -> list[str]:
    cases = []
    for name in SMOOTH_AND_ROUGH:
        plain = where(table("genz"), part="ours", d=1, integrand=name, method="MC")
        for part in cells(name).values():
            value, error = log_ratio(plain, part)
            cases.append((value - np.log(2), error))
    small = sum(value > 0 for value, _ in cases)
    return [told(cases), f"{small} of {len(cases)} cells have less than half"]


def near_solve() -> list[str]:
    cases = []
    rows = where(table("genz"), part="paper", split="50/50")
    for d, name in dict.fromkeys((row["d"], row["integrand"]) for row in rows):
        here = where(rows, d=d, integrand=name)
        exact = where(here, method="kernel, same family exact")
        stepped = where(here, method="kernel, as in the paper", epochs=5)
        value, error = log_ratio(exact, stepped)
        cases.append((value + np.log(2), error))
    ratios = [2 * np.exp(-value) for value, _ in cases]
    return [told(cases), f"plain steps {np.median(ratios):.2g} (up to {max(ratios):.2g})"]


def shares() -> list[str]:
    cases, best = [], 0
    for name in SMOOTH_AND_ROUGH:
        here = where(
            table("genz"),
            part="paper",
            d=1,
            integrand=name,
            method="kernel, as in the paper",
            epochs=5,
        )
        parts = {s: where(here, split=s) for s in ("50/50", "70/30", "90/10", "100/0")}
        half, *larger = parts.values()
        cases += [log_ratio(half, part) for part in larger]
        best += mean_error(half) < min(map(mean_error, larger[:-1]))
    beaten = sum(value > 0 for value, _ in cases)
    return [
        told(cases),
        f"{beaten} of {len(cases)} larger shares beat 50/50",
        f"50/50 is best for {best} of 6",
    ]


def ended(method: str, **setting: object) -> dict[str, float]:
    rows = where(table("gaussian_processes"), method=method, **setting)
    last = max(int(row["epochs"]) for row in rows)
    return off(where(rows, epochs=last))


def over_means(kinds: tuple[str, ...], **setting: object) -> tuple[dict, int]:
    """Ratios with errors, on the repetitions that all have."""
    full = {kind: kind if "," in kind else f"{kind}, as in the paper" for kind in kinds}
    ends = {kind: ended(f"{method}, J^LS", **setting) for kind, method in full.items()}
    plain = off(where(table("gaussian_processes"), part="ours", method="MC", **setting))
    both = [r for r in plain if all(r in end for end in ends.values())]
    ratios = {
        kind: jackknife(
            lambda some, end=end: sum(end[r] for r in some) / sum(plain[r] for r in some), both
        )
        for kind, end in ends.items()
    }
    return ratios, len(both)


def line() -> list[str]:
    kinds = ("kernel", "network", "network, authors' program")
    found = [over_means(kinds, d=1, m=m) for m in (250, 500, 1000)]
    listed = [
        f"{kind} " + ", ".join("{:.2f} ± {:.2f}".format(*part[kind]) for part, _ in found)
        for kind in kinds
    ]
    return [*listed, f"({', '.join(str(count) for _, count in found)})"]


def degrade() -> list[str]:
    kinds = ("polynomial", "kernel", "network", "network, authors' program")
    found = [over_means(kinds, d=d, m=1000, scale="median") for d in (2, 5, 10, 20)]
    listed = [
        f"{kind} " + ", ".join("{:.2f} ± {:.2f}".format(*part[kind]) for part, _ in found)
        for kind in kinds
    ]
    mean = np.mean([part["network"][0] for part, _ in found])
    return [*listed, f"on average networks {mean:.2f} ± "]


def objectives() -> list[str]:
    rows, found = table("gaussian_processes"), []
    for part in ("paper", "program"):
        here = where(rows, part=part)
        places = dict.fromkeys((r["method"], r["d"], r["m"], r["scale"]) for r in here)
        smaller = []
        for method, d, m, scale in places:
            if method.endswith("J^LS") and "exact" not in method:
                one, other = (
                    ended(name, part=part, d=d, m=m, scale=scale)
                    for name in (method, method.replace("J^LS", "J^V"))
                )
                both = [r for r in one if r in other]
                smaller.append(sum(one[r] for r in both) < sum(other[r] for r in both))
        found.append(f"{sum(smaller)} of {len(smaller)} ")
    return [found[0] + "settings of the recipe", found[1] + "of the authors' program"]


def beaten() -> list[str]:
    cases = []
    for n in ("100", "200", "500", "1000"):
        rows = where(table("lotka_volterra"), part="paper", n=n)
        cases += list(gains(rows, recipe(rows)).values())
    more = sum(value > 0 for value, _ in cases)
    return [told(cases), f"{more} of {len(cases)} families and sizes"]


def best_two(study: str, by: str, **setting: object) -> list[str]:
    found, cases = [], []
    paper = where(table(study), part="paper", **setting)
    for place in dict.fromkeys(row[by] for row in paper):
        rows = where(paper, **{by: place})
        logs = gains(rows, recipe(rows))
        order = sorted(logs, key=lambda method: -logs[method][0])
        two = [m for m in order if m.startswith(("polynomial + two", "network"))]
        rival = next(method for method in order if method not in two)
        cases.append(between(rows, two[0], rival))
        for method in order:
            gain = np.exp(logs[method][0])
            short = f"{gain:.3g}" if gain < 1000 else f"{gain:.2g}"
            found.append(f"{method.removesuffix(', as in the paper')} {short} ± ")
    return [told(cases), *found]


def comparable() -> list[str]:
    found, cases = [], []
    for name in ("sonar", "madelon"):
        rows = where(table("logistic"), part="paper", set=name, m=3000)
        for kind in ("polynomial", "kernel"):
            both = f"{kind}, as in the paper", f"{kind}, same family exact"
            value, error = between(rows, *both)
            cases.append((value - np.log(0.8), error))
            one, other = (np.exp(gains(rows, [method])[method][0]) for method in both)
            found.append(f"{name}, {kind} {one:.3g} ± ")
            found.append(f" against {other:.3g} ± ")
            found.append(f"(ratio {np.exp(value):.2f} ± {np.exp(value) * error:.2f})")
    return [told(cases), *found]


def crossover() -> list[str]:
    found, cases = [], []
    network, ensemble = "network, as in the paper", "polynomial + two kernels, as in the paper"
    for name in ("sonar", "madelon"):
        for m in (300, 1000, 3000):
            rows = where(table("logistic"), part="paper", set=name, m=m)
            value, error = between(rows, network, ensemble)
            cases.append((value if m < 1000 else -value, error))
            gain = np.exp(gains(rows, [network])[network][0])
            found.append(f"{name}, m = {m}: {gain:.3g} ± ")
    return [told(cases), *found]


def deeper() -> list[str]:
    found, cases = [], []
    for name in ("sonar", "madelon"):
        rows = where(table("logistic"), part="depth", set=name)
        count = len({row["repetition"] for row in rows})
        for label in ("as in the paper", "authors' program"):
            six, *others = (f"{layers} layers, {label}" for layers in (6, 12, 24))
            both = [between(rows, other, six) for other in others]
            ratios = ", ".join(
                f"{np.exp(value):.2g} ± {np.exp(value) * error:.1g}" for value, error in both
            )
            found.append(f"{name} ({count} repetitions), {label} {ratios}")
            cases += both
    return [told(cases), *found]


def varies() -> list[str]:
    found, cases = [], []
    for n in ("100", "200", "500", "1000"):
        rows = where(table("lidar"), part="paper", n=n)
        logs = gains(rows, recipe(rows))
        order = sorted(logs, key=lambda method: logs[method][0])
        cases.append(between(rows, order[-1], order[0]))
        found += [f"{m.split(',')[0]} {np.exp(logs[m][0]):.3g} ± " for m in order]
    return [told(cases), *found]


COUNTED: dict[tuple[str, str], Callable[[], list[str]]] = {
    ("inf J over growing families is zero", "Propositions 1, 2"): propositions_1_2,
    ("with α_t = β/(γ + t) the excess of J falls like 1/t", "Proposition 3"): proposition_3,
    ("SGD is cheaper than a linear system", "Section 3, conclusion (i)"): cheaper,
    ("SGD is linear in m and d, the solve is worse", "Figure 2, right"): orders,
    (
        "even the toy problem (m = 500) has significant speed-ups",
        "Figure 1",
    ): functools.partial(faster, 1000),
    ("with m = 5000 they are larger", "supplement"): functools.partial(faster, 10_000),
    ("SGD approaches the solve as t grows", "supplement"): approaches,
    ("early stopping keeps the precision at less cost", "supplement"): stopped_early,
    ("polynomials always have the largest error", "Table 1"): functools.partial(
        extreme, "polynomial", True
    ),
    ("polynomial + kernel is consistently best", "Table 1"): functools.partial(
        extreme, "polynomial + kernel", False
    ),
    ("a substantial reduction in all cases", "Table 1"): reduction,
    ("5 epochs are close to the linear system, in every dimension", "Tables 3, 4"): near_solve,
    ("fitting with more than half of the draws may be preferable", "Table 5"): shares,
    ("kernels and networks reduce the error substantially in d = 1", "Figure 2"): line,
    ("J^LS does better than J^V", "Figure 2"): objectives,
    ("networks do not degrade with d", "Figure 2"): degrade,
    ("every family beats the plain mean", "Figure 3"): beaten,
    ("two kernels + polynomial, or the network, are best", "Figure 3"): functools.partial(
        best_two, "lotka_volterra", "n"
    ),
    ("the same on Sonar", "supplement"): functools.partial(best_two, "logistic", "m", set="sonar"),
    ("the same on Madelon", "Figure 4"): functools.partial(
        best_two, "logistic", "m", set="madelon"
    ),
    ("steps have about the error of the solve", "Figure 4"): comparable,
    (
        "below m = 1000 networks are as good as the ensemble, from there it is better",
        "Figure 4, supplement",
    ): crossover,
    ("growing the depth of networks could improve them", "Figure 4"): deeper,
    (
        "with their calibration networks cost much more than other families",
        "Figures 2, 4",
    ): calibration,
    ("on LIDAR families differ significantly", "supplement"): varies,
}


@functools.cache
def printed() -> dict[tuple[str, str], tuple[str, str]]:
    """Verdict and number of each claim on the page."""
    page = (HERE / "RESULTS.md").read_text()
    section = page.split("## What the paper says")[1].split("\n## ")[0]
    lines = [line.strip("|").split(" | ") for line in section.splitlines() if "**" in line]
    return {(row[0].strip(), row[1]): (row[2].strip("*"), row[3]) for row in lines if len(row) == 6}


def test_each_claim_is_counted():
    assert set(COUNTED) == set(printed())


@pytest.mark.parametrize("claim", COUNTED, ids=lambda claim: claim[0])
def test_its_numbers_are_those_of_the_tables(claim):
    word, number = printed()[claim]
    found = COUNTED[claim]()
    assert found
    for text in found:
        assert text in number, (text, number)
    ties = re.match(r"(\d+) of (\d+) clearly so, (\d+) clearly not, (\d+) within", number)
    if ties:
        so, cases, no, even = map(int, ties.groups())
        assert word == verdict(so, cases, no, even)


def verdict(so: int, cases: int, no: int, even: int) -> str:
    if 2 * even > cases:
        return "undecided"
    if not no:
        return "holds within errors" if even else "holds"
    return "does not hold" if so <= 0.1 * (so + no) else "in part"
