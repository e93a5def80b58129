"""The document of anything that can be shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cprofiling._internal.text import shown_value
from cprofiling.nodes.snapshot import Snapshot
from cprofiling.nodes.stats import ProfilingSummary
from cprofiling.recording.result import Reports
from cprofiling.report import from_recording
from cprofiling.report.from_statistics import of_snapshot, of_summary
from cprofiling.report.from_timing import of_timing_report

if TYPE_CHECKING:
    from collections.abc import Callable

    from cprofiling.report.document import Document, Kind

_KINDS: tuple[tuple[type, Kind], ...] = (
    (Snapshot, "statistics"),
    (ProfilingSummary, "statistics"),
    (Reports, "recording"),
    (Mapping, "timing"),
)


def document_of(of: object, *, title: str | None = None, source: str | None = None) -> Document:
    """Return the document of anything that can be shown.

    Args:
        of: A ``ProfilingSummary``, ``Snapshot``, ``Recording``, ``profile`` that has ended, or a timing report as a
            dict.
        title: The heading; None for its kind.
        source: The name of the file that it was read from.

    Raises:
        TypeError: ``of`` is of no such kind.
        FormatError: A dict is no timing report.
    """
    return with_pictures(tables_of(of, title=title, source=source), of)


def tables_of(of: object, *, title: str | None = None, source: str | None = None) -> Document:
    """Return the document without the timeline and the icicle of a recording."""
    kind = kind_of("of", of)
    made: Callable[..., Document] = of_snapshot if isinstance(of, Snapshot) else of_summary
    if kind == "recording":
        made = from_recording.of_recording
    elif kind == "timing":
        made = of_timing_report
    return made(of, title=title, source=source)


def with_pictures(document: Document, of: object) -> Document:
    """Return a document of ``tables_of`` with the timeline and the icicle."""
    if not isinstance(of, Reports):
        return document
    return from_recording.with_pictures(document, of)


def kind_of(parameter: str, of: object) -> Kind:
    """Return the kind of a thing's document. Raises TypeError."""
    for types, kind in _KINDS:
        if isinstance(of, types):
            return kind
    raise TypeError(f"{parameter} must be a summary, a snapshot, a recording or a timing report, got {shown_value(of)}")
