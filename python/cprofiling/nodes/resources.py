"""Resource figures of a node, made from the core's rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from cprofiling import _core
from cprofiling._internal import arguments
from cprofiling._internal.text import checked_text

# Figures beyond times that a Profiler can gather, as the bits of the core's resources.
GPU, LAUNCHES, COUNTERS_ASKED, MEMORY, WAITS = 1, 2, 4, 8, 16
LAUNCHES_UNKNOWN, PEAK_UNKNOWN = 32, 64  # asked for in vain
COUNTER_SHIFT = 8  # of the bits of single counters

# By cprof_gpu_cause; the first stands for a known time.
_CAUSES = (
    "",
    "no device was in use",
    "there was no context on the device",
    "the stream was being captured",
    "the call ended on another device than it began on",
    "the context was destroyed",
    "the device refused",
    "too many calls waited for the device",
    "the device cannot tell",
    "it gave way to its consumer, whose work is on the same stream",
    "the stream was not told",
)
_NO_QUEUE = "queue_delay_ms is not known, as the device's events tell nothing of its queue"
_NO_DEVICE_MEMORY = "neither a framework's allocator nor a driver told how much of it was in use"
_NO_PEAK = "nobody keeps the most there was, or it cannot be counted anew"
_NO_RISE = "in no call it rose above the most before, so that what a call reached is not known"


UNITS = dict(_core.perf_units())  # in the order of the bits in cprofiling/stats/counter.h
COUNTERS = tuple(UNITS)
HARDWARE_COUNTERS = COUNTERS[COUNTERS.index("cycles") :]


@dataclass(frozen=True)
class CounterValue:
    """Value of one counter over a node's calls, immutable and hashable.

    Attributes:
        mean: ``total`` divided by ``samples``.
        total: Sum over the samples in which the counter had a value.
        samples: Number of these, at least 1; less than the node's samples where some had none.
        unit: ``ns`` for ``cpu_time``, ``times`` for all others.
        estimated: Whether any sample was scaled up, as the hardware counted for a part of the time only.
    """

    mean: float
    total: int
    samples: int
    unit: str
    estimated: bool = False


class NodeCounters(dict[str, "CounterValue | None"]):
    """Counters of a node by name, those requested, in a fixed order.

    The value is None where the kernel, container or virtual machine refuses a counter, or no sample had a value. The
    dict is immutable, hashable and picklable. Hardware counters (``cycles`` and those after it) count user space only,
    in the node's thread.
    """

    __slots__ = ()

    def __init__(
        self, values: Mapping[str, CounterValue | None] | Iterable[tuple[str, CounterValue | None]] = ()
    ) -> None:
        """Copy what ``dict`` accepts, from names to ``CounterValue`` or None. TypeError for other values."""
        super().__init__(values)
        for name, value in self.items():
            checked_text("a counter's name", name)
            if value is not None and not isinstance(value, dict):  # one of dicts is made by dataclasses.asdict
                arguments.member(f"the value of {name}", value, CounterValue)

    @property
    def ipc(self) -> float | None:
        """Instructions per cycle, None if either is unknown or cycles are 0."""
        cycles, instructions = self.get("cycles"), self.get("instructions")
        if cycles is None or instructions is None or cycles.samples != instructions.samples or cycles.total == 0:
            return None
        return instructions.total / cycles.total

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({super().__repr__()})"

    def _stay(self, *_: NoReturn, **__: NoReturn) -> None:
        """Raise TypeError, as counters do not change."""
        raise TypeError(f"{type(self).__name__} is immutable")

    __setitem__ = __delitem__ = __ior__ = _stay  # type: ignore[assignment]
    clear = pop = popitem = setdefault = update = _stay  # type: ignore[assignment]

    def __copy__(self) -> NodeCounters:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> NodeCounters:
        return self

    def __reduce__(self) -> tuple[type[NodeCounters], tuple[dict[str, CounterValue | None]]]:
        return type(self), (dict(self),)


NO_COUNTERS = NodeCounters()


@dataclass(frozen=True)
class NodeLaunches:
    """Device work launched by one node's calls, without nodes inside.

    Calls that raised are included.

    Attributes:
        launches: Calls that launch kernels or graphs.
        kernels: Kernels that have ended, 0 or more.
        kernel_ms: Sum of their times on the device.
        copies: Copies in any direction; those from host to host have no bytes here.
        bytes_to_device: Bytes copied from host to device.
        bytes_to_host: Bytes copied from device to host.
        bytes_on_device: Bytes copied on or between devices.
        fills: Fills of device memory (memset).
    """

    launches: int
    kernels: int
    kernel_ms: float
    copies: int
    bytes_to_device: int
    bytes_to_host: int
    bytes_on_device: int
    fills: int


@dataclass(frozen=True)
class MemoryFigures:
    """Bytes of one kind of memory around the calls of a node.

    Attributes:
        calls: Calls with known figures, 1 or more.
        entry: Bytes in use when the last call began.
        exit: Bytes in use when it ended.
        change: Sum of what the calls added, negative if they freed more.
        peak: The most inside any call, earlier use included; None where no call is known to have reached
            it (a counter of peaks tells only when it rises).
        peak_reason: Why ``peak`` is None; None otherwise. No part of comparisons.
    """

    calls: int
    entry: int
    exit: int
    change: int
    peak: int | None
    peak_reason: str | None = field(default=None, compare=False)


@dataclass(frozen=True)
class NodeMemory:
    """Memory around the calls of a node.

    Attributes:
        device: Memory given out by the framework's allocator for the device, or, without one, all used memory
            of the device. None without a device, or without a request.
        host: Resident memory of the process; None where the system does not tell.
        reason: Why ``device`` is None; None otherwise. The summary's reasons have what was answered when it was asked.
    """

    device: MemoryFigures | None
    host: MemoryFigures | None
    reason: str | None = None


def fields_from(row: Any) -> dict[str, Any]:
    """Return ``NodeProfilingStats`` fields, except waits, from a core row.

    row: see ``csrc/statistics/summary.c``.
    """
    fields: dict[str, Any] = {}
    if row.asked & GPU:
        gpu = row.gpu
        missed = zip(_CAUSES, gpu.missed, strict=True)
        notes = [f"{cause} ({calls} call{'s' * (calls != 1)})" for cause, calls in missed if calls]
        if gpu.multi_stream:
            calls = f"{gpu.multi_stream} call{'s' * (gpu.multi_stream != 1)}"
            notes.append(f"{calls} began on one stream and ended on another")
        if gpu.queue_delay_ms is None and gpu.count > gpu.multi_stream:
            notes.append(_NO_QUEUE)
        fields.update(
            gpu_count=gpu.count, gpu_mean_ms=gpu.mean_ms, gpu_p50_ms=gpu.p50_ms, gpu_p99_ms=gpu.p99_ms,
            gpu_total_ms=gpu.total_ms, queue_delay_ms=gpu.queue_delay_ms,
            gpu_reason="; ".join(notes) or (None if gpu.count else "the device has not told yet"),
        )  # fmt: skip
    if row.asked & LAUNCHES:
        figures = dict(zip(row.launches.__match_args__, row.launches, strict=True))
        fields["launches"] = NodeLaunches(kernel_ms=figures.pop("kernel_ns") / 1e6, **figures)
    if row.asked & COUNTERS_ASKED:
        counters = row.counters
        values: dict[str, CounterValue | None] = {}
        for bit, name in enumerate(COUNTERS):
            if counters.asked >> bit & 1:
                total, samples = counters.totals[bit], counters.counted[bit]
                is_estimated = counters.estimated > 0 and name in HARDWARE_COUNTERS
                values[name] = None
                if samples > 0:
                    values[name] = CounterValue(total / samples, total, samples, UNITS[name], is_estimated)
        fields["counters"] = NodeCounters(values)
    if row.asked & MEMORY:
        device = _memory_figures(row.device_memory, _NO_PEAK if row.asked & PEAK_UNKNOWN else _NO_RISE)
        host = _memory_figures(row.host_memory, _NO_RISE)
        fields["memory"] = NodeMemory(device, host, None if device is not None else _NO_DEVICE_MEMORY)
    return fields


def _memory_figures(row: Any, why_no_peak: str) -> MemoryFigures | None:
    if row.calls == 0:
        return None
    known = (row.peak, None) if row.peak >= 0 else (None, why_no_peak)
    return MemoryFigures(row.calls, row.entry, row.exit, row.change, *known)
