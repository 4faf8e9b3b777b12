"""A sample that is asked for several things: checked once, and what was learned is kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from .choice import Forms, Known, Request, choose
from .choice.structure import Hierarchy, find_hierarchy
from .diagnostics import Check, check_sample
from .events.quantities import Marginal, Quantity
from .inference import rules
from .inference.cautions import Cautions
from .inference.conclude import conclude, describe_settings
from .inference.facts import Facts, ScoreFacts
from .inference.fits import default_split, fit_answer
from .inference.splits import in_sample
from .inference.task import Task
from .inputs.density import Density
from .inputs.integrands import as_values
from .inputs.sample import Posterior, Sample
from .output import Densities, Estimate

Said = TypeVar("Said", Estimate, Densities)


@dataclasses.dataclass(frozen=True, eq=False)
class Session:
    """A sample in memory, checked once, and what tuning for some integrands has taught for others.

    `forms` are other coordinates, by name, in which the draws may do better; `values` the named
    quantities at the draws, `density` what the draws were taken from, if that is known.
    `divergences` says how many of the sampler's transitions diverged, `left_out` through how many
    draws no lines are laid. What was found of these draws is no part of what a session is made of,
    so that `dataclasses.replace` gives one that has found nothing yet: `learned`, `marginals`, by
    quantity what makes its levels smooth, and `hierarchies` with the one that was found, if it was
    looked for.
    """

    sample: Sample
    verdict: Check
    forms: Forms
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    density: Density | None = None
    divergences: int = 0
    left_out: int = 0
    learned: dict[str, Known] = dataclasses.field(default_factory=dict, init=False)
    marginals: dict[tuple[str, bytes], Marginal | None] = dataclasses.field(
        default_factory=dict, init=False
    )
    hierarchies: list[Hierarchy | None] = dataclasses.field(default_factory=list, init=False)

    @staticmethod
    def of(posterior: Posterior) -> Session:
        """Check the draws and scores of a posterior."""
        sample = posterior.sample
        values = posterior.values if isinstance(posterior.values, Mapping) else {}
        return Session(
            sample,
            check_sample(sample),
            posterior.coordinates,
            values,
            posterior.density,
            posterior.divergences,
        )

    def thin(self, most: int) -> Session:
        """Return a session with about `most` of the draws to lay lines through, equally spaced in
        every chain; with all of them where there is no log density to be evaluated."""
        sample, rows = self.sample.thin(most)
        if sample is self.sample or self.density is None:
            return self
        return dataclasses.replace(
            self,
            sample=sample,
            values={name: np.reshape(one, -1)[rows] for name, one in self.values.items()},
            left_out=len(self.sample) - len(sample),
        )

    def say_left_out(self, means: Said) -> Said:
        """Return means, or curves, that say which draws they rest on, if not on all."""
        if not self.left_out:
            return means
        rest = len(self.sample)
        text = f"Lines are laid through {rest} of the {rest + self.left_out} draws."
        return dataclasses.replace(means, limits=(*means.limits, text))

    def find(self, name: str) -> Quantity | None:
        """Return one of the named quantities."""
        if name not in self.values:
            return None
        values = np.asarray(self.values[name], np.float64).reshape(-1)
        if len(values) != len(self.sample):
            return None
        at = None if self.density is None else self.density.find(name, self.sample.draws[0])
        return Quantity(name, values, at)

    def marginal(self, quantity: Quantity) -> Marginal | None:
        """Return what makes levels of a quantity smooth, once for all its levels."""
        # what a user gives may have the name of another quantity
        key = quantity.name, quantity.values.tobytes()
        if key not in self.marginals:
            self.marginals[key] = quantity.marginal(self.sample, self.density)
        return self.marginals[key]

    def _hierarchy(self, task: Task) -> Hierarchy | None:
        """Effects with a scale in common, looked for once."""
        if not self.hierarchies:
            self.hierarchies.append(find_hierarchy(task.sample, task.effective))
        return self.hierarchies[0]

    def estimate(
        self,
        values: Any,
        names: Sequence[str] | None = None,
        request: Request | None = None,
        bounded: Sequence[str] = (),
        stand_ins: Sequence[str] = (),
        off: float | np.ndarray = 0.0,
    ) -> Estimate:
        """Estimate means of integrands, with what was learned from others; some are `bounded`, or
        `stand_ins` for an indicator, and each may be `off` by so much (q,) besides rounding."""
        request, sample = Request() if request is None else request, self.sample
        array, found, events = as_values(values, sample, names)
        split = request.split
        task = Task.of(sample, array, request.standardise, request.seed)
        cautions = Cautions()
        cautions.add_divergences(self.divergences, len(sample))
        hierarchy = None if request.automatic is None else self._hierarchy(task)
        heavy = bool(self.verdict.untested) and hierarchy is not None
        cautions.add_check(self.verdict, hierarchy.cure(sample) if heavy and hierarchy else "")
        selection = None
        if request.automatic is not None:
            choice = choose(task, found, request.automatic, self.forms, self.learned, hierarchy)
            answer, selection, split = choice.answer, choice.selection, in_sample()
            self.learned.update(choice.learned)
        else:
            method = request.method(len(sample), task.seen)
            split = default_split(task, method) if split is None else split
            answer = fit_answer(task, method, split)
        scores = ScoreFacts.of(sample, self.verdict, array, request.score_error)
        facts = Facts.in_memory(
            task,
            found,
            events,
            scores,
            known_bounded=np.isin(found, bounded),
            stand_ins=np.isin(found, stand_ins),
            off=off,
        )
        return conclude(
            answer,
            facts,
            rules.ONE_FAMILY if selection is None else rules.STACK,
            cautions,
            split=split.describe(),
            settings=describe_settings(sample, array, **request.describe()),
            selection=selection,
        )
