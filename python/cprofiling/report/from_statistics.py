"""The document of a summary or a snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from cprofiling._internal.tables import MOST_ROWS, Column, Section
from cprofiling._internal.text import checked_text
from cprofiling.analysis import what_if
from cprofiling.nodes.input_shapes import OVERFLOW, shown_rows, shown_signature
from cprofiling.nodes.snapshot import Snapshot
from cprofiling.nodes.stats import NodeProfilingStats
from cprofiling.report.document import Document, Measurement, Node

if TYPE_CHECKING:
    from cprofiling.analysis.insight_table import Insight
    from cprofiling.nodes.exports import WithHistograms
    from cprofiling.nodes.input_shapes import ShapeStats

_FIELDS = tuple(field.name for field in fields(NodeProfilingStats))
_CLOCK = "the clock is "
_MONOTONIC = "CLOCK_MONOTONIC, read through the processor's counter where that holds"
_NO_SAMPLE = "it has no sample"
_NOT_NESTED = "it is not told of times that record() is given, nor of blocks that ended out of order"
_NOT_SUSPENDED = "it is no coroutine or generator"
_FIRST_UNKNOWN = "no call has succeeded, or statistics of several processes are merged"
_QUANTILES = ("p50_ms", "p90_ms", "p95_ms", "p99_ms", "p999_ms")
_SHAPES = (
    Column("node_name", "Node"),
    Column("stage", "Stage"),
    Column("signature", "Signature", tip="dtypes and shapes of the call's tensors"),
    Column("makes_tail", "Makes the tail", tip="whether it has the slowest calls much more often than others"),
    Column("count", "Calls", "count", "number of samples"),
    Column("share", "Share", "share", "part of the node's samples"),
    Column("mean_ms", "Mean", "ms", "arithmetic mean of the samples"),
    Column("p50_ms", "p50", "ms", "50th percentile, within 1 %"),
    Column("p99_ms", "p99", "ms", "99th percentile, within 1 %"),
    Column("max_ms", "Max", "ms", "largest sample"),
    Column("total_ms", "Total", "ms", "sum of the samples"),
    Column("tail_share", "Tail", "share", "part of the node's slowest samples"),
    Column("error_count", "Errors", "count", "calls that an exception left"),
    Column("cancelled_count", "Cancelled", "count", "calls that were cancelled"),
)


def of_statistics(of: WithHistograms, *, title: str | None = None, source: str | None = None) -> Document:
    """Return the document of a summary or a snapshot."""
    summary: Any = of
    known: Any = {}
    if isinstance(of, Snapshot):
        known = of._filled_buckets()  # noqa: SLF001
        summary = of.stats()
    elif hasattr(of, "_find_histograms"):
        known = {key: (tuple(times), ()) for key, times in of._find_histograms().items()}  # noqa: SLF001
    find_source: Any = getattr(of, "_find_source", {}.get)
    nodes = []
    for row in summary:
        values = {name: getattr(row, name) for name in _FIELDS}
        values["stage"] = checked_text("stage", row.stage)
        times, gpu_times = known.get((row.node_name, values["stage"]), (None, ()))
        told = dict.fromkeys(_QUANTILES, _NO_SAMPLE)
        told |= {"first_ms": _FIRST_UNKNOWN, "self_total_ms": _NOT_NESTED, "active_total_ms": _NOT_SUSPENDED}
        if row.gpu_reason is not None:
            gpu_figures = ("gpu_mean_ms", "gpu_p50_ms", "gpu_p99_ms", "gpu_total_ms", "queue_delay_ms")
            told |= dict.fromkeys(gpu_figures, row.gpu_reason)
        unknown = {name: reason for name, reason in told.items() if getattr(row, name) is None}
        at = find_source(row.node_name)
        nodes.append(Node(**values, histogram=times, gpu_histogram=gpu_times or None, source=at, unknown=unknown))
    clocks = [reason[len(_CLOCK) :].partition(", as ")[0] for reason in summary.reasons if reason.startswith(_CLOCK)]
    measurement = Measurement(
        clock=clocks[0] if clocks else _MONOTONIC,
        cost_ns=summary.cost_ns,
        skip_first_n=summary.skip_first_n,
        median=summary.median,
        synchronized=any(node.sync_total_ms is not None for node in nodes) if nodes else None,
        dropped=sum(node.dropped_count for node in nodes),
        internal_errors=summary.internal_errors,
        reasons=summary.reasons,
    )
    sections = sections_of(
        warm_up=summary.warm_up(),
        what_if=what_if.of_summary(summary, most=MOST_ROWS),
        frames=summary.frames_per_second(),
    )
    if shown_rows(summary.shapes):
        sections["shapes"] = shapes_section(summary.shapes)
    return Document(title or "Node statistics", "statistics", tuple(nodes), measurement, source, sections=sections)


def sections_of(**found: Insight[Any]) -> dict[str, Section]:
    """Return the insights that have rows as sections."""
    return {name: insight.section() for name, insight in found.items() if insight}


def shapes_section(shapes: Sequence[ShapeStats]) -> Section:
    """Return the table of a summary's shapes, its verdicts below.

    Nodes without a call that had a tensor are left out.
    """
    verdicts = getattr(shapes, "verdicts", ())
    odd = {verdict.stats for verdict in verdicts}
    rows = []
    for row in shown_rows(shapes):
        known = {column.name: getattr(row, column.name, None) for column in _SHAPES}
        known["stage"] = checked_text("stage", row.stage)
        if row.signature in ("", OVERFLOW):
            known["signature"] = shown_signature(row.signature)
        known["makes_tail"] = "yes" if row in odd else ""
        if not row.count:
            known |= dict.fromkeys(("mean_ms", "max_ms", "total_ms"))  # they are 0.0
        rows.append(tuple(known.values()))
    return Section("Calls by input signature", _SHAPES, tuple(rows), tuple(map(str, verdicts)))
