"""What takes long is shown while it runs, on a terminal and in a notebook, and nowhere else."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

PATIENCE = 0.5  # seconds that one waits, for an answer or for Ctrl-C, without wondering


class _Terminal:
    """A bar of rich, which takes itself away."""

    def __init__(self, name: str, total: int | None, alike: bool):
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self.bar = Progress(
            TextColumn(name),
            BarColumn(),
            TextColumn("{task.description}"),
            TimeRemainingColumn() if alike else TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self.task = self.bar.add_task("", total=total)

    def start(self) -> None:
        self.bar.start()

    def update(self, done: int, remark: str) -> None:
        self.bar.update(self.task, completed=done, description=remark)

    def stop(self) -> None:
        self.bar.stop()


class _Notebook:
    """A bar below the cell, which takes itself away."""

    def __init__(self, name: str, total: int | None):
        self.name, self.total, self.done, self.remark = name, total, 0, ""
        self.handle: Any = None

    def start(self) -> None:
        from IPython.display import HTML, display

        self.handle = display(HTML(self._html()), display_id=True)

    def update(self, done: int, remark: str) -> None:
        self.done, self.remark = done, remark
        self._draw(self._html())

    def stop(self) -> None:
        self._draw("")

    def _draw(self, html: str) -> None:
        from IPython.display import HTML

        if self.handle is not None:
            self.handle.update(HTML(html))

    def _html(self) -> str:
        size = "" if self.total is None else f' value="{self.done}" max="{self.total}"'
        return f"{escape(self.name)} <progress{size}></progress> {escape(self.remark)}"


def _display(
    name: str, total: int | None, wanted: bool, alike: bool
) -> _Terminal | _Notebook | None:
    """The bar that is wanted, where it can be seen; parts that are `alike` tell how long the others
    will take."""
    if wanted and sys.stderr.isatty():
        return _Terminal(name, total, alike)
    if wanted and _is_notebook():
        return _Notebook(name, total)
    return None


def _is_notebook() -> bool:
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return hasattr(shell, "kernel")


@contextmanager
def _show(display: _Terminal | _Notebook | None) -> Iterator[Callable[[int, str], None]]:
    """Give a function that tells a bar how much is done, with a remark; it is shown if it takes
    longer than a moment."""
    if display is None:
        yield lambda done, remark: None
        return
    timer = threading.Timer(PATIENCE, display.start)
    timer.daemon = True
    timer.start()
    try:
        yield display.update
    finally:
        timer.cancel()
        timer.join()  # it may be drawing just now
        display.stop()


@contextmanager
def progress_bar(name: str, total: int, wanted: bool) -> Iterator[Callable[[int, str], None]]:
    """Give a function that tells how many of `total` like parts are done, with a remark."""
    with _show(_display(name, total, wanted, alike=True)) as show:
        yield show


@contextmanager
def stages(name: str, total: int | None, wanted: bool) -> Iterator[Callable[[str], None]]:
    """Give a function to tell what is done next, of about `total` things; None if it is not known
    how many there are."""
    done = -1  # the first has only begun when it is told

    def say(text: str) -> None:
        nonlocal done
        done += 1
        show(done if total is None else min(done, total), text)

    with _show(_display(name, total, wanted, alike=False)) as show:
        yield say
