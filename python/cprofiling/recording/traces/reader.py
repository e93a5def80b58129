"""Read Chrome traces of Kineto or our own, compressed or not."""

from __future__ import annotations

import io
import os
import sys
import zlib
from typing import TYPE_CHECKING

from cprofiling._core import FormatError
from cprofiling._internal import arguments, file_kinds, files
from cprofiling._internal.messages import warn
from cprofiling.recording.result import Recording

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import IO

    from _typeshed import StrOrBytesPath

_GZIP_WINDOW = 16 + zlib.MAX_WBITS  # zlib's word for data with a gzip header
_PIECE = 1 << 18
_BOMB_RATIO = 300  # traces shrink to a thirtieth at most; text of one letter, to a thousandth
_BOMB_ALLOWANCE = 64 << 20
_NO_EVENTS = "there are no traceEvents"  # as cprofiling/files/chrome_read.c says it
_SHOWN_FROM = 32 << 20  # bytes of a file for which a progress bar is worth its lines


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
    with files.open_to_read(file_name) as file:
        source = _Source(file, os.fstat(file.fileno()).st_size, look)
        recording = Recording.empty()
        try:
            report = recording._load(source.read, shift_ns, id_offset)
        except FormatError as error:
            raise _named(error, name, file_name, source.head) from None
        finally:
            source.close()
    _warn_of_missing(name, report)
    return recording, report["greatest_id"]


def load_again(trace: bytes) -> Recording:
    """Read a trace that a recording was pickled as."""
    recording = Recording.empty()
    recording._load(io.BytesIO(trace).read, 0)
    recording._finish()
    return recording


def _named(error: FormatError, name: str, file_name: str, head: bytes) -> FormatError:
    """Return an error with the file's name and its likely format."""
    kind = file_kinds.kind_of(head)
    if kind not in (None, file_kinds.TRACE):
        return NoTraceError(f"{name}: {kind.told('trace')}")
    hint = ": Perfetto's own format is not read" if file_name.endswith(".pftrace") else ""
    if head.strip() and not (file_kinds.may_be_json(head) and _NO_EVENTS not in str(error)):
        return NoTraceError(f"{name}: it is no Chrome trace: {error}{hint}")
    return FormatError(f"{name}: {error}{hint}")


def _warn_of_missing(name: str, report: dict[str, int]) -> None:
    """Warn of parts of the file left out or mended."""
    ignored, unmatched, negative = report["ignored"], report["unmatched"], report["negative"]
    parts = [
        f"{ignored} events of kinds that a recording does not have were left out" if ignored else "",
        f"{unmatched} begins or ends of events were left out, as the other half is missing" if unmatched else "",
        f"{negative} durations below 0 count as 0" if negative else "",
    ]
    if any(parts):
        warn(f"{name}: {'; '.join(filter(None, parts))}")


class _Source:
    """The uncompressed text of a file, in pieces.

    Attributes:
        head: The beginning of the text.
    """

    def __init__(self, file: IO[bytes], size: int, look: Callable[[bytes], object] | None) -> None:
        self._file = file
        self._look = look
        self._progress = _Progress(size)
        self._first = file.read(_PIECE)
        self.head = b""
        self._taken = len(self._first)
        self._read = _Unpacker(self.take).read if self._first.startswith(file_kinds.GZIP_MAGIC) else self.take

    def read(self, size: int) -> bytes:
        """Return up to ``size`` bytes of text, empty at the end.

        Raises FormatError as ``_Unpacker.read``.
        """
        piece = self._read(size)
        if self._look is not None:
            self._look(piece)
        self.head = self.head or piece[: file_kinds.HEAD]
        return piece

    def take(self, size: int) -> bytes:
        """Return up to ``size`` raw bytes, empty at the end."""
        if self._first:
            piece, self._first = self._first[:size], self._first[size:]
            return piece
        piece = self._file.read(size)
        self._taken += len(piece)
        self._progress.show(self._taken)
        return piece

    def close(self) -> None:
        """End the progress bar."""
        self._progress.close()


class _Unpacker:
    def __init__(self, take: Callable[[int], bytes]) -> None:
        self._take = take
        self._stream = zlib.decompressobj(_GZIP_WINDOW)
        self._rest = b""
        self._packed = self._unpacked = 0

    def read(self, size: int) -> bytes:
        """Return up to ``size`` bytes, empty at the end.

        Raises FormatError for a file that is damaged, cut or too large.
        """
        while True:
            piece = self._rest
            if not piece:
                piece = self._take(_PIECE)
                self._packed += len(piece)
            if self._stream.eof:
                if not piece.rstrip(b"\0"):  # some tools pad
                    return b""
                self._stream = zlib.decompressobj(_GZIP_WINDOW)  # a file may consist of several streams
            elif not piece:
                raise FormatError(f"the compressed data ends in the middle, after {self._packed} bytes")
            text = self._unpack(piece, size)
            if text:
                return text

    def _unpack(self, piece: bytes, size: int) -> bytes:
        try:
            text = self._stream.decompress(piece, size)
        except zlib.error as error:
            raise FormatError(f"the compressed data is damaged before byte {self._packed}: {error}") from None
        self._rest = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail
        self._unpacked += len(text)
        if self._unpacked > self._packed * _BOMB_RATIO + _BOMB_ALLOWANCE:
            raise FormatError(f"{self._packed} compressed bytes unpack to more than {self._unpacked}: that is no trace")
        return text


class _Progress:
    """A bar on stderr, where that is a terminal and the file is large."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._shown = -1
        self._is_wanted = size >= _SHOWN_FROM and sys.stderr is not None and sys.stderr.isatty()

    def show(self, done: int) -> None:
        percent = min(100, done * 100 // self._size) if self._is_wanted else self._shown
        if percent != self._shown:
            self._shown = percent
            sys.stderr.write(f"\rreading {'#' * (percent // 4):25} {percent:3} %")
            sys.stderr.flush()

    def close(self) -> None:
        if self._shown >= 0:
            sys.stderr.write("\n")
