"""Files that appear under their name when they are complete, or not at all."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from cprofiling import checks

if TYPE_CHECKING:
    from _typeshed import StrOrBytesPath

_MODE = 0o600
_MOST_LINKS = 40  # as the kernel follows


@contextmanager
def atomic_writer(path: StrOrBytesPath) -> Iterator[BinaryIO]:
    """Give a binary file to write to, which gets its name when the block ends without an exception.

    Until then it has another name in the same folder, which no other file can have and through which no link leads
    elsewhere; an exception removes it. Its mode is 0600, and its bytes are on the disk before its name is. The path is
    used exactly; a regular file or a link that has the name is replaced. A device, pipe or socket is not replaced but
    written to directly, also through a link; a pipe waits for a reader. So is an open descriptor of this process, such
    as ``/dev/stdout``, whatever it is.

    Raises:
        OSError: The file cannot be made or written, in the block or at its end; it names the path.
        TypeError: The path is none.
        ValueError: It is empty, or has a NUL.
    """
    wanted = checks.path("path", path)
    # No Path: it would be kept for ever, as pathlib interns its parts.
    temporary = os.path.join(str(Path(wanted).parent), f".cprofiling-{os.urandom(8).hex()}.tmp")
    with _naming(wanted, temporary):
        opened = _opened_directly(wanted)
        if opened is None:
            with _replacing(Path(wanted), temporary) as file:
                yield file
        else:
            with os.fdopen(opened, "wb") as file:
                yield file


@contextmanager
def _naming(path: str, temporary: str) -> Iterator[None]:
    """Give errors the path that the caller knows."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename not in (None, path, str(Path(path)), temporary):
            raise
        raise OSError(error.errno, error.strerror, path) from error


@contextmanager
def _replacing(path: Path, temporary: str) -> Iterator[BinaryIO]:
    """Give a new file that is renamed at the end of the block, and removed if that or the block fails."""
    try:
        with open(temporary, "xb", opener=_open_privately) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    sync_folder(path.parent)


def _open_privately(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, _MODE)


def sync_folder(folder: Path) -> None:
    """Bring a name to the disk, where folders can be synchronised; the file is complete anyway."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _opened_directly(path: str) -> int | None:
    """Open what is not to be replaced; None where the path leads to a regular file, or nowhere yet."""
    descriptor = descriptor_named(Path(path))
    if descriptor is not None:
        return os.dup(descriptor)
    try:
        mode = Path(path).stat().st_mode
    except FileNotFoundError:
        mode = stat.S_IFDIR if path.endswith("/") else stat.S_IFREG
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if stat.S_ISREG(mode):
        return None
    if stat.S_ISSOCK(mode):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            return connection.detach()
    return os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC)


def descriptor_named(path: Path) -> int | None:
    """Return the open descriptor of this process that a path stands for, if it does."""
    for _ in range(_MOST_LINKS):
        if path.name.isdecimal() and str(path.parent.resolve()) == f"/proc/{os.getpid()}/fd":
            return int(path.name)
        if not path.is_symlink():
            break
        path = path.parent / path.readlink()
    return None
