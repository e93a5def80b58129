"""What the document is made from: summaries, snapshots, timing reports and recordings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING

from cprofiling._internal.tables import Column, Section
from cprofiling._internal.text import checked_text, shown_value
from cprofiling.nodes.input_shapes import shown_rows
from cprofiling.nodes.snapshot import Snapshot
from cprofiling.nodes.stats import NodeProfilingStats, ProfilingSummary
from cprofiling.recording.result import Reports
from cprofiling.report import insight_sections as insights
from cprofiling.report.document import Document, Measurement, Node
from cprofiling.report.shapes import shapes_section

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cprofiling._internal.tables import Cell
    from cprofiling.nodes.buckets import Bucket
    from cprofiling.report.document import Kind

_KINDS: tuple[tuple[type, Kind], ...] = (
    (Snapshot, "statistics"),
    (ProfilingSummary, "statistics"),
    (Reports, "recording"),
    (Mapping, "timing"),
)
_FIELDS = tuple(field.name for field in fields(NodeProfilingStats))
_CLOCK = "the clock is "
_MONOTONIC = "CLOCK_MONOTONIC, read through the processor's counter where that holds"
_NO_SAMPLE = "it has no sample"
_NOT_NESTED = "it is not told of times that record() is given, nor of blocks that ended out of order"
_NOT_SUSPENDED = "it is no coroutine or generator"
_FIRST_UNKNOWN = "no call has succeeded, or statistics of several processes are merged"
_MOMENTS = ("count", "mean_ms", "min_ms", "max_ms", "std_ms")
_QUANTILES = ("p50_ms", "p90_ms", "p95_ms", "p99_ms", "p999_ms")


def document_of(of: object, *, title: str | None = None, source: str | None = None) -> Document:
    """Return the document of a summary, a snapshot, a recording, or a timing report as a dict.

    Args:
        of: A ``ProfilingSummary``, ``Snapshot``, ``Recording``, ``profile`` that has ended, or a timing report.
        title: What it is of, for the heading; None: what it is.
        source: The name of the file that it was read from.

    Raises:
        TypeError: ``of`` is nothing of that.
        FormatError: A dict is no timing report.
    """
    return with_pictures(tables_of(of, title=title, source=source), of)


def tables_of(of: object, *, title: str | None = None, source: str | None = None) -> Document:
    """Return the same without what is drawn: the timeline and the icicle of a recording."""
    kind = kind_of("of", of)
    made: Callable[..., Document] = of_snapshot if isinstance(of, Snapshot) else of_summary
    if kind == "recording":
        from cprofiling.report import from_recording

        made = from_recording.of_recording
    elif kind == "timing":
        made = of_timing_report
    return made(of, title=title, source=source)


def with_pictures(document: Document, of: object) -> Document:
    """Return what ``tables_of`` has made of a thing with what is drawn."""
    if not isinstance(of, Reports):
        return document
    from cprofiling.report import from_recording

    return from_recording.with_pictures(document, of)


def kind_of(parameter: str, of: object) -> Kind:
    """Return of which kind the document of a thing is. TypeError, naming the parameter, for what has none."""
    for types, kind in _KINDS:
        if isinstance(of, types):
            return kind
    raise TypeError(f"{parameter} must be a summary, a snapshot, a recording or a timing report, got {shown_value(of)}")


def of_summary(summary: ProfilingSummary, *, title: str | None = None, source: str | None = None) -> Document:
    """Return the document of a summary; it has no histograms, which only snapshots have."""
    return _of_statistics(summary, {}, title, source)


def of_snapshot(snapshot: Snapshot, *, title: str | None = None, source: str | None = None) -> Document:
    """Return the document of a snapshot."""
    histograms = {(stage, node): found for (node, stage), found in snapshot._filled_buckets().items()}  # noqa: SLF001
    return _of_statistics(snapshot.stats(), histograms, title, source)


def _of_statistics(
    summary: ProfilingSummary,
    histograms: Mapping[tuple[str, str], tuple[tuple[Bucket, ...], tuple[Bucket, ...]]],
    title: str | None,
    source: str | None,
) -> Document:
    nodes = tuple(_node(row, histograms.get((checked_text("stage", row.stage), row.node_name))) for row in summary)
    measurement = Measurement(
        clock=next((_clock(reason) for reason in summary.reasons if reason.startswith(_CLOCK)), _MONOTONIC),
        cost_ns=summary.cost_ns,
        skip_first_n=summary.skip_first_n,
        synchronized=any(node.sync_total_ms is not None for node in nodes) if nodes else None,
        dropped=sum(node.dropped_count for node in nodes),
        internal_errors=summary.internal_errors,
        reasons=summary.reasons,
    )
    sections = insights.of_summary(summary)
    if shown_rows(summary.shapes):
        sections["shapes"] = shapes_section(summary.shapes)
    return Document(title or "Node statistics", "statistics", nodes, measurement, source, sections=sections)


def _clock(reason: str) -> str:
    return reason[len(_CLOCK) :].partition(", as ")[0]


def _node(row: NodeProfilingStats, histograms: tuple[tuple[Bucket, ...], tuple[Bucket, ...]] | None) -> Node:
    times, gpu_times = histograms or (None, ())
    values = {name: getattr(row, name) for name in _FIELDS}
    values["stage"] = checked_text("stage", row.stage)
    return Node(**values, histogram=times, gpu_histogram=gpu_times or None, unknown=_unknown(row))


def _unknown(row: NodeProfilingStats) -> dict[str, str]:
    """Return why fields are None that would be known of other nodes."""
    told = dict.fromkeys(_QUANTILES, _NO_SAMPLE)
    told |= {"first_ms": _FIRST_UNKNOWN, "self_total_ms": _NOT_NESTED, "active_total_ms": _NOT_SUSPENDED}
    if row.gpu_reason is not None:
        told |= dict.fromkeys(("gpu_mean_ms", "gpu_p50_ms", "gpu_p99_ms", "gpu_total_ms"), row.gpu_reason)
        told["queue_delay_ms"] = row.gpu_reason
    return {name: reason for name, reason in told.items() if getattr(row, name) is None}


def of_timing_report(report: Mapping[str, Any], *, title: str | None = None, source: str | None = None) -> Document:
    """Return the document of a timing report, ours or telefuser's. FormatError for what is none."""
    from cprofiling.layers.compare.timing_file import checked_timing_report, processes_of

    known = checked_timing_report(report, source or "the timing report")
    sections = {
        name: section
        for name, section in (("ranks", _ranks(known["stages"])), ("memory", _memory(known["stages"])))
        if section.rows
    }
    facts: dict[str, Cell] = {
        key: known[key]
        for key in ("request_id", "timestamp", "wall_clock_ms", "total_stages_ms", "rank", "world_size")
        if known.get(key) is not None
    }
    for number, process in enumerate(processes_of(known)):
        facts[f"process {number}"] = f"{process['host']}, pid {process['pid']}"
    nodes = tuple(_stage(name, figures) for name, figures in known["stages"].items())
    clock = "CLOCK_MONOTONIC" if "schema_version" in known else None
    return Document(title or "Timing report", "timing", nodes, Measurement(clock), source, facts, sections)


def _stage(name: str, figures: Mapping[str, Any]) -> Node:
    """Return a stage of a timing report as a node."""
    unknown = dict.fromkeys(_QUANTILES, "timing reports have no percentiles")
    if "parallel_info" in figures:
        unknown |= dict.fromkeys(_MOMENTS, "it ran in several processes, which have their own figures")
    known: dict[str, Any] = {name: figures.get(name) for name in _MOMENTS}
    return Node(
        name,
        "",
        **known,
        total_ms=figures["duration_ms"],
        error_count=figures.get("error_count", 0),
        cancelled_count=figures.get("cancelled_count", 0),
        unknown={name: reason for name, reason in unknown.items() if known.get(name) is None},
    )


def _ranks(stages: Mapping[str, Any]) -> Section:
    """Return what the ranks of a stage took."""
    columns = (
        Column("stage", "Stage"),
        Column("rank", "Rank", "number"),
        Column("total_ms", "Total", "ms"),
        Column("count", "Calls", "count"),
        *(Column(name, name[:-3].capitalize(), "ms") for name in _MOMENTS[1:]),
    )
    rows = tuple(
        (name, rank["rank"], rank["duration_ms"], *(rank.get(key) for key in _MOMENTS))
        for name, figures in stages.items()
        for rank in figures.get("parallel_info", {}).get("ranks", ())
    )
    return Section("Ranks", columns, rows)


def _memory(stages: Mapping[str, Any]) -> Section:
    """Return the memory of a device that stages took."""
    names = ("allocated_mb", "reserved_mb", "peak_allocated_mb", "peak_reserved_mb")
    titles = ("Allocated", "Reserved", "Peak allocated", "Peak reserved")
    columns = (
        Column("stage", "Stage"),
        *(Column(name[:-3] + "_bytes", title, "bytes") for name, title in zip(names, titles, strict=True)),
    )
    rows = tuple(
        (stage, *(_bytes(figures["memory"].get(name)) for name in names))
        for stage, figures in stages.items()
        if "memory" in figures
    )
    return Section("Device memory", columns, rows, ("In use after the last call, and the most of all calls.",))


def _bytes(mebibytes: float | None) -> int | None:
    return None if mebibytes is None else round(mebibytes * 2**20)
