"""tune(): the hyper-parameters of a linear family, and its ridge, chosen from the draws."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..families import Family, LinearFamily
from ..fitting import check_call
from ..hyper import whole_number
from ..inputs.integrands import as_values
from ..inputs.points import FittingDraws
from ..inputs.sample import Sample
from .criteria import Criterion, CrossValidation, Differentiable, LeaveOneOut
from .descent import RIDGES, Descent, Tuned
from .grid import best_on_grid, grid_point


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
    """Choose the hyper-parameters of a linear family, and its ridge: kernel scales, weights of
    parts and of degrees.

    By default all of them descend together on the `criterion`, `LeaveOneOut()` or
    `MarginalLikelihood()`, in at most about `evaluations` steps from where `family` has them. With
    a `grid` of families, each is evaluated instead at every one of `ridges` (relative to the mean
    diagonal of its Gram), by `LeaveOneOut()` from one eigendecomposition, or by
    `CrossValidation(k)` over blocks within chains. `draws` bounds the work: that many are taken,
    equally spaced within chains. `shared=False` tunes for each integrand by itself and returns a
    list. Families with unpenalised terms (infinite weights) keep those as they are.
    """
    criterion = LeaveOneOut() if criterion is None else criterion
    check_call(standardise)
    _check_choices(family, sample, criterion, grid, ridges, draws, evaluations)
    array = as_values(values, sample).values
    whole, size = sample, len(sample)
    sample, rows = sample.thin(draws)
    array = array[rows]
    if not np.ptp(array, axis=0).any():
        raise ValueError(
            f"all integrands are constant on the {len(rows)} draws to tune on: there is nothing to "
            "tune for"
        )
    columns = (
        [np.arange(array.shape[1])] if shared else [np.array([j]) for j in range(array.shape[1])]
    )
    if grid is not None or ridges is not None:
        points = [
            grid_point(
                candidate,
                sample,
                array,
                criterion,
                RIDGES if ridges is None else ridges,
                standardise,
            )
            for candidate in ((family,) if grid is None else grid)
        ]
        found = [best_on_grid(points, column, size) for column in columns]
    else:
        assert isinstance(criterion, Differentiable)
        thinned, all_draws = (FittingDraws(part.points(), standardise) for part in (sample, whole))
        descent = Descent.on(family, thinned, array, all_draws)
        start, used = None, 0
        if not shared and array.shape[1] > 1:  # from what suits all, each goes on by itself
            start, _, used, *_ = descent.run(np.arange(array.shape[1]), criterion, evaluations)
        found = [
            descent.outcome(descent.run(column, criterion, evaluations, start), size, used)
            for column in columns
        ]
    return found[0] if shared else found


def _check_choices(family, sample, criterion, grid, ridges, draws, evaluations) -> None:
    if not isinstance(sample, Sample):
        raise ValueError(f"sample must be a zv.Sample(draws, scores); got {type(sample).__name__}")
    for candidate in (family, *(() if grid is None else grid)):
        if not isinstance(candidate, LinearFamily):
            raise ValueError(
                "tune takes linear families: polynomials, kernels and sums of these; got "
                f"{candidate!r}. Networks train their own parameters, and SGD(hyper=True) trains "
                "scales along with them"
            )
    if not isinstance(criterion, Criterion):
        raise ValueError(
            "criterion must be LeaveOneOut(), MarginalLikelihood() or CrossValidation(k); got "
            f"{criterion!r}"
        )
    on_grid = grid is not None or ridges is not None
    if on_grid and not isinstance(criterion, (LeaveOneOut, CrossValidation)):
        raise ValueError(
            f"{criterion} is for descent; over a grid use LeaveOneOut() or CrossValidation(k)"
        )
    if isinstance(criterion, CrossValidation) and not on_grid:
        raise ValueError(
            "CrossValidation(k) has no derivative to follow; give a grid of families, or ridges to "
            "try"
        )
    if grid is not None and not len(grid):
        raise ValueError("grid is empty: give at least one family")
    if ridges is not None and (
        not len(ridges) or not all(np.isfinite(r) and r >= 0 for r in ridges)
    ):
        raise ValueError(
            f"ridges must be numbers ≥ 0, relative to the mean diagonal of the Gram; got {ridges!r}"
        )
    whole_number("draws, the number of draws to tune on,", draws, 10)
    whole_number("evaluations, the steps a descent may take,", evaluations, 1)
