"""A recording with everything derived from it for findings."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from cprofiling._internal.row_kinds import HOST, NODE, RECORD, STEP
from cprofiling.recording import intervals
from cprofiling.recording.columns import (
    ANNOTATIONS,
    COPIES,
    OPERATORS,
    RUNTIME,
    STEP_PREFIX,
    Recording,
    column,
    texts_of,
)
from cprofiling.recording.intervals import Interval
from cprofiling.recording.tree import HostTree, device_owners, host_tree, nodes_around, self_times, work_rows

NS_PER_MS = 1e6


class Evidence:
    """A recording's columns, trees and times, each made at first use.

    Attributes:
        recording: The recording.
        strings: Its texts.
        starts, ends, tracks, names, cats, kinds: Its columns.
        texts: The name of each row.
    """

    def __init__(self, recording: Recording) -> None:
        """Look at a finished recording."""
        self.recording = recording
        self.strings = recording.strings
        self.starts, self.ends, self.tracks, self.names, self.cats, self.kinds = (
            column(recording, name).tolist() for name in ("start_ns", "end_ns", "track", "name", "cat", "kind")
        )
        self.texts = [self.strings[name] for name in self.names]

    def duration(self, row: int) -> int:
        """Return how long a row took, in ns."""
        return self.ends[row] - self.starts[row]

    def times_of(self, rows: list[int]) -> list[Interval]:
        """Return the time in which any of the rows was open."""
        return intervals.union([(self.starts[row], self.ends[row]) for row in rows])

    @cached_property
    def tree(self) -> HostTree:
        """The nesting of rows on the host, each row for itself."""
        return host_tree(self.recording, merging=False)

    @cached_property
    def host_self_times(self) -> list[int]:
        """The time of each row outside any row inside it, in ns."""
        return self_times(self.recording, self.tree)

    @cached_property
    def node_self_times(self) -> list[int]:
        """The time of each node's call in ns without nodes inside, else 0."""
        return self_times(self.recording, self.tree.only(self.nodes))

    @cached_property
    def host_rows(self) -> list[int]:
        """The rows of the tree."""
        return [row for row, parent in enumerate(self.tree.parents) if parent != -2]

    @cached_property
    def nodes_around(self) -> list[int]:
        """For each host row the innermost call of a node, or -1."""
        return nodes_around(self.recording, self.tree, {})

    @cached_property
    def nodes(self) -> list[int]:
        """The calls of nodes."""
        return [row for row, kind in enumerate(self.kinds) if kind == NODE]

    @cached_property
    def outermost_nodes(self) -> list[int]:
        """The calls of nodes that are in no other."""
        return self.tree.outermost(self.nodes)

    @cached_property
    def operators(self) -> list[int]:
        """The operators of a framework."""
        cats = texts_of(self.recording, *OPERATORS)
        return [row for row in self.host_rows if self.kinds[row] == HOST and self.cats[row] in cats]

    @cached_property
    def spans(self) -> set[int]:
        """The rows of the user's code, steps and Python frames included."""
        code = texts_of(self.recording, *ANNOTATIONS, "python_function")
        kinds, cats = self.kinds, self.cats
        return {row for row in self.host_rows if kinds[row] in (NODE, RECORD, STEP) or cats[row] in code}

    @cached_property
    def runtime(self) -> set[int]:
        """The numbers of the categories of a device's runtime."""
        return texts_of(self.recording, *RUNTIME)

    @cached_property
    def work(self) -> list[int]:
        """The work of devices."""
        return list(work_rows(self.recording))

    @cached_property
    def copies(self) -> list[int]:
        """The copies from, to and within devices."""
        cats = texts_of(self.recording, *COPIES)
        return [row for row in self.work if self.cats[row] in cats]

    @cached_property
    def owners(self) -> dict[int, int]:
        """For work of devices the row of the host that it was started for."""
        return device_owners(self.recording, self.tree)

    @cached_property
    def framework(self) -> set[int]:
        """The operators, launches, and the rows around them."""
        rows = {*self.operators, *self.owners.values()}
        return rows | self.around(rows)

    @cached_property
    def code(self) -> set[int]:
        """The rows named by the user, without steps."""
        annotations = texts_of(self.recording, *ANNOTATIONS)
        spans = self.spans.difference(self.steps)
        return {row for row in spans if self.kinds[row] in (NODE, RECORD) or self.cats[row] in annotations}

    @cached_property
    def steps(self) -> list[int]:
        """The steps."""
        names = {number for number, text in enumerate(self.strings) if text.startswith(STEP_PREFIX)}
        return [row for row in self.host_rows if self.kinds[row] == STEP or self.names[row] in names]

    @cached_property
    def window(self) -> Interval:
        """First begin and last end in ns, (0, 0) if nothing ran."""
        rows = [*self.host_rows, *self.work]
        return min(map(self.starts.__getitem__, rows), default=0), max(map(self.ends.__getitem__, rows), default=0)

    @property
    def wall(self) -> int:
        """How long the window is, in ns."""
        return self.window[1] - self.window[0]

    @cached_property
    def work_time(self) -> int:
        """The time of all work of devices, added up."""
        return sum(map(self.duration, self.work))

    def within(self, rows: list[int]) -> bytearray:
        """Tell for each row of the host whether it is one of the rows, or in one."""
        found = bytearray(len(self.kinds))
        for row in rows:
            found[row] = 1
        for row, parent in enumerate(self.tree.parents) if rows else ():
            if parent >= 0 and found[parent]:
                found[row] = 1
        return found

    def around(self, rows: Iterable[int]) -> set[int]:
        """Return the rows around any of the rows."""
        parents = self.tree.parents
        found = {parents[row] for row in rows}
        for row in reversed(self.host_rows) if found else ():
            if row in found:
                found.add(parents[row])
        return found
