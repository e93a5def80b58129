"""Immutable statistics of a summary, one per (execution stage, node name)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from cprofiling import _core
from cprofiling._internal.text import checked_text, shown_names
from cprofiling.nodes.decorators import StageName
from cprofiling.nodes.exports import SummaryExports
from cprofiling.nodes.resources import NO_COUNTERS, WAITS, NodeCounters, NodeLaunches, NodeMemory, fields_from

if TYPE_CHECKING:
    from cprofiling.nodes.input_shapes import ShapeStats

Median: TypeAlias = Literal["histogram", "p2"]
MEDIANS: tuple[Median, ...] = ("histogram", "p2")


class ExecutionStage(str, Enum):
    """Execution stages known by name, beside which any str is one."""

    TRAIN = "train"
    VAL = "val"
    TEST = "test"
    INFERENCE = "inference"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class NodeProfilingStats:
    """Statistics of one node in one execution stage, immutable and hashable.

    The first ten fields are enough to make one. A sample is one finished call (or block, or generator iteration)
    that was neither skipped nor dropped and that no exception left. All times are in milliseconds of elapsed time,
    0 or more, as read from a monotonic clock; no overhead is subtracted. With a count of 0 the
    times among the first ten fields are 0.0; among the later fields None means that the figure is not known.

    Attributes:
        node_name: Name of the node, any str.
        stage: Execution stage of the calls; for the four known stages an ``ExecutionStage``, which is a str.
        count: Number of samples, 0 or more.
        mean_ms: Arithmetic mean of the samples, between ``min_ms`` and ``max_ms``.
        median_ms: Median of the samples, ``p50_ms``. With ``median="p2"``, of more than five samples that were not
            merged, the P-square estimate (R. Jain and I. Chlamtac, "The P2 Algorithm for Dynamic Calculation of
            Quantiles and Histograms Without Storing Observations", Communications of the ACM 28(10), 1985). Its error
            has no bound on streams that shift.
        std_ms: Population standard deviation of the samples (divides by ``count``); 0.0 for one sample.
        min_ms: Smallest sample, exact.
        max_ms: Largest sample, exact.
        total_ms: Sum of the samples, exact to rounding; includes the time of nodes called inside.
        last_ms: The sample that was recorded last.
        p50_ms: 50th percentile: the exact median of up to five samples, of more the nearest rank in a log-linear
            histogram, within 1 % from 1 ns to 24 h, clamped beyond.
        p90_ms: 90th percentile from the histogram, as are the next.
        p95_ms: 95th percentile.
        p99_ms: 99th percentile.
        p999_ms: 99.9th percentile.
        error_count: Calls that an exception left; they are no samples and use up no skip.
        cancelled_count: Calls that ``asyncio.CancelledError`` left; they are not among the errors.
        skipped_count: First successful calls left out of the samples, at most ``skip_first_n``.
        dropped_count: Calls that finished after the statistics in force at their start had been discarded.
        first_ms: First successful call since the reset, whether it was skipped or not.
        self_total_ms: ``total_ms`` without the time of nodes called directly inside, in the same thread or task.
        active_total_ms: For coroutines, the part of ``total_ms`` in which they ran, without the awaiting.
        gpu_count: Samples with a GPU time, 0 or more. Like all that follows it is there where ``set_profiling`` asked
            for it; calls that began while their key was still skipping have none of it.
        gpu_mean_ms: Mean GPU time: the span on the device's stream from the node's start to its end, gaps in its queue
            included. Resolution about 0.5 µs.
        gpu_p50_ms: 50th percentile of the GPU times, within 1 %.
        gpu_p99_ms: 99th percentile of the GPU times, within 1 %.
        gpu_total_ms: Sum of the GPU times.
        queue_delay_ms: Mean time by which the device began with the node later than the host did, beyond the least
            such delay of the stream in the last seconds: how far the device runs behind.
        gpu_reason: Why GPU times are missing or uncertain, with the number of calls; None if there is nothing to say.
        counters: For each counter that was asked for a value with ``mean`` and ``total``, or None where it was refused,
            or the key has no sample yet. The values hold what reading them costs, about 1 µs of ``cpu_time`` a call.
        launches: Device work launched by the node itself, without nodes called inside; None if not known.
        memory: Memory of device and process around the calls; None if it was not asked for.
        sync_total_ms: Time spent waiting for devices because of ``synchronize_cuda``, before the calls (which is no
            part of ``total_ms``) and after them (which is); None if nothing was waited for.
        sync_count: How often devices were waited for: mostly twice a call; 0 if not at all, or not known.
    """

    node_name: str
    stage: str
    count: int
    mean_ms: float
    median_ms: float
    std_ms: float
    min_ms: float
    max_ms: float
    total_ms: float
    last_ms: float
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
    counters: NodeCounters = field(default_factory=NodeCounters)
    launches: NodeLaunches | None = None
    memory: NodeMemory | None = None
    sync_total_ms: float | None = None
    sync_count: int = 0

    @property
    def cpu_share(self) -> float | None:
        """Share of ``total_ms`` on a processor, 0 to about 1.

        The rest was waiting. None without the counter ``cpu_time``, or below 0.02 ms per call on average, as reading
        the counter costs about 1 µs.
        """
        cpu_time = self.counters.get("cpu_time")
        if cpu_time is None or cpu_time.samples != self.count or self.total_ms < self.count * _LEAST_SHARED_MS:
            return None
        return float(cpu_time.total / 1e6 / self.total_ms)


_LEAST_SHARED_MS = 0.02
_KNOWN_STAGES: dict[str, str] = {member.value: member for member in ExecutionStage}
# CPython 3.10 takes no dict for a default, immutable or not; pickles from before the field existed find it here.
type.__setattr__(NodeProfilingStats, "counters", NO_COUNTERS)
_DEFAULTS = {part.name: getattr(NodeProfilingStats, part.name, None) for part in fields(NodeProfilingStats)}


def stats_from_row(row: Any) -> NodeProfilingStats:
    """Make one key's statistics from a row of ``csrc/statistics/summary.c``."""
    stats = object.__new__(NodeProfilingStats)
    # Stores into the instance's dict cost a quarter of the constructor, which pays a guarded setattr for each field.
    # Nobody else has seen the object yet, so it is as frozen as any other.
    if sys.version_info < (3, 13):
        values = stats.__dict__
        values.update(_DEFAULTS)
    else:  # which stores the first keys in the instance, and then moves them: a dict of its own takes half the time
        values = _DEFAULTS.copy()
        object.__setattr__(stats, "__dict__", values)
    _core.fill_row(values, row)
    values["stage"] = _KNOWN_STAGES.get(row.stage, row.stage)
    resources = row.resources
    if resources is not None:
        if resources.waits:
            values["sync_total_ms"], values["sync_count"] = resources.wait_ms, resources.waits
        if resources.asked & ~WAITS:
            values.update(fields_from(resources))
    return stats


class ProfilingSummary(list[NodeProfilingStats], SummaryExports):
    """List of ``NodeProfilingStats``, by each key's first finished call.

    It equals a plain list with equal members, and slices are plain lists. Copies and pickles keep the attributes.
    Notebooks show an HTML table.

    Attributes:
        skip_first_n: First successful calls of each key that the statistics leave out, 0 or more.
        median: How ``median_ms`` is found, ``"histogram"`` or ``"p2"`` (see ``Profiler.set_profiling``).
        reasons: Why figures are unknown or features are off, one sentence each; empty if there is nothing to say.
        internal_errors: Faults inside the profiler since the reset, 0 or more; the nodes never notice them.
        cost_ns: Measured own cost of one profiled call in nanoseconds; None if it was not measured.
        edges: The graph of the nodes as ``Profiler.set_graph`` was told it, pairs of names; empty if it was not.
        shapes: The calls by input signature, where ``by_shape`` asked for them: a ``ShapeSummary``;
            empty otherwise.
    """

    __slots__ = ("__dict__", "__weakref__", "_find_histograms", "_find_source")

    _find_source: Callable[[str], str | None]  # gives file and line of a node's function; neither pickled nor copied
    edges: tuple[tuple[str, str], ...] = ()  # this default and the next are for old pickles
    median: Median = "histogram"
    shapes: Sequence[ShapeStats] = ()
    _reasons_beyond: tuple[str, ...] = ()  # of the reasons, those of figures beyond times, where a Profiler told them
    _hints: tuple[str, ...] = ()  # and those why there is nothing

    def __init__(
        self,
        stats: Iterable[NodeProfilingStats] = (),
        *,
        skip_first_n: int = 0,
        median: Median = "histogram",
        reasons: Iterable[str] = (),
        internal_errors: int = 0,
        cost_ns: float | None = None,
        edges: tuple[tuple[str, str], ...] = (),
    ) -> None:
        """Create a list of ``stats``, with the keywords as attributes."""
        super().__init__(stats)
        self.skip_first_n = skip_first_n
        self.median = median
        self.reasons = tuple(reasons)
        self.internal_errors = internal_errors
        self.cost_ns = cost_ns
        if edges:
            self.edges = edges

    def copy(self) -> ProfilingSummary:
        """Return a shallow copy that keeps the attributes."""
        copied = ProfilingSummary(self)
        copied.__dict__.update(self.__dict__)
        return copied

    def node(self, name: str, stage: StageName = None) -> NodeProfilingStats:
        """Return the row of a node.

        Args:
            name: The name of the node.
            stage: A str, or an enum with a str value; None if the node has run in one stage only.

        Raises:
            TypeError: ``name`` or ``stage`` is of another kind.
            ValueError: No such row, or one in each of several stages; the message lists them.
        """
        wanted = checked_text("name", name)
        rows = [row for row in self if row.node_name == wanted]
        if not rows:
            known = shown_names(row.node_name for row in self) or "none"
            raise ValueError(f"name must be that of a node ({known}), got {shown_names([wanted])}")
        in_stage = None if stage is None else checked_text("stage", stage)
        found = [row for row in rows if in_stage in (None, row.stage)]
        if len(found) == 1:
            return found[0]
        got = "None" if in_stage is None else shown_names([in_stage])
        raise ValueError(
            f"stage must be one in which the node ran ({shown_names(row.stage for row in rows)}), got {got}"
        )

    def __getstate__(self) -> dict[str, Any]:
        return vars(self)
