"""Write Chrome traces to files of all kinds."""

from __future__ import annotations

import gzip
import io
from typing import TYPE_CHECKING

from cprofiling._internal import arguments
from cprofiling._internal.files import atomic_writer
from cprofiling._internal.text import shown_value

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

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
                recording.write_chrome(packed.write)
        else:
            recording.write_chrome(raw.write)


def write_to_file(recording: Recording, file: Any) -> None:
    """Write a Chrome trace to an open binary or text file, left open."""
    write = checked_writer(file)
    recording.write_chrome(write)
    flush = getattr(file, "flush", None)
    if flush is not None:
        flush()


def checked_writer(file: Any) -> Callable[[bytes], object]:
    """Return a function that writes bytes into an open file, binary or text.

    TypeError for what is none, ValueError for one that is closed or not open for writing.
    """
    write = getattr(file, "write", None)
    if write is None:
        raise TypeError(f"file must be a file object that is open for writing, got {shown_value(file)}")
    if getattr(file, "closed", False):
        raise ValueError(f"file must be open, got a closed one: {shown_value(file)}")
    writable = getattr(file, "writable", None)
    if writable is not None and not writable():
        raise ValueError(f"file must be open for writing, got {shown_value(file)}")
    if _takes_text(file):
        return _text_writer(write, getattr(file, "encoding", None))
    if isinstance(file, io.RawIOBase):
        return lambda piece: _write_all(file, piece)
    taker: Callable[[bytes], object] = write
    return taker


def _text_writer(write: Callable[[str], object], encoding: Any) -> Callable[[bytes], object]:
    """Return a function that writes UTF-8 as text, escaped as needed."""

    def write_piece(piece: bytes) -> None:
        text = piece.decode("utf-8")  # no piece ends within a character: see cprofiling/files/json_write.h
        write(text if _can_encode(text, encoding) else _escaped(text))

    return write_piece


def _can_encode(text: str, encoding: Any) -> bool:
    if text.isascii() or not isinstance(encoding, str):
        return True
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    except LookupError:  # a word of the file's own
        return True
    return True


def _escaped(text: str) -> str:
    """Escape non-ASCII characters of JSON, which are in strings only."""
    import json
    import re

    return re.sub(r"[^\x00-\x7f]+", lambda found: json.dumps(found[0])[1:-1], text)


def _takes_text(file: Any) -> bool:
    if isinstance(file, io.TextIOBase):
        return True
    if isinstance(file, (io.RawIOBase, io.BufferedIOBase)):
        return False
    mode = getattr(file, "mode", None)
    if isinstance(mode, str):
        return "b" not in mode
    return hasattr(file, "encoding")


def _write_all(file: io.RawIOBase, piece: bytes) -> None:
    """Write to a file without a buffer, which may take only a part at once."""
    rest = memoryview(piece)
    while rest:
        taken = file.write(rest)
        if taken is None:
            raise BlockingIOError("the file takes nothing at present: it must be in blocking mode")
        rest = rest[taken:]
