"""JSON files from anywhere: read within limits of size and depth, with faults named by file and place."""

from __future__ import annotations

import json
import math
import re
from json.encoder import encode_basestring_ascii
from typing import TYPE_CHECKING

from cprofiling._internal import file_kinds, files
from cprofiling.nodes.snapshot import FormatError
from cprofiling.nodes.summary_table import shown_text

if TYPE_CHECKING:
    from typing import Any

MOST_BYTES = 32 << 20
DEEPEST = 100  # levels of nesting; Python's own reader gives up at about a thousand
_LONGEST_NUMBER = 64  # characters; Python converts long ones in quadratic time
_LONGEST_KEY = 80  # characters of a key in a message
_MARKS = re.compile(rb'\\.|["\[\]{}]', re.DOTALL)
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Fault(Exception):  # noqa: N818 it is caught and told with the name of the file
    """What is wrong at a place of a value."""

    def __init__(self, place: str, wrong: str) -> None:
        """Take over the place, as ``place_of`` writes it, and what is wrong there."""
        super().__init__(f"{place}: {wrong}")


def read_json(path: str) -> Any:
    """Return what is in a JSON file.

    Raises OSError where the file cannot be read, and FormatError, which names the file and the place, where it is
    larger than 32 MiB, no UTF-8, no JSON, nested more than 100 levels deep, or has a key twice in one object, or a
    number that is not finite.
    """
    with files.open_to_read(path) as file:
        data = file.read(MOST_BYTES + 1)
    name = shown_text("path", path)
    head = data[: file_kinds.HEAD]
    kind = file_kinds.kind_of(head)
    if kind is not None and not head.lstrip().startswith((b"{", b"[")):
        raise FormatError(f"{name}: {kind.told('JSON')}")
    if len(data) > MOST_BYTES:
        raise FormatError(f"{name}: the file is larger than {MOST_BYTES} bytes, more than any such file has")
    try:
        _check_depth(data)
        value = json.loads(
            data.decode("utf-8"), object_pairs_hook=_object, parse_int=_whole, parse_constant=_not_finite
        )  # fmt: skip
        _check_plain(value, "$")
    except (ValueError, Fault) as error:  # of UnicodeDecodeError and JSONDecodeError, each tells the place
        raise FormatError(f"{name}: {error}") from None
    return value


def place_of(place: str, key: object) -> str:
    """Return the place of a key in the object at a place, or of an index in a list, as JSONPath (RFC 9535) does."""
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


def _whole(text: str) -> float:
    return int(text) if len(text) <= _LONGEST_NUMBER else math.inf


def _not_finite(text: str) -> float:
    return float(text.replace("Infinity", "inf"))


def _check_depth(data: bytes) -> None:
    """Raise Fault, telling the byte, where brackets outside of texts are nested too deep."""
    depth, in_text = 0, False
    for mark in _MARKS.finditer(data):
        sign = mark[0]
        if sign == b'"':
            in_text = not in_text
        elif in_text or len(sign) == 2:
            continue
        elif sign in b"[{":
            depth += 1
            if depth > DEEPEST:
                raise Fault(f"byte {mark.start()}", f"nested more than {DEEPEST} levels deep")
        else:
            depth -= 1


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
