"""The table of averages, with the layout of torch.profiler's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cprofiling._internal.tables import first_rows, html_table
from cprofiling._internal.text import shown_text, shown_value

if TYPE_CHECKING:
    from cprofiling.analysis.averages import KeyAverage, KeyAverages

_WIDTH = 12  # of a column of figures
_GAP = "  "
_UNITS = {"s": 1e6, "ms": 1e3, "us": 1.0}  # in microseconds
_SIZES = ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB"))
_TEXTS = ("Name", "Node", "Input Shapes", "Source Location")  # columns without figures
_NOTHING = "No events were recorded."
_NO_WORK = "No row is work of the device: waits, annotations and ranges of profilers are no part of its total."


@dataclass(frozen=True)
class Layout:
    """The layout of a table, as the parameters of ``KeyAverages.table``."""

    row_limit: int | None = 100
    stack_width: int | None = 75
    name_width: int | None = 55
    shapes_width: int | None = 80
    header: str | None = None
    top_level_only: bool = False
    time_unit: str | None = None


def averages_table(rows: Sequence[KeyAverage], layout: Layout, of: KeyAverages) -> str:
    """Return rows of the averages ``of`` as a table.

    Raises ValueError for an unknown unit of time.
    """
    if layout.time_unit not in (None, *_UNITS):
        raise ValueError(f"time_unit must be one of {', '.join(_UNITS)}, got {shown_value(layout.time_unit)}")
    return _Table(rows, layout, of).text()


def averages_html(of: KeyAverages) -> str:
    """Return the averages as an HTML fragment."""
    table = _Table(of, Layout(name_width=None, stack_width=None, shapes_width=None), of)
    headings = [heading for heading, _ in table.columns()]
    return html_table(headings, table.cells(), table.footer())


def number_columns(of: KeyAverages) -> tuple[list[str], list[list[object]]]:
    """Return the columns of the table, with units and plain numbers."""
    table = _Table(of, Layout(), of)
    columns = [f"{heading}{_unit(heading)}" for heading, _ in table.columns()]
    return columns, [table.numbers_of(row) for row in of]


def _unit(heading: str) -> str:
    if heading.endswith(("%", "# of Calls")) or heading in _TEXTS:
        return ""
    return " (bytes)" if heading.endswith("Mem") else " (us)"


class _Table:
    """A table under way, as columns and then as lines."""

    def __init__(self, rows: Sequence[KeyAverage], layout: Layout, of: KeyAverages) -> None:
        self._rows = rows
        self._layout = layout
        self._notes = of.notes
        self._device = (of.use_device or "cuda").upper()
        self._self_cpu = sum(row.self_cpu_time_total for row in rows)
        self._self_device = sum(row.self_device_time_total for row in rows if row.is_device_work)
        self._has_device_time = any(row.self_device_time_total > 0 for row in rows)
        self._has_memory = of.has_memory
        self._has_device_memory = of.has_memory and any(row.self_device_memory_usage > 0 for row in rows)
        self._has_node = any(row.node for row in rows)
        self._has_shapes = any(row.input_shapes for row in rows)
        self._name_width = _limited((len(shown_text("key", row.key)) for row in rows), layout.name_width)
        self._node_width = _limited((len(shown_text("node", row.node)) for row in rows), layout.name_width)
        self._shapes_width = _limited((len(str(row.input_shapes)) for row in rows), layout.shapes_width)
        frames = [shown_text("stack", frame) for row in rows for frame in row.stack]
        self._stack_width = _limited(map(len, frames), layout.stack_width) if frames else 0

    def text(self) -> str:
        columns = self.columns()
        dashes = "".join("-" * width + _GAP for _, width in columns)
        double = "=" * (len(dashes) - len(_GAP))
        lines = [] if self._layout.header is None else [double, self._layout.header]
        if self._layout.top_level_only:
            lines += [double, "Only rows at the top level are shown."]
        widths = [width for _, width in columns]
        lines += [dashes, self._line([heading for heading, _ in columns], widths), dashes]
        for row in self._shown():
            lines += self._lines_of(row, widths)
        lines += [dashes, *self.footer()]
        return "".join(f"{line}\n" for line in lines)

    def columns(self) -> list[tuple[str, int]]:
        headings = ["Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg"]
        device = self._device
        if self._has_device_time:
            headings += [f"Self {device}", f"Self {device} %", f"{device} total", f"{device} time avg"]
        if self._has_memory:
            headings += ["CPU Mem", "Self CPU Mem"]
        if self._has_device_memory:
            headings += [f"{device} Mem", f"Self {device} Mem"]
        columns = [("Name", self._name_width), *((heading, _WIDTH) for heading in [*headings, "# of Calls"])]
        if self._has_node:
            columns.append(("Node", self._node_width))
        if self._has_shapes:
            columns.append(("Input Shapes", self._shapes_width))
        if self._stack_width:
            columns.append(("Source Location", self._stack_width))
        return columns

    def _line(self, cells: Sequence[object], widths: Sequence[int]) -> str:
        """Return the cells in columns, the stack's to the left."""
        padded = [f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)]
        if self._stack_width:
            padded[-1] = f"{cells[-1]:<{widths[-1]}}"
        return "".join(cell + _GAP for cell in padded)

    def _shown(self) -> Sequence[KeyAverage]:
        top_level_only = self._layout.top_level_only
        rows = [row for row in self._rows if row.is_top_level or not top_level_only]
        return first_rows(rows, self._layout.row_limit)

    def _lines_of(self, row: KeyAverage, widths: Sequence[int]) -> list[str]:
        figures = self._figures_of(row, self._time, _share, _size)
        cells: list[object] = [_cut(row.key, self._layout.name_width), *figures]
        if self._has_node:
            cells.append(_cut(row.node, self._layout.name_width))
        if self._has_shapes:
            cells.append(str(row.input_shapes)[: self._shapes_width])
        if not self._stack_width:
            return [self._line(cells, widths)]
        frames = [_cut_path(frame, self._stack_width) for frame in row.stack]
        empty = [""] * len(cells)
        lines = [self._line([*cells, frames[0] if frames else ""], widths)]
        lines += [self._line([*empty, frame], widths) for frame in frames[1:]]
        return [*lines, self._line([*empty, ""], widths)]

    def cells(self) -> list[list[object]]:
        """Return the cells of the rows shown, uncut."""
        return [
            [row.key, *self._figures_of(row, self._time, _share, _size), *self._texts_of(row)] for row in self._shown()
        ]

    def numbers_of(self, row: KeyAverage) -> list[object]:
        """Return a row's name, its figures as numbers, and its texts."""
        lists = {"Input Shapes": row.input_shapes, "Source Location": row.stack}
        headings = [heading for heading, _ in self.columns() if heading in _TEXTS]
        texts = [lists.get(heading, row.node) for heading in headings if heading != "Name"]
        return [row.key, *self._figures_of(row, float, _percent, int), *texts]

    def _texts_of(self, row: KeyAverage) -> list[object]:
        texts: list[object] = [row.node] if self._has_node else []
        if self._has_shapes:
            texts.append(str(row.input_shapes))
        return [*texts, "\n".join(row.stack)] if self._stack_width else texts

    def _figures_of(
        self,
        row: KeyAverage,
        time: Callable[[float], object],
        share: Callable[[float, float], object],
        size: Callable[[int], object],
    ) -> list[object]:
        """Return a row's figures, converted by the given functions."""
        cells = [
            share(row.self_cpu_time_total, self._self_cpu),
            time(row.self_cpu_time_total),
            share(row.cpu_time_total, self._self_cpu),
            time(row.cpu_time_total),
            time(row.cpu_time),
        ]
        if self._has_device_time:
            cells += [
                time(row.self_device_time_total),
                share(row.self_device_time_total, self._self_device),
                time(row.device_time_total),
                time(row.device_time),
            ]
        if self._has_memory:
            cells += [size(row.cpu_memory_usage), size(row.self_cpu_memory_usage)]
        if self._has_device_memory:
            cells += [size(row.device_memory_usage), size(row.self_device_memory_usage)]
        return [*cells, row.count]

    def footer(self) -> list[str]:
        lines = [] if self._rows else [_NOTHING]
        lines.append(f"Self CPU time total: {self._time(self._self_cpu)}")
        if self._has_device_time:
            lines.append(f"Self {self._device} time total: {self._time(self._self_device)}")
            if not self._self_device:
                lines.append(_NO_WORK)
        return [*lines, *self._notes]

    def _time(self, time_us: float) -> str:
        unit = self._layout.time_unit
        if unit is None:
            unit = "s" if time_us >= 1e6 else "ms" if time_us >= 1e3 else "us"
        return f"{time_us / _UNITS[unit]:.3f}{unit}"


def _share(part: float, whole: float) -> str:
    return "NaN" if whole == 0 else f"{_percent(part, whole):.2f}%"


def _percent(part: float, whole: float) -> float:
    return math.nan if whole == 0 else part * 100.0 / whole


def _size(size: int) -> str:
    for unit, name in _SIZES:
        if abs(size) >= unit:
            return f"{size / unit:.2f} {name}"
    return f"{size} B"


def _limited(lengths: Iterable[int], limit: int | None) -> int:
    """Return the width of a column with some space, within the limit."""
    width = max(lengths, default=0) + 4
    return width if limit is None else min(width, limit)


def _cut(name: str, limit: int | None) -> str:
    """Return a name without its end if it is too long."""
    shown = shown_text("name", name)
    return shown if limit is None or len(shown) < limit - 3 else shown[: max(limit - 3, 0)] + "..."


def _cut_path(path: str, width: int) -> str:
    """Return a line of a stack without its beginning if it is too long."""
    shown = shown_text("stack", path)
    if len(shown) <= width:
        return shown
    shown = shown[len(shown) - width :]
    return "..." + shown[3:] if len(shown) > 3 else shown
