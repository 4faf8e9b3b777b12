"""What the automatic choice tries: candidates that are fitted as they are, and rivals that are
tuned."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool

from .. import kernels
from ..families import (
    Anisotropic,
    Family,
    Kernel,
    LinearFamily,
    Polynomial,
    RidgeFunctions,
    SparsePolynomial,
    Sum,
)
from ..fitting import Method
from ..inference.answers import Answer, answer_of, default_split, plain_answer
from ..inference.splits import OutOfFold, cross_fit, in_sample
from ..inference.task import Task
from ..objectives import Objective, SpectralVariance
from ..statistics.series import INDEPENDENT
from ..tuning import RIDGES, Descent, DescentEnd, DescentStart, MarginalLikelihood, Tuned, tune
from .policy import Policy


class Candidate(ABC):
    """A control variate to try. One that is `simple` is in closed form, and preferred to a stack
    that is no better to within a standard error."""

    label: str
    simple: bool = False

    def wanted(self, task: Task, best: Answer, policy: Policy) -> Bool[np.ndarray, " q"]:
        """The integrands that it may help, where `best` is the answer of least error so far."""
        return np.ones(task.values.shape[1], dtype=bool)

    @abstractmethod
    def answer(self, task: Task, policy: Policy) -> Answer:
        """Its value, and influences at all draws."""


@dataclasses.dataclass(frozen=True, eq=False)
class AsGiven(Candidate):
    """A family that is fitted as it is."""

    label: str
    family: Family
    objective: Objective | None = None
    simple: bool = True

    def answer(self, task, policy):
        method = Method(self.family, self.objective)
        return _at_all_draws(answer_of(task, method, default_split(task, method)), task)


@dataclasses.dataclass(frozen=True, eq=False)
class Directional(Candidate):
    """A line, and functions of one direction an integrand: what many dimensions leave affordable
    beyond a line.

    A few integrands at a time share their directions; the ridge suits the line.
    """

    label: str
    family: Family
    degree: int

    def wanted(self, task, best, policy):
        """Those of which powers of the direction of steepest growth explain a part of what is left,
        by few terms each."""
        x, s = task.draws.standardisation(mixing=True)(task.sample.draws, task.sample.scores)
        left = best.in_a_mean.reshape(len(task), -1)
        left = left - left.mean(axis=0)
        directions = x.T @ (task.values - task.values.mean(axis=0))
        directions /= np.maximum(np.linalg.norm(directions, axis=0), np.finfo(float).tiny)
        t, score = x @ directions, s @ directions
        powers = [
            k * (k - 1) * t ** (k - 2) + k * t ** (k - 1) * score for k in range(2, self.degree + 1)
        ]
        columns = np.stack([np.ones_like(t), *powers], axis=2).transpose(1, 0, 2)  # (q, n, terms)
        bases = np.linalg.qr(columns)[0]
        explained = np.sum(np.einsum("qnk,nq->qk", bases, left) ** 2, axis=1)
        return explained > (1 - policy.bent) * np.sum(left**2, axis=0)

    def answer(self, task, policy):
        draws, varying = (
            min(int(len(task) / task.autocorrelation), policy.pilot),
            np.ptp(task.values, axis=0) > 0,
        )
        if not varying.any():
            return plain_answer(task)
        values = task.values[:, varying]
        tuned = tune(
            Polynomial(1),
            task.sample,
            values,
            ridges=RIDGES,
            draws=draws,
            standardise=task.standardise,
        )
        assert isinstance(tuned, Tuned)
        method, split, answers = (
            Method(self.family, tuned.objective),
            cross_fit(policy.directional_folds),
            [],
        )
        for first in range(0, len(varying), policy.at_a_time):
            columns = np.arange(first, min(first + policy.at_a_time, len(varying)))
            some = task.only(columns)
            answers.append(
                answer_of(some, method, split) if varying[columns].any() else plain_answer(some)
            )
        value = np.concatenate([answer.value for answer in answers])
        return Answer(
            value,
            np.concatenate([answer.influences for answer in answers], axis=2),
            answers[0].stats,
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Rival:
    """A family whose hyper-parameters are tuned by likelihood, from where they stand.

    It is tried on the integrands for which nothing before it had a gain of `below`: for the others
    it would only be tuned. And before all others on those to which its `sign` points: a family in
    closed form that has little error where the rival does.
    """

    label: str
    family: LinearFamily
    below: float = np.inf
    # that it is tuned on at most, where that is not the policy's number for all
    draws: int | None = None
    sign: LinearFamily | None = None

    @property
    def special(self) -> bool:
        """Whether it suits some integrands only."""
        return bool(np.isfinite(self.below))

    def pointed(self, task: Task, policy: Policy) -> Answer | None:
        """The answer of its sign, if it has one and there are draws for it."""
        terms = None if self.sign is None else self.sign.num_features(task.sample.dim)
        if (
            self.sign is None
            or terms is None
            or _draws_a_term(task, policy) * terms > task.effective
        ):
            return None
        return answer_of(task, Method(self.sign), in_sample())

    def begun(self, few: Task, whole: Task, known: DescentEnd | None = None) -> Begun:
        """To be tuned on a few of the draws, in the coordinates in which it will be fitted to all
        of them, from where a descent for other integrands ended, if that is known."""
        descent = Descent.on(self.family, few.draws, few.values, whole.draws)
        start = descent.likelihood_start(None if known is None else known.position)
        return Begun(descent, start, None if known is None else known.steps)

    def further(self, few: Task, whole: Task, steps: int, before: Descended) -> Descended:
        """A descent for the same integrands that goes on, on other draws."""
        descent = Descent.on(self.family, few.draws, few.values, whole.draws)
        end = descent.run(
            before.columns, MarginalLikelihood(), steps, before.end.position, before.end.steps
        )
        return Descended(descent, end, before.columns)

    def answer(self, task: Task, found: Descended, policy: Policy) -> Answer:
        """Its value, and influences at all draws, with the hyper-parameters of a descent."""
        tuned = found.descent.outcome(found.end, len(task))
        method = Method(tuned.family, tuned.objective)
        split: Any = (
            _FitThinned(policy.thinned) if len(task) > policy.dense else default_split(task, method)
        )
        return _at_all_draws(answer_of(task, method, split), task)


class Begun(NamedTuple):
    """A descent, where it begins, and what is known of the curvature there."""

    descent: Descent
    start: DescentStart
    curved: np.ndarray | None

    def run(self, steps: int) -> Descended:
        """For the integrands that are not noise to the family."""
        position, columns, _ = self.start
        return Descended(
            self.descent,
            self.descent.run(columns, MarginalLikelihood(), steps, position, self.curved),
            columns,
        )


class Descended(NamedTuple):
    """A descent, where it ended, and for which of its integrands it was."""

    descent: Descent
    end: DescentEnd
    columns: np.ndarray  # the integrands that it is for


def candidates(task: Task, policy: Policy) -> list[Candidate]:
    """The built-in ones that need no tuning, for draws of this size and dimension, simplest
    first."""
    d, a_term = task.sample.dim, _draws_a_term(task, policy)
    found: list[Candidate] = [
        AsGiven(f"Polynomial({degree})", Polynomial(degree))
        for degree in (1, 2, 3)
        if a_term * Polynomial(degree).num_features(d) <= task.effective
    ]
    if (
        task.autocorrelation >= policy.spectral_time
        and len(task) >= policy.spectral_length * task.sample.num_chains
    ):
        low = [candidate for candidate in found if isinstance(candidate, AsGiven)][:2]
        found += [
            AsGiven(f"{one.label}, spectral variance", one.family, SpectralVariance())
            for one in low
        ]
    if a_term * Polynomial(3).num_features(d) <= task.effective:
        return found
    # linear terms with a ridge where draws are few, so that there is no cliff between few and
    # enough
    found.append(AsGiven("SparsePolynomial(3)", SparsePolynomial(3)))
    if a_term * policy.at_a_time < task.effective:
        degree = 4 if task.effective >= policy.quartic else 3
        bends = RidgeFunctions(Polynomial(degree, weight=(0.0, *(degree - 1) * (np.inf,))))
        found.append(
            Directional(
                f"Polynomial(1) + RidgeFunctions(Polynomial({degree}))",
                Polynomial(1) + bends,
                degree,
            )
        )
    return found


def _draws_a_term(task: Task, policy: Policy) -> float:
    """That a polynomial needs."""
    return policy.draws_per_term * (
        policy.slow_factor if task.autocorrelation >= INDEPENDENT else 1
    )


def rivals(d: int, policy: Policy) -> list[Rival]:
    """Families to be tuned: for all integrands, and for those that the others leave with little
    gain."""
    cubic = Polynomial(3, weight=policy.degree_weights)
    scale = max(3.0, np.sqrt(d))
    long = policy.long * scale
    slow = Kernel(kernels.InverseMultiquadric(long), weight=long**2 / d)
    found = [
        Rival("Polynomial(3) + anisotropic IMQ", Sum((cubic, Anisotropic(slow)))),
        Rival("anisotropic Polynomial(3) + IMQ", Anisotropic(Sum((cubic, slow)), mixing=True)),
    ]
    if policy.thorough or d <= policy.kinks:
        smooth = Kernel(kernels.Gaussian(scale), 2, weight=(scale**2 / d) ** 2)
        found.append(Rival("Polynomial(3) + Gaussian", Sum((cubic, smooth))))
    if d <= policy.kinks:
        found.append(
            Rival(
                "Polynomial(3) + Matérn",
                Sum((cubic, Kernel(kernels.Matern(2.5, 1.0)))),
                below=policy.smooth,
            )
        )
    elif d <= policy.separate:
        each = RidgeFunctions(Kernel(kernels.Gaussian(1.0)), np.eye(d))
        sign = RidgeFunctions(Polynomial(policy.separate_degree), np.eye(d))
        found.append(
            Rival(
                "additive + IMQ",
                Anisotropic(Sum((each, slow))),
                policy.little,
                policy.separate_draws,
                sign,
            )
        )
    return found


def _at_all_draws(answer: Answer, task: Task) -> Answer:
    """With influences at all draws: none where a draw does not estimate, the others as many times
    larger."""
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
