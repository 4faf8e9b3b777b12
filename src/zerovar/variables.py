"""Which of the named values a user means, as ArviZ has it."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from .arguments import instance, one_of, several
from .errors import list_names

VAR_NAMES = several(instance(str, "a name"), "a name or a list of names, at least one", empty=False)
FILTER = one_of(None, "like", "regex")


def select_variables(
    values: Mapping[str, Any], wanted: Sequence[str] | None, filter_vars: str | None
) -> dict[str, Any]:
    """Return the rows that ArviZ would take: theta stands for all of theta[…]."""
    if wanted is None:
        return dict(values)

    def matches(pattern: str, label: str) -> bool:
        name = variable(label)
        if filter_vars == "regex":
            try:
                return re.search(pattern, name) is not None
            except re.error as error:
                fix = (
                    "put a backslash before characters that stand for themselves, or use "
                    "filter_vars='like'"
                )
                raise ValueError(
                    f"var_names: {pattern!r} is not a regular expression ({error}); {fix}"
                ) from error
        return pattern in name if filter_vars == "like" else pattern in (name, label)

    chosen: list[str] = (
        [] if any(not pattern.startswith("~") for pattern in wanted) else list(values)
    )
    for pattern in wanted:
        out = pattern.startswith("~")
        found = [label for label in values if matches(pattern.removeprefix("~"), label)]
        if not found:
            raise ValueError(
                f"var_names: {pattern!r} matches none of "
                f"{list_names(list(dict.fromkeys(map(variable, values))))}"
            )
        chosen = (
            [label for label in chosen if label not in found]
            if out
            else chosen + [x for x in found if x not in chosen]
        )
    if not chosen:
        raise ValueError(f"var_names: {list(wanted)} leaves nothing to summarise")
    return {label: values[label] for label in chosen}


def variable(label: str) -> str:
    """The variable that an entry belongs to: theta of theta[0]."""
    return label.split("[")[0]
