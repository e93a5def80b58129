"""Insights as lists of frozen values, shown as tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, field, fields
from typing import Any, TypeVar

from cprofiling._internal.tables import (
    MOST_ROWS,
    ROW_LIMIT,
    Column,
    Figures,
    Section,
    Shown,
    Table,
    Whole,
    heading,
    more_rows,
    text_table,
    with_unit,
)
from cprofiling._internal.text import shown_text

_T = TypeVar("_T")
_DIGITS = 4  # that count
_LEAST = 1e-9  # ms; below any clock's resolution
_NOTHING = (None, "")
_OF_COLUMN = ("title", "unit", "tip")


class Insight(Figures[_T]):
    """A list of frozen values, shown as a table under a title.

    Attributes:
        title: What it is about.
        columns: The names of the values' fields: the columns.
        notes: Sentences on it: its basis, missing parts.
    """

    def __init__(self, kind: type[_T], title: str, figures: Iterable[_T] = (), notes: Iterable[str] = ()) -> None:
        """Make a list of ``figures``, values of the dataclass ``kind``.

        Its fields that are made by ``figure`` are columns; others are values only.
        """
        super().__init__(kind, figures, notes)
        self.title = title
        self._fields = [each for each in fields(kind) if each.metadata]  # type: ignore[arg-type]
        self.columns = tuple(each.name for each in self._fields)

    def text(self, row_limit: int | None = ROW_LIMIT) -> str:
        """Return title, table and notes, all rows without a limit."""
        title, (columns, rows, _) = shown_text("title", self.title), self._table()
        notes = (shown_text("note", note) for note in self.notes)
        return "\n".join((title, text_table(columns, rows, row_limit), *notes))

    def section(self) -> Section:
        """Return a table of a report, without empty columns.

        It has as many rows as the document's other tables at most, the first ones.
        """
        used = self._used()
        columns = (Column(each.name, *map(each.metadata.__getitem__, _OF_COLUMN)) for each in used)
        rows = tuple(tuple(_plain(getattr(of, each.name), each.metadata) for each in used) for of in self[:MOST_ROWS])
        return Section(self.title, tuple(columns), rows, (*self.notes, *more_rows(len(self))))

    def _used(self) -> list[Field[Any]]:
        """Return the fields that are shown."""
        return [
            each
            for each in self._fields
            if each.metadata["absent"] or not self or any(getattr(of, each.name) not in _NOTHING for of in self)
        ]

    def _table(self) -> Table:
        used = self._used()
        shown = [[_shown(getattr(of, each.name), each.metadata) for each in used] for of in self]
        return Table([heading(each.metadata["title"], each.metadata["unit"]) for each in used], shown, self.notes)


def figure(
    title: str,
    unit: str = "text",
    tip: str = "",
    *,
    default: Any = MISSING,
    absent: str | None = None,
    whole: bool = False,
) -> Any:
    """Return a field that is a column of an insight.

    ``absent``: the text for None. ``whole``: whether a long text is shown to its end.
    """
    told = {"title": title, "unit": unit, "tip": tip, "absent": absent, "whole": whole}
    return field(default=default, metadata=told)


def _plain(value: Any, of: Mapping[str, Any]) -> Any:
    """Return a value as JSON has it, numbers without a unit with three digits."""
    if not isinstance(value, float):
        return of["absent"] if value is None else value
    return None if not math.isfinite(value) else float(f"{value:.3g}") if of["unit"] == "number" else value


def _shown(value: object, of: Mapping[str, Any]) -> object:
    if not isinstance(value, float):
        return of["absent"] if value is None else Whole(value) if of["whole"] else value
    if of["unit"] == "number":
        return Shown(f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}")
    shown = with_unit(value, of["unit"])
    return Shown(shown_number(value)) if shown is value else shown


def shown_number(value: float) -> str:
    """Return a number with four digits that count, never in powers of ten."""
    if abs(value) < _LEAST or not math.isfinite(value):
        return "0" if value < math.inf else "inf"
    decimals = _DIGITS - 1 - math.floor(math.log10(abs(value)))
    return f"{value:.{min(max(decimals, 0), 9)}f}"
