"""The recording of a cell, and the result shown below it."""

from __future__ import annotations

import html
import time
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

from cprofiling._internal.text import counted, format_time, shown_text
from cprofiling.analysis.evidence import Evidence
from cprofiling.nodes.stats import ExecutionStage, NodeProfilingStats, ProfilingSummary
from cprofiling.nodes.summary_table import format_profiling_table
from cprofiling.recording.activities import ProfilerActivity
from cprofiling.recording.columns import column, drop_notes
from cprofiling.recording.profile import profile
from cprofiling.recording.result import Recording
from cprofiling.report.from_recording import nodes_of
from cprofiling.report.notebook.summary import summary_html

_NO_NODES = "No node was called. "
_MAKE_NODES = (
    "Nodes are what cprofiling.profile_node decorates; -n :* makes one of each function that the notebook defines, "
    "-n MODULE:FUNCTION of those of modules."
)
_GAVE_WAY = "The code started a recording of its own: what came after that is in that one, and not here."
_FIELDS = tuple(field.name for field in fields(NodeProfilingStats))
_STAGES: dict[str, str] = {stage.value: stage for stage in ExecutionStage}
_DERIVED = ("parent", "track", "lane", "args_length", "args_at")
_REQUIRED = ("name", "kind", "start_ns", "end_ns")
_TEXTS = {"name", "cat", "stage", "shapes", "types", "stack"}


class CellProfile:
    """The result of a profiled cell or statement, shown as a table.

    Attributes:
        summary: The statistics of the nodes that were called, and of labelled blocks: exact, percentiles, too. It is a
            ``ProfilingSummary``, so that it has ``plot()`` and ``histogram(node)``.
        recording: The calls one by one, a ``Recording``; it has ``plot()``, ``findings()``, ``export_chrome_trace()``.
        elapsed_ms: How long the code took, in ms of wall time.
        failed: Whether an exception ended it.
        notes: Sentences on the figures, such as calls that are missing.
    """

    def __init__(
        self, recording: Recording, elapsed_ms: float, *, failed: bool, skip_first_n: int, notes: Iterable[str]
    ) -> None:
        """Sum the recording up."""
        nodes, open_spans = nodes_of(Evidence(recording), skip_first_n)
        self.recording = recording
        histograms = {}
        rows = []
        for node in nodes:
            values = {name: getattr(node, name) for name in _FIELDS}
            if not node.count:  # None there is 0.0 here
                values |= dict.fromkeys(_FIELDS[3:10], 0.0)
            values["stage"] = _STAGES.get(node.stage, node.stage)
            rows.append(NodeProfilingStats(**values))
            histograms[node.node_name, node.stage] = node.histogram or ()
        summary = ProfilingSummary(rows, skip_first_n=skip_first_n)
        summary._find_histograms = histograms.copy  # noqa: SLF001 the package's own
        self.summary = summary
        self.elapsed_ms = elapsed_ms
        self.failed = failed
        calls = counted(open_spans, "call was", "calls were")
        cut = (f"{calls} cut off, and counted as no sample.",) if open_spans else ()
        self.notes = (*cut, *notes)
        if not nodes and not self.notes:
            self.notes = (_NO_NODES + _MAKE_NODES,)

    def _title(self) -> str:
        end = ", until an exception ended it" if self.failed else ""
        return f"Profiled {format_time(self.elapsed_ms)} of wall time{end}"

    def __repr__(self) -> str:
        table = format_profiling_table(self.summary, skip_first_n=self.summary.skip_first_n)
        notes = [shown_text("note", note) for note in self.notes]
        return "\n".join([self._title(), *(["", table] if self.summary else []), *notes])

    def _repr_html_(self) -> str:
        shown = f"<p><b>{html.escape(self._title())}</b></p>"
        notes = "".join(f"<p>{html.escape(shown_text('note', note))}</p>" for note in self.notes)
        table = summary_html(self.summary, skip_first_n=self.summary.skip_first_n) if self.summary else ""
        return f"{shown}{table}{notes}"


class CellRecording:
    """The recording of a cell, which makes way for any inside it."""

    def __init__(self, *, synchronizes: bool, operators: bool, capacity: int) -> None:
        """Prepare the recording. Raises as ``profile``."""
        self._options: dict[str, Any] = {"capacity": capacity, "operators": operators}
        if not operators:
            self._options["activities"] = [ProfilerActivity.CPU]
        self._synchronizes = synchronizes
        self._parts: list[_Part] = []
        self._began_ns = 0
        self._elapsed_ms = 0.0
        self._has_ended = False  # it may have, where another thread profiles a statement meanwhile

    def begin(self) -> None:
        """Start. RuntimeError while a recording runs that does not make way."""
        self._go_on()
        self._began_ns = time.monotonic_ns()

    def stand_aside(self) -> None:
        """Let a profiled statement inside have the recording."""
        self._parts[-1].end()

    def resume(self, inner: CellRecording) -> None:
        """Go on after an inner recording, unless the code has started its own."""
        self._parts += inner._parts
        if not self._gave_way and not self._has_ended:
            self._go_on()

    @property
    def _gave_way(self) -> bool:
        return any(part.gave_way for part in self._parts)

    def _go_on(self) -> None:
        part = _Part(**self._options)
        part._synchronizes = self._synchronizes  # noqa: SLF001 the package's own
        part.start()
        self._parts.append(part)

    def stop(self) -> None:
        """Record no more."""
        self._has_ended = True
        self._elapsed_ms = (time.monotonic_ns() - self._began_ns) / 1e6
        self._parts[-1].end()

    def result(self, *, failed: bool, skip_first_n: int) -> CellProfile:
        """Sum up what was recorded."""
        recordings = [part.recording for part in self._parts]
        known = [note for recording in recordings for note in drop_notes(recording)]
        known += [_GAVE_WAY] if self._gave_way else []
        whole = recordings[0] if len(recordings) == 1 else joined(recordings)
        return CellProfile(whole, self._elapsed_ms, failed=failed, skip_first_n=skip_first_n, notes=known)


class _Part(profile):
    """A recording that makes way for any other one."""

    gave_way = False

    def end(self) -> None:
        if self._running:
            self.stop()

    def _make_way(self) -> None:
        self.gave_way = True
        self.end()


def joined(recordings: Sequence[Recording]) -> Recording:
    """Join recordings of one process, one after the other."""
    whole = Recording.empty()
    for recording in recordings:
        strings, tracks = recording.strings, recording.tracks
        numbers = [
            (name, column(recording, name), recording.none(name))
            for name in recording.column_names
            if recording.column(name) is not None and name not in _DERIVED
        ]
        for row, at in enumerate(column(recording, "track")):
            pid, tid, pid_text, tid_text, *_ = tracks[at]
            values: dict[str, Any] = {
                name: strings[values[row]] if name in _TEXTS else values[row]
                for name, values, none in numbers
                if values[row] != none or name in _REQUIRED
            }
            args = recording.args(row)
            if args is not None:
                values["args"] = args
            whole._add(pid=pid_text or pid, tid=tid_text or tid, **values)  # noqa: SLF001
        for pid, tid, pid_text, tid_text, process, labels, thread, process_sort, thread_sort, _ in tracks:
            whole._name_process(pid_text or pid, process, labels, process_sort)  # noqa: SLF001
            whole._name_thread(pid_text or pid, tid_text or tid, thread, thread_sort)  # noqa: SLF001
    for key, value in recordings[0].facts.items():
        whole._set_fact(key, value)  # noqa: SLF001 it is ours until it is finished
    whole._finish()  # noqa: SLF001
    return whole
