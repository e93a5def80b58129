"""Read a live file, also while it is written or after a crash."""

from __future__ import annotations

import os
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cprofiling import _core
from cprofiling._internal import arguments, files
from cprofiling.nodes.live_file import head
from cprofiling.nodes.missing_figures import REFUSED
from cprofiling.nodes.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from _typeshed import StrOrBytesPath

    from cprofiling.nodes.stats import ProfilingSummary

RUNNING, ENDED, KILLED, UNKNOWN = "running", "ended", "killed", "unknown"
_PLACES, _PLACE = 4096, 512
_AREAS = 8192
_COMMIT = struct.Struct("<8Q")
_COUNT, _PART = struct.Struct("<Q"), struct.Struct("<IIQQ")
_LAST, _STALE = 1, 2
_ON, _GONE = 1, 2
_MOST_ERROR = 2**31 - 1  # of what the system has a word for
_TRIES = 20  # a file that is written all the time has changed under the reader at most now and then
_EMPTY_FOR_S = 0.5  # at most: whoever makes a live file has its name first


@dataclass(frozen=True)
class LivePart:
    """Statistics of one Profiler.

    Attributes:
        label: Whose it is: the name of the pipeline's class, or what kind of Profiler it is; "" for what is gone.
        snapshot: The statistics.
        enabled: Whether it was switched on.
        is_gone: Whether these are the merged statistics of Profilers that were there before.
        refused_keys: How often a key was looked for when there was no room for more of them.
    """

    label: str
    snapshot: Snapshot
    enabled: bool
    is_gone: bool
    refused_keys: int

    @property
    def summary(self) -> ProfilingSummary:
        """The statistics of its nodes."""
        return self.snapshot.stats()


@dataclass(frozen=True)
class LiveStatistics:
    """Contents of a live file at one moment.

    Attributes:
        path: The file.
        process: Whose it is.
        state: ``running``; ``ended``: it is complete; ``killed``: the process is gone, and what it counted in its last
            moments, about a tenth of a second, is not there; ``unknown``: whether it is gone cannot be told from here.
        taken_ns: When the statistics were taken: ns since 1970.
        commits: How often they were written so far.
        error: The errno of why newer ones could not be written; 0: there are none.
        parts: What each Profiler has counted, in the order in which they were switched on.
    """

    path: str
    process: head.Head
    state: str
    taken_ns: int
    commits: int
    error: int
    parts: tuple[LivePart, ...]

    @property
    def snapshot(self) -> Snapshot:
        """Return all parts merged.

        Raises ValueError if there is none.
        """
        snapshots = [part.snapshot for part in self.parts]
        return snapshots[0] if len(snapshots) == 1 else Snapshot.merge(snapshots)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Return remarks on the whole file."""
        said = []
        if self.state == KILLED:
            said.append(
                "the process was killed, or ended without its interpreter: its last moments are not in the file"
            )
        if self.error:
            said.append(f"newer statistics could not be written to the file: {os.strerror(self.error)}")
        if any(part.refused_keys for part in self.parts):
            said.append(REFUSED)
        return tuple(said)


def read(path: StrOrBytesPath) -> LiveStatistics:
    """Read a live file.

    It may be written meanwhile, by any process; what is returned was complete at one moment.

    Raises:
        OSError: It cannot be read.
        FormatError: It is no live file, or was cut or changed.
        TypeError: ``path`` is no path.
        ValueError: It is empty, or has a NUL.
    """
    wanted = arguments.path("path", path)
    deadline = time.monotonic() + _EMPTY_FOR_S
    while os.stat(wanted).st_size == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    with files.open_regular(wanted) as file:
        process = head.from_bytes(_read_at(file, 0, head.SIZE))
        is_alive = process.is_alive()
        commit, data = _latest(file)
    try:
        parts = tuple(_parts(data))
    except (struct.error, UnicodeDecodeError):
        raise _core.FormatError("its statistics are no parts with labels") from None
    commits, taken_ns, _, _, flags, error, *_ = commit
    state = ENDED if flags & _LAST else {True: RUNNING, False: KILLED, None: UNKNOWN}[is_alive]
    return LiveStatistics(
        path=wanted,
        process=process,
        state=state,
        taken_ns=taken_ns,
        commits=commits,
        error=min(error, _MOST_ERROR) if flags & _STALE else 0,
        parts=parts,
    )


def _read_at(file: BinaryIO, offset: int, size: int) -> bytes:
    return os.pread(file.fileno(), size, offset)


def _latest(file: BinaryIO) -> tuple[tuple[int, ...], bytes]:
    """Return the latest commit and its data, even if newer ones replace it."""
    reason = "there is no commit in it"
    refused = None
    for _ in range(_TRIES):
        commits = sorted(_commits(file), reverse=True)
        if commits and commits[0] == refused:
            break
        if commits:
            _, _, offset, length, _, _, checksum, _ = commits[0]
            data = _statistics(file, offset, length)
            if data is not None and _core.checksum(data) == checksum:
                return commits[0], data
            refused = commits[0]
            reason = "cut or changed bytes: wrong checksum of its statistics"
    raise _core.FormatError(reason)


def _commits(file: BinaryIO) -> Iterator[tuple[int, ...]]:
    for place in range(2):
        data = _read_at(file, _PLACES + place * _PLACE, _COMMIT.size)
        if len(data) == _COMMIT.size:
            commit = _COMMIT.unpack(data)
            if commit[0] and commit[-1] == _core.checksum(data[:-8]):
                yield commit


def _statistics(file: BinaryIO, offset: int, length: int) -> bytes | None:
    if offset < _AREAS or offset + length > os.fstat(file.fileno()).st_size or length > files.most_bytes(file):
        return None
    data = _read_at(file, offset, length)
    return data if len(data) == length else None


def _parts(data: bytes) -> Iterator[LivePart]:
    """Yield the parts of the data.

    Raises struct.error, UnicodeDecodeError or FormatError for invalid data.
    """
    (count,) = _COUNT.unpack_from(data)
    at = _COUNT.size
    for _ in range(count):
        label_length, flags, refused, length = _PART.unpack_from(data, at)
        at += _PART.size
        label = data[at : at + label_length].decode("utf-8", "surrogatepass")
        at += label_length
        snapshot = Snapshot.from_bytes(data[at : at + length])
        at += length
        yield LivePart(label, snapshot, bool(flags & _ON), bool(flags & _GONE), refused)
