"""What runs is shown on a terminal for as long as it takes, and nowhere else."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn


@contextmanager
def progress_bar(name: str, total: int, wanted: bool) -> Iterator[Callable[[int, str], None]]:
    """Give a function that tells a bar how much is done, with a remark. The bar is shown once it is
    told, unless that is all."""
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

    bar = _progress(
        wanted,
        TextColumn(name),
        BarColumn(),
        TextColumn("{task.description}"),
        TimeRemainingColumn(),
    )
    task = bar.add_task("", total=total)

    def show(done: int, remark: str) -> None:
        bar.update(task, completed=done, description=remark)
        if done < total:
            bar.start()

    try:
        yield show
    finally:
        bar.stop()


@contextmanager
def spinner(name: str, wanted: bool) -> Iterator[Callable[[str], None]]:
    """Give a function to tell what is being done, where it is not known how much there is to
    do."""
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    with _progress(
        wanted, SpinnerColumn(), TextColumn(name + ": {task.description}"), TimeElapsedColumn()
    ) as bar:
        task = bar.add_task("", total=None)
        yield lambda text: bar.update(task, description=text)


def _progress(wanted: bool, *columns: "ProgressColumn") -> "Progress":
    from rich.console import Console
    from rich.progress import Progress

    return Progress(
        *columns,
        console=Console(stderr=True),
        transient=True,
        disable=not (wanted and sys.stderr.isatty()),
    )
