"""What zerovar raises and warns with, so that users can filter by kind."""

import os
import sys
import warnings
from collections.abc import Iterable, Sequence
from types import FrameType
from typing import Any


def listed(names: list[str]) -> str:
    """The first few names for a message, and how many more there are."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


_forked_late = False


def _note_fork() -> None:
    global _forked_late
    # JAX has no public word on whether its threads have started
    bridge = sys.modules.get("jax._src.xla_bridge")
    _forked_late = _forked_late or bool(getattr(bridge, "backends_are_initialized", bool)())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def refuse_fork() -> None:
    """JAX' threads do not come along into a forked process: whatever waits for them hangs, so it is
    refused."""
    if _forked_late:
        raise RuntimeError(
            "this process was forked after JAX had started, and would hang: its threads are not "
            "copied. Start workers by "
            'multiprocessing.get_context("spawn"), or fork them before anything is computed'
        )


def missing(package: str, extra: str) -> ImportError:
    return ImportError(f"this needs {package}: pip install '.[{extra}]' in a clone of zerovar")


class NumericalError(ArithmeticError):
    """A linear system could not be solved; the message says why and what to change."""


class ZerovarWarning(UserWarning):
    """Base of every warning that zerovar gives. `names` are those of the integrands that it is
    about, if it is about some."""

    def __init__(self, text: str, names: Sequence[str] = ()):
        super().__init__(text.replace("{names}", listed(list(names))))
        self.template, self.names = text, tuple(names)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.template, self.names)


def said_once(given: Iterable[ZerovarWarning]) -> list[ZerovarWarning]:
    """Warnings that differ in names alone, as one that has all the names."""
    names: dict[tuple[type[ZerovarWarning], str], dict[str, None]] = {}
    for warning in given:
        names.setdefault((type(warning), warning.template), {}).update(dict.fromkeys(warning.names))
    return [kind(text, tuple(some)) for (kind, text), some in names.items()]


class NumericalWarning(ZerovarWarning):
    """The answer was obtained, but not by the plain route (a ridge was raised, a rank was
    short)."""


class ScoreWarning(ZerovarWarning):
    """The scores do not look like the scores of these draws."""


class SampleWarning(ZerovarWarning):
    """The draws, or their effective number, make the answer less certain than it looks."""


def warn(text: str, kind: type[ZerovarWarning], names: Sequence[str] = ()) -> None:
    """Warn as if from the user's line: the one that called zerovar."""
    depth, outermost = 0, 0
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        depth += 1
        if frame.f_globals.get("__name__", "").split(".")[0] == "zerovar":
            outermost = depth
        frame = frame.f_back
    warnings.warn(kind(text, names), stacklevel=outermost + 1)
