"""Nesting of a recording's rows, with the spans and device work of each."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from cprofiling._internal.row_kinds import DEVICE, HOST, NODE, RECORD, STEP, SUSPENDABLE
from cprofiling.recording.columns import (
    ANNOTATIONS,
    COPIES,
    NO_WORK,
    RUNTIME,
    SETS,
    Recording,
    column,
    frames_of,
    has,
    texts_of,
)

# The span of a whole profiler run, which torch.profiler's traces have beside its threads.
_NO_EVENTS = frozenset(("Trace",))
# What torch.profiler makes itself, or leaves out of its reports as too small to tell anything.
_LEFT_OUT = frozenset((
    "profiler::_record_function_enter", "profiler::_record_function_enter_new", "profiler::_record_function_exit",
    "aten::is_leaf", "aten::output_nr", "aten::_version",
))  # fmt: skip
_ON_HOST = bytes(kind <= HOST for kind in range(256))
_STRIDE, _MOST = 0x9E3779B97F4A7C15, 2**64 - 1  # odd: rows of one span get ids far apart


@dataclass
class HostTree:
    """The rows on the host that reports count, and their nesting.

    A row inside a step is a child of the step, unless another row is between them. A row of the host whose only child
    has the same name stands for that, too, as in torch.profiler; calls of nodes and record() blocks always count.

    Attributes:
        parents: For each row the row around it, which is before it; -1 without one, -2 for a row that is not
            in the tree.
        merged: Rows that another row stands for, and that row.
    """

    parents: list[int]
    merged: dict[int, int] = field(default_factory=dict)

    def __contains__(self, row: int) -> bool:
        return self.parents[row] != -2

    def ancestors(self, row: int) -> Iterator[int]:
        """Yield the rows around a row, the innermost first."""
        row = self.parents[row]
        while row >= 0:
            yield row
            row = self.parents[row]

    def nearest(self, rows: Iterable[int]) -> list[int]:
        """Return each row's innermost one of some rows, itself included, or -1."""
        found = [-1] * len(self.parents)
        for row in rows:
            found[row] = row
        for row, parent in enumerate(self.parents):
            if parent < 0:
                if parent == -2:
                    found[row] = -1
            elif found[row] < 0:
                found[row] = found[parent]
        return found

    def only(self, rows: Collection[int]) -> HostTree:
        """Return the tree of some rows alone, each in the nearest around it."""
        around = self.nearest(rows)
        parents = [
            -2 if around[row] != row else around[parent] if parent >= 0 else -1
            for row, parent in enumerate(self.parents)
        ]
        return HostTree(parents)

    def outermost(self, rows: Collection[int]) -> list[int]:
        """Return the rows that are in no other of them, in order."""
        around, parents = self.nearest(rows) if rows else [], self.parents
        return [row for row in rows if parents[row] < 0 or around[parents[row]] < 0]


def host_tree(recording: Recording, *, merging: bool = True) -> HostTree:
    """Return the tree of host rows.

    merging: join pairs of the same name.
    """
    kinds, cats, names = (column(recording, name) for name in ("kind", "cat", "name"))
    no_events, left_out = texts_of(recording, *_NO_EVENTS), texts_of(recording, *_LEFT_OUT)
    counted = bytearray(kinds).translate(_ON_HOST)
    for row, (cat, name) in enumerate(zip(cats, names, strict=True)) if no_events or left_out else ():
        if cat in no_events or name in left_out:
            counted[row] = 0
    parents = memoryview(recording._parents(counted)).cast("i").tolist()  # noqa: SLF001
    if STEP in set(kinds):
        ends, tracks = column(recording, "end_ns"), column(recording, "track")
        steps: dict[int, int] = {}  # the latest of each track
        for row, kind in enumerate(kinds):
            if kind == STEP:
                steps[tracks[row]] = row
            elif parents[row] != -2:
                step = steps.get(tracks[row], -1)
                if parents[row] < step and ends[row] <= ends[step]:
                    parents[row] = step
    tree = HostTree(parents)
    if not merging:
        return tree
    children = [0] * len(parents)
    for parent in parents:
        if parent >= 0:
            children[parent] += 1
    merged = tree.merged  # each with its parent, where it is the only child and has the same name
    for row, parent in enumerate(parents):
        if parent < 0:
            continue
        if parent in merged:
            parents[row] = parent = merged[parent]  # noqa: PLW2901
        if children[parent] == 1 and names[row] == names[parent] and kinds[row] == kinds[parent] == HOST:
            merged[row] = parent
            children[parent] = children[row]
            parents[row] = -2
    return tree


class Stacks:
    """Python stacks of rows, recorded with them or from frames around them."""

    def __init__(self, recording: Recording, tree: HostTree) -> None:
        """Find out which of both the recording has."""
        self._tree = tree
        self._strings = recording.strings
        self._stacks = column(recording, "stack")
        self._names = column(recording, "name")
        self._cats = column(recording, "cat")
        self._frames = texts_of(recording, "python_function")

    def of(self, row: int, most: int) -> list[str]:
        """Return a row's stack frames, innermost first, at most ``most``."""
        stack = self._strings[self._stacks[row]]
        if stack or not self._frames or row not in self._tree:
            return frames_of(stack)[:most]
        around = (place for place in self._tree.ancestors(row) if self._cats[place] in self._frames)
        return [self._strings[self._names[place]] for place in islice(around, most)]


def self_times(recording: Recording, tree: HostTree) -> list[int]:
    """Return the time of each row as the innermost on its thread.

    In the tree of all rows that is host self time, without operators inside; in ``only()`` the nodes it is node self
    time, without nodes inside. Of overlapping rows, the one that began last counts. For generators and coroutines,
    which take turns, it is the time not suspended, less that of children on the thread. 0 for rows of no tree.
    """
    times = memoryview(recording._own_times(array("i", tree.parents))).cast("Q").tolist()  # noqa: SLF001
    tracks, flags = column(recording, "track"), column(recording, "flags")
    if not any(flag & SUSPENDABLE for flag in set(flags)):
        return times
    taking_turns = {track for track, flag in zip(tracks, flags, strict=True) if flag & SUSPENDABLE}
    starts, ends = column(recording, "start_ns"), column(recording, "end_ns")
    suspended = column(recording, "suspended_ns")
    for row, parent in enumerate(tree.parents):
        if parent != -2 and tracks[row] in taking_turns:
            ran = ends[row] - starts[row] - suspended[row]
            times[row] += ran
            if parent >= 0 and tracks[parent] == tracks[row]:
                times[parent] -= ran
    return [max(time, 0) for time in times]


def device_owners(recording: Recording, tree: HostTree) -> dict[int, int]:
    """Return the host row that started each row of device work, if known.

    As in torch.profiler, that is the operator, annotation or node around the runtime call, not the call: by the
    external id given to both, else by the place of the call with the same correlation. In traces with external ids that
    only repeat correlations, the call decides. Work with only a parent, as in traces of Furiosa's SDK, belongs to its
    first parent on the host.
    """
    kinds, cats, correlations, external_ids = (
        column(recording, name) for name in ("kind", "cat", "correlation", "external_id")
    )
    if DEVICE not in set(kinds):
        return {}
    runtime, no_work = texts_of(recording, *RUNTIME), texts_of(recording, *NO_WORK)
    passed = runtime | texts_of(recording, "python_function")
    callers = tree.nearest(row for row, cat in enumerate(cats) if cat not in passed)
    launches: dict[int, int] = {}  # runtime calls by correlation
    operators: dict[int, int] = {}  # by external id
    are_distinct = False  # whether external ids say more than correlations
    for row, (kind, cat, correlation, external_id) in enumerate(
        zip(kinds, cats, correlations, external_ids, strict=True)
    ):
        if kind == DEVICE:
            are_distinct = are_distinct or (0 < external_id != correlation)
        elif kind <= HOST:
            if correlation > 0:
                launches[correlation] = row
            elif external_id > 0 and cat not in runtime:
                operators[external_id] = row
    owners = {}
    orphans = []
    for row, cat in enumerate(cats):
        if kinds[row] != DEVICE or cat in no_work:
            continue
        owner = operators.get(external_ids[row], -1) if are_distinct else -1
        launch = launches.get(correlations[row], -1)
        around = callers[tree.merged.get(launch, launch)] if launch >= 0 else -1
        # A span of ours knows nothing of the operator that it is in.
        if owner < 0 or (around >= 0 and kinds[around] != HOST and owner <= around):
            owner = around
        if owner >= 0:
            owners[row] = tree.merged.get(owner, owner)
        else:
            orphans.append(row)
    if orphans and has(recording, "parent_span"):
        parents = column(recording, "parent_span")
        spans = {span: row for row, span in enumerate(column(recording, "span")) if span}
        for orphan in orphans:
            row, seen = orphan, set[int]()
            while kinds[row] == DEVICE and row not in seen:
                seen.add(row)
                row = spans.get(parents[row], row)
            if kinds[row] != DEVICE:
                owners[orphan] = row
    return owners


def launches_of(recording: Recording) -> dict[int, int]:
    """Return host rows that start device work, by correlation."""
    rows = zip(column(recording, "kind"), column(recording, "correlation"), strict=True)
    return {found: row for row, (kind, found) in enumerate(rows) if kind <= HOST and found > 0}


def work_rows(recording: Recording, *, launched_only: bool = False) -> Iterator[int]:
    """Yield the rows of work of devices, by their start.

    ``launched_only``: only work with a recorded launch.
    """
    no_work = texts_of(recording, *NO_WORK)
    correlations = column(recording, "correlation")
    calls = launches_of(recording) if launched_only else {}
    for row, (kind, cat) in enumerate(zip(column(recording, "kind"), column(recording, "cat"), strict=True)):
        if kind == DEVICE and cat not in no_work and (not launched_only or correlations[row] in calls):
            yield row


def sum_up(values: list[int], parents: Sequence[int]) -> list[int]:
    """Return each row's value plus those of rows inside.

    Parents come before their children.
    """
    totals = list(values)
    for row in range(len(totals) - 1, -1, -1):
        if parents[row] >= 0:
            totals[parents[row]] += totals[row]
    return totals


def nodes_around(recording: Recording, tree: HostTree, owners: dict[int, int]) -> list[int]:
    """Return each row's innermost profiled node, itself included, or -1.

    Device work is in the node that started it.
    """
    nodes = [-1] * len(recording)
    for row, kind in enumerate(column(recording, "kind")):
        if kind == NODE:
            nodes[row] = row
        elif tree.parents[row] >= 0:
            nodes[row] = nodes[tree.parents[row]]
    for row, owner in owners.items():
        nodes[row] = nodes[owner]
    return nodes


class SpanIds:
    """Ids in lower-case hexadecimal, 32 digits of a trace, 16 of a span.

    An operator and device work belong to the innermost span around them, or around their start.

    Attributes:
        rows: The row of each row's span, maybe itself; -1 without one.
    """

    def __init__(self, recording: Recording, tree: HostTree, owners: Mapping[int, int]) -> None:
        """Find the span of each row.

        owners: host row of each row of device work.
        """
        self._highs, self._lows = column(recording, "trace_high"), column(recording, "trace_low")
        self._spans, self._parents = column(recording, "span"), column(recording, "parent_span")
        self.rows = around = [-1] * len(recording)
        if not has(recording, "span"):
            return
        for row, (span, parent) in enumerate(zip(self._spans, tree.parents, strict=True)):
            if span:
                around[row] = row
            elif parent >= 0:
                around[row] = around[parent]
        for row, owner in owners.items():
            if around[row] < 0:
                around[row] = around[owner]

    def trace(self, row: int) -> str | None:
        """Return the trace of a row's span."""
        span = self.rows[row]
        return f"{self._highs[span]:016x}{self._lows[span]:016x}" if span >= 0 else None

    def around(self, row: int) -> str | None:
        """Return the id of a row's span, which may be the row."""
        span = self.rows[row]
        return f"{self._spans[span]:016x}" if span >= 0 else None

    def own(self, row: int) -> str | None:
        """Return the id of a row that is a span."""
        return self.around(row) if self.rows[row] == row else None

    def distinct(self, row: int) -> str | None:
        """Return a row's id, made up for a row that is no span, or None."""
        span = self.rows[row]
        if span in (row, -1):
            return self.around(row)
        return f"{(self._spans[span] + (row + 1) * _STRIDE) & _MOST:016x}"

    def parent(self, row: int) -> str | None:
        """Return the parent id of a span (zeros for a root), else the row's span."""
        return f"{self._parents[row]:016x}" if self.rows[row] == row else self.around(row)


@dataclass
class Execution:
    """Work of one device that one host span started.

    Attributes:
        span: Row of the innermost node, labelled block or step around the start of the work; else the outermost
            operator.
        device: Number of the device.
        index: Running number on its device, from 0, by the start of its first work.
        start: Start of its first work.
        end: End of its last work.
        run: Time of its computations (no copies, no setting of memory), added up; of nested ones on one stream, as an
            NPU's execution and its operators, only of the outermost.
        rows: Rows of the work, by their start.
    """

    span: int
    device: int
    index: int
    start: int
    end: int
    run: int = 0
    rows: list[int] = field(default_factory=list)

    @property
    def total(self) -> int:
        """The time from its start to its end."""
        return self.end - self.start

    @property
    def io_wait(self) -> int:
        """Time of copies and waits in ns, ``total - run``.

        Negative where computations overlapped.
        """
        return self.total - self.run


def executions(recording: Recording) -> list[Execution]:
    """Return the executions of a recording, by start.

    Work of unknown origin is in none.
    """
    tree = host_tree(recording, merging=False)
    starts, ends, devices, cats, tracks, kinds = (
        column(recording, name) for name in ("start_ns", "end_ns", "device", "cat", "track", "kind")
    )
    annotations = texts_of(recording, *ANNOTATIONS)
    spans = tree.nearest(  # each host row's innermost span, else its outermost row
        row
        for row, parent in enumerate(tree.parents)
        if parent < 0 or kinds[row] in (NODE, RECORD, STEP) or cats[row] in annotations
    )
    memory = texts_of(recording, *COPIES, *SETS)
    found: dict[tuple[int, int], Execution] = {}
    counts: dict[int, int] = {}
    ran_to: dict[int, int] = {}  # by track
    for row, owner in sorted(device_owners(recording, tree).items()):
        key = span, device = spans[owner], devices[row]
        execution = found.get(key)
        if execution is None:
            index = counts.get(device, 0)
            counts[device] = index + 1
            execution = found[key] = Execution(span, device, index, starts[row], ends[row])
        execution.rows.append(row)
        execution.end = max(execution.end, ends[row])
        if cats[row] not in memory and ends[row] > ran_to.get(tracks[row], starts[row]):
            execution.run += ends[row] - starts[row]
            ran_to[tracks[row]] = ends[row]
    return list(found.values())
