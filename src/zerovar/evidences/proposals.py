"""Normalised densities like the draws of a chain, which their log Z is measured against."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy

from ..inputs.points import Matrix, Vector
from ..inputs.sample import Sample
from ..mixtures import Frame, TMixture, cholesky, fit_mixture


class Proposal(NamedTuple):
    """A mixture of normals or t distributions in the coordinates of a frame."""

    name: str
    frame: Frame
    mixture: TMixture

    def log_density(self, x: Matrix) -> Vector:
        """At points (m, d), normalised."""
        return self.mixture.log_density(self.frame.z(x)) - self.frame.log_volume

    def scores(self, x: Matrix) -> Matrix:
        """Gradients of the log density at points (m, d)."""
        return np.linalg.solve(self.frame.root.T, self.mixture.scores(self.frame.z(x)).T).T

    def points(self, n: int, rng: np.random.Generator) -> Matrix:
        """n independent points, (n, d): a mixture's components are drawn too, so that no count is
        fixed and errors are those of independent points."""
        counts = rng.multinomial(n, self.mixture.shares)
        drawn, _ = dataclasses.replace(self.mixture, shares=counts / n).points(n, rng, sobol=False)
        return self.frame.x(rng.permutation(drawn))


def fit_proposals(sample: Sample, log_density: Vector) -> Iterator[Proposal]:
    """Give proposals like a sample, with its log density (n,) up to a constant: normals by its
    covariance and by its scores, and a mixture."""
    x, probabilities, d = sample.draws, sample.probabilities, sample.dim
    if len(x) <= d:
        return
    mean = probabilities @ x
    away = x - mean
    covariance = away.T @ (probabilities[:, None] * away)
    standard = TMixture(np.ones(1), np.zeros((1, d)), np.eye(d)[None], np.array([np.inf]))
    frame = Frame(mean, cholesky(covariance))
    yield Proposal("normal by covariance", frame, standard)
    fitted = fit_mixture(frame.z(x), log_density, probabilities, standard)
    yield Proposal("mixture", frame, fitted)
    if (exact := _frame_by_scores(sample)) is not None:
        yield Proposal("normal by scores", exact, standard)


def _frame_by_scores(sample: Sample) -> Frame | None:
    """By the regression of scores on draws, whose coefficients are minus the precision: exact for a
    normal, whatever the draws are, where a covariance has the draws' own error. None where that is
    no precision."""
    probabilities = sample.probabilities
    mean, mean_score = probabilities @ sample.draws, probabilities @ sample.scores
    away, scores = sample.draws - mean, sample.scores - mean_score
    scale = np.sqrt(probabilities @ away**2)  # of each coordinate: they may be far apart
    unit = away / scale
    weighted = probabilities[:, None] * unit
    try:
        slopes = np.linalg.solve(unit.T @ weighted, weighted.T @ (scores * scale))
        upper = scipy.linalg.cholesky(-(slopes + slopes.T) / 2)
    except np.linalg.LinAlgError:
        return None
    root = scale[:, None] * scipy.linalg.solve_triangular(upper, np.eye(sample.dim))
    return Frame(mean + root @ (root.T @ mean_score), root)
