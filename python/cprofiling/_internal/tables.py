"""Tables: rows once, and a formatter each for text, Markdown and HTML."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import fields
from itertools import zip_longest
from textwrap import wrap
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, TypeVar

from cprofiling._internal import arguments
from cprofiling._internal.optional import imported
from cprofiling._internal.text import counted, shown_text

if TYPE_CHECKING:
    import pandas as pd

    Unit: TypeAlias = Literal["text", "count", "ms", "us", "ns", "bytes", "share", "percent", "per_second", "number"]
    Cell: TypeAlias = str | int | float | bool | None

ROW_LIMIT = 100  # rows printed by default
OPEN_ROWS = 20  # of a table in a notebook; the others are folded
MOST_ROWS = 200  # of a section with a row for each name or place
_WIDEST = 80  # characters of a text
_NOTHING = "There is nothing in it."
# What means nothing inside the backticks of Markdown, and in HTML.
_PLAIN = re.compile(r"[\w.:/()*=+,-](?:[\w.:/()*=+, -]*[\w.:/()*=+,-])?")
# What may begin or end emphasis outside of them: an underscore but between letters, and each asterisk.
_EMPHASIS = re.compile(r"\*|(?<![^\W_])_|_(?![^\W_])")
# Text and lines take the colour of the page around them; only the bars have one of their own, for light and for dark.
# A table wider than its cell fades at each edge beyond which there is more of it, where browsers can do it.
_STYLE = """<style>
.cprofiling-table { --cprofiling-bar: #4c78a8; color: currentColor; }
@media (prefers-color-scheme: dark) { .cprofiling-table { --cprofiling-bar: #8ab4e0; } }
.cprofiling-scroll {
  overflow-x: auto; animation: cprofiling-fade linear; animation-timeline: scroll(self inline);
  animation-range: 0% 200%; /* never finished, as that would outlast a change of the width */
}
@keyframes cprofiling-fade {
  from { mask-image: linear-gradient(to left, #0002, #000 3em); }
  0.5%, 49.5% { mask-image: linear-gradient(to left, #0002, #000 3em calc(100% - 3em), #0002); }
  50%, to { mask-image: linear-gradient(to right, #0002, #000 3em); }
}
.cprofiling-table:not(:has(> details[open])) .cprofiling-more { display: none; }
.cprofiling-table .cprofiling-scroll table {
  border: 0; border-bottom: 1px solid currentColor; border-collapse: collapse; font-variant-numeric: tabular-nums;
}
.cprofiling-table caption { text-align: left; font-weight: bold; padding: 0.3em 0; white-space: nowrap; }
.cprofiling-table th, .cprofiling-table td { padding: 0.2em 0.7em; text-align: right; white-space: nowrap; }
.cprofiling-table th { border-bottom: 1px solid currentColor; }
.cprofiling-table .cprofiling-scroll .cprofiling-text { text-align: left; white-space: pre-wrap; }
.cprofiling-table summary { cursor: pointer; width: fit-content; padding: 0.3em 0.7em; }
.cprofiling-share { display: flex; justify-content: space-between; align-items: center; gap: 0.7em; }
.cprofiling-bar { flex: none; width: 5em; height: 0.7em; }
.cprofiling-bar > span { display: block; height: 100%; background: var(--cprofiling-bar); }
</style>"""

_TIMES = ("ns", "us", "ms")
_ENDINGS: tuple[tuple[str, Unit], ...] = (
    ("_ns", "ns"), ("_ms", "ms"), ("_us", "us"), ("bytes", "bytes"), ("count", "count"), ("share", "share"),
    ("_pct", "percent"), ("_percent", "percent"), ("_per_second", "per_second"),
)  # fmt: skip
_UNIT = re.compile("_(ns|us|ms|pct|percent)$")  # that the cells or the heading tell
_TEXT = ' class="cprofiling-text"'

_T = TypeVar("_T")


class Shown(str):
    """A number formatted already."""

    __slots__ = ()


class Whole(str):
    """A text shown in full, however long."""

    __slots__ = ()


class Bar(float):
    """A share of 0 to 1, shown in percent with a bar in HTML."""

    __slots__ = ()


class Missing(NamedTuple):
    """An unknown figure, with the reason as a tooltip in HTML."""

    reason: str


class Column(NamedTuple):
    """A column of a section.

    Attributes:
        name: Its name for programs.
        title: Its heading for people.
        unit: Of its values: ``text``, ``count``, ``ms``, ``us``, ``ns``, ``bytes``, ``share`` (0 to 1), ``percent``,
            ``per_second`` or ``number``.
        tip: Its meaning, in a sentence; may be empty.
    """

    name: str
    title: str
    unit: Unit = "text"
    tip: str = ""


class Section(NamedTuple):
    """A table with a title, such as an insight or a part of a report.

    Attributes:
        title: Its subject.
        columns: One for each value of a row.
        rows: Values: texts, numbers, booleans, or None where unknown.
        notes: Sentences below it.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()


def titled(name: str) -> tuple[str, Unit]:
    """Return the heading of a figure by its name for programs, and its unit."""
    unit: Unit = next((unit for ending, unit in _ENDINGS if name.endswith(ending)), "number")
    return _UNIT.sub("", name).replace("_", " ").capitalize(), unit


def heading(title: str, unit: str) -> str:
    """Return the heading of a column whose cells are bare numbers."""
    return f"{title} ({unit})" if unit in _TIMES else title


def with_unit(value: object, unit: str) -> object:
    """Return a share, a percentage or a rate as it is shown, any other value as it is."""
    if unit not in ("share", "percent", "per_second") or not isinstance(value, (int, float)):
        return value
    return Shown(f"{value:,.1f}/s" if unit == "per_second" else f"{100 * value if unit == 'share' else value:.1f} %")


def more_rows(count: int) -> tuple[str, ...]:
    """Return the note below a section cut to ``MOST_ROWS`` of ``count`` rows."""
    return (f"{count - MOST_ROWS:,} more rows are not shown.",) if count > MOST_ROWS else ()


# ---- formatters


def text_table(columns: Sequence[str], rows: Sequence[Sequence[object]], row_limit: int | None = ROW_LIMIT) -> str:
    """Return a table framed by box-drawing characters.

    None is a dash, and a float has one decimal. Texts of more than 80 characters are cut, or wrapped if ``Whole``. The
    last line counts the rows left out by ``row_limit``; None or a negative limit shows all.
    """
    shown = first_rows(rows, row_limit)
    cells = [line for row in shown for line in zip_longest(*map(_text_lines, row), fillvalue="")]
    widths = [max(len(column), *(len(row[place]) for row in cells), 0) for place, column in enumerate(columns)]
    bars = ["─" * (width + 2) for width in widths]

    def line(row: Sequence[str]) -> str:
        return f"│{'┆'.join(f' {cell:<{width}} ' for cell, width in zip(row, widths, strict=True))}│"

    lines = [f"┌{'┬'.join(bars)}┐", line(columns), f"╞{'╪'.join(bar.replace('─', '═') for bar in bars)}╡"]
    lines += [*map(line, cells), f"└{'┴'.join(bars)}┘", *_missing(len(rows) - len(shown))]
    return "\n".join(lines)


def first_rows(rows: Sequence[_T], row_limit: int | None) -> Sequence[_T]:
    """Return the first rows, all if the limit is None or negative."""
    limit = arguments.index_or_none("row_limit", row_limit)
    return rows if limit is None or limit < 0 else rows[:limit]


def _missing(count: int) -> list[str]:
    return [f"{count:,} more {'row is' if count == 1 else 'rows are'} not shown."] if count else []


def _text_lines(value: object) -> list[str]:
    if value is None:
        return ["-"]
    if isinstance(value, float):
        return [f"{value:.1f}"]
    text = shown_text("value", value) if isinstance(value, str) else str(value)
    if isinstance(value, Whole):
        return wrap(text, _WIDEST, break_on_hyphens=False)
    return [text if len(text) <= _WIDEST else text[: _WIDEST - 3] + "..."]


def markdown_table(rows: Sequence[Sequence[str]], is_text: Sequence[bool]) -> str:
    """Return escaped rows, headings first, as a table of GitHub's Markdown."""
    rules = ["---" if left else "--:" for left in is_text]
    return "\n".join(f"| {' | '.join(row)} |" for row in [rows[0], rules, *rows[1:]])


def in_cell(name: str) -> str:
    """Return a name for a cell of Markdown, escaped where it has Markdown signs."""
    shown = shown_text("name", name)
    return shown if _PLAIN.fullmatch(shown) and not _EMPHASIS.search(shown) else literal(shown)


def code_in_cell(name: str) -> str:
    """Return a name as code for a cell of Markdown."""
    shown = shown_text("name", name)
    return f"`{shown}`" if _PLAIN.fullmatch(shown) else f"<code>{literal(shown)}</code>"


def literal(text: str) -> str:
    """Escape text for Markdown and HTML."""
    signs = shown_text("text", text)
    return "".join(f"&#{ord(sign)};" if sign in "\\`*_{}[]<>#|~&@$!" else sign for sign in signs)


def html_table(
    columns: Sequence[str | tuple[str, str]],
    rows: Sequence[Sequence[object]],
    notes: Iterable[str],
    row_limit: int | None = ROW_LIMIT,
    caption: str = "",
) -> str:
    """Return rows under headings as an HTML fragment, with the notes below.

    Args:
        columns: The headings, or pairs of heading and tooltip.
        rows: The values; None or ``Missing`` where unknown.
        notes: Sentences below the table.
        row_limit: The most rows shown; a note counts the others. None shows all.
        caption: The title of the table, if any.

    Returns:
        Well-formed HTML without scripts; everything in it is escaped, with control characters and surrogates as in text
        tables. Rows beyond the first OPEN_ROWS are folded.
    """
    headings = [(column, "") if isinstance(column, str) else column for column in columns]
    texts = [
        any(isinstance(row[place], str) and not isinstance(row[place], Shown) for row in rows)
        for place in range(len(headings))
    ]
    titles = "".join(
        f'<th scope="col"{_TEXT if is_text else ""}{_title(tip)}>{escaped(text)}</th>'
        for (text, tip), is_text in zip(headings, texts, strict=True)
    )
    cells = [f"<tr>{''.join(map(_html_cell, row))}</tr>" for row in (rows if row_limit is None else rows[:row_limit])]
    lines = ['<div class="cprofiling-table">', _STYLE, '<div class="cprofiling-scroll">', "<table>"]
    lines += [f"<caption>{escaped(caption)}</caption>"] if caption else []
    lines += [f"<thead><tr>{titles}</tr></thead>", "<tbody>", *cells[:OPEN_ROWS], "</tbody>"]
    folded = cells[OPEN_ROWS:]
    lines += ['<tbody class="cprofiling-more">', *folded, "</tbody>"] if folded else []
    lines += ["</table>", "</div>"]
    lines += [f"<details><summary>Show {counted(len(folded), 'more row')}</summary></details>"] if folded else []
    notes = list(notes) or ([] if rows else [_NOTHING])
    return "\n".join((*lines, *html_notes(_missing(len(rows) - len(cells)) + notes), "</div>"))


def html_notes(notes: Iterable[str]) -> list[str]:
    """Return each sentence as an escaped paragraph of HTML."""
    return [f"<p>{escaped(note)}</p>" for note in notes]


def html_list(title: str, paragraphs: Sequence[str], notes: Iterable[str]) -> str:
    """Return numbered paragraphs under a title as escaped HTML."""
    items = ["<br>".join(map(escaped, paragraph.split("\n"))) for paragraph in paragraphs]
    shown = ["<ol>", *(f"<li>{item}</li>" for item in items), "</ol>"] if items else []
    return "\n".join((f"<p><b>{escaped(title)}</b></p>", *shown, *html_notes(notes)))


def _title(text: str) -> str:
    return f' title="{escaped(text)}"' if text else ""


def _html_cell(value: object) -> str:
    if value is None or isinstance(value, Missing):
        return f"<td{_title(value.reason if value else '')}>\N{EN DASH}</td>"
    if isinstance(value, Bar):
        bar = f'<span class="cprofiling-bar" aria-hidden="true"><span style="width:{100 * value:.1f}%"></span></span>'
        return f'<td><span class="cprofiling-share">{bar}{100 * value:.1f} %</span></td>'
    if isinstance(value, str) and not isinstance(value, Shown):
        text = "\n".join(map(escaped, value.split("\n")))
        return f"<td{_TEXT}>{text}</td>"
    return f"<td>{f'{value:.1f}' if isinstance(value, float) else escaped(str(value))}</td>"


def escaped(text: str) -> str:
    """Return a text on one line for HTML, control characters escaped."""
    return html.escape(shown_text("text", text))


# ---- results that are tables


class Table(NamedTuple):
    """Headings, rows and the notes below them."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    notes: Sequence[str] = ()


class Tabular:
    """A result shown as a table, as text and in notebooks."""

    __slots__ = ()

    def _table(self) -> Table:
        raise NotImplementedError

    def text(self, row_limit: int | None = ROW_LIMIT) -> str:
        """Return the table and its notes, all rows for a limit of None or below 0."""
        columns, rows, notes = self._table()
        return "\n".join((text_table(columns, rows, row_limit), *notes))

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return html_table(*self._table())


class Figures(Tabular, list[_T]):
    """A list of frozen values of one kind, shown as a table.

    Its ``repr()`` is short; notebooks show the table.

    Attributes:
        columns: The names of the values' fields.
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

    def _table(self) -> Table:
        titles = [titled(column) for column in self.columns]
        units = [unit for _, unit in titles]
        rows = [[with_unit(value, unit) for value, unit in zip(row, units, strict=True)] for row in self.rows()]
        return Table([heading(*title) for title in titles], rows, self.notes)

    def to_pandas(self) -> pd.DataFrame:
        """Return the values as a DataFrame. Raises ImportError without pandas."""
        return frame_of(self.columns, self.rows())

    def __repr__(self) -> str:
        return short_repr(f"{type(self).__name__} of {self._kind}", len(self), "row")


def short_repr(kind: str, count: int, noun: str) -> str:
    """Return the representation of a list or report, with its length."""
    return f"<{kind}: {counted(count, noun)}>" if count else f"<{kind}, empty>"


def frame_of(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> pd.DataFrame:
    """Return rows as a pandas DataFrame. Raises ImportError without pandas."""
    frame: pd.DataFrame = imported("pandas").DataFrame(list(rows), columns=list(columns))
    return frame
