"""The document of a timing report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cprofiling._internal.tables import Column, Section
from cprofiling.analysis.timing_reports import checked_timing_report, processes_of
from cprofiling.report.document import Document, Measurement, Node

if TYPE_CHECKING:
    from cprofiling._internal.tables import Cell

_MOMENTS = ("count", "mean_ms", "min_ms", "max_ms", "std_ms")
_QUANTILES = ("p50_ms", "p90_ms", "p95_ms", "p99_ms", "p999_ms")
_MEMORY = {
    "allocated_mb": "Allocated",
    "reserved_mb": "Reserved",
    "peak_allocated_mb": "Peak allocated",
    "peak_reserved_mb": "Peak reserved",
}
_RANKS = (
    Column("stage", "Stage"),
    Column("rank", "Rank", "number"),
    Column("total_ms", "Total", "ms"),
    Column("count", "Calls", "count"),
    *(Column(name, name[:-3].capitalize(), "ms") for name in _MOMENTS[1:]),
)
_STAGES_MEMORY = (
    Column("stage", "Stage"),
    *(Column(name[:-3] + "_bytes", title, "bytes") for name, title in _MEMORY.items()),
)
_MEMORY_NOTE = "In use after the last call, and the most of all calls."


def of_timing_report(report: Mapping[str, Any], *, title: str | None = None, source: str | None = None) -> Document:
    """Return the document of a timing report, ours or telefuser's.

    Raises FormatError for anything else.
    """
    known = checked_timing_report(report, source or "the timing report")
    names = ("request_id", "timestamp", "wall_clock_ms", "total_stages_ms", "rank", "world_size")
    facts: dict[str, Cell] = {name: known[name] for name in names if known.get(name) is not None}
    for number, process in enumerate(processes_of(known)):
        facts[f"process {number}"] = f"{process['host']}, pid {process['pid']}"
    nodes: list[Node] = []
    ranks: list[tuple[Cell, ...]] = []
    memory: list[tuple[Cell, ...]] = []
    for name, stage in known["stages"].items():
        unknown = dict.fromkeys(_QUANTILES, "timing reports have no percentiles")
        if "parallel_info" in stage:
            unknown |= dict.fromkeys(_MOMENTS, "it ran in several processes, which have their own figures")
        figures: dict[str, Any] = {each: stage.get(each) for each in _MOMENTS}
        nodes.append(Node(
            name, "", **figures, total_ms=stage["duration_ms"], error_count=stage.get("error_count", 0),
            cancelled_count=stage.get("cancelled_count", 0),
            unknown={each: reason for each, reason in unknown.items() if figures.get(each) is None},
        ))  # fmt: skip
        ranks += [
            (name, rank["rank"], rank["duration_ms"], *(rank.get(key) for key in _MOMENTS))
            for rank in stage.get("parallel_info", {}).get("ranks", ())
        ]
        if "memory" in stage:
            values = map(stage["memory"].get, _MEMORY)
            memory.append((name, *(None if value is None else round(value * 2**20) for value in values)))
    sections = {
        "ranks": Section("Ranks", _RANKS, tuple(ranks)),
        "memory": Section("Device memory", _STAGES_MEMORY, tuple(memory), (_MEMORY_NOTE,)),
    }
    measurement = Measurement("CLOCK_MONOTONIC" if "schema_version" in known else None)
    shown = {name: section for name, section in sections.items() if section.rows}
    return Document(title or "Timing report", "timing", tuple(nodes), measurement, source, facts, shown)
