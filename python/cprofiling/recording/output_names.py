"""Where automatic recordings go: a path that several processes may have, of which one gets it, the others names beside.

No process writes over what another one wrote meanwhile, even if both end at once: a trace is complete, under a name of
its own, before it takes the one that it is to have, and taking that is one step for the system.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from cprofiling._internal import files
from cprofiling._internal.process import environment_rank
from cprofiling.recording.traces import chrome_writer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cprofiling.recording.result import Recording

_SYSTEMS, _MEMORY = ("/dev/", "/proc/"), "/dev/shm/"  # noqa: S108 where no new files belong; and where they do
_SHOWN = 80  # characters of a value
_MODE = 0o600


class UnusablePathError(ValueError):
    """A path that cannot be written to, with the reason."""


def checked_path(value: str) -> str:
    """Return the absolute path of a file that can be written now. Raises UnusablePathError."""
    if not value:
        raise UnusablePathError("it is empty")
    if "\0" in value:
        raise UnusablePathError("it has a NUL")
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        raise UnusablePathError("it is not UTF-8")
    try:
        path = value if os.path.isabs(value) else os.path.join(os.getcwd(), value)
        _check_place(path)
        chrome_writer.check_name(value)
    except (OSError, ValueError) as error:
        raise UnusablePathError(reason(error)) from None
    return path


def _check_place(path: str) -> None:
    folder, name = os.path.split(path)
    if not name or files.kind_at(path) == stat.S_IFDIR:
        raise UnusablePathError("it is a folder")
    if not os.path.isdir(folder):
        os.stat(folder)
        raise UnusablePathError(os.strerror(errno.ENOTDIR))
    is_special = _is_special(path) or (path.startswith(_SYSTEMS) and not path.startswith(_MEMORY))
    if not os.access(path if is_special else folder, os.W_OK | (0 if is_special else os.X_OK), effective_ids=True):
        raise UnusablePathError("it is not writable" if is_special else "its folder is not writable")


def _is_special(path: str) -> bool:
    """Whether a path is written to directly, by whoever has it: a device, a pipe, a descriptor of this process."""
    return files.kind_at(path) not in (0, stat.S_IFREG, stat.S_IFDIR)


class OutputPath:
    """A path as one process has it.

    The first process that has it owns it, unless it has a rank other than 0. All others write beside it, and so does
    an owner that finds a file there which was not there at its start: that is of a process which began independently.
    """

    def __init__(self, path: str, *, is_first: bool) -> None:
        """``path``: as ``checked_path`` returns it; ``is_first``: whether no process above this one has it."""
        self.path = path
        self.rank = environment_rank()
        self.is_owner = is_first and not self.rank
        self._found = _identity(path)

    def wanted(self) -> str:
        """The path, or the first of the names beside it."""
        return self.path if self.is_owner else next(self._names_beside())

    def write(self, recording: Recording) -> str | None:
        """Write a trace and return the path that it got; None: there is nothing beside a device or a pipe.

        Raises as ``chrome.export_to_path``; nothing is left then.
        """
        if _is_special(self.path):
            return self._written_directly(recording)
        folder = os.path.dirname(self.path)
        made = os.path.join(folder, f".cprofiling-{os.urandom(8).hex()}.tmp")
        try:
            chrome_writer.export_to_path(recording, made, compress=self.path.endswith(".gz"))
            taken = self._take_name(made)
        except BaseException:
            with suppress(OSError):
                os.unlink(made)
            raise
        files.sync_folder(Path(folder))
        return taken

    def _written_directly(self, recording: Recording) -> str | None:
        if not self.is_owner:
            return None
        chrome_writer.export_to_path(recording, self.path)
        return self.path

    def _take_name(self, made: str) -> str:
        if self.is_owner and (self._replaced_old(made) or named(made, self.path)):
            return self.path
        return next(name for name in self._names_beside() if named(made, name))

    def _replaced_old(self, made: str) -> bool:
        """Put a file in the place of what was there at the start. False: it is not there any more, or about to go."""
        if self._found is None:
            return False
        with _locked(self.path) as is_free:
            if not is_free or _identity(self.path) != self._found:
                return False
            try:
                os.replace(made, self.path)
            except PermissionError:  # in a folder for all, what is there is another user's
                return False
            return True

    def _names_beside(self) -> Iterator[str]:
        """``trace_123.json.gz`` beside ``trace.json.gz``, or ``trace_rank1_123.json.gz``, then ``trace_123-2.json.gz``.

        The later ones are for where an earlier process had the number.
        """
        base, packed = (self.path[:-3], ".gz") if self.path.endswith(".gz") else (self.path, "")
        stem, suffix = os.path.splitext(base)
        whose = f"{os.getpid()}" if self.rank is None else f"rank{self.rank}_{os.getpid()}"
        yield f"{stem}_{whose}{suffix}{packed}"
        for number in count(2):
            yield f"{stem}_{whose}-{number}{suffix}{packed}"


def _identity(path: str) -> tuple[int, ...] | None:
    """What tells a file, or a link, from another one that has its name later; None where there is none."""
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return None
    return (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)


@contextmanager
def _locked(path: str) -> Iterator[bool]:
    """Have the file that is to be replaced, against others that would. False: one of them has it; nobody waits.

    Where files cannot be locked, as on some network's file systems, what protects it is that the time is short.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:  # a link, a file of somebody else's
        yield True
        return
    try:
        yield has_lock(descriptor)
    finally:
        os.close(descriptor)


def has_lock(descriptor: int) -> bool:
    """Lock a file, for as long as it is open here. False: another process has; where files have no locks, none has."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def named(made: str, name: str) -> bool:
    """Give a file a name that nothing has. False: something has it."""
    try:
        os.link(made, name)
    except FileExistsError:
        if _identity(made) != _identity(name):  # they are one if a network lost the answer, and the system asked again
            return False
    except OSError:  # a file system without hard links
        return _named_by_placeholder(made, name)
    os.unlink(made)
    return True


def _named_by_placeholder(made: str, name: str) -> bool:
    try:
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE))
    except FileExistsError:
        return False
    try:
        os.replace(made, name)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
    return True


def shown_path(value: str) -> str:
    """Return a path that may be anything as a message shows it: in quotes, escaped, cut."""
    return ascii(value) if len(value) <= _SHOWN else f"{value[:_SHOWN]!a}..."


def reason(error: BaseException) -> str:
    """Return why something went wrong, for the end of a message that says what did."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, OSError) and error.strerror is not None:
        return error.strerror
    return str(error) or type(error).__name__
