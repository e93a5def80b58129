"""Find ncu's CSV table in a file, and read it by column names.

A table has one line per kernel (`--page raw`) or per metric (`--page details`, `--print-summary`). A file is read line
by line, once.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import IO, NoReturn

from cprofiling._core import FormatError

KERNEL = "kernel name"
ID = "id"
METRIC = "metric name"
VALUES = ("metric value", "average")
_STARTS = ('"ID"', '"Process ID"')  # of a header, perhaps behind a print without a line's end
_CELL = re.compile(r'(?:"[^"]*(?:""[^"]*)*"|(?!")[^,\n]*)(,|\Z)')
_TOOL = b"=="  # what lines of ncu itself begin with
_SHOWN = 200  # characters of such a line


class Source:
    """The lines of a file, and the position in it."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        """Read ``file``, called ``name`` in messages."""
        self._file = file
        self._name = name
        self._number = 0
        self.is_ended = True  # whether the file's last line has its end
        self.foreign = 0  # lines inside the table that are not of it
        self.complaint: str | None = None  # the first line in which ncu says why there is nothing
        self.record: list[str] = []  # the lines of the record that is being read,
        self._first = 1  # and the number of the first one
        self._is_between = True

    def plain_line(self) -> str | None:
        """Return the next line as it is, None at the end."""
        data = self._file.readline()
        if not data:
            return None
        self._number += 1
        text = data.decode("utf-8", "replace")
        self.record, self._first = [text], self._number
        if self.complaint is None and text.startswith(("==ERROR==", "==WARNING== No kernels")):
            self.complaint = text.strip()[:_SHOWN]
        return text

    def __iter__(self) -> Iterator[str]:
        """Yield lines of the table for csv.reader, which joins quoted ones."""
        while data := self._file.readline():
            self._number += 1
            self.is_ended = data.endswith(b"\n")
            if self._is_between and not data.startswith(b'"'):
                if data.strip() and not data.startswith(_TOOL):
                    self.foreign += 1
                continue
            try:
                text = data.decode("utf-8")
            except UnicodeDecodeError as error:
                column = len(data[: error.start].decode("utf-8", "replace")) + 1
                self.refuse(column, f"byte 0x{data[error.start]:02x} is not UTF-8", line=self._number)
            if self._is_between:
                self.record, self._first = [], self._number
            self.record.append(text)
            self._is_between = False
            yield text

    def end_record(self) -> None:
        """Take note that the next line begins a record."""
        self._is_between = True

    def refuse(self, column: int, problem: str, line: int | None = None) -> NoReturn:
        """Raise FormatError for a place in the file.

        line: by default the first one of the record.
        """
        raise FormatError(f"{self._name}: line {self._first if line is None else line}, column {column}: {problem}")

    def refuse_cell(self, cell: int, problem: str) -> NoReturn:
        """Raise FormatError for a cell of the record.

        cell: -1 for the place behind its last character, -2 for the first malformed cell.
        """
        text = "".join(self.record).rstrip("\r\n")
        places = [0]
        while (match := _CELL.match(text, places[-1])) is not None and match[1]:
            places.append(match.end())
        place = [*places, len(text)][cell]
        self.refuse(place - text.rfind("\n", 0, place), problem, line=self._first + text.count("\n", 0, place))


class Table:
    """Header of a table, with the places of its columns.

    Attributes:
        names: The columns' names.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = [name.strip() for name in names]
        self._places: dict[str, int] = {}
        for place, name in enumerate(self.names):
            self._places.setdefault(name.lower(), place)
        self.name_place = self.place(KERNEL)
        self.id_place = self.place(ID)
        self.is_long = METRIC in self._places
        # Columns at the end which lines may lack: those of rules, which metrics have none of.
        self.optional = len(self.names) - 1 - max(self.place(*VALUES) or 0, 0) if self.is_long else 0

    def place(self, *names: str) -> int | None:
        """Return the number of the first column with one of these names, or None."""
        return next((self._places[name] for name in names if name in self._places), None)

    def is_units(self, cells: Sequence[str]) -> bool:
        """Return whether a line has the units, so neither a number nor a name."""
        known = [place for place in (self.id_place, self.name_place) if place is not None]
        return not self.is_long and not any(cells[place].strip() for place in known)


def find_table(source: Source) -> Table:
    """Read up to the header, and return it.

    Raises FormatError, naming what was looked for, if there is none.
    """
    text = ""
    found: Table | None = None
    while found is None and (line := source.plain_line()) is not None:
        text = line
        for start in sorted(place for word in _STARTS if (place := line.find(word)) >= 0):
            with suppress(csv.Error):
                cells = next(csv.reader([line[start:].rstrip("\r\n")], strict=True), [])
                if found is None and _is_header(cells):
                    found = Table(cells)
    if found is None:
        problem = 'no header was found, a line with "ID" and "Kernel Name" as ncu --csv prints it'
        says = "" if source.complaint is None else f"; ncu says: {source.complaint}"
        source.refuse(len(text.rstrip("\r\n")) + 1, problem + says)
    source.end_record()
    return found


def _is_header(cells: Sequence[str]) -> bool:
    names = {cell.strip().lower() for cell in cells}
    return KERNEL in names and not names.isdisjoint((ID, "process id"))


def rows(source: Source, table: Table) -> Iterator[tuple[Table, list[str]]]:
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
            source.refuse_cell(0 if "limit" in str(error) else -2, f"the line is cut or damaged: {error}")
        source.end_record()
        if _is_header(cells):
            table = Table(cells)
            continue
        missing = len(table.names) - len(cells)
        if missing:
            if not 0 < missing <= table.optional or not source.record[-1].endswith("\n"):
                what = f"the line has {len(cells)} cells, the header {len(table.names)}: it is cut or damaged"
                source.refuse_cell(-1 if missing > 0 else len(table.names), what)
            cells += [""] * missing
        yield table, cells
