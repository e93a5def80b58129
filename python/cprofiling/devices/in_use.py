"""Find the device and stream of a call, outside of measured time.

The core asks before it waits for a device or times it. PyTorch is never imported: its objects are recognised by what
they answer. Asking never puts a device into use.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

from cprofiling._internal.process import call_at_fork
from cprofiling._internal.text import shown_value
from cprofiling.devices import events
from cprofiling.devices.events import UNSUPPORTED, UNTOLD
from cprofiling.devices.operations import CUDA, in_use

if TYPE_CHECKING:
    from cprofiling.devices.events import DeviceMark, Missed
    from cprofiling.devices.operations import DeviceOperations

    Place = tuple[int, int]  # a CUDA device's ordinal (-1: the current one), and a CUstream there

_HANDLES = 1 << 64
_MAX_VISITED = 64  # objects looked at in nested arguments: a large batch must not cost a walk through it

# id(node) -> (node, its first parameter or buffer, a kind of device and the node's one): valid while the node still has
# the same one.
_known: dict[int, tuple[ref[Any], ref[Any], tuple[str, int | None]]] = {}


class _Cuda:
    """Functions of a torch with CUDA, looked up in each call."""

    __slots__ = ("current_device", "is_single", "raw_stream", "torch")

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.current_device: Callable[[], int] = torch.cuda.current_device
        self.is_single = torch.cuda.device_count() == 1
        current_stream = torch.cuda.current_stream
        raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        self.raw_stream: Callable[[int], int] = raw_stream or (lambda device: current_stream(device).cuda_stream)

    def device_of(self, arguments: tuple[Any, ...]) -> int:
        if self.is_single:
            return 0
        device = index_of_call(arguments, CUDA)
        return self.current_device() if device is None else device


_cuda: _Cuda | None = None


def _after_fork_in_child() -> None:
    global _cuda  # noqa: PLW0603 CUDA does not survive a fork
    _cuda = None


call_at_fork(after_in_child=_after_fork_in_child)


def cuda_device_of(arguments: tuple[Any, ...]) -> int | None:
    """Return the index of a call's CUDA device, or None.

    It is that of the first argument's parameters or buffers, else of its tensors. None also if PyTorch is not loaded.
    """
    if "torch" not in sys.modules:
        return None
    device = _device_of_first(arguments, CUDA)
    return _device_of_tensors(arguments, CUDA) if device is None else device


def cuda_stream_of(device: int) -> int:
    """Return PyTorch's current stream handle on a CUDA device, 0 if unknown.

    device: -1 for the current one.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    stream: int = torch._C._cuda_getCurrentRawStream(torch.cuda.current_device() if device < 0 else device)
    return stream


def gpu_place(arguments: tuple[Any, ...], stream: object | None = None) -> Place | DeviceMark | Missed | None:
    """Return the place where a starting call is timed.

    stream: as returned by ``checked_stream``.

    Returns a CUDA device and a stream; for another kind of device a mark with its first event recorded; a cause's name
    and a reason if the time will be unknown; None if PyTorch uses no device in this process and no stream is given.
    """
    try:
        cuda = _cuda
        if cuda is None or sys.modules.get("torch") is not cuda.torch:
            return _place_without_cuda(arguments, given_stream(stream))
        if stream is not None:
            return _place_on_stream(cuda, arguments, given_stream(stream))
        device = 0 if cuda.is_single else cuda.device_of(arguments)
        return device, cuda.raw_stream(device)
    except Exception as error:  # noqa: BLE001 the framework's, or of a callable that is to return a stream
        return UNTOLD, f"no stream was told ({type(error).__name__}: {error})"


def gpu_place_at_exit(place: Place, stream: object | None = None) -> Place | None:
    """Return where the thread works now on a place's device, or None.

    The stream may have changed.
    """
    try:
        given = given_stream(stream)
        if given is not None:
            return place[0], given.handle
        cuda = _cuda
        if cuda is None or place[0] < 0 or sys.modules.get("torch") is not cuda.torch:
            return None
        return place[0], cuda.raw_stream(place[0])
    except Exception:  # noqa: BLE001 as above
        return None


def device_index(row: DeviceOperations, arguments: tuple[Any, ...]) -> int:
    """Return the index of a call's device, from arguments or the current one.

    row: kind of device.
    """
    if isinstance(row.count, str) or isinstance(row.current_index, str) or row.count() == 1:
        return 0
    index = index_of_call(arguments, row.tensor_type)
    return row.current_index() if index is None else index


def index_of_call(arguments: tuple[Any, ...], kind: str) -> int | None:
    """Return the index of a call's device of one kind, or None.

    Errors are ignored: this runs the program's own code, which must not cost the call what the tensors or the framework
    can tell.
    """
    for find in (_device_of_first, _device_of_tensors):
        with suppress(Exception):
            device = find(arguments, kind)
            if device is not None:
                return device
    return None


def _place_without_cuda(arguments: tuple[Any, ...], given: GivenStream | None) -> Place | DeviceMark | Missed | None:
    """Return where a call is timed while CUDA is not known to be in use."""
    global _cuda  # noqa: PLW0603 made once
    row = in_use()
    if row is None or isinstance(row, str):
        if given is not None:
            return _place_of_handle(given)
        return None if row is None else (UNTOLD, row)
    if row.device_type == CUDA:
        _cuda = cuda = _Cuda(sys.modules["torch"])
        return _place_on_stream(cuda, arguments, given)
    if given is None:
        return events.begin(row, device_index(row, arguments))
    if given.kind != row.tensor_type:
        return _place_of_handle(given)
    if not hasattr(given.source, "stream_id"):
        return UNSUPPORTED, f"gpu_stream must be a stream of PyTorch where that uses {row.device_type}"
    device = given.device if given.device >= 0 else device_index(row, arguments)
    return events.begin(row, device, given.source)


def _place_on_stream(cuda: _Cuda, arguments: tuple[Any, ...], given: GivenStream | None) -> Place | Missed:
    if given is None:
        device = cuda.device_of(arguments)
        return device, cuda.raw_stream(device)
    if given.kind == CUDA and given.device < 0:
        return cuda.device_of(arguments), given.handle
    return _place_of_handle(given)


def _place_of_handle(given: GivenStream) -> Place | Missed:
    """Return the place of a stream as it says, which of another kind than CUDA has none."""
    if given.kind == CUDA:
        return given.device, given.handle
    return UNSUPPORTED, f"gpu_stream is one of {given.kind}, which PyTorch does not use in this process"


def _device_of_first(arguments: tuple[Any, ...], kind: str) -> int | None:
    """Return the index of the device of the first argument's parameters or buffers, or None."""
    node = arguments[0] if arguments else None
    parameters, buffers = getattr(node, "parameters", None), getattr(node, "buffers", None)
    if not callable(parameters) or not callable(buffers):
        return None
    first = next(chain(parameters(), buffers()), None)
    if first is None:
        return None
    key = id(node)
    known = _known.get(key)
    if known is not None and known[0]() is node and known[1]() is first and known[2] == (kind, _on(first, kind)):
        return known[2][1]
    device = next((on for each in chain(parameters(), buffers()) if (on := _on(each, kind)) is not None), None)
    with suppress(TypeError):  # what takes no weak reference is looked at anew in each call
        _known[key] = (ref(node, lambda _: _known.pop(key, None)), ref(first), (kind, device))
    return device


def _on(tensor: Any, kind: str) -> int | None:
    """The index of a tensor's device, if that is of this kind."""
    device = getattr(tensor, "device", None)
    if kind == CUDA:
        if getattr(tensor, "is_cuda", False) is not True:
            return None
    elif getattr(device, "type", None) != kind:
        return None
    index = getattr(device, "index", None)
    return index if isinstance(index, int) else 0


def _device_of_tensors(arguments: Iterable[Any], kind: str) -> int | None:
    waiting, visited = list(arguments), 0
    while waiting and visited < _MAX_VISITED:
        value = waiting.pop(0)
        visited += 1
        device = _on(value, kind)
        if device is not None:
            return device
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, (list, tuple)):
            waiting.extend(value)
    return None


# ---- streams that the caller gives, of PyTorch, CuPy, numba and others


class GivenStream(NamedTuple):
    """Stream handle, with the object that keeps it alive."""

    handle: int  # a CUstream; 0 for streams of other kinds
    device: int = -1  # its index; -1: not known
    kind: str = CUDA  # as in tensor.device.type
    source: Any = None


def checked_stream(stream: object | None) -> object | None:
    """Return a stream in the form asked for in each call.

    Streams are None (the current one), handles (0 to 2**64 - 1), objects of PyTorch, CuPy, numba or others with
    ``__cuda_stream__``, and callables without arguments that return one of these. Raises TypeError or ValueError
    otherwise.
    """
    if stream is None or isinstance(stream, GivenStream):
        return stream
    if isinstance(stream, int) and not isinstance(stream, bool) and not _is_handle(stream):
        raise ValueError(f"gpu_stream must be 0 to 2**64 - 1 where it is a handle, got {shown_value(stream)}")
    try:
        given = _stream_in(stream)
    except MemoryError:
        raise
    except Exception as error:
        raise _refused(stream) from error
    if given is not None:
        return given
    if callable(stream) and not isinstance(stream, type):
        return stream
    raise _refused(stream)


def given_stream(stream: Any) -> GivenStream | None:
    """Return the stream for a checked one, None for the current one.

    Errors of a callable are passed on; TypeError for a wrong result.
    """
    if stream is None or isinstance(stream, GivenStream):
        return stream
    answer = stream()
    if answer is None:
        return None
    given = _stream_in(answer)
    if given is None:
        raise _refused(answer, "gpu_stream must return")
    return given


def _refused(stream: object, what: str = "gpu_stream must be") -> TypeError:
    can_be = "a stream, the handle of one (an int >= 0)"
    others = ", or None" if what.endswith("return") else ", a callable that returns one of these, or None"
    return TypeError(f"{what} {can_be}{others}; got {shown_value(stream)}")


def _stream_in(value: Any) -> GivenStream | None:
    """Return the stream that an object is or has; only a ``torch.cuda.Stream`` of PyTorch's has a CUDA handle."""
    if isinstance(value, int):
        return None if isinstance(value, bool) or not _is_handle(value) else GivenStream(int(value))
    if isinstance(value, type):
        return None
    handle: Any = None
    for name in ("cuda_stream", "ptr"):
        if handle is None and _is_handle(each := getattr(value, name, None)):
            handle = each
    protocol = getattr(value, "__cuda_stream__", None)
    if handle is None and protocol is not None:
        _, handle = protocol()
    elif handle is None:
        handle = getattr(value, "handle", None)
        if hasattr(handle, "value"):  # a c_void_p, which holds None for 0
            handle = handle.value or 0
    if _is_handle(handle):
        return GivenStream(int(handle), _device_of(value), CUDA, value)
    kind = getattr(getattr(value, "device", None), "type", None)
    if not isinstance(kind, str) or not isinstance(getattr(value, "stream_id", None), int):
        return None
    if kind != CUDA:
        return GivenStream(0, _device_of(value), kind, value)
    same = sys.modules["torch"].cuda.Stream(
        stream_id=value.stream_id, device_index=value.device_index, device_type=value.device_type
    )
    return GivenStream(same.cuda_stream, value.device_index, CUDA, same)


def _is_handle(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _HANDLES


def _device_of(value: Any) -> int:
    for name in ("device_index", "device_id"):
        index = getattr(value, name, None)
        if isinstance(index, int):
            return index
    return -1
