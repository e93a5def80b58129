"""What the frameworks have allocated on a call's device: PyTorch's allocators with virtual devices, and CuPy's pool."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest

import cprofiling as cp
from cprofiling.devices import memory, operations
from cprofiling.devices.memory import UNKNOWN, memory_at_entry, memory_at_exit, memory_reason, peak_reason
from cprofiling.recording import call_details
from fakes.fake_torch import FakeTorch

pytestmark = pytest.mark.usefixtures("forgotten")


# ---- PyTorch -------------------------------------------------------------------------------------


def test_a_peak_that_is_kept_but_cannot_be_reset(load: Callable[..., FakeTorch]) -> None:
    """What the most was since the start of the process is not what it was in the call."""
    torch = load("xpu", accelerator=False)
    del torch.xpu.reset_peak_memory_stats
    torch.allocate(500)
    torch.allocate(-400)
    assert memory_at_entry((), False) == (0, 100, 500)
    assert peak_reason() is None
    assert memory_at_entry((), True) == (0, 100, UNKNOWN)
    assert peak_reason() == "PyTorch's xpu cannot reset the most bytes"
    torch = load("xpu")
    torch.allocate(10)
    torch.failing = {"reset": RuntimeError("lost")}
    assert memory_at_entry((), True) == (0, 10, UNKNOWN), "what is in use is known all the same"
    assert peak_reason() == "the most bytes could not be counted anew (RuntimeError: lost)"
    assert memory_at_exit(0, True) == (10, 10), "of the time since the reset at the entry"
    assert peak_reason() is not None, "of this call"
    torch.failing = {}
    assert memory_at_entry((), True) == (0, 10, 10)
    assert peak_reason() is None
    assert memory_reason() is None


def test_no_framework() -> None:
    assert memory_at_entry((), False) is None
    assert memory_reason() == "neither PyTorch nor CuPy is loaded"
    assert memory_at_exit(0, False) is None
    assert memory_reason() == "PyTorch uses no device in this process"
    assert {"torch", "cupy"} & set(sys.modules) == set()


def test_a_device_without_an_allocator(load: Callable[..., FakeTorch]) -> None:
    torch = load("brand", accelerator=False)
    del torch.brand.memory_allocated  # type: ignore[attr-defined]
    torch.allocate(300)
    assert memory_at_entry((), True) == (0, 300, UNKNOWN), "what is not free on the device"
    assert memory_at_exit(0, False) == (300, UNKNOWN)
    assert peak_reason() == "a device tells what is in use now, not the most there was"
    torch = load("brand", accelerator=False)
    del torch.brand.memory_allocated, torch.brand.mem_get_info  # type: ignore[attr-defined]
    for answer in (memory_at_entry((), True), memory_at_exit(0, True)):
        assert answer is None
        assert memory_reason() == (
            "PyTorch's brand does not tell what it has allocated; PyTorch's brand cannot tell how much memory is free"
        )


def test_why_there_were_no_figures_stays_known(load: Callable[..., FakeTorch]) -> None:
    """It is told where a node has none, whatever others had later."""
    torch = load("cuda")
    torch.failing = {"memory": RuntimeError("lost")}
    assert memory_at_entry((), False) is None
    torch.failing = {}
    assert memory_at_entry((), False) == (0, 0, 0)
    assert memory_reason() == "the framework does not answer (RuntimeError: lost)"


def test_torch_that_does_not_answer(load: Callable[..., FakeTorch], monkeypatch: pytest.MonkeyPatch) -> None:
    torch = load("cuda")
    torch.failing = {"memory": RuntimeError("lost")}
    for answer in (memory_at_entry((), False), memory_at_exit(0, False)):
        assert answer is None
        assert memory_reason() == "the framework does not answer (RuntimeError: lost)"
    torch.failing = {}
    torch._C._cuda_memoryStats = lambda _: {"allocated_bytes": {}}
    monkeypatch.setattr(operations, "_found", None)
    assert memory_at_entry((), False) is None
    assert memory_reason() == "the framework does not answer (KeyError: 'all')"
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    for answer in (memory_at_entry((), False), memory_at_exit(0, False)):
        assert answer is None
        assert str(memory_reason()).startswith("PyTorch does not answer (AttributeError: ")


# ---- CuPy ----------------------------------------------------------------------------------------


class FakeCupy:
    """As much of CuPy as is looked at: a pool that answers for the current device. ``log`` holds what reaches CUDA."""

    class ndarray:  # the name of CuPy's
        """An array on a device."""

    def __init__(self, *used: int) -> None:
        self.log: list[str] = []
        self.used, self.current = list(used), 0
        self.cuda = SimpleNamespace(runtime=SimpleNamespace(getDevice=self.get_device), Device=self.device)
        self.entered: list[int] = []

    def get_device(self) -> int:
        self.log.append("getDevice")
        return self.current

    def get_default_memory_pool(self) -> SimpleNamespace:
        return SimpleNamespace(used_bytes=lambda: self.used[self.current])

    def device(self, index: int) -> FakeCupy:
        self.entered.append(self.current)
        self.current = index
        return self

    def __enter__(self) -> None:
        """Made current already."""

    def __exit__(self, *_: object) -> None:
        self.current = self.entered.pop()


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> FakeCupy:
    fake = FakeCupy(1000, 2000)
    monkeypatch.setitem(sys.modules, "cupy", fake)
    return fake


def test_the_pool_of_cupy(cupy: FakeCupy) -> None:
    cupy.current = 1
    key, *figures = memory_at_entry((FakeCupy.ndarray(),), False) or (-1,)
    assert figures == [2000, UNKNOWN]
    cupy.used[1] = 2500
    assert memory_at_exit(key, True) == (2500, UNKNOWN)
    cupy.current = 0
    assert memory_at_exit(key, False) == (2500, UNKNOWN), "of the same device"
    assert cupy.current == 0
    assert memory_reason() is None
    assert peak_reason() == "CuPy's pool does not keep the most bytes used"
    assert memory_at_entry((), False) == (key - 1, 1000, UNKNOWN)


def test_cupy_is_not_made_to_begin_with_cuda(cupy: FakeCupy) -> None:
    """Its answer would: a process that forks after that could not use CUDA in its children."""
    assert memory_at_entry((1, "x", object()), False) is None
    assert memory_reason() == "CuPy has shown no array yet, and is not made to begin with CUDA"
    assert cupy.log == []


def test_cupy_beside_torch(cupy: FakeCupy, load: Callable[..., FakeTorch]) -> None:
    load("cpu")
    assert memory_at_entry((FakeCupy.ndarray(),), False) is not None
    torch = load("cuda")
    torch.allocate(5)
    assert memory_at_entry((FakeCupy.ndarray(),), False) == (0, 5, 5)


def test_cupy_that_does_not_answer(cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    key, *_ = memory_at_entry((FakeCupy.ndarray(),), False) or (-1,)
    cupy.used.clear()
    assert memory_at_entry((), False) is None
    assert memory_reason() == "the framework does not answer (IndexError: list index out of range)"
    monkeypatch.delitem(sys.modules, "cupy")
    assert memory_at_exit(key, False) is None
    assert memory_reason() == "the framework does not answer (KeyError: 'cupy')"


def test_the_child_of_a_fork_asks_nobody(cupy: FakeCupy) -> None:
    """H5."""
    assert memory_at_entry((FakeCupy.ndarray(),), False) is not None
    child = os.fork()
    if child == 0:
        cupy.log.clear()
        os._exit(int(memory_at_entry((), False) is not None or cupy.log != []))
    assert os.waitpid(child, 0)[1] == 0
    memory._after_fork_in_child()
    assert memory_at_entry((), False) is None


# ---- recordings ----------------------------------------------------------------------------------


def test_recordings_ask_for_any_kind_of_device(load: Callable[..., FakeTorch]) -> None:
    assert call_details.device_memory_finder() is None
    for kind, peak in (("xpu", 700), ("mps", None)):
        torch = load(kind)
        torch.allocate(100)

        @cp.record("node")
        def node(torch: FakeTorch = torch) -> None:
            torch.allocate(600)
            torch.allocate(-500)

        with cp.profile(profile_memory=True, operators=False) as prof:
            node()
        (event,) = prof.events()
        assert (event.device_memory_change, event.device_memory_peak) == (100, peak)
