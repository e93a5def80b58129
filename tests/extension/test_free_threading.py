"""Threads that run at the same time, where CPython has no GIL: nothing is lost, nothing crashes (G2).

With a GIL the same must hold, and is shown too. Sums must be right however the threads met; a test is named after what
many threads use in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import gc
import io
import os
import queue
import random
import subprocess
import sys
import sysconfig
import threading
import types
from array import array
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

import cprofiling as cp
from calls import IS_EMULATED, beside, check_script, profiler_on, run_threads, switching_often
from cprofiling import _core
from cprofiling.devices import events, wait
from cprofiling.nodes import probe_callbacks
from cprofiling.nodes import profiler as control
from fakes.fake_torch import forget_devices, torch_loader

pytestmark = [pytest.mark.native, pytest.mark.alone]

T = TypeVar("T")
THREADS = 16
CALLS = 1_000 if IS_EMULATED else 100_000  # of each thread, where a call is all that it does
SOME = CALLS // 50  # where it does more


@pytest.fixture(autouse=True)
def switches_often() -> Iterator[None]:
    with switching_often():
        yield


def finished(profiler: cp.Profiler) -> int:
    """The calls that the statistics know."""
    return sum(
        stats.count + stats.skipped_count + stats.error_count + stats.cancelled_count + stats.dropped_count
        for stats in profiler.get_profiling_summary()
    )


class Unnamed:
    """Takes no weak reference: a node asks for its name at each call."""

    __slots__ = ()


@contextlib.contextmanager
def in_a_crowd() -> Iterator[None]:
    """Have what one thread at a time uses in use for most of the time: others meet where they have to wait for it."""
    node = profiler_on().profile_node(name=lambda _: str(sum(range(50_000))))(id)
    with beside(lambda: node(Unnamed())):
        yield


def in_step(items: list[T], together: threading.Barrier) -> Iterator[T]:
    """Give the items to each of some threads, which stay within ten of each other."""
    for number, item in enumerate(items):
        if number % 10 == 0:
            together.wait()
        yield item


def in_all(body: Callable[[], object], threads: int = THREADS) -> None:
    run_threads(*[body] * threads)


@pytest.mark.skipif(sysconfig.get_config_var("Py_GIL_DISABLED") != 1, reason="free threading came with Python 3.13t")
def test_the_extension_brings_no_gil_back() -> None:
    command = "import sys; before = sys._is_gil_enabled(); import cprofiling; print(before, sys._is_gil_enabled())"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"}
    run = subprocess.run([sys.executable, "-c", command], env=environment, capture_output=True, text=True, check=True)
    assert (run.stdout, run.stderr) == ("False False\n", "")


def test_one_node() -> None:
    profiler = profiler_on(skip_first_n=7)
    node = profiler.profile_node("node")(abs)

    def call() -> None:
        for number in range(CALLS):
            node(number)

    in_all(call)
    [stats] = profiler.get_profiling_summary()
    assert (stats.count, stats.skipped_count) == (CALLS * THREADS - 7, 7)


def test_many_nodes_of_the_default_profiler() -> None:
    cp.set_profiling(True, reset=True)
    nodes = [cp.profile_node(f"node {number}")(abs) for number in range(100)]

    def call() -> None:
        for number in range(CALLS):
            nodes[number % 100](number)

    in_all(call)
    assert finished(cp.default_profiler) == CALLS * THREADS
    assert len(cp.get_profiling_summary()) == 100


def test_nodes_inside_nodes_that_raise() -> None:
    profiler = profiler_on()

    @profiler.profile_node("inner")
    def inner(number: int) -> None:
        if number % 3 == 0:
            raise LookupError

    @profiler.profile_node("outer")
    def outer(number: int) -> None:
        inner(number)

    def call() -> None:
        for number in range(SOME):
            with contextlib.suppress(LookupError):
                outer(number)

    in_all(call)
    errors = {stats.node_name: stats.error_count for stats in profiler.get_profiling_summary()}
    assert errors == dict.fromkeys(("inner", "outer"), len(range(0, SOME, 3)) * THREADS)
    assert finished(profiler) == 2 * SOME * THREADS


def test_while_others_switch_reset_and_read() -> None:
    profiler = profiler_on()
    nodes = [profiler.profile_node(f"node {number}")(abs) for number in range(5)]

    def call() -> None:
        for number in range(SOME):
            nodes[number % 5](number)

    def disturb() -> None:
        profiler.set_profiling(True, skip_first_n=random.randrange(3), reset=True)
        assert finished(profiler) >= 0
        profiler.reset_profiling()
        profiler.set_profiling(False)

    with beside(disturb, disturb):
        in_all(call)
    profiler.set_profiling(True, reset=True)
    in_all(call)
    assert finished(profiler) == SOME * THREADS


def test_a_key_that_many_profilers_and_stages_take_turns_at() -> None:
    """A node remembers a few places only: whoever reads them must not take half of one for half of another."""
    node = cp.profile_node("node")(abs)
    profilers = [profiler_on() for _ in range(4)]

    def call() -> None:
        for number in range(SOME):
            with profilers[number % 4], cp.stage(f"stage {number % 3}"):
                node(number)

    in_all(call)
    assert [finished(profiler) for profiler in profilers] == [len(range(0, SOME, 4)) * THREADS] * 4


def test_pipelines_come_and_go() -> None:
    class Pipeline(cp.PipelineProfiling):
        def __init__(self, name: str) -> None:
            self.name = name

        @cp.profile_node(name=lambda self: self.name)
        def step(self) -> None:
            """Be a node of its name."""

        def forward(self) -> None:
            self.step()

    kept = [Pipeline(f"pipeline {number}") for number in range(8)]
    for pipeline in kept:
        pipeline.set_profiling(True)

    def call() -> None:
        for number in range(SOME):
            kept[number % 8].forward()
            if number % 20 == 0:
                passing = Pipeline("passing")
                passing.set_profiling(True)
                passing.forward()
                assert finished(passing.profiler) == 1

    in_all(call)
    assert [finished(pipeline.profiler) for pipeline in kept] == [len(range(n, SOME, 8)) * THREADS for n in range(8)]


def test_the_collector_stays_off() -> None:
    """As long as the program says so, whatever is in force in contexts meanwhile."""

    def enter() -> None:
        with cp.stage("stage"):
            pass

    gc.collect()
    try:
        with beside(enter, enter):
            for _ in range(5 * CALLS):
                gc.enable()
                gc.disable()
                assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_instances_come_and_go() -> None:
    """A node remembers the name of each as long as it lives."""

    class Item:
        pass

    profiler = profiler_on()
    node = profiler.profile_node(name=lambda item: type(item).__name__)(id)

    def call() -> None:
        items = [Item() for _ in range(10)]
        for _ in range(10 * SOME):
            items[random.randrange(10)] = Item()
            for item in items[:3]:
                node(item)

    in_all(call, 8)
    assert finished(profiler) == 3 * 10 * SOME * 8


def test_nodes_that_go_beside_their_instances() -> None:
    class Item:
        pass

    profiler = profiler_on()
    passed: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def call() -> None:
        for _ in range(SOME):
            node = profiler.profile_node(name=lambda _: "item")(id)
            items = [Item() for _ in range(10)]
            for item in items:
                node(item)
            passed.put(items)
            del item, items, node

    def drop() -> None:
        for _ in range(SOME):
            passed.get().clear()

    run_threads(*[call, drop] * 2)
    assert finished(profiler) == 10 * 2 * SOME


def test_the_cost_of_a_call_that_many_ask_for() -> None:
    """It is that of the Profiler that was last asked for, and measured anew for another."""
    profilers = [profiler_on(), profiler_on(counters=("cpu_time",)), profiler_on(by_shape=True)]

    def ask() -> None:
        for number in range(SOME // 20):
            assert (profilers[number % 3].get_profiling_summary().cost_ns or 0.0) > 0.0

    in_all(ask, 4)


def test_one_label() -> None:
    label = cp.record("label")

    def enter() -> None:
        for _ in range(SOME):
            with label, label:
                pass

    in_all(enter)
    with cp.profile() as recording:
        in_all(enter)
    assert len(recording.events()) == 2 * SOME * THREADS
    with pytest.raises(RuntimeError):
        label.__exit__(None, None, None)


def test_one_block() -> None:
    profiler = profiler_on()
    block = profiler.profile_node("block")

    def call() -> None:
        for _ in range(SOME):
            with block, block:
                pass

    def switch() -> None:
        profiler.set_profiling(False)
        profiler.set_profiling(True)

    in_all(call)
    assert finished(profiler) == 2 * SOME * THREADS
    with beside(switch):
        in_all(call)
    with pytest.raises(RuntimeError):
        block.__exit__(None, None, None)


@pytest.mark.parametrize("asked", [{}, {"counters": ("cpu_time",), "by_shape": True}], ids=["times", "counters"])
def test_blocks_that_other_threads_leave(asked: dict[str, Any]) -> None:
    profiler = profiler_on(**asked)
    blocks = [profiler.profile_node(f"block {number}") for number in range(3)]
    inside = profiler.profile_node("inside")(abs)
    entered: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def enter() -> None:
        for number in range(SOME):
            block = blocks[number % 3]
            block.__enter__()
            entered.put(block)
            inside(number)

    def leave() -> None:
        for _ in range(SOME):
            entered.get().__exit__(None, None, None)

    with in_a_crowd():
        run_threads(*[enter, leave] * 4)
    assert finished(profiler) == 2 * SOME * 4


def test_blocks_that_their_own_and_other_threads_leave() -> None:
    """Who leaves one that another thread has entered must not be met there by that, which leaves it, too."""
    profiler = profiler_on()
    block = profiler.profile_node("block")
    entered: queue.SimpleQueue[None] = queue.SimpleQueue()
    times = 4 * SOME

    def enter_in_a_frame_of_its_own() -> None:
        block.__enter__()

    def enter() -> None:
        for _ in range(times):
            enter_in_a_frame_of_its_own()
            with block:
                entered.put(None)

    def leave() -> None:
        for _ in range(times):
            entered.get()
            block.__exit__(None, None, None)

    with in_a_crowd():
        run_threads(*[enter, leave] * 3)
    assert finished(profiler) == 2 * times * 3
    with pytest.raises(RuntimeError):
        block.__exit__(None, None, None)


def test_arguments_that_others_change() -> None:
    profiler = profiler_on(by_shape=True)
    node = profiler.profile_node("node")(id)
    items: list[object] = []
    values: dict[object, object] = {}

    class Tensor:
        dtype = "float32"

        def __init__(self) -> None:
            self.shape = [0]

    tensor = Tensor()

    def call() -> None:
        for _ in range(SOME):
            node(items)
            node(values)
            node(tensor)

    def change() -> None:
        items[:] = [object() for _ in range(random.randrange(20))]
        values.update({object(): object() for _ in range(random.randrange(20))})
        tensor.shape[:] = [random.randrange(10**9) for _ in range(random.randrange(9))]
        if len(values) > 100:
            values.clear()

    with beside(change):
        in_all(call, 4)
    assert finished(profiler) == 3 * SOME * 4


def test_a_generator_that_threads_take_turns_at() -> None:
    """Python's own raises ValueError in all but one of them."""
    profiler = profiler_on()

    @profiler.profile_node("generator")
    def count() -> Iterator[int]:
        yield from range(100)

    generators = [count() for _ in range(SOME // 50)]
    seen: list[int] = []

    def consume() -> None:
        for generator in generators:
            while True:
                try:
                    seen.append(next(generator))
                except ValueError as error:
                    assert str(error) == "generator already executing"  # noqa: PT017 it is raised now and then
                except StopIteration:
                    break

    in_all(consume, 8)
    assert len(seen) == 100 * len(generators)
    assert finished(profiler) == len(generators)


@pytest.mark.parametrize("way", ["send", "throw", "close"])
@pytest.mark.parametrize("kind", ["generator", "coroutine"])
def test_what_runs_in_another_thread_is_not_resumed(kind: str, way: str) -> None:
    profiler = profiler_on()
    runs, ends = threading.Event(), threading.Event()

    @profiler.profile_node
    def generator() -> Iterator[None]:
        runs.set()
        ends.wait(60)
        yield

    @profiler.profile_node
    async def coroutine() -> None:
        runs.set()
        ends.wait(60)

    call: Any = generator() if kind == "generator" else coroutine()
    arguments = {"send": (None,), "throw": (LookupError(),), "close": ()}[way]

    def resume() -> None:
        with contextlib.suppress(StopIteration):
            call.send(None)

    def disturb() -> None:
        runs.wait(60)
        try:
            with pytest.raises(ValueError, match=f"^{kind} already executing$"):
                getattr(call, way)(*arguments)
        finally:
            ends.set()

    run_threads(resume, disturb)
    call.close()
    assert finished(profiler) == 1


@pytest.mark.filterwarnings("ignore:coroutine method 'asend':RuntimeWarning")  # of steps that are refused
def test_an_asynchronous_generator_that_threads_take_turns_at() -> None:
    """One step at a time is under way: whoever comes meanwhile is refused, as by Python's own."""
    profiler = profiler_on()

    @profiler.profile_node("generator")
    async def count() -> AsyncIterator[int]:
        for number in range(100):
            yield number

    generators: list[Any] = [count() for _ in range(SOME // 4)]
    seen: list[int] = []

    def consume() -> None:
        for generator in generators:
            while True:
                try:
                    generator.__anext__().send(None)
                except StopIteration as end:
                    seen.append(end.value)
                except RuntimeError as error:
                    assert "already running" in str(error)  # noqa: PT017 it is raised now and then
                except StopAsyncIteration:
                    break

    in_all(consume, 8)
    assert len(seen) == 100 * len(generators)
    assert finished(profiler) == len(generators)


def test_event_loops_in_threads() -> None:
    profiler = profiler_on()

    @profiler.profile_node("generator")
    async def generate() -> AsyncIterator[int]:
        for number in range(3):
            await asyncio.sleep(0)
            yield number

    @profiler.profile_node("task")
    async def work() -> None:
        with profiler.profile_node("block"), cp.stage("stage"):
            assert [number async for number in generate()] == [0, 1, 2]

    async def main() -> None:
        for _ in range(5):
            await asyncio.gather(*[work() for _ in range(SOME // 100)])

    in_all(lambda: asyncio.run(main()), 8)
    assert finished(profiler) == 3 * 5 * (SOME // 100) * 8


def test_default_stages() -> None:
    profiler = profiler_on()
    node = profiler.profile_node("node")(abs)

    def call() -> None:
        for number in range(SOME):
            with cp.stage(f"stage {number % 70}", default=True):
                node(number)

    in_all(call)
    node(1)
    assert finished(profiler) == SOME * THREADS + 1
    assert profiler.get_profiling_summary("inference")[0].count >= 1


def test_instances_that_are_instrumented_and_no_more() -> None:
    class Target:
        def forward(self) -> int:
            return 1

    profiler = profiler_on()
    target = Target()

    def instrument() -> None:
        mine = Target()
        for _ in range(SOME // 20):
            handle = profiler.instrument(mine, "forward", name="mine")
            assert mine.forward() == target.forward() == 1
            handle.remove()

    in_all(instrument, 8)
    assert finished(profiler) == SOME // 20 * 8


def test_recordings_begin_and_end() -> None:
    profiler = profiler_on()
    node = profiler.profile_node("node")(abs)

    def call() -> None:
        for number in range(SOME):
            node(number)
            with cp.record(f"label {number % 100}"):
                node(number)

    def record() -> None:
        with cp.profile() as recording:
            run_threads(lambda: node(1))
        assert any(event.name == "node" for event in recording.events())

    with beside(record):
        in_all(call, 8)
    assert profiler.get_profiling_summary().internal_errors == 0


def test_the_collector_beside_calls() -> None:
    profiler = profiler_on()

    def call() -> None:
        for _ in range(SOME // 20):
            node: Any = profiler.profile_node("node")(lambda: None)
            node.itself = node
            node()

    with beside(gc.collect):
        in_all(call, 4)
    assert finished(profiler) == SOME // 20 * 4


# What a recording is asked, and told, as long as rows may be added to it and later.
PARTS: dict[str, Callable[[_core.Recording], object]] = {
    "length": len,
    "column": lambda recording: recording.column("start_ns"),
    "strings": lambda recording: recording.strings,
    "tracks": lambda recording: recording.tracks,
    "flows": lambda recording: recording.flows,
    "facts": lambda recording: recording.facts,
    "dropped": lambda recording: recording.dropped,
    "args": lambda recording: recording.args(0),
    "write_chrome": lambda recording: recording.write_chrome(len),
    "_write_events": lambda recording: recording._write_events(len, 0, True),
    "_chrome_base": lambda recording: recording._chrome_base,
    "_arrow_stream": lambda recording: recording._arrow_stream(),
    "_own_times": lambda recording: recording._own_times(array("i", [-1])),
    "_parents": lambda recording: recording._parents(b"1"),
    "_add": lambda recording: recording._add("row", 3, 0, 1, 1, 1),
    "_set_fact": lambda recording: recording._set_fact("fact", "1"),
    "_name_process": lambda recording: recording._name_process(1, "process", None, None),
    "_name_thread": lambda recording: recording._name_thread(1, 1, "thread", None),
    "_renumber": lambda recording: recording._renumber([1]),
    "_load": lambda recording: recording._load(io.BytesIO(b"[]").read, 0),
    "cupti_add_trace": lambda recording: _core.cupti_add_trace(recording),
    "_finish": lambda recording: recording._finish(),
}


@pytest.mark.parametrize("part", PARTS)
def test_a_recording_that_is_being_made(part: str) -> None:
    recordings = [_core.Recording.empty() for _ in range(SOME // 2)]
    together = threading.Barrier(2)

    def fill() -> None:
        for recording in in_step(recordings, together):
            with contextlib.suppress(RuntimeError):  # it is finished, or in use
                recording._add("row", 3, 0, 1, 1, 1)
                recording._set_fact("last", "1")
                recording._finish()

    def use() -> None:
        for recording in in_step(recordings, together):
            for _ in range(3):
                with contextlib.suppress(RuntimeError, IndexError, ValueError):  # of no or another number of rows
                    PARTS[part](recording)

    run_threads(fill, use)
    for recording in recordings:
        recording._finish()
        assert len(recording) <= 4
        assert len(recording.tracks) <= 1


def test_recorders_that_are_told_to_end_pause_and_go_on() -> None:
    profiler = profiler_on()
    node = profiler.profile_node("node")(abs)
    for _ in range(20):
        recorder = _core.Recorder(1000, False, None, False, None, True)

        def use(recorder: _core.Recorder = recorder) -> None:
            for _ in range(20):
                recorder.pause()
                recorder.resume()
                recorder.step("step")
                assert (recorder.since_epoch_ns or 1) > 0
                node(1)

        def end(recorder: _core.Recorder = recorder) -> None:
            node(1)
            with contextlib.suppress(RuntimeError):  # another thread has ended it
                assert len(recorder.finish(_core.Recording)) >= 0

        run_threads(use, use, end, end)
        assert recorder.since_epoch_ns is None
    assert profiler.get_profiling_summary().internal_errors == 0


@pytest.mark.parametrize("recorded", [False, True], ids=["plain", "recorded"])
def test_blocks_that_another_thread_leaves_around_calls(recorded: bool) -> None:
    profiler = profiler_on()
    inside = profiler.profile_node("inside")(abs)
    blocks = [profiler.profile_node(f"block {number}") for number in range(3)]
    entered: queue.SimpleQueue[Any] = queue.SimpleQueue()

    @profiler.profile_node("outer")
    def outer(block: Any) -> None:
        block.__enter__()
        entered.put(block)

    def enter() -> None:
        for number in range(SOME):
            outer(blocks[number % 3])
            inside(number)
        entered.put(None)

    def leave() -> None:
        while (block := entered.get()) is not None:
            block.__exit__(None, None, None)

    with cp.profile(operators=False) if recorded else contextlib.nullcontext():
        run_threads(enter, leave)
    assert finished(profiler) == 3 * SOME


def test_the_open_node_of_a_profiler_that_goes() -> None:
    """Another thread leaves its block, and drops it."""
    entered: queue.SimpleQueue[Any] = queue.SimpleQueue()
    seen: queue.SimpleQueue[None] = queue.SimpleQueue()
    inside = cp.profile_node("inside")(abs)

    def make() -> None:
        for _ in range(SOME // 20):
            block = profiler_on().profile_node("x" * 4000)
            entered.put(block.__enter__)
            seen.get()
            block.__exit__(None, None, None)
            del block
        entered.put(None)

    def ask() -> None:
        while (enter := entered.get()) is not None:
            enter()
            del enter
            seen.put(None)
            while (node := _core.open_node()) is not None:
                assert node == ("inference", "x" * 4000)
                inside(1)

    run_threads(make, ask)


def test_recorders_that_are_dropped() -> None:
    profiler = profiler_on()
    node = profiler.profile_node("node")(abs)
    with beside(lambda: node(1), lambda: node(1)):
        for _ in range(50):
            _core.Recorder(1000, False, None, False, None, True)
    with cp.profile() as recording:
        node(1)
    assert [event.name for event in recording.events()] == ["node"]


def test_a_live_file_that_profilers_join_and_leave(tmp_path: Path) -> None:
    """They go meanwhile, and so do files, some of them while in use."""
    paths = [os.fsencode(tmp_path / f"{number}.cprof") for number in range(10)]
    files = [_core.LiveFile(-1, path, bytes(4096), 2**16, 10**7) for path in paths]
    profilers = [profiler_on() for _ in range(4)]

    def join(profiler: cp.Profiler) -> None:
        node = profiler.profile_node("node")(abs)
        for number, file in enumerate(files):
            for _ in range(50):
                with contextlib.suppress(RuntimeError, ValueError):  # it is closed, or the Profiler is in another one
                    file.add(profiler, b"label", ())
                    file.add(profiler_on(), b"of one that goes", ())
                node(1)
                file.holds(profiler)
                file.commit()
                file.remove(profiler)
            if number % 2:
                file.commit()
                file.close()

    def drop() -> None:
        profiler = profiler_on()
        for number in range(10):
            path = os.fsencode(tmp_path / f"dropped {number}.cprof")
            _core.LiveFile(-1, path, bytes(4096), 2**16, 10**7).add(profiler, b"label", ())

    run_threads(*[lambda profiler=profiler: join(profiler) for profiler in profilers], drop)
    assert [file.holds(profilers[0]) for file in files] == [False] * 10
    assert [finished(profiler) for profiler in profilers] == [500] * 4


def test_profilers_that_go_while_their_live_file_is_closed(tmp_path: Path) -> None:
    for number in range(50):
        path = os.fsencode(tmp_path / f"{number}.cprof")
        file = _core.LiveFile(-1, path, bytes(4096), 2**16, 10**10)
        profilers = [profiler_on() for _ in range(30)]
        for profiler in profilers:
            file.add(profiler, b"label", ())
        del profiler
        run_threads(file.close, profilers.clear)


def test_profilers_that_count_no_nodes_and_no_launches() -> None:
    profilers = [cp.Profiler() for _ in range(SOME)]

    def switch() -> None:
        for profiler in profilers:
            profiler.set_profiling(True, kernels=True)
            profiler._stop_launches()
            profiler._count_no_nodes()
            profiler.reset_profiling()

    in_all(switch, 4)
    assert all(profiler.profiling_enabled for profiler in profilers)


def test_pipelines_that_are_deleted_and_copied() -> None:
    """One without weak references says itself that it is gone; what is bound to it asks for its Profiler."""

    class Step:
        def __call__(self, pipeline: object) -> int:
            return 2

        def __get__(self, pipeline: object, _: type) -> types.MethodType:
            return types.MethodType(self, pipeline)

    class Pipeline(cp.PipelineProfiling):
        __slots__ = ()
        other = cp.profile_node("other")(Step())

        @cp.profile_node("step")
        def step(self) -> int:
            return 1

    def use() -> None:
        for _ in range(SOME // 10):
            pipeline = Pipeline()
            pipeline.set_profiling(True)
            assert [pipeline.step(), pipeline.other(), copy.copy(pipeline).step()] == [1, 2, 1]
            assert finished(pipeline.profiler) == 2

    in_all(use, 4)


def test_pipelines_that_many_threads_are_the_first_to_call() -> None:
    """Each gets one Profiler, and gives it to what is bound to it."""

    class Step:
        def __call__(self, pipeline: object) -> int:
            return 2

        def __get__(self, pipeline: object, _: type) -> Callable[[], int]:
            return functools.partial(self, pipeline)

    class Pipeline(cp.PipelineProfiling):
        other = cp.profile_node("other")(Step())

        @cp.profile_node("step")
        def step(self) -> int:
            return 1

        def forward(self) -> list[int]:
            return [self.step(), self.other()]

    pipelines = [Pipeline() for _ in range(SOME // 10)]

    def call() -> None:
        assert [pipeline.forward() for pipeline in pipelines] == [[1, 2]] * len(pipelines)

    in_all(call, 4)
    for pipeline in pipelines:
        pipeline.set_profiling(True)
    in_all(call, 4)
    assert {finished(pipeline.profiler) for pipeline in pipelines} == {8}


def test_a_node_whose_keys_overflow() -> None:
    profiler = profiler_on()
    for number in range(65_536):
        profiler.record("inference", str(number), 1.0)
    node = profiler.profile_node(name=lambda value: f"node {value}")(abs)

    def call() -> None:
        for number in range(50):
            node(number)

    with pytest.warns(RuntimeWarning, match="__overflow__") as warned:
        in_all(call, 4)
    assert len(warned) == 1
    assert finished(profiler) == 65_536 + 4 * 50


def test_functions_that_are_unpickled_again_and_again() -> None:
    class Wrapped:
        """Is let go of once."""

    node: Any = cp.profile_node("node")(abs)

    def change() -> None:
        for _ in range(CALLS // 4):
            node.__setstate__(Wrapped())

    in_all(change, 4)
    assert type(node.__wrapped__) is Wrapped
    assert sum(isinstance(item, Wrapped) for item in gc.get_objects()) == 1


def test_an_awaitable_that_threads_take_turns_at() -> None:
    """It gives what it holds to one of them."""
    block = profiler_on().profile_node("block")
    references = sys.getrefcount(block)
    entered = [block.__aenter__() for _ in range(10 * SOME)]
    together = threading.Barrier(2)

    async def wait() -> None:
        for awaitable in in_step(entered, together):
            await awaitable

    def consume() -> None:
        with pytest.raises(StopIteration):
            wait().send(None)

    run_threads(consume, consume)
    assert sys.getrefcount(block) == references


def test_who_asks_for_the_open_node_while_others_leave_it() -> None:
    profiler = profiler_on()
    blocks = [profiler.profile_node(f"block {number}") for number in range(3)]
    entered: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def enter() -> None:
        for number in range(SOME):
            blocks[number % 3].__enter__()
            entered.put(blocks[number % 3])
            assert _core.open_node() in {None, *(("inference", f"block {number}") for number in range(3))}

    def leave() -> None:
        for _ in range(SOME):
            entered.get().__exit__(None, None, None)

    run_threads(*[enter, leave] * 2)
    assert finished(profiler) == 2 * SOME


def test_blocks_that_are_dropped_while_their_thread_goes_on() -> None:
    profiler = profiler_on()
    node = profiler.profile_node("node")(abs)
    entered: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def enter() -> None:
        for number in range(SOME):
            block = profiler.profile_node("block")
            block.__enter__()
            entered.put(block)
            del block
            node(number)

    def drop() -> None:
        for _ in range(SOME):
            entered.get()

    run_threads(*[enter, drop] * 2)
    assert finished(profiler) == 2 * SOME


@pytest.mark.parametrize("asked", [{}, {"counters": ("cpu_time",), "by_shape": True}], ids=["times", "counters"])
def test_coroutines_that_other_threads_drop(asked: dict[str, Any]) -> None:
    """With blocks open in them, which others leave meanwhile."""
    profiler = profiler_on(**asked)
    block = profiler.profile_node("block")
    begun: queue.SimpleQueue[Any] = queue.SimpleQueue()
    entered: queue.SimpleQueue[None] = queue.SimpleQueue()

    @profiler.profile_node("coroutine")
    async def work(_: object) -> None:
        with profiler.profile_node("inside"):
            block._enter_call(([1],))
            entered.put(None)
            await asyncio.sleep(0)

    def begin() -> None:
        for _ in range(SOME):
            coroutine: Any = work([1])
            coroutine.send(None)
            begun.put(coroutine)

    def drop() -> None:
        for _ in range(SOME):
            begun.get().close()

    def leave() -> None:
        for _ in range(SOME):
            entered.get()
            block.__exit__(None, None, None)

    run_threads(*[begin, drop, leave] * 2)
    assert finished(profiler) == 3 * 2 * SOME


def test_generators_that_are_dropped_before_those_in_them() -> None:
    """With a block open in them, which another thread leaves meanwhile."""
    profiler = profiler_on()
    block = profiler.profile_node("block")
    begun: queue.SimpleQueue[Any] = queue.SimpleQueue()

    @profiler.profile_node("generator")
    def work() -> Iterator[None]:
        block._enter_call(())
        yield

    def begin() -> None:
        for _ in range(SOME):
            generator = work()
            next(generator)
            begun.put(gc.get_referents(generator))
            begun.put(generator)
            del generator

    def drop() -> None:
        for _ in range(SOME):
            kept, generator = begun.get(), begun.get()
            del generator
            assert kept
            block.__exit__(None, None, None)

    run_threads(*[begin, drop] * 2)
    assert finished(profiler) == 2 * 2 * SOME


def test_marks_that_tell_why_the_time_of_a_device_is_not_known() -> None:
    """From whichever thread hears of it, while others read what was told."""
    sinks: list[Any] = []
    mark = types.SimpleNamespace(end=sinks.append, cancel=lambda: None)
    options, _, *others = probe_callbacks.PROBERS
    profiler = profiler_on(gpu_time=True)
    node = profiler.profile_node("node")(abs)

    def set_up() -> None:
        control.set_up_core((options, lambda *_: mark, *others))

    def tell() -> None:
        for number in range(SOME):
            sinks[0](None, "captured", f"reason {number}")

    try:
        set_up()
        node(1)
        with beside(lambda: profiler.get_profiling_summary()):
            in_all(tell, 4)
        [stats] = profiler.get_profiling_summary()
        assert stats.gpu_reason == f"the stream was being captured ({4 * SOME} calls)"
        with beside(set_up):
            in_all(lambda: [node(number) for number in range(SOME)], 4)
        assert len(sinks) == finished(profiler) == 4 * SOME + 1
    finally:
        control.set_up_core(probe_callbacks.PROBERS)


def test_nodes_whose_devices_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event that cannot be had is told to the Profiler, whose reason others read."""

    def forget() -> None:
        forget_devices(monkeypatch)
        events.forget()
        wait.forget()

    forget()
    torch = torch_loader(monkeypatch, in_use=True)("xpu")
    profiler = profiler_on(synchronize_cuda=True, gpu_time=True, memory=True)
    node = profiler.profile_node("node")(id)

    def call() -> None:
        for _ in range(SOME // 10):
            node(torch.tensor())

    try:
        in_all(call, 4)
        torch.failing["record"] = RuntimeError("lost")
        with beside(lambda: profiler.get_profiling_summary()):
            in_all(call, 4)
        assert finished(profiler) == 2 * 4 * (SOME // 10)
    finally:
        forget()


def test_profilers_that_begin_beside_a_window_of_captures() -> None:
    """There is one window in a process."""
    check_script("""
import threading
import cprofiling as cp
from cprofiling import _core

barrier = threading.Barrier(3)

def switch():
    barrier.wait()
    for _ in range(100):
        profiler = cp.Profiler()
        profiler.set_profiling(True)
        profiler.profile_node("node")(abs)(1)

threads = [threading.Thread(target=switch) for _ in range(2)]
for thread in threads:
    thread.start()
barrier.wait()
_core.set_capture("node", 0, 1)
for thread in threads:
    thread.join()
assert _core.capture_report() is not None
""")
