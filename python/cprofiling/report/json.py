"""A document as JSON of the published schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cprofiling._internal.report_format import Format

if TYPE_CHECKING:
    from cprofiling.report.view import View


class Json(Format):
    """The document, or its comparison with another run."""

    suffixes = (".json",)
    compares = True

    def render(self, view: View) -> str:
        """Return indented JSON in ASCII."""
        return f"{view.compared.to_json(indent=2)}\n"
