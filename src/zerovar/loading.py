"""load(): read back what `Fitted.save` or `Estimate.save` wrote."""

from __future__ import annotations

from os import PathLike

from . import storage
from .fitting import Fitted
from .result import Estimate


def load(path: str | PathLike[str]) -> Fitted | Estimate:
    """The fit or estimate in a file written by zerovar. Loading runs no code from the file."""
    kind, state = storage.read(path)
    if kind == "fitted":
        return Fitted._from_state(state)
    if kind == "estimate":
        return Estimate._from_state(state)
    raise ValueError(f"{path} holds a {kind!r}, which this version of zerovar does not know")
