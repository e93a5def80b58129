"""Forked and spawned processes (failure scenarios D1, D2).

A forked child keeps the configuration, starts with empty statistics and is usable at once; a node that was open at the
fork is not recorded in it; the parent notices nothing. Each child ends by ``os._exit``, and is killed when it hangs.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import cprofiling as cp
from calls import profiler_on, unwatched, watch_no_lines
from cprofiling import ProfilingSummary
from forks import HANGS_AFTER_S, fork, in_child, wait_for

pytestmark = [
    pytest.mark.native,
    pytest.mark.forks,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]

FORKS = 60


def nothing() -> None:
    """Be a node."""


def counts(summary: ProfilingSummary) -> dict[str, int]:
    return {stats.node_name: stats.count for stats in summary}


@pytest.fixture
def profiler() -> cp.Profiler:
    return profiler_on()


# --- what a child starts with ---


@pytest.mark.parametrize("enabled", [True, False])
def test_a_child_keeps_the_configuration_and_starts_empty(enabled: bool) -> None:
    profiler = profiler_on(skip_first_n=2)
    for _ in range(5):
        profiler.record("train", "node", 1.0)
    profiler.set_profiling(enabled, skip_first_n=2)

    def child() -> None:
        assert profiler.profiling_enabled is enabled
        summary = profiler.get_profiling_summary()
        assert summary == []
        assert summary.skip_first_n == 2
        assert profiler.format_profiling_summary().startswith("No profiling data collected.")
        for _ in range(5):
            profiler.record("train", "node", 2.0)
        figures = [(stats.count, stats.skipped_count, stats.total_ms) for stats in profiler.get_profiling_summary()]
        assert figures == ([(3, 2, 6.0)] if enabled else [])
        profiler.set_profiling(True, skip_first_n=2)  # the same configuration: nothing is discarded
        assert len(profiler.get_profiling_summary()) == len(figures)
        profiler.set_profiling(True, reset=True)
        assert profiler.get_profiling_summary() == []

    fork(child)
    (stats,) = profiler.get_profiling_summary()
    assert (stats.count, stats.skipped_count, stats.total_ms) == (3, 2, 3.0)


def test_all_profilers_of_the_process_start_empty_in_a_child() -> None:
    class Pipeline(cp.PipelineProfiling):
        @cp.profile_node(name="node")
        def forward(self) -> int:
            return 1

    pipelines = [Pipeline() for _ in range(20)]
    for pipeline in pipelines:
        pipeline.set_profiling(True)
        pipeline.forward()
    cp.set_profiling(True)
    node = cp.profile_node(nothing, name="default's")
    node()

    def child() -> None:
        for pipeline in pipelines:
            assert pipeline.get_profiling_summary() == []
            pipeline.forward()
            assert counts(pipeline.get_profiling_summary()) == {"node": 1}
        assert cp.profiling_enabled() is True
        assert cp.get_profiling_summary() == []
        node()
        assert counts(cp.get_profiling_summary()) == {"default's": 1}

    fork(child)
    assert [counts(pipeline.get_profiling_summary()) for pipeline in pipelines] == [{"node": 1}] * 20
    assert counts(cp.get_profiling_summary()) == {"default's": 1}


def test_children_of_children_start_empty_too(profiler: cp.Profiler) -> None:
    def child(depth: int) -> None:
        assert profiler.get_profiling_summary() == []
        for _ in range(depth):
            profiler.record("train", "node", 1.0)
        assert counts(profiler.get_profiling_summary()) == {"node": depth}
        if depth < 4:
            fork(lambda: child(depth + 1))
        assert counts(profiler.get_profiling_summary()) == {"node": depth}

    fork(lambda: child(1))
    assert profiler.get_profiling_summary() == []


def test_a_profiler_made_in_a_child_lives_there_only(profiler: cp.Profiler) -> None:
    def child() -> None:
        for _ in range(3):
            made = profiler_on()
            made.record("train", "node", 1.0)
            fork(partial(made.record, "train", "node", 1.0))
            assert counts(made.get_profiling_summary()) == {"node": 1}

    fork(child)
    assert profiler.get_profiling_summary() == []


def test_stages_and_bindings_go_along(profiler: cp.Profiler) -> None:
    node = cp.profile_node(nothing, name="node")

    def child() -> None:
        node()
        (stats,) = profiler.get_profiling_summary()
        assert (stats.stage, stats.count) == ("train", 1)

    with profiler, cp.stage("train"):
        fork(child)
    assert profiler.get_profiling_summary() == []


# --- a fork amid nodes ---


def test_a_function_open_at_the_fork_is_not_recorded_in_the_child(profiler: cp.Profiler) -> None:
    @profiler.profile_node(name="inner")
    def inner() -> int:
        return os.fork()

    @profiler.profile_node(name="outer")
    def outer() -> int:
        return inner()

    def child() -> None:
        assert counts(profiler.get_profiling_summary()) == {"inner": 0, "outer": 0}
        after = profiler.profile_node(nothing, name="after")
        after()
        assert counts(profiler.get_profiling_summary())["after"] == 1

    pid = outer()
    if pid == 0:
        in_child(child)
    wait_for(pid)
    assert counts(profiler.get_profiling_summary()) == {"inner": 1, "outer": 1}


def test_nodes_that_raise_after_the_fork_are_no_errors_of_the_child(profiler: cp.Profiler) -> None:
    @profiler.profile_node(name="node")
    def node() -> None:
        pid = os.fork()
        raise RuntimeError(pid)

    def child() -> None:
        (stats,) = profiler.get_profiling_summary()
        assert (stats.count, stats.error_count) == (0, 0)

    with pytest.raises(RuntimeError) as caught:
        node()
    if caught.value.args == (0,):
        in_child(child)
    wait_for(caught.value.args[0])
    (stats,) = profiler.get_profiling_summary()
    assert (stats.count, stats.error_count) == (0, 1)


def test_blocks_generators_and_coroutines_open_at_the_fork(profiler: cp.Profiler) -> None:
    pids = []

    @profiler.profile_node(name="generator")
    def generator() -> Iterator[int]:
        yield 1
        pids.append(os.fork())
        yield 2

    @profiler.profile_node(name="coroutine")
    async def coroutine() -> None:
        await asyncio.sleep(0)
        with profiler.profile_node("block"):
            list(generator())
            await asyncio.sleep(0)

    def child() -> None:
        assert counts(profiler.get_profiling_summary()) == {"generator": 0, "block": 0, "coroutine": 0}
        with profiler.profile_node("block"):
            assert list(profiler.profile_node(lambda: iter("ab"), name="function")()) == ["a", "b"]
        now = counts(profiler.get_profiling_summary())
        assert (now["block"], now["function"]) == (1, 1)

    if sys.version_info < (3, 14):
        asyncio.run(coroutine())
    else:  # which leaves no task in a child that was forked in it: by hand
        driven = coroutine()
        for _ in range(2):
            driven.send(None)
        with pytest.raises(StopIteration):
            driven.send(None)
    if pids == [0]:
        in_child(child)
    wait_for(pids[0])
    assert counts(profiler.get_profiling_summary()) == {"generator": 1, "block": 1, "coroutine": 1}


def test_a_node_begun_in_the_child_inside_an_open_one_is_counted_with_its_self_time(profiler: cp.Profiler) -> None:
    inner = profiler.profile_node(nothing, name="inner")

    @profiler.profile_node(name="outer")
    def outer() -> None:
        pid = os.fork()
        if pid == 0:
            in_child(child)
        wait_for(pid)

    def child() -> None:
        inner()
        (stats,) = profiler.get_profiling_summary()
        assert (stats.count, stats.self_total_ms) == (1, stats.total_ms)

    outer()
    assert counts(profiler.get_profiling_summary()) == {"outer": 1}


@pytest.mark.unsanitized  # the thread before may hold the sanitizer's lock, as it ends after its join()
def test_a_fork_by_another_thread(profiler: cp.Profiler) -> None:
    errors: list[BaseException] = []

    @profiler.profile_node(name="node")
    def node() -> None:
        def child() -> None:
            assert profiler.get_profiling_summary() == []
            profiler.profile_node(nothing, name="child's")()
            assert counts(profiler.get_profiling_summary()) == {"child's": 1}

        try:
            fork(child)
        except BaseException as error:
            errors.append(error)

    for _ in range(5):
        thread = threading.Thread(target=node)
        thread.start()
        thread.join(HANGS_AFTER_S)
    assert not errors
    assert counts(profiler.get_profiling_summary()) == {"node": 5}


class Load:
    """Threads that are anywhere in the profiler at any moment, with the interpreter's lock and without it."""

    def __init__(self) -> None:
        self.profiler = cp.Profiler()
        self.profiler.set_profiling(True, skip_first_n=1)
        self.node = self.profiler.profile_node(name="node")(nothing)
        self.called = {"node": 0, "reading": 0, "switched": 0}
        self.over = threading.Event()
        self.threads = [threading.Thread(target=each, daemon=True) for each in (self.call, self.read, self.switch)]

    def call(self) -> None:
        watch_no_lines()
        while not self.over.is_set():
            self.node()
            self.profiler.record("train", "record", 1.0)
            self.called["node"] += 1

    def read(self) -> None:
        watch_no_lines()
        while not self.over.is_set():
            self.profiler.get_profiling_summary()
            with self.profiler.profile_node("reading"):
                self.profiler.record("val", f"new {self.called['reading'] % 3000}", 1.0)
            self.called["reading"] += 1

    def switch(self) -> None:
        watch_no_lines()
        while not self.over.is_set():
            other = cp.Profiler()
            for i in range(5):
                other.set_profiling(i % 2 == 0, skip_first_n=i % 3, reset=True)
                other.record("train", "node", 1.0)
            self.called["switched"] += 1

    def __enter__(self) -> None:
        for thread in self.threads:
            thread.start()

    def __exit__(self, *exception: object) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join(HANGS_AFTER_S)
        assert not any(thread.is_alive() for thread in self.threads)


@pytest.mark.unsanitized
@pytest.mark.slow
def test_forks_under_load() -> None:
    load = Load()
    profiler, node = load.profiler, load.node

    def child() -> None:
        assert profiler.profiling_enabled
        assert profiler.get_profiling_summary() == []
        for _ in range(4):
            node()
        (stats,) = profiler.get_profiling_summary()
        assert (stats.count, stats.skipped_count, stats.dropped_count) == (3, 1, 0)
        thread = threading.Thread(target=node)
        thread.start()
        thread.join()
        assert counts(profiler.get_profiling_summary()) == {"node": 4}
        profiler.set_profiling(True, reset=True)
        profiler.record("train", "another", 1.0)
        assert counts(profiler.get_profiling_summary()) == {"another": 1}

    with load:
        for _ in range(FORKS):
            fork(child)
    now = counts(profiler.get_profiling_summary())
    assert now["node"] == now["record"] == load.called["node"] - 1
    assert now["reading"] == load.called["reading"] - 1
    assert load.called["switched"] > 0


@pytest.mark.unsanitized
@pytest.mark.slow
def test_forks_while_foreign_threads_start_and_end(profiler: cp.Profiler) -> None:
    """Threads that Python did not make, so that their records are taken and given back around the forks."""
    routine = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
    node = profiler.profile_node(name="node")(nothing)
    over = threading.Event()
    called = [0]

    @routine  # type: ignore[untyped-decorator]
    def main(argument: object) -> None:
        node()

    def spawn() -> None:
        libc = ctypes.CDLL(None)
        while not over.is_set():
            identity = ctypes.c_ulong()
            libc.pthread_create(ctypes.byref(identity), None, main, None)
            libc.pthread_join(identity, None)
            called[0] += 1

    def child() -> None:
        node()
        assert counts(profiler.get_profiling_summary()) == {"node": 1}

    thread = threading.Thread(target=spawn, daemon=True)
    thread.start()
    for _ in range(FORKS // 2):
        fork(child)
    over.set()
    thread.join(HANGS_AFTER_S)
    assert counts(profiler.get_profiling_summary()) == {"node": called[0]}


WAIT = """
if pid:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
SCRIPTS = {
    "of a process that measured nothing": """
        pid = os.fork()
        cp.set_profiling(True)
        cp.profile_node(lambda: None, name="node")()
        assert [stats.count for stats in cp.get_profiling_summary()] == [1]
    """,
    "while another thread calibrates the clock": """
        threading.Thread(target=cp.set_profiling, args=(True,)).start()
        pid = os.fork()
        cp.set_profiling(True)
        node = cp.profile_node(lambda: None, name="node")
        for _ in range(10):
            node()
        (stats,) = cp.get_profiling_summary()
        assert stats.count == 10 and 0 <= stats.min_ms <= stats.max_ms < 60_000, stats
    """,
    "with nodes in the hooks": """
        cp.set_profiling(True)
        node = cp.profile_node(lambda: None, name="node")
        os.register_at_fork(before=node, after_in_parent=node, after_in_child=node)
        pid = os.fork()
        assert [stats.count for stats in cp.get_profiling_summary()] == [2 if pid else 1]
    """,
}


@pytest.mark.parametrize("scenario", SCRIPTS)
def test_a_fork_of_a_fresh_process(scenario: str) -> None:
    script = f"import os, sys, threading\nimport cprofiling as cp\n{textwrap.dedent(SCRIPTS[scenario])}{WAIT}"
    for _ in range(5 if "clock" in scenario else 1):
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], timeout=HANGS_AFTER_S, check=False)
        assert done.returncode == 0


def test_the_open_block_of_a_parent_can_be_left_in_the_child(profiler: cp.Profiler) -> None:
    site = profiler.profile_node("block")

    def child() -> None:
        site.__exit__(None, None, None)
        assert counts(profiler.get_profiling_summary()) == {"block": 0}
        with pytest.raises(RuntimeError, match="block"):
            site.__exit__(None, None, None)
        with site:
            pass
        assert counts(profiler.get_profiling_summary()) == {"block": 1}

    with site:
        fork(child)
    assert counts(profiler.get_profiling_summary()) == {"block": 1}


def test_os_exit_and_exec_are_not_held_up(profiler: cp.Profiler) -> None:
    """What a process that ends without finalisation had counted is lost, and that is all (D4)."""

    @profiler.profile_node
    def leave() -> None:
        os._exit(7)

    @profiler.profile_node
    def replace() -> None:
        os.execv(sys.executable, [sys.executable, "-c", "raise SystemExit(8)"])

    @profiler.profile_node
    def terminate() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()

    for node, status in ((leave, 7), (replace, 8), (terminate, -signal.SIGTERM)):
        pid = os.fork()
        if pid == 0:
            signal.alarm(HANGS_AFTER_S)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            with contextlib.suppress(BaseException):
                node()
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == status


# --- multiprocessing ---


@cp.profile_node
def work(i: int) -> int:
    """Be a node that is pickled by reference."""
    if i == 13:
        raise ValueError(i)
    return i * i


def report() -> tuple[bool, ProfilingSummary]:
    return cp.profiling_enabled(), cp.get_profiling_summary()


def run_in_worker(numbers: list[int]) -> tuple[int, bool, int, ProfilingSummary]:
    """Run some nodes in a worker; return its process id, whether it was on, its number of keys before, its summary."""
    was_on, before = report()
    cp.set_profiling(True)
    with cp.stage("train"):
        for number in numbers:
            with contextlib.suppress(ValueError):
                work(number)
    return os.getpid(), was_on, len(before), cp.get_profiling_summary()


METHODS = [method for method in ("fork", "spawn", "forkserver") if method in multiprocessing.get_all_start_methods()]


@pytest.mark.parametrize("method", METHODS)
def test_a_worker_process_has_a_usable_default_profiler(method: str) -> None:
    cp.set_profiling(True)
    work(1)
    with multiprocessing.get_context(method).Pool(1) as pool:
        pid, was_on, keys, summary = pool.apply(run_in_worker, ([1, 2, 13],))
        again = pool.apply(run_in_worker, ([3],))
    assert pid != os.getpid()
    assert was_on is (method == "fork")
    assert keys == 0
    (stats,) = summary
    assert (stats.node_name, str(stats.stage), stats.count, stats.error_count) == ("work", "train", 2, 1)
    assert isinstance(summary, ProfilingSummary)
    assert again[3][0].count == 3
    assert counts(cp.get_profiling_summary()) == {"work": 1}


@pytest.mark.parametrize("method", METHODS)
def test_a_node_is_sent_to_workers_by_reference(method: str) -> None:
    cp.set_profiling(True)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as executor:
        assert list(executor.map(work, range(10))) == [i * i for i in range(10)]
        with pytest.raises(ValueError, match="13"):
            executor.submit(work, 13).result()
    assert cp.get_profiling_summary() == []


class Holder(cp.PipelineProfiling):
    """A pipeline that is sent to workers."""

    @cp.profile_node(name="step")
    def step(self) -> int:
        return os.getpid()

    def forward(self) -> int:
        return self.step()


def run_pipeline(pipeline: Holder) -> tuple[bool, dict[str, int]]:
    was_on = pipeline.profiling_enabled
    pipeline.set_profiling(True)
    pipeline.forward()
    return was_on, counts(pipeline.get_profiling_summary())


@pytest.mark.parametrize("method", METHODS)
def test_a_pipeline_sent_to_a_worker_starts_there_switched_off(method: str) -> None:
    pipeline = Holder()
    pipeline.set_profiling(True)
    pipeline.forward()
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.apply(run_pipeline, (pipeline,)) == (False, {"step": 1})
    assert counts(pipeline.get_profiling_summary()) == {"step": 1}


def fork_again(numbers: list[int]) -> list[dict[str, int]]:
    cp.set_profiling(True)
    work(0)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        results = pool.map(run_in_worker, [numbers, numbers, numbers], chunksize=3)
    return [counts(results[0][3]), counts(cp.get_profiling_summary())]


def test_a_pool_inside_a_worker() -> None:
    """Workers of ProcessPoolExecutor may have children of their own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as executor:
        assert executor.submit(fork_again, [1, 2, 3]).result(HANGS_AFTER_S) == [{"work": 3}, {"work": 1}]


def test_loky_workers() -> None:
    loky = pytest.importorskip("loky")
    with loky.get_reusable_executor(max_workers=2) as executor:
        pid, was_on, keys, summary = executor.submit(run_in_worker, [1, 2]).result(HANGS_AFTER_S)
    assert (pid != os.getpid(), was_on, keys, counts(summary)) == (True, False, 0, {"work": 2})


def test_summaries_travel_between_processes_as_json_and_pickle(profiler: cp.Profiler) -> None:
    profiler.record("train", "node", 1.5)
    read_end, write_end = os.pipe()

    def child() -> None:
        profiler.record("train", "node", 2.5)
        (stats,) = profiler.get_profiling_summary()
        figures: dict[str, Any] = {"name": stats.node_name, "count": stats.count, "total_ms": stats.total_ms}
        os.write(write_end, json.dumps(figures, allow_nan=False).encode())

    fork(child)
    os.close(write_end)
    with os.fdopen(read_end) as reader:
        assert json.load(reader) == {"name": "node", "count": 1, "total_ms": 2.5}
    assert counts(profiler.get_profiling_summary()) == {"node": 1}


def test_a_generator_that_runs_in_another_thread_keeps_the_profiler_in_a_child() -> None:
    """The child clears the other threads' states, and with them what was open there: each reference once."""
    inside, leave = threading.Event(), threading.Event()

    class Pipeline(cp.PipelineProfiling):
        @cp.profile_node(name="generator")
        def generate(self) -> Iterator[int]:
            inside.set()
            leave.wait(HANGS_AFTER_S)
            yield 1

    pipeline = Pipeline()
    pipeline.set_profiling(True)
    references = sys.getrefcount(pipeline.profiler)
    running = pipeline.generate()
    thread = threading.Thread(target=next, args=(running,))
    thread.start()
    inside.wait(HANGS_AFTER_S)

    def child() -> None:
        held = sys.getrefcount(pipeline.profiler)
        assert held > references, "the generator holds it, too"

    fork(child)
    leave.set()
    thread.join()
    assert counts(pipeline.get_profiling_summary()) == {}
    running.close()  # type: ignore[attr-defined]
    assert counts(pipeline.get_profiling_summary()) == {"generator": 1}


SWITCHES_WHILE_FORKING = """
import os, sys, threading
import cprofiling as cp

profiler = cp.Profiler()
os.register_at_fork(after_in_child=lambda: profiler.set_profiling(True))  # a hook of others that runs before ours
profiler.set_profiling(True, live=sys.argv[1])
done = threading.Event()

def switch():
    while not done.is_set():
        profiler.set_profiling(True, live=sys.argv[1])
        profiler.set_profiling(False)

thread = threading.Thread(target=switch)
sys.setswitchinterval(1e-5)
thread.start()
for _ in range(100):
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
done.set()
thread.join()
"""


@pytest.mark.unsanitized  # the thread of the live file allocates at any time
def test_hooks_of_others_may_switch_in_the_child(tmp_path: Path) -> None:
    """While another thread of the parent switches, and so has the lock of live files now and then."""
    command = [sys.executable, "-c", SWITCHES_WHILE_FORKING, str(tmp_path / "live")]
    subprocess.run(command, check=True, timeout=HANGS_AFTER_S, env=unwatched())


@pytest.mark.slow
def test_a_child_that_is_on_counts() -> None:
    """Forked while another thread switches: a Profiler that is on is not behind a gate that is closed."""
    node = cp.profile_node(nothing, name="node")
    done = threading.Event()

    def switch() -> None:
        watch_no_lines()
        while not done.is_set():
            cp.set_profiling(True)
            cp.set_profiling(False)

    def child() -> None:
        is_on = cp.profiling_enabled()
        node()
        assert counts(cp.get_profiling_summary()) == ({"node": 1} if is_on else {})

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread = threading.Thread(target=switch)
    thread.start()
    try:
        for _ in range(FORKS):
            fork(child)
    finally:
        done.set()
        thread.join()
        sys.setswitchinterval(interval)
