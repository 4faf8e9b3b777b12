"""What the automatic choice tries: families for draws of any size and dimension, and what trying one gives."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64

from . import kernels
from .cautions import DRAWS_PER_TERM
from .criteria import Differentiable, MarginalLikelihood
from .families import Along, Family, Kernel, LinearFamily, Polynomial, Stretched, Sum
from .objectives import LeastSquares, Objective, SpectralVariance
from .runs import Recipe, default_split, plain_run, run
from .sample import Sample
from .splits import OutOfFold, cross_fit
from .std_errors import INDEPENDENT
from .tuning import RIDGES, Descent, Tuned, tune

KINKS = 3  # dimensions in which draws are dense enough to see kinks and jumps
_TUNING_DRAWS = 400
_POLISHED = 1500  # draws up to which hyper-parameters are polished on all of them
_DENSE = 10_000  # draws up to which a kernel is fitted to all of them
_THINNED = 4000  # draws that fit a kernel where there are more
_STEPS, _STEPS_ON_ALL = 40, 10
# Effective draws from which hyper-parameters are tuned; of a slow chain twice as many, and four times as many a term, since its
# tails are seen a few times only (cubics on 600 Metropolis draws worth 60: errors half of what they should be)
_FEWEST = 50
_SLOW, _LONG = 2.0, 200  # autocorrelation time and draws a chain from which the spectral variance is tried as an objective
# In many dimensions, where cubics are too many, what a line leaves of an integrand is learned along its own direction: on 200
# draws of a sigmoid quartics there have errors 1.6 times too small, on 1000 they are right and have the smaller ones
_QUARTIC = 800
_SMOOTH = 1e5  # gain from which an integrand needs no rough kernel
# Sums of functions of single coordinates see more of an integrand than isotropic kernels do where draws are few for so many
# dimensions: on products of ten bumps they have a gain of 60 where the others have 3
_LITTLE, _SEPARATE = 100.0, 50  # gain up to which they are tried, and dimensions: they cost as much a pair
_AT_A_TIME = 10  # integrands that share their directions


class Answer(NamedTuple):
    """A candidate's value (q,) and n times what each draw adds to it (n, q), about zero."""

    value: Float64[np.ndarray, " q"]
    influence: Float64[np.ndarray, "n q"]


class Candidate(NamedTuple):
    """A family to try: tuned from where it stands by `criterion`, or as it is where that is None.

    One with `at_a_time` is tried on so many integrands at a time, whose directions they share, with a ridge that suits its
    linear part. One with `below` is tried on the integrands for which nothing before it had such a gain: the others need it
    not, and would have it tuned for them.
    """

    label: str
    family: Family
    criterion: Differentiable | None = None
    objective: Objective | None = None
    below: float = np.inf
    polished: bool = True  # on all draws, once tuned on some
    at_a_time: int | None = None

    @property
    def cheap(self) -> bool:
        """Whether there is nothing to tune."""
        return self.criterion is None and self.at_a_time is None

    @property
    def for_all(self) -> bool:
        """Whether it is tried on every integrand."""
        return np.isinf(self.below)


def candidates(sample: Sample, time: float) -> list[Candidate]:
    """The built-in ones for draws of this size and dimension, simplest first."""
    d, effective = sample.dim, len(sample) / max(time, 1.0)
    fewest, a_term = (_FEWEST, DRAWS_PER_TERM) if time < INDEPENDENT else (2 * _FEWEST, 4 * DRAWS_PER_TERM)
    found = [
        Candidate(f"Polynomial({degree})", Polynomial(degree))
        for degree in (1, 2, 3)
        if a_term * Polynomial(degree).num_features(d) <= effective
    ]
    if time >= _SLOW and len(sample) >= _LONG * sample.num_chains:
        found += [Candidate(f"{label}, spectral variance", family, None, SpectralVariance()) for label, family, *_ in found[:2]]
    if a_term * Polynomial(3).num_features(d) > effective and a_term * _AT_A_TIME < effective:
        degree = 4 if effective >= _QUARTIC else 3
        along = Along(Polynomial(degree, weight=(0.0, *(degree - 1) * (np.inf,))))
        found.append(Candidate(f"Polynomial(1) + Along(Polynomial({degree}))", Polynomial(1) + along, at_a_time=_AT_A_TIME))
    if effective < fewest:
        return found
    cubic = Polynomial(3, weight=[55.0, 7.0, 1.0])  # a linear term must not be shrunk like hundreds of cubic ones
    scale = max(3.0, np.sqrt(d))
    smooth = Kernel(kernels.Gaussian(scale), 2, weight=(scale**2 / d) ** 2)
    slow = Kernel(kernels.InverseMultiquadric(scale), weight=scale**2 / d)
    found += [
        Candidate(label, family, MarginalLikelihood())
        for label, family in (
            ("Polynomial(3) + Gaussian", cubic + smooth),
            ("Polynomial(3) + stretched IMQ", cubic + Stretched(slow)),
            ("stretched Polynomial(3) + IMQ", Stretched(Sum((cubic, slow)), mixing=True)),
        )
    ]
    if d <= KINKS:
        rough = cubic + Kernel(kernels.Matern(2.5, 1.0))
        found.append(Candidate("Polynomial(3) + Matérn", rough, MarginalLikelihood(), below=_SMOOTH))
    elif d <= _SEPARATE:
        each = Along(Kernel(kernels.Gaussian(1.0)), np.eye(d))
        found.append(
            Candidate("additive + IMQ", Stretched(Sum((each, slow))), MarginalLikelihood(), below=_LITTLE, polished=False)
        )
    return found


def tried(
    candidate: Candidate,
    sample: Sample,
    values: np.ndarray,
    standardise: bool,
    seed: int,
    time: float,
    guides: Bool[np.ndarray, " q"] | None = None,
) -> Answer:
    """A candidate's value and its influences at all draws; `guides` are the integrands that it is tuned for, if not all."""
    family, objective = candidate.family, candidate.objective
    if candidate.at_a_time is not None:
        return _along(family, candidate.at_a_time, sample, values, standardise, seed, time)
    if candidate.criterion is not None:
        tuned_for = values if guides is None else values[:, guides]
        family, objective = _tuned(candidate, sample, tuned_for, standardise, time)
    recipe = Recipe(family, objective, None, standardise, seed)
    thinned = candidate.criterion is not None and len(sample) > _DENSE
    split = _FitThinned(_THINNED) if thinned else default_split(family, sample, values.shape[1], objective)
    answer = run(recipe, sample, values, split, time)
    if not isinstance(split, OutOfFold):
        return Answer(answer.value, answer.influence)
    rows = np.sort(np.concatenate([held for _, held in split.folds(sample)]))
    influence = np.zeros_like(values)
    influence[rows] = answer.influence * (len(sample) / len(rows))
    return Answer(answer.value, influence)


def _along(
    family: Family, at_a_time: int, sample: Sample, values: np.ndarray, standardise: bool, seed: int, time: float
) -> Answer:
    """A few integrands at a time share their directions."""
    apart = min(int(len(sample) / time), _POLISHED)
    answers = []
    for first in range(0, values.shape[1], at_a_time):
        some = values[:, first : first + at_a_time]
        if np.ptp(some, axis=0).any():
            tuned = tune(Polynomial(1), sample, some, ridges=RIDGES, draws=apart, standardise=standardise)
            assert isinstance(tuned, Tuned)
            answers.append(run(Recipe(family, tuned.objective, None, standardise, seed), sample, some, cross_fit(10), time))
        else:
            answers.append(plain_run(sample, some))
    value, influence = zip(*((answer.value, answer.influence) for answer in answers), strict=True)
    return Answer(np.concatenate(value), np.concatenate(influence, axis=1))


def _tuned(
    candidate: Candidate, sample: Sample, values: np.ndarray, standardise: bool, time: float
) -> tuple[LinearFamily, LeastSquares]:
    """Descent on a few hundred draws, far enough apart to count as independent; then some steps on all, if those are few."""
    family, criterion = candidate.family, candidate.criterion
    assert criterion is not None
    apart = int(np.clip(len(sample) / time, 100, _TUNING_DRAWS))
    few, rows = sample.thinned(apart)
    whole = sample if standardise else None
    descent = Descent.on(family, few, values[rows], whole)
    every = np.arange(values.shape[1])
    end = descent.run(every, criterion, _STEPS)
    if candidate.polished and len(few) < len(sample) <= _POLISHED and time < INDEPENDENT:
        descent = Descent.on(family, sample, values, whole)
        end = descent.run(every, criterion, _STEPS_ON_ALL, end.position)
    found = descent.tuned(end, len(sample))
    return found.family, found.objective


@dataclasses.dataclass(frozen=True)
class _FitThinned(OutOfFold):
    """Draws that are equally spaced fit, all others estimate."""

    most: int

    def folds(self, sample):
        fitting = sample.thinned(self.most)[1]
        return [(fitting, np.setdiff1d(np.arange(len(sample)), fitting))]

    def describe(self):
        return f"fitted to {self.most} draws"
