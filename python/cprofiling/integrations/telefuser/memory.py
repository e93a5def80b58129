"""Names of ``telefuser.utils.memory_snapshot``, by stage reports.

Without an accelerator in use, memory is that of the process.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

from cprofiling._internal import log
from cprofiling._internal.text import checked_text
from cprofiling.devices import operations
from cprofiling.layers import context
from cprofiling.layers.memory import StageMemory

__all__ = [
    "MemorySnapshot",
    "capture_memory_snapshot",
    "get_memory_analysis",
    "get_memory_info",
    "get_memory_snapshots",
    "print_memory_analysis",
    "record_memory_snapshot",
    "reset_memory_registry",
    "reset_peak_memory_stats",
    "set_memory_baseline",
]

_MIB = 1024 * 1024
_NAMES = ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved")


def tell(text: str) -> None:
    """Log a text at INFO, or print it on stderr if logging would hide it."""
    if log.logger.isEnabledFor(logging.INFO) and log.logger.hasHandlers():
        log.logger.info("%s", text)
    elif sys.stderr is not None:
        with suppress(OSError, ValueError):
            print(text, file=sys.stderr)


@dataclass(repr=False)
class MemorySnapshot:
    """Memory at a moment, in MiB; figures ``_gb`` are in GiB.

    Attributes:
        allocated_mb: In use.
        reserved_mb: Taken from the device, or resident.
        peak_allocated_mb: The most in use since the peaks were reset.
        peak_reserved_mb: The most taken.
    """

    __slots__ = ("allocated_mb", "peak_allocated_mb", "peak_reserved_mb", "reserved_mb")

    allocated_mb: float
    reserved_mb: float
    peak_allocated_mb: float
    peak_reserved_mb: float

    def to_dict(self) -> dict[str, float]:
        """Return the four figures, with two decimals."""
        return {f"{name}_mb": round(getattr(self, f"{name}_mb"), 2) for name in StageMemory._fields}

    @property
    def allocated_gb(self) -> float:
        """Memory in use."""
        return self.allocated_mb / 1024

    @property
    def reserved_gb(self) -> float:
        """Memory taken."""
        return self.reserved_mb / 1024

    @property
    def peak_allocated_gb(self) -> float:
        """Peak of memory in use."""
        return self.peak_allocated_mb / 1024

    @property
    def peak_reserved_gb(self) -> float:
        """Peak of memory taken."""
        return self.peak_reserved_mb / 1024

    @property
    def pool_overhead_mb(self) -> float:
        """Reserved but unused memory."""
        return self.reserved_mb - self.allocated_mb

    @property
    def pool_overhead_gb(self) -> float:
        """Reserved but unused memory."""
        return self.pool_overhead_mb / 1024

    @property
    def pool_overhead_pct(self) -> float:
        """Unused part of reserved memory in percent, 0 without any."""
        return self.pool_overhead_mb / self.reserved_mb * 100 if self.reserved_mb else 0.0

    def __repr__(self) -> str:
        return (
            f"MemorySnapshot(allocated={self.allocated_mb:.1f}MB, reserved={self.reserved_mb:.1f}MB, "
            f"peak_allocated={self.peak_allocated_mb:.1f}MB, peak_reserved={self.peak_reserved_mb:.1f}MB)"
        )


_baseline: MemorySnapshot | None = None


def snapshot_of(memory: StageMemory | None) -> MemorySnapshot:
    """Return memory as a snapshot, zeros if unknown."""
    return MemorySnapshot(*(value / _MIB for value in memory or (0, 0, 0, 0)))


def memory_of(snapshot: Any) -> StageMemory | None:
    """Return the memory in a snapshot of ours or telefuser's, None for None."""
    if snapshot is None:
        return None
    named = (f"{name}_mb" for name in StageMemory._fields)
    return StageMemory(*(round(getattr(snapshot, name) * _MIB) for name in named))


def capture_memory_snapshot(device: Any = None) -> MemorySnapshot:
    """Return the memory now.

    device: As PyTorch has it; None: the accelerator in use, of the current device, else the process. A device whose
        memory PyTorch does not tell, such as the CPU, stands for the process.
    """
    if device is not None:
        module = _module_of(device)
        if all(hasattr(module, name) for name in _NAMES):
            return snapshot_of(StageMemory(*(int(getattr(module, name)(device)) for name in _NAMES)))
    return snapshot_of(context._memory.read_anew())


def _module_of(device: Any) -> Any:
    import torch

    return getattr(torch, torch.device(device).type, None)


def reset_peak_memory_stats(device: Any = None) -> None:
    """Reset the peaks of a device's memory, if there is one.

    device: as above.
    """
    if device is not None:
        reset = getattr(_module_of(device), "reset_peak_memory_stats", None)
        if reset is not None:
            reset(device)
    elif context._memory.uses_device(perf_counter_ns()):
        begun = context._memory.begin_peak()  # which keeps the peaks of stages around
        if begun is not None:
            context._memory.end_peak(begun)


def get_memory_info(device: Any = None) -> dict[str, float]:
    """Return the current memory as a dict.

    device: as above.
    """
    return capture_memory_snapshot(device).to_dict()


def record_memory_snapshot(checkpoint_name: str) -> MemorySnapshot:
    """Store and return the current memory under a name, for the report.

    Raises TypeError unless the name is a str.
    """
    snapshot = capture_memory_snapshot()
    memory = memory_of(snapshot)
    assert memory is not None  # noqa: S101 only that of no snapshot is
    report_analyses()
    context._registry.add_checkpoint(checked_text("checkpoint_name", checkpoint_name), memory)
    return snapshot


def get_memory_snapshots() -> dict[str, MemorySnapshot]:
    """Return the stored snapshots by name."""
    return {name: snapshot_of(memory) for name, memory in context._registry.checkpoints().items()}


def reset_memory_registry() -> None:
    """Clear the stored snapshots and the baseline."""
    global _baseline  # noqa: PLW0603 one for the process, as the registry is
    context._registry.forget_checkpoints()
    _baseline = None


def set_memory_baseline() -> MemorySnapshot:
    """Set and return the current memory as baseline of the analysis."""
    global _baseline  # noqa: PLW0603 as above
    _baseline = capture_memory_snapshot()
    return _baseline


def get_memory_analysis() -> dict[str, Any]:
    """Return peak, overhead and all stored snapshots, empty without any."""
    kept = context._registry.checkpoints()
    return analysis_of(kept) if kept else {}


def analysis_of(kept: Mapping[str, StageMemory]) -> dict[str, Any]:
    """Return the analysis of memory at several moments, at least one."""
    snapshots = {name: snapshot_of(memory) for name, memory in kept.items()}
    highest = max(snapshots.values(), key=lambda each: each.peak_reserved_mb)
    try:
        if context._memory.uses_device(perf_counter_ns()):
            row: Any = operations.in_use()
            index = 0 if isinstance(row.current_index, str) else row.current_index()
            total_mb = int(row.memory_free_total(index)[1]) / _MIB
        else:
            total_mb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _MIB
    except Exception:  # noqa: BLE001 a framework's, or that of a system without such figures
        total_mb = 0.0
    remaining_mb = total_mb - highest.peak_reserved_mb if total_mb else 0.0
    analysis: dict[str, Any] = {
        "peak_reserved_mb": highest.peak_reserved_mb,
        "peak_allocated_mb": highest.peak_allocated_mb,
        "peak_reserved_gb": highest.peak_reserved_gb,
        "peak_allocated_gb": highest.peak_allocated_gb,
        "pool_overhead_mb": highest.pool_overhead_mb,
        "pool_overhead_pct": round(highest.pool_overhead_pct, 1),
        "remaining_memory_mb": round(remaining_mb, 2),
        "remaining_memory_gb": round(remaining_mb / 1024, 3),
        "total_device_memory_mb": round(total_mb, 2),
        "total_device_memory_gb": round(total_mb / 1024, 3),
        "snapshots": {name: snapshot.to_dict() for name, snapshot in snapshots.items()},
    }
    if _baseline is not None:
        increase_mb = highest.peak_reserved_mb - _baseline.reserved_mb
        analysis["baseline"] = _baseline.to_dict()
        analysis["memory_increase_mb"] = round(increase_mb, 2)
        analysis["memory_increase_gb"] = round(increase_mb / 1024, 3)
    return analysis


def report_analyses() -> None:
    """Add the memory analysis to reports."""
    context._registry.report_memory = analysis_of


def print_memory_analysis() -> None:
    """Log the analysis at INFO, or print it on stderr without logging."""
    analysis = get_memory_analysis()
    if not analysis:
        tell("No memory was recorded.")
        return
    lines = [
        "Memory (MB)",
        f"  Peak reserved: {analysis['peak_reserved_mb']:.0f}, in use: {analysis['peak_allocated_mb']:.0f}",
        f"  Reserved and not in use: {analysis['pool_overhead_mb']:.0f} ({analysis['pool_overhead_pct']:.1f} %)",
        f"  Remaining: {analysis['remaining_memory_mb']:.0f} of {analysis['total_device_memory_mb']:.0f}",
    ]
    if "memory_increase_mb" in analysis:
        lines.append(f"  Above the baseline: {analysis['memory_increase_mb']:.0f}")
    lines += [
        f"  {name!a}: {each['allocated_mb']:.0f}/{each['reserved_mb']:.0f} "
        f"(peak: {each['peak_allocated_mb']:.0f}/{each['peak_reserved_mb']:.0f})"
        for name, each in analysis["snapshots"].items()
    ]
    tell("\n".join(lines))
