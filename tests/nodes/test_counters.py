from __future__ import annotations

import asyncio
import contextlib
import mmap
import pickle
import resource
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from enum import Enum
from typing import Any

import pytest

import cprofiling as cp
from calls import by_name, in_new_thread, profiler_on
from cprofiling import _core
from cprofiling.nodes.resources import COUNTERS, HARDWARE_COUNTERS, UNITS, CounterValue, NodeCounters

pytestmark = pytest.mark.native

CPU_TIME = CounterValue(mean=1234.5, total=2469, samples=2, unit="ns")
CYCLES = CounterValue(mean=10.0, total=20, samples=2, unit="times", estimated=True)
INSTRUCTIONS = CounterValue(mean=15.0, total=30, samples=2, unit="times", estimated=True)


@pytest.fixture
def counters() -> NodeCounters:
    return NodeCounters({"cpu_time": CPU_TIME, "cycles": CYCLES, "cache_misses": None})


def test_names_and_units_are_the_cores() -> None:
    assert [(name, unit) for name, unit, _ in _core.perf_status()] == list(_core.perf_units()) == list(UNITS.items())
    assert HARDWARE_COUNTERS == ("cycles", "instructions", "branch_misses", "cache_misses")


def test_a_counter_has_a_value_or_a_reason() -> None:
    reasons = {name: reason for name, _, reason in _core.perf_status()}
    assert {reasons[name] for name in COUNTERS if name not in HARDWARE_COUNTERS} == {None}
    assert all(reason is None or len(reason) > 10 for reason in reasons.values())


# What set_profiling() takes.


class Wanted(str, Enum):
    TIME = "cpu_time"


class Text(str):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = str.__hash__


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ((), ()),
        ([], ()),
        (set(), ()),
        (None, ()),
        (["cache_misses", "cpu_time"], ("cpu_time", "cache_misses")),
        (("page_faults", "page_faults"), ("page_faults",)),
        ({"context_switches"}, ("context_switches",)),
        ({"cycles": "of a dict, the keys"}, ("cycles",)),
        ((Wanted.TIME,), ("cpu_time",)),
        ((Text("cycles"),), ("cycles",)),
        (COUNTERS, COUNTERS),
        (NodeCounters({"instructions": None}), ("instructions",)),
        (iter(("page_faults", "cpu_time")), ("cpu_time", "page_faults")),
    ],
)
def test_counters_that_are_asked_for(asked: Any, names: tuple[str, ...]) -> None:
    profiler = profiler_on(counters=asked)
    profiler.profile_node("node")(len)("")
    assert tuple(by_name(profiler)["node"].counters) == names


# What the statistics give.


@pytest.mark.parametrize(
    ("cycles", "instructions", "ipc"),
    [
        (CYCLES, INSTRUCTIONS, 1.5),
        (None, INSTRUCTIONS, None),
        (CYCLES, None, None),
        (CYCLES, CounterValue(30.0, 30, 1, "times"), None),
        (CounterValue(0.0, 0, 2, "times"), INSTRUCTIONS, None),
        (CYCLES, CounterValue(0.0, 0, 2, "times"), 0.0),
    ],
)
def test_instructions_per_cycle(
    cycles: CounterValue | None, instructions: CounterValue | None, ipc: float | None
) -> None:
    assert NodeCounters({"cycles": cycles, "instructions": instructions}).ipc == ipc


def test_it_is_a_mapping_and_a_value(counters: NodeCounters) -> None:
    assert isinstance(counters, Mapping)
    assert counters == dict(counters) == {"cpu_time": CPU_TIME, "cycles": CYCLES, "cache_misses": None}
    assert list(counters.items())[2] == ("cache_misses", None)
    other = NodeCounters(reversed(list(counters.items())))
    pickled = [pickle.loads(pickle.dumps(counters, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    for same in (other, *pickled):
        assert (type(same), same, hash(same)) == (NodeCounters, counters, hash(counters))
    assert [list(each) for each in pickled] == [list(counters)] * len(pickled)


@pytest.mark.parametrize(
    "change",
    [
        lambda counters: counters.__setitem__("cpu_time", None),
        lambda counters: counters.__delitem__("cpu_time"),
        lambda counters: counters.update(cpu_time=None),
        lambda counters: counters.pop("cpu_time"),
        lambda counters: counters.clear(),
        lambda counters: setattr(counters, "cpu_time", 1),
        lambda counters: setattr(counters, "_values", {}),
        lambda counters: delattr(counters, "_values"),
        lambda counters: setattr(counters["cpu_time"], "total", 1),
    ],
)
def test_it_cannot_be_changed(counters: NodeCounters, change: Callable[[Any], object]) -> None:
    with pytest.raises((AttributeError, TypeError)):
        change(counters)
    assert counters["cpu_time"] == CPU_TIME
    assert len(counters) == 3


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({3: None}, r"a counter's name must be a str, got 3 \(int\)"),
        ({"cycles": 3}, r"the value of cycles must be a CounterValue, got 3 \(int\)"),
        (7, "not iterable"),
    ],
)
def test_what_it_cannot_hold(values: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        NodeCounters(values)


# From set_profiling() to a node's statistics.

SOFTWARE = ("cpu_time", "context_switches", "page_faults")


def burn(seconds: float = 0.02) -> int:
    """Use the processor; returns for how many ns this thread had it."""
    start = time.thread_time_ns()
    while (used := time.thread_time_ns() - start) < seconds * 1e9:
        pass
    return used


def touch(pages: int) -> None:
    """Use memory that the process never used."""
    with mmap.mmap(-1, pages * mmap.PAGESIZE) as fresh:
        for page in range(pages):
            fresh[page * mmap.PAGESIZE] = 1


def counted(profiler: cp.Profiler, name: str = "node", counter: str = "cpu_time") -> CounterValue:
    """A counter of a node that has a value."""
    value = by_name(profiler)[name].counters[counter]
    assert value is not None, (name, counter)
    assert value.mean == value.total / value.samples
    return value


def usage() -> tuple[int, int, int]:
    """What the kernel says of this thread: the three software counters."""
    now = resource.getrusage(resource.RUSAGE_THREAD)
    seconds = now.ru_utime + now.ru_stime
    return round(seconds * 1e9), now.ru_nvcsw + now.ru_nivcsw, now.ru_minflt + now.ru_majflt


def test_it_is_what_the_kernel_says() -> None:
    profiler = profiler_on(counters=SOFTWARE)

    @profiler.profile_node("node")
    def node() -> None:
        burn(0.3)
        touch(100)
        for _ in range(5):
            time.sleep(0.001)

    profiler.profile_node("before")(usage)()  # what happens the first time only
    before = usage()
    node()
    used, switches, faults = (now - then for now, then in zip(usage(), before, strict=True))
    stats = by_name(profiler)["node"]
    assert list(stats.counters) == list(SOFTWARE)
    cpu_time = counted(profiler)
    assert abs(cpu_time.total - used) <= 0.05 * used
    assert (cpu_time.samples, cpu_time.unit, cpu_time.estimated) == (1, "ns", False)
    # What is read around the node contains what is read inside it; in between there are some instructions.
    switched, faulted = (counted(profiler, counter=name).total for name in SOFTWARE[1:])
    assert 5 <= switched <= switches <= switched + 20
    assert 100 <= faulted <= faults <= faulted + 100
    assert stats.cpu_share is not None
    assert 0 < stats.cpu_share <= 1.01
    assert stats.cpu_share == cpu_time.total / 1e6 / stats.total_ms


def test_waiting_is_no_cpu_time() -> None:
    profiler = profiler_on(counters=("cpu_time", "context_switches"))
    profiler.profile_node("node")(time.sleep)(0.1)
    share = by_name(profiler)["node"].cpu_share
    assert share is not None
    assert share < 0.3
    assert counted(profiler, counter="context_switches").total >= 1


def test_calls_are_added_and_nodes_inside_are_part_of_them() -> None:
    profiler = profiler_on(counters=("cpu_time",))
    inner = profiler.profile_node("inner")(burn)

    @profiler.profile_node("outer")
    def outer() -> int:
        return burn() + inner()

    used = [outer() for _ in range(3)]
    of_outer, of_inner = counted(profiler, "outer"), counted(profiler, "inner")
    assert (of_outer.samples, of_inner.samples) == (3, 3)
    assert of_outer.total >= sum(used) > of_inner.total >= 3 * 20_000_000


def test_each_thread_counts_for_itself() -> None:
    profiler = profiler_on(counters=("cpu_time",))
    busy = profiler.profile_node("busy")(burn)
    threads = [threading.Thread(target=busy, args=(0.1,)) for _ in range(2)]

    @profiler.profile_node("waits")
    def waits() -> None:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    waits()
    assert counted(profiler, "busy").samples == 2
    assert 200_000_000 <= counted(profiler, "busy").total < 300_000_000
    assert counted(profiler, "waits").total < 100_000_000


def test_a_coroutine_counts_only_while_it_runs() -> None:
    profiler = profiler_on(counters=("cpu_time",))
    used: list[int] = []

    @profiler.profile_node("mine")
    async def mine() -> None:
        used.append(burn())
        await asyncio.sleep(0)
        used.append(burn())

    async def other() -> None:
        burn(0.1)
        await asyncio.sleep(0)
        burn(0.1)

    async def main() -> None:
        await asyncio.gather(mine(), other(), mine())

    asyncio.run(main())
    cpu_time = counted(profiler, "mine")
    assert cpu_time.samples == 2
    assert sum(used) <= cpu_time.total < sum(used) + 100_000_000


def test_a_generator_counts_none_of_its_consumer() -> None:
    profiler = profiler_on(counters=("cpu_time",))
    used: list[int] = []

    @profiler.profile_node("plain")
    def plain() -> Iterator[None]:
        for _ in range(2):
            used.append(burn())
            yield

    @profiler.profile_node("async")
    async def asynchronous() -> AsyncIterator[None]:
        for _ in range(2):
            used.append(burn())
            yield

    async def consume() -> None:
        async for _ in asynchronous():
            burn(0.1)

    for name in ("plain", "async"):
        used.clear()
        if name == "plain":
            for _ in plain():
                burn(0.1)
        else:
            asyncio.run(consume())
        cpu_time = counted(profiler, name)
        assert cpu_time.samples == 1
        assert sum(used) <= cpu_time.total < sum(used) + 100_000_000


def test_a_generator_may_go_from_thread_to_thread() -> None:
    profiler = profiler_on(counters=("cpu_time",))

    @profiler.profile_node("node")
    def node() -> Generator[int, None, None]:
        while True:
            yield burn()

    running = node()
    used = next(running) + in_new_thread(lambda: next(running)) + next(running)
    running.close()
    cpu_time = counted(profiler)
    assert cpu_time.samples == 1
    assert used <= cpu_time.total < used + 20_000_000


def test_a_block_that_others_interrupt_has_no_counters() -> None:
    """What ran in the thread meanwhile cannot be told from its own."""
    profiler = profiler_on(counters=("cpu_time",))

    async def task(turns: int) -> None:
        with profiler.profile_node("block"):
            for _ in range(turns):
                await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(task(2), task(3))

    asyncio.run(main())
    stats = by_name(profiler)["block"]
    value = stats.counters["cpu_time"]
    assert stats.count == 2
    assert value is None or value.samples < 2
    assert stats.cpu_share is None
    assert profiler.get_profiling_summary().internal_errors == 0


def test_hardware_counters_have_a_value_or_a_reason_that_is_said_once() -> None:
    profiler = profiler_on(counters=HARDWARE_COUNTERS)
    node = profiler.profile_node("node")(burn)
    node(0.001)
    profiler.profile_node("other")(len)("")
    refused = {name: reason for name, _, reason in _core.perf_status() if reason is not None}
    told = profiler.get_profiling_summary().reasons
    stats = by_name(profiler)["node"]
    assert list(stats.counters) == list(HARDWARE_COUNTERS)
    for name in HARDWARE_COUNTERS:
        if name in refused:
            assert stats.counters[name] is None
            assert sum(name in reason and reason.endswith(refused[name]) for reason in told) == 1
        else:
            assert not any(name in reason for reason in told)
            assert counted(profiler, counter=name).total > 0
    assert (stats.counters.ipc is None) == bool({"cycles", "instructions"} & refused.keys())


def test_calls_that_are_no_samples_are_left_out() -> None:
    profiler = profiler_on(counters=("cpu_time",), skip_first_n=2)

    @profiler.profile_node("node")
    def node(error: type[BaseException] | None = None) -> int:
        used = burn(0.01)
        if error is not None:
            raise error
        return used

    for error in (ValueError, None, None, KeyError, KeyboardInterrupt):
        with contextlib.suppress(ValueError, KeyError, KeyboardInterrupt):
            node(error)
    stats = by_name(profiler)["node"]
    assert (stats.count, stats.skipped_count, stats.error_count) == (0, 2, 3)
    assert stats.counters == {"cpu_time": None}
    used = node()
    assert counted(profiler).samples == 1
    assert used <= counted(profiler).total < used + 30_000_000


def test_the_configuration_of_the_start_counts() -> None:
    profiler = profiler_on(counters=("cpu_time",))

    @profiler.profile_node("node")
    def node(then: Callable[[], object] = tuple) -> None:
        then()

    node(lambda: profiler.set_profiling(True))
    assert counted(profiler).samples == 1
    node(lambda: profiler.set_profiling(True, counters=("page_faults",)))
    assert list(by_name(profiler)["node"].counters) == ["cpu_time"]
    node()
    stats = by_name(profiler)["node"]
    assert stats.count == 3
    assert list(stats.counters) == ["cpu_time", "page_faults"]
    assert (counted(profiler).samples, counted(profiler, counter="page_faults").samples) == (1, 1)
    node(profiler.reset_profiling)
    assert by_name(profiler)["node"].counters == {}
    profiler.set_profiling(False)
    node()
    assert by_name(profiler)["node"].dropped_count == 1


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ("cpu_time", TypeError, r"counters must be a tuple of names, such as \('cpu_time',\), got 'cpu_time' \(str\)"),
        (b"cpu_time", TypeError, r"counters must be a tuple of names, .* \(bytes\)"),
        (7, TypeError, r"counters must be a tuple of names, .*, got 7 \(int\)"),
        (True, TypeError, r"counters must be a tuple of names, .*, got True \(bool\)"),
        (("cpu_time", 3), TypeError, r"counters\[1\] must be a str, got 3 \(int\)"),
        ((b"cycles",), TypeError, r"counters\[0\] must be a str, got b'cycles' \(bytes\)"),
        *(
            (("cycles", name), ValueError, r"counters\[1\] must be one of 'cpu_time', .*'cache_misses', got ")
            for name in ("cycle", "", "CPU_TIME", "cpu_time ", "x" * 1000, Text("cpu"))
        ),
        ((str(1 / number) for number in (0,)), ZeroDivisionError, "division by zero"),
    ],
)
def test_wrong_counters_change_nothing(wrong: Any, error: type[Exception], message: str) -> None:
    profiler = profiler_on(counters=("cpu_time",))
    node = profiler.profile_node("node")(len)
    node("")
    with pytest.raises(error, match=message):
        profiler.set_profiling(False, counters=wrong, reset=True)
    node("")
    assert counted(profiler).samples == 2
