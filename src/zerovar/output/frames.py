"""A data frame that prints all its columns, wrapped to the width of the terminal: pandas leaves
those in the middle out."""

import shutil

import pandas


class WholeFrame(pandas.DataFrame):
    @property
    def _constructor(self):
        return WholeFrame

    def __repr__(self) -> str:
        width = shutil.get_terminal_size().columns
        with pandas.option_context("display.max_columns", None, "display.width", width):
            return super().__repr__()
