"""The report as one HTML page that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import sys
import zlib
from collections.abc import Sequence
from functools import cache
from itertools import groupby
from operator import add, attrgetter
from typing import Any

import cprofiling
from cprofiling._internal.optional import imported
from cprofiling._internal.report_format import Format
from cprofiling._internal.row_kinds import KINDS, OUTCOMES
from cprofiling._internal.text import counted, format_time, shown_text
from cprofiling.nodes.summary_table import NO_DATA
from cprofiling.recording import intervals
from cprofiling.report.against import SECTION
from cprofiling.report.document import Document, IcicleNode, Span, Timeline
from cprofiling.report.html import figures
from cprofiling.report.html.figures import Heading, Table
from cprofiling.report.tables import facts, measurement_facts

_FOLDER = os.path.dirname(__file__)
_NOT_TOLD = "not known"
_SHARE = re.compile(r"\d %")
_SPAN_OUTCOMES = (*OUTCOMES, "unfinished")
_PROGRAM = {"started": "", "command": "", "process": "", "python": "Python ", "packages": ""}  # facts
_LISTED = 60  # places of a tree that are listed as text
_LEAST_SHARE = 0.005
_MOST_TRACES, _MOST_ARGUMENTS = 500_000, 2_000_000  # characters: a page of 100,000 spans has 2 MB, or 4 with these
_DIGIT = "".join(map(chr, range(48, 48 + 64)))
_NO_NODES = "No node and no labelled block was recorded."


class Html(Format):
    """A page that needs nothing else."""

    suffixes = (".html", ".htm")
    compares = True

    def render(self, view: Any) -> str:
        """Return the page."""
        return render(view.compared, against=None if view.against is None else view.against.document)


def render(document: Document, against: Document | None = None) -> str:
    """Return a report as an HTML page.

    The page is one file that asks nothing of the network: a policy in it forbids that, and any script but its own.
    Names are data: each is shown as in the other reports, with control characters and surrogates as escapes. Without
    scripts its tables are still there.

    Args:
        document: The run to show.
        against: Another run, which is shown beside it: the differences of each node, both timelines, and how both were
            measured.

    Raises ImportError, naming the extra, without Jinja2.
    """
    runs = [document] if against is None else [document, against]
    titles = ["this run", "the other run"]
    for names in ([run.title for run in runs], [os.path.basename(run.source or "") for run in runs]):
        if len(set(names)) == len(runs) and all(names):
            titles = [shown_text("title", name) for name in names]
            break
    tables = {"nodes": figures.node_table(document)}
    if against is not None:
        tables["comparison"] = figures.comparison_table(document, against)
    sections = [section for name, section in document.sections.items() if against is None or name != SECTION]
    for number, section in enumerate(sections):
        name = f"section-{number}"
        tables[name] = figures.section_table(name, section)
    parts = [_part(number, run) for number, run in enumerate(runs)]
    all_tables = [*tables.values(), *(table for part in parts for table in part["tables"])]
    script, style = _text("report.js"), _text("report.css")
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    html: str = _template().render(
        title=shown_text("title", document.title),
        titles=titles,
        kind=document.kind,
        sources=[shown_text("source", run.source) if run.source else "" for run in runs],
        is_named_by_file=bool(titles[1:]) and titles[1] == os.path.basename(runs[-1].source or ""),
        program=_program(document) if against is None else [],
        tiles=_tiles(runs),
        findings=[
            {
                **{name: shown_text(name, getattr(found, name)) for name in ("title", "text", "advice")},
                "share": "" if _SHARE.search(found.title) else f"{100 * found.share:.0f}",  # one is enough
            }
            for found in document.findings
        ],
        comparison=tables.get("comparison"),
        nodes=tables["nodes"],
        sections=[table for name, table in tables.items() if name.startswith("section-")],
        parts=parts,
        axis=figures.axis_of(document.nodes),
        measured=_measured(runs),
        reasons=[
            (name, [shown_text("reason", reason) for reason in run.measurement.reasons])
            for name, run in zip(titles, runs, strict=True)
            if run.measurement.reasons
        ],
        made_by=f"cprofiling {getattr(cprofiling, '__version__', '')}".rstrip(),
        nothing=_NO_NODES if document.kind == "recording" else NO_DATA,
        data={
            "tables": {table.name: table.layout() for table in all_tables},
            "figures": _compressed({table.name: table.figures() for table in all_tables}),
            "runs": [_compressed(part["data"]) for part in parts],
        },
        style=style,
        script=script,
        policy=f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; img-src data:; "
        "base-uri 'none'; form-action 'none'",  # no script and no style but these
    )
    return html


def _part(number: int, run: Document) -> dict[str, Any]:
    """Return the timeline and icicle of a run, in words and for the script."""
    names: dict[str, int] = {}  # with their numbers
    part: dict[str, Any] = {"number": number, "tables": [], "timeline": None, "icicle": None}
    data: dict[str, Any] = {}
    if run.timeline is not None and run.timeline.spans:
        data["timeline"], table, notes = _timeline(run.timeline, f"tracks-{number}", names)
        sources = {node.node_name: node.source for node in run.nodes if node.source is not None}
        data["sources"] = {names[name]: shown_text("source", sources[name]) for name in names.keys() & sources.keys()}
        part["timeline"] = {"table": table, "notes": notes}
        part["tables"].append(table)
    if run.icicle:
        data["icicle"], table = _icicle(run.icicle, f"tree-{number}", names)
        part["icicle"] = {"table": table}
        part["tables"].append(table)
    part["data"] = {"names": [shown_text("name", name) for name in names], **data}
    return part


def _program(document: Document) -> list[str]:
    """Return when, where and how the program ran, as far as it is known."""
    known = facts(document)
    texts = [f"{label}{known[name]}" for name, label in _PROGRAM.items() if name in known]
    tracks = [track for track in document.timeline.tracks if track.device is None] if document.timeline else []
    if tracks:
        processes = len({(track.rank, track.pid) for track in tracks})
        texts.append(f"{counted(len(tracks), 'thread')} of {counted(processes, 'process', 'processes')}")
    return texts


def _tiles(runs: Sequence[Document]) -> list[tuple[str, list[str]]]:
    """Return the labels of the figures on top, with the text of each run."""
    shown = []
    for run in runs:
        stages = {node.stage for node in run.nodes if node.stage}
        named = f"{len({node.node_name for node in run.nodes}):,}"
        if len(stages) > 1:
            named = f"{named} in {counted(len(stages), 'stage')}"
        tiles = {"Nodes": named, "Calls": f"{sum(node.count or 0 for node in run.nodes):,}"}
        if run.nodes:
            tiles["Time in nodes"] = format_time(sum(map(figures.own_ms, run.nodes)))
        if run.timeline is not None and run.timeline.spans:
            tiles["Recorded"] = format_time(run.timeline.duration_ns / 1e6)
        for label, name in (("Errors", "error_count"), ("Cancelled", "cancelled_count"), ("Skipped", "skipped_count")):
            count = sum(getattr(node, name) for node in run.nodes)
            if count:
                tiles[label] = f"{count:,}"
        if run.measurement.dropped:
            tiles["Dropped"] = f"{run.measurement.dropped:,}"
        shown.append(tiles)
    labels = dict.fromkeys(label for tiles in shown for label in tiles)
    return [(label, [tiles.get(label, "0") for tiles in shown]) for label in labels]


def _measured(runs: Sequence[Document]) -> list[tuple[str, list[str]]]:
    """Return how the runs were measured, a label with the text of each run."""
    measured = []
    for run in runs:
        known = measurement_facts(run).items()
        told = {label: _NOT_TOLD if text is None else text for label, text in known if text != ""}
        measured.append({**told, **facts(run)})
    labels = dict.fromkeys(label for each in measured for label in each)
    return [(label, [each.get(label, "") for each in measured]) for label in labels]


@cache
def _text(name: str) -> str:
    with open(os.path.join(_FOLDER, name), encoding="utf-8", newline="\n") as file:
        return file.read()


@cache
def _template() -> Any:
    jinja2 = imported("jinja2", install="cprofiling[report]")
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return environment.from_string(_text("report.html.j2"))


# ---- Timelines and icicles


def _timeline(timeline: Timeline, name: str, names: dict[str, int]) -> tuple[dict[str, Any], Table, list[str]]:
    """Return a timeline as lists, track by track, the table of its tracks, and notes."""
    headings = [
        Heading("Process or device", "text"),
        Heading("Thread or stream", "text"),
        Heading("Spans", "count", "how many, each counted"),
        Heading("Busy", "time", "time in which any of them ran"),
        Heading("Share", "share", "part of the time of the recording in which any of them ran"),
    ]
    table = Table(name, "Threads and streams", headings)
    tracks = []
    spans_by_track = {place: list(spans) for place, spans in groupby(timeline.spans, attrgetter("track"))}
    for place, track in enumerate(timeline.tracks):
        spans = spans_by_track.get(place)
        columns = zip(*spans, strict=True) if spans else [()] * len(Span._fields)
        _, texts, starts, times, depths, kinds, outcomes, counts, *_ = columns
        process, thread = shown_text("process", track.process), shown_text("thread", track.thread)
        if track.rank is not None and not process.startswith(f"rank {track.rank}:"):
            process = f"rank {track.rank}: {process}"
        is_named = shown_text("process", str(track.pid)) == track.process or track.device is not None
        if isinstance(track.pid, int) and not is_named:
            process = f"{process} (pid {track.pid})"
        tracks.append({
            "process": process,
            "thread": thread,
            "gap": _digits(_gaps(starts, times, depths)),
            "time": _digits(times),
            "depth": _short(depths),
            "name": _digits([names.setdefault(text, len(names)) for text in texts]),
            "kind": _short(list(map(KINDS.index, kinds))),
            "outcome": _short(list(map(_SPAN_OUTCOMES.index, outcomes))),
            "count": _short(counts),
        })  # fmt: skip
        busy_ns = intervals.length(intervals.union(zip(starts, map(add, starts, times), strict=True)))
        share = busy_ns / timeline.duration_ns if timeline.duration_ns else None
        table.add([process, thread, sum(counts), busy_ns / 1e6, share])
    shown = sum(span.count for span in timeline.spans)
    places = counted(len(tracks), "thread or stream", "threads and streams")
    notes = [f"{counted(shown, 'span')} on {places} in {format_time(timeline.duration_ns / 1e6)}."]
    if timeline.aggregated_below_ns:
        marks = [span.count for span in timeline.spans if span.count > 1]
        notes.append(
            f"Aggregated: {counted(sum(marks), 'span')}, each shorter than "
            f"{format_time(timeline.aggregated_below_ns / 1e6)}, are kept as {counted(len(marks), 'mark')} with their "
            f"neighbours, also when zoomed in; a mark has the name that took most of its time, by which it is found."
        )
    missing = timeline.total_spans - shown
    if missing:
        notes.append(f"Not drawn: {counted(missing, 'span')}, deep inside others or on further threads.")
    stages = {stage: shown_text("stage", stage) for stage in {span.stage for span in timeline.spans}}
    longest = sorted(range(len(timeline.spans)), key=lambda place: -timeline.spans[place].duration_ns)
    details = [_packed([stages[span.stage] for span in timeline.spans], longest)[0]]
    for what, of_each, most, cut in (
        ("trace", [span.trace_id for span in timeline.spans], _MOST_TRACES, 16),  # many traces have one first half
        ("arguments", [span.arguments for span in timeline.spans], _MOST_ARGUMENTS, 0),
    ):
        packed, left_out = _packed(of_each, longest, most, cut)
        details.append(packed)
        if left_out:
            notes.append(f"Without {what}: {counted(left_out, 'short span')}, as a page has no room for more.")
    data = {"time": timeline.duration_ns, "below": timeline.aggregated_below_ns, "tracks": tracks, "details": details}
    return data, table, notes


def _packed(texts: list[str | None], longest: list[int], most: int = sys.maxsize, cut: int = 0) -> tuple[str, int]:
    """Return the texts of spans, compressed to so many characters, and how many have no room.

    Those of the longest spans are kept; longest: places of all, longest first. cut: how much of each text is in
    the list; its last one joins the rests.
    """
    kept = [place for place in longest if texts[place] is not None]
    left_out = 0
    while True:
        rests = ["".join(text[cut:] for text in texts if text)] if cut else []
        packed = _compressed([*(text and text[: cut or None] for text in texts), *rests])
        if len(packed) <= most or not kept:
            return packed, left_out
        room = len(kept) * most // len(packed)
        left_out += len(kept) - room
        for place in kept[room:]:
            texts[place] = None
        del kept[room:]


def _compressed(value: Any) -> str:
    """Return a value as JSON, by zlib and base64."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode())).decode()


def _gaps(starts: Sequence[int], times: Sequence[int], depths: Sequence[int]) -> list[int]:
    """Return how long after the last span beside or around it each starts, twice; one less where it is before.

    So the numbers are small, and none is negative.
    """
    gaps, begun, ended = [], [0] * (max(depths, default=0) + 2), [0] * (max(depths, default=0) + 2)
    for start, time, depth in zip(starts, times, depths, strict=True):
        gap = start - max(begun[depth], ended[depth])
        gaps.append(2 * gap if gap >= 0 else -2 * gap - 1)
        begun[depth + 1], ended[depth] = start, start + time
    return gaps


def _digits(values: Sequence[int]) -> list[str]:
    """Return the digits of numbers to base 64, the lowest of all, then the next: they compress well so."""
    digits: list[str] = []
    while not digits or any(values):
        digits.append("".join([_DIGIT[value & 63] for value in values]))
        values = [value >> 6 for value in values]
    return digits


def _short(values: Sequence[int]) -> Sequence[int] | int:
    """Return the values, or, where all are the same, that one."""
    return values[0] if values and values.count(values[0]) == len(values) else values


def _icicle(icicle: Sequence[IcicleNode], name: str, names: dict[str, int]) -> tuple[dict[str, Any], Table]:
    """Return a tree as lists, with times in whole ns, and the table of its largest places."""
    headings = [
        Heading("Frame", "text", "names inside each other are indented"),
        Heading("Calls", "count"),
        Heading("Self", "time", "time on the host without anything inside, operators among it"),
        Heading("Total", "time", "that, and the time of all that is inside"),
        Heading("Share", "share", "part of the time of the whole tree"),
    ]
    table = Table(name, "Call tree", headings)
    whole_ms = sum(place.self_ms for place in icicle)
    depths: list[int] = []
    for place in icicle:
        depths.append(depths[place.parent] + 1 if place.parent >= 0 else 0)
        share = place.total_ms / whole_ms if whole_ms else 0.0
        if share >= _LEAST_SHARE and len(table.rows) < _LISTED:
            indented = "\N{NO-BREAK SPACE}" * 3 * depths[-1] + shown_text("name", place.name)
            table.add([indented, place.count, place.self_ms, place.total_ms, share])
    hidden = len(icicle) - len(table.rows)
    if hidden:
        table.notes.append(f"{counted(hidden, 'smaller frame is', 'smaller frames are')} not listed.")
    data = {
        "name": [names.setdefault(place.name, len(names)) for place in icicle],
        "parent": [place.parent for place in icicle],
        "self": [round(place.self_ms * 1e6) for place in icicle],
        "total": [round(place.total_ms * 1e6) for place in icicle],
        "count": [place.count for place in icicle],
    }
    return data, table
