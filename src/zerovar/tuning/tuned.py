"""tune(): the hyper-parameters of a linear family, and its ridge, chosen from the draws."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arguments import FLAG, NOT_NEGATIVE, instance, several, takes, whole
from ..errors import refuse_fork
from ..families import Family, LinearFamily
from ..inputs.integrands import as_values
from ..inputs.points import FittingDraws
from ..inputs.sample import SAMPLE, Sample
from .criteria import Criterion, CrossValidation, Differentiable, LeaveOneOut
from .descent import RIDGES, Descent, Tuned
from .grid import best_on_grid, grid_point

_TUNABLE = instance(
    LinearFamily,
    "linear: polynomials, kernels and sums of these. Networks train their own parameters, and "
    "SGD(hyper=True) trains scales along with them",
)


@takes(
    family=_TUNABLE,
    sample=SAMPLE,
    criterion=instance(Criterion, "LeaveOneOut(), MarginalLikelihood() or CrossValidation(k)"),
    grid=several(_TUNABLE, "linear families, at least one", empty=False),
    ridges=several(
        NOT_NEGATIVE,
        "numbers ≥ 0, relative to the mean diagonal of the Gram",
        empty=False,
    ),
    shared=FLAG,
    draws=whole(10),
    evaluations=whole(1),
    standardise=FLAG,
)
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
    refuse_fork()
    criterion = LeaveOneOut() if criterion is None else criterion
    _check_criterion(criterion, on_grid=grid is not None or ridges is not None)
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


def _check_criterion(criterion: Criterion, on_grid: bool) -> None:
    if on_grid and not isinstance(criterion, (LeaveOneOut, CrossValidation)):
        raise ValueError(
            f"{criterion} is for descent; over a grid use LeaveOneOut() or CrossValidation(k)"
        )
    if isinstance(criterion, CrossValidation) and not on_grid:
        raise ValueError(
            "CrossValidation(k) has no derivative to follow; give a grid of families, or ridges to "
            "try"
        )
