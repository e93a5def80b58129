"""Recordings amid threads, greenlets, event loops: nothing is lost uncounted, mixed up, left behind (C2, C4, C8)."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import random
import sys
import threading
import time
import traceback
import warnings
import weakref
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import cprofiling as cp
from calls import NEVER, in_new_thread, profiler_on, resident_bytes, run_python, run_threads
from cprofiling.recording.result import Event
from recorded import check_nesting, inner, names, outer, profile

pytestmark = pytest.mark.native

THREADS = 8
RECORDINGS = 60  # of a storm


def parents(prof: cp.profile) -> Counter[tuple[str, str | None]]:
    """How many events there are of each name, inside what."""
    events = prof.events()
    by_span = {event.span_id: event.name for event in events}
    return Counter((event.name, by_span[event.parent_span_id] if event.parent_span_id else None) for event in events)


# ---- Nothing is lost


@pytest.mark.parametrize("when_full", ["drop_oldest", "drop_newest"])
@pytest.mark.parametrize("capacity", [1, 1000, 100_000])
def test_what_is_kept_and_what_is_dropped_is_what_was_made(capacity: int, when_full: str) -> None:
    calls = 800

    def work() -> None:
        for _ in range(calls):
            outer()

    with profile(capacity=capacity, when_full=when_full) as prof:
        run_threads(*[work] * THREADS)
    events = prof.events()
    assert len(events) + prof.dropped == THREADS * calls * 4
    assert min(THREADS * calls * 4, capacity) <= len(events) <= THREADS * capacity
    check_nesting(events)
    assert {event.name for event in events} <= {"outer", "inner", "label"}


class Numbering:
    """Threads that label what they do by their number, and a number that rises by one each time."""

    def __init__(self, threads: int) -> None:
        self.over = False
        self.targets = [self.worker(number) for number in range(threads)]
        self.seen: set[str] = set()

    def worker(self, number: int) -> Callable[[], None]:
        def work() -> None:
            for i in itertools.count():
                if self.over:
                    return
                with cp.record(f"{number} {i}"):
                    outer()
                    time.sleep(1e-4)

        return work

    def check(self, events: list[Event]) -> None:
        """Of each thread there is all from the first to the last, and nothing that an earlier recording has."""
        labels = [event.name for event in events if event.kind == "record" and event.name != "label"]
        numbers: dict[str, list[int]] = defaultdict(list)
        for name in labels:
            thread, number = name.split()
            numbers[thread].append(int(number))
        for found in numbers.values():
            assert sorted(found) == [*range(min(found), max(found) + 1)]
        assert len(set(labels)) == len(labels)
        assert self.seen.isdisjoint(labels)
        self.seen.update(labels)
        check_nesting(events)


def test_recordings_begin_and_end_while_threads_are_inside_nodes() -> None:
    numbering = Numbering(16)
    recordings: list[cp.profile] = []

    def control() -> None:
        try:
            for i in range(RECORDINGS):
                with profile() as prof:
                    time.sleep(1e-4 * (i % 10))
                recordings.append(prof)
        finally:
            numbering.over = True

    run_threads(control, *numbering.targets)
    unfinished = 0
    for prof in recordings:  # only now: reading takes much longer while the threads go on
        events = prof.events()
        assert prof.dropped == 0
        numbering.check(events)
        unfinished += sum(event.unfinished for event in events)
    assert unfinished > 0


@pytest.mark.filterwarnings("ignore:the recording was stopped in step:RuntimeWarning")
def test_a_recording_is_controlled_by_anybody_at_once() -> None:
    """Calls in the wrong order are refused; none breaks anything."""
    ready: list[int] = []
    prof = profile(
        schedule=cp.schedule(wait=1, warmup=0, active=2),
        on_trace_ready=lambda prof: ready.append(len(prof.events())),
        record_shapes=True,
        capacity=100,
    )
    refused: Counter[str] = Counter()

    def control(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(400):
            call = rng.choice([prof.start, prof.stop, prof.pause, prof.resume] + [prof.step] * 4)
            try:
                call()
            except RuntimeError as error:
                refused[str(error).partition(" ")[0]] += 1
            outer()

    run_threads(*[lambda seed=seed: control(seed) for seed in range(4)], *[lambda: [outer() for _ in range(500)]] * 4)
    with contextlib.suppress(RuntimeError):
        prof.stop()
    assert set(refused) <= {"a", "nothing", "stop()", "step()", "pause()", "resume()"}
    assert ready
    with profile() as after:
        inner()
    assert names(after) == ["inner"]


def test_threads_that_have_one_number_in_turn_have_rows_of_their_own() -> None:
    last_pid = Path("/proc/sys/kernel/ns_last_pid")  # the next thread gets the number after it
    rounds = 4

    def run_named(name: str) -> int:
        thread = threading.Thread(target=outer, name=name)
        thread.start()
        thread.join()
        assert thread.native_id is not None
        return thread.native_id

    def run_again(name: str, wanted: int) -> bool:
        for _ in range(100):  # others may begin threads, too
            last_pid.write_text(str(wanted - 1))
            if run_named(name) == wanted:
                return True
        return False

    with profile() as prof:
        tid = run_named("thread 0")
        try:
            again = all(run_again(f"thread {i}", tid) for i in range(1, rounds))
        except OSError as error:
            pytest.skip(f"threads cannot be given a number here: {error}")
    if not again:
        pytest.skip("other threads took the number each time")
    found = {event.thread_name: event.thread_id for event in prof.events() if event.name == "outer"}
    assert [found[f"thread {i}"] for i in range(rounds)] == [tid + i * 2**22 for i in range(rounds)]


def test_threads_in_turn_go_on_in_one_room() -> None:
    with profile(capacity=10) as prof:
        for _ in range(20):
            run_threads(lambda: [inner() for _ in range(3)])
    assert len(prof.events()) + prof.dropped == 60
    assert len(prof.events()) >= 10
    assert prof.dropped > 0


# ---- Nothing is left behind


@pytest.mark.unsanitized
@pytest.mark.slow
def test_short_lived_threads_take_no_memory_of_their_own() -> None:
    def spawn(count: int) -> int:
        for _ in range(count // 8):
            run_threads(*[outer] * 8)
        gc.collect()
        return resident_bytes()

    with profile(capacity=1000) as prof:
        before = spawn(400)
        after = spawn(2400)
    assert after - before < 2400 * 1024
    assert len(prof.events()) + prof.dropped == 2800 * 4
    check_nesting(prof.events())


def test_many_recordings_leave_nothing_behind() -> None:
    """No file, no thread, no memory (D18)."""

    def cycle(times: int) -> tuple[int, int, int]:
        for _ in range(times):
            with profile(capacity=100, profile_memory=True, with_stack=True):
                outer()
        gc.collect()
        return len([*Path("/proc/self/fd").iterdir()]), threading.active_count(), sys.getallocatedblocks()

    cycle(50)
    files, threads, blocks = cycle(50)
    after = cycle(300)
    assert after[:2] == (files, threads)
    assert after[2] - blocks < 300  # less than a block for each recording


def test_a_profiler_may_go_while_its_nodes_are_open_and_recorded() -> None:
    profiler = profiler_on()

    @profiler.profile_node("node")
    def node() -> Iterator[int]:
        yield 1

    @profiler.profile_node("finished")
    def finished() -> None:
        inner()

    running = node()
    block = profiler.profile_node("block")
    with profile() as prof:
        finished()
        next(running)
        block.__enter__()
        gone = weakref.ref(profiler)
        del profiler, node, finished
        block.__exit__(None, None, None)
        del block, running
        gc.collect()
        assert gone() is None
    assert sorted(names(prof)) == ["block", "finished", "inner", "node"]


# ---- What is suspended ends elsewhere


def test_generators_end_in_other_threads_and_after_the_recording() -> None:
    @cp.profile_node("numbers")
    def numbers() -> Generator[int, None, None]:
        with cp.record("inside"):
            yield 1
            inner()
            yield 2

    prof = profile(profile_memory=True)
    prof.start()
    elsewhere, collected, late = numbers(), numbers(), numbers()
    for running in (elsewhere, collected, late):
        next(running)
    in_new_thread(lambda: [*elsewhere])
    in_new_thread(elsewhere.close)
    del collected, running
    gc.collect()
    in_new_thread(lambda: next(late))
    prof.stop()
    assert [*late] == []
    events = prof.events()
    assert parents(prof) == {("numbers", None): 3, ("inside", "numbers"): 3, ("inner", "inside"): 2}
    assert [event.unfinished for event in events] == [False, False, False, False, True, True, False, False]
    main, *others = (event.thread_id for event in events if event.name == "numbers")
    assert main != threading.get_native_id()  # that which closed it
    assert set(others) == {threading.get_native_id()}


def test_coroutines_end_after_the_recording() -> None:
    @cp.profile_node("node")
    async def node() -> None:
        with cp.record("inside"):
            await asyncio.sleep(0)

    profiler = profiler_on()
    with profile() as prof, profiler:
        running, dropped = node(), node()
        running.send(None)
        dropped.send(None)
        del dropped
    with pytest.raises(StopIteration):
        running.send(None)
    assert sorted((event.name, event.outcome, event.unfinished) for event in prof.events()) == [
        ("inside", "error", False),
        ("inside", "success", True),
        ("node", "cancelled", False),
        ("node", "success", True),
    ]


def test_a_block_left_by_a_dropped_generator_has_no_memory_figures() -> None:
    """Nobody looked at the memory at its end: what it was at the start is no change."""

    def opens() -> Iterator[None]:
        with cp.record("left"):
            yield

    @cp.profile_node("holder")
    def holder() -> Iterator[None]:
        running = opens()
        next(running)
        held.append(running)
        yield

    held: list[Any] = []
    with profile(profile_memory=True) as prof:
        suspended = holder()
        next(suspended)
        held.pop().close()  # from outside of the call in which the block was entered
        del suspended
    left = next(event for event in prof.events() if event.name == "left")
    assert not left.unfinished
    assert left.memory_change is None
    assert left.memory_peak is None


# ---- Greenlets and event loops


@pytest.mark.unsanitized
@pytest.mark.parametrize("options", [{}, {"with_stack": True, "profile_memory": True}], ids=["times", "more"])
def test_greenlets_switch_inside_nodes(options: dict[str, Any]) -> None:
    greenlet = pytest.importorskip("greenlet")
    others: list[Any] = []

    @cp.profile_node("node")
    def node(number: int) -> None:
        with cp.record(f"label {number}"):
            others[1 - number].switch()
            inner()

    def run(number: int) -> None:
        for _ in range(3):
            node(number)
        others[1 - number].switch()

    with profile(**options) as prof:
        others += [greenlet.greenlet(lambda: run(0)), greenlet.greenlet(lambda: run(1))]
        others[0].switch()
        while not all(other.dead for other in others):
            for other in others:
                other.switch()
    assert parents(prof) == {
        ("node", None): 6,
        ("label 0", "node"): 3,
        ("label 1", "node"): 3,
        ("inner", "label 0"): 3,
        ("inner", "label 1"): 3,
    }


@cp.profile_node("task")
async def task(number: int, sleep: Callable[[float], Awaitable[object]]) -> None:
    with cp.record(f"label {number}"):
        await sleep(0.001 * (number % 3))
        async for _ in numbered(number, sleep):
            inner()


@cp.profile_node("numbered")
async def numbered(number: int, sleep: Callable[[float], Awaitable[object]]) -> AsyncIterator[int]:
    for i in range(2):
        async with cp.record(f"item {number}"):
            await sleep(0)
        yield i


async def gathered() -> None:
    await asyncio.gather(*[task(i, asyncio.sleep) for i in range(10)])


def run_in_asyncio() -> None:
    asyncio.run(gathered())


def run_in_uvloop() -> None:
    loop = pytest.importorskip("uvloop").new_event_loop()
    loop.run_until_complete(gathered())
    loop.close()


def run_in_trio() -> None:
    trio = pytest.importorskip("trio")

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            for i in range(10):
                nursery.start_soon(task, i, trio.sleep)

    trio.run(run)


@pytest.mark.parametrize("run", [run_in_asyncio, run_in_uvloop, run_in_trio])
def test_tasks_are_told_apart(run: Callable[[], None]) -> None:
    with profile() as prof:
        run()
    check_nesting(prof.events())
    assert len({event.trace_id for event in prof.events()}) == 10
    found = parents(prof)
    for i in range(10):
        assert found.pop((f"label {i}", "task")) == 1
        assert found.pop(("numbered", f"label {i}")) == 1
        assert found.pop((f"item {i}", "numbered")) == 2
        assert found.pop(("inner", f"label {i}")) == 2
    assert found == {("task", None): 10}


# ---- One recording and another


class Meeting:
    """An argument whose shape is not known before something else has happened."""

    dtype = "float32"

    def __init__(self) -> None:
        self.asked, self.answers = threading.Event(), threading.Event()

    @property
    def shape(self) -> tuple[int, ...]:
        self.asked.set()
        assert self.answers.wait(NEVER)
        return (2, 3)


@pytest.mark.parametrize("way", ["node", "decorated", "generator"])
def test_a_call_that_begins_in_one_recording_and_is_opened_in_the_next(way: str) -> None:
    """Numbers of texts are those of a recording: to the next they are nothing."""
    ways: dict[str, Callable[[Any], Any]] = {
        "node": cp.profile_node("called")(lambda array: None),
        "decorated": cp.record("called")(lambda array: None),
        "generator": lambda array: [*generator(array)],
    }

    @cp.record("called")
    def generator(array: Any) -> Iterator[int]:
        yield 1

    array = Meeting()
    prof = profile(record_shapes=True)
    prof.start()
    for i in range(3000):
        with cp.record(f"of the first {i}"):
            pass
    with ThreadPoolExecutor(1) as executor:
        called = executor.submit(ways[way], array)
        assert array.asked.wait(NEVER)
        prof.stop()
        prof.start()
        array.answers.set()
        called.result(NEVER)
    prof.stop()
    assert len(prof.events()) + prof.dropped == 1
    assert [event.name for event in prof.events()] in ([], ["called"])
    assert {event.shapes for event in prof.events()} <= {None, "[[2, 3]]"}


def test_nobody_ends_a_recording_that_is_being_started() -> None:
    done: list[str] = []

    def stop() -> None:
        prof.stop()
        done.append("stopped")

    def schedule(step: int) -> cp.ProfilerAction:
        stopper.start()
        stopper.join(0.1)
        done.append("scheduled")
        return cp.ProfilerAction.RECORD

    stopper = threading.Thread(target=stop)
    prof = profile(schedule=schedule)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        prof.start()
        stopper.join(NEVER)
    assert "the cycle is incomplete" in str(caught[0].message)
    assert done == ["scheduled", "stopped"]
    with profile() as after:
        inner()
    assert names(after) == ["inner"]


def test_describing_a_call_describes_none_that_it_makes() -> None:
    class Array:
        @property
        @cp.profile_node("shape")
        def shape(self) -> tuple[int, ...]:
            return (2, 3)

        @property
        @cp.profile_node("dtype")
        def dtype(self) -> str:
            return "float32"

    @cp.profile_node("node")
    def node(array: Array) -> None:
        pass

    with profile(record_shapes=True) as prof:
        node(Array())
    assert [(event.name, event.shapes) for event in prof.events()] == [
        ("shape", None),
        ("dtype", None),
        ("node", "[[2, 3]]"),
    ]


@pytest.mark.parametrize("way", ["block", "generator"])
def test_what_is_asked_at_an_end_may_end_the_same_again(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from cprofiling.recording import call_details

    block = cp.profile_node("block")
    ends: list[Callable[[], object]] = []

    @cp.profile_node("generator")
    def generator() -> Iterator[int]:
        yield 1

    def leave_again() -> None:
        with pytest.raises(RuntimeError, match="left without having been entered"):
            block.__exit__(None, None, None)  # it is being left

    def find() -> tuple[int, int]:
        if ends:
            ends.pop()()
        return 1, 1

    monkeypatch.setattr(call_details, "device_memory_finder", lambda: find)
    with profile(profile_memory=True) as prof:
        if way == "block":
            with block:
                ends.append(leave_again)
        else:
            running = generator()
            next(running)
            ends.append(lambda: [*running])
            assert [*running] == []
        with block:
            inner()
    assert sorted(names(prof)) == sorted([way, "block", "inner"])
    assert parents(prof)["inner", "block"] == 1


# ---- Exceptions and interrupts


@pytest.mark.parametrize(
    "options", [{}, {"with_stack": True, "profile_memory": True, "record_shapes": True}], ids=["times", "everything"]
)
def test_the_users_exceptions_are_untouched(options: dict[str, Any]) -> None:
    error = KeyError("the user's")

    @cp.profile_node("node")
    def node() -> None:
        with cp.record("label"):
            raise error

    prof = profile(**options)
    with pytest.raises(KeyError) as caught, prof:
        cp.record("decorated")(node)()
    assert caught.value is error
    assert error.__context__ is None
    assert error.__cause__ is None
    assert not hasattr(error, "__notes__")
    frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert frames == ["test_the_users_exceptions_are_untouched", "node"]
    assert [(event.name, event.outcome) for event in prof.events()] == [
        ("decorated", "error"),
        ("node", "error"),
        ("label", "error"),
    ]


@pytest.mark.filterwarnings("error")
def test_a_warning_that_is_an_error_takes_nothing_away(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[int] = []
    prof = profile(
        schedule=cp.schedule(wait=0, warmup=0, active=3), on_trace_ready=lambda prof: seen.append(len(prof.events()))
    )

    def fail() -> None:
        with prof:
            inner()
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as caught:
        fail()
    assert caught.value.__context__ is None
    assert "the cycle is incomplete" in capsys.readouterr().err
    prof.start()
    with pytest.raises(RuntimeWarning, match="incomplete"):
        prof.stop()
    assert seen == [2, 1]


# What a handler or a shape raises while code runs for us is the user's.
INTERRUPTED = """
import os, signal, sys, threading
import cprofiling as cp

class Stop(BaseException):
    pass

def exits(number, frame):
    sys.exit(7)

def interrupts(number):
    os.kill(os.getpid(), number)

def stops(_):
    raise Stop

class Array:
    dtype = "float32"

    @property
    def shape(self):
        ENDS
        return (2, 3)

@cp.profile_node("node")
def node(array):
    return 5

@cp.record("generator")
def generator(array):
    yield 1

@cp.profile_node(name=lambda array: str(array.shape))
def named(array):
    return 5

def in_a_thread(array):
    def body():
        try:
            node(array)
        except Stop:
            print("stopped")
    thread = threading.Thread(target=body)
    thread.start()
    thread.join()

signal.signal(signal.SIGUSR1, exits)
with cp.profile(record_shapes=True, operators=False) as prof:
    try:
        CALL
        print("went on")
    except KeyboardInterrupt as error:
        print("interrupted", error.__traceback__.tb_next is not None and "details" in str(error.__traceback__.tb_next))
print(len(prof.events()))
"""


@pytest.mark.parametrize(
    ("ends", "call", "out", "status"),
    [
        ("interrupts(signal.SIGINT)", "node(Array())", "interrupted False\n1\n", 0),
        ("interrupts(signal.SIGINT)", "[*generator(Array())]", "interrupted False\n1\n", 0),
        ("interrupts(signal.SIGINT)", "named(Array())", "interrupted False\n1\n", 0),
        ("interrupts(signal.SIGUSR1)", "node(Array())", "", 7),
        ("stops(self)", "in_a_thread(Array())", "stopped\nwent on\n1\n", 0),
    ],
)
def test_what_ends_the_description_of_a_call_ends_the_call(ends: str, call: str, out: str, status: int) -> None:
    done = run_python(INTERRUPTED.replace("ENDS", ends).replace("CALL", call))
    assert (done.stdout, done.stderr, done.returncode) == (out, "", status)


# Interrupts at any moment (A2): each is raised, and the next recording starts.
INTERRUPTS = """
import _thread, random, threading, time, warnings
import cprofiling as cp

warnings.simplefilter("ignore")
rng = random.Random(0)
round_number = -1

class Array:
    dtype = "float32"
    shape = (2, 3)

@cp.profile_node("inner")
def inner(array):
    pass

def work():
    for i in range(10):
        with cp.record(f"label {i}"):
            inner(array)

def interrupt():
    for i in range(ROUNDS):
        while round_number < i:
            time.sleep(1e-4)
        end = time.perf_counter() + rng.random() * 0.003
        while time.perf_counter() < end:
            pass
        _thread.interrupt_main()

array = Array()
threading.Thread(target=interrupt, daemon=True).start()
for i in range(ROUNDS):
    prof = cp.profile(with_stack=True, record_shapes=True, profile_memory=True, operators=False,
                      schedule=cp.schedule(wait=0, warmup=0, active=1), on_trace_ready=lambda prof: prof.events())
    try:
        round_number = i
        while True:
            with prof:
                work()
                prof.step()
    except KeyboardInterrupt:
        pass
    if prof._running:  # it came between the start and the block
        prof.stop()
    with cp.profile() as other:
        inner(array)
    assert [event.name for event in other.events()] == ["inner"]
print("done")
"""


def test_interrupts_at_any_moment() -> None:
    done = run_python(INTERRUPTS.replace("ROUNDS", "150"))
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)
