"""Kernels, copies, launches and idle time of devices.

The figures are those of HolisticTraceAnalysis.

All times are in ns. Rows of no work (waits for a device, annotations mirrored on it) are in none of the figures. Work
whose start is not in the recording, as it was started before that began, counts unless ``launched_only`` is true; in
HolisticTraceAnalysis it never does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cprofiling._internal.row_kinds import DEVICE
from cprofiling._internal.tables import Figures
from cprofiling.recording.columns import COPIES, NO_WORK, SETS, UNKNOWN, Recording, column, drop_notes, texts_of
from cprofiling.recording.tree import launches_of

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


def kernel_breakdown(recording: Recording, *, launched_only: bool = False) -> Figures[KernelFigures]:
    """Return the work of all devices by name, longest total first."""
    starts, ends, names, cats = (column(recording, name) for name in ("start_ns", "end_ns", "name", "cat"))
    memory = texts_of(recording, *COPIES, *SETS)
    times: dict[tuple[int, bool], list[int]] = {}
    for row in work_rows(recording, launched_only=launched_only):
        times.setdefault((names[row], cats[row] in memory), []).append(ends[row] - starts[row])
    figures = []
    for (text, is_memory), of in times.items():
        name, count, total = recording.strings[text], len(of), sum(of)
        kernel_type = MEMORY if is_memory else COMMUNICATION if COMMUNICATION_KERNEL.match(name) else COMPUTATION
        # Exact but for the root: a sum of squares of whole ns has no rounding.
        squares = count * sum(time * time for time in of) - total * total
        deviation = math.sqrt(squares / (count * (count - 1))) if count > 1 else 0.0
        figures.append(KernelFigures(name, kernel_type, count, total, total / count, min(of), max(of), deviation))
    return Figures(KernelFigures, sorted(figures, key=lambda of: (-of.total_ns, of.name)), _notes(recording, figures))


def copy_breakdown(recording: Recording, *, launched_only: bool = False) -> Figures[CopyFigures]:
    """Return copies and settings of memory by kind, longest total first."""
    starts, ends, names = (column(recording, name) for name in ("start_ns", "end_ns", "name"))
    cats, sizes = column(recording, "cat"), column(recording, "bytes")
    memory = texts_of(recording, *COPIES, *SETS)
    sums: dict[int, list[int]] = {}  # count, ns, bytes, of how many bytes are known
    for row in work_rows(recording, launched_only=launched_only):
        if cats[row] in memory:
            of = sums.setdefault(names[row], [0, 0, 0, 0])
            of[0] += 1
            of[1] += ends[row] - starts[row]
            if sizes[row] != UNKNOWN:
                of[2] += sizes[row]
                of[3] += 1
    figures = []
    for name, (count, time, size, known) in sums.items():
        text = recording.strings[name]
        figures.append(CopyFigures(
            text, copy_kind(text), count, size if known else None, time, size / time if known and time else None,
        ))  # fmt: skip
    return Figures(CopyFigures, sorted(figures, key=lambda of: (-of.total_ns, of.name)), _notes(recording, figures))


def copy_kind(name: str) -> str:
    """Return the direction in a copy's name, ``Memset``, or the name."""
    found = _COPY_KIND.match(name)
    if found:
        return found[1]
    return "Memset" if name.startswith("Memset") else name


def launches(recording: Recording) -> Figures[Launch]:
    """Return the work whose launch is recorded, by its start."""
    starts, ends, names = (column(recording, name) for name in ("start_ns", "end_ns", "name"))
    correlations = column(recording, "correlation")
    calls = launches_of(recording)
    strings = recording.strings
    found = []
    for row in work_rows(recording):
        call = calls.get(correlations[row], -1)
        if call >= 0:
            found.append(Launch(
                row, call, strings[names[call]], ends[call] - starts[call], ends[row] - starts[row],
                max(starts[row] - ends[call], 0),
            ))  # fmt: skip
    return Figures(Launch, found, _notes(recording, found))


def launch_statistics(recording: Recording) -> Figures[LaunchFigures]:
    """Return the launches by kind of call, most frequent first."""
    by_call: dict[str, list[Launch]] = {}
    for launch in launches(recording):
        by_call.setdefault(launch.call, []).append(launch)
    figures = []
    for call, of in by_call.items():
        calls = {launch.call_row: launch.host_ns for launch in of}  # one may start several pieces
        delay = sum(launch.delay_ns for launch in of)
        figures.append(LaunchFigures(
            call, len(of), sum(calls.values()), sum(launch.device_ns for launch in of), delay, delay / len(of),
            sum(launch.device_ns < launch.host_ns for launch in of),
        ))  # fmt: skip
    return Figures(LaunchFigures, sorted(figures, key=lambda of: (-of.count, of.call)), _notes(recording, figures))


def idle_times(
    recording: Recording, kernel_wait_ns: int = KERNEL_WAIT_NS, *, launched_only: bool = False
) -> Figures[IdleTimes]:
    """Return what each stream waited for, by device and stream.

    A gap counts as waiting for the host if the call that started the work after it began only in it; else as the wait
    of a kernel for the next, if it is shorter than ``kernel_wait_ns``; else as other.
    """
    starts = column(recording, "start_ns")
    devices, streams = column(recording, "device"), column(recording, "stream")
    correlations, ends = column(recording, "correlation"), column(recording, "end_ns")
    calls = launches_of(recording)
    found: dict[tuple[int, int], _Stream] = {}
    for row in work_rows(recording, launched_only=launched_only):
        if streams[row] != recording.none("stream"):
            stream = found.setdefault((devices[row], streams[row]), _Stream(starts[row], kernel_wait_ns))
            call = calls.get(correlations[row], -1)
            stream.add(starts[row], ends[row], starts[call] if call >= 0 else None)
    figures = [stream.figures(*key) for key, stream in sorted(found.items())]
    return Figures(IdleTimes, figures, _notes(recording, figures))


class _Stream:
    """The times of a stream, while its work is looked through."""

    def __init__(self, start: int, kernel_wait_ns: int) -> None:
        self._start = self._end = self._latest_end = start
        self._kernel_wait_ns = kernel_wait_ns
        self._count = self._busy = 0
        self._gaps = {"host": 0, "kernel": 0, "other": 0}

    def add(self, start: int, end: int, called: int | None) -> None:
        """Add work and the gap before it.

        ``called``: when the host called for it, if known.
        """
        if self._count > 0:
            gap = start - self._end
            is_host = called is not None and called > self._end
            is_kernel = gap < self._kernel_wait_ns
            self._gaps["host" if is_host else "kernel" if is_kernel else "other"] += gap
        self._count += 1
        self._busy += max(end - max(start, self._latest_end), 0)
        self._end, self._latest_end = end, max(end, self._latest_end)

    def figures(self, device: int, stream: int) -> IdleTimes:
        idle = self._latest_end - self._start - self._busy
        gaps = self._gaps
        return IdleTimes(device, stream, self._count, self._busy, idle, gaps["host"], gaps["kernel"], gaps["other"])


def work_rows(recording: Recording, *, launched_only: bool = False) -> Iterator[int]:
    """Yield the rows of work of devices, by their start.

    ``launched_only``: those whose launch is recorded.
    """
    no_work = texts_of(recording, *NO_WORK)
    correlations = column(recording, "correlation")
    calls = launches_of(recording) if launched_only else {}
    for row, (kind, cat) in enumerate(zip(column(recording, "kind"), column(recording, "cat"), strict=True)):
        if kind == DEVICE and cat not in no_work and (not launched_only or correlations[row] in calls):
            yield row


def _notes(recording: Recording, figures: Sequence[object]) -> list[str]:
    return drop_notes(recording) if figures else ["No such work of a device was recorded.", *drop_notes(recording)]
