"""A recording as a Chrome trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cprofiling._internal.report_format import Format
from cprofiling.recording.result import Reports

if TYPE_CHECKING:
    from cprofiling.report.view import View


class Chrome(Format):
    """The trace of a recording, compressed if its name ends in ``.gz``."""

    suffixes = (".json.gz",)
    needs_file = True
    only = "recordings"

    def fits(self, of: object) -> bool:
        """Tell whether it is a recording."""
        return isinstance(of, Reports)

    def write(self, view: View, path: str) -> None:
        """Write the trace."""
        view.of.export_chrome_trace(path)
