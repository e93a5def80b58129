"""Other users: folders that all may write to, and what somebody else puts there."""

from __future__ import annotations

import fcntl
import os
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

VICTIM, ATTACKER = 65531, 65532
LIMIT_S = 60.0  # a process that takes longer hangs
_PROTECTION = [Path("/proc/sys/fs", f"protected_{what}") for what in ("symlinks", "hardlinks", "fifos", "regular")]


def skip_without_others() -> None:
    """Skip a test that becomes another user, where that is not to be had."""
    if os.geteuid() != 0:
        pytest.skip("only root can be other users")
    if int(Path("/proc/self/uid_map").read_text().split()[2]) <= ATTACKER:
        pytest.skip("only one user is in this user namespace")


@contextmanager
def shared_folder() -> Iterator[Path]:
    """Give a folder of mode 1777, while the kernel protects nobody from the links of others."""
    skip_without_others()
    lock = os.open("/tmp", os.O_RDONLY)  # the setting is the machine's: other processes that test wait
    fcntl.flock(lock, fcntl.LOCK_EX)
    before = [path.read_text() for path in _PROTECTION]
    try:
        try:
            for path in _PROTECTION:
                path.write_text("0")
        except OSError as error:
            pytest.skip(f"the kernel's protection of links cannot be switched off here: {error}")
        with tempfile.TemporaryDirectory(dir="/tmp") as folder:
            Path(folder).chmod(0o1777)
            yield Path(folder)
    finally:
        for path, value in zip(_PROTECTION, before, strict=True):
            if path.read_text() != value:
                path.write_text(value)
        os.close(lock)


def begun_as(user: int, function: Callable[[], object]) -> int:
    """Run a function in a process of another user, and return its number. What it imports has to be loaded here."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        function()
        status = 0
    except BaseException:  # it must not get back to pytest
        traceback.print_exc()
    finally:
        os._exit(status)


def run_as(user: int, function: Callable[[], object]) -> None:
    """Run a function in a process of another user, which has to end well, and soon."""
    pid = begun_as(user, function)
    until = time.monotonic() + LIMIT_S
    while (ended := os.waitpid(pid, os.WNOHANG))[0] == 0:
        if time.monotonic() > until:
            stop(pid)
            pytest.fail("it hangs")
        time.sleep(0.01)
    assert ended[1] == 0, "it failed: see its traceback on stderr"


def stop(pid: int) -> None:
    """End a process that was begun here."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
