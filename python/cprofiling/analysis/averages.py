"""Averages by name, in the words of torch.profiler.

Times are those of ``torch.profiler`` where both have the same events, and so are the names of the figures, so that
programs and eyes that know the one can read the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cprofiling._internal import arguments
from cprofiling._internal.messages import warn
from cprofiling._internal.tables import frame_of, short_repr
from cprofiling.analysis.averages_table import Layout, averages_html, averages_table, number_columns

if TYPE_CHECKING:
    import pandas as pd

# What the figures of a device are called in torch's words, and older ones.
_DEVICE_WORDS = ("cuda", "xpu", "privateuse1")
_FIGURES = (
    "cpu_time", "cpu_time_total", "self_cpu_time_total", "device_time", "device_time_total", "self_device_time_total",
    "cpu_memory_usage", "self_cpu_memory_usage", "device_memory_usage", "self_device_memory_usage", "count",
)  # fmt: skip
SORT_KEYS = (
    *(
        name.replace("device", word)
        for name in _FIGURES
        for word in (("device", *_DEVICE_WORDS) if "device" in name else ("",))
    ),
    "key",
)


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
        self_cpu_memory_usage: The part of it that is not that of rows inside them of which it is known the same way.
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

    @property
    def cpu_time(self) -> float:
        """The mean of ``cpu_time_total`` over the rows, in microseconds."""
        return self.cpu_time_total / self.count if self.count > 0 else 0.0

    @property
    def device_time(self) -> float:
        """The mean of ``device_time_total`` over the rows, in microseconds."""
        return self.device_time_total / self.count if self.count > 0 else 0.0

    @property
    def cuda_time(self) -> float:
        """``device_time`` under its older name."""
        return self.device_time

    @property
    def cuda_time_total(self) -> float:
        """``device_time_total`` under its older name."""
        return self.device_time_total

    @property
    def self_cuda_time_total(self) -> float:
        """``self_device_time_total`` under its older name."""
        return self.self_device_time_total

    @property
    def cuda_memory_usage(self) -> int:
        """``device_memory_usage`` under its older name."""
        return self.device_memory_usage

    @property
    def self_cuda_memory_usage(self) -> int:
        """``self_device_memory_usage`` under its older name."""
        return self.self_device_memory_usage


class KeyAverages(list[KeyAverage]):
    """A list of ``KeyAverage`` by first start, shown as a table.

    Its ``repr()`` is short; notebooks show the table.

    Attributes:
        use_device: What the recording's devices are called in torch's words (``"cuda"``); None where it has none.
        has_memory: Whether anything is known of memory.
        notes: Sentences that belong to the figures: that memory is of two kinds, what was dropped.
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
            sort_by: A figure (one of ``SORT_KEYS``), largest first; ``cuda_``, ``xpu_`` and ``privateuse1_`` mean the
                device's, also where there is none. Equal ones are sorted by the host's time. None: as they are. One of
                memory, where none was recorded, gives a RuntimeWarning.
            row_limit: The most rows that are shown; all if it is None or negative.
            max_src_column_width: Longer lines of stacks lose their beginning; None: nothing is cut.
            max_name_column_width: Longer names are cut; None: nothing is cut.
            max_shapes_column_width: Longer lists of shapes are cut; None: nothing is cut.
            header: A line above the table.
            top_level_events_only: Leave out what was inside something else.
            time_unit: ``"s"``, ``"ms"`` or ``"us"`` for all times; None: what fits each.

        A device's time in percent is that of the total of its work; "NaN" where the table has none of that, but rows of
        other categories, such as its profiler's ranges (``cuda_profiler_range``).

        Raises:
            TypeError: ``row_limit`` or a width is no integer.
            ValueError: A width is below 1; or ``sort_by`` or ``time_unit`` is unknown: the message lists those that are
                known.
        """
        rows = self if sort_by is None else sorted_by(self, sort_by)
        if self and "memory" in (sort_by or "") and not self.has_memory:
            warn(f"sort_by={sort_by!r} changes nothing: no memory was recorded; profile_memory=True records it")
        layout = Layout(
            arguments.index_or_none("row_limit", row_limit),
            arguments.index_or_none("max_src_column_width", max_src_column_width, 1),
            arguments.index_or_none("max_name_column_width", max_name_column_width, 1),
            arguments.index_or_none("max_shapes_column_width", max_shapes_column_width, 1),
            header, top_level_events_only, time_unit,
        )  # fmt: skip
        return averages_table(rows, layout, self)

    def to_pandas(self) -> pd.DataFrame:
        """Return the averages as a pandas DataFrame of plain numbers.

        Units are in the columns' names: ``Self CPU (us)``, ``CPU Mem (bytes)``; those with a ``%`` are percentages, NaN
        where the whole is 0. Columns that the table has only if there is something in them are left out likewise;
        ``Input Shapes`` and ``Source Location`` have lists. Raises ImportError, naming the extra, without pandas.
        """
        return frame_of(*number_columns(self))

    def total_average(self) -> KeyAverage:
        """Return the sums of all figures under the key ``Total``."""

        def summed(figure: Callable[[KeyAverage], float]) -> float:
            return sum(map(figure, self))

        return KeyAverage(
            key="Total",
            count=sum(average.count for average in self),
            cpu_time_total=summed(lambda average: average.cpu_time_total),
            self_cpu_time_total=self.self_cpu_time_total,
            device_time_total=summed(lambda average: average.device_time_total),
            self_device_time_total=summed(lambda average: average.self_device_time_total),
            cpu_memory_usage=sum(average.cpu_memory_usage for average in self),
            self_cpu_memory_usage=sum(average.self_cpu_memory_usage for average in self),
            device_memory_usage=sum(average.device_memory_usage for average in self),
            self_device_memory_usage=sum(average.self_device_memory_usage for average in self),
            use_device=self.use_device,
        )

    def __str__(self) -> str:
        """Return the table."""
        return self.table()

    def __repr__(self) -> str:
        return short_repr(type(self).__name__, len(self), "name")

    def _repr_html_(self) -> str:
        return averages_html(self)


def sorted_by(averages: Iterable[KeyAverage], sort_by: str) -> list[KeyAverage]:
    """Return the averages by a figure, largest first.

    Equal ones are sorted by the host's time.

    Raises ValueError for an unknown figure.
    """
    if sort_by not in SORT_KEYS:
        raise ValueError(f"sort_by must be one of {', '.join(SORT_KEYS)}, got {sort_by!r}")
    name = sort_by
    for word in _DEVICE_WORDS:
        name = name.replace(word, "device")
    on_host = name.replace("device", "cpu") if "time" in name else "cpu_time_total"
    return sorted(
        averages,
        key=lambda average: (getattr(average, name), getattr(average, on_host), average.cpu_time_total),
        reverse=True,
    )
