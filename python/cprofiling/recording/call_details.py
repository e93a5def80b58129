"""Details of each call, such as shapes of arguments, stack and memory."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from numbers import Number
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from cprofiling._internal.messages import is_own
from cprofiling.devices.memory import current_memory

if TYPE_CHECKING:
    Description = tuple[str | None, str | None, str | None]

_MOST_FRAMES = 64
_MOST_ITEMS = 64  # of a list of arrays: a large batch must not cost a walk through it


def describer(*, shapes: bool, stack: bool) -> Callable[[tuple[Any, ...]], Description] | None:
    """Return a function that describes a call by its arguments, or None.

    It returns (shapes, types, stack), each a text or None.
    """
    if not shapes and not stack:
        return None
    known: dict[tuple[CodeType, int], str] = {}

    def describe(arguments: tuple[Any, ...]) -> Description:
        dims, types = described_arguments(arguments) if shapes and arguments else (None, None)
        return dims, types, described_stack(known) if stack else None

    return describe


def described_arguments(arguments: tuple[Any, ...]) -> tuple[str | None, str | None]:
    """Return shapes and types of arguments as JSON lists, like torch.profiler.

    Both are None where no argument has a shape. Lists and tuples are described by their items. The shape of an object
    without ``shape`` and ``dtype`` is ``[]``, its type ``Scalar`` for a number and empty otherwise.
    """
    described: list[tuple[list[Any], str]] = []
    for argument in arguments:
        is_list = isinstance(argument, (list, tuple)) and 0 < len(argument) <= _MOST_ITEMS
        items = [_array(item) for item in argument] if is_list else [None]
        if None not in items:
            described.append(([item[0] for item in items if item is not None], "TensorList"))
        else:
            described.append(_array(argument) or ([], "Scalar" if isinstance(argument, Number) else ""))
    if not any(shape for shape, _ in described) and not any(kind not in ("", "Scalar") for _, kind in described):
        return None, None
    return json.dumps([shape for shape, _ in described]), json.dumps([kind for _, kind in described])


def _array(value: Any) -> tuple[list[int], str] | None:
    try:
        return [int(size) for size in value.shape], str(value.dtype).rpartition(".")[2]
    except Exception:  # noqa: BLE001 an unreadable shape is none
        return None


def described_stack(known: dict[tuple[CodeType, int], str]) -> str:
    """Return the caller's Python frames, innermost first, without our own.

    Each line is ``file(line): function``.
    """
    frame: FrameType | None = sys._getframe(1)
    lines: list[str] = []
    while frame is not None and len(lines) < _MOST_FRAMES:
        if not is_own(frame):
            place = (frame.f_code, frame.f_lineno)
            text = known.get(place)
            if text is None:
                code = frame.f_code
                name = getattr(code, "co_qualname", code.co_name)
                text = known[place] = f"{code.co_filename}({frame.f_lineno}): {name}".replace("\n", "\\n")
            lines.append(text)
        frame = frame.f_back
    return "\n".join(lines)


def device_memory_finder() -> Callable[[], tuple[int, int] | None] | None:
    """Return a function for PyTorch's allocated and peak bytes, or None.

    They are those of the current device. None if PyTorch is not loaded. It never makes PyTorch use a device.
    """
    if sys.modules.get("torch") is None:
        return None
    return current_memory
