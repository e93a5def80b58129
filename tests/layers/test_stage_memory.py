"""The memory of stages on virtual devices, and on the host."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from cprofiling.layers.memory import MemoryReader
from fakes.fake_torch import FakeTorch, forget_devices, torch_loader

pytestmark = [pytest.mark.native, pytest.mark.forks]

MS = 1_000_000


@pytest.fixture(autouse=True)
def without_frameworks(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_devices(monkeypatch)


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeTorch]:
    return torch_loader(monkeypatch, in_use=True)


@pytest.fixture
def reader() -> MemoryReader:
    return MemoryReader()


def test_a_host_is_asked_once_in_a_millisecond(reader: MemoryReader) -> None:
    first = reader.read(5 * MS)
    assert first is not None
    assert 0 < first.allocated == first.reserved <= first.peak_allocated == first.peak_reserved
    assert reader.read(6 * MS - 1) is first
    assert reader.read(6 * MS) is not first
    assert reader.read_anew() is not reader.read_anew()


@pytest.mark.parametrize("kind", ["cuda", "rocm", "xpu", "npu", "mps"])
def test_a_device_in_use_is_asked_each_time(use: Callable[..., FakeTorch], reader: MemoryReader, kind: str) -> None:
    torch = use(kind)
    torch.allocate(99)
    assert reader.read(5) == (100, 100, 100, 100)
    torch.allocate(50)
    torch.allocate(-50)
    peak = 100 if kind == "mps" else 150  # where nobody keeps one, what is in use is the most that is known
    assert reader.read(6) == reader.read_anew() == (100, 100, peak, peak)
    assert torch.violations == []


def test_what_a_framework_reserves(use: Callable[..., FakeTorch], reader: MemoryReader, monkeypatch: Any) -> None:
    torch = use("cuda")
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _index: 512, raising=False)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda _index: 1024, raising=False)
    assert reader.read(5) == (1, 512, 1, 1024)


def test_a_device_is_found_when_it_comes_into_use(use: Callable[..., FakeTorch], reader: MemoryReader) -> None:
    assert not reader.uses_device(5 * MS)
    torch = use("cuda")
    assert not reader.uses_device(6 * MS - 1), "it is not looked for all the time"
    assert reader.uses_device(6 * MS)
    assert reader.uses_device(0)
    torch.allocate(7)
    assert reader.read(6 * MS) == (8, 8, 8, 8)
    reader.forget()
    assert reader.host is None
    assert reader._row is None


def test_a_peak_that_cannot_be_counted_anew(use: Callable[..., FakeTorch], reader: MemoryReader) -> None:
    assert reader.begin_peak() is None, "no device is in use"
    use("mps").allocate(5)
    assert reader.uses_device(5)
    assert reader.begin_peak() is None


def test_a_fork_knows_nothing_of_the_device(use: Callable[..., FakeTorch], reader: MemoryReader) -> None:
    use("cuda")
    assert reader.uses_device(5)
    child = os.fork()
    if child == 0:
        os._exit(0 if reader._row is None else 1)
    assert os.waitpid(child, 0)[1] == 0
