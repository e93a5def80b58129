"""Counting PyTorch's operators and launches on CUDA devices."""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from types import TracebackType
from typing import Any

from cprofiling import _core
from cprofiling._internal.process import call_at_fork
from cprofiling.devices.cupti import NO_CUDA, library_folders, missing_reason
from cprofiling.nodes.profiler import Profiler
from cprofiling.testing.counting.calls import Tally
from cprofiling.testing.counting.functions import own_calls

# The target of an executor's threads is of this module. They are left out: each task is counted by itself.
_SERVING = "concurrent.futures.thread"
_FORKED = "the process was forked while they were counted"
_CAME_LATE = "CUDA came into the process while they were counted"
_this_thread = threading.local()


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
                stack.enter_context(_counting_operators(self._tally))
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


@contextmanager
def _counting_operators(tally: Tally) -> Iterator[None]:
    """Count the operators of this thread and those started meanwhile."""
    try:
        has_torch = find_spec("torch") is not None
    except ValueError:  # a module without a spec, which a test has put in its place
        has_torch = False
    if not has_torch:
        yield
        return
    with _counting.of(tally), _pushed(tally):
        yield


def _mode(tally: Tally | None) -> Any:
    """Return a mode that counts into a tally.

    PyTorch wraps the method of a mode's class in what keeps its compiler from looking into it, and loads the compiler
    for that at the first operator, which takes seconds. So the method is put in later, unless a compiler is loaded.
    """
    return _mode_class("torch._dynamo" in sys.modules)(tally)


@functools.cache
def _mode_class(has_compiler: bool) -> type[Any]:
    from torch.utils._python_dispatch import TorchDispatchMode

    def dispatch(
        self: Any, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Count an operator, and have it do what it does."""
        if self.tally is not None and _counting.counts(self.tally):
            schema = getattr(func, "_schema", None)  # which an operator on functions does not have
            self.tally.add(str(func.name() if schema is None else schema.name))
        return func(*args, **(kwargs or {}))

    def init(self: Any, tally: Tally | None) -> None:
        TorchDispatchMode.__init__(self)  # type: ignore[no-untyped-call]
        self.tally = tally

    method = {"__torch_dispatch__": dispatch}
    made = type("Counting", (TorchDispatchMode,), {"__init__": init, **(method if has_compiler else {})})
    if not has_compiler:
        made.__torch_dispatch__ = dispatch  # type: ignore[attr-defined]
    return made


@contextmanager
def _pushed(tally: Tally) -> Iterator[None]:
    """Count this thread's operators in a block, unless it does already.

    A mode that is entered as such also sets flags of the whole process, which it sets back to what it found: threads
    that overlap would leave them set for ever.
    """
    from torch.utils import _python_dispatch as dispatch

    here: tuple[Tally, ...] = getattr(_this_thread, "tallies", ())
    if tally in here:
        yield
        return
    dispatch._push_mode(_mode(tally))
    _this_thread.tallies = (*here, tally)
    try:
        yield
    finally:
        _this_thread.tallies = here
        dispatch._pop_mode()


class _Counting:
    """Who counts operators at present, in threads to come, too."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._tallies: tuple[Tally, ...] = ()
        self._flags: Any = None
        self._start: Callable[..., Any] = threading.Thread.start
        self._submit: Callable[..., Any] = ThreadPoolExecutor.submit

    def counts(self, tally: Tally) -> bool:
        """Tell whether a tally's block still runs."""
        return tally in self._tallies

    @contextmanager
    def of(self, tally: Tally) -> Iterator[None]:
        """Count in threads to come while a block runs."""
        with self._lock:
            if not self._tallies:
                self._begin()
            self._tallies = (*self._tallies, tally)
        try:
            yield
        finally:
            with self._lock:
                self._tallies = tuple(each for each in self._tallies if each is not tally)
                if not self._tallies:
                    self._end()

    def _begin(self) -> None:
        """Set the process's flags once, and patch threads and executors."""
        from torch.utils import _python_dispatch as dispatch

        self._flags = _mode(None)
        self._flags.__enter__()
        dispatch._pop_mode()
        start: Callable[..., Any] = threading.Thread.start
        submit: Callable[..., Any] = ThreadPoolExecutor.submit
        self._start, self._submit = start, submit

        @functools.wraps(start)
        def counted_start(thread: threading.Thread) -> Any:
            target = getattr(thread, "_target", None)
            if getattr(target, "__module__", None) != _SERVING:
                thread.run = self.counted(thread.run)  # type: ignore[method-assign]
            return start(thread)

        @functools.wraps(submit)
        def counted_submit(
            executor: ThreadPoolExecutor, function: Callable[..., Any], /, *args: Any, **kwargs: Any
        ) -> Any:
            return submit(executor, self.counted(function), *args, **kwargs)

        threading.Thread.start = counted_start  # type: ignore[method-assign, assignment]
        ThreadPoolExecutor.submit = counted_submit  # type: ignore[method-assign, assignment]

    def _end(self) -> None:
        from torch.utils import _python_dispatch as dispatch

        threading.Thread.start = self._start  # type: ignore[method-assign]
        ThreadPoolExecutor.submit = self._submit  # type: ignore[method-assign]
        dispatch._push_mode(self._flags)
        self._flags.__exit__(None, None, None)

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that all present tallies count."""
        tallies = self._tallies

        @functools.wraps(function, updated=())
        def run(*args: Any, **kwargs: Any) -> Any:
            with ExitStack() as stack:
                for tally in filter(self.counts, tallies):
                    stack.enter_context(_pushed(tally))
                return function(*args, **kwargs)

        return run

    def after_fork_in_child(self) -> None:
        """Replace the lock; its holder is not in the child."""
        self._lock = threading.RLock()


_counting = _Counting()
call_at_fork(after_in_child=_counting.after_fork_in_child)
