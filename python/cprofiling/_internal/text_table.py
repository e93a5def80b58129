"""Tables as text, and rows of figures that print themselves as one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from itertools import zip_longest
from textwrap import wrap
from typing import TYPE_CHECKING, TypeVar

from cprofiling._internal import arguments
from cprofiling._internal.html_table import Whole, html_table
from cprofiling.nodes.summary_table import shown_text
from cprofiling.recording.columns import counted

if TYPE_CHECKING:
    import pandas as pd

ROW_LIMIT = 100  # rows that are printed, where nothing else is asked for
_WIDEST = 80  # characters of a text

_T = TypeVar("_T")


def text_table(columns: Sequence[str], rows: Sequence[Sequence[object]], row_limit: int | None = ROW_LIMIT) -> str:
    """Return a table with frames of box-drawing characters; below it, how many rows are not shown, if any are not.

    None is a dash, a float has one decimal, a text of more than 80 characters loses its end, or has several lines if it
    is ``Whole``; a ``row_limit`` that is None or negative shows all rows.
    """
    shown = first_rows(rows, row_limit)
    cells = [line for row in shown for line in zip_longest(*map(_lines, row), fillvalue="")]
    widths = [max(len(column), *(len(row[place]) for row in cells), 0) for place, column in enumerate(columns)]
    bars = ["─" * (width + 2) for width in widths]
    lines = [f"┌{'┬'.join(bars)}┐", _line(columns, widths), f"╞{'╪'.join(bar.replace('─', '═') for bar in bars)}╡"]
    lines += [_line(row, widths) for row in cells]
    lines.append(f"└{'┴'.join(bars)}┘")
    if len(shown) < len(rows):
        missing = len(rows) - len(shown)
        lines.append(f"{missing:,} more {'row is' if missing == 1 else 'rows are'} not shown.")
    return "\n".join(lines)


def first_rows(rows: Sequence[_T], row_limit: int | None) -> Sequence[_T]:
    """Return so many rows at most, all if the limit is None or negative. TypeError for a limit that is no integer."""
    limit = arguments.index_or_none("row_limit", row_limit)
    return rows if limit is None or limit < 0 else rows[:limit]


def short_repr(kind: str, count: int, noun: str) -> str:
    """Return the representation of a list or report: what it is, and how much there is in it."""
    return f"<{kind}: {counted(count, noun)}>" if count else f"<{kind}, empty>"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (f" {cell:<{width}} " for cell, width in zip(cells, widths, strict=True))
    return f"│{'┆'.join(padded)}│"


def _lines(value: object) -> list[str]:
    return (
        wrap(shown_text("value", value), _WIDEST, break_on_hyphens=False)
        if isinstance(value, Whole)
        else [_cell(value)]
    )


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.1f}"
    text = shown_text("value", value) if isinstance(value, str) else str(value)
    return text if len(text) <= _WIDEST else text[: _WIDEST - 3] + "..."


class Figures(list[_T]):
    """A list of frozen values of one kind that prints itself as a table and can be had as a DataFrame.

    Its ``repr()`` is short; notebooks show the table.

    Attributes:
        columns: The names of the values' fields: the columns.
        notes: Sentences that belong to the figures.
    """

    def __init__(self, kind: type[_T], figures: Iterable[_T] = (), notes: Iterable[str] = ()) -> None:
        """Make a list of ``figures``, values of the dataclass ``kind``."""
        super().__init__(figures)
        self._kind = kind.__name__
        self.columns = tuple(field.name for field in fields(kind))  # type: ignore[arg-type]
        self.notes = tuple(notes)

    def rows(self) -> list[tuple[object, ...]]:
        """Return the values as tuples."""
        return [tuple(getattr(figure, column) for column in self.columns) for figure in self]

    def to_pandas(self) -> pd.DataFrame:
        """Return the values as a pandas DataFrame. Raises ImportError, naming the extra, without pandas."""
        return frame_of(self.columns, self.rows())

    def __str__(self) -> str:
        """Return the table, and the notes below it."""
        return "\n".join((text_table(self.columns, self.rows()), *self.notes))

    def __repr__(self) -> str:
        return short_repr(f"{type(self).__name__} of {self._kind}", len(self), "row")

    def _repr_html_(self) -> str:
        return html_table(self.columns, self.rows(), self.notes)


def frame_of(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> pd.DataFrame:
    """Return rows as a pandas DataFrame. Raises ImportError, naming the extra, without pandas."""
    from cprofiling.recording.dataframe import imported

    frame: pd.DataFrame = imported("pandas").DataFrame(list(rows), columns=list(columns))
    return frame
