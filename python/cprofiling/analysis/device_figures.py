"""Kernels, copies, launches and idle time of devices.

The figures are those of HolisticTraceAnalysis.

All times are in ns. Rows of no work (waits for a device, annotations mirrored on it) are in none of the figures. Work
that was started before the recording began counts unless ``launched_only`` is true. In HolisticTraceAnalysis it never
does.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from cprofiling._internal import arguments
from cprofiling._internal.tables import Figures
from cprofiling._internal.text import shown_value
from cprofiling.recording.columns import (
    COPIES,
    SETS,
    UNKNOWN,
    Recording,
    column,
    drop_notes,
    grouped,
    texts_of,
)
from cprofiling.recording.intervals import length, union
from cprofiling.recording.tree import device_owners, host_tree, launches_of, nodes_around, work_rows

_T = TypeVar("_T")

COMPUTATION, COMMUNICATION, MEMORY = "COMPUTATION", "COMMUNICATION", "MEMORY"
# A gap between two kernels that is shorter, and for which the host is not to blame, is what launching takes: 30 µs.
KERNEL_WAIT_NS = 30_000
COMMUNICATION_KERNEL = re.compile(r"(nccl|rccl).*Kernel")
_COPY_KIND = re.compile(r"(?:Memcpy|CopyKind)\W*(\w+to\w+|PtoP)", re.IGNORECASE)


@dataclass(frozen=True)
class KernelFigures:
    """The figures of all work of one name.

    Attributes:
        name: The kernel's name, or what a copy is called.
        kernel_type: ``COMPUTATION``, ``COMMUNICATION`` (of NCCL and RCCL) or ``MEMORY`` (copies, and setting memory).
        count: How often it ran, 1 or more.
        total_ns: Its time, added up.
        mean_ns: Its mean time.
        min_ns: Its shortest time.
        max_ns: Its longest time.
        std_ns: The sample standard deviation of its times (divides by ``count - 1``); 0.0 for one.
    """

    name: str
    kernel_type: str
    count: int
    total_ns: int
    mean_ns: float
    min_ns: int
    max_ns: int
    std_ns: float


@dataclass(frozen=True)
class CopyFigures:
    """The figures of all copies, or settings of memory, of one kind.

    Attributes:
        name: What they are called, such as ``Memcpy DtoD (Device -> Device)``.
        kind: ``HtoD``, ``DtoH``, ``DtoD``, ``PtoP``, ...; ``Memset``; else the name.
        count: How many there are, 1 or more.
        bytes: How many bytes they moved or set; None where the recording does not say it of any.
        total_ns: Their time, added up.
        bandwidth: Bytes per ns, which is GB/s; None where the bytes or the time are not known.
    """

    name: str
    kind: str
    count: int
    bytes: int | None
    total_ns: int
    bandwidth: float | None


@dataclass(frozen=True)
class Launch:
    """One piece of a device's work, and the call that started it.

    Attributes:
        row: The row of the work, which ``Recording.event(row)`` gives.
        call_row: The row of the call.
        call: The call's name, such as ``cudaLaunchKernel``.
        host_ns: How long the call took.
        device_ns: How long the work took.
        delay_ns: From the end of the call to the start of the work; 0 where it started earlier.
    """

    row: int
    call_row: int
    call: str
    host_ns: int
    device_ns: int
    delay_ns: int


@dataclass(frozen=True)
class LaunchFigures:
    """The figures of all launches by one kind of call.

    Attributes:
        call: The call's name.
        count: How many pieces of work it started, 1 or more.
        host_ns: The time of the calls, added up; a call that started several pieces, such as a graph's, counts once.
        device_ns: The time of the work, added up.
        delay_ns: The time from calls to work, added up.
        mean_delay_ns: Its mean.
        shorter_than_call: How many pieces of work took less time than the calls that started them.
    """

    call: str
    count: int
    host_ns: int
    device_ns: int
    delay_ns: int
    mean_delay_ns: float
    shorter_than_call: int


@dataclass(frozen=True)
class IdleTimes:
    """The gaps of one stream between its first and its last work.

    The last three are sums of gaps: from the end of a piece of work to the start of the next. A gap is negative where
    work of one stream overlaps, as that of a CUDA graph may; such gaps are among ``kernel_wait_ns``. Without any, the
    three are ``idle_ns``.

    Attributes:
        device: The number of the device.
        stream: The number of the stream.
        count: How many pieces of work it did.
        busy_ns: The time in which it worked.
        idle_ns: The time in which it did not.
        host_wait_ns: Gaps before work that the host started only when the stream had nothing left to do.
        kernel_wait_ns: Other gaps that are so short that launching a kernel explains them.
        other_ns: The other gaps: waiting for another stream, for memory, ...
    """

    device: int
    stream: int
    count: int
    busy_ns: int
    idle_ns: int
    host_wait_ns: int
    kernel_wait_ns: int
    other_ns: int


@dataclass(frozen=True)
class NodeKernel:
    """The figures of one kernel in one node, in ns.

    Attributes:
        node: The node that started it, the innermost; None where that was outside of nodes, or is not known.
        kernel: The kernel's name.
        count: How often it ran for the node, 1 or more.
        total_ns: Its time, added up.
        mean_ns: Its mean time.
        share: Its part of the time of all kernels of the node, from 0 to 1; 0.0 where they took none.
        node_launches: Kernels that ran for the node.
        node_busy_ns: The time in which a device was at work for the node, copies included; what overlaps counts once.
        node_span_ns: The time from the start of the first such work to the end of the last, in all calls of the node.
    """

    node: str | None
    kernel: str
    count: int
    total_ns: int
    mean_ns: float
    share: float
    node_launches: int
    node_busy_ns: int
    node_span_ns: int


def kernel_breakdown(recording: Recording, *, launched_only: bool = False) -> Figures[KernelFigures]:
    """Return the work of all devices by name, longest total first."""
    starts, ends, names, cats = (column(recording, name) for name in ("start_ns", "end_ns", "name", "cat"))
    memory = texts_of(recording, *COPIES, *SETS)
    rows = work_rows(recording, launched_only=launched_only)
    figures = []
    for (text, is_memory), of in grouped(rows, lambda row: (names[row], cats[row] in memory)).items():
        times = [ends[row] - starts[row] for row in of]
        name, count, total = recording.strings[text], len(of), sum(times)
        kernel_type = MEMORY if is_memory else COMMUNICATION if COMMUNICATION_KERNEL.match(name) else COMPUTATION
        # Exact but for the root: a sum of squares of whole ns has no rounding.
        squares = count * sum(time * time for time in times) - total * total
        deviation = math.sqrt(squares / (count * (count - 1))) if count > 1 else 0.0
        figures.append(KernelFigures(name, kernel_type, count, total, total / count, min(times), max(times), deviation))
    return _reported(KernelFigures, sorted(figures, key=lambda of: (-of.total_ns, of.name)), recording)


def copy_breakdown(recording: Recording, *, launched_only: bool = False) -> Figures[CopyFigures]:
    """Return copies and settings of memory by kind, longest total first."""
    starts, ends, names = (column(recording, name) for name in ("start_ns", "end_ns", "name"))
    cats, sizes = column(recording, "cat"), column(recording, "bytes")
    memory = texts_of(recording, *COPIES, *SETS)
    rows = (row for row in work_rows(recording, launched_only=launched_only) if cats[row] in memory)
    figures = []
    for text, of in grouped(rows, names.__getitem__).items():
        name, time = recording.strings[text], sum(ends[row] - starts[row] for row in of)
        known = [sizes[row] for row in of if sizes[row] != UNKNOWN]
        size = sum(known) if known else None
        bandwidth = size / time if size is not None and time else None
        figures.append(CopyFigures(name, copy_kind(name), len(of), size, time, bandwidth))
    return _reported(CopyFigures, sorted(figures, key=lambda of: (-of.total_ns, of.name)), recording)


def copy_kind(name: str) -> str:
    """Return the direction in a copy's name, ``Memset``, or the name."""
    found = _COPY_KIND.match(name)
    if found:
        return found[1]
    return "Memset" if name.startswith("Memset") else name


def launches(recording: Recording) -> Figures[Launch]:
    """Return the work with a recorded launch, by its start."""
    starts, ends, names = (column(recording, name) for name in ("start_ns", "end_ns", "name"))
    correlations = column(recording, "correlation")
    calls = launches_of(recording)
    found = []
    for row in work_rows(recording, launched_only=True):
        call = calls[correlations[row]]
        found.append(Launch(
            row, call, recording.strings[names[call]], ends[call] - starts[call], ends[row] - starts[row],
            max(starts[row] - ends[call], 0),
        ))  # fmt: skip
    return _reported(Launch, found, recording)


def launch_statistics(recording: Recording) -> Figures[LaunchFigures]:
    """Return the launches by kind of call, most frequent first."""
    figures = []
    for call, of in grouped(launches(recording), lambda launch: launch.call).items():
        calls = {launch.call_row: launch.host_ns for launch in of}  # one may start several pieces
        delay = sum(launch.delay_ns for launch in of)
        figures.append(LaunchFigures(
            call, len(of), sum(calls.values()), sum(launch.device_ns for launch in of), delay, delay / len(of),
            sum(launch.device_ns < launch.host_ns for launch in of),
        ))  # fmt: skip
    return _reported(LaunchFigures, sorted(figures, key=lambda of: (-of.count, of.call)), recording)


def idle_times(recording: Recording, *, launched_only: bool = False) -> Figures[IdleTimes]:
    """Return idle times of each stream, by device and stream."""
    starts, ends = column(recording, "start_ns"), column(recording, "end_ns")
    devices, streams, correlations = (column(recording, name) for name in ("device", "stream", "correlation"))
    calls = launches_of(recording)
    none = recording.none("stream")
    rows = (row for row in work_rows(recording, launched_only=launched_only) if streams[row] != none)
    figures = []
    for (device, stream), of in sorted(grouped(rows, lambda row: (devices[row], streams[row])).items()):
        gaps = {"host": 0, "kernel": 0, "other": 0}
        for before, row in pairwise(of):
            gap, call = starts[row] - ends[before], calls.get(correlations[row], -1)
            is_host = call >= 0 and starts[call] > ends[before]
            gaps["host" if is_host else "kernel" if gap < KERNEL_WAIT_NS else "other"] += gap
        window = union((starts[row], ends[row]) for row in of)
        busy = length(window)
        whole = max(ends[row] for row in of) - starts[of[0]]
        figures.append(IdleTimes(device, stream, len(of), busy, whole - busy, *gaps.values()))
    return _reported(IdleTimes, figures, recording)


def top_kernels(recording: Recording, n: int = 5, *, node: str | None = None) -> Figures[NodeKernel]:
    """Return the longest kernels of each node, busiest node first."""
    most = arguments.index_between("n", n, 1)
    if node is not None and not isinstance(node, str):
        raise TypeError(f"node must be a str or None, got {shown_value(node)}")
    tree, strings = host_tree(recording, merging=False), recording.strings
    around = nodes_around(recording, tree, device_owners(recording, tree))
    starts, ends, names, cats = (column(recording, name) for name in ("start_ns", "end_ns", "name", "cat"))
    memory = texts_of(recording, *COPIES, *SETS)
    by_node = grouped(work_rows(recording), lambda row: strings[names[around[row]]] if around[row] >= 0 else None)
    busy = {name: union((starts[row], ends[row]) for row in rows) for name, rows in by_node.items()}
    figures: list[NodeKernel] = []
    for name in sorted(by_node, key=lambda name: (-length(busy[name]), name or "")):
        if node is not None and name != node:
            continue
        kernels = grouped((row for row in by_node[name] if cats[row] not in memory), lambda row: strings[names[row]])
        times = {kernel: sum(ends[row] - starts[row] for row in rows) for kernel, rows in kernels.items()}
        span_ns = busy[name][-1][1] - busy[name][0][0] if busy[name] else 0
        of_node = sum(map(len, kernels.values())), length(busy[name]), span_ns
        for kernel in sorted(times, key=lambda kernel: (-times[kernel], kernel))[:most]:
            time, count = times[kernel], len(kernels[kernel])
            share = time / (sum(times.values()) or 1)
            figures.append(NodeKernel(name, kernel, count, time, time / count, share, *of_node))
    return _reported(NodeKernel, figures, recording, "No kernel of a device was recorded.")


def _reported(
    kind: type[_T], figures: list[_T], recording: Recording, nothing: str = "No such work of a device was recorded."
) -> Figures[_T]:
    return Figures(kind, figures, [*([] if figures else [nothing]), *drop_notes(recording)])
