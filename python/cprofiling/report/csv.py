r"""Figures as CSV, a line for each node or each event of a recording.

RFC 4180, in UTF-8, with lines that end with \n.

The columns are those of ``cprofiling.report.flat_columns``, or of ``cprofiling.export``. Numbers are written so that
they come back exactly; a field that is not known is empty, a text is always in quotes. Two things that readers of CSV
cannot take as they are, are changed in texts, so that each text still has a form of its own:

* What spreadsheets would take for a formula, or another text that begins like it (``= + - @ '``, tab, carriage return),
  gets an apostrophe before it.
* A surrogate, which UTF-8 does not have, is written as ``\udc80``, and so is what separates lines or turns the
  direction of writing, such as ``\u202e``; backslashes right before such, or before what looks like it, are doubled.

``text_of`` is the way back.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cprofiling._internal.report_format import Format
from cprofiling._internal.text import SEPARATING_OR_TURNING, shown_text
from cprofiling.recording.dataframe import ROW, Numbers, event_rows, frame_columns
from cprofiling.recording.result import Reports
from cprofiling.report.flat_columns import columns_of

if TYPE_CHECKING:
    from cprofiling.report.view import View

_FORMULA = ("=", "+", "-", "@", "'", "\t", "\r")
_ESCAPED = re.compile(f"[\ud800-\udfff{SEPARATING_OR_TURNING}]")
_WRITTEN_AS = "u(?:d[89a-f][0-9a-f]{2}|061c|20(?:0[ef]|2[89a-e]|6[6-9]))"
_BEFORE_ESCAPED = re.compile(rf"\\+(?={_ESCAPED.pattern}|{_WRITTEN_AS})")
_WRITTEN = re.compile(rf"(\\+)({_WRITTEN_AS})")


class Csv(Format):
    """A line for each node, or for each event of a recording."""

    suffixes = (".csv",)

    def render(self, view: View) -> str:
        """Return the lines, that with the names first."""
        columns: dict[str, Sequence[Any]] = {}
        if not isinstance(view.of, Reports):
            columns = {name: values for name, _, values in columns_of(view.tables.nodes)}
        else:
            recording = view.of._finished()  # noqa: SLF001 the package's own
            columns[ROW] = event_rows(recording)
            for name, values in frame_columns(recording).items():
                if isinstance(values, Numbers):
                    none = values.none
                    columns[name] = [None if value == none else value for value in values.values]
                else:
                    columns[name] = values
        lines = [",".join(map(_quoted, columns))]
        lines += [",".join(map(_cell, row)) for row in zip(*columns.values(), strict=True)]
        return "\n".join(lines) + "\n"


def text_of(cell: str) -> str:
    """Return the text that a cell stands for, once out of its quotes."""

    def read(found: re.Match[str]) -> str:
        backslashes = "\\" * (len(found[1]) // 2)
        return backslashes + (chr(int(found[2][1:], 16)) if len(found[1]) % 2 else found[2])

    return _WRITTEN.sub(read, cell.removeprefix("'"))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        return repr(value)
    if not value.isascii() or "\\u" in value:
        value = _BEFORE_ESCAPED.sub(lambda found: found[0] * 2, value)
        value = _ESCAPED.sub(lambda found: shown_text("text", found[0]), value)
    return _quoted(f"'{value}" if value.startswith(_FORMULA) else value)


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'
