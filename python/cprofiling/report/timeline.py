"""The spans of a recording on its tracks, for drawing.

A span that is inside another is below it; where spans overlap without that, as those of tasks do, one of them is below
the other as well, so that no two of one depth overlap. A recording of very many spans is coarsened: short neighbours
become one span, which knows how many it stands for.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import repeat
from operator import attrgetter

from cprofiling._internal.row_kinds import COUNTER, DEVICE, KINDS, OUTCOMES, UNFINISHED
from cprofiling.recording.columns import Recording, column, has, texts_of, thread_number
from cprofiling.report.document import Span, Timeline, Track

_MOST_SPANS = 150_000  # a page of a few MB, which opens in a second
_MOST_TRACKS = 200  # as many as somebody may scroll through
_MOST_DEPTH = 64
_FINEST, _COARSEST = 22, 8  # the steps that are tried: the recording's time by 2 to that power
_WHOLE_RUN = "Trace"  # the category of torch.profiler's whole run, which is no span
_RANK = re.compile(r"rank (\d{1,9}): ")  # how merged traces name processes


class _Rows:
    """The rows drawn, with their columns and depths."""

    def __init__(self, recording: Recording, most_depth: int) -> None:
        self.most_depth = most_depth
        self.starts, self.ends, self.tracks, self.names, self.flags, self.outcomes, self.kinds, cats, parents = (
            column(recording, name).tolist()
            for name in ("start_ns", "end_ns", "track", "name", "flags", "outcome", "kind", "cat", "parent")
        )
        no_spans = texts_of(recording, _WHOLE_RUN)
        rows = zip(self.kinds, cats, strict=True)
        self.spans = [row for row, (kind, cat) in enumerate(rows) if kind != COUNTER and cat not in no_spans]
        self.stages, self.trace_highs, self.trace_lows = (
            column(recording, name) for name in ("stage", "trace_high", "trace_low")
        )
        self.arguments = recording.args if has(recording, "args_length") else lambda _: None
        self.busy: Counter[int] = Counter()  # of each track, the time in which anything ran
        self.depths = [-1] * len(recording)  # -1: not drawn
        self._place(parents)

    def _place(self, parents: Sequence[int]) -> None:
        """Give each row a depth below the row around it."""
        tracks, starts, depths = self.tracks, self.starts, self.depths
        done: dict[int, int] = {}
        taken: dict[int, list[int]] = {}  # of each track, up to when its depths are
        for row in self.spans:
            track, start, end, parent = tracks[row], starts[row], self.ends[row], parents[row]
            before = done.setdefault(track, start)
            if end >= before:
                self.busy[track] += end - (max(start, before))
                done[track] = end
            ends = taken.setdefault(track, [])
            depth = depths[parent] + 1 if 0 <= parent < row and tracks[parent] == track else 0
            while depth < len(ends) and ends[depth] > start:
                depth += 1
            if depth < self.most_depth:
                if depth >= len(ends):
                    ends += [start] * (depth + 1 - len(ends))
                ends[depth] = end
                depths[row] = depth

    def trace_id(self, row: int) -> str | None:
        """Return the trace of a row that is a span."""
        high, low = self.trace_highs[row], self.trace_lows[row]
        return f"{high:016x}{low:016x}" if high or low else None

    def cells(self, drawn: Sequence[int], step_ns: int) -> Iterator[tuple[int, int, int]]:
        """Yield each row, its lane, and its cell in a grid, or -1 if separate."""
        starts, ends, tracks, depths = self.starts, self.ends, self.tracks, self.depths
        for row in drawn:
            start = starts[row]
            cell = -1 if ends[row] - start >= step_ns else start // step_ns
            yield row, tracks[row] * self.most_depth + depths[row], cell


def timeline(
    recording: Recording,
    most: int = _MOST_SPANS,
    *,
    columns: int | None = None,
    most_tracks: int = _MOST_TRACKS,
    most_depth: int = _MOST_DEPTH,
) -> Timeline:
    """Return the spans of a recording on their tracks, with depths.

    Args:
        recording: A finished recording.
        most: About how many spans are kept each for itself, 1 or more. Of more, short ones become one with their
            neighbours: those shorter than ``aggregated_below_ns``.
        columns: How many columns a picture has, instead of ``most``: spans finer than one become one with neighbours.
        most_tracks: How many tracks are kept, those on which most time was spent.
        most_depth: Spans that are inside as many others are left out; ``total_spans`` counts them, too.
    """
    rows = _Rows(recording, most_depth)
    if not rows.spans:
        return Timeline(0, 0, (), (), 0)
    start_ns = rows.starts[rows.spans[0]]
    duration_ns = max(rows.ends[row] for row in rows.spans) - start_ns
    known, last = recording.tracks, float("inf")

    def in_order(track: int) -> tuple[float, int, float, int]:
        """Return the place of a track in trace viewers."""
        pid, tid, *_, process_sort, thread_sort, _ = known[track]
        return last if process_sort is None else process_sort, pid, last if thread_sort is None else thread_sort, tid

    shown = sorted((track for track, _ in rows.busy.most_common(most_tracks)), key=in_order)
    places = {track: place for place, track in enumerate(shown)}
    drawn = [row for row in rows.spans if rows.depths[row] >= 0 and rows.tracks[row] in places]
    step_ns = _step(rows, drawn, duration_ns, most) if columns is None else max(duration_ns // columns, 1)
    groups: list[list[int]] = []  # the rows that become one span each
    latest: dict[int, tuple[int, list[int]]] = {}
    for row, lane, cell in rows.cells(drawn, step_ns) if step_ns else ():
        before, group = latest.get(lane, (-1, []))
        if cell < 0 or before != cell:
            group = []
            groups.append(group)
            latest[lane] = cell, group
        group.append(row)
    strings = recording.strings
    spans = [_span(rows, group, places, start_ns, strings) for group in groups]
    if not step_ns:
        spans = _single_spans(rows, drawn, places, start_ns, strings)
    spans.sort(key=attrgetter("track"))  # and by their starts, as the rows are
    devices = {rows.tracks[row]: row for row in drawn if rows.kinds[row] == DEVICE}
    rank = _rank(recording)
    tracks = tuple(_track(recording, track, devices.get(track), rank) for track in shown)
    return Timeline(start_ns, duration_ns, tracks, tuple(spans), len(rows.spans), step_ns)


def _step(rows: _Rows, drawn: Sequence[int], duration_ns: int, most: int) -> int:
    """Return the least duration at which spans are kept separate."""
    if len(drawn) <= most:
        return 0
    for power in range(_FINEST, _COARSEST, -2):
        step_ns = max(duration_ns >> power, 1)
        latest: dict[int, int] = {}
        count = 0
        for _, lane, cell in rows.cells(drawn, step_ns):
            if cell < 0 or latest.get(lane) != cell:
                count += 1
            latest[lane] = cell
        if count <= most:
            return step_ns
    return max(duration_ns >> _COARSEST, 1)


def _single_spans(
    rows: _Rows, drawn: Sequence[int], places: dict[int, int], start_ns: int, strings: Sequence[str]
) -> list[Span]:
    """Return a span for each row, made column by column."""
    columns = (
        [places[rows.tracks[row]] for row in drawn],
        [strings[rows.names[row]] for row in drawn],
        [rows.starts[row] - start_ns for row in drawn],
        [rows.ends[row] - rows.starts[row] for row in drawn],
        [rows.depths[row] for row in drawn],
        [KINDS[rows.kinds[row]] for row in drawn],
        ["unfinished" if rows.flags[row] & UNFINISHED else OUTCOMES[rows.outcomes[row]] for row in drawn],
        repeat(1, len(drawn)),
        [strings[rows.stages[row]] for row in drawn],
        map(rows.trace_id, drawn),
        map(rows.arguments, drawn),
    )
    return list(map(partial(tuple.__new__, Span), zip(*columns, strict=True)))  # a third of the time of Span._make


def _span(rows: _Rows, group: Sequence[int], places: dict[int, int], start_ns: int, strings: Sequence[str]) -> Span:
    """Return one span for some rows, named after where most time went."""
    most = failed = first = group[0]
    last, flags, start = group[-1], rows.flags[first], rows.starts[first]
    if last != first:
        times: Counter[int] = Counter()
        for row in group:
            times[rows.names[row]] += rows.ends[row] - rows.starts[row]
            flags |= rows.flags[row]
        name = times.most_common(1)[0][0]
        most = next(row for row in group if rows.names[row] == name)
        failed = next((row for row in group if rows.outcomes[row]), first)
    return Span(
        places[rows.tracks[first]],
        strings[rows.names[most]],
        start - start_ns,
        rows.ends[last] - start,
        rows.depths[first],
        KINDS[rows.kinds[most]],
        "unfinished" if flags & UNFINISHED else OUTCOMES[rows.outcomes[failed]],
        len(group),
        strings[rows.stages[most]],
        *((rows.trace_id(first), rows.arguments(first)) if last == first else (None, None)),
    )


def _track(recording: Recording, number: int, device_row: int | None, rank: int | None) -> Track:
    """Return a thread or stream.

    device_row: a row of it, if it is of a device; rank: what the recording tells of all of it.
    """
    pid, tid, pid_text, tid_text, process, labels, thread, *_ = recording.tracks[number]
    named = [text.strip() for text in (process, labels) if text and text.strip()]
    told = _RANK.match(process or "")
    device = stream = None
    if device_row is not None:
        device, stream = (
            None if value == recording.none(name) else int(value)
            for name, value in ((name, column(recording, name)[device_row]) for name in ("device", "stream"))
        )
    return Track(
        process=", ".join(named) or str(pid if pid_text is None else pid_text),
        thread=(thread or "").strip() or str(thread_number(recording.tracks[number])),
        pid=pid if pid_text is None else pid_text,
        tid=tid if tid_text is None else tid_text,
        rank=int(told[1]) if told else rank,
        device=device,
        stream=stream,
    )


def _rank(recording: Recording) -> int | None:
    """Return the rank that a recording of one of several processes tells."""
    try:
        told = json.loads(recording.facts.get("distributedInfo", "null"))
    except ValueError:  # what a file of somebody else's says of itself
        return None
    rank, size = (told.get(name) if isinstance(told, dict) else None for name in ("rank", "world_size"))
    return rank if type(rank) is int and type(size) is int and size > 1 else None
