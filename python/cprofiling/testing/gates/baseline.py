"""Files with the counts and times of tests."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
from collections.abc import Mapping
from typing import Any

from cprofiling._core import FormatError
from cprofiling._internal.files import atomic_writer
from cprofiling._internal.json_input import Fault, place_of, read_json, schema
from cprofiling._internal.text import shown_text

KIND, SCHEMA_VERSION = "cprofiling gate", 2
_CPU_INFO = "/proc/cpuinfo"


class EditedError(FormatError):
    """A file that was edited, or written by an older version of cprofiling."""


class _Edited(Fault):
    """A file that was edited or is old."""


def made_here() -> dict[str, str]:
    """Return the machine and the Python on which times depend."""
    model = platform.processor() or platform.machine()
    try:
        with open(_CPU_INFO, encoding="utf-8", errors="replace") as file:
            model = next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), model)
    except OSError:  # of another system
        pass
    python = f"{platform.python_implementation()} {sys.version_info.major}.{sys.version_info.minor}"
    return {"machine": f"{platform.machine()}, {os.cpu_count()} x {model}", "python": python}


def save(path: str, tests: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the records of tests, sorted by their ids. Raises OSError."""
    in_order = dict(sorted(tests.items()))
    value = {"kind": KIND, "schema_version": SCHEMA_VERSION, "made_with": made_here(), "tests": in_order}
    text = json.dumps({**value, "digest": _digest(value)}, indent=1, allow_nan=False)
    with atomic_writer(path) as file:
        file.write(text.encode("ascii") + b"\n")


def load(path: str) -> dict[str, Any]:
    """Read a file of tests.

    Raises OSError where it cannot be read, FormatError, which names the file and the place, where it is damaged, no
    such file, or of another version, and EditedError where it was edited or is of an older version.
    """
    value = read_json(path)
    try:
        _check(value)
    except _Edited as fault:
        raise EditedError(f"{shown_text('path', path)}: {fault}") from None
    except Fault as fault:
        raise FormatError(f"{shown_text('path', path)}: {fault}") from None
    return dict(value)


def _digest(value: Mapping[str, Any]) -> str:
    told = {key: part for key, part in value.items() if key != "digest"}
    return hashlib.sha256(json.dumps(told, sort_keys=True, separators=(",", ":")).encode("ascii")).hexdigest()


def _check(value: Any) -> None:
    if not isinstance(value, dict) or value.get("kind") != KIND:
        raise Fault("$", f"it is no file of cprofiling's gates: its kind must be {KIND!r}")
    version = value.get("schema_version")
    if type(version) is int and 0 < version < SCHEMA_VERSION:
        raise _Edited("$.schema_version", f"this version of cprofiling reads version {SCHEMA_VERSION}, got {version}")
    if version == SCHEMA_VERSION and value.get("digest") != _digest(value):
        raise _Edited("$.digest", "the file was edited or damaged")
    schema("gates").check(value)
    for test, did in value["tests"].items():
        for name, series in did["series"].items():
            for row in series["rows"].values():
                if len({len(times) for times in row.values() if times is not None}) != 1:
                    place = place_of(f"{place_of('$.tests', test)}.series", name)
                    raise Fault(place, "its rows must have equally many times")
