"""Head of a live file, which identifies its process.

The core writes what follows, see ``cprofiling/files/live.h``.

Integers are little-endian: "CPROFLIV", u32 version (1), u32 0, u64 process number, u64 its start in ticks since boot,
16 bytes of the ``boot_id``, u64 inode of its PID namespace, u64 creation time in ns since 1970, u16 lengths of host and
command; both in UTF-8; zeros; the last 8 of 4,096 bytes are the checksum of those before. 0 means unknown.
"""

from __future__ import annotations

import os
import struct
import sys
import time
from contextlib import suppress
from dataclasses import dataclass

from cprofiling import _core

MAGIC = b"CPROFLIV"
SIZE = 4096
_VERSION = 1
_FIELDS = struct.Struct("<8sIIQQ16sQQHH")
_CHECKSUM = struct.Struct("<Q")
_MOST_HOST, _MOST_COMMAND = 255, 2048  # bytes
_DEAD = "ZX"  # states of what has ended, and waits for its parent to ask how
_START = 19  # its place in /proc/PID/stat, counted from behind the name


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
        checked = (fields + host + command).ljust(SIZE - _CHECKSUM.size, b"\0")
        return checked + _CHECKSUM.pack(_core.checksum(checked))

    def is_alive(self) -> bool | None:
        """Return whether the process is running, None if unknown from here."""
        here = own()
        if not here.namespace or not any(here.boot) or (here.boot, here.namespace) != (self.boot, self.namespace):
            return None
        began = _started_ticks(str(self.pid))
        return began is not None and began == self.started_ticks


def from_bytes(data: bytes) -> Head:
    """Return the head that a file begins with. FormatError for anything else."""
    if not data.startswith(MAGIC):
        raise _core.FormatError("it is no live file: wrong bytes at its start")
    if len(data) < SIZE:
        raise _core.FormatError(f"it is cut: {len(data)} bytes of the {SIZE} of its head")
    _, version, _, pid, ticks, boot, namespace, made_ns, host, command = _FIELDS.unpack_from(data)
    if version != _VERSION:
        raise _core.FormatError(f"it is of version {version}, known is {_VERSION}")
    (checksum,) = _CHECKSUM.unpack_from(data, SIZE - _CHECKSUM.size)
    if checksum != _core.checksum(data[: SIZE - _CHECKSUM.size]):
        raise _core.FormatError("changed bytes: wrong checksum of its head")
    texts = data[_FIELDS.size : _FIELDS.size + host + command]
    return Head(
        pid=pid,
        started_ticks=ticks,
        boot=boot,
        namespace=namespace,
        made_ns=made_ns,
        host=texts[:host].decode("utf-8", "replace"),
        command=texts[host:].decode("utf-8", "replace"),
    )


def own() -> Head:
    """Return the head of this process, with the time of now."""
    boot, namespace, host = bytes(16), 0, ""
    with suppress(OSError, ValueError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = bytes.fromhex(file.read().strip().replace("-", ""))
    with suppress(OSError):
        namespace = os.stat("/proc/self/ns/pid").st_ino
        host = os.uname().nodename
    return Head(
        pid=os.getpid(),
        started_ticks=_started_ticks("self") or 0,
        boot=boot.ljust(16, b"\0")[:16],
        namespace=namespace,
        made_ns=time.time_ns(),
        host=host,
        command=_cut(_program(), _MOST_COMMAND).decode(),
    )


def _program() -> str:
    """Return the program's name, its file or the folder of ``__main__.py``."""
    first = str(sys.argv[0]) if getattr(sys, "argv", None) else ""
    if first in ("", "-c", "-m"):
        return f"python {first}".rstrip()
    folder, name = os.path.split(first)
    return os.path.basename(folder) or name if name == "__main__.py" else name


def _started_ticks(process: str) -> int | None:
    """Return the start of a process in ticks, 0 if unknown, None if it ended."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        return None if fields[0] in _DEAD else int(fields[_START])
    except (FileNotFoundError, ProcessLookupError):
        return None
    except (OSError, IndexError, ValueError):
        return 0


def _cut(text: str, most: int) -> bytes:
    """Return a text in UTF-8, without the end that is too much."""
    encoded = text.encode("utf-8", "replace")
    return encoded if len(encoded) <= most else encoded[:most].decode("utf-8", "ignore").encode()
