"""Timing reports from files and dicts, ours and telefuser's."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from cprofiling._core import FormatError
from cprofiling._internal import arguments, file_kinds
from cprofiling._internal.json_input import Fault, place_of, read_json, schema, shown
from cprofiling._internal.text import shown_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from _typeshed import StrOrBytesPath

SCHEMA_VERSION = 1
_ROUNDING_MS = 0.01  # telefuser rounds to two decimals, and so may others


def load_timing_report(path: StrOrBytesPath) -> dict[str, Any]:
    """Read a timing report of this package or of telefuser.

    Those of telefuser lack ``schema_version``, ``process``, and ``count``, mean, least, largest and spread of calls.
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
    """Return a timing report that came as a dict.

    Raises FormatError, which names ``source`` and the place in it, for a dict that is no timing report.
    """
    return _checked(dict(report), source)


def processes_of(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the processes with records in a report.

    A report of telefuser does not name any.
    """
    return list(report.get("processes") or [report[key] for key in ("process",) if key in report])


def _checked(value: Any, source: str) -> dict[str, Any]:
    try:
        if not isinstance(value, dict):
            raise Fault("$", f"a timing report is an object, got {shown(value)}")
        schema("timing").check(value)
        for name, stage in value["stages"].items():
            _check_order(stage, place_of("$.stages", name))
    except Fault as fault:
        raise FormatError(f"{source}: {fault}") from None
    return value


def _check_order(stage: dict[str, Any], place: str) -> None:
    """Check that least, mean, most and spread fit together."""

    def slack(value: float) -> float:
        return _ROUNDING_MS + 1e-9 * value

    known = [(key, stage[key]) for key in ("min_ms", "mean_ms", "max_ms") if stage.get(key) is not None]
    for (low_key, low), (high_key, high) in pairwise(known):
        if low > high + slack(high):
            raise Fault(place, f"{low_key} {shown(low)} is above {high_key} {shown(high)}")
    least, most, spread = (stage.get(key) for key in ("min_ms", "max_ms", "std_ms"))
    if least is not None and most is not None and spread is not None and spread > most - least + slack(most):
        raise Fault(place, f"std_ms {shown(spread)} is above max_ms - min_ms")
