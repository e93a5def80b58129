"""The document behind every format, as data of a versioned schema.

``cprofiling/schemas/report.schema.json`` is the schema of what ``to_dict`` returns. Versions: names may be added to
version 1; it rises when one changes its meaning or goes. Times are in milliseconds unless a name says otherwise. None
is what is not known; ``Node.unknown`` says why, where there is more to say than that nobody asked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Literal, TypeAlias

    from cprofiling._internal.tables import Cell, Section
    from cprofiling.nodes.buckets import Bucket
    from cprofiling.nodes.resources import CounterValue, NodeLaunches, NodeMemory

    Kind: TypeAlias = Literal["statistics", "timing", "recording", "comparison"]

SCHEMA = "cprofiling.report"
VERSION = 1


@dataclass(frozen=True)
class Measurement:
    """How it was measured.

    Attributes:
        clock: Which clock the times are of; None where that is not known.
        cost_ns: The profiler's own cost of one call, measured and not subtracted; None where it was not measured.
        skip_first_n: First successful calls of each node that are left out; None where there is no such thing.
        synchronized: Whether nodes waited for their devices; None where that is not known.
        dropped: What should be in it and is not: events of a recording, calls of statistics.
        internal_errors: Faults inside the profiler.
        reasons: Why figures are unknown, or less certain: a sentence each. Keys that could not be read are told here.
    """

    clock: str | None = None
    cost_ns: float | None = None
    skip_first_n: int | None = None
    synchronized: bool | None = None
    dropped: int = 0
    internal_errors: int = 0
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Node:
    """One node in one stage.

    It has the fields of ``NodeProfilingStats``, by the same names and in the same order, and more.

    Attributes:
        stage: Empty where there are no execution stages.
        histogram: The buckets that hold something, ascending: lower and upper edge in ms, and the number of samples.
            None where there is none.
        gpu_histogram: The same of the GPU times.
        unknown: Why fields are None, by their names, a sentence each.
    """

    node_name: str
    stage: str
    count: int | None = None
    mean_ms: float | None = None
    median_ms: float | None = None
    std_ms: float | None = None
    min_ms: float | None = None
    max_ms: float | None = None
    total_ms: float | None = None
    last_ms: float | None = None
    p50_ms: float | None = None
    p90_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    p999_ms: float | None = None
    error_count: int = 0
    cancelled_count: int = 0
    skipped_count: int = 0
    dropped_count: int = 0
    first_ms: float | None = None
    self_total_ms: float | None = None
    active_total_ms: float | None = None
    gpu_count: int = 0
    gpu_mean_ms: float | None = None
    gpu_p50_ms: float | None = None
    gpu_p99_ms: float | None = None
    gpu_total_ms: float | None = None
    queue_delay_ms: float | None = None
    gpu_reason: str | None = None
    counters: Mapping[str, CounterValue | None] = field(default_factory=dict, hash=False)
    launches: NodeLaunches | None = None
    memory: NodeMemory | None = None
    sync_total_ms: float | None = None
    sync_count: int = 0
    histogram: tuple[Bucket, ...] | None = None
    gpu_histogram: tuple[Bucket, ...] | None = None
    unknown: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Track:
    """A thread of a process, or a stream of a device.

    Attributes:
        process: What the process is called; its number where it has no name.
        thread: What the thread, or the stream, is called.
        pid: The number of the process, or the text that stands for it.
        tid: The number of the thread, likewise.
        rank: The rank of the process among several; None where there is one, or it is not known.
        device: The number of the device; None on the host.
        stream: The stream of the device; None on the host.
    """

    process: str
    thread: str
    pid: int | str
    tid: int | str
    rank: int | None = None
    device: int | None = None
    stream: int | None = None


@dataclass(frozen=True)
class Span:
    """A span of time on a track, or several finer than a pixel.

    Attributes:
        track: The place of its track among the timeline's.
        name: What ran; of several, that with the longest time.
        start_ns: When it began, from the timeline's begin on.
        duration_ns: How long it took; of several, from the first's begin to the last's end.
        depth: How many spans of the track are around it.
        kind: ``node``, ``record``, ``step``, ``host``, ``device`` or ``instant``.
        outcome: ``success``, ``error``, ``cancelled`` or ``unfinished``.
        count: How many spans it stands for, 1 or more.
    """

    track: int
    name: str
    start_ns: int
    duration_ns: int
    depth: int
    kind: str = "node"
    outcome: str = "success"
    count: int = 1


@dataclass(frozen=True)
class Timeline:
    """What ran when.

    Attributes:
        start_ns: When it begins: ns since 1970 (UTC), or as the loaded file counts.
        duration_ns: From the first event to the last one's end.
        tracks: The threads and streams.
        spans: What ran on them, by track and start.
        total_spans: How many spans the recording has, each counted.
        aggregated_below_ns: Spans that are shorter may be shown as one with their neighbours; 0: none are.
    """

    start_ns: int
    duration_ns: int
    tracks: tuple[Track, ...]
    spans: tuple[Span, ...]
    total_spans: int
    aggregated_below_ns: int = 0


@dataclass(frozen=True)
class IcicleNode:
    """All calls of a name below the same callers.

    Attributes:
        name: What ran.
        parent: The place of the row around it among the tree's, which is before it; -1 for a root.
        self_ms: The time in which it was the innermost, of operators, too: host self time.
        total_ms: That and the time of all that is inside.
        count: How many calls.
    """

    name: str
    parent: int
    self_ms: float
    total_ms: float
    count: int


@dataclass(frozen=True)
class Finding:
    """A finding without its rows."""

    kind: str
    title: str
    text: str
    advice: str
    share: float
    figures: Mapping[str, float] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Document:
    """Everything that a view may show.

    Attributes:
        title: What it is of, in a few words.
        kind: ``statistics``, ``timing`` (of stages), ``recording`` or ``comparison``.
        nodes: The nodes, in the order of their first calls.
        measurement: How it was measured.
        source: The name of the file that it was read from; None where it came from none.
        facts: What else is known of the run, by name: values are texts and numbers.
        sections: Further tables by name, in the order in which they are to be shown.
        timeline: Of a recording.
        icicle: Of a recording: its tree of self times, parents before children.
        findings: Of a recording: that with the largest share first.
    """

    title: str
    kind: Kind
    nodes: tuple[Node, ...] = ()
    measurement: Measurement = Measurement()
    source: str | None = None
    facts: Mapping[str, Cell] = field(default_factory=dict, hash=False)
    sections: Mapping[str, Section] = field(default_factory=dict, hash=False)
    timeline: Timeline | None = None
    icicle: tuple[IcicleNode, ...] = ()
    findings: tuple[Finding, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it as dicts, lists, texts and numbers, as the schema has it."""
        return {"schema": SCHEMA, "version": VERSION, **_plain(self)}

    def to_json(self, *, indent: int | None = None) -> str:
        """Return ``to_dict()`` as JSON in ASCII, surrogates escaped.

        Only two surrogates that make a pair come back as the character that JSON takes them for.

        indent: spaces for each level; None: all in one line.
        """
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)


def _plain(value: Any) -> Any:
    """Return a value as plain JSON types."""
    if value is None or isinstance(value, (int, float)):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    return [_plain(item) for item in value]
