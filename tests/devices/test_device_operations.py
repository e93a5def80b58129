"""One table of what can be asked of every kind of device; with a torch that has virtual ones, and with the real one."""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
import types
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from calls import run_python
from cprofiling.devices import operations
from cprofiling.devices.operations import KINDS, OPERATIONS, DeviceOperations, in_use, present
from fakes.fake_torch import FakeTorch

pytestmark = pytest.mark.usefixtures("forgotten")

KINDS_OF_TORCH = ("cuda", "rocm", "xpu", "mps", "npu", "brand")


def begun(load: Callable[..., FakeTorch], kind: str, **keywords: Any) -> FakeTorch:
    """A torch whose device is in use, in the case of MPS for having something in its memory."""
    torch = load(kind, **keywords)
    torch.allocate(100)
    return torch


def row_in_use(kind: str) -> Any:
    """The row, with callables taken to be there."""
    row = in_use()
    assert isinstance(row, DeviceOperations)
    assert row.device_type == kind
    return row


def refuse(text: str) -> Any:
    raise RuntimeError(text)


def reasons_by_kind() -> dict[str, set[str | None]]:
    """Why PyTorch has no devices of a kind; None where it has, once they are in use."""
    return {each.device_type: {why for _, why in each.operations} for each in present()}


# ---- kinds that are not there --------------------------------------------------------------------


def test_without_torch_there_is_no_device() -> None:
    assert reasons_by_kind() == {kind: {"PyTorch is not loaded"} for kind in KINDS}
    assert in_use() is None
    assert "torch" not in sys.modules


def test_kinds_that_this_torch_is_not_built_for(load: Callable[..., FakeTorch]) -> None:
    load("cpu")
    assert reasons_by_kind() == {
        "rocm": {"this PyTorch is built without ROCm"},
        "xpu": {"this PyTorch is built without XPU"},
        "mps": {"this PyTorch is built without MPS"},
        "npu": {"PyTorch has no backend 'npu': import torch_npu"},
    }
    load("rocm")
    assert in_use() is not None


# ---- what is in use ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS_OF_TORCH)
@pytest.mark.parametrize("accelerator", [True, False])
def test_what_is_in_use_is_found(load: Callable[..., FakeTorch], kind: str, accelerator: bool) -> None:
    torch = begun(load, kind, accelerator=accelerator)
    row = in_use()
    assert isinstance(row, DeviceOperations)
    assert (row.device_type, row.tensor_type) == (kind, "cuda" if kind == "rocm" else kind)
    assert in_use() is row
    assert torch.log == []
    assert [each.device_type for each in present() if each.is_in_use] == [kind] * (kind != "cuda")


@pytest.mark.parametrize("kind", KINDS_OF_TORCH[1:])
def test_what_is_not_in_use_is_not_asked(load: Callable[..., FakeTorch], kind: str) -> None:
    torch = load(kind, begun=False)
    assert in_use() is None
    found = {each.device_type: each for each in present()}
    assert list(found) == [*KINDS, *({kind} - set(KINDS))]
    assert (found[kind].is_in_use, found[kind].count) == (False, None)
    assert dict(found[kind].operations)["synchronize"] is None, "it can, once the device is in use"
    assert (torch.log, torch.violations) == ([], [])
    torch.begun = True
    torch.allocate(1)
    assert in_use() is not None


def test_threads_that_look_at_once_find_the_same(
    load: Callable[..., FakeTorch], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Gathering:
        """A lock that is taken by one after the other as soon as two are there."""

        lock, both = threading.Lock(), threading.Barrier(2)

        def __enter__(self) -> None:
            self.both.wait(60)
            self.lock.acquire()

        def __exit__(self, *_: object) -> None:
            self.lock.release()

    begun(load, "xpu")
    monkeypatch.setattr(operations, "_lock", Gathering())
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: in_use(), range(2))
    assert isinstance(first, DeviceOperations)
    assert first is second


def test_another_torch_is_looked_at_anew(load: Callable[..., FakeTorch], monkeypatch: pytest.MonkeyPatch) -> None:
    begun(load, "xpu")
    assert in_use() is not None
    load("cpu")
    assert in_use() is None
    monkeypatch.delitem(sys.modules, "torch")
    assert in_use() is None


def test_a_backend_that_does_not_say_whether_it_is_in_use(load: Callable[..., FakeTorch]) -> None:
    torch = load("brand", begun=False)
    del torch.brand.is_initialized  # type: ignore[attr-defined]
    assert in_use() is None
    torch.begun = True
    assert isinstance(in_use(), DeviceOperations)
    torch._C._accelerator_isAllocatorInitialized = lambda: refuse("no such allocator")
    operations._after_fork_in_child()
    assert in_use() is None
    torch = load("brand", accelerator=False)
    del torch.brand.is_initialized  # type: ignore[attr-defined]
    assert in_use() is None
    del torch.brand  # type: ignore[attr-defined]
    assert in_use() is None


def test_events_of_a_backend_from_outside(load: Callable[..., FakeTorch]) -> None:
    """Its own come first: it may be registered without what the generic ones call."""
    torch = begun(load, "brand")
    torch.Event = lambda **_: refuse("not linked")
    event = row_in_use("brand").new_event(0)
    event.record()
    assert event.query()
    del torch.brand.Event  # type: ignore[attr-defined]
    operations._after_fork_in_child()
    with pytest.raises(RuntimeError, match="not linked"):
        row_in_use("brand").new_event(0)


def test_mps_in_a_forked_child_is_not_asked(load: Callable[..., FakeTorch]) -> None:
    torch = begun(load, "mps")
    torch._C._mps_is_in_bad_fork = lambda: True
    assert in_use() is None
    torch._C._mps_is_in_bad_fork = lambda: False
    assert in_use() is not None


@pytest.mark.parametrize("wrong", [types.SimpleNamespace(), types.ModuleType("torch"), object()])
def test_a_torch_that_does_not_answer(monkeypatch: pytest.MonkeyPatch, wrong: Any) -> None:
    monkeypatch.setitem(sys.modules, "torch", wrong)
    found = in_use()
    assert isinstance(found, str)
    assert found.startswith("PyTorch does not answer (AttributeError: ")
    assert {each.device_type: each.is_in_use for each in present()} == dict.fromkeys(KINDS, False)
    assert all(len(reasons) == 1 and None not in reasons for reasons in reasons_by_kind().values())


def test_a_torch_that_raises(load: Callable[..., FakeTorch]) -> None:
    torch = begun(load, "xpu")
    torch.failing["device_count"] = RuntimeError("lost")
    (xpu,) = [each for each in present() if each.device_type == "xpu"]
    assert (xpu.is_in_use, xpu.count) == (False, None)
    assert set(dict(xpu.operations).values()) == {"PyTorch does not answer (RuntimeError: lost)"}

    def no_name() -> str:
        raise RuntimeError("no name")

    torch._C._get_privateuse1_backend_name = no_name
    assert [each.device_type for each in present()] == list(KINDS)


# ---- the operations ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS_OF_TORCH)
@pytest.mark.parametrize("accelerator", [True, False])
def test_operations(load: Callable[..., FakeTorch], kind: str, accelerator: bool) -> None:
    torch = begun(load, kind, accelerator=accelerator)
    row = row_in_use(kind)
    torch.launch(5)
    begin, end = row.new_event(0), row.new_event(0)
    begin.record()
    torch.launch(7)
    end.record()
    assert not end.query()
    row.synchronize(0)
    assert (torch.now, begin.elapsed_time(end)) == (12, 7)
    torch.allocate(200)
    torch.allocate(-250)
    has_peak = kind != "mps"
    assert row.memory(0) == (50, 300 if has_peak else -1)
    assert (row.count(), row.current_index()) == (1, 0)
    assert row.memory_free_total(0) == ((950, 1000) if has_peak else (850, 1000))
    if has_peak:
        assert row.memory_peak is None
        row.memory_reset_peak(0)
        assert row.memory(0) == (50, 50)
    else:
        assert row.memory_peak == row.memory_reset_peak == "PyTorch's mps does not keep the most bytes allocated"


def test_the_devices_of_several(load: Callable[..., FakeTorch]) -> None:
    torch = begun(load, "xpu", devices=3)
    torch.allocate(7, device=2)
    row = row_in_use("xpu")
    assert [each.count for each in present() if each.device_type == "xpu"] == [3]
    assert row.memory(2) == (7, 7)
    assert row.memory(1) == (0, 0), "nothing was allocated yet"
    assert row.current_stream(1) is torch.stream(1)


def test_memory_from_the_interface_that_is_there(load: Callable[..., FakeTorch]) -> None:
    torch = begun(load, "xpu")
    torch.xpu.memory_stats_as_nested_dict = torch._nested
    assert row_in_use("xpu").memory(0) == (100, 100)
    torch._C._xpu_memoryStats = torch._nested
    assert row_in_use("xpu").memory(0) == (100, 100)
    torch = begun(load, "cuda")
    del torch._C._cuda_memoryStats
    assert row_in_use("cuda").memory(0) == (100, 100)
    torch = begun(load, "npu")
    del torch.npu.max_memory_allocated  # type: ignore[attr-defined]
    row = row_in_use("npu")
    assert row.memory(0) == (100, 100)
    torch.begun = False
    assert row.memory(0) == (0, 0)


def test_a_backend_that_can_do_nothing(load: Callable[..., FakeTorch]) -> None:
    torch = begun(load, "brand", accelerator=False)
    torch.brand = types.SimpleNamespace(  # type: ignore[attr-defined]
        is_initialized=lambda: True, device_count=lambda: 2, Event=None, synchronize=lambda _: None
    )
    row = row_in_use("brand")
    assert [row.why_not(name) for name in OPERATIONS[1:]] == [
        "PyTorch's brand has no events",
        "PyTorch's brand does not tell what it has allocated",
        "PyTorch's brand does not tell what it has allocated",
        "PyTorch's brand cannot reset the most bytes",
        "PyTorch's brand cannot tell how much memory is free",
    ]
    assert row.current_index == "PyTorch's brand cannot name the current device"
    torch = begun(load, "mps", accelerator=False)
    del torch.mps.event
    assert row_in_use("mps").new_event == "PyTorch's mps has no events"


# ---- processes, and the real torch ---------------------------------------------------------------


def test_the_child_of_a_fork_looks_anew(load: Callable[..., FakeTorch]) -> None:
    """H5: what its parent used is not there."""
    torch = begun(load, "cuda")
    assert in_use() is not None
    child = os.fork()
    if child == 0:
        torch.begun = False
        os._exit(int(in_use() is not None or torch.log != []))
    assert os.waitpid(child, 0)[1] == 0
    assert in_use() is not None
    operations._after_fork_in_child()
    torch.begun = False
    assert in_use() is None


REAL = """
from cprofiling.devices import memory as device_memory, operations as device_table, in_use as devices
assert devices.gpu_place((torch.nn.Linear(2, 2), torch.zeros(2)), None) is None
assert devices.gpu_place((), devices.checked_stream(7)) == (-1, 7)
assert device_memory.memory_at_entry((), True) is None
assert device_memory.memory_reason() == "PyTorch uses no device in this process"
for row in device_table.present():
    print(row.device_type, row.is_in_use, row.count)
assert not torch.cuda.is_initialized()
assert not torch.xpu.is_initialized()
"""


# A backend from outside has a module, but none of the parts of a torch that is built with it.
REAL_BACKEND = """
from cprofiling.devices import events as device_events, memory as device_memory
from cprofiling.devices import in_use as devices, operations as device_table
from fakes.fake_torch import FakeTorch
torch.utils.rename_privateuse1_backend("brand")
assert device_table.in_use() is None
fake = FakeTorch("brand")
torch._register_device_module("brand", fake.brand)
fake.begun = False
assert device_table.in_use() is None and fake.log == []
fake.begun = True
fake.allocate(40)
told = []
mark = devices.gpu_place((torch.zeros(1),))
fake.launch(3)
mark.end(lambda *answer: told.append(answer))
fake.advance(3)
device_events.poll()
assert told == [(3, None)], (told, device_events.reason())
assert device_memory.memory_at_entry((), True) == (0, 40, 40)
print(device_table.present()[-1])
"""


NAMES = {
    "": "Event accelerator",
    "_C": "_has_mps _mps_is_in_bad_fork _get_privateuse1_backend_name _accelerator_isAllocatorInitialized "
    "_accelerator_getDeviceStats",
    "accelerator": "current_accelerator current_device_index current_stream synchronize reset_peak_memory_stats "
    "get_memory_info",
    "backends.mps": "is_available",
    "cuda": "is_initialized device_count current_device current_stream synchronize is_current_stream_capturing Event "
    "mem_get_info reset_peak_memory_stats memory_stats_as_nested_dict memory_allocated max_memory_allocated Stream",
    "mps": "current_allocated_memory driver_allocated_memory recommended_max_memory synchronize",
    "mps.event": "Event",
    "version": "cuda hip",
    "xpu": "is_initialized _is_compiled device_count current_device current_stream synchronize Event mem_get_info "
    "is_current_stream_capturing reset_peak_memory_stats memory_stats_as_nested_dict",
}


# What is not there is taken for an ability that is wanting, so that a wrong name would not be seen.
REAL_NAMES = f"""
from operator import attrgetter
for owner, names in {NAMES}.items():
    for name in names.split():
        assert hasattr(attrgetter(owner)(torch) if owner else torch, name), (owner, name)
"""
BEGINNING = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
import torch
if torch.version.cuda or torch.version.hip or torch.accelerator.is_available():
    print("has a device")
    sys.exit()
"""


def with_real_torch(script: str) -> list[str]:
    """The lines that a script prints in a process of its own."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    done = run_python(BEGINNING + script)
    assert (done.returncode, done.stderr) == (0, "")
    if done.stdout == "has a device\n":
        pytest.skip("this torch may have a device")
    return done.stdout.splitlines()


def test_the_real_torch_without_a_device() -> None:
    lines = with_real_torch(REAL + REAL_NAMES)
    assert lines == [f"{kind} False None" for kind in KINDS]


@pytest.mark.slow
def test_the_real_torch_with_a_backend_from_outside() -> None:
    (line,) = with_real_torch(REAL_BACKEND)
    assert line.startswith("DevicePresence(device_type='brand', is_in_use=True, count=1, ")
