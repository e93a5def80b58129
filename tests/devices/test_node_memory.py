"""set_profiling(memory=...): memory of device and process around each node, with a torch of virtual devices."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import cprofiling as cp
from calls import NEVER, by_name, profiler_on, run_python
from cprofiling.devices import memory as device_memory
from cprofiling.nodes.resources import MemoryFigures, NodeMemory
from fakes.fake_torch import FakeTorch

pytestmark = [pytest.mark.native, pytest.mark.usefixtures("forgotten")]


def memory(profiler: cp.Profiler, name: str = "node") -> NodeMemory:
    """What is known of a node's memory; nothing went wrong in between."""
    assert profiler.get_profiling_summary().internal_errors == 0
    found = by_name(profiler)[name].memory
    assert found is not None
    return found


def device(profiler: cp.Profiler, name: str = "node") -> MemoryFigures | None:
    return memory(profiler, name).device


KINDS = ["cuda", "rocm", "xpu", "npu"]

# ---- the framework's allocator -------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("looks", [True, "peak"])
def test_figures_of_calls(load: Callable[..., FakeTorch], kind: str, looks: Any) -> None:
    torch = load(kind)
    torch.allocate(1000)
    profiler = profiler_on(memory=looks)

    @profiler.profile_node("node")
    def node(*sizes: int) -> str:
        for size in sizes:
            torch.allocate(size)
        return "result"

    assert node(500, -200) == "result"
    assert device(profiler) == MemoryFigures(calls=1, entry=1000, exit=1300, change=300, peak=1500)
    node(100, -700)
    # Without resets what the second call reached is below the peak of the first one, and so is not known.
    assert device(profiler) == MemoryFigures(calls=2, entry=1300, exit=700, change=-300, peak=1500)
    node(1000)
    assert device(profiler) == MemoryFigures(calls=3, entry=700, exit=1700, change=700, peak=1700)
    assert torch.violations == []
    assert memory(profiler).reason is None


@pytest.mark.parametrize("kind", KINDS)
def test_the_programs_own_peak_is_left_alone_unless_asked_for(load: Callable[..., FakeTorch], kind: str) -> None:
    torch = load(kind)
    torch.allocate(5000)
    torch.allocate(-4000)
    profiler = profiler_on(memory=True)

    @profiler.profile_node("node")
    def node(size: int) -> None:
        torch.allocate(size)
        torch.allocate(-size)

    node(100)
    assert torch.calls("reset") == 0
    assert torch.bytes[0] == [1000, 5000]
    assert device(profiler) == MemoryFigures(1, 1000, 1000, 0, None), "it did not rise"
    profiler.set_profiling(True, memory="peak", reset=True)
    node(100)
    assert torch.calls("reset") == 2
    assert torch.bytes[0] == [1000, 1000]
    assert device(profiler) == MemoryFigures(1, 1000, 1000, 0, 1100)


def test_a_peak_contains_what_nodes_inside_reach(load: Callable[..., FakeTorch]) -> None:
    torch = load("cuda")
    profiler = profiler_on(memory="peak")

    @profiler.profile_node("inner")
    def inner(size: int, fails: bool = False) -> None:
        torch.allocate(size)
        torch.allocate(-size)
        if fails:
            raise KeyError(size)

    @profiler.profile_node("outer")
    def outer(*sizes: int) -> None:
        torch.allocate(100)
        for size in sizes:
            inner(size)
        torch.allocate(50)

    outer(500, 300)
    assert "600 B" in profiler.format_profiling_summary()
    assert device(profiler, "inner") == MemoryFigures(2, 100, 100, 0, 600)
    with profiler.profile_node("sibling"):
        torch.allocate(10)
        torch.allocate(-10)
    assert device(profiler, "sibling") == MemoryFigures(1, 150, 150, 0, 160)
    assert device(profiler, "outer") == MemoryFigures(1, 0, 150, 150, 600)
    outer(10)
    assert device(profiler, "outer") == MemoryFigures(2, 150, 300, 300, 600)
    profiler.reset_profiling()
    with profiler.profile_node("around"):
        torch.allocate(1)
        with pytest.raises(KeyError):
            inner(5000, fails=True)
        outer()
    assert device(profiler, "around") == MemoryFigures(1, 300, 451, 151, 5301), (
        "a node that fails counts for those around"
    )
    assert by_name(profiler)["inner"].memory is None
    assert device(profiler, "outer") == MemoryFigures(1, 301, 451, 150, 451)


def test_an_allocator_that_keeps_no_peak(load: Callable[..., FakeTorch]) -> None:
    torch = load("mps")
    torch.allocate(100)
    for looks in (True, "peak"):
        profiler = profiler_on(memory=looks)
        with profiler.profile_node("node"):
            torch.allocate(30)
        assert device(profiler) == MemoryFigures(1, torch.bytes[0][0] - 30, torch.bytes[0][0], 30, None)
        assert "PyTorch's mps does not keep the most bytes allocated" in profiler.get_profiling_summary().reasons


def test_a_peak_that_cannot_be_reset_is_none_of_a_call(load: Callable[..., FakeTorch]) -> None:
    torch = load("npu", accelerator=False)
    torch.allocate(5000)
    torch.allocate(-4000)
    del torch.npu.reset_peak_memory_stats  # type: ignore[attr-defined]
    profiler = profiler_on(memory="peak")
    with profiler.profile_node("node"):
        torch.allocate(30)
    assert device(profiler) == MemoryFigures(1, 1000, 1030, 30, None)


@pytest.mark.parametrize("looks", [True, "peak"])
def test_each_call_is_asked_about_its_own_device(load: Callable[..., FakeTorch], looks: Any) -> None:
    torch = load("cuda", devices=3)
    profiler = profiler_on(memory=looks)
    torch.allocate(7, device=2)

    def work(tensor: Any, index: int, size: int) -> None:
        torch.allocate(size, device=index)

    first, second = profiler.profile_node("first")(work), profiler.profile_node("second")(work)

    @profiler.profile_node("both")
    def both() -> None:
        first(torch.tensor(1), 1, 100)
        second(torch.tensor(2), 2, 1000)

    both()
    assert device(profiler, "first") == MemoryFigures(1, 0, 100, 100, 100)
    assert device(profiler, "second") == MemoryFigures(1, 7, 1007, 1000, 1007)
    assert device(profiler, "both") == MemoryFigures(1, 0, 0, 0, 0 if looks == "peak" else None), "that of device 0"


def test_threads_share_an_allocator_and_what_it_reaches(load: Callable[..., FakeTorch]) -> None:
    torch = load("cuda")
    profiler = profiler_on(memory="peak")
    inside, leave = threading.Event(), threading.Event()

    @profiler.profile_node("long")
    def long() -> None:
        torch.allocate(10)
        inside.set()
        assert leave.wait(NEVER)

    thread = threading.Thread(target=long)
    thread.start()
    assert inside.wait(NEVER)
    with profiler.profile_node("short"):
        torch.allocate(100)
        torch.allocate(-100)
    torch.allocate(300)
    torch.allocate(-300)
    leave.set()
    thread.join()
    assert device(profiler, "short") == MemoryFigures(1, 10, 10, 0, 110)
    assert device(profiler, "long") == MemoryFigures(1, 0, 10, 10, 310)


def test_blocks_that_end_in_another_order(load: Callable[..., FakeTorch]) -> None:
    torch = load("cuda")
    profiler = profiler_on(memory="peak")
    blocks = [profiler.profile_node(name) for name in ("a", "b", "c")]
    for at, block in enumerate(blocks, 1):
        block.__enter__()
        torch.allocate(at)
    for at in (1, 0, 2):
        torch.allocate(100)
        torch.allocate(-100)
        blocks[at].__exit__(None, None, None)
        torch.allocate(1000 * (at + 1))
    expected = {"b": (1, 6, 106), "a": (0, 2006, 2106), "c": (3, 3006, 3106)}
    for name, (entry, exit_, peak) in expected.items():
        assert device(profiler, name) == MemoryFigures(1, entry, exit_, exit_ - entry, peak), name


def test_generators_and_coroutines(load: Callable[..., FakeTorch]) -> None:
    torch = load("cuda")
    profiler = profiler_on(memory="peak")

    @profiler.profile_node("generator")
    def generator() -> Iterator[int]:
        torch.allocate(100)
        yield 1
        torch.allocate(-50)

    @profiler.profile_node("coroutine")
    async def coroutine() -> None:
        torch.allocate(10)
        await asyncio.sleep(0)
        torch.allocate(-10)

    for _ in generator():
        torch.allocate(1000)  # the consumer's: nobody can tell it from the generator's
    torch.allocate(-1000)
    asyncio.run(coroutine())
    assert device(profiler, "generator") == MemoryFigures(1, 0, 1050, 1050, 1100)
    assert device(profiler, "coroutine") == MemoryFigures(1, 50, 50, 0, 60)


# ---- what gives nothing --------------------------------------------------------------------------


@pytest.mark.parametrize("looks", [True, "peak"])
def test_calls_that_are_no_samples_give_nothing(load: Callable[..., FakeTorch], looks: Any) -> None:
    torch = load("cuda")
    profiler = profiler_on(memory=looks, skip_first_n=2)

    @profiler.profile_node("node")
    def node(size: int, error: Exception | None = None) -> None:
        torch.allocate(size)
        if error is not None:
            raise error

    error = KeyError("own")
    with pytest.raises(KeyError) as caught:
        node(1, error)
    assert caught.value is error
    assert error.__context__ is None
    assert by_name(profiler)["node"].memory is None
    node(10)
    node(100)
    assert by_name(profiler)["node"].memory is None
    node(1000)
    stats = by_name(profiler)["node"]
    assert (stats.count, stats.skipped_count, stats.error_count) == (1, 2, 1)
    assert device(profiler) == MemoryFigures(1, 111, 1111, 1000, 1111)
    profiler.set_profiling(False)
    calls = len(torch.log)
    node(10)
    assert len(torch.log) == calls


def test_no_framework_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    profiler = profiler_on(memory=True)
    with profiler.profile_node("node"):
        pass
    found = memory(profiler)
    assert found.device is None
    assert found.reason == "neither a framework's allocator nor a driver told how much of it was in use"
    assert found.host is not None
    assert device_memory.NO_FRAMEWORK in profiler.get_profiling_summary().reasons


@pytest.mark.parametrize("kind", [*KINDS, "mps"])
def test_a_device_that_is_not_in_use_is_not_asked(load: Callable[..., FakeTorch], kind: str) -> None:
    torch = load(kind, begun=False)
    profiler = profiler_on(memory="peak")
    with profiler.profile_node("node"):
        pass
    assert (device(profiler), torch.log, torch.violations) == (None, [], [])
    assert device_memory.NOTHING_IN_USE in profiler.get_profiling_summary().reasons


LOST = "the framework does not answer (RuntimeError: the device is lost)"


@pytest.mark.parametrize(
    ("looks", "failing"), [(True, "memory"), (True, "device_count"), ("peak", "memory"), ("peak", "device_count")]
)
def test_a_framework_that_does_not_answer(load: Callable[..., FakeTorch], looks: Any, failing: str) -> None:
    torch = load("cuda")
    profiler = profiler_on(memory=looks)
    node = profiler.profile_node("node")(torch.allocate)
    torch.failing[failing] = RuntimeError("the device is lost")
    node(1)
    assert device(profiler) is None
    assert LOST in profiler.get_profiling_summary().reasons
    torch.failing.clear()
    node(10)
    assert by_name(profiler)["node"].count == 2
    assert device(profiler) == MemoryFigures(1, 1, 11, 10, 11)


@pytest.mark.parametrize("looks", [True, "peak"])
def test_a_framework_that_fails_inside_a_node(load: Callable[..., FakeTorch], looks: Any) -> None:
    torch = load("cuda")
    profiler = profiler_on(memory=looks)
    with profiler.profile_node("node"):
        torch.allocate(5)
        torch.failing["memory"] = RuntimeError("the device is lost")
    assert device(profiler) is None
    assert LOST in profiler.get_profiling_summary().reasons
    torch.failing.clear()
    with profiler.profile_node("node"):
        torch.allocate(2)
    assert device(profiler) == MemoryFigures(1, 5, 7, 2, 7)


# ---- the process ---------------------------------------------------------------------------------


def test_host_memory() -> None:
    script = """
import mmap
import cprofiling as cp
MB = 1 << 20

def touched(size):
    memory = mmap.mmap(-1, size)
    for page in range(0, size, mmap.PAGESIZE):
        memory[page] = 1
    return memory

@cp.profile_node
def keeps():
    return touched(64 * MB)

@cp.profile_node
def gives_back():
    touched(128 * MB).close()

@cp.profile_node
def frees(memory):
    memory.close()

@cp.profile_node
def nothing():
    pass

cp.set_profiling(True, memory=True)
kept = keeps()
gives_back()
frees(kept)
nothing()
host = {s.node_name: s.memory.host for s in cp.get_profiling_summary()}
keeps, gives_back, frees, nothing = (host[name] for name in ("keeps", "gives_back", "frees", "nothing"))
assert 60 * MB < keeps.change < 80 * MB, keeps
assert keeps.exit - keeps.entry == keeps.change and keeps.calls == 1
assert keeps.exit <= keeps.peak < keeps.exit + 16 * MB, keeps
assert abs(gives_back.change) < 16 * MB, gives_back
assert 110 * MB < gives_back.peak - gives_back.entry < 150 * MB, gives_back
assert -80 * MB < frees.change < -60 * MB and frees.peak is None, frees
assert abs(nothing.change) < 8 * MB and nothing.peak is None, nothing
"""
    done = run_python(script)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# ---- arguments -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "error", "shown"),
    [
        ("all", ValueError, "'all' (str)"),
        ("", ValueError, "'' (str)"),
        ("PEAK", ValueError, "'PEAK' (str)"),
        (None, TypeError, "None (NoneType)"),
        (1, TypeError, "1 (int)"),
        (0, TypeError, "0 (int)"),
        (b"peak", TypeError, "b'peak' (bytes)"),
        (["peak"], TypeError, "['peak'] (list)"),
    ],
)
def test_wrong_arguments_change_nothing(wrong: Any, error: type[Exception], shown: str) -> None:
    profiler = profiler_on(memory=True)
    with profiler.profile_node("node"):
        pass
    with pytest.raises(error) as caught:
        profiler.set_profiling(False, memory=wrong, reset=True)
    assert str(caught.value) == f'memory must be a bool or "peak", got {shown}'
    with profiler.profile_node("node"):
        pass
    host = memory(profiler).host
    assert host is not None
    assert host.calls == 2


class Peak(str):
    pass


def test_a_str_is_its_text(load: Callable[..., FakeTorch]) -> None:
    torch = load("cuda")
    profiler = profiler_on(memory=Peak("peak"))
    with profiler.profile_node("node"):
        pass
    assert torch.calls("reset") == 2


def test_all_ways_to_switch_it_on(load: Callable[..., FakeTorch]) -> None:
    class Pipeline(cp.PipelineProfiling):
        pass

    torch = load("cuda")
    pipeline = Pipeline()
    pipeline.set_profiling(True, memory="peak")
    cp.set_profiling(True, memory="peak")
    for make in (pipeline.profile_node, cp.profile_node):
        calls = torch.calls("reset")
        with make("node"):
            torch.allocate(1)
        assert torch.calls("reset") == calls + 2
    for summary in (pipeline.get_profiling_summary(), cp.get_profiling_summary()):
        (stats,) = summary
        assert stats.memory is not None
        assert stats.memory.device is not None
        assert stats.memory.device.change == 1
