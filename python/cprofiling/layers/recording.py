"""Recording of one use of a stage, and its files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cprofiling._internal import environment, log
from cprofiling._internal.text import file_name_of
from cprofiling.layers import output_folder
from cprofiling.layers.breakdown import breakdown_of
from cprofiling.recording.profile import profile
from cprofiling.recording.traces import chrome_writer

if TYPE_CHECKING:
    from typing import Any


def options() -> dict[str, Any]:
    """Return the options of recordings from the environment."""
    return {
        "record_shapes": environment.boolean(environment.SHAPES, default=True),
        "profile_memory": environment.boolean(environment.MEMORY, default=True),
        "with_stack": environment.boolean(environment.STACK, default=True),
    }


class StageRecording:
    """A recording that runs from the start of a stage to its end.

    Attributes:
        profile: What records.
    """

    chosen = options()  # read once: a value that makes no sense is warned of once

    def __init__(self, name: str, prof: profile) -> None:
        """Take the running recording."""
        self._name = name
        self.profile = prof
        self._process = os.getpid()

    @classmethod
    def begin(cls, name: str) -> StageRecording | None:
        """Start a recording, or log a line where another one runs."""
        prof = profile(**cls.chosen)
        try:
            prof.start()
        except RuntimeError as error:
            log.complain(f"[Profiler] {name!a} is not recorded: {error}")
            return None
        return cls(name, prof)

    def end(self, rank: int) -> None:
        """Stop, and write trace and breakdown. Raises OSError.

        In a forked child there is nothing to do: the recording is its parent's.
        """
        if os.getpid() != self._process:
            return
        self.profile.stop()
        recording = self.profile.recording
        trace, stem = output_folder.reserved(
            output_folder.folder(), f"{file_name_of(self._name)}_rank{rank}", ".trace.json.gz"
        )
        try:
            chrome_writer.export_to_path(recording, trace, compress=True)
        except BaseException:
            os.unlink(trace)
            raise
        log.say(f"[Profiler] Chrome trace saved to: {trace}")
        path = trace.with_name(f"{stem}.breakdown.json")
        output_folder.write_json(path, breakdown_of(recording, self._name, rank))
        log.say(f"[Profiler] Kernel breakdown saved to: {path}")
