"""Findings: what costs time or memory in a recording, rule by rule."""

from __future__ import annotations

from cprofiling.analysis.evidence import Evidence
from cprofiling.analysis.findings.change import CHANGE_RULES
from cprofiling.analysis.findings.content import CONTENT_RULES
from cprofiling.analysis.findings.device import DEVICE_RULES
from cprofiling.analysis.findings.finding import Findings
from cprofiling.analysis.findings.host import HOST_RULES
from cprofiling.recording.columns import Recording, drop_notes


def findings(recording: Recording, baseline: Recording | None = None) -> Findings:
    """Return what a recording shows about where its time goes, the largest share first.

    Args:
        recording: A finished recording.
        baseline: Another recording of the same program: then what became slower, or happens more often, is found, too.
    """
    evidence = Evidence(recording)
    found = [finding for rule in (*HOST_RULES, *CONTENT_RULES, *DEVICE_RULES) for finding in rule(evidence)]
    if baseline is not None:
        other = Evidence(baseline)
        found += [finding for change in CHANGE_RULES for finding in change(evidence, other)]
    notes = drop_notes(recording)
    if baseline is not None:
        notes += [f"Of the baseline: {note}" for note in drop_notes(baseline)]
    return Findings(found, notes=notes)
