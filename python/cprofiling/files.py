"""Files that appear under their name when they are complete, or not at all."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_MODE = 0o600
_MOST_LINKS = 40  # as the kernel follows


@contextmanager
def atomic_writer(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Give a binary file to write to, which gets its name when the block ends without an exception.

    Until then it has another name in the same folder, which no other file can have and through which no link leads
    elsewhere; an exception removes it. Its mode is 0600, and its bytes are on the disk before its name is. The path is
    used exactly; a regular file or a link that has the name is replaced. A device, pipe or socket is not replaced but
    written to directly, also through a link; a pipe waits for a reader. So is an open descriptor of this process, such
    as ``/dev/stdout``, whatever it is.

    Raises:
        OSError: The file cannot be made or written, in the block or at its end; it names the path.
        ValueError: The path has a NUL.
    """
    wanted = os.fsdecode(path)
    temporary = Path(wanted).parent / f".cprofiling-{os.urandom(8).hex()}.tmp"
    with _naming(wanted, str(temporary)):
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
def _replacing(path: Path, temporary: Path) -> Iterator[BinaryIO]:
    """Give a new file that is renamed at the end of the block, and removed if that or the block fails."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.fdopen(os.open(temporary, flags, _MODE), "wb")
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Bring a name to the disk, where folders can be synchronised; the file is complete anyway."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _opened_directly(path: str) -> int | None:
    """Open what is not to be replaced; None where the path leads to a regular file, or nowhere yet."""
    descriptor = _descriptor_named(Path(path))
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


def _descriptor_named(path: Path) -> int | None:
    """Return the open descriptor of this process that a path stands for, if it does."""
    for _ in range(_MOST_LINKS):
        if path.name.isdecimal() and str(path.parent.resolve()) == f"/proc/{os.getpid()}/fd":
            return int(path.name)
        if not path.is_symlink():
            break
        path = path.parent / path.readlink()
    return None
