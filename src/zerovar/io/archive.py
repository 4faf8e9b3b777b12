"""Archives: objects in one .npz, a JSON header and plain arrays, without pickle.

A class registers itself for saving: as a subclass of `Storable`, or by the decorator `storable`.
Loading looks names up among the classes that this process has registered, and never imports what a
file names: a file from a stranger runs no code of theirs. What is stored of an object are the
fields that its constructor takes.
"""

import dataclasses
import enum
import inspect
import json
import math
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar

import equinox as eqx
import numpy as np

from ..arguments import PATH, takes
from ..environment import __version__
from .atomic import atomic

FORMAT = 2  # of files: one of another number is refused
_MOST_DEFLATED = 1032  # no deflated byte stands for more, by the algorithm
Class = TypeVar("Class", bound=type)

_CLASSES: dict[str, type] = {}
_FUNCTIONS: dict[str, Callable[..., Any]] = {}


def storable(cls: Class) -> Class:
    """Register a dataclass or enumeration for saving."""
    _CLASSES[_name(cls)] = cls
    return cls


class Storable:
    """Subclasses are registered for saving as they are defined; those with a leading underscore are
    not."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not cls.__name__.startswith("_"):
            storable(cls)


def register_functions(named: dict[str, Callable[..., Any]]) -> None:
    """Register functions that may be fields of what is saved, such as activations; files name them
    by these keys."""
    _FUNCTIONS.update(named)


def write(path: str | os.PathLike[str], item: Any) -> None:
    """Store `item`, of a registered class, whole or not at all."""
    arrays: list[np.ndarray] = []
    header = {"zerovar": __version__, "format": FORMAT, "item": _encode(item, arrays)}
    named: dict[str, Any] = {f"a{k}": array for k, array in enumerate(arrays)}
    with atomic(Path(path)) as temporary, open(temporary, "wb") as file:
        np.savez(file, header=np.array(json.dumps(header)), **named)


@takes(path=PATH)
def load(path: str | os.PathLike[str]) -> Any:
    """Return the `Fitted` or `Estimate` in a file that their `save` wrote. Loading runs no code
    from the file."""
    if not os.path.isfile(path):
        raise FileNotFoundError(f"path: there is no file {os.fspath(path)} to load")
    with name_files(path, what="is not a file written by zerovar"):
        arrays = read_arrays(
            path, lambda names: ["header", *(f"a{k}" for k in range(len(names) - 1))]
        )
        header = json.loads(str(arrays.pop("header")))
        form, item = header["format"], header.get("item")
    if form != FORMAT:
        raise ValueError(
            f"{os.fspath(path)} has format {form}, written by zerovar {header.get('zerovar')}; "
            f"this version reads format {FORMAT}"
        )
    with name_files(path, what="cannot be loaded"):
        return _decode({key: item[key] for key in ("class", "fields")}, arrays)


@contextmanager
def name_files(*paths: str | os.PathLike[str], what: str = "cannot be read") -> Iterator[None]:
    """Turn whatever broken files do to their readers into one ValueError that names them."""
    names = [os.fsdecode(path) for path in paths]
    try:
        yield
    except Exception as error:
        if isinstance(error, (ValueError, OSError)) and any(name in str(error) for name in names):
            raise
        raise ValueError(
            f"{', '.join(names)} {what}: {error if isinstance(error, ValueError) else repr(error)}"
        ) from error


def read_arrays(
    path: str | os.PathLike[str],
    choose: Callable[[list[str]], Iterable[str]],
    compressed: bool = False,
) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz that `choose` chooses from their names; memory is taken for what
    the file has bytes for."""
    most = {zipfile.ZIP_STORED: 1} | ({zipfile.ZIP_DEFLATED: _MOST_DEFLATED} if compressed else {})
    with zipfile.ZipFile(path) as folder:
        members = {info.filename.removesuffix(".npy"): info for info in folder.infolist()}
        if sum(info.compress_size for info in members.values()) > os.path.getsize(path):
            raise ValueError("its members are longer than the file")
        arrays = {}
        for name in choose([*members]):
            info = members[name]
            if info.file_size > most.get(info.compress_type, 0) * info.compress_size:
                raise ValueError(
                    f"its member {name} is compressed, or claims more bytes than it has"
                )
            with folder.open(info) as file:
                _check_size(file, name, info.file_size)
            with folder.open(info) as file:
                arrays[name] = np.lib.format.read_array(file, allow_pickle=False)
    return arrays


def require_known(
    path: str | os.PathLike[str], names: list[str], known: tuple[str, ...], hint: str = ""
) -> None:
    """Raise a ValueError that says which of a file's arrays nothing is known of: what is spelled
    wrongly would count for nothing."""
    if strange := [name for name in names if name not in known]:
        raise ValueError(
            f"{path} has arrays that zerovar does not know: {', '.join(strange)}. It may have "
            f"{', '.join(known)}{hint}"
        )


def _check_size(file: IO[bytes], name: str, size: int) -> None:
    """Raise a ValueError if the shape that an array claims is not that of the bytes which follow;
    what is pickled is refused by its reader."""
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError(f"its member {name} is of another version of NumPy's format than 1.0")
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    claimed = file.tell() + math.prod(shape) * max(dtype.itemsize, 1)
    if not dtype.hasobject and (claimed != size or not all(0 <= side <= size for side in shape)):
        raise ValueError(
            f"its member {name} claims shape {shape} of {dtype}, which are not its {size} bytes"
        )


def _name(cls: type) -> str:
    """Return what files call a class: ours by their own names, wherever they are; others by the
    module that defines them too."""
    ours = cls.__module__.split(".")[0] == "zerovar"
    return f"zerovar.{cls.__name__}" if ours else f"{cls.__module__}.{cls.__qualname__}"


def _stored_fields(cls: type) -> list[str]:
    """Return the fields that the constructor takes, but for what belongs to this process alone."""
    taken = inspect.signature(cls).parameters
    return [
        field.name
        for field in dataclasses.fields(cls)
        if field.name in taken and field.metadata.get("stored", True)
    ]


def _encode(item: Any, arrays: list[np.ndarray]) -> Any:
    if isinstance(item, np.generic):
        item = item.item()
    if eqx.is_array(item):
        arrays.append(np.asarray(item))
        return {"array": len(arrays) - 1}
    name = _name(type(item))
    if _CLASSES.get(name) is type(item):
        if isinstance(item, enum.Enum):
            return {"enum": name, "member": item.name}
        stored = {key: getattr(item, key) for key in _stored_fields(type(item))}
        return {"class": name, "fields": _encode(stored, arrays)["dict"]}
    if isinstance(item, (tuple, list)):
        return {
            "list": [_encode(entry, arrays) for entry in item],
            "tuple": isinstance(item, tuple),
        }
    if isinstance(item, dict):
        return {"dict": {str(key): _encode(entry, arrays) for key, entry in item.items()}}
    if item is None or isinstance(item, (bool, int, float, str)):
        return {"value": item}
    for name, function in _FUNCTIONS.items():
        if function is item:
            return {"function": name}
    raise TypeError(
        f"cannot store {item!r}, of type {type(item).__name__}: files hold registered classes only "
        f"(MLP and ResNet with activations {', '.join(_FUNCTIONS)}). Equinox' "
        "tree_serialise_leaves stores parameters of your own module"
    )


def _decode(item: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    if "array" in item:
        return arrays.pop(f"a{item['array']}")  # each is stored for one place
    if "class" in item:
        return _find_class(item["class"])(**_decode({"dict": item["fields"]}, arrays))
    if "enum" in item:
        return _find_class(item["enum"])[item["member"]]  # type: ignore[index]
    if "function" in item:
        return _FUNCTIONS[item["function"]]
    if "list" in item:
        entries = [_decode(entry, arrays) for entry in item["list"]]
        return tuple(entries) if item["tuple"] else entries
    if "dict" in item:
        return {key: _decode(entry, arrays) for key, entry in item["dict"].items()}
    return item["value"]


def _find_class(name: str) -> type:
    if name not in _CLASSES:
        raise ValueError(
            f"this file names a class that zerovar does not know: {name!r}. If it is one of yours, "
            "import the module that defines it first"
        )
    return _CLASSES[name]
