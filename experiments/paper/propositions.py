"""The three propositions as pictures: J falls to zero as the family grows, and steps at a falling
rate converge like 1/t.

Propositions 1 and 2: f = exp(sin 2x) under N(0, 1) and under a mixture of two normals, whose
conditions hold (smooth density, Gaussian tails, bounded f). J of the best polynomial of each degree
up to 100, and of the best combination of kernels' centres, by quadrature. That J never rises is
nothing, as families are nested; where it goes is read from two things: whether J falls as steeply
in the upper half of the degrees as in the lower, which no curve with a limit above zero does, and
whether what the lower half predicts for the highest degree comes out. The bound that the proofs
use, J(v) ≤ ‖L‖² ‖u − v‖², is computed for the u that solves Stein's equation and for the v of each
degree that is closest to it in W^{1,4}. Next to it is the error of the estimate from 500 fitting
and 500 other draws.

Proposition 3: f = Σ sin x_i in d = 2, quadratics, batches of 8 of 500 draws. β and γ are such that
the proposition's conditions hold, which are computed from the draws; the excess of the objective
over its minimum, averaged over many runs, against γ + t. Beside it are rates outside of them.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import zerovar as zv
from zerovar.solvers.algebra.tiles import feature_matrix

from .harness import Job, Row, Size, distinct, markdown, select
from .line import Line
from .mixtures import Mixture
from .protocol import BATCH

NAME = "propositions"
TITLE = "Propositions 1 to 3: what a family can reach, and how fast steps get there"
VERSIONS = {"ours": 2}

TARGETS = {
    "N(0, 1)": Mixture(np.ones(1), np.zeros((1, 1)), np.ones((1, 1, 1))),
    "two normals": Mixture(
        np.array([0.5, 0.5]), np.array([[-1.0], [1.0]]), np.full((2, 1, 1), 0.36)
    ),
}
MOST = 100  # degrees
SHOWN = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 80, 100)
FITTED = (1, 2, 3, 4, 6, 8, 10, 12)  # to draws, too
CENTRES = (2, 4, 8, 16, 32)
# least fourth powers lose their precision beyond: the closest of degree 16 came out farther than
# that of degree 8 on two normals
CLOSEST = {"N(0, 1)": (2, 4, 8, 16, 32), "two normals": (2, 4, 8)}
RATES = ("inside", "outside", "constant")
_RUNS = 400


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
        if "target" not in job:
            return _stepped(job["rate"], quick)
        target = TARGETS[job["target"]]
        return [
            *_polynomials(target, quick),
            *_bounds(job["target"], quick),
            *_fitted(target, quick),
        ]


def _integrand(x: np.ndarray) -> np.ndarray:
    return np.exp(np.sin(2 * x[:, 0]))


def _polynomials(target: Mixture, quick: bool) -> list[Row]:
    reached = Line.of(target, _integrand, count=4001 if quick else 12_001)
    return [
        {"over": "degree", "size": k + 1, "left": float(J)}
        for k, J in enumerate(reached.reached(24 if quick else MOST))
    ]


def _bounds(name: str, quick: bool) -> list[Row]:
    """J of the closest polynomial in the norm of Proposition 2, and its bound."""
    line = Line.of(TARGETS[name], _integrand, 12.0, 2001 if quick else 4001)
    u, made = line.solution(), line.polynomials(max(CLOSEST[name]) + 1)
    variance, found, rows = float(np.sum(line.centred**2)), np.zeros(1), []
    for k in CLOSEST[name][: 3 if quick else None]:
        found = line.closest(made[:, : k + 1], u, found)
        off = u - np.einsum("j,kjn->kn", found, made[:, : k + 1])
        left = float(np.sum(line.image(off) ** 2))
        bound = (line.bound() * line.norm(off)) ** 2
        rows.append(
            {"over": "bound", "size": k, "left": left / variance, "bound": bound / variance}
        )
    return rows


def _fitted(target: Mixture, quick: bool) -> list[Row]:
    """Errors of estimates from 1000 draws, and what is left by kernels on a grid."""
    grid = np.linspace(-6, 6, 801)[:, None]
    scores, f = target.scores(grid), _integrand(grid)
    sds = np.sqrt(target.covariances[:, 0])
    density = np.sum(
        target.weights[:, None] * np.exp(-0.5 * ((grid.T - target.means) / sds) ** 2) / sds, axis=0
    )
    sample = zv.Sample(grid, scores, log_weights=np.log(density))
    weights, truth = sample.probabilities, float(sample.probabilities @ f)
    kernel = zv.Kernel(zv.kernels.Gaussian(0.7))
    sizes = [("degree, fitted", k) for k in FITTED[: 3 if quick else None]] + [
        ("centres", k) for k in CENTRES[: 3 if quick else None]
    ]
    rows: list[Row] = []
    for over, size in sizes:
        polynomial = over != "centres"
        family = zv.Polynomial(size) if polynomial else kernel
        solver: Any = zv.Exact() if polynomial else zv.Nystrom(size)
        objective = zv.LeastSquares(zv.Ridge(1e-12))
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
        row: Row = {"over": over, "size": size, "error": float(np.mean(errors))}
        if not polynomial:
            fitted = zv.fit(family, sample, f, objective, solver, standardise=False)
            residual = f - fitted.at(grid, scores)[:, 0]
            variance = float(weights @ (residual - weights @ residual) ** 2)
            row["left"] = variance / float(weights @ (f - truth) ** 2)
        rows.append(row)
    return rows


# ---- Proposition 3


class Conditions(NamedTuple):
    """Of Proposition 3 on draws with rows ψ (m, p): what β must exceed, and α₁ not."""

    least_beta: float
    most_alpha: float

    @classmethod
    def of(cls, psi: np.ndarray) -> Conditions:
        moment = psi.T @ psi / len(psi)
        low, *_, high = np.linalg.eigvalsh(moment)
        # E[M_b²] for batches with replacement
        fourth = (psi * np.sum(psi**2, axis=1)[:, None]).T @ psi / len(psi)
        largest = np.linalg.eigvalsh(fourth / BATCH + (1 - 1 / BATCH) * moment @ moment)[-1]
        return cls(1 / (2 * low), float(low**2 / (2 * high * (largest + low**2))))


def _problem() -> tuple[np.ndarray, np.ndarray]:
    """ψ with its constant (500, 6), and f."""
    x = np.random.default_rng(0).normal(size=(500, 2))
    psi = np.hstack([np.ones((500, 1)), feature_matrix(zv.Polynomial(2), x, -x).T])
    return psi, np.sin(x).sum(axis=1)


def _stepped(rate: str, quick: bool) -> list[Row]:
    psi, f = _problem()
    conditions = Conditions.of(psi)
    beta = 2 * conditions.least_beta
    gamma = {"inside": float(np.ceil(beta / conditions.most_alpha)), "outside": 60.0}.get(rate, 0.0)
    beta = 2.0 if rate == "outside" else beta
    best = np.linalg.lstsq(psi, f, rcond=None)[0]
    moment = psi.T @ psi / len(f)
    looks = np.unique(np.geomspace(10, 2000 if quick else 60_000, 8 if quick else 16).astype(int))
    rng = np.random.default_rng(1)
    theta = np.zeros((50 if quick else _RUNS, psi.shape[1]))
    rows: list[Row] = []
    for t in range(1, int(looks[-1]) + 1):
        chosen = rng.integers(len(f), size=(len(theta), BATCH))
        some = psi[chosen]
        off = f[chosen] - np.einsum("rbp,rp->rb", some, theta)
        alpha = conditions.most_alpha if rate == "constant" else beta / (gamma + t)
        theta = theta + 2 * alpha / BATCH * np.einsum("rb,rbp->rp", off, some)
        if t in looks:
            excess = np.einsum("rp,pq,rq->r", theta - best, moment, theta - best)
            row = {"over": "steps", "size": t, "excess": float(excess.mean())}
            row["excess_error"] = float(excess.std(ddof=1) / np.sqrt(len(excess)))
            row |= {"beta": beta, "gamma": gamma, "first": beta / (gamma + 1)}
            row |= {"least_beta": conditions.least_beta, "most_alpha": conditions.most_alpha}
            rows.append(row | ({"first": conditions.most_alpha} if rate == "constant" else {}))
    return rows


# ---- What the tables say


def slope(rows: list[Row], shifted: bool = True, after: float = 10) -> tuple[float, float]:
    """Of the logarithm of the excess against that of γ + t, or of t, where the start is forgotten:
    from `after` times γ on, and a thousand steps; with its error by those of the excesses."""
    last = rows[-1]["size"]
    here = [
        row for row in rows if row["size"] >= min(max(after * row["gamma"], 100 * after), last / 10)
    ]
    places = np.log([row["size"] + (row["gamma"] if shifted else 0.0) for row in here])
    heights = np.log([row["excess"] for row in here])
    # looks at one run share its noise: the error is that of a line through the ends
    spread = [row["excess_error"] / row["excess"] for row in (here[0], here[-1])]
    error = float(np.hypot(*spread) / (places[-1] - places[0]))
    return float(np.polyfit(places, heights, 1)[0]), error


def holds(rows: list[Row]) -> bool:
    """Whether the conditions of Proposition 3 do."""
    return all(
        row["beta"] > row["least_beta"] and row["first"] <= row["most_alpha"] * (1 + 1e-12)
        for row in rows
    )


class Trend(NamedTuple):
    """Where J / Var f goes with the degree k: at the highest, what a line of log J in √k through
    the degrees up to half of that predicts for it, and the slopes of such lines through the lower
    half and through the upper."""

    last: float
    predicted: float
    lower: float
    upper: float

    @property
    def to_zero(self) -> bool:
        """A limit above zero would make the upper slope flatter, and J larger than predicted."""
        return self.upper < 0.8 * self.lower < 0 and self.last < 2 * self.predicted


def trend(rows: list[Row]) -> Trend:
    sizes = np.array([row["size"] for row in rows])
    roots, logs = np.sqrt(sizes), np.log([row["left"] for row in rows])
    half = sizes <= sizes[-1] / 2
    lower = half & (sizes >= sizes[-1] / 16)
    line, after = (np.polyfit(roots[part], logs[part], 1) for part in (lower, ~half))
    predicted = float(np.exp(np.polyval(line, roots[-1])))
    return Trend(float(np.exp(logs[-1])), predicted, float(line[0]), float(after[0]))


def section(rows: list[Row]) -> str:
    table, bounds = [], []
    for target in distinct(rows, "target"):
        here = select(rows, target=target)
        degrees = select(here, over="degree")
        listed = ", ".join(
            f"{row['size']}: {row['left']:.0e}" for row in degrees if row["size"] in SHOWN
        )
        found = trend(degrees)
        centres = select(here, over="centres")
        reach = ", ".join(f"{row['size']}: {row['left']:.0e}" for row in centres)
        slopes = f"{found.lower:.2f}, {found.upper:.2f}"
        table.append([target, "degree", listed, f"{found.predicted:.0e}", slopes])
        table.append([target, "centres of a kernel", reach, "", ""])
        for row in select(here, over="bound"):
            bounds.append([target, row["size"], f"{row['left']:.2g}", f"{row['bound']:.2g}"])
    errors = [
        [target, over, ", ".join(f"{row['size']}: {row['error']:.0e}" for row in part)]
        for target in distinct(rows, "target")
        for over in ("degree, fitted", "centres")
        if (part := select(rows, target=target, over=over))
    ]
    steps = []
    for rate in distinct(rows, "rate"):
        here = select(rows, rate=rate)
        shifted, plain, early = slope(here), slope(here, shifted=False), slope(here, after=1)
        first = here[0]
        values = f"β = {first['beta']:.3g}, γ = {first['gamma']:.0f}, α₁ = {first['first']:.2g}"
        steps.append(
            [
                rate,
                values if rate != "constant" else f"α = {first['first']:.2g}",
                f"{shifted[0]:.3f} ± {shifted[1]:.3f}",
                f"{plain[0]:.3f}",
                f"{early[0]:.3f}",
            ]
        )
    first = select(rows, over="steps")[0]
    return "\n".join(
        [
            "Propositions 1 and 2: f = exp(sin 2x), bounded, under densities with Gaussian tails. "
            "What the best member of a family leaves of the variance of f, by its size; what a "
            "line of log J in √k through the degrees k up to half of the highest predicts for the "
            "highest; and the slopes of such lines, through the lower half and the upper. J goes "
            "to zero like e^{−c√k} or faster: a limit above zero would make the second flatter. "
            "That law was chosen after a look at the curves; a line in k predicts too little:\n",
            markdown(["Π", "size", "J / Var f", "predicted for the last", "slopes"], table),
            "The bound of the proofs, J(v) ≤ ‖L‖² ‖u − v‖² with ‖L‖ as Proposition 2 bounds it, "
            "for the polynomial v of each degree that is closest to the solution u in W^{1,4}, "
            "over the variance of f. It holds, is ten times J and more, and falls with J. For the "
            "v that minimise J it is of no use: their fourth moments grow with the degree without "
            "end, and the bound with them:\n",
            markdown(["Π", "degree", "J(v) / Var f", "bound / Var f"], bounds),
            "What 500 draws that fit and 500 others make of it, mean absolute errors by size: they "
            "turn up again, because 500 draws do not determine a large family, which extrapolates "
            "to draws in the tails without a penalty:\n",
            markdown(["Π", "size", "mean absolute error"], errors),
            "Proposition 3: a quadratic for Σ sin x_i in d = 2 by plain steps on batches of 8, "
            f"{_RUNS} runs. Its conditions are β > {first['least_beta']:.3g} and α₁ ≤ "
            f"{first['most_alpha']:.2g} here; *inside* has β twice as large and the least γ with "
            "that. Slopes of the logarithm of the excess of the objective from 10 γ steps on, "
            "which was set after a look at the curves; from γ steps on the start is still being "
            "forgotten, faster than 1/t, as the bound allows:\n",
            markdown(["rate", "", "against γ + t", "against t", "γ + t, from γ on"], steps),
        ]
    )


def figure(rows: list[Row], path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
    for k, target in enumerate(distinct(rows, "target")):
        here = select(rows, target=target)
        degrees, bounds = select(here, over="degree"), select(here, over="bound")
        sizes = np.array([row["size"] for row in degrees])
        panels[0].plot(sizes, [row["left"] for row in degrees], color=f"C{k}", label=f"J, {target}")
        found, ahead = trend(degrees), sizes[len(sizes) // 2 :]
        line = found.predicted * np.exp(found.lower * (np.sqrt(ahead) - np.sqrt(sizes[-1])))
        panels[0].plot(ahead, line, ":", color=f"C{k}")
        panels[0].plot(
            [row["size"] for row in bounds],
            [row["bound"] for row in bounds],
            "s--",
            ms=4,
            color=f"C{k}",
            label=f"bound, {target}",
        )
        centres = select(here, over="centres")
        places = [row["size"] for row in centres]
        panels[1].plot(
            places,
            [row["left"] for row in centres],
            "o-",
            color=f"C{k}",
            label=f"J / Var f, {target}",
        )
        panels[1].plot(
            places,
            [row["error"] for row in centres],
            "s--",
            color=f"C{k}",
            label=f"error, {target}",
        )
    panels[0].set(yscale="log", xlabel="degree", ylabel="share of Var f", title="polynomial")
    panels[1].set(yscale="log", xlabel="centres", title="kernel")
    for rate in distinct(rows, "rate"):
        here = select(rows, rate=rate)
        places = [row["size"] + row["gamma"] for row in here]
        label = f"{rate}: slope {slope(here)[0]:.2f}"
        panels[2].plot(places, [row["excess"] for row in here], "o-", ms=3.5, label=label)
    panels[2].set(xscale="log", yscale="log", xlabel="γ + t", ylabel="excess of J", title="steps")
    for axes in panels:
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7.5)
    figure.savefig(path, dpi=150)
    plt.close(figure)
