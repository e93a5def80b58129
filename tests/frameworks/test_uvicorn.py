"""uvicorn: workers that are spawned by a parent which knows nothing of cprofiling."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from serving import CALLS, asked_often, counted, ended, started, traced

pytest.importorskip("uvicorn")
pytestmark = pytest.mark.integration
APP = """
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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


@pytest.mark.parametrize("workers", [1, 2])
def test_all_calls_are_in_live_files_and_traces(workers: int, folder: Path) -> None:
    command = ("-m", "uvicorn", "app:app", "--uds", "socket", "--workers", str(workers))
    variables = {"CPROFILING_LIVE": "live.cprof", "CPROFILING_OUTPUT_PATH": "trace.json"}
    with started(*command, folder=folder, **variables) as server:
        answers = asked_often(folder / "socket", "Application startup complete", workers)
        assert ended(server) == (0 if workers > 1 else -signal.SIGTERM)
    assert len(answers) == workers
    live, traces = counted(folder, "work"), traced(folder, "work")
    assert (sum(live), sum(traces)) == (CALLS, CALLS)
    assert (folder / "live.cprof").exists()
    assert (folder / "trace.json").exists()
    assert len(live) == len(traces) == workers
