"""Counting PyTorch's operators and launches on CUDA devices."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

from cprofiling.testing.counting.launches import LaunchCount
from cprofiling.testing.counting.operators import counting_operators
from cprofiling.testing.counting.patches import own_calls
from cprofiling.testing.counting.tally import Tally

if TYPE_CHECKING:
    from types import TracebackType


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
