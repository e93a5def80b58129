"""The document of a recording, with tables and findings."""

from __future__ import annotations

import json
import math
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from cprofiling._internal.row_kinds import CUT, DEVICE, RECORD, SUSPENDABLE, UNFINISHED
from cprofiling._internal.tables import MOST_ROWS, Column, Section, more_rows, titled
from cprofiling.analysis import frames, gaps, warm_up, what_if
from cprofiling.analysis.device_figures import copy_breakdown, idle_times, kernel_breakdown
from cprofiling.analysis.evidence import Evidence
from cprofiling.analysis.findings import findings
from cprofiling.analysis.grouping import key_averages
from cprofiling.nodes.buckets import histogram_of
from cprofiling.recording.columns import column, grouped, sources_of
from cprofiling.recording.tree import host_tree, self_times, sum_up
from cprofiling.report.document import Document, Finding, IcicleNode, Measurement, Node
from cprofiling.report.from_statistics import sections_of
from cprofiling.report.timeline import timeline

if TYPE_CHECKING:
    from cprofiling._internal.tables import Cell, Figures
    from cprofiling.recording.columns import Recording

OTHERS = "(smaller ones)"
_NS_PER_MS = 1e6
_LATEST_NS = 2**62  # in the year 2116
_MOST_DEPTH = 100  # of an icicle
_SMALLEST = 4000  # the part of all time below which callees of one caller are shown as one: half a pixel of a page
_QUANTILES = {"p50_ms": (1, 2), "p90_ms": (9, 10), "p95_ms": (19, 20), "p99_ms": (99, 100), "p999_ms": (999, 1000)}
_SUCCESS, _ERROR, _CANCELLED = range(3)


def of_recording(recording: Recording, *, title: str | None = None, source: str | None = None) -> Document:
    """Return the document of a recording, without timeline and icicle.

    Its nodes are the calls of nodes and the labelled blocks; their figures are exact, percentiles (nearest rank) too.
    """
    evidence = Evidence(recording)
    nodes, open_spans = nodes_of(evidence)
    sources = sources_of(recording)
    nodes = tuple(replace(node, source=sources.get(node.node_name)) for node in nodes)
    known: dict[str, Any] = {}
    for key, text in recording.facts.items():
        with suppress(ValueError):  # what a file of somebody else's says of itself
            known[key] = json.loads(text)
    own, distributed = known.get("cprofiling"), known.get("distributedInfo")
    own = own if isinstance(own, dict) else {}
    process = own.get("process")
    facts: dict[str, Cell] = {}
    if isinstance(process, dict) and "host" in process and "pid" in process:
        facts["process"] = f"{process['host']}, pid {process['pid']}"
        starts = recording.column("start_ns")
        if starts and 0 <= min(starts) < _LATEST_NS:
            started = datetime.fromtimestamp(min(starts) // 10**9, timezone.utc)
            facts["started"] = f"{started:%Y-%m-%d %H:%M:%S} UTC"
    facts |= _program(own.get("program"))
    if isinstance(distributed, dict) and isinstance(distributed.get("world_size"), int):
        facts |= {key: distributed[key] for key in ("rank", "world_size") if isinstance(distributed.get(key), int)}
    clock = own.get("clock")
    clock = clock if isinstance(clock, str) else None
    reasons: tuple[str, ...] = ()
    if open_spans:
        reasons = (f"{open_spans} spans were cut off by a pause or the end of the recording, and are no samples",)
    found = tuple(
        Finding(each.kind, each.title, each.text, each.advice, each.share, dict(each.figures))
        for each in findings(evidence)
    )
    sections = {"averages": _averages(recording)}
    if evidence.nodes:
        by_frame = frames.RecordedFrames(evidence)
        sections |= sections_of(
            warm_up=warm_up.of_recording(evidence),
            gaps=gaps.of_frames(by_frame),
            what_if=what_if.of_frames(by_frame, most=MOST_ROWS),
            frames=frames.of_frames(by_frame),
        )
    if DEVICE in set(column(recording, "kind")):
        sections["kernels"] = _section("Kernels", kernel_breakdown(recording))
        sections["copies"] = _section("Copies", copy_breakdown(recording))
        sections["idle_times"] = _section("Idle time of streams", idle_times(recording))
    return Document(
        title or "Recording",
        "recording",
        nodes,
        Measurement(clock=clock, dropped=recording.dropped, reasons=reasons),
        source,
        facts,
        {name: section for name, section in sections.items() if section.rows},
        findings=found,
    )


def _program(told: Any) -> dict[str, Cell]:
    """Return a program's command, and its versions of Python and packages."""
    if not isinstance(told, dict):
        return {}
    facts: dict[str, Cell] = {name: told[name] for name in ("command", "python") if isinstance(told.get(name), str)}
    packages = told.get("packages")
    if isinstance(packages, dict) and packages:
        facts["packages"] = ", ".join(f"{name} {version}" for name, version in packages.items())
    return facts


def with_pictures(document: Document, recording: Recording) -> Document:
    """Return the document of a recording with its timeline and icicle."""
    return replace(document, timeline=timeline(recording), icicle=icicle(recording))


def nodes_of(evidence: Evidence, skip_first_n: int = 0) -> tuple[tuple[Node, ...], int]:
    """Return the nodes by their first end, and the count of open spans.

    skip_first_n: how many successful calls of each are left out, the first.
    """
    recording, names, starts, ends = evidence.recording, evidence.names, evidence.starts, evidence.ends
    stages, outcomes, flags, suspended = (
        column(recording, name).tolist() for name in ("stage", "outcome", "flags", "suspended_ns")
    )
    rows = [row for row, kind in enumerate(evidence.kinds) if kind <= RECORD]
    own = self_times(recording, evidence.tree.only(rows)) if rows else []
    rows_by_node = grouped(sorted(rows, key=ends.__getitem__), lambda row: (stages[row], names[row]))
    nodes = []
    open_spans = 0
    for (stage, name), all_rows in rows_by_node.items():
        finished = [row for row in all_rows if not flags[row] & (UNFINISHED | CUT)]
        open_spans += len(all_rows) - len(finished)
        ended = Counter(map(outcomes.__getitem__, finished))
        samples = [row for row in finished if outcomes[row] == _SUCCESS][skip_first_n:]
        times = [ends[row] - starts[row] for row in samples]
        node = Node(
            recording.strings[name],
            recording.strings[stage] if stage else "",
            count=len(times),
            error_count=ended[_ERROR],
            cancelled_count=ended[_CANCELLED],
            skipped_count=ended[_SUCCESS] - len(times),
            unknown={"mean_ms": "no call has succeeded"},
        )
        if times:
            active = [ends[row] - starts[row] - max(suspended[row], 0) for row in samples if flags[row] & SUSPENDABLE]
            ranked = sorted(times)
            count, total = len(times), sum(times)
            squares = sum(time * time for time in times)
            figures_ns: dict[str, Any] = {
                "mean_ms": total / count,
                "median_ms": (ranked[(count - 1) // 2] + ranked[count // 2]) / 2,
                "std_ms": math.sqrt(max(count * squares - total * total, 0)) / count,
                "min_ms": ranked[0],
                "max_ms": ranked[-1],
                "total_ms": total,
                "last_ms": times[-1],
                "first_ms": times[0],
                "self_total_ms": sum(map(own.__getitem__, samples)),
                **{key: ranked[max(-(-count * part // whole), 1) - 1] for key, (part, whole) in _QUANTILES.items()},
                **({"active_total_ms": sum(active)} if active else {}),
            }
            node = replace(
                node,
                histogram=histogram_of(times),
                unknown={} if active else {"active_total_ms": "it is no coroutine or generator"},
                **{name: time_ns / _NS_PER_MS for name, time_ns in figures_ns.items()},
            )
        nodes.append(node)
    return tuple(nodes), open_spans


def _averages(recording: Recording) -> Section:
    averages = key_averages(recording)
    has_device = DEVICE in set(column(recording, "kind"))
    by = "self_device_time_total" if has_device else "self_cpu_time_total"
    ranked = sorted(averages, key=lambda each: getattr(each, by), reverse=True)
    columns = [
        Column("name", "Name"),
        Column("count", "Calls", "count"),
        Column("self_host_us", "Self host", "us", "time in which it was the innermost on its thread"),
        Column("host_us", "Host", "us", "time on the host, calls inside included"),
    ]
    if has_device:
        columns += [
            Column("self_device_us", "Self device", "us", "work of devices that was started in it itself"),
            Column("device_us", "Device", "us", "work of devices that was started in it, or in calls inside"),
        ]
    figures = ("key", "count", "self_cpu_time_total", "cpu_time_total", "self_device_time_total", "device_time_total")
    rows = tuple(tuple(getattr(each, name) for name in figures[: len(columns)]) for each in ranked[:MOST_ROWS])
    return Section("Averages by name", tuple(columns), rows, more_rows(len(ranked)))


def _section(title: str, figures: Figures[Any]) -> Section:
    """Return figures of a report as a section."""
    rows = figures.rows()
    titles = [(name, *titled(name)) for name in figures.columns]
    texts = [any(isinstance(row[at], str) for row in rows) for at in range(len(titles))]
    columns = tuple(
        Column(name, title, "text" if is_text else unit)
        for (name, title, unit), is_text in zip(titles, texts, strict=True)
    )
    shown = tuple(
        tuple(value if value is None or isinstance(value, (str, int, float)) else str(value) for value in row)
        for row in rows[:MOST_ROWS]
    )
    return Section(title, columns, shown, (*figures.notes, *more_rows(len(rows))))


def icicle(recording: Recording) -> tuple[IcicleNode, ...]:
    """Return the tree of calls on the host, with host self times.

    Calls of a name below the same callers are one, on whichever thread they ran. Callees that have less than 1/4000 of
    all time are one, named ``(smaller ones)``, with everything inside; a call inside more than 100 others counts for
    the last of these. Callers are before their callees, of the same caller the longest first.
    """
    names, parents, self_ns, counts = _merged_calls(recording)
    totals = sum_up(self_ns, parents)
    least = sum(self_ns) / _SMALLEST
    callees: dict[int, list[int]] = {}
    for place, parent in enumerate(parents):
        callees.setdefault(parent, []).append(place)
    strings = recording.strings
    shown: list[IcicleNode] = []
    waiting: list[tuple[list[int], int]] = [([-1], -1)]  # places that are shown as one, and below which
    while waiting:
        places, at = waiting.pop()
        if places != [-1]:
            name = strings[names[places[0]]] if len(places) == 1 else OTHERS
            total_ms = sum(totals[place] for place in places) / _NS_PER_MS
            self_ms = self_ns[places[0]] / _NS_PER_MS if len(places) == 1 else total_ms
            shown.append(IcicleNode(name, at, self_ms, total_ms, sum(counts[place] for place in places)))
            at = len(shown) - 1
        if len(places) == 1:
            below = sorted(callees.get(places[0], ()), key=lambda place: totals[place])
            small = [place for place in below if totals[place] < least]
            waiting += [(small, at)] if small else []
            waiting += [([place], at) for place in below[len(small) :]]
    return tuple(shown)


def _merged_calls(recording: Recording) -> tuple[list[int], list[int], list[int], list[int]]:
    """Return names, parents, self times in ns and counts of merged calls."""
    host = host_tree(recording)
    times, names = self_times(recording, host), column(recording, "name")
    shown: tuple[list[int], list[int], list[int], list[int]] = ([], [], [], [])
    depths: list[int] = []
    known: dict[tuple[int, int], int] = {}
    places: dict[int, int] = {}
    for row, parent in enumerate(host.parents):
        if parent == -2:
            continue
        place = around = places.get(parent, -1)
        is_too_deep = around >= 0 and depths[around] + 1 >= _MOST_DEPTH
        if not is_too_deep:
            place = known.setdefault((around, names[row]), len(depths))
        if place == len(depths):
            depths.append(depths[around] + 1 if around >= 0 else 0)
            for values, first in zip(shown, (names[row], around, 0, 0), strict=True):
                values.append(first)
        places[row] = place
        shown[2][place] += times[row]
        shown[3][place] += not is_too_deep
    return shown
