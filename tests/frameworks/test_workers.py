"""Workers of pools and frameworks, run as people run them: each call is in one live file and in one trace."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import cprofiling as cp
from command import COMMAND

pytestmark = pytest.mark.integration

CALLS = 1000
PACKAGE_FOLDER = str(Path(cp.__file__).parents[1])


def run(program: str, folder: Path, *arguments: str, **environment: str) -> str:
    """Run a program to its end, with live files and traces in a folder; return what it printed."""
    script = folder / "program.py"
    script.write_text(program)
    plain = {name: value for name, value in os.environ.items() if not name.startswith("CPROFILING_")}
    files = {"CPROFILING_LIVE": str(folder / "live.cprof"), "CPROFILING_OUTPUT_PATH": str(folder / "trace.json")}
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        env={**plain, "PYTHONPATH": PACKAGE_FOLDER, **files, **environment},
        cwd=folder, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def counted(folder: Path) -> dict[str, int]:
    """Merge the live files of all processes by command, and return the counts by node."""
    merged = folder / "merged.bin"
    files = [str(path) for path in sorted(folder.glob("live*.cprof"))]
    done = subprocess.run(
        [*COMMAND, "merge", "-o", str(merged), *files], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return {row.node_name: row.count for row in cp.Snapshot.from_bytes(merged.read_bytes()).stats()}


def traced(folder: Path, *names: str) -> dict[str, int]:
    """Merge the traces of all processes by command, and return how many events there are of each name."""
    merged = folder / "merged.json"
    files = [str(path) for path in sorted(folder.glob("trace*.json"))]
    subprocess.run([*COMMAND, "merge", "-o", str(merged), *files], capture_output=True, timeout=120, check=True)
    events = [event.name for event in cp.load_trace(merged).events()]
    return {name: events.count(name) for name in names}


# ---- multiprocessing and concurrent.futures

POOLS = """
import concurrent.futures, multiprocessing, sys
import cprofiling as cp

@cp.profile_node("work")
def work(number):
    return number * number

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    expected = sum(number * number for number in range(1000))
    if sys.argv[2] == "Pool":
        with context.Pool(2) as pool:
            assert sum(pool.map(work, range(1000), 10)) == expected
            pool.close()
            pool.join()
    else:
        with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
            assert sum(pool.map(work, range(1000), chunksize=10)) == expected
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("pool", ["Pool", "ProcessPoolExecutor"])
def test_calls_in_processes_are_in_live_files_and_in_traces(pool: str, method: str, tmp_path: Path) -> None:
    run(POOLS, tmp_path, method, pool)
    assert counted(tmp_path) == {"work": CALLS}
    assert traced(tmp_path, "work") == {"work": CALLS}


# ---- joblib

JOBLIB = """
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
def test_calls_in_joblib_are_in_live_files_and_in_traces(backend: str, tmp_path: Path) -> None:
    pytest.importorskip("joblib")
    told = run(JOBLIB, tmp_path, backend)
    counts = counted(tmp_path)
    assert counts.pop("work") == CALLS
    assert traced(tmp_path, "work") == {"work": CALLS}
    assert (told, counts) == ("20\n", {"inner": 20})


# ---- PyTorch's DataLoader

DATALOADER = """
import sys, time
import torch
import cprofiling as cp

class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 1000

    @cp.profile_node("load")
    def __getitem__(self, index):
        return index

if __name__ == "__main__":
    persistent = sys.argv[2:] == ["persistent"]
    loader = torch.utils.data.DataLoader(
        Numbers(), batch_size=10, num_workers=2, multiprocessing_context=sys.argv[1], persistent_workers=persistent
    )
    assert sum(int(batch.sum()) for batch in loader) == sum(range(1000))
    if persistent:
        time.sleep(0.5)  # PyTorch ends such workers at once: they write what they count ten times a second
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_calls_in_loaders_are_in_live_files_and_in_traces(method: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    run(DATALOADER, tmp_path, method)
    assert counted(tmp_path) == {"load": CALLS}
    assert traced(tmp_path, "load") == {"load": CALLS}


def test_calls_in_persistent_loaders_are_in_live_files(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    run(DATALOADER, tmp_path, "fork", "persistent")
    assert counted(tmp_path) == {"load": CALLS}


# ---- Dask

DASK = """
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


def test_calls_in_dask_are_gathered_and_in_live_files(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    assert run(DASK, tmp_path) == f"[('work', 'train', {CALLS})]\n"
    assert counted(tmp_path) == {"work": CALLS}


# ---- Ray

RAY = """
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


def test_calls_in_ray_are_in_live_files(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    assert run(RAY, tmp_path, RAY_AUTH_MODE="disabled") == f"[('inner', {CALLS})]\n"
    assert counted(tmp_path) == {"task": CALLS, "method": CALLS, "inner": CALLS}


RAY_GATHERED = """
import ray
import cprofiling as cp
from cprofiling.integrations.ray import gather, profiling_hook

@ray.remote
@cp.profile_node("task", stage="train")
def task(number):
    return number * number

@ray.remote
class Actor:
    @cp.profile_node("method")
    def method(self, number):
        return number

if __name__ == "__main__":
    environment = {"worker_process_setup_hook": profiling_hook("files")}
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, runtime_env=environment)
    assert sum(ray.get([task.remote(number) for number in range(1000)])) == sum(number ** 2 for number in range(1000))
    actors = [Actor.remote() for _ in range(2)]
    assert sum(ray.get([actors[number % 2].method.remote(number) for number in range(1000)])) == sum(range(1000))
    got = gather(actors, folder="files")
    assert {repr(actor) for actor in actors} < set(got.ranks) and not got.missing, got
    print({row.node_name: row.count for row in got.snapshot.stats()} == {"task": 1000, "method": 1000})
    ray.shutdown()
"""


def test_calls_in_ray_are_gathered(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    assert run(RAY_GATHERED, tmp_path, RAY_AUTH_MODE="disabled", CPROFILING_LIVE="") == "True\n"
