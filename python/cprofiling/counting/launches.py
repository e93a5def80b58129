"""Counting launches of work on CUDA devices, through the core's part on CUPTI."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cprofiling import _core

if TYPE_CHECKING:
    from cprofiling.control import Profiler


class LaunchCount:
    """Launches in all threads while its block runs.

    Attributes:
        reason: Why they are not known; None while they are.
    """

    def __init__(self) -> None:
        """Make one that has counted nothing."""
        self.reason: str | None = "nothing was counted yet"
        self._user: Profiler | None = None
        self._before = 0
        self._counted = 0

    @property
    def count(self) -> int | None:
        """How many there were up to now; None if that is not known."""
        if self.reason is not None:
            return None
        return self._counted + (0 if self._user is None else _launched() - self._before)

    def __enter__(self) -> LaunchCount:
        """Begin, as a user of CUPTI that gathers no times, as nodes with kernels=True do."""
        from cprofiling import Profiler
        from cprofiling.device_activity import library_folders, missing_reason

        self.reason = missing_reason()
        if self.reason is not None:
            return self
        _core.cupti_set_folders(library_folders())
        counting = _core.cupti_status()["counting"]
        user = Profiler()
        user.set_profiling(True, kernels=True)
        if _core.cupti_status()["counting"] > counting:
            self._user = user
            self._before = _launched()
        else:
            user.set_profiling(False)
            self.reason = _core.cupti_reason() or "CUPTI is not to be had"
        return self

    def __exit__(self, *exception: object) -> None:
        """Give CUPTI back."""
        user, self._user = self._user, None
        if user is not None:
            self._counted += _launched() - self._before
            user.set_profiling(False)


def _launched() -> int:
    launched: int = _core.cupti_status()["launched"]
    return launched
