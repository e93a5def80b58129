"""Sums of a recording's rows by name, and by stack for flame graphs."""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate
from operator import sub
from typing import TYPE_CHECKING, Any

from cprofiling._internal import arguments
from cprofiling._internal.files import atomic_writer
from cprofiling._internal.messages import warn
from cprofiling._internal.row_kinds import DEVICE, INSTANT, NODE
from cprofiling._internal.text import shown_text, shown_value
from cprofiling.analysis.averages import KeyAverage, KeyAverages
from cprofiling.recording.columns import (
    ANNOTATIONS,
    FLOPS,
    MEMORY,
    NO_WORK,
    STEP_PREFIX,
    UNKNOWN,
    Recording,
    column,
    device_name,
    drop_notes,
    frames_of,
    has,
    known_args,
    texts_of,
)
from cprofiling.recording.tree import HostTree, Stacks, device_owners, host_tree, nodes_around, self_times, sum_up

if TYPE_CHECKING:
    from _typeshed import StrOrBytesPath

_TWO_KINDS = (
    "CPU Mem of nodes and labelled blocks is the change of the process's resident memory, of other rows the bytes of "
    "the framework's allocator."
)
_FLOPS = re.compile(rf'"{FLOPS}":\s*(\d+)')
_STEPS = STEP_PREFIX[:-1] + "*"
_MEASURED = ("memory_change", "device_memory_change")
_HOST_METRIC = "self_cpu_time_total"
_METRICS = (_HOST_METRIC, *(f"self_{word}_time_total" for word in ("cuda", "device", "xpu", "privateuse1")))


class _Memory:
    """The bytes allocated less freed while rows of the host were open.

    Where the change was measured for a row, it is that; else the sum of the allocations that are recorded as instants
    named ``[memory]`` between its start and its end, on any thread, as in torch.profiler; else 0. A row's own
    bytes leave out the next rows inside it with bytes of the same kind.

    Attributes:
        is_known: Whether the recording says anything of memory.
        is_mixed: Whether both measured changes and allocations are known of the host.
        sums: Bytes of each row on the host, and on devices.
        own: Own bytes of each row on the host, and on devices.
        outside: Allocations while no row of the host was open.
    """

    def __init__(self, recording: Recording, tree: HostTree) -> None:
        names = texts_of(recording, MEMORY)
        rows = zip(column(recording, "kind"), column(recording, "name"), strict=True)
        allocations = [row for row, (kind, name) in enumerate(rows) if kind == INSTANT and name in names]
        self.is_known = bool(allocations) or any(has(recording, name) for name in _MEASURED)
        self.is_mixed = bool(allocations) and has(recording, _MEASURED[0])
        self.sums = [0] * len(recording), [0] * len(recording)
        self.outside: list[int] = []
        if not self.is_known:
            return
        if allocations:
            self._add_allocations(recording, tree, allocations)
        self.own = list(self.sums[0]), list(self.sums[1])
        for name, sums, own in zip(_MEASURED, self.sums, self.own, strict=True):
            for row, parent in enumerate(tree.parents):
                if parent >= 0:
                    own[parent] -= sums[row]
            if not has(recording, name):
                continue
            changes = column(recording, name)
            around = tree.nearest(row for row, change in enumerate(changes) if change != UNKNOWN)
            for row, change in enumerate(changes):  # less those of measured rows inside
                if change != UNKNOWN:
                    sums[row] = own[row] = change
                    parent = tree.parents[row]
                    if parent >= 0 and around[parent] >= 0:
                        own[around[parent]] -= change  # which is before it

    def _add_allocations(self, recording: Recording, tree: HostTree, allocations: Sequence[int]) -> None:
        starts, ends = column(recording, "start_ns"), column(recording, "end_ns")
        recorded_bytes, devices = column(recording, "bytes"), column(recording, "device")
        times = [starts[row] for row in allocations]
        sizes = []  # bytes, and 0 on the host or 1 on a device
        for row in allocations:
            known = known_args(recording, row)
            size = known.get("Bytes", recorded_bytes[row])
            on_device = known.get("Device Type", int(devices[row] >= 0)) != 0
            sizes.append((size if isinstance(size, int) and size != UNKNOWN else 0, int(on_device)))
        totals = [[0, *accumulate(size if side == of else 0 for size, of in sizes)] for side in (0, 1)]
        covered = bytearray(len(allocations))
        for row, parent in enumerate(tree.parents):
            if parent == -2:
                continue
            first, last = bisect_left(times, starts[row]), bisect_right(times, ends[row])
            for sums, total in zip(self.sums, totals, strict=True):
                sums[row] = total[last] - total[first]
            if parent == -1:  # a row inside another covers no more than that
                covered[first:last] = b"\1" * (last - first)
        for row, (size, side), is_covered in zip(allocations, sizes, covered, strict=True):
            if not is_covered:
                self.outside.append(row)
                self.sums[side][row] = size


def _figures(
    recording: Recording, tree: HostTree, owners: dict[int, int], memory: _Memory, *, has_device: bool
) -> Iterator[tuple[str, Sequence[int]]]:
    """Yield the figures of all rows by the name of their sum, times in ns."""
    times = list(map(sub, column(recording, "end_ns"), column(recording, "start_ns")))
    kinds = column(recording, "kind")
    yield "cpu_time_total", [0 if kind == DEVICE else time for time, kind in zip(times, kinds, strict=True)]
    own = self_times(recording, tree)
    yield "self_cpu_time_total", [time if parent != -2 else 0 for time, parent in zip(own, tree.parents, strict=True)]
    if has_device:
        own = [time if kind == DEVICE else 0 for time, kind in zip(times, kinds, strict=True)]
        for row, owner in owners.items():
            own[owner] += times[row]
        yield "self_device_time_total", own
        yield "device_time_total", sum_up(own, tree.parents)
    if '"flops": true' in recording.facts.get("operators", ""):
        found = (_FLOPS.search(recording.args(row) or "") for row in range(len(recording)))
        yield "flops", [int(match[1]) if match else 0 for match in found]
    if memory.is_known:
        for side, sums, own in zip(("cpu", "device"), memory.sums, memory.own, strict=True):
            yield f"{side}_memory_usage", sums
            yield f"self_{side}_memory_usage", own


def key_averages(
    recording: Recording,
    group_by_input_shape: bool = False,
    group_by_stack_n: int = 0,
    group_by_node: bool = False,
) -> KeyAverages:
    """Return the figures of all rows by name (see ``Recording.key_averages``).

    Differences from torch.profiler: where rows of a thread overlap, the time belongs to the one that began last, so
    that no self time is negative; a call of a node inside itself is a call; waits for the device, ranges of its
    profiler (kernels with the time of the whole range) and annotations mirrored on it are rows, but no part of the
    device's total.
    """
    frames = arguments.index_between("group_by_stack_n", group_by_stack_n, 0)
    if group_by_input_shape and len(recording) > 0 and not has(recording, "shapes"):
        warn("group_by_input_shape=True changes nothing: no shapes were recorded; record_shapes=True records them")
    tree = host_tree(recording)
    owners = device_owners(recording, tree)
    memory = _Memory(recording, tree)
    device, strings = device_name(recording), recording.strings
    kinds, cats, names, shapes = (column(recording, name) for name in ("kind", "cat", "name", "shapes"))
    stacks = Stacks(recording, tree)
    around = nodes_around(recording, tree, owners) if group_by_node else []
    annotations, no_work = texts_of(recording, *ANNOTATIONS), texts_of(recording, *NO_WORK)
    keys = [_STEPS if text.startswith(STEP_PREFIX) else text for text in strings]
    outside = set(memory.outside)
    groups: dict[tuple[str, bool, bool, bool, bool, int, tuple[str, ...], str], list[int]] = {}
    for row, (kind, cat, name) in enumerate(zip(kinds, cats, names, strict=True)):
        if kind != DEVICE and tree.parents[row] == -2 and row not in outside:
            continue
        # The ranges of a device's profiler have the names of its kernels.
        key = (
            keys[name], kind == DEVICE, kind == NODE, cat in annotations, kind == DEVICE and cat in no_work,
            shapes[row] if group_by_input_shape else 0, tuple(stacks.of(row, frames)) if frames else (),
            strings[names[around[row]]] if around and around[row] >= 0 else "",
        )  # fmt: skip
        groups.setdefault(key, []).append(row)
    figures = [*_figures(recording, tree, owners, memory, has_device=device is not None)]
    averages = []
    for (text, on_device, _, is_annotation, is_no_work, shape, stack, node), rows in groups.items():
        sums: dict[str, Any] = {of: sum(map(values.__getitem__, rows)) for of, values in figures}
        sums |= {of: total / 1000 for of, total in sums.items() if "time" in of}
        averages.append(KeyAverage(
            key=text, count=len(rows), input_shapes=json.loads(strings[shape] or "[]"), stack=[*stack], node=node,
            device_type=str(device) if on_device else "cpu", is_user_annotation=is_annotation,
            is_device_work=on_device and not is_no_work, use_device=device,
            is_top_level=tree.parents[rows[0]] < 0, **sums,
        ))  # fmt: skip
    return KeyAverages(
        averages,
        use_device=device,
        has_memory=memory.is_known,
        notes=([_TWO_KINDS] if memory.is_mixed else []) + drop_notes(recording),
    )


def export_stacks(recording: Recording, path: StrOrBytesPath, metric: str = _HOST_METRIC) -> None:
    """Write folded stacks (see ``Recording.export_stacks``)."""
    name = arguments.path("path", path)
    if metric not in _METRICS:
        raise ValueError(f"metric must be one of {', '.join(_METRICS)}, got {shown_value(metric)}")
    tree, strings = host_tree(recording), recording.strings
    if metric == _HOST_METRIC:
        times = self_times(recording, tree)
    else:  # of the device work started directly in each row
        starts, ends = column(recording, "start_ns"), column(recording, "end_ns")
        times = [0] * len(recording)
        for row, owner in device_owners(recording, tree).items():
            times[owner] += ends[row] - starts[row]
    numbers = {(-1, ""): 0}  # of paths, each by the path around it and its last frame; 0 is the empty one

    @cache
    def path_of(around: int, text: str) -> int:
        frame = shown_text("frame", text).replace(";", "\\x3b")
        return numbers.setdefault((around, frame), len(numbers))

    @cache
    def path_of_stack(stack: str) -> int:
        number = 0
        for frame in reversed(frames_of(stack)):
            number = path_of(number, frame)
        return number

    names, stacks = column(recording, "name"), column(recording, "stack")
    of_rows = [0] * len(recording)
    sums: dict[int, int] = {}
    for row, parent in enumerate(tree.parents):
        if parent != -2:
            around = path_of_stack(strings[stacks[row]]) if stacks[row] else of_rows[parent] if parent >= 0 else 0
            of_rows[row] = number = path_of(around, strings[names[row]])
            sums[number] = sums.get(number, 0) + times[row]
    paths, lines = list(numbers), []
    for number, time in sums.items():
        if time >= 1000:
            frames = []
            while number:
                number, frame = paths[number]  # noqa: PLW2901
                frames.append(frame)
            lines.append(f"{';'.join(reversed(frames))} {time // 1000}\n")
    with atomic_writer(name) as file:
        file.write("".join(lines).encode())
