"""Counting PyTorch's operators, and launches of work on CUDA devices: ``count_dispatches``."""

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
    """How often operators and launches happened: ``with count_dispatches() as d``. The figures are those of now, also
    afterwards.
    """  # noqa: D205

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
        """Operators by name, without that of an overload: ``{"aten::add": 3, "aten::mm": 1}``, as first met."""
        return self._tally.by_name()

    @property
    def operator_calls(self) -> int:
        """All operators together."""
        return self._tally.total()

    @property
    def by_node(self) -> dict[str, dict[str, int]]:
        """For each node that has called one: operators' names and counts; what nodes inside it call is theirs.

        Nodes are known that are measured: their Profiler is on, or a recording runs.
        """
        return self._tally.by_node()

    @property
    def cuda_launches(self) -> int | None:
        """Calls that launch kernels or graphs of CUDA, by whichever library and thread; None if that is not known."""
        return self._launches.count

    @property
    def cuda_launches_reason(self) -> str | None:
        """Why ``cuda_launches`` is None; None while it is not."""
        return self._launches.reason

    def __enter__(self) -> DispatchCount:
        """Begin to count; counts of an earlier block stay. RuntimeError while they are being counted already."""
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
        """Count no more. Doing so twice changes nothing. RuntimeError in a thread that has not entered the block."""
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
    """Count operators of PyTorch, and launches of CUDA, while a ``with`` block runs.

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
