"""Streams given by the caller, from PyTorch, CuPy, numba and others."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from cprofiling._internal.text import shown_value

if TYPE_CHECKING:
    from typing import Any

CUDA = "cuda"

_HANDLES = 1 << 64


class GivenStream:
    """Stream handle, with the object that keeps it alive."""

    __slots__ = ("device", "handle", "kind", "source")

    def __init__(self, handle: int, device: int = -1, kind: str = CUDA, source: Any = None) -> None:
        self.handle = handle  # a CUstream; 0 for streams of other kinds
        self.device = device  # its index; -1: not known
        self.kind = kind  # as in tensor.device.type
        self.source = source


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
    if isinstance(value, int):
        return None if isinstance(value, bool) or not _is_handle(value) else GivenStream(int(value))
    if isinstance(value, type):
        return None
    handle = _handle_of(value)
    return _stream_of_torch(value) if handle is None else GivenStream(handle, _device_of(value), CUDA, value)


def _handle_of(value: Any) -> int | None:
    for name in ("cuda_stream", "ptr"):
        handle: Any = getattr(value, name, None)
        if _is_handle(handle):
            return int(handle)
    protocol = getattr(value, "__cuda_stream__", None)
    if protocol is not None:
        _, handle = protocol()
        return int(handle) if _is_handle(handle) else None
    handle = getattr(value, "handle", None)
    if hasattr(handle, "value"):  # a c_void_p, which holds None for 0
        handle = handle.value or 0
    return int(handle) if _is_handle(handle) else None


def _is_handle(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _HANDLES


def _device_of(value: Any) -> int:
    for name in ("device_index", "device_id"):
        index = getattr(value, name, None)
        if isinstance(index, int):
            return index
    return -1


def _stream_of_torch(value: Any) -> GivenStream | None:
    """Return a ``torch.Stream`` of any kind of device.

    Only a ``torch.cuda.Stream`` has a CUDA handle.
    """
    kind = getattr(getattr(value, "device", None), "type", None)
    if not isinstance(kind, str) or not isinstance(getattr(value, "stream_id", None), int):
        return None
    if kind != CUDA:
        return GivenStream(0, _device_of(value), kind, value)
    same = sys.modules["torch"].cuda.Stream(
        stream_id=value.stream_id, device_index=value.device_index, device_type=value.device_type
    )
    return GivenStream(same.cuda_stream, value.device_index, CUDA, same)
