"""Recordings of whole processes, by CPROFILING_OUTPUT_PATH or the command."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, ClassVar

from cprofiling._internal import process_exit
from cprofiling._internal.messages import say
from cprofiling._internal.process import call_at_fork, is_first_with
from cprofiling.recording import call_details, metadata  # noqa: F401 what the end needs may not be there to import then
from cprofiling.recording.output_names import OutputPath, UnusablePathError, checked_path, reason, shown_path
from cprofiling.recording.profile import profile

if TYPE_CHECKING:
    from cprofiling.recording.result import Recording

OWNER = "CPROFILING_OUTPUT_OWNER"  # says to other processes who has the path
_IDLE, _RUNNING, _ENDING, _ENDED = range(4)


def start(value: str, variable: str) -> None:
    """Record this process to its end, and write the trace to the given path.

    A failure is one line on stderr, and nothing else. Processes started by one with the same path, and ranks (``RANK``)
    other than 0, write beside that path, with rank and process number in the name, and only if there is an event.
    PyTorch's operators are not recorded.
    """
    if Automatic.current is not None:
        return
    is_first = is_first_with(OWNER)
    try:
        path = checked_path(value)
    except UnusablePathError as error:
        if is_first:  # the others would repeat it
            say(f"{variable}={shown_path(value)} cannot be used, so nothing is recorded: {error}")
        return
    try:
        Automatic(path, is_first=is_first).begin()
    except RuntimeError:  # another interpreter in this process has one
        return
    except Exception as error:  # noqa: BLE001 the program goes on as without us
        say(f"{variable} is set, but nothing is recorded: {reason(error)}")


class Automatic(profile):
    """Recording from the start of a process to its end, which writes it.

    It ends with the interpreter, on SIGTERM (see ``process_exit``), and when the program starts its own recording. A
    process that is killed otherwise, ends by ``os._exit`` or becomes another program leaves no trace. A forked process
    begins its own recording.

    PyTorch's operators are not recorded: torch.profiler is left to the program.
    """

    current: ClassVar[Automatic | None] = None  # of this process, also when it has ended

    def __init__(self, path: str, *, is_first: bool) -> None:
        """Prepare the recording.

        path: checked. is_first: no parent process has it.
        """
        super().__init__(operators=False)
        self.output = OutputPath(path, is_first=is_first)
        self._guard = threading.RLock()
        self._phase = _IDLE
        self._is_empty = False  # told at the end

    def begin(self) -> None:
        """Start, and see to the end. Raises as ``start``."""
        self.start()
        self._phase = _RUNNING
        Automatic.current = self
        call_at_fork(after_in_child=self._after_fork)
        process_exit.watch(self._finish)
        process_exit.call_before_worker_ends(self.end)

    def end(self) -> None:
        """Stop and write, once.

        Any fault is one line on stderr; nothing is raised.
        """
        if self._phase == _RUNNING:
            self._finish()
            process_exit.go_on()

    def _end_with_process(self) -> bool:
        was_running = self._phase == _RUNNING
        self.end()
        return was_running

    def _finish(self) -> bool:
        """Stop and write.

        Returns False if this thread has interrupted that.
        """
        with self._guard:
            if self._phase == _RUNNING:
                self._phase = _ENDING
                try:
                    self.stop()
                    self._write()
                    self._conclude()
                except BaseException as error:  # noqa: BLE001 the exit status is the program's
                    say(f"the recording is lost: {reason(error)}")
                self._phase = _ENDED
                self._recording = None
                process_exit.unwatch(self._finish)
            return self._phase != _ENDING

    def cancel(self) -> None:
        """End without a trace."""
        with self._guard:
            if self._phase == _RUNNING:
                self._phase = _ENDED
                self.stop()
                self._recording = None
                process_exit.unwatch(self._finish)

    def _make_way(self) -> None:
        was_running = self._phase == _RUNNING
        self.end()
        if was_running:
            where = f"ends here{' without an event' if self._is_empty else ''}"
            path = self.output.wanted()
            say(f"the program starts a recording of its own: the automatic one, for {path!a}, {where}")

    # ---- The file

    def _write(self) -> None:
        recording = self.recording
        self._is_empty = not len(recording)
        if self._is_empty and not self.output.is_owner:
            return
        try:
            path = self.output.write(recording)
        except BaseException as error:  # noqa: BLE001 an interrupt, too, is to leave the exit status as it is
            say(f"the trace is not written to {self.output.wanted()!a}: {reason(error)}")
        else:
            if path is not None:
                self._written(recording, path)

    def _written(self, recording: Recording, path: str) -> None:  # noqa: ARG002 others tell more
        """Report the file written, here not if the environment named it."""
        if self.output.is_owner and path != self.output.path:
            say(f"{self.output.path!a} is somebody else's by now: the trace is {path!a}")

    def _conclude(self) -> None:
        """Report at the end."""

    # ---- Other processes

    def _after_fork(self) -> None:
        """Record the forked process, too, without the parent's events."""
        was_running = self._phase == _RUNNING
        self._guard = threading.RLock()
        self._phase = _ENDED
        self.output.is_owner = False
        if not was_running:
            return
        try:
            self.start()
        except Exception:  # noqa: BLE001 the program goes on as without us
            return
        self._phase = _RUNNING
        process_exit.call_before_worker_ends(self.end)
