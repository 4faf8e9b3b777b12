"""Threads of the host: how many its BLAS has, and tiles that are computed side by side."""

import functools
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import jax
from threadpoolctl import ThreadpoolController

from ...inputs.integrands import ROWS
from .memory import on_host

_T = TypeVar("_T")


def use_one_thread() -> AbstractContextManager[Any]:
    """Give BLAS one thread, for as long as this lasts."""
    return _controller().limit(limits=1, user_api="blas")


def limit_threads(draws: int) -> AbstractContextManager[Any]:
    """Give BLAS one thread for matrices of few draws, which many serve no better. BLAS and XLA take
    turns, and idle threads of one get in the way of the other: on a machine that is busy with other
    work, many times over."""
    return use_one_thread() if draws <= ROWS else nullcontext()


# looking for the libraries of this process takes as long as a small fit
_controller = functools.cache(ThreadpoolController)


def map_on_threads(work: Callable[..., _T], jobs: Iterable[tuple[Any, ...]]) -> list[_T]:
    """Return `work(*job)` in double precision for each job, in order; a thread a core, as XLA runs
    a small program on one. What is called on such a thread goes on there, one after the other."""

    def one(job: tuple[Any, ...]) -> _T:
        with jax.enable_x64(True):  # a thread has settings of its own
            return work(*job)

    def apart(job: tuple[Any, ...]) -> _T:
        _here.apart = True
        try:
            return one(job)
        finally:
            _here.apart = False

    jobs = list(jobs)
    if len(jobs) < 2 or not on_host() or getattr(_here, "apart", False):
        return [one(job) for job in jobs]
    return list(_threads().map(apart, jobs))


_here = threading.local()


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
