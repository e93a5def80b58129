"""Which device and stream a call uses, with objects that answer as PyTorch's do, and streams that the caller gives."""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cprofiling.devices import events, in_use, operations
from cprofiling.devices.in_use import checked_stream, gpu_place, gpu_place_at_exit
from fakes.fake_torch import FakeTorch, forget_devices, torch_loader


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
    return in_use.cuda_device_of(arguments)


# ---- the device ----------------------------------------------------------------------------------


def test_without_torch_there_is_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    assert device_of(Tensor(1), Module([Tensor(1)])) is None
    assert in_use.cuda_stream_of(0) == 0
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
    assert in_use.cuda_stream_of(1) == 101
    assert in_use.cuda_stream_of(-1) == 103


def test_a_torch_that_has_not_begun_is_not_asked(torch: types.SimpleNamespace) -> None:
    torch.cuda.is_initialized = lambda: False
    torch._C = None
    assert in_use.cuda_stream_of(1) == 0


# ---- where a call is timed -----------------------------------------------------------------------


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeTorch]:
    """Puts a torch with virtual devices in the place of the other fake."""
    forget_devices(monkeypatch)
    return torch_loader(monkeypatch, in_use=False)


def placed(*arguments: Any, stream: Any = None) -> Any:
    return gpu_place(arguments, checked_stream(stream))


def test_the_only_device_and_its_stream(use: Callable[..., FakeTorch]) -> None:
    """One question to torch in each call, once it is known."""
    torch = use("cuda")
    assert placed() == (0, 0)
    torch.use(torch.stream(0, 7))
    torch.log.clear()
    assert placed(1, [torch.tensor(0)]) == (0, 7)
    assert gpu_place_at_exit((0, 0)) == (0, 7)
    assert torch.log == ["raw_stream"] * 2


def test_the_device_of_the_call_among_several(use: Callable[..., FakeTorch]) -> None:
    torch = use("cuda", devices=4)
    torch.use(torch.stream(2, 5))
    assert placed(torch.tensor(2)) == (2, 205)
    assert placed(Module([Tensor(1)]), torch.tensor(2)) == (1, 100)
    assert placed() == (0, 0)
    torch.current = 3
    assert placed(torch.tensor(None)) == (0, 0)
    assert placed("x") == (3, 300)
    torch.use(torch.stream(1, 9))
    assert gpu_place_at_exit((1, 100)) == (1, 109), "the same device, whichever is current"


def test_a_torch_without_raw_streams(use: Callable[..., FakeTorch]) -> None:
    torch = use("cuda", devices=2)
    del torch._C._cuda_getCurrentRawStream
    torch.use(torch.stream(1, 3))
    assert placed(torch.tensor(1)) == (1, 103)


@pytest.mark.parametrize("kind", ["cuda", "rocm", "xpu", "mps", "npu", "cpu"])
def test_nothing_in_use_is_no_place(use: Callable[..., FakeTorch], kind: str) -> None:
    torch = use(kind, begun=False)
    assert placed(torch.tensor(0), 1) is None
    assert gpu_place_at_exit((0, 0)) is None
    assert torch.violations == torch.log == []
    assert placed(stream=12) == (-1, 12)
    torch.begun = True
    if kind == "cuda":
        assert placed() == (0, 0)


def test_no_torch_is_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        monkeypatch.setitem(sys.modules, "torch", None)
        assert placed(Tensor(1)) is None
        assert placed(stream=0) == (-1, 0)
        assert gpu_place_at_exit((-1, 0)) is None
        monkeypatch.delitem(sys.modules, "torch")


def test_another_torch_is_asked(use: Callable[..., FakeTorch]) -> None:
    use("cuda")
    assert placed() == (0, 0)
    torch = use("cuda", devices=2)
    torch.current = 1
    assert gpu_place_at_exit((0, 0)) is None
    assert placed() == (1, 100)


def test_a_torch_that_does_not_answer(use: Callable[..., FakeTorch], monkeypatch: pytest.MonkeyPatch) -> None:
    torch = use("cuda")
    torch.failing = {"raw_stream": RuntimeError("lost")}
    assert placed() == ("untold", "no stream was told (RuntimeError: lost)")
    assert gpu_place_at_exit((0, 0)) is None
    torch = use("cuda")
    del torch.cuda.device_count
    assert "has no attribute 'device_count'" in placed()[1]
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace())
    assert placed()[0] == "untold"
    assert placed()[1].startswith("PyTorch does not answer (AttributeError: ")
    assert placed(stream=3) == (-1, 3)


def test_what_is_not_known_of_a_device(use: Callable[..., FakeTorch]) -> None:
    for name in ("device_count", "current_device"):
        torch = use("xpu", devices=2, accelerator=False)
        delattr(torch.xpu, name)
        row = operations.in_use()
        assert isinstance(row, operations.DeviceOperations)
        assert in_use.device_index(row, (torch.tensor(1),)) == 0


def test_tensors_of_other_kinds_do_not_count(use: Callable[..., FakeTorch]) -> None:
    torch = use("xpu", devices=3)
    row = operations.in_use()
    assert isinstance(row, operations.DeviceOperations)
    assert in_use.device_index(row, (Tensor(1), FakeTorch("cuda").tensor(1), {"x": torch.tensor(2)})) == 2
    module = Module([torch.tensor(1)])
    assert [in_use.device_index(row, (module,)) for _ in range(2)] == [1, 1]
    assert device_of(module) is None
    assert in_use.device_index(row, (module,)) == 1


def test_the_child_of_a_fork_has_no_place(use: Callable[..., FakeTorch]) -> None:
    """H5: its parent's device is not asked."""
    torch = use("cuda")
    assert placed() == (0, 0)
    child = os.fork()
    if child == 0:
        torch.begun = False
        torch.log.clear()
        os._exit(int(placed() is not None or gpu_place_at_exit((0, 0)) is not None or torch.log != []))
    assert os.waitpid(child, 0)[1] == 0
    assert placed() == (0, 0)
    in_use._after_fork_in_child()
    operations._after_fork_in_child()
    torch.begun = False
    assert placed() is None


# ---- streams that the caller gives ---------------------------------------------------------------


class Protocol:
    """A stream in the way of cuda.core."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __cuda_stream__(self) -> Any:
        return self.answer


class Raises:
    """Answers no question."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")


def of(**attributes: Any) -> types.SimpleNamespace:
    return types.SimpleNamespace(**attributes)


@pytest.mark.parametrize(
    ("stream", "place"),
    [
        (0, (-1, 0)),
        (2**64 - 1, (-1, 2**64 - 1)),
        (of(cuda_stream=5), (-1, 5)),
        (of(cuda_stream=5, device_index=2), (2, 5)),
        (of(ptr=6, device_id=1), (1, 6)),
        (of(ptr=6, device_id=-1), (-1, 6)),
        (Protocol((0, 7)), (-1, 7)),
        (of(handle=8), (-1, 8)),
        (of(handle=ctypes.c_void_p(9)), (-1, 9)),
        (of(handle=ctypes.c_void_p(0)), (-1, 0)),
        (lambda: 4, (-1, 4)),
        (lambda: of(ptr=3, device_id=2), (2, 3)),
        (functools.partial(int, "11"), (-1, 11)),
        (lambda: None, None),
        (None, None),
    ],
)
def test_streams(use: Callable[..., FakeTorch], stream: Any, place: Any) -> None:
    use("cpu")
    checked = checked_stream(stream)
    assert gpu_place((), checked) == place
    assert checked_stream(checked) is checked
    assert gpu_place_at_exit((3, 0), checked) == (None if place is None else (3, place[1]))
    torch = use("cuda", devices=4)
    torch.current = 3
    device, handle = placed(stream=stream)
    if place is None:
        assert (device, handle) == (3, 300), "the current one"
    else:
        assert (device, handle) == (3 if place[0] < 0 else place[0], place[1])
        assert placed(torch.tensor(1), stream=stream)[0] == (1 if place[0] < 0 else place[0])
    assert torch.violations == []


WRONG = [
    True, 1.5, "0", b"", [], {}, object(), of(cuda_stream="x"), of(ptr=None), of(handle=of(value="x")),
    of(device="cpu"), Protocol((0, -1)), Protocol(None), Protocol(("x",)), Raises(), type("Stream", (), {}),
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: type(wrong).__name__)
def test_what_is_no_stream(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"^gpu_stream must be a stream, the handle of one \(an int >= 0\), a callable"):
        checked_stream(wrong)


@pytest.mark.parametrize("wrong", [-1, 2**64, -(10**99)])
def test_handles_that_there_are_not(wrong: int) -> None:
    with pytest.raises(ValueError, match=r"^gpu_stream must be 0 to 2\*\*64 - 1 where it is a handle, got -?\d+"):
        checked_stream(wrong)
    most: Any = checked_stream(2**64 - 1)
    assert most.handle == 2**64 - 1


@pytest.mark.parametrize("wrong", [*WRONG, -1, 2**64], ids=lambda wrong: type(wrong).__name__)
def test_a_callable_that_returns_no_stream(use: Callable[..., FakeTorch], wrong: Any) -> None:
    """The node goes on without a GPU time, and this is why."""
    for kind in ("cpu", "cuda"):
        use(kind)
        checked = checked_stream(lambda: wrong)
        cause, reason = gpu_place((), checked)  # type: ignore[misc]
        assert cause == "untold"
        assert str(reason).startswith("no stream was told (")
        assert gpu_place_at_exit((0, 0), checked) is None


def test_a_callable_that_raises(use: Callable[..., FakeTorch]) -> None:
    use("cuda")
    assert placed(stream=lambda: dict[str, int]()["gone"]) == ("untold", "no stream was told (KeyError: 'gone')")
    assert placed(stream=lambda _: 1)[1].startswith("no stream was told (TypeError: ")


def test_a_callable_is_asked_each_time(use: Callable[..., FakeTorch]) -> None:
    use("cuda")
    stream = checked_stream(iter(range(5, 9)).__next__)
    assert [gpu_place((), stream), gpu_place_at_exit((0, 5), stream), gpu_place((), stream)] == [(0, 5), (0, 6), (0, 7)]


def test_a_stream_is_kept_alive() -> None:
    class Stream:
        cuda_stream = 3

    stream = Stream()
    checked, alive = checked_stream(stream), weakref.ref(stream)
    del stream
    gc.collect()
    assert alive() is not None
    del checked
    gc.collect()
    assert alive() is None


def test_streams_of_any_kind_of_device(use: Callable[..., FakeTorch]) -> None:
    """A torch.Stream says of which kind it is; of CUDA, its handle is known to torch.cuda."""
    torch = use("cuda", devices=2)
    stream = torch.stream(1, 4)
    generic = of(stream_id=4, device_index=1, device_type=1, device=stream.device)
    assert placed(stream=generic) == (1, 104)
    not_used = ("unsupported", "gpu_stream is one of xpu, which PyTorch does not use in this process")
    other = FakeTorch("xpu").stream(0, 1)
    assert placed(stream=other) == not_used
    use("cpu")
    assert placed(stream=other) == not_used
    use("npu")
    assert placed(stream=other) == not_used
    assert placed(stream=17) == (-1, 17)
    use("rocm")
    assert placed(stream=17) == ("unsupported", "gpu_stream must be a stream of PyTorch where that uses rocm")


def test_a_stream_that_does_not_name_its_device(use: Callable[..., FakeTorch]) -> None:
    torch = use("xpu", devices=2, accelerator=False)
    stream = torch.stream(1, 4)
    stream.device_index = -1
    mark = placed(torch.tensor(1), stream=stream)
    assert mark._source.index == 1
    mark.cancel()
    events.forget()
