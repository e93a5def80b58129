"""Files of signatures (``timing_io_signature.json``), read and checked.

A file may be anybody's, so that all of it is checked. Its schema, for other programs, is
``cprofiling/schemas/io_signature.schema.json``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cprofiling._core import FormatError
from cprofiling._internal import arguments
from cprofiling._internal.json_input import Fault, parsed, place_of, read_json, schema, shown
from cprofiling._internal.text import shown_text, shown_value
from cprofiling.layers.signatures import SCHEMA_VERSION, StageIOSignature, element_size, escaped, is_tensor, unescaped

if TYPE_CHECKING:
    from _typeshed import StrOrBytesPath

MOST_BYTES = 64 << 20  # of a file
MOST_TENSOR_BYTES = 1 << 40
KINDS = ("tuple", "set", "dtype", "device", "float", "dict", "other", "truncated")
NAMED_KINDS = ("dataclass ", "namedtuple ")

_PLACE = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
# In a file without "types": names of types, which stand for unknown values.
_TYPE_NAME = re.compile(
    r"list\[\w+\]|[A-Z]\w*|_\w+|bytes|bytearray|dict|device|dtype|function|generator|method|ndarray|object|partial"
    r"|range|set|frozenset|slice|type"
)


def load_signatures(path: StrOrBytesPath) -> dict[str, StageIOSignature]:
    """Read a file of signatures, by the names of its stages.

    The file is one of this package or of telefuser. Telefuser's have no ``stride``, ``schema_version`` and ``types``;
    a text in them that looks like a type's name stands for an unknown value.

    Raises:
        TypeError: ``path`` is no path.
        ValueError: It is empty, or has a NUL.
        OSError: The file cannot be read.
        FormatError: It is damaged, larger than 64 MiB, compressed, of another schema version, or says what cannot be
            meant, such as a tensor of more than 2^40 bytes; the message names the path and the place in the file.
    """
    name = arguments.path("path", path)
    data = read_json(name, MOST_BYTES)
    try:
        root = _expected(data, "$", dict, "an object")
        has_types = "schema_version" in root
        version = root.get("schema_version")
        if has_types and (type(version) is not int or version != SCHEMA_VERSION):
            told = f"this version of cprofiling reads version {SCHEMA_VERSION}, got {shown(version)}"
            raise Fault("$.schema_version", told)
        for key in ("request_id", "timestamp"):
            _member(root, "$", key, str, "")
        stages = _member(root, "$", "stages", dict)
        return {key: _stage(stage, place_of("$.stages", key), has_types=has_types) for key, stage in stages.items()}
    except Fault as fault:
        raise FormatError(f"{shown_text('path', name)}: {fault}") from None


def checked_signature(parameter: str, value: Any) -> StageIOSignature:
    """Return a signature from one, its dict, or an object with ``to_dict()``.

    Raises TypeError for anything else, FormatError, naming the parameter, for one that makes no sense.
    """
    to_dict = getattr(value, "to_dict", None)
    data = to_dict() if callable(to_dict) else value
    if not isinstance(data, dict):
        raise TypeError(f"{parameter} must be the signature of a stage, got {shown_value(value)}")
    try:
        text = json.dumps(data, allow_nan=False)
        return _stage(parsed(text.encode()), parameter, has_types=isinstance(value, (dict, StageIOSignature)))
    except Fault as fault:
        raise FormatError(str(fault)) from None
    except (TypeError, ValueError, RecursionError) as error:
        raise FormatError(f"{parameter}: no JSON can be made of it: {error}") from None


def _stage(data: Any, where: str, *, has_types: bool) -> StageIOSignature:
    stage = _expected(data, where, dict, "an object")
    name = _member(stage, where, "stage_name", str)
    inputs_at = f"{where}.input_signatures"
    inputs = _member(stage, where, "input_signatures", dict)
    types = _member(stage, where, "types", dict, {})
    metadata = _member(stage, where, "metadata", dict, {})
    for key, value in inputs.items():
        _check_value(value, place_of(inputs_at, key), f"/{escaped(key)}", types)
    for key in ("output_signature", "output"):
        _check_value(stage.get(key), f"{where}.{key}", "", {})
    for pointer, kind in types.items():
        _check_type(inputs, pointer, kind, place_of(f"{where}.types", pointer))
    if not has_types and not types:
        types = {
            f"/{escaped(key)}": "other"
            for key, value in inputs.items()
            if type(value) is str and key not in metadata and _TYPE_NAME.fullmatch(value)
        }
    return StageIOSignature(
        stage_name=name,
        input_signatures=MappingProxyType(inputs),
        output_signature=stage.get("output", stage.get("output_signature")),
        metadata=MappingProxyType(metadata),
        types=MappingProxyType(types),
    )


def _expected(value: Any, where: str, kind: type, noun: str) -> Any:
    if type(value) is not kind:
        raise Fault(where, f"must be {noun}, got {shown(value)}")
    return value


def _member(value: dict[str, Any], where: str, key: str, kind: type, default: Any = None) -> Any:
    """Return a member of an object, which is needed unless there is a default."""
    if key not in value and default is None:
        raise Fault(place_of(where, key), "it is missing")
    return _expected(value.get(key, default), f"{where}.{key}", kind, "an object" if kind is dict else "a text")


def _check_value(value: Any, where: str, pointer: str, types: Mapping[str, Any]) -> None:
    if is_tensor(value) and pointer not in types:  # else a dataclass with fields of these names
        schema("io_signature").check(value, where, "tensor")
        size = element_size(value["dtype"])
        for length in value["shape"]:
            size *= max(length, 1)  # an empty tensor must not have an impossible size either
        if size > MOST_TENSOR_BYTES:
            raise Fault(f"{where}.shape", f"a tensor of more than {MOST_TENSOR_BYTES >> 40} TiB cannot be meant")
        stride = value.get("stride")
        if stride and len(stride) != len(value["shape"]):  # none: the elements are not laid out in strides
            raise Fault(f"{where}.stride", f"it has {len(stride)} steps for {len(value['shape'])} dimensions")
    elif type(value) is dict:
        for key, each in value.items():
            _check_value(each, place_of(where, key), f"{pointer}/{escaped(key)}", types)
    elif type(value) is list:
        for place, each in enumerate(value):
            _check_value(each, f"{where}[{place}]", f"{pointer}/{place}", types)


def _check_type(inputs: dict[str, Any], pointer: str, kind: Any, where: str) -> None:
    word = _expected(kind, where, str, "a text")
    first, *keys = pointer.split("/")
    if first or not keys:
        raise Fault(where, 'a pointer begins with "/"')
    value: Any = inputs
    for key in map(unescaped, keys):
        if type(value) is dict and key in value:
            value = value[key]
        elif type(value) is list and _PLACE.fullmatch(key) and int(key) < len(value):
            value = value[int(key)]
        else:
            raise Fault(where, "there is no such input")
    if word not in KINDS and not word.startswith(NAMED_KINDS):
        known = ", ".join((*KINDS, *map(str.strip, NAMED_KINDS)))
        raise Fault(where, f"must be one of {known}, got {shown(word)}")
    noun, is_right = _FITS[word.partition(" ")[0]]
    if not is_right(value):
        raise Fault(where, f"{shown(word)} must stand for {noun}, got {shown(value)}")


def _of(kind: type) -> Callable[[Any], bool]:
    return lambda value: type(value) is kind


_FITS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("tuple", "set", "namedtuple"), ("a list", _of(list))),
    **dict.fromkeys(("dtype", "device", "other", "truncated"), ("a text", _of(str))),
    "dict": (
        "a list of pairs",
        lambda value: type(value) is list and all(type(pair) is list and len(pair) == 2 for pair in value),
    ),
    "dataclass": ("an object", _of(dict)),
    "float": ("nan, inf or -inf", lambda value: value in ("nan", "inf", "-inf")),
}
