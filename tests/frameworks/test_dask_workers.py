"""Workers of Dask: functions of the program arrive wrapped, and count in the worker's default Profiler."""

from __future__ import annotations

from pathlib import Path

import pytest

from worker_runs import CALLS, counted, run

pytest.importorskip("distributed")
pytestmark = pytest.mark.integration

PROGRAM = """
import time
import distributed
import cprofiling as cp
from cprofiling.integrations.dask import ProfilingPlugin, gather

@cp.profile_node("work", stage="train")
def work(number):
    return number * number

if __name__ == "__main__":
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        client.register_plugin(ProfilingPlugin())
        assert sum(client.gather(client.map(work, range(1000)))) == sum(number ** 2 for number in range(1000))
        print([(row.node_name, str(row.stage.value), row.count) for row in gather(client).snapshot.stats()])
        time.sleep(0.5)  # the nanny may kill them
"""


def test_all_calls_of_workers_are_gathered_and_in_live_files(tmp_path: Path) -> None:
    assert run(PROGRAM, tmp_path) == f"[('work', 'train', {CALLS})]\n"
    assert counted(tmp_path) == {"work": CALLS}
