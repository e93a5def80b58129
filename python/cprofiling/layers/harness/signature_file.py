"""Reading a file of signatures (``timing_io_signature.json``): what each stage was given, and gave back.

The file may be anybody's, so everything in it is looked at before it is believed. The schema of it, for other programs,
is ``cprofiling/schemas/io_signature.schema.json``.
"""

from __future__ import annotations

import json
import math
import re
from types import MappingProxyType
from typing import TYPE_CHECKING

from cprofiling._internal import arguments, files
from cprofiling.layers.signatures import SCHEMA_VERSION, StageIOSignature, is_tensor
from cprofiling.nodes.snapshot import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from _typeshed import StrOrBytesPath

MOST_BYTES = 64 << 20  # of a file
MOST_DIMENSIONS = 64
MOST_TENSOR_BYTES = 1 << 40
KINDS = ("tuple", "set", "dtype", "device", "float", "dict", "other", "truncated")
NAMED_KINDS = ("dataclass ", "namedtuple ")

_DEEPEST = 200  # lists and objects within each other
_LARGEST_STEP = 1 << 62
_LONGEST_WORD = 1000
_SHOWN = 60
_GZIP_MAGIC = b"\x1f\x8b"
_NESTING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
_PLAIN_KEY = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_POINTER_PLACE = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
_FLOAT_WORDS = ("nan", "inf", "-inf")
# What a file that has no "types" calls a value of which it only knows the type.
_TYPE_NAME = re.compile(
    r"list\[\w+\]|[A-Z]\w*|_\w+|bytes|bytearray|dict|device|dtype|function|generator|method|ndarray|object|partial"
    r"|range|set|frozenset|slice|type"
)


class _FaultError(Exception):
    """Something in the file that is wrong, and where."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where}: {what}" if where else what)


def load_signatures(path: StrOrBytesPath) -> dict[str, StageIOSignature]:
    """Read a file of signatures: the stages' by name, in the file's order.

    The file is one of this package, or of telefuser, whose tensors have no ``stride`` and whose files neither
    ``schema_version`` nor ``types``; of a text in such a file that looks like a type's name, the value is not known.

    Raises:
        TypeError: ``path`` is no path.
        ValueError: It is empty, or has a NUL.
        OSError: The file cannot be read.
        FormatError: It is damaged, larger than 64 MiB, compressed, of another schema version, or says what cannot be
            meant, such as a tensor of more than 2^40 bytes; the message names the path and the place in the file.
    """
    name = arguments.path("path", path)
    with files.open_to_read(name) as file:
        data = file.read(MOST_BYTES + 1)
    try:
        return _stages(_parsed(data))
    except _FaultError as fault:
        raise FormatError(f"{name}: {fault}") from None


def checked_signature(parameter: str, value: Any) -> StageIOSignature:
    """Return a signature that was given as one: a ``StageIOSignature``, its dict, or an object with ``to_dict()``.

    TypeError for anything else; FormatError (a ValueError), naming the parameter, for one that makes no sense.
    """
    to_dict = getattr(value, "to_dict", None)
    data = to_dict() if callable(to_dict) else value
    if not isinstance(data, dict):
        from cprofiling.nodes.summary_table import shown_value

        raise TypeError(f"{parameter} must be the signature of a stage, got {shown_value(value)}")
    try:
        text = json.dumps(data)
        return _stage(_parsed(text.encode()), parameter, has_types=isinstance(value, (dict, StageIOSignature)))
    except _FaultError as fault:
        raise FormatError(str(fault)) from None
    except (TypeError, ValueError, RecursionError) as error:
        raise FormatError(f"{parameter}: no JSON can be made of it: {error}") from None


# --- JSON -----------------------------------------------------------------------------------------


def _parsed(data: bytes) -> Any:
    """Return what the bytes say; _FaultError for what is no JSON, or more than is read."""
    if data.startswith(_GZIP_MAGIC):
        raise _FaultError("", "it is compressed: signatures are read as plain JSON, so unpack it first")
    if len(data) > MOST_BYTES:
        raise _FaultError("", f"it is larger than {MOST_BYTES >> 20} MiB: that is no file of signatures")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _FaultError("", f"it is no UTF-8 at byte {error.start}") from None
    _check_nesting(text)
    try:
        return json.loads(
            text, object_pairs_hook=_object, parse_constant=_refused_constant, parse_float=_finite, parse_int=_integer
        )
    except json.JSONDecodeError as error:
        raise _FaultError("", f"it is no JSON: {error}") from None
    except RecursionError:  # the caller has used up the stack
        raise _FaultError("", "it is nested too deeply for the stack that is left") from None


def _check_nesting(text: str) -> None:
    depth = 0
    for token in _NESTING.finditer(text):
        character = text[token.start()]
        if character in "[{":
            depth += 1
            if depth > _DEEPEST:
                raise _FaultError("", f"it is nested deeper than {_DEEPEST} at character {token.start()}")
        elif character in "]}":
            depth -= 1


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _FaultError("", f"the key {_shown(key)} is there twice in one object")
            seen.add(key)
    return made


def _refused_constant(word: str) -> Any:
    raise _FaultError("", f"{word} is no number that JSON has")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _FaultError("", f"the number {text[:_SHOWN]} is too large")
    return number


def _integer(text: str) -> int:
    if len(text) > 40:
        raise _FaultError("", f"an integer has {len(text)} digits")
    return int(text)


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _within(where: str, key: str) -> str:
    if _PLAIN_KEY.fullmatch(key) and len(key) <= _SHOWN:
        return f"{where}.{key}"
    return f"{where}[{_shown(key)}]"


# --- What it says ---------------------------------------------------------------------------------


def _stages(data: Any) -> dict[str, StageIOSignature]:
    root = _expected(data, "$", dict, "an object")
    version = root.get("schema_version")
    if "schema_version" in root and (type(version) is not int or version != SCHEMA_VERSION):
        raise _FaultError("$.schema_version", f"it is {_shown(version)}, and {SCHEMA_VERSION} is what can be read")
    for key in ("request_id", "timestamp"):
        if key in root:
            _expected(root[key], f"$.{key}", str, "a string")
    stages = _expected(_required(root, "$", "stages"), "$.stages", dict, "an object")
    has_types = "schema_version" in root
    return {name: _stage(stage, _within("$.stages", name), has_types=has_types) for name, stage in stages.items()}


def _stage(data: Any, where: str, *, has_types: bool) -> StageIOSignature:
    stage = _expected(data, where, dict, "an object")
    name = _expected(_required(stage, where, "stage_name"), f"{where}.stage_name", str, "a string")
    inputs_at = f"{where}.input_signatures"
    inputs = _expected(_required(stage, where, "input_signatures"), inputs_at, dict, "an object")
    types = _expected(stage.get("types", {}), f"{where}.types", dict, "an object")
    metadata = _expected(stage.get("metadata", {}), f"{where}.metadata", dict, "an object")
    for key, value in inputs.items():
        _check_value(value, _within(inputs_at, key), f"/{_escaped(key)}", types)
    for key in ("output_signature", "output"):
        _check_value(stage.get(key), f"{where}.{key}", "", {})
    for pointer, kind in types.items():
        _check_type(inputs, pointer, kind, _within(f"{where}.types", pointer))
    if not has_types and not types:
        types = {f"/{_escaped(key)}": "other" for key, value in inputs.items() if _is_type_name(key, value, metadata)}
    return StageIOSignature(
        stage_name=name,
        input_signatures=MappingProxyType(inputs),
        output_signature=stage.get("output", stage.get("output_signature")),
        metadata=MappingProxyType(metadata),
        types=MappingProxyType(types),
    )


def _expected(value: Any, where: str, kind: type, noun: str) -> Any:
    if type(value) is not kind:
        raise _FaultError(where, f"it must be {noun}, and is {_shown(value)}")
    return value


def _required(value: dict[str, Any], where: str, key: str) -> Any:
    if key not in value:
        raise _FaultError(where, f'it has no "{key}"')
    return value[key]


def is_tensor_at(value: Any, pointer: str, types: Mapping[str, str]) -> bool:
    """Whether the value at a pointer describes a tensor, and is no dataclass with fields of the same names."""
    return is_tensor(value) and pointer not in types


def _check_value(value: Any, where: str, pointer: str, types: Mapping[str, Any]) -> None:
    if is_tensor_at(value, pointer, types):
        _check_tensor(value, where)
    elif type(value) is dict:
        for key, each in value.items():
            _check_value(each, _within(where, key), f"{pointer}/{_escaped(key)}", types)
    elif type(value) is list:
        for place, each in enumerate(value):
            _check_value(each, f"{where}[{place}]", f"{pointer}/{place}", types)


def _check_tensor(tensor: dict[str, Any], where: str) -> None:
    shape = _expected(tensor["shape"], f"{where}.shape", list, "a list")
    if len(shape) > MOST_DIMENSIONS:
        raise _FaultError(f"{where}.shape", f"it has {len(shape)} dimensions, more than {MOST_DIMENSIONS}")
    for key in ("dtype", "device"):
        word = _expected(tensor[key], f"{where}.{key}", str, "a string")
        if not 0 < len(word) <= _LONGEST_WORD:
            raise _FaultError(f"{where}.{key}", f"it must have 1 to {_LONGEST_WORD} characters, and has {len(word)}")
    size = element_size(tensor["dtype"])
    for place, length in enumerate(shape):
        at = f"{where}.shape[{place}]"
        if _expected(length, at, int, "an integer") < 0:
            raise _FaultError(at, f"it must be 0 or more, and is {length}")
        size *= max(length, 1)  # an empty tensor of an impossible size is none either
        if size > MOST_TENSOR_BYTES:
            raise _FaultError(f"{where}.shape", f"a tensor of more than {MOST_TENSOR_BYTES >> 40} TiB cannot be meant")
    _expected(tensor.get("requires_grad", False), f"{where}.requires_grad", bool, "true or false")
    stride = tensor.get("stride")
    if stride is not None:
        _check_stride(_expected(stride, f"{where}.stride", list, "a list or null"), shape, f"{where}.stride")


def _check_stride(stride: list[Any], shape: list[int], where: str) -> None:
    for place, step in enumerate(stride):
        if abs(_expected(step, f"{where}[{place}]", int, "an integer")) > _LARGEST_STEP:
            raise _FaultError(f"{where}[{place}]", f"it must be from -2^62 to 2^62, and is {step}")
    if stride and len(stride) != len(shape):  # none: the elements are not laid out in strides
        raise _FaultError(where, f"it has {len(stride)} steps for {len(shape)} dimensions")


def element_size(dtype: str) -> int:
    """The bytes of an element, by the first number in its type's name; 1 where it has none, 16 for unknown lengths."""
    bits = re.search(r"[0-9]+", dtype)
    if bits is None:
        return 1
    return max(int(bits[0]) // 8, 1) if len(bits[0]) <= 3 else 16


# --- Types ----------------------------------------------------------------------------------------


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1") if "~" in key or "/" in key else key


def _check_type(inputs: dict[str, Any], pointer: str, kind: Any, where: str) -> None:
    word = _expected(kind, where, str, "a string")
    value = _value_at(inputs, pointer, where)
    if word not in KINDS and not word.startswith(NAMED_KINDS):
        known = ", ".join((*KINDS, *map(str.strip, NAMED_KINDS)))
        raise _FaultError(where, f"it must be one of {known}, and is {_shown(word)}")
    noun, is_right = _FITS[word.partition(" ")[0]]
    if not is_right(value):
        raise _FaultError(where, f"{_shown(word)} must stand for {noun}, and does for {_shown(value)}")


def _value_at(inputs: dict[str, Any], pointer: str, where: str) -> Any:
    value: Any = inputs
    for key in _keys_of(pointer, where):
        if type(value) is dict and key in value:
            value = value[key]
        elif type(value) is list and _POINTER_PLACE.fullmatch(key) and int(key) < len(value):
            value = value[int(key)]
        else:
            raise _FaultError(where, "there is no such input")
    return value


def _keys_of(pointer: str, where: str) -> Iterator[str]:
    first, *keys = pointer.split("/")
    if first or not keys:
        raise _FaultError(where, 'a pointer begins with "/"')
    for key in keys:
        yield key.replace("~1", "/").replace("~0", "~")


def _is_pairs(value: Any) -> bool:
    return type(value) is list and all(type(pair) is list and len(pair) == 2 for pair in value)


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_list(value: Any) -> bool:
    return type(value) is list


_FITS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "tuple": ("a list", _is_list),
    "set": ("a list", _is_list),
    "namedtuple": ("a list", _is_list),
    "dict": ("a list of pairs", _is_pairs),
    "dataclass": ("an object", lambda value: type(value) is dict),
    "float": ("nan, inf or -inf", lambda value: value in _FLOAT_WORDS),
    "dtype": ("a string", _is_text),
    "device": ("a string", _is_text),
    "other": ("a string", _is_text),
    "truncated": ("a string", _is_text),
}


def _is_type_name(key: str, value: Any, metadata: Mapping[str, Any]) -> bool:
    """Whether a text in a file without types stands for a value that was no text, as far as one can tell."""
    return type(value) is str and key not in metadata and _TYPE_NAME.fullmatch(value) is not None
