"""End a process in order, by SIGTERM or as a worker by ``os._exit``."""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

from cprofiling._internal.process import call_at_fork

_LAST_FINALIZER = -1000  # priority among those of multiprocessing
_PATIENCE_S = 1.0  # some send SIGTERM twice at once: to the process, and to its group

_plain = signal.signal
_ends: list[Callable[[], bool]] = []
_terminated_at: float | None = None


def watch(end: Callable[[], bool]) -> None:
    """Have a function called before SIGTERM ends this process.

    The program's own handler is left alone. Servers handle SIGTERM until they have ended
    in order, then set the default action again and send themselves the signal once more. That counts, too.

    Args:
        end: Returns False where it was called amid its own work, after which it calls ``go_on``.
    """
    _ends.append(end)
    if signal.signal is _plain:
        signal.signal = _signal
    with suppress(ValueError):  # a handler can be set in the main thread of the main interpreter only
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            _plain(signal.SIGTERM, _on_sigterm)


def unwatch(end: Callable[[], bool]) -> None:
    """Have a function called no longer."""
    with suppress(ValueError):
        _ends.remove(end)
        if not _ends and _terminated_at is None:
            if signal.signal is _signal:  # else a patch by others calls it
                signal.signal = _plain
            if signal.getsignal(signal.SIGTERM) == _on_sigterm:
                _plain(signal.SIGTERM, signal.SIG_DFL)


def go_on() -> None:
    """Die, if a SIGTERM has come that had to wait."""
    if _terminated_at is not None and threading.current_thread() is threading.main_thread():
        _end_all()


@functools.wraps(_plain)
def _signal(signalnum: int, handler: Any) -> Any:
    is_default = signalnum == signal.SIGTERM and isinstance(handler, int) and handler == signal.SIG_DFL
    return _plain(signalnum, _on_sigterm if is_default and _ends else handler)


def _on_sigterm(_signal: int, _frame: FrameType | None) -> None:
    """Die as without us, but later, or at once at another signal."""
    global _terminated_at
    now = time.monotonic()
    first, _terminated_at = _terminated_at, _terminated_at or now
    if first is not None and now - first > _PATIENCE_S:
        _die()
    else:
        _end_all()


def _end_all() -> None:
    are_done = [end() for end in list(_ends)]
    if all(are_done):
        _die()


def _die() -> None:
    _plain(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)


def _after_fork_in_child() -> None:
    global _terminated_at  # noqa: PLW0603 there is one process
    _terminated_at = None


call_at_fork(after_in_child=_after_fork_in_child)


def call_before_worker_ends(end: Callable[[], object]) -> None:
    """Have ``end`` called before a worker of multiprocessing or Celery ends.

    It is called in vain elsewhere, and kept no longer than its object, if it is a method. Nothing is loaded: a process
    that has not loaded multiprocessing is none of its workers, and its forks have to call this again.
    """
    owner = getattr(end, "__self__", end)
    name = getattr(end, "__name__", "")
    util: Any = sys.modules.get("multiprocessing.util")
    process: Any = sys.modules.get("multiprocessing.process")

    def add_finalizer(owner: Any) -> None:
        util.Finalize(None, owner if owner is end else getattr(owner, name), exitpriority=_LAST_FINALIZER)

    if util is not None and process is not None:
        util.register_after_fork(owner, add_finalizer)
        if process.parent_process() is not None:
            add_finalizer(owner)
    celery: Any = sys.modules.get("celery.signals")
    if celery is not None:  # its pool does not call finalizers
        celery.worker_process_shutdown.connect(lambda **_: end(), weak=False, dispatch_uid=("cprofiling", id(owner)))
