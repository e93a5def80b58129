"""What the tests with real servers share: programs whose workers count calls, and what these leave behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import cprofiling
from calls import NEVER, unwatched
from cprofiling import live
from recorded import names_in_file

CALLS = 1_000
PACKAGE = str(Path(cprofiling.__file__).parents[1])


@contextmanager
def started(*arguments: str, folder: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start ``python`` with arguments in a folder; what is left of it in the end is killed."""
    variables = {name: value for name, value in unwatched().items() if not name.startswith("CPROFILING_")}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, *arguments], cwd=folder, env=variables | {"PYTHONPATH": PACKAGE} | environment,
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def ended(process: subprocess.Popen[bytes]) -> int:
    """Ask a process to end, as a supervisor does, and return its exit status."""
    process.terminate()
    return process.wait(NEVER)


def ask(path: Path) -> bytes:
    """Send a request to a server's socket and return the answer's body."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(NEVER)
        client.connect(str(path))
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    assert b" 200 " in answer.partition(b"\r\n")[0]
    return answer.partition(b"\r\n\r\n")[2]


def asked_often(path: Path, line: str, workers: int) -> set[bytes]:
    """Send ``CALLS`` requests, several at a time, and return the different answers.

    line: What the log has from each worker that is ready.
    """
    log, end = path.with_name("log"), time.monotonic() + NEVER
    while log.read_text().count(line) < workers:
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.05)
    with ThreadPoolExecutor(4) as pool:
        return set(pool.map(ask, [path] * CALLS))


def counted(folder: Path, node: str) -> list[int]:
    """Return how often a node was called by the live files in a folder, each of a process that ended in order."""
    found = [live.read(path) for path in folder.glob("live*.cprof")]
    assert {statistics.state for statistics in found} == {"ended"}, (folder / "log").read_text()
    return [sum(row.count for row in each.snapshot.stats() if row.node_name == node) for each in found]


def traced(folder: Path, node: str) -> list[int]:
    """Return how often a node was called by the traces in a folder."""
    return [names_in_file(path).count(node) for path in folder.glob("trace*.json")]
