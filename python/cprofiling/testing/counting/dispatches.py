"""Counting PyTorch's operators and launches on CUDA devices."""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

from cprofiling import _core
from cprofiling.devices.cupti import NO_CUDA, library_folders, missing_reason
from cprofiling.nodes.profiler import Profiler
from cprofiling.testing.counting.calls import Tally
from cprofiling.testing.counting.functions import own_calls
from cprofiling.testing.counting.operators import counting_operators

if TYPE_CHECKING:
    from types import TracebackType


_FORKED = "the process was forked while they were counted"
_CAME_LATE = "CUDA came into the process while they were counted"


class DispatchCount:
    """Counts of operators and launches, always those of now."""

    def __init__(self) -> None:
        """Make one that has counted nothing."""
        self._tally = Tally()
        self._launches = LaunchCount()
        self._running = threading.Lock()  # held while the block runs
        self._stack = ExitStack()
        self._thread = 0

    @property
    def is_on(self) -> bool:
        """Whether it counts at present."""
        return self._running.locked()

    @property
    def operators(self) -> dict[str, int]:
        """Operators by name, without overloads, in the order first met."""
        return self._tally.by_name()

    @property
    def operator_calls(self) -> int:
        """All operators together."""
        return self._tally.total()

    @property
    def by_node(self) -> dict[str, dict[str, int]]:
        """Names and counts of operators for each node that called them itself.

        Nodes are known that are measured: their Profiler is on, or a recording runs.
        """
        return self._tally.by_node()

    @property
    def cuda_launches(self) -> int | None:
        """Launches of CUDA kernels or graphs by any library, None if unknown."""
        return self._launches.count

    @property
    def cuda_launches_reason(self) -> str | None:
        """Reason why ``cuda_launches`` is None."""
        return self._launches.reason

    def __enter__(self) -> DispatchCount:
        """Begin to count, on top of earlier blocks.

        Raises RuntimeError while they are being counted already.
        """
        if not self._running.acquire(blocking=False):
            raise RuntimeError("these dispatches are being counted already")
        try:
            with own_calls(), ExitStack() as stack:  # PyTorch is imported here, which calls a lot
                stack.enter_context(self._launches)
                stack.enter_context(counting_operators(self._tally))
                self._thread, self._stack = threading.get_ident(), stack.pop_all()
        except BaseException:
            self._running.release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop counting, in the thread that began.

        Doing so twice changes nothing. Raises RuntimeError in another thread.
        """
        if not self.is_on:
            return
        if threading.get_ident() != self._thread:
            raise RuntimeError("these dispatches are counted by another thread, which is the one to end that")
        try:
            with own_calls():
                self._stack.__exit__(kind, error, traceback)
        finally:
            self._running.release()

    def __repr__(self) -> str:
        return f"<{self.operator_calls} operators, {self.cuda_launches} launches>"


def count_dispatches() -> DispatchCount:
    """Count PyTorch's operators and CUDA launches in a ``with`` block.

    Operators are counted where they reach the dispatcher's Python level, as a ``TorchDispatchMode`` sees them: after
    autograd, and those that a composite operator is made of in place of it. So a backward pass counts, too; what a
    compiled graph has fused away does not. Counted are the thread that enters the block, the threads that it and
    others start through ``threading`` while it runs, and what is given to a ``ThreadPoolExecutor`` meanwhile. PyTorch
    is imported if it is installed; without it there are no operators.

    Launches are counted in all threads, through CUPTI: see ``cuda_launches`` and ``cuda_launches_reason``.

    Functions of a library's own, such as those of a pybind11 module, are no operators: ``count_calls`` counts them.

    Returns:
        The counts, to be used as a context manager, once or again and again, and left by the thread that entered.
    """
    return DispatchCount()


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
