"""A data frame of numbers that shows texts in their place, as ArviZ' `SummaryDataFrame` does, and
all its columns, wrapped to the width of the terminal: pandas leaves those in the middle out."""

import shutil
from typing import Any

import pandas


class WholeFrame(pandas.DataFrame):
    """Rows and columns may be chosen, sorted and transposed; a number that is no longer the one
    that a text was written for is shown as it is."""

    _metadata = ["_texts"]  # noqa: RUF012  # pandas' own word: what goes along with the frame
    # by row and column: the number, and its text
    _texts: dict[tuple[Any, Any], tuple[float, str]] | None = None

    @property
    def _constructor(self):
        return WholeFrame

    def write(self, texts: dict[str, list[str]]) -> "WholeFrame":
        """Show these in place of the numbers of some columns."""
        self._texts = {
            (row, name): (number, text)
            for name, column in texts.items()
            for row, number, text in zip(self.index, self[name], column, strict=True)
        }
        return self

    def _display(self) -> pandas.DataFrame:
        texts = self._texts
        if not texts or self.empty:
            return pandas.DataFrame(self)

        def cell(row: Any, name: Any, found: Any) -> Any:
            number, text = texts.get((row, name)) or texts.get((name, row)) or (None, None)
            same = found == number or (found != found and number != number)
            return text if same else found

        rows = zip(self.index, self.itertuples(index=False, name=None), strict=True)
        cells = [[cell(row, *pair) for pair in zip(self, own, strict=True)] for row, own in rows]
        return pandas.DataFrame(cells, self.index, self.columns, dtype=object)

    def __repr__(self) -> str:
        width = shutil.get_terminal_size().columns
        with pandas.option_context("display.max_columns", None, "display.width", width):
            return repr(self._display())

    def _repr_html_(self) -> str:
        return self._display()._repr_html_()

    def to_string(self, *args: Any, **kwargs: Any) -> Any:
        return self._display().to_string(*args, **kwargs)

    def to_html(self, *args: Any, **kwargs: Any) -> Any:
        return self._display().to_html(*args, **kwargs)

    def to_latex(self, *args: Any, **kwargs: Any) -> Any:
        return self._display().to_latex(*args, **kwargs)
