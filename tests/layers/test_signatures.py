"""What is captured of a stage's arguments and results (failure scenario F3 for values)."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import enum
import functools
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cprofiling import layers
from cprofiling.layers import ProfilingContext
from cprofiling.layers.harness.signature_file import load_signatures
from cprofiling.layers.signatures import Capture, StageIOSignature, signature_of_output


@dataclasses.dataclass
class Config:
    steps: int
    sizes: tuple[int, int]


class Plain(tuple[int, ...]):
    __slots__ = ()


class Pair(NamedTuple):
    left: int
    right: Any


class Text(str):
    pass


class Mode(enum.Enum):
    FAST = "fast"


class Level(enum.IntEnum):
    HIGH = 3


class Unbound:
    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise RuntimeError("it stands for nothing yet")


class Raising(dict):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        raise RuntimeError("planned")


def captured(value: Any) -> tuple[Any, dict[str, str]]:
    inputs, types = Capture(lambda x: None).inputs((value,), {})
    json.dumps(inputs, allow_nan=False)
    return inputs["x"], types


HERE = __name__


@pytest.mark.parametrize(
    ("value", "signature", "types"),
    [
        (None, None, {}),
        (True, True, {}),
        (7, 7, {}),
        (-(2**63), -(2**63), {}),
        (2**64, "int", {"/x": "other"}),
        (10**400, "int", {"/x": "other"}),
        (1.5, 1.5, {}),
        (-0.0, -0.0, {}),
        (float("nan"), "nan", {"/x": "float"}),
        (float("-inf"), "-inf", {"/x": "float"}),
        ("", "", {}),
        ("\ud800\0é", "\ud800\0é", {}),
        (Text("a"), "a", {}),
        (Level.HIGH, 3, {}),
        (Mode.FAST, "Mode", {"/x": "other"}),
        (b"ab", "bytes", {"/x": "other"}),
        (1j, "complex", {"/x": "other"}),
        (Path("a"), type(Path("a")).__name__, {"/x": "other"}),
        (len, "builtin_function_or_method", {"/x": "other"}),
        (Config, "type", {"/x": "other"}),
        ([1, "a", None], [1, "a", None], {}),
        ((1, (2,)), [1, [2]], {"/x": "tuple", "/x/1": "tuple"}),
        (Plain((1, 2)), [1, 2], {"/x": "tuple"}),
        (Pair(1, b""), [1, "bytes"], {"/x": f"namedtuple {HERE}.Pair", "/x/1": "other"}),
        ({3}, [3], {"/x": "set"}),
        (frozenset({3}), [3], {"/x": "set"}),
        ({"a/b~": (1,)}, {"a/b~": [1]}, {"/x/a~1b~0": "tuple"}),
        ({1: "a", (2,): 3}, [[1, "a"], [[2], 3]], {"/x": "dict", "/x/1/0": "tuple"}),
        (collections.OrderedDict(a=1), {"a": 1}, {}),
        ({}, {}, {}),
        (Config(4, (1, 2)), {"steps": 4, "sizes": [1, 2]}, {"/x": f"dataclass {HERE}.Config", "/x/sizes": "tuple"}),
        (Raising(a=1), "Raising", {"/x": "other"}),
    ],
)
def test_signatures_of_values(value: Any, signature: Any, types: dict[str, str]) -> None:
    assert captured(value) == (signature, types)
    assert repr(signature_of_output(value)) == repr(signature)


def test_a_mapping_that_looks_like_a_tensor_is_none() -> None:
    tensor_like = {"shape": [1], "dtype": "x", "device": "cpu", "stride": [1], "requires_grad": False}
    signature, types = captured(tensor_like)
    assert types == {"/x": "dict"}
    assert dict(signature) == tensor_like


def test_a_value_whose_class_cannot_be_asked_for() -> None:
    assert captured(Unbound()) == ("Unbound", {"/x": "other"})
    assert signature_of_output(Unbound()) == "Unbound"


def test_there_are_limits() -> None:
    many: Any
    for many in (list(range(20_000)), [None] * 20_000, (1,) * 20_000, {*range(20_000)}, dict.fromkeys(range(20_000))):
        assert captured(many) == (type(many).__name__, {"/x": "truncated"}), "a list that is cut would be another list"
    assert captured([[7] * 9_000, [8] * 9_000])[0] == [[7] * 9_000, "list"]
    nested: Any = []
    nested.append(nested)
    assert captured(nested)[1] == {"/x" + "/0" * 17: "truncated"}


def test_a_dataclass_whose_field_was_never_set() -> None:
    config = Config(1, (2, 3))
    del config.steps
    assert captured(config)[0] == {"sizes": [2, 3]}


class Stage:
    def process(self, a: int, /, b: int = 1, *more: int, c: int = 2, **others: int) -> None: ...

    def told(self, a: int) -> None: ...

    @classmethod
    def made(cls, a: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "inputs"),
    [
        (Stage.process, (None, 1), {}, {"a": 1}),
        (Stage.process, (None, 1, 2, 3, 4), {"c": 5, "d/e": 6}, {"a": 1, "b": 2, "more": [3, 4], "c": 5, "d/e": 6}),
        (Stage().process, (1,), {"b": 2}, {"a": 1, "b": 2}),
        (Stage.told, (), {"self": None, "a": 1}, {"a": 1}),
        (Stage.made.__func__, (Stage, 1), {}, {"a": 1}),  # type: ignore[attr-defined]
        (lambda: None, (1, 2), {}, {"arg0": 1, "arg1": 2}),
        (dict.fromkeys, (1,), {}, {"iterable": 1}),
        (7, (1,), {"x": 2}, {"arg0": 1, "x": 2}),
    ],
)
def test_arguments_have_the_names_of_their_parameters(function: Any, args: Any, kwargs: Any, inputs: Any) -> None:
    assert Capture(function).inputs(args, kwargs)[0] == inputs


class Owner:
    """A class whose methods call their object and class as they like."""

    @ProfilingContext("plain")
    def plain(this, x: int) -> float:
        return x / 2

    @ProfilingContext("gathering")
    def gathering(*parts: object) -> list[object]:
        return [*parts[1:]]

    @classmethod
    @ProfilingContext("of the class")
    def of_class(kind, x: int) -> None:
        pass

    @staticmethod
    @ProfilingContext("static")
    def static(x: int) -> str:
        return str(x)

    @functools.lru_cache  # noqa: B019 that of one call
    @ProfilingContext("covered")
    def covered(this, x: int) -> dict[str, int]:
        return {"shape": x}

    @ProfilingContext("coroutine")
    async def coroutine(this, x: int) -> int:
        return x

    def plain_of_another(this) -> None:
        pass


class Heir(Owner):
    """Another one with the same methods."""


def test_the_object_is_no_input_whatever_it_is_called(tmp_path: Path) -> None:
    layers.reset_timing_registry("owners")
    heir = Heir()
    assert (heir.plain(1), heir.gathering(1, 2), heir.of_class(1), heir.static(1)) == (0.5, [1, 2], None, "1")
    assert (heir.covered(1), asyncio.run(heir.coroutine(1))) == ({"shape": 1}, 1)
    found = layers.get_io_signatures()
    inputs = {name: dict(signature.input_signatures) for name, signature in found.items()}
    assert inputs.pop("gathering") == {"parts": [1, 2]}
    assert all(each == {"x": 1} for each in inputs.values())
    assert len(inputs) == 5

    layers.dump_io_signatures(tmp_path / "sig.json")
    stages = json.loads((tmp_path / "sig.json").read_text())["stages"]
    assert {each["output_signature"] for each in stages.values()} == {None}, "telefuser takes others for tensors"
    read = load_signatures(tmp_path / "sig.json")
    outputs = {name: signature.output_signature for name, signature in read.items()}
    assert outputs == {
        "plain": 0.5, "gathering": [1, 2], "of the class": None, "static": "1", "covered": [["shape", 1]],
        "coroutine": 1,
    }  # fmt: skip
    layers.reset_timing_registry()


def test_metadata_are_numbers_and_texts() -> None:
    inputs = Capture(lambda a, b, c, d, e: None).inputs((1, "x", float("inf"), [1], None), {"f/g": b""})
    signature = StageIOSignature.of_call("stage", inputs, None)
    assert signature.metadata == {"a": 1, "b": "x"}
    assert signature.to_dict() == {
        "stage_name": "stage",
        "input_signatures": {"a": 1, "b": "x", "c": "inf", "d": [1], "e": None, "f/g": "bytes"},
        "output_signature": None,
        "metadata": {"a": 1, "b": "x"},
        "types": {"/c": "float", "/f~1g": "other"},
    }


def test_numpys_arrays_and_scalars() -> None:
    numpy = pytest.importorskip("numpy")
    array = numpy.zeros((2, 3), "float16").T
    assert captured([array, numpy.float32(0.5), numpy.int8(7), numpy.bool_(True)]) == (
        [
            {"shape": [3, 2], "dtype": "float16", "device": "numpy", "stride": [1, 3], "requires_grad": False},
            0.5, 7, True,
        ],
        {},
    )  # fmt: skip
    assert captured(numpy.zeros(2, []))[0]["stride"] == [0], "elements of no size"


def test_pytorchs_tensors() -> None:
    torch = pytest.importorskip("torch")
    latents = torch.zeros(2, 3, dtype=torch.bfloat16, requires_grad=True).t()
    inputs, types = captured({"latents": latents, "dtype": torch.float16, "device": torch.device("cpu"), "size": 1})
    assert inputs["latents"] == {
        "shape": [3, 2], "dtype": "bfloat16", "device": "cpu", "stride": [1, 3], "requires_grad": True,
    }  # fmt: skip
    assert (inputs["dtype"], inputs["device"]) == ("float16", "cpu")
    assert types == {"/x/dtype": "dtype", "/x/device": "device"}
    sparse = torch.zeros(2, 2).to_sparse()
    assert captured(sparse)[0]["stride"] == []
    assert captured(torch.nn.Parameter(torch.zeros(1)))[0]["requires_grad"] is True


def test_a_module_that_only_bears_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "torch", object())
    assert captured(b"")[0] == "bytes"
