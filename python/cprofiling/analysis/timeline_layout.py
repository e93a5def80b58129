"""A recording laid out in lanes of boxes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cprofiling._internal.row_kinds import COUNTER, DEVICE, INSTANT
from cprofiling._internal.text import counted, shown_text
from cprofiling.recording.columns import column, grouped
from cprofiling.recording.tree import host_tree, self_times

if TYPE_CHECKING:
    from typing import Any

    from cprofiling.recording.result import Recording

COLUMNS = 2000  # that a picture is wide: what is finer is drawn together
_MOST_LANES = 32
_MOST_LEVELS = 8


@dataclass
class Box:
    """A span, or neighbours finer than a column."""

    name: str
    start_ns: int
    end_ns: int
    is_merged: bool = False


@dataclass
class Lane:
    """The boxes of a thread or stream, nested ones on further levels."""

    title: str
    levels: list[list[Box]] = field(default_factory=list)

    @property
    def depth(self) -> int:
        """How many levels there are."""
        return len(self.levels)


@dataclass
class Timeline:
    """All lanes, those that begin first above.

    Attributes:
        start_ns: When the first event begins; ``end_ns``: when the last one ends.
        names: Of what there is, that with the most time of its own first.
        notes: What is not drawn as it is, in words.
    """

    start_ns: int
    end_ns: int
    lanes: list[Lane]
    names: list[str]
    notes: list[str]

    @property
    def height(self) -> int:
        """The levels of all lanes."""
        return sum(lane.depth for lane in self.lanes)


def timeline_of(recording: Recording) -> Timeline:
    """Lay a recording out."""
    kinds, starts, ends = (column(recording, name) for name in ("kind", "start_ns", "end_ns"))
    rows = [row for row, kind in enumerate(kinds) if kind not in (INSTANT, COUNTER)]
    if not rows:
        return Timeline(0, 0, [], [], [])
    start_ns, end_ns = min(starts[row] for row in rows), max(ends[row] for row in rows)
    tracks = column(recording, "track")
    of_track = grouped(rows, tracks.__getitem__)
    shown = sorted(of_track, key=lambda track: -len(of_track[track]))[:_MOST_LANES]
    layout = _Layout(recording, max((end_ns - start_ns) // COLUMNS, 1))
    lanes = [
        layout.lane(track, of_track[track]) for track in sorted(shown, key=lambda track: starts[of_track[track][0]])
    ]
    notes = layout.notes()
    if len(of_track) > len(shown):
        notes.append(f"{counted(len(of_track) - len(shown), 'thread')} with fewer events not drawn")
    own, names = self_times(recording, host_tree(recording, merging=False)), column(recording, "name")
    times: Counter[int] = Counter()
    for row in rows:
        times[names[row]] += ends[row] - starts[row] if kinds[row] == DEVICE else max(own[row], 0)
    ranked = [recording.strings[name] for name, _ in times.most_common()]
    return Timeline(start_ns, end_ns, lanes, ranked, notes)


class _Layout:
    """The layout of rows on levels, fine ones merged."""

    def __init__(self, recording: Recording, finest_ns: int) -> None:
        self._recording = recording
        self._strings = recording.strings
        self._finest_ns = finest_ns
        self._columns: list[Any] = [
            column(recording, name) for name in ("name", "start_ns", "end_ns", "parent", "track")
        ]
        self._merged = 0
        self._too_deep = 0

    def lane(self, track: int, rows: list[int]) -> Lane:
        """Return the lane of a track's rows, which are sorted by start."""
        lane = Lane(self._title(track))
        level_of: dict[int, int] = {}
        busy_until: list[int] = []
        names, starts, ends, parents, _ = self._columns
        for row in rows:
            level = level_of.get(parents[row], -1) + 1
            while level < len(busy_until) and busy_until[level] > starts[row]:
                level += 1
            level_of[row] = level
            busy_until += [0] * (level + 1 - len(busy_until))
            busy_until[level] = ends[row]
            if level >= _MOST_LEVELS:
                self._too_deep += 1
                continue
            lane.levels += [[] for _ in range(level + 1 - lane.depth)]
            self._put(lane.levels[level], self._strings[names[row]], starts[row], ends[row])
        return lane

    def _put(self, boxes: list[Box], name: str, start_ns: int, end_ns: int) -> None:
        is_fine = end_ns - start_ns < self._finest_ns
        last = boxes[-1] if boxes else None
        is_near = last is not None and start_ns - last.end_ns < self._finest_ns
        if last is not None and is_fine and is_near and last.end_ns - last.start_ns < self._finest_ns:
            self._merged += 1 if last.is_merged else 2
            last.end_ns, last.is_merged = max(last.end_ns, end_ns), True
        else:
            boxes.append(Box(name, start_ns, end_ns))

    def _title(self, track: int) -> str:
        pid, tid, pid_text, tid_text, process, _, thread, *_ = self._recording.tracks[track]
        title = shown_text("thread", thread or tid_text or f"thread {tid}")
        processes = {(each[0], each[2]) for each in self._recording.tracks}
        return f"{shown_text('process', process or pid_text or str(pid))} {title}" if len(processes) > 1 else title

    def notes(self) -> list[str]:
        """Say what is not drawn as it is."""
        notes = []
        if self._merged:
            notes.append(f"{counted(self._merged, 'span')} finer than 1/{COLUMNS} of the width drawn together")
        if self._too_deep:
            notes.append(f"{counted(self._too_deep, 'span')} nested deeper than {_MOST_LEVELS} not drawn")
        return notes
