"""What is to be done before a worker process ends, of multiprocessing or Celery, which it does by ``os._exit``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_LAST = -1000  # priority among the finalizers of multiprocessing


def call_before_worker_ends(end: Callable[[], object]) -> None:
    """Have ``end`` called then, in this process if it is one, and in those that are forked from it.

    It is called in vain elsewhere, and kept no longer than its object, if it is a method. Nothing is loaded: a process
    that has not loaded multiprocessing is none of its, and what it forks has to call this again.
    """
    owner = getattr(end, "__self__", end)
    name = getattr(end, "__name__", "")
    util: Any = sys.modules.get("multiprocessing.util")
    process: Any = sys.modules.get("multiprocessing.process")

    def add_finalizer(owner: Any) -> None:
        util.Finalize(None, owner if owner is end else getattr(owner, name), exitpriority=_LAST)

    if util is not None and process is not None:
        util.register_after_fork(owner, add_finalizer)
        if process.parent_process() is not None:
            add_finalizer(owner)
    celery: Any = sys.modules.get("celery.signals")
    if celery is not None:  # whose pool does not call finalizers
        celery.worker_process_shutdown.connect(lambda **_: end(), weak=False, dispatch_uid=("cprofiling", id(owner)))
