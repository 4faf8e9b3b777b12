"""Candidates in closed form: what the automatic choice tries first."""

import dataclasses
from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from ..errors import NumericalError
from ..families import Family, Polynomial, RidgeFunctions, SparsePolynomial
from ..fitting import Method
from ..inference.answer import Answer, Mask, PerIntegrand, plain_answer
from ..inference.fits import default_split, fit_answer
from ..inference.splits import cross_fit
from ..inference.task import Task
from ..inputs.points import DRAWS_PER_TERM
from ..objectives import Objective, SpectralVariance
from ..tuning import RIDGES, Tuned, tune
from .policy import Policy


class Attempt(NamedTuple):
    """What came of trying a control variate: an answer for some integrands, or a note why not."""

    label: str
    columns: Mask
    answer: Answer | None = None
    note: str = ""
    simple: bool = False

    @property
    def squares(self) -> PerIntegrand:
        """Mean squared influences for all integrands; infinite where it was not tried."""
        found = np.full(len(self.columns), np.inf)
        if self.answer is not None:
            found[self.columns] = mean_squares(self.answer)
        return found


def mean_squares(answer: Answer) -> PerIntegrand:
    """The mean squared influence for each integrand; never quite zero."""
    return np.mean(answer.influences**2, axis=(0, 1)) + np.finfo(float).tiny


class Candidate(ABC):
    """A control variate to try.

    One that is `simple` is in closed form, and preferred to a stack that is no better to within a
    standard error.
    """

    label: str
    simple: bool

    def attempt(self, task: Task, best: Answer, policy: Policy) -> Attempt:
        """Try it for the integrands that it may help, where `best` is the best answer so far."""
        columns = self.promise(task, best, policy)
        if not columns.any():
            return Attempt(self.label, columns)
        try:
            answer = self.answer(task.only(columns), policy)
        except NumericalError as error:
            return Attempt(self.label, columns, note=str(error))
        return Attempt(self.label, columns, answer, simple=self.simple)

    def promise(self, task: Task, best: Answer, policy: Policy) -> Mask:
        """The integrands that it may help."""
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

    def answer(self, task: Task, policy: Policy) -> Answer:
        method = Method(self.family, self.objective)
        return at_all_draws(fit_answer(task, method, default_split(task, method)), task)


@dataclasses.dataclass(frozen=True, eq=False)
class Directional(Candidate):
    """A line, and functions of one direction an integrand: what many dimensions leave affordable
    beyond a line.

    A few integrands at a time share their directions; the ridge suits the line.
    """

    label: str
    family: Family
    degree: int
    simple: bool = False

    def promise(self, task: Task, best: Answer, policy: Policy) -> Mask:
        """Those of which powers of the direction of steepest growth explain a part of what is left,
        by few terms each."""
        x, s = task.draws.standardisation()(task.sample.draws, task.sample.scores)
        left = best.in_a_mean.reshape(len(task), -1)
        left = left - left.mean(axis=0)
        directions = x.T @ (task.values - task.values.mean(axis=0))
        directions /= np.maximum(np.linalg.norm(directions, axis=0), np.finfo(float).tiny)
        t, score = x @ directions, s @ directions
        powers = [
            k * (k - 1) * t ** (k - 2) + k * t ** (k - 1) * score for k in range(2, self.degree + 1)
        ]
        terms = np.stack([np.ones_like(t), *powers], axis=2).transpose(1, 0, 2)  # (q, n, terms)
        bases = np.linalg.qr(terms)[0]
        explained = np.sum(np.einsum("qnk,nq->qk", bases, left) ** 2, axis=1)
        return explained > (1 - policy.bent) * np.sum(left**2, axis=0)

    def answer(self, task: Task, policy: Policy) -> Answer:
        varying = np.ptp(task.values, axis=0) > 0
        found = plain_answer(task)
        if not varying.any():
            return found
        tuned = tune(
            Polynomial(1),
            task.sample,
            task.values[:, varying],
            ridges=RIDGES,
            draws=min(int(task.effective), policy.pilot),
            standardise=task.standardise,
        )
        assert isinstance(tuned, Tuned)
        method = Method(self.family, tuned.objective)
        places = np.flatnonzero(varying)
        for first in range(0, len(places), policy.at_a_time):
            columns = np.isin(np.arange(len(varying)), places[first : first + policy.at_a_time])
            found = found.insert(fit_answer(task.only(columns), method, cross_fit()), columns)
        return found


def offer(task: Task, policy: Policy) -> list[Candidate]:
    """The candidates that need no tuning, for draws of this size and dimension, simplest first."""
    if not task.sample.space.is_flat:
        return _offer_in_space(task, policy)
    d, a_term = task.sample.dim, draws_per_term(task, policy)
    found: list[Candidate] = [
        AsGiven(f"Polynomial({degree})", Polynomial(degree))
        for degree in (1, 2, 3)
        if a_term * Polynomial(degree).num_features(d) <= task.effective
    ]
    if task.is_slow:
        found += [
            AsGiven(
                f"Polynomial({degree}), spectral variance", Polynomial(degree), SpectralVariance()
            )
            for degree in (1, 2)
            if a_term * Polynomial(degree).num_features(d) <= task.effective
        ]
    if a_term * Polynomial(3).num_features(d) <= task.effective:
        return found
    # linear terms with a ridge where draws are few, so that there is no cliff between few and
    # enough
    found.append(AsGiven("SparsePolynomial(3)", SparsePolynomial(3)))
    # directions are learned from the same draws, so that their terms need as many as a slow chain's
    for degree in (4, 3):
        terms = policy.at_a_time * (degree - 1)
        if DRAWS_PER_TERM * policy.slow_factor * terms < task.effective:
            bends = RidgeFunctions(Polynomial(degree, weight=(0.0, *(degree - 1) * (np.inf,))))
            label = f"Polynomial(1) + RidgeFunctions(Polynomial({degree}))"
            found.append(Directional(label, Polynomial(1) + bends, degree))
            break
    return found


def _offer_in_space(task: Task, policy: Policy) -> list[Candidate]:
    """The same in a space other than Rᵈ: polynomials in what families see, which may be linearly
    dependent there."""
    return [
        AsGiven(f"Polynomial({degree})", Polynomial(degree))
        for degree in range(1, policy.separate_degree + 1)
        if draws_per_term(task, policy) * Polynomial(degree).num_features(task.seen)
        <= task.different
    ]


def draws_per_term(task: Task, policy: Policy) -> float:
    """The draws that each term of a polynomial needs."""
    return DRAWS_PER_TERM * (policy.slow_factor if task.is_slow else 1)


def at_all_draws(answer: Answer, task: Task) -> Answer:
    """An answer with influences at all draws: none where a draw does not estimate, the others as
    many times larger."""
    if answer.rows is None or len(answer.rows) == len(task):
        return answer
    influences = np.zeros_like(task.values)
    flat = answer.influences.reshape(len(answer.rows), -1)
    influences[answer.rows] = flat * (len(task) / len(answer.rows))
    return dataclasses.replace(answer, influences=task.sample.by_chain(influences), rows=None)
