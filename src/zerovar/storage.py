"""Files without pickle: a JSON header and plain arrays in one .npz, written whole or not at all.

Objects in a file are named by class and rebuilt only from the list of classes registered here, so that loading a
file from a stranger runs no code of theirs.
"""

from __future__ import annotations

import dataclasses
import json
import os
import zipfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np

from . import families, kernels, objectives, operators
from .families.network import ACTIVATIONS, activation_name
from .files import atomic
from .sample import Standardisation
from .solvers import terms

FORMAT = 1

_CLASSES = {
    f"{cls.__module__.removeprefix('zerovar.').split('.')[0]}.{cls.__name__}": cls
    for cls in (
        *(getattr(kernels, name) for name in ("Sum", "Product", "Constant", "Gaussian", "InverseMultiquadric")),
        *(getattr(kernels, name) for name in ("RationalQuadratic", "Matern", "Decaying")),
        *(families.Polynomial, families.Kernel, families.Along, families.Stretched, families.Sum, families.Translates),
        *(families.Network, families.MLP, families.ResNet, families.Ensemble, terms.LinearTerm, terms.NetworkTerm),
        *(operators.Langevin, operators.ScalarLangevin),
        *(objectives.LeastSquares, objectives.Variance, objectives.SpectralVariance),
        *(objectives.Ridge, objectives.L2, objectives.L1, objectives.Magnitude),
        Standardisation,
    )
}
_NAMES = {cls: name for name, cls in _CLASSES.items()}
# Fields that a constructor derives and does not take
_DERIVED: dict[type, set[str]] = {
    families.Polynomial: {"penalised", "free"},
    objectives.Variance: {"intercept_variance"},
    objectives.SpectralVariance: {"intercept_variance"},
}


def write(path: str | os.PathLike[str], kind: str, state: dict[str, Any]) -> None:
    """Write `state` (numbers, strings, arrays, and objects of registered classes) atomically."""
    arrays: list[np.ndarray] = []
    header = {"zerovar": version("zerovar"), "format": FORMAT, "kind": kind, "state": _encode(state, arrays)}
    named: dict[str, Any] = {f"a{k}": array for k, array in enumerate(arrays)}
    with atomic(Path(path)) as temporary, open(temporary, "wb") as file:
        np.savez(file, header=np.array(json.dumps(header)), **named)


def read(path: str | os.PathLike[str]) -> tuple[str, dict[str, Any]]:
    """The kind and state of a file."""
    try:
        with np.load(path, allow_pickle=False) as file:
            header = json.loads(str(file["header"]))
            arrays = [file[f"a{k}"] for k in range(len(file.files) - 1)]
        kind, state = header["kind"], header["state"]
    except (ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{os.fspath(path)} is not a file written by zerovar") from error
    if header.get("format") != FORMAT:
        raise ValueError(
            f"{os.fspath(path)} has format {header.get('format')}, written by zerovar {header.get('zerovar')}; "
            f"this version reads format {FORMAT}"
        )
    return kind, _decode(state, arrays)


def _encode(item: Any, arrays: list[np.ndarray]) -> Any:
    if isinstance(item, np.generic):
        item = item.item()
    if eqx.is_array(item):
        arrays.append(np.asarray(item))
        return {"array": len(arrays) - 1}
    if type(item) in _NAMES:
        derived = _DERIVED.get(type(item), set())
        fields = {f.name: getattr(item, f.name) for f in dataclasses.fields(item) if f.name not in derived}
        return {"class": _NAMES[type(item)], "fields": {key: _encode(entry, arrays) for key, entry in fields.items()}}
    if isinstance(item, (tuple, list)):
        return {"list": [_encode(entry, arrays) for entry in item], "tuple": isinstance(item, tuple)}
    if isinstance(item, dict):
        return {"dict": {str(key): _encode(entry, arrays) for key, entry in item.items()}}
    if item is None or isinstance(item, (bool, int, float, str)):
        return {"value": item}
    if (name := activation_name(item)) is not None:
        return {"function": name}
    raise TypeError(
        f"cannot store {item!r}, of type {type(item).__name__}: files hold zerovar's own families only (MLP and ResNet "
        f"with activations {', '.join(ACTIVATIONS)}). Equinox' tree_serialise_leaves stores parameters of your own module"
    )


def _decode(item: dict[str, Any], arrays: list[np.ndarray]) -> Any:
    decode: Callable[[Any], Any] = lambda entry: _decode(entry, arrays)  # noqa: E731
    if "array" in item:
        return arrays[item["array"]]
    if "class" in item:
        if item["class"] not in _CLASSES:
            raise ValueError(f"this file names a class that zerovar does not know: {item['class']!r}")
        return _CLASSES[item["class"]](**{key: decode(entry) for key, entry in item["fields"].items()})
    if "function" in item:
        return ACTIVATIONS[item["function"]]
    if "list" in item:
        entries = [decode(entry) for entry in item["list"]]
        return tuple(entries) if item["tuple"] else entries
    if "dict" in item:
        return {key: decode(entry) for key, entry in item["dict"].items()}
    return item["value"]
