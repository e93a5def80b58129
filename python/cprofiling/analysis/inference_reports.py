"""Reports on inferences, devices and operators, and the overview.

Each function returns a report, which is text when it is printed (``str``) and a DataFrame on demand (``to_pandas``).
Times are in ns. A recording without what a report is about gives an empty one that says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cprofiling._internal.arguments import index_or_none
from cprofiling._internal.quantiles import percentile
from cprofiling._internal.row_kinds import COUNTER, CUT, DEVICE, HOST, NODE, RECORD, STEP, UNFINISHED
from cprofiling._internal.tables import ROW_LIMIT, Table, Tabular, frame_of, short_repr
from cprofiling._internal.text import counted
from cprofiling.analysis.device_figures import copy_breakdown, idle_times
from cprofiling.analysis.evidence import Evidence
from cprofiling.analysis.findings import findings
from cprofiling.analysis.grouping import key_averages
from cprofiling.recording.columns import (
    ANNOTATIONS,
    INFERENCE,
    OPERATORS,
    Recording,
    column,
    drop_notes,
    grouped,
    texts_of,
    thread_number,
)
from cprofiling.recording.dataframe import operator_indices
from cprofiling.recording.tree import SpanIds, executions, host_tree, work_rows

if TYPE_CHECKING:
    import pandas as pd

PERMILLES = (900, 950, 970, 990, 999)  # of the latencies in a summary
_TITLE = "Inference Results Summary"
_RULE = "=" * 48


@dataclass(frozen=True, repr=False)
class Report(Tabular):
    """Rows under headings, shown as a table.

    Attributes:
        columns: The headings.
        rows: The values; None for one that is not known, or not there.
        notes: Sentences on them: their meaning, missing parts.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    notes: tuple[str, ...] = ()

    def _table(self) -> Table:
        return Table(self.columns, self.rows, self.notes)

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a pandas DataFrame.

        Raises ImportError, naming the extra, without pandas.
        """
        return frame_of(self.columns, self.rows)

    def __repr__(self) -> str:
        return short_repr(f"Report of {', '.join(self.columns)}", len(self.rows), "row")


@dataclass(frozen=True, repr=False)
class Summary(Report):
    """The latencies of all inferences, printed as a box."""

    def text(self, row_limit: int | None = ROW_LIMIT) -> str:  # noqa: ARG002 all of a summary's rows are few
        """Return the box."""
        lines = [f"{figure:<32}: {'-' if value is None else value}" for figure, value in self.rows]
        return "\n".join((_RULE, f"  {_TITLE}", _RULE, *lines, *self.notes))

    def __repr__(self) -> str:
        count = self.rows[0][1]
        return short_repr("Summary", count if isinstance(count, int) else 0, "inference")


def summary(recording: Recording) -> Summary:
    """Return count, extremes, mean and percentiles of the latencies."""
    found = _Inferences(recording)
    latencies = sorted(found.duration(row) for row in found.rows)
    figures: list[tuple[object, ...]] = [
        ("Inference counts", len(latencies)),
        ("Min latency (ns)", latencies[0] if latencies else None),
        ("Max latency (ns)", latencies[-1] if latencies else None),
        ("Mean latency (ns)", sum(latencies) // len(latencies) if latencies else None),
        ("Median latency (ns)", percentile(latencies, 500)),
    ]
    figures += [
        (f"{permille / 10:.1f} percentile Latency (ns)", percentile(latencies, permille)) for permille in PERMILLES
    ]
    return Summary(("figure", "value"), tuple(figures), (*found.notes, *drop_notes(recording)))


def inferences(recording: Recording) -> Report:
    """Return the inferences by their start, with durations in ns.

    An inference without an id, such as PyTorch's, gets one for this report.
    """
    found = _Inferences(recording)
    ids = SpanIds(recording, found.tree, {})
    threads = [thread_number(track) for track in recording.tracks]
    tracks = column(recording, "track")
    rows = tuple((ids.trace(row), ids.distinct(row), threads[tracks[row]], found.duration(row)) for row in found.rows)
    return Report(("trace_id", "span_id", "thread.id", "dur"), rows, (*found.notes, *drop_notes(recording)))


class _Inferences:
    """The rows that count as inferences, with notes."""

    def __init__(self, recording: Recording) -> None:
        self.tree = host_tree(recording, merging=False)
        self._starts, self._ends = column(recording, "start_ns"), column(recording, "end_ns")
        names, annotations = texts_of(recording, INFERENCE), texts_of(recording, *ANNOTATIONS)
        kinds, spans, texts, cats, flags, outcomes = (
            column(recording, name) for name in ("kind", "span", "name", "cat", "flags", "outcome")
        )
        parents = self.tree.parents
        on_host = [row for row, parent in enumerate(parents) if parent != -2]
        choices = (
            (INFERENCE, [row for row in on_host if texts[row] in names]),
            ("the outermost calls of nodes", [row for row in on_host if kinds[row] == NODE]),
            ("the outermost labelled blocks", [row for row in on_host if kinds[row] == RECORD and spans[row]]),
            ("the steps", [row for row in on_host if kinds[row] == STEP]),
            ("the outermost annotations", [row for row in on_host if cats[row] in annotations]),
            ("what is in nothing else", [row for row in on_host if parents[row] == -1]),
        )
        what, rows = next((choice for choice in choices if choice[1]), (INFERENCE, []))
        if what != INFERENCE:
            rows = self.tree.outermost(rows)
        self.rows = [row for row in rows if not outcomes[row] and not flags[row] & (UNFINISHED | CUT)]
        self.notes = [] if what == INFERENCE else [f"No span is named {INFERENCE}: counted are {what}."]
        if not rows:
            self.notes = ["No inferences were recorded."]
        if len(self.rows) < len(rows):
            missing = len(rows) - len(self.rows)
            whole = "was not recorded to its end" if missing == 1 else "were not recorded to their end"
            self.notes.append(f"Left out: {missing:,} that failed or {whole}.")

    def duration(self, row: int) -> int:
        return self._ends[row] - self._starts[row]


def device_executions(recording: Recording) -> Report:
    """Return the executions on a device that each call started, times in ns."""
    ids = SpanIds(recording, host_tree(recording, merging=False), {})
    rows = [
        (ids.trace(of.span), ids.around(of.span), of.device, of.index, of.total, of.run, of.io_wait)
        for of in executions(recording)
    ]
    columns = ("trace_id", "span_id", "device_index", "execution_index", "Total", "Run", "IoWait")
    return _report(recording, columns, rows, "No executions on a device were recorded.")


def device_operators(recording: Recording) -> Report:
    """Return the work of devices by name, longest mean time first."""
    names, starts, ends = (column(recording, name) for name in ("name", "start_ns", "end_ns"))
    rows: list[tuple[str, float, int]] = [
        (recording.strings[name], sum(ends[row] - starts[row] for row in of) / len(of), len(of))
        for name, of in grouped(work_rows(recording), names.__getitem__).items()
    ]
    rows.sort(key=lambda row: (-row[1], row[0]))
    return _report(recording, ("name", "average_elapsed (ns)", "count"), rows, "No work on a device was recorded.")


def external_operators(recording: Recording) -> Report:
    """Return a framework's operators on the host, by their start."""
    tree = host_tree(recording, merging=False)
    ids = SpanIds(recording, tree, {})
    operators = texts_of(recording, *OPERATORS)
    kinds, cats, names, tracks = (column(recording, name) for name in ("kind", "cat", "name", "track"))
    starts, ends = column(recording, "start_ns"), column(recording, "end_ns")
    threads = [thread_number(track) for track in recording.tracks]
    indices, strings = operator_indices(recording, tree), recording.strings
    rows = []
    for row in range(len(recording)):
        if kinds[row] == HOST and cats[row] in operators:
            place = ids.trace(row), ids.around(row), threads[tracks[row]]
            rows.append((*place, strings[names[row]], indices[row], ends[row] - starts[row]))
    columns = ("trace_id", "span_id", "thread.id", "name", "operator_index", "dur")
    return _report(recording, columns, rows, "No operators were recorded.")


def _report(recording: Recording, columns: tuple[str, ...], rows: Sequence[tuple[object, ...]], nothing: str) -> Report:
    return Report(columns, tuple(rows), (*(() if rows else (nothing,)), *drop_notes(recording)))


def overview(
    recording: Recording,
    baseline: Recording | None = None,
    row_limit: int | None = 20,
    sort_by: str | None = None,
    group_by_node: bool = False,
) -> str:
    """Return averages, inferences, devices and findings as text."""
    row_limit = index_or_none("row_limit", row_limit)
    kinds = column(recording, "kind")
    has_device = DEVICE in set(kinds)
    averages = key_averages(recording, group_by_node=group_by_node)
    if sort_by is None:
        sort_by = "self_device_time_total" if has_device else "self_cpu_time_total"
    tracks = len(recording.tracks)
    places = f"{tracks:,} threads{' and streams' if has_device else ''}"
    if tracks == 1:
        places = "1 stream" if has_device else "1 thread"
    parts = [
        f"Recording of {counted(sum(kind != COUNTER for kind in kinds), 'event')} on {places}",
        f"Averages, by {sort_by}\n{averages.table(sort_by=sort_by, row_limit=row_limit)}".rstrip("\n"),
    ]
    named = not texts_of(recording, INFERENCE).isdisjoint(column(recording, "name"))
    if named or (NODE in set(kinds) and len(inferences(recording).rows) > 1):  # percentiles of one call tell nothing
        parts.append(str(summary(recording)))
    if has_device:
        parts += [
            f"Device operators\n{device_operators(recording).text(row_limit)}",
            f"Copies\n{copy_breakdown(recording)}",
            f"Idle time of streams\n{idle_times(recording)}",
        ]
    parts.append(str(findings(Evidence(recording), None if baseline is None else Evidence(baseline))))
    return "\n\n".join(parts) + "\n"
