"""Ctrl-C while zerovar computes: obeyed as soon as nothing is left half done or is lost by it."""

import _thread
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from .progress import PATIENCE


def _must_wait(frame: FrameType | None, outermost: FrameType) -> bool:
    """Whether a KeyboardInterrupt in this frame would do harm: a package imported by halves has no
    submodules when it is imported again; a program that XLA still compiles when Python exits
    crashes it; and what is raised in JAX's part of garbage collection goes nowhere."""
    while frame is not None and frame is not outermost:
        module = frame.f_globals.get("__name__", "")
        if module.startswith(("importlib._bootstrap", "jax._src.compiler")):
            return True
        if frame.f_code.co_name == "_xla_gc_callback":
            return True
        frame = frame.f_back
    return False


@contextmanager
def postpone_interrupts() -> Iterator[None]:
    """Let Ctrl-C wait, for as long as this lasts, until it does no harm. A handler of the user's
    own is left alone, and so is that of a call around this one."""
    here = threading.current_thread() is threading.main_thread()
    if not here or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    outermost, waiting, over = sys._getframe(2), threading.Event(), threading.Event()
    ending = threading.Lock()

    def remind() -> None:
        while not over.wait(PATIENCE / 10) and waiting.is_set():
            with ending:  # none comes after the end
                if not over.is_set():
                    _thread.interrupt_main()

    def handle(number: int, frame: FrameType | None) -> None:
        if not over.is_set() and not _must_wait(frame, outermost):
            waiting.clear()
            raise KeyboardInterrupt
        if not waiting.is_set():
            waiting.set()
            threading.Thread(target=remind, daemon=True).start()

    try:
        signal.signal(signal.SIGINT, handle)
        yield
    finally:
        with ending:
            over.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if waiting.is_set():
            raise KeyboardInterrupt
