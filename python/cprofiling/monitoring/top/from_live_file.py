"""Samples from a live file, found by path or process."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count

from cprofiling._internal.text import shown_text
from cprofiling.monitoring.top.samples import Moment, Part, clock, notes_of
from cprofiling.nodes.live_file import MAGIC, RUNNING, LiveStatistics, read

_STALE_S = 3.0  # without a write, while the process is there: it is stopped, or the machine asleep


class NoLiveFileError(Exception):
    """A process has no live file, or more than one."""


def moments(path: str, pause: Callable[[], object], updates: int | None) -> Generator[Moment, None, None]:
    """Yield a live file's statistics after each pause, until its process ends.

    Raises as ``live.read``.
    """
    for given in count(1):
        moment = moment_of(read(path))
        yield moment
        if moment.is_over or given == updates:
            return
        pause()


def moment_of(statistics: LiveStatistics) -> Moment:
    """Return the statistics of a live file as a sample."""
    process = statistics.process
    notes = list(statistics.reasons)
    parts = []
    for part in statistics.parts:
        summary = part.summary
        notes += notes_of(summary)
        snapshot = part.snapshot
        origin = None if part.is_gone else (process.pid, process.started_ticks, snapshot._sources())  # noqa: SLF001
        label = "before" if part.is_gone else part.label
        parts.append(Part(label, summary, snapshot._find_histograms, origin))  # noqa: SLF001 the package's own
    silent_s = time.time() - statistics.written_ns / 1e9
    if statistics.state == RUNNING and silent_s > _STALE_S:
        notes.append(f"nothing was written for {silent_s:.0f} s: the process may be stopped")
    uptime_s = None
    if statistics.state == RUNNING and process.started_ticks:
        uptime_s = time.clock_gettime(time.CLOCK_BOOTTIME) - process.started_ticks / os.sysconf("SC_CLK_TCK")
    last = "" if statistics.state == RUNNING else f", last figures of {clock(statistics.written_ns / 1e9)}"
    return Moment(
        title=f"process {process.pid}, {statistics.state}: {shown_text('command', process.command)}{last}",
        taken_s=statistics.taken_ns / 1e9,
        parts=tuple(parts),
        notes=tuple(dict.fromkeys(notes)),
        is_over=statistics.state != RUNNING,
        uptime_s=uptime_s,
    )


@contextmanager
def of_process(pid: int) -> Iterator[str]:
    """Yield a path of the one live file that a process writes.

    Raises NoLiveFileError unless there is exactly one. The path leads to the file itself, open here meanwhile: its name
    may be in another namespace, or gone, and it must be readable after the process.
    """
    folder = f"/proc/{pid}/fd"
    try:
        descriptors = [f"{folder}/{number}" for number in sorted(os.listdir(folder), key=int)]
    except FileNotFoundError:
        raise NoLiveFileError(f"there is no process {pid}") from None
    except OSError as error:
        raise NoLiveFileError(f"process {pid}: {error.strerror}") from None
    with ExitStack() as opened:
        found: dict[tuple[int, int], tuple[str, int]] = {}  # each file once: its name, and our descriptor
        for descriptor in descriptors:
            with suppress(OSError):  # it was closed meanwhile
                if stat.S_ISREG(os.stat(descriptor).st_mode):
                    file = opened.enter_context(open(descriptor, "rb", buffering=0))
                    if file.read(len(MAGIC)) != MAGIC:
                        file.close()
                        continue
                    status = os.fstat(file.fileno())
                    found[status.st_dev, status.st_ino] = os.readlink(descriptor), file.fileno()
        if not found:
            raise NoLiveFileError(
                f"process {pid} writes no live file: it does when it is started with CPROFILING_LIVE=PATH, or calls "
                f"set_profiling(True, live=PATH), or after 'cprofiling attach {pid}'"
            )
        if len(found) > 1:
            listed = ", ".join(f"{name!a}" for name, _ in sorted(found.values()))
            raise NoLiveFileError(f"process {pid} writes several live files, give one of them: {listed}")
        ((_, own),) = found.values()
        yield f"/proc/self/fd/{own}"
