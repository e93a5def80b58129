"""gunicorn: workers that are forked, before or after they have imported the program."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving import CALLS, asked_often, counted, ended, started, traced

pytest.importorskip("gunicorn")
pytestmark = pytest.mark.integration
APP = """
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
def test_all_calls_are_in_live_files_and_traces(options: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    command = ("-m", "gunicorn", "-w", "2", "-b", "unix:socket", "--worker-tmp-dir", ".", *options, "app:app")
    variables = {"CPROFILING_LIVE": "live.cprof", "CPROFILING_OUTPUT_PATH": "trace.json"}
    with started(*command, folder=tmp_path, **variables) as server:
        assert len(asked_often(tmp_path / "socket", "Booting worker", 2)) == 2
        assert ended(server) == 0
    live, traces = counted(tmp_path, "work"), traced(tmp_path, "work")
    assert (sum(live), sum(traces)) == (CALLS, CALLS)
    assert len(live) == len(traces) == (3 if "--preload" in options else 2)
