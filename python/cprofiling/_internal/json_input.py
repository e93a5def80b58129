"""Read JSON within limits and check it by the published schemas."""

from __future__ import annotations

import functools
import json
import math
import os
import re
from collections.abc import Mapping
from json.encoder import encode_basestring_ascii
from typing import Any

from cprofiling._core import FormatError
from cprofiling._internal import file_kinds, files
from cprofiling._internal.text import shown_text, shown_value

MOST_BYTES = 32 << 20
DEEPEST = 100  # levels of nesting; Python's own reader gives up at about a thousand
_LONGEST_NUMBER = 64  # characters; Python converts long ones in quadratic time
_LONGEST_KEY = 80  # characters of a key in a message
_MARKS = re.compile(rb'\\.|["\[\]{}]', re.DOTALL)
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Fault(Exception):  # noqa: N818 it is caught and told with the name of the file
    """Fault of a value, at a place as ``place_of`` writes it or nowhere."""

    def __init__(self, place: str, wrong: str) -> None:
        super().__init__(f"{place}: {wrong}" if place else wrong)


def read_json(path: str, most_bytes: int = MOST_BYTES) -> Any:
    """Return the content of a JSON file.

    Raises OSError where the file cannot be read, and FormatError, which names the file and the place, where it is
    larger than ``most_bytes``, no UTF-8, no JSON, nested more than 100 levels deep, or has a key twice in one object,
    or a number that is not finite.
    """
    with files.open_to_read(path) as file:
        data = file.read(most_bytes + 1)
    name = shown_text("path", path)
    head = data[: file_kinds.HEAD]
    kind = file_kinds.kind_of(head)
    if kind is not None and not head.lstrip().startswith((b"{", b"[")):
        raise FormatError(f"{name}: {kind.told('JSON')}")
    if len(data) > most_bytes:
        raise FormatError(f"{name}: the file is larger than {most_bytes} bytes, more than any such file has")
    try:
        return parsed(data)
    except Fault as fault:
        raise FormatError(f"{name}: {fault}") from None


def parsed(data: bytes) -> Any:
    """Return the content of JSON in UTF-8. Raises Fault."""
    depth, in_text = 0, False
    for mark in _MARKS.finditer(data):
        sign = mark[0]
        if sign == b'"':
            in_text = not in_text
        elif in_text:
            continue
        elif sign in b"[{":
            depth += 1
            if depth > DEEPEST:
                raise Fault(f"byte {mark.start()}", f"nested more than {DEEPEST} levels deep")
        else:
            depth -= 1
    try:
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_object,
            parse_int=lambda digits: int(digits) if len(digits) <= _LONGEST_NUMBER else math.inf,
            parse_constant=float,
        )
    except ValueError as error:  # a UnicodeDecodeError or JSONDecodeError; both tell the place
        raise Fault("", str(error)) from None
    except RecursionError:
        raise Fault("", "nested too deeply for the stack that the caller has left") from None
    _check_plain(value, "$")
    return value


def place_of(place: str, key: object) -> str:
    """Return the place of a key or index below a place, by RFC 9535."""
    if not isinstance(key, str):
        return f"{place}[{key}]"
    if _PLAIN_KEY.fullmatch(key) and len(key) <= _LONGEST_KEY:
        return f"{place}.{key}"
    shown = key if len(key) <= _LONGEST_KEY else f"{key[: _LONGEST_KEY - 3]}..."
    return f"{place}[{encode_basestring_ascii(shown)}]"


class _Repeating(dict[str, object]):
    """An object of the file that has a key twice."""

    repeated = ""


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    repeating = _Repeating(found)
    left = set(found)
    for key, _ in pairs:
        if key not in left:
            repeating.repeated = key
        left.discard(key)
    return repeating


def _check_plain(value: Any, place: str) -> None:
    """Raise Fault where a key is there twice, or a number is not finite."""
    if isinstance(value, _Repeating):
        raise Fault(place_of(place, value.repeated), "the key is there twice")
    if isinstance(value, float) and not math.isfinite(value):
        raise Fault(place, "the number is not finite, or too large")
    if isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(item, (dict, list, float)):
                _check_plain(item, place_of(place, key))


# ---- Schemas


class Schema:
    """Published JSON schema (draft 2020-12), as far as this package needs it."""

    def __init__(self, name: str) -> None:
        path = os.path.join(os.path.dirname(os.path.dirname(__file__)), "schemas", f"{name}.schema.json")
        with open(path, encoding="utf-8") as file:
            self._root: dict[str, Any] = json.load(file)

    def check(self, value: Any, place: str = "$", part: str | None = None) -> None:
        """Raise Fault for a value that the schema or a part of it refuses."""
        self._check(value, place, self._root if part is None else self._root["$defs"][part])

    def _check(self, value: Any, place: str, rules: Mapping[str, Any]) -> None:
        if "$ref" in rules:
            self.check(value, place, rules["$ref"].rpartition("/")[2])
        if "type" in rules:
            _check_type(value, place, rules)
        if "const" in rules and (isinstance(value, bool) or value != rules["const"]):
            raise Fault(place, f"this version of cprofiling reads version {rules['const']}, got {shown(value)}")
        if isinstance(value, str) and not rules.get("minLength", 0) <= len(value) <= rules.get("maxLength", math.inf):
            raise Fault(place, f"must have 1 to {rules['maxLength']} characters, got {len(value)}")
        if isinstance(value, dict):
            self._check_object(value, place, rules)
        if isinstance(value, (list, tuple)) and "items" in rules:
            if len(value) > rules.get("maxItems", math.inf):
                raise Fault(place, f"must have at most {rules['maxItems']} items, got {len(value)}")
            for index, item in enumerate(value):
                self._check(item, place_of(place, index), rules["items"])
        if "if" in rules:
            fits = all(key in value for key in rules["if"]["required"])
            self._check(value, place, rules.get("then" if fits else "else", {}))

    def _check_object(self, value: dict[Any, Any], place: str, rules: Mapping[str, Any]) -> None:
        known = rules.get("properties", {})
        for key in rules.get("required", ()):
            if key not in value:
                raise Fault(place_of(place, key), "it is missing")
        for key, part in known.items():
            if key in value:
                self._check(value[key], place_of(place, key), part)
        if "additionalProperties" in rules:
            for key in value.keys() - known.keys() if known else value:
                if not isinstance(key, str):
                    raise Fault(place, f"a key must be a text, got {shown(key)}")
                if rules["additionalProperties"] is False:
                    raise Fault(place_of(place, key), "there is no such key")
                self._check(value[key], place_of(place, key), rules["additionalProperties"])


schema = functools.cache(Schema)
"""Return a schema by its name, such as ``timing``; each file is read once."""


def shown(value: object) -> str:
    """Return how a message shows a value of a file."""
    return shown_text("value", shown_value(value))


_KINDS: dict[str, tuple[str, Any]] = {
    "object": ("an object", dict),
    "array": ("a list", (list, tuple)),
    "string": ("a text", str),
    "boolean": ("true or false", bool),
    "null": ("null", type(None)),
    "number": ("a number", (int, float)),
    "integer": ("a whole number", (int, float)),
}


def _check_type(value: Any, place: str, rules: Mapping[str, Any]) -> None:
    kinds = [rules["type"]] if isinstance(rules["type"], str) else rules["type"]
    for kind in kinds:
        if isinstance(value, _KINDS[kind][1]) and (kind == "boolean" or not isinstance(value, bool)):
            if kind not in ("number", "integer"):
                return
            is_right = kind == "number" or value == value // 1
            if is_right and rules.get("minimum", -math.inf) <= value <= rules.get("maximum", math.inf):
                return
            break
    noun = " or ".join(_KINDS[kind][0] for kind in kinds)
    if "minimum" in rules:
        least, most = (f"{end:g}" if isinstance(end, float) else end for end in (rules["minimum"], rules["maximum"]))
        noun += f" from {least} to {most}"
    raise Fault(place, f"must be {noun}, got {shown(value)}")
