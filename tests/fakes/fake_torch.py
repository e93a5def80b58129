"""A torch with virtual devices of one kind, a virtual clock, and a log of the calls that reach a device.

Every queue works on what it was given one piece after the other. Time passes by ``advance`` only. A call that would be
the first to use a device is noted in ``violations``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from cprofiling.devices import in_use as devices
from cprofiling.devices import memory, operations

MODULE_OF = {"rocm": "cuda"}


class FakeStream:
    """A queue of a device. Those of CUDA have a handle: 100 times the device's index, and the stream's id."""

    def __init__(self, torch: FakeTorch, device: int, stream_id: int, kind: str) -> None:
        self.stream_id, self.device_index, self.device_type = stream_id, device, 1
        self.device = SimpleNamespace(type=kind, index=device)
        self.busy_until = 0.0
        if kind == "cuda":
            self.cuda_stream = 100 * device + stream_id


class FakeTensor:
    """Lies on a device."""

    def __init__(self, kind: str, index: int | None = 0) -> None:
        self.is_cuda = kind == "cuda"
        self.device = SimpleNamespace(type=kind, index=index)


class FakeTorch:
    """A torch that was built for one kind of device: "cuda", "rocm", "xpu", "mps", "cpu", or a backend's own name."""

    def __init__(self, kind: str = "cpu", devices: int = 1, *, begun: bool = True, accelerator: bool = True) -> None:
        self.now = 0.0
        self.log: list[str] = []
        self.violations: list[str] = []
        self.failing: dict[str, Exception] = {}  # what a call raises, by its name in the log
        self.begun, self.capturing = begun, False
        self.kind, self.tensor_kind, self.devices = kind, MODULE_OF.get(kind, kind), devices
        self.current = 0
        self.bytes = [[0, 0] for _ in range(devices)]  # allocated, and the most, of each device
        self._streams: dict[tuple[int, int], FakeStream] = {}
        self._current_streams = [self.stream(index) for index in range(devices)]
        self.events = 0
        self._build(accelerator)

    # ---- what a test does

    def stream(self, device: int = 0, stream_id: int = 0) -> FakeStream:
        """The stream of that name."""
        key = (device, stream_id)
        if key not in self._streams:
            self._streams[key] = FakeStream(self, device, stream_id, self.tensor_kind)
        return self._streams[key]

    def use(self, stream: FakeStream) -> None:
        """Make it the current stream of its device."""
        self._current_streams[stream.device_index] = stream

    def launch(self, ms: float, stream: FakeStream | None = None) -> None:
        """Give work to a stream, or (None) to the current one of the current device."""
        stream = stream or self._current_streams[self.current]
        stream.busy_until = max(self.now, stream.busy_until) + ms

    def advance(self, ms: float) -> None:
        """Let time pass."""
        self.now += ms

    def allocate(self, size: int, device: int = 0) -> None:
        """Take memory; give it back when ``size`` is negative."""
        figures = self.bytes[device]
        figures[0] += size
        figures[1] = max(figures)

    def tensor(self, index: int | None = 0) -> FakeTensor:
        """A tensor on a device."""
        return FakeTensor(self.tensor_kind, index)

    def calls(self, name: str) -> int:
        """How often something was called."""
        return self.log.count(name)

    # ---- what stands in for torch

    def _call(self, name: str) -> None:
        """Note a call that reaches a device."""
        self.log.append(name)
        if not self.begun:
            self.violations.append(name)
        if name in self.failing:
            raise self.failing[name]

    def _build(self, accelerator: bool) -> None:
        is_cuda = self.kind == "cuda"
        self.version = SimpleNamespace(cuda="13.0" if is_cuda else None, hip="7.0" if self.kind == "rocm" else None)
        unused = {"is_initialized": lambda: False, "_is_compiled": lambda: False}
        self.cuda: Any = SimpleNamespace(**unused)
        self.xpu: Any = SimpleNamespace(**unused)
        self.backends = SimpleNamespace(mps=SimpleNamespace(is_available=lambda: self.kind == "mps"))
        self._C: Any = SimpleNamespace(_has_mps=self.kind == "mps", _get_privateuse1_backend_name=self._backend_name)
        if self.kind == "mps":
            self.mps = self._mps()
        elif self.kind != "cpu":
            setattr(self, self.tensor_kind, self._module())
        if self.tensor_kind == "cuda":
            self._C._cuda_getCurrentRawStream = self._raw_stream
            self._C._cuda_memoryStats = self._nested
        if accelerator:
            self._build_accelerator()

    def _build_accelerator(self) -> None:
        """The interface that is the same for all kinds."""
        device = None if self.kind == "cpu" else SimpleNamespace(type=self.tensor_kind)
        self.accelerator: Any = SimpleNamespace(
            current_accelerator=lambda: device,
            current_device_index=self._current_device,
            current_stream=self._current_stream,
            device_count=self._device_count,
            synchronize=self._synchronize,
        )
        self.Event = self._event
        self._C._accelerator_isAllocatorInitialized = lambda: self.begun
        self._C._accelerator_getDeviceStats = self._nested

    def _backend_name(self) -> str:
        is_outside = self.kind not in ("cpu", "cuda", "rocm", "xpu", "mps")
        return self.kind if is_outside else "privateuseone"

    def _module(self) -> SimpleNamespace:
        return SimpleNamespace(
            is_initialized=lambda: self.begun,
            _is_compiled=lambda: True,
            device_count=self._device_count,
            current_device=self._current_device,
            current_stream=self._current_stream,
            synchronize=self._synchronize,
            is_current_stream_capturing=self._is_capturing,
            mem_get_info=self._free_total,
            reset_peak_memory_stats=self._reset,
            memory_allocated=lambda index: self._allocated(index, 0),
            max_memory_allocated=lambda index: self._allocated(index, 1),
            Event=self._event,
            Stream=lambda stream_id, device_index, device_type: self.stream(device_index, stream_id),
        )

    def _mps(self) -> SimpleNamespace:
        return SimpleNamespace(
            current_allocated_memory=lambda: self.bytes[0][0],
            driver_allocated_memory=lambda: 3 * self.bytes[0][0],
            recommended_max_memory=lambda: 1000,
            synchronize=self._synchronize,
            event=SimpleNamespace(Event=self._event),
        )

    def _device_count(self) -> int:
        self._call("device_count")
        return self.devices

    def _current_device(self) -> int:
        self._call("current_device")
        return self.current

    def _current_stream(self, device: int) -> FakeStream:
        self._call("current_stream")
        return self._current_streams[device]

    def _raw_stream(self, device: int) -> int:
        self._call("raw_stream")
        return self._current_streams[device].cuda_stream

    def _is_capturing(self) -> bool:
        self._call("is_capturing")
        return self.capturing

    def _synchronize(self, device: int = 0) -> None:
        self._call("synchronize")
        self.now = max([self.now, *(each.busy_until for (on, _), each in self._streams.items() if on == device)])

    def _free_total(self, device: int) -> tuple[int, int]:
        self._call("free_total")
        return 1000 - self.bytes[device][0], 1000

    def _reset(self, device: int) -> None:
        self._call("reset")
        self.bytes[device][1] = self.bytes[device][0]

    def _nested(self, device: int) -> dict[str, Any]:
        self._call("memory")
        allocated, most = self.bytes[device]
        kind = {"current": allocated, "peak": most, "allocated": most, "freed": most - allocated}
        return {"allocated_bytes": {"all": kind, "large_pool": {}}, "num_ooms": 0} if most else {}

    def _allocated(self, device: int, which: int) -> int:
        self._call("memory")
        return self.bytes[device][which]

    def _event(self, device: str | None = None, enable_timing: bool = False) -> FakeEvent:
        self._call("event")
        self.events += 1
        return FakeEvent(self, device, enable_timing)


class FakeEvent:
    """Is stamped when its stream has done what it was given before."""

    def __init__(self, torch: FakeTorch, device: str | None, enable_timing: bool) -> None:
        self.torch, self.device, self.enable_timing = torch, device, enable_timing
        self.stamp: float | None = None

    def record(self, stream: FakeStream | None = None) -> None:
        """Record on a stream; MPS has only one."""
        torch = self.torch
        torch._call("record")
        assert not torch.capturing
        assert stream is None or torch.kind != "mps"
        stream = stream or torch._current_streams[torch.current]
        assert self.device in (None, f"{torch.tensor_kind}:{stream.device_index}")
        self.stamp = max(torch.now, stream.busy_until)

    def query(self) -> bool:
        """Whether the device has passed it."""
        self.torch._call("query")
        assert not self.torch.capturing
        assert self.stamp is not None
        return self.stamp <= self.torch.now

    def elapsed_time(self, end: FakeEvent) -> float:
        """The ms between two events that the device has passed."""
        self.torch._call("elapsed")
        assert self.enable_timing
        assert self.stamp is not None
        assert end.stamp is not None
        assert max(self.stamp, end.stamp) <= self.torch.now, "this would wait"
        return end.stamp - self.stamp


def forget_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be as in a process in which no framework was loaded, and nothing is known of any device."""
    for module, name in (
        (operations, "_found"), (devices, "_cuda"), (memory, "_cupy_in_use"), (memory, "_reason"),
        (memory, "_peak_reason"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, None)
    for name in ("torch", "cupy"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def torch_loader(monkeypatch: pytest.MonkeyPatch, *, in_use: bool) -> Callable[..., FakeTorch]:
    """What loads a FakeTorch of the arguments given; ``in_use``: its device was begun to be used."""

    def load(*arguments: Any, **keywords: Any) -> FakeTorch:
        torch = FakeTorch(*arguments, **keywords)
        if in_use:
            torch.allocate(1)
        monkeypatch.setitem(sys.modules, "torch", torch)
        return torch

    return load
