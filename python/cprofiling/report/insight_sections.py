"""The insights that views show without being asked: tables of ``cprofiling.report.document`` by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cprofiling._internal.tables import MOST_ROWS
from cprofiling.analysis import frames, gaps, warm_up, what_if
from cprofiling.analysis.evidence import Evidence

if TYPE_CHECKING:
    from cprofiling._internal.tables import Section
    from cprofiling.analysis.insight_table import Insight
    from cprofiling.nodes.stats import ProfilingSummary
    from cprofiling.recording.columns import Recording


def of_summary(summary: ProfilingSummary) -> dict[str, Section]:
    """Return what a summary tells: ``warm_up``, ``what_if`` and ``frames``, those that have rows."""
    return _sections(
        warm_up=summary.warm_up(),
        what_if=what_if.of_summary(summary, most=MOST_ROWS),
        frames=summary.frames_per_second(),
    )


def of_recording(recording: Recording) -> dict[str, Section]:
    """Return what a recording tells: ``warm_up``, ``gaps``, ``what_if`` and ``frames``, those that have rows."""
    evidence = Evidence(recording)
    if not evidence.nodes:
        return {}
    found = frames.RecordedFrames(evidence)
    return _sections(
        warm_up=warm_up.of_recording(evidence),
        gaps=gaps.of_frames(found),
        what_if=what_if.of_frames(found, most=MOST_ROWS),
        frames=frames.of_frames(found),
    )


def _sections(**found: Insight[Any]) -> dict[str, Section]:
    return {name: insight.section() for name, insight in found.items() if insight}
