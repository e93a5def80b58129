"""The printed report of a recording."""

from __future__ import annotations

from cprofiling._internal import arguments
from cprofiling._internal.row_kinds import COUNTER, DEVICE, NODE
from cprofiling._internal.text import counted
from cprofiling.analysis.device_figures import copy_breakdown, idle_times
from cprofiling.analysis.findings import findings
from cprofiling.analysis.grouping import key_averages
from cprofiling.analysis.inference_reports import INFERENCE, device_operators, summary
from cprofiling.recording.columns import Recording, column, texts_of

_ROWS = 20


def overview(
    recording: Recording,
    baseline: Recording | None = None,
    row_limit: int | None = _ROWS,
    sort_by: str | None = None,
    group_by_node: bool = False,
) -> str:
    """Return averages, inferences, devices and findings as text.

    The summary is there where spans are named ``Inference``, or nodes ran.

    Args:
        recording: A finished recording; an empty one gives an empty report under the same titles.
        baseline: Another recording of the same program, which the findings compare with.
        row_limit: The most rows of each table; all if it is None or negative.
        sort_by: The figure by which the averages are sorted (see ``KeyAverages.table``); None: the device's own time
            where there is a device, else the host's.
        group_by_node: Whether the averages tell apart what ran in different nodes.

    Raises:
        TypeError: ``row_limit`` is no integer.
        ValueError: ``sort_by`` is unknown.
    """
    row_limit = arguments.index_or_none("row_limit", row_limit)
    kinds = column(recording, "kind")
    count = sum(kind != COUNTER for kind in kinds)
    has_device = DEVICE in set(kinds)
    averages = key_averages(recording, group_by_node=group_by_node)
    if sort_by is None:
        sort_by = "self_device_time_total" if has_device else "self_cpu_time_total"
    tracks = len(recording.tracks)
    places = f"{tracks:,} threads{' and streams' if has_device else ''}"
    if tracks == 1:
        places = "1 stream" if has_device else "1 thread"
    parts = [
        f"Recording of {counted(count, 'event')} on {places}",
        f"Averages, by {sort_by}\n{averages.table(sort_by=sort_by, row_limit=row_limit)}".rstrip("\n"),
    ]
    if NODE in set(kinds) or not texts_of(recording, INFERENCE).isdisjoint(column(recording, "name")):
        parts.append(str(summary(recording)))
    if has_device:
        parts += [
            f"Device operators\n{device_operators(recording).text(row_limit)}",
            f"Copies\n{copy_breakdown(recording)}",
            f"Idle time of streams\n{idle_times(recording)}",
        ]
    parts.append(str(findings(recording, baseline)))
    return "\n\n".join(parts) + "\n"
