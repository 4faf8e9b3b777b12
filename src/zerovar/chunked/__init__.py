"""Draws that are larger than memory, as Dask has them: fitted from sums over the chunks, or trained
window by window."""

from .arrays import Blocks, Columns, is_chunked
from .estimate import estimate_chunked
from .rows import evaluate_in_tiles

__all__ = ["Blocks", "Columns", "estimate_chunked", "evaluate_in_tiles", "is_chunked"]
