"""Density curves: the density at a level is itself a mean."""

from collections.abc import Sequence

import numpy as np

from ..choice import Request
from ..errors import hold_warnings, list_names, repeat_warnings, spare_names
from ..output import Densities
from ..probabilities import describe_smoothing
from ..session import Session
from ..statistics.quantiles import weighted_quantile
from .marginals import Marginals

# Where curves begin and end: quantiles of the draws, and so many deviations beyond
_EDGE, _MARGIN = 0.001, 0.25
# Draws beyond a curve's ends by scores alone: with 1 of them z values of 1e3 were seen on t₃ and
# Gumbel draws, with 10 none above 6
_SEEN = 10


def estimate_densities(
    session: Session, names: Sequence[str], points: int, request: Request
) -> Densities:
    """Estimate densities on a grid of levels for each quantity that has one, none below zero."""
    sample, marginals = session.sample, Marginals.of(session, names)
    p, values = sample.probabilities, marginals.values
    # nothing is known by scores alone of where there are no draws
    by_lines = marginals.by_lines[:, 0]
    edges = np.where(by_lines, _EDGE, _SEEN / (len(sample) + 2 * _SEEN))  # always below a half
    margin = np.where(by_lines, _MARGIN * marginals.unit[:, 0], 0.0)
    ends = [
        weighted_quantile(x, p, np.array([e, 1 - e])) for x, e in zip(values.T, edges, strict=True)
    ]
    low, high = np.transpose(ends)
    low, high = low - margin, high + margin
    grid = np.linspace(low, high, points, axis=1)
    at = marginals.at(grid, np.linspace(0, 1, points))
    known = np.isfinite(at.density).all(axis=(0, 2))
    if not known.any():
        raise ValueError(
            f"density: {list_names(list(names))} has none that could be known. Either the log "
            "density must be known, as from NumPyro, PyMC or zv.from_log_density, or the value be "
            "a monotone function of one coordinate of the draws"
        )
    grid = grid[known]
    kept = [name for name, so in zip(names, known, strict=True) if so]
    labels = [f"{name} at {level}" for name in kept for level in range(points)]
    # relative to the highest seen on any line, which no mean is above
    top = np.abs(at.density[:, known]).max(axis=(0, 2))
    columns = (at.density[:, known] / top[:, None]).reshape(len(sample), -1).T
    mean = np.tensordot(p, at.density[:, known], 1)
    # integrals along lines are off by a part of each line's mass, wherever that is
    size = np.where(by_lines[known, None], mean.max(axis=1, keepdims=True), mean)
    off = at.share_off[known] * np.abs(size)
    bounded = marginals.find_conditional(
        [f"{name} at {level}" for name in names for level in range(points)]
    )
    with hold_warnings() as caught:  # of single levels there is nothing to say
        integrands = dict(zip(labels, columns, strict=True))
        relative = (off / top[:, None]).ravel()
        means = session.estimate(integrands, None, request, bounded, off=relative)
    repeat_warnings(spare_names(caught, labels))
    found, error = (top[:, None] * x.reshape(grid.shape) for x in (means.value, means.std_error))
    error = np.hypot(error, off)
    value = np.maximum(found, 0.0)
    # what is below zero has its share of the area, which the others must make up for
    areas = (np.trapezoid(x, grid, axis=1) for x in (found, value))
    scale = np.divide(*areas)[:, None]
    smooth = (one for one, so in zip(marginals.smooth, known, strict=True) if so)
    how = {k: one for k, one in enumerate(smooth) if one is not None}
    return Densities(
        tuple(kept),
        grid,
        scale * value,
        scale * error,
        values[:, known],
        p,
        describe_smoothing(kept, how),
    )
