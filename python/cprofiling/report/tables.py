"""The nodes of a document as a table, and its figures as text."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from cprofiling._internal.tables import Column, Section
from cprofiling._internal.text import counted, format_time, shown_text
from cprofiling.nodes.resource_columns import shown_bytes

if TYPE_CHECKING:
    from cprofiling._internal.tables import Cell, Unit
    from cprofiling.report.document import Document, Node

UNKNOWN = "-"
_NS_PER_MS, _US_PER_MS = 1e6, 1e3
_MOST_BITS = 128  # of an integer that is shown with all its digits
_NAMES = (Column("node_name", "Node"), Column("stage", "Stage"))
# The figures of a node in the order of pages; dots lead into parts of a node.
FIGURES = {
    column.name: column
    for column in (
        Column("count", "Count", "count", "number of samples"),
        Column("total_ms", "Total", "ms", "sum of the samples, nodes called inside included"),
        Column("self_total_ms", "Self", "ms", "total without the nodes called inside; with operators inside"),
        Column("share", "Share", "share", "part of the time of all rows, by self time where it is known"),
        Column("mean_ms", "Mean", "ms", "arithmetic mean of the samples"),
        Column("std_ms", "Std", "ms", "population standard deviation of the samples"),
        Column("min_ms", "Min", "ms", "smallest sample"),
        Column("p50_ms", "p50", "ms", "50th percentile, the median within 1 %"),
        Column("p90_ms", "p90", "ms", "90th percentile"),
        Column("p95_ms", "p95", "ms", "95th percentile"),
        Column("p99_ms", "p99", "ms", "99th percentile"),
        Column("p999_ms", "p99.9", "ms", "99.9th percentile"),
        Column("max_ms", "Max", "ms", "largest sample"),
        Column("median_ms", "Median", "ms", "as p50; exact of recordings; the P² estimate where that was chosen"),
        Column("first_ms", "First", "ms", "first successful call, skipped or not"),
        Column("last_ms", "Last", "ms", "the sample that was recorded last"),
        Column("active_total_ms", "Active", "ms", "of coroutines and generators, the time in which they ran"),
        Column("error_count", "Errors", "count", "calls that an exception left"),
        Column("cancelled_count", "Cancelled", "count", "calls that were cancelled"),
        Column("skipped_count", "Skipped", "count", "first calls left out of the samples"),
        Column("dropped_count", "Dropped", "count", "calls that a reset discarded while they ran"),
        Column("gpu_count", "GPU count", "count", "samples with a GPU time"),
        Column("gpu_mean_ms", "GPU mean", "ms", "mean time on the device's stream, gaps in its queue included"),
        Column("gpu_p50_ms", "GPU p50", "ms", "50th percentile of the GPU times"),
        Column("gpu_p99_ms", "GPU p99", "ms", "99th percentile of the GPU times"),
        Column("gpu_total_ms", "GPU total", "ms", "sum of the GPU times"),
        Column("queue_delay_ms", "Queue", "ms", "mean time by which the device began later than the host"),
        Column("launches.launches", "Launches", "count", "calls that launched kernels or graphs"),
        Column("launches.kernels", "Kernels", "count", "kernels that have run"),
        Column("launches.kernel_ms", "Kernel time", "ms", "sum of the kernels' times"),
        Column("launches.bytes_to_device", "To device", "bytes", "bytes copied from host to device"),
        Column("launches.bytes_to_host", "To host", "bytes", "bytes copied from device to host"),
        Column("launches.bytes_on_device", "On device", "bytes", "bytes copied on or between devices"),
        Column("memory.device.change", "Device change", "bytes", "device memory that the calls added, all together"),
        Column("memory.device.peak", "Device peak", "bytes", "the most device memory in use inside a call"),
        Column("memory.host.change", "Host change", "bytes", "resident memory that the calls added, all together"),
        Column("memory.host.peak", "Host peak", "bytes", "the most resident memory inside a call"),
        Column("sync_total_ms", "Waiting", "ms", "waiting for devices because of synchronize_cuda"),
    )
}
_IN_TEXT = (
    "count", "mean_ms", "std_ms", "min_ms", "p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms", "total_ms",
    "self_total_ms", "gpu_mean_ms", "gpu_p99_ms", "queue_delay_ms", "error_count", "cancelled_count", "skipped_count",
    "dropped_count",
)  # fmt: skip


def node_section(document: Document) -> Section:
    """Return the table of the nodes, largest total first.

    Columns are left out where no node has a value.

    Times of a node without a sample are not known there.
    """
    nodes = sorted(document.nodes, key=lambda node: node.total_ms or 0.0, reverse=True)
    names = _NAMES if any(node.stage for node in nodes) else _NAMES[:1]
    figures = [FIGURES[name] for name in _IN_TEXT]
    columns = (*names, *(column for column in figures if any(_cell(node, column) for node in nodes)))
    rows = tuple(tuple(_cell(node, column) for column in columns) for node in nodes)
    return Section("Nodes", columns, rows)


def _cell(node: Node, column: Column) -> Any:
    if node.count == 0 and column.unit == "ms":
        return None
    return getattr(node, column.name)


def shown(value: Cell, unit: Unit) -> str:
    """Return a value on one line, with a unit that fits it."""
    if value is None:
        return UNKNOWN
    if isinstance(value, str):
        return shown_text("value", value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if unit in ("ms", "us", "ns"):
        time = format_time(abs(value) / {"ms": 1.0, "us": _US_PER_MS, "ns": _NS_PER_MS}[unit])
        return f"-{time}" if value < 0 else time
    if unit == "bytes":
        return shown_bytes(value)
    if unit in ("share", "percent"):
        return f"{value * 100 if unit == 'share' else value:.1f} %"
    if unit == "count":
        return f"{value:,}"
    if unit == "per_second":
        return f"{value:,.1f}/s"
    if isinstance(value, float):
        return f"{value:.6g}"
    if value.bit_length() <= _MOST_BITS:
        return str(value)  # all digits, as it may be the number of a process
    return f"{Decimal(value).normalize():.6g}"  # it may be beyond a float


def cells(section: Section, shown: Callable[[Cell, Unit], str], title: Callable[[str], str] = str) -> list[list[str]]:
    """Return headings and rows of a section, cells as ``shown`` has them."""
    units = [column.unit for column in section.columns]
    rows = [[shown(value, unit) for value, unit in zip(row, units, strict=True)] for row in section.rows]
    return [[title(column.title) for column in section.columns], *rows]


def facts(document: Document) -> dict[str, str]:
    """Return the facts of a run by their names for people."""
    return {
        shown_text("fact", name.removesuffix("_ms").replace("_", " ")): shown(
            value, "ms" if name.endswith("_ms") else "number"
        )
        for name, value in document.facts.items()
    }


def measurement_facts(document: Document) -> dict[str, str | None]:
    """Return how a run was measured, by labels; None where unknown, empty if it does not apply."""
    known = document.measurement
    skipped, waited = known.skip_first_n, known.synchronized
    cost = None
    if known.cost_ns is not None:
        calls = sum(node.count or 0 for node in document.nodes)
        cost_ms, self_ms = known.cost_ns / _NS_PER_MS, sum(node.self_total_ms or 0.0 for node in document.nodes)
        cost = f"{format_time(cost_ms)} a call on this machine"
        if calls and self_ms:
            part = f"{100 * calls * cost_ms / self_ms:.2g} % of the time in nodes"
            cost += f"; {format_time(calls * cost_ms)} in {counted(calls, 'call')}, {part}"
        cost += "; not subtracted from the times"
    return {
        "Clock": None if known.clock is None else shown_text("clock", known.clock),
        "Cost of profiling": cost,
        "First calls of each node left out": "" if skipped is None else f"{skipped:,}",
        "Medians": "P² estimates" if known.median == "p2" else "",
        "Nodes waited for their devices": "" if waited is None else "yes" if waited else "no",
        "Dropped": f"{known.dropped:,}",
        "Internal errors of the profiler": f"{known.internal_errors:,}",
    }


def measured(document: Document) -> list[str]:
    """Return a line for each fact of the run and of its measurement."""
    known = measurement_facts(document).items()
    told = {label.lower(): text for label, text in known if text and text not in ("0", "no")}
    lines = [f"{name}: {text}" for name, text in {**facts(document), **told}.items()]
    return [*lines, *(shown_text("reason", reason) for reason in document.measurement.reasons)]
