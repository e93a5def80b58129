"""Columns and text of resource figures, shown where any node has them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from cprofiling._internal.text import counted, format_time, plain_table, shown_text
from cprofiling.nodes.stats import NodeProfilingStats
from cprofiling.nodes.summary_table import NO_DATA, format_profiling_table, is_failures_only, sorted_rows

if TYPE_CHECKING:
    from cprofiling.nodes.stats import ProfilingSummary

_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
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


class Column(NamedTuple):
    """One figure of a node.

    Attributes:
        label: The column's head.
        tip: Its meaning.
        text: Shows the figure of a node; None where it is not known.
        reason: Says why it is not known there.
    """

    label: str
    tip: str
    text: Callable[[Any], str | None]
    reason: Callable[[Any], str]


def columns_of(rows: Sequence[NodeProfilingStats]) -> list[Column]:
    """Return the columns with a value in any row."""
    columns: list[Column] = []
    for fields, group in ((("gpu_count", "gpu_reason"), _GPU), (("launches",), _LAUNCHES), (("memory",), _MEMORY)):
        if any(_of(row, field) for row in rows for field in fields):
            columns += group
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
    columns = columns_of(rows)
    table = [["Node", "Stage", *(column.label for column in columns)]]
    for row in rows:
        names = [shown_text("node_name", row.node_name), shown_text("stage", row.stage)]
        table.append([*names, *(column.text(row) or "-" for column in columns)])
    shown = [plain_table(table, [True, True, *[False] * len(columns)])] if columns else []
    return "\n".join([*shown, *lines_below(rows), *(shown_text("reasons", reason) for reason in reasons)])


def summary_text(summary: ProfilingSummary, total_frames: int | None = None) -> str:
    """Return all tables of a summary, and reasons for missing figures."""
    table = format_profiling_table(
        summary, total_frames=total_frames, skip_first_n=summary.skip_first_n, median=summary.median
    )
    parts = ["\n".join((table, *summary._hints))]  # noqa: SLF001 the package's own, as below
    if table != NO_DATA:
        parts.append(beyond_text(summary, summary._reasons_beyond))  # noqa: SLF001
        parts.append(str(summary.shapes) if summary.shapes else "")
    return "\n\n".join(part for part in parts if part)


def lines_below(rows: Sequence[NodeProfilingStats]) -> list[str]:
    """Return lines on missing GPU times and on waiting for devices."""
    lines = [
        f"GPU time of {shown_text('node_name', row.node_name)} ({shown_text('stage', row.stage)}): "
        f"{shown_text('gpu_reason', row.gpu_reason)}"
        for row in rows
        if _of(row, "gpu_reason")
    ]
    waited = [row for row in rows if _of(row, "sync_total_ms") is not None]
    if waited:
        wait_ms = math.fsum(row.sync_total_ms or 0.0 for row in waited)
        waits = sum(row.sync_count for row in waited)
        each = f" in {counted(waits, 'wait')}, {format_time(wait_ms / waits)} each" if waits else ""
        rest = "; the GPU times need none of it." if any(_of(row, "gpu_count") for row in waited) else "."
        lines.append(f"Waiting for devices (synchronize_cuda) took {format_time(wait_ms)}{each}{rest}")
    return lines


def shown_bytes(count: float) -> str:
    """Return a signed number of bytes with a fitting unit."""
    value, unit = abs(count), 0
    while value >= 1023.95 and unit < len(_BYTE_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    sign = "-" if count < 0 else ""
    return f"{sign}{value:.0f} B" if unit == 0 else f"{sign}{value:.1f} {_BYTE_UNITS[unit]}"


def _of(row: Any, path: str) -> Any:
    """Return an attribute of an attribute and so on, None where any is."""
    value = row if isinstance(row, NodeProfilingStats) else None
    for name in path.split("."):
        value = None if value is None else getattr(value, name)
    return value


def _column(label: str, tip: str, path: str, show: Callable[[Any], str], why: str = _UNKNOWN, *told: str) -> Column:
    """Make the column of an attribute, by its path.

    why: The reason where it is not known, unless one of the attributes ``told`` has another.
    """

    def text(row: Any) -> str | None:
        value = _of(row, path)
        return None if value is None else show(value)

    def reason(row: Any) -> str:
        return next(filter(None, [_of(row, each) for each in told]), why)

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


def _why_no_share(row: Any) -> str:
    known = (_of(row, "counters") or {}).get("cpu_time") is not None
    return "calls are too short, or some were not counted" if known else "CPU time is not known"


def _copied(launches: Any) -> str:
    return shown_bytes(launches.bytes_to_device + launches.bytes_to_host + launches.bytes_on_device)


_SPAN = "mean time on the device's stream, gaps in its queue included"
_DELAY = "mean time by which the device began later than the host did"
_NO_TIME = (_UNKNOWN, "gpu_reason")
_GPU = [
    _column("GPU mean", _SPAN, "gpu_mean_ms", format_time, *_NO_TIME),
    _column("GPU p50", "50th percentile of the GPU times, within 1 %", "gpu_p50_ms", format_time, *_NO_TIME),
    _column("GPU p99", "99th percentile of the GPU times, within 1 %", "gpu_p99_ms", format_time, *_NO_TIME),
    _column("GPU total", "sum of the GPU times", "gpu_total_ms", format_time, *_NO_TIME),
    _column("Queue", _DELAY, "queue_delay_ms", format_time, *_NO_TIME),
]
_NOT_COUNTED = "launches were not counted"
_LAUNCHES = [
    _column("Launches", "calls that launched kernels or graphs", "launches.launches", "{:,}".format, _NOT_COUNTED),
    _column("Kernels", "kernels that have run", "launches.kernels", "{:,}".format, _NOT_COUNTED),
    _column("Kernel time", "sum of the kernels' times", "launches.kernel_ms", format_time, _NOT_COUNTED),
    _column("Copied", "bytes copied between host and device and on devices", "launches", _copied, _NOT_COUNTED),
]
_ADDED = "memory that the calls added, all together"
_NO_DEVICE = (_UNKNOWN, "memory.device.peak_reason", "memory.reason")
_NO_HOST = (_UNKNOWN, "memory.host.peak_reason")
_MEMORY = [
    _column("Device change", f"device {_ADDED}", "memory.device.change", shown_bytes, *_NO_DEVICE),
    _column("Device peak", "the most device memory in use", "memory.device.peak", shown_bytes, *_NO_DEVICE),
    _column("Host change", f"resident {_ADDED}", "memory.host.change", shown_bytes, *_NO_HOST),
    _column("Host peak", "the most resident memory in a call", "memory.host.peak", shown_bytes, *_NO_HOST),
]
_CPU_SHARE = _column(
    "CPU share", "CPU time over elapsed time; the rest was waiting", "cpu_share", lambda share: f"{100 * share:.0f} %"
)._replace(reason=_why_no_share)
_IPC = _column("IPC", "instructions per cycle", "counters.ipc", "{:.2f}".format, "cycles or instructions are not known")
_WAITING = "waiting for devices because of synchronize_cuda"
_SYNC = _column("Waiting", _WAITING, "sync_total_ms", format_time, "nothing was waited for")
