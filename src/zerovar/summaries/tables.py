"""Which columns a table has, and how they are shown."""

import importlib
import sys
from typing import Any

import numpy as np

from ..arguments import whole
from ..errors import missing_package
from ..output.formatting import format_count, plus_minus, worth

NamedColumns = dict[str, np.ndarray]
REASON = "error_reason"
_ARVIZ = ("mean", "sd", "lb", "ub", "ess_bulk", "ess_tail", "r_hat", "mcse_mean", "mcse_sd")
_ENDS = ("cv_lb", "cv_ub", "cv_mcse_lb", "cv_mcse_ub")
_ALL = (
    *_ARVIZ,
    *("cv_mean", "cv_mcse_mean", "gain", "cv_ess", "cv_sd", "cv_mcse_sd", "gain_sd"),
    *_ENDS,
    REASON,
)
_MEDIAN = (
    *("median", "mad", "lb", "ub", "ess_median", "ess_tail", "r_hat", "mcse_median"),
    *("cv_median", "cv_mcse_median", "gain_median"),
    *_ENDS,
)
_STATS = {f"{cv}{name}" for cv in ("", "cv_") for name in ("mean", "sd", "median", "lb", "ub")}
_STATS.add("mad")
KINDS = {
    f"{kind}{suffix}": tuple(
        name for name in columns if kind == "all" or (name in _STATS) == (kind == "stats")
    )
    for suffix, columns in (("", _ALL), ("_median", _MEDIAN))
    for kind in ("all", "stats", "diagnostics")
}


def read_rounding(value: Any) -> int | str | None:
    words = {"auto": "auto", "none": None, "None": None, None: None}
    return words[value] if value in words else whole(-sys.maxsize, sys.maxsize).read(value)


_ERROR_OF = {"mean": "mcse_mean", "lb": "mcse_mean", "ub": "mcse_mean", "sd": "mcse_sd"}
_ERROR_OF |= {"median": "mcse_median", "mad": "mcse_median"}
_ERROR_OF |= {f"cv_{name}": f"cv_mcse_{name}" for name in ("mean", "sd", "median", "lb", "ub")}


def write_texts(name: str, columns: NamedColumns) -> list[str]:
    """A column for reading: numbers to two digits of their error, errors to two digits, sizes
    whole, nothing for NaN."""
    column = np.asarray(columns[name], np.float64)
    if name in _ERROR_OF:
        errors = np.asarray(columns[_ERROR_OF[name]], np.float64)
        texts = [
            plus_minus(float(x), float(e)).split(" ")[0]
            for x, e in zip(column, errors, strict=True)
        ]
    elif name.startswith("gain"):
        texts = [worth(float(x)) for x in column]
    elif name == "cv_ess":
        texts = [format_count(float(x)) for x in column]
    else:
        forms = {"r_hat": ".3f"} | dict.fromkeys(("ess_bulk", "ess_tail", "ess_median"), ".0f")
        form = forms.get(name, ".2g")
        texts = [f"{x:{form}}" for x in column]
    return ["" if np.isnan(x) else text for x, text in zip(column, texts, strict=True)]


def make_table(
    columns: dict[str, Any],
    rows: list[str],
    notes: list[str],
    fmt: str,
    texts: dict[str, list[str]],
) -> Any:
    """Return a table, where data frames show texts in place of the numbers of some columns."""
    if fmt == "wide":
        from ..output.frames import WholeFrame

        frame = WholeFrame(columns, index=rows).write(texts)
        frame.attrs["notes"] = notes
        return frame
    data = {name: ("quantity", column) for name, column in columns.items()}
    return import_module(fmt).Dataset(data, coords={"quantity": rows}, attrs={"notes": notes})


def import_module(fmt: str) -> Any:
    package = "pandas" if fmt == "wide" else "xarray"
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise missing_package(package, "xarray") from error
