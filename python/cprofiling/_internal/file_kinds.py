"""Tell kinds of files by their first bytes, for messages."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from cprofiling._internal import files

HEAD = 4096  # bytes by which a file is told
STATISTICS_MAGICS, LIVE_MAGIC, GZIP_MAGIC = (b"CPROFSNP", b"CPROFRNK"), b"CPROFLIV", b"\x1f\x8b"
NEITHER = "it holds neither statistics nor a timing report nor a trace"
_TRACE_KEYS = (b'"traceEvents"', b'"schemaVersion"', b'"deviceProperties"')
_TIMING_KEYS = (b'"schema_version"', b'"request_id"', b'"stages"')
_REPORT_KEY, _TESTS_KEY = b'"cprofiling.report"', b'"cprofiling gate"'


class FileKind(NamedTuple):
    """Description of a kind of file, and its use."""

    what: str
    use: str

    def told(self, wanted: str) -> str:
        """Return why it is refused where another kind is wanted."""
        return f"{self.what}, and no {wanted}: {self.use}"


STATISTICS = FileKind("it holds statistics", "cprofiling report shows them, and cprofiling compare compares two")
LIVE = FileKind("it is a live file", "cprofiling report and cprofiling top show it")
TRACE = FileKind("it is a trace", "cprofiling report shows it, and cprofiling compare compares two")
TIMING = FileKind("it is a timing report", "cprofiling report shows it, and cprofiling compare compares two")
TESTS = FileKind("it is a file of --cprofiling-json", "cprofiling compare compares two")
REPORT = FileKind("it is a report already, of -r json or save()", "give the file that it was made of")


def kind_of(head: bytes) -> FileKind | None:
    """Return the kind of a file by its first bytes, None if unknown."""
    if head.startswith(STATISTICS_MAGICS):
        return STATISTICS
    if head.startswith(LIVE_MAGIC):
        return LIVE
    text = head.lstrip()
    if head.startswith(GZIP_MAGIC) or text.startswith(b"["):
        return TRACE
    if not text.startswith(b"{"):
        return None
    keys = ((TRACE, _TRACE_KEYS), (REPORT, (_REPORT_KEY,)), (TESTS, (_TESTS_KEY,)), (TIMING, _TIMING_KEYS))
    return next((kind for kind, any_of in keys if any(key in head for key in any_of)), None)


def head_of(path: str) -> bytes:
    """Return the first bytes of a file, none of a pipe or device."""
    if not stat.S_ISREG(os.stat(path).st_mode):  # not opened, as the writer of a pipe ends when a reader has gone
        return b""
    with files.open_to_read(path) as file:
        return file.read(HEAD)


def may_be_json(head: bytes) -> bool:
    """Whether a file that begins so may be JSON, compressed or not."""
    return head.startswith(GZIP_MAGIC) or head.lstrip().startswith((b"{", b"["))
