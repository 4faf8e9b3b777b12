"""Archives: objects in one .npz, a JSON header and plain arrays, without pickle.

A class registers itself for saving: as a subclass of `Storable`, or by the decorator `storable`. Loading looks names up among
the classes that this process has registered, and never imports what a file names: a file from a stranger runs no code of
theirs. What is stored of an object are the fields that its constructor takes.
"""

import dataclasses
import enum
import inspect
import json
import os
import zipfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import numpy as np

from .atomic import atomic

FORMAT = 2
Class = TypeVar("Class", bound=type)

_CLASSES: dict[str, type] = {}
_FUNCTIONS: dict[str, Callable[..., Any]] = {}


def storable(cls: Class) -> Class:
    """Register a dataclass or enumeration for saving."""
    _CLASSES[_name(cls)] = cls
    return cls


class Storable:
    """Subclasses are registered for saving as they are defined; those with a leading underscore are not."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not cls.__name__.startswith("_"):
            storable(cls)


def register_functions(named: dict[str, Callable[..., Any]]) -> None:
    """Functions that may be fields of what is saved, such as activations; files name them by these keys."""
    _FUNCTIONS.update(named)


def write(path: str | os.PathLike[str], item: Any) -> None:
    """Store `item`, of a registered class, whole or not at all."""
    arrays: list[np.ndarray] = []
    header = {"zerovar": version("zerovar"), "format": FORMAT, "item": _encode(item, arrays)}
    named: dict[str, Any] = {f"a{k}": array for k, array in enumerate(arrays)}
    with atomic(Path(path)) as temporary, open(temporary, "wb") as file:
        np.savez(file, header=np.array(json.dumps(header)), **named)


def load(path: str | os.PathLike[str]) -> Any:
    """The `Fitted` or `Estimate` in a file that their `save` wrote. Loading runs no code from the file."""
    try:
        with np.load(path, allow_pickle=False) as file:
            header = json.loads(str(file["header"]))
            arrays = [file[f"a{k}"] for k in range(len(file.files) - 1)]
        form, item = header["format"], header.get("item")
    except (ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{os.fspath(path)} is not a file written by zerovar") from error
    if form != FORMAT:
        raise ValueError(
            f"{os.fspath(path)} has format {form}, written by zerovar {header.get('zerovar')}; "
            f"this version reads format {FORMAT}"
        )
    return _decode(item, arrays)


def _name(cls: type) -> str:
    """Ours by their own names, wherever they are; others by the module that defines them."""
    ours = cls.__module__.split(".")[0] == "zerovar"
    return f"zerovar.{cls.__name__}" if ours else f"{cls.__module__}.{cls.__qualname__}"


def _stored_fields(cls: type) -> list[str]:
    """Those that the constructor takes, but for what belongs to this process alone."""
    taken = inspect.signature(cls).parameters
    return [field.name for field in dataclasses.fields(cls) if field.name in taken and field.metadata.get("stored", True)]


def _encode(item: Any, arrays: list[np.ndarray]) -> Any:
    if isinstance(item, np.generic):
        item = item.item()
    if eqx.is_array(item):
        arrays.append(np.asarray(item))
        return {"array": len(arrays) - 1}
    if _CLASSES.get(_name(type(item))) is type(item):
        if isinstance(item, enum.Enum):
            return {"enum": _name(type(item)), "member": item.name}
        fields = {name: _encode(getattr(item, name), arrays) for name in _stored_fields(type(item))}
        return {"class": _name(type(item)), "fields": fields}
    if isinstance(item, (tuple, list)):
        return {"list": [_encode(entry, arrays) for entry in item], "tuple": isinstance(item, tuple)}
    if isinstance(item, dict):
        return {"dict": {str(key): _encode(entry, arrays) for key, entry in item.items()}}
    if item is None or isinstance(item, (bool, int, float, str)):
        return {"value": item}
    for name, function in _FUNCTIONS.items():
        if function is item:
            return {"function": name}
    raise TypeError(
        f"cannot store {item!r}, of type {type(item).__name__}: files hold registered classes only (MLP and ResNet "
        f"with activations {', '.join(_FUNCTIONS)}). Equinox' tree_serialise_leaves stores parameters of your own module"
    )


def _decode(item: dict[str, Any], arrays: list[np.ndarray]) -> Any:
    if "array" in item:
        return arrays[item["array"]]
    if "class" in item:
        return _known(item["class"])(**{key: _decode(entry, arrays) for key, entry in item["fields"].items()})
    if "enum" in item:
        return _known(item["enum"])[item["member"]]  # type: ignore[index]
    if "function" in item:
        return _FUNCTIONS[item["function"]]
    if "list" in item:
        entries = [_decode(entry, arrays) for entry in item["list"]]
        return tuple(entries) if item["tuple"] else entries
    if "dict" in item:
        return {key: _decode(entry, arrays) for key, entry in item["dict"].items()}
    return item["value"]


def _known(name: str) -> type:
    if name not in _CLASSES:
        raise ValueError(
            f"this file names a class that zerovar does not know: {name!r}. If it is one of yours, import the module that "
            "defines it first"
        )
    return _CLASSES[name]
