"""Statistics and recordings for OpenTelemetry.

Its instruments read statistics at each collection. Recordings become spans with their own ids.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from cprofiling._internal import arguments
from cprofiling._internal.optional import imported, own_version
from cprofiling._internal.row_kinds import CUT, NODE, OUTCOMES, UNFINISHED
from cprofiling._internal.text import shown_value
from cprofiling.monitoring.node_totals import (
    COUNTERS,
    DEFAULT_BOUNDS,
    MAX_NODES,
    NodeTotals,
    Reader,
    bounds_of,
    edges_s,
    exportable,
)
from cprofiling.nodes.buckets import LAST
from cprofiling.recording.columns import Recording, column, has, thread_number
from cprofiling.recording.result import Reports

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram, MeterProvider, Observation
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
    from opentelemetry.sdk.trace.export import SpanExporter

    from cprofiling.monitoring.node_totals import Key, Sources
    from cprofiling.nodes.snapshot import Snapshot
    from cprofiling.recording.profile import profile

_FIRST = "calls"
_HISTOGRAMS = {
    "cprofiling.node.duration": "Time that calls of a node took.",
    "cprofiling.node.gpu.duration": "Time that a device took for calls of a node.",
}
_ALL_BUCKETS = tuple(range(1, LAST + 1))  # each of them is a group
_MS_PER_S = 1e3
_NOTICEABLE = 1e-9  # of a sum: what rounding leaves is less
_BATCH = 512  # spans that an exporter is given at a time, as the SDK does
_ERROR = OUTCOMES.index("error")
_COLUMNS = (
    "kind", "name", "stage", "track", "span", "parent_span", "trace_high", "trace_low", "start_ns", "end_ns", "outcome",
    "flags",
)  # fmt: skip


class OpenTelemetryMetrics:
    """Metrics of Profilers for OpenTelemetry, needing its API package only.

    ``cprofiling.node.duration`` and ``cprofiling.node.gpu.duration`` are histograms in s, with advice for boundaries;
    ``cprofiling.node.calls``, ``.errors``, ``.cancelled``, ``.skipped`` and ``.dropped`` are counters of ``{call}``.
    Attributes are ``node``, ``stage``, and ``pipeline`` if names were given.

    Nodes cost nothing more, and nothing runs between collections. The API takes a histogram's samples one by one. So
    the samples since the last collection are given again when the SDK asks for the counters: as many as there were,
    each in its bucket of the statistics, which is 1.6 % wide at most, with their exact sum. Each takes some
    microseconds of the collecting thread; beyond ``max_samples`` the rest waits for the next collection. For nodes
    called more than some thousand times a second, let the OpenTelemetry Collector scrape a ``PrometheusCollector``
    instead.

    Samples between a collection and a reset of the statistics are lost; the counters go on. Without an SDK nothing
    happens. A forked child starts anew. It lives as long as its provider, and is read until ``stop()``.
    """

    def __init__(
        self,
        profiler: Sources,
        *,
        meter_provider: MeterProvider | None = None,
        boundaries: Iterable[float] = DEFAULT_BOUNDS,
        max_nodes: int = MAX_NODES,
        max_samples: int = 100_000,
    ) -> None:
        """Make the instruments.

        profiler: A Profiler, a pipeline, a callable that returns a Snapshot, or a mapping of names to such, which is
            read at each collection and may change at any time.
        meter_provider: Provides the instruments; by default the global one, also if that is set later.
        boundaries: Advice for the histograms, in seconds, rising, from 1e-9 to 1e5; by default powers of two of a
            microsecond. They are moved to edges of the statistics' buckets, by 0.8 % at most, so that counts are exact.
            Of several of these objects with one provider it is the first one's.
        max_nodes: How many nodes of a Profiler have attributes of their own, from 1 on; the later ones are added up
            under the node ``__overflow__`` of their stage.
        max_samples: How many samples are given at a collection at most, from 1 on.

        Raises:
            ImportError: opentelemetry-api is not installed.
            TypeError: An argument is of another kind.
            ValueError: A number is out of its limits, or boundaries do not rise.
        """
        metrics = imported("opentelemetry.metrics", install="cprofiling[otel]")
        if meter_provider is not None:
            arguments.member("meter_provider", meter_provider, metrics.MeterProvider)
        self._reader = Reader(profiler, "OpenTelemetry")
        _, advice = bounds_of("boundaries", boundaries)
        self._max_nodes = arguments.index_between("max_nodes", max_nodes, 1)
        self._max_samples = arguments.index_between("max_samples", max_samples, 1)
        self._nodes: dict[tuple[str | None, Key], _Node] = {}
        self._generations: dict[str | None, set[tuple[bytes, int]]] = {}  # of each source's statistics
        self._process, self._lock = os.getpid(), threading.Lock()
        provider = meter_provider or metrics.get_meter_provider()
        with _making:
            if provider not in _instruments:
                _instruments[provider] = _Instruments(metrics, provider, advice)
            self._instruments = _instruments[provider]
            self._instruments.members.append(self)

    @property
    def pending(self) -> int:
        """Number of collected samples that wait for the next collection."""
        return sum(each.pending for each, *_ in self._series())

    def stop(self) -> None:
        """Give no more samples, and no more counts. May be called again."""
        with _making:
            self._instruments.members = [each for each in self._instruments.members if each is not self]
        self._nodes, self._generations = {}, {}

    def _read(self) -> None:
        if self._process != os.getpid():  # another thread of the parent may have had it when this child was forked
            self._process, self._lock, self._nodes, self._generations = os.getpid(), threading.Lock(), {}, {}
        with self._lock:
            for name, snapshot, totals_by_node, _ in self._reader.read(_ALL_BUCKETS, self._max_nodes):
                if snapshot is not None:
                    self._update(name, snapshot, totals_by_node)
            self._give()

    def _update(self, name: str | None, snapshot: Snapshot, totals_by_node: dict[Key, NodeTotals]) -> None:
        nodes, generations = self._nodes, set(snapshot._sources())
        if not self._generations.get(name, set()) <= generations:  # its statistics were reset
            for (source, _), node in nodes.items():
                if source == name:
                    node.begin_anew()
        self._generations[name] = generations
        for key, totals in totals_by_node.items():
            if (name, key) not in nodes:
                nodes[name, key] = _Node(key, name)
            nodes[name, key].update(totals)

    def _give(self) -> None:
        """Give waiting samples, evenly per node if there are too many."""
        series = sorted(self._series(), key=lambda each: each[0].pending)
        left = self._max_samples
        for place, (each, histogram, attributes) in enumerate(series):
            left -= each.give(histogram, attributes, left // (len(series) - place))

    def _series(self) -> Iterator[tuple[_Series, Histogram, dict[str, str]]]:
        for node in [*self._nodes.values()]:
            for each, histogram in zip(node.series, self._instruments.histograms, strict=True):
                yield each, histogram, node.attributes


class _Instruments:
    """Instruments of one provider, which has each of them once."""

    def __init__(self, metrics: Any, provider: MeterProvider, advice: tuple[float, ...]) -> None:
        self.members: list[OpenTelemetryMetrics] = []
        self._observation = metrics.Observation
        meter = metrics.get_meter("cprofiling", own_version(), provider)
        self.histograms: tuple[Histogram, ...] = tuple(
            meter.create_histogram(name, "s", description, explicit_bucket_boundaries_advisory=advice)
            for name, description in _HISTOGRAMS.items()
        )
        for name, description in COUNTERS.items():
            meter.create_observable_counter(f"cprofiling.node.{name}", [self._callback(name)], "{call}", description)

    def _callback(self, counter: str) -> Callable[[object], list[Observation]]:
        return lambda _options: self._observe(counter)

    def _observe(self, counter: str) -> list[Observation]:
        """Return the counts of the nodes.

        The first counter reads everything and gives the samples. They belong to the collection that calls it or, with
        another order of an SDK, to the next.
        """
        members = self.members
        for member in members if counter == _FIRST else ():
            member._read()
        nodes = [node for member in members for node in [*member._nodes.values()]]
        return [self._observation(node.counts[counter], node.attributes) for node in nodes]


_instruments: WeakKeyDictionary[MeterProvider, _Instruments] = WeakKeyDictionary()
_making = threading.Lock()


class _Node:
    """Reported state of a node."""

    def __init__(self, key: Key, pipeline: str | None) -> None:
        stage, node = key
        self.attributes = {"node": node, "stage": stage}
        if pipeline is not None:
            self.attributes["pipeline"] = pipeline
        self.counts = dict.fromkeys(COUNTERS, 0)
        self.series = _Series(), _Series()  # times and GPU times
        self._seen = NodeTotals()

    def begin_anew(self) -> None:
        self._seen = NodeTotals()
        for series in self.series:
            series.begin_anew()

    def update(self, totals: NodeTotals) -> None:
        for counter in COUNTERS:
            self.counts[counter] += max(getattr(totals, counter) - getattr(self._seen, counter), 0)
        self._seen = totals
        for series, (_, count, total_ms, groups) in zip(self.series, totals.series, strict=True):
            series.update(count, total_ms, groups)


class _Series:
    """Samples of a histogram, given and waiting."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[float, int]] = deque()  # seconds, and how many times
        self.begin_anew()

    def begin_anew(self) -> None:
        self._count, self._total_ms = 0, 0.0
        self._groups: dict[int, int] = {}

    @property
    def pending(self) -> int:
        return sum(count for _, count in [*self._waiting])

    def update(self, count: int, total_ms: float, groups: dict[int, int]) -> None:
        """Take over new samples, unless others wait.

        So at most twice as many wait.
        """
        if self._waiting or count <= self._count:
            return
        new = {group: more for group, held in groups.items() if (more := held - self._groups.get(group, 0)) > 0}
        self._waiting.extend(_samples(count - self._count, (total_ms - self._total_ms) / _MS_PER_S, new))
        self._count, self._total_ms, self._groups = count, total_ms, groups

    def give(self, histogram: Histogram, attributes: dict[str, str], most: int) -> int:
        """Give samples to an instrument, ``most`` at most, and return how many."""
        left = most
        while self._waiting and left > 0:
            value, count = self._waiting.popleft()
            now = min(count, left)
            left -= now
            if now < count:
                self._waiting.appendleft((value, count - now))
            for _ in range(now):
                histogram.record(value, attributes)
        return most - left


def _samples(count: int, total_s: float, groups: dict[int, int]) -> Iterator[tuple[float, int]]:
    """Yield ``count`` times in s of the given sum, within their buckets.

    Equal ones come together. All are at the same fraction of their bucket. Samples that the histogram lost are as long
    as the mean. The longest sample takes the rest, beyond the last bucket.
    """
    total_s = max(total_s, 0.0)
    lost = count - sum(groups.values())
    if lost > 0:
        yield total_s / count, lost
        total_s -= total_s / count * lost
    if not groups:
        return
    edges = edges_s()
    least = sum(held * edges[group] for group, held in groups.items())
    widths = sum(held * (edges[group + 1] - edges[group]) for group, held in groups.items())
    part = min(max((total_s - least) / widths, 0.0), 1.0)
    values = {group: edges[group] + part * (edges[group + 1] - edges[group]) for group in groups}
    longest = max(groups)
    rest = total_s - sum(values[group] * held for group, held in groups.items())
    if abs(rest) > _NOTICEABLE * total_s and values[longest] + rest >= 0:
        yield values[longest] + rest, 1
        groups = {**groups, longest: groups[longest] - 1}
    yield from ((values[group], held) for group, held in groups.items() if held)


# ---- Spans


def open_telemetry_spans(recording: Recording | profile, *, resource: Resource | None = None) -> Iterator[ReadableSpan]:
    """Yield a recording's spans, nodes, labelled blocks and others with ids.

    They have the recording's trace, span and parent ids, times and names; attributes ``node`` (of nodes), ``stage``,
    ``thread.id`` and ``thread.name``; and ``outcome`` unless a call simply ended: ``error``, ``cancelled``,
    ``unfinished`` at the end of the recording, or ``cut`` by a pause. Errors have status ERROR; that of others is not
    set. A lone surrogate becomes a backslash escape. Operators and device work have no ids, and are left out.

    OpenTelemetry's API makes ids itself; spans of the past with given ids are the SDK's ``ReadableSpan``. So this needs
    opentelemetry-sdk, which every exporter has.

    recording: a Recording, or a ``profile`` that has one. Times of a loaded trace are those of the file. resource:
    source of the spans; default: that of the global tracer provider, or of the environment.

    Raises:
        ImportError: opentelemetry-sdk is not installed.
        TypeError: An argument is of another kind.
        RuntimeError: The ``profile`` has no recording yet.
    """
    if not isinstance(recording, Reports):
        raise TypeError(f"recording must be a Recording, or a profile that has one, got {shown_value(recording)}")
    sdk = imported("opentelemetry.sdk.trace", install="opentelemetry-sdk")
    if resource is None:
        resource = getattr(sdk.trace_api.get_tracer_provider(), "resource", None) or sdk.Resource.create()
    arguments.member("resource", resource, sdk.Resource)
    return _spans(sdk, resource, recording._finished())


def export_spans(
    recording: Recording | profile, exporter: SpanExporter | SpanProcessor, *, resource: Resource | None = None
) -> int:
    """Export a recording's spans (``open_telemetry_spans``), and count them.

    exporter: a ``SpanExporter``, called here with 512 spans at a time and left open; or a ``SpanProcessor`` such as the
    program's, which exports on its own and may drop spans beyond its queue. recording, resource: see there.

    Returns the number of spans taken.

    Raises:
        ImportError: opentelemetry-sdk is not installed.
        TypeError: An argument is of another kind.
        RuntimeError: The ``profile`` has no recording yet.
    """
    spans = open_telemetry_spans(recording, resource=resource)
    on_end, export = getattr(exporter, "on_end", None), getattr(exporter, "export", None)
    taken = 0
    if callable(on_end):
        for span in spans:
            on_end(span)
            taken += 1
    elif callable(export):
        while batch := tuple(islice(spans, _BATCH)):
            taken += len(batch) if getattr(export(batch), "name", "") == "SUCCESS" else 0
    else:
        raise TypeError(f"exporter must be a SpanExporter or a SpanProcessor, got {shown_value(exporter)}")
    return taken


def _spans(sdk: Any, resource: Resource, recording: Recording) -> Iterator[ReadableSpan]:
    """Yield the spans of a recording by their start."""
    from opentelemetry import trace
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    if not has(recording, "span"):
        return
    sampled = trace.TraceFlags(trace.TraceFlags.SAMPLED)
    scope = InstrumentationScope("cprofiling", own_version())
    none, error = trace.Status(), trace.Status(trace.StatusCode.ERROR)
    texts = recording.strings
    threads: list[dict[str, str | int]] = []
    for track in recording.tracks:
        number, thread = thread_number(track), track[6]
        threads.append({"thread.id": number} if isinstance(number, int) else {})  # not a text that stands for one
        if thread:
            threads[-1]["thread.name"] = exportable(thread)
    for kind, name, stage, track, span, parent, high, low, start, end, outcome, flags in zip(
        *(column(recording, name) for name in _COLUMNS), strict=True
    ):
        if not span:
            continue
        attributes = dict(threads[track])
        if kind == NODE:
            attributes["node"] = exportable(texts[name])
        if texts[stage]:
            attributes["stage"] = exportable(texts[stage])
        if flags & (UNFINISHED | CUT):
            attributes["outcome"] = "unfinished" if flags & UNFINISHED else "cut"
        elif outcome:
            attributes["outcome"] = OUTCOMES[outcome]
        context, above = (
            trace.SpanContext(high << 64 | low, each, is_remote=False, trace_flags=sampled) if each else None
            for each in (span, parent)
        )
        yield sdk.ReadableSpan(
            exportable(texts[name]),
            context,
            above,
            attributes=attributes,
            status=error if outcome == _ERROR else none,
            start_time=max(start, 0),  # since 1970, which is where OpenTelemetry begins
            end_time=max(end, 0),
            resource=resource,
            instrumentation_scope=scope,
        )
