"""Metadata of a trace in Kineto's terms, and names of its rows."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cprofiling import _core
from cprofiling._internal import process
from cprofiling._internal.text import shown_value
from cprofiling.nodes.decorators import SOURCES

if TYPE_CHECKING:
    from cprofiling.recording.result import Recording

FORMAT_VERSION = 1
_OWN = "cprofiling"
_EVENTS = ("traceEvents", "baseTimeNanoseconds", "droppedEvents")
_STANDARD = ("schemaVersion", "displayTimeUnit", "deviceProperties", "distributedInfo")
_MAIN_FIRST = 0
_PACKAGES = ("cprofiling", "numpy", "torch", "tensorflow", "jax", "cupy")


def of_recording(recording: Recording, note: str | None, since_epoch_ns: int | None = None) -> dict[str, str]:
    """Return metadata as JSON texts by key, without keys already there.

    since_epoch_ns: offset of the recording's times from CLOCK_MONOTONIC, if known.
    """
    clock, refusal = _core.clock()
    own: dict[str, Any] = {"format_version": FORMAT_VERSION, "clock": clock, "dropped": recording.dropped}
    # For merging traces: "id" is random and identifies the recording, and equal clocks are one CLOCK_MONOTONIC.
    own["process"] = {"host": process.host(), "pid": os.getpid(), "id": os.urandom(16).hex()}
    own["program"] = {"command": process.command(), "python": sys.version.split()[0], "packages": _packages()}
    if since_epoch_ns is not None:
        boot = None  # with the time namespace it identifies CLOCK_MONOTONIC
        with suppress(OSError, ValueError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = f"{file.read().strip()} {os.readlink('/proc/self/ns/time')}"
        own["process"] |= {"clock": boot, "since_epoch_ns": since_epoch_ns}
    if refusal is not None:
        own["clock_reason"] = refusal
    if note is not None:
        own["note"] = note
    if sources := {name: place for name, place in SOURCES.items() if place is not None}:
        own["sources"] = sources
    found = {
        "schemaVersion": 1,
        "displayTimeUnit": "ms",
        "deviceProperties": [],
        "distributedInfo": {"backend": "", "rank": process.rank(), "world_size": process.world_size()},
        _OWN: own,
    }
    known = recording.facts
    return {key: json.dumps(value) for key, value in found.items() if key not in known}


def _packages() -> dict[str, str]:
    """Return the versions of cprofiling and of imported frameworks."""
    modules = {name: getattr(sys.modules.get(name), "__dict__", {}) for name in _PACKAGES}  # some may be None
    known = {name: module.get("__version__") for name, module in modules.items()}
    return {name: version for name, version in known.items() if isinstance(version, str)}


def checked(key: Any, value: Any) -> tuple[str, str]:
    """Return a key and a JSON text for metadata of the user's own."""
    if not isinstance(key, str):
        raise TypeError(f"key must be a str, got {shown_value(key)}")
    if key in (_OWN, *_EVENTS, *_STANDARD):
        raise ValueError(f"key is set by the trace itself, choose another: {key!r}")
    if not isinstance(value, str):
        raise TypeError(f"value must be a JSON text, got {shown_value(value)}")

    def refuse(constant: str) -> None:
        raise ValueError(f"there is no {constant} in JSON")

    try:
        json.loads(value, parse_constant=refuse)
    except ValueError as error:
        raise ValueError(f"value must be a JSON text, got {shown_value(value)}: {error}") from None
    return key, value


def name_process(recording: Recording, threads: Mapping[int | None, str]) -> None:
    """Name the process by its program, and threads that have no name yet, the main one first."""
    pid = os.getpid()
    program = os.path.basename(sys.argv[0]) if getattr(sys, "argv", None) and sys.argv[0] else "python"
    recording._name_process(pid, program, "CPU", None)
    for tid, name in threads.items():
        if tid is not None:
            recording._name_thread(pid, tid, name, _MAIN_FIRST if tid == pid else tid)
