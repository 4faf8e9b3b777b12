"""log Z from the points of importance sampling, by control variates on their weights."""

import numpy as np

from .importance import WeightedPoints, weights_of

_POINTS_PER_TERM = 20  # of a control variate


def log_evidence(points: WeightedPoints) -> tuple[float, float]:
    """log ∫ exp(log density), and its standard error.

    Z is the mean weight. The density of a component of the proposal, over that of the whole, has mean one: these ratios are the
    control variates, fitted by least squares. Their residuals are those of fits without the point.
    """
    log_weights, n = points.log_weights, len(points.x)
    weights = weights_of(log_weights)
    mean = weights.mean()
    unit = weights / mean
    most = n // _POINTS_PER_TERM
    ratios = points.ratios[:, -most:] if most else points.ratios[:, :0]  # the last proposals are the nearest
    design = np.column_stack([np.ones(n), ratios - 1])
    left, size, right = np.linalg.svd(design, full_matrices=False)
    kept = size > 1e-8 * size[0]
    left, size, right = left[:, kept], size[kept], right[kept]
    residuals = (unit - left @ (left.T @ unit)) / (1 - np.sum(left**2, axis=1))
    intercept = left @ (right[:, 0] / size)  # what each point adds to it
    value = float(intercept @ unit)
    error = float(np.sqrt(n / (n - 1) * np.sum((intercept * residuals) ** 2)))
    plain_error = float(unit.std(ddof=1) / np.sqrt(n))
    if not (value > 0 and error < plain_error):
        value, error = 1.0, plain_error
    return float(np.log(mean) + log_weights.max() + np.log(value)), error / value
