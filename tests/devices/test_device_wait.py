"""synchronize_cuda on devices that are not CUDA's: waited for through PyTorch, with virtual devices (H2, H4, H5)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

import cprofiling as cp
from calls import by_name, profiler_on, run_python
from cprofiling.devices import wait
from cprofiling.devices.wait import device_to_wait_for, wait_for_device, wait_reason
from fakes.fake_torch import FakeTorch

pytestmark = [pytest.mark.native, pytest.mark.usefixtures("forgotten")]

KINDS = ("rocm", "xpu", "mps", "npu", "brand")
UseTorch = Callable[..., FakeTorch]


def synchronising(**options: Any) -> cp.Profiler:
    return profiler_on(synchronize_cuda=True, **options)


def nothing(*_: object, **__: object) -> str:
    return "result"


def checked(profiler: cp.Profiler) -> dict[str, cp.NodeProfilingStats]:
    """The statistics by name; nothing went wrong."""
    assert profiler.get_profiling_summary().internal_errors == 0
    return by_name(profiler)


# ---- waiting -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"gpu_time": True, "memory": True}], ids=["alone", "all"])
def test_a_node_is_waited_for_before_and_after(use: UseTorch, kind: str, options: dict[str, bool]) -> None:
    torch, profiler = use(kind), synchronising(**options)
    seen: list[float] = []

    @profiler.profile_node("node")
    def node(_tensor: object) -> str:
        seen.append(torch.now)
        torch.launch(7)
        return "result"

    torch.launch(5)
    assert node(torch.tensor()) == "result"
    assert (seen, torch.now, torch.calls("synchronize")) == ([5], 12, 2)
    stats = checked(profiler)["node"]
    assert stats.count == 1
    assert stats.sync_total_ms is not None
    assert wait_reason() is None


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_waited_for_unless_asked(use: UseTorch, kind: str) -> None:
    torch, profiler = use(kind), profiler_on(gpu_time=True)
    profiler.profile_node("node")(nothing)(torch.tensor())
    with profiler.profile_node("block"):
        pass
    assert torch.calls("synchronize") == 0


def test_the_device_is_that_of_the_arguments(use: UseTorch) -> None:
    torch, profiler = use("xpu", devices=3), synchronising()
    node = profiler.profile_node("node")(nothing)
    ways: list[Callable[[], object]] = [
        lambda: node(torch.tensor(1)),
        lambda: node(5, [{"x": torch.tensor(1)}]),
        lambda: node(key=torch.tensor(1)),
    ]
    for number, call in enumerate(ways):
        before = torch.now
        for index, ms in ((0, 1000), (1, 5), (2, 1000)):
            torch.launch(ms, torch.stream(index))
        call()
        assert torch.now == before + 5, number
        torch.advance(10_000)
    calls = torch.calls("synchronize")
    node(1, "x")
    assert torch.calls("synchronize") == calls, "a call without a device, as with CUDA"
    assert checked(profiler)["node"].count == 4


def test_a_block_waits_for_the_current_device(use: UseTorch) -> None:
    torch, profiler = use("xpu", devices=2), synchronising()
    torch.current = 1
    torch.launch(1000, torch.stream(0))
    torch.launch(5, torch.stream(1))
    with profiler.profile_node("block"):
        assert torch.now == 5
        torch.launch(7, torch.stream(1))
    assert torch.now == 12
    assert checked(profiler)["block"].count == 1


# ---- what is never done --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*KINDS, "cuda"])
def test_a_device_that_nobody_uses_is_not_asked(use: UseTorch, kind: str) -> None:
    torch, profiler = use(kind, begun=False), synchronising()
    torch.bytes[0][0] = 0
    for _ in range(3):
        profiler.profile_node("node")(nothing)(torch.tensor())
        with profiler.profile_node("block"):
            pass
    assert (torch.log, torch.violations) == ([], [])
    assert (device_to_wait_for(()), wait_for_device(-1), wait_for_device(0)) == (None, False, False)
    assert {name: stats.count for name, stats in checked(profiler).items()} == {"node": 3, "block": 3}


def test_the_devices_of_cuda_are_the_cores(use: UseTorch) -> None:
    torch, profiler = use("cuda"), synchronising()
    profiler.profile_node("node")(nothing)(torch.tensor())
    with profiler.profile_node("block"):
        pass
    assert torch.calls("synchronize") == 0
    assert (device_to_wait_for((torch.tensor(),)), wait_for_device(0)) == (None, False)


def test_where_there_is_none_it_is_looked_for_now_and_then(monkeypatch: pytest.MonkeyPatch, use: UseTorch) -> None:
    """A process without such a device pays for the clock."""
    asked: list[None] = []
    monkeypatch.setattr(wait, "in_use", lambda: asked.append(None))
    profiler = synchronising()
    node = profiler.profile_node("node")(nothing)
    calls = 0
    while len(asked) < 3:
        node()
        calls += 1
    assert calls > 2 * len(asked)
    profiler.set_profiling(True, synchronize_cuda=True)  # asks at once
    with profiler.profile_node("block"):
        pass
    assert len(asked) == 4


def test_a_device_of_which_memory_tells_is_used(use: UseTorch) -> None:
    """MPS counts as used when something is in its memory: then the next call has all figures, not one in 100 ms."""
    torch, profiler = use("mps"), synchronising(gpu_time=True, memory=True)
    torch.bytes[0][0] = 0

    @profiler.profile_node("node")
    def node(_: object) -> None:
        torch.allocate(10)
        torch.launch(1)

    for _ in range(3):
        node(torch.tensor())
    torch.advance(100)
    stats = checked(profiler)["node"]
    assert stats.memory is not None
    assert stats.memory.device is not None
    assert (stats.count, stats.gpu_count, stats.memory.device.calls) == (3, 2, 2)
    assert (stats.gpu_reason or "").startswith("no device was in use (1 call)")
    assert torch.calls("synchronize") == 2


@pytest.mark.parametrize("kind", ["rocm", "xpu", "npu"])
def test_a_stream_capture_is_not_disturbed(use: UseTorch, kind: str) -> None:
    """H4."""
    torch, profiler = use(kind), synchronising()
    torch.capturing = True
    profiler.profile_node("node")(nothing)(torch.tensor())
    with profiler.profile_node("block"):
        pass
    assert torch.calls("synchronize") == 0
    assert "waits left out during stream capture: 4" in profiler.get_profiling_summary().reasons
    torch.capturing = False
    profiler.profile_node("node")(nothing)(torch.tensor())
    assert torch.calls("synchronize") == 2
    assert checked(profiler)["node"].count == 2


@pytest.mark.parametrize("name", ["synchronize", "is_capturing"])
@pytest.mark.parametrize("at_end", [False, True])
def test_an_error_switches_waiting_off_and_raises_nothing(use: UseTorch, name: str, at_end: bool) -> None:
    """H2."""
    torch, profiler = use("xpu"), synchronising()
    fails: dict[str, Exception] = {name: RuntimeError("the device is lost")}

    def work(_: object) -> str:
        torch.failing = fails
        return "result"

    torch.failing = {} if at_end else fails
    node = profiler.profile_node("node")(work)
    assert node(torch.tensor()) == "result"
    calls = len(torch.log)
    assert node(torch.tensor()) == "result"
    with profiler.profile_node("block"):
        pass
    assert torch.log[calls:] == []
    reason = "RuntimeError: the device is lost, from waiting for xpu: synchronisation is off"
    assert reason in profiler.get_profiling_summary().reasons
    assert {key: stats.count for key, stats in checked(profiler).items()} == {"node": 2, "block": 1}


def test_a_device_that_cannot_be_waited_for_is_a_reason(use: UseTorch) -> None:
    torch, profiler = use("brand", accelerator=False), synchronising()
    del torch.brand.synchronize  # type: ignore[attr-defined]
    profiler.profile_node("node")(nothing)(torch.tensor())
    assert "PyTorch's brand cannot wait for a device: synchronisation is off" in (
        profiler.get_profiling_summary().reasons
    )
    assert checked(profiler)["node"].count == 1


def test_a_fault_of_the_package_is_counted_and_harms_nobody() -> None:
    script = """
import cprofiling as cp
from cprofiling.devices import wait as device_wait
def overflows():
    raise MemoryError
device_wait.in_use = overflows
cp.set_profiling(True, synchronize_cuda=True)
with cp.profile_node("block"):
    pass
assert cp.get_profiling_summary().internal_errors == 2
assert cp.profile_node("node")(lambda: "result")() == "result"
assert cp.get_profiling_summary().internal_errors == 3
assert {s.node_name: s.count for s in cp.get_profiling_summary()} == {"block": 1, "node": 1}
"""
    done = run_python(script)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("index", [-5, 1 << 16, 1 << 40])
def test_an_index_that_is_none(use: UseTorch, index: int) -> None:
    torch, profiler = use("xpu", devices=2), synchronising()
    assert profiler.profile_node("node")(nothing)(torch.tensor(index)) == "result"
    assert torch.calls("synchronize") == 0
    assert checked(profiler)["node"].count == 1


@pytest.mark.forks
@pytest.mark.parametrize("kind", ["xpu", "mps"])
def test_a_forked_child_makes_no_call_of_the_device(use: UseTorch, kind: str) -> None:
    """H5."""
    torch, profiler = use(kind), synchronising()
    node = profiler.profile_node("node")(nothing)
    node(torch.tensor())
    torch.failing = {"synchronize": RuntimeError("lost")}
    node(torch.tensor())
    assert wait_reason() is not None
    child = os.fork()
    if child == 0:
        torch.log.clear()
        torch.begun = False
        torch.bytes[0][0] = 0
        is_good = node(torch.tensor()) == "result" and torch.log == [] and wait_reason() is None
        os._exit(0 if is_good else 1)
    assert os.waitpid(child, 0)[1] == 0
