"""Make kernels of ncu's table, with metrics by id in base units."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

from cprofiling.devices.nsight import csv_table
from cprofiling.devices.nsight.csv_table import Source, Table
from cprofiling.devices.nsight.kernels import NcuKernel, NcuReport
from cprofiling.devices.nsight.metrics import BASES, NO_TEXTS, NUMBERS, Metrics, Texts, metric_id

_NUMBERED = {"id": "id", "process id": "process_id", "device": "device", "context": "context", "stream": "stream"}
_NAMED = {"process name": "process_name", "host name": "host", "cc": "capability"}
_SIZES = {"block size": "block", "grid size": "grid"}
_INVOCATIONS = "invocations"
_OF_METRICS = (
    "section name", "metric name", "metric unit", "metric value", "minimum", "maximum", "average", "rule name",
    "rule type", "rule description", "estimated speedup type", "estimated speedup",
)  # fmt: skip
_KNOWN = frozenset((*_NUMBERED, *_NAMED, *_SIZES, _INVOCATIONS, csv_table.KERNEL, *_OF_METRICS))
_RANGES = re.compile(r"(push/pop|start/stop|start/end)_range", re.IGNORECASE)
_NO_NAME = "(all kernels)"
_NOTHING = frozenset(("", "-", "n/a", "nan", "-nan", "nan(ind)", "-nan(ind)", "inf", "+inf", "-inf", "none", "null"))
_FAILED = "(!)"  # before what takes the place of a value that could not be measured
_INSTANCES = re.compile(r" \(.*\)\Z", re.DOTALL)  # the values of single instances, behind that of all
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_LOCALE_NUMBER = re.compile("[+-]?[0-9]+([.,' \u00a0\u2009\u202f\u2019][0-9]+)+")
_UNITS = {
    "nsecond": "ns", "second": "s", "percent": "%", "hz": "Hz", "cycle/second": "Hz", "cycle/s": "Hz",
    "byte/second": "byte/s",
}  # fmt: skip
_EXPORT = "export it with: LC_ALL=C ncu --import FILE --csv --page raw --print-units base"


def read(file: IO[bytes], name: str) -> NcuReport:
    """Return the report in a CSV file.

    Raises FormatError, with ``name``, line and column, if there is none.
    """
    source = Source(file, name)
    reader = _Reader(source)
    for table, cells in csv_table.rows(source, csv_table.find_table(source)):
        reader.take(table, cells)
    return reader.report()


@dataclass(slots=True)
class _Column:
    """Metric with its unit, and whether that is its base unit."""

    id: str
    unit: str
    fits: bool


class _Draft:
    """Kernel that may get more lines."""

    __slots__ = ("facts", "places", "rules", "texts", "values")

    def __init__(self, facts: dict[str, Any]) -> None:
        self.facts = facts
        self.places: dict[str, int] = {}
        self.values = array("d")
        self.texts: dict[str, str] = {}
        self.rules: dict[str, None] = {}


class _Reader:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._units: dict[str, str] = {}
        self._columns: dict[tuple[str, str], _Column] = {}
        self._table: Table | None = None
        self._layout: _Layout
        self._drafts: dict[tuple[object, ...], _Draft] = {}
        self._kernels: list[NcuKernel] = []
        self._places: dict[tuple[str, ...], dict[str, int]] = {}
        self._texts: dict[Texts, Texts] = {NO_TEXTS: NO_TEXTS}

    def take(self, table: Table, cells: list[str]) -> None:
        """Take a line of a table."""
        if table is not self._table:
            self._table, self._layout = table, _Layout(table, self._source)
        if table.is_long:
            self._take_metric(self._layout, cells)
        elif table.is_units(cells):
            self._layout.units = cells
            self._layout.columns = None
        else:
            self._take_kernel(self._layout, cells)

    def _take_kernel(self, layout: _Layout, cells: list[str]) -> None:
        if layout.columns is None:
            found: dict[str, tuple[int, _Column]] = {}
            for place, header in layout.headers():
                column = self._column(*header)
                found.setdefault(column.id, (place, column))
            layout.columns = list(found.values())
        draft = _Draft(layout.facts(cells))
        for place, column in layout.columns:
            self._add(draft, column, cells[place], place)
        self._finish(draft)

    def _take_metric(self, layout: _Layout, cells: list[str]) -> None:
        key = tuple(cells[place] for place in layout.key_places)
        draft = self._drafts.get(key)
        if draft is None:
            draft = self._drafts[key] = _Draft(layout.facts(cells))
        rule = layout.text(cells, "rule description")
        if rule:
            draft.rules.setdefault(rule)
        name = layout.text(cells, "metric name")
        if name:
            column = self._column(name, layout.text(cells, "metric unit"))
            if column.id not in draft.places:
                self._add(draft, column, cells[layout.value_place], layout.value_place)

    def _column(self, name: str, unit: str) -> _Column:
        column = self._columns.get((name, unit))
        if column is None:
            base = _UNITS.get(unit, unit)
            id_ = metric_id(name, base)
            column = self._columns[name, unit] = _Column(id_, unit, base in BASES.get(id_, (base,)))
            self._units.setdefault(column.id, base)
        return column

    def _add(self, draft: _Draft, column: _Column, text: str, place: int) -> None:
        value = math.nan
        text = text.strip()
        number = _INSTANCES.sub("", text)
        if _NUMBER.fullmatch(number):
            value = float(number)
            if not column.fits:
                unit = f"in {column.unit!r}" if column.unit else "without a unit"
                self._source.refuse_cell(place, f'"{column.id}" is {unit}, not in {BASES[column.id][0]}: {_EXPORT}')
            if math.isinf(value):
                value = math.nan
        elif _LOCALE_NUMBER.fullmatch(number):
            self._source.refuse_cell(place, f"{number[:80]!r} is a number of some locale: {_EXPORT}")
        elif text.lower() in _NOTHING or text.startswith(_FAILED):
            pass
        elif column.id in NUMBERS:
            name = self._layout.table.names[place]
            self._source.refuse_cell(place, f'"{name}" must be a number, got {text[:80]!r}')
        else:
            draft.texts[column.id] = text
        draft.places[column.id] = len(draft.values)
        draft.values.append(value)

    def _finish(self, draft: _Draft) -> None:
        """Make a kernel of a draft, sharing names within a layout."""
        places = self._places.setdefault(tuple(draft.places), draft.places)
        texts = Texts(draft.texts)
        texts = self._texts.setdefault(texts, texts)
        metrics, rules = Metrics(places, draft.values), tuple(draft.rules)
        self._kernels.append(NcuKernel(metrics=metrics, texts=texts, rules=rules, **draft.facts))

    def report(self) -> NcuReport:
        """Return the report.

        Raises FormatError if there is no kernel.
        """
        for draft in self._drafts.values():
            self._finish(draft)
        source = self._source
        if not self._kernels:
            says = "" if source.complaint is None else f"; ncu says: {source.complaint}"
            source.refuse_cell(-1, f"the file ends behind the header, without any kernel{says}")
        notes = []
        if source.foreign:
            verb = "line is" if source.foreign == 1 else "lines are"
            notes.append(f"{source.foreign} {verb} not of the table, and left out.")
        if not source.is_ended:
            notes.append("The last line of the file has no end: there may have been more.")
        return NcuReport(tuple(self._kernels), Texts(self._units), tuple(notes))


class _Layout:
    """Places of values in the lines of a table.

    Attributes:
        table: The table.
        units: The cells of the line of units; None if there is none so far.
        columns: The metrics of a table with one line per kernel, with their places; None where they are not known yet.
        key_places: The columns that tell kernels apart, in a table with one line per metric.
        value_place: The column of the values there.
    """

    def __init__(self, table: Table, source: Source) -> None:
        self.table = table
        self.units: Sequence[str] | None = None
        self.columns: list[tuple[int, _Column]] | None = None
        self._converted: dict[tuple[str, str], Any] = {}  # kernels share what they have in common
        self._places = {name: table.place(name) for name in _KNOWN}
        fields = ((_NUMBERED, _whole), (_NAMED, str), (_SIZES, _size))
        self._facts: list[tuple[str, int, str, Callable[[str], Any]]] = [
            (name, place, own, convert)
            for names, convert in fields
            for name, own in names.items()
            if (place := table.place(name)) is not None
        ]
        self._ranges = [place for place, name in enumerate(table.names) if _RANGES.search(name)]
        known = (*_NUMBERED, *_NAMED, *_SIZES, csv_table.KERNEL, _INVOCATIONS)
        self.key_places = [place for name in known if (place := self._places[name]) is not None]
        value_place = table.place(*csv_table.VALUES)
        if table.is_long and value_place is None:
            source.refuse_cell(-1, 'the header has "Metric Name", but neither "Metric Value" nor "Average"')
        self.value_place = value_place or 0

    def headers(self) -> Iterator[tuple[int, tuple[str, str]]]:
        """Give the places of the metrics, with name and unit."""
        for place, name in enumerate(self.table.names):
            if not name or name.lower() in _KNOWN or place in self._ranges:
                continue
            yield place, (name, self.units[place].strip() if self.units is not None else "")

    def text(self, cells: Sequence[str], name: str) -> str:
        """Return a cell by column name, empty if there is none."""
        place = self._places[name]
        return "" if place is None else cells[place].strip()

    def facts(self, cells: Sequence[str]) -> dict[str, Any]:
        """Return the known fields of ``NcuKernel`` in a line, without metrics."""
        place = self.table.name_place
        kernel = (cells[place] if place is not None else "") or _NO_NAME
        facts: dict[str, Any] = {"name": self._converted.setdefault(("name", kernel), kernel)}
        for name, place, own, convert in self._facts:
            text = cells[place].strip()
            if text and own == "id":
                facts[own] = _whole(text)
            elif text:
                facts[own] = self._same(name, text, convert)
        count = _whole(self.text(cells, _INVOCATIONS))
        if count is not None:
            facts["invocations"] = count
        ranges = tuple(cells[place] for place in self._ranges if cells[place].strip())
        return {**facts, "ranges": ranges} if ranges else facts

    def _same(self, name: str, text: str, convert: Callable[[str], Any]) -> Any:
        if (name, text) not in self._converted:
            self._converted[name, text] = convert(text)
        return self._converted[name, text]


def _whole(text: str) -> int | None:
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= 20 else None


def _size(text: str) -> tuple[int, ...] | None:
    """Return the sizes along the axes, such as `(256, 1, 1)`, or None."""
    sizes = [_whole(part.strip()) for part in text.strip("() ").split(",")]
    known = tuple(size for size in sizes if size is not None)
    return known if len(known) == len(sizes) else None
