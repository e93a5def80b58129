"""The bytes that a node's device has allocated before and after it, and the most there were: the frameworks' figures.

PyTorch's allocator, that of CUDA and of others, or CuPy's default pool. Nobody is imported or made to use a device.
"""

from __future__ import annotations

import os
import sys

from cprofiling.devices import device_index, row_in_use

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cprofiling.device_table import DeviceOperations

UNKNOWN = -1  # in the place of the most bytes, where nobody keeps them

NO_FRAMEWORK = "neither PyTorch nor CuPy is loaded"
NOTHING_IN_USE = "PyTorch uses no device in this process"
CUPY_UNUSED = "CuPy has shown no array yet, and is not made to begin with CUDA"

_CUPY = 1 << 16  # added to the index in the key of a device whose pool is CuPy's
_MOST_ARGUMENTS = 64

_reason: str | None = None
_cupy_in_use: Any = None  # the cupy of which an array was seen


def _after_fork_in_child() -> None:
    global _cupy_in_use, _reason  # noqa: PLW0603 CUDA does not survive a fork
    _cupy_in_use = _reason = None


os.register_at_fork(after_in_child=_after_fork_in_child)


def memory_at_entry(
    arguments: tuple[Any, ...], reset: bool, cuda_has_begun: bool = False
) -> tuple[int, int, int] | None:
    """The key of a call's device, the bytes that the framework has allocated there, and the most there were.

    The most counts from the start or the last reset; -1 where it is not known. ``reset`` has it counted anew, after it
    is read, for everybody in the process who reads it. CuPy is only asked once an array of it was an argument, or where
    the caller knows that CUDA was begun in this process: its answer could begin it. None: see ``memory_reason``.
    """
    global _reason  # noqa: PLW0603 that of the latest answer
    try:
        row = row_in_use()
        if row is None:
            return _cupy_at_entry(arguments, cuda_has_begun)
        if isinstance(row, str):
            _reason = row
            return None
        index = device_index(row, arguments)
        figures = _read(row, index, reset)
    except Exception as error:  # noqa: BLE001 the framework's
        _reason = f"the framework does not answer ({type(error).__name__}: {error})"
        return None
    return None if figures is None else (index, *figures)


def memory_at_exit(device_key: int, reset: bool) -> tuple[int, int] | None:
    """The bytes allocated on a device that ``memory_at_entry`` named, and the most there were; see there."""
    global _reason  # noqa: PLW0603 that of the latest answer
    try:
        if device_key >= _CUPY:
            return _cupy_figures(sys.modules["cupy"], device_key - _CUPY)
        row = row_in_use()
        if row is None or isinstance(row, str):
            _reason = row or NOTHING_IN_USE
            return None
        return _read(row, device_key, reset)
    except Exception as error:  # noqa: BLE001 the framework's
        _reason = f"the framework does not answer ({type(error).__name__}: {error})"
        return None


def memory_reason() -> str | None:
    """Why the latest of these functions to answer None did so; None: the latest answer was no None."""
    return _reason


def current_memory() -> tuple[int, int] | None:
    """The bytes allocated on the current device, and the most there were (0 where it is not known); None: not known."""
    found = memory_at_entry((), False)
    return None if found is None else (found[1], max(found[2], 0))


def _read(row: DeviceOperations, index: int, reset: bool) -> tuple[int, int] | None:
    global _reason  # noqa: PLW0603 that of the latest answer
    if isinstance(row.memory, str):
        _reason = row.memory
        return None
    allocated, most = row.memory(index)
    if reset:
        if isinstance(row.memory_reset_peak, str):
            most = UNKNOWN  # it may be of any time before
        else:
            row.memory_reset_peak(index)
    _reason = None
    return allocated, most


def _cupy_at_entry(arguments: tuple[Any, ...], cuda_has_begun: bool) -> tuple[int, int, int] | None:
    global _cupy_in_use, _reason  # noqa: PLW0603 once in use, it stays so
    cupy = sys.modules.get("cupy")
    if cupy is None:
        _reason = NO_FRAMEWORK if sys.modules.get("torch") is None else NOTHING_IN_USE
        return None
    if cupy is not _cupy_in_use:
        if not cuda_has_begun and not any(isinstance(each, cupy.ndarray) for each in arguments[:_MOST_ARGUMENTS]):
            _reason = CUPY_UNUSED
            return None
        _cupy_in_use = cupy
    index = cupy.cuda.runtime.getDevice()
    return (_CUPY + index, *_cupy_figures(cupy, index))


def _cupy_figures(cupy: Any, index: int) -> tuple[int, int]:
    """A pool answers for the current device, and keeps no peak."""
    global _reason  # noqa: PLW0603 that of the latest answer
    pool = cupy.get_default_memory_pool()
    if cupy.cuda.runtime.getDevice() == index:
        used = pool.used_bytes()
    else:
        with cupy.cuda.Device(index):
            used = pool.used_bytes()
    _reason = None
    return used, UNKNOWN
