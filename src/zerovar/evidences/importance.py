"""log Z from the points of importance sampling, by control variates on their weights."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from ..mixtures import POINTS_PER_NUMBER, effective_number


class Round(NamedTuple):
    """n points, of one proposal that does not depend on them: log weights by it alone, and the
    ratios of its components to it, each of mean one; no ratios where it is known at the points
    alone."""

    log_weights: Float64[np.ndarray, " n"]
    ratios: Float64[np.ndarray, "n c"]

    @property
    def share(self) -> float:
        """Of the points, by their effective number."""
        return effective_number(self.log_weights) / len(self.log_weights)


def log_evidence(rounds: Sequence[Round]) -> tuple[float, float]:
    """log ∫ exp(log density), and its standard error.

    Z is the mean weight of a round by its own proposal, which knows nothing of the round's points;
    of the large rounds, whose proposals are better. By the mixture of all proposals it would come
    out too small: later ones are near earlier points of large weight, and make these smaller.
    """
    largest = max(len(one.log_weights) for one in rounds)
    rounds = [one for one in rounds if len(one.log_weights) > largest / 2]
    top = max(one.log_weights.max() for one in rounds)
    sizes = np.array([len(one.log_weights) for one in rounds])
    means, errors = np.transpose(
        [_mean_weight(one, np.exp(one.log_weights - top)) for one in rounds]
    )
    value = sizes @ means / sizes.sum()
    error = np.sqrt(np.sum((sizes * errors) ** 2)) / sizes.sum()
    return float(np.log(value) + top), float(error / value)


def _mean_weight(one: Round, weights: Float64[np.ndarray, " n"]) -> tuple[float, float]:
    """By least squares on the ratios, whose means are known; with residuals of fits without the
    point, or plain if better."""
    n, mean = len(weights), float(weights.mean())
    plain_error = float(weights.std(ddof=1) / np.sqrt(n))
    design = np.column_stack([np.ones(n), one.ratios[:, : n // POINTS_PER_NUMBER] - 1])
    left, size, right = np.linalg.svd(design, full_matrices=False)
    kept = size > 1e-8 * size[0]
    left, size, right = left[:, kept], size[kept], right[kept]
    residuals = (weights - left @ (left.T @ weights)) / (1 - np.sum(left**2, axis=1))
    intercept = left @ (right[:, 0] / size)  # what each point adds to it
    value, error = (
        float(intercept @ weights),
        float(np.sqrt(n / (n - 1) * np.sum((intercept * residuals) ** 2))),
    )
    return (value, error) if value > 0 and error < plain_error else (mean, plain_error)
