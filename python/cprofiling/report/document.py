"""The document behind every format, as data of a versioned schema.

``cprofiling/schemas/report.schema.json`` is the schema of what ``to_dict`` returns. Versions: names may be added to
version 1; it rises when one changes its meaning or goes. Times are in milliseconds unless a name says otherwise.
Unknown figures are None; ``Node.unknown`` has the reasons.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from cprofiling._internal.arguments import index_between

if TYPE_CHECKING:
    from cprofiling._internal.tables import Cell, Section
    from cprofiling.nodes.buckets import Bucket
    from cprofiling.nodes.resources import CounterValue, NodeLaunches, NodeMemory

    Kind: TypeAlias = Literal["statistics", "timing", "recording", "comparison"]

SCHEMA = "cprofiling.report"
VERSION = 1


class Measurement(NamedTuple):
    """How a run was measured, None where unknown."""

    clock: str | None = None
    cost_ns: float | None = None  # the profiler's own cost of one call, not subtracted
    skip_first_n: int | None = None  # first successful calls of each node left out
    median: str | None = None  # how median_ms of statistics was found, as set_profiling() has it
    synchronized: bool | None = None  # whether nodes waited for their devices
    dropped: int = 0  # lost events of a recording, or calls of statistics
    internal_errors: int = 0
    reasons: tuple[str, ...] = ()  # why figures, or all of a key, are unknown or less certain


@dataclass(frozen=True)
class Node:
    """One node in one stage, with the fields of ``NodeProfilingStats`` first.

    Its stage is empty in runs without stages. Histograms have the buckets that are not empty, ascending. ``unknown``
    has the reasons of fields that are None.
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
    source: str | None = None  # file and line of its function
    unknown: Mapping[str, str] = field(default_factory=dict, hash=False)


class Track(NamedTuple):
    """A thread of a process, or a stream of a device."""

    process: str  # its name, or number
    thread: str
    pid: int | str
    tid: int | str
    rank: int | None = None  # of several processes
    device: int | None = None  # None on the host
    stream: int | None = None


class Span(NamedTuple):
    """A span of time on a track, or several finer than a pixel.

    Of several, the name is that with the longest time, and the duration reaches from the first to the last one's end;
    neither trace nor arguments are told.
    """

    track: int  # its place in the timeline
    name: str
    start_ns: int  # since the timeline's start
    duration_ns: int
    depth: int  # spans of the track around it
    kind: str = "node"  # "node", "record", "step", "host", "device" or "instant"
    outcome: str = "success"  # "success", "error", "cancelled" or "unfinished"
    count: int = 1  # type: ignore[assignment]
    stage: str = ""
    trace_id: str | None = None  # 32 hexadecimal digits
    arguments: str | None = None  # JSON, as recorded


class Timeline(NamedTuple):
    """The spans of a recording, by track and start."""

    start_ns: int  # since 1970 (UTC), or as the loaded file counts
    duration_ns: int
    tracks: tuple[Track, ...]
    spans: tuple[Span, ...]
    total_spans: int  # of the recording, each counted
    aggregated_below_ns: int = 0  # shorter spans may be one with their neighbours


class IcicleNode(NamedTuple):
    """All calls of a name below the same callers."""

    name: str
    parent: int  # the place of the caller, which is before it; -1 for a root
    self_ms: float  # without calls inside, operators included
    total_ms: float
    count: int  # type: ignore[assignment]


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
        title: Its subject, in a few words.
        kind: ``statistics``, ``timing`` (of stages), ``recording`` or ``comparison``.
        nodes: The nodes, in the order of their first calls.
        measurement: How it was measured.
        source: The name of the file that it was read from, if any.
        facts: Texts and numbers on the run, by name.
        sections: Further tables by name, in the order in which they are shown.
        timeline: Of a recording.
        icicle: Of a recording: its tree of self times, parents before children.
        findings: Of a recording: the largest share first.
    """

    title: str
    kind: Kind
    nodes: tuple[Node, ...] = ()
    measurement: Measurement = Measurement()  # noqa: RUF009 it is immutable
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

        indent: spaces for each level, 0 to 100; None: all in one line.
        """
        spaces = None if indent is None else index_between("indent", indent, 0, 100)
        return json.dumps(self.to_dict(), indent=spaces, allow_nan=False)


def _plain(value: Any) -> Any:
    """Return a value as plain JSON types."""
    if value is None or isinstance(value, (int, float)):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if hasattr(value, "_asdict"):
        return {name: _plain(item) for name, item in value._asdict().items()}
    if is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    return [_plain(item) for item in value]
