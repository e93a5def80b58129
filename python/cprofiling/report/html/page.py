"""Timelines and icicles for the script of a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cprofiling._internal.row_kinds import KINDS, OUTCOMES
from cprofiling._internal.text import counted, format_time, shown_text
from cprofiling.recording import intervals
from cprofiling.report.document import IcicleNode, Span, Timeline, Track
from cprofiling.report.html.figures import Heading, Table

_OUTCOMES = (*OUTCOMES, "unfinished")
_LISTED = 60  # places of a tree that are listed as text
_LEAST_SHARE = 0.005


class Names:
    """The names of a run, each known by a number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self.shown: list[str] = []

    def number(self, name: str) -> int:
        """Return the number of a name."""
        found = self._numbers.setdefault(name, len(self.shown))
        if found == len(self.shown):
            self.shown.append(shown_text("name", name))
        return found


def timeline_data(timeline: Timeline, names: Names) -> dict[str, Any]:
    """Return a timeline as lists, track by track."""
    tracks = []
    for track, spans in zip(timeline.tracks, spans_of(timeline), strict=True):
        starts = [span.start_ns for span in spans]
        tracks.append({
            "process": process_text(track),
            "thread": shown_text("thread", track.thread),
            "start": [after - before for before, after in zip([0, *starts], starts, strict=False)],
            "time": [span.duration_ns for span in spans],
            "depth": _short([span.depth for span in spans]),
            "name": _short([names.number(span.name) for span in spans]),
            "kind": _short([KINDS.index(span.kind) for span in spans]),
            "outcome": _short([_OUTCOMES.index(span.outcome) for span in spans]),
            "count": _short([span.count for span in spans]),
        })  # fmt: skip
    return {"time": timeline.duration_ns, "tracks": tracks}


def icicle_data(icicle: Sequence[IcicleNode], names: Names) -> dict[str, Any]:
    """Return a tree as lists, with times in whole ns."""
    return {
        "name": [names.number(place.name) for place in icicle],
        "parent": [place.parent for place in icicle],
        "self": [round(place.self_ms * 1e6) for place in icicle],
        "total": [round(place.total_ms * 1e6) for place in icicle],
        "count": [place.count for place in icicle],
    }


def _short(values: list[int]) -> list[int] | int:
    """Return a list, or, where all are the same, that one."""
    return values[0] if values and values.count(values[0]) == len(values) else values


def spans_of(timeline: Timeline) -> list[list[Span]]:
    """Return the spans of each track, by their start."""
    found: list[list[Span]] = [[] for _ in timeline.tracks]
    for span in timeline.spans:
        found[span.track].append(span)
    return [sorted(spans, key=lambda span: span.start_ns) for spans in found]


def process_text(track: Track) -> str:
    """Return what stands above the tracks of a process."""
    shown = shown_text("process", track.process)
    if track.rank is not None and not shown.startswith(f"rank {track.rank}:"):
        shown = f"rank {track.rank}: {shown}"
    is_named = shown_text("process", str(track.pid)) == track.process or track.device is not None
    return shown if is_named or not isinstance(track.pid, int) else f"{shown} (pid {track.pid})"


def track_table(timeline: Timeline, name: str) -> Table:
    """Return the tracks of a timeline, in words."""
    headings = [
        Heading("Process or device", "text"),
        Heading("Thread or stream", "text"),
        Heading("Spans", "count", "how many, each counted"),
        Heading("Busy", "time", "time in which any of them ran"),
        Heading("Share", "share", "part of the time of the recording in which any of them ran"),
    ]
    table = Table(name, "Threads and streams", headings)
    for track, spans in zip(timeline.tracks, spans_of(timeline), strict=True):
        busy = intervals.union((span.start_ns, span.start_ns + span.duration_ns) for span in spans)
        busy_ns = sum(end - start for start, end in busy)
        count = sum(span.count for span in spans)
        share = busy_ns / timeline.duration_ns if timeline.duration_ns else None
        table.add([process_text(track), track.thread, count, busy_ns / 1e6, share])
    return table


def icicle_table(icicle: Sequence[IcicleNode], name: str) -> Table:
    """Return the places with at least half a percent of the time, in words."""
    headings = [
        Heading("Where", "text", "names inside each other are indented"),
        Heading("Calls", "count"),
        Heading("Self host", "time", "time on the host without anything inside, operators among it"),
        Heading("Total", "time", "that, and the time of all that is inside"),
        Heading("Share", "share", "part of the time of the whole tree"),
    ]
    whole_ms = sum(place.self_ms for place in icicle)
    depths: list[int] = []
    for place in icicle:
        depths.append(depths[place.parent] + 1 if place.parent >= 0 else 0)
    table = Table(name, "Where the time went", headings)
    told = [at for at, place in enumerate(icicle) if whole_ms and place.total_ms / whole_ms >= _LEAST_SHARE]
    for at in told[:_LISTED]:
        place = icicle[at]
        indented = "\N{NO-BREAK SPACE}" * 3 * depths[at] + shown_text("name", place.name)
        table.add([indented, place.count, place.self_ms, place.total_ms, place.total_ms / whole_ms])
    hidden = len(icicle) - len(table.rows)
    if hidden:
        table.notes.append(f"{counted(hidden, 'smaller place is', 'smaller places are')} not listed.")
    return table


def timeline_notes(timeline: Timeline) -> list[str]:
    """Return notes on what a timeline shows, merges and leaves out."""
    shown = sum(span.count for span in timeline.spans)
    places = counted(len(timeline.tracks), "thread or stream", "threads and streams")
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
    return notes
