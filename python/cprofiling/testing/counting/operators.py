"""Counting PyTorch's operators by a TorchDispatchMode in each thread."""

from __future__ import annotations

import functools
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from cprofiling.testing.counting.calls import Tally

# By whose target a thread is told that serves an executor, to which tasks are given: each of them is counted by itself.
_SERVING = "concurrent.futures.thread"
_this_thread = threading.local()


@contextmanager
def counting_operators(tally: Tally) -> Iterator[None]:
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
os.register_at_fork(after_in_child=_counting.after_fork_in_child)
