"""Which CUDA device and stream a call uses, with objects that answer as PyTorch's do."""

from __future__ import annotations

import gc
import sys
import types
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from cprofiling import devices


class Tensor:
    """On the CPU for None, else on the CUDA device of that index."""

    def __init__(self, index: int | None = None) -> None:
        self.move(index)

    def move(self, index: int | None) -> None:
        """Change the device in place, as Module.to() does with parameters."""
        self.is_cuda = index is not None
        self.device = types.SimpleNamespace(type="cuda" if self.is_cuda else "cpu", index=index)

    def __eq__(self, other: object) -> Any:
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")

    __hash__ = object.__hash__


class Module:
    """Has parameters and buffers, and counts how often it is asked."""

    def __init__(self, parameters: Any = (), buffers: Any = ()) -> None:
        self._parameters, self._buffers = list(parameters), list(buffers)
        self.asked = 0

    def parameters(self) -> Iterator[Any]:
        self.asked += 1
        yield from self._parameters

    def buffers(self) -> Iterator[Any]:
        yield from self._buffers


@pytest.fixture(autouse=True)
def torch(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """A torch in sys.modules, whose streams have the handles 100 + device."""
    fake = types.SimpleNamespace(
        cuda=types.SimpleNamespace(is_initialized=lambda: True, current_device=lambda: 3),
        _C=types.SimpleNamespace(_cuda_getCurrentRawStream=lambda device: 100 + device),
    )
    monkeypatch.setitem(sys.modules, "torch", fake)
    return fake


def device_of(*arguments: Any) -> int | None:
    return devices.cuda_device_of(arguments)


# ---- the device ----------------------------------------------------------------------------------


def test_without_torch_there_is_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    assert device_of(Tensor(1), Module([Tensor(1)])) is None
    assert devices.cuda_stream_of(0) == 0
    assert "torch" not in sys.modules


@pytest.mark.parametrize(
    "arguments",
    [(), (1,), (None, "x"), (Tensor(),), (Module(),), (Module([Tensor()], [Tensor()]),), ([], {}, ((), [[]]))],
)
def test_calls_without_a_device(arguments: tuple[Any, ...]) -> None:
    assert device_of(*arguments) is None


@pytest.mark.parametrize(
    ("arguments", "index"),
    [
        ((Module([Tensor(1)]),), 1),
        ((Module([], [Tensor(2)]),), 2),
        ((Module([Tensor(), Tensor(1)]),), 1),
        ((Module([Tensor()], [Tensor(2)]),), 2),
        ((Module([Tensor(1), Tensor(0)], [Tensor(2)]), Tensor(5)), 1),
        ((Module([Tensor()]), Tensor(5)), 5),
        ((Module(), 1, Tensor(0)), 0),
        ((1, Module([Tensor(1)]), Tensor(4)), 4),
        ((Tensor(), Tensor(3), Tensor(1)), 3),
        (([Tensor(2)],), 2),
        (({"a": [1, (Tensor(), {"b": Tensor(6)})]},), 6),
        ((object(), {"x": Tensor(0)}), 0),
    ],
)
def test_parameters_before_buffers_before_tensor_arguments(arguments: tuple[Any, ...], index: int) -> None:
    assert device_of(*arguments) == index


def test_a_device_without_an_index_is_the_first() -> None:
    tensor = Tensor(1)
    tensor.device.index = None
    assert device_of(tensor) == 0


def test_what_only_looks_like_a_module() -> None:
    assert device_of(types.SimpleNamespace(parameters={}, buffers=lambda: iter(()))) is None
    assert device_of(types.SimpleNamespace(parameters=lambda: iter(())), Tensor(2)) == 2
    assert device_of(types.SimpleNamespace(is_cuda="yes", device=5)) is None


def test_a_walk_through_the_arguments_ends() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    assert device_of(cycle) is None
    assert device_of([0] * 1_000_000) is None
    assert device_of([0] * 10, Tensor(1)) == 1


# ---- what is remembered --------------------------------------------------------------------------


def test_a_module_that_is_moved_in_place_is_on_its_new_device() -> None:
    module = Module([Tensor(0), Tensor(0)])
    for index in (0, 1, None, 2, 2):
        for parameter in module._parameters:
            parameter.move(index)
        assert device_of(module) == index


def test_a_module_with_new_parameters_is_on_their_device() -> None:
    module = Module([Tensor(0)])
    for index in (0, 1, None, 2):
        module._parameters = [Tensor(index)]
        assert device_of(module) == index
    module._parameters = []
    assert device_of(module) is None


def test_modules_do_not_share_what_is_remembered() -> None:
    class Equal(Module):
        def __eq__(self, other: object) -> bool:
            return isinstance(other, Equal)

        def __hash__(self) -> int:
            return 1

    modules = [Equal([Tensor(index)]) for index in range(5)]
    for _ in range(3):
        assert [device_of(module) for module in modules] == [0, 1, 2, 3, 4]


def test_modules_that_cannot_be_remembered() -> None:
    class Unhashable(Module):
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            return self is other

    class Slotted:
        __slots__ = ()

        def parameters(self) -> list[Any]:
            return [Tensor(1)]

        def buffers(self) -> list[Any]:
            return []

    for module in (Unhashable([Tensor(1)]), Slotted()):
        for _ in range(3):
            assert device_of(module) == 1


def test_nothing_is_kept_alive() -> None:
    """Neither the module, nor the memory of a parameter that it does not have any more."""
    module = Module([Tensor(0)])
    assert device_of(module) == 0
    parameter = weakref.ref(module._parameters[0])
    module._parameters = [Tensor(1)]
    gc.collect()
    assert parameter() is None
    reference = weakref.ref(module)
    del module
    gc.collect()
    assert reference() is None


# ---- the stream ----------------------------------------------------------------------------------


def test_the_stream_is_torchs_current_one() -> None:
    assert devices.cuda_stream_of(1) == 101
    assert devices.cuda_stream_of(-1) == 103


def test_a_torch_that_has_not_begun_is_not_asked(torch: types.SimpleNamespace) -> None:
    torch.cuda.is_initialized = lambda: False
    torch._C = None
    assert devices.cuda_stream_of(1) == 0
