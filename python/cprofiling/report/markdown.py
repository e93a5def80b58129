"""A document as GitHub's Markdown, safe for any name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from cprofiling._internal.report_format import Format
from cprofiling._internal.tables import in_cell, literal, markdown_table
from cprofiling.nodes.summary_table import NO_DATA
from cprofiling.report.tables import cells, measured, node_section, shown

if TYPE_CHECKING:
    from cprofiling._internal.tables import Cell, Section, Unit
    from cprofiling.report.view import View

_INSIDE_WORDS = re.compile(r"(?<=[^\W_])&#95;(?=[^\W_])")  # underscores that mean nothing anyway

_AT_ENDS = re.compile(r"^\s+|\s+\Z")


class Markdown(Format):
    """Tables as GitHub's Markdown."""

    suffixes = (".md", ".markdown")
    compares = True

    def render(self, view: View) -> str:
        """Return the document, or the comparison with another run."""
        if view.against is not None:
            return f"{view.comparison}\n"
        document = view.tables
        parts = [f"# {_sentence(document.title)}"]
        if document.source is not None:
            parts.append(_sentence(document.source))
        nodes = node_section(document)
        parts.append(_table(nodes) if nodes.rows else NO_DATA)
        for section in document.sections.values():
            parts += [f"## {_sentence(section.title)}", _table(section)]
            parts += [_list(section.notes)] if section.notes else []
        if document.findings:
            findings = [
                f"1. **{_sentence(each.title)}** {_sentence(each.text)} Advice: {_sentence(each.advice)}"
                for each in document.findings
            ]
            parts += ["## Findings", "\n".join(findings)]
        lines = measured(document)
        if lines:
            parts += ["## How it was measured", _list(lines)]
        return "\n\n".join(parts) + "\n"


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {_sentence(line)}" for line in lines)


def _sentence(text: str) -> str:
    """Return text without signs of Markdown."""
    return _INSIDE_WORDS.sub("_", literal(shown(text, "text")))


def _table(section: Section) -> str:
    return markdown_table(cells(section, _cell, literal), [column.unit == "text" for column in section.columns])


def _cell(value: Cell, unit: Unit) -> str:
    """Return a cell, with the white space at its ends escaped, which readers take for padding."""
    if not isinstance(value, str):
        return shown(value, unit)
    return _AT_ENDS.sub(lambda space: "".join(f"&#{ord(character)};" for character in space[0]), in_cell(value))
