"""Merging the timing reports of many ranks into one.

In a merged report ``count, duration_ms, mean_ms, std_ms`` of a stage are those of its slowest rank, ``min_ms`` and
``max_ms`` those of all ranks, ``error_count`` and ``cancelled_count`` sums, memory the most on any rank;
``parallel_info`` has each rank. Reports of several processes of one rank add up there. ``processes`` lists the
processes that have reports in it, in place of ``process``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from cprofiling.analysis.timing_reports import SCHEMA_VERSION, load_timing_report, processes_of
from cprofiling.layers.ranks.merge_statistics import Merged, choose
from cprofiling.layers.ranks.skew import SkewBuilder, label_order
from cprofiling.nodes.rank_snapshot import rank_of_name

_TIMES = ("mean_ms", "min_ms", "max_ms", "std_ms")
_FAULTS = ("error_count", "cancelled_count")  # they are there where there were any
_PEAKS = ("peak_allocated_mb", "peak_reserved_mb")
_MB_PER_GB = 1024


class Report(NamedTuple):
    """A timing report, as it is merged."""

    path: str
    label: str  # the rank, or the path where none is known
    content: dict[str, Any]
    identities: tuple[str, ...]  # ids of processes, with the request; else a text of the whole


def read_report(path: str) -> Report:
    """Read a timing report.

    Raises OSError if it cannot be read, FormatError if it is no timing report.
    """
    content = load_timing_report(path)
    rank = content.get("rank", rank_of_name(path))
    label = path if rank is None else str(int(rank))
    named = tuple(f"{process['id']} {process['request_id']}" for process in _processes(content))
    return Report(path, label, content, named or (json.dumps(content, sort_keys=True),))


def _processes(content: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the processes of a report, with rank and request."""
    known = {"rank": content.get("rank", 0), "request_id": content.get("request_id", "")}
    return [{**known, **process} for process in processes_of(content)]


def merge_reports(reports: Iterable[Report]) -> Merged:
    """Merge timing reports in any order, with the same result.

    Of two with records of one process and request, that with the longer time, of all its ranks, is merged; the other
    is refused.
    """
    chosen, refused = choose(
        sorted(reports, key=_order),
        lambda report: report.identities,
        lambda report: report.path,
        lambda _, other: f"it has data of the same process and request as {other.path}, and is not counted again",
    )
    chosen.sort(key=lambda report: (label_order(report.label), _order(report)))
    skew = SkewBuilder()
    ranks: dict[str, dict[str, dict[str, Any]]] = {}  # by stage, then by label
    for report in chosen:
        for name, stage in report.content["stages"].items():
            for label, figures in _ranks_of(report.label, stage):
                skew.add(label, [("", name, figures["duration_ms"])])
                of_stage = ranks.setdefault(name, {})
                of_stage[label] = _added(of_stage[label], figures) if label in of_stage else figures
    labels = {label for of_stage in ranks.values() for label in of_stage} or {report.label for report in chosen}
    ordered = sorted(labels, key=label_order)
    processes = [process for report in chosen for process in _processes(report.content)]
    return Merged(
        tuple(ordered),
        skew.build(),
        max((int(each.content["world_size"]) for each in chosen if each.content.get("world_size")), default=None),
        tuple((str(int(process["rank"])), process["host"]) for process in processes),
        dict(sorted(refused.items())),
        report=_merged(chosen, ranks, ordered) if chosen else None,
    )


def _order(report: Report) -> tuple[float, int, str, str]:
    ranks = [rank for stage in report.content["stages"].values() for rank in _ranks_of("", stage)]
    total_ms = math.fsum(figures["duration_ms"] for _, figures in ranks)
    return (-total_ms, -len(report.identities), json.dumps(report.content, sort_keys=True), report.path)


def _ranks_of(label: str, stage: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    ranks = stage.get("parallel_info", {}).get("ranks")
    if not ranks:
        return [(label, _figures(stage))]
    found = [(str(int(rank["rank"])), _figures(rank)) for rank in ranks]
    first = found[0][1]  # gets figures of an unknown one of them
    if stage.get("memory"):
        first["memory"] = stage["memory"]
    for key in _FAULTS:
        unsaid = stage.get(key, 0) - sum(figures.get(key, 0) for _, figures in found)
        if unsaid > 0:
            first[key] = first.get(key, 0) + unsaid
    return found


def _figures(told: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of a stage or rank that are merged."""
    times = () if told.get("count") == 0 else _TIMES
    keys = ("duration_ms", "count", *_FAULTS, *times, "peak_memory_gb", "memory")
    figures = {key: told[key] for key in keys if told.get(key) is not None}
    peak_mb = figures.get("memory", {}).get("peak_allocated_mb")
    if peak_mb is not None:
        figures.setdefault("peak_memory_gb", peak_mb / _MB_PER_GB)
    return figures


def _added(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """Add the figures of two processes of one rank that both have."""
    both = a.keys() & b.keys()
    total = {"duration_ms": a["duration_ms"] + b["duration_ms"], **_faults((a, b)), **_range((a, b))}
    if "count" in both:
        total["count"] = a["count"] + b["count"]
    if total.get("count"):
        total["mean_ms"] = total["duration_ms"] / total["count"]
        called = [each for each in (a, b) if each["count"]]
        if all({"mean_ms", "std_ms"} <= each.keys() for each in called):
            mean_ms = total["mean_ms"]
            squares = (each["count"] * (each["std_ms"] ** 2 + (each["mean_ms"] - mean_ms) ** 2) for each in called)
            total["std_ms"] = math.sqrt(math.fsum(squares) / total["count"])
    if "peak_memory_gb" in both:
        total["peak_memory_gb"] = max(a["peak_memory_gb"], b["peak_memory_gb"])
    if "memory" in both:
        total["memory"] = _most(a["memory"], b["memory"])
    return total


def _faults(parts: Collection[dict[str, Any]]) -> dict[str, int]:
    """Return the sums of failed and cancelled calls, where there are any."""
    return {key: sum(part.get(key, 0) for part in parts) for key in _FAULTS if any(key in part for part in parts)}


def _range(parts: Iterable[dict[str, Any]]) -> dict[str, float]:
    """Return the shortest and longest call, where all parts tell theirs."""
    called = [part for part in parts if part.get("count") != 0]
    return {
        key: pick(part[key] for part in called)
        for key, pick in (("min_ms", min), ("max_ms", max))
        if called and all(key in part for part in called)
    }


def _most(*memories: dict[str, float]) -> dict[str, float]:
    found: dict[str, float] = {}
    for memory in memories:
        for key, value in memory.items():
            found[key] = max(value, found.get(key, 0))
    return found


def _merged(
    reports: Sequence[Report], ranks: dict[str, dict[str, dict[str, Any]]], labels: Sequence[str]
) -> dict[str, Any]:
    numbers = {label: int(label) for label in labels if label.isdecimal()}
    free = max(numbers.values(), default=-1) + 1  # ranks for those without
    numbers.update((label, rank) for rank, label in enumerate(sorted(set(labels) - numbers.keys()), free))
    places: dict[str, int] = {}  # of the stages, each as early as in any of the reports
    for report in reports:
        for place, name in enumerate(report.content["stages"]):
            places[name] = min(place, places.get(name, place))
    stages: dict[str, dict[str, Any]] = {}
    for name in sorted(places, key=lambda name: (places[name], name)):
        of_ranks = ranks[name]
        in_order = sorted(of_ranks, key=label_order)
        slowest = max((of_ranks[label] for label in in_order), key=itemgetter("duration_ms"))
        stage: dict[str, Any] = {
            key: slowest[key] for key in ("count", "duration_ms", "mean_ms", "std_ms") if key in slowest
        }
        stage |= {**_range(of_ranks.values()), **_faults(of_ranks.values())}
        memory = _most(*(figures["memory"] for figures in of_ranks.values() if "memory" in figures))
        if memory:
            stage["memory"] = memory
        rows = [{"rank": numbers[label], **of_ranks[label]} for label in in_order]
        for row in rows:
            row.pop("memory", None)
        stages[name] = {**stage, "parallel_info": {"num_ranks": len(rows), "ranks": rows}}
    total_ms = sum(stage["duration_ms"] for stage in stages.values())
    for stage in stages.values():
        stage["percentage"] = round(100 * stage["duration_ms"] / total_ms, 2) if total_ms else 0.0
    contents = [report.content for report in reports]
    requests = {each.get("request_id", "merged") for each in contents}
    first, *others = (each.get("metadata", {}) for each in contents)
    merged: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "request_id": requests.pop() if len(requests) == 1 else "merged",
        "timestamp": max(each.get("timestamp", "") for each in contents),
        "wall_clock_ms": max(each.get("wall_clock_ms", 0.0) for each in contents),
        "total_stages_ms": total_ms,
        "num_stages": len(stages),
        "stages": stages,
        "metadata": {
            key: value for key, value in first.items() if all(key in each and each[key] == value for each in others)
        },
        "rank": min((int(label) for label in labels if label.isdecimal()), default=0),
        "world_size": max(len(labels), *(each.get("world_size", 1) for each in contents)),
        "processes": [process for content in contents for process in _processes(content)],
    }
    memories = [each.get("memory", {}) for each in contents]
    peaks = _most(*({key: memory[key] for key in _PEAKS if key in memory} for memory in memories))
    return {**merged, "memory": {**peaks, "snapshots": {}}} if peaks else merged
