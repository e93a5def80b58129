"""Averages by name and their table, in the words of torch.profiler.

Times are those of ``torch.profiler`` where both have the same events.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from cprofiling._internal.arguments import index_or_none
from cprofiling._internal.messages import warn
from cprofiling._internal.tables import Shown, first_rows, frame_of, html_table, short_repr
from cprofiling._internal.text import format_time, shown_text, shown_value

if TYPE_CHECKING:
    import pandas as pd

_DEVICE_WORDS = ("cuda", "xpu", "privateuse1")  # for device figures, in torch's words and older ones
_FIGURES = (
    "cpu_time", "cpu_time_total", "self_cpu_time_total", "device_time", "device_time_total", "self_device_time_total",
    "cpu_memory_usage", "self_cpu_memory_usage", "device_memory_usage", "self_device_memory_usage", "count", "flops",
)  # fmt: skip
_SUMMED = tuple(name for name in _FIGURES if name not in ("cpu_time", "device_time"))
SORT_KEYS = (
    *(
        name.replace("device", word)
        for name in _FIGURES
        for word in (("device", *_DEVICE_WORDS) if "device" in name else ("",))
    ),
    "key",
)
# Columns as (heading, unit, figure), in groups that a table has or not.
_ALWAYS = (
    ("Name", "", "key"),
    ("Self CPU %", "%", "self_cpu_time_total"),
    ("Self CPU", "us", "self_cpu_time_total"),
    ("CPU total %", "%", "cpu_time_total"),
    ("CPU total", "us", "cpu_time_total"),
    ("CPU time avg", "us", "cpu_time"),
)
_DEVICE_TIMES = (
    ("Self {}", "us", "self_device_time_total"),
    ("Self {} %", "%", "self_device_time_total"),
    ("{} total", "us", "device_time_total"),
    ("{} time avg", "us", "device_time"),
)
_MEMORY = (("CPU Mem", "bytes", "cpu_memory_usage"), ("Self CPU Mem", "bytes", "self_cpu_memory_usage"))
_DEVICE_MEMORY = (("{} Mem", "bytes", "device_memory_usage"), ("Self {} Mem", "bytes", "self_device_memory_usage"))
_COUNT = (("# of Calls", "calls", "count"),)
_FLOPS = (("Total FLOPs", "flops", "flops"),)
_NODE, _SHAPES, _STACK = ("Node", "", "node"), ("Input Shapes", "", "input_shapes"), ("Source Location", "", "stack")
_WORD = re.compile(r" [A-Z](?=[a-z])")  # not the first of a heading, and no abbreviation
_WIDTH = 12  # of a column of figures
_GAP = "  "
_UNITS = {"s": 1e6, "ms": 1e3, "us": 1.0}  # in microseconds
_SIZES = ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB"))
_THOUSANDS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "K"), (1.0, ""))
_NOTHING = "No events were recorded."
_TOP_LEVEL = "Only rows at the top level are shown."
_NO_WORK = "No row is work of the device: waits, annotations and ranges of profilers are no part of its total."


@dataclass(frozen=True)
class KeyAverage:
    """The figures of all rows of one key, named as in torch.profiler.

    Times are in microseconds, made of whole nanoseconds; memory is in bytes. ``cuda_`` instead of ``device_`` gives the
    same figures.

    Attributes:
        key: The rows' name; ``ProfilerStep*`` for all steps.
        count: How many rows there are, 1 or more (0 in a total of nothing).
        cpu_time_total: Their time on the host; time in which a coroutine was suspended included. 0.0 for device rows.
        self_cpu_time_total: The part of it in which they ran, and no row inside them on the same thread.
        device_time_total: The time of the device's work that was started in them or in rows inside them; work that ran
            at the same time is added up.
        self_device_time_total: The part of it that was started in them and not in rows inside them. For a row of the
            device itself (a kernel, a copy) both are its own time.
        cpu_memory_usage: Bytes allocated less bytes freed while they were open: for nodes the change of the process's
            resident memory, where it was measured; else by the allocations that are recorded; 0 where neither is known.
        self_cpu_memory_usage: The part of it without that of rows inside them, where known the same way.
        device_memory_usage: As ``cpu_memory_usage``, of the framework's allocator for the device.
        self_device_memory_usage: As ``self_cpu_memory_usage``.
        input_shapes: The shapes of the arguments, if the rows were grouped by it; else empty.
        stack: The first frames of the Python stack, innermost first, if the rows were grouped by it; else empty.
        node: The profiled node around them, or themselves, if the rows were grouped by it; else empty.
        device_type: ``"cpu"``, or what the device is called (``"cuda"``) for rows of a device.
        is_user_annotation: Whether they are labelled blocks and steps, on the host or mirrored on the device.
        is_device_work: Whether they are work of a device: no waits for it, nor annotations mirrored on it.
        use_device: What the recording's devices are called in torch's words; None where it has none.
        is_top_level: Whether the first of them was inside no other row.
        flops: Their floating-point operations, as PyTorch counts them; 0 where they are not known.
    """

    key: str
    count: int
    cpu_time_total: float = 0.0
    self_cpu_time_total: float = 0.0
    device_time_total: float = 0.0
    self_device_time_total: float = 0.0
    cpu_memory_usage: int = 0
    self_cpu_memory_usage: int = 0
    device_memory_usage: int = 0
    self_device_memory_usage: int = 0
    input_shapes: list[object] = field(default_factory=list)
    stack: list[str] = field(default_factory=list)
    node: str = ""
    device_type: str = "cpu"
    is_user_annotation: bool = False
    is_device_work: bool = False
    use_device: str | None = None
    is_top_level: bool = True
    flops: int = 0

    @property
    def cpu_time(self) -> float:
        """The mean of ``cpu_time_total`` over the rows, in microseconds."""
        return self.cpu_time_total / self.count if self.count > 0 else 0.0

    @property
    def device_time(self) -> float:
        """The mean of ``device_time_total`` over the rows, in microseconds."""
        return self.device_time_total / self.count if self.count > 0 else 0.0

    cuda_time = device_time
    cuda_time_total, self_cuda_time_total, cuda_memory_usage, self_cuda_memory_usage = (
        property(attrgetter(name), doc=f"``{name}`` under its older name.")
        for name in (
            "device_time_total", "self_device_time_total", "device_memory_usage", "self_device_memory_usage"
        )
    )  # fmt: skip


class KeyAverages(list[KeyAverage]):
    """A list of ``KeyAverage`` by first start, shown as a table.

    Its ``repr()`` is short; notebooks show the table.

    Attributes:
        use_device: What the recording's devices are called in torch's words (``"cuda"``); None where it has none.
        has_memory: Whether anything is known of memory.
        notes: Sentences on the figures, such as on dropped rows.
    """

    def __init__(
        self,
        averages: Iterable[KeyAverage] = (),
        *,
        use_device: str | None = None,
        has_memory: bool = False,
        notes: Iterable[str] = (),
    ) -> None:
        """Make a list of ``averages`` with the attributes given."""
        super().__init__(averages)
        self.use_device = use_device
        self.has_memory = has_memory
        self.notes = tuple(notes)

    @property
    def self_cpu_time_total(self) -> float:
        """The sum of all self times on the host, in microseconds."""
        return sum(average.self_cpu_time_total for average in self)

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int | None = 100,
        max_src_column_width: int | None = 75,
        max_name_column_width: int | None = 55,
        max_shapes_column_width: int | None = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
        time_unit: str | None = None,
    ) -> str:
        """Return the averages as torch.profiler prints them.

        Args:
            sort_by: A figure, largest first, such as ``self_cpu_time_total``; ``cuda_``, ``xpu_`` and ``privateuse1_``
                stand for ``device_``. Equal ones are sorted by the host's time. None: as they are. A RuntimeWarning for
                memory where none was recorded.
            row_limit: The most rows; all if it is None or negative.
            max_src_column_width: Longer lines of stacks lose their beginning; None: nothing is cut.
            max_name_column_width: Longer names are cut; None: nothing is cut.
            max_shapes_column_width: Longer lists of shapes are cut; None: nothing is cut.
            header: A line above the table.
            top_level_events_only: Leave out rows inside others.
            time_unit: ``"s"``, ``"ms"`` or ``"us"`` for all times; None: the fitting one for each.

        A device's time in percent is of the total of its work, "NaN" without any.

        Raises TypeError unless ``row_limit`` and widths are integers, ValueError for a width below 1 and an unknown
        ``sort_by`` or ``time_unit``.
        """
        rows: Sequence[KeyAverage] = self
        if sort_by is not None:
            if sort_by not in SORT_KEYS:
                raise ValueError(f"sort_by must be one of {', '.join(SORT_KEYS)}, got {shown_value(sort_by)}")
            name = re.sub("|".join(_DEVICE_WORDS), "device", sort_by)
            on_host = name.replace("device", "cpu") if "time" in name else "cpu_time_total"
            rows = sorted(self, key=attrgetter(name, on_host, "cpu_time_total"), reverse=True)
        if self and "memory" in (sort_by or "") and not self.has_memory:
            warn(f"sort_by={sort_by!r} changes nothing: no memory was recorded; profile_memory=True records it")
        name_width = index_or_none("max_name_column_width", max_name_column_width, 1)
        widths = {
            "key": name_width,
            "node": name_width,
            "input_shapes": index_or_none("max_shapes_column_width", max_shapes_column_width, 1),
            "stack": index_or_none("max_src_column_width", max_src_column_width, 1),
        }
        if time_unit not in (None, *_UNITS):
            raise ValueError(f"time_unit must be one of {', '.join(_UNITS)}, got {shown_value(time_unit)}")
        titles = [*([] if header is None else [header]), *([_TOP_LEVEL] if top_level_events_only else [])]
        shown = first_rows([row for row in rows if row.is_top_level or not top_level_events_only], row_limit)
        return "".join(f"{line}\n" for line in _Table(rows, self, time_unit).lines(shown, titles, widths))

    def to_pandas(self) -> pd.DataFrame:
        """Return the averages as a pandas DataFrame of plain numbers.

        Units are in the columns' names: ``Self CPU (us)``, ``CPU Mem (bytes)``; those with a ``%`` are percentages, NaN
        where the whole is 0. Columns that the table has only if there is something in them are left out likewise;
        ``Input Shapes`` and ``Source Location`` have lists. Raises ImportError, naming the extra, without pandas.
        """
        table = _Table(self, self)
        headings = [f"{heading} ({unit})" if unit in ("us", "bytes") else heading for heading, unit, _ in table.columns]
        return frame_of(headings, [[table.value(row, *column[1:]) for column in table.columns] for row in self])

    def total_average(self) -> KeyAverage:
        """Return the sums of all figures under the key ``Total``."""
        sums: dict[str, Any] = {name: sum(getattr(average, name) for average in self) for name in _SUMMED}
        return KeyAverage(key="Total", use_device=self.use_device, **sums)

    def __str__(self) -> str:
        """Return the table."""
        return self.table()

    def __repr__(self) -> str:
        return short_repr(type(self).__name__, len(self), "name")

    def _repr_html_(self) -> str:
        """Return the table for notebooks, largest self time first.

        Headings and figures are written as in the package's other tables.
        """
        by = "self_device_time_total" if any(row.self_device_time_total for row in self) else "self_cpu_time_total"
        table = _Table(sorted(self, key=attrgetter(by, "self_cpu_time_total", "cpu_time_total"), reverse=True), self)
        headings = [
            _WORD.sub(lambda found: found[0].lower(), heading.removeprefix("# of ")) for heading, *_ in table.columns
        ]
        return html_table(headings, table.html_rows(), table.footer(_time), caption="Averages by name")


class _Table:
    """The columns of rows of some averages, with a footer."""

    def __init__(self, rows: Sequence[KeyAverage], of: KeyAverages, time_unit: str | None = None) -> None:
        self._rows, self._notes, self._time_unit = rows, of.notes, time_unit
        self._device = (of.use_device or "cuda").upper()
        self._cpu_us = sum(row.self_cpu_time_total for row in rows)
        self._device_us = sum(row.self_device_time_total for row in rows if row.is_device_work)
        self._has_device = any(row.self_device_time_total > 0 for row in rows)
        has_device_memory = of.has_memory and any(row.self_device_memory_usage > 0 for row in rows)
        columns = [
            *_ALWAYS,
            *(_DEVICE_TIMES if self._has_device else ()),
            *(_MEMORY if of.has_memory else ()),
            *(_DEVICE_MEMORY if has_device_memory else ()),
            *_COUNT,
            *(_FLOPS if any(row.flops for row in rows) else ()),
            *(text for text in (_NODE, _SHAPES, _STACK) if any(getattr(row, text[2]) for row in rows)),
        ]
        self.columns = [(heading.format(self._device), unit, figure) for heading, unit, figure in columns]

    def value(self, row: KeyAverage, unit: str, figure: str) -> Any:
        """Return a figure as a number, in percent of its total for that unit."""
        value = getattr(row, figure)
        if unit != "%":
            return value
        whole = self._device_us if "device" in figure else self._cpu_us
        return value * 100.0 / whole if whole else math.nan

    def text(self, row: KeyAverage, unit: str, figure: str) -> object:
        """Return a figure or text as it is shown, uncut."""
        value = self.value(row, unit, figure)
        if unit == "%":
            return "NaN" if math.isnan(value) else f"{value:.2f}%"
        if unit == "us":
            return self._time(value)
        if unit == "bytes":
            return next((f"{value / size:.2f} {name}" for size, name in _SIZES if abs(value) >= size), f"{value} B")
        if unit == "flops":  # those of most operators are not known
            return next((f"{value / size:.3f} {name}".rstrip() for size, name in _THOUSANDS if value >= size), "--")
        return "\n".join(value) if figure == "stack" else str(value) if figure == "input_shapes" else value

    def html_rows(self) -> list[list[object]]:
        """Return the cells of all rows for HTML."""
        shown = {"%": "{:.1f} %".format, "us": _time, "calls": "{:,}".format}

        def cell(row: KeyAverage, unit: str, figure: str) -> object:
            value = self.value(row, unit, figure)
            if unit in shown:
                return None if math.isnan(value) else Shown(shown[unit](value))
            text = str(self.text(row, unit, figure))
            return Shown(text) if unit else text

        return [[cell(row, unit, figure) for _, unit, figure in self.columns] for row in self._rows]

    def lines(self, shown: Sequence[KeyAverage], titles: Sequence[str], limits: dict[str, int | None]) -> list[str]:
        """Return the table as torch prints it, with texts cut to their limits."""
        widths = [self._width(unit, figure, limits.get(figure)) for _, unit, figure in self.columns]
        has_stack = self.columns[-1] == _STACK

        def line(cells: Sequence[object]) -> str:
            padded = [f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)]
            if has_stack:
                padded[-1] = f"{cells[-1]:<{widths[-1]}}"
            return "".join(cell + _GAP for cell in padded)

        dashes = "".join("-" * width + _GAP for width in widths)
        double = "=" * (len(dashes) - len(_GAP))
        found = [each for title in titles for each in (double, title)]
        found += [dashes, line([heading for heading, *_ in self.columns]), dashes]
        for row in shown:
            cells = []
            for (_, unit, figure), width in zip(self.columns, widths, strict=True):
                text, limit = self.text(row, unit, figure), limits.get(figure)
                if figure in ("key", "node"):
                    text = shown_text("name", str(text))
                    if limit is not None and len(text) >= limit - 3:
                        text = text[: max(limit - 3, 0)] + "..."
                cells.append(str(text)[:width] if figure == "input_shapes" else text)
            if has_stack:
                first, *others = [_cut_path(frame, widths[-1]) for frame in row.stack] or [""]
                empty = [""] * (len(cells) - 1)
                found += [line([*cells[:-1], first]), *(line([*empty, frame]) for frame in [*others, ""])]
            else:
                found.append(line(cells))
        return [*found, dashes, *self.footer()]

    def footer(self, time: Callable[[float], str] | None = None) -> list[str]:
        """Return the totals, in torch's words or with another way to show times, and the notes."""
        time = time or self._time
        lines = [] if self._rows else [_NOTHING]
        lines.append(f"Self CPU time total: {time(self._cpu_us)}")
        if self._has_device:
            lines.append(f"Self {self._device} time total: {time(self._device_us)}")
            if not self._device_us:
                lines.append(_NO_WORK)
        return [*lines, *self._notes]

    def _width(self, unit: str, figure: str, limit: int | None) -> int:
        """Return the width of a column within the limit."""
        if unit:
            return _WIDTH
        values = (getattr(row, figure) for row in self._rows)
        if figure == "stack":
            texts = [shown_text("stack", frame) for value in values for frame in value]
        else:
            texts = [str(value) if figure == "input_shapes" else shown_text(figure, value) for value in values]
        width = max(map(len, texts), default=0) + 4
        return width if limit is None else min(width, limit)

    def _time(self, time_us: float) -> str:
        unit = self._time_unit or ("s" if time_us >= 1e6 else "ms" if time_us >= 1e3 else "us")
        return f"{time_us / _UNITS[unit]:.3f}{unit}"


def _time(time_us: float) -> str:
    return format_time(time_us / _UNITS["ms"])


def _cut_path(path: str, width: int) -> str:
    """Return a line of a stack without its beginning if it is too long."""
    shown = shown_text("stack", path)
    if len(shown) <= width:
        return shown
    shown = shown[len(shown) - width :]
    return "..." + shown[3:] if len(shown) > 3 else shown
