"""Moments from a live file, which is found by its path, or by the process that writes it."""

from __future__ import annotations

import os
import stat
import time

from cprofiling.format import shown_text
from cprofiling.live import read
from cprofiling.live.head import MAGIC
from cprofiling.live.reading import RUNNING, LiveStatistics
from cprofiling.top.moments import Moment, Part

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator

_STALE_S = 2.0  # without a commit, while the process is there: it is stopped, or the machine asleep


class NoLiveFileError(Exception):
    """A process has no live file, or more than one."""


def moments(path: str, pause: Callable[[], object], updates: int | None) -> Generator[Moment, None, None]:
    """Give the statistics of a live file, again after each pause, until its process is gone.

    Raises as ``live.read``.
    """
    given = 0
    while True:
        moment = moment_of(read(path))
        yield moment
        given += 1
        if moment.is_over or given == updates:
            return
        pause()


def moment_of(statistics: LiveStatistics) -> Moment:
    """Return what a live file says."""
    process = statistics.process
    several = len(statistics.parts) > 1
    notes = list(statistics.reasons)
    parts = []
    for part in statistics.parts:
        summary = part.summary
        notes += summary.reasons
        if summary.internal_errors:
            notes.append(f"{summary.internal_errors} faults inside the profiler")
        label = ("before" if part.is_gone else part.label) if several else ""
        parts.append(Part(label, summary))
    silent_s = time.time() - statistics.taken_ns / 1e9
    if statistics.state == RUNNING and silent_s > _STALE_S:
        notes.append(f"nothing was written for {silent_s:.0f} s: the process may be stopped")
    return Moment(
        title=f"process {process.pid}, {statistics.state}: {shown_text('command', process.command)}",
        whose=(process.pid, process.started_ticks, process.made_ns),
        taken_s=statistics.taken_ns / 1e9,
        parts=tuple(parts),
        notes=tuple(dict.fromkeys(notes)),
        is_over=statistics.state != RUNNING,
    )


def path_of_process(pid: int) -> str:
    """Return the path of the live file that a process writes. NoLiveFileError where there is not exactly one."""
    folder = f"/proc/{pid}/fd"
    try:
        descriptors = sorted(os.listdir(folder), key=int)
    except FileNotFoundError:
        raise NoLiveFileError(f"there is no process {pid}") from None
    except OSError as error:
        raise NoLiveFileError(f"process {pid}: {error.strerror}") from None
    found = {path for number in descriptors if (path := _live_file(f"{folder}/{number}")) is not None}
    if len(found) == 1:
        return found.pop()
    if found:
        listed = ", ".join(f"{path!a}" for path in sorted(found))
        raise NoLiveFileError(f"process {pid} writes several live files, give one of them: {listed}")
    raise NoLiveFileError(
        f"process {pid} writes no live file: it does when it is started with CPROFILING_LIVE=PATH, or calls "
        "set_profiling(True, live=PATH)"
    )


def _live_file(descriptor: str) -> str | None:
    """Return the path of a descriptor of another process; None where it is of no live file."""
    try:
        if not stat.S_ISREG(os.stat(descriptor).st_mode):
            return None
        with open(descriptor, "rb", buffering=0) as file:
            is_live = file.read(len(MAGIC)) == MAGIC
        return os.readlink(descriptor) if is_live else None
    except OSError:  # it was closed meanwhile
        return None
