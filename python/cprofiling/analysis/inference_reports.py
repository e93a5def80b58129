"""Reports on inferences, devices and operators of a recording.

Each function returns a report, which is text when it is printed (``str``) and a DataFrame on demand (``to_pandas``).
Times are in ns. A recording without what a report is about gives an empty one that says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cprofiling._internal.quantiles import percentile
from cprofiling._internal.row_kinds import CUT, DEVICE, HOST, NODE, RECORD, STEP, UNFINISHED
from cprofiling._internal.tables import ROW_LIMIT, Table, Tabular, frame_of, short_repr
from cprofiling.recording.columns import (
    ANNOTATIONS,
    NO_WORK,
    OPERATORS,
    Recording,
    column,
    drop_notes,
    texts_of,
    thread_number,
)
from cprofiling.recording.dataframe import operator_indices
from cprofiling.recording.executions import executions
from cprofiling.recording.span_ids import SpanIds
from cprofiling.recording.tree import host_tree

if TYPE_CHECKING:
    import pandas as pd

INFERENCE = "Inference"
PERMILLES = (900, 950, 970, 990, 999)  # of the latencies in a summary
_TITLE = "Inference Results Summary"
_RULE = "=" * 48


@dataclass(frozen=True, repr=False)
class Report(Tabular):
    """Rows under headings, shown as a table.

    Attributes:
        columns: The headings.
        rows: The values; None for one that is not known, or not there.
        notes: Sentences that belong to them: what they are, what is missing.
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
    """Return count, extremes, mean and percentiles of the latencies.

    A percentile p of n sorted latencies is interpolated between the two nearest ones: it is the value at the place
    ``p / 100 * (n - 1)``, counted from 0 (NumPy's ``linear``, R's type 7), and the median is that of 50. It and the
    mean are exact, rounded down to whole ns. Without an inference the latencies are unknown.
    """
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

    An inference is a span named ``Inference``. Where there is none, it is each outermost call of a node; where there is
    none, each labelled block that is in no other; where there is none, each step, or each root of what else happened
    on the host. One that has no id, such as PyTorch's, gets one for this report. What an exception left, and what the
    recording does not have to its end, is left out, and counted.
    """
    found = _Inferences(recording)
    ids = SpanIds(recording, found.tree, {})
    threads = [thread_number(track) for track in recording.tracks]
    tracks = column(recording, "track")
    rows = tuple((ids.trace(row), ids.distinct(row), threads[tracks[row]], found.duration(row)) for row in found.rows)
    return Report(("trace_id", "span_id", "thread.id", "dur"), rows, (*found.notes, *drop_notes(recording)))


class _Inferences:
    """The rows that count as inferences, and what is to be said of them."""

    def __init__(self, recording: Recording) -> None:
        self.tree = host_tree(recording, merging=False)
        self._starts, self._ends = column(recording, "start_ns"), column(recording, "end_ns")
        what, rows = self._found(recording)
        flags, outcomes = column(recording, "flags"), column(recording, "outcome")
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

    def _found(self, recording: Recording) -> tuple[str, list[int]]:
        """Return what counts as an inference here, and the rows."""
        parents = self.tree.parents
        kinds, spans = column(recording, "kind"), column(recording, "span")
        names, annotations = texts_of(recording, INFERENCE), texts_of(recording, *ANNOTATIONS)
        rows = [row for row, parent in enumerate(parents) if parent != -2]
        texts, cats = column(recording, "name"), column(recording, "cat")
        choices = (
            (INFERENCE, [row for row in rows if texts[row] in names]),
            ("the outermost calls of nodes", [row for row in rows if kinds[row] == NODE]),
            ("the outermost labelled blocks", [row for row in rows if kinds[row] == RECORD and spans[row]]),
            ("the steps", [row for row in rows if kinds[row] == STEP]),
            ("the outermost annotations", [row for row in rows if cats[row] in annotations]),
            ("what is in nothing else", [row for row in rows if parents[row] == -1]),
        )
        what, found = next((choice for choice in choices if choice[1]), (INFERENCE, []))
        return what, found if what == INFERENCE else self.tree.outermost(found)


def device_executions(recording: Recording) -> Report:
    """Return the executions on a device that each call started.

    Columns are trace_id and span_id of the call, device and running number, and times in ns.

    Total is from the start of the execution's first work to the end of its last, Run the time of its computations added
    up, IoWait their difference: copies, and waiting for the host; it is negative where computations ran at the same
    time. A call is that of the innermost node, labelled block or step in which the work was started.
    """
    tree = host_tree(recording, merging=False)
    ids = SpanIds(recording, tree, {})
    rows = [
        (ids.trace(of.span), ids.around(of.span), of.device, of.index, of.total, of.run, of.io_wait)
        for of in executions(recording)
    ]
    notes = drop_notes(recording) if rows else ["No executions on a device were recorded.", *drop_notes(recording)]
    columns = ("trace_id", "span_id", "device_index", "execution_index", "Total", "Run", "IoWait")
    return Report(columns, tuple(rows), tuple(notes))


def device_operators(recording: Recording) -> Report:
    """Return the work of devices by name, longest mean time first."""
    no_work = texts_of(recording, *NO_WORK)
    columns = [column(recording, name) for name in ("kind", "cat", "name", "start_ns", "end_ns")]
    sums: dict[int, tuple[int, int]] = {}
    for kind, cat, name, start, end in zip(*columns, strict=True):
        if kind == DEVICE and cat not in no_work:
            total, count = sums.get(name, (0, 0))
            sums[name] = total + end - start, count + 1
    means = ((total / count, count, recording.strings[name]) for name, (total, count) in sums.items())
    rows = tuple((name, mean, count) for mean, count, name in sorted(means, key=lambda row: (-row[0], row[2])))
    notes = drop_notes(recording) if rows else ["No work on a device was recorded.", *drop_notes(recording)]
    return Report(("name", "average_elapsed (ns)", "count"), rows, tuple(notes))


def external_operators(recording: Recording) -> Report:
    """Return a framework's operators on the host, by their start.

    trace_id and span_id are of the operator, or the span in which it ran; operator_index is its running number, from 0,
    within what was directly around it; dur is in ns.
    """
    tree = host_tree(recording, merging=False)
    ids = SpanIds(recording, tree, {})
    operators = texts_of(recording, *OPERATORS)
    kinds, cats, names, tracks = (column(recording, name) for name in ("kind", "cat", "name", "track"))
    starts, ends = column(recording, "start_ns"), column(recording, "end_ns")
    threads = [thread_number(track) for track in recording.tracks]
    strings = recording.strings
    indices = operator_indices(recording, tree)
    rows = tuple(
        (
            ids.trace(row),
            ids.around(row),
            threads[tracks[row]],
            strings[names[row]],
            indices[row],
            ends[row] - starts[row],
        )
        for row in range(len(recording))
        if kinds[row] == HOST and cats[row] in operators
    )
    notes = drop_notes(recording) if rows else ["No operators were recorded.", *drop_notes(recording)]
    columns = ("trace_id", "span_id", "thread.id", "name", "operator_index", "dur")
    return Report(columns, rows, tuple(notes))
