"""Resource figures of a node's calls, made from the core's rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cprofiling.nodes.counters import counters_from

if TYPE_CHECKING:
    from typing import Any

# What a Profiler is asked for beyond times, as the bits of the core's resources.
GPU, LAUNCHES, COUNTERS, MEMORY, WAITS = 1, 2, 4, 8, 16
LAUNCHES_UNKNOWN, PEAK_UNKNOWN = 32, 64  # asked for in vain
COUNTER_SHIFT = 8  # of the bits of single counters

# By cprof_gpu_cause; the first stands for what is known.
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


@dataclass(frozen=True)
class NodeLaunches:
    """Device work launched by one node's calls, without nodes inside.

    Calls that raised are included.

    Attributes:
        launches: Calls that launch kernels or graphs.
        kernels: Kernels that have run, 0 or more; those that are still under way are not counted yet.
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
        peak: The most inside any call, what was in use before included; None where no call is known to have reached
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
        device: Of the device: what the framework's allocator has given out, or, without one, what is not free on it.
            None where there is no device, or none was asked.
        host: Resident memory of the process; None where the system does not tell.
        reason: Why ``device`` is None; None otherwise. The summary's reasons have what was answered when it was asked.
    """

    device: MemoryFigures | None
    host: MemoryFigures | None
    reason: str | None = None


def fields_from(row: Any) -> dict[str, Any]:
    """Return ``NodeProfilingStats`` fields, except waits, from a core row.

    row: see ``csrc/statistics/rows.c``.
    """
    fields: dict[str, Any] = {}
    if row.asked & GPU:
        fields.update(_gpu_fields(row.gpu))
    if row.asked & LAUNCHES:
        launches, kernels, kernel_ns, *copied = row.launches
        fields["launches"] = NodeLaunches(launches, kernels, kernel_ns / 1e6, *copied)
    if row.asked & COUNTERS:
        fields["counters"] = counters_from(*row.counters)
    if row.asked & MEMORY:
        device = _memory_figures(row.device_memory, _NO_PEAK if row.asked & PEAK_UNKNOWN else _NO_RISE)
        host = _memory_figures(row.host_memory, _NO_RISE)
        fields["memory"] = NodeMemory(device, host, None if device is not None else _NO_DEVICE_MEMORY)
    return fields


def _gpu_fields(gpu: Any) -> dict[str, Any]:
    notes = [f"{cause} ({_calls(number)})" for cause, number in zip(_CAUSES, gpu.missed, strict=True) if number]
    if gpu.multi_stream:
        notes.append(f"{_calls(gpu.multi_stream)} began on one stream and ended on another")
    if gpu.queue_delay_ms is None and gpu.count > gpu.multi_stream:
        notes.append(_NO_QUEUE)
    return {
        "gpu_count": gpu.count, "gpu_mean_ms": gpu.mean_ms, "gpu_p50_ms": gpu.p50_ms, "gpu_p99_ms": gpu.p99_ms,
        "gpu_total_ms": gpu.total_ms, "queue_delay_ms": gpu.queue_delay_ms,
        "gpu_reason": "; ".join(notes) or (None if gpu.count else "the device has not told yet"),
    }  # fmt: skip


def _calls(number: int) -> str:
    return f"{number} call" if number == 1 else f"{number} calls"


def _memory_figures(row: Any, why_no_peak: str) -> MemoryFigures | None:
    if row.calls == 0:
        return None
    known = (row.peak, None) if row.peak >= 0 else (None, why_no_peak)
    return MemoryFigures(row.calls, row.entry, row.exit, row.change, *known)
