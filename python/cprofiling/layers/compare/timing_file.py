"""Timing reports: reading ``timing.json``, ours and telefuser's, and telling what is wrong with one."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from cprofiling._internal import arguments, file_kinds
from cprofiling._internal.json_input import Fault, place_of, read_json
from cprofiling.nodes.snapshot import FormatError
from cprofiling.nodes.summary_table import shown_text, shown_value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypeAlias

    from _typeshed import StrOrBytesPath

    Check: TypeAlias = Callable[[Any, str], None]

SCHEMA_VERSION = 1
MOST_MS = 1e18  # about 30 million years: what is more is damage, and its square is still a number
MOST_CALLS = 2**63 - 1
_ROUNDING = 0.01  # telefuser rounds to two decimals, and so may others


class _Kind(NamedTuple):
    """What an object has: checks by key, and which keys it cannot do without."""

    keys: dict[str, Check]
    required: tuple[str, ...]


def load_timing_report(path: StrOrBytesPath) -> dict[str, Any]:
    """Read a timing report: one of ``cprofiling.layers``, one that ``cprofiling merge`` made, or one of telefuser's.

    The last lack ``schema_version``, ``count``, the mean, least, largest and spread of the calls, and ``process``.
    The published JSON schema is ``cprofiling/schemas/timing.schema.json``. Keys that it does not name are passed on.

    Raises:
        TypeError: The path is none.
        ValueError: It is empty, or has a NUL.
        OSError: The file cannot be read.
        FormatError: The file is cut, damaged, no timing report, one of another schema version, or larger than 32 MiB.
            The message names the path, and the place in the file as JSONPath (``$.stages.vae.mean_ms``).
    """
    name = arguments.path("path", path)
    value = read_json(name)
    if isinstance(value, dict) and "stages" not in value:
        for kind, is_one in ((file_kinds.TRACE, "traceEvents" in value), (file_kinds.REPORT, "schema" in value)):
            if is_one:
                raise FormatError(f"{shown_text('path', name)}: {kind.told('timing report')}")
    return _checked(value, shown_text("path", name))


def checked_timing_report(report: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return a timing report that came as a dict. FormatError, naming ``source`` and the place, if it is none."""
    return _checked(dict(report), source)


def processes_of(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return whose records are in a report: of a merged one, several; of one of telefuser, that is not known."""
    return list(report.get("processes") or [report[key] for key in ("process",) if key in report])


def _checked(value: Any, source: str) -> dict[str, Any]:
    try:
        if not isinstance(value, dict):
            raise Fault("$", f"a timing report is an object, got {_shown(value)}")
        version = value.get("schema_version")
        if "schema_version" in value and (isinstance(version, bool) or version != SCHEMA_VERSION):
            raise Fault(
                "$.schema_version", f"this version of cprofiling reads version {SCHEMA_VERSION}, got {_shown(version)}"
            )
        _check_object(value, "$", _kind_of(value))
    except Fault as fault:
        raise FormatError(f"{source}: {fault}") from None
    return value


def _kind_of(report: dict[str, Any]) -> _Kind:
    """Return what a report has to have: one of telefuser least, a merged one what all that are in it have."""
    if "schema_version" not in report:
        return _PEERS_REPORT
    return _MERGED_REPORT if "processes" in report else _REPORT


def _shown(value: object) -> str:
    return shown_text("value", shown_value(value))


def _check_object(value: Any, place: str, kind: _Kind) -> None:
    _check_mapping(value, place)
    for key in kind.required:
        if key not in value:
            raise Fault(place_of(place, key), "it is missing")
    for key, check in kind.keys.items():
        if key in value:
            check(value[key], place_of(place, key))


def _check_mapping(value: Any, place: str) -> None:
    if not isinstance(value, dict):
        raise Fault(place, f"must be an object, got {_shown(value)}")


def _text(value: Any, place: str) -> None:
    if not isinstance(value, str):
        raise Fault(place, f"must be a text, got {_shown(value)}")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _amount(value: Any, place: str) -> None:
    if not _is_number(value) or not 0 <= value <= MOST_MS:
        raise Fault(place, f"must be a number from 0 to {MOST_MS:g}, got {_shown(value)}")


def _amount_or_none(value: Any, place: str) -> None:
    if value is not None:
        _amount(value, place)


def _number(value: Any, place: str) -> None:
    """What may be below 0, as a difference may."""
    if not _is_number(value) or not -MOST_MS <= value <= MOST_MS:
        raise Fault(place, f"must be a number from {-MOST_MS:g} to {MOST_MS:g}, got {_shown(value)}")


def _whole(value: Any, place: str) -> None:
    if not _is_number(value) or not 0 <= value <= MOST_CALLS or value != int(value):
        raise Fault(place, f"must be a whole number from 0 to {MOST_CALLS}, got {_shown(value)}")


def _object_of(kind: _Kind) -> Check:
    return lambda value, place: _check_object(value, place, kind)


def _mapping_of(check: Check) -> Check:
    def check_values(value: Any, place: str) -> None:
        _check_mapping(value, place)
        for key, item in value.items():
            if not isinstance(key, str):
                raise Fault(place, f"a key must be a text, got {_shown(key)}")
            check(item, place_of(place, key))

    return check_values


def _list_of(check: Check) -> Check:
    def check_items(value: Any, place: str) -> None:
        if not isinstance(value, (list, tuple)):
            raise Fault(place, f"must be a list, got {_shown(value)}")
        for index, item in enumerate(value):
            check(item, place_of(place, index))

    return check_items


def _stage_of(kind: _Kind) -> Check:
    def check_stage(value: Any, place: str) -> None:
        _check_object(value, place, kind)
        _check_order(value, place)

    return check_stage


def _check_order(stage: dict[str, Any], place: str) -> None:
    """A mean lies between the least and the largest, whose distance no spread exceeds, but for their rounding."""
    known = [(key, stage[key]) for key in ("min_ms", "mean_ms", "max_ms") if stage.get(key) is not None]
    for (low_key, low), (high_key, high) in pairwise(known):
        if low > high + _slack(high):
            raise Fault(place, f"{low_key} {_shown(low)} is above {high_key} {_shown(high)}")
    least, most, spread = (stage.get(key) for key in ("min_ms", "max_ms", "std_ms"))
    if least is not None and most is not None and spread is not None and spread > most - least + _slack(most):
        raise Fault(place, f"std_ms {_shown(spread)} is above max_ms - min_ms")


def _slack(value: float) -> float:
    return _ROUNDING + 1e-9 * value


_MEMORY = _Kind(dict.fromkeys(("allocated_mb", "reserved_mb", "peak_allocated_mb", "peak_reserved_mb"), _amount), ())
_FIGURES: dict[str, Check] = {
    "count": _whole,
    "duration_ms": _amount,
    **dict.fromkeys(("mean_ms", "min_ms", "max_ms", "std_ms"), _amount_or_none),
}
_FAULTS: dict[str, Check] = dict.fromkeys(("error_count", "cancelled_count"), _whole)
_RANK = _Kind({"rank": _whole, **_FIGURES, **_FAULTS, "peak_memory_gb": _amount_or_none}, ("rank", "duration_ms"))
_PARALLEL = _Kind({"num_ranks": _whole, "ranks": _list_of(_object_of(_RANK))}, ("num_ranks", "ranks"))
_STAGE_KEYS: dict[str, Check] = {
    **_FIGURES,
    "percentage": _amount,
    **_FAULTS,
    "memory": _object_of(_MEMORY),
    "parallel_info": _object_of(_PARALLEL),
}
_STAGE = _Kind(_STAGE_KEYS, ("count", "duration_ms", "mean_ms", "min_ms", "max_ms", "std_ms", "percentage"))
_PEERS_STAGE = _Kind(_STAGE_KEYS, ("duration_ms",))
_MERGED_STAGE = _Kind(_STAGE_KEYS, ("duration_ms", "percentage", "parallel_info"))
_PROCESS = _Kind(
    {"host": _text, "pid": _whole, "id": _text, "rank": _whole, "request_id": _text}, ("host", "pid", "id")
)
_REPORT_MEMORY = _Kind(
    {
        **dict.fromkeys(("peak_allocated_mb", "peak_reserved_mb"), _amount),
        "snapshots": _mapping_of(_object_of(_MEMORY)),
        "memory_increase_mb": _number,
    },
    (),
)
_REPORT_KEYS: dict[str, Check] = {
    "request_id": _text,
    "timestamp": _text,
    **dict.fromkeys(("wall_clock_ms", "total_stages_ms", "total_ms", "peak_memory_gb"), _amount),
    **dict.fromkeys(("num_stages", "rank", "world_size"), _whole),
    "metadata": _check_mapping,
    "process": _object_of(_PROCESS),
    "processes": _list_of(_object_of(_PROCESS)),
    "memory": _object_of(_REPORT_MEMORY),
}
_TOTALS = ("wall_clock_ms", "total_stages_ms", "num_stages")
_REQUIRED = ("request_id", "timestamp", *_TOTALS, "stages", "metadata", "rank", "world_size")


def _report_of(stage: _Kind, required: tuple[str, ...]) -> _Kind:
    return _Kind({**_REPORT_KEYS, "stages": _mapping_of(_stage_of(stage))}, required)


_REPORT = _report_of(_STAGE, (*_REQUIRED, "process"))
_MERGED_REPORT = _report_of(_MERGED_STAGE, (*_REQUIRED, "processes"))
_PEERS_REPORT = _report_of(_PEERS_STAGE, ("stages",))
