"""HTML tables of reports, as notebooks show them: fragments without scripts or anything from outside them."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from cprofiling.nodes.summary_table import shown_text

ROW_LIMIT = 100
_NOTHING = "There is nothing in it."
# Text and lines take the colour of the page around them.
_STYLE = """<style>
.cprofiling-table { color: currentColor; overflow-x: auto; }
.cprofiling-table table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
.cprofiling-table th, .cprofiling-table td { padding: 0.2em 0.7em; text-align: right; white-space: nowrap; }
.cprofiling-table th { border-bottom: 1px solid currentColor; }
.cprofiling-table td.cprofiling-text { text-align: left; white-space: pre-wrap; }
</style>"""


class Shown(str):
    """A number as it is to be shown."""

    __slots__ = ()


class Whole(str):
    """A text that is shown to its end, however long it is."""

    __slots__ = ()


def html_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], notes: Iterable[str], row_limit: int | None = ROW_LIMIT
) -> str:
    """Return rows under headings as an HTML fragment, with the notes below.

    Args:
        columns: The headings.
        rows: The values; None for one that is not known.
        notes: Sentences that belong to them.
        row_limit: The most rows that are shown; a note tells how many are not. None: all.

    Returns:
        Well-formed HTML; everything in it is escaped, with control characters and surrogates as in text tables.
    """
    head = "".join(f'<th scope="col">{_escaped(column)}</th>' for column in columns)
    lines = ['<div class="cprofiling-table">', _STYLE, "<table>", f"<thead><tr>{head}</tr></thead>", "<tbody>"]
    shown = rows if row_limit is None else rows[:row_limit]
    lines += [f"<tr>{''.join(map(_cell, row))}</tr>" for row in shown]
    lines += ["</tbody>", "</table>"]
    notes = tuple(notes) if rows else tuple(notes) or (_NOTHING,)
    missing = len(rows) - len(shown)
    if missing:
        lines.append(f"<p>{missing:,} more {'row is' if missing == 1 else 'rows are'} not shown.</p>")
    return "\n".join((*lines, *(f"<p>{_escaped(note)}</p>" for note in notes), "</div>"))


def html_list(title: str, paragraphs: Sequence[str], notes: Iterable[str]) -> str:
    """Return numbered paragraphs of several lines under a title as an HTML fragment, all escaped."""
    items = ["<br>".join(_escaped(line) for line in paragraph.split("\n")) for paragraph in paragraphs]
    listed = ["<ol>", *(f"<li>{item}</li>" for item in items), "</ol>"] if items else []
    return "\n".join((f"<p><b>{_escaped(title)}</b></p>", *listed, *(f"<p>{_escaped(note)}</p>" for note in notes)))


def _cell(value: object) -> str:
    if value is None:
        return "<td>\N{EN DASH}</td>"
    if isinstance(value, str) and not isinstance(value, Shown):
        text = "\n".join(map(_escaped, value.split("\n")))
        return f'<td class="cprofiling-text">{text}</td>'
    return f"<td>{f'{value:.1f}' if isinstance(value, float) else _escaped(str(value))}</td>"


def _escaped(text: str) -> str:
    return html.escape(shown_text("text", text))
