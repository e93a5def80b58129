"""Which CUDA device a call uses: asked by the core before it waits for one, outside of the measured time.

PyTorch is never imported: its objects are recognised by what they answer.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from itertools import chain
from weakref import ref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_MAX_VISITED = 64  # objects looked at in nested arguments: a large batch must not cost a walk through it

# id(node) -> (node, its first parameter or buffer, that one's device): valid while the node still has the same one.
_known: dict[int, tuple[ref[Any], ref[Any], int | None]] = {}


def cuda_device_of(arguments: tuple[Any, ...]) -> int | None:
    """The index of a call's CUDA device: that of its first argument's parameters or buffers, else of its tensors.

    None when there is none, or PyTorch is not loaded.
    """
    if "torch" not in sys.modules:
        return None
    if arguments:
        device = _device_of_module(arguments[0])
        if device is not None:
            return device
    return _device_of_tensors(arguments)


def cuda_stream_of(device: int) -> int:
    """The handle of the stream that PyTorch now uses on a CUDA device (-1: the current one); 0 when not known."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    stream: int = torch._C._cuda_getCurrentRawStream(torch.cuda.current_device() if device < 0 else device)
    return stream


def _device_of_module(node: Any) -> int | None:
    parameters, buffers = getattr(node, "parameters", None), getattr(node, "buffers", None)
    if not callable(parameters) or not callable(buffers):
        return None
    first = next(chain(parameters(), buffers()), None)
    if first is None:
        return None
    known = _known.get(id(node))
    if known is not None and known[0]() is node and known[1]() is first and _is_on(first, known[2]):
        return known[2]
    device = next(filter(_is_index, map(_device_of_tensor, chain(parameters(), buffers()))), None)
    _remember(node, first, device)
    return device


def _remember(node: Any, first: Any, device: int | None) -> None:
    key = id(node)
    with suppress(TypeError):  # what takes no weak reference is looked at anew in each call
        _known[key] = (ref(node, lambda _: _known.pop(key, None)), ref(first), device)


def _is_on(tensor: Any, device: int | None) -> bool:
    return _device_of_tensor(tensor) == device


def _is_index(device: int | None) -> bool:
    return device is not None


def _device_of_tensor(value: Any) -> int | None:
    if getattr(value, "is_cuda", False) is not True:
        return None
    index = getattr(getattr(value, "device", None), "index", None)
    return index if isinstance(index, int) else 0


def _device_of_tensors(arguments: Iterable[Any]) -> int | None:
    waiting, visited = list(arguments), 0
    while waiting and visited < _MAX_VISITED:
        value = waiting.pop(0)
        visited += 1
        device = _device_of_tensor(value)
        if device is not None:
            return device
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, (list, tuple)):
            waiting.extend(value)
    return None
