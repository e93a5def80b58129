"""The document of a timing report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cprofiling._internal.tables import Column, Section
from cprofiling.layers.timing_reports import checked_timing_report, processes_of
from cprofiling.report.document import Document, Measurement, Node

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from cprofiling._internal.tables import Cell

_MOMENTS = ("count", "mean_ms", "min_ms", "max_ms", "std_ms")
_QUANTILES = ("p50_ms", "p90_ms", "p95_ms", "p99_ms", "p999_ms")
_MEMORY = {
    "allocated_mb": "Allocated",
    "reserved_mb": "Reserved",
    "peak_allocated_mb": "Peak allocated",
    "peak_reserved_mb": "Peak reserved",
}


def of_timing_report(report: Mapping[str, Any], *, title: str | None = None, source: str | None = None) -> Document:
    """Return the document of a timing report, ours or telefuser's.

    Raises FormatError for anything else.
    """
    known = checked_timing_report(report, source or "the timing report")
    stages = known["stages"]
    sections = {
        name: section for name, section in (("ranks", _ranks(stages)), ("memory", _memory(stages))) if section.rows
    }
    names = ("request_id", "timestamp", "wall_clock_ms", "total_stages_ms", "rank", "world_size")
    facts: dict[str, Cell] = {name: known[name] for name in names if known.get(name) is not None}
    for number, process in enumerate(processes_of(known)):
        facts[f"process {number}"] = f"{process['host']}, pid {process['pid']}"
    nodes = []
    for name, stage in stages.items():
        unknown = dict.fromkeys(_QUANTILES, "timing reports have no percentiles")
        if "parallel_info" in stage:
            unknown |= dict.fromkeys(_MOMENTS, "it ran in several processes, which have their own figures")
        figures: dict[str, Any] = {each: stage.get(each) for each in _MOMENTS}
        nodes.append(Node(
            name, "", **figures, total_ms=stage["duration_ms"], error_count=stage.get("error_count", 0),
            cancelled_count=stage.get("cancelled_count", 0),
            unknown={each: reason for each, reason in unknown.items() if figures.get(each) is None},
        ))  # fmt: skip
    measurement = Measurement("CLOCK_MONOTONIC" if "schema_version" in known else None)
    return Document(title or "Timing report", "timing", tuple(nodes), measurement, source, facts, sections)


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
    """Return the device memory of the stages."""
    columns = [Column("stage", "Stage")]
    columns += [Column(name[:-3] + "_bytes", title, "bytes") for name, title in _MEMORY.items()]
    rows = []
    for stage, figures in stages.items():
        if "memory" in figures:
            known = [figures["memory"].get(name) for name in _MEMORY]
            rows.append((stage, *(None if value is None else round(value * 2**20) for value in known)))
    notes = ("In use after the last call, and the most of all calls.",)
    return Section("Device memory", tuple(columns), tuple(rows), notes)
