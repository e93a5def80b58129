"""Recordings that nobody starts: of a whole process, as CPROFILING_OUTPUT_PATH or ``cprofiling run`` asks for them."""

from __future__ import annotations

import atexit
import errno
import os
import signal
import sys
import threading
import time
from contextlib import suppress

from cprofiling import chrome, details, facts, files  # noqa: F401 what the end needs may not be there to import then
from cprofiling.format import shown_text
from cprofiling.session import profile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, ClassVar

    from cprofiling.recording import Recording

OWNER = "CPROFILING_OUTPUT_OWNER"  # says to other processes who has the path
_SHOWN = 80  # characters of a value
_PATIENCE_S = 1.0  # some send SIGTERM twice at once: to the process, and to its group
_LAST = -1000  # priority among the finalizers of multiprocessing

_IDLE, _RUNNING, _ENDING, _ENDED = range(4)


class UnusablePathError(ValueError):
    """A path that cannot be written to, with the reason."""


def start(value: str, variable: str) -> None:
    """Record this process from now to its end, and write the trace to the path that an environment's variable gives.

    Where that cannot be, one line on stderr says so, and nothing else happens. The trace of a process that another one
    with the same path has started goes beside that one's, with its number in the name, and only if it has an event.
    """
    if Automatic.current is not None:
        return
    is_owner = _owns_the_path()
    try:
        path = checked_path(value)
    except UnusablePathError as error:
        if is_owner:  # the others would repeat it
            say(f"{variable}={shown_path(value)} cannot be used, so nothing is recorded: {error}")
        return
    try:
        Automatic(path, is_owner=is_owner).begin()
    except RuntimeError:  # another interpreter in this process has one
        return
    except Exception as error:  # noqa: BLE001 the program goes on as without us
        say(f"{variable} is set, but nothing is recorded: {_reason(error)}")


def _owns_the_path() -> bool:
    """Whether this process is the first that the variable is for: other ones see that they are not."""
    own = f"{os.getpid()}:{_start_time()}"
    return os.environ.setdefault(OWNER, own) == own


def _start_time() -> str:
    """When this process began, as the system counts: tells it from others that had its number, and outlives exec."""
    try:
        with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def checked_path(value: str) -> str:
    """Return the absolute path of a file that can be written as things are now. Raises UnusablePathError."""
    if not value:
        raise UnusablePathError("it is empty")
    if "\0" in value:
        raise UnusablePathError("it has a NUL")
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        raise UnusablePathError("it is not UTF-8")
    try:
        path = value if os.path.isabs(value) else os.path.join(os.getcwd(), value)
        _check_place(path)
    except OSError as error:
        raise UnusablePathError(error.strerror or str(error)) from None
    return path


def _check_place(path: str) -> None:
    folder, name = os.path.split(path)
    if not name or os.path.isdir(path):
        raise UnusablePathError("it is a folder")
    if not os.path.isdir(folder):
        os.stat(folder)
        raise UnusablePathError(os.strerror(errno.ENOTDIR))
    with suppress(FileNotFoundError):
        os.stat(path)
    is_special = path.startswith(("/dev/", "/proc/")) or (os.path.exists(path) and not os.path.isfile(path))
    if not os.access(path if is_special else folder, os.W_OK | (0 if is_special else os.X_OK), effective_ids=True):
        raise UnusablePathError("it is not writable" if is_special else "its folder is not writable")


class Automatic(profile):
    """A recording from the start of a process to its end, which then writes it.

    It ends with the interpreter, on SIGTERM where nobody else handles that, and when the program starts a recording of
    its own. A process that is killed otherwise, or ends by ``os._exit`` or becomes another program, leaves no trace. A
    forked process begins with a recording of its own.
    """

    current: ClassVar[Automatic | None] = None  # that of this process, also when it has ended

    def __init__(self, path: str, *, is_owner: bool) -> None:
        """Prepare the recording. ``path``: checked; ``is_owner``: whether it is this process's."""
        super().__init__(operators=False)
        self.path = path
        self.is_owner = is_owner
        self._guard = threading.RLock()
        self._phase = _IDLE
        self._terminated_at: float | None = None
        self._found = _identity(path)

    def begin(self) -> None:
        """Start, and see to the end. Raises as ``start``."""
        self.start()
        self._phase = _RUNNING
        Automatic.current = self
        atexit.register(self.end)
        os.register_at_fork(after_in_child=self._after_fork)
        self._watch_sigterm()
        self._watch_multiprocessing()

    def end(self) -> None:
        """Stop and write, once. Whatever goes wrong is said in one line; nothing is raised."""
        with self._guard:
            if self._phase != _RUNNING:
                return
            self._phase = _ENDING
            try:
                self.stop()
                self._write()
                self._conclude()
            except BaseException as error:  # noqa: BLE001 the exit status is the program's
                say(f"the recording is lost: {_reason(error)}")
            self._phase = _ENDED
            self._recording = None
            self._unwatch_sigterm()
        if self._terminated_at is not None and threading.current_thread() is threading.main_thread():
            self._die()

    def cancel(self) -> None:
        """End without a trace."""
        with self._guard:
            if self._phase == _RUNNING:
                self._phase = _ENDED
                self.stop()
                self._recording = None
                self._unwatch_sigterm()

    def _make_way(self) -> None:
        was_running = self._phase == _RUNNING
        self.end()
        if was_running:
            say(f"the program starts a recording of its own: the automatic one, for {shown_path(self.path)}, ends here")

    # ---- The file

    def _write(self) -> None:
        recording = self.recording
        if not self.is_owner and not len(recording):
            return
        path = self._free_path()
        if path is None:
            return
        try:
            chrome.export_to_path(recording, path)  # which chooses the format by the end of the name
        except BaseException as error:  # noqa: BLE001 an interrupt, too, is to leave the exit status as it is
            say(f"the trace is not written to {shown_path(path)}: {_reason(error)}")
        else:
            self._written(recording, path)

    def _written(self, recording: Recording, path: str) -> None:  # noqa: ARG002 others tell more
        """Say what was written and where; here nothing, where that is as the environment asks."""
        if path != self.path and self.is_owner:
            say(f"{shown_path(self.path)} is another process's by now: the trace is {shown_path(path)}")

    def _conclude(self) -> None:
        """Say what is to be said at the end."""

    def _free_path(self) -> str | None:
        """The path, or one beside it where that is another process's; None: there is none beside it."""
        found = _identity(self.path)
        if self.is_owner and (found is None or found == self._found):
            return self.path
        if os.path.exists(self.path) and not os.path.isfile(self.path):
            return None
        return _beside(self.path, os.getpid())

    # ---- Signals

    def _watch_sigterm(self) -> None:
        # A signal's handler can be set in the main thread of the main interpreter only.
        with suppress(ValueError):
            if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
                signal.signal(signal.SIGTERM, self._on_sigterm)

    def _unwatch_sigterm(self) -> None:
        with suppress(ValueError):
            if signal.getsignal(signal.SIGTERM) == self._on_sigterm and self._terminated_at is None:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _on_sigterm(self, _signal: int, _frame: FrameType | None) -> None:
        """Write, then die as without us; who has no patience may send another one."""
        now = time.monotonic()
        first, self._terminated_at = self._terminated_at, self._terminated_at or now
        if first is not None and now - first > _PATIENCE_S:
            self._die()
        with self._guard:  # where this thread has it, the trace is being written, and dying comes after that
            if self._phase == _RUNNING:
                self.end()
            elif self._phase == _ENDED:
                self._die()

    def _die(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)

    # ---- Other processes

    def _after_fork(self) -> None:
        """Record the forked process, too; what was recorded so far is the parent's."""
        was_running = self._phase == _RUNNING
        self._guard = threading.RLock()
        self._phase = _ENDED
        self._terminated_at = None
        self.is_owner = False
        if not was_running:
            return
        try:
            self.start()
        except Exception:  # noqa: BLE001 the program goes on as without us
            return
        self._phase = _RUNNING
        self._watch_multiprocessing()

    def _watch_multiprocessing(self) -> None:
        """Have the end come before that of a process of multiprocessing, which ends by ``os._exit``."""
        util: Any = sys.modules.get("multiprocessing.util")
        process: Any = sys.modules.get("multiprocessing.process")
        if util is None or process is None:
            return
        util.register_after_fork(self, Automatic._add_finalizer)
        if process.parent_process() is not None:
            self._add_finalizer()

    def _add_finalizer(self) -> None:
        util: Any = sys.modules["multiprocessing.util"]
        util.Finalize(None, self.end, exitpriority=_LAST)


def _identity(path: str) -> tuple[int, ...] | None:
    """What tells a regular file from another one that has its name later; None where there is none."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size) if os.path.isfile(path) else None


def _beside(path: str, pid: int) -> str:
    """A path that no other process has: ``trace_123.json.gz`` beside ``trace.json.gz``."""
    base, packed = (path[:-3], ".gz") if path.endswith(".gz") else (path, "")
    stem, suffix = os.path.splitext(base)
    made, number = f"{stem}_{pid}{suffix}{packed}", 1
    while os.path.lexists(made):  # of an earlier process that had the number
        number += 1
        made = f"{stem}_{pid}-{number}{suffix}{packed}"
    return made


def say(message: str) -> None:
    """Write a line to stderr, if there is one."""
    line = f"cprofiling: {shown_text('message', message)}\n"
    with suppress(Exception):
        sys.stderr.write(line)
        sys.stderr.flush()


def shown_path(value: str) -> str:
    """Return a path as a message shows it: in quotes, escaped, cut."""
    return ascii(value) if len(value) <= _SHOWN else f"{value[:_SHOWN]!a}..."


def _reason(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, OSError) and error.strerror is not None:
        return error.strerror
    return str(error) or type(error).__name__
