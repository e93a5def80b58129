"""What CUDA devices do, in a recording, through CUPTI: kernels, copies, and the calls that start them, of any library.

It is for programs in which PyTorch's profiler, which records the same, is not in use: there can be one of both at a
time in a process. CUPTI is held while a recording records, and given back in its pauses. Nothing is loaded where there
is no CUDA in the process, and nothing waits for a device: work that has not ended when the recording does is not in it.
"""

from __future__ import annotations

import json
import os
import sys

from cprofiling import _core
from cprofiling._internal.messages import mention

# Where a libcupti is: below a folder of packages, in those of NVIDIA's and of others; and in a toolkit.
_IN_PACKAGES = ("nvidia/cu13/lib", "nvidia/cuda_cupti/lib", "triton/backends/nvidia/lib/cupti")
_IN_TOOLKITS = ("extras/CUPTI/lib64", "lib64", "lib")
_MOST_FOLDERS = 32
NO_CUDA = "no CUDA in the process"


def missing_reason() -> str | None:
    """Why CUDA devices are not recorded through CUPTI; None: as far as is known before it is tried, they are."""
    return None if _core.cupti_status()["cuda"] else NO_CUDA


def library_folders() -> tuple[bytes, ...]:
    """Return the folders in which an installed libcupti may be: this is the one list of them, in its order."""
    from cprofiling.devices.cuda_toolkits import toolkit_folders  # here, as few programs have CUDA

    places = [(_IN_PACKAGES, path) for path in sys.path] + [(_IN_TOOLKITS, path) for path in toolkit_folders()]
    folders = (os.path.join(path, part) for parts, path in places for part in parts)
    found = dict.fromkeys(folder for folder in folders if os.path.isdir(folder))
    return tuple(map(os.fsencode, found))[:_MOST_FOLDERS]


class DeviceActivity:
    """What records devices for the recordings of one run."""

    def __init__(self, *, is_wanted: bool) -> None:
        """Make one that does nothing yet; ``is_wanted``: say so where it cannot be had."""
        self._is_wanted = is_wanted
        self._is_on = False
        self._said: set[str] = set()

    def prepare(self) -> None:
        """Do nothing: it needs no warming up."""

    def start(self) -> None:
        """Begin to record; where that cannot be, the recording goes on without."""
        if self._is_on:
            return
        if missing_reason() is None:
            _core.cupti_set_folders(library_folders())
        self._is_on = _core.cupti_start_trace()
        reason = _core.cupti_reason()
        if not self._is_on and self._is_wanted and reason is not None:
            self._say(f"activity CUDA is not recorded: {reason}")

    def end(self) -> None:
        """Do nothing: what follows, ``stop()`` or ``join()``, leaves out what came later."""

    def stop(self) -> None:
        """Stop recording, and give CUPTI back."""
        if self._is_on:
            self._is_on = False
            _core.cupti_stop_trace()

    def join(self, recording: _core.Recording) -> None:
        """Add what was recorded since the last time to an unfinished recording."""
        was_on = self._is_on
        self.stop()
        try:
            _core.cupti_add_trace(recording)
        except MemoryError as error:
            self._say(f"what devices did is incomplete: {error!r}")
        if was_on:
            recording._set_fact("cupti", json.dumps(_facts()))

    def cancel(self) -> None:
        """Let go of everything that runs or was not joined."""
        self.stop()
        _core.cupti_add_trace(None)

    def forget(self) -> None:
        """Leave what runs to the process that this one was forked from."""
        self._is_on = False

    def _say(self, message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            mention(message)


def _facts() -> dict[str, object]:
    """What a trace says of how its devices were recorded."""
    status = _core.cupti_status()
    return {"version": status["version"], "lost": _core.cupti_reason()}
