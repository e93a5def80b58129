"""A report as plain text, for terminals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cprofiling._internal.report_format import Format
from cprofiling._internal.text import plain_table
from cprofiling.nodes.resource_columns import beyond_text
from cprofiling.nodes.snapshot import Snapshot
from cprofiling.nodes.stats import ProfilingSummary
from cprofiling.nodes.summary_table import NO_DATA
from cprofiling.recording.result import Reports
from cprofiling.report.tables import cells, measured, node_section, shown

if TYPE_CHECKING:
    from cprofiling._internal.tables import Section
    from cprofiling.report.view import View


class Text(Format):
    """Tables in columns, the overview of a recording, or a comparison."""

    suffixes = (".txt",)
    compares = True

    def render(self, view: View) -> str:
        """Return the text, with a newline at its end."""
        of = view.of.stats() if isinstance(view.of, Snapshot) else view.of
        if isinstance(of, Reports):
            if view.against is None:
                return of.overview()
            overview = of.overview(baseline=view.against.of)
            return f"{view.comparison.to_text()}\n\n{overview}" if view.tables.nodes else overview
        if view.against is not None:
            return view.comparison.to_text() + "\n"
        nodes = node_section(view.tables)
        parts = [_table(nodes) if nodes.rows else NO_DATA]
        if isinstance(of, ProfilingSummary):
            parts.append(beyond_text(of))
        parts += [
            "\n".join([shown(section.title, "text"), _table(section), *section.notes])
            for section in view.tables.sections.values()
        ]
        return "\n\n".join(filter(None, [*parts, "\n".join(measured(view.tables))])) + "\n"


def _table(section: Section) -> str:
    return plain_table(cells(section, shown), [column.unit == "text" for column in section.columns])
