"""Readers of files that can be shown, chosen by content."""

from __future__ import annotations

import os
import stat
import tempfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cprofiling._core import FormatError
from cprofiling._internal import file_kinds, files
from cprofiling._internal.text import shown_text
from cprofiling.layers.ranks.rank_snapshot import RankedSnapshot
from cprofiling.layers.timing_reports import load_timing_report
from cprofiling.nodes import live_file
from cprofiling.recording.traces import reader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cprofiling._internal.tables import Cell


@dataclass(frozen=True)
class Loaded:
    """What was in a file.

    Attributes:
        of: A ``Snapshot``, a ``Recording``, or a timing report as a dict.
        facts: What else the file tells of the run.
    """

    of: object
    facts: Mapping[str, Cell] = field(default_factory=dict)


def load(path: str) -> Loaded:
    """Read statistics, a live file, a timing report or a trace.

    The path may be a pipe's.

    Raises:
        OSError: It cannot be read.
        FormatError: It is damaged, or nothing of that.
        ValueError: A live file has no statistics yet.
    """
    if not stat.S_ISFIFO(os.stat(path).st_mode):
        return _load(path, path)
    # What it is, is told by its first bytes, and a pipe gives them only once.
    with tempfile.TemporaryFile() as file:
        with files.open_to_read(path) as pipe:
            most = files.most_bytes(pipe)
            while file.tell() <= most and (piece := pipe.read(1 << 20)):
                file.write(piece)
        if file.tell() > most:
            raise FormatError(f"more than {most} bytes came out of the pipe")
        file.flush()
        name = f"/proc/self/fd/{file.fileno()}"
        try:
            return _load(name, path)
        except FormatError as error:
            raise FormatError(str(error).replace(name, shown_text("path", path))) from None


def _load(path: str, called: str) -> Loaded:
    """Read a file, named ``called`` in messages."""
    head = file_kinds.head_of(path)
    kind = file_kinds.kind_of(head)
    if kind == file_kinds.STATISTICS:
        taken = RankedSnapshot.from_bytes(files.read_whole(path))
        known = {"rank": taken.rank, "world_size": taken.world_size, "host": taken.host or None, "pid": taken.pid}
        return Loaded(taken.snapshot, {name: value for name, value in known.items() if value is not None})
    if kind == file_kinds.LIVE:
        return _live(path)
    if kind == file_kinds.TIMING:
        return Loaded(load_timing_report(path))
    if kind in (file_kinds.REPORT, file_kinds.TESTS):
        raise FormatError(f"{kind.what}: {kind.use}")
    if head and not file_kinds.may_be_json(head):
        raise FormatError(file_kinds.NEITHER)
    try:
        return Loaded(reader.load(path, called))
    except reader.NoTraceError:
        raise FormatError(file_kinds.NEITHER) from None


def _live(path: str) -> Loaded:
    found = live_file.read(path)
    if not found.parts:
        raise FormatError("no Profiler has written to it yet")
    facts: dict[str, Cell] = {"state": found.state, "process": found.process.pid, "command": found.process.command}
    if found.reasons:
        facts["note"] = "; ".join(found.reasons)
    return Loaded(found.snapshot, facts)
