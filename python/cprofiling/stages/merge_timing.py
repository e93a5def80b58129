"""Merging the timing reports of many ranks into one: a stage lasts as long as on its slowest rank.

In a merged report ``count, duration_ms, mean_ms, std_ms`` of a stage are those of its slowest rank, ``min_ms`` and
``max_ms`` those of all ranks, ``error_count`` a sum, memory the most on any rank; ``parallel_info`` has each rank.
Reports of several processes of one rank add up there. ``processes`` lists whose reports are in it.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field

from cprofiling.format import shown_value
from cprofiling.snapshot import FormatError
from cprofiling.stages.ranks import rank_of_name
from cprofiling.stages.skew import Skew, SkewBuilder, label_order

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

SCHEMA_VERSION = 1
_MOST_BYTES = 256 << 20
_TIMES = ("mean_ms", "min_ms", "max_ms", "std_ms")
_COUNTS = ("count", "error_count")
_MEMORY = ("allocated_mb", "reserved_mb", "peak_allocated_mb", "peak_reserved_mb")
_PEAKS = ("peak_allocated_mb", "peak_reserved_mb")
_MB_PER_GB = 1024
_MOST = 2**53


@dataclass(frozen=True)
class Report:
    """A timing report, as it is merged.

    Attributes:
        path: Its file.
        label: The rank, or the file's name where none is known.
        content: The JSON object.
        identities: What tells the data: ids of processes, with the request; else a text of the whole.
    """

    path: str
    label: str
    content: dict[str, Any]
    identities: tuple[str, ...]


@dataclass(frozen=True)
class MergedTiming:
    """Timing reports of several ranks as one: see the attributes of MergedStatistics; ``report`` is the JSON object."""

    report: dict[str, Any] | None
    labels: tuple[str, ...]
    skew: Skew
    world_size: int | None
    refused: dict[str, str] = field(default_factory=dict)


def read_report(path: str) -> Report:
    """Read a timing report, ours or one of telefuser. OSError where it cannot be read, FormatError for what is none."""
    with open(path, "rb") as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise FormatError(f"more than {_MOST_BYTES} bytes are no timing report")
    try:
        content = json.loads(data, parse_constant=_refused)
    except RecursionError:
        raise FormatError("it is nested too deeply") from None
    except ValueError as error:
        raise FormatError(f"it is no JSON: {error}") from None
    _check(content)
    rank = content.get("rank", rank_of_name(path))
    label = path if rank is None else str(rank)
    return Report(path, label, content, _identities(content))


def _refused(constant: str) -> None:
    raise ValueError(f"there is no {constant} in JSON")


def _check(content: Any) -> None:
    """Check all that is used. FormatError for the first thing that is wrong."""
    if not isinstance(content, dict) or not isinstance(content.get("stages"), dict):
        raise FormatError("it is no timing report: it has no object of stages")
    version = content.get("schema_version", SCHEMA_VERSION)
    if version != SCHEMA_VERSION:
        raise FormatError(f"it is of schema version {shown_value(version)}, expected {SCHEMA_VERSION}")
    for key in ("rank", "world_size"):
        _check_integer(key, content.get(key, 0))
    if not isinstance(content.get("processes", []), list) or not isinstance(content.get("metadata", {}), dict):
        raise FormatError("processes must be a list, and metadata an object")
    for name, stage in content["stages"].items():
        _check_stage(f"stage {shown_value(name)}", stage)


def _check_stage(where: str, stage: Any) -> None:
    if not isinstance(stage, dict):
        raise FormatError(f"{where} must be an object, got {shown_value(stage)}")
    _check_number(f"{where}: duration_ms", stage.get("duration_ms"))
    _check_figures(where, stage)
    memory = stage.get("memory")
    if memory is not None:
        _check_numbers(f"{where}: memory", memory, _MEMORY)
    parallel = stage.get("parallel_info")
    ranks = [] if parallel is None else parallel.get("ranks") if isinstance(parallel, dict) else None
    if not isinstance(ranks, list):
        raise FormatError(f"{where}: parallel_info must have a list of ranks")
    for rank in ranks:
        if not isinstance(rank, dict):
            raise FormatError(f"{where}: each of the ranks must be an object, got {shown_value(rank)}")
        _check_integer(f"{where}: rank", rank.get("rank"))
        _check_number(f"{where}: duration_ms of a rank", rank.get("duration_ms"))
        _check_figures(where, rank)


def _check_figures(where: str, figures: dict[str, Any]) -> None:
    for key in _COUNTS:
        if key in figures:
            _check_integer(f"{where}: {key}", figures[key])
    _check_numbers(where, figures, (*_TIMES, "peak_memory_gb"))


def _check_numbers(where: str, figures: Any, keys: Sequence[str]) -> None:
    if not isinstance(figures, dict):
        raise FormatError(f"{where} must be an object, got {shown_value(figures)}")
    for key in keys:
        if figures.get(key) is not None:
            _check_number(f"{where}: {key}", figures[key])


def _check_number(what: str, value: Any) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= _MOST:
        raise FormatError(f"{what} must be a number from 0 to 2**53, got {shown_value(value)}")


def _check_integer(what: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
        raise FormatError(f"{what} must be an integer from 0 to 2**53, got {shown_value(value)}")


def _identities(content: dict[str, Any]) -> tuple[str, ...]:
    """What tells the data of a report: of whose records it is made, or the whole of it where that is not said."""
    processes = [content.get("process"), *content.get("processes", [])]
    ids = [each.get("id") for each in processes if isinstance(each, dict)]
    request = content.get("request_id")
    named = tuple(f"{each} {request}" for each in ids if isinstance(each, str))
    return named or (json.dumps(content, sort_keys=True),)


def merge_reports(reports: Iterable[Report]) -> MergedTiming:
    """Merge timing reports, in any order; the result is the same.

    Of two with records of one process and request, that with the longer total time is merged, the other is refused.
    """
    chosen, refused = _chosen(reports)
    skew = SkewBuilder()
    ranks: dict[str, dict[str, dict[str, Any]]] = {}  # by stage, then by label
    for report in chosen:
        for name, stage in report.content["stages"].items():
            for label, figures in _ranks_of(report.label, stage):
                skew.add(label, [("", name, figures["duration_ms"])])
                of_stage = ranks.setdefault(name, {})
                of_stage[label] = _added(of_stage[label], figures) if label in of_stage else figures
    labels = sorted({label for of_stage in ranks.values() for label in of_stage}, key=label_order)
    labels = labels or sorted({report.label for report in chosen}, key=label_order)
    sizes = [report.content["world_size"] for report in chosen if report.content.get("world_size")]
    merged = _merged(chosen, ranks, labels) if chosen else None
    return MergedTiming(merged, tuple(labels), skew.build(), max(sizes, default=None), dict(sorted(refused.items())))


def _chosen(reports: Iterable[Report]) -> tuple[list[Report], dict[str, str]]:
    """Return the reports that are merged, by rank, and why others are not."""

    def order(report: Report) -> tuple[float, str, str]:
        total_ms = sum(sorted(stage["duration_ms"] for stage in report.content["stages"].values()))
        return (-total_ms, json.dumps(report.content, sort_keys=True), report.path)

    chosen: list[Report] = []
    refused: dict[str, str] = {}
    owners: dict[str, str] = {}
    for report in sorted(reports, key=order):
        other = next((owners[each] for each in report.identities if each in owners), None)
        if other is None:
            owners.update(dict.fromkeys(report.identities, report.path))
            chosen.append(report)
        else:
            refused[report.path] = f"it has data of the same process and request as {other}, and is not counted again"
    return sorted(chosen, key=lambda report: (label_order(report.label), order(report))), refused


def _ranks_of(label: str, stage: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the figures of a stage by rank: those that it lists, or the report's own."""
    parallel = (stage.get("parallel_info") or {}).get("ranks")
    if not parallel:
        return [(label, _figures(stage, stage.get("memory")))]
    found = [(str(rank["rank"]), _figures(rank, None)) for rank in parallel]
    if stage.get("memory"):  # of one of them, which is not said: the most on any rank stays that
        found[0][1]["memory"] = _known_memory(stage["memory"])
    return found


def _figures(known: dict[str, Any], memory: dict[str, Any] | None) -> dict[str, Any]:
    figures = {key: known[key] for key in ("duration_ms", *_COUNTS, *_TIMES) if known.get(key) is not None}
    if memory:
        figures["memory"] = _known_memory(memory)
    peak_gb = known.get("peak_memory_gb")
    if peak_gb is None and memory and memory.get("peak_allocated_mb") is not None:
        peak_gb = memory["peak_allocated_mb"] / _MB_PER_GB
    return figures if peak_gb is None else {**figures, "peak_memory_gb": peak_gb}


def _known_memory(memory: dict[str, Any]) -> dict[str, float]:
    return {key: memory[key] for key in _MEMORY if memory.get(key) is not None}


def _added(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of two processes of one rank together; what only one of them knows is left out."""
    both = a.keys() & b.keys()
    total: dict[str, Any] = {"duration_ms": a["duration_ms"] + b["duration_ms"]}
    total |= {key: a[key] + b[key] for key in _COUNTS if key in both}
    if total.get("count"):
        total["mean_ms"] = total["duration_ms"] / total["count"]
        if {"mean_ms", "std_ms"} <= both:
            total["std_ms"] = _pooled(a, b, total["mean_ms"])
    total |= {key: pick(a[key], b[key]) for key, pick in (("min_ms", min), ("max_ms", max)) if key in both}
    if "peak_memory_gb" in both:
        total["peak_memory_gb"] = max(a["peak_memory_gb"], b["peak_memory_gb"])
    if "memory" in both:
        total["memory"] = _most(a["memory"], b["memory"])
    return total


def _pooled(a: dict[str, Any], b: dict[str, Any], mean_ms: float) -> float:
    """Return the standard deviation of two sets of samples together."""
    parts = [each["count"] * (each["std_ms"] ** 2 + (each["mean_ms"] - mean_ms) ** 2) for each in (a, b)]
    return math.sqrt(sum(parts) / (a["count"] + b["count"]))


def _most(*memories: dict[str, float]) -> dict[str, float]:
    found: dict[str, float] = {}
    for memory in memories:
        for key, value in memory.items():
            found[key] = max(value, found.get(key, 0))
    return found


def _merged(
    reports: Sequence[Report], ranks: dict[str, dict[str, dict[str, Any]]], labels: Sequence[str]
) -> dict[str, Any]:
    numbers = _numbers(labels)
    stages = {name: _stage(ranks[name], numbers) for name in _in_order(reports)}
    total_ms = sum(stage["duration_ms"] for stage in stages.values())
    for stage in stages.values():
        stage["percentage"] = 100 * stage["duration_ms"] / total_ms if total_ms else 0.0
    contents = [report.content for report in reports]
    merged: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "request_id": _common(contents, "request_id", "merged"),
        "timestamp": max((str(each["timestamp"]) for each in contents if "timestamp" in each), default=""),
        "wall_clock_ms": max((_number(each.get("wall_clock_ms")) for each in contents), default=0.0),
        "total_stages_ms": total_ms,
        "num_stages": len(stages),
        "stages": stages,
        "metadata": _common_metadata(contents),
        "rank": min((int(label) for label in labels if label.isdecimal()), default=0),
        "world_size": max(len(labels), *(each.get("world_size", 1) for each in contents)),
        "processes": [process for report in reports for process in _processes(report)],
    }
    memories = [each["memory"] for each in contents if isinstance(each.get("memory"), dict)]
    peaks = _most(*({key: _number(memory.get(key)) for key in _PEAKS if key in memory} for memory in memories))
    return {**merged, "memory": {**peaks, "snapshots": {}}} if peaks else merged


def _numbers(labels: Sequence[str]) -> dict[str, int]:
    """Return a rank for each label: those that have none come after the others."""
    known = {label: int(label) for label in labels if label.isdecimal()}
    free = max(known.values(), default=-1) + 1
    return {**known, **{label: free + place for place, label in enumerate(sorted(set(labels) - known.keys()))}}


def _in_order(reports: Sequence[Report]) -> list[str]:
    """Return the names of the stages, each as early as in any of the reports."""
    places: dict[str, int] = {}
    for report in reports:
        for place, name in enumerate(report.content["stages"]):
            places[name] = min(place, places.get(name, place))
    return sorted(places, key=lambda name: (places[name], name))


def _stage(of_stage: dict[str, dict[str, Any]], numbers: dict[str, int]) -> dict[str, Any]:
    """Return a stage over ranks."""
    labels = sorted(of_stage, key=label_order)
    slowest = of_stage[max(labels, key=lambda label: of_stage[label]["duration_ms"])]
    stage: dict[str, Any] = {
        key: slowest[key] for key in ("count", "duration_ms", "mean_ms", "std_ms") if key in slowest
    }
    for key, pick in (("min_ms", min), ("max_ms", max), ("error_count", sum)):
        values = [figures[key] for figures in of_stage.values() if key in figures]
        if values:
            stage[key] = pick(values)
    memory = _most(*(figures["memory"] for figures in of_stage.values() if "memory" in figures))
    if memory:
        stage["memory"] = memory
    ranks = [{"rank": numbers[label], **of_stage[label]} for label in labels]
    for rank in ranks:
        rank.pop("memory", None)
    stage["parallel_info"] = {"num_ranks": len(ranks), "ranks": ranks}
    return stage


def _number(value: Any) -> float:
    """Return a figure of a report that is only shown; 0.0 for what is none."""
    try:
        _check_number("a figure", value)
    except FormatError:
        return 0.0
    return float(value)


def _common(contents: Sequence[dict[str, Any]], key: str, otherwise: str) -> str:
    values = {str(each.get(key, otherwise)) for each in contents}
    return values.pop() if len(values) == 1 else otherwise


def _common_metadata(contents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what all of them say alike."""
    first, *others = (each.get("metadata", {}) for each in contents)
    return {key: value for key, value in first.items() if all(key in each and each[key] == value for each in others)}


def _processes(report: Report) -> list[dict[str, Any]]:
    """Return whose records are in a report: in a merged one, those that it lists."""
    listed = report.content.get("processes") or [report.content.get("process")]
    return [
        {**each, "rank": each.get("rank", report.content.get("rank", 0))} for each in listed if isinstance(each, dict)
    ]
