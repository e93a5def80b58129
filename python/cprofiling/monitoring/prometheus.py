"""Prometheus collector that reads a snapshot at each scrape."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from cprofiling import _core
from cprofiling._internal import arguments
from cprofiling._internal.optional import imported, own_version
from cprofiling._internal.report_format import Format
from cprofiling.monitoring.node_totals import (
    COUNTERS,
    DEFAULT_BOUNDS,
    MAX_NODES,
    Reader,
    bounds_of,
)
from cprofiling.nodes.snapshot import Snapshot

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from cprofiling.monitoring.node_totals import NodeTotals, Sources

_NODE = ("stage", "node")
_FAMILIES = (  # name, kind, labels, help
    ("node_duration_seconds", "Histogram", "node", "Time that calls of a node took."),
    ("node_gpu_duration_seconds", "Histogram", "node", "Time that a device took for calls of a node."),
    *((f"node_{name}", "Counter", "node", help_text) for name, help_text in COUNTERS.items()),
    ("node_memory_peak_bytes", "Gauge", "memory", "The most memory in use inside a call."),
    ("folded_nodes", "Gauge", "pipeline", "Nodes that have no series of their own."),
    ("call_cost_seconds", "Gauge", "pipeline", "What measuring a call costs."),
    ("read_failed", "Gauge", "pipeline", "Whether the statistics could not be read."),
    ("internal_errors", "Counter", "pipeline", "Faults inside the profiler."),
    ("build", "Info", "", "Versions, and the clock in use."),
)
_EXTRA = "cprofiling[prometheus]"
_MS_PER_S, _NS_PER_S = 1e3, 1e9


class PrometheusCollector:
    """Collector of Profilers' statistics for ``prometheus_client``.

    ``prometheus_client.REGISTRY.register(PrometheusCollector(profiler))`` is all there is to do. Nothing runs between
    scrapes: no thread, no file, and no cost for the nodes. A scrape takes one snapshot of each Profiler.

    One collector serves all Profilers of a registry, which refuses a second one: give a mapping of names to them. Each
    series has its name in the label ``pipeline`` then. Those of nodes have the labels ``stage`` and ``node``:

    * ``cprofiling_node_duration_seconds``, a histogram: samples, which are calls that were neither left by an exception
      nor skipped
    * ``cprofiling_node_gpu_duration_seconds``, a histogram: their GPU times; nodes without one are not in it
    * ``cprofiling_node_calls_total``: all calls that finished while profiling was on
    * ``cprofiling_node_errors_total``: those that an exception left, but for
    * ``cprofiling_node_cancelled_total``: those that ``asyncio.CancelledError`` left
    * ``cprofiling_node_skipped_total``: those that ``skip_first_n`` left out
    * ``cprofiling_node_dropped_total``: those that a reset discarded while they ran
    * ``cprofiling_node_memory_peak_bytes``, a gauge, by ``memory``, which is ``device`` or ``host``: where it is known

    Those of Profilers:

    * ``cprofiling_folded_nodes``, a gauge: how many nodes are in ``__overflow__``; see ``max_nodes``
    * ``cprofiling_internal_errors_total``: faults inside the profiler
    * ``cprofiling_call_cost_seconds``, a gauge: what measuring a call costs, as measured
    * ``cprofiling_read_failed``, a gauge: 1 where the statistics could not be read, and are missing; the log says why

    And ``cprofiling_build_info`` has versions, and the clock in use.

    When statistics are reset, counters and histograms begin anew, as after a restart of the process, which ``rate()``
    and ``increase()`` know; there are no ``_created`` series, as nobody keeps that time. In a forked child they begin
    at zero. A lone surrogate in a name is a backslash escape.

    Of several processes each has its own statistics, also in the multiprocess mode of ``prometheus_client``, whose
    files have no place for those of custom collectors. Scrape each process; or give a callable that merges what the
    processes wrote, ``lambda: Snapshot.merge(map(read, paths))``, which any of them may answer with.
    """

    def __init__(
        self, profiler: Sources, *, buckets: Iterable[float] = DEFAULT_BOUNDS, max_nodes: int = MAX_NODES
    ) -> None:
        """Make a collector, which is to be registered.

        profiler: A Profiler, a pipeline, a callable that returns a Snapshot (called at each scrape), or a mapping of
            names to such, which is read at each scrape and may change at any time.
        buckets: The upper bounds of the histograms' buckets in seconds, rising, from 1e-9 to 1e5; by default the powers
            of two of a microsecond up to 134 s. One that is no edge of the buckets of the statistics, which are 1.6 %
            wide at most, is moved to the nearest, so that all counts are exact; ``le`` has the bound as it is used.
            A time that equals a bound counts above it.
        max_nodes: How many nodes of a Profiler have series of their own, from 1 on; the later ones are added up under
            the node ``__overflow__`` of their stage.

        Raises:
            ImportError: prometheus_client is not installed.
            TypeError: An argument is of another kind.
            ValueError: A number is out of its limits, or buckets do not rise.
        """
        self._core = imported("prometheus_client.core", install=_EXTRA)
        self._reader = Reader(profiler, "Prometheus")
        self._bounds, bounds_s = bounds_of("buckets", buckets)
        self._le = tuple(map(imported("prometheus_client.utils", install=_EXTRA).floatToGoString, bounds_s))
        self._max_nodes = arguments.index_between("max_nodes", max_nodes, 1)
        self._labels = ("pipeline",) if self._reader.has_names else ()

    def describe(self) -> list[Metric]:
        """Return the families without series, for their names."""
        return [*self._families().values()]

    def collect(self) -> list[Metric]:
        """Return all families, from one snapshot of each Profiler.

        Sources that cannot be read are logged and left out.
        """
        families = self._families()
        for name, snapshot, nodes, folded in self._reader.read(self._bounds, self._max_nodes):
            labels = [] if name is None else [name]
            families["read_failed"].add_metric(labels, int(snapshot is None))
            if snapshot is None:
                continue
            facts = snapshot._facts()
            families["folded_nodes"].add_metric(labels, folded)
            families["internal_errors"].add_metric(labels, facts.internal_errors)
            families["call_cost_seconds"].add_metric(labels, facts.cost_ns / _NS_PER_S)
            for key, totals in nodes.items():
                self._add_node(families, [*labels, *key], totals)
        about = {"version": own_version(), "python": platform.python_version(), "clock": _core.clock()[0]}
        families["build"].add_metric([], about)
        return [*families.values()]

    def _families(self) -> dict[str, Any]:
        labels = {
            "node": (*self._labels, *_NODE),
            "memory": (*self._labels, *_NODE, "memory"),
            "pipeline": self._labels,
        }
        return {
            name: getattr(self._core, f"{kind}MetricFamily")(f"cprofiling_{name}", text, labels=labels.get(group, ()))
            for name, kind, group, text in _FAMILIES
        }

    def _add_node(self, families: Mapping[str, Any], labels: list[str], totals: NodeTotals) -> None:
        for name in COUNTERS:
            families[f"node_{name}"].add_metric(labels, getattr(totals, name))
        for kind, count, total_ms, times in totals.series:
            if count or not kind:
                buckets = self._buckets(times, count)
                families[f"node_{kind}duration_seconds"].add_metric(labels, buckets, total_ms / _MS_PER_S)
        for memory, peak in totals.peaks.items():
            families["node_memory_peak_bytes"].add_metric([*labels, memory], peak)

    def _buckets(self, groups: Mapping[int, int], count: int) -> list[tuple[str, float]]:
        """Return cumulative buckets, lost samples in the last one."""
        below, buckets = 0, []
        for group, bound in enumerate(self._le):
            below += groups.get(group, 0)
            buckets.append((bound, below))
        return [*buckets, ("+Inf", count)]


class TextFormat(Format):
    """Snapshot in Prometheus' text format."""

    suffixes = (".prom",)
    only = "snapshots of statistics"

    def fits(self, of: object) -> bool:
        """Tell whether it is a snapshot."""
        return isinstance(of, Snapshot)

    def render(self, view: Any) -> str:
        """Return the text.

        Raises ImportError, naming the extra, without prometheus_client.
        """
        client = imported("prometheus_client", install=_EXTRA)
        registry = client.CollectorRegistry()
        registry.register(PrometheusCollector(lambda: view.of))
        text: str = client.generate_latest(registry).decode("utf-8")
        return text
