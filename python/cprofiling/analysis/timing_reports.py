"""Timing reports from files and dicts, ours and telefuser's, their table and comparison."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

from cprofiling._core import FormatError
from cprofiling._internal import arguments, file_kinds
from cprofiling._internal.json_input import Fault, place_of, read_json, schema, shown
from cprofiling._internal.text import plain_table, shown_text, shown_value
from cprofiling.analysis.comparison import CONFIDENCE, MIN_CHANGE_PCT, RowTimes, Run, compare_runs

if TYPE_CHECKING:
    from _typeshed import StrOrBytesPath

    from cprofiling.analysis.comparison import TimingComparison

    Report: TypeAlias = StrOrBytesPath | Mapping[str, Any]
    Reports: TypeAlias = Report | Sequence[Report]

SCHEMA_VERSION = 1
_COLUMNS = ("Stage", "Count", "Total (ms)", "Mean (ms)", "Min (ms)", "Max (ms)", "Share", "Peak (MB)")
_ROUNDING_MS = 0.01  # telefuser rounds to two decimals, and so may others


def load_timing_report(path: StrOrBytesPath) -> dict[str, Any]:
    """Read a timing report of this package or of telefuser.

    Those of telefuser lack ``schema_version``, ``process``, and ``count``, mean, least, largest and spread of calls.
    The published JSON schema is ``cprofiling/schemas/timing.schema.json``. Keys that it does not name are passed on.

    Raises:
        TypeError: The path is not a path.
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
            place = place_of("$.stages", name)
            known = [(key, stage[key]) for key in ("min_ms", "mean_ms", "max_ms") if stage.get(key) is not None]
            for (low_key, low), (high_key, high) in pairwise(known):
                if low > high + (_ROUNDING_MS + 1e-9 * high):
                    raise Fault(place, f"{low_key} {shown(low)} is above {high_key} {shown(high)}")
            least, most, spread = (stage.get(key) for key in ("min_ms", "max_ms", "std_ms"))
            is_known = None not in (least, most, spread)
            if is_known and spread > most - least + (_ROUNDING_MS + 1e-9 * most):
                raise Fault(place, f"std_ms {shown(spread)} is above max_ms - min_ms")
    except Fault as fault:
        raise FormatError(f"{source}: {fault}") from None
    return value


def compare_timing_reports(
    baseline: Reports, new: Reports, *, min_change_pct: float = MIN_CHANGE_PCT, confidence: float = CONFIDENCE
) -> TimingComparison:
    """Compare the times of stages in two timing reports, or several a side.

    A stage is slower (or faster) where all of the interval for the difference of the two means lies beyond the smallest
    change that counts. It is the same where all of it lies within, and unclear where neither is so. The intervals hold
    together, so that of stages that are all the same one is found slower in at most one of 40 comparisons by chance.

    Where every new call takes longer than every old one, by more than the smallest change, and chance does that in
    fewer than 1 of 1,000 comparisons, the stage is slower too. Where neither an interval nor that is possible, as of
    one call, the verdict is ``not enough samples``, or ``unknown`` of reports that tell no spread, as telefuser's.

    The interval is the wider one of B. L. Welch's (Biometrika 34, 1947) and Student's. Of one report a side it is made
    from its calls, which do not tell how runs differ. It is wider by what most rows changed by, up to twice the time,
    or, with fewer than five rows, by 30 % of the time. Of several a side it is made from the means of the runs, and of
    one against several with the spread of the latter for both.

    Args:
        baseline: A path, or a report as a dict; or a list of these: runs of the same program.
        new: The same.
        min_change_pct: The smallest change that counts, in percent of the baseline: 0 to 1e6.
        confidence: Of all intervals together: above 0, at most 0.999999.

    Raises:
        TypeError: A report is neither path nor mapping, or another argument no number.
        ValueError: An argument is out of range, or a side has no report, or the same one twice.
        OSError: A file cannot be read.
        FormatError: A report is damaged; the message names it, and the place in it.
    """
    return compare_runs(_runs("baseline", baseline), _runs("new", new), min_change_pct, confidence)


def _runs(parameter: str, given: Any) -> list[Run]:
    runs = []
    for each in given if isinstance(given, (list, tuple)) else [given]:
        if hasattr(each, "keys"):
            report = checked_timing_report(each, parameter)
        elif isinstance(each, (str, bytes)) or hasattr(each, "__fspath__"):
            report = load_timing_report(arguments.path(parameter, each))
        else:
            raise TypeError(f"{parameter} must be a path or a report as a dict, got {shown_value(each)}")
        runs.append(run_of_report(report))
    return runs


def run_of_report(report: Mapping[str, Any]) -> Run:
    """Return the run of a checked timing report.

    Older ones of telefuser call the sum ``total_ms``.
    """
    stages, processes = report["stages"], processes_of(report)
    told = report.get("total_stages_ms", report.get("total_ms"))
    ids = frozenset(process["id"] for process in processes)
    return Run(
        {name: RowTimes.of(stage, stage["duration_ms"]) for name, stage in stages.items()},
        math.fsum(stage["duration_ms"] for stage in stages.values()) if told is None else float(told),
        str(report.get("request_id", "")),
        (ids, report.get("request_id"), report.get("timestamp")) if ids else None,
        tuple(process["host"] for process in processes),
        report.get("world_size"),
    )


def timing_table(report: Mapping[str, Any]) -> str:
    """Return a timing report as a table with a row per stage and rank.

    The peaks are of reserved memory, in units of 1024 * 1024 bytes.
    """
    rows: list[tuple[str, ...]] = [_COLUMNS]

    def add(name: str, of: Mapping[str, Any], share: str, peak_mb: float | None) -> None:
        times = (f"{of[key]:.2f}" for key in ("duration_ms", "mean_ms", "min_ms", "max_ms"))
        rows.append((name, str(of["count"]), *times, share, "" if peak_mb is None else f"{peak_mb:.0f}"))

    for name, stage in report["stages"].items():
        peak_mb = stage["memory"]["peak_reserved_mb"] if stage.get("memory") is not None else None
        add(shown_text("name", name), stage, f"{stage['percentage']:.1f} %", peak_mb)
        for rank in stage.get("parallel_info", {}).get("ranks", ()):
            peak_gb = rank["peak_memory_gb"]
            add(f"  rank {rank['rank']}", rank, "", None if peak_gb is None else peak_gb * 1024)
    request = shown_text("request_id", report["request_id"])
    lines = [
        f"Pipeline timing of {request}" if request else "Pipeline timing",
        f"Wall clock: {report['wall_clock_ms']:.2f} ms, stages: {report['total_stages_ms']:.2f} ms",
        plain_table(rows, [column == "Stage" for column in _COLUMNS]),
    ]
    if "memory" in report:
        lines.append("Memory checkpoints (MB): in use / reserved (peaks)")
        lines += [
            f"  {shown_text('name', name)}: {of['allocated_mb']:.0f} / {of['reserved_mb']:.0f} "
            f"({of['peak_allocated_mb']:.0f} / {of['peak_reserved_mb']:.0f})"
            for name, of in report["memory"]["snapshots"].items()
        ]
    return "\n".join(lines)
