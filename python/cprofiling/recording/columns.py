"""Columns of a recording, as reports read them.

Rows are sorted by start, the longer first of equal starts, and known by index. All times are int nanoseconds.
"""

from __future__ import annotations

import json
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from cprofiling import _core
from cprofiling._internal.row_kinds import DEVICE
from cprofiling._internal.text import counted

Recording = _core.Recording  # all that reports ask is its own

_K = TypeVar("_K")
_T = TypeVar("_T")

UNKNOWN = -(2**63)

# Categories in Kineto's words, and in those of torch before 1.13.
OPERATORS = ("cpu_op", "Operator")
COPIES = ("gpu_memcpy", "Memcpy")
SETS = ("gpu_memset", "Memset")
# Of a device, but no work, so that it may be idle meanwhile: waits, annotations, ranges.
NO_WORK = frozenset(("cuda_sync", "cuda_event", "gpu_user_annotation", "cuda_profiler_range"))
# Calls of a device's runtime: they start its work, or wait for it.
_FAMILIES = ("cuda", "xpu", "mtia", "privateuse1")
RUNTIME = frozenset(("Runtime", *(f"{family}_{side}" for family in _FAMILIES for side in ("runtime", "driver"))))
ANNOTATIONS = frozenset(("user_annotation", "gpu_user_annotation"))
INFERENCE = "Inference"  # the name of a call of a model as a whole
MEMORY = "[memory]"
FLOPS = "flops"  # the argument of operators that have them
STEP_PREFIX = "ProfilerStep#"


_FORMATS = {
    "start_ns": "q", "end_ns": "q", "trace_high": "Q", "trace_low": "Q", "span": "Q", "parent_span": "Q",
    "parent": "i", "track": "I", "name": "I", "cat": "I", "stage": "I", "kind": "B", "outcome": "B", "flags": "B",
    "device": "i", "shapes": "I", "types": "I", "stack": "I",
}  # fmt: skip


def column(recording: Recording, name: str) -> memoryview:
    """Return a column as ints, filled with its "none" if nothing has a value."""
    values = recording.column(name)
    if values is not None:
        return values
    return memoryview(array(_FORMATS.get(name, "q"), [recording.none(name)]) * len(recording))


def has(recording: Recording, name: str) -> bool:
    """Tell whether any row has a value in the column."""
    return len(recording) > 0 and recording.column(name) is not None


def texts_of(recording: Recording, *wanted: str) -> set[int]:
    """Return the numbers of the texts that the recording has."""
    return {number for number, text in enumerate(recording.strings) if text in wanted}


def grouped(values: Iterable[_T], key: Callable[[_T], _K]) -> dict[_K, list[_T]]:
    """Return values by key, both in the order of the values."""
    groups: defaultdict[_K, list[_T]] = defaultdict(list)
    items = list(values)
    for of, value in zip(map(key, items), items, strict=True):
        groups[of].append(value)
    return dict(groups)


def frames_of(stack: str) -> list[str]:
    """Return the frames of a recorded stack, innermost first.

    torch.profiler's have an empty line at their end.
    """
    return [frame for frame in stack.split("\n") if frame]


def known_args(recording: Recording, row: int) -> dict[str, Any]:
    """Return a row's arguments, empty if they are no JSON object."""
    args = recording.args(row)
    known = json.loads(args) if args else None
    return known if isinstance(known, dict) else {}


def sources_of(recording: Recording) -> dict[str, str]:
    """Return file and line of the functions of nodes, by the node's name."""
    try:
        told = json.loads(recording.facts.get("cprofiling", "null"))
    except ValueError:  # what a file of somebody else's says of itself
        told = None
    found = told.get("sources") if isinstance(told, dict) else None
    places = found.items() if isinstance(found, dict) else ()
    return {name: place for name, place in places if isinstance(place, str)}


def device_name(recording: Recording) -> str | None:
    """Return torch's name of a recording's devices (cuda, xpu, ...), or None.

    ROCm's are cuda, too.
    """
    if DEVICE not in set(column(recording, "kind")):
        return None
    used = {recording.strings[cat] for cat in set(column(recording, "cat"))}
    for family, name in (("xpu", "xpu"), ("mtia", "mtia"), ("privateuse1", "privateuseone")):
        if not used.isdisjoint((f"{family}_runtime", f"{family}_driver", f"{family}_ccp_events")):
            return name
    return "cuda"


def thread_number(track: Sequence[Any]) -> int | str:
    """Return the number of a track's thread, or the text that stands for one."""
    number: int = track[1]
    text: str | None = track[3]
    return number if text is None else text


def drop_notes(recording: Recording) -> list[str]:
    """Return the line on missing events below a report's figures, if any."""
    if recording.dropped == 0:
        return []
    are, them = ("is", "it") if recording.dropped == 1 else ("are", "them")
    events = counted(recording.dropped, "event")
    return [f"Dropped: {events} {are} missing from these figures, as there was no room for {them}."]
