"""Fuzzing of the Python decoders by atheris: ``python tests/fuzz/decoders.py TARGET [OPTION ...] [FOLDER ...]``.

The options and folders are those of libFuzzer. A target takes any bytes. What is no document must be refused by the
documented error; what is one can be shown.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

try:
    import atheris
except ImportError:  # tests run without
    watched: Any = nullcontext()
else:
    watched = atheris.instrument_imports(include=["cprofiling"])
with watched:
    import cprofiling as cp
    from cprofiling import FormatError, _core
    from cprofiling.analysis.timing_reports import compare_timing_reports, load_timing_report
    from cprofiling.devices.nsight import reader
    from cprofiling.layers.harness.signature_file import checked_signature, load_signatures
    from cprofiling.monitoring.top.from_live_file import moment_of
    from cprofiling.nodes import live_file
    from cprofiling.report.from_timing import of_timing_report

    try:
        from google.protobuf.message import DecodeError

        from cprofiling.monitoring.server import messages, profiling_pb2, service
    except ImportError:
        service = None  # type: ignore[assignment]

_COMMIT = struct.Struct("<6Q")
_PART = struct.Struct("<IIQQ")


@contextmanager
def _file_of(data: bytes) -> Iterator[str]:
    """Give the path of a file that is gone afterwards."""
    number = os.memfd_create("fuzzed")
    try:
        os.write(number, data)
        yield f"/proc/self/fd/{number}"
    finally:
        os.close(number)


def live(data: bytes) -> None:
    """A live file: the length of the head's beginning, that, six fields of the commit, and the statistics.

    Checksums and lengths are made right, also of the snapshots, but for those that the first byte spares. With 0xff the
    rest is the file.
    """
    spared, length, rest = data[:1], int.from_bytes(data[1:3], "little") % 4088, data[3:]
    head, commit, statistics = rest[:length], rest[length : length + _COMMIT.size], rest[length + _COMMIT.size :]
    head = (b"CPROFLIV" + head)[:4088].ljust(4088, b"\0")
    number, taken, offset, size, flags, error = _COMMIT.unpack(commit.ljust(_COMMIT.size, b"\0"))
    if spared < b"\x40":
        number, offset, size, statistics = number or 1, 8192, len(statistics), _sealed_parts(statistics)
    sums = [_core.checksum(head), _core.checksum(statistics)]
    fields = struct.pack("<7Q", number, taken, offset, size, flags, error, sums[1])
    place = (fields + struct.pack("<Q", _core.checksum(fields))).ljust(512, b"\0")
    whole = head + struct.pack("<Q", sums[0]) + (place + bytes(512)).ljust(4096, b"\0") + statistics
    cut = spared[0] if spared > b"\x80" else 0
    with _file_of(data[1:] if spared == b"\xff" and data[1:] else whole[: len(whole) - cut]) as path:
        read = live_file.read(path)
    str(moment_of(read))
    for part in read.parts:
        str(part.summary)
    with suppress(ValueError):  # there is none, or they cannot be merged
        str(read.snapshot.stats())


def _sealed_parts(statistics: bytes) -> bytes:
    """Make the lengths and checksums of the snapshots right."""
    found, at = bytearray(statistics), 8
    while at + _PART.size <= len(found):
        label, _, _, length = _PART.unpack_from(found, at)
        begin = at + _PART.size + label
        at = begin + length
        if length >= 88 and at <= len(found):
            struct.pack_into("<Q", found, begin + 16, length)
            struct.pack_into("<Q", found, at - 8, _core.checksum(bytes(found[begin : at - 8])))
    return bytes(found)


def timing(data: bytes) -> None:
    """A timing report."""
    with _file_of(data) as path:
        report = load_timing_report(path)
    str(compare_timing_reports(report, report))
    of_timing_report(report)


def signatures(data: bytes) -> None:
    """A file of signatures, of which each can be checked again."""
    with _file_of(data) as path:
        found = load_signatures(path)
    for signature in found.values():
        assert checked_signature("signature", signature) == signature


def ncu(data: bytes) -> None:
    """A report of ncu as CSV."""
    report = reader.read(io.BytesIO(data), "report")
    str(report)
    str(report.by_kernel())
    for kernel in report:
        str((kernel.flops, kernel.dram_bytes, kernel.arithmetic_intensity, kernel.reason))


def grpc(data: bytes) -> None:
    """A message to the server or from it; the first byte says of which type."""
    names = ("SetProfiling", "GetProfilingSummary", "ResetProfiling", "ListSessions", "GetProfilingSummaryResponse")
    name = names[data[0] % len(names)] if data else names[0]
    kind = getattr(profiling_pb2, name if name.endswith("Response") else f"{name}Request")
    with suppress(DecodeError, messages.Refusal):
        message = kind.FromString(data[1:])
        if name.endswith("Response"):
            summary = messages.summary_from(message)
            str(summary)
            messages.filled(kind(), summary, is_on=True)
            return

        async def call() -> Any:
            server = service.ProfilingService(service.Sessions({"s": cp.Profiler()}))
            return await getattr(server, name)(message, None)

        asyncio.run(call())


TARGETS: dict[str, Callable[[bytes], None]] = {each.__name__: each for each in (live, timing, signatures, ncu, grpc)}


def one(target: str, data: bytes) -> None:
    """Decode an input, which may be refused."""
    with suppress(FormatError):
        TARGETS[target](data)


_MOST_INNER = 400  # lists and objects, so that they are not nested too deeply for json
_VALUES: tuple[Any, ...] = (None, True, 0, -1, 0.5, 1e308, 2**63, "", "x", "/x", [], {}, [0], {"x": 0})


def changed(data: bytes, most_bytes: int, seed: int) -> bytes:
    """Change a value of JSON, mostly; else any bytes."""
    chance = random.Random(seed)
    try:
        root = [json.loads(data)] if data.count(b"[") + data.count(b"{") < _MOST_INNER else []
    except (ValueError, RecursionError):
        root = []
    if not root or chance.random() < 0.2:
        return bytes(atheris.Mutate(data, most_bytes))
    places: list[tuple[Any, Any]] = [(root, 0)]
    for holder, key in places:  # which grows
        inner = holder[key]
        if isinstance(inner, (dict, list)):
            places += [(inner, each) for each in (inner if isinstance(inner, dict) else range(len(inner)))]
    for _ in range(chance.randrange(1, 4)):
        (holder, key), (other, name) = chance.choices(places, k=2)
        value = chance.choice((*_VALUES, json.loads(json.dumps(other[name]))))
        if chance.random() < 0.2 and isinstance(holder, dict) and len(holder) > 1:
            del holder[key]
            break
        holder[key if chance.random() < 0.7 or not isinstance(holder, dict) else str(name)] = value
    return json.dumps(root[0]).encode()[:most_bytes]


if __name__ == "__main__":
    target = sys.argv.pop(1)
    options = {"custom_mutator": changed} if target in ("timing", "signatures") else {}
    atheris.Setup(sys.argv, lambda data: one(target, data), **options)
    atheris.Fuzz()
