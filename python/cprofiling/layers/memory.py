"""Memory of a stage, on the accelerator in use or in the process."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import NamedTuple

from cprofiling._internal.process import call_at_fork
from cprofiling.devices.operations import DeviceOperations, in_use

_MEBIBYTE = 1024 * 1024
_GOOD_FOR_NS = 1_000_000  # the kernel takes some microseconds to tell of the process's memory


class StageMemory(NamedTuple):
    """Bytes in use and at most. On a host the reserved ones are resident."""

    allocated: int
    reserved: int
    peak_allocated: int
    peak_reserved: int

    def as_mb(self) -> dict[str, float]:
        """Return the figures in MiB, as reports have them."""
        return {f"{name}_mb": round(value / _MEBIBYTE, 2) for name, value in zip(self._fields, self, strict=True)}

    def with_peaks_of(self, other: StageMemory | None) -> StageMemory:
        """Return these figures with the higher ones of both peaks."""
        if other is None:
            return self
        allocated = max(self.peak_allocated, other.peak_allocated)
        return self._replace(peak_allocated=allocated, peak_reserved=max(self.peak_reserved, other.peak_reserved))


class MemoryReader:
    """Read the memory of the accelerator in use, or of the process.

    What the process has is read at most once in a millisecond: stages that take less cost less, and share a reading.
    There may be no accelerator in use yet; that is looked at as often. Times are those of ``perf_counter_ns``.

    Attributes:
        look_ns: When to look whether an accelerator is in use; a time long ago once one is.
        stale_ns: When the reading of the process is too old; long ago while an accelerator is in use.
        host: The reading of the process.
    """

    def __init__(self) -> None:
        self.forget()
        call_at_fork(after_in_child=self.forget)

    def forget(self) -> None:
        """Forget everything, as in a forked child."""
        self._row: DeviceOperations | None = None
        self._open: list[DevicePeak] = []
        self.look_ns = self.stale_ns = 0
        self.host: StageMemory | None = None

    def uses_device(self, now_ns: int) -> bool:
        """Tell whether an accelerator was seen in use lately."""
        if self._row is None and now_ns >= self.look_ns:
            self.look_ns = now_ns + _GOOD_FOR_NS
            row = in_use()
            if isinstance(row, DeviceOperations):
                self._row = row
                self.look_ns = self.stale_ns = 0
        return self._row is not None

    def read(self, now_ns: int) -> StageMemory | None:
        """Return the memory in use, None where nobody tells it."""
        if self.uses_device(now_ns):
            return self._device_memory()
        if now_ns >= self.stale_ns:
            self.stale_ns = now_ns + _GOOD_FOR_NS
            self.host = _host_memory()
        return self.host

    def read_anew(self) -> StageMemory | None:
        """Return the memory in use now, read anew."""
        return self._device_memory() if self.uses_device(self.look_ns) else _host_memory()

    def _device_memory(self) -> StageMemory | None:
        row = self._row
        if row is None or isinstance(row.memory, str):
            return None
        index = 0 if isinstance(row.current_index, str) else row.current_index()
        allocated, most = row.memory(index)
        most = max(most, allocated)
        module = getattr(sys.modules.get("torch"), row.tensor_type, None)
        reserved = getattr(module, "memory_reserved", lambda _: allocated)(index)
        most_reserved = getattr(module, "max_memory_reserved", lambda _: most)(index)
        return StageMemory(allocated, reserved, most, max(most_reserved, reserved))

    # ---- Peaks from a stage's start on

    def begin_peak(self) -> DevicePeak | None:
        """Reset the device's peak, keeping that of outer stages."""
        row = self._row
        before = self._device_memory()
        if row is None or before is None or isinstance(row.memory_reset_peak, str):
            return None
        for peak in self._open:
            peak.highest = peak.highest.with_peaks_of(before)
        row.memory_reset_peak(0 if isinstance(row.current_index, str) else row.current_index())
        begun = DevicePeak(before._replace(peak_allocated=before.allocated, peak_reserved=before.reserved))
        self._open.append(begun)
        return begun

    def end_peak(self, begun: DevicePeak) -> StageMemory | None:
        """Return the memory in use, with the peak since ``begin_peak``."""
        if begun in self._open:
            self._open.remove(begun)
        now = self._device_memory()
        return None if now is None else now.with_peaks_of(begun.highest)


@dataclass(eq=False)
class DevicePeak:
    """Highest figures inside a stage, over resets by inner stages."""

    highest: StageMemory


def _host_memory() -> StageMemory:
    with open("/proc/self/status", "rb") as file:  # as text it would import the codec, perhaps amid a recording
        lines = [line.split() for line in file if line.startswith((b"VmHWM:", b"VmRSS:"))]
    bytes_by_name = {name: int(kib) * 1024 for name, kib, *_ in lines}
    resident = bytes_by_name[b"VmRSS:"]
    most = max(bytes_by_name.get(b"VmHWM:", 0), resident)  # not every kernel keeps it
    return StageMemory(resident, resident, most, most)
