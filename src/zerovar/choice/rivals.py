"""Rivals: families whose hyper-parameters are tuned by likelihood before they are fitted."""

import dataclasses
from typing import NamedTuple

import numpy as np

from .. import kernels
from ..families import Anisotropic, Kernel, LinearFamily, Polynomial, RidgeFunctions, Sum
from ..fitting import Method
from ..inference.answer import Answer
from ..inference.fits import default_split, fit_answer
from ..inference.splits import OutOfFold, in_sample
from ..inference.task import Task
from ..spaces import REALS, Grid, Space
from ..tuning import Descent, DescentEnd, DescentStart, MarginalLikelihood
from .candidates import at_all_draws, draws_per_term
from .policy import Policy


class Tuning(NamedTuple):
    """A descent, where it stands, and for which of its integrands it runs."""

    descent: Descent
    end: DescentEnd
    columns: np.ndarray


class Beginning(NamedTuple):
    """A descent, where it begins, and what another one has felt of the curvature there."""

    descent: Descent
    start: DescentStart
    steps: np.ndarray | None

    def run(self, evaluations: int) -> Tuning:
        """Descend, for the integrands that are not noise to the family."""
        position, columns, _ = self.start
        likelihood = MarginalLikelihood()
        end = self.descent.run(columns, likelihood, evaluations, position, self.steps)
        return Tuning(self.descent, end, columns)


@dataclasses.dataclass(frozen=True, eq=False)
class Rival:
    """A family whose hyper-parameters are tuned by likelihood, from where they stand.

    One that is `special` suits some integrands only: those to which its `sign` points, a family in
    closed form that has little error where the rival does, and it is then tried before all others;
    without a sign, those that others leave with little gain. It is tuned on 1/`share` of the draws
    that others take.
    """

    label: str
    family: LinearFamily
    special: bool = False
    share: int = 1
    sign: LinearFamily | None = None

    def read_sign(self, task: Task, policy: Policy) -> Answer | None:
        """The answer of its sign, if it has one and there are draws for it."""
        if self.sign is None:
            return None
        terms = self.sign.num_features(task.sample.dim)
        if terms is None or draws_per_term(task, policy) * terms > task.effective:
            return None
        return fit_answer(task, Method(self.sign), in_sample())

    def begin(self, few: Task, whole: Task, known: DescentEnd | None = None) -> Beginning:
        """Begin a descent on a few of the draws, in the coordinates in which it will be fitted to
        all of them, from where one for other integrands ended, if that is known."""
        descent = Descent.on(self.family, few.draws, few.values, whole.draws)
        if known is None:
            return Beginning(descent, descent.likelihood_start(None), None)
        return Beginning(descent, descent.likelihood_start(known.position), known.steps)

    def resume(self, few: Task, whole: Task, steps: int, before: Tuning) -> Tuning:
        """Go on with a descent for the same integrands, on other draws."""
        descent = Descent.on(self.family, few.draws, few.values, whole.draws)
        position, felt = before.end.position, before.end.steps
        end = descent.run(before.columns, MarginalLikelihood(), steps, position, felt)
        return Tuning(descent, end, before.columns)

    def answer(self, task: Task, tuning: Tuning, policy: Policy) -> Answer:
        """Its value, and influences at all draws, with the hyper-parameters of a descent."""
        tuned = tuning.descent.outcome(tuning.end, len(task))
        method = Method(tuned.family, tuned.objective)
        dense = len(task) <= policy.dense
        thin = FitThinned(min(policy.dense, len(task) // 2))
        split = default_split(task, method) if dense else thin
        return at_all_draws(fit_answer(task, method, split), task)


def offer_rivals(d: int, policy: Policy, space: Space = REALS) -> list[Rival]:
    """Families to be tuned: for all integrands, and for those that the others leave with little
    gain. `d` is how many coordinates families see."""
    if not space.is_flat:
        return _offer_in_space(d, policy, space)
    cubic = Polynomial(3, weight=policy.degree_weights)
    scale = max(3.0, np.sqrt(d))
    long = policy.long * scale
    slow = Kernel(kernels.InverseMultiquadric(long), weight=long**2 / d)
    found = [
        Rival("Polynomial(3) + anisotropic IMQ", Sum((cubic, Anisotropic(slow)))),
        Rival("anisotropic Polynomial(3) + IMQ", Anisotropic(Sum((cubic, slow)), mixing=True)),
    ]
    if d <= policy.kinks:
        smooth = Kernel(kernels.Gaussian(scale), 2, weight=(scale**2 / d) ** 2)
        rough = Kernel(kernels.Matern(2.5, 1.0))
        found.append(Rival("Polynomial(3) + Gaussian", Sum((cubic, smooth))))
        found.append(Rival("Polynomial(3) + Matérn", Sum((cubic, rough)), special=True))
    else:
        each = RidgeFunctions(Kernel(kernels.Gaussian(1.0)), np.eye(d))
        sign = RidgeFunctions(Polynomial(policy.separate_degree), np.eye(d))
        family = Anisotropic(Sum((each, slow)))
        found.append(Rival("additive + IMQ", family, special=True, share=2, sign=sign))
    return found


def _offer_in_space(d: int, policy: Policy, space: Space) -> list[Rival]:
    """The same in a space other than Rᵈ, whose coordinates must not be scaled. Among whole numbers
    there are potentials alone, and as many kinds of points as coordinates allow; a Gaussian falls
    to nothing between two clusters of counts, and means of 9.4 came out as 5.5 ± 0.3."""
    quadratic = Polynomial(2, weight=policy.degree_weights[:2])
    order, scale = (2, np.sqrt(d)) if space.is_countable else (1, 1.0)
    smooth = Kernel(kernels.Gaussian(scale), order)
    rough = Kernel(kernels.InverseMultiquadric(scale), order)
    found = [Rival("Polynomial(2) + IMQ", Sum((quadratic, rough)))]
    if not isinstance(space, Grid) or space.has_two_values:
        found.insert(0, Rival("Polynomial(2) + Gaussian", Sum((quadratic, smooth))))
    return found


@dataclasses.dataclass(frozen=True)
class FitThinned(OutOfFold):
    """Draws that are equally spaced fit, all others estimate."""

    most: int

    def folds(self, sample):
        fitting = sample.thin(self.most)[1]
        return [(fitting, np.setdiff1d(np.arange(len(sample)), fitting))]

    def describe(self):
        return f"fitted to {self.most} draws"
