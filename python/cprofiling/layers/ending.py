"""The end of a process: of this one, of those forked from it, and of those that multiprocessing starts."""

from __future__ import annotations

import atexit
import os
import sys
from typing import TYPE_CHECKING

from cprofiling.layers import workers

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_LAST = -1000  # priority among the finalizers of multiprocessing


class Ending:
    """Calls a function when a process ends, once in each; not where a signal ends it, or ``os._exit``."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._came_in = 0  # the number of the process
        self._is_in_multiprocessing = False

    def watch(self) -> None:
        """Wait for the end."""
        atexit.register(self.come)
        self.watch_multiprocessing()
        os.register_at_fork(after_in_child=self.watch_multiprocessing)

    def watch_multiprocessing(self) -> None:
        """Have the end come with that of a process of multiprocessing, which may not see to what ``atexit`` has."""
        util: Any = sys.modules.get("multiprocessing.util")
        if util is None or self._is_in_multiprocessing:
            return
        self._is_in_multiprocessing = True
        util.register_after_fork(self, Ending.add_finalizer)
        if workers.is_child():
            self.add_finalizer()

    def add_finalizer(self) -> None:
        """Have it come last of what multiprocessing does at the end of this process."""
        util: Any = sys.modules["multiprocessing.util"]
        util.Finalize(None, self.come, exitpriority=_LAST)

    def come(self) -> None:
        """Call the function, unless that was done."""
        if self._came_in != os.getpid():
            self._came_in = os.getpid()
            self._call()
