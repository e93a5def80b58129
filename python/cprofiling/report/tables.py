"""The nodes of a document as a table, and its figures as text."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from cprofiling._internal.tables import Column, Section
from cprofiling._internal.text import format_time, shown_text
from cprofiling.nodes.resource_columns import shown_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from cprofiling._internal.tables import Cell, Unit
    from cprofiling.report.document import Document, Node

UNKNOWN = "-"
_NS_PER_MS, _US_PER_MS = 1e6, 1e3
_MOST_BITS = 128  # of an integer that is shown with all its digits
_NAMES = (Column("node_name", "Node"), Column("stage", "Stage"))
_FIGURES = (
    Column("count", "Count", "count", "number of samples"),
    Column("mean_ms", "Mean", "ms", "arithmetic mean of the samples"),
    Column("std_ms", "Std", "ms", "population standard deviation of the samples"),
    Column("min_ms", "Min", "ms", "smallest sample"),
    Column("p50_ms", "p50", "ms", "50th percentile"),
    Column("p90_ms", "p90", "ms", "90th percentile"),
    Column("p99_ms", "p99", "ms", "99th percentile"),
    Column("p999_ms", "p99.9", "ms", "99.9th percentile"),
    Column("max_ms", "Max", "ms", "largest sample"),
    Column("total_ms", "Total", "ms", "sum of the samples, nodes called inside included"),
    Column("self_total_ms", "Self", "ms", "the same without nodes called inside; with operators inside"),
    Column("gpu_mean_ms", "GPU mean", "ms", "mean time on the device's stream"),
    Column("gpu_p99_ms", "GPU p99", "ms", "99th percentile of the times on the device's stream"),
    Column("queue_delay_ms", "Queue", "ms", "mean time by which the device began later than the host"),
    Column("error_count", "Errors", "count", "calls that an exception left"),
    Column("cancelled_count", "Cancelled", "count", "calls that were cancelled"),
    Column("skipped_count", "Skipped", "count", "first calls left out of the samples"),
    Column("dropped_count", "Dropped", "count", "calls whose statistics were discarded before they ended"),
)


def node_section(document: Document) -> Section:
    """Return the table of the nodes, largest total first.

    Columns are left out where no node has a value.

    Times of a node without a sample are not known there.
    """
    nodes = sorted(document.nodes, key=lambda node: node.total_ms or 0.0, reverse=True)
    names = _NAMES if any(node.stage for node in nodes) else _NAMES[:1]
    columns = (*names, *(column for column in _FIGURES if any(_cell(node, column) for node in nodes)))
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


def measured(document: Document) -> list[str]:
    """Return a line for each fact of the run and the measurement."""
    known = document.measurement
    cost = None if known.cost_ns is None else format_time(known.cost_ns / _NS_PER_MS)
    told: Iterable[tuple[str, str | None]] = (
        *facts(document).items(),
        ("first calls of each node left out", str(known.skip_first_n) if known.skip_first_n else None),
        ("clock", known.clock),
        ("own cost of a call, not subtracted", cost),
        ("nodes waited for their devices", "yes" if known.synchronized else None),
        ("dropped", f"{known.dropped:,}" if known.dropped else None),
        ("internal errors of the profiler", f"{known.internal_errors:,}" if known.internal_errors else None),
    )
    lines = [f"{shown_text('fact', name)}: {shown_text('fact', value)}" for name, value in told if value is not None]
    return [*lines, *(shown_text("reason", reason) for reason in known.reasons)]
