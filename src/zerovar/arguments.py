"""What arguments may be, declared beside the functions and classes that take them:

    @takes(fraction=SHARE)
    def holdout(fraction: float = 0.5): ...

They are checked, and made what the code works with, before anything is computed. None passes where
it is the default, and so do JAX' tracers, whose values are not known.
"""

import functools
import inspect
import math
import operator
import reprlib
from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from .interrupts import postpone_interrupts

Taker = TypeVar("Taker", bound=Callable[..., Any])


class Requirement(NamedTuple):
    """What an argument must be, in words, and a function that returns it as the code works with it,
    and raises anything for what is none."""

    words: str
    read: Callable[[Any], Any]


class Foreign(NamedTuple):
    """What to write in place of an argument that another library has, with {} for its value."""

    instead: str


def takes(**requirements: Requirement | Foreign) -> Callable[[Taker], Taker]:
    """Check these arguments of a function or method, or of the constructor of a dataclass."""
    own = {name: one for name, one in requirements.items() if isinstance(one, Requirement)}
    foreign = {name: one.instead for name, one in requirements.items() if isinstance(one, Foreign)}

    def declare(taker: Taker) -> Taker:
        if not isinstance(taker, type):
            return _check_calls(taker, own, foreign)
        taker.__init__ = _check_calls(taker.__init__, own, foreign)  # type: ignore[misc]
        return taker

    return declare


def _check_calls(
    called: Any, requirements: dict[str, Requirement], foreign: Mapping[str, str]
) -> Any:
    signature = inspect.signature(called)
    defaults = {name: signature.parameters[name].default for name in requirements}
    is_constructor = called.__name__ == "__init__"

    @functools.wraps(called)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError:  # too many or too few: Python says so itself
            for name in set(kwargs) & set(foreign):
                instead = foreign[name].format(show(kwargs[name]))
                raise TypeError(
                    f"{called.__qualname__} has no argument {name}; write {instead}"
                ) from None
            return called(*args, **kwargs)
        owner = type(args[0]).__name__ if is_constructor else called.__qualname__
        for name, requirement in requirements.items():
            value = given.arguments.get(name, defaults[name])
            if value is not None or defaults[name] is not None:
                given.arguments[name] = check_argument(f"{owner}: {name}", value, requirement)
        with postpone_interrupts():
            return called(*given.args, **given.kwargs)

    return call


def check_argument(name: str, value: Any, requirement: Requirement) -> Any:
    """Return an argument as the code works with it, or raise a ValueError that says what it must
    be."""
    if isinstance(value, jax.core.Tracer):
        return value
    try:
        return requirement.read(value)
    except Exception:
        raise ValueError(f"{name} must be {requirement.words}; got {show(value)}") from None


def show(value: Any) -> str:
    """Return what a message says of an argument: the beginning and the end of it, and its type
    where that does not show."""
    if isinstance(value, type):
        return f"the class {value.__name__}, not an object of it"
    kind = type(value).__name__
    try:
        text = " ".join(reprlib.repr(value).split())
    except Exception:  # an integer of thousands of digits
        return f"a long {kind}"
    return text if type(value).__module__ == "builtins" or kind in text else f"{text} ({kind})"


def where(
    words: str, test: Callable[[Any], Any], read: Callable[..., Any] | None = None
) -> Requirement:
    """Return the requirement of what passes a test, as it is, or as `read` returns it."""

    def check(value: Any) -> Any:
        found = value if read is None else read(value)
        if not test(found):
            raise ValueError(words)
        return found

    return Requirement(words, check)


def read_numbers(value: Any) -> np.ndarray:
    """Return real numbers of any type, one or a rectangular array, as float64; else raise."""
    array = np.asarray(value)
    if array.dtype.kind not in "fiu":
        raise ValueError("no numbers")
    return array.astype(np.float64)


def read_whole_numbers(value: Any) -> np.ndarray:
    """Return integers of any type, one or a rectangular array; else raise."""
    array = np.asarray(value)
    if array.dtype.kind not in "iu":
        raise ValueError("no integers")
    return array


def number(words: str, test: Callable[[float], bool]) -> Requirement:
    """Return the requirement of single numbers that pass a test, as floats."""

    def read(value: Any) -> float:
        array = read_numbers(value)
        return float(array) if array.ndim == 0 else math.nan

    return where(words, test, read)


def whole(least: int, most: int | None = None) -> Requirement:
    """Return the requirement of integers that are large enough, and not too large."""
    words = f"an integer of at least {least}" + ("" if most is None else f" and at most {most}")

    def read(value: Any) -> int:
        return least - 1 if isinstance(value, bool) else int(operator.index(value))

    return where(words, lambda x: least <= x <= (x if most is None else most), read)


def one_of(*choices: str | None) -> Requirement:
    """Return the requirement of a few words."""
    words = f"one of {', '.join(map(repr, choices))}"
    return Requirement(words, lambda value: choices[choices.index(value)])


def instance(kinds: Any, words: str) -> Requirement:
    """Return the requirement of instances of a class, or of several."""
    return where(words, lambda value: isinstance(value, kinds))


def several(one: Requirement, words: str, empty: bool = True) -> Requirement:
    """Return the requirement of one or more of what another takes, or of none, as a tuple."""

    def read(value: Any) -> tuple[Any, ...]:
        try:
            return (one.read(value),)
        except Exception:
            return tuple(map(one.read, value))

    return where(words, lambda found: empty or len(found) > 0, read)


def function(words: str) -> Requirement:
    """Return the requirement of what can be called."""
    return where(words, callable)


def _positive(x: float) -> bool:
    return 0 < x < math.inf


def _not_negative(x: float) -> bool:
    return 0 <= x < math.inf


def _inside(x: float) -> bool:
    return 0 < x < 1


POSITIVE = number("a positive number", _positive)
NOT_NEGATIVE = number("a finite number ≥ 0", _not_negative)
SHARE = number("strictly between 0 and 1", _inside)
FLAG = instance((bool, np.bool_), "True or False")
PATH = where(
    "a path, as a str or pathlib.Path",
    lambda value: isinstance(value, (str, PathLike)) and "\0" not in str(value),
)
NAMES = several(instance(str, "a string"), "a list of strings")
OF_A_DRAW = function("a function of one draw, written in JAX")
MORE_VALUES = instance(Mapping, "a dict of name → function of one draw, or array (chain, draw)")
