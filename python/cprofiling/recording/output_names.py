"""File names of automatic recordings, when processes share one path.

One process gets the path, the others get names beside it. No process overwrites another's file, even if both end at
once: a trace is complete under a temporary name before it atomically takes its own.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING

from cprofiling._internal import files
from cprofiling._internal.process import known_rank
from cprofiling.recording.traces import chrome_writer

if TYPE_CHECKING:
    from cprofiling.recording.result import Recording

_SYSTEMS, _MEMORY = ("/dev/", "/proc/"), "/dev/shm/"  # noqa: S108 where no new files belong; and where they do
_SHOWN = 80  # characters of a value
_MODE = 0o600


class UnusablePathError(ValueError):
    """A path that cannot be written to, with the reason."""


def checked_path(value: str) -> str:
    """Return the absolute path of a writable file.

    Raises UnusablePathError.
    """
    if not value:
        raise UnusablePathError("it is empty")
    if "\0" in value:
        raise UnusablePathError("it has a NUL")
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        raise UnusablePathError("it is not UTF-8")
    try:
        path = value if os.path.isabs(value) else os.path.join(os.getcwd(), value)
        folder, name = os.path.split(path)
        if not name or files.kind_at(path) == stat.S_IFDIR:
            raise UnusablePathError("it is a folder")
        if not os.path.isdir(folder):
            os.stat(folder)
            raise UnusablePathError(os.strerror(errno.ENOTDIR))
        is_special = _is_special(path) or (path.startswith(_SYSTEMS) and not path.startswith(_MEMORY))
        if not os.access(path if is_special else folder, os.W_OK | (0 if is_special else os.X_OK), effective_ids=True):
            raise UnusablePathError("it is not writable" if is_special else "its folder is not writable")
        chrome_writer.check_name(value)
    except (OSError, ValueError) as error:
        raise UnusablePathError(reason(error)) from None
    return path


def _is_special(path: str) -> bool:
    """Return whether a path is a device, a pipe or a descriptor."""
    return files.kind_at(path) not in (0, stat.S_IFREG, stat.S_IFDIR)


class OutputPath:
    """A path as one process has it.

    The first process that has it owns it, unless it has a rank other than 0. All others write beside it, and so does
    an owner that finds a file there which was not there at its start: that is of a process which began independently.
    """

    def __init__(self, path: str, *, is_first: bool) -> None:
        """Note the path and whether this process gets it.

        path: from ``checked_path``. is_first: no parent process has it.
        """
        self.path = path
        self.rank = known_rank()
        self.is_owner = is_first and not self.rank
        self._found = _identity(path)

    def wanted(self) -> str:
        """The path, or the first of the names beside it."""
        return self.path if self.is_owner else next(self._names_beside())

    def write(self, recording: Recording) -> str | None:
        """Write a trace and return its path.

        None if there is nothing to write beside a device or pipe. Raises as ``chrome_writer.export_to_path``; no file
        is left then.
        """
        if _is_special(self.path):
            if not self.is_owner:
                return None
            chrome_writer.export_to_path(recording, self.path)
            return self.path
        folder = os.path.dirname(self.path)
        made = os.path.join(folder, f".cprofiling-{os.urandom(8).hex()}.tmp")
        try:
            chrome_writer.export_to_path(recording, made, compress=self.path.endswith(".gz"))
            if self.is_owner and (self._replaced_old(made) or named(made, self.path)):
                taken = self.path
            else:
                taken = next(name for name in self._names_beside() if named(made, name))
        except BaseException:
            with suppress(OSError):
                os.unlink(made)
            raise
        files.sync_folder(folder)
        return taken

    def _replaced_old(self, made: str) -> bool:
        """Replace the file that was there at the start.

        Returns False if it is gone or about to go.
        """
        if self._found is None:
            return False
        with _locked(self.path) as is_free:
            if not is_free or _identity(self.path) != self._found:
                return False
            try:
                os.replace(made, self.path)
            except PermissionError:  # in a shared folder, the file is another user's
                return False
            return True

    def _names_beside(self) -> Iterator[str]:
        """Yield names beside the path, with rank, process and counter.

        As ``trace_123.json.gz`` or ``trace_rank1_123.json.gz``, then ``trace_123-2.json.gz`` if an earlier process had
        the number.
        """
        base, packed = (self.path[:-3], ".gz") if self.path.endswith(".gz") else (self.path, "")
        stem, suffix = os.path.splitext(base)
        whose = f"{os.getpid()}" if self.rank is None else f"rank{self.rank}_{os.getpid()}"
        yield f"{stem}_{whose}{suffix}{packed}"
        for number in count(2):
            yield f"{stem}_{whose}-{number}{suffix}{packed}"


def _identity(path: str) -> tuple[int, ...] | None:
    """Return a file's identity to tell it from a later one, None without file."""
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return None
    return (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)


@contextmanager
def _locked(path: str) -> Iterator[bool]:
    """Lock the file to be replaced, yielding False if another process has it.

    Without file locks, as on some network file systems, only the short time protects it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:  # a link, a file of somebody else's
        yield True
        return
    try:
        yield has_lock(descriptor)
    finally:
        files.close(descriptor)


def has_lock(descriptor: int) -> bool:
    """Lock an open file.

    Returns False if another process has the lock, True also where files have no locks.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def named(made: str, name: str) -> bool:
    """Give a file an unused name.

    Returns False if the name is taken.
    """
    try:
        os.link(made, name)
    except FileExistsError:
        own = _identity(made)
        if own is None or own != _identity(name):  # one file: a network lost the answer, and the system asked again
            return False
    except OSError:  # a file system without hard links
        try:
            files.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE))
        except FileExistsError:
            return False
        try:
            os.replace(made, name)
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise
        return True
    with suppress(OSError):  # it has the name, and may keep the other
        os.unlink(made)
    return True


def shown_path(value: str) -> str:
    """Return a path for a message, quoted, escaped and cut."""
    return ascii(value) if len(value) <= _SHOWN else f"{value[:_SHOWN]!a}..."


def reason(error: BaseException) -> str:
    """Return an error's reason for the end of a message."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, OSError) and error.strerror is not None:
        return error.strerror
    return str(error) or type(error).__name__
