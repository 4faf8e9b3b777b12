"""Density curves: the density at a level is itself a mean."""

from collections.abc import Sequence

import numpy as np

from ..choice import Request
from ..errors import list_names
from ..output import Densities
from ..session import Session
from ..statistics.quantiles import weighted_quantile
from .marginals import Marginals

# Where curves begin and end: quantiles of the draws, and so many deviations beyond
_EDGE, _MARGIN = 0.001, 0.25


def estimate_densities(
    session: Session, names: Sequence[str], points: int, request: Request
) -> Densities:
    """Estimate densities on a grid of levels for each quantity that has one: none below zero, and
    of the area that is known to lie on the grid."""
    sample, marginals = session.sample, Marginals.of(session, names)
    p, values = sample.probabilities, marginals.values
    edges = np.array([_EDGE, 1 - _EDGE])
    low, high = np.transpose([weighted_quantile(column, p, edges) for column in values.T])
    margin = _MARGIN * marginals.unit[:, 0]
    grid = np.linspace(low - margin, high + margin, points, axis=1)
    at = marginals.at(grid, np.linspace(0, 1, points))
    known = np.isfinite(at.density).all(axis=(0, 2))
    if not known.any():
        raise ValueError(
            f"density: {list_names(list(names))} has none that could be known. Either the log "
            "density must be known, as from NumPyro, PyMC or zv.from_log_density, or the value be "
            "a monotone function of one coordinate of the draws"
        )
    grid, area = grid[known], np.tensordot(p, at.below[:, known, -1] - at.below[:, known, 0], 1)
    kept = [name for name, so in zip(names, known, strict=True) if so]
    labels = [f"{name} at {level}" for name in kept for level in range(points)]
    columns = at.density[:, known].reshape(len(sample), -1).T
    means = session.estimate(dict(zip(labels, columns, strict=True)), request=request)
    value, error = (x.reshape(grid.shape) for x in (np.maximum(means.value, 0.0), means.std_error))
    scale = (area / np.trapezoid(value, grid, axis=1))[:, None]
    return Densities(
        tuple(kept),
        grid,
        scale * value,
        scale * error,
        values[:, known],
        p,
        means.warnings,
    )
