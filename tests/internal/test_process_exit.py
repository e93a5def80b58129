"""SIGTERM: it ends a process after our work, and without it where that takes too long."""

from __future__ import annotations

import signal
import subprocess
import sys

WATCHED = """
import signal, time
plain = signal.signal
from cprofiling._internal import process_exit
process_exit.watch(end := lambda: {is_done})
assert signal.signal is not plain
assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
"""


def run(program: str, *, is_done: bool) -> tuple[int, str]:
    command = [sys.executable, "-c", WATCHED.format(is_done=is_done) + program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_signals_are_as_before_when_nothing_has_to_be_ended() -> None:
    program = """
process_exit.unwatch(end)
print(signal.signal is plain, signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
"""
    assert run(program, is_done=True) == (0, "True True\n")


def test_a_later_sigterm_waits_for_nothing() -> None:
    program = """
for _ in range(2):
    signal.raise_signal(signal.SIGTERM)
    print("still there", flush=True)
time.sleep(1.1)
signal.raise_signal(signal.SIGTERM)
print("never", flush=True)
"""
    assert run(program, is_done=False) == (-signal.SIGTERM, "still there\nstill there\n")
