"""Columns and text of resource figures, shown where any node has them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from cprofiling._internal.text import format_time, shown_text
from cprofiling.nodes.stats import NodeProfilingStats
from cprofiling.nodes.summary_table import NO_DATA, format_profiling_table, is_failures_only, sorted_rows

if TYPE_CHECKING:
    from typing import Any

    from cprofiling.nodes.stats import ProfilingSummary

_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_NAME_WIDTH, _STAGE_WIDTH, _LEAST_WIDTH = 40, 12, 9
_UNKNOWN = "not known for this node"
_HEADS = {
    "cpu_time": "CPU time",
    "context_switches": "Switches",
    "page_faults": "Page faults",
    "cycles": "Cycles",
    "instructions": "Instructions",
    "branch_misses": "Branch misses",
    "cache_misses": "Cache misses",
}


class Column:
    """One figure of a node.

    Attributes:
        label: The column's head.
        tip: What it means.
        text: Shows the figure of a node; None where it is not known.
        reason: Why it is not known there.
    """

    __slots__ = ("label", "reason", "text", "tip")

    def __init__(self, label: str, tip: str, text: Callable[[Any], str | None], reason: Callable[[Any], str]) -> None:
        self.label = label
        self.tip = tip
        self.text = text
        self.reason = reason


def columns_of(rows: Sequence[NodeProfilingStats]) -> list[Column]:
    """Return the columns with a value in any row."""
    columns: list[Column] = []
    if any(_of(row, "gpu_count") or _of(row, "gpu_reason") for row in rows):
        columns += _GPU
    if any(_of(row, "launches") is not None for row in rows):
        columns += _LAUNCHES
    if any(_of(row, "memory") is not None for row in rows):
        columns += _MEMORY
    names = dict.fromkeys(name for row in rows for name in _of(row, "counters") or ())
    columns += [_counter_column(name) for name in names]
    if "cpu_time" in names:
        columns.append(_CPU_SHARE)
    if "cycles" in names and "instructions" in names:
        columns.append(_IPC)
    if any(_of(row, "sync_total_ms") is not None for row in rows):
        columns.append(_SYNC)
    return columns


def beyond_text(stats: Iterable[NodeProfilingStats], reasons: Iterable[str] = ()) -> str:
    """Return resource figures as a text table, with remarks and reasons.

    Rows are those of the table of host times, in the same order. Empty without such figures.
    """
    rows = sorted_rows(row for row in stats if not is_failures_only(row))
    shown = [shown_text("reasons", reason) for reason in reasons]
    return "\n".join([*_table(rows), *lines_below(rows), *shown])


def summary_text(summary: ProfilingSummary, total_frames: int | None = None) -> str:
    """Return all tables of a summary, and reasons for missing figures."""
    table = format_profiling_table(summary, total_frames=total_frames, skip_first_n=summary.skip_first_n)
    parts = ["\n".join((table, *summary._hints))]  # noqa: SLF001 the package's own, as below
    if table != NO_DATA:
        parts.append(beyond_text(summary, summary._reasons_beyond))  # noqa: SLF001
        parts.append(str(summary.shapes) if summary.shapes else "")
    return "\n\n".join(part for part in parts if part)


def _table(rows: Sequence[NodeProfilingStats]) -> list[str]:
    columns = columns_of(rows)
    if not columns:
        return []
    cells = [[column.text(row) or "-" for column in columns] for row in rows]
    widths = [
        max(_LEAST_WIDTH, len(column.label), *(len(line[at]) for line in cells)) for at, column in enumerate(columns)
    ]
    header = _line(("Node", "Stage"), [column.label for column in columns], widths)
    named = [(shown_text("node_name", row.node_name), shown_text("stage", row.stage)) for row in rows]
    lines = [header, "-" * len(header)]
    return lines + [_line(names, line, widths) for names, line in zip(named, cells, strict=True)]


def lines_below(rows: Sequence[NodeProfilingStats]) -> list[str]:
    """Return lines below the table on missing GPU times and waits."""
    reasons = [
        f"GPU time of {shown_text('node_name', row.node_name)} ({shown_text('stage', row.stage)}): "
        f"{shown_text('gpu_reason', row.gpu_reason)}"
        for row in rows
        if _of(row, "gpu_reason")
    ]
    return [*reasons, *synchronising_lines(rows)]


def synchronising_lines(rows: Iterable[NodeProfilingStats]) -> list[str]:
    """Return a sentence on time spent waiting for devices, if any."""
    waited = [row for row in rows if _of(row, "sync_total_ms") is not None]
    if not waited:
        return []
    wait_ms = math.fsum(row.sync_total_ms or 0.0 for row in waited)
    waits = sum(row.sync_count for row in waited)
    line = f"Waiting for devices (synchronize_cuda) took {format_time(wait_ms)}"
    if waits:
        line += f" in {waits} {'wait' if waits == 1 else 'waits'}, {format_time(wait_ms / waits)} each"
    timed = any(_of(row, "gpu_count") for row in waited)
    return [line + ("; the GPU times need none of it." if timed else ".")]


def shown_bytes(count: float) -> str:
    """Return a signed number of bytes with a fitting unit."""
    value, unit = abs(count), 0
    while value >= 1023.95 and unit < len(_BYTE_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    sign = "-" if count < 0 else ""
    return f"{sign}{value:.0f} B" if unit == 0 else f"{sign}{value:.1f} {_BYTE_UNITS[unit]}"


def _line(names: tuple[str, str], cells: Sequence[str], widths: Sequence[int]) -> str:
    shown = "".join(f" {cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
    return f"{names[0]:<{_NAME_WIDTH}} {names[1]:<{_STAGE_WIDTH}}{shown}"


def _of(row: Any, name: str) -> Any:
    return getattr(row, name) if isinstance(row, NodeProfilingStats) else None


def _time(field: str, label: str, tip: str, reason: Callable[[Any], str]) -> Column:
    def text(row: Any) -> str | None:
        value = _of(row, field)
        return None if value is None else format_time(value)

    return Column(label, tip, text, reason)


def _gpu_time(field: str, label: str, tip: str) -> Column:
    return _time(field, label, tip, lambda row: _of(row, "gpu_reason") or _UNKNOWN)


def _launch(field: str, label: str, tip: str, show: Callable[[Any], str]) -> Column:
    def text(row: Any) -> str | None:
        launches = _of(row, "launches")
        return None if launches is None else show(getattr(launches, field))

    return Column(label, tip, text, lambda _row: "launches were not counted")


def _copied(row: Any) -> str | None:
    launches = _of(row, "launches")
    if launches is None:
        return None
    return shown_bytes(launches.bytes_to_device + launches.bytes_to_host + launches.bytes_on_device)


def _memory(kind: str, field: str, label: str, tip: str) -> Column:
    def text(row: Any) -> str | None:
        memory = _of(row, "memory")
        figures = None if memory is None else getattr(memory, kind)
        value = None if figures is None else getattr(figures, field)
        return None if value is None else shown_bytes(value)

    def reason(row: Any) -> str:
        memory = _of(row, "memory")
        if memory is None or getattr(memory, kind) is None:
            told: str | None = memory.reason if memory is not None and kind == "device" else None
            return told or _UNKNOWN
        peak_reason: str | None = getattr(memory, kind).peak_reason  # all else is known where anything is
        return peak_reason or _UNKNOWN

    return Column(label, tip, text, reason)


def _counter_column(name: str) -> Column:
    def text(row: Any) -> str | None:
        value = (_of(row, "counters") or {}).get(name)
        if value is None:
            return None
        return format_time(value.mean / 1e6) if name == "cpu_time" else f"{value.mean:,.1f}"

    shown = shown_text("a counter's name", name)
    tip = f"mean of the counter {shown} in a call"
    refused = "refused, or others ran in the thread meanwhile"
    return Column(_HEADS.get(name, shown), tip, text, lambda row: "no samples" if row.count == 0 else refused)


def _share_text(row: Any) -> str | None:
    share = _of(row, "cpu_share")
    return None if share is None else f"{100 * share:.0f}%"


def _why_no_share(row: Any) -> str:
    known = (_of(row, "counters") or {}).get("cpu_time") is not None
    return "calls are too short, or some were not counted" if known else "CPU time is not known"


def _ipc_text(row: Any) -> str | None:
    counters = _of(row, "counters")
    ipc = getattr(counters, "ipc", None)
    return None if ipc is None else f"{ipc:.2f}"


_GPU = [
    _gpu_time("gpu_mean_ms", "GPU mean", "mean time on the device's stream, gaps in its queue included"),
    _gpu_time("gpu_p50_ms", "GPU p50", "50th percentile of the GPU times, within 1 %"),
    _gpu_time("gpu_p99_ms", "GPU p99", "99th percentile of the GPU times, within 1 %"),
    _gpu_time("gpu_total_ms", "GPU total", "sum of the GPU times"),
    _gpu_time("queue_delay_ms", "Queue", "mean time by which the device began later than the host did"),
]
_LAUNCHES = [
    _launch("launches", "Launches", "calls that launched kernels or graphs", "{:,}".format),
    _launch("kernels", "Kernels", "kernels that have run", "{:,}".format),
    _launch("kernel_ms", "Kernel time", "sum of the kernels' times", format_time),
    Column(
        "Copied",
        "bytes copied between host and device and on devices",
        _copied,
        lambda _row: "launches were not counted",
    ),
]
_MEMORY = [
    _memory("device", "change", "Device change", "device memory that the calls added, all together"),
    _memory("device", "peak", "Device peak", "the most device memory in use inside a call"),
    _memory("host", "change", "Host change", "resident memory that the calls added, all together"),
    _memory("host", "peak", "Host peak", "the most resident memory inside a call"),
]
_CPU_SHARE = Column("CPU share", "CPU time over elapsed time; the rest was waiting", _share_text, _why_no_share)
_IPC = Column("IPC", "instructions per cycle", _ipc_text, lambda _row: "cycles or instructions are not known")
_SYNC = _time(
    "sync_total_ms", "Waiting", "waiting for devices because of synchronize_cuda", lambda _row: "nothing was waited for"
)
