"""A document as GitHub's Markdown, safe for any name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cprofiling._internal.report_format import Format
from cprofiling._internal.tables import in_cell, literal, markdown_table
from cprofiling.nodes.summary_table import NO_DATA
from cprofiling.report.tables import cells, measured, node_section, shown

if TYPE_CHECKING:
    from cprofiling._internal.tables import Cell, Section, Unit
    from cprofiling.report.document import Document
    from cprofiling.report.view import View

_INSIDE_WORDS = re.compile(r"(?<=[^\W_])&#95;(?=[^\W_])")  # underscores that mean nothing anyway


class Markdown(Format):
    """Tables as GitHub's Markdown."""

    suffixes = (".md", ".markdown")
    compares = True

    def render(self, view: View) -> str:
        """Return the document, or the comparison with another run."""
        return render(view.tables) if view.against is None else f"{view.comparison}\n"


def render(document: Document) -> str:
    """Return a document as Markdown, control characters escaped."""
    parts = [f"# {_sentence(document.title)}"]
    if document.source is not None:
        parts.append(_sentence(document.source))
    nodes = node_section(document)
    parts += [table(nodes) if nodes.rows else NO_DATA]
    for section in document.sections.values():
        parts += [f"## {_sentence(section.title)}", table(section)]
        parts += [_list(section.notes)] if section.notes else []
    if document.findings:
        parts.append("## Findings")
        parts.append("\n".join(
            f"1. **{_sentence(each.title)}** {_sentence(each.text)} Advice: {_sentence(each.advice)}"
            for each in document.findings
        ))  # fmt: skip
    lines = measured(document)
    if lines:
        parts += ["## How it was measured", _list(lines)]
    return "\n\n".join(parts) + "\n"


def _list(lines: list[str] | tuple[str, ...]) -> str:
    return "\n".join(f"- {_sentence(line)}" for line in lines)


def _sentence(text: str) -> str:
    """Return text in which nothing means anything to Markdown."""
    return _INSIDE_WORDS.sub("_", literal(shown(text, "text")))


def table(section: Section) -> str:
    """Return the table of a section."""
    return markdown_table(cells(section, _cell, literal), [column.unit == "text" for column in section.columns])


def _cell(value: Cell, unit: Unit) -> str:
    if not isinstance(value, str):
        return shown(value, unit)
    text = in_cell(value)
    # At the ends of a cell readers take white space for padding.
    inner = text.strip()
    before, _, after = text.partition(inner) if inner else (text, "", "")
    return f"{_spelled(before)}{inner}{_spelled(after)}"


def _spelled(space: str) -> str:
    return "".join(f"&#{ord(character)};" for character in space)
