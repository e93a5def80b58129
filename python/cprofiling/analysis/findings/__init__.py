"""Findings about where the time of a recording goes.

A rule finds something or nothing; its limits are constants beside it, with their reasons. The list of rules is here.
"""

from __future__ import annotations

from cprofiling.analysis.evidence import Evidence
from cprofiling.analysis.findings.change import more_calls, more_copies, slower, slower_calls
from cprofiling.analysis.findings.content import float64, gradients, memory_growth
from cprofiling.analysis.findings.device import copies, device_waits, launch_bound
from cprofiling.analysis.findings.finding import Findings
from cprofiling.analysis.findings.host import (
    data_loading,
    dominant_operator,
    many_short_calls,
    outside_nodes,
    python_overhead,
)
from cprofiling.recording.columns import drop_notes

_RULES = (
    outside_nodes,
    data_loading,
    dominant_operator,
    python_overhead,
    many_short_calls,
    memory_growth,
    float64,
    gradients,
    copies,
    device_waits,
    launch_bound,
)
_CHANGE_RULES = (more_copies, more_calls, slower_calls, slower)


def findings(evidence: Evidence, baseline: Evidence | None = None) -> Findings:
    """Find where the time of a recording goes, the largest share first.

    Args:
        evidence: A finished recording.
        baseline: Another recording of the same program: then what became slower, or happens more often, is found, too.
    """
    found = [finding for rule in _RULES for finding in rule(evidence)]
    if baseline is not None:
        found += [finding for rule in _CHANGE_RULES for finding in rule(evidence, baseline)]
    notes = drop_notes(evidence.recording)
    if baseline is not None:
        notes += [f"Of the baseline: {note}" for note in drop_notes(baseline.recording)]
    return Findings(found, notes=notes)
