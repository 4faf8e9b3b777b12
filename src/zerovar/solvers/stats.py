"""What a fit says of itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from ..io.archive import storable


@storable
@dataclasses.dataclass(frozen=True)
class FitStats(Mapping[str, Any]):
    """What was solved and how. The fields are what zerovar itself reads; `details` is for people.
    All of it can be read like a dict, `stats["ridge"]`.

    form: the route in words, such as "primal".
    unknowns: how many coefficients were found.
    counts_terms: whether these are terms of the family, which too few draws would not determine; a
        dual has one a draw.
    draws, distinct_draws: that were fitted; `fit` adds them.
    """

    form: str
    unknowns: int
    counts_terms: bool = False
    draws: int = 0
    distinct_draws: int = 0
    details: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __or__(self, more: Mapping[str, Any]) -> FitStats:
        """Return these with others in addition, or in place of those of the same name."""
        told = dict(more)
        own = {name: told.pop(name) for name in _FIELDS if name in told}
        return dataclasses.replace(self, **own, details=self.details | told)

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name) if name in _FIELDS else self.details[name]

    def __iter__(self) -> Iterator[str]:
        return iter((*_FIELDS, *self.details))

    def __len__(self) -> int:
        return len(_FIELDS) + len(self.details)


_FIELDS = tuple(field.name for field in dataclasses.fields(FitStats) if field.name != "details")
