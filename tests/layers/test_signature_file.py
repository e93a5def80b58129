"""Reading files of signatures, ours and telefuser's, and refusing damaged ones (failure scenarios F3, I9, I10)."""

from __future__ import annotations

import copy
import gzip
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import cprofiling
from cprofiling import FormatError
from cprofiling.layers.harness import signature_file
from cprofiling.layers.harness.signature_file import checked_signature, load_signatures
from cprofiling.layers.signatures import Capture, StageIOSignature, signature_of_output

SCHEMA = Path(cprofiling.__file__).parent / "schemas" / "io_signature.schema.json"
STRANGE = 'a.b["c"]\n\ud800/~'


def tensor(*shape: int, **more: Any) -> dict[str, Any]:
    steps = [math.prod(shape[place + 1 :]) for place in range(len(shape))]
    return {"shape": list(shape), "dtype": "float32", "device": "cpu", "stride": steps, "requires_grad": False, **more}


def whole() -> dict[str, Any]:
    """A file that has something of everything."""
    return {
        "schema_version": 1,
        "request_id": "req",
        "timestamp": "2026-01-02T03:04:05+00:00",
        "stages": {
            STRANGE: {
                "stage_name": STRANGE,
                "input_signatures": {
                    "latents": tensor(1, 4, 8, 8),
                    "pair": [tensor(2, device="numpy", dtype="<U7"), {"a/b": 1.5}],
                    "when": "nan",
                    "kind": "bfloat16",
                    "where": "cuda:0",
                    "table": [[1, "one"], [2, tensor(0)]],
                    "point": {"x": 1, "shape": [1], "dtype": "f", "device": "d"},
                    "row": [1, 2],
                    "several": [3],
                    "helper": "Generator",
                    "deep": "list",
                    "nothing": None,
                    "a~b": [True],
                },
                "output_signature": None, "output": [tensor(3), {"x": "Thing"}],
                "metadata": {"when": "nan"},
                "types": {
                    "/pair": "tuple", "/when": "float", "/kind": "dtype", "/where": "device", "/table": "dict",
                    "/point": "dataclass mod.Point", "/row": "namedtuple mod.Row", "/several": "set",
                    "/helper": "other", "/deep": "truncated", "/a~0b": "tuple",
                },
            },
            "": {"stage_name": "", "input_signatures": {}},
        },
    }  # fmt: skip


TELEFUSER = {
    "request_id": "",
    "timestamp": "2026-01-02T03:04:05+00:00",
    "stages": {
        "dit_denoise": {
            "stage_name": "dit_denoise",
            "input_signatures": {
                "latents": {"shape": [1, 16], "dtype": "bfloat16", "device": "cuda:0", "requires_grad": False},
                "embeds": [{"shape": [77, 8], "dtype": "bfloat16", "device": "cuda:0", "requires_grad": False}],
                "generator": "Generator",
                "prompts": "list[str]",
                "boundary": "NoneType",
                "prompt": "Cat",
                "sampler": "euler a",
                "steps": 30,
                "reference": None,
            },
            "output_signature": {"shape": [1, 16], "dtype": "bfloat16", "device": "cuda:0", "requires_grad": False},
            "metadata": {"prompt": "Cat", "steps": 30},
        }
    },
}


@pytest.fixture
def file(tmp_path: Path) -> Callable[[Any], Path]:
    path = tmp_path / "sig\nnature.json"

    def write(content: Any) -> Path:
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return write


File = Callable[[Any], Path]


def fault(file: File, content: Any) -> str:
    """What is said of a file, after its path."""
    path = file(content)
    with pytest.raises(FormatError) as error:
        load_signatures(path)
    shown = str(path).replace("\n", "\\n")
    assert str(error.value).startswith(f"{shown}: ")
    return str(error.value).removeprefix(f"{shown}: ")


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """The file with something else in the stage without a name."""
    content = copy.deepcopy(whole())
    content["stages"] = {"s": {"stage_name": "s", "input_signatures": {"x": tensor(2, 3)}, "types": {}}}
    change(content["stages"]["s"])
    return content


def with_input(value: Any, kind: str | None = None, pointer: str = "/x") -> dict[str, Any]:
    types = {} if kind is None else {pointer: kind}
    return changed(lambda stage: stage.update(input_signatures={"x": value}, types=types))


def test_a_file_is_read_as_it_is(file: File) -> None:
    content = whole()
    found = load_signatures(file(content))
    assert list(found) == [STRANGE, ""]
    assert found[STRANGE].to_dict() == content["stages"][STRANGE]
    assert found[""] == StageIOSignature("", {})
    assert load_signatures(str(file('{"stages": {}}'))) == {}


def test_what_was_read_cannot_be_changed(file: File) -> None:
    signature = load_signatures(file(whole()))[STRANGE]
    with pytest.raises(TypeError):
        signature.input_signatures["latents"] = None  # type: ignore[index]
    with pytest.raises(AttributeError):
        signature.stage_name = "other"  # type: ignore[misc]


def test_what_layers_capture_can_be_read_and_is_as_the_schema_says(file: File) -> None:
    validate = schema_validator()

    def function(self: object, latents: Any, *others: Any, scale: float, **more: Any) -> None: ...

    inputs, types = Capture(function).inputs(
        (object(), (1, 2.5), {3: b""}, {4}), {"scale": math.inf, "x/y~": [None, True], "z": complex}
    )
    signature = StageIOSignature("stage", inputs, signature_of_output({"a": (1,)}), {}, types)
    content = {"schema_version": 1, "request_id": "", "timestamp": "", "stages": {"stage": signature.to_dict()}}
    validate(content)
    assert load_signatures(file(content))["stage"] == signature
    assert checked_signature("io_signature", signature) == signature
    assert checked_signature("io_signature", signature.to_dict()) == signature


def test_files_of_telefuser_are_read(file: File) -> None:
    signature = load_signatures(file(TELEFUSER))["dit_denoise"]
    assert dict(signature.types) == dict.fromkeys(("/generator", "/prompts", "/boundary"), "other")
    assert signature.input_signatures["latents"] == TELEFUSER["stages"]["dit_denoise"]["output_signature"]  # type: ignore[index]

    class Theirs:
        def to_dict(self) -> Mapping[str, Any]:
            stages: Any = TELEFUSER["stages"]
            found: dict[str, Any] = stages["dit_denoise"]
            return found

    assert checked_signature("io_signature", Theirs()) == signature
    assert checked_signature("io_signature", Theirs().to_dict()).types == {}


def schema_validator() -> Callable[[Any], None]:
    """What raises an error where a content is not as the published schema says."""
    import jsonschema

    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validate: Callable[[Any], None] = jsonschema.Draft202012Validator(schema).validate
    return validate


def test_the_schema_says_what_files_have() -> None:
    validate = schema_validator()
    contents: list[Any] = [whole(), TELEFUSER, {"stages": {}}]
    for content in contents:
        validate(content)


# What the schema refuses, too.
REFUSED: list[tuple[Any, str]] = [
    ([], "$: must be an object, got [] (list)"),
    ({}, "$.stages: it is missing"),
    ({**whole(), "schema_version": 2}, "$.schema_version: this version of cprofiling reads version 1, got 2 (int)"),
    ({**whole(), "schema_version": "1"}, "reads version 1"),
    ({**whole(), "schema_version": True}, "reads version 1, got True (bool)"),
    ({**whole(), "timestamp": 1}, "$.timestamp: must be a text, got 1 (int)"),
    ({**whole(), "stages": []}, "$.stages: must be an object"),
    ({"stages": {"a b": 1}}, '$.stages["a b"]: must be an object, got 1 (int)'),
    ({**whole(), "stages": {"s": {"stage_name": "s"}}}, "s.input_signatures: it is missing"),
    ({**whole(), "stages": {"s": {"input_signatures": {}}}}, "s.stage_name: it is missing"),
    (changed(lambda stage: stage.update(stage_name=3)), "stage_name: must be a text"),
    (changed(lambda stage: stage.update(metadata=[])), "metadata: must be an object"),
    (with_input(tensor(2, shape="2")), "x.shape: must be a list"),
    (with_input(tensor(2, shape=[2, True])), "$.stages.s.input_signatures.x.shape[1]: must be a whole number from"),
    (with_input(tensor(2, shape=[2, -3])), ".x.shape[1]: must be a whole number from 0 to 1099511627776, got -3"),
    (with_input(tensor(2, shape=[2.5])), "must be a whole number"),
    (with_input(tensor(2, shape=[2**63])), "must be a whole number"),
    (with_input(tensor(2, shape=[1] * 65)), "x.shape: must have at most 64 items, got 65"),
    (with_input(tensor(2, dtype="")), "x.dtype: must have 1 to 1000 characters, got 0"),
    (with_input(tensor(2, dtype=None)), "x.dtype: must be a text"),
    (with_input(tensor(2, device="x" * 1001)), "x.device: must have 1 to 1000 characters, got 1001"),
    (with_input(tensor(2, stride=1)), "x.stride: must be a list or null"),
    (with_input(tensor(2, stride=["1"])), "x.stride[0]: must be a whole number"),
    (with_input(tensor(2, stride=[-(2**62) - 1])), "x.stride[0]: must be a whole number from -4611686018427387904"),
    (with_input(tensor(2, requires_grad=1)), "x.requires_grad: must be true or false"),
    (with_input([0, {"a b": tensor(2, shape=3)}]), '.x[1]["a b"].shape: must be a list, got 3'),
    (with_input("1", "named"), "must be one of tuple, set, dtype, device, float, dict, other, truncated, data"),
    (with_input("1", "other", "x"), '.types.x: a pointer begins with "/"'),
    (with_input("1", "other", ""), '.types[""]: a pointer begins with "/"'),
]


@pytest.mark.parametrize(("content", "message"), REFUSED)
def test_the_schema_refuses_what_the_reader_refuses(file: File, content: Any, message: str) -> None:
    import jsonschema

    assert message in fault(file, content)
    with pytest.raises(jsonschema.ValidationError):
        schema_validator()(content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (with_input(tensor(2, shape=[2**20, 2**20])), "x.shape: a tensor of more than 1 TiB cannot be meant"),
        (with_input(tensor(2, shape=[2**37 + 1], dtype="complex64")), "a tensor of more than 1 TiB"),
        (with_input(tensor(2, shape=[0, 2**40, 2], dtype="bool")), "a tensor of more than 1 TiB"),
        (with_input(tensor(2, shape=[2**38], dtype="<U99999")), "a tensor of more than 1 TiB"),
        (with_input(tensor(2, stride=[1, 1])), "x.stride: it has 2 steps for 1 dimensions"),
        (with_input([1], "other"), "$.stages.s.types[\"/x\"]: 'other' (str) must stand for a text, got [1] (list)"),
        (with_input([[1]], "dict"), "must stand for a list of pairs"),
        (with_input([1], "dataclass m.N"), "must stand for an object"),
        (with_input("1e5", "float"), "must stand for nan, inf or -inf"),
        (with_input("1", "tuple"), "must stand for a list"),
        (with_input([1], "other", "/x/1"), '["/x/1"]: there is no such input'),
        (with_input(["1"], "other", "/x/01"), '["/x/01"]: there is no such input'),
        (with_input(["1"], "other", "/x/0/0"), "there is no such input"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(file: File, content: Any, message: str) -> None:
    assert message in fault(file, content)
    assert load_signatures(file(with_input(tensor(2, shape=[2**37], dtype="float64")))), "the largest"


def test_other_files_are_told(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fault(file, gzip.compress(b'{"stages": {}}')).startswith("it is a trace, and no JSON")
    assert fault(file, b'{"stages": {"a": NaN}}').startswith("$.stages.a: the number is not finite")
    text = json.dumps(whole())
    monkeypatch.setattr(signature_file, "MOST_BYTES", len(text))
    assert load_signatures(file(text))
    assert fault(file, text + " ").startswith(f"the file is larger than {len(text)} bytes")
    with pytest.raises(FormatError, match="larger than"):
        load_signatures("/dev/zero")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_signatures(tmp_path / "none.json")
    with pytest.raises(IsADirectoryError):
        load_signatures(tmp_path)
    with pytest.raises(TypeError, match="path must be a path, got 3"):
        load_signatures(3)  # type: ignore[arg-type]


def test_what_is_given_as_a_signature_is_looked_at() -> None:
    with pytest.raises(TypeError, match="io_signature must be the signature of a stage, got 1"):
        checked_signature("io_signature", 1)
    with pytest.raises(FormatError, match=r"^io_signature\.stage_name: it is missing"):
        checked_signature("io_signature", {})
    with pytest.raises(FormatError, match=r"io_signature\.input_signatures\.x\.shape"):
        checked_signature("io_signature", {"stage_name": "s", "input_signatures": {"x": tensor(1, shape=None)}})
    with pytest.raises(FormatError, match="no JSON can be made of it"):
        checked_signature("io_signature", {"stage_name": "s", "input_signatures": {"x": math.nan}})
    with pytest.raises(FormatError, match="no JSON can be made of it"):
        checked_signature("io_signature", {"stage_name": "s", "input_signatures": {"x": object()}})
