"""Files of what tests did: written, read, and refused where they are damaged, edited, or of another kind."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
from typing import TYPE_CHECKING

from cprofiling._internal.files import atomic_writer
from cprofiling._internal.json_input import Fault, place_of, read_json
from cprofiling.nodes.snapshot import FormatError
from cprofiling.nodes.summary_table import shown_text, shown_value
from cprofiling.testing.gates.series import Row, Series

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

KIND, SCHEMA_VERSION = "cprofiling gate", 2
_MOST = 2**63 - 1
_CPU_INFO = "/proc/cpuinfo"


class EditedError(FormatError):
    """A file that was changed by anything but cprofiling, or written by an older version of it."""


class _Edited(Fault):
    """The file was changed, or is old."""


def made_here() -> dict[str, str]:
    """Return what times depend on, beside the program: they are compared with those of an equal machine only."""
    model = platform.processor() or platform.machine()
    try:
        with open(_CPU_INFO, encoding="utf-8", errors="replace") as file:
            model = next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), model)
    except OSError:  # of another system
        pass
    python = f"{platform.python_implementation()} {sys.version_info.major}.{sys.version_info.minor}"
    return {"machine": f"{platform.machine()}, {os.cpu_count()} x {model}", "python": python}


def save(path: str, tests: Mapping[str, Mapping[str, Any]]) -> None:
    """Write what tests did, by their ids, in the order of these. OSError where that cannot be."""
    in_order = dict(sorted(tests.items()))
    value = {"kind": KIND, "schema_version": SCHEMA_VERSION, "made_with": made_here(), "tests": in_order}
    text = json.dumps({**value, "digest": _digest(value)}, indent=1, allow_nan=False)
    with atomic_writer(path) as file:
        file.write(text.encode("ascii") + b"\n")


def load(path: str) -> dict[str, Any]:
    """Read such a file.

    Raises OSError where it cannot be read; FormatError, which names the file and the place, where it is damaged, no
    such file, or of another version; of that EditedError where it was changed by anything but cprofiling, or is old.
    """
    value = read_json(path)
    try:
        _check(value)
    except _Edited as fault:
        raise EditedError(f"{shown_text('path', path)}: {fault}") from None
    except Fault as fault:
        raise FormatError(f"{shown_text('path', path)}: {fault}") from None
    return dict(value)


def is_one(value: object) -> bool:
    """Whether what is in a JSON file says that it is such a file."""
    return isinstance(value, dict) and value.get("kind") == KIND


def _digest(value: Mapping[str, Any]) -> str:
    told = {key: part for key, part in value.items() if key != "digest"}
    return hashlib.sha256(json.dumps(told, sort_keys=True, separators=(",", ":")).encode("ascii")).hexdigest()


def _check(value: Any) -> None:
    if not is_one(value):
        raise Fault("$", f"it is no file of cprofiling's gates: its kind must be {KIND!r}")
    version = value.get("schema_version")
    if type(version) is not int or version != SCHEMA_VERSION:
        shown = shown_text("value", shown_value(version))
        kind = _Edited if type(version) is int and 0 < version < SCHEMA_VERSION else Fault
        raise kind("$.schema_version", f"this version of cprofiling reads version {SCHEMA_VERSION}, got {shown}")
    if value.get("digest") != _digest(value):
        raise _Edited("$.digest", "the file was edited, or damaged: this does not fit what is in it")
    _need(value.get("made_with"), "$.made_with", _is_texts, "an object of texts")
    tests = value.get("tests")
    _need(tests, "$.tests", _is_object, "an object")
    for test, did in tests.items():
        _check_test(did, place_of("$.tests", test))


def _check_test(did: Any, place: str) -> None:
    _need(did, place, _is_object, "an object")
    for key in ("native_calls", "operators"):
        _need(did.get(key), f"{place}.{key}", lambda counts: counts is None or _is_counts(counts), "counts, or null")
    _need(did.get("launches"), f"{place}.launches", lambda count: count is None or _is_count(count), "a count, or null")
    _need(did.get("nodes"), f"{place}.nodes", lambda nodes: isinstance(nodes, list), "a list")
    for number, node in enumerate(did["nodes"]):
        _need(node, f"{place}.nodes[{number}]", _is_node, "a node with its counts")
    _need(did.get("series"), f"{place}.series", _is_object, "an object")
    for name, series in did["series"].items():
        _need(series, place_of(f"{place}.series", name), _is_series, "times and those beside them")


def _need(value: Any, place: str, is_right: Callable[[Any], bool], noun: str) -> None:
    if not is_right(value):
        raise Fault(place, f"it must be {noun}, got {shown_text('value', shown_value(value))}")


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MOST


def _is_counts(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_count, value.values()))


def _is_node(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and all(isinstance(value.get(key), str) for key in ("node", "stage"))
        and all(_is_count(value.get(key)) for key in ("count", "error_count"))
    )


def _is_series(value: Any) -> bool:
    if (
        not isinstance(value, dict)
        or not isinstance(value.get("rows"), dict)
        or type(value.get("computes")) is not bool
    ):
        return False
    return all(_is_row(row) for row in value["rows"].values())


def _is_row(value: Any) -> bool:
    if not isinstance(value, dict) or value.keys() != set(Row._fields):
        return False
    lists = [times for key, times in value.items() if key not in ("cpu_ms", "in_line_ms") or times is not None]
    return all(isinstance(times, list) for times in lists) and (
        len({len(times) for times in lists}) == 1 and all(map(_is_time, (each for times in lists for each in times)))
    )


def _is_time(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1e12


def series_of(did: Mapping[str, Any]) -> Iterator[tuple[str, Series]]:
    """Give what was timed in a test."""
    for name, series in did["series"].items():
        yield name, Series.from_dict(series)
