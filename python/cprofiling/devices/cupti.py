"""CUDA device activity in a recording through CUPTI, for any library.

It records kernels, copies and the calls that start them, in programs where PyTorch's profiler, which does the same, is
not in use: a process can have only one of both. CUPTI is held while a recording records, and released in its pauses.
Nothing is loaded where the process has no CUDA, and nothing waits for a device: work still running when the recording
ends is left out.
"""

from __future__ import annotations

import json
import os
import sys

from cprofiling import _core
from cprofiling._internal.messages import mention
from cprofiling.devices import cuda_toolkits

# Where a libcupti is: below a folder of packages, in those of NVIDIA's and of others; and in a toolkit.
_IN_PACKAGES = ("nvidia/cu13/lib", "nvidia/cuda_cupti/lib", "triton/backends/nvidia/lib/cupti")
_IN_TOOLKITS = ("extras/CUPTI/lib64", "lib64", "lib")
_MOST_FOLDERS = 32
NO_CUDA = "no CUDA in the process"


def missing_reason() -> str | None:
    """Return why CUPTI cannot record devices, None if nothing is known."""
    return None if _core.cupti_status()["cuda"] else NO_CUDA


def library_folders() -> tuple[bytes, ...]:
    """Return the folders that may hold libcupti, in order."""
    places = [(_IN_PACKAGES, path) for path in sys.path] + [
        (_IN_TOOLKITS, path) for path in cuda_toolkits.toolkit_folders()
    ]
    folders = (os.path.join(path, part) for parts, path in places for part in parts)
    found = dict.fromkeys(folder for folder in folders if os.path.isdir(folder))
    return tuple(map(os.fsencode, found))[:_MOST_FOLDERS]


class DeviceActivity:
    """Recorder of device activity for the recordings of one run."""

    def __init__(self, *, is_wanted: bool) -> None:
        """Create an idle recorder.

        is_wanted: warn if it is not available.
        """
        self._is_wanted = is_wanted
        self._is_on = False
        self._said: set[str] = set()

    def prepare(self) -> None:
        """Do nothing, as it needs no warm-up."""

    def start(self) -> None:
        """Start recording, if possible."""
        if self._is_on:
            return
        if missing_reason() is None:
            _core.cupti_set_folders(library_folders())
        self._is_on = _core.cupti_start_trace()
        reason = _core.cupti_reason()
        if not self._is_on and self._is_wanted and reason is not None:
            self._say(f"activity CUDA is not recorded: {reason}")

    def end(self) -> None:
        """Do nothing, as ``stop()`` and ``join()`` leave out later work."""

    def stop(self) -> None:
        """Stop recording, and give CUPTI back."""
        if self._is_on:
            self._is_on = False
            _core.cupti_stop_trace()

    def join(self, recording: _core.Recording) -> None:
        """Add new activity to an unfinished recording."""
        was_on = self._is_on
        self.stop()
        try:
            _core.cupti_add_trace(recording)
        except MemoryError as error:
            self._say(f"what devices did is incomplete: {error!r}")
        if was_on:
            facts = {"version": _core.cupti_status()["version"], "lost": _core.cupti_reason()}
            recording._set_fact("cupti", json.dumps(facts))

    def cancel(self) -> None:
        """Let go of everything that runs or was not joined."""
        self.stop()
        _core.cupti_add_trace(None)

    def forget(self) -> None:
        """Leave the run to the parent process after a fork."""
        self._is_on = False

    def _say(self, message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            mention(message)
