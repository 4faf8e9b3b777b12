"""Tables for people: on a terminal, as text, and in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what only people who print need is imported as they print
    from rich.table import Table

Rows = Sequence[Sequence[str]]


def text_table(columns: Sequence[str], rows: Rows, above_the_line: int = 0) -> Table:
    """Return a rich table whose first column is names and whose others are numbers; a line stands
    below the first rows, if there are such."""
    from rich.table import Column, Table
    from rich.text import Text

    first, *others = columns
    table = Table(
        Column(first, no_wrap=True),
        *(Column(name, justify="right", no_wrap=True) for name in others),
    )
    for k, row in enumerate(rows):
        # not markup: names hold brackets
        table.add_row(*map(Text, row), end_section=k == above_the_line - 1)
    return table


def render(shown: Any, name: int = 0) -> str:
    """Return what rich would print, as text, in lines that hold names of that length."""
    from rich.console import Console

    console = Console(width=max(110, name + 90), no_color=True, highlight=False)
    with console.capture() as capture:
        console.print(shown)
    return capture.get().rstrip()


def html_table(
    title: str, columns: Sequence[str], rows: Rows, notes: Sequence[str], cautions: Sequence[str]
) -> str:
    """Return a table with its notes and words of caution, for a notebook."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    said = "".join(f"<p>{escape(text)}</p>" for text in (*notes, *(f"⚠ {t}" for t in cautions)))
    caption = f"<caption>{escape(title)}</caption>" if title else ""
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{said}"
