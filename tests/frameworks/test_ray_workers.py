"""Workers of Ray: remote functions and actor methods of the program count; what ends them leaves no trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from worker_runs import CALLS, counted, run

pytest.importorskip("ray")
pytestmark = pytest.mark.integration

PROGRAM = """
import time
import ray
import cprofiling as cp

profiler = cp.Profiler()

@ray.remote
@cp.profile_node("task", stage="train")
def task(number):
    return number * number

@ray.remote
class Actor:
    def __init__(self):
        profiler.set_profiling(True)

    @cp.profile_node("method")
    def method(self, number):
        return self.inner(number)

    @profiler.profile_node("inner")
    def inner(self, number):
        return number

    def statistics(self):
        return profiler.snapshot()

if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    assert sum(ray.get([task.remote(number) for number in range(1000)])) == sum(number ** 2 for number in range(1000))
    actors = [Actor.remote() for _ in range(2)]
    assert sum(ray.get([actors[number % 2].method.remote(number) for number in range(1000)])) == sum(range(1000))
    snapshots = ray.get([actor.statistics.remote() for actor in actors])
    print([(row.node_name, row.count) for row in cp.Snapshot.merge(snapshots).stats()])
    time.sleep(0.5)  # Ray kills its workers: they write what they count ten times a second
    ray.shutdown()
"""


def test_all_calls_of_workers_are_in_live_files(tmp_path: Path) -> None:
    assert run(PROGRAM, tmp_path, RAY_AUTH_MODE="disabled") == f"[('inner', {CALLS})]\n"
    assert counted(tmp_path) == {"task": CALLS, "method": CALLS, "inner": CALLS}
