"""The paper's own recipe, as far as it is printed, and what it leaves open.

Plain mini-batch stochastic gradients on the coefficients themselves: quadratics, the m translates
of the decaying Gaussian kernel, their sums, and a ReLU network; ‖θ‖² or the mean of g² as penalty;
hyper-parameters by 5-fold cross-validation. All of it is in standardised coordinates, and in units
of the standard deviation of each integrand. `choices.py` says what had to be chosen. Nothing here
was tuned towards the printed numbers.
"""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse.linalg import svds

import zerovar as zv
from zerovar.families import LinearFamily
from zerovar.families.base import Translates, join
from zerovar.inputs.points import FittingDraws
from zerovar.kernels import median_heuristic
from zerovar.solvers.algebra.tiles import feature_matrix, gram_matrix

from .harness import Row

BATCH = 8
FOLDS = 5
ALPHAS = tuple(10.0 ** np.arange(6, -3, -1))
LENGTHS = (0.5, 1.0, 2.0, 4.0)  # of the median heuristic
STRENGTHS = tuple(10.0 ** np.arange(-14, 1))
TUNING_DRAWS = 250
_KINDS = {
    "polynomial": (True, 0),
    "kernel": (False, 1),
    "polynomial + kernel": (True, 1),
    "polynomial + two kernels": (True, 2),
}


class Problem(NamedTuple):
    """Standardised draws and scores (n, d) and integrands (n, q), of which the first m fit."""

    x: np.ndarray
    s: np.ndarray
    values: np.ndarray
    m: int

    @classmethod
    def of(cls, x: np.ndarray, s: np.ndarray, values: np.ndarray, m: int | None = None) -> Problem:
        """All draws fit if m is None."""
        m = len(x) if m is None else m
        by = FittingDraws(zv.Sample(x[:m], s[:m]).points()).standardisation()
        return cls(*by(x, s), values.reshape(len(x), -1), m)

    @property
    def fitting(self) -> zv.Sample:
        return zv.Sample(self.x[: self.m], self.s[: self.m])

    def estimates(
        self, fitted: zv.Fitted | None, columns: Sequence[int]
    ) -> list[tuple[float, float | None]]:
        """The mean of f − g over the draws that did not fit, with its error; over all, without one,
        where all fit."""
        if fitted is None:
            return [(float("nan"), None) for _ in columns]
        held = self.m < len(self.x)
        rest = slice(self.m, None) if held else slice(None)
        off = self.values[rest][:, list(columns)] - fitted.at(self.x[rest], self.s[rest])
        errors = off.std(axis=0, ddof=1) / np.sqrt(len(off))
        return [
            (float(value), float(error) if held else None)
            for value, error in zip(off.mean(axis=0), errors, strict=True)
        ]


class Recipe(NamedTuple):
    """A family with features at the fitting draws, and the strength of its ‖θ‖²."""

    family: LinearFamily
    strength: float
    about: dict[str, Any]  # what cross-validation chose


def recipes(
    kind: str,
    problem: Problem,
    epochs: int,
    groups: Sequence[Sequence[int]],
    degree: int = 2,
    tuning: int = TUNING_DRAWS,
) -> list[tuple[Recipe, Recipe]]:
    """For each group of integrands what 5-fold cross-validation on at most `tuning` draws chooses,
    kernels and strength: for so many epochs of plain steps, and for the exact solve."""
    with_polynomial, kernels = _KINDS[kind]
    few = np.linspace(0, problem.m - 1, min(problem.m, tuning)).round().astype(int)
    x, s, f = problem.x[few], problem.s[few], problem.values[few]
    f = (f - f.mean(axis=0)) / f.std(axis=0)
    polynomial = zv.Polynomial(degree) if with_polynomial else None
    fixed = feature_matrix(polynomial, x, s).T if polynomial else np.zeros((len(x), 0))
    scale, grid = float(median_heuristic(x)), [()]
    if kernels == 1:
        grid = [((alpha, length * scale),) for alpha in ALPHAS for length in LENGTHS]
    elif kernels == 2:
        grid = [((alpha, scale), (alpha, np.sqrt(2) * scale)) for alpha in ALPHAS]
    steps = epochs * -(-problem.m // BATCH)
    losses = np.stack(  # (grid, way of fitting, λ, q)
        [
            _losses(fixed, [gram_matrix(_kernel(*k), x, s) for k in point], f, steps)
            for point in grid
        ]
    )

    def best(way: int, group: Sequence[int]) -> Recipe:
        loss = losses[:, way][:, :, list(group)].sum(axis=-1)
        place, strength = np.unravel_index(np.argmin(loss), loss.shape)
        translates = [
            Translates(_kernel(*k), problem.x[: problem.m], problem.s[: problem.m])
            for k in grid[place]
        ]
        family = join((polynomial, *translates))
        assert family is not None
        about: dict[str, Any] = {"strength": float(STRENGTHS[strength])}
        about |= (
            {"alpha": float(grid[place][0][0]), "length": float(grid[place][0][1])}
            if kernels
            else {}
        )
        return Recipe(
            family, float(STRENGTHS[strength] * _largest(_features(family, problem)) ** 2), about
        )

    return [(best(0, group), best(1, group)) for group in groups]


def _kernel(alpha: float, length: float) -> zv.Kernel:
    return zv.Kernel(zv.kernels.Decaying(alpha, length))


def _losses(fixed: np.ndarray, grams: list[np.ndarray], f: np.ndarray, steps: int) -> np.ndarray:
    """Squared errors (2, λ, q) over the folds, for features `fixed` (n, p) and translates at the
    draws that fit: of descent by so many steps, without the noise of batches, and of the exact
    solve."""
    total = np.zeros((2, len(STRENGTHS), f.shape[1]))
    for held in np.array_split(np.arange(len(f)), FOLDS):
        fit = np.setdiff1d(np.arange(len(f)), held)
        design, there = (
            np.hstack([fixed[rows], *(gram[np.ix_(rows, fit)] for gram in grams)])
            for rows in (fit, held)
        )
        centre, mean = design.mean(axis=0), f[fit].mean(axis=0)
        left, size, right = np.linalg.svd(
            (design - centre) / np.sqrt(len(fit)), full_matrices=False
        )
        weights, turned = left.T @ (f[fit] - mean) / np.sqrt(len(fit)), (there - centre) @ right.T
        gone = (
            2 * np.log(2) * steps * first_step(design, 1 + centre @ centre + size[0] ** 2)
        )  # the sum of the rates, times two for the gradient of a square
        for i, strength in enumerate(STRENGTHS):
            curvature = size**2 + strength * size[0] ** 2
            for way, share in enumerate((-np.expm1(-gone * curvature), 1.0)):
                theta = (share * size / curvature)[:, None] * weights
                total[way, i] += np.sum((f[held] - mean - turned @ theta) ** 2, axis=0)
    return total


def first_step(features: np.ndarray, largest: float | None = None) -> float:
    """The largest rate at which the expected error of steps at that rate contracts, for the
    constant and features (m, p).

    `largest` is the largest eigenvalue of their second moment, or a bound of it.
    """
    rows = np.hstack([np.ones((len(features), 1)), features])
    largest = _norm(rows) ** 2 / len(rows) if largest is None else largest
    return float(0.5 / (np.max(np.sum(rows**2, axis=1)) / BATCH + (1 - 1 / BATCH) * largest))


def _features(family: LinearFamily, problem: Problem) -> np.ndarray:
    return feature_matrix(family, problem.x[: problem.m], problem.s[: problem.m]).T


def _largest(features: np.ndarray) -> float:
    """Singular value of the centred features over √m."""
    return _norm(features - features.mean(axis=0)) / np.sqrt(len(features))


def _norm(matrix: np.ndarray) -> float:
    """Its largest singular value."""
    if min(matrix.shape) < 50:
        return float(np.linalg.norm(matrix, 2))
    return float(svds(matrix, 1, v0=np.ones(min(matrix.shape)), return_singular_vectors=False)[0])


def plain(family: LinearFamily, problem: Problem, epochs: int) -> zv.SGD:
    """Steps on plain coefficients, the last of which is taken; the rate falls to half."""
    steps = epochs * -(-problem.m // BATCH)
    return falling(first_step(_features(family, problem)), steps, epochs)


def falling(rate: float, steps: int, epochs: int) -> zv.SGD:
    """Plain steps at a rate that falls to half over so many of them."""
    rate = zv.schedules.InverseTime(rate * steps, float(steps))
    return zv.SGD(
        BATCH,
        epochs,
        learning_rate=rate,
        average=0.0,
        resample=True,
        precondition=False,
        progress=False,
    )


LEAST_SQUARES = {"": zv.LeastSquares}
BOTH = {", J^LS": zv.LeastSquares, ", J^V": zv.Variance}


def rows_of(
    problem: Problem,
    names: Sequence[str],
    truth: Sequence[float],
    kinds: Iterable[str],
    epochs: Callable[[str], Sequence[int]],
    objectives: dict[str, Any] = LEAST_SQUARES,
    shared: bool = False,
    one_run: bool = False,
    degree: int = 2,
    tuning: int = TUNING_DRAWS,
    **more: Any,
) -> list[Row]:
    """Rows of linear families by plain steps, after each number of epochs, and by the exact solve
    of the same family.

    `shared`: one set of hyper-parameters serves all integrands. `one_run`: fewer epochs are the
    beginning of the longest run, instead of a run of their own whose rate falls sooner.
    """
    groups = [list(range(len(names)))] if shared else [[j] for j in range(len(names))]
    rows: list[Row] = []
    for kind in kinds:
        longest = max(epochs(kind))
        for group, (stepped, solved) in zip(
            groups, recipes(kind, problem, longest, groups, degree, tuning), strict=True
        ):
            ways: list[tuple[str, Recipe, Any, Any]] = []
            rate = first_step(_features(stepped.family, problem))
            for count in epochs(kind):
                steps = (longest if one_run else count) * -(-problem.m // BATCH)
                solver = falling(rate, steps, count)
                ways.append((f"{kind}, as in the paper", stepped, solver, {"epochs": count}))
            ways.append((f"{kind}, same family exact", solved, zv.Exact(), {}))
            for label, objective in objectives.items():
                for method, recipe, solver, about in ways:
                    penalised, f = (
                        objective(zv.L2(recipe.strength)),
                        problem.values[: problem.m, group],
                    )
                    work = functools.partial(
                        fit, recipe.family, problem.fitting, f, penalised, solver
                    )
                    fitted, seconds, compiled = timed(
                        (method, label, problem.x.shape, problem.m), work
                    )
                    common = {
                        **more,
                        "method": method + label,
                        "seconds": seconds,
                        "compilation": compiled,
                    }
                    for j, (value, error) in zip(
                        group, problem.estimates(fitted, group), strict=True
                    ):
                        found = {
                            "integrand": names[j],
                            "truth": float(truth[j]),
                            "value": value,
                            "std_error": error,
                        }
                        rows.append({**common, **found, **about, **recipe.about})
    return rows


def fit(
    family: Any, sample: zv.Sample, f: np.ndarray, objective: Any, solver: Any
) -> zv.Fitted | None:
    """None if it diverged."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", zv.ZerovarWarning)
        fitted = zv.fit(family, sample, f, objective, solver, standardise=False, throw=False)
    return None if fitted.result.failed else fitted


_WARM: set[Any] = set()


def timed(program: Any, work: Callable[[], Any]) -> tuple[Any, float, float | None]:
    """What `work` gives, its time without compilation, and the time of compilation where it was the
    first of its program.

    Seconds are the processor's, so that what else the machine does is not in them.
    """
    result, seconds = processor_time(work)
    if program in _WARM:
        return result, seconds, None
    _WARM.add(program)
    _, again = processor_time(work)
    return result, again, max(seconds - again, 0.0)


def processor_time(work: Callable[[], Any]) -> tuple[Any, float]:
    started = time.process_time()
    return work(), time.process_time() - started
