"""Files that hold draws and scores: .npz, NetCDF and Zarr (ArviZ), CSV tables, CmdStan's CSV."""

import csv
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import missing_package
from ..inputs.sample import Posterior
from ..io.archive import name_files, read_arrays
from . import from_arviz
from .stan import DIAGNOSE, StanTable, from_tables, is_cmdstan

_NETCDF, _ZARR = (".nc", ".h5", ".hdf5"), (".zarr",)


def read(
    paths: Sequence[Path], scores: Path | None = None, values: Path | None = None
) -> Posterior:
    """What the files hold, by their kinds; `scores` and `values` are CSV tables beside one with
    draws."""
    given = [*paths, *(path for path in (scores, values) if path is not None)]
    for path in given:
        if not path.exists():
            raise ValueError(f"{path}: no such file")
    first = paths[0]
    kind = first.suffix.lower()
    with name_files(*given):
        if kind == ".csv" and not is_cmdstan(first):
            return _tables(_only(paths), scores, values)
        if scores is not None or values is not None:
            raise ValueError(
                f"--scores and --values go with a .csv table of draws; {first} holds its own"
            )
        if kind == ".csv":
            return _cmdstan(paths)
        if kind in _NETCDF or kind in _ZARR:
            return from_arviz(_tree(_only(paths), kind))
        return _arrays(_only(paths))


def _only(paths: Sequence[Path]) -> Path:
    if len(paths) > 1:
        raise ValueError(
            "several files are read together only if they are CmdStan's; got "
            f"{', '.join(map(str, paths))}"
        )
    return paths[0]


def _arrays(path: Path) -> Posterior:
    if not zipfile.is_zipfile(path):
        kinds = ".npz with arrays draws and scores, .nc or .zarr (ArviZ), .csv"
        raise ValueError(f"{path} is none of the kinds of file that are read: {kinds}")

    def chosen(names: list[str]) -> list[str]:
        absent = [name for name in ("draws", "scores") if name not in names]
        if absent:
            raise ValueError(
                f"{path} has no array {' or '.join(absent)}; it has {', '.join(names) or 'nothing'}"
            )
        return [
            name for name in ("draws", "scores", "values", "names", "log_weights") if name in names
        ]

    arrays = read_arrays(path, chosen, compressed=True)
    return Posterior(
        arrays["draws"], arrays["scores"], _named(arrays), log_weights=arrays.get("log_weights")
    )


def _named(arrays: dict[str, np.ndarray]) -> dict[str, Any] | None:
    if "values" not in arrays:
        return None
    values, draws = arrays["values"], arrays["draws"]
    flat = values.ndim == 1 or values.shape == draws.shape[:-1]
    columns = [values] if flat else list(np.moveaxis(values, -1, 0))
    names = [f"f{k}" for k in range(len(columns))]
    if "names" in arrays:
        names = [str(name) for name in np.atleast_1d(arrays["names"]).astype(str)]
        if len(names) != len(columns) or len(set(names)) < len(names):
            raise ValueError(
                f"names must be {len(columns)} distinct strings, one an integrand; got {names}"
            )
    return dict(zip(names, columns, strict=True))


def _tree(path: Path, kind: str) -> Any:
    try:
        import xarray
    except ImportError as error:
        raise ValueError(f"{path}: {missing_package('xarray', 'arviz')}") from error
    engine = "zarr" if kind in _ZARR else "h5netcdf"
    # reads both kinds of store
    options: dict[str, Any] = {"consolidated": False} if kind in _ZARR else {}
    try:
        return xarray.open_datatree(path, engine=engine, **options)
    except Exception as error:  # each engine has exceptions of its own
        advice = "The readers come with the extra: pip install '.[arviz]' in a clone of zerovar"
        raise ValueError(f"{path} cannot be read by {engine}: {error}. {advice}") from error


def _cmdstan(paths: Sequence[Path]) -> Posterior:
    """Diagnostic files and, where they are given too, output files, in any order but each kind by
    chain."""
    tables = []
    for path in paths:
        with name_files(path):
            tables.append(StanTable(path))
    diagnostics = [table for table in tables if table.thirds is not None]
    if not diagnostics:
        raise ValueError(
            f"{', '.join(map(str, paths))}: none is a diagnostic file, with columns p_… and g_…. "
            f"{DIAGNOSE}"
        )
    return from_tables(diagnostics, [table for table in tables if table.thirds is None])


def _tables(draws: Path, scores: Path | None, values: Path | None) -> Posterior:
    if scores is None:
        raise ValueError(
            f"{draws} has draws; name the table of their scores too: --scores FILE.csv, with the "
            "same columns"
        )
    names, places, x = _table(draws)
    columns, other, s = _table(scores)
    if sorted(names) != sorted(columns):
        raise ValueError(
            f"{draws} and {scores} must have the same columns; got {', '.join(names)} and "
            f"{', '.join(columns)}"
        )
    s = s[:, [columns.index(name) for name in names]]
    if not np.array_equal(places, other):
        raise ValueError(
            f"{draws} and {scores} must have the same draws of the same chains, row by row"
        )
    found = dict(zip(names, x.T, strict=True))
    if values is not None:
        labels, third, f = _table(values)
        if not np.array_equal(places, third):
            raise ValueError(
                f"{draws} and {values} must have the same draws of the same chains, row by row"
            )
        found = dict(zip(labels, f.T, strict=True))
    order = np.lexsort(places[::-1])
    lengths = np.unique(np.unique(places[0], return_counts=True)[1])
    if len(lengths) > 1:
        raise ValueError(
            f"{draws}: chains must be equally long; got between {lengths[0]} and {lengths[-1]} "
            "draws"
        )
    shape = (-1, int(lengths[0]))
    x, s = (array[order].reshape(*shape, len(names)) for array in (x, s))
    return Posterior(
        x, s, {name: column[order].reshape(shape) for name, column in found.items()}, tuple(names)
    )


def _table(path: Path) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Names of the columns, the chain and draw of each row (2, n), and the numbers."""
    with name_files(path), open(path, encoding="utf-8-sig", newline="") as file:
        rows = [row for row in csv.reader(file) if row]
    if len(rows) < 2:
        raise ValueError(
            f"{path} must have a line of names and then one line a draw; it has {len(rows)} lines"
        )
    names = [name.strip() for name in rows[0]]
    for number, row in enumerate(rows, 1):
        if len(row) != len(names):
            raise ValueError(
                f"{path}, line {number}: {len(row)} entries under a header of {len(names)} names"
            )
    try:
        table = np.array(rows[1:], dtype=np.float64)
    except ValueError as error:
        raise ValueError(f"{path} must have numbers under its line of names: {error}") from error
    if len(set(names)) < len(names):
        raise ValueError(
            f"{path}: the names of its columns must be distinct; got {', '.join(names)}"
        )
    if "" in names:
        raise ValueError(
            f"{path}: a column has no name, such as the index of a data frame: write it with "
            "index=False"
        )
    own = ("chain", "draw")
    places = np.stack(
        [table[:, names.index(name)] if name in names else np.zeros(len(table)) for name in own]
    )
    kept = [k for k, name in enumerate(names) if name not in own]
    return [names[k] for k in kept], places, table[:, kept]
