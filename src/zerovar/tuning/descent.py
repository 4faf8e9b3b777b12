"""Descent in all hyper-parameters and the ridge at once.

Criteria are functions of one matrix, A = K + noise, with derivatives in closed form
(`criteria.py`). What remains, dA in the hyper-parameters, is the compiled derivative of the Gram.
So all of them descend together for the price of a few factorisations.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float64

from ..errors import NumericalError
from ..families import Family, LinearFamily, settle
from ..families.settling import check_family
from ..hyper import Kind, declarations, hyper_parameters, may_move, with_hyper_parameters
from ..inputs.points import FittingDraws, Points
from ..objectives import LeastSquares, Ridge
from ..solvers.algebra.threads import limit_threads
from ..solvers.algebra.tiles import feature_matrix, gram_matrix, gram_slopes
from .criteria import Differentiable, MarginalLikelihood, Square, SteinGp, Values

_EPS = np.finfo(np.float64).eps
# Ridges of a grid, relative to the mean diagonal of the Gram, and the range of a descent: from what
# rounding adds anyway to where nothing is fitted
RIDGES = tuple(10.0 ** np.arange(-14, 2))
# Those that a descent begins with the best of, far apart as each costs a factorisation; the last is
# as large as the Gram, which is noise
_FIRST_RIDGES = (1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 1.0)
# How far a scale may move from where it starts, near the spread of the draws: functions that vary
# over a thirtieth of it are noise, and over thirty times as much they are polynomials
_FARTHEST = np.log(30.0)
# How far a weight may move: what is smaller by more is lost to rounding
_FARTHEST_WEIGHT = -np.log(_EPS)
# The first step of a weight's logarithm, where a scale takes 1: between 11 posteriors weights
# differ by 5 and scales by 1
_WEIGHT_STEP = 3.0
# Change of the loss, a logarithm of a variance, at which a descent stops: no smaller one is told
# from the rounding of derivatives
_SETTLED = np.cbrt(_EPS)


@dataclasses.dataclass(frozen=True)
class Tuned:
    """The choice of `family, objective = tune(…)`. `loss` is the criterion there, `evaluations` how
    often it was computed.

    Losses are logarithms of mean squares (of marginal likelihoods, per draw): lower is better. They
    compare within one call.
    """

    family: LinearFamily
    objective: LeastSquares
    loss: float
    evaluations: int

    def __iter__(self) -> Iterator[Any]:
        return iter((self.family, self.objective))


class DescentEnd(NamedTuple):
    """The end of a descent: the logarithms of the relative ridge and of all hyper-parameters."""

    position: Float64[np.ndarray, " h"]
    loss: float
    evaluations: int
    # the loss curves alike along its columns, as far as the descent has felt it
    steps: Float64[np.ndarray, "h h"]


class DescentStart(NamedTuple):
    """The begin of a descent, the integrands that it is for, and the loss of each there with its
    own best ridge."""

    position: Float64[np.ndarray, " h"]
    columns: np.ndarray
    losses: Float64[np.ndarray, " q"]  # infinite for constants


@dataclasses.dataclass(frozen=True, eq=False)
class Descent:
    """A family on standardised draws, ready to be tuned for some or all of the integrands."""

    family: LinearFamily
    points: Points  # distinct
    values: Values  # in units of their standard deviations
    border: Float64[np.ndarray, "m b"]
    num_draws: int  # before equal ones were merged

    @staticmethod
    def on(family: Family, draws: FittingDraws, values: Values, fitted: FittingDraws) -> Descent:
        """Make the descent of a family on `draws`, in the coordinates of a fit to `fitted`, of
        which `draws` may be a part."""
        merged = draws.merge(values)
        points = fitted.standardisation(family.keeps).points(draws.distinct)
        check_family(family, points)
        family = settle(family, points, merged)
        if not isinstance(family, LinearFamily) or family.split()[0] is None:
            raise ValueError(
                f"{family.describe()} has nothing to tune: no penalised terms that are linear in "
                "their parameters"
            )
        free = family.split()[1]
        ones = np.ones((1, len(points)))
        border = (
            ones
            if free is None
            else np.concatenate([ones, feature_matrix(free, points.x, points.s)])
        )
        centred = merged - points.probabilities @ merged
        spread = np.sqrt(points.probabilities @ centred**2)
        scaled = centred / np.where(spread > 0, spread, 1.0)
        return Descent(family, points, scaled, border.T, len(draws))

    def run(
        self,
        columns: np.ndarray,
        criterion: Differentiable,
        evaluations: int,
        start: np.ndarray | None = None,
        steps: np.ndarray | None = None,
    ) -> DescentEnd:
        """Minimise the mean criterion over the integrands `columns`, from `start` or from the
        family as it is.

        `steps` are those of an earlier descent, on other draws: what it has felt of the curvature
        need not be felt again.
        """
        from scipy.optimize import minimize

        columns = columns[np.ptp(self.values[:, columns], axis=0) > 0]
        flat, farthest = self._flat()
        low, high = (
            np.concatenate([[np.log(ridge)], limit])
            for ridge, limit in ((RIDGES[0], flat - farthest), (RIDGES[-1], flat + farthest))
        )
        position = np.clip(np.append(0.0, flat) if start is None else start, low, high)
        if steps is None:
            steps = np.diag(
                np.concatenate([[_WEIGHT_STEP], np.where(self._are_weights, _WEIGHT_STEP, 1.0)])
            )
        if not len(columns):
            return DescentEnd(position, 0.0, 0, steps)
        values = self.values[:, columns]
        best, worst = DescentEnd(position, np.inf, 0, steps), 0.0

        def loss(along: np.ndarray) -> tuple[float, np.ndarray]:
            nonlocal best, worst
            there = position + steps @ along
            inside = np.clip(there, low, high)
            value, slope = self._measure(inside, values, criterion)
            if not np.isfinite(value):  # flat, and no better than the worst: the search turns back
                return worst, np.zeros_like(along)
            worst = value if np.isinf(best.loss) else max(worst, value)
            if value < best.loss:
                best = best._replace(position=inside, loss=float(value))
            outward = ((inside == low) & (slope > 0)) | ((inside == high) & (slope < 0))
            return value, steps.T @ np.where((there == inside) & ~outward, slope, 0.0)

        # it remembers all steps, as long as these take no more room than a few Grams
        remembered = min(evaluations, len(self.points))
        options = {"maxiter": evaluations, "maxfun": evaluations, "maxcor": remembered}
        with limit_threads(len(self.points)):
            if start is None:
                position[0] = np.log(self._first_ridge(position, values, criterion))
            done = minimize(
                loss,
                np.zeros_like(position),
                jac=True,
                method="L-BFGS-B",
                options=options | {"ftol": _SETTLED},
            )
        if np.isinf(best.loss):
            raise NumericalError(
                f"{self.family.describe()}: the Gram matrix could not be factorised at any "
                "hyper-parameters tried"
            )
        used = int(done.nfev) + (len(_FIRST_RIDGES) if start is None else 0)
        return best._replace(evaluations=used, steps=_curve(steps, done.hess_inv.todense()))

    def outcome(self, end: DescentEnd, size: int, used: int = 0) -> Tuned:
        """Return the family and objective at the end of a descent, for `size` draws in place of
        those it was tuned on."""
        family = self._at(end.position[1:])
        level = mean_diagonal(penalised_part(family), self.points)
        strength = (float(np.exp(end.position[0])) + floor(size)) * level / size
        return Tuned(family, LeastSquares(Ridge(strength)), end.loss, used + end.evaluations)

    def likelihood_start(self, start: np.ndarray | None = None) -> DescentStart:
        """Return the begin of a descent on the marginal likelihood: `start` or the family as it is,
        the best of a few ridges, and the integrands of which the family explains something there.

        A likelihood that is best with a ridge as large as the Gram takes an integrand for noise. If
        it does so with all, all are taken.
        """
        flat = self._flat()[0] if start is None else start[1:]
        gram = gram_matrix(penalised_part(self._at(flat)), self.points.x, self.points.s)
        varying = np.flatnonzero(np.ptp(self.values, axis=0) > 0)
        least = np.full(self.values.shape[1], np.inf)
        if not len(varying):
            return DescentStart(np.concatenate([[np.log(_FIRST_RIDGES[0])], flat]), varying, least)
        losses = np.full((len(_FIRST_RIDGES), len(varying)), np.inf)
        with limit_threads(len(self.points)):
            for i, ridge in enumerate(_FIRST_RIDGES):
                gp = SteinGp.of(
                    gram.copy(), self._noise(gram, ridge), self.border, self.values[:, varying]
                )
                if gp is not None:
                    losses[i] = MarginalLikelihood().losses(gp)
        found = losses.argmin(axis=0) < len(_FIRST_RIDGES) - 1
        found = found if found.any() else np.ones_like(found)
        ridge = _FIRST_RIDGES[int(losses[:, found].mean(axis=1).argmin())]
        least[varying] = losses.min(axis=0)
        return DescentStart(np.concatenate([[np.log(ridge)], flat]), varying[found], least)

    def _first_ridge(
        self, position: np.ndarray, values: Values, criterion: Differentiable
    ) -> float:
        """Return the best of a few ridges: a family that interpolates does not feel a small one, so
        that no descent would leave it."""
        gram = gram_matrix(penalised_part(self._at(position[1:])), self.points.x, self.points.s)
        losses = [
            self._evaluate(gram.copy(), ridge, values, criterion)[0] for ridge in _FIRST_RIDGES
        ]
        return _FIRST_RIDGES[int(np.argmin(losses))]

    def _measure(
        self, position: np.ndarray, values: Values, criterion: Differentiable
    ) -> tuple[float, np.ndarray]:
        """Return the loss and its derivative in the position."""
        family, ridge = self._at(position[1:]), float(np.exp(position[0]))
        penalised = penalised_part(family)
        gram = gram_matrix(penalised, self.points.x, self.points.s)
        level = gram.diagonal().mean()
        loss, slope = self._evaluate(gram, ridge, values, criterion)
        if slope is None:
            return loss, np.zeros_like(position)
        through = float(slope.diagonal() @ self._noise_shape)
        slope[np.diag_indices_from(slope)] += through * (ridge + floor(self.num_draws)) / len(slope)
        slopes = gram_slopes(penalised, self.points.x, self.points.s, slope)
        of_family = self._gather(penalised, slopes) @ self._gauge
        return loss, np.concatenate([[through * ridge * level], of_family])

    def _evaluate(
        self, gram: Square, ridge: float, values: Values, criterion: Differentiable
    ) -> tuple[float, Square | None]:
        """Return the loss and its derivative in A, in the memory of the Gram; infinity and None
        where A cannot be factorised."""
        gp = SteinGp.of(gram, self._noise(gram, ridge), self.border, values)
        if gp is None:
            return np.inf, None
        loss, slope = criterion.measure(gp, self.points.probabilities)
        return (loss, slope) if np.isfinite(loss) else (np.inf, None)

    def _noise(self, gram: Square, ridge: float) -> Float64[np.ndarray, " m"]:
        return (ridge + floor(self.num_draws)) * gram.diagonal().mean() * self._noise_shape

    @property
    def _noise_shape(self) -> Float64[np.ndarray, " m"]:
        """The noise of each draw in units of its level, the ridge relative to the Gram's mean
        diagonal.

        The level is constant in the number of draws, as the noise of a GP is: what is found on a
        few hundred then serves all.
        """
        return 1 / (self.num_draws * self.points.probabilities)

    def _flat(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the family's own position without a ridge, and how far each entry may move."""
        logarithms = hyper_parameters(self.family)
        flat = np.concatenate([np.zeros(0), *map(np.ravel, logarithms)])
        limits = np.where(self._are_weights, _FARTHEST_WEIGHT, _FARTHEST)
        movable = np.flatnonzero(self._are_weights & (self._numbered[0] > 0))
        if len(movable):  # only ratios matter: the ridge is relative, so one weight is held
            limits[movable[-1]] = 0.0
        return np.linalg.solve(self._gauge, flat), limits

    @functools.cached_property
    def _entries(self) -> list[tuple[Kind, Any, float]]:
        """For each entry of the hyper-parameters its kind, the place of the family that it is of,
        and the power with which that family's Gram shrinks."""
        found = []
        for entry, logarithms in zip(
            declarations(self.family), hyper_parameters(self.family), strict=True
        ):
            place, family = next(
                pair for pair in reversed(entry.modules) if isinstance(pair[1], LinearFamily)
            )
            found += np.size(logarithms) * [(entry.kind, place, family.length_scale_power)]
        return found

    @property
    def _are_weights(self) -> Bool[np.ndarray, " h"]:
        return np.array([kind is Kind.WEIGHT for kind, _, _ in self._entries], dtype=bool)

    @functools.cached_property
    def _gauge(self) -> Float64[np.ndarray, "h h"]:
        """The matrix from positions to logarithms. A weight is held against the size of its own
        Gram, which falls with a power of the length-scales, so that a change of scale alone leaves
        the part's variance about where it was."""
        matrix = np.eye(len(self._entries))
        for row, (kind, place, power) in zip(matrix, self._entries, strict=True):
            own = [entry[:2] == (Kind.LENGTH_SCALE, place) for entry in self._entries]
            if kind is Kind.WEIGHT and any(own):
                row[own] = power / sum(own)
        return matrix

    def _at(self, position: np.ndarray) -> LinearFamily:
        return with_hyper_parameters(
            self.family, _reshape(self._gauge @ position, hyper_parameters(self.family))
        )

    @functools.cached_property
    def _numbered(self) -> tuple[np.ndarray, np.ndarray]:
        """The entries of the family's hyper-parameters by number, from 1 on, 0 for those that do
        not move; and the numbers of those of its penalised part, which `split` hands on."""
        own = hyper_parameters(self.family)
        numbers = _reshape(np.log(np.arange(1.0, 1 + sum(map(np.size, own)))), own)
        numbered = with_hyper_parameters(self.family, numbers)
        return _whole_numbers(numbered), _whole_numbers(penalised_part(numbered))

    def _gather(self, penalised: LinearFamily, slopes: list[Any]) -> np.ndarray:
        """Return slopes in the logarithms of all of the family's hyper-parameters, from those in
        the penalised part's. Unpenalised terms have none, as their scale means nothing."""
        own, inside = self._numbered
        out = np.zeros(len(own))
        flat = np.concatenate([np.zeros(0), *map(np.ravel, slopes)]) * _values(penalised)
        np.add.at(out, inside[inside > 0] - 1, flat[inside > 0])
        return out


def _curve(steps: np.ndarray, inverse_hessian: np.ndarray) -> np.ndarray:
    """Return steps along which the loss curves alike, from the curvature that was felt in these, or
    these where that went wrong."""
    try:
        found = steps @ np.linalg.cholesky(inverse_hessian)
    except np.linalg.LinAlgError:
        return steps
    return found if np.isfinite(found).all() else steps


def _reshape(flat: np.ndarray, like: list[Any]) -> list[np.ndarray]:
    """Cut a flat array into arrays of the shapes of these."""
    parts = np.split(flat, np.cumsum([np.size(entry) for entry in like])[:-1]) if like else []
    return [part.reshape(np.shape(entry)) for part, entry in zip(parts, like, strict=True)]


def _values(family: LinearFamily) -> np.ndarray:
    """Return the values of its hyper-parameters, flat."""
    leaves = jax.tree.leaves(family)
    return np.concatenate(
        [np.zeros(0), *(np.ravel(leaves[entry.number]) for entry in declarations(family))]
    )


def _whole_numbers(family: LinearFamily) -> np.ndarray:
    """Return the numbers that were put in place of its hyper-parameters, 0 for those that do not
    move."""
    values = _values(family)
    return np.where(may_move(values), values, 0.0).round().astype(int)


def floor(num_draws: int) -> float:
    """Return the rounding error of a Gram, relative to its mean diagonal: no ridge below it means
    anything."""
    return 10 * num_draws * _EPS


def penalised_part(family: LinearFamily) -> LinearFamily:
    """Return the part with finite weights, which there must be."""
    penalised = family.split()[0]
    assert penalised is not None
    return penalised


def mean_diagonal(family: LinearFamily, points: Points) -> float:
    """Return the mean diagonal of a family's Gram."""
    return float(gram_matrix(family, points.x, points.s).diagonal().mean())
