"""Densities: curves with a band, and the ways to look at them."""

import dataclasses
from os import PathLike
from typing import Any

import numpy as np
from jaxtyping import Float64

from ..arguments import PATH, takes
from ..errors import missing_package
from . import plots


@dataclasses.dataclass(frozen=True, eq=False)
class Densities:
    """Marginal densities of q quantities on grids of m points, with standard errors; `values` (n,
    q) are the draws, `weights` (n,) what each of them counts; `limits` says what they rest on."""

    names: tuple[str, ...]
    grid: Float64[np.ndarray, "q m"]
    value: Float64[np.ndarray, "q m"]
    std_error: Float64[np.ndarray, "q m"]
    values: Float64[np.ndarray, "n q"]
    weights: Float64[np.ndarray, " n"]
    limits: tuple[str, ...] = ()

    def __repr__(self) -> str:
        head = f"Densities({len(self.names)} quantities, {self.grid.shape[1]} points each)"
        return "\n".join((head, *self.limits))

    def to_dataset(self) -> Any:
        """Return an xarray Dataset over the dimensions `quantity` and `point` (needs the extra
        `zerovar[xarray]`)."""
        try:
            import xarray
        except ImportError as error:
            raise missing_package("xarray", "xarray") from error
        data = {key: (("quantity", "point"), getattr(self, key)) for key in _CURVES}
        return xarray.Dataset(data, coords={"quantity": list(self.names)})

    @takes(path=PATH)
    def plot(self, path: str | PathLike[str] | None = None) -> Any:
        """Plot the curves with bands of two errors over histograms of the draws, and save it to
        `path` if given (needs `zerovar[plots]`)."""
        return plots.densities(self, path)


_CURVES = ("grid", "value", "std_error")
