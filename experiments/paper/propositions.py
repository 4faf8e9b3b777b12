"""The three propositions as pictures: J falls to zero as the family grows, and steps at a falling
rate converge like 1/t.

Propositions 1 and 2: f = exp(sin 2x) under N(0, 1) and under a mixture of two normals, whose
conditions hold (smooth density, Gaussian tails, bounded f). J is that of the best g of each family,
by quadrature: the fit to 801 weighted points of a grid. Next to it is the error of the estimate
from 500 fitting and 500 other draws. Proposition 3: f = Σ sin x_i in d = 2, quadratics, in batches
of 8; the excess of the objective over its minimum, averaged over seeds, against the number of
steps.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

import zerovar as zv

from .harness import Job, Row, Size, distinct, markdown, select
from .mixtures import Mixture

NAME = "propositions"
TITLE = "Propositions 1 to 3: what a family can reach, and how fast steps get there"
VERSIONS = {"ours": 1}

TARGETS = {
    "N(0, 1)": Mixture(np.ones(1), np.zeros((1, 1)), np.ones((1, 1, 1))),
    "two normals": Mixture(
        np.array([0.5, 0.5]), np.array([[-1.0], [1.0]]), np.full((2, 1, 1), 0.36)
    ),
}
DEGREES = (1, 2, 3, 4, 6, 8, 10, 12)
CENTRES = (2, 4, 8, 16, 32)
EPOCHS = (1, 2, 4, 8, 16, 32, 64)
RATES: dict[str, Any] = {
    "β/(γ + t)": zv.schedules.InverseTime(2.0, 60.0),
    "constant": zv.schedules.Constant(0.03),
}


def jobs(size: Size) -> list[Job]:
    grown = [
        {"part": "ours", "proposition": "one and two", "target": target, **size.marks}
        for target in TARGETS
    ]
    return grown + [
        {"part": "ours", "proposition": "three", "rate": rate, **size.marks} for rate in RATES
    ]


def run(job: Job, data: Path | None) -> list[Row]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", zv.ZerovarWarning)
        quick = job.get("quick", False)
        return (
            _grown(TARGETS[job["target"]], quick)
            if "target" in job
            else _stepped(RATES[job["rate"]], quick)
        )


def _integrand(x: np.ndarray) -> np.ndarray:
    return np.exp(np.sin(2 * x[:, 0]))


def _grown(target: Mixture, quick: bool) -> list[Row]:
    grid = np.linspace(-6, 6, 801)[:, None]
    scores, f = target.scores(grid), _integrand(grid)
    sds = np.sqrt(target.covariances[:, 0])
    density = np.sum(
        target.weights[:, None] * np.exp(-0.5 * ((grid.T - target.means) / sds) ** 2) / sds, axis=0
    )
    sample = zv.Sample(grid, scores, log_weights=np.log(density))
    weights, truth = sample.probabilities, float(sample.probabilities @ f)
    kernel = zv.Kernel(zv.kernels.Gaussian(0.7))
    sizes = [("degree", k) for k in DEGREES[: 3 if quick else None]] + [
        ("centres", k) for k in CENTRES[: 2 if quick else None]
    ]
    rows: list[Row] = []
    for over, size in sizes:
        family, solver = (
            (zv.Polynomial(size), zv.Exact()) if over == "degree" else (kernel, zv.Nystrom(size))
        )
        objective = zv.LeastSquares(zv.Ridge(1e-12))
        fitted = zv.fit(family, sample, f, objective, solver, standardise=False)
        residual = f - fitted.at(grid, scores)[:, 0]
        errors = []
        for seed in range(2 if quick else 10):
            x = target.sample(np.random.default_rng(seed), 1000)
            learnt = zv.fit(
                family,
                zv.Sample(x[:500], target.scores(x[:500])),
                _integrand(x[:500]),
                objective,
                solver,
            )
            off = _integrand(x[500:]) - learnt.at(x[500:], target.scores(x[500:]))[:, 0]
            errors.append(abs(off.mean() - truth))
        common = {
            "over": over,
            "size": size,
            "method": family.describe(),
            "integrand": "exp(sin 2x)",
        }
        variance = float(weights @ (residual - weights @ residual) ** 2)
        rows.append(
            {
                **common,
                "J": variance,
                "plain": float(weights @ (f - truth) ** 2),
                "error": float(np.mean(errors)),
            }
        )
    return rows


def _stepped(rate: Any, quick: bool) -> list[Row]:
    x = np.random.default_rng(0).normal(size=(500, 2))
    sample, f = zv.Sample(x, -x), np.sin(x).sum(axis=1)
    family = zv.Polynomial(2)
    best = np.var(f - zv.fit(family, sample, f).at(x, -x)[:, 0])
    rows: list[Row] = []
    for epochs in EPOCHS[: 3 if quick else None]:
        solver = zv.SGD(
            8,
            epochs,
            learning_rate=rate,
            average=0.0,
            precondition=False,
            resample=True,
            progress=False,
        )
        fits = (
            zv.fit(family, sample, f, None, solver, seed=seed) for seed in range(3 if quick else 24)
        )
        excess = float(np.mean([np.var(f - fitted.at(x, -x)[:, 0]) - best for fitted in fits]))
        rows.append(
            {
                "over": "steps",
                "size": epochs * 63,
                "excess": excess,
                "method": "SGD",
                "integrand": "Σ sin x_i",
            }
        )
    return rows


def slope(rows: list[Row]) -> float:
    """Of the logarithm of the excess against that of the steps."""
    sizes, excess = (np.log([row[name] for row in rows]) for name in ("size", "excess"))
    return float(np.polyfit(sizes, excess, 1)[0])


def section(rows: list[Row]) -> str:
    table = []
    for target in distinct(rows, "target"):
        for over in ("degree", "centres"):
            here = select(rows, target=target, over=over)
            reach = ", ".join(f"{row['size']}: {row['J'] / row['plain']:.0e}" for row in here)
            errors = ", ".join(f"{row['error']:.0e}" for row in here)
            table.append([target, over, reach, errors])
    rates = [[rate, f"{slope(select(rows, rate=rate)):.2f}"] for rate in distinct(rows, "rate")]
    return "\n".join(
        [
            "Propositions 1 and 2: f = exp(sin 2x), bounded, under densities with Gaussian tails. "
            "The least J that a family reaches, over the variance of f, by its size; and the "
            "errors of estimates from 1000 draws, half of which fit:\n",
            markdown(["Π", "size", "J / Var f", "mean absolute error"], table),
            "J is what the best function of a family would reach. The errors turn up again, "
            "because 500 draws do not determine it: without a penalty that grows with the family, "
            "large ones extrapolate to draws in the tails.\n",
            "Proposition 3: a quadratic for Σ sin x_i in d = 2 by plain steps on batches of 8. "
            "Slope of the logarithm of the excess of the objective against that of the number of "
            "steps; the proposition says −1 for a falling rate:\n",
            markdown(["rate", "slope"], rates),
        ]
    )


def figure(rows: list[Row], path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
    for axes, over in zip(panels, ("degree", "centres"), strict=False):
        for k, target in enumerate(distinct(rows, "target")):
            here = select(rows, target=target, over=over)
            sizes = [row["size"] for row in here]
            axes.plot(
                sizes,
                [row["J"] / row["plain"] for row in here],
                "o-",
                color=f"C{k}",
                label=f"J / Var f, {target}",
            )
            axes.plot(
                sizes,
                [row["error"] for row in here],
                "s--",
                color=f"C{k}",
                label=f"error, {target}",
            )
        axes.set(yscale="log", xlabel=over, title="polynomial" if over == "degree" else "kernel")
    for k, rate in enumerate(distinct(rows, "rate")):
        here = select(rows, rate=rate)
        sizes = np.array([row["size"] for row in here], dtype=float)
        excess = np.array([row["excess"] for row in here])
        panels[2].plot(sizes, excess, "o-", color=f"C{k}", label=f"{rate}: slope {slope(here):.2f}")
        if k == 0:
            panels[2].plot(sizes, excess[0] * sizes[0] / sizes, color="0.6", ls=":", label="1/t")
    panels[2].set(
        xscale="log",
        yscale="log",
        xlabel="steps t",
        ylabel="excess of the objective",
        title="Proposition 3",
    )
    panels[1].set(xscale="log", xticks=CENTRES, xticklabels=CENTRES)
    panels[1].minorticks_off()
    for axes in panels:
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
    figure.savefig(path, dpi=150)
    plt.close(figure)
