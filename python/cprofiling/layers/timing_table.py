"""Table of a timing report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cprofiling._internal.text import plain_table, shown_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_COLUMNS = ("Stage", "Count", "Total (ms)", "Mean (ms)", "Min (ms)", "Max (ms)", "%", "Peak (MB)")


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
        add(shown_text("name", name), stage, f"{stage['percentage']:.1f}", peak_mb)
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
