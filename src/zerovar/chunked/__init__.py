"""Draws that are larger than memory, as Dask has them: fitted from sums over the chunks, or trained
window by window."""

from .arrays import Blocks, Columns, is_chunked
from .estimate import estimate_chunked
from .rows import evaluated_in_tiles

__all__ = ["Blocks", "Columns", "estimate_chunked", "evaluated_in_tiles", "is_chunked"]
