"""How many threads the host's BLAS has."""

import functools
from contextlib import AbstractContextManager
from typing import Any

from threadpoolctl import ThreadpoolController


def one_thread() -> AbstractContextManager[Any]:
    """One, for as long as this lasts."""
    return _controller().limit(limits=1, user_api="blas")


_controller = functools.cache(ThreadpoolController)  # looking for the libraries of this process takes as long as a small fit
