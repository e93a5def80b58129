"""Allocated and peak bytes of a node's device, from the framework.

Figures come from PyTorch's allocator, for CUDA and others, or CuPy's default pool. Nothing is imported or made to use a
device.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from cprofiling._internal.process import call_at_fork
from cprofiling.devices.in_use import device_index
from cprofiling.devices.operations import in_use

if TYPE_CHECKING:
    from cprofiling.devices.operations import DeviceOperations

UNKNOWN = -1  # in the place of the most bytes, where nobody keeps them

NO_FRAMEWORK = "neither PyTorch nor CuPy is loaded"
NOTHING_IN_USE = "PyTorch uses no device in this process"
NO_PEAK_OF_CUPY = "CuPy's pool does not keep the most bytes used"
NO_PEAK_OF_DEVICE = "a device tells what is in use now, not the most there was"
CUPY_UNUSED = "CuPy has shown no array yet, and is not made to begin with CUDA"

_CUPY = 1 << 16  # added to a device's index in keys of CuPy's pools
_MOST_ARGUMENTS = 64

_reason: str | None = None
_peak_reason: str | None = None
_cupy_in_use: Any = None  # cupy, once an array of it was seen


def _after_fork_in_child() -> None:
    global _cupy_in_use, _reason, _peak_reason  # noqa: PLW0603 CUDA does not survive a fork
    _cupy_in_use = _reason = _peak_reason = None


call_at_fork(after_in_child=_after_fork_in_child)


def memory_at_entry(arguments: tuple[Any, ...], reset: bool) -> tuple[int, int, int] | None:
    """Return a device's key, its allocated bytes and their peak, or None.

    Without figures of the allocator, the bytes in use on the device count. The peak counts from the start or the last
    reset; -1 if unknown (``peak_reason``), as when a reset is requested and fails.

    reset: reset the peak after reading, for everybody in the process.

    CuPy is only asked once an argument was one of its arrays: asking could start CUDA. None: see ``memory_reason``.
    """
    try:
        row = in_use()
        if row is None:
            return _cupy_at_entry(arguments)
        if isinstance(row, str):
            _keep(row)
            return None
        index = device_index(row, arguments)
        figures = _read(row, index)
        if figures is not None and figures[1] == UNKNOWN:
            _without_peak(NO_PEAK_OF_DEVICE if isinstance(row.memory, str) else row.why_not("memory_peak"))
        elif figures is not None and reset and not _has_reset(row, index):  # the peak may be of any time before
            figures = figures[0], UNKNOWN
        elif figures is not None:
            _without_peak(None)
    except Exception as error:  # noqa: BLE001 the framework's
        _keep(f"the framework does not answer ({type(error).__name__}: {error})")
        return None
    return None if figures is None else (index, *figures)


def memory_at_exit(device_key: int, reset: bool) -> tuple[int, int] | None:
    """Return the allocated and peak bytes of a device (see entry).

    reset: only where the peak was known at the entry; a failure does not affect this call.
    """
    try:
        if device_key >= _CUPY:
            return _cupy_figures(sys.modules["cupy"], device_key - _CUPY)
        row = in_use()
        if row is None or isinstance(row, str):
            _keep(row or NOTHING_IN_USE)
            return None
        figures = _read(row, device_key)
        if reset and figures is not None and figures[1] != UNKNOWN:
            _has_reset(row, device_key)
    except Exception as error:  # noqa: BLE001 the framework's
        _keep(f"the framework does not answer ({type(error).__name__}: {error})")
        return None
    return figures


def memory_reason() -> str | None:
    """Return why the latest missing answer was missing, or None."""
    return _reason


def peak_reason() -> str | None:
    """Return why the peak was unknown at the latest entry, or None.

    Where no framework has answered, the core asks CUDA's driver, which does not know it.
    """
    return _peak_reason


def current_memory() -> tuple[int, int] | None:
    """Return the current device's allocated and peak bytes, or None.

    The peak is 0 if unknown.
    """
    found = memory_at_entry((), False)
    return None if found is None else (found[1], max(found[2], 0))


def _keep(reason: str) -> None:
    global _reason, _peak_reason
    _reason, _peak_reason = reason, NO_PEAK_OF_DEVICE


def _without_peak(reason: str | None) -> None:
    global _peak_reason  # noqa: PLW0603 as above
    _peak_reason = reason


def _read(row: DeviceOperations, index: int) -> tuple[int, int] | None:
    """Return figures of a device's allocator or of the device, or None."""
    if isinstance(row.memory, str):
        if isinstance(row.memory_free_total, str):
            _keep(f"{row.memory}; {row.memory_free_total}")
            return None
        free, total = row.memory_free_total(index)
        return total - free, UNKNOWN
    allocated, most = row.memory(index)
    return allocated, most


def _has_reset(row: DeviceOperations, index: int) -> bool:
    if isinstance(row.memory_reset_peak, str):
        _without_peak(row.memory_reset_peak)
        return False
    try:
        row.memory_reset_peak(index)
    except Exception as error:  # noqa: BLE001 the framework's; memory in use is known all the same
        _without_peak(f"the most bytes could not be counted anew ({type(error).__name__}: {error})")
        return False
    return True


def _cupy_at_entry(arguments: tuple[Any, ...]) -> tuple[int, int, int] | None:
    global _cupy_in_use  # noqa: PLW0603 once in use, it stays so
    cupy = sys.modules.get("cupy")
    if cupy is None:
        _keep(NO_FRAMEWORK if sys.modules.get("torch") is None else NOTHING_IN_USE)
        return None
    if cupy is not _cupy_in_use:
        if not any(isinstance(each, cupy.ndarray) for each in arguments[:_MOST_ARGUMENTS]):
            _keep(CUPY_UNUSED)
            return None
        _cupy_in_use = cupy
    index = cupy.cuda.runtime.getDevice()
    return (_CUPY + index, *_cupy_figures(cupy, index))


def _cupy_figures(cupy: Any, index: int) -> tuple[int, int]:
    """A pool answers for the current device, and keeps no peak."""
    pool = cupy.get_default_memory_pool()
    if cupy.cuda.runtime.getDevice() == index:
        used = pool.used_bytes()
    else:
        with cupy.cuda.Device(index):
            used = pool.used_bytes()
    _without_peak(NO_PEAK_OF_CUPY)
    return used, UNKNOWN
