"""Any number of threads record, reset, switch and read at once (failure scenarios C1 to C13, E14).

Nothing here depends on how long anything takes: threads are made to switch as often as the interpreter can, and every
test ends with sums that must be right however the threads met.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import random
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

import cprofiling as cp
from calls import (
    HAS_NO_GIL,
    NEVER,
    Target,
    beside,
    profiler_on,
    resident_bytes,
    run_python,
    run_threads,
    switching_often,
)
from cprofiling import NodeProfilingStats, _core

pytestmark = [pytest.mark.native, pytest.mark.alone]

CALLS = int(os.environ.get("CPROFILING_STRESS_CALLS", "10000"))  # of each thread in the storm


class PlannedError(Exception):
    """What a node raises on purpose."""


@pytest.fixture(autouse=True)
def switches_often() -> Iterator[None]:
    with switching_often():
        yield


def nothing() -> None:
    """Be a node."""


def finished(stats: NodeProfilingStats) -> int:
    return stats.count + stats.skipped_count + stats.error_count + stats.cancelled_count + stats.dropped_count


def assert_consistent(stats: NodeProfilingStats) -> None:
    """Assert what no mix of two moments could keep."""
    assert min(stats.count, stats.error_count, stats.skipped_count, stats.dropped_count, stats.cancelled_count) >= 0
    if stats.count == 0:
        assert (stats.mean_ms, stats.median_ms, stats.std_ms, stats.min_ms, stats.max_ms) == (0.0,) * 5
        assert (stats.total_ms, stats.last_ms) == (0.0, 0.0)
        return
    slack = 1e-9 * stats.total_ms
    assert stats.count * stats.min_ms - slack <= stats.total_ms <= stats.count * stats.max_ms + slack
    for figure in (stats.mean_ms, stats.median_ms, stats.last_ms, stats.p50_ms, stats.p99_ms, stats.p999_ms):
        assert figure is not None
        assert stats.min_ms * (1 - 1e-12) <= figure <= stats.max_ms * (1 + 1e-12)
    assert 0 <= stats.std_ms <= (stats.max_ms - stats.min_ms) / 2 * (1 + 1e-9) + 1e-12
    assert stats.self_total_ms is None or 0 <= stats.self_total_ms <= stats.total_ms


# --- nothing is lost ---


@pytest.mark.parametrize("n", [0, 1, 1000])
def test_64_threads_on_one_key_lose_nothing_and_skip_exactly_n(n: int) -> None:
    profiler = profiler_on(skip_first_n=n)
    threads, rounds = 64, 100

    @profiler.profile_node(name="node")
    def node(fails: bool) -> None:
        if fails:
            raise PlannedError

    def work() -> None:
        for i in range(rounds):
            with contextlib.suppress(PlannedError):
                node(i % 4 == 0)
            profiler.record("inference", "node", 0.25)

    run_threads(*[work] * threads)
    (stats,) = profiler.get_profiling_summary()
    assert stats.error_count == threads * rounds // 4
    assert stats.count == threads * rounds + threads * rounds * 3 // 4 - n
    assert (stats.skipped_count, stats.cancelled_count, stats.dropped_count) == (n, 0, 0)
    assert_consistent(stats)


def test_threads_with_keys_of_their_own_lose_nothing() -> None:
    profiler = profiler_on()
    threads, keys = 16, 60
    seen: list[int] = []

    def worker(thread: int) -> Target:
        def work() -> None:
            for key in range(keys):
                for _ in range(3):
                    profiler.record(f"stage {thread % 3}", f"node {thread} {key}", 1.0)

        return work

    def read() -> None:
        summary = profiler.get_profiling_summary()
        names = [(stats.stage, stats.node_name) for stats in summary]
        assert len(set(names)) == len(names)
        seen.append(len(names))

    with beside(read):
        run_threads(*map(worker, range(threads)))
    assert seen == sorted(seen)
    summary = profiler.get_profiling_summary()
    assert len(summary) == threads * keys
    assert {stats.count for stats in summary} == {3}


def test_one_site_is_open_in_many_threads_at_once() -> None:
    profiler = profiler_on()
    site = profiler.profile_node("block")
    inside = threading.Barrier(16)
    rounds = 50

    def work() -> None:
        for i in range(rounds):
            with contextlib.suppress(PlannedError), site, site:
                if i % 10 == 0:
                    inside.wait(NEVER)
                if i % 5 == 4:
                    raise PlannedError

    run_threads(*[work] * 16)
    (stats,) = profiler.get_profiling_summary()
    assert stats.error_count == 16 * rounds // 5 * 2
    assert stats.count == 16 * rounds * 2 - stats.error_count
    with pytest.raises(RuntimeError, match="block"):
        site.__exit__(None, None, None)


def test_nesting_belongs_to_the_thread() -> None:
    """A child's time is taken off its own parent, never off one of another thread."""
    profiler = profiler_on()

    @profiler.profile_node(name="child")
    def child() -> None:
        pass

    @profiler.profile_node(name="parent")
    def parent() -> None:
        for _ in range(5):
            child()

    run_threads(*[lambda: [parent() for _ in range(100)]] * 8)
    child_stats, parent_stats = profiler.get_profiling_summary()
    assert (child_stats.count, parent_stats.count) == (4000, 800)
    assert child_stats.self_total_ms == child_stats.total_ms
    assert parent_stats.self_total_ms is not None
    in_children = round(parent_stats.total_ms * 1e6) - round(parent_stats.self_total_ms * 1e6)
    assert in_children == round(child_stats.total_ms * 1e6)


# --- resets and switches while nodes run ---


class Inside:
    """Threads that are all inside a node at the same moment; they leave it at the end of the ``with`` block."""

    def __init__(self, enter: Callable[[Target], object], threads: int = 16) -> None:
        self._arrived, self._leave = threading.Semaphore(0), threading.Event()
        self._threads = [threading.Thread(target=enter, args=(self._wait,), daemon=True) for _ in range(threads)]

    def _wait(self) -> None:
        self._arrived.release()
        assert self._leave.wait(NEVER)

    def __enter__(self) -> Inside:
        for thread in self._threads:
            thread.start()
        for _ in self._threads:
            assert self._arrived.acquire(timeout=NEVER)
        return self

    def __exit__(self, *exception: object) -> None:
        self._leave.set()
        for thread in self._threads:
            thread.join(NEVER)
        assert not any(thread.is_alive() for thread in self._threads), "a thread hangs"


@pytest.fixture(params=["function", "block", "generator"])
def enter(request: pytest.FixtureRequest) -> Callable[[cp.Profiler], Callable[[Target], object]]:
    """Makes, of a Profiler, a node named "node" that calls its argument."""

    def function(profiler: cp.Profiler) -> Callable[[Target], object]:
        wrapped: Callable[[Target], object] = profiler.profile_node(name="node")(lambda target: target())
        return wrapped

    def block(profiler: cp.Profiler) -> Callable[[Target], object]:
        site = profiler.profile_node("node")

        def call(target: Target) -> None:
            with site:
                target()

        return call

    def generator(profiler: cp.Profiler) -> Callable[[Target], object]:
        @profiler.profile_node(name="node")
        def call(target: Target) -> Iterator[object]:
            yield target()

        return lambda target: list(call(target))

    makers = {"function": function, "block": block, "generator": generator}
    return makers[request.param]


Enter = Callable[[cp.Profiler], Callable[[Target], object]]


def test_a_call_in_flight_over_a_reset_is_dropped_and_counted(enter: Enter) -> None:
    profiler = profiler_on()
    node = enter(profiler)
    node(int)
    with Inside(node):
        profiler.reset_profiling()
        assert profiler.get_profiling_summary() == []
    (stats,) = profiler.get_profiling_summary()
    assert (stats.count, stats.dropped_count, finished(stats)) == (0, 16, 16)
    node(int)
    (stats,) = profiler.get_profiling_summary()
    assert (stats.count, stats.dropped_count) == (1, 16)


def test_a_call_in_flight_over_a_switch_is_wholly_counted_or_wholly_not(enter: Enter) -> None:
    profiler = profiler_on()
    node = enter(profiler)
    with Inside(node):
        profiler.set_profiling(False)
    (stats,) = profiler.get_profiling_summary()
    assert (stats.count, finished(stats)) == (16, 16)
    with Inside(node):
        profiler.set_profiling(True)
    assert profiler.get_profiling_summary() == [stats]
    with Inside(node):
        profiler.set_profiling(False)
        profiler.set_profiling(True)
    (stats,) = profiler.get_profiling_summary()
    assert (stats.count, finished(stats)) == (32, 32)


@pytest.mark.filterwarnings("ignore:skip_first_n changes")
def test_another_skip_first_n_discards_what_is_in_flight(enter: Enter) -> None:
    profiler = profiler_on(skip_first_n=2)
    node = enter(profiler)
    with Inside(node):
        profiler.set_profiling(False, skip_first_n=5)
    (stats,) = profiler.get_profiling_summary()
    assert (stats.count, stats.skipped_count) == (14, 2)
    with Inside(node):
        profiler.set_profiling(True, skip_first_n=2)
    assert profiler.get_profiling_summary() == [stats]
    with Inside(node):
        profiler.set_profiling(True, skip_first_n=5)
    (stats,) = profiler.get_profiling_summary()
    assert (stats.count, stats.skipped_count, stats.dropped_count) == (0, 0, 16)


def test_calls_that_begin_under_different_generations_are_told_apart(enter: Enter) -> None:
    profiler = profiler_on()
    node = enter(profiler)
    with Inside(node, 8):
        profiler.reset_profiling()
        with Inside(node, 4):
            pass
        (stats,) = profiler.get_profiling_summary()
        assert (stats.count, stats.dropped_count) == (4, 0)
    (stats,) = profiler.get_profiling_summary()
    assert (stats.count, stats.dropped_count) == (4, 8)


# --- the storm: calls while others reset, switch and read ---


@dataclass
class Changes:
    """What the resetting and the switching thread have done. A change happens between its two counts."""

    profiler: cp.Profiler
    skip_first_n: int = 3
    resets_begun: int = 0
    resets_over: int = 0
    switches_begun: int = 0
    switches_over: int = 0

    def reset(self) -> None:
        self.resets_begun += 1
        self.profiler.reset_profiling()
        self.resets_over += 1

    def switch(self) -> None:
        self.switches_begun += 1
        self.profiler.set_profiling(self.switches_begun % 2 == 0, skip_first_n=self.skip_first_n)
        self.switches_over += 1


class Call(NamedTuple):
    """A finished call: the least and the most changes that can have been made when it started, and when it ended."""

    outcome: str
    least_switches: int
    most_switches: int
    least_resets: int
    most_resets: int
    least_resets_at_end: int
    most_resets_at_end: int


class Started(NamedTuple):
    """What was seen inside a call: at its start, and just before its end."""

    switches_begun: int
    resets_begun: int
    resets_over_at_end: int


@dataclass
class Bounds:
    """How many calls of each outcome the statistics since the last reset must, and may, hold."""

    least: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)

    def add(self, call: Call, resets: int) -> None:
        switch_is_known = call.least_switches == call.most_switches
        if (switch_is_known and call.least_switches % 2 == 1) or call.most_resets_at_end < resets:
            return
        is_certain = switch_is_known and call.least_resets_at_end == resets
        outcomes = set()
        if call.most_resets == resets:
            outcomes.add(call.outcome)
        if call.least_resets < resets:
            outcomes.add("dropped")
        self._count("finished", is_certain)
        for outcome in outcomes:
            self._count(outcome, is_certain and len(outcomes) == 1)

    def _count(self, outcome: str, is_certain: bool) -> None:
        self.most[outcome] += 1
        self.least[outcome] += is_certain

    def check(self, outcome: str, figure: int) -> None:
        assert self.least[outcome] <= figure <= self.most[outcome], (outcome, self.least, figure, self.most)


class Storm:
    """Nodes that notice what the changing threads do around them."""

    def __init__(self) -> None:
        self.profiler = profiler_on(skip_first_n=3)
        self.changes = Changes(self.profiler)
        self.node = self.profiler.profile_node(name="node")(self.body)
        self.site = self.profiler.profile_node("block")
        self.calls: dict[str, list[Call]] = {"node": [], "block": [], "record": []}

    def body(self, fails: bool, lingers: bool) -> Started:
        switches, resets = self.changes.switches_begun, self.changes.resets_begun
        for _ in range(100 if lingers else 0):  # until a reset comes, but not for ever
            if self.changes.resets_over > resets:
                break
            time.sleep(1e-5)
        started = Started(switches, resets, self.changes.resets_over)
        if fails:
            raise PlannedError(started)
        return started

    def in_block(self, fails: bool, lingers: bool) -> Started:
        with self.site:
            return self.body(fails, lingers)

    def call(self, key: str, run: Callable[[bool, bool], Started], rng: random.Random) -> None:
        fails, lingers = rng.random() < 0.1, rng.random() < 0.002
        switches_over, resets_over = self.changes.switches_over, self.changes.resets_over
        try:
            started = run(fails, lingers)
        except PlannedError as error:
            started = error.args[0]
        self.calls[key].append(
            Call(
                "error" if fails else "counted",
                switches_over,
                started.switches_begun,
                resets_over,
                started.resets_begun,
                started.resets_over_at_end,
                self.changes.resets_begun,
            )
        )

    def record(self) -> None:
        switches, resets = self.changes.switches_over, self.changes.resets_over
        self.profiler.record("inference", "record", 1.0)
        most_resets = self.changes.resets_begun
        self.calls["record"].append(
            Call("counted", switches, self.changes.switches_begun, resets, most_resets, resets, most_resets)
        )

    def work(self, rounds: int) -> None:
        rng = random.Random(threading.get_ident())
        for i in range(rounds):
            if i % 8 == 7:
                self.record()
            elif i % 4 == 3:
                self.call("block", self.in_block, rng)
            else:
                self.call("node", self.node, rng)

    def read(self) -> None:
        for stats in self.profiler.get_profiling_summary():
            assert_consistent(stats)
            assert stats.skipped_count <= 3
            assert stats.count == 0 or stats.skipped_count == 3
        time.sleep(1e-4)

    def check(self) -> None:
        by_name = {stats.node_name: stats for stats in self.profiler.get_profiling_summary()}
        for key, calls in self.calls.items():
            bounds = Bounds()
            for call in calls:
                bounds.add(call, self.changes.resets_begun)
            stats = by_name[key]
            bounds.check("finished", finished(stats))
            bounds.check("counted", stats.count + stats.skipped_count)
            bounds.check("error", stats.error_count)
            bounds.check("dropped", stats.dropped_count)
            assert stats.skipped_count == 3
            assert_consistent(stats)


@pytest.mark.slow
def test_nothing_is_lost_or_counted_twice_in_a_storm_of_resets_switches_and_reads() -> None:
    storm, threads, quiet = Storm(), 16, 50

    def change_until_late() -> None:
        if sum(map(len, storm.calls.values())) < 0.6 * threads * CALLS:
            storm.changes.reset()
        time.sleep(1e-3)

    def switch() -> None:
        storm.changes.switch()
        time.sleep(1e-3)

    with beside(change_until_late, switch, storm.read):
        run_threads(*[lambda: storm.work(CALLS)] * threads)
    if storm.changes.switches_over % 2 == 1:
        storm.changes.switch()
    run_threads(*[lambda: storm.work(quiet)] * threads)
    assert storm.changes.resets_over > 0
    assert sum(map(len, storm.calls.values())) == threads * (CALLS + quiet)
    storm.check()
    assert storm.profiler.get_profiling_summary().internal_errors == 0


def test_a_summary_mixes_no_generations() -> None:
    """One thread records `first` before `second`, always; keys are copied in the order that they have."""
    profiler = profiler_on()
    profiler.record("train", "first", 1.0)
    profiler.record("train", "second", 1.0)

    def write() -> None:
        for _ in range(20_000):
            profiler.record("train", "first", 1.0)
            profiler.record("train", "second", 1.0)

    def read() -> None:
        counts = {stats.node_name: stats.count for stats in profiler.get_profiling_summary()}
        assert counts.get("first", 0) - counts.get("second", 0) <= 1, counts

    def reset() -> None:
        profiler.reset_profiling()
        time.sleep(1e-4)

    with beside(read, reset):
        run_threads(write)


# --- short-lived threads, foreign threads, executors ---


@pytest.mark.unsanitized
@pytest.mark.slow
def test_short_lived_threads_leave_their_figures_and_nothing_else() -> None:
    profiler = profiler_on()

    @profiler.profile_node(name="inner")
    def inner() -> None:
        pass

    @profiler.profile_node(name="outer")
    def outer() -> None:
        inner()

    def bare() -> None:
        pass

    def spawn(target: Callable[[], None], count: int) -> tuple[int, int]:
        for _ in range(count // 8):
            threads = [threading.Thread(target=target) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        gc.collect()
        return sys.getallocatedblocks(), resident_bytes()

    def growth(target: Callable[[], None]) -> tuple[int, int]:
        before = spawn(target, 1000)
        after = spawn(target, 4000)
        return after[0] - before[0], after[1] - before[1]

    blocks_of_bare, _ = growth(bare)  # a tool that watches this process may keep something for each thread
    blocks, size = growth(outer)
    inner_stats, outer_stats = profiler.get_profiling_summary()
    assert (inner_stats.count, outer_stats.count) == (5000, 5000)
    assert blocks - blocks_of_bare < 2000  # less than half a block for each thread
    assert size < 4000 * 1024


def gives_way(operate: Callable[[], object]) -> bool:
    """Whether another thread comes to run while this one is in an operation, although nothing asks this one to."""
    ran: list[bool] = []
    gate = threading.Lock()
    gate.acquire()
    waiting = threading.Thread(target=lambda: ran.append(gate.acquire()))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # before the thread exists, which thus asks for nothing on its way to the gate
    try:
        waiting.start()
        gate.release()
        operate()
        return bool(ran)
    finally:
        sys.setswitchinterval(interval)
        waiting.join()


@pytest.mark.parametrize("operation", ["rows", "snapshot"])
def test_other_threads_run_while_many_keys_are_read(operation: str) -> None:
    profiler = profiler_on()
    for i in range(20_000):
        profiler.record("train", f"node {i}", 1.0)
    stored = profiler.snapshot()  # also measures the cost of a call, once
    operations: dict[str, Callable[[], object]] = {
        "rows": lambda: profiler._rows(None),
        "snapshot": lambda: _core.take_snapshot(cp.Snapshot, profiler, 1, ()),
    }
    assert len(stored.stats()) == 20_000
    assert HAS_NO_GIL or not gives_way(lambda: sum(range(100_000)))
    deadline = time.monotonic() + NEVER  # a busy machine may have no processor for the other thread
    while not gives_way(operations[operation]):
        assert time.monotonic() < deadline


@pytest.mark.parametrize("calls_of_a_thread", [1, 3])
def test_threads_that_python_did_not_make_are_counted(calls_of_a_thread: int) -> None:
    profiler = profiler_on()

    @profiler.profile_node(name="inner")
    def inner() -> None:
        pass

    @profiler.profile_node(name="outer")
    def outer() -> None:
        with profiler.profile_node("block"):
            inner()

    routine = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)

    @routine  # type: ignore[untyped-decorator]
    def main(argument: object) -> None:
        outer()

    # Each call of `main` gets a thread state of its own: several on one system thread, one after the other.
    @routine  # type: ignore[untyped-decorator]
    def several(argument: object) -> None:
        for _ in range(calls_of_a_thread):
            main(None)

    libc = ctypes.CDLL(None)
    rounds, threads = 20, 8
    for _ in range(rounds):
        identities = [ctypes.c_ulong() for _ in range(threads)]
        for identity in identities:
            assert libc.pthread_create(ctypes.byref(identity), None, several, None) == 0
        for identity in identities:
            assert libc.pthread_join(identity, None) == 0
    n = rounds * threads * calls_of_a_thread
    summary = profiler.get_profiling_summary()
    assert {stats.node_name: stats.count for stats in summary} == {"inner": n, "block": n, "outer": n}
    assert summary.internal_errors == 0


@pytest.mark.parametrize("cancels", [False, True])
def test_executors_and_their_shutdown_amid_nodes(cancels: bool) -> None:
    profiler = profiler_on()

    @profiler.profile_node(name="node")
    def node(i: int) -> int:
        if i % 100 == 99:
            raise PlannedError
        return i

    with ThreadPoolExecutor(16) as executor:
        futures: list[Future[int]] = [executor.submit(node, i) for i in range(10_000)]
        if cancels:
            executor.shutdown(wait=True, cancel_futures=True)
    ran = [future for future in futures if not future.cancelled()]
    failed = [future for future in ran if isinstance(future.exception(), PlannedError)]
    assert cancels or (len(ran), len(failed)) == (10_000, 100)
    (stats,) = profiler.get_profiling_summary()
    assert (stats.count, stats.error_count) == (len(ran) - len(failed), len(failed))
    assert finished(stats) == len(ran)


def test_stages_and_bound_profilers_of_many_threads_do_not_mix() -> None:
    profilers = {f"stage {i}": profiler_on() for i in range(6)}
    node = cp.profile_node(nothing, name="node")

    def worker(name: str) -> Target:
        def work() -> None:
            for _ in range(300):
                with cp.stage(name), profilers[name]:
                    node()

        return work

    run_threads(*map(worker, [*profilers, *profilers]))
    for name, profiler in profilers.items():
        assert {stats.stage: stats.count for stats in profiler.get_profiling_summary()} == {name: 600}


class Pipeline(cp.PipelineProfiling):
    @cp.profile_node(name="node")
    def node(self) -> None:
        pass

    def forward(self) -> None:
        self.node()


def test_a_pipeline_gets_one_profiler_however_many_threads_ask_first() -> None:
    for _ in range(50):
        pipeline = Pipeline()
        profilers: list[cp.Profiler] = []

        def ask(pipeline: Pipeline = pipeline, profilers: list[cp.Profiler] = profilers) -> None:
            pipeline.set_profiling(True)
            profilers.append(pipeline.profiler)
            pipeline.forward()

        run_threads(*[ask] * 8)
        assert {id(profiler) for profiler in profilers} == {id(pipeline.profiler)}
        (stats,) = pipeline.get_profiling_summary()
        assert stats.count == 8


def test_a_name_is_asked_once_per_instance_by_any_number_of_threads() -> None:
    profiler = profiler_on()
    asked: Counter[int] = Counter()

    class Filter:
        def __init__(self, number: int) -> None:
            self.number = number

        def name(self) -> str:
            asked[self.number] += 1
            return f"filter {self.number}"

        @profiler.profile_node(name=name)
        def apply(self) -> None:
            pass

    filters = [Filter(i) for i in range(20)]
    for each in filters:
        each.apply()
    run_threads(*[lambda: [each.apply() for each in filters]] * 16)
    assert set(asked.values()) == {1}
    assert {stats.node_name: stats.count for stats in profiler.get_profiling_summary()} == {
        f"filter {i}": 17 for i in range(20)
    }


def test_wrappers_are_made_and_dropped_while_others_call() -> None:
    profiler = profiler_on()

    def work() -> None:
        for i in range(200):
            node = profiler.profile_node(name=f"node {i % 10}")(nothing)
            node()
            del node

    with beside(lambda: profiler.set_profiling(True), profiler.get_profiling_summary):
        run_threads(*[work] * 8)
    assert {stats.count for stats in profiler.get_profiling_summary()} == {8 * 20}


# --- exit ---

DAEMONS = """
    import sys, threading, time
    import cprofiling as cp

    sys.setswitchinterval(1e-5)
    cp.set_profiling(True)
    inside = threading.Semaphore(0)

    @cp.profile_node
    def quick():
        pass

    @cp.profile_node(name=lambda _: str(sum(range(50_000))))  # of one thread at a time: others wait for it
    def waited_for(unnamed):
        pass

    class Unnamed:
        __slots__ = ()  # takes no weak reference: its name is asked for at each call

    @cp.profile_node
    def node():
        inside.release()
        with cp.profile_node("block"), cp.stage("train"):
            while True:
                if mode == "sleeping":
                    time.sleep(1000)
                elif mode == "calling":
                    quick()
                elif mode == "waiting":
                    waited_for(Unnamed())
                elif mode == "reading":
                    cp.get_profiling_summary()
                else:
                    cp.reset_profiling()
                    cp.set_profiling(True)

    for _ in range(20):
        threading.Thread(target=node, daemon=True).start()
    for _ in range(20):
        inside.acquire()
    sys.stdout.write("done")
    sys.exit(3)
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sleeping", "calling", "waiting", "reading", "switching"])
def test_daemon_threads_inside_nodes_do_not_disturb_the_exit(mode: str) -> None:
    for _ in range(3):
        done = run_python(f"mode = {mode!r}\n" + textwrap.dedent(DAEMONS), "-X", "faulthandler")
        assert (done.returncode, done.stdout, done.stderr) == (3, "done", "")


THREAD_AT_EXIT = """
    import threading, _thread
    import cprofiling as cp

    cp.set_profiling(True)
    node = cp.profile_node(lambda: None, name="node")
    entered = threading.Event()

    def late():
        node()
        entered.set()
        threading.main_thread().join()
        for _ in range(1000):
            node()
        with cp.profile_node("block"):
            node()
        assert [stats.count for stats in cp.get_profiling_summary()] == [1002, 1]
        print("late thread done")

    threading.Thread(target=late).start()
    entered.wait()
"""


def test_a_thread_that_outlives_the_main_thread_goes_on_being_counted() -> None:
    done = run_python(textwrap.dedent(THREAD_AT_EXIT), "-X", "faulthandler")
    assert (done.returncode, done.stdout, done.stderr) == (0, "late thread done\n", "")
