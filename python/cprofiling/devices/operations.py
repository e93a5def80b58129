"""Operations of each kind of device, or why they are not available.

The core times CUDA devices itself; the others go through PyTorch. That is never imported, and a device not yet in use
by the process is never asked: the answer could put it into use.
"""

from __future__ import annotations

import sys
from _thread import RLock
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from cprofiling._internal.process import call_at_fork

CUDA = "cuda"
ROCM = "rocm"
XPU = "xpu"
MPS = "mps"
NPU = "npu"
KINDS = (ROCM, XPU, MPS, NPU)  # that PyTorch is asked about; CUDA's own driver tells of its devices
_BUILT_IN = (CUDA, ROCM, XPU, MPS)

OPERATIONS = ("synchronize", "new_event", "memory", "memory_peak", "memory_reset_peak", "memory_free_total")

_UNNAMED = "privateuseone"  # PyTorch's place for a backend from outside, while none has given it its name


class DeviceOperations(NamedTuple):
    """Operations of one kind of device, or strings that say why not.

    Indices count from 0. The callables are PyTorch's; their errors are not caught.
    """

    device_type: str
    """The kind: ``"cuda"``, ``"rocm"``, ``"xpu"``, ``"mps"``, ``"npu"``, or a backend's own name."""
    tensor_type: str
    """What PyTorch calls it in ``tensor.device.type``: ``"cuda"`` for ``"rocm"``, else the same."""
    count: Callable[[], int] | str  # type: ignore[assignment]  # not the method of tuples
    """How many devices there are."""
    current_index: Callable[[], int] | str
    """The calling thread's current device."""
    synchronize: Callable[[int], object] | str
    """Waits for all work of a device."""
    new_event: Callable[[int], Any] | str
    """A new event of a device that can be timed: it has ``record``, ``query`` and ``elapsed_time``."""
    current_stream: Callable[[int], Any] | str
    """The calling thread's stream on a device, for ``record``; without streams ``record`` takes no argument."""
    is_capturing: Callable[[], bool] | str
    """Whether the calling thread's stream is being captured: then it must not be asked for events."""
    memory: Callable[[int], tuple[int, int]] | str
    """Bytes allocated, and the most there were since the start or the last reset (-1: not known)."""
    memory_peak: str | None
    """Why the most bytes allocated are not known; None: ``memory`` tells them."""
    memory_reset_peak: Callable[[int], object] | str
    """Has the most bytes counted anew, for everybody in the process who reads them."""
    memory_free_total: Callable[[int], tuple[int, int]] | str
    """Bytes free and bytes there, for all processes."""

    def why_not(self, operation: str) -> str | None:
        """Return why one of OPERATIONS is not available, or None."""
        value = getattr(self, operation)
        return value if isinstance(value, str) else None

    def is_captured(self) -> bool:
        """Return whether this thread's stream is being captured, if known."""
        return not isinstance(self.is_capturing, str) and bool(self.is_capturing())


class DevicePresence(NamedTuple):
    """Presence of one kind of device, known without using it."""

    device_type: str
    is_in_use: bool
    """Whether this process uses it."""
    count: int | None  # type: ignore[assignment]
    """How many there are; None: not in use, so that nobody was asked."""
    operations: tuple[tuple[str, str | None], ...]
    """Each of OPERATIONS, with the reason why it cannot be done or None: it can, once the device is in use."""


_found: tuple[Any, DeviceOperations] | None = None  # torch, with its device in use, and the row of the device


_lock = RLock()  # of _found, so that all threads find the same row


def _after_fork_in_child() -> None:
    global _found, _lock
    _found, _lock = None, RLock()


call_at_fork(after_in_child=_after_fork_in_child)


def in_use() -> DeviceOperations | str | None:
    """Return the accelerator used through PyTorch, why it is unknown, or None.

    There is one at a time: CUDA or ROCm before XPU, an external backend, and MPS.
    """
    global _found  # noqa: PLW0603 asked in every call; a device that is in use once stays so
    torch, found = sys.modules.get("torch"), _found
    if found is not None and found[0] is torch:
        return found[1]
    if torch is None:
        return None
    with _lock:
        if _found is not None and _found[0] is torch:  # another thread was faster
            return _found[1]
        try:
            for kind in (CUDA, XPU, _foreign_name(torch), MPS):
                if kind is not None and _is_in_use(torch, kind):
                    row = _row_of(torch, ROCM if kind == CUDA and _is_rocm(torch) else kind)
                    _found = (torch, row)
                    return row
        except Exception as error:  # noqa: BLE001 a half-imported torch, or a module that only bears its name
            return _said_by(error)
    return None


def present() -> list[DevicePresence]:
    """Return the presence of each kind of device but CUDA's.

    Asking initialises nothing, not even to count devices.
    """
    torch = sys.modules.get("torch")
    foreign = None
    with suppress(Exception):  # the other rows tell the error
        foreign = _foreign_name(torch)
    found = []
    for kind in KINDS if foreign is None or foreign in KINDS else (*KINDS, foreign):
        row, count, is_used = None, None, False
        try:
            why_not = "PyTorch is not loaded" if torch is None else _why_not(torch, kind)
            if why_not is None:
                row, is_used = _row_of(torch, kind), _is_in_use(torch, kind)
                if is_used and not isinstance(row.count, str):
                    count = int(row.count())
        except Exception as error:  # noqa: BLE001 the framework's
            row, is_used, why_not = None, False, _said_by(error)
        reasons = tuple((name, why_not if row is None else row.why_not(name)) for name in OPERATIONS)
        found.append(DevicePresence(kind, is_used, count, reasons))
    return found


def _said_by(error: Exception) -> str:
    return f"PyTorch does not answer ({type(error).__name__}: {error})"


# ---- available devices -------------------------------------------------------------------------------


def _is_in_use(torch: Any, kind: str) -> bool:
    if kind == MPS:  # PyTorch does not tell whether it was started, but whether anything lies in its memory
        if not getattr(torch._C, "_has_mps", False) or not torch.backends.mps.is_available():
            return False
        is_in_bad_fork = getattr(torch._C, "_mps_is_in_bad_fork", None)
        return (is_in_bad_fork is None or not is_in_bad_fork()) and bool(torch.mps.current_allocated_memory() > 0)
    module = getattr(torch, _tensor_type(kind), None)
    if module is None:
        return False
    is_initialized = getattr(module, "is_initialized", None)
    if is_initialized is not None:
        return bool(is_initialized())
    try:
        return _names_accelerator(torch, kind) and bool(torch._C._accelerator_isAllocatorInitialized())
    except RuntimeError:  # a backend need not have that kind of allocator
        return False


def _is_rocm(torch: Any) -> bool:
    return bool(getattr(torch.version, "hip", None))


def _tensor_type(kind: str) -> str:
    return CUDA if kind == ROCM else kind


def _foreign_name(torch: Any) -> str | None:
    """Return the name of an external backend, as ``npu``, or None."""
    name_of = getattr(getattr(torch, "_C", None), "_get_privateuse1_backend_name", None)
    name = None if name_of is None else name_of()
    return None if name == _UNNAMED else name


def _names_accelerator(torch: Any, kind: str) -> bool:
    """Return whether the device-generic interface is for this kind."""
    accelerator = getattr(torch, "accelerator", None)
    device = None if accelerator is None else accelerator.current_accelerator()
    return device is not None and bool(device.type == _tensor_type(kind))


def _why_not(torch: Any, kind: str) -> str | None:
    """Return why PyTorch has no such device, or None."""
    if kind == ROCM:
        return None if _is_rocm(torch) else "this PyTorch is built without ROCm"
    if kind == MPS:
        return None if getattr(torch._C, "_has_mps", False) else "this PyTorch is built without MPS"
    if kind == XPU:
        is_compiled = getattr(getattr(torch, "xpu", None), "_is_compiled", None)
        return None if is_compiled is not None and is_compiled() else "this PyTorch is built without XPU"
    if kind == _foreign_name(torch) and callable(getattr(getattr(torch, kind, None), "device_count", None)):
        return None
    advice = ": import torch_npu" if kind == NPU else ""
    return f"PyTorch has no backend {kind!r}{advice}"


# ---- the rows ------------------------------------------------------------------------------------


def _row_of(torch: Any, kind: str) -> DeviceOperations:
    """Return operations of a kind, from `torch.accelerator` or its module."""
    module = getattr(torch, _tensor_type(kind))
    generic = torch.accelerator if _names_accelerator(torch, kind) else None
    # A backend from outside may be registered without what the generic functions call.
    owners = (generic, module) if kind in _BUILT_IN else (module, generic)
    memory = _memory_of(torch, kind, module)
    new_event: Callable[[int], Any] | str = f"PyTorch's {kind} has no events"
    own = getattr(module.event if kind == MPS and hasattr(module, "event") else module, "Event", None)
    if generic is not None and hasattr(torch, "Event") and (kind in _BUILT_IN or own is None):
        new_event = lambda index: torch.Event(device=f"{_tensor_type(kind)}:{index}", enable_timing=True)  # noqa: E731
    elif own is not None:
        new_event = lambda _: own(enable_timing=True)  # noqa: E731
    row = DeviceOperations(
        device_type=kind,
        tensor_type=_tensor_type(kind),
        count=_first(kind, "count devices", owners, "device_count"),
        current_index=_first(kind, "name the current device", owners, "current_device_index", "current_device"),
        synchronize=_first(kind, "wait for a device", owners, "synchronize"),
        new_event=new_event,
        current_stream=_first(kind, "name its stream", owners, "current_stream"),
        is_capturing=_first(kind, "capture streams", (module,), "is_current_stream_capturing"),
        memory=memory,
        memory_peak=memory if isinstance(memory, str) else None,
        memory_reset_peak=_first(kind, "reset the most bytes", (module, generic), "reset_peak_memory_stats"),
        memory_free_total=_first(
            kind, "tell how much memory is free", (module, generic), "mem_get_info", "get_memory_info"
        ),
    )
    if kind != MPS:
        return row
    no_peak = "PyTorch's mps does not keep the most bytes allocated"

    def free_total_of_mps(_index: int) -> tuple[int, int]:
        total: int = module.recommended_max_memory()
        return max(0, total - module.driver_allocated_memory()), total

    return row._replace(
        count=lambda: 1,
        current_index=lambda: 0,
        synchronize=lambda _: module.synchronize(),
        current_stream="mps has one queue",
        is_capturing="mps captures no streams",
        memory=lambda _: (module.current_allocated_memory(), -1),
        memory_peak=no_peak,
        memory_reset_peak=no_peak,
        memory_free_total=free_total_of_mps,
    )


def _first(kind: str, ability: str, owners: tuple[Any, ...], *names: str) -> Callable[..., Any] | str:
    for owner in owners:
        for name in names:
            function = getattr(owner, name, None)
            if callable(function):
                found: Callable[..., Any] = function
                return found
    return f"PyTorch's {kind} cannot {ability}"


def _memory_of(torch: Any, kind: str, module: Any) -> Callable[[int], tuple[int, int]] | str:
    """Return the cheapest reader of allocated and peak bytes.

    Flattening all of the allocator's statistics takes much longer.
    """
    nested = getattr(torch._C, f"_{_tensor_type(kind)}_memoryStats", None)
    if nested is None:
        nested = getattr(module, "memory_stats_as_nested_dict", None)
    if nested is not None:
        return partial(_two_of, nested)
    allocated, most = getattr(module, "memory_allocated", None), getattr(module, "max_memory_allocated", None)
    if allocated is not None and most is not None:
        return lambda index: (allocated(index), most(index))
    nested = getattr(torch._C, "_accelerator_getDeviceStats", None)
    if nested is not None and _names_accelerator(torch, kind):
        has_begun = torch._C._accelerator_isAllocatorInitialized
        return lambda index: _two_of(nested, index) if has_begun() else (0, 0)
    return f"PyTorch's {kind} does not tell what it has allocated"


def _two_of(nested: Callable[[int], Any], index: int) -> tuple[int, int]:
    figures = nested(index).get("allocated_bytes")
    if figures is None:  # nothing was allocated yet
        return 0, 0
    everything = figures["all"]
    return everything["current"], everything["peak"]
