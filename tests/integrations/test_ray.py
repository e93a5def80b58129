"""Statistics of Ray's actors and tasks, gathered in its own processes: exact, with those named that are dead."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cprofiling as cp

# Ray leaves threads and handlers of signals in a process, so that programs of their own use it.
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="could not import 'ray'")
PACKAGE_FOLDER = str(Path(cp.__file__).parents[1])

BEGIN = """
import asyncio, json, os, signal, sys, time
import ray
import cprofiling as cp
from cprofiling.integrations.ray import gather, profiling_hook

SMALL = dict(include_dashboard=False, object_store_memory=78 * 1024 * 1024, log_to_driver=False)

def counts(snapshot):
    return {} if snapshot is None else {row.node_name: row.count for row in snapshot.stats()}

def told(got):
    ranks = {name: counts(taken.snapshot) for name, taken in got.ranks.items()}
    return {"all": counts(got.snapshot), "ranks": ranks, "missing": dict(got.missing), "refused": dict(got.refused)}

def tell(**results):
    print(json.dumps(results))
"""


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder for Ray's sockets, whose paths may have about a hundred characters."""
    folder = tempfile.mkdtemp(prefix="r")
    yield Path(folder)
    shutil.rmtree(folder)


def run(program: str, folder: Path, session: Path, *arguments: str) -> Any:
    """Run a program of Ray to its end; return what it told."""
    (folder / "program.py").write_text(BEGIN + program)
    plain = {name: value for name, value in os.environ.items() if not name.startswith("CPROFILING_")}
    settings = {"PYTHONPATH": PACKAGE_FOLDER, "RAY_AUTH_MODE": "disabled", "RAY_TMPDIR": str(session)}
    done = subprocess.run(
        [sys.executable, "program.py", *arguments],
        env={**plain, **settings}, cwd=folder, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


EIGHT = """
ray.init(num_cpus=2, runtime_env={"worker_process_setup_hook": profiling_hook("stats", skip_first_n=1)}, **SMALL)

@ray.remote(num_cpus=0)
class Squares:
    @cp.profile_node
    def square(self, number):
        return number * number

    def pid(self):
        return os.getpid()

@ray.remote
@cp.profile_node("task", stage="train")
def task(number):
    return number

actors = [Squares.remote() for _ in range(8)]
pids = ray.get([actor.pid.remote() for actor in actors])
calls = {repr(actor): 101 + index for index, actor in enumerate(actors)}  # of which one is skipped
ray.get([actor.square.remote(2) for actor in actors for _ in range(calls[repr(actor)])])
before = told(gather(actors))
ray.get([task.remote(number) for number in range(500)])
files = told(gather(folder="stats"))
os.kill(pids[0], signal.SIGKILL)
ray.kill(actors[1])
after = told(gather(actors))
ended = Squares.remote()
ray.get([ended.square.remote(2) for _ in range(11)])
del ended  # its process ends
whole = told(gather(actors, folder="stats"))
wrong = told(gather(folder="elsewhere"))

with open(f"stats/{min(os.listdir('stats')).rpartition('_')[0]}_damaged.cprof", "w") as file:
    file.write("rubbish")
os.kill(pids[2], signal.SIGSTOP)
for timeout in (5, 40):  # the machine may be slow
    stopped = told(gather(actors[3:], folder="stats", timeout=timeout))
    if len(stopped["ranks"]) > 8:
        break
os.kill(pids[2], signal.SIGCONT)
gathered = dict(before=before, files=files, after=after, whole=whole, wrong=wrong, stopped=stopped)
tell(actors=[*map(repr, actors)], pids=pids, **gathered)
"""


@needs_ray
@pytest.mark.slow
def test_eight_actors_of_which_two_are_killed(tmp_path: Path, short_folder: Path) -> None:
    got = run(EIGHT, tmp_path, short_folder)
    actors = got["actors"]
    each = {actor: {"Squares.square": 100 + index} for index, actor in enumerate(actors)}
    assert got["before"] == {"all": {"Squares.square": 828}, "ranks": each, "missing": {}, "refused": {}}

    # Without the actors, by files: of tasks, too.
    files = got["files"]
    assert files["all"]["Squares.square"] == 828
    workers = [name for name, kept in files["ranks"].items() if "task" in kept]
    assert files["all"]["task"] == 500 - len(workers), "each skips one"
    assert {int(name.rpartition(":")[2]) for name in set(files["ranks"]) - set(workers)} == set(got["pids"])
    assert (files["missing"], files["refused"]) == ({}, {})

    after = got["after"]
    assert after["ranks"] == {actor: each[actor] for actor in actors[2:]}
    assert after["all"] == {"Squares.square": 828 - 100 - 101}
    assert set(after["missing"]) == set(actors[:2])
    assert after["missing"][actors[0]].startswith("it is dead: its worker process has died")
    assert after["missing"][actors[1]] == "it is dead: it was killed by `ray.kill`"

    # What the killed ones had counted is in their files, and what one that has ended had counted.
    whole = got["whole"]
    assert {name: whole["ranks"][name] for name in actors} == each
    assert whole["all"] == {"Squares.square": 828 + 10, "task": files["all"]["task"]}
    assert set(whole["missing"]) == set(actors[:2])
    assert whole["missing"][actors[1]] == "it is dead: it was killed by `ray.kill`; its last figures are counted"
    assert whole["refused"] == {}

    ((node, reason),) = got["wrong"]["missing"].items()
    assert node.startswith("node ")
    assert "No such file or directory: '" in reason
    assert "elsewhere" in reason

    # A damaged file and one that is not written any more are named, too.
    stopped = got["stopped"]
    assert stopped["all"] == whole["all"]
    reasons = {name.rpartition(":")[2].rpartition("_")[2]: reason for name, reason in stopped["missing"].items()}
    killed = "it was killed: its figures lack the last moments"
    late = "it did not write its file in time, so that its newest calls may be missing"
    damaged = "it cannot be read: it is no live file: wrong bytes at its start"
    first, second, third = map(str, got["pids"][:3])
    assert reasons == {first: killed, second: killed, third: late, "damaged.cprof": damaged}


KINDS = """
ray.init(num_cpus=2, **SMALL)  # without a hook

class Base:
    def __init__(self, fails=False):
        cp.set_profiling(True)
        if fails:
            raise ValueError("not this\\none")

    def off(self):
        cp.set_profiling(False, reset=True)

@ray.remote(num_cpus=0)
class Plain(Base):
    @cp.profile_node("lone \\ud800 \\x1b[31m \\u2028")
    def work(self):
        return 1

    def sleep(self, seconds):
        time.sleep(seconds)

@ray.remote(num_cpus=0)
class Asynchronous(Base):
    @cp.profile_node
    async def work(self):
        await asyncio.sleep(0.01)

    async def sleep(self, seconds):
        await asyncio.sleep(seconds)

@ray.remote(num_cpus=0, max_concurrency=4)
class Threaded(Base):
    @cp.profile_node
    def work(self):
        time.sleep(0.01)

    def sleep(self, seconds):
        time.sleep(seconds)

plain, asynchronous, threaded, busy, off = [cls.remote() for cls in (Plain, Asynchronous, Threaded, Plain, Plain)]
ray.get([actor.work.remote() for actor in (plain, asynchronous, threaded, busy) for _ in range(50)])
ray.get(off.off.remote())
sleeping = [actor.sleep.remote(1000) for actor in (asynchronous, threaded, busy)]
failing = Plain.remote(True)
waiting = Plain.options(resources={"what nobody has": 1}).remote()
actors = {"plain": plain, "asynchronous": asynchronous, "threaded": threaded, "busy": busy, "off": off,
          "failing": failing, "waiting": waiting}
for timeout in (3, 10, 30):  # the machine may be slow
    got = told(gather([*actors.values(), plain], timeout=timeout))
    if len(got["ranks"]) == 3 and got["missing"][repr(failing)].startswith("it is dead"):
        break
names = {name: repr(actor) for name, actor in actors.items()}
tell(got=got, nobody=told(gather()), names=names, driver=cp.profiling_enabled())
"""


@needs_ray
@pytest.mark.slow
def test_all_kinds_of_actors(tmp_path: Path, short_folder: Path) -> None:
    told = run(KINDS, tmp_path, short_folder)
    got, names = told["got"], told["names"]
    name = "lone \ud800 \x1b[31m \u2028"
    assert got["ranks"] == {
        names["plain"]: {name: 50},
        names["asynchronous"]: {"Asynchronous.work": 50},
        names["threaded"]: {"Threaded.work": 50},
    }
    assert got["missing"] == {
        names["busy"]: "it did not answer in time",
        names["waiting"]: "it did not answer in time",
        names["off"]: "its profiling is off, and it has counted nothing",
        names["failing"]: "it is dead: ValueError: not this one",
    }
    assert got["refused"] == {}
    assert told["nobody"] == {"all": {}, "ranks": {}, "missing": {}, "refused": {}}
    assert told["driver"] is False


CLUSTER = """
from ray.cluster_utils import Cluster
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 78 * 1024 * 1024})
second = cluster.add_node(num_cpus=1, object_store_memory=78 * 1024 * 1024)
hook = profiling_hook("stats")
there = lambda node: NodeAffinitySchedulingStrategy(node, soft=False)

def connect():
    env = {"worker_process_setup_hook": hook}
    ray.init(address=cluster.address, namespace="n", log_to_driver=False, runtime_env=env)

@ray.remote(num_cpus=0)
class Squares:
    @cp.profile_node
    def square(self, number):
        return number * number

@ray.remote(num_cpus=0)
@cp.profile_node("task")
def task(number):
    return number

connect()
head = there(cluster.head_node.node_id)
kept = Squares.options(name="kept", lifetime="detached", scheduling_strategy=head).remote()
ray.get([kept.square.remote(2) for _ in range(30)])
ray.shutdown()

connect()  # another job
nodes = [node["NodeID"] for node in ray.nodes()]
for node in nodes:
    ray.get([task.options(scheduling_strategy=there(node)).remote(number) for number in range(20)])
kept = ray.get_actor("kept")
both = told(gather([kept], folder="stats"))
files = told(gather(folder="stats"))
cluster.remove_node(second, allow_graceful=False)
while sum(node["Alive"] for node in ray.nodes()) > 1:
    time.sleep(0.1)
one = told(gather([kept], folder="stats"))
tell(both=both, files=files, one=one, kept=repr(kept), second=second.node_id)
ray.shutdown()
cluster.shutdown()
"""


@needs_ray
@pytest.mark.slow
def test_two_nodes_and_an_actor_of_another_job(tmp_path: Path, short_folder: Path) -> None:
    got = run(CLUSTER, tmp_path, short_folder)
    both, one = got["both"], got["one"]
    assert both["all"] == {"Squares.square": 30, "task": 40}
    assert both["ranks"][got["kept"]] == {"Squares.square": 30}
    assert sum(counts.get("task", 0) for counts in both["ranks"].values()) == 40
    assert both["missing"] == {}
    assert got["files"]["all"] == {"task": 40}, "not those of another job"
    assert one["all"] == {"Squares.square": 30, "task": 20}
    assert one["missing"] == {f"node {got['second']}": "it is gone, with the files of its workers"}


WITHOUT = """
ray.init(num_cpus=1, runtime_env={
    "worker_process_setup_hook": profiling_hook("stats"), "env_vars": {"PYTHONPATH": sys.argv[1]}
}, **SMALL)

@ray.remote(num_cpus=0)
class Plain:
    def work(self):
        return 1

actor = Plain.remote()
value = ray.get(actor.work.remote())
got = told(gather([actor], folder="stats"))
tell(value=value, got=got, actor=repr(actor))
"""


@needs_ray
@pytest.mark.slow
def test_workers_without_the_package_work_on_and_are_named(tmp_path: Path, short_folder: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "cprofiling.py").write_text("raise ModuleNotFoundError(\"No module named 'cprofiling'\")")
    told = run(WITHOUT, tmp_path, short_folder, str(tmp_path / "empty"))
    assert told["value"] == 1
    missing = told["got"]["missing"]
    reason = "No module named 'cprofiling'"
    assert missing.pop(told["actor"]) == f"it failed: ModuleNotFoundError: {reason}"
    ((node, said),) = missing.items()
    assert (node[:5], said) == ("node ", f"it failed: ModuleNotFoundError: {reason}")
    logs = "".join(path.read_text() for path in short_folder.rglob("worker-*.err"))
    assert f"cprofiling: this worker is not profiled: {reason}: pip install cprofiling\n" in logs


WRONG = """
def error_of(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"

@ray.remote
class Plain:
    pass

errors = [
    error_of(lambda: gather()),
    error_of(lambda: gather(3)),
    error_of(lambda: gather([3])),
    error_of(lambda: gather([Plain])),
    error_of(lambda: gather(timeout=-1)),
    error_of(lambda: gather(timeout="1")),
    error_of(lambda: gather(folder=3)),
    error_of(lambda: profiling_hook(3)),
    error_of(lambda: profiling_hook(live="live.cprof")),
    error_of(lambda: profiling_hook(skip_first_n=-1)),
    error_of(lambda: profiling_hook(colour="red")),
]
tell(errors=errors)
"""


@needs_ray
@pytest.mark.slow
def test_wrong_arguments(tmp_path: Path, short_folder: Path) -> None:
    told = run(WRONG, tmp_path, short_folder)
    assert told["errors"][4:] == [
        "ValueError: timeout must be from 0 to 86400, got -1 (int)",
        "TypeError: timeout must be a number, got '1' (str)",
        "TypeError: folder must be a path, got 3 (int)",
        "TypeError: folder must be a path, got 3 (int)",
        "TypeError: live is the file of a single process: use folder, in which each worker has a live file",
        "ValueError: skip_first_n must be >= 0, got -1",
        told["errors"][-1],
    ]
    assert re.search("^TypeError: .*'colour'", told["errors"][-1]), "in words of CPython's own"
    assert told["errors"][:3] == [
        "RuntimeError: gather() needs a running Ray: call ray.init() first",
        "TypeError: actors must be an iterable of Ray's actors, got 3 (int)",
        "TypeError: actors must be Ray's actors, got 3 (int)",
    ]
    assert told["errors"][3].startswith("TypeError: actors must be Ray's actors, got <__main__.ActorClass(Plain)")


def test_without_ray_the_message_has_the_command() -> None:
    code = "import sys; sys.modules['ray'] = None; import cprofiling.integrations.ray"
    environment = {**os.environ, "PYTHONPATH": PACKAGE_FOLDER}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].endswith(': pip install "ray"')
    assert "ImportError: ray is needed for this and cannot be imported (" in done.stderr
