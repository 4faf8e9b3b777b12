"""tune(): the hyper-parameters of a linear family, and its ridge, chosen from the draws.

Criteria are functions of one matrix, A = K + noise, with derivatives in closed form (`criteria.py`). What remains, dA in the
hyper-parameters, is the compiled derivative of the Gram. So all hyper-parameters descend at once for the price of a few
factorisations.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float64

from .criteria import Criterion, CrossValidation, Differentiable, LeaveOneOut, MarginalLikelihood, Square, SteinGp, Values
from .errors import NumericalError
from .families import Family, Kernel, LinearFamily, Stretched, Sum
from .families.base import hyper_parameters, last_name, with_hyper_parameters
from .fitting import fit_rows
from .integrands import as_values
from .objectives import LeastSquares, Ridge
from .sample import Sample, Standardisation
from .solvers import Exact
from .solvers.blocks import feature_matrix, gram_matrix, gram_slopes
from .solvers.threads import one_thread
from .splits import cross_fit

Matrix = Float64[np.ndarray, "m d"]

RIDGES = tuple(10.0 ** np.arange(-14, 1))  # relative to the mean diagonal of the Gram
_EPS = np.finfo(np.float64).eps
_FARTHEST = np.log(30.0)  # how far a scale may move from where it starts
_FARTHEST_WEIGHT = 25.0
_SMALL = 700
_FIRST_RIDGES = (1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 1.0)
_LEAST_RIDGE, _MOST_RIDGE = np.log(1e-15), np.log(10.0)
_SETTLED = 1e-5  # change of the loss, a logarithm, at which a descent stops
_FAILED = 1e10  # the loss of a Gram that cannot be factorised; the line search then turns back


@dataclasses.dataclass(frozen=True)
class Tuned:
    """What was chosen: `family, objective = tune(…)`. `loss` is the criterion there, `evaluations` how often it was computed.

    Losses are logarithms of mean squares (of marginal likelihoods, per draw): lower is better, by any criterion.
    """

    family: LinearFamily
    objective: LeastSquares
    loss: float
    evaluations: int

    def __iter__(self) -> Iterator[Any]:
        return iter((self.family, self.objective))


def tune(
    family: Family,
    sample: Sample,
    values: Any,
    *,
    criterion: Criterion | None = None,
    grid: Sequence[Family] | None = None,
    ridges: Sequence[float] | None = None,
    shared: bool = True,
    draws: int = 400,
    evaluations: int = 60,
    standardise: bool = True,
) -> Tuned | list[Tuned]:
    """Choose the hyper-parameters of a linear family, and its ridge: kernel scales, weights of parts and of degrees.

    By default all of them descend together on the `criterion`, `LeaveOneOut()` or `MarginalLikelihood()`, in at most about
    `evaluations` steps from where `family` has them. With a `grid` of families, each is judged instead at every one of
    `ridges` (relative to the mean diagonal of its Gram), by `LeaveOneOut()` from one eigendecomposition, or by
    `CrossValidation(k)` over blocks within chains.
    `draws` bounds the work: that many are taken, equally spaced within chains. `shared=False` tunes for each integrand by
    itself and returns a list. Families with unpenalised terms (infinite weights) keep those as they are.
    """
    criterion = LeaveOneOut() if criterion is None else criterion
    _check_choices(family, sample, criterion, grid, ridges, draws)
    array = as_values(values, sample)[0]
    whole, size = sample, len(sample)
    sample, rows = sample.thinned(draws)
    array = array[rows]
    if not np.ptp(array, axis=0).any():
        raise ValueError(f"all integrands are constant on the {len(rows)} draws to tune on: there is nothing to tune for")
    columns = [np.arange(array.shape[1])] if shared else [np.array([j]) for j in range(array.shape[1])]
    if grid is not None or ridges is not None:
        judged = [
            _judge(candidate, sample, array, criterion, RIDGES if ridges is None else ridges, standardise)
            for candidate in ((family,) if grid is None else grid)
        ]
        found = [_best_on_grid(judged, column, size) for column in columns]
    else:
        assert isinstance(criterion, Differentiable)
        descent = Descent.on(family, sample, array, whole if standardise else None)
        start, used = None, 0
        if not shared and array.shape[1] > 1:  # from what suits all, each goes on by itself
            start, _, used = descent.run(np.arange(array.shape[1]), criterion, evaluations)
        found = [descent.tuned(descent.run(column, criterion, evaluations, start), size, used) for column in columns]
    return found[0] if shared else found


class Ending(NamedTuple):
    """Where a descent stopped: the log of the relative ridge and of all hyper-parameters, flat."""

    position: Float64[np.ndarray, " h"]
    loss: float
    evaluations: int


@dataclasses.dataclass(frozen=True, eq=False)
class Descent:
    """A family on standardised draws, ready to be tuned for some or all of the integrands."""

    family: LinearFamily
    x: Matrix
    s: Matrix
    probabilities: Float64[np.ndarray, " m"]
    values: Values
    border: Float64[np.ndarray, "m b"]
    draws: int  # before equal ones were merged

    @staticmethod
    def on(family: Family, sample: Sample, values: Values, standardise: Sample | None) -> Descent:
        """`standardise` is the sample whose mean and covariance the fit will use, of which `sample` may be a part."""
        rows, merged, _ = sample.rows().merged(values)
        family.check(sample.dim)
        standardisation = Standardisation.identity(sample.dim)
        if standardise is not None:
            standardisation = Standardisation.of(standardise.rows(), mixing=not family.keeps_axes)
        x, s = standardisation(rows.draws, rows.scores)
        family = family.resolve(x, merged)
        if not isinstance(family, LinearFamily) or family.split()[0] is None:
            raise ValueError(f"{family.describe()} has nothing to tune: no penalised terms that are linear in their parameters")
        free = family.split()[1]
        border = np.ones((1, len(x))) if free is None else np.concatenate([np.ones((1, len(x))), feature_matrix(free, x, s)])
        centred = merged - rows.probabilities @ merged
        spread = np.sqrt(rows.probabilities @ centred**2)
        scaled = centred / np.where(spread > 0, spread, 1.0)
        return Descent(family, x, s, rows.probabilities, scaled, border.T, len(sample))

    def run(self, columns: np.ndarray, criterion: Differentiable, evaluations: int, start: np.ndarray | None = None) -> Ending:
        """Minimise the mean criterion over these integrands, from `start` or from the family as it is."""
        from scipy.optimize import minimize

        columns = columns[np.ptp(self.values[:, columns], axis=0) > 0]
        flat, farthest = self._flat()
        origin = np.concatenate([[np.log(1e-8)], flat])
        limits = np.concatenate([[0.0], farthest])
        low, high = origin - limits, origin + limits
        low[0], high[0] = _LEAST_RIDGE, _MOST_RIDGE
        position = np.clip(origin if start is None else start, low, high)
        if not len(columns):
            return Ending(position, 0.0, 0)
        values = self.values[:, columns]
        best = [np.inf, position]

        def loss(position: np.ndarray) -> tuple[float, np.ndarray]:
            value, slope = self._measure(position, values, criterion)
            if value < best[0]:
                best[:] = value, position.copy()
            return value, slope

        options = {"maxiter": evaluations, "maxfun": evaluations, "ftol": _SETTLED}
        # BLAS and XLA take turns, and idle threads of one get in the way of the other: on small matrices one is twice as fast
        with one_thread() if len(self.x) <= _SMALL else nullcontext():
            if start is None:
                position[0] = np.log(self._first_ridge(position, values, criterion))
            done = minimize(
                loss, position, jac=True, method="L-BFGS-B", bounds=list(zip(low, high, strict=True)), options=options
            )
        if not best[0] < _FAILED:
            raise NumericalError(
                f"{self.family.describe()}: the Gram matrix could not be factorised at any hyper-parameters tried"
            )
        return Ending(best[1], float(best[0]), int(done.nfev) + (len(_FIRST_RIDGES) if start is None else 0))

    def tuned(self, end: Ending, size: int, used: int = 0) -> Tuned:
        """The family and objective of a descent, for `size` draws in place of those it was tuned on."""
        family = self._at(end.position[1:])
        penalised = _penalised(family)
        level = float(np.exp(end.position[0])) + _floor(size)
        strength = level * _mean_diagonal(penalised, self.x, self.s) / size
        return Tuned(family, LeastSquares(Ridge(strength)), end.loss, used + end.evaluations)

    def _first_ridge(self, position: np.ndarray, values: Values, criterion: Differentiable) -> float:
        """The best of a few: a family that interpolates does not feel a small ridge, so that no descent would leave it."""
        gram = gram_matrix(_penalised(self._at(position[1:])), self.x, self.s)
        losses = [self._judged(gram.copy(), ridge, values, criterion)[0] for ridge in _FIRST_RIDGES]
        return _FIRST_RIDGES[int(np.argmin(losses))]

    def _measure(self, position: np.ndarray, values: Values, criterion: Differentiable) -> tuple[float, np.ndarray]:
        family, ridge = self._at(position[1:]), float(np.exp(position[0]))
        penalised = _penalised(family)
        gram = gram_matrix(penalised, self.x, self.s)
        level = gram.diagonal().mean()
        loss, slope = self._judged(gram, ridge, values, criterion)
        if slope is None:
            return loss, np.zeros_like(position)
        through = float(slope.diagonal() @ self._noise_shape)
        slope[np.diag_indices_from(slope)] += through * (ridge + _floor(self.draws)) / len(slope)
        leaves = gram_slopes(penalised, self.x, self.s, slope)
        return loss, np.concatenate([[through * ridge * level], self._gathered(family, penalised, leaves) @ self._gauge])

    def _judged(self, gram: Square, ridge: float, values: Values, criterion: Differentiable) -> tuple[float, Square | None]:
        """The loss and its derivative in A, in the memory of the Gram; None where A cannot be factorised."""
        noise = (ridge + _floor(self.draws)) * gram.diagonal().mean() * self._noise_shape
        gp = SteinGp.of(gram, noise, self.border, values)
        if gp is None:
            return _FAILED, None
        loss, slope = criterion.measure(gp, self.probabilities)
        return (loss, slope) if np.isfinite(loss) else (_FAILED, None)

    @property
    def _noise_shape(self) -> Float64[np.ndarray, " m"]:
        """The noise of each draw, times its level, the ridge relative to the Gram's mean diagonal.

        That is constant in the number of draws, as the noise of a GP is: what is found on a few hundred then serves all.
        """
        return 1 / (self.draws * self.probabilities)

    def _flat(self) -> tuple[np.ndarray, np.ndarray]:
        """The family's own position, and how far each entry may move."""
        paths = jax.tree_util.tree_flatten_with_path(self.family)[0]
        logarithms = hyper_parameters(self.family)
        weights = [np.full(np.size(log), last_name(path) == "weight") for (path, _), log in zip(paths, logarithms, strict=True)]
        is_weight = np.concatenate(weights)
        limits = np.where(is_weight, _FARTHEST_WEIGHT, _FARTHEST)
        if is_weight.any():  # only ratios matter: the ridge is relative, so one weight is held
            limits[np.flatnonzero(is_weight)[-1]] = 0.0
        flat = np.concatenate([np.ravel(log) for log in logarithms])
        return np.linalg.solve(self._gauge, flat), limits

    @functools.cached_property
    def _gauge(self) -> Float64[np.ndarray, "h h"]:
        """From positions to logarithms: a kernel's weight is held against its size, which falls like ℓ^(−2 order) as the scale
        grows, so that a change of scale alone leaves the part's variance about where it was."""
        matrix, row = np.eye(sum(np.size(leaf) for leaf in jax.tree.leaves(self.family))), 0
        for part in _atoms(self.family):
            sizes = [np.size(leaf) for leaf in jax.tree.leaves(part)]
            if isinstance(part, Kernel):  # its leaves are those of the base kernel, then its weight
                scales = [
                    row + k
                    for k, (path, _) in enumerate(jax.tree_util.tree_flatten_with_path(part)[0])
                    if last_name(path) == "length_scale"
                ]
                matrix[row + len(sizes) - 1, scales] = 2.0 * part.order / max(len(scales), 1)
            row += sum(sizes)
        return matrix

    def _at(self, position: np.ndarray) -> LinearFamily:
        flat, leaves, start = self._gauge @ position, [], 0
        for leaf in jax.tree.leaves(self.family):
            leaves.append(flat[start : start + np.size(leaf)].reshape(np.shape(leaf)))
            start += np.size(leaf)
        return with_hyper_parameters(self.family, leaves)

    @staticmethod
    def _gathered(family: LinearFamily, penalised: LinearFamily, slopes: list[Any]) -> np.ndarray:
        """Slopes in the logarithms of all of the family's hyper-parameters, from those in the penalised part's leaves."""
        given = iter(zip(jax.tree.leaves(penalised), slopes, strict=True))
        out = []
        for part in _atoms(family):
            leaves = jax.tree.leaves(part)
            if isinstance(part, LinearFamily) and part.split()[0] is None:  # free terms: their scale means nothing
                out += [np.zeros(np.size(leaf)) for leaf in leaves]
            else:
                out += [np.ravel(np.asarray(leaf) * np.asarray(slope)) for leaf, slope in (next(given) for _ in leaves)]
        return np.concatenate(out)


def _atoms(family: LinearFamily) -> list[Any]:
    """The families that this one is made of, and arrays of its own, in the order of its leaves; whole what is free."""

    def is_atom(node: Any) -> bool:
        return isinstance(node, LinearFamily) and (not isinstance(node, (Sum, Stretched)) or node.split()[0] is None)

    return jax.tree.leaves(family, is_leaf=is_atom)


def _floor(draws: int) -> float:
    """The rounding error of a Gram, relative to its mean diagonal: no ridge below it means anything."""
    return 10 * draws * _EPS


def _penalised(family: LinearFamily) -> LinearFamily:
    penalised = family.split()[0]
    assert penalised is not None
    return penalised


def _mean_diagonal(family: LinearFamily, x: Matrix, s: Matrix) -> float:
    return float(gram_matrix(family, x, s).diagonal().mean())


class _Judged(NamedTuple):
    """A candidate of a grid: mean squared residuals (ridges, q) at each strength, for all the draws it was judged on."""

    family: LinearFamily
    strengths: Float64[np.ndarray, " r"]
    squares: Float64[np.ndarray, "r q"]
    draws: int


def _judge(family: Family, sample: Sample, values: Values, criterion: Criterion, ridges, standardise: bool) -> _Judged:
    none = LeastSquares(Ridge(0.0))
    start = Descent.on(family, sample, values, sample if standardise else None)
    resolved = start.family
    level = _mean_diagonal(_penalised(resolved), start.x, start.s)
    strengths = np.asarray(ridges, dtype=float) * level / len(sample)
    squares = np.empty((len(strengths), values.shape[1]))
    if isinstance(criterion, LeaveOneOut):
        fitted = fit_rows(family, sample.rows(), values, none, Exact(spectral=True), standardise, sample=sample)
        for i, strength in enumerate(strengths):
            squares[i] = sample.probabilities @ fitted.refit(ridge=strength).leave_out() ** 2
        return _Judged(resolved, strengths, squares, len(sample))
    assert isinstance(criterion, CrossValidation)
    residuals = np.empty((len(strengths), *values.shape))
    for fitting, held in cross_fit(criterion.k).folds(sample):
        weights = None if sample.weights is None else np.log(sample.weights[fitting])
        part = Sample(sample.draws[fitting], sample.scores[fitting], weights)
        work = fit_rows(family, part.rows(), values[fitting], none, Exact(spectral=True), standardise, sample=part)
        for i, strength in enumerate(strengths):
            again = work.refit(ridge=strength)
            residuals[i, held] = values[held] - again.intercept - again.at(sample.draws[held], sample.scores[held])
    squares[:] = np.einsum("n,rnq->rq", sample.probabilities, residuals**2)
    return _Judged(resolved, strengths, squares, len(sample))


def _best_on_grid(judged: Sequence[_Judged], columns: np.ndarray, size: int) -> Tuned:
    tiny = np.finfo(float).tiny
    losses = [np.log(np.maximum(candidate.squares[:, columns], tiny)).mean(axis=1) for candidate in judged]
    best = min(range(len(judged)), key=lambda k: losses[k].min())
    chosen, ridge = judged[best], int(losses[best].argmin())
    strength = chosen.strengths[ridge] * chosen.draws / size  # the same noise, whatever the number of draws
    evaluations = sum(len(candidate.strengths) for candidate in judged)
    return Tuned(chosen.family, LeastSquares(Ridge(strength)), float(losses[best][ridge]), evaluations)


def _check_choices(family, sample, criterion, grid, ridges, draws) -> None:
    if not isinstance(sample, Sample):
        raise ValueError(f"sample must be a zv.Sample(draws, scores); got {type(sample).__name__}")
    for candidate in (family, *(() if grid is None else grid)):
        if not isinstance(candidate, LinearFamily):
            raise ValueError(
                f"tune takes linear families: polynomials, kernels and sums of these; got {candidate!r}. "
                "Networks train their own parameters, and SGD(hyper=True) trains scales along with them"
            )
    if not isinstance(criterion, Criterion):
        raise ValueError(f"criterion must be LeaveOneOut(), MarginalLikelihood() or CrossValidation(k); got {criterion!r}")
    on_grid = grid is not None or ridges is not None
    if isinstance(criterion, MarginalLikelihood) and on_grid:
        raise ValueError("MarginalLikelihood() is for descent; over a grid use LeaveOneOut() or CrossValidation(k)")
    if isinstance(criterion, CrossValidation) and not on_grid:
        raise ValueError("CrossValidation(k) has no derivative to follow; give a grid of families, or ridges to try")
    if grid is not None and not len(grid):
        raise ValueError("grid is empty: give at least one family")
    if ridges is not None and (not len(ridges) or not all(np.isfinite(r) and r >= 0 for r in ridges)):
        raise ValueError(f"ridges must be numbers ≥ 0, relative to the mean diagonal of the Gram; got {ridges!r}")
    if isinstance(draws, bool) or not isinstance(draws, (int, np.integer)) or draws < 10:
        raise ValueError(f"draws must be an integer of at least 10, the number of draws to tune on; got {draws!r}")
