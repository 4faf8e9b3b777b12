"""Bayesian logistic regression: predictive probabilities of held-out points, Sonar (d = 61) and
Madelon (d = 500).

Draws are NumPyro's, by NUTS, and so are the scores: it keeps the gradient of its last step. As in
the paper, all m = n draws fit and the answer is the fitted constant. Sonar: predictors scaled to sd
½, coefficients N(0, 5²), intercept N(0, 20²). The paper names no prior for Madelon: here
standardised features and coefficients N(0, 1).
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import zerovar as zv
from zerovar.families import LinearFamily
from zerovar.kernels import median_heuristic

from . import depths
from .harness import (
    Job,
    MissingData,
    Row,
    Size,
    automatic,
    compared,
    constants,
    in_parallel,
)
from .logistic_tables import CHAINS, LENGTH, POINTS, SIZES
from .logistic_tables import figure as figure
from .logistic_tables import section as section
from .networks import PROGRAM, network_rows
from .protocol import Problem, rows_of
from .references import truths

NAME = "logistic"
TITLE = "Bayesian logistic regression: Sonar and Madelon (Figure 4 and its supplement)"
VERSIONS = {"ours": 2, "paper": 1, "program": 1, "quadratic": 1, "depth": 1}

SETS = ("sonar", "madelon")
_LARGE = 3000  # draws, of few chains
_SEVERAL = 10  # repetitions of what takes long
RIDGES = tuple(10.0 ** np.arange(-10, 2))
_HELD_OUT = len(POINTS)


def jobs(size: Size) -> list[Job]:
    sets, sizes = (SETS[:1], [300]) if size.quick else (SETS, list(SIZES))
    runs = [("ours", name, sizes, size.repetitions) for name in sets]
    if size.quick:
        runs += [(part, "sonar", [100], 1) for part in ("paper", "program")]
    else:  # what takes longest first
        runs = [("ours", name, [_LARGE], size.at_most(_SEVERAL)) for name in sets] + runs
        runs += [("paper", name, [m], size.repetitions) for m in (300, 1000) for name in sets]
        runs += [("paper", name, [_LARGE], size.at_most(_SEVERAL)) for name in sets]
        for m in (300, 1000):
            runs += [("program", "sonar", [m], size.repetitions)]
            runs += [("program", "madelon", [m], size.at_most(_SEVERAL))]
        runs += [("quadratic", "madelon", [300], size.at_most(_SEVERAL))]
        runs += [("depth", "sonar", [1000], size.at_most(_SEVERAL))]
        runs += [("depth", "madelon", [1000], size.at_most(_SEVERAL))]
    return [
        {"part": part, "set": name, "repetition": r, "sizes": some, **size.marks}
        for part, name, some, count in runs
        for r in range(count)
    ]


class Regression(NamedTuple):
    """Features (rows, d), labels 0 or 1 (rows,), prior sds of the coefficients (d,), features of
    the held-out points."""

    features: np.ndarray
    labels: np.ndarray
    scale: np.ndarray
    held_out: np.ndarray

    def sample(self, draws: int, seed: int, warm_up: int = 300) -> tuple[np.ndarray, np.ndarray]:
        """Draws and scores, (draws, d), by NumPyro's NUTS."""
        import numpyro
        from numpyro.distributions import Bernoulli, Normal
        from numpyro.infer import MCMC, NUTS

        def model():
            coefficients = numpyro.sample(
                "coefficients", Normal(np.zeros(len(self.scale)), self.scale).to_event(1)
            )
            numpyro.sample(
                "labels", Bernoulli(logits=self.features @ coefficients), obs=self.labels
            )

        # A dense mass matrix from the Laplace approximation: trajectories of 7 or 15 steps where
        # the default needs 127
        kernel = NUTS(
            model, dense_mass=True, inverse_mass_matrix=self.laplace(), adapt_mass_matrix=False
        )
        with jax.enable_x64(True):
            run = MCMC(kernel, num_warmup=warm_up, num_samples=draws, progress_bar=False)
            run.run(jax.random.key(seed), extra_fields=("z_grad",))
            x, gradient = (
                run.get_samples()["coefficients"],
                run.get_extra_fields()["z_grad"]["coefficients"],
            )
            return np.asarray(x), -np.asarray(gradient)

    def laplace(self) -> np.ndarray:
        """The covariance (d, d) of the Gaussian at the mode, by Newton's method."""
        x = np.zeros(len(self.scale))
        for _ in range(20):
            p = 1 / (1 + np.exp(-self.features @ x))
            gradient = self.features.T @ (self.labels - p) - x / self.scale**2
            hessian = (self.features.T * (p * (1 - p))) @ self.features + np.diag(1 / self.scale**2)
            x = x + np.linalg.solve(hessian, gradient)
        return np.linalg.inv(hessian)

    def probabilities(self, x: np.ndarray) -> dict[str, np.ndarray]:
        """Of label 1, for each held-out point: POINTS → (…,) at coefficients (…, d)."""
        return dict(
            zip(POINTS, np.moveaxis(1 / (1 + np.exp(-x @ self.held_out.T)), -1, 0), strict=True)
        )


def load(name: str, data: Path | None) -> Regression:
    files = {"sonar": ["sonar.csv"], "madelon": ["madelon_train.csv.gz", "madelon_valid.csv.gz"]}[
        name
    ]
    if data is None or not all((data / file).exists() for file in files):
        raise MissingData(
            f"logistic needs --data DIR with {' and '.join(files)}: comma-separated with a header, "
            "from the UCI repository (Connectionist Bench: 60 features, then the label M or R; "
            "Madelon: the label ±1, then 500 features)"
        )
    if name == "madelon":
        train, valid = (np.genfromtxt(data / file, delimiter=",", skip_header=1) for file in files)
        centre, spread = train[:, 1:].mean(axis=0), train[:, 1:].std(axis=0)
        return Regression(
            (train[:, 1:] - centre) / spread,
            (train[:, 0] > 0).astype(float),
            np.ones(train.shape[1] - 1),
            (valid[:_HELD_OUT, 1:] - centre) / spread,
        )
    table = np.genfromtxt(data / files[0], delimiter=",", skip_header=1, dtype=str)
    table = table[np.random.default_rng(0).permutation(len(table))]  # rocks come first in the file
    features = table[:, :-1].astype(float)
    features = 0.5 * (features - features.mean(axis=0)) / features.std(axis=0)
    features = np.concatenate([np.ones((len(features), 1)), features], axis=1)
    labels = (np.char.strip(table[:, -1], '"') == "M").astype(float)
    scale = np.concatenate([[20.0], np.full(features.shape[1] - 1, 5.0)])
    return Regression(features[_HELD_OUT:], labels[_HELD_OUT:], scale, features[:_HELD_OUT])


def reference(
    data: Path | None, workers: int | None = None
) -> dict[str, dict[str, tuple[float, float]]]:
    """Means over 16 chains of 2000 draws, with the largest control variates that so many draws
    determine."""
    found = {}
    for name in SETS:
        parts = [
            part
            for _, part in in_parallel(
                _long_chain, [(name, data, seed) for seed in range(CHAINS)], workers
            )
        ]
        x, scores = (np.stack(arrays) for arrays in zip(*parts, strict=True))
        family = (
            zv.Polynomial(2)
            if name == "sonar"
            else zv.Polynomial(1) + zv.RidgeFunctions(zv.Polynomial(4))
        )
        answer = zv.estimate(x, scores, load(name, data).probabilities(x), family=family)
        found[f"{NAME}/{name}"] = {
            p: (float(v), float(e))
            for p, v, e in zip(POINTS, answer.value, answer.std_error, strict=True)
        }
    return found


def _long_chain(job: tuple[str, Path | None, int]) -> tuple[np.ndarray, np.ndarray]:
    name, data, seed = job
    return load(name, data).sample(LENGTH, 1000 + seed)


# ---- The study


def run(job: Job, data: Path | None) -> list[Row]:
    regression, truth = load(job["set"], data), truths(f"logistic/{job['set']}", POINTS)
    x, scores = regression.sample(max(job["sizes"]), job["repetition"])
    quick = job.get("quick", False)
    rows: list[Row] = []
    for m in job["sizes"]:
        values = regression.probabilities(x[:m])
        if job["part"] in _TRAINED:
            rows += _TRAINED[job["part"]](x[:m], scores[:m], values, truth, m, quick)
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", zv.ZerovarWarning)
            rows += _fits(zv.Sample(x[:m], scores[:m]), values, truth, m, quick)
        rows += compared(
            {"automatic": {"family": automatic(quick)}}, x[:m], scores[:m], values, truth, m=m
        )
    return rows


def _paper(
    x: np.ndarray,
    scores: np.ndarray,
    values: dict[str, np.ndarray],
    truth: np.ndarray,
    m: int,
    quick: bool,
) -> list[Row]:
    """The recipe of the paper: all draws fit, 25 epochs; one set of hyper-parameters for all
    points."""
    array, wide = np.stack(list(values.values()), axis=1), x.shape[1] > 100
    problem = Problem.of(x, scores, array)
    kinds = (
        ("polynomial",)
        if quick
        else ("polynomial", "kernel", "polynomial + kernel", "polynomial + two kernels")
    )
    rows = constants("MC", POINTS, array.mean(axis=0), truth, 0.0, m=m)
    rows += rows_of(
        problem, POINTS, truth, kinds, lambda kind: (25,), shared=True, degree=1 if wide else 2, m=m
    )
    if wide and not quick:  # 125 750 terms: the solve of the dual, its ridge by leave-one-out
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", zv.ZerovarWarning)
            sample, quadratic = zv.Sample(x, scores), zv.Polynomial(2)
            objective = zv.tune(quadratic, sample, array, ridges=RIDGES).objective
            started = time.perf_counter()
            found = zv.fit(quadratic, sample, array, objective, zv.Exact()).intercept
        rows += constants(
            "quadratic, exact by the dual", POINTS, found, truth, time.perf_counter() - started, m=m
        )
    return (
        rows
        if quick
        else rows + network_rows(problem, POINTS, truth, zv.MLP(20, 6, jax.nn.relu), m=m)
    )


def _quadratic(
    x: np.ndarray,
    scores: np.ndarray,
    values: dict[str, np.ndarray],
    truth: np.ndarray,
    m: int,
    quick: bool,
) -> list[Row]:
    """All 125 750 quadratic terms on Madelon by the paper's steps, and by the exact solve."""
    array = np.stack(list(values.values()), axis=1)
    rows = rows_of(
        Problem.of(x, scores, array),
        *(POINTS, truth, ("polynomial",), lambda kind: (25,)),
        shared=True,
        m=m,
    )
    for row in rows:
        row["method"] = row["method"].replace("polynomial", "quadratic")
    return constants("MC", POINTS, array.mean(axis=0), truth, 0.0, m=m) + rows


def _program(
    x: np.ndarray,
    scores: np.ndarray,
    values: dict[str, np.ndarray],
    truth: np.ndarray,
    m: int,
    quick: bool,
) -> list[Row]:
    """Networks as the authors' program trains them."""
    array = np.stack(list(values.values()), axis=1)
    architecture, epochs = zv.MLP(20, 2 if quick else 6, jax.nn.relu), 2 if quick else 25
    problem = Problem.of(x, scores, array)
    rows = network_rows(problem, POINTS, truth, architecture, epochs, training=PROGRAM, m=m)
    return constants("MC", POINTS, array.mean(axis=0), truth, 0.0, m=m) + rows


def _depth(
    x: np.ndarray,
    scores: np.ndarray,
    values: dict[str, np.ndarray],
    truth: np.ndarray,
    m: int,
    quick: bool,
) -> list[Row]:
    """Networks of more layers."""
    problem = Problem.of(x, scores, np.stack(list(values.values()), axis=1))
    return depths.rows_of(problem, POINTS, truth, m)


_TRAINED = {"paper": _paper, "program": _program, "quadratic": _quadratic, "depth": _depth}


def _fits(
    sample: zv.Sample, values: dict[str, np.ndarray], truth: np.ndarray, m: int, quick: bool
) -> list[Row]:
    array = np.stack(list(values.values()), axis=1)
    rows: list[Row] = []
    for label, family in _families(sample.draws).items():
        if quick and label not in ("polynomial", "kernel"):
            continue
        # Ridges by leave-one-out; not timed, as in the paper
        objective = (
            zv.tune(family, sample, array, ridges=RIDGES).objective
            if isinstance(family, LinearFamily)
            else None
        )
        for solver in ("exact", "SGD") if objective is not None else ("SGD",):
            started = time.perf_counter()
            solver_ = zv.Exact() if solver == "exact" else zv.SGD(8, 25, progress=False)
            found = zv.fit(family, sample, array, objective, solver_).intercept
            rows += constants(
                f"{label}, {solver}", values, found, truth, time.perf_counter() - started, m=m
            )
    return rows


def _families(x: np.ndarray) -> dict[str, Any]:
    d = x.shape[1]
    # A degree of 2 in d = 500 has 125 750 terms: nothing for steps on batches of 8
    polynomial = zv.Polynomial(2 if d < 100 else 1)
    scale = median_heuristic(x / x.std(axis=0))
    one, two = (
        zv.Kernel(zv.kernels.Decaying(0.1 / d, factor * scale)) for factor in (1.0, np.sqrt(2.0))
    )
    return {
        "polynomial": polynomial,
        "kernel": one,
        "polynomial + kernel": polynomial + one,
        "polynomial + two kernels": polynomial + one + two,
        "network": zv.Network(zv.MLP(20, 6), probes=0 if d < 100 else 2),
    }
