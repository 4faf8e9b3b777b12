"""The front page: ten findings, one picture, what holds, what does not and what was improved. Every
number is computed from the tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from . import cost_tables, propositions, verdicts_of_gains
from .claims import Judged, Tables
from .comparisons import paired
from .genz_tables import SPLITS
from .harness import Row, absolute_error, distinct, select
from .integrands import GENZ, SMOOTH
from .printed import TABLE_1

LEAN = "lean steps, {} epochs"


def _found(rows: list[Row], family: str, over: str, method: str) -> tuple[str, float]:
    """Where steps become cheaper, and the ratio at the largest size."""
    places, ratios = cost_tables.curve(rows, family, over, method, "ratio")
    found = cost_tables.crossing(places, ratios)
    if found.isdigit():
        return f"from {over} = {found} on", float(ratios[-1])
    return found.replace(" to ", f" to {over} = ").replace("below ", f"below {over} = "), float(
        ratios[-1]
    )


def _left(rows: list[Row], family: str, method: str) -> float:
    return float(cost_tables.curve(rows, family, "m", method, "left")[1][-1])


def _few(rows: list[Row]) -> Row:
    """The solve for few centres, at the largest m."""
    return select(rows, family="kernel", over="m", method="Nystrom")[-1]


def _kernels(rows: list[Row], method: str, part: str, **more: Any) -> np.ndarray:
    """Errors of kernels on the smooth functions over the printed ones."""
    found = []
    for name in SMOOTH:
        here = select(rows, part=part, d=1, integrand=name, split="50/50", method=method, **more)
        found.append(absolute_error(here).mean / TABLE_1[name][2])
    return np.array(found)


class Diverged(NamedTuple):
    """Fits of networks that diverged: of the recipe, of the authors' program, and how many fits
    both have, of the same setting and repetition; of all the recipe's, how many."""

    recipe: int
    program: int
    shared: int
    alone: int
    fits: int


def _diverged(tables: Tables) -> Diverged:
    """Over all studies."""
    found: dict[str, dict[tuple, bool]] = {"paper": {}, "program": {}}
    for study in ("gaussian_processes", "lidar", "lotka_volterra", "logistic"):
        for part, fits in found.items():
            for row in select(tables[study], part=part):
                kind, _, label = row["method"].partition(", ")
                if kind != "network":
                    continue
                settings = (row.get(k) for k in ("d", "m", "n", "set", "scale", "repetition"))
                place = (study, *settings, label.partition(", ")[2])
                fits[place] = fits.get(place, True) and bool(np.isfinite(row["value"]))
    recipe, program = found.values()
    both = [place for place in recipe if place in program]
    return Diverged(
        *(sum(not fits[place] for place in both) for fits in (recipe, program)),
        len(both),
        sum(not good for good in recipe.values()),
        len(recipe),
    )


def findings(tables: Tables) -> list[tuple[str, str]]:
    """Ten sentences, and the study of each."""
    theory, costs, genz = tables["propositions"], tables["costs"], tables["genz"]
    normals, two = (
        propositions.trend(select(theory, target=target, over="degree"))
        for target in propositions.TARGETS
    )
    slope, error = propositions.slope(select(theory, rate="inside"))
    kernel, later = (_found(costs, "kernel", "m", LEAN.format(k)) for k in (5, 25))
    ensemble = _found(costs, "polynomial + kernel", "m", LEAN.format(5))
    wide, wider = (_found(costs, "polynomial", "d", LEAN.format(k)) for k in (5, 25))
    flat = cost_tables.curve(costs, "polynomial", "m", LEAN.format(5), "ratio")[1]
    fixed, steps = _found(costs, "polynomial", "m", f"lean steps, {cost_tables.FIXED} steps")
    longest = max(distinct(select(costs, family="polynomial", over="m"), "m"))
    ours = _found(costs, "kernel", "m", "SGD")
    plain = _kernels(genz, "kernel, as in the paper", "paper", epochs=25)
    exact = _kernels(genz, "kernel, same family exact", "paper")
    most = max(distinct(select(costs, family="kernel", over="m"), "m"))
    widest = max(distinct(select(costs, family="polynomial", over="d"), "d"))
    stepped = _kernels(genz, "kernel, SGD 25 epochs", "ours")
    shares = verdicts_share(genz)
    objective = verdicts_of_gains.objectives(tables["gaussian_processes"]).number.split(";")[0]
    diverged = _diverged(tables)
    far, both = verdicts_of_gains.ratios(
        tables["gaussian_processes"],
        ("network", "network, authors' program"),
        (20, 1000, "median"),
    )
    own, program = (f"{value:.2f} ± {error:.2f}" for value, error in far.values())
    few = _few(costs)
    wins = _winners(tables)
    automatic = _automatic(tables)
    return [
        (
            "Zero variance is in reach of a family that grows, as Propositions 1 and 2 say: J / "
            f"Var f falls to {normals.last:.0e} under N(0, 1) and to {two.last:.0e} under two "
            "normals at degree 100, faster than the lower degrees predict "
            f"({normals.predicted:.0e}, {two.predicted:.0e}).",
            "propositions",
        ),
        (
            "Inside the conditions of Proposition 3 the excess of J falls with power "
            f"{slope:.2f} ± {error:.2f} of γ + t.",
            "propositions",
        ),
        (
            "Steps are cheaper than the linear system where it is large. Five lean epochs are so "
            f"{kernel[0]} for kernels ({kernel[1]:.2f} of its time at m = {most}), {ensemble[0]} "
            f"for kernel + polynomial and {wide[0]} for quadratics ({wide[1]:.2f} at d = "
            f"{widest}); 25 epochs {later[0]} for kernels and {wider[0]} for quadratics. Epochs of "
            "quadratics are cheaper at no number of draws: in m both are linear, five at "
            f"{flat.min():.1f} to {flat.max():.1f} times the cost. {cost_tables.FIXED} steps, "
            f"whatever m, are cheaper {fixed} ({steps:.2f} at m = {longest}).",
            "costs",
        ),
        (
            f"What they buy is another matter. At m = {most} five epochs of plain kernel steps "
            f"leave {_left(costs, 'kernel', LEAN.format(5)):.0%} of the variance and 25 "
            f"{_left(costs, 'kernel', LEAN.format(25)):.0%}, the solve "
            f"{_left(costs, 'kernel', 'lean exact'):.0e}; whitened steps (`zv.SGD`) leave "
            f"{_left(costs, 'kernel', 'SGD'):.0e} at {ours[1]:.2f} of the solve's time, on "
            f"{few['centres']} centres in place of {most} translates, and are cheaper {ours[0]}; "
            f"the solve for as many centres (`zv.Nystrom`) leaves {few['left']:.0e} at "
            f"{few['ratio']:.2f} of the time.",
            "costs",
        ),
        (
            "The printed errors of kernels on the four smooth Genz functions are out of reach of "
            f"plain steps, which are {plain.min():.0f} to {plain.max():.0f} times above them after "
            f"25 epochs; the solve of the same family is at {exact.min():.1f} to "
            f"{exact.max():.1f} times, our steps at {stepped.min():.2f} to {stepped.max():.2f}.",
            "genz",
        ),
        (shares, "genz"),
        (
            f"J^LS is not the better objective: {objective}.",
            "gaussian_processes",
        ),
        (
            f"Networks are the weak part of the recipe: by plain steps {diverged.alone} of "
            f"{diverged.fits} fits diverged. Of the {diverged.shared} that were also run by Adam "
            "with clipped gradients, as in the authors' program, "
            f"{diverged.recipe} did by plain steps and {diverged.program} by Adam. Neither keeps "
            f"its gain as d grows: in d = 20 their errors are {own} and {program} of the plain "
            f"mean's, on the {both} repetitions that both ended.",
            "gaussian_processes",
        ),
        (
            f"No family is best throughout. The largest gain of the recipe is that of {wins}.",
            "logistic",
        ),
        (
            f"The automatic choice of zerovar, with no option set, has gains of {automatic} at "
            "1000 draws.",
            "lotka_volterra",
        ),
    ]


def verdicts_share(rows: list[Row]) -> str:
    """Table 5 and Table 1 in a sentence."""
    best = []
    for name in GENZ:
        here = select(
            rows, part="paper", d=1, integrand=name, method="kernel, as in the paper", epochs=5
        )
        found = {s: absolute_error(select(here, split=s)).mean for s in SPLITS}
        best.append(min(list(SPLITS)[:-1], key=found.__getitem__) == SPLITS[0])
    first = 0
    for name in GENZ:
        here = select(rows, part="paper", d=1, integrand=name, split="50/50", epochs=25)
        kinds = ("polynomial", "kernel", "polynomial + kernel")
        errors = {
            kind: absolute_error(select(here, method=f"{kind}, as in the paper")).mean
            for kind in kinds
        }
        first += min(errors, key=errors.__getitem__) == kinds[-1]
    return (
        f"Kernel + polynomial has the least mean error of Table 1 for {first} of 6 functions, a "
        f"half of the draws that of the shares that leave some to estimate with for {sum(best)} "
        "of 6."
    )


def _winners(tables: Tables) -> str:
    """The recipe's best family at the largest size of each study."""
    found = []
    for study, by, where, name in (
        ("lotka_volterra", "n", {}, "Lotka–Volterra"),
        ("lidar", "n", {}, "LIDAR"),
        ("logistic", "m", {"set": "sonar"}, "Sonar"),
        ("logistic", "m", {"set": "madelon"}, "Madelon"),
    ):
        rows = select(tables[study], part="paper", **where)
        here = select(rows, **{by: max(distinct(rows, by))})
        gains = {
            method.split(", ")[0]: gain
            for method, gain in paired(here, distinct(here, "integrand")).items()
            if method.endswith("as in the paper")
        }
        best = max(gains, key=lambda kind: gains[kind].value)
        found.append(f"{best} on {name} ({gains[best]})")
    return ", ".join(found)


def _automatic(tables: Tables) -> str:
    found = []
    for study, where, name in (
        ("lotka_volterra", {"n": 1000}, "Lotka–Volterra"),
        ("lidar", {"chain": "own"}, "LIDAR"),
        ("logistic", {"set": "sonar", "m": 1000}, "Sonar"),
        ("logistic", {"set": "madelon", "m": 1000}, "Madelon"),
    ):
        here = select(tables[study], part="ours", **where)
        found.append(f"{paired(here, distinct(here, 'integrand'))['automatic']} on {name}")
    return ", ".join(found)


def _improved(tables: Tables) -> list[str]:
    costs, genz = tables["costs"], tables["genz"]
    lean, whole = (
        cost_tables.curve(costs, "kernel", "m", method)[1]
        for method in (LEAN.format(5), "as in the paper")
    )
    ratios = _kernels(genz, "kernel, as in the paper", "paper", epochs=25) / _kernels(
        genz, "kernel, SGD 25 epochs", "ours"
    )
    diverged = _diverged(tables)
    most = max(distinct(select(costs, family="kernel", over="m"), "m"))
    return [
        "Steps in whitened coordinates, of a length derived from the draws, with the last half "
        f"averaged: {ratios.min():.0f} to {ratios.max():.0f} times less error than plain ones on "
        "the smooth functions, after as many epochs.",
        f"Plain steps by the library cost {whole[-1] / lean[-1]:.1f} times the lean ones at m = "
        f"{most}, whole calls with checks and units.",
        "Exact solves in double precision with a ridge, which need no condition number and no "
        "second attempt.",
        "Valid networks: ReLU under the second-order operator has mean different from zero; here "
        "the first-order operator, and smooth activations by default.",
        f"Clipped gradients: {diverged.program} of {diverged.shared} networks diverge, where plain "
        f"steps lose {diverged.recipe} of the same.",
        "Standard errors beside every estimate, and answers from draws that did not fit.",
    ]


def anchor(title: str) -> str:
    """Of a heading, as GitHub makes it."""
    kept = [c for c in title.lower() if c.isalnum() or c in " -_"]
    return "".join(kept).replace(" ", "-")


def text(tables: Tables, found: list[Judged], titles: dict[str, str]) -> str:
    """README.md of this folder."""
    parts = [
        "# The paper, run again\n",
        "Si, Oates, Duncan, Carin and Briol, *Scalable Control Variates for Monte Carlo Methods "
        "via Stochastic Optimization*, by its own recipe, by the exact solve of the same families, "
        "as the authors' program trains networks, and by zerovar. Every measured number below is "
        "computed from `results/*.csv` by `python -m experiments.paper --pages`; "
        "[RESULTS.md](RESULTS.md) has all tables, what the paper leaves open and what was taken "
        "for it.\n",
        "![Time of steps over that of the linear system, and errors on Genz's functions]"
        "(results/front.png)\n",
        "## Ten findings\n",
    ]
    for k, (sentence, study) in enumerate(findings(tables), 1):
        parts.append(f"{k}. {sentence} [More](RESULTS.md#{anchor(titles[study])})")
    for words, title in (
        (("holds", "holds within errors"), "What holds"),
        (("in part",), "What holds in part"),
        (("does not hold",), "What does not"),
        (("undecided", "open"), "What the repetitions do not decide"),
    ):
        sentences = [
            f"{j.claim.text} ({j.claim.where}{', within errors' * ('errors' in j.verdict.word)})"
            for j in found
            if j.verdict.word in words
        ]
        parts += [f"\n## {title}\n", "; ".join(sentences) + "." if sentences else "Nothing."]
    parts += [
        "\nEach with its number, its repetitions and its error: [RESULTS.md]"
        f"(RESULTS.md#{anchor('What the paper says, and what comes out')}).",
        "\n## What was improved\n",
        *(f"- {line}" for line in _improved(tables)),
        "\n## How to run it\n",
        "`python -m experiments.paper` says what there is and how long it takes; `make paper` is a "
        "short look at all of it; `--pages` writes the pages and pictures again.",
    ]
    return "\n".join(parts) + "\n"


def _short(name: str) -> str:
    """In two lines."""
    return name.replace(" ", "\n").replace("Discontinuous", "Dis-\ncontinuous")


def figure(tables: Tables, path: Path) -> None:
    import matplotlib.pyplot as plt

    costs, genz = tables["costs"], tables["genz"]
    figure, panels = plt.subplots(
        1, 3, figsize=(11.5, 3.4), layout="constrained", width_ratios=[1, 1, 1.3]
    )
    looks = {
        LEAN.format(5): ("C0", "o-"),
        LEAN.format(25): ("C0", "s--"),
        f"lean steps, {cost_tables.FIXED} steps": ("C4", "v:"),
        "SGD": ("C2", "D-"),
    }
    for axes, (family, over) in zip(panels, (("kernel", "m"), ("polynomial", "d")), strict=False):
        for method, (colour, mark) in looks.items():
            places, ratios = cost_tables.curve(costs, family, over, method, "ratio")
            label = "whitened, 5 epochs" if method == "SGD" else method
            axes.plot(places, ratios, mark, color=colour, ms=4, label=label)
        axes.axhline(1, color="k", lw=0.8)
        axes.set(xscale="log", yscale="log", xlabel=over)
        axes.set_title("kernel, d = 5" if over == "m" else "quadratic, m = 5000", fontsize=10)
        axes.set_xticks(places, [f"{place:.0f}" for place in places], fontsize=8)
        axes.set_xticks([], minor=True)
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("time of steps / of the solve")
    panels[0].legend(fontsize=7.5)
    ways = {
        "printed": None,
        "as in the paper": ("paper", "kernel, as in the paper", {"epochs": 25}),
        "same family, exact": ("paper", "kernel, same family exact", {}),
        "our SGD": ("ours", "kernel, SGD 25 epochs", {}),
        "our exact": ("ours", "kernel, exact", {}),
    }
    marks = zip(ways.items(), ("kx", "C0o", "C0s", "C2D", "C2^"), strict=True)
    for k, ((label, way), mark) in enumerate(marks):
        heights = [
            TABLE_1[name][2]
            if way is None
            else absolute_error(
                select(
                    genz,
                    part=way[0],
                    d=1,
                    integrand=name,
                    split="50/50",
                    method=way[1],
                    **way[2],
                )
            ).mean
            for name in GENZ
        ]
        hollow = {"mfc": "w"} if "exact" in label else {}
        panels[2].plot(np.arange(6) + 0.1 * (k - 2), heights, mark, ms=5, label=label, **hollow)
    panels[2].set(yscale="log", xticks=range(6))
    panels[2].set_xticklabels([_short(name) for name in GENZ], fontsize=7.5)
    panels[2].set_title("kernel on Genz's functions, mean absolute error", fontsize=10)
    panels[2].grid(alpha=0.3, axis="y")
    panels[2].legend(fontsize=7.5)
    figure.savefig(path, dpi=130)
    plt.close(figure)
