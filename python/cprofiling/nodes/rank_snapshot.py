"""Snapshots with the rank, host and process that they come from.

The bytes (integers little-endian)::

    "CPROFRNK", u32 version (1), u32 length of the record
    the record: a JSON object in ASCII: "rank", "world_size", "host", "pid"; unknown ones are missing
    the bytes of Snapshot.to_bytes()
    u32 CRC-32 of all bytes before

What has no such record is read too: bytes of ``Snapshot.to_bytes()`` as they are. Their rank is then told by the name
of their file: ``rank3`` between two of ``_ . -``, or at an end of the name.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cprofiling._core import FormatError
from cprofiling._internal import arguments, process
from cprofiling._internal.files import atomic_writer, make_folders
from cprofiling._internal.text import file_name_of, shown_value
from cprofiling.nodes.profiler import PipelineProfiling, Profiler
from cprofiling.nodes.snapshot import Snapshot

if TYPE_CHECKING:
    from _typeshed import StrOrBytesPath

MAGIC, PLAIN_MAGIC = b"CPROFRNK", b"CPROFSNP"
_VERSION = 1
_HEADER = len(MAGIC) + 8
_CHECKSUM = 4
_MOST = 2**31 - 1  # ranks
_LONGEST_HOST = 255
_NAMED = re.compile(r"(?:^|[_.-])rank(\d{1,9})(?=[_.-]|$)")


@dataclass(frozen=True)
class RankedSnapshot:
    """A snapshot, and which process it is of.

    Attributes:
        snapshot: The statistics.
        rank: Which of ``world_size`` processes, from 0 on; None: not known.
        world_size: How many there are; None: not known.
        host: The machine's name; empty: not known.
        pid: The number of the process there; None: not known.

    Raises TypeError and ValueError for wrong values.
    """

    snapshot: Snapshot
    rank: int | None = None
    world_size: int | None = None
    host: str = ""
    pid: int | None = None

    def __post_init__(self) -> None:
        arguments.member("snapshot", self.snapshot, Snapshot)
        if self.world_size is not None:
            arguments.index_between("world_size", self.world_size, 1, _MOST)
        if self.rank is not None:
            arguments.index_between("rank", self.rank, 0, _MOST if self.world_size is None else self.world_size - 1)
        host: object = self.host
        if not isinstance(host, str) or len(host) > _LONGEST_HOST:
            raise TypeError(f"host must be a str of at most {_LONGEST_HOST} characters, got {shown_value(self.host)}")
        arguments.index_or_none("pid", self.pid, 0)

    @property
    def label(self) -> str:
        """Name in tables, the rank, else host and process."""
        if self.rank is not None:
            return str(self.rank)
        return ":".join(str(part) for part in (self.host, self.pid) if part not in ("", None))

    def to_bytes(self) -> bytes:
        """Return the bytes for ``from_bytes`` and ``cprofiling merge``."""
        known = {"rank": self.rank, "world_size": self.world_size, "host": self.host or None, "pid": self.pid}
        record = json.dumps({key: value for key, value in known.items() if value is not None}).encode("ascii")
        sizes = _VERSION.to_bytes(4, "little") + len(record).to_bytes(4, "little")
        data = MAGIC + sizes + record + self.snapshot.to_bytes()
        return data + zlib.crc32(data).to_bytes(_CHECKSUM, "little")

    @classmethod
    def from_bytes(cls, data: bytes) -> RankedSnapshot:
        """Return a snapshot from ``to_bytes``, or one without a rank.

        They may come from anywhere. Raises FormatError for bytes that are cut, changed or of another format.
        """
        if data.startswith(PLAIN_MAGIC):
            return cls(Snapshot.from_bytes(data))
        if not data.startswith(MAGIC):
            raise FormatError(
                f"statistics begin with {PLAIN_MAGIC!r} or {MAGIC!r}, got {data[:8]!r}" if data else "no bytes"
            )
        if len(data) < _HEADER + _CHECKSUM:
            raise FormatError(f"the data ends in the middle, after {len(data)} bytes")
        version, length = (int.from_bytes(data[at : at + 4], "little") for at in (8, 12))
        if version != _VERSION:
            raise FormatError(f"the record of the rank is of version {version}, expected {_VERSION}")
        if zlib.crc32(data[:-_CHECKSUM]) != int.from_bytes(data[-_CHECKSUM:], "little"):
            raise FormatError(f"the checksum of {len(data)} bytes does not match: they are cut or changed")
        try:
            known = json.loads(data[_HEADER : _HEADER + length])
            if not isinstance(known, dict) or not known.keys() <= {"rank", "world_size", "host", "pid"}:
                raise ValueError(f"it must be an object of rank, world_size, host and pid, got {shown_value(known)}")
            return cls(Snapshot.from_bytes(data[_HEADER + length : -_CHECKSUM]), **known)
        except RecursionError:
            raise FormatError("the record of the rank is nested too deeply") from None
        except (TypeError, ValueError) as error:
            raise FormatError(f"the record of the rank, or its snapshot, is damaged: {error}") from None


def rank_of_name(path: str) -> int | None:
    """Return the last rank in the name of a file, such as ``rank3``."""
    found = _NAMED.findall(os.path.basename(path))
    return int(found[-1]) if found else None


def take(profiler: Profiler | PipelineProfiling) -> RankedSnapshot:
    """Return the present statistics of a Profiler, with this process.

    Raises TypeError for other objects.
    """
    if not isinstance(profiler, (Profiler, PipelineProfiling)):
        raise TypeError(f"profiler must be a Profiler or a PipelineProfiling, got {shown_value(profiler)}")
    rank, world_size = process.known_rank(), process.world_size()
    size = None if rank is None or world_size <= rank else world_size
    return RankedSnapshot(profiler.snapshot(), rank, size, process.host()[:_LONGEST_HOST], os.getpid())


def write_rank_snapshot(
    profiler: Profiler | PipelineProfiling, folder: StrOrBytesPath, name: str = "statistics"
) -> str:
    """Write the statistics for ``cprofiling merge`` and return the path.

    The file is called ``{name}_rank{rank}_{id}.cprof``, without an unknown rank; ``id`` is that of the
    Profiler, so that no two ranks, processes or machines have one name. Written again it is replaced: a rank that
    writes it now and then, and is killed, has left what it wrote last.

    Args:
        profiler: A Profiler, or a pipeline with one.
        folder: It is made, mode 0700, if it is not there.
        name: What could lead out of the folder is escaped.

    Raises TypeError and ValueError for wrong arguments, OSError where the folder or the file cannot be written.
    """
    if not isinstance(name, str):
        raise TypeError(f"name must be a str, got {shown_value(name)}")
    where = arguments.path("folder", folder)
    taken = take(profiler)
    (identity, _), *_ = taken.snapshot._sources()  # noqa: SLF001 the package's own
    whose = "" if taken.rank is None else f"_rank{taken.rank}"
    make_folders(where)
    path = os.path.join(where, f"{file_name_of(name)}{whose}_{identity.hex()[:16]}.cprof")
    with atomic_writer(path) as file:
        file.write(taken.to_bytes())
    return path
