"""Servers with workers: gunicorn, uvicorn and Celery; each call is in one live file and in one trace."""

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

import pytest

import cprofiling
from calls import NEVER, unwatched
from cprofiling import live
from recorded import names_in_file

pytestmark = pytest.mark.integration
CALLS = 1_000
FILES = {"CPROFILING_LIVE": "live.cprof", "CPROFILING_OUTPUT_PATH": "trace.json"}
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


# ---- gunicorn: workers that are forked, before or after they have imported the program

WSGI = """
import os
import cprofiling as cp

@cp.profile_node
def work():
    return str(os.getpid()).encode()

def app(environ, start_response):
    body = work()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""


@pytest.mark.parametrize("options", [(), ("--preload",), ("--worker-class", "gthread", "--threads", "2")])
def test_calls_in_gunicorn_are_in_live_files_and_traces(options: tuple[str, ...], tmp_path: Path) -> None:
    pytest.importorskip("gunicorn")
    (tmp_path / "app.py").write_text(WSGI)
    command = ("-m", "gunicorn", "-w", "2", "-b", "unix:socket", "--worker-tmp-dir", ".", *options, "app:app")
    with started(*command, folder=tmp_path, **FILES) as server:
        assert len(asked_often(tmp_path / "socket", "Booting worker", 2)) == 2
        assert ended(server) == 0
    live, traces = counted(tmp_path, "work"), traced(tmp_path, "work")
    assert (sum(live), sum(traces)) == (CALLS, CALLS)
    assert len(live) == len(traces) == (3 if "--preload" in options else 2)


# ---- uvicorn: workers that are spawned by a parent which knows nothing of cprofiling

ASGI = """
import os
import cprofiling as cp

@cp.profile_node
def work():
    return str(os.getpid()).encode()

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        return await send({"type": "lifespan.shutdown.complete"})
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": work()})
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_calls_in_uvicorn_are_in_live_files_and_traces(workers: int, tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    (tmp_path / "app.py").write_text(ASGI)
    command = ("-m", "uvicorn", "app:app", "--uds", "socket", "--workers", str(workers))
    with started(*command, folder=tmp_path, **FILES) as server:
        answers = asked_often(tmp_path / "socket", "Application startup complete", workers)
        assert ended(server) == (0 if workers > 1 else -signal.SIGTERM)
    assert len(answers) == workers
    live, traces = counted(tmp_path, "work"), traced(tmp_path, "work")
    assert (sum(live), sum(traces)) == (CALLS, CALLS)
    assert (tmp_path / "live.cprof").exists()
    assert (tmp_path / "trace.json").exists()
    assert len(live) == len(traces) == workers


# ---- Celery: workers of its prefork pool, which end without the interpreter and without finalizers

TASKS = """
import celery
import cprofiling as cp

app = celery.Celery("tasks", broker="filesystem://", backend="file://results")
app.conf.broker_transport_options = {
    "data_folder_in": "queue", "data_folder_out": "queue", "control_folder": "control", "store_processed": False,
}
app.conf.worker_prefetch_multiplier = 1

@cp.profile_node
def work(number):
    return number

@app.task
def task(numbers):
    return sum(work(number) for number in numbers)

if __name__ == "__main__":
    import sys
    parts = [task.delay(list(range(10))) for _ in range(int(sys.argv[1]) // 10)]
    print(sum(part.get(timeout=60, interval=0.05) for part in parts))
"""


def test_calls_in_celery_are_in_live_files_and_traces(tmp_path: Path) -> None:
    pytest.importorskip("celery")
    (tmp_path / "tasks.py").write_text(TASKS)
    for name in ("queue", "control", "results"):
        (tmp_path / name).mkdir()
    command = ("-m", "celery", "-A", "tasks", "worker", "--pool", "prefork", "-c", "2", "--without-gossip")
    (tmp_path / "asking").mkdir()
    with started(*command, folder=tmp_path, **FILES) as worker:
        with started("tasks.py", str(CALLS), folder=tmp_path) as asking:
            assert asking.wait(120) == 0, (tmp_path / "log").read_text()
        assert ended(worker) == 0
    assert sum(counted(tmp_path, "work")) == CALLS
    assert sum(traced(tmp_path, "work")) == CALLS
