"""Wait for a call's device through PyTorch, unless it is CUDA's.

The core, which waits for CUDA itself, asks before and after a call with ``synchronize_cuda``. PyTorch releases the GIL
while it waits. An error of the framework turns this off for the rest of the process: it is the program's own, and must
not come up here again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cprofiling._internal.process import call_at_fork
from cprofiling.devices.in_use import device_index, index_of_call
from cprofiling.devices.operations import CUDA, in_use

if TYPE_CHECKING:
    from cprofiling.devices.operations import DeviceOperations

CURRENT = -1

_OFF = "synchronisation is off"

_why_off: str | None = None
_captured = 0


def device_to_wait_for(arguments: tuple[Any, ...]) -> int | None:
    """Return the index of the arguments' device, -1 without one, or None.

    None if this process uses no device, or CUDA's.
    """
    row = _row()
    if row is None:
        return None
    index = index_of_call(arguments, row.tensor_type)
    return -1 if index is None else index


def wait_for_device(index: int) -> bool:
    """Wait until all work of a device is done.

    index: -1 for the current one. Returns False if this process uses no device, or CUDA's.
    """
    global _why_off, _captured  # noqa: PLW0603 of the process, as the device is
    row = _row()
    if row is None:
        return False
    if _why_off is not None:
        return True
    if isinstance(row.synchronize, str):
        _why_off = f"{row.synchronize}: {_OFF}"
        return True
    try:
        if row.is_captured():  # to wait now would spoil the capture
            _captured += 1
        else:
            row.synchronize(device_index(row, ()) if index == CURRENT else index)
    except Exception as error:  # noqa: BLE001 the framework's
        _why_off = f"{type(error).__name__}: {error}, from waiting for {row.device_type}: {_OFF}"
    return True


def wait_reason() -> str | None:
    """Return why a device was not waited for in this process, or None."""
    if _why_off is None and _captured:
        return f"waits left out during stream capture: {_captured}"
    return _why_off


def _row() -> DeviceOperations | None:
    row = in_use()
    return None if row is None or isinstance(row, str) or row.device_type == CUDA else row


def forget() -> None:
    """Forget in a forked child why nothing was waited for."""
    global _why_off, _captured
    _why_off, _captured = None, 0


call_at_fork(after_in_child=forget)
