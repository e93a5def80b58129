"""Write Chrome traces to files of all kinds."""

from __future__ import annotations

import gzip
import io
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cprofiling._internal import arguments
from cprofiling._internal.files import atomic_writer
from cprofiling._internal.progress import progress
from cprofiling._internal.text import shown_value

if TYPE_CHECKING:
    from _typeshed import StrOrBytesPath

    from cprofiling.recording.result import Recording

ENDINGS = (".json", ".json.gz")
_COMPRESSION = 6


def check_name(name: str) -> None:
    """Raise ValueError for a `.pftrace` name."""
    if name.lower().endswith(".pftrace"):
        raise ValueError(f".pftrace files are not written: {name!a}. Use .json.gz, which Perfetto opens")


def export(recording: Recording, path: StrOrBytesPath | None, file: Any) -> None:
    """Write a Chrome trace (see ``Recording.export_chrome_trace``)."""
    if path is None and file is None:
        raise TypeError("export_chrome_trace needs either a path or a file, got neither")
    if path is not None and file is not None:
        given = f"path {shown_value(path)} and file {shown_value(file)}"
        raise TypeError(f"export_chrome_trace needs either a path or a file, got both: {given}")
    if path is not None:
        export_to_path(recording, path)
    else:
        write_to_file(recording, file)


def export_to_path(recording: Recording, path: StrOrBytesPath, *, compress: bool | None = None) -> None:
    """Write a Chrome trace to a path.

    Args:
        recording: A recording that has ended.
        path: Replaced when the trace is complete.
        compress: Whether to compress it by gzip. None: if the name ends in ".gz".

    Raises:
        OSError: It cannot be written.
        ValueError: The name ends in ".pftrace".
    """
    name = arguments.path("path", path)
    check_name(name)
    if compress is None:
        compress = name.endswith(".gz")
    with atomic_writer(name) as raw:
        if compress:
            with gzip.GzipFile(filename="", mode="wb", compresslevel=_COMPRESSION, fileobj=raw, mtime=0) as packed:
                _write(recording, packed.write)
        else:
            _write(recording, raw.write)


def write_to_file(recording: Recording, file: Any) -> None:
    """Write a Chrome trace to an open binary or text file, left open."""
    _write(recording, checked_writer(file))
    flush = getattr(file, "flush", None)
    if flush is not None:
        flush()


def _write(recording: Recording, write: Callable[[bytes], object]) -> None:
    with progress("writing") as advance:

        def write_piece(piece: bytes) -> None:
            write(piece)
            advance(len(piece))

        recording.write_chrome(write_piece)


def checked_writer(file: Any) -> Callable[[bytes], object]:
    """Return a function that writes bytes into an open file, binary or text.

    TypeError for others, ValueError for one that is closed or not open for writing.
    """
    write = getattr(file, "write", None)
    if write is None:
        raise TypeError(f"file must be a file object that is open for writing, got {shown_value(file)}")
    if getattr(file, "closed", False):
        raise ValueError(f"file must be open, got a closed one: {shown_value(file)}")
    writable = getattr(file, "writable", None)
    if writable is not None and not writable():
        raise ValueError(f"file must be open for writing, got {shown_value(file)}")
    mode = getattr(file, "mode", None)
    takes_text = "b" not in mode if isinstance(mode, str) else hasattr(file, "encoding")
    if isinstance(file, (io.TextIOBase, io.RawIOBase, io.BufferedIOBase)):
        takes_text = isinstance(file, io.TextIOBase)
    encoding = getattr(file, "encoding", None)

    def write_text(piece: bytes) -> None:
        text = piece.decode("utf-8")  # no piece ends within a character: see cprofiling/files/json_write.h
        if not text.isascii() and isinstance(encoding, str):
            try:
                text.encode(encoding)
            except UnicodeEncodeError:  # characters beyond ASCII are in JSON's strings only
                text = re.sub(r"[^\x00-\x7f]+", lambda found: json.dumps(found[0])[1:-1], text)
            except LookupError:  # a word of the file's own
                pass
        write(text)

    def write_all(piece: bytes) -> None:
        rest = memoryview(piece)
        while rest:  # a file without a buffer may take only a part at once
            taken = file.write(rest)
            if taken is None:
                raise BlockingIOError("the file takes nothing at present: it must be in blocking mode")
            rest = rest[taken:]

    taker: Callable[[bytes], object] = write
    return write_text if takes_text else write_all if isinstance(file, io.RawIOBase) else taker
