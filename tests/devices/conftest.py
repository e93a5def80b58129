"""Processes of their own for devices: nothing is known of them, and a pretended torch may be loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from cprofiling.devices import events, wait
from fakes.fake_torch import FakeTorch, forget_devices, torch_loader


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Be as in a process in which no framework was loaded, before the test and after it."""
    forget_devices(monkeypatch)
    for forget in (events.forget, wait.forget):
        forget()
    yield
    for forget in (events.forget, wait.forget):
        forget()


@pytest.fixture
def libcuda(libraries: dict[str, str]) -> str:
    """Return the path of the fake driver."""
    return libraries["CPROFILING_LIBCUDA"]


@pytest.fixture
def use(forgotten: None, monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeTorch]:
    """Load a torch whose device is in use."""
    return torch_loader(monkeypatch, in_use=True)


@pytest.fixture
def load(forgotten: None, monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeTorch]:
    """Load a torch whose device has nothing in its memory yet."""
    return torch_loader(monkeypatch, in_use=False)
