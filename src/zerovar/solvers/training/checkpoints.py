"""Checkpoints: the state of a training in a file, whose name is a fingerprint of the task.

So a checkpoint of another task is not found, and cannot be resumed by mistake.
"""

import dataclasses
import hashlib
import types
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ...environment import __version__
from ...io.atomic import atomic
from .loop import TrainingState


def checkpoint_file(folder: Any, *task: Any) -> Path:
    """Return where the state of a task is kept, known by all values that the task depends on, and
    by the version of zerovar."""
    digest = hashlib.sha256(__version__.encode())
    for piece in _pieces(task, set()):
        digest.update(piece)
    Path(folder).mkdir(parents=True, exist_ok=True)
    return Path(folder) / f"{digest.hexdigest()[:16]}.npz"


def save_state(file: Path, state: TrainingState) -> None:
    """Write a state, whole or not at all."""
    leaves = {f"a{k}": np.asarray(leaf) for k, leaf in enumerate(jax.tree.leaves(state))}
    with atomic(file) as temporary, open(temporary, "wb") as handle:
        np.savez(handle, **leaves)  # type: ignore[arg-type]


def restore_state(file: Path, state: TrainingState) -> TrainingState:
    """Return the state that a file holds, in the form of a given one; that itself if there is no
    file."""
    if not file.exists():
        return state
    leaves, rebuild = jax.tree.flatten(state)
    try:
        with np.load(file, allow_pickle=False) as stored:
            found = [stored[f"a{k}"] for k in range(len(leaves))]
    except (ValueError, KeyError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{file} is not a checkpoint of this fit; delete it to start anew"
        ) from error
    return jax.tree.unflatten(
        rebuild,
        [jax.device_put(np.asarray(a, b.dtype)) for a, b in zip(found, leaves, strict=True)],
    )


def _pieces(value: Any, above: set[int]) -> Iterator[bytes]:
    """Yield what tells a value from others, through its parts: types, numbers, names of functions
    and what these have captured; never an address in memory."""
    yield f"{type(value).__module__}.{type(value).__qualname__}(".encode()
    if isinstance(value, (np.ndarray, jax.Array)):
        array = np.ascontiguousarray(value)
        yield f"{array.dtype}{array.shape}".encode()
        yield array.tobytes()
    elif value is None or isinstance(value, (bool, int, float, complex, str, bytes, np.generic)):
        yield repr(value).encode()
    elif id(value) not in above:  # a function may refer to itself
        for part in _parts(value):
            yield from _pieces(part, above | {id(value)})
    yield b")"


def _parts(value: Any) -> list[Any]:
    """Return the values that a value is made of."""
    if isinstance(value, (tuple, list)):
        return list(value)
    if isinstance(value, Mapping):
        return [part for pair in value.items() for part in pair]
    if dataclasses.is_dataclass(value):
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    if isinstance(value, types.CodeType):
        return [value.co_code, value.co_names, value.co_consts]
    if isinstance(value, types.FunctionType):
        captured = [cell.cell_contents for cell in value.__closure__ or ()]
        return [value.__module__, value.__qualname__, value.__code__, value.__defaults__, captured]
    if isinstance(value, (type, types.ModuleType)):
        return [value.__module__ if isinstance(value, type) else "", value.__name__]
    if hasattr(value, "__wrapped__"):  # compiled
        return [value.__wrapped__]
    return [str(getattr(value, "__name__", "")), getattr(value, "__dict__", {})]
