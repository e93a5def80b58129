"""A thing to show, with the run it is compared with."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from cprofiling._internal import arguments
from cprofiling._internal.text import checked_text, shown_value
from cprofiling.nodes.snapshot import Snapshot
from cprofiling.nodes.stats import ProfilingSummary
from cprofiling.recording.result import Reports
from cprofiling.report import format_list
from cprofiling.report.against import compared, comparison_of
from cprofiling.report.from_timing import of_timing_report

if TYPE_CHECKING:
    from _typeshed import StrOrBytesPath

    from cprofiling._internal.report_format import Format
    from cprofiling._internal.tables import Cell
    from cprofiling.analysis.comparison import TimingComparison
    from cprofiling.report.document import Document, Kind

_SHOWN: tuple[tuple[type, Kind], ...] = (
    (Snapshot, "statistics"), (ProfilingSummary, "statistics"), (Reports, "recording"), (Mapping, "timing"),
)  # fmt: skip
_KINDS = {"statistics": "a summary", "timing": "a timing report", "recording": "a recording"}


class View:
    """One thing, and the run that it is compared with, ready to be shown.

    Attributes:
        of: The statistics, recording or timing report.
        kind: ``statistics``, ``timing`` or ``recording``.
        against: The other run, or None.
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
        """Take over the run to show.

        Args:
            of: A ``ProfilingSummary``, ``Snapshot``, ``Recording``, ``profile`` that has ended, or a timing report as a
                dict.
            against: Another one of the same kind, or its ``View``; None: nothing is compared.
            title: For the heading; None: its kind.
            source: The name of the file that it was read from.
            facts: What else is known of the run.

        Raises:
            TypeError: ``of`` or ``against`` is nothing of that, or another argument not of its type.
            ValueError: They are of different kinds.
        """
        self.of: Any = of
        self.kind = _kind_of("of", of)
        if against is not None and not isinstance(against, View):
            _kind_of("against", against)
            against = View(against)
        self.against = against
        for parameter, text in (("title", title), ("source", source)):
            if text is not None:
                checked_text(parameter, text)
        self._about = (title, source, arguments.member("facts", facts or {}, Mapping))  # type: ignore[type-abstract]
        if self.against is not None and self.against.kind != self.kind:
            raise ValueError(
                f"against must be of the same kind, got {_KINDS[self.kind]} with {_KINDS[self.against.kind]}"
            )

    def beside(self, against: object) -> View:
        """Return it with another run to compare with. Raises as the class."""
        title, source, facts = self._about
        return View(self.of, against=against, title=title, source=source, facts=facts)

    @property
    def formats(self) -> tuple[str, ...]:
        """The formats it can have, in the order of ``FORMATS``."""
        found = {name: format_list.find(name) for name in format_list.FORMATS}
        return tuple(name for name, each in found.items() if (each.compares if self.against else each.fits(self.of)))

    @cached_property
    def document(self) -> Document:
        """All that is known of it. FormatError where a dict is no timing report."""
        document: Document = self.of._pictured(self.tables) if self.kind == "recording" else self.tables  # noqa: SLF001
        return document

    @cached_property
    def tables(self) -> Document:
        """The document without a recording's timeline and icicle."""
        title, source, facts = self._about
        make = partial(of_timing_report, self.of) if self.kind == "timing" else self.of._document  # noqa: SLF001
        document: Document = make(title=title, source=source)
        return replace(document, facts={**facts, **document.facts}) if facts else document

    def render(self, format: str) -> str:  # noqa: A002 the plain word for it
        """Return it in a format that is text.

        Raises ValueError for a format that needs a file, does not fit, or is unknown.
        """
        found = format_list.find(format)
        if found.needs_file:
            arguments.choice(
                "format", format, [name for name in format_list.FORMATS if not format_list.find(name).needs_file]
            )
        self._check(format, found)
        return found.render(self)

    def write(self, path: StrOrBytesPath, format: str | None = None) -> None:  # noqa: A002
        """Write it to a file, which appears when it is complete.

        path: used exactly; a file there is replaced. format: one of ``FORMATS``; None: as the name ends.

        OSError where it cannot be written; ValueError as ``render``; ImportError where a package is missing.
        """
        name = arguments.path("path", path)
        if os.path.isdir(name):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        wanted = format_list.format_of(name, self.formats) if format is None else format
        found = format_list.find(wanted)
        self._check(wanted, found)
        found.write(self, name)

    def _check(self, name: str, found: Format) -> None:
        if not found.fits(self.of):
            raise ValueError(f"{name} is a format of {found.only}, not of {_KINDS[self.kind]}")
        if self.against is not None and not found.compares:
            raise ValueError(f"two runs are compared as {', '.join(self.formats)}, not as {name}")

    @cached_property
    def comparison(self) -> TimingComparison:
        """The comparison with the other run, which must be there."""
        assert self.against is not None  # noqa: S101 it was looked at
        return comparison_of([self.against], [self])

    @cached_property
    def compared(self) -> Document:
        """The document, with the changes if there is another run."""
        if self.against is None:
            return self.document
        return compared(self, self.against)


def _kind_of(parameter: str, of: object) -> Kind:
    for known, kind in _SHOWN:
        if isinstance(of, known):
            return kind
    raise TypeError(f"{parameter} must be a summary, a snapshot, a recording or a timing report, got {shown_value(of)}")
