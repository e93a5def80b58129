"""Inputs made up from signatures: types, values, strides, devices, containers."""

from __future__ import annotations

import logging
import math
import random
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from cprofiling.layers.harness.mock_inputs import MockInputs, make_inputs
from cprofiling.layers.signatures import Capture, StageIOSignature

# PyTorch and what it uses warn of deprecations of their own.
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch")


@pytest.fixture(scope="module")
def numpy() -> Any:
    return pytest.importorskip("numpy")


def described(shape: list[int], dtype: str, device: str = "cpu", **more: Any) -> dict[str, Any]:
    return {"shape": shape, "dtype": dtype, "device": device, "requires_grad": False, **more}


def made(inputs: dict[str, Any], types: dict[str, str] | None = None, **options: Any) -> MockInputs:
    return make_inputs(StageIOSignature("stage", inputs, types=types or {}), **options)


def one(value: Any, kind: str | None = None, **options: Any) -> Any:
    return made({"x": value}, {} if kind is None else {"/x": kind}, **options)["x"]


def captured(**values: Any) -> StageIOSignature:
    inputs, types = Capture(lambda **_: None).inputs((), values)
    return StageIOSignature("stage", inputs, types=types)


DTYPES = [
    "float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
    "float8_e8m0fnu", "float4_e2m1fn_x2", "complex64", "complex128", "complex32", "bool", "uint8", "int8", "int16",
    "int32", "int64", "uint16", "uint32", "uint64",
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_of_all_types(torch: Any, dtype: str) -> None:
    tensor = one(described([5, 4], dtype))
    assert (tuple(tensor.shape), tensor.dtype, tensor.device.type) == ((5, 4), getattr(torch, dtype), "cpu")
    if dtype == "float4_e2m1fn_x2":
        return
    values = tensor.to(torch.complex128 if dtype.startswith("complex") else torch.float64)
    assert bool(torch.isfinite(torch.view_as_real(values) if values.is_complex() else values).all())
    if "float" in dtype or "complex" in dtype:
        assert len(set(values.flatten().tolist())) > 3
    else:
        assert set(values.flatten().tolist()) == {0.0, 1.0}


def test_two_runs_are_alike_and_the_users_random_numbers_are_as_before(torch: Any, numpy: Any) -> None:
    inputs = {"a": described([3, 3], "float32"), "b": described([9], "int64"), "c": described([4], "float64", "numpy")}
    states = random.getstate(), torch.get_rng_state(), numpy.random.get_state()[1].copy()
    first, second, other = made(inputs), made(inputs), made(inputs, seed=1)
    assert all((first[name] == second[name]).all() for name in inputs)
    assert not all((first[name] == other[name]).all() for name in inputs)
    assert random.getstate() == states[0]
    assert torch.equal(torch.get_rng_state(), states[1])
    assert (numpy.random.get_state()[1] == states[2]).all()


def test_values_in_ranges(torch: Any) -> None:
    inputs = {
        "tokens": described([2000], "int64"),
        "scale": described([2000], "float16"),
        "batch": {"a/b": [described([500], "int32"), described([500], "int32")]},
        "bytes": described([5000], "uint8"),
        "between": described([200], "int64"),
    }
    ranges = {"tokens": (5, 9), "scale": (-1, 1.5), "batch": (0, 3), "/batch/a~1b/1": [7, 8], "bytes": (0, 256)}
    found = made(inputs, value_ranges={**ranges, "between": (-0.5, 2.5)})
    assert set(found["between"].tolist()) == {0, 1, 2}
    assert set(found["tokens"].tolist()) == {5, 6, 7, 8}
    assert -1 <= float(found["scale"].min()) < -0.9
    assert 1.4 < float(found["scale"].max()) <= 1.5
    assert set(found["batch"]["a/b"][0].tolist()) == {0, 1, 2}
    assert set(found["batch"]["a/b"][1].tolist()) == {7}
    assert (int(found["bytes"].min()), int(found["bytes"].max())) == (0, 255)


@pytest.mark.parametrize(
    ("ranges", "error", "message"),
    [
        (3, TypeError, "value_ranges must be a mapping, got 3"),
        ({3: (0, 1)}, TypeError, "value_ranges must have names of parameters as keys, got 3"),
        ({"y": (0, 1)}, ValueError, r"value_ranges must be for inputs of the stage \('x'\), got 'y'"),
        ({"x": 5}, TypeError, r"value_ranges\['x'\] must be a pair of numbers, got 5"),
        ({"x": (0, 1, 2)}, TypeError, "must be a pair of numbers"),
        ({"x": (0, "1")}, TypeError, "must be a pair of numbers"),
        ({"x": (False, 1)}, TypeError, "must be a pair of numbers"),
        ({"x": (1, 1)}, ValueError, "must be finite and rise"),
        ({"x": (0, math.inf)}, ValueError, "must be finite and rise"),
        ({"x": (0, 300)}, ValueError, "its values are from 0 to 255, not from 0 to 299"),
        ({"x": (0.2, 0.8)}, ValueError, r"no integer within \(0.2, 0.8\)"),
        ({"/x": (-1, 1)}, ValueError, "input /x: no such tensor can be made here .*its values are from 0 to 255"),
    ],
)
def test_wrong_ranges_are_named(torch: Any, ranges: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        one(described([1], "uint8"), value_ranges=ranges)


def test_a_range_for_nothing_that_is_made_is_named(torch: Any) -> None:
    inputs = {"x": described([1], "int64"), "y": 3, "batch": {"tokens": described([1], "int64")}}
    for ranges, place in (({"y": (0, 1)}, "/y"), ({"x": (0, 5), "/batch/token": (0, 1)}, "/batch/token")):
        with pytest.raises(ValueError, match=f"value_ranges must be for tensors or arrays .* none is at {place}$"):
            made(inputs, value_ranges=ranges)
    with pytest.raises(ValueError, match="none is at /x"):
        made(inputs, value_ranges={"x": (0, 5)}, given={"x": 1})


def test_ranges_beyond_what_is_drawn_from(torch: Any, numpy: Any) -> None:
    for device in ("cpu", "numpy"):
        for dtype, limits in (("float16", (0, 1e5)), ("float64", (-1e308, 1e308)), ("float32", (1e39, 1.1e39))):
            with pytest.raises(ValueError, match="its values, and the distance of the limits, are at most "):
                one(described([1], dtype, device), value_ranges={"x": limits})
    with pytest.raises(ValueError, match="values from 9223372036854775807 on cannot be drawn"):
        one(described([1], "uint64"), value_ranges={"x": (0, 2**64)})
    assert int(one(described([1], "uint64"), value_ranges={"x": (2**63 - 2, 2**63 - 1)})) == 2**63 - 2


@pytest.mark.parametrize(
    ("shape", "stride"),
    [
        ([2, 3], [3, 1]),
        ([2, 3], [1, 2]),  # transposed
        ([4, 3], [0, 1]),  # expanded
        ([2, 3], [6, 2]),  # every second
        ([1, 3], [99, 1]),  # where there is one, its step means nothing
        ([3, 3], [1, 1]),  # overlapping
        ([], []),
        ([0, 3], [3, 1]),
        ([2, 3, 4, 5], [60, 1, 15, 3]),  # channels last
    ],
)
@pytest.mark.parametrize("device", ["cpu", "numpy"])
def test_strides_are_kept(torch: Any, numpy: Any, shape: list[int], stride: list[int], device: str) -> None:
    value = one(described(shape, "float32", device, stride=stride))
    steps = [step // 4 for step in value.strides] if device == "numpy" else list(value.stride())
    assert list(value.shape) == shape
    if 0 not in shape:
        assert [s for s, n in zip(steps, shape, strict=True) if n > 1] == [
            s for s, n in zip(stride, shape, strict=True) if n > 1
        ]


@pytest.mark.parametrize("stride", [[-3, 1], [2**40, 1], None, []])
def test_strides_that_make_no_sense_are_left_out_and_gradients_kept(torch: Any, stride: Any) -> None:
    tensor = described([2, 3], "float32", stride=stride)
    assert one(tensor).stride() == (3, 1)
    assert [one({**tensor, "requires_grad": each}).requires_grad for each in (True, False)] == [True, False]


def test_what_was_captured_can_be_made_again(torch: Any, numpy: Any) -> None:
    tensor, array = torch.zeros(2, 3).t(), numpy.zeros((2, 2), "uint8")
    signature = captured(
        x=(tensor, [array, {"a": True}]), s={1, 2}, m={3: "three", "t": tensor}, f=-math.inf, n=None, dt=torch.float16,
        de=torch.device("cpu"), text="words", c=complex, pair=Pair(1, tensor), many={4.5, None},
    )  # fmt: skip
    found = make_inputs(signature)
    assert isinstance(found["x"], tuple)
    assert found["x"][0].stride() == (1, 3)
    assert found["x"][1][0].dtype == array.dtype
    assert found["x"][1][1] == {"a": True}
    assert (found["s"], found["f"], found["n"], found["text"]) == ({1, 2}, -math.inf, None, "words")
    assert found["m"][3] == "three"
    assert found["m"]["t"].shape == tensor.shape
    assert (found["dt"], found["de"]) == (torch.float16, torch.device("cpu"))
    assert found["pair"][0] == 1
    assert found["many"] == {4.5, None}
    assert (found["c"], found.unknown) == (None, {"c": "type"})


class Pair(tuple[Any, ...]):
    """A named tuple."""

    _fields = ("a", "b")
    __slots__ = ()

    def __new__(cls, *values: Any) -> Any:
        return super().__new__(cls, values)


def test_containers_by_their_words() -> None:
    inputs = {
        "data": {"a": 1, "b": [2]},
        "set": [{"a": 1}],
        "dict": [[[1], 2], [3, 4]],
        "tuple": [1, [2, "Thing"]],
        "a/b~": "Thing",
        "deep": "list",
    }
    types = {
        "/data": "dataclass mod.Name", "/data/b": "tuple", "/set": "set", "/dict": "dict", "/tuple": "namedtuple m.T",
        "/tuple/1/1": "other", "/a~1b~0": "other", "/deep": "truncated",
    }  # fmt: skip
    found = made(inputs, types)
    assert found["data"] == SimpleNamespace(a=1, b=(2,))
    assert found["set"] == [{"a": 1}]
    assert found["dict"] == {"[1]": 2, 3: 4}
    assert found["tuple"] == (1, [2, None])
    assert found.unknown == {"/tuple/1/1": "Thing", "a/b~": "Thing", "deep": "list"}


def test_what_only_the_type_is_known_of_is_none_and_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "cprofiling"):
        assert one("Gene\nrator", "other") is None
    assert [record.getMessage() for record in caplog.records] == [
        "[Harness] Input /x: only its type is known, Gene\\nrator; None stands in for it"
    ]
    found = made({"x": "Generator", "y": 1}, {"/x": "other"}, given={"x": 5, "z": 6})
    assert (found, found.unknown) == ({"x": 5, "y": 1, "z": 6}, {})


def test_what_a_run_changes_the_next_one_has_again(torch: Any) -> None:
    inputs: dict[str, Any] = {
        "list": [1, [2]],
        "dict": {"a": [3]},
        "data": {"b": [4]},
        "x": described([2], "float32"),
        "own": 0,
    }
    inputs["x"]["requires_grad"] = True
    own = [5]
    found = made(inputs, {"/data": "dataclass m.D", "/list/1": "tuple"}, given={"own": own})
    for _ in range(2):
        run = found.for_a_run()
        assert run == found
        assert (run.unknown, run["own"] is own, run["x"] is found["x"]) == ({}, True, True)
        assert run["x"].grad is None
        run["list"].clear()
        del run["dict"]["a"][0]
        run["data"].b = 6
        run["x"].sum().backward()
        del run["x"]


# --- devices --------------------------------------------------------------------------------------


def test_a_device_that_is_not_here_is_replaced_and_said_once(torch: Any, caplog: pytest.LogCaptureFixture) -> None:
    missing = "xpu:7" if not hasattr(torch, "xpu") or not torch.xpu.is_available() else "hpu:7"
    inputs = {"a": described([2], "float32", missing), "b": described([2], "float32", missing), "d": missing}
    found = made(inputs, {"/d": "device"})
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
    assert found["a"].device.type == found["b"].device.type == found["d"].type == accelerator.type
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1
    assert lines[0].startswith(f"[Harness] Device {missing} is not here (")
    assert lines[0].endswith(f"; {found['d']} stands in for it")


def test_an_accelerator_stands_in_for_another(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    there = SimpleNamespace(
        is_available=lambda: True,
        current_accelerator=lambda: torch.device("meta"),
        current_device_index=lambda: 0,
    )
    monkeypatch.setattr(torch, "accelerator", there)
    assert one("xpu:9", "device") == torch.device("meta", 0)
    monkeypatch.setattr(torch, "accelerator", None)
    assert one("nonsense", "device") == torch.device("cpu")
    monkeypatch.setattr(torch.xpu, "is_available", lambda: True)
    assert one("xpu:9", "device") == torch.device("xpu", 0)


def test_a_device_may_be_named_for_what_was_on_an_accelerator(torch: Any) -> None:
    inputs = {
        "a": described([2], "float32", "cuda:3"),
        "b": described([2], "int8"),
        "c": described([1], "bool", "meta"),
    }
    found = made(inputs, device="meta")
    assert [found[name].device.type for name in "abc"] == ["meta", "cpu", "meta"]
    for device in ("nonsense", "cuda:99"):
        with pytest.raises(ValueError, match=f"device must be one that is here, got '{device}'"):
            made(inputs, device=device)


@pytest.mark.parametrize("dtype", ["float31", "nn", "", "FloatTensor", "qint8"])
def test_types_that_there_are_not_are_named(torch: Any, dtype: str) -> None:
    with pytest.raises(ValueError, match=r"input /x: no such tensor can be made here"):
        one(described([2], dtype))
    if dtype != "qint8":
        with pytest.raises(ValueError, match="input /x: this PyTorch has no dtype"):
            one(dtype, "dtype")


def test_a_tensor_larger_than_the_machine_is_refused() -> None:
    with pytest.raises(MemoryError, match=r"input /x: float32 \[1099511627776\] takes 4194304 MiB, and this"):
        one(described([2**40], "float32"))


# --- NumPy ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype",
    ["float64", "float16", ">f4", "int8", "uint64", ">i4", "bool", "complex64", "<U5", "datetime64[s]", "object"],
)
def test_arrays_of_all_types(numpy: Any, dtype: str) -> None:
    array = one(described([40], dtype, "numpy"))
    assert array.dtype == numpy.dtype(dtype)
    assert array.shape == (40,)
    assert one(described([0, 2**40], dtype, "numpy")).shape == (0, 2**40), "it needs no memory"
    if array.dtype.kind in "iub":
        assert set(array.tolist()) == {0, 1}
    elif array.dtype.kind in "fc":
        assert len(set(array.tolist())) == 40
    elif dtype == "object":
        assert set(array.tolist()) == {None}


def test_arrays_in_ranges(numpy: Any) -> None:
    assert set(one(described([200], "int16", "numpy"), value_ranges={"x": (4, 6)}).tolist()) == {4, 5}
    values = one(described([200], "float32", "numpy"), value_ranges={"x": (4, 6)})
    assert (values.min() >= 4, values.max() < 6.001) == (True, True)
    with pytest.raises(ValueError, match=r"input /x: no such tensor can be made here \(int8 \[2\] on numpy\)"):
        one(described([2], "int8", "numpy"), value_ranges={"x": (0, 400)})
    for dtype in ("bfloat16", "('f4', 3", "f4,,"):
        with pytest.raises(ValueError, match="input /x: no such tensor can be made here"):
            one(described([2], dtype, "numpy"))


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, device in (("torch", "cpu"), ("numpy", "numpy")):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(ImportError, match=f"the signature has values of {name}, which is not installed: pip in"):
            one(described([1], "float32", device))
