"""Forked children that test: they report what went wrong, and are killed when they hang."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable

HANGS_AFTER_S = 60
# Options of Python for a program that forks beside threads which end for that: CPython warns from 3.12 on.
BESIDE_THREADS = ["-W", "ignore:This process"] if sys.version_info >= (3, 12) else []

Child = Callable[[], object]


def in_child(child: Child) -> None:
    """Run the rest of a forked child: report what it did, and end."""
    status = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(HANGS_AFTER_S)
        child()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def wait_for(pid: int) -> None:
    """Assert that a child ended well: not with a failed assertion, nor in a deadlock or a crash."""
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, "see the child's traceback"


def fork(child: Child) -> None:
    pid = os.fork()
    if pid == 0:
        in_child(child)
    wait_for(pid)
