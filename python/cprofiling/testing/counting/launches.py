"""Counting launches on CUDA devices through CUPTI."""

from __future__ import annotations

import os

from cprofiling import _core
from cprofiling.devices.cupti import NO_CUDA, library_folders, missing_reason
from cprofiling.nodes.profiler import Profiler

_FORKED = "the process was forked while they were counted"
_CAME_LATE = "CUDA came into the process while they were counted"


class LaunchCount:
    """Launches in all threads while its block runs."""

    def __init__(self) -> None:
        """Make one that has counted nothing."""
        self._reason: str | None = "nothing was counted yet"
        self._user: Profiler | None = None
        self._process = 0
        self._before = 0
        self._counted = 0

    @property
    def count(self) -> int | None:
        """Launches up to now, None if unknown."""
        if self.reason is not None:
            return None
        return self._counted + (0 if self._user is None else _launched() - self._before)

    @property
    def reason(self) -> str | None:
        """Reason why they are unknown, None while they are known."""
        return _FORKED if self._user is not None and os.getpid() != self._process else self._reason

    def __enter__(self) -> LaunchCount:
        """Begin as a user of CUPTI that gathers no times."""
        self._reason = missing_reason()
        if self._reason is not None:
            return self
        _core.cupti_set_folders(library_folders())
        counting = _core.cupti_status()["counting"]
        user = Profiler()
        user.set_profiling(True, kernels=True)
        if _core.cupti_status()["counting"] > counting:
            self._user, self._process = user, os.getpid()
            self._before = _launched()
        else:
            user.set_profiling(False)
            self._reason = _core.cupti_reason() or "CUPTI is not to be had"
        return self

    def __exit__(self, *exception: object) -> None:
        """Give CUPTI back."""
        if self._reason == NO_CUDA and missing_reason() is None:
            self._reason = _CAME_LATE
        self._counted, self._reason = self.count or 0, self.reason
        user, self._user = self._user, None
        if user is not None:
            user.set_profiling(False)


def _launched() -> int:
    launched: int = _core.cupti_status()["launched"]
    return launched
