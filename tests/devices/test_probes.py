"""What nodes are measured with beyond the clock, in this process: devices that are not CUDA's, memory, counters."""

from __future__ import annotations

import asyncio
import atexit
import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import cprofiling as cp
from calls import by_name, in_new_thread, profiler_on
from cprofiling.devices import events
from cprofiling.nodes import probe_callbacks
from cprofiling.nodes import profiler as control
from fakes.fake_torch import FakeTorch

pytestmark = [pytest.mark.native, pytest.mark.usefixtures("forgotten")]

KINDS = ("rocm", "xpu", "mps", "npu")
UseTorch = Callable[..., FakeTorch]
CPU_MS = 30
NO_QUEUE = "queue_delay_ms is not known, as the device's events tell nothing of its queue"


@pytest.fixture
def replace() -> Iterator[Callable[..., None]]:
    """Replaces what the core asks of the package, until the test is over."""
    order = ("options", "place", "place_after", "memory", "memory_after", "launches", "wait_device", "wait")

    def replace(**replaced: Any) -> None:
        answers = zip(order, probe_callbacks.PROBERS, strict=True)
        control.set_up_core(tuple(replaced.get(name, given) for name, given in answers))

    yield replace
    replace()


class PlannedError(Exception):
    """What a node raises on purpose."""


def stats(profiler: cp.Profiler, name: str = "node") -> cp.NodeProfilingStats:
    return by_name(profiler)[name]


def call(profiler: cp.Profiler, function: Callable[[], Any], name: str = "node") -> Any:
    return profiler.profile_node(name)(function)()


# ---- devices that are not CUDA's -----------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_gpu_time_of_other_devices(use: UseTorch, kind: str) -> None:
    torch, p = use(kind), profiler_on(gpu_time=True)
    for ms in (1, 2, 4):
        call(p, lambda ms=ms: torch.launch(ms))  # type: ignore[misc]
    waiting = stats(p)
    assert (waiting.gpu_count, waiting.gpu_reason) == (0, "the device has not told yet")
    torch.advance(3)
    assert stats(p).gpu_count == 2
    torch.advance(4)
    known = stats(p)
    assert (known.count, known.gpu_count, known.gpu_total_ms, known.gpu_reason) == (3, 3, 7.0, NO_QUEUE)
    assert known.queue_delay_ms is None
    assert torch.violations == []
    assert torch.calls("synchronize") == 0
    assert p.get_profiling_summary().internal_errors == 0


def test_every_kind_of_node_on_another_device(use: UseTorch) -> None:
    torch, p = use("xpu"), profiler_on(gpu_time=True)

    @p.profile_node("coroutine")
    async def coroutine() -> None:
        torch.launch(1)
        await asyncio.sleep(0)
        torch.launch(2)

    @p.profile_node("generator")
    def generator() -> Iterator[None]:
        torch.launch(4)
        yield
        torch.launch(8)

    asyncio.run(coroutine())
    list(generator())
    with p.profile_node("block"):
        torch.launch(16)
    in_new_thread(lambda: call(p, lambda: torch.launch(32), "thread"))
    torch.advance(1000)
    assert {name: each.gpu_total_ms for name, each in by_name(p).items()} == {
        "coroutine": 3.0,
        "generator": None,  # what its consumer gives the device is not its own
        "block": 16.0,
        "thread": 32.0,
    }


def test_calls_that_are_no_sample_ask_the_device_no_more(use: UseTorch) -> None:
    torch, p = use("xpu"), profiler_on(gpu_time=True)

    def fails() -> None:
        raise PlannedError

    with pytest.raises(PlannedError):
        call(p, fails)
    assert len(events._waiting) == 0
    assert (stats(p).error_count, stats(p).gpu_count) == (1, 0)
    call(p, lambda: p.reset_profiling())
    assert len(events._waiting) == 0
    call(p, lambda: torch.launch(5))
    p.reset_profiling()  # while the time is under way
    torch.advance(5)
    events.poll()
    assert len(events._waiting) == 0
    call(p, lambda: torch.launch(7))
    torch.advance(7)
    assert (stats(p).gpu_count, stats(p).gpu_total_ms) == (1, 7.0)


def test_a_profiler_that_nobody_has_any_more_gets_its_times(use: UseTorch) -> None:
    torch = use("xpu")
    call(profiler_on(gpu_time=True), lambda: torch.launch(5))
    gc.collect()
    torch.advance(5)
    events.poll()
    assert len(events._waiting) == 0


def test_a_mark_of_a_generator_that_is_dropped_is_given_up(use: UseTorch) -> None:
    use("xpu")
    p = profiler_on(gpu_time=True)

    async def opens() -> None:
        with p.profile_node("block"):
            await asyncio.sleep(0)

    @p.profile_node("node")
    async def left() -> None:
        await opens()

    running = left()
    running.send(None)
    del running
    gc.collect()
    assert (stats(p).cancelled_count, len(events._waiting)) == (1, 0)


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("captured", "the stream was being captured (1 call)"),
        ("full", "too many calls waited for the device (1 call)"),
        ("failing", "the device refused (1 call)"),
    ],
)
def test_why_a_time_is_missing(
    use: UseTorch, monkeypatch: pytest.MonkeyPatch, at_end: bool, what: str, reason: str
) -> None:
    """H2, H4."""
    torch, p = use("xpu"), profiler_on(gpu_time=True)

    def happen() -> str:
        torch.capturing = what == "captured"
        torch.failing = {"record": RuntimeError("planned")} if what == "failing" else {}
        if what == "full":
            monkeypatch.setattr(events, "MOST_WAITING", 0)
        return "result"

    if at_end:
        assert call(p, happen) == "result"
    else:
        happen()
        call(p, lambda: None)
    torch.capturing = False
    assert (stats(p).count, stats(p).gpu_count, stats(p).gpu_reason) == (1, 0, reason)
    assert ("xpu:0: RuntimeError: planned" in p.get_profiling_summary().reasons) == (what == "failing")
    assert (p._device_note is None) == (what != "failing")


def test_a_device_that_cannot_tell_says_why(use: UseTorch) -> None:
    torch, p = use("mps", accelerator=False), profiler_on(gpu_time=True)
    del torch.mps.event
    assert call(p, lambda: "result") == "result"
    assert stats(p).gpu_reason == "the device cannot tell (1 call)"
    assert "PyTorch's mps has no events" in p.get_profiling_summary().reasons


def test_a_reason_goes_with_the_calls_that_it_is_of(use: UseTorch) -> None:
    torch, p, other = use("xpu"), profiler_on(gpu_time=True), profiler_on(gpu_time=True)
    told = "xpu:0: RuntimeError: planned"

    def fails_at_the_end() -> None:
        torch.failing = {"record": RuntimeError("planned")}

    for forget in (
        p.reset_profiling,
        lambda: p.set_profiling(True, gpu_time=True, reset=True),
        lambda: p.set_profiling(True, gpu_time=True, skip_first_n=1, reset=True),
    ):
        call(p, fails_at_the_end)
        torch.failing = {}
        assert told in p.get_profiling_summary().reasons
        p.set_profiling(True, gpu_time=True)
        assert told in p.get_profiling_summary().reasons, "the rows are still there"
        forget()
        for _ in range(1 + p.get_profiling_summary().skip_first_n):
            call(p, lambda: torch.launch(1))
        torch.advance(10)
        assert (stats(p).gpu_count, p.get_profiling_summary().reasons) == (1, ())
        p.reset_profiling()
    call(other, lambda: None)
    assert told not in other.get_profiling_summary().reasons


def test_a_reason_of_statistics_that_were_discarded_meanwhile_is_not_kept(use: UseTorch) -> None:
    torch, p = use("xpu"), profiler_on(gpu_time=True)
    call(p, lambda: torch.launch(1))
    p.reset_profiling()
    torch.failing = {"query": RuntimeError("planned")}
    events.poll()
    torch.failing = {}
    assert (p._device_note, len(events._waiting)) == (None, 0)


def test_a_module_that_fails_costs_no_figures(use: UseTorch) -> None:
    class Broken:
        def parameters(self) -> Any:
            raise KeyError("own")

        buffers = parameters

    torch, p = use("xpu", devices=2), profiler_on(gpu_time=True, memory=True, synchronize_cuda=True)
    torch.allocate(7, device=1)
    torch.launch(5, torch.stream(1))
    p.profile_node("node")(lambda *_: torch.launch(4, torch.stream(1)))(Broken(), torch.tensor(1))
    assert torch.now == 9
    known = stats(p)
    assert (known.gpu_count, known.gpu_total_ms) == (1, 4.0)
    assert known.memory is not None
    assert known.memory.device is not None
    assert known.memory.device.entry == 7
    assert p.get_profiling_summary().internal_errors == 0


class OwnMark:
    """A mark of which the test keeps the sink."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.fault, self.sink, self.cancelled = fault, None, 0

    def end(self, sink: Any) -> None:
        if self.fault is not None:
            raise self.fault
        self.sink = sink

    def cancel(self) -> None:
        if self.fault is not None:
            raise self.fault
        self.cancelled += 1


def test_what_a_mark_may_tell(replace: Callable[..., None]) -> None:
    mark = OwnMark()
    replace(place=lambda *_: mark)
    p = profiler_on(gpu_time=True)
    call(p, lambda: None)
    sink: Any = mark.sink
    for wrong, error in (
        ((), TypeError),
        ((1.0,), TypeError),
        (("x", None), TypeError),
        ((-1.0, None), ValueError),
        ((float("nan"), None), ValueError),
    ):
        with pytest.raises(error):
            sink(*wrong)
    assert stats(p).gpu_count == 0
    sink(2.5, None)
    sink(None, "captured")
    sink(None, "unsupported")
    sink(None, 5)
    sink(None, "unheard of")
    known = stats(p)
    assert (known.gpu_count, known.gpu_total_ms) == (1, 2.5)
    assert known.gpu_reason == (
        "the stream was being captured (1 call); the device refused (2 calls); the device cannot tell (1 call); "
        + NO_QUEUE
    )
    p.reset_profiling()
    sink(3.5, None)
    sink(None, "full")
    assert p.get_profiling_summary() == []


def test_a_mark_that_fails_harms_nobody(replace: Callable[..., None]) -> None:
    mark = OwnMark(PlannedError())
    replace(place=lambda *_: mark)
    p = profiler_on(gpu_time=True)
    assert call(p, lambda: "result") == "result"
    assert p.get_profiling_summary().internal_errors == 1
    error = KeyError("own")

    def fails() -> None:
        raise error

    with pytest.raises(KeyError) as caught:
        call(p, fails)
    assert caught.value is error
    assert error.__context__ is None
    assert p.get_profiling_summary().internal_errors == 2
    mark.fault = None
    with pytest.raises(KeyError):
        call(p, fails)
    assert mark.cancelled == 1
    assert (stats(p).count, stats(p).error_count) == (1, 2)


def test_a_device_that_is_not_there_is_asked_for_now_and_then(replace: Callable[..., None]) -> None:
    asked: list[object] = []
    replace(place=lambda *arguments: asked.append(arguments))
    p = profiler_on(gpu_time=True)
    calls = 0
    while len(asked) < 3:
        call(p, lambda: None)
        calls += 1
    assert calls > 2 * len(asked)
    p.set_profiling(True, gpu_time=True)  # asks at once
    call(p, lambda: None)
    assert len(asked) == 4
    assert stats(p).gpu_reason == f"no device was in use ({calls + 1} calls)"


# ---- counters ------------------------------------------------------------------------------------


def use_cpu() -> None:
    end = time.thread_time() + CPU_MS / 1e3
    while time.thread_time() < end:
        pass


def cpu_ms(profiler: cp.Profiler, name: str = "node") -> float | None:
    counters = stats(profiler, name).counters
    value = counters["cpu_time"]
    return None if value is None else value.total / 1e6


def test_counters_are_the_nodes_own() -> None:
    p = profiler_on(counters=("cpu_time", "page_faults"))

    @p.profile_node("generator")
    def generator() -> Iterator[None]:
        yield
        yield

    @p.profile_node("coroutine")
    async def coroutine() -> None:
        with p.profile_node("block"):
            await asyncio.sleep(0)

    async def others() -> None:
        await asyncio.gather(coroutine(), asyncio.to_thread(use_cpu))
        task = asyncio.create_task(coroutine())
        await asyncio.sleep(0)
        use_cpu()
        await task

    for _ in generator():
        use_cpu()
    asyncio.run(others())
    call(p, use_cpu)
    assert (cpu_ms(p) or 0) >= 0.95 * CPU_MS
    for name in ("generator", "coroutine", "block"):
        assert (cpu_ms(p, name) or 0) < CPU_MS / 2, name
    counters = stats(p).counters
    assert list(counters) == ["cpu_time", "page_faults"]
    assert counters["cpu_time"] is not None
    assert (counters["cpu_time"].samples, counters["cpu_time"].unit) == (1, "ns")


def test_a_block_in_whose_thread_others_ran_has_no_counters() -> None:
    p = profiler_on(counters=("cpu_time",))

    async def unwatched() -> None:
        with p.profile_node("block"):
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(unwatched(), unwatched())

    asyncio.run(main())
    assert stats(p, "block").count == 2
    assert cpu_ms(p, "block") is None


def test_counters_of_calls_that_end_in_another_thread() -> None:
    p = profiler_on(counters=("cpu_time",))

    @p.profile_node("node")
    def generator() -> Iterator[None]:
        use_cpu()
        yield
        use_cpu()

    running = generator()
    next(running)
    assert in_new_thread(lambda: list(running)) == []
    assert (cpu_ms(p) or 0) >= 0.95 * 2 * CPU_MS
    counters = stats(p).counters["cpu_time"]
    assert counters is not None
    assert counters.samples == 1


# ---- what is asked for ---------------------------------------------------------------------------


def test_what_is_asked_for_is_what_the_statistics_have() -> None:
    p = profiler_on()
    call(p, lambda: None)
    plain = stats(p)
    assert (plain.gpu_count, plain.gpu_reason, plain.memory, plain.launches, dict(plain.counters)) == (
        0,
        None,
        None,
        None,
        {},
    )
    p.set_profiling(True, gpu_time=True, memory=True, counters=("cpu_time",), nvtx=True)
    call(p, lambda: None)
    asked = stats(p)
    assert (asked.count, asked.gpu_reason) == (2, "no device was in use (1 call)")
    assert asked.counters["cpu_time"] is not None
    p.set_profiling(False)
    call(p, lambda: None)
    assert stats(p) == asked


def test_a_key_that_still_skips_is_asked_nothing(use: UseTorch) -> None:
    torch, p = use("xpu"), profiler_on(gpu_time=True, memory=True, counters=("cpu_time",), skip_first_n=2)
    for _ in range(5):
        call(p, lambda: torch.launch(1))
    torch.advance(10)
    known = stats(p)
    assert (known.count, known.skipped_count, known.gpu_count) == (3, 2, 3)
    assert torch.calls("record") == 6
    assert known.memory is not None
    assert known.memory.device is not None
    assert known.memory.device.calls == 3
    assert known.counters["cpu_time"] is not None
    assert known.counters["cpu_time"].samples == 3


def test_a_stream_that_cannot_be_checked_without_memory_is_not_refused() -> None:
    class Stream:
        """Needs memory to tell its handle."""

        def __cuda_stream__(self) -> tuple[int, int]:
            raise MemoryError

    with pytest.raises(MemoryError):
        profiler_on(gpu_stream=Stream())


# ---- the end of the process ----------------------------------------------------------------------


def test_profilers_that_count_launches_are_remembered_once_and_let_go() -> None:
    gc.collect()
    before = len(probe_callbacks._launching)
    kept = profiler_on(kernels=True)
    registered = atexit._ncallbacks()
    for _ in range(20):
        kept.set_profiling(False)
        kept.set_profiling(True, kernels=True)
        profiler_on(kernels=True)
    assert len(probe_callbacks._launching) == before + 1
    del kept
    assert len(probe_callbacks._launching) == before
    profiler_on(kernels=True)
    assert atexit._ncallbacks() == registered
