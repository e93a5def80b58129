"""OpenTelemetry instruments that read statistics at each collection."""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from cprofiling._internal import arguments
from cprofiling._internal.optional import imported, own_version
from cprofiling.monitoring.node_totals import (
    COUNTERS,
    DEFAULT_BOUNDS,
    MAX_NODES,
    NodeTotals,
    Reader,
    bounds_of,
    edges_s,
)
from cprofiling.nodes.buckets import LAST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from opentelemetry.metrics import Histogram, MeterProvider, Observation

    from cprofiling.monitoring.node_totals import Key, Sources
    from cprofiling.nodes.snapshot import Snapshot

_FIRST = "calls"
_HISTOGRAMS = {
    "cprofiling.node.duration": "Time that calls of a node took.",
    "cprofiling.node.gpu.duration": "Time that a device took for calls of a node.",
}
_ALL_BUCKETS = tuple(range(1, LAST + 1))  # each of them is a group
_MS_PER_S = 1e3
_NOTICEABLE = 1e-9  # of a sum: what rounding leaves is less


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
        self._pipelines: dict[str | None, _Pipeline] = {}
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
        self._pipelines = {}

    def _nodes(self) -> list[_Node]:
        return [node for pipeline in [*self._pipelines.values()] for node in [*pipeline.nodes.values()]]

    def _read(self) -> None:
        if self._process != os.getpid():  # another thread of the parent may have had it when this child was forked
            self._process, self._lock, self._pipelines = os.getpid(), threading.Lock(), {}
        with self._lock:
            for name, snapshot, nodes, _ in self._reader.read(_ALL_BUCKETS, self._max_nodes):
                if snapshot is not None:
                    self._pipelines.setdefault(name, _Pipeline(name)).update(snapshot, nodes)
            self._give()

    def _give(self) -> None:
        """Give waiting samples, evenly per node if there are too many."""
        series = sorted(self._series(), key=lambda each: each[0].pending)
        left = self._max_samples
        for place, (each, histogram, attributes) in enumerate(series):
            left -= each.give(histogram, attributes, left // (len(series) - place))

    def _series(self) -> Iterator[tuple[_Series, Histogram, dict[str, str]]]:
        for node in self._nodes():
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
        nodes = [node for member in members for node in member._nodes()]
        return [self._observation(getattr(node, counter), node.attributes) for node in nodes]


_instruments: WeakKeyDictionary[MeterProvider, _Instruments] = WeakKeyDictionary()
_making = threading.Lock()


class _Pipeline:
    """The nodes of one Profiler."""

    def __init__(self, name: str | None) -> None:
        self._name = name
        self._of: set[tuple[bytes, int]] = set()  # the Profilers, and the generations of their statistics
        self.nodes: dict[Key, _Node] = {}

    def update(self, snapshot: Snapshot, nodes: dict[Key, NodeTotals]) -> None:
        of = set(snapshot._sources())
        if not self._of <= of:
            for node in self.nodes.values():
                node.begin_anew()
        self._of = of
        for key, totals in nodes.items():
            if key not in self.nodes:
                self.nodes[key] = _Node(key, self._name)
            self.nodes[key].update(totals)


class _Node:
    """Reported state of a node."""

    def __init__(self, key: Key, pipeline: str | None) -> None:
        stage, node = key
        self.attributes = {"node": node, "stage": stage}
        if pipeline is not None:
            self.attributes["pipeline"] = pipeline
        self.calls = self.errors = self.cancelled = self.skipped = self.dropped = 0
        self.series = _Series(), _Series()  # times and GPU times
        self._seen = NodeTotals()

    def begin_anew(self) -> None:
        self._seen = NodeTotals()
        for series in self.series:
            series.begin_anew()

    def update(self, totals: NodeTotals) -> None:
        for counter in COUNTERS:
            more = getattr(totals, counter) - getattr(self._seen, counter)
            setattr(self, counter, getattr(self, counter) + max(more, 0))
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
