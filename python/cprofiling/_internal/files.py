"""Files that get their names when they are complete, or never."""

from __future__ import annotations

import errno
import io
import os
import select
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO

from cprofiling import _core
from cprofiling._internal import arguments

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, StrOrBytesPath, WriteableBuffer


PATIENCE_S = 10.0  # with the other end of a pipe or socket
_MODE = 0o600
_ANYWAY = 64 << 20  # bytes that are read of a file, whatever the disk says
_MOST_OF_PIPE = 1 << 30
_PIECE = 1 << 20
_DENSEST = 32  # bytes of a file for each on a disk that compresses
_MOST_LINKS = 40  # as the kernel follows


@contextmanager
def atomic_writer(path: StrOrBytesPath) -> Iterator[BinaryIO]:
    """Give a binary file that gets its name when the block has succeeded.

    Until then it has another name in the same folder, which no other file can have and through which no link leads
    elsewhere; an exception removes it. Its mode is 0600, and its bytes are on the disk before its name is. The path is
    used exactly; a regular file or a link that has the name is replaced. A device, pipe or socket is not replaced but
    written to directly, also through a link. So is an open descriptor of this process, such as ``/dev/stdout``,
    whatever it is. In a folder that others may write to, this holds only for this user's files with one name; the links
    of others are replaced.

    Raises:
        OSError: The file cannot be made or written, in the block or at its end; it names the path. PermissionError for
            a device, pipe or socket that others may have put there, TimeoutError where nobody reads it for 10 s.
        TypeError: The path is not a path.
        ValueError: It is empty, or has a NUL.
    """
    wanted = arguments.path("path", path)
    # No Path: pathlib interns its parts, which are kept for ever where there is no GIL.
    temporary = os.path.join(os.path.dirname(wanted), f".cprofiling-{os.urandom(8).hex()}.tmp")
    try:
        with _opened_directly(wanted) or _replacing(wanted, temporary) as file:
            yield file
    except OSError as error:
        if error.errno is None or error.filename not in (None, wanted, temporary):
            raise
        raise OSError(error.errno, error.strerror, wanted) from error  # with the path that the caller knows


@contextmanager
def _replacing(path: str, temporary: str) -> Iterator[BinaryIO]:
    """Give a new file, renamed at the end of the block, removed if that fails."""
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
    sync_folder(os.path.dirname(path))


def _open_privately(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, _MODE)


def make_folders(path: StrOrBytesPath) -> None:
    """Make a folder and those missing above it, of mode 0700. Raises OSError."""
    name = os.fsdecode(path)
    try:
        os.mkdir(name, 0o700)
    except FileNotFoundError:
        above = os.path.dirname(name)
        if above in ("", name):
            raise
        make_folders(above)
        with suppress(FileExistsError):
            os.mkdir(name, 0o700)
    except OSError:
        if not os.path.isdir(name):
            raise


def close(descriptor: int) -> None:
    """Close what nothing was written to, so that a failure is nobody's loss."""
    try:  # noqa: SIM105 there may be no memory for suppress()
        os.close(descriptor)
    except OSError:
        pass


def sync_folder(folder: str) -> None:
    """Bring a name to the disk, where folders can be synchronised. "" is the current folder."""
    with suppress(OSError):
        descriptor = os.open(folder or os.curdir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            close(descriptor)


def _opened_directly(path: str) -> BinaryIO | None:
    """Open a device, pipe or socket; None for a file to be replaced."""
    own, held = _looked_up(path)
    if own is not None:
        return os.fdopen(os.dup(own), "wb")
    if held is None:
        return None
    try:
        kind = stat.S_IFMT(os.fstat(held).st_mode)
        there = f"/proc/self/fd/{held}"  # the checked file, whatever has its name by now
        if kind == stat.S_IFDIR:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if kind == stat.S_IFREG:
            return None
        if kind == stat.S_IFSOCK:
            import socket  # here, as it takes long and few need it

            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(PATIENCE_S)
                connection.connect(there)
                return io.BufferedWriter(_Patient(connection.detach(), "wb", path))
        if kind == stat.S_IFIFO:
            return io.BufferedWriter(_Patient(_opened_pipe(there), "wb", path))
        return os.fdopen(os.open(there, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC), "wb")
    finally:
        close(held)


def _opened_pipe(path: str) -> int:
    """Open a pipe as soon as somebody reads it."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
        if time.monotonic() > deadline:
            raise TimeoutError(errno.ETIMEDOUT, f"nobody has read the pipe for {PATIENCE_S:g} s")
        time.sleep(0.02)


def kind_at(path: str) -> int:
    """Return the kind of file at a path to write to, as ``stat.S_IFIFO``.

    0 for nothing, or something that others may have put there. A descriptor of this process counts as a device.
    Raises OSError as ``atomic_writer``.
    """
    try:
        own, held = _looked_up(path)
    except PermissionError:
        return 0
    if held is None:
        return 0 if own is None else stat.S_IFCHR
    try:
        return stat.S_IFMT(os.fstat(held).st_mode)
    finally:
        close(held)


def _looked_up(path: str) -> tuple[int | None, int | None]:
    """Return the own descriptor that a path names, or a new one, or neither."""
    for _ in range(_MOST_LINKS):
        folder, name = os.path.split(path)
        place = os.path.realpath(folder or os.curdir)
        if place == f"/proc/{os.getpid()}/fd" and name.isdecimal():
            return int(name), None
        try:
            opened = os.open(folder or os.curdir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                flags = os.O_PATH | os.O_CLOEXEC | (0 if place.startswith("/proc/") else os.O_NOFOLLOW)
                parent, held = os.fstat(opened), os.open(name, flags, dir_fd=opened)
            finally:
                close(opened)
        except FileNotFoundError:
            if name:
                return None, None
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path) from None
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from None
        is_wanted = False
        try:
            status = os.fstat(held)
            is_ours = parent.st_uid in (0, os.geteuid()) and not parent.st_mode & 0o022  # only root and this user write
            is_trusted = is_ours or (status.st_uid == os.geteuid() and status.st_nlink == 1)
            kind = stat.S_IFMT(status.st_mode)
            is_wanted = (is_trusted and kind != stat.S_IFLNK) or kind in (stat.S_IFREG, stat.S_IFDIR)
            if is_wanted:
                return None, held
            if not is_trusted and kind == stat.S_IFLNK:
                return None, None
            if not is_trusted:
                raise PermissionError(errno.EPERM, "others may have put it there", path)
            path = os.path.join(folder, os.readlink("", dir_fd=held))
        finally:
            if not is_wanted:
                close(held)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)


class _Patient(io.FileIO):
    """Pipe, socket or device opened without blocking, with a limit for waits."""

    def __init__(
        self, descriptor: int | str, mode: str, path: str, opener: Callable[[str, int], int] | None = None
    ) -> None:
        super().__init__(descriptor, mode, opener=opener)
        self._path = path
        self._has_begun = self._waits_long = False

    def wait_long(self) -> None:
        """Wait as long as it takes."""
        self._has_begun = self._waits_long = True

    def write(self, data: ReadableBuffer, /) -> int:
        """Write some of the data. Raises TimeoutError without room for long."""
        while (count := super().write(data)) is None:
            self._wait(select.POLLOUT)
        return count

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read what there is. TimeoutError where nothing comes for long."""
        if not self._has_begun:
            self._wait(select.POLLIN)  # without a writer, a pipe is at its end
            self._has_begun = True
        while (count := super().readinto(buffer)) is None:
            self._wait(select.POLLIN)
        return count

    read, readall = io.RawIOBase.read, io.RawIOBase.readall  # type: ignore[assignment]  # which call readinto

    def _wait(self, event: int) -> None:
        poll = select.poll()
        poll.register(self, event)
        if not poll.poll(None if self._waits_long else PATIENCE_S * 1000):
            text = f"its other end has done nothing for {PATIENCE_S:g} s"
            raise TimeoutError(errno.ETIMEDOUT, text, self._path)


def open_to_read(path: StrOrBytesPath) -> BinaryIO:
    """Open a file or pipe without waiting for a writer for ever.

    Its methods raise TimeoutError where nothing comes for long; a descriptor of this process is waited for.
    """
    name = os.fsdecode(path)
    raw = _Patient(name, "rb", name, _open_at_once)
    try:
        if stat.S_ISREG(os.fstat(raw.fileno()).st_mode):
            raw.wait_long()
        else:
            with suppress(OSError):
                own, held = _looked_up(name)
                if own is not None:
                    raw.wait_long()
                elif held is not None:
                    close(held)
        return io.BufferedReader(raw)
    except BaseException:
        with suppress(OSError):
            raw.close()
        raise


def _open_at_once(path: str, _flags: int) -> int:
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)


def open_regular(path: StrOrBytesPath) -> BinaryIO:
    """Open a regular file for reading. Raises FormatError for anything else."""
    file = open_to_read(path)
    try:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise _core.FormatError("it is no regular file")
    except BaseException:
        with suppress(OSError):
            file.close()
        raise
    return file


def most_bytes(file: BinaryIO) -> int:
    """Return the most bytes read from a file, by its size on the disk.

    A file that has holes can be of any size, and cost its maker nothing. A pipe tells nothing of its size.
    """
    status = os.fstat(file.fileno())
    return max(_ANYWAY, status.st_blocks * 512 * _DENSEST) if stat.S_ISREG(status.st_mode) else _MOST_OF_PIPE


def read_whole(path: StrOrBytesPath) -> bytes:
    """Return all bytes of a file. FormatError for more than ``most_bytes``."""
    with open_to_read(path) as file:
        most = most_bytes(file)
        size = os.fstat(file.fileno()).st_size
        left = (min(size, most) if size else most) + 1
        pieces = []
        while left and (piece := file.read(min(left, max(size + 1, _PIECE)))):
            pieces.append(piece)
            left -= len(piece)
    data = b"".join(pieces)
    if len(data) > most:
        raise _core.FormatError(f"it has more than {most} bytes, or has holes")
    return data
