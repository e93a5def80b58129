"""Keep statistics in live files, and create these.

The core writes each in its own thread (``cprofiling/files/live.h``); this module decides where.
"""

from __future__ import annotations

import atexit
import errno
import os
import stat
import weakref
from _thread import RLock
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from cprofiling import _core
from cprofiling._internal import arguments, files, process_exit
from cprofiling._internal.messages import mention, say
from cprofiling._internal.process import call_at_fork, hold_at_fork, is_first_with, unkept
from cprofiling.nodes.live_file import ENDED, MAGIC, own_head, read
from cprofiling.nodes.missing_figures import reasons_of
from cprofiling.nodes.profiler import default_profiler
from cprofiling.recording.output_names import OutputPath, UnusablePathError, has_lock, named, reason, shown_path

if TYPE_CHECKING:
    from cprofiling.nodes.profiler import Profiler

OWNER = "CPROFILING_LIVE_OWNER"  # says to other processes who has the path
ROOM = 2 * 1024 * 1024  # bytes for the statistics: of about 4,000 keys; there are two such areas
INTERVAL_NS = 100_000_000
_AREAS = 8192  # bytes before them
_MODE = 0o600
_MOST_NAMES = 9  # as CPROF_LIVE_NAMES
_NOT_LIVE = "there is a file that is no live file"
_IN_USE = "another process writes its statistics to it"


class LiveWriter:
    """A live file of this process.

    Attributes:
        path: Where it is; absolute.
        is_automatic: Whether it was asked for by the environment, for all Profilers.
    """

    def __init__(self, path: str, core: _core.LiveFile, *, is_automatic: bool = False) -> None:
        """Write to the opened file ``core``."""
        self.path = path
        self.is_automatic = is_automatic
        self._core = core
        self._profilers: list[tuple[weakref.ref[Profiler], str]] = []

    def holds(self, profiler: Profiler) -> bool:
        """Return whether a Profiler's statistics are kept here."""
        return self._core.holds(profiler)

    def add(self, profiler: Profiler, label: str | None = None) -> None:
        """Keep a Profiler's statistics from now on, by default under its own label."""
        self._prune()
        label = label or ("default" if profiler is default_profiler else profiler._label or "Profiler")
        label = label.rpartition("<locals>.")[2]
        taken = {label for _, label in self._profilers}
        numbered = (f"{label} {number}" for number in range(2, len(taken) + 3))
        label = next(each for each in (label, *numbered) if each not in taken)
        self._add(profiler, label)
        self._profilers.append((weakref.ref(profiler), label))

    def remove(self, profiler: Profiler) -> None:
        """Stop keeping a Profiler, and leave its statistics as a deleted one's."""
        self._core.remove(profiler)
        self._profilers = [pair for pair in self._profilers if pair[0]() not in (None, profiler)]

    def is_only(self, profiler: Profiler) -> bool:
        """Return whether removing the Profiler ends the file.

        True if the file has no other Profiler, and the environment did not ask for it.
        """
        self._prune()
        return not self.is_automatic and all(pair[0]() is profiler for pair in self._profilers)

    def close(self) -> None:
        """Write for the last time.

        Faults are reported, not raised: there may be more to close.
        """
        self._report(*self._core.close())

    def prepare_end(self) -> None:
        """Write now; the interpreter's end closes the file.

        Functions of atexit that were registered before ours run in between, and their calls count, too.
        """
        self._report(*self._core.prepare_end())

    def _report(self, _commits: int, _size: int, error: int) -> None:
        if error:
            mention(f"the newest statistics are not in {self.path!a}: {os.strerror(error)}")

    def continue_beside(self) -> None:
        """Release the parent's file in a forked child.

        It gets a file of its own once it counts.
        """
        self._core.close()
        self.path = OutputPath(self.path, is_first=False).wanted()
        self._core = _later(self.path)
        for profiler, label in self._profilers:
            if (alive := profiler()) is not None:
                self._add(alive, label)

    def _add(self, profiler: Profiler, label: str) -> None:
        label_bytes, *notes = (text.encode("utf-8", "replace") for text in (label, *reasons_of(0, 0, 0)))
        self._core.add(profiler, label_bytes, tuple(notes))

    def _prune(self) -> None:
        self._profilers = [pair for pair in self._profilers if pair[0]() is not None]


class _Files:
    """Live files of this process, and the environment's request."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.open: dict[str, LiveWriter] = {}
        self.automatic: LiveWriter | None = None

    def of(self, profiler: Profiler) -> LiveWriter | None:
        """Return the file that a Profiler's statistics are kept in."""
        return next((file for file in self.open.values() if file.holds(profiler)), None)


_files = _Files()


def switch(profiler: Profiler, live: object, enabled: bool) -> Callable[[], None] | None:
    """Prepare the effect of ``set_profiling``, and return its last step.

    That is called once the Profiler has changed; None if there is nothing to do.

    Raises:
        OSError: The file cannot be had; FileExistsError where there is one that is no live file.
        TypeError: ``live`` is no path.
        ValueError: It is empty, has a NUL, or leads to a device or the like.
    """
    path = None if live is None else os.path.abspath(arguments.path("live", live))
    with _files.lock:
        current = _files.of(profiler)
        if not enabled:
            return None if current is None or current.is_automatic else partial(_move, profiler, None)
        wanted = _files.automatic if path is None else _files.open.get(path)
        if path is not None and wanted is None:
            wanted = _files.open[path] = LiveWriter(path, _opened(path, mention))
        return None if wanted is current else partial(_move, profiler, wanted)


def _move(profiler: Profiler, wanted: LiveWriter | None) -> None:
    """Have a Profiler in one file, or none, and in no other."""
    with _files.lock:
        current = _files.of(profiler)
        if current is wanted:
            return
        if current is not None and current.is_only(profiler):
            del _files.open[current.path]
            current.close()
        elif current is not None:
            current.remove(profiler)
        if wanted is not None:
            wanted.add(profiler)


def start(value: str, variable: str, default: Profiler) -> None:
    """Keep statistics of all Profilers at an environment variable's path.

    The default Profiler is enabled. A failure is one line on stderr, and nothing else. Processes started by one with
    the same path, and ranks other than 0, have a file beside that path, once they have counted something.
    """
    is_first = is_first_with(OWNER)
    try:
        path = os.path.abspath(arguments.path(variable, value))
        output = OutputPath(path, is_first=is_first)
        core = None
        if output.is_owner:
            try:
                core = _opened(output.path, say)
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise
                output.is_owner = False  # a server has several workers, and knows nothing of this itself
                say(f"{output.path!a} is in use already: statistics are kept in {output.wanted()!a}")
        core = core or _later(output.wanted())
    except (OSError, ValueError, UnusablePathError) as error:
        if is_first:  # the others would repeat it
            say(f"{variable}={shown_path(value)} cannot be used, so no statistics are kept there: {reason(error)}")
        return
    file = LiveWriter(output.wanted(), core, is_automatic=True)
    _files.automatic = _files.open[file.path] = file
    process_exit.watch(_close_all)
    default.set_profiling(True)


def keep_all(path: str, tell: Callable[[str], None], profilers: Iterable[Profiler]) -> tuple[LiveWriter, bool]:
    """Keep statistics of all Profilers from now on, as the environment asks for at the start.

    Returns the file and whether it is new: what the environment has asked for stays.

    Args:
        path: Where a new one is.
        tell: Called with the new place of a killed process's file.
        profilers: Which are on, and not in a file.

    Raises as ``switch``.
    """
    with _files.lock:
        file = _files.automatic
        is_new = file is None
        if file is None:
            path = os.path.abspath(arguments.path("live", path))
            if path in _files.open:
                raise OSError(errno.EBUSY, "the program keeps statistics of some Profilers in it", path)
            file = LiveWriter(path, _opened(path, tell), is_automatic=True)
            _files.automatic = _files.open[path] = file
        for profiler in profilers:
            if profiler.profiling_enabled and _files.of(profiler) is None:
                file.add(profiler)
        return file, is_new


def file_of(profiler: Profiler) -> LiveWriter | None:
    """Return the file that a Profiler's statistics are kept in, None without one."""
    with _files.lock:
        return _files.of(profiler)


def end(file: LiveWriter) -> None:
    """Write a file for the last time, and keep nothing in it any more."""
    with _files.lock:
        if _files.automatic is file:
            _files.automatic = None
        if _files.open.pop(file.path, None) is not None:
            file.close()


def commit() -> None:
    """Write all live files of this process at once."""
    with _files.lock:
        for file in _files.open.values():
            file._core.commit()


# ---- How a file comes to be


def _opened(path: str, tell: Callable[[str], None]) -> _core.LiveFile:
    """Return a new live file at a path, complete before it has its name.

    Room for later data is allocated. tell: called with the new place of a killed process's file.
    """
    try:
        with _place(path) as keep:
            made, kept = _made(path, keep=keep)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    if kept is not None:
        tell(f"{path!a} was of a process that was killed, or ended without its interpreter: it is kept as {kept!a}")
    return made


def _later(path: str) -> _core.LiveFile:
    """Return a live file that is made once something is counted."""
    return _core.LiveFile(-1, os.fsencode(path), own_head().to_bytes(), ROOM, INTERVAL_NS)


@contextmanager
def _place(path: str) -> Iterator[bool]:
    """Reserve a path with nothing or an unused live file at it.

    Yields whether to keep that file: nobody may have seen what a killed process had counted.
    """
    with suppress(FileNotFoundError):
        mode = os.lstat(path).st_mode
        if not stat.S_ISREG(mode):
            raise ValueError(f"live must be the path of a regular file, got {path!a}")
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        descriptor, is_new = os.open(path, flags | os.O_CREAT | os.O_EXCL, _MODE), True
    except FileExistsError:
        descriptor, is_new = os.open(path, flags), False
    goes = is_new
    try:
        is_ours = False
        if has_lock(descriptor):
            with suppress(FileNotFoundError):  # another process may have put its own file there, or taken it away
                is_ours = os.path.samestat(os.fstat(descriptor), os.lstat(path))
        if not is_ours:
            goes = False
            raise OSError(errno.EBUSY, _IN_USE)
        magic = os.pread(descriptor, len(MAGIC), 0)
        if magic not in (b"", MAGIC):
            raise FileExistsError(errno.EEXIST, _NOT_LIVE)
        keep = bool(magic)
        if keep:
            with suppress(OSError, _core.FormatError):  # one that is over, or counted nothing, can go
                statistics = read(path)
                keep = statistics.state != ENDED and any(len(part.summary) for part in statistics.parts)
        yield keep
    except BaseException:
        if goes:
            with suppress(OSError):
                os.unlink(path)
        raise
    finally:
        files.close(descriptor)


def _made(path: str, *, keep: bool) -> tuple[_core.LiveFile, str | None]:
    """Return a new live file, and the new place of the old one, if kept."""
    temporary = os.path.join(os.path.dirname(path), f".cprofiling-{os.urandom(8).hex()}.tmp")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, _MODE)
    made = kept = None
    try:
        has_lock(descriptor)
        os.posix_fallocate(descriptor, 0, _AREAS + 2 * ROOM)
        own = own_head().to_bytes()
        written = 0
        while written < len(own):  # one write may take less
            written += os.pwrite(descriptor, own[written:], written)
        made = _core.LiveFile(descriptor, b"", own, ROOM, INTERVAL_NS)
        if keep:
            kept = _kept(path)
            if not named(temporary, path):  # there was nothing for a moment
                raise OSError(errno.EBUSY, _IN_USE)
        else:
            os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        if made is None:
            files.close(descriptor)
        raise
    return made, kept


def _kept(path: str) -> str:
    """Rename a live file to a free name beside it, and return that.

    From ``live-2.cprof`` to ``live-9.cprof``; if all are taken, the oldest unused one goes.
    """
    stem, suffix = os.path.splitext(path)
    names = [f"{stem}-{number}{suffix}" for number in range(2, _MOST_NAMES + 1)]
    for name in names:
        if named(path, name):
            return name
    for name in sorted(names, key=_changed_ns):
        with suppress(OSError, ValueError), _place(name):
            os.replace(path, name)
            return name
    raise FileExistsError(errno.EEXIST, "it is of a process that was killed, and there is no name left to keep it")


def _changed_ns(path: str) -> int:
    with suppress(OSError):
        return os.stat(path).st_mtime_ns
    return 0


# ---- The end of the process, and forks


def _close_all() -> bool:
    with _files.lock:
        _files.automatic = None
        while _files.open:  # a signal may have this called amid itself
            _files.open.popitem()[1].close()
        process_exit.unwatch(_close_all)
    return True


def _prepare_end() -> None:
    with _files.lock:
        for file in _files.open.values():
            file.prepare_end()


def _after_fork_in_child() -> None:
    """Continue in this process's files, hiding failures from the program."""
    files, _files.open, automatic, _files.automatic = list(_files.open.values()), {}, _files.automatic, None
    for file in files:
        with suppress(Exception):
            file.continue_beside()
            _files.open[file.path] = file
            _files.automatic = file if file is automatic else _files.automatic
    process_exit.call_before_worker_ends(_close_all)


_core.configure(live_switch=switch)
atexit.register(unkept(_prepare_end))
hold_at_fork(_files.lock)
call_at_fork(after_in_child=_after_fork_in_child)
process_exit.call_before_worker_ends(_close_all)
