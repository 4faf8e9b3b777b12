"""How many threads the host's BLAS has."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager
from typing import Any

from threadpoolctl import ThreadpoolController


def one_thread() -> AbstractContextManager[Any]:
    """One, for as long as this lasts."""
    return _controller().limit(limits=1, user_api="blas")


@functools.cache
def _controller() -> ThreadpoolController:
    """It looks for the libraries of this process, which takes as long as a small fit."""
    return ThreadpoolController()
