"""What is to be done before a process of multiprocessing ends, which it does by ``os._exit``."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_LAST = -1000  # priority among the finalizers of multiprocessing


def call_before_worker_ends(end: Callable[[], object]) -> None:
    """Have ``end`` called then, in this process if it is one, and in those that are forked from it.

    It is called in vain elsewhere, and kept no longer than its object, if it is a method. Nothing is loaded: a process
    that has not loaded multiprocessing is none of its, and what it forks has to call this again.
    """
    util: Any = sys.modules.get("multiprocessing.util")
    process: Any = sys.modules.get("multiprocessing.process")
    if util is None or process is None:
        return
    owner = getattr(end, "__self__", end)
    name = getattr(end, "__name__", "")

    def add_finalizer(owner: Any) -> None:
        util.Finalize(None, owner if owner is end else getattr(owner, name), exitpriority=_LAST)

    util.register_after_fork(owner, add_finalizer)
    if process.parent_process() is not None:
        add_finalizer(owner)
