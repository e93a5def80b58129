"""Table of a timing report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cprofiling._internal.text import shown_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_HEAD = (
    f"{'Stage':<32} {'Count':>7} {'Total(ms)':>12} {'Mean(ms)':>11} {'Min(ms)':>11} {'Max(ms)':>11} {'%':>6} "
    f"{'Peak(MB)':>9}"
)


def timing_table(report: Mapping[str, Any]) -> str:
    """Return a timing report as a table with a row per stage and rank.

    The peaks are those of what was reserved, in units of 1024 * 1024 bytes.
    """
    request = shown_text("request_id", report["request_id"])
    lines = [
        f"Pipeline timing of {request}" if request else "Pipeline timing",
        f"Wall clock: {report['wall_clock_ms']:.2f} ms, stages: {report['total_stages_ms']:.2f} ms",
        _HEAD,
        "-" * len(_HEAD),
    ]
    for name, stage in report["stages"].items():
        peak_mb = stage["memory"]["peak_reserved_mb"] if stage.get("memory") is not None else None
        lines.append(_row(shown_text("name", name), stage, stage["percentage"], peak_mb))
        for rank in stage.get("parallel_info", {}).get("ranks", ()):
            peak = rank["peak_memory_gb"]
            lines.append(_row(f"  rank {rank['rank']}", rank, None, None if peak is None else peak * 1024))
    lines.append("-" * len(_HEAD))
    if "memory" in report:
        lines.append("Memory checkpoints (MB): in use / reserved (peaks)")
        lines += [
            f"  {shown_text('name', name)}: {of['allocated_mb']:.0f} / {of['reserved_mb']:.0f} "
            f"({of['peak_allocated_mb']:.0f} / {of['peak_reserved_mb']:.0f})"
            for name, of in report["memory"]["snapshots"].items()
        ]
    return "\n".join(lines)


def _row(name: str, of: Mapping[str, Any], percentage: float | None, peak_mb: float | None) -> str:
    share = "" if percentage is None else f"{percentage:.1f}"
    peak = "" if peak_mb is None else f"{peak_mb:.0f}"
    return (
        f"{name:<32} {of['count']:>7} {of['duration_ms']:>12.2f} {of['mean_ms']:>11.2f} {of['min_ms']:>11.2f} "
        f"{of['max_ms']:>11.2f} {share:>6} {peak:>9}"
    ).rstrip()
