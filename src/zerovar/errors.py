"""What zerovar raises and warns with, so that users can filter by kind."""

import sys
import warnings
from types import FrameType


def listed(names: list[str]) -> str:
    """The first few names for a message, and how many more there are."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


class NumericalError(ArithmeticError):
    """A linear system could not be solved; the message says why and what to change."""


class ZerovarWarning(UserWarning):
    """Base of every warning that zerovar gives."""


class NumericalWarning(ZerovarWarning):
    """The answer was obtained, but not by the plain route (a ridge was raised, a rank was short)."""


class ScoreWarning(ZerovarWarning):
    """The scores do not look like the scores of these draws."""


class SampleWarning(ZerovarWarning):
    """The draws, or their effective number, make the answer less certain than it looks."""


def warn(text: str, kind: type[ZerovarWarning]) -> None:
    """Warn as if from the user's line: the one that called zerovar."""
    depth, outermost = 0, 0
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        depth += 1
        if frame.f_globals.get("__name__", "").split(".")[0] == "zerovar":
            outermost = depth
        frame = frame.f_back
    warnings.warn(text, kind, stacklevel=outermost + 1)
