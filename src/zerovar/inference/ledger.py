"""The ledger of an answer: the bounds of its error, by rule and column.

Bounds are made after all replacements, from the answer as it will be reported. So a column that was
replaced, by the plain mean for instance, has only bounds of its own.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from .answer import Answer, PerIntegrand, at_least_rounding
from .facts import Facts
from .rules import Bound, Reason, Rule


@dataclasses.dataclass(frozen=True, eq=False)
class Ledger:
    """Errors (q,) by scatter alone, of the answer and of the plain mean, and bounds of the first.

    Bounds that are shared hold for both. What is capped is at most the error of the plain mean.
    """

    scatter: PerIntegrand
    plain_scatter: PerIntegrand
    bounds: tuple[Bound, ...]

    @property
    def plain_error(self) -> PerIntegrand:
        """The standard error of the plain mean."""
        shared = [bound.size for bound in self.bounds if bound.shared]
        return np.maximum.reduce([self.plain_scatter, *shared])

    @property
    def error(self) -> PerIntegrand:
        """The standard error of the answer."""
        return np.maximum.reduce([self.scatter, *self._sizes])

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """What the error of each column rests on: the first of its largest bounds."""
        reasons = [Reason.SCATTER, *(bound.reason for bound in self.bounds)]
        largest = np.argmax([self.scatter, *self._sizes], axis=0)
        return tuple(reasons[k] for k in largest)

    @property
    def _sizes(self) -> list[PerIntegrand]:
        most = self.plain_error
        return [np.minimum(one.size, most) if one.capped else one.size for one in self.bounds]


def assess(answer: Answer, facts: Facts, rules: Sequence[Rule]) -> Ledger:
    """Apply the rules to the columns that they are for."""

    def keep(bound: Bound) -> Bound:
        if bound.shared:
            return bound
        return bound._replace(size=np.where(answer.controlled, bound.size, 0.0))

    scale = facts.scale
    return Ledger(
        at_least_rounding(answer.scatter, scale),
        at_least_rounding(facts.plain.scatter, scale),
        tuple(keep(rule(answer, facts)) for rule in rules),
    )
