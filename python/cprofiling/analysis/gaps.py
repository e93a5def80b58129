"""Time inside frames without a node, by the nodes around it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from operator import itemgetter
from typing import TypeAlias

from cprofiling._internal.arguments import checked_count
from cprofiling._internal.quantiles import percentile
from cprofiling._internal.row_kinds import SUSPENDABLE
from cprofiling._internal.text import counted
from cprofiling.analysis.evidence import NS_PER_MS
from cprofiling.analysis.frames import RecordedFrames
from cprofiling.analysis.insight_table import Insight, figure
from cprofiling.recording import intervals
from cprofiling.recording.columns import column, grouped


@dataclass(frozen=True)
class GapFigures:
    """The gaps between two nodes, or None at an end of a frame.

    Attributes:
        row: The row after which the longest gap is: of the node before it, else of the frame.
    """

    previous: str | None = figure("After", tip="The node that ended last before the gap.", absent="(begin)")
    next: str | None = figure("Before", tip="The node that began after the gap.", absent="(end)")
    count: int = figure("Gaps", "count", "How many there are.")
    total_ms: float = figure("Total", "ms", "Their time.")
    p50_ms: float = figure("p50", "ms", "Their median.")
    max_ms: float = figure("Longest", "ms", "The longest.")
    share: float = figure("Share", "share", "Their part of the time of all frames.")
    elsewhere_ms: float | None = figure(
        "Nodes elsewhere", "ms", "The part of it in which nodes ran on other threads, if any did."
    )
    threads: int = figure("Threads", "count", "On how many threads they are.")
    row: int = -1


class Gaps(Insight[GapFigures]):
    """The gaps of a recording, those with the longest total first.

    Attributes:
        share: The part of the time of all frames in which no node ran, 0 to 1; None without any.
    """

    def __init__(self, figures: Iterable[GapFigures], notes: Iterable[str], share: float | None) -> None:
        """Make a table of figures with their share."""
        super().__init__(GapFigures, "Gaps between nodes", figures, notes)
        self.share = share


Gaps.__module__ = "cprofiling"


# Of two nodes, the gaps between them: start, end, track and the row before it.
_Pairs: TypeAlias = defaultdict[tuple[str | None, str | None], list[tuple[int, int, int, int]]]


def of_frames(found: RecordedFrames, least_ns: object = 0) -> Gaps:
    """Return the gaps in frames that are longer than ``least_ns``."""
    least = checked_count("least_ns", least_ns)
    whole, by_pair = _recorded_gaps(found, least)
    evidence = found.evidence
    on_tracks = grouped(evidence.outermost_nodes, evidence.tracks.__getitem__)
    tracks = {*on_tracks, *(evidence.tracks[row] for row in found.rows)}
    busy: dict[int, list[intervals.Interval]] = {}  # nodes on other threads, nothing for one thread
    for track in tracks if len(tracks) > 1 else ():
        busy[track] = evidence.times_of([row for other, some in on_tracks.items() if other != track for row in some])
    figures = []
    for (previous, following), some in by_pair.items():
        durations = [end - start for start, end, _, _ in some]
        times = sorted(durations)
        *_, row = some[durations.index(times[-1])]
        on_threads = grouped(some, itemgetter(2))
        elsewhere = sum(
            intervals.length(intervals.common(intervals.union((start, end) for start, end, *_ in of), busy[track]))
            for track, of in on_threads.items()
            if track in busy
        )
        figures.append(GapFigures(
            previous, following, len(some), sum(times) / NS_PER_MS,
            (percentile(times, 500) or 0) / NS_PER_MS, times[-1] / NS_PER_MS, sum(times) / whole,
            elsewhere / NS_PER_MS if busy else None, len(on_threads), row,
        ))  # fmt: skip
    figures.sort(key=lambda of: -of.total_ms)
    total = sum(of.total_ms for of in figures) * NS_PER_MS
    share = total / whole if whole else None
    in_ms = f"{whole / NS_PER_MS:,.1f} ms"
    if share is None:
        notes = ["The frames took no time." if found.rows else "No node was recorded."]
    elif found.rows:
        of_what = f"{counted(len(found.rows), 'frame')} ({found.basis})"
        notes = [f"In {100 * share:.1f} % of the {in_ms} of {of_what} no node ran on the frame's thread."]
    else:
        notes = [
            f"In {100 * share:.1f} % of the {in_ms} between the first and the last node of each thread no node ran.",
            f"What is between frames is in it, as frames are not known: {found.basis}.",
        ]
    if share is not None and any(flag & SUSPENDABLE for flag in set(column(evidence.recording, "flags"))):
        notes.append("Coroutines and generators count as running while they are suspended.")
    return Gaps(figures, [*notes, *found.notes()], share)


def _recorded_gaps(found: RecordedFrames, least: int) -> tuple[int, _Pairs]:
    """Return the time of frames, or of threads, and its longer gaps."""
    evidence = found.evidence
    starts, ends, tracks = evidence.starts, evidence.ends, evidence.tracks
    whole, by_pair = 0, _Pairs(list)
    if not found.rows:
        for rows in grouped(evidence.outermost_nodes, tracks.__getitem__).values():
            start, end = starts[rows[0]], max(map(ends.__getitem__, rows))
            whole += end - start
            _add_gaps(by_pair, found, least, rows, start, end, rows[0])
        return whole, by_pair
    inside: list[list[int]] = [[] for _ in found.rows]
    frames = set(found.rows)
    around = evidence.nodes_around
    places, parents = found.places, evidence.tree.parents
    for row, place in places.items():
        frame, parent = found.rows[place], parents[row]
        node = around[parent] if parent >= 0 else -1
        is_outermost = node < 0 or node == frame or places.get(node) != place
        if row not in frames and is_outermost and tracks[row] == tracks[frame]:
            inside[place].append(row)
    for frame, rows in zip(found.rows, inside, strict=True):
        whole += evidence.duration(frame)
        _add_gaps(by_pair, found, least, sorted(rows), starts[frame], ends[frame], frame)
    return whole, by_pair


def _add_gaps(
    by_pair: _Pairs, found: RecordedFrames, least: int, rows: list[int], start: int, end: int, frame: int
) -> None:
    """Add the gaps from a start to an end, between sorted nodes.

    Nodes may reach beyond the end.
    """
    evidence = found.evidence
    starts, ends, track = evidence.starts, evidence.ends, evidence.tracks[frame]
    previous, done, last = None, start, frame
    for row in rows:
        name = evidence.texts[row]
        begins = min(starts[row], end)
        if begins - done > least:
            by_pair[previous, name].append((done, begins, track, last))
        if ends[row] >= done:
            previous, done, last = name, ends[row], row
    if end - done > least:
        by_pair[previous, None].append((done, end, track, last))
