"""Groups of a recording's rows, with their sums."""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from cprofiling._internal import arguments
from cprofiling._internal.messages import warn
from cprofiling._internal.row_kinds import DEVICE, INSTANT, NODE
from cprofiling.analysis.averages import KeyAverage, KeyAverages
from cprofiling.recording.columns import (
    ANNOTATIONS,
    MEMORY,
    NO_WORK,
    STEP_PREFIX,
    UNKNOWN,
    Recording,
    column,
    device_name,
    drop_notes,
    has,
    known_args,
    texts_of,
)
from cprofiling.recording.tree import HostTree, Stacks, device_owners, host_tree, nodes_around, self_times, sum_up

_TWO_KINDS = (
    "CPU Mem of nodes and labelled blocks is the change of the process's resident memory, of other rows the bytes of "
    "the framework's allocator."
)

_STEPS = STEP_PREFIX[:-1] + "*"


class Memory:
    """The memory allocated less freed while rows of the host were open.

    Where the change was measured for a row, it is that; else the sum of the allocations that are recorded as moments
    named ``[memory]`` between its start and its end, on whatever thread, as torch.profiler has it; else 0. What belongs
    to a row itself is its bytes less those of the next rows inside it of which they are known in the same way: what was
    measured is of another kind than what is added up, and neither says anything of a row for which it is not known.

    Attributes:
        is_known: Whether the recording says anything of memory.
        is_mixed: Whether what was measured and what is added up are both known of the host.
        host: For each row its bytes on the host.
        own_host: The part of them that is its own.
        device: For each row its bytes on devices.
        own_device: The part of them that is its own.
        outside: Allocations at moments at which no row of the host was open.
    """

    def __init__(self, recording: Recording, tree: HostTree) -> None:
        """Find the memory of all rows in the tree."""
        names = texts_of(recording, MEMORY)
        rows = zip(column(recording, "kind"), column(recording, "name"), strict=True)
        allocations = [row for row, (kind, name) in enumerate(rows) if kind == INSTANT and name in names]
        measured = ("memory_change", "device_memory_change")
        self.is_known = bool(allocations) or any(has(recording, name) for name in measured)
        self.is_mixed = bool(allocations) and has(recording, measured[0])
        self.host = [0] * len(recording)
        self.device = [0] * len(recording)
        self.outside: list[int] = []
        if allocations:
            self._add_allocations(recording, tree, allocations)
        self.own_host = _without_children(self.host, tree.parents)
        self.own_device = _without_children(self.device, tree.parents)
        sides = ((self.host, self.own_host), (self.device, self.own_device))
        for name, (sums, own) in zip(measured, sides, strict=True):
            if has(recording, name):
                _set_measured(column(recording, name), tree, sums, own)

    def _add_allocations(self, recording: Recording, tree: HostTree, allocations: Sequence[int]) -> None:
        starts, ends = column(recording, "start_ns"), column(recording, "end_ns")
        sizes = [_size(recording, row) for row in allocations]
        moments = array("q", (starts[row] for row in allocations))
        host = [0, *accumulate(0 if on_device else size for size, on_device in sizes)]
        device = [0, *accumulate(size if on_device else 0 for size, on_device in sizes)]
        covered = bytearray(len(allocations))
        for row, parent in enumerate(tree.parents):
            if parent == -2:
                continue
            first, last = bisect_left(moments, starts[row]), bisect_right(moments, ends[row])
            self.host[row] = host[last] - host[first]
            self.device[row] = device[last] - device[first]
            if parent == -1:  # what is inside another row covers no more than that
                covered[first:last] = b"\1" * (last - first)
        for place, row in enumerate(allocations):
            if not covered[place]:
                self.outside.append(row)
                size, on_device = sizes[place]
                (self.device if on_device else self.host)[row] = size


def _set_measured(changes: Sequence[int], tree: HostTree, sums: list[int], own: list[int]) -> None:
    """Set measured changes, less those of measured rows inside."""
    around = tree.nearest(lambda row: changes[row] != UNKNOWN)
    for row, change in enumerate(changes):
        if change == UNKNOWN:
            continue
        sums[row] = own[row] = change
        parent = tree.parents[row]
        if parent >= 0 and around[parent] >= 0:
            own[around[parent]] -= change  # which is before it


def _size(recording: Recording, row: int) -> tuple[int, bool]:
    """Return the bytes of an allocation, and whether they are a device's."""
    size: object = column(recording, "bytes")[row]
    on_device = column(recording, "device")[row] >= 0
    known = known_args(recording, row)
    size = known.get("Bytes", size)
    on_device = known.get("Device Type", int(on_device)) != 0
    return (size if isinstance(size, int) and size != UNKNOWN else 0), on_device


class Grouping:
    """Rows in groups of equal names, to be split further.

    Attributes:
        memory: What is known of the rows' memory.
        use_device: What the recording's devices are called; None where it has none.
    """

    def __init__(self, recording: Recording) -> None:
        """Group the rows by name, kind and place."""
        self._recording = recording
        self._tree = host_tree(recording)
        self._owners = device_owners(recording, self._tree)
        self.memory = Memory(recording, self._tree)
        self.use_device = device_name(recording)
        self._by_shapes = False
        self._frames = 0
        self._stacks = Stacks(recording, self._tree)
        self._nodes: list[int] = []
        self._groups = self._by_name()

    def split_by_shapes(self) -> None:
        """Split the groups by the shapes of the arguments."""
        self._by_shapes = True
        self._split_by(column(self._recording, "shapes"))

    def split_by_stack(self, frames: int) -> None:
        """Split the groups by that many innermost frames of the Python stack."""
        self._frames = frames
        known: dict[tuple[str, ...], int] = {}
        stacks = (tuple(self._stacks.of(row, frames)) for row in range(len(self._recording)))
        self._split_by([known.setdefault(stack, len(known)) for stack in stacks])

    def split_by_node(self) -> None:
        """Split the groups by the innermost node around the rows."""
        names = column(self._recording, "name")
        self._nodes = nodes_around(self._recording, self._tree, self._owners)
        self._split_by([names[node] if node >= 0 else -1 for node in self._nodes])

    def averages(self) -> list[KeyAverage]:
        """Return the figures of the groups, in the order of their first rows."""
        places: dict[int, int] = {}
        firsts: list[int] = []
        for row, group in enumerate(self._groups):
            if group >= 0 and group not in places:
                places[group] = len(firsts)
                firsts.append(row)
        of_rows = [places.get(group, -1) for group in self._groups]
        counts = [0] * (len(firsts) + 1)  # the last one takes what does not count
        for place in of_rows:
            counts[place] += 1
        sums = {}
        for name, values in self._figures():
            sums[name] = [0] * len(counts)
            for place, value in zip(of_rows, values, strict=True):
                sums[name][place] += value
        names = list(sums)
        return [
            self._average(first, count, dict(zip(names, figures, strict=True)))
            for first, count, *figures in zip(firsts, counts, *sums.values(), strict=False)
        ]

    def _by_name(self) -> list[int]:
        """Return a number for each name and class, -1 for rows left out."""
        recording, parents = self._recording, self._tree.parents
        annotations = texts_of(recording, *ANNOTATIONS)
        steps: dict[str, int] = {}
        same = [
            steps.setdefault(_STEPS, number) if text.startswith(STEP_PREFIX) else number
            for number, text in enumerate(recording.strings)
        ]
        numbers = [-1] * len(recording)
        no_work = texts_of(recording, *NO_WORK)
        columns = (column(recording, name) for name in ("kind", "cat", "name"))
        for row, (kind, cat, name) in enumerate(zip(*columns, strict=True)):
            if kind == DEVICE or parents[row] != -2:
                # The ranges of a device's profiler have the names of its kernels.
                place = (6 if cat in no_work else 4) if kind == DEVICE else 2 if kind == NODE else 0
                numbers[row] = (same[name] << 3) + place + (cat in annotations)
        names = column(recording, "name")
        for row in self.memory.outside:
            numbers[row] = names[row] << 3
        return numbers

    def _split_by(self, values: Sequence[int]) -> None:
        known: dict[tuple[int, int], int] = {}
        pairs = zip(self._groups, values, strict=True)
        self._groups = [known.setdefault(pair, len(known)) if pair[0] >= 0 else -1 for pair in pairs]

    def _figures(self) -> Iterator[tuple[str, Sequence[int]]]:
        """Yield the figures of all rows by the name of their sum, in ns."""
        recording, parents = self._recording, self._tree.parents
        starts, ends = column(recording, "start_ns"), column(recording, "end_ns")
        on_device = [kind == DEVICE for kind in column(recording, "kind")]
        times = [end - start for start, end in zip(starts, ends, strict=True)]
        own = [0 if device else time for time, device in zip(times, on_device, strict=True)]
        yield "cpu_time_total", own
        own = self_times(recording, self._tree)
        yield "self_cpu_time_total", [time if parent != -2 else 0 for time, parent in zip(own, parents, strict=True)]
        if self.use_device is not None:
            own = [time if device else 0 for time, device in zip(times, on_device, strict=True)]
            for row, owner in self._owners.items():
                own[owner] += times[row]
            yield "self_device_time_total", own
            yield "device_time_total", sum_up(own, parents)
        if self.memory.is_known:
            yield "cpu_memory_usage", self.memory.host
            yield "self_cpu_memory_usage", self.memory.own_host
            yield "device_memory_usage", self.memory.device
            yield "self_device_memory_usage", self.memory.own_device

    def _average(self, first: int, count: int, sums: dict[str, int]) -> KeyAverage:
        recording = self._recording
        name = recording.strings[column(recording, "name")[first]]
        shapes = recording.strings[column(recording, "shapes")[first]] if self._by_shapes else ""
        cat = recording.strings[column(recording, "cat")[first]]
        node = self._nodes[first] if self._nodes else -1
        is_device = column(recording, "kind")[first] == DEVICE
        figures: dict[str, Any] = {of: value / 1000 if "time" in of else value for of, value in sums.items()}
        return KeyAverage(
            key=_STEPS if name.startswith(STEP_PREFIX) else name,
            count=count,
            **figures,
            input_shapes=json.loads(shapes) if shapes else [],
            stack=self._stacks.of(first, self._frames),
            node=recording.strings[column(recording, "name")[node]] if node >= 0 else "",
            device_type=str(self.use_device) if is_device else "cpu",
            is_user_annotation=cat in ANNOTATIONS,
            is_device_work=is_device and cat not in NO_WORK,
            use_device=self.use_device,
            is_top_level=self._tree.parents[first] < 0,
        )


def _without_children(sums: Sequence[int], parents: Sequence[int]) -> list[int]:
    """Return for each row its sum less those of the rows directly inside it."""
    own = list(sums)
    for row, parent in enumerate(parents):
        if parent >= 0:
            own[parent] -= sums[row]
    return own


def key_averages(
    recording: Recording,
    group_by_input_shape: bool = False,
    group_by_stack_n: int = 0,
    group_by_node: bool = False,
) -> KeyAverages:
    """Return the figures of all rows that have a duration, by name.

    Rows of nodes, of labelled blocks, of operators, of calls of a device's runtime, of Python frames (where a profiler
    recorded them) and of devices count, as in torch.profiler, whose words and rules these are. It differs from
    torch.profiler in this: where rows of a thread overlap, the time belongs to the one that began last, so that no self
    time is negative and none counts twice; a call of a node inside itself is a call; waits for the device
    (``cuda_sync``), ranges of its profiler (``cuda_profiler_range``: kernels with the time of the whole range, so that
    their sum means nothing) and annotations mirrored on it are rows, but no part of the device's total, nor of an
    operator's device time.

    With ``profile_memory=True``, memory on the host is of two kinds: of nodes and labelled blocks it is the change of
    the process's resident memory, of operators the bytes of the framework's allocator. The table says so where it has
    both.

    Args:
        recording: A finished recording.
        group_by_input_shape: Tell rows apart that have other ``input_shapes``; a RuntimeWarning where there are none.
        group_by_stack_n: Tell rows apart that differ in this many innermost frames of their Python stack; 0: do not.
        group_by_node: Tell rows apart that were inside other profiled nodes: ``node`` is the innermost one's name.

    Raises:
        TypeError: ``group_by_stack_n`` is no integer.
        ValueError: It is negative.
    """
    frames = arguments.index_between("group_by_stack_n", group_by_stack_n, 0)
    grouping = Grouping(recording)
    if group_by_input_shape:
        if len(recording) > 0 and not has(recording, "shapes"):
            warn("group_by_input_shape=True changes nothing: no shapes were recorded; record_shapes=True records them")
        grouping.split_by_shapes()
    if frames > 0:
        grouping.split_by_stack(frames)
    if group_by_node:
        grouping.split_by_node()
    return KeyAverages(
        grouping.averages(),
        use_device=grouping.use_device,
        has_memory=grouping.memory.is_known,
        notes=([_TWO_KINDS] if grouping.memory.is_mixed else []) + drop_notes(recording),
    )
