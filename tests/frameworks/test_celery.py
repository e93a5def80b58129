"""Celery: workers of its prefork pool, which end without the interpreter and without finalizers."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving import CALLS, counted, ended, started, traced

pytest.importorskip("celery")
pytestmark = pytest.mark.integration
APP = """
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


def test_all_calls_are_in_live_files_and_traces(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(APP)
    for name in ("queue", "control", "results"):
        (tmp_path / name).mkdir()
    command = ("-m", "celery", "-A", "tasks", "worker", "--pool", "prefork", "-c", "2", "--without-gossip")
    variables = {"CPROFILING_LIVE": "live.cprof", "CPROFILING_OUTPUT_PATH": "trace.json"}
    (tmp_path / "asking").mkdir()
    with started(*command, folder=tmp_path, **variables) as worker:
        with started("tasks.py", str(CALLS), folder=tmp_path) as asking:
            assert asking.wait(120) == 0, (tmp_path / "log").read_text()
        assert ended(worker) == 0
    assert sum(counted(tmp_path, "work")) == CALLS
    assert sum(traced(tmp_path, "work")) == CALLS
