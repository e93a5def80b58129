"""Workers of joblib: functions of the program arrive wrapped, and each call is in one live file and in one trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from worker_runs import CALLS, counted, run, traced

pytest.importorskip("joblib")
pytestmark = pytest.mark.integration

PROGRAM = """
import sys
import joblib
import cprofiling as cp

profiler = cp.Profiler()

@cp.profile_node("work", stage="train")
def work(number):
    return inner(number)

@profiler.profile_node
def inner(number):
    return number * number

def tell(number):
    profiler.set_profiling(True)
    inner(number)
    return profiler.snapshot()

if __name__ == "__main__":
    calls = (joblib.delayed(work)(number) for number in range(1000))
    assert sum(joblib.Parallel(2, backend=sys.argv[1])(calls)) == sum(number * number for number in range(1000))
    told = joblib.Parallel(2, backend=sys.argv[1], batch_size=1)(joblib.delayed(tell)(number) for number in range(20))
    latest = {}
    for snapshot in told:  # each has what its worker has counted so far
        source = snapshot._sources()[0]
        latest[source] = max(latest.get(source, 0), snapshot.stats()[0].count)
    print(sum(latest.values()))
"""


@pytest.mark.parametrize("backend", ["loky", "multiprocessing"])
def test_all_calls_of_workers_are_in_live_files_and_in_traces(backend: str, tmp_path: Path) -> None:
    told = run(PROGRAM, tmp_path, backend)
    counts = counted(tmp_path)
    assert counts.pop("work") == CALLS
    assert traced(tmp_path, "work") == {"work": CALLS}
    assert (told, counts) == ("20\n", {"inner": 20})
