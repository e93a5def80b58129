"""Read Chrome traces of Kineto or our own, compressed or not."""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Callable
from typing import IO, TYPE_CHECKING

from cprofiling._core import FormatError
from cprofiling._internal import arguments, file_kinds, files
from cprofiling._internal.messages import warn
from cprofiling._internal.progress import progress
from cprofiling.recording.result import Recording

if TYPE_CHECKING:
    from _typeshed import StrOrBytesPath

_GZIP_WINDOW = 16 + zlib.MAX_WBITS  # zlib's word for data with a gzip header
_PIECE = 1 << 18
_BOMB_RATIO = 300  # traces shrink to a thirtieth at most; text of one letter, to a thousandth
_BOMB_ALLOWANCE = 64 << 20
_NO_EVENTS = "there are no traceEvents"  # as cprofiling/files/chrome_read.c says it
_PROBLEMS = {  # left out or mended
    "ignored": "events of kinds that a recording does not have were left out",
    "unmatched": "begins or ends of events were left out, as the other half is missing",
    "negative": "durations below 0 count as 0",
}


class NoTraceError(FormatError):
    """A file that is no Chrome trace, not even a damaged one."""


def load(path: StrOrBytesPath, called: str | None = None) -> Recording:
    """Read a Chrome trace (see ``cprofiling.load_trace``).

    called: its name in messages, by default the path.
    """
    recording, _ = load_moved(path, called=called)
    recording._finish()
    return recording


def load_moved(
    path: StrOrBytesPath,
    shift_ns: int = 0,
    id_offset: int = 0,
    look: Callable[[bytes], object] | None = None,
    called: str | None = None,
) -> tuple[Recording, int]:
    """Read a Chrome trace, to be merged with others.

    Args:
        path: The file.
        shift_ns: Added to all times.
        id_offset: Added to ids that join events, but for random ones.
        look: Called with the uncompressed text, in pieces.
        called: Its name in messages, by default the path.

    Returns:
        The unfinished recording, and the greatest id in it.
    """
    file_name = arguments.path("path", path)
    name = file_name if called is None else called
    with (
        files.open_to_read(file_name) as file,
        progress("reading", os.fstat(file.fileno()).st_size) as advance,
    ):
        source = _Source(file, advance, look)
        recording = Recording.empty()
        try:
            report = recording._load(source.read, shift_ns, id_offset)
        except FormatError as error:
            kind = file_kinds.kind_of(source.head)
            if kind not in (None, file_kinds.TRACE):
                raise NoTraceError(f"{name}: {kind.told('trace')}") from None
            hint = ": Perfetto's own format is not read" if file_name.endswith(".pftrace") else ""
            is_json = file_kinds.may_be_json(source.head) and _NO_EVENTS not in str(error)
            if source.head.strip() and not is_json:
                raise NoTraceError(f"{name}: it is no Chrome trace: {error}{hint}") from None
            raise FormatError(f"{name}: {error}{hint}") from None
    problems = [f"{report[key]} {text}" for key, text in _PROBLEMS.items() if report[key]]
    if problems:
        warn(f"{name}: {'; '.join(problems)}")
    return recording, report["greatest_id"]


def load_again(trace: bytes) -> Recording:
    """Read a trace that a recording was pickled as."""
    return loaded(io.BytesIO(trace).read)


def loaded(read: Callable[[int], bytes]) -> Recording:
    """Return the recording of a trace that a function reads in pieces."""
    recording = Recording.empty()
    recording._load(read, 0)
    recording._finish()
    return recording


class _Source:
    """Uncompressed text of a file in pieces.

    Attributes:
        head: The beginning of the text.
    """

    def __init__(self, file: IO[bytes], advance: Callable[[int], None], look: Callable[[bytes], object] | None) -> None:
        self._file, self._advance, self._look = file, advance, look
        self._first = file.read(len(file_kinds.GZIP_MAGIC))
        self._read = self._unpack if self._first == file_kinds.GZIP_MAGIC else self._take
        self._stream = zlib.decompressobj(_GZIP_WINDOW)
        self._rest = self.head = b""
        self._packed = self._unpacked = 0  # bytes so far

    def read(self, size: int) -> bytes:
        """Return up to ``size`` bytes of text, empty at the end.

        Raises FormatError for a compressed file that is damaged, cut or too large.
        """
        piece = self._read(size)
        if self._look is not None:
            self._look(piece)
        self.head = self.head or piece[: file_kinds.HEAD]
        return piece

    def _unpack(self, size: int) -> bytes:
        while True:
            piece = self._rest or self._take(_PIECE)
            if self._stream.eof:
                if not piece.rstrip(b"\0"):  # some tools pad
                    return b""
                self._stream = zlib.decompressobj(_GZIP_WINDOW)  # a file may consist of several streams
            elif not piece:
                raise FormatError(f"the compressed data ends in the middle, after {self._packed} bytes")
            try:
                text = self._stream.decompress(piece, size)
            except zlib.error as error:
                raise FormatError(f"the compressed data is damaged before byte {self._packed}: {error}") from None
            self._rest = self._stream.unused_data or self._stream.unconsumed_tail
            self._unpacked += len(text)
            if self._unpacked > self._packed * _BOMB_RATIO + _BOMB_ALLOWANCE:
                raise FormatError(
                    f"{self._packed} compressed bytes unpack to more than {self._unpacked}: that is no trace"
                )
            if text:
                return text

    def _take(self, size: int) -> bytes:
        """Return up to ``size`` bytes of the file, empty at the end."""
        piece, self._first = self._first + self._file.read(size - len(self._first)), b""
        self._packed += len(piece)
        self._advance(len(piece))
        return piece
