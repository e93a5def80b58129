"""Read live files, also while a process runs or after a crash.

The core writes them, see ``cprofiling/files/live.h``. The head has little-endian integers: "CPROFLIV", u32 version (1),
u32 0, u64 process number, u64 its start in ticks since boot, 16 bytes of the ``boot_id``, u64 inode of its PID
namespace, u64 creation time in ns since 1970, u16 lengths of host and command; both in UTF-8; zeros; the last 8 of
4,096 bytes are the checksum of those before. 0 means unknown.
"""

from __future__ import annotations

import os
import struct
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from cprofiling import _core
from cprofiling._internal import arguments, files
from cprofiling._internal.process import started_ticks
from cprofiling.nodes.missing_figures import REFUSED
from cprofiling.nodes.snapshot import Snapshot

if TYPE_CHECKING:
    from _typeshed import StrOrBytesPath

    from cprofiling.nodes.stats import ProfilingSummary

MAGIC = b"CPROFLIV"
HEAD_SIZE = 4096
_VERSION = 1
_FIELDS = struct.Struct("<8sIIQQ16sQQHH")
_CHECKSUM = struct.Struct("<Q")
_MOST_HOST, _MOST_COMMAND = 255, 2048  # bytes


@dataclass(frozen=True)
class Head:
    """A process, so that it can be told from a later one with its number.

    Attributes:
        pid: Its number.
        started_ticks: When it began, in ticks since the system did; 0: not known.
        boot: The system's start: 16 bytes; zeros: not known.
        namespace: The inode of its namespace of process numbers; 0: not known.
        made_ns: When the file was made: ns since 1970.
        host: The machine's name.
        command: Its program's name. Arguments may hold passwords.
    """

    pid: int
    started_ticks: int
    boot: bytes
    namespace: int
    made_ns: int
    host: str
    command: str

    def to_bytes(self) -> bytes:
        """Return the head as it is in the file."""
        host, command = _cut(self.host, _MOST_HOST), _cut(self.command, _MOST_COMMAND)
        numbers = (self.pid, self.started_ticks, self.boot, self.namespace, self.made_ns)
        fields = _FIELDS.pack(MAGIC, _VERSION, 0, *numbers, len(host), len(command))
        checked = (fields + host + command).ljust(HEAD_SIZE - _CHECKSUM.size, b"\0")
        return checked + _CHECKSUM.pack(_core.checksum(checked))

    def is_alive(self) -> bool | None:
        """Return whether the process is running, None if unknown from here."""
        here = own_head()
        if not here.namespace or not any(here.boot) or (here.boot, here.namespace) != (self.boot, self.namespace):
            return None
        return started_ticks(self.pid) == self.started_ticks


def head_from_bytes(data: bytes) -> Head:
    """Return the head that a file begins with. FormatError for anything else."""
    if not data.startswith(MAGIC):
        raise _core.FormatError("it is no live file: wrong bytes at its start")
    if len(data) < HEAD_SIZE:
        raise _core.FormatError(f"it is cut: {len(data)} bytes of the {HEAD_SIZE} of its head")
    _, version, _, pid, ticks, boot, namespace, made_ns, host, command = _FIELDS.unpack_from(data)
    if version != _VERSION:
        raise _core.FormatError(f"it is of version {version}, known is {_VERSION}")
    (checksum,) = _CHECKSUM.unpack_from(data, HEAD_SIZE - _CHECKSUM.size)
    if checksum != _core.checksum(data[: HEAD_SIZE - _CHECKSUM.size]):
        raise _core.FormatError("changed bytes: wrong checksum of its head")
    texts = data[_FIELDS.size : _FIELDS.size + host + command]
    names = [text.decode("utf-8", "replace") for text in (texts[:host], texts[host:])]
    return Head(pid, ticks, boot, namespace, made_ns, *names)


def own_head() -> Head:
    """Return the head of this process, with the time of now."""
    boot, namespace, host = bytes(16), 0, ""
    with suppress(OSError, ValueError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = bytes.fromhex(file.read().strip().replace("-", ""))
    with suppress(OSError):
        namespace = os.stat("/proc/self/ns/pid").st_ino
        host = os.uname().nodename
    first = str(sys.argv[0]) if getattr(sys, "argv", None) else ""
    folder, name = os.path.split(first)
    if first in ("", "-c", "-m"):
        name = f"python {first}".rstrip()
    elif name == "__main__.py":
        name = os.path.basename(folder) or name
    command = _cut(name, _MOST_COMMAND).decode()
    boot = boot.ljust(16, b"\0")[:16]
    return Head(os.getpid(), started_ticks() or 0, boot, namespace, time.time_ns(), host, command)


def _cut(text: str, most: int) -> bytes:
    """Return a text in UTF-8, without the end that is too much."""
    encoded = text.encode("utf-8", "replace")
    return encoded if len(encoded) <= most else encoded[:most].decode("utf-8", "ignore").encode()


RUNNING, ENDED, KILLED, UNKNOWN = "running", "ended", "killed", "unknown"
_PLACES, _PLACE = 4096, 512
_AREAS = 8192
_COMMIT = struct.Struct("<8Q")
_COUNT, _PART = struct.Struct("<Q"), struct.Struct("<IIQQ")
_LAST, _STALE = 1, 2
_ON, _GONE = 1, 2
_MOST_ERROR = 2**31 - 1  # the largest errno that os.strerror() takes
_TRIES = 20  # a file that is written all the time has changed under the reader at most now and then
_EMPTY_FOR_S = 0.5  # at most: whoever makes a live file has its name first


@dataclass(frozen=True)
class LivePart:
    """Statistics of one Profiler.

    Attributes:
        label: The name of the pipeline's class, or the kind of Profiler; "" for ended ones.
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
        process: Its owner.
        state: ``running``; ``ended``: the file is complete; ``killed``: the process is gone, and the figures of its
            last moments are missing; ``unknown``: of a process that cannot be seen from here.
        taken_ns: When the statistics were the newest: ns since 1970.
        written_ns: When the file was written last: ns since 1970. A process that runs writes at least every other
            second.
        commits: How often it was written so far.
        error: The errno of why newer ones could not be written; 0: there are none.
        parts: What each Profiler has counted, in the order in which they were switched on.
    """

    path: str
    process: Head
    state: str
    taken_ns: int
    written_ns: int
    commits: int
    error: int
    parts: tuple[LivePart, ...]

    @property
    def snapshot(self) -> Snapshot:
        """Return all parts merged.

        Raises ValueError without one.
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

    Any process may write it meanwhile; the result was complete at one moment.

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
        process = head_from_bytes(_read_at(file, HEAD_SIZE, 0))
        is_alive = process.is_alive()
        commit, data = _latest(file)
        written_ns = os.fstat(file.fileno()).st_mtime_ns
    parts = []
    try:
        (count,) = _COUNT.unpack_from(data)
        at = _COUNT.size
        for _ in range(count):
            label_length, marks, refused, length = _PART.unpack_from(data, at)
            begin = at + _PART.size + label_length
            label = data[at + _PART.size : begin].decode("utf-8", "surrogatepass")
            at = begin + length
            snapshot = Snapshot.from_bytes(data[begin:at])
            parts.append(LivePart(label, snapshot, bool(marks & _ON), bool(marks & _GONE), refused))
    except (struct.error, OverflowError, UnicodeDecodeError):  # too large a length is one of these
        raise _core.FormatError("its statistics are no parts with labels") from None
    commits, taken_ns, _, _, flags, error, *_ = commit
    state = ENDED if flags & _LAST else {True: RUNNING, False: KILLED, None: UNKNOWN}[is_alive]
    return LiveStatistics(
        path=wanted,
        process=process,
        state=state,
        taken_ns=taken_ns,
        written_ns=written_ns,
        commits=commits,
        error=min(error, _MOST_ERROR) if flags & _STALE else 0,
        parts=tuple(parts),
    )


def _read_at(file: BinaryIO, size: int, offset: int) -> bytes:
    """Read past any buffer, up to the end, as one read may give less."""
    data = b""
    while len(data) < size and (more := os.pread(file.fileno(), size - len(data), offset + len(data))):
        data += more
    return data


def _latest(file: BinaryIO) -> tuple[tuple[int, ...], bytes]:
    """Return the latest commit and its data, even if newer ones replace it."""
    reason = "there is no commit in it"
    refused = None
    for _ in range(_TRIES):
        commits = []
        for place in (_PLACES, _PLACES + _PLACE):
            data = _read_at(file, _COMMIT.size, place)
            if len(data) == _COMMIT.size and any(data[:8]) and _core.checksum(data[:-8]) == _COMMIT.unpack(data)[-1]:
                commits.append(_COMMIT.unpack(data))
        commits.sort(reverse=True)
        if commits and commits[0] == refused:
            break
        if commits:
            _, _, offset, length, _, _, checksum, _ = commits[0]
            if offset >= _AREAS and length <= min(os.fstat(file.fileno()).st_size - offset, files.most_bytes(file)):
                data = _read_at(file, length, offset)
                if len(data) == length and _core.checksum(data) == checksum:
                    return commits[0], data
            refused = commits[0]
            reason = "cut or changed bytes: wrong checksum of its statistics"
    raise _core.FormatError(reason)
