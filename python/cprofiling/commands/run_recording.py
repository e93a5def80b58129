"""The recording of the command ``run``."""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

from cprofiling._internal.messages import say
from cprofiling.nodes.from_patterns.patterns import MAIN, Patterns
from cprofiling.recording.whole_process import Automatic

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cprofiling.recording.result import Recording


class RunRecording(Automatic):
    """Recording of the command ``run``, with messages."""

    def __init__(self, path: str, patterns: Iterable[str], *, is_first: bool, speaks: bool = True) -> None:
        """Prepare it.

        patterns: Which functions are nodes; where there are none, those of a program without nodes of its own.
        speaks: Whether this process is the one that the user has started.
        """
        super().__init__(path, is_first=is_first)
        self.patterns = Patterns(patterns, default=(f"{MAIN}:*",))
        self.module: str | None = None  # that is the program
        self.folder: str | None = None  # or archive, whose __main__ it is
        self._speaker = os.getpid() if speaks else 0

    def begin(self) -> None:
        """Start, replacing a recording started by the environment."""
        if Automatic.current is not None:
            Automatic.current.cancel()
        super().begin()

    def _finish(self) -> bool:
        """Finish, but keep an old trace if the program does not exist."""
        if (self.module is not None and _is_missing(self.module)) or (self.folder and _has_no_main(self.folder)):
            self.cancel()
        return super()._finish()

    def _write(self) -> None:
        if not self._is_in_vain():
            super()._write()

    def _is_in_vain(self) -> bool:
        """Return whether nothing was recorded as the named program is missing."""
        return bool(self.patterns.texts) and not self.patterns.has_met and not len(self.recording)

    def _written(self, recording: Recording, path: str) -> None:
        if os.getpid() == self._speaker:
            dropped = f", {recording.dropped:,} more were dropped" if recording.dropped else ""
            say(f"{len(recording):,} events are in {path!a}{dropped}")

    def _conclude(self) -> None:
        if os.getpid() == self._speaker:
            say_unmatched(self.patterns, "no trace is written: " if self._is_in_vain() else "")
            if not len(self.recording) and not self.patterns.texts:
                say("the program has no nodes of its own: name functions that are to be nodes by -n")


def say_unmatched(patterns: Patterns, beginning: str = "") -> None:
    """Print a hint for each pattern without a match, after ``beginning``."""
    others = {*sys.stdlib_module_names, __name__.partition(".")[0]}
    for complaint in patterns.complaints([name for name in list(sys.modules) if name.partition(".")[0] not in others]):
        say(beginning + complaint)
        beginning = ""


def _is_missing(module: str) -> bool:
    """Return whether there is no such module, so that nothing ran."""
    from importlib.util import find_spec

    if getattr(sys.modules.get(MAIN), "__spec__", None) is not None:
        return False
    try:
        return find_spec(module) is None
    except ModuleNotFoundError:
        return True
    except Exception:  # noqa: BLE001 it is there, and cannot be imported
        return False


def _has_no_main(folder: str) -> bool:
    """Return whether a folder or archive has no program."""
    if getattr(sys.modules.get(MAIN), "__spec__", None) is not None:
        return False
    return PathFinder.find_spec(MAIN, [folder]) is None
