"""Files that hold draws and scores: .npz, NetCDF and Zarr (ArviZ), CSV tables, CmdStan's CSV."""

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import list_names, missing_package
from ..inputs.sample import Posterior
from ..io.archive import name_files, read_arrays, require_known
from . import from_arviz
from .stan import DIAGNOSE, StanTable, from_tables, is_cmdstan, parse_table

_NETCDF = (".nc", ".h5", ".hdf5")


def read(
    paths: Sequence[Path], scores: Path | None = None, values: Path | None = None
) -> Posterior:
    """Return what the files hold, by their kinds; `scores` and `values` are CSV tables beside one
    with draws."""
    given = [*paths, *(path for path in (scores, values) if path is not None)]
    for path in given:
        if not path.exists():
            raise ValueError(f"{path}: no such file")
    first = paths[0]
    kind = first.suffix.lower()
    with name_files(*given):
        cmdstan = kind == ".csv" and is_cmdstan(first)
        if len(paths) > 1 and not cmdstan:
            raise ValueError(
                "several files are read together only if they are CmdStan's; got "
                f"{', '.join(map(str, paths))}"
            )
        if kind == ".csv" and not cmdstan:
            return _read_tables(first, scores, values)
        if scores is not None or values is not None:
            raise ValueError(
                f"--scores and --values go with a .csv table of draws; {first} holds its own"
            )
        if cmdstan:
            return _read_cmdstan(paths)
        if kind in (*_NETCDF, ".zarr"):
            return from_arviz(_open_tree(first, kind))
        return _read_arrays(first)


def _read_arrays(path: Path) -> Posterior:
    if not zipfile.is_zipfile(path):
        kinds = ".npz with arrays draws and scores, .nc or .zarr (ArviZ), .csv"
        raise ValueError(f"{path} is none of the kinds of file that are read: {kinds}")

    def choose(names: list[str]) -> list[str]:
        absent = [name for name in ("draws", "scores") if name not in names]
        if absent:
            raise ValueError(
                f"{path} has no array {' or '.join(absent)}; it has {', '.join(names) or 'nothing'}"
            )
        known = ("draws", "scores", "values", "names", "log_weights")
        require_known(path, names, known, "; quantities go into values, their names into names")
        return names

    arrays = read_arrays(path, choose, compressed=True)
    return Posterior(
        arrays["draws"],
        arrays["scores"],
        _named_columns(arrays),
        log_weights=arrays.get("log_weights"),
    )


def _named_columns(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
    if "values" not in arrays:
        return None
    values, draws = arrays["values"], arrays["draws"]
    flat = values.ndim == 1 or values.shape == draws.shape[:-1]
    columns = [values] if flat else list(np.moveaxis(values, -1, 0))
    given = arrays.get("names", [f"f{k}" for k in range(len(columns))])
    names = np.atleast_1d(given).astype(str).tolist()
    if len(names) != len(columns) or len(set(names)) < len(names):
        raise ValueError(
            f"names must be {len(columns)} distinct strings, one an integrand; got {names}"
        )
    return dict(zip(names, columns, strict=True))


def _open_tree(path: Path, kind: str) -> Any:
    try:
        import xarray
    except ImportError as error:
        raise ValueError(f"{path}: {missing_package('xarray', 'arviz')}") from error
    engine = "zarr" if kind == ".zarr" else "h5netcdf"
    # reads both kinds of store
    options: dict[str, Any] = {"consolidated": False} if engine == "zarr" else {}
    try:
        return xarray.open_datatree(path, engine=engine, **options)
    except Exception as error:  # each engine has exceptions of its own
        advice = "The readers come with the extra: pip install '.[arviz]' in a clone of zerovar"
        raise ValueError(f"{path} cannot be read by {engine}: {error}. {advice}") from error


def _read_cmdstan(paths: Sequence[Path]) -> Posterior:
    """Return what diagnostic files hold and, where they are given too, output files, in any order
    but each kind by chain."""
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


class _Table(NamedTuple):
    names: list[str]
    places: np.ndarray  # chain and draw of each row, (2, n)
    columns: np.ndarray  # (n, column)
    lacks: tuple[str, ...]  # which of the columns chain and draw it has not


def _read_tables(draws: Path, scores: Path | None, values: Path | None) -> Posterior:
    if scores is None:
        raise ValueError(
            f"{draws} has draws; name the table of their scores too: --scores FILE.csv, with the "
            "same columns"
        )
    x, s = _read_table(draws), _read_table(scores)
    if sorted(x.names) != sorted(s.names):
        raise ValueError(
            f"{draws} and {scores} must have the same columns; got {', '.join(x.names)} and "
            f"{', '.join(s.names)}"
        )
    f = x if values is None else _read_table(values)
    for path, table in ((scores, s), (values, f)):
        if absent := [name for name in table.lacks if name not in x.lacks]:
            raise ValueError(
                f"{path} has no column {' and '.join(absent)}, and {draws} has: every table needs "
                "the chain and the draw of each row, as the table of draws has them. Its columns "
                f"are {list_names(table.names)}"
            )
        if not np.array_equal(x.places, table.places):
            raise ValueError(
                f"{draws} and {path} must have the same draws of the same chains, row by row"
            )
    order = np.lexsort(x.places[::-1])
    lengths = np.unique(np.unique(x.places[0], return_counts=True)[1])
    if len(lengths) > 1:
        raise ValueError(
            f"{draws}: chains must be equally long; got between {lengths[0]} and {lengths[-1]} "
            "draws"
        )

    def by_chain(table: _Table, names: list[str]) -> np.ndarray:
        columns = table.columns[order][:, [table.names.index(name) for name in names]]
        return columns.reshape(-1, int(lengths[0]), len(names))

    shown = dict(zip(f.names, np.moveaxis(by_chain(f, f.names), -1, 0), strict=True))
    return Posterior(by_chain(x, x.names), by_chain(s, x.names), shown, tuple(x.names))


def _read_table(path: Path) -> _Table:
    with name_files(path), open(path, encoding="utf-8-sig", newline="") as file:
        names, table = parse_table(path, file)
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
    places = [table[:, names.index(name)] if name in names else 0 * table[:, 0] for name in own]
    kept = [k for k, name in enumerate(names) if name not in own]
    lacks = tuple(name for name in own if name not in names)
    return _Table([names[k] for k in kept], np.stack(places), table[:, kept], lacks)
