"""What the automatic choice tries. A kind of candidate is a class that knows how it is tried, and on which integrands."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64

from .. import kernels
from ..answers import Answer, answer_of, default_split, plain_answer
from ..families import Anisotropic, Family, Kernel, LinearFamily, Polynomial, RidgeFunctions, Sum
from ..fitting import Method
from ..objectives import Objective, SpectralVariance
from ..splits import OutOfFold, cross_fit
from ..std_errors import INDEPENDENT
from ..task import Task
from ..tuning import RIDGES, Descent, MarginalLikelihood, Tuned, tune
from .policy import Policy

Gains = Float64[np.ndarray, " q"]


class Candidate(ABC):
    """A control variate to try. One that is `simple` is preferred to a stack that is no better to within a standard error,
    and tried whatever the time left."""

    label: str
    simple: bool = False

    def wanted(self, gains: Gains) -> Bool[np.ndarray, " q"]:
        """The integrands that it is tried on, by the gains of the best before it."""
        return np.ones(len(gains), dtype=bool)

    def guides(self, gains: Gains, earlier: Sequence[Candidate], d: int, policy: Policy) -> Bool[np.ndarray, " q"] | None:
        """The integrands that it is tuned for, if not all that it is tried on."""
        return None

    @abstractmethod
    def answer(self, task: Task, policy: Policy, guides: Bool[np.ndarray, " q"] | None = None) -> Answer:
        """Its value, and influences at all draws."""


@dataclasses.dataclass(frozen=True, eq=False)
class AsGiven(Candidate):
    """A family that is fitted as it is."""

    label: str
    family: Family
    objective: Objective | None = None
    simple: bool = True

    def answer(self, task, policy, guides=None):
        method = Method(self.family, self.objective)
        return _at_all_draws(answer_of(task, method, default_split(task, method)), task)


@dataclasses.dataclass(frozen=True, eq=False)
class Directional(Candidate):
    """A line, and functions of one direction an integrand: what many dimensions leave affordable beyond a line.

    A few integrands at a time share their directions, with a ridge that suits the line.
    """

    label: str
    family: Family

    def answer(self, task, policy, guides=None):
        draws = min(int(len(task) / task.autocorrelation), policy.polished)
        answers = []
        for first in range(0, task.values.shape[1], policy.at_a_time):
            some = task.only(np.arange(first, min(first + policy.at_a_time, task.values.shape[1])))
            if np.ptp(some.values, axis=0).any():
                tuned = tune(Polynomial(1), some.sample, some.values, ridges=RIDGES, draws=draws, standardise=task.standardise)
                assert isinstance(tuned, Tuned)
                answers.append(answer_of(some, Method(self.family, tuned.objective), cross_fit(policy.directional_folds)))
            else:
                answers.append(plain_answer(some))
        value = np.concatenate([answer.value for answer in answers])
        return Answer(value, np.concatenate([answer.influences for answer in answers], axis=2), answers[0].stats)


@dataclasses.dataclass(frozen=True, eq=False)
class TunedByLikelihood(Candidate):
    """A family whose hyper-parameters are tuned from where they stand, on a few hundred draws far enough apart to count as
    independent; then some steps on all, if those are few.

    It is tried on the integrands for which nothing before it had a gain of `below`: for the others it would only be tuned.
    """

    label: str
    family: LinearFamily
    below: float = np.inf
    polished: bool = True  # on all draws, once tuned on some

    def wanted(self, gains):
        return np.isinf(self.below) | (gains < self.below)

    def guides(self, gains, earlier, d, policy):
        """Once a kernel was tried: not those that lag far behind it, nor those with nothing left to learn."""
        if d > policy.kinks or np.isfinite(self.below) or not any(isinstance(one, TunedByLikelihood) for one in earlier):
            return None
        learning = gains < policy.done
        found = learning & (gains > np.max(gains, where=learning, initial=0.0) / policy.apart)
        return found if found.any() else None

    def answer(self, task, policy, guides=None):
        method = self._tuned(task if guides is None else task.only(guides), policy)
        split: Any = _FitThinned(policy.thinned) if len(task) > policy.dense else default_split(task, method)
        return _at_all_draws(answer_of(task, method, split), task)

    def _tuned(self, task: Task, policy: Policy) -> Method:
        few, _ = task.thinned(int(np.clip(len(task) / task.autocorrelation, policy.tuning_fewest, policy.tuning_draws)))
        every = np.arange(task.values.shape[1])
        descent = Descent.on(self.family, few.draws, few.values, task.draws)
        end = descent.run(every, MarginalLikelihood(), policy.tuning_steps)
        if self.polished and len(few) < len(task) <= policy.polished and task.autocorrelation < INDEPENDENT:
            descent = Descent.on(self.family, task.draws, task.values, task.draws)
            end = descent.run(every, MarginalLikelihood(), policy.polishing_steps, end.position)
        found = descent.tuned(end, len(task))
        return Method(found.family, found.objective)


def candidates(task: Task, policy: Policy) -> list[Candidate]:
    """The built-in ones for draws of this size and dimension, simplest first."""
    d, slow = task.sample.dim, task.autocorrelation >= INDEPENDENT
    fewest = policy.slow_fewest if slow else policy.fewest
    a_term = policy.draws_per_term * (policy.slow_factor if slow else 1)
    found: list[Candidate] = [
        AsGiven(f"Polynomial({degree})", Polynomial(degree))
        for degree in (1, 2, 3)
        if a_term * Polynomial(degree).num_features(d) <= task.effective
    ]
    if task.autocorrelation >= policy.spectral_time and len(task) >= policy.spectral_length * task.sample.num_chains:
        low = [candidate for candidate in found if isinstance(candidate, AsGiven)][:2]
        found += [AsGiven(f"{one.label}, spectral variance", one.family, SpectralVariance()) for one in low]
    if a_term * Polynomial(3).num_features(d) > task.effective and a_term * policy.at_a_time < task.effective:
        degree = 4 if task.effective >= policy.quartic else 3
        bends = RidgeFunctions(Polynomial(degree, weight=(0.0, *(degree - 1) * (np.inf,))))
        found.append(Directional(f"Polynomial(1) + RidgeFunctions(Polynomial({degree}))", Polynomial(1) + bends))
    return found if task.effective < fewest else [*found, *_tuned_candidates(d, policy)]


def _tuned_candidates(d: int, policy: Policy) -> list[Candidate]:
    cubic = Polynomial(3, weight=policy.degree_weights)
    scale = max(3.0, np.sqrt(d))
    smooth = Kernel(kernels.Gaussian(scale), 2, weight=(scale**2 / d) ** 2)
    slow = Kernel(kernels.InverseMultiquadric(scale), weight=scale**2 / d)
    found: list[Candidate] = [
        TunedByLikelihood("Polynomial(3) + Gaussian", Sum((cubic, smooth))),
        TunedByLikelihood("Polynomial(3) + anisotropic IMQ", Sum((cubic, Anisotropic(slow)))),
        TunedByLikelihood("anisotropic Polynomial(3) + IMQ", Anisotropic(Sum((cubic, slow)), mixing=True)),
    ]
    if d <= policy.kinks:
        rough = Sum((cubic, Kernel(kernels.Matern(2.5, 1.0))))
        found.append(TunedByLikelihood("Polynomial(3) + Matérn", rough, below=policy.smooth))
    elif d <= policy.separate:
        each = RidgeFunctions(Kernel(kernels.Gaussian(1.0)), np.eye(d))
        additive = Anisotropic(Sum((each, slow)))
        found.append(TunedByLikelihood("additive + IMQ", additive, below=policy.little, polished=False))
    return found


def _at_all_draws(answer: Answer, task: Task) -> Answer:
    """With influences at all draws: none where a draw does not estimate, the others as many times larger."""
    if answer.rows is None or len(answer.rows) == len(task):
        return answer
    influences = np.zeros_like(task.values)
    scattered = answer.influences.reshape(len(answer.rows), -1)
    influences[answer.rows] = scattered * (len(task) / len(answer.rows))
    return dataclasses.replace(answer, influences=task.sample.by_chain(influences), rows=None)


@dataclasses.dataclass(frozen=True)
class _FitThinned(OutOfFold):
    """Draws that are equally spaced fit, all others estimate."""

    most: int

    def folds(self, sample):
        fitting = sample.thinned(self.most)[1]
        return [(fitting, np.setdiff1d(np.arange(len(sample)), fitting))]

    def describe(self):
        return f"fitted to {self.most} draws"
