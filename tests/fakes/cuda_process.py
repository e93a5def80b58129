"""For scripts in a process of their own: the controls of the fake driver and CUPTI, and a torch on its devices.

The driver is the library that FAKE_LIBCUDA or CPROFILING_LIBCUDA names, CUPTI that of CPROFILING_LIBCUPTI. They are
loaded at the first use.
"""

from __future__ import annotations

import ctypes
import os
import sys
import types
from typing import Any

import cprofiling as cp

MS = 1_000_000

# The letters of a control's result and arguments; of others, all are int.
_DRIVER_TYPES = {
    "now": "q",
    "advance": "vq",
    "launch": "vQq",
    "launch_default": "viq",
    "new_stream": "Qii",
    "begin_capture": "vQ",
    "end_capture": "iQ",
    "destroy_stream": "vQ",
    "fail": "vsiQ",
    "calls": "Qs",
    "total_calls": "Q",
    "log": "sQ",
    "violations": "Q",
    "violation": "sQ",
    "open_pushes": "q",
    "open_events": "q",
    "set_memory": "viqq",
    "profiler_log": "iQ",
}
_CUPTI_TYPES = {
    "now": "q", "stamp": "Qq", "correlation": "q", "enter": "iiiq", "leave": "iiiq", "kernel": "vsQQiiq",
    "copy": "viiiQQQq", "fill": "viQQQq", "peer_copy": "vQQQq", "calls": "Qs", "total_calls": "Q", "violations": "Q",
    "violation": "s", "fail": "vsiQ", "hold": "vi", "set_version": "vQ", "open_buffers": "q", "reset": "v",
    "wants_call": "iii", "drop": "vQ", "launch": "qsq", "upload": "qQq",
}  # fmt: skip
_KINDS: dict[str, Any] = {
    "q": ctypes.c_int64,
    "Q": ctypes.c_uint64,
    "i": ctypes.c_int,
    "s": ctypes.c_char_p,
    "v": None,
}


class FakeLibrary:
    """The controls of a fake library, without their prefix."""

    def __init__(self, prefix: str, types: dict[str, str], *variables: str) -> None:
        self._prefix, self._types, self._variables = prefix, types, variables

    def __getattr__(self, name: str) -> Any:
        path = next(os.environ[variable] for variable in self._variables if os.environ.get(variable))
        function = ctypes.CDLL(path)[f"{self._prefix}{name}"]
        if name in self._types:
            function.restype, *function.argtypes = [_KINDS[letter] for letter in self._types[name]]
        setattr(self, name, function)
        return function


class FakeDriver(FakeLibrary):
    """That of tests/fakes/fake_cuda.h."""

    def names_called(self) -> list[str]:
        """The calls since the reset, in order."""
        return [self.log(index).decode() for index in range(self.total_calls())]

    def broken_rules(self) -> list[bytes]:
        """What was done that must not be."""
        return [self.violation(index) for index in range(self.violations())]


fake = FakeDriver("fake_", _DRIVER_TYPES, "FAKE_LIBCUDA", "CPROFILING_LIBCUDA")
cupti = FakeLibrary("fake_cupti_", _CUPTI_TYPES, "CPROFILING_LIBCUPTI")


class Tensor:
    """Lies on a device, or on none."""

    def __init__(self, index: int | None = None) -> None:
        self.is_cuda = index is not None
        self.device = types.SimpleNamespace(type="cuda", index=index)


class Stream:
    """A stream of PyTorch: an object with a handle."""

    def __init__(self, handle: int, device: int = 0) -> None:
        self.cuda_stream, self.device_index = handle, device


class FakeTorch(types.ModuleType):
    """As much of PyTorch as is asked for where CUDA is in use."""

    def __init__(self, devices: int) -> None:
        super().__init__("torch")
        self.streams = dict.fromkeys(range(devices), 0)  # in use on each device
        self.version = types.SimpleNamespace(cuda="13.0", hip=None)
        self.cuda = types.SimpleNamespace(
            is_initialized=lambda: True,
            device_count=lambda: devices,
            current_device=lambda: max(fake.current_device(), 0),
            current_stream=lambda device: Stream(self.streams[device], device),
        )
        self._C = types.SimpleNamespace(_cuda_getCurrentRawStream=self.streams.__getitem__)


def use_torch(devices: int = 2) -> FakeTorch:
    """Reset the driver; have its devices in use, with a stream each, device 0 bound to this thread."""
    fake.reset()
    fake.set_device_count(devices)
    torch = FakeTorch(devices)
    for index in range(devices):
        fake.activate(index)
        torch.streams[index] = fake.new_stream(index, 0)
    fake.bind(0)
    sys.modules["torch"] = torch
    return torch


def stats(name: str = "node", of: Any = cp) -> cp.NodeProfilingStats:
    """The statistics of a node."""
    summary: cp.ProfilingSummary = of.get_profiling_summary()
    return next(each for each in summary if each.node_name == name)


def finish(**counts: int) -> None:
    """Check that nothing forbidden was done to the driver, and how often each node was counted."""
    assert fake.broken_rules() == []
    assert fake.open_pushes() == fake.capture_mode() == 0
    summary = cp.get_profiling_summary()
    assert {each.node_name: each.count for each in summary} == counts, summary
    assert summary.internal_errors == 0
