"""Workers of multiprocessing and of concurrent.futures: each call is in one live file and in one trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from worker_runs import CALLS, counted, run, traced

pytestmark = pytest.mark.integration

POOL = """
import multiprocessing, sys
import cprofiling as cp

@cp.profile_node("work")
def work(number):
    return number * number

if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
        assert sum(pool.map(work, range(1000), 10)) == sum(number * number for number in range(1000))
        pool.close()
        pool.join()
"""
EXECUTOR = """
import multiprocessing, sys
from concurrent.futures import ProcessPoolExecutor
import cprofiling as cp

@cp.profile_node("work")
def work(number):
    return number * number

if __name__ == "__main__":
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(sys.argv[1])) as pool:
        assert sum(pool.map(work, range(1000), chunksize=10)) == sum(number * number for number in range(1000))
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("program", [POOL, EXECUTOR], ids=["Pool", "ProcessPoolExecutor"])
def test_all_calls_of_workers_are_in_live_files_and_in_traces(program: str, method: str, tmp_path: Path) -> None:
    run(program, tmp_path, method)
    assert counted(tmp_path) == {"work": CALLS}
    assert traced(tmp_path, "work") == {"work": CALLS}
