"""Timing reports to read and to compare: ours, and one as telefuser writes it."""

from __future__ import annotations

from typing import Any

MEMORY = {"allocated_mb": 10.0, "reserved_mb": 12.0, "peak_allocated_mb": 20.0, "peak_reserved_mb": 24.5}


def stage(count: int, mean_ms: float, std_ms: float, **other: Any) -> dict[str, Any]:
    """A stage as ours has it."""
    return {
        "count": count,
        "duration_ms": count * mean_ms,
        "mean_ms": mean_ms,
        "min_ms": mean_ms - std_ms,
        "max_ms": mean_ms + std_ms,
        "std_ms": std_ms,
        "percentage": 10.0,
        **other,
    }


def ours(stages: dict[str, dict[str, Any]], **other: Any) -> dict[str, Any]:
    """A report as ``cprofiling.layers`` makes it."""
    return {
        "schema_version": 1,
        "request_id": "req_1",
        "timestamp": "2026-01-02T03:04:05+00:00",
        "wall_clock_ms": 1000.0,
        "total_stages_ms": sum(figures["duration_ms"] for figures in stages.values()),
        "num_stages": len(stages),
        "stages": stages,
        "metadata": {},
        "rank": 0,
        "world_size": 1,
        "process": {"host": "here", "pid": 7, "id": "00ff"},
        **other,
    }


def peers(stages: dict[str, float], **other: Any) -> dict[str, Any]:
    """A report as telefuser makes it."""
    return {
        "request_id": "req_1",
        "timestamp": "2026-01-02T03:04:05+00:00",
        "wall_clock_ms": 1000.0,
        "total_stages_ms": sum(stages.values()),
        "num_stages": len(stages),
        "stages": {name: {"duration_ms": time_ms, "percentage": 10.0} for name, time_ms in stages.items()},
        "metadata": {},
        **other,
    }


RANK = {"rank": 0, "count": 2, "duration_ms": 3.5, "mean_ms": 1.75, "min_ms": 1.5, "max_ms": 2.0, "std_ms": 0.25}
OURS = ours(
    {
        "vae": stage(4, 12.5, 0.5, error_count=1, memory=MEMORY),
        "dit": stage(2, 7.0, 1.0, parallel_info={"num_ranks": 1, "ranks": [{**RANK, "peak_memory_gb": 2.5}]}),
    },
    metadata={"model": "tiny", "steps": [1, None]},
    memory={"peak_allocated_mb": 20.0, "peak_reserved_mb": 24.5, "snapshots": {"before_vae": MEMORY}},
)
PEERS = peers({"vae": 12.5, "dit": 3.0}, peak_memory_gb=0.02)
PEERS["stages"]["dit"]["parallel_info"] = {
    "num_ranks": 1,
    "ranks": [{"rank": 0, "duration_ms": 3.0, "peak_memory_gb": 0.5}],
}
MERGED = {key: value for key, value in OURS.items() if key != "process"}
MERGED["processes"] = [{**OURS["process"], "rank": 0, "request_id": "req_1"}]
MERGED["stages"] = {
    "dit": {"duration_ms": 3.5, "percentage": 100.0, "parallel_info": {"num_ranks": 1, "ranks": [RANK]}}
}
