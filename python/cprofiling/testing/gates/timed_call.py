"""Times of one call and of its nodes, by clock and by processor."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from time import perf_counter_ns, process_time_ns, thread_time_ns
from typing import NamedTuple

from cprofiling.nodes.profiler import Profiler

NS_PER_MS = 1e6
CALL = ""  # stands for the whole call, beside the names of nodes
SMALLEST_MS = 0.05  # below, reading clocks and counters is a part of the time
MOST_ROUNDS = 4  # of calls, while times spread much
_WAITING_SHARE = 0.05  # of its time, up to which a call counts as one that does nothing but compute


class Times(NamedTuple):
    """Times of a call, or of all calls of a node in it."""

    wall_ms: float
    cpu_ms: float | None  # of the thread; None: not known


class Turn(NamedTuple):
    """One timed call."""

    rows: dict[str, Times]  # by node, and CALL
    waited_ms: float  # neither on a processor nor in line for one
    in_line_ms: float | None = None  # None: not known
    others_cpu_ms: float = 0.0  # computed meanwhile by other threads of the process, and by children that ended


class Timer:
    """Timer of calls and of nodes that belong to no other Profiler."""

    def __init__(self) -> None:
        """Make one for the calling thread."""
        self._profiler = Profiler()
        self._profiler.set_profiling(True, counters=("cpu_time",))
        self._in_line = _InLine()

    def time(self, function: Callable[[], object]) -> Turn:
        """Call a function once. Its exceptions pass through."""
        self._profiler.reset_profiling()
        with self._profiler:
            line, all_cpu = self._in_line.now_ns(), _process_time_ns()
            cpu, start = thread_time_ns(), perf_counter_ns()
            function()
            end, cpu_end = perf_counter_ns(), thread_time_ns()
            all_cpu, line_end = _process_time_ns() - all_cpu, self._in_line.now_ns()
        rows = {CALL: Times((end - start) / NS_PER_MS, (cpu_end - cpu) / NS_PER_MS)}
        for stats in self._profiler.get_profiling_summary():
            used = stats.counters.get("cpu_time")
            cpu_ms = used.total / NS_PER_MS if used is not None and used.samples == stats.count else None
            if stats.count and stats.node_name != CALL:  # a node's time is that of all its stages
                known = rows.get(stats.node_name, Times(0.0, 0.0))
                all_cpu_ms = None if known.cpu_ms is None or cpu_ms is None else known.cpu_ms + cpu_ms
                rows[stats.node_name] = Times(known.wall_ms + stats.total_ms, all_cpu_ms)
        stood = None if line is None or line_end is None else line_end - line
        waited = max(0, end - start - (cpu_end - cpu) - (stood or 0))
        others = max(0, all_cpu - (cpu_end - cpu))
        return Turn(rows, waited / NS_PER_MS, None if stood is None else stood / NS_PER_MS, others / NS_PER_MS)

    def close(self) -> None:
        """Release its Profiler and its file."""
        self._profiler.set_profiling(False)
        self._in_line.close()


def _process_time_ns() -> int:
    """Return the processor time of the process and its ended children."""
    children = getrusage(RUSAGE_CHILDREN)
    return process_time_ns() + int((children.ru_utime + children.ru_stime) * 1e9)


class _InLine:
    """Time that a thread waited for a processor, None where unknown."""

    def __init__(self) -> None:
        self._descriptor = -1
        with suppress(OSError):
            path = f"/proc/self/task/{threading.get_native_id()}/schedstat"
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def now_ns(self) -> int | None:
        if self._descriptor < 0:
            return None
        return int(os.pread(self._descriptor, 128, 0).split()[1])

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def only_compute(turns: Sequence[Turn], beside: Sequence[Turn] = ()) -> bool:
    """Tell whether calls did nothing but compute in their thread.

    A virtual machine that stands still for a while seems to wait: that meets some calls and not most of them, and
    also those of work that is known to do nothing but compute (``beside``).
    """

    def share(waited_ms: float, wall_ms: float) -> float:
        return waited_ms / wall_ms if wall_ms > 0 else 0.0

    def share_of_all(some: Sequence[Turn]) -> float:
        return share(sum(turn.waited_ms for turn in some), sum(turn.rows[CALL].wall_ms for turn in some))

    if median(share(turn.waited_ms, turn.rows[CALL].wall_ms) for turn in turns) <= _WAITING_SHARE:
        return True
    return share_of_all(turns) <= _WAITING_SHARE + share_of_all(beside)


def series(turns: Iterable[Turn], row: str, *, by_cpu: bool) -> list[float]:
    """Return a row's times in all turns that have it."""
    found = [turn.rows[row] for turn in turns if row in turn.rows]
    if by_cpu and all(times.cpu_ms is not None for times in found):
        return [times.cpu_ms or 0.0 for times in found]
    return [times.wall_ms for times in found]
