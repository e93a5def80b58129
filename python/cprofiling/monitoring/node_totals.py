"""Sums of node figures for metric exporters, one snapshot per Profiler."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from cprofiling import _core
from cprofiling._internal import arguments
from cprofiling._internal.log import complain
from cprofiling._internal.text import SEPARATING_OR_TURNING, shown_text, shown_value
from cprofiling.nodes.buckets import LAST, edge_ns
from cprofiling.nodes.profiler import PipelineProfiling, Profiler
from cprofiling.nodes.snapshot import Snapshot

if TYPE_CHECKING:
    Source: TypeAlias = Profiler | PipelineProfiling | Callable[[], Snapshot]
    Sources: TypeAlias = Source | Mapping[str, Source]
    Key: TypeAlias = tuple[str, str]  # stage and node

OVERFLOW = "__overflow__"
# Powers of two of a microsecond, up to 134 s: each is an edge of the histograms' buckets.
DEFAULT_BOUNDS = tuple(2**power / 1e6 for power in range(28))
MAX_NODES = 1000
# Counters of NodeTotals besides samples, with their meaning.
COUNTERS = {
    "calls": "Calls that have finished: samples, errors, cancelled, skipped and dropped ones.",
    "errors": "Calls that an exception left.",
    "cancelled": "Calls that asyncio.CancelledError left.",
    "skipped": "First calls that were left out of the samples.",
    "dropped": "Calls that a reset discarded while they ran.",
}
_NS_PER_S = 1e9
_NOT_EXPORTABLE = re.compile(f"[\ud800-\udfff{SEPARATING_OR_TURNING}]")
_LEAST_S, _MOST_S = 1e-9, 1e5


class NodeTotals:
    """Sums of one node in one stage, or of several under one name.

    Attributes:
        count: Samples.
        total_ms: The sum of their times.
        times: Samples in each group of buckets, by its number; empty groups are left out.
        errors: Calls that an exception left, but for those that were
        cancelled: by ``asyncio.CancelledError``.
        skipped: First calls left out of the samples.
        dropped: Calls that a reset discarded while they ran.
        gpu_count: Samples with a GPU time; 0 where none was asked for, or none is known.
        gpu_total_ms: The sum of these times.
        gpu_times: As ``times``.
        peaks: The highest peaks of memory in bytes, by ``device`` and ``host``, where they are known.
    """

    def __init__(self) -> None:
        self.count = self.errors = self.cancelled = self.skipped = self.dropped = self.gpu_count = 0
        self.total_ms = self.gpu_total_ms = 0.0
        self.times: Counter[int] = Counter()
        self.gpu_times: Counter[int] = Counter()
        self.peaks: dict[str, int] = {}

    @property
    def calls(self) -> int:
        """All calls that have finished."""
        return self.count + self.errors + self.cancelled + self.skipped + self.dropped

    @property
    def series(self) -> tuple[tuple[str, int, float, Counter[int]], ...]:
        """Prefix, count, total in ms and groups of both histograms."""
        return (
            ("", self.count, self.total_ms, self.times),
            ("gpu_", self.gpu_count, self.gpu_total_ms, self.gpu_times),
        )

    def add(self, row: Any, times: tuple[int, ...], gpu_times: tuple[int, ...]) -> None:
        """Add a row of a snapshot, and its groups as numbers and counts in turn."""
        self.count += row.count
        self.total_ms += row.total_ms
        self.errors += row.error_count
        self.cancelled += row.cancelled_count
        self.skipped += row.skipped_count
        self.dropped += row.dropped_count
        self.times.update(dict(zip(times[::2], times[1::2], strict=True)))
        if row.resources is not None:
            self.gpu_count += row.resources.gpu.count
            self.gpu_total_ms += row.resources.gpu.total_ms or 0.0
            self.gpu_times.update(dict(zip(gpu_times[::2], gpu_times[1::2], strict=True)))
            for kind, memory in (("device", row.resources.device_memory), ("host", row.resources.host_memory)):
                if memory.calls and memory.peak >= 0:
                    self.peaks[kind] = max(memory.peak, self.peaks.get(kind, 0))


def nodes_of(snapshot: Snapshot, bounds: tuple[int, ...], limit: int) -> tuple[dict[Key, NodeTotals], int]:
    """Return a snapshot's nodes by stage and name, and the number folded.

    The first ``limit`` have figures of their own; the others are summed under ``__overflow__`` of their stage, or, if
    that has no node among the first, of a stage of that name. Surrogates and characters excluded by ``exportable`` are
    backslash escapes in names.

    bounds: bucket numbers that divide them into groups.
    """
    nodes: dict[Key, NodeTotals] = {}
    stages: set[str] = set()
    own = folded = 0
    for row, (times, gpu_times) in snapshot._keys(bounds):
        stage, node = exportable(row.stage), exportable(row.node_name)
        if (stage, node) not in nodes:
            if own < limit:
                own += 1
                stages.add(stage)
            else:
                folded += 1
                stage, node = stage if stage in stages else OVERFLOW, OVERFLOW
        nodes.setdefault((stage, node), NodeTotals()).add(row, times, gpu_times)
    return nodes, folded


def exportable(name: str) -> str:
    """Return a name as other programs can take and show it.

    Lone surrogates, separators of lines and what turns the direction of writing become backslash escapes.
    """
    return name if name.isprintable() else _NOT_EXPORTABLE.sub(lambda found: shown_text("name", found[0]), name)


@cache
def edges_s() -> list[float]:
    """Return the exact edges of all buckets in seconds."""
    return [edge_ns(number) / _NS_PER_S for number in range(LAST + 2)]


def bounds_of(parameter: str, bounds_s: Iterable[float]) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return bucket numbers and exact bounds in s for the given bounds.

    Each bound moves to the nearest bucket edge, by 0.8 % at most.

    Raises:
        TypeError: It is no iterable of numbers.
        ValueError: A bound is below 1 ns or above 100,000 s, they do not rise, or two of them are the same edge.
    """
    if isinstance(bounds_s, (str, bytes)) or not isinstance(bounds_s, Iterable):
        raise TypeError(f"{parameter} must be an iterable of numbers, got {shown_value(bounds_s)}")
    edges = edges_s()
    numbers: list[int] = []
    for place, bound in enumerate(bounds_s):
        wanted = arguments.number_between(f"{parameter}[{place}]", bound, _LEAST_S, _MOST_S)
        above = bisect_left(edges, wanted)
        number = above if edges[above] - wanted < wanted - edges[above - 1] else above - 1
        if numbers and number <= numbers[-1]:
            raise ValueError(
                f"{parameter} must rise, by 2 % at least, got {shown_value(bound)} after {edges[numbers[-1]]}"
            )
        numbers.append(number)
    if not numbers:
        raise ValueError(f"{parameter} must not be empty")
    return tuple(numbers), tuple(edges[number] for number in numbers)


class Reader:
    """Reads the totals of sources for a system of metrics.

    An unreadable source is logged once, until it can be read.

    Attributes:
        has_names: Whether the sources are a mapping.

    Raises:
        TypeError: ``profiler`` is no Profiler, pipeline, callable that returns a Snapshot, nor a mapping of names to
            such.
        ValueError: A name of the mapping is not valid for a node.
    """

    def __init__(self, profiler: Any, whom: str) -> None:
        self.has_names = isinstance(profiler, Mapping)
        self._profiler = profiler
        self._whom = whom
        self._told: set[str | None] = set()
        if self.has_names:
            for name, source in profiler.items():
                _checked_source(f"profiler[{_core.convert_name(name)!r}]", source)
        else:
            _checked_source("profiler", profiler)

    def read(
        self, bounds: tuple[int, ...], max_nodes: int
    ) -> Iterator[tuple[str | None, Snapshot | None, dict[Key, NodeTotals], int]]:
        """Yield name, snapshot, totals and number of folded nodes by source.

        A single source has the name None. An unreadable source has the snapshot None.
        """
        sources: dict[Any, Any] = {None: self._profiler}
        if self.has_names:
            try:
                sources = dict(self._profiler)
            except Exception as error:  # noqa: BLE001 the program's other metrics go on
                self._tell(None, error)
                return
            self._told.discard(None)
        for key, source in sources.items():
            name: str | None = None
            try:
                if self.has_names:
                    name = exportable(shown_value(key))  # for the complaint, where it is no name
                    name = exportable(_core.convert_name(key))
                if isinstance(source, (Profiler, PipelineProfiling)):
                    snapshot = getattr(source, "profiler", source).snapshot()
                else:
                    made = _checked_source("the source", source)()
                    snapshot = arguments.member("what the callable returns", made, Snapshot)
                nodes, folded = nodes_of(snapshot, bounds, max_nodes)
            except Exception as error:  # noqa: BLE001 as above
                self._tell(name, error)
                yield name, None, {}, 0
                continue
            self._told.discard(name)
            yield name, snapshot, nodes, folded

    def _tell(self, name: str | None, error: Exception) -> None:
        if name not in self._told:
            self._told.add(name)
            of_name = "" if name is None else f" of {name!r}"
            complain(f"statistics{of_name} cannot be read for {self._whom}: {error}")


def _checked_source(parameter: str, source: Any) -> Any:
    if isinstance(source, (Profiler, PipelineProfiling)) or callable(source):
        return source
    raise TypeError(
        f"{parameter} must be a Profiler, a pipeline, or a callable that returns a Snapshot, got {shown_value(source)}"
    )
