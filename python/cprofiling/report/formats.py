"""The formats: what is made of a summary, a snapshot, a timing report or a recording, for people and for programs."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING

from cprofiling._internal import arguments
from cprofiling.nodes.snapshot import Snapshot
from cprofiling.nodes.stats import ProfilingSummary
from cprofiling.nodes.summary_table import shown_value
from cprofiling.recording.result import Reports
from cprofiling.recording.traces import chrome_writer
from cprofiling.report.from_statistics import kind_of, tables_of, with_pictures

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

    from _typeshed import StrOrBytesPath

    from cprofiling._internal.tables import Cell
    from cprofiling.layers.compare.timing_reports import TimingComparison
    from cprofiling.report.document import Document

FORMATS = ("text", "html", "md", "json", "csv", "parquet", "chrome", "prom")
NEED_FILES = ("parquet", "chrome")  # as they are binary, or long
COMPARING = ("text", "html", "md", "json")
_SUFFIXES = {
    ".txt": "text", ".html": "html", ".htm": "html", ".md": "md", ".markdown": "md", ".json": "json", ".csv": "csv",
    ".parquet": "parquet", ".pq": "parquet", ".json.gz": "chrome", ".prom": "prom",
}  # fmt: skip


class FormatMismatchError(ValueError):
    """A format that a thing cannot be shown in."""


def format_of(path: str, fitting: Collection[str] = FORMATS) -> str:
    """Return the format that the name of a file tells by its end.

    fitting: the formats that a thing can have. ValueError for an end of no format, which lists those of these.
    """
    chrome_writer.check_name(path)
    name = os.path.basename(path).lower()
    for suffix, kind in _SUFFIXES.items():
        if name.endswith(suffix):
            return kind
    suffixes = ", ".join(suffix for suffix, kind in _SUFFIXES.items() if kind in fitting)
    raise ValueError(f"path must end in one of {suffixes}, got {shown_value(path)}")


class View:
    """One thing, and the run that it is compared with, ready to be shown.

    Attributes:
        of: What it is of.
        kind: ``statistics``, ``timing`` or ``recording``.
        against: The other run; None where there is none.
    """

    def __init__(
        self,
        of: object,
        *,
        against: object = None,
        title: str | None = None,
        source: str | None = None,
        facts: Mapping[str, Cell] | None = None,
    ) -> None:
        """Take over what is to be shown.

        Args:
            of: A ``ProfilingSummary``, ``Snapshot``, ``Recording``, ``profile`` that has ended, or a timing report as a
                dict.
            against: Another one of the same kind, or its ``View``; None: nothing is compared.
            title: For the heading; None: what it is.
            source: The name of the file that it was read from.
            facts: What else is known of the run.

        Raises:
            TypeError: ``of`` or ``against`` is nothing of that.
            ValueError: They are of different kinds.
        """
        self.of = of
        self.kind = kind_of("of", of)
        if against is not None and not isinstance(against, View):
            kind_of("against", against)
            against = View(against)
        self.against = against
        self._about = (title, source, facts or {})
        if self.against is not None and self.against.kind != self.kind:
            raise FormatMismatchError(f"what is compared must be of one kind, got {self.kind} with {self.against.kind}")

    @property
    def formats(self) -> tuple[str, ...]:
        """Those that it can have, in the order of ``FORMATS``."""
        if self.against is not None:
            return COMPARING
        is_recording, is_snapshot = isinstance(self.of, Reports), isinstance(self.of, Snapshot)
        fits = {"chrome": is_recording, "prom": is_snapshot}
        return tuple(kind for kind in FORMATS if fits.get(kind, True))

    @cached_property
    def document(self) -> Document:
        """All that is known of it. FormatError where a dict is no timing report."""
        return with_pictures(self.tables, self.of)

    @cached_property
    def tables(self) -> Document:
        """The same without what only some formats draw, and what takes most time: a recording's timeline and icicle."""
        title, source, facts = self._about
        document = tables_of(self.of, title=title, source=source)
        return replace(document, facts={**facts, **document.facts}) if facts else document

    def render(self, kind: str) -> str:
        """Return it in one of the formats that are text. ValueError for others, and for those that it cannot have."""
        arguments.choice("format", kind, [each for each in FORMATS if each not in NEED_FILES])
        self._check_comparing(kind)
        text: str = getattr(self, f"_{kind}")()
        return text

    def write(self, path: StrOrBytesPath, kind: str | None = None) -> None:
        """Write it to a file, which appears under its name when it is complete, readable by its owner only.

        path: used exactly; what is there is replaced. kind: the format; None: as the name ends.

        OSError where it cannot be written; ValueError as ``render``; ImportError where a package is missing.
        """
        name = arguments.path("path", path)
        if os.path.isdir(name):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        kind = format_of(name, self.formats) if kind is None else arguments.choice("format", kind, FORMATS)
        if kind == "chrome":
            self._export(name)
        elif kind == "parquet":
            self._write_parquet(name)
        else:
            data = self.render(kind).encode("utf-8", "backslashreplace")
            _write(name, lambda file: file.write(data))

    def _text(self) -> str:
        if isinstance(self.of, Reports):
            return self._overview()
        if self.against is not None:
            return self.comparison.to_text() + "\n"
        return self._table() + "\n"

    def _overview(self) -> str:
        """Return the text of a recording; with another one, the nodes compared before it."""
        recording: Any = self.of
        if self.against is None:
            return str(recording.overview())
        overview: str = recording.overview(baseline=self.against.of)
        if not self.tables.nodes:
            return overview
        return f"{self.comparison.to_text()}\n\n{overview}"

    def _table(self) -> str:
        from cprofiling.report import text

        summary = self.of.stats() if isinstance(self.of, Snapshot) else self.of
        return text.render(self.tables, summary if isinstance(summary, ProfilingSummary) else None)

    def _md(self) -> str:
        from cprofiling.report import markdown

        return markdown.render(self.tables) if self.against is None else f"{self.comparison}\n"

    def _html(self) -> str:
        html = import_module("cprofiling.report.html.render")
        other = None if self.against is None else self.against.document
        text: str = html.render(self._compared(), against=other)
        return text

    def _json(self) -> str:
        return f"{self._compared().to_json(indent=2)}\n"

    def _csv(self) -> str:
        from cprofiling.report import csv

        if isinstance(self.of, Reports):
            return csv.render_events(self.of._finished())  # noqa: SLF001 the package's own
        return csv.render(self.tables.nodes)

    def _prom(self) -> str:
        from cprofiling.report import prometheus

        if not isinstance(self.of, Snapshot):
            raise FormatMismatchError(f"prom is a format of snapshots of statistics, not of {self._what()}")
        return prometheus.render(self.of)

    @cached_property
    def comparison(self) -> TimingComparison:
        """The comparison with the other run, which must be there."""
        from cprofiling.report import against as compare

        assert self.against is not None  # noqa: S101 it was looked at
        return compare.comparison_of([self.against], [self])

    def _compared(self) -> Document:
        """Return the document, with what has changed where there is another run."""
        from cprofiling.report import against as compare

        return self.document if self.against is None else compare.compared(self, self.against)

    def _export(self, path: str) -> None:
        if not isinstance(self.of, Reports):
            raise FormatMismatchError(f"chrome is a format of recordings, not of {self._what()}")
        self._check_comparing("chrome")
        self.of.export_chrome_trace(path)

    def _write_parquet(self, path: str) -> None:
        from cprofiling.report import flat_columns, parquet

        self._check_comparing("parquet")
        arrow: Any = self.of if isinstance(self.of, Reports) else flat_columns.ArrowTable(self.tables.nodes)
        parquet.require()
        _write(path, lambda file: parquet.write(arrow, self.tables, file))

    def _check_comparing(self, kind: str) -> None:
        if self.against is not None and kind not in COMPARING:
            raise FormatMismatchError(f"two runs are compared as {', '.join(COMPARING)}, not as {kind}")

    def _what(self) -> str:
        kinds = {"statistics": "a summary", "timing": "a timing report", "recording": "a recording"}
        return kinds[self.kind]


def _write(path: str, put: Any) -> None:
    from cprofiling._internal.files import atomic_writer

    with atomic_writer(path) as file:
        put(file)
