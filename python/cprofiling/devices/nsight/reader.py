"""Make kernels of ncu's CSV table, with metrics by id in base units.

A table has one line per kernel (`--page raw`) or per metric (`--page details`, `--print-summary`). A file is read line
by line, once, and its columns are known by their names.
"""

from __future__ import annotations

import csv
import math
import os
import re
import subprocess
import tempfile
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any, NamedTuple

from cprofiling._core import FormatError
from cprofiling._internal.files import open_to_read
from cprofiling.devices.nsight.kernels import NcuKernel, NcuReport
from cprofiling.devices.nsight.metrics import BASES, NO_TEXTS, NUMBERS, Metrics, Texts, metric_id
from cprofiling.devices.nsight.tools import find_tool, missing

_KERNEL, _METRIC, _INVOCATIONS = "kernel name", "metric name", "invocations"
_VALUES = ("metric value", "average")
_OF_METRICS = (
    "section name", _METRIC, "metric unit", "metric value", "minimum", "maximum", "average", "rule name",
    "rule type", "rule description", "estimated speedup type", "estimated speedup",
)  # fmt: skip
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
_STARTS = ('"ID"', '"Process ID"')  # of a header, perhaps behind a print without a line's end
_CELL = re.compile(r'(?:"[^"]*(?:""[^"]*)*"|(?!")[^,\n]*)(,|\Z)')
_TOOL = b"=="  # what lines of ncu itself begin with
_SHOWN = 200  # characters of such a line
_BINARY = (".ncu-rep", ".nsight-cuprof-report")
_MOST_SAID = 300  # characters of what ncu says


def read_file(name: str, timeout_s: float) -> NcuReport:
    """Return the report in a CSV file, or in one of ncu's own format by ncu.

    Raises as ``analyze_ncu_report``.
    """
    with open_to_read(name) as file:
        if not name.lower().endswith(_BINARY):
            return read(file, name)
    tool = find_tool("ncu")
    if tool is None:
        raise FileNotFoundError(f"ncu is needed to read {name}: {missing('ncu')}")
    command = [tool, "--import", os.path.abspath(name), "--csv", "--page", "raw", "--print-units", "base"]
    environment = {**os.environ, "LC_ALL": "C"}  # the numbers of one locale
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as complaints:
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=complaints, env=environment, check=False,
                timeout=timeout_s,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"ncu took more than {timeout_s:g} s to read {name}") from None
        output.seek(0)
        complaints.seek(0)
        if done.returncode:
            texts = [file.read(1 << 16).decode("utf-8", "replace") for file in (complaints, output)]
            said = next(filter(None, (" ".join(text.split())[:_MOST_SAID] for text in texts)), "nothing")
            raise FormatError(f"{name}: ncu cannot read it (exit status {done.returncode}), and says: {said}")
        return read(output, f"what ncu prints of {name}")


def read(file: IO[bytes], name: str) -> NcuReport:
    """Return the report in a CSV file.

    Raises FormatError, with ``name``, line and column, if it is missing.
    """
    source = _Source(file, name)
    reader = _Reader(source)
    for table, cells in _rows(source, _find_table(source)):
        reader.take(table, cells)
    return reader.report()


# ---- lines and cells


class _Source:
    """The lines of a file, and the position in it."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file = file
        self._name = name
        self._number = 0
        self.is_ended = True  # whether the file's last line has its end
        self.foreign = 0  # lines inside the table that are not of it
        self.complaint = ""  # the first line in which ncu says why there is nothing, for a message
        self.record: list[str] = []  # the lines of the record that is being read,
        self._first = 1  # and the number of the first one
        self.is_between = True  # the next line begins a record

    def plain_line(self) -> str | None:
        """Return the next line as it is, None at the end."""
        data = self._file.readline()
        if not data:
            return None
        self._number += 1
        text = data.decode("utf-8", "replace")
        self.record, self._first = [text], self._number
        if not self.complaint and text.startswith(("==ERROR==", "==WARNING== No kernels")):
            self.complaint = f"; ncu says: {text.strip()[:_SHOWN]}"
        return text

    def __iter__(self) -> Iterator[str]:
        """Yield lines of the table for csv.reader, which joins quoted ones."""
        while data := self._file.readline():
            self._number += 1
            self.is_ended = data.endswith(b"\n")
            if self.is_between and not data.startswith(b'"'):
                if data.strip() and not data.startswith(_TOOL):
                    self.foreign += 1
                continue
            try:
                text = data.decode("utf-8")
            except UnicodeDecodeError as error:
                column = len(data[: error.start].decode("utf-8", "replace")) + 1
                raise self._refusal(self._number, column, f"byte 0x{data[error.start]:02x} is not UTF-8") from None
            if self.is_between:
                self.record, self._first = [], self._number
            self.record.append(text)
            self.is_between = False
            yield text

    def refusal(self, cell: int, problem: str) -> FormatError:
        """Return the error for a cell of the record.

        cell: -1 for the place behind its last character, -2 for the first malformed cell.
        """
        text = "".join(self.record).rstrip("\r\n")
        places = [0]
        while (match := _CELL.match(text, places[-1])) is not None and match[1]:
            places.append(match.end())
        place = [*places, len(text)][cell]
        return self._refusal(self._first + text.count("\n", 0, place), place - text.rfind("\n", 0, place), problem)

    def _refusal(self, line: int, column: int, problem: str) -> FormatError:
        return FormatError(f"{self._name}: line {line}, column {column}: {problem}")


def _whole(text: str) -> int | None:
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= 20 else None


def _size(text: str) -> tuple[int, ...] | None:
    """Return the sizes along the axes, such as `(256, 1, 1)`, or None."""
    sizes = [_whole(part.strip()) for part in text.strip("() ").split(",")]
    known = tuple(size for size in sizes if size is not None)
    return known if len(known) == len(sizes) else None


# Fields of a kernel by their columns.
_FIELDS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "id": ("id", _whole), "process id": ("process_id", _whole), "device": ("device", _whole),
    "context": ("context", _whole), "stream": ("stream", _whole), "process name": ("process_name", str),
    "host name": ("host", str), "cc": ("capability", str), "block size": ("block", _size), "grid size": ("grid", _size),
}  # fmt: skip
_KNOWN = frozenset((*_FIELDS, _INVOCATIONS, _KERNEL, *_OF_METRICS))


class _Table:
    """Header of a table, with the places of its columns.

    Attributes:
        names: The columns' names.
        is_long: Whether it has a line per metric.
        optional: Columns at the end which lines may lack: those of rules, which metrics have none of.
        units: The cells of the line of units; empty before it.
        columns: The metrics of a table with one line per kernel, with their places; None where they are not known yet.
        key_places: The columns that tell kernels apart, in a table with one line per metric.
        value_place: The column of the values there.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = [name.strip() for name in names]
        self._places: dict[str, int] = {}
        for place, name in enumerate(self.names):
            self._places.setdefault(name.lower(), place)
        self.is_long = _METRIC in self._places
        self.value_place = next((self._places[name] for name in _VALUES if name in self._places), None)
        self.optional = len(self.names) - 1 - (self.value_place or 0) if self.is_long else 0
        self.units: Sequence[str] = ()
        self.columns: list[tuple[int, _Column]] | None = None
        known = (*_FIELDS, _KERNEL, _INVOCATIONS)
        self.key_places = [self._places[name] for name in known if name in self._places]
        self._ranges = [place for place, name in enumerate(self.names) if _RANGES.search(name)]
        self._fields = [(self._places[name], *own) for name, own in _FIELDS.items() if name in self._places]
        self._converted: dict[tuple[str, str], Any] = {}  # kernels share what they have in common

    def headers(self) -> Iterator[tuple[int, tuple[str, str]]]:
        """Give the places of the metrics, with name and unit."""
        for place, name in enumerate(self.names):
            if name and name.lower() not in _KNOWN and place not in self._ranges:
                yield place, (name, self.units[place].strip() if self.units else "")

    def text(self, cells: Sequence[str], name: str) -> str:
        """Return a cell by column name, empty without the column."""
        place = self._places.get(name)
        return "" if place is None else cells[place].strip()

    def fields_of(self, cells: Sequence[str]) -> dict[str, Any]:
        """Return the known fields of ``NcuKernel`` in a line, without metrics."""
        kernel = cells[self._places[_KERNEL]] or _NO_NAME
        fields: dict[str, Any] = {"name": self._converted.setdefault(("name", kernel), kernel)}
        for place, name, convert in self._fields:
            text = cells[place].strip()
            if text and name == "id":  # each kernel has its own
                fields[name] = convert(text)
            elif text:
                if (name, text) not in self._converted:
                    self._converted[name, text] = convert(text)
                fields[name] = self._converted[name, text]
        count = _whole(self.text(cells, _INVOCATIONS))
        if count is not None:
            fields["invocations"] = count
        ranges = tuple(cells[place] for place in self._ranges if cells[place].strip())
        return {**fields, "ranges": ranges} if ranges else fields


def _is_header(cells: Sequence[str]) -> bool:
    names = {cell.strip().lower() for cell in cells}
    return _KERNEL in names and not names.isdisjoint(("id", "process id"))


def _find_table(source: _Source) -> _Table:
    """Read up to the header, and return it.

    Raises FormatError, naming the expected columns, without a header.
    """
    while (line := source.plain_line()) is not None:
        for start in sorted(place for word in _STARTS if (place := line.find(word)) >= 0):
            with suppress(csv.Error):
                cells = next(csv.reader([line[start:].rstrip("\r\n")], strict=True), [])
                if _is_header(cells):
                    return _Table(cells)
    problem = 'no header was found, a line with "ID" and "Kernel Name" as ncu --csv prints it'
    raise source.refusal(-1, f"{problem}{source.complaint}")


def _rows(source: _Source, table: _Table) -> Iterator[tuple[_Table, list[str]]]:
    """Yield each line's cells with its table.

    Another header begins another table. Raises FormatError for a cut or damaged line.
    """
    reader = csv.reader(source, strict=True)
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            # Where a cell is too long, csv does not say which one.
            raise source.refusal(0 if "limit" in str(error) else -2, f"the line is cut or damaged: {error}") from None
        source.is_between = True
        if _is_header(cells):
            table = _Table(cells)
            continue
        missing = len(table.names) - len(cells)
        if missing:
            if not 0 < missing <= table.optional or not source.record[-1].endswith("\n"):
                what = f"the line has {len(cells)} cells, the header {len(table.names)}: it is cut or damaged"
                raise source.refusal(-1 if missing > 0 else len(table.names), what)
            cells += [""] * missing
        yield table, cells


# ---- kernels


class _Column(NamedTuple):
    """Metric with its unit, and whether that is its base unit."""

    id: str
    unit: str
    fits: bool


@dataclass(slots=True)
class _Draft:
    """Kernel that may get more lines."""

    fields: dict[str, Any]
    places: dict[str, int] = field(default_factory=dict)
    values: array[float] = field(default_factory=lambda: array("d"))
    texts: dict[str, str] = field(default_factory=dict)
    rules: dict[str, None] = field(default_factory=dict)


class _Reader:
    def __init__(self, source: _Source) -> None:
        self._source = source
        self._units: dict[str, str] = {}
        self._columns: dict[tuple[str, str], _Column] = {}
        self._drafts: dict[tuple[object, ...], _Draft] = {}
        self._kernels: list[NcuKernel] = []
        self._places: dict[tuple[str, ...], dict[str, int]] = {}
        self._texts: dict[Texts, Texts] = {NO_TEXTS: NO_TEXTS}

    def take(self, table: _Table, cells: list[str]) -> None:
        """Take a line of a table."""
        if table.is_long:
            self._take_metric(table, cells)
            return
        if not table.text(cells, "id") and not table.text(cells, _KERNEL):
            table.units, table.columns = cells, None
            return
        if table.columns is None:
            found: dict[str, tuple[int, _Column]] = {}
            for place, header in table.headers():
                column = self._column(*header)
                found.setdefault(column.id, (place, column))
            table.columns = list(found.values())
        draft = _Draft(table.fields_of(cells))
        for place, column in table.columns:
            self._add(draft, column, table, cells, place)
        self._finish(draft)

    def _take_metric(self, table: _Table, cells: list[str]) -> None:
        if table.value_place is None:
            raise self._source.refusal(-1, 'the header has "Metric Name", but neither "Metric Value" nor "Average"')
        key = tuple(cells[place] for place in table.key_places)
        draft = self._drafts.get(key)
        if draft is None:
            draft = self._drafts[key] = _Draft(table.fields_of(cells))
        rule, name = table.text(cells, "rule description"), table.text(cells, _METRIC)
        if rule:
            draft.rules.setdefault(rule)
        if name:
            column = self._column(name, table.text(cells, "metric unit"))
            if column.id not in draft.places:
                self._add(draft, column, table, cells, table.value_place)

    def _column(self, name: str, unit: str) -> _Column:
        column = self._columns.get((name, unit))
        if column is None:
            base = _UNITS.get(unit, unit)
            id_ = metric_id(name, base)
            column = self._columns[name, unit] = _Column(id_, unit, base in BASES.get(id_, (base,)))
            self._units.setdefault(column.id, base)
        return column

    def _add(self, draft: _Draft, column: _Column, table: _Table, cells: list[str], place: int) -> None:
        value, text = math.nan, cells[place].strip()
        number = _INSTANCES.sub("", text)
        if _NUMBER.fullmatch(number):
            if not column.fits:
                unit = f"in {column.unit!r}" if column.unit else "without a unit"
                raise self._source.refusal(place, f'"{column.id}" is {unit}, not in {BASES[column.id][0]}: {_EXPORT}')
            value = math.nan if math.isinf(float(number)) else float(number)
        elif _LOCALE_NUMBER.fullmatch(number):
            raise self._source.refusal(place, f"{number[:80]!r} is a number of some locale: {_EXPORT}")
        elif text.lower() not in _NOTHING and not text.startswith(_FAILED):
            if column.id in NUMBERS:
                raise self._source.refusal(place, f'"{table.names[place]}" must be a number, got {text[:80]!r}')
            draft.texts[column.id] = text
        draft.places[column.id] = len(draft.values)
        draft.values.append(value)

    def _finish(self, draft: _Draft) -> None:
        """Make a kernel of a draft, sharing names with those before."""
        places = self._places.setdefault(tuple(draft.places), draft.places)
        texts = Texts(draft.texts)
        texts = self._texts.setdefault(texts, texts)
        metrics, rules = Metrics(places, draft.values), tuple(draft.rules)
        self._kernels.append(NcuKernel(metrics=metrics, texts=texts, rules=rules, **draft.fields))

    def report(self) -> NcuReport:
        """Return the report.

        Raises FormatError without a kernel.
        """
        for draft in self._drafts.values():
            self._finish(draft)
        source = self._source
        if not self._kernels:
            raise source.refusal(-1, f"the file ends behind the header, without any kernel{source.complaint}")
        notes = []
        if source.foreign:
            verb = "line is" if source.foreign == 1 else "lines are"
            notes.append(f"{source.foreign} {verb} not of the table, and left out.")
        if not source.is_ended:
            notes.append("The last line of the file has no end: there may have been more.")
        return NcuReport(tuple(self._kernels), Texts(self._units), tuple(notes))
