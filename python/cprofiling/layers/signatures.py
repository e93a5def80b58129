"""Signatures of the calls of stages.

A signature is made of plain lists, dicts and values, so that it can be written as JSON; it keeps nothing alive. Where a
value is not what plain JSON says, ``types`` has a word for it, by its JSON pointer (RFC 6901) into the inputs.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import re
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Encoder = Callable[["_Encoding", Any, str, int], Any]
    Inputs = tuple[dict[str, Any], dict[str, str]]  # signatures by parameter, and words by place

SCHEMA_VERSION = 1
NUMPY = "numpy"  # the device of an array that is NumPy's
TENSOR_KEYS = ("shape", "dtype", "device", "stride", "requires_grad")

_DEEPEST = 16
_MOST_VALUES = 10_000  # of one call
_INT_BITS = 64
_OWN_PARAMETERS = (["self"], ["cls"])

NO_INPUTS: Inputs = ({}, {})


def is_tensor(value: Any) -> bool:
    """Tell whether a value of a signature describes a tensor."""
    return type(value) is dict and set(TENSOR_KEYS[:3]) <= value.keys() <= set(TENSOR_KEYS)


@dataclasses.dataclass(frozen=True)
class StageIOSignature:
    """Signature of one call of a stage.

    Attributes:
        stage_name: The stage's name.
        input_signatures: What it was given, by parameter: a tensor's description (see ``TENSOR_KEYS``), a number, text
            or None, lists and dicts of these, or the name of another type.
        output_signature: Its result, in the same form.
        metadata: The numbers and texts among the inputs.
        types: Words for values that are not what JSON says: "tuple", "set", "namedtuple module.Name",
            "dataclass module.Name", "dict" (a mapping as a list of pairs), "dtype" and "device" (of PyTorch), "float"
            (nan, inf or -inf), "other" (the text is a type's name), "truncated" (deeper, or more, than is looked at).
    """

    stage_name: str
    input_signatures: Mapping[str, Any]
    output_signature: Any = None
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    types: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def of_call(cls, name: str, inputs: Inputs, output: Any) -> StageIOSignature:
        """Return the signature of a call with captured inputs and output."""
        given, types = inputs
        metadata = {
            name: value
            for name, value in given.items()
            if isinstance(value, (str, int, float)) and (not types or "/" + escaped(name) not in types)
        }
        return cls(name, given, output, metadata, types)

    def to_dict(self) -> dict[str, Any]:
        """Return the signature as files have it."""
        output = self.output_signature
        made: dict[str, Any] = {
            "stage_name": self.stage_name,
            "input_signatures": dict(self.input_signatures),
            "output_signature": output if is_tensor(output) else None,
            "metadata": dict(self.metadata),
        }
        if made["output_signature"] is not output:  # telefuser takes any output for a tensor's
            made["output"] = output
        if self.types:
            made["types"] = dict(self.types)
        return made


class Capture:
    """Makes the signatures of a function's calls."""

    __slots__ = ("_function", "_gathers", "_names", "measured")

    def __init__(self, function: Callable[..., Any]) -> None:
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):
            parameters = []
        places = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
        self._names = [each.name for each in places]
        self._gathers = next((each.name for each in parameters if each.kind is each.VAR_POSITIONAL), None)
        self._function = getattr(function, "__name__", "")
        self.measured: Callable[..., Any] | None = None  # what takes the function's place

    def inputs(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Inputs:
        """Return the signatures of arguments, and words for their types."""
        encoding = _Encoding()
        made = {}
        names = self._names
        if names[:1] in _OWN_PARAMETERS or (args and self._is_method_of(args[0])):  # an object or class is no input
            names, args = names[1:], args[1:]
        for name, value in zip(names, args, strict=False):
            made[name] = encoding.of(value, f"/{name}", 0)
        others = args[len(names) :]
        if others and self._gathers is not None:
            made[self._gathers] = encoding.of(list(others), "/" + self._gathers, 0)
        else:
            for place, value in enumerate(others, len(names)):
                made[f"arg{place}"] = encoding.of(value, f"/arg{place}", 0)
        for name, value in kwargs.items():
            if [name] not in _OWN_PARAMETERS:
                made[name] = encoding.of(value, "/" + escaped(name), 0)
        return made, encoding.types

    def _is_method_of(self, value: Any) -> bool:
        """Tell whether the function is a method of a value or class."""
        for base in (value if issubclass(type(value), type) else type(value)).__mro__:
            found = base.__dict__.get(self._function)
            if found is not None:
                found = getattr(found, "__func__", found)
                return inspect.unwrap(found, stop=lambda each: each is self.measured) is self.measured
        return False


def signature_of_output(value: Any) -> Any:
    """Return the signature of a stage's result."""
    return _Encoding().of(value, "", 0)


def escaped(name: str) -> str:
    """Return a name as a part of a JSON pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1") if "~" in name or "/" in name else name


def unescaped(part: str) -> str:
    """Return the name that a part of a JSON pointer stands for."""
    return part.replace("~1", "/").replace("~0", "~")


def element_size(dtype: str) -> int:
    """Return the bytes of an element, by the number in its type's name.

    It is 1 without a number, and 16 for a number too long to be one of bits.
    """
    bits = re.search(r"[0-9]+", dtype)
    if bits is None:
        return 1
    return max(int(bits[0]) // 8, 1) if len(bits[0]) <= 3 else 16


class _Encoding:
    """Encoder of one call's signature."""

    __slots__ = ("left", "types")

    def __init__(self) -> None:
        self.left = _MOST_VALUES
        self.types: dict[str, str] = {}

    def of(self, value: Any, where: str, depth: int) -> Any:
        """Return the signature of a value at a place."""
        kind = type(value)
        if value is None or kind is bool or kind is str:
            return value
        self.left -= 1
        if depth > _DEEPEST or self.left < 0:
            return self._named(value, where, "truncated")
        try:
            encode = _BY_TYPE.get(kind) or _encoder_for(value)
            return encode(self, value, where, depth)
        except Exception:  # noqa: BLE001 code of the value's class; its name is always known
            return self._named(value, where, "other")

    def _named(self, value: Any, where: str, word: str) -> str:
        self.types[where] = word
        return type(value).__name__

    def number(self, value: Any, where: str, _depth: int) -> Any:
        return int(value) if value.bit_length() <= _INT_BITS else self._named(value, where, "other")

    def real(self, value: Any, where: str, _depth: int) -> Any:
        if math.isfinite(value):
            return float(value)
        self.types[where] = "float"
        return repr(float(value))

    def text(self, value: Any, _where: str, _depth: int) -> str:
        return str.__str__(value)

    def other(self, value: Any, where: str, _depth: int) -> str:
        return self._named(value, where, "other")

    def list_(self, value: Any, where: str, depth: int) -> Any:
        if len(value) > self.left:
            return self._named(value, where, "truncated")
        return [self.of(item, f"{where}/{place}", depth + 1) for place, item in enumerate(value)]

    def tuple_(self, value: Any, where: str, depth: int) -> Any:
        kind = type(value)
        self.types[where] = "tuple" if not hasattr(kind, "_fields") else f"namedtuple {_full_name(kind)}"
        return self.list_(value, where, depth)

    def set_(self, value: Any, where: str, depth: int) -> Any:
        self.types[where] = "set"
        return self.list_(value, where, depth)

    def mapping(self, value: Any, where: str, depth: int) -> Any:
        if len(value) > self.left:
            return self._named(value, where, "truncated")
        keys = list(value)
        # telefuser takes an input with a "shape" for a tensor.
        if all(type(key) is str for key in keys) and not {*TENSOR_KEYS} <= {*keys} and (depth or "shape" not in keys):
            return {key: self.of(value[key], f"{where}/{escaped(key)}", depth + 1) for key in keys}
        self.types[where] = "dict"
        return [
            [
                self.of(key, f"{where}/{place}/0", depth + 1),
                self.of(value[key], f"{where}/{place}/1", depth + 1),
            ]
            for place, key in enumerate(keys)
        ]

    def dataclass_(self, value: Any, where: str, depth: int) -> dict[str, Any]:
        self.types[where] = f"dataclass {_full_name(type(value))}"
        return {
            field.name: self.of(getattr(value, field.name), f"{where}/{field.name}", depth + 1)
            for field in dataclasses.fields(value)
            if hasattr(value, field.name)
        }

    def array(self, value: Any, _where: str, _depth: int) -> dict[str, Any]:
        size = max(value.itemsize, 1)
        return {
            "shape": list(value.shape),
            "dtype": str(value.dtype),
            "device": NUMPY,
            "stride": [step // size for step in value.strides],
            "requires_grad": False,
        }

    def scalar(self, value: Any, where: str, depth: int) -> Any:
        return self.of(value.item(), where, depth + 1)

    def tensor(self, value: Any, _where: str, _depth: int) -> dict[str, Any]:
        return {
            "shape": [int(size) for size in value.shape],
            "dtype": _text_of(value.dtype),
            "device": _text_of(value.device),
            "stride": list(map(int, value.stride())) if _text_of(value.layout) == "strided" else [],
            "requires_grad": bool(value.requires_grad),
        }

    def dtype(self, value: Any, where: str, _depth: int) -> str:
        self.types[where] = "dtype"
        return _text_of(value)

    def device(self, value: Any, where: str, _depth: int) -> str:
        self.types[where] = "device"
        return _text_of(value)


@functools.lru_cache(maxsize=256)
def _text_of(value: Any) -> str:
    """Return the text of a dtype, device or layout of PyTorch."""
    return str(value).removeprefix("torch.")


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


_BY_TYPE: dict[type, Encoder] = {
    str: _Encoding.text,
    int: _Encoding.number,
    float: _Encoding.real,
    list: _Encoding.list_,
    tuple: _Encoding.tuple_,
    set: _Encoding.set_,
    frozenset: _Encoding.set_,
    dict: _Encoding.mapping,
}


def _encoder_for(value: Any) -> Encoder:
    """Return what encodes a value that is of none of Python's own types."""
    for module, kinds in _BY_CLASS:
        loaded = sys.modules.get(module)
        if loaded is not None:
            for name, encode in kinds:
                kind = getattr(loaded, name, None)  # missing while half imported, or in another module of the name
                if isinstance(kind, type) and isinstance(value, kind):
                    return encode
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _Encoding.dataclass_
    return next((_BY_TYPE[base] for base in _SUBCLASSED if isinstance(value, base)), _Encoding.other)


_BY_CLASS: tuple[tuple[str, tuple[tuple[str, Encoder], ...]], ...] = (
    ("torch", (("Tensor", _Encoding.tensor), ("dtype", _Encoding.dtype), ("device", _Encoding.device))),
    (NUMPY, (("ndarray", _Encoding.array), ("number", _Encoding.scalar), ("bool_", _Encoding.scalar))),
)
_SUBCLASSED: tuple[type, ...] = (str, int, float, list, tuple, set, frozenset, dict)
