"""What zerovar raises and warns with, so that users can filter by kind."""

import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType


def list_names(names: Sequence[str]) -> str:
    """Return the first few names for a message, and how many more there are."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def require_distinct(what: str, names: Sequence[str]) -> None:
    """Raise a ValueError that says which of these names there are more than once."""
    twice = [name for name in dict.fromkeys(names) if list(names).count(name) > 1]
    if twice:
        raise ValueError(f"{what} must be distinct; got {list_names(twice)} more than once")


_computing: int | None = None  # the process in which zerovar first computed


def refuse_fork() -> None:
    """Raise a RuntimeError in a process that was forked after zerovar had computed.

    JAX' threads do not come along into a forked process, and whatever waits for them hangs.
    """
    global _computing
    _computing = _computing or os.getpid()
    if _computing != os.getpid():
        raise RuntimeError(
            "this process was forked after JAX had started, and would hang: its threads are not "
            "copied. Start workers by "
            'multiprocessing.get_context("spawn"), or fork them before anything is computed'
        )


def missing_package(package: str, extra: str) -> ImportError:
    """Return the error that names a package, and the extra of zerovar that brings it."""
    return ImportError(f"this needs {package}: pip install '.[{extra}]' in a clone of zerovar")


class NumericalError(ArithmeticError):
    """A linear system could not be solved; the message says why and what to change."""


class ZerovarWarning(UserWarning):
    """Base of every warning that zerovar gives. `names` are those of the integrands that it is
    about, if it is about some."""

    def __init__(self, text: str, names: Sequence[str] = ()):
        super().__init__(text.replace("{names}", list_names(names)))
        self.template, self.names = text, tuple(names)

    def __reduce__(self) -> tuple[type["ZerovarWarning"], tuple[str, tuple[str, ...]]]:
        return type(self), (self.template, self.names)


def merge_warnings(given: Iterable[ZerovarWarning]) -> list[ZerovarWarning]:
    """Return warnings that differ in names alone as one that has all the names."""
    names: dict[tuple[type[ZerovarWarning], str], dict[str, None]] = {}
    for warning in given:
        names.setdefault((type(warning), warning.template), {}).update(dict.fromkeys(warning.names))
    return [kind(text, tuple(some)) for (kind, text), some in names.items()]


@contextmanager
def hold_warnings() -> Iterator[list[warnings.WarningMessage]]:
    """Give the list that warnings go to, in place of being given, for `repeat_warnings`."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught


def spare_names(
    caught: Iterable[warnings.WarningMessage], names: Sequence[str]
) -> list[ZerovarWarning]:
    """Return warnings that were caught, but for what they say of these names alone."""
    given = [one.message for one in caught if isinstance(one.message, ZerovarWarning)]
    kept = [(one, [name for name in one.names if name not in names]) for one in given]
    return [type(one)(one.template, some) for one, some in kept if some or not one.names]


def repeat_warnings(caught: Iterable[warnings.WarningMessage | ZerovarWarning]) -> list[str]:
    """Give warnings that were caught, as one where they differ in names alone, and return their
    words."""
    given = [one.message if isinstance(one, warnings.WarningMessage) else one for one in caught]
    merged = merge_warnings([one for one in given if isinstance(one, ZerovarWarning)])
    for one in merged:
        warn(one.template, type(one), one.names)
    return [str(one) for one in merged]


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
